/* tape.c: notes the nodes of a training step and compares the next one with them. See tape.h. */
#include "counters.h"
#include "tape_parts.h"

#include <string.h>

/* ---- the tape's own nodes -------------------------------------------------------------------- */

fxi_node *fxi_ghost_of(const fxi_node *n, int32_t nin)
{
    fxi_node *g = fxi_malloc(sizeof *g);
    fxi_node **list = nin > 3 ? fxi_malloc((size_t)nin * sizeof *list) : NULL;
    if (!g || (nin > 3 && !list)) {
        fxi_free(g);
        fxi_free(list);
        return NULL;
    }
    *g = *n;
    g->refs = 1;
    g->in = list ? list : g->inl;
    for (int32_t i = 0; i < nin; i++)
        g->in[i] = NULL;
    g->nin = nin;
    g->ghost = true;
    g->used = g->stale = g->wanted = g->history_cut = g->tied = false;
    g->mark = g->sweep = g->calm = 0;
    g->handles = g->consumers = 0;
    g->data = NULL;
    g->rebound = NULL;
    g->prev = g->next = NULL;
    return g;
}

void fxi_ghost_free(fxi_node *g)
{
    if (!g)
        return;
    g->nin = 0; /* it holds no references to its inputs */
    fxi_node_release(g);
}

void fxi_tape_cut(fxi_tape *t, int32_t first)
{
    for (int32_t i = t->n - 1; i >= first; i--) {
        fxi_ghost_free(t->entries[i].node);
        fxi_data_free(t->entries[i].spare);
    }
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static fxi_tape_leaf class_of(const fxi_node *n)
{
    const fxi_data *d = n->data;
    const uintptr_t at =
        (uintptr_t)d->buffer->ptr + (uintptr_t)d->offset * fxi_dtype_size(n->dtype);
    fxi_tape_leaf l = {.device = n->device,
                       .buffer_device = d->buffer->device,
                       .dtype = n->dtype,
                       .ndim = n->ndim,
                       .borrowed = d->buffer->borrowed,
                       .unaligned = at % 64 != 0};
    memcpy(l.shape, n->shape, n->ndim * sizeof *l.shape);
    memcpy(l.stride, d->stride, n->ndim * sizeof *l.stride);
    return l;
}

static bool same_class(const fxi_tape_leaf *l, const fxi_node *n)
{
    const fxi_data *d = n->data;
    const uintptr_t at = (uintptr_t)d->buffer->ptr +
                         (d->offset == 0 ? 0 : (uintptr_t)d->offset * fxi_dtype_size(n->dtype));
    bool same = (l->dtype == n->dtype) & (l->ndim == n->ndim) & (l->device == n->device) &
                (l->buffer_device == d->buffer->device) & (l->borrowed == d->buffer->borrowed) &
                (l->unaligned == (at % 64 != 0));
    for (int i = 0; same && i < n->ndim; i++)
        same = (l->shape[i] == n->shape[i]) & (l->stride[i] == d->stride[i]);
    return same;
}

/* Stores the number of the leaf that is n in this training step. False: n is not a leaf. Other
 * threads may have made n a leaf of their tapes, so only nodes of this thread keep their number. */
static inline bool find_leaf(const fxi_tape *t, const fxi_node *n, int32_t *out)
{
    void *known;
    *out = n->leaf;
    if (n->owner == t->owner)
        return n->leaf < t->nbound && t->leaves[n->leaf].node == n;
    if (t->numbers.count == 0 || !fxi_identity_get(&t->numbers, n, &known))
        return false;
    *out = (int32_t)((intptr_t)known - 1);
    return true;
}

/* The ghost of an entry. After an exchange it is the node of a leaf. */
static fxi_node *ghost_at(const fxi_tape *t, int32_t i)
{
    const fxi_tape_entry *e = &t->entries[i];
    return e->old ? t->leaves[e->old - 1].node : e->node;
}

/* The ghosts that read leaf i get n as their operand, also those that the training step has not
 * reached. */
static void pass_on(fxi_tape *t, int32_t i, fxi_node *n)
{
    const int32_t end = i + 1 < t->nleaves ? t->leaves[i + 1].user : t->nleaf_users;
    for (int32_t u = t->leaves[i].user; u < end; u++)
        ghost_at(t, t->leaf_users[u].entry)->in[t->leaf_users[u].input] = n;
    t->leaves[i].was = n;
}

void fxi_tape_pass_entry(fxi_tape *t, int32_t i, fxi_node *n)
{
    const int32_t end = i + 1 < t->n ? t->entries[i + 1].user : t->nusers;
    for (int32_t u = t->entries[i].user; u < end; u++)
        ghost_at(t, t->users[u].entry)->in[t->users[u].input] = n;
}

/* Makes n leaf i of this training step. Two leaves are never the same node: the plan may write one
 * of them while it still reads the other. */
static bool take_leaf(fxi_tape *t, int32_t i, fxi_node *n)
{
    if (n->owner == t->owner)
        n->leaf = i;
    else if (!fxi_identity_put(&t->numbers, n, (void *)(intptr_t)(i + 1)))
        return false;
    fxi_node_retain(n);
    t->leaves[i].node = n;
    t->leaves[i].seq = n->seq;
    t->leaves[i].serves = false;
    t->nbound = i + 1;
    if (t->mode == FXI_TAPE_REPEATS && t->leaves[i].was != n)
        pass_on(t, i, n);
    return true;
}

/* Not inline, so that fxi_tape_is_leaf saves no registers in the usual case. */
static __attribute__((noinline)) bool take_other_leaf(fxi_tape *t, int32_t i, fxi_node *n)
{
    int32_t known;
    return same_class(&t->leaves[i], n) && !find_leaf(t, n, &known) && take_leaf(t, i, n);
}

bool fxi_tape_is_leaf(fxi_tape *t, int32_t i, fxi_node *n)
{
    fxi_tape_leaf *l = &t->leaves[i];
    if (l->node)
        return l->node == n;
    if (!n->data || n->ghost || n->stale || n->data->buffer->freed)
        return false;
    if ((l->was != n) | (l->seq != n->seq) | (n->owner != t->owner))
        return take_other_leaf(t, i, n);
    /* Usually n was leaf i in the previous training step, so the ghosts read it already. */
    if (n->leaf < t->nbound && t->leaves[n->leaf].node == n)
        return false;
    fxi_node_retain(n);
    l->node = n;
    n->leaf = i;
    t->nbound = i + 1;
    return true;
}

void fxi_tape_drop_leaves(fxi_tape *t)
{
    for (int32_t i = 0; i < t->nbound; i++) {
        fxi_node_release(t->leaves[i].node);
        t->leaves[i].node = NULL;
    }
    t->nbound = 0;
    if (t->numbers.count > 0) {
        memset(t->numbers.keys, 0, t->numbers.capacity * sizeof *t->numbers.keys);
        t->numbers.count = 0;
    }
}

bool fxi_tape_find(const fxi_tape *t, const fxi_node *n, int32_t *out)
{
    if (n->tape == FXI_TAPE_COPY && n->nin == 1)
        n = n->in[0];
    const int32_t i = n->tape - 1;
    int32_t leaf;
    *out = i;
    if (i >= 0 && i < t->n && (t->entries[i].live == n || t->entries[i].node == n))
        return true;
    if (!find_leaf(t, n, &leaf))
        return false;
    *out = ~leaf;
    return true;
}

/* ---- noting ---------------------------------------------------------------------------------- */

void fxi_tape_break(fxi_context *c)
{
    if (!c->tape || c->tape->mode == FXI_TAPE_OFF)
        return;
    fxi_tape_leave(c);
    c->tape->mode = FXI_TAPE_OFF;
}

static bool note_leaf(fxi_tape *t, fxi_node *n, int32_t *out)
{
    if (!n->data || !fxi_grow(&t->leaves, &t->leaf_capacity, t->nleaves + 1, sizeof *t->leaves))
        return false;
    t->leaves[t->nleaves] = class_of(n);
    *out = ~t->nleaves;
    return take_leaf(t, t->nleaves++, n);
}

static bool note_operand(fxi_tape *t, fxi_tape_entry *e, int32_t k, fxi_node *in)
{
    int32_t from;
    if (!fxi_tape_find(t, in, &from) && !note_leaf(t, in, &from))
        return false;
    if (!fxi_grow(&t->operands, &t->operand_capacity, t->noperands + 1, sizeof *t->operands))
        return false;
    t->operands[t->noperands++] = from;
    if (from >= 0) {
        e->node->in[k] = t->entries[from].node;
        return true;
    }
    t->nused = ~from < t->nused ? t->nused : ~from + 1;
    e->reads_leaf = true;
    return true;
}

static bool note(fxi_tape *t, fxi_node *n)
{
    if (n->op == FX_OP_TRANSFER ||
        !fxi_grow(&t->entries, &t->capacity, t->n + 1, sizeof *t->entries))
        return false;
    fxi_tape_entry *e = &t->entries[t->n];
    *e = (fxi_tape_entry){.node = fxi_ghost_of(n, n->nin),
                          .live = n,
                          .device = n->device,
                          .nin = n->nin,
                          .operand = t->noperands,
                          .leaves = t->nused};
    bool ok = e->node != NULL;
    for (int32_t k = 0; k < n->nin && ok; k++)
        ok = note_operand(t, e, k, n->in[k]);
    if (!ok) {
        fxi_ghost_free(e->node);
        return false;
    }
    /* A C function computes the gradient of these operations, so the gradient of the training step
     * is not skipped. */
    t->impure |= n->op == FX_OP_OWN_GRADIENT || n->op == FX_OP_CUSTOM;
    n->tape = e->node->tape = ++t->n;
    return true;
}

void fxi_tape_note(fxi_context *c, fxi_node *n)
{
    fxi_tape *t = c->tape;
    if (t->mode != FXI_TAPE_NOTES || n->op == FX_OP_LEAF)
        return;
    if (n->op == FX_OP_TRANSFER && n->attr.transfer.unasked)
        n->tape = FXI_TAPE_COPY;
    else if (!note(t, n))
        fxi_tape_break(c);
}

void fxi_tape_forget(fxi_context *c, const fxi_node *n)
{
    fxi_tape *t = c->tape;
    const int32_t i = n->tape - 1;
    if (t->mode == FXI_TAPE_NOTES && i >= 0 && i < t->n && t->entries[i].live == n) {
        t->entries[i].live = NULL;
        t->entries[i].node->weak = n->weak;
        t->entries[i].node->no_gradient = n->no_gradient;
        t->entries[i].node->device = n->device;
    }
}

/* ---- repeating ------------------------------------------------------------------------------- */

static bool same_call(fxi_tape *t, const fxi_tape_entry *e, fx_op op, fx_dtype dtype, int ndim,
                      const int64_t *shape, const fx_device *device, const fx_attr *attr, int nin)
{
    static const fx_attr none;
    fxi_node *g = e->node;
    if (g->op != op || g->dtype != dtype || g->ndim != ndim || e->device != device || e->nin != nin)
        return false;
    for (int i = 0; i < ndim; i++)
        if (g->shape[i] != shape[i])
            return false;
    attr = attr ? attr : &none;
    for (int i = 0; i < fxi_ops[op].attr_words; i++)
        if (g->attr.words[i] != attr->words[i])
            return false;
    if (op == FX_OP_CONST && !e->inside && !t->changed)
        t->changed = memcmp(&g->attr.literal, &attr->literal, sizeof attr->literal) != 0;
    return true;
}

/* A ghost lists the nodes of the entries that it reads, so only leaves are looked up. */
static bool same_operands(fxi_tape *t, const fxi_tape_entry *e, int nin, fxi_node *const *in)
{
    fxi_node **was = e->node->in;
    for (int k = 0; k < nin; k++) {
        const int32_t from = e->reads_leaf ? t->operands[e->operand + k] : 0;
        if (from < 0 ? !fxi_tape_is_leaf(t, ~from, in[k]) : was[k] != in[k])
            return false;
        was[k] = in[k];
    }
    return true;
}

fxi_node *fxi_tape_next(fxi_context *c, fx_op op, fx_dtype dtype, int ndim, const int64_t *shape,
                        fx_device *device, const fx_attr *attr, int nin, fxi_node *const *in)
{
    fxi_tape *t = c->tape;
    if (t->mode != FXI_TAPE_REPEATS || op == FX_OP_LEAF)
        return NULL;
    fxi_tape_catch_up(c);
    fxi_tape_entry *e = &t->entries[t->pos];
    if (t->pos >= t->n || e->node->grad != c->grad ||
        !same_call(t, e, op, dtype, ndim, shape, device, attr, nin) ||
        !same_operands(t, e, nin, in)) {
        fxi_tape_leave(c);
        return NULL;
    }
    fxi_node *g = e->node;
    /* Literals and random streams are not compared: the plan takes them as inputs. */
    if (attr)
        g->attr = *attr;
    g->weak = g->wanted = g->on_demand = g->no_gradient = false;
    g->device = device;
    g->seq = c->seq++;
    e->skipped = 0;
    t->pos++;
    fxi_node_retain(g);
    return g;
}

/* Only the tape and the handle x refer to `from`, and no other thread knows `to`. So the counts
 * change without locked instructions, which would take longer than everything else here. */
static inline void move_handle(fx_array *x, fxi_node *from, fxi_node *to)
{
    to->refs++;
    to->handles++;
    x->node = to;
    from->handles--;
    from->refs--;
}

bool fxi_tape_rebind(fxi_context *c, fx_array *handle, fxi_node *n)
{
    fxi_tape *t = c->tape;
    fxi_node *old = handle->node;
    int32_t leaf;
    if (!n->ghost || !n->data || t->mode != FXI_TAPE_REPEATS || old->owner != c->id ||
        __atomic_load_n(&old->refs, __ATOMIC_ACQUIRE) != 2 || !find_leaf(t, old, &leaf) ||
        (t->nrebound == t->rebound_capacity &&
         !fxi_grow(&t->rebound, &t->rebound_capacity, t->nrebound + 1, sizeof *t->rebound)))
        return false;
    fx_retain(handle);
    t->rebound[t->nrebound++] = (fxi_tape_rebound){handle, old, n};
    move_handle(handle, old, n);
    return true;
}

static bool same_data(const fxi_node *a, const fxi_node *b)
{
    const fxi_data *x = a->data, *y = b->data;
    bool same = (x->buffer == y->buffer) & (x->offset == y->offset) & !x->dense & !y->dense;
    for (int i = 0; i < a->ndim; i++)
        same &= x->stride[i] == y->stride[i];
    return same;
}

/* Another thread may hold a reference, and release it at any time. */
bool fxi_tape_give_back(fxi_context *c, const fxi_tape_rebound *r)
{
    fxi_node *n = r->leaf, *g = r->ghost;
    if (__atomic_load_n(&n->refs, __ATOMIC_ACQUIRE) != 1 ||
        __atomic_load_n(&g->refs, __ATOMIC_ACQUIRE) != 2 || r->handle->node != g || !g->data ||
        g->stale || n->op != g->op || n->weak != g->weak || n->nin > 0 || n->device != g->device ||
        !same_data(n, g))
        return false;
    fxi_node_revive(n, g);
    /* No pending node that reads the old value outlives the training step. */
    c->tape->leaves[n->leaf].seq = n->seq = c->seq++;
    move_handle(r->handle, g, n);
    return true;
}

/* ---- leaves that are overwritten ------------------------------------------------------------- */

void fxi_tape_keep_node(fxi_tape *t, const fx_array *handle, fx_array *made, int32_t leaf,
                        int32_t entry)
{
    t->overwritten[t->noverwritten++] = (fxi_tape_overwritten){handle, leaf, entry};
    if (made)
        move_handle(made, made->node, t->leaves[leaf].node);
}

/* Exchanges the nodes of an entry and a leaf, also as operands. */
static void exchange(fxi_tape *t, const fxi_tape_overwritten *o)
{
    fxi_tape_entry *e = &t->entries[o->entry];
    fxi_tape_leaf *l = &t->leaves[o->leaf];
    fxi_node *n = l->node;
    l->node = e->node;
    e->node = n;
    e->old = e->old ? 0 : o->leaf + 1;
    fxi_tape_pass_entry(t, o->entry, e->node);
    pass_on(t, o->leaf, l->node);
}

void fxi_tape_exchange(fxi_tape *t)
{
    const int32_t n = t->noverwritten - t->nexchanged;
    while (t->nexchanged < t->noverwritten) {
        const fxi_tape_overwritten *o = &t->overwritten[t->nexchanged++];
        fxi_tape_entry *e = &t->entries[o->entry];
        fxi_node *value = t->leaves[o->leaf].node, *old = e->node;
        /* The old value is lost. Its node refers to the memory of the new one, as after every
         * update. */
        fxi_data *d = e->spare;
        e->spare = NULL;
        d->buffer = value->data->buffer;
        fxi_buffer_retain(d->buffer);
        d->offset = value->data->offset;
        old->data = d;
        old->stale = true;
        old->rebound = o->handle;
        old->ghost = false;
        old->nin = 0;
        old->leaf = o->leaf;
        value->tape = o->entry + 1;
        exchange(t, o);
    }
    fxi_stale_count(n);
}

void fxi_tape_end_overwritten(fxi_context *c, fxi_tape *t)
{
    for (int32_t i = 0; i < t->nexchanged; i++) {
        const fxi_tape_overwritten *o = &t->overwritten[i];
        fxi_tape_entry *e = &t->entries[o->entry];
        exchange(t, o);
        t->leaves[o->leaf].node->tape = 0;
        e->node->ghost = true;
        e->node->nin = e->nin;
        e->spare = fxi_node_unsettle(e->node);
    }
    /* No pending node that reads the old value outlives the training step. */
    for (int32_t i = 0; i < t->noverwritten; i++) {
        fxi_tape_leaf *l = &t->leaves[t->overwritten[i].leaf];
        l->seq = l->node->seq = c->seq++;
    }
    t->noverwritten = t->nexchanged = 0;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Turns the ghosts up to the current position into ordinary nodes: they hold references to their
 * inputs and count as their consumers. A ghost with a value keeps the inputs that it still lists,
 * but is not their consumer. */
static void make_real(fxi_context *c, fxi_tape *t)
{
    fxi_tape_number(t);
    for (const fxi_event *e = t->ran ? t->events : NULL; e; e = e == t->ran ? NULL : e->next)
        if (e->kind->leave)
            e->kind->leave(e, t);
    for (int32_t i = 0; i < t->pos; i++) {
        fxi_node *g = t->entries[i].node;
        g->ghost = false;
        for (int32_t k = 0; k < g->nin; k++) {
            fxi_node_retain(g->in[k]);
            if (!g->data && !g->in[k]->data)
                g->in[k]->consumers++;
        }
    }
    for (int32_t i = 0; i < t->pos; i++)
        fxi_sink_check(c, t->entries[i].node);
    c->created += t->pos;
    fxi_nodes_here += (uint64_t)t->pos;
}

/* Makes new ghosts for the entries that this training step has repeated. False: the allocation
 * failed. */
static bool renew_ghosts(fxi_tape *t)
{
    bool ok = true;
    for (int32_t i = 0; i < t->pos; i++) {
        fxi_tape_entry *e = &t->entries[i];
        const fxi_node *like = ghost_at(t, i);
        e->live = e->node;
        e->node = ok ? fxi_ghost_of(like, e->nin) : NULL;
        ok = e->node != NULL;
        for (int32_t k = 0; k < e->nin && ok; k++) {
            const int32_t from = t->operands[e->operand + k];
            e->node->in[k] = from >= 0 ? t->entries[from].node : NULL;
        }
    }
    return ok;
}

void fxi_tape_leave(fxi_context *c)
{
    fxi_tape *t = c->tape;
    if (!fxi_tape_repeats(c))
        return;
    fxi_tape_cut(t, t->pos);
    if (t->pos < t->n) {
        t->noperands = t->entries[t->pos].operand;
        t->nused = t->entries[t->pos].leaves;
    }
    t->n = t->pos;
    t->nleaves = t->nbound;
    for (int32_t i = 0; i < t->nleaves; i++)
        t->leaves[i].was = NULL; /* the new ghosts have no operands that are leaves */
    make_real(c, t);
    t->version++;
    t->mode = renew_ghosts(t) ? FXI_TAPE_NOTES : FXI_TAPE_OFF;
    for (int32_t i = 0; i < t->noverwritten; i++)
        t->entries[t->overwritten[i].entry].old = 0;
    t->noverwritten = t->nexchanged = 0;
    fxi_events_cut(t);
    /* The tape's references. Nodes that nothing else needs are freed here, consumers first. */
    for (int32_t i = t->n - 1; i >= 0; i--)
        fxi_node_release(t->entries[i].live);
}
