/* tape.c: notes the nodes of a step and compares the next step with them. See tape.h. */
#include "tape.h"
#include "counters.h"

#include <string.h>

/* Programs with more locations than this record the least recently used one again. */
enum { MOST_TAPES = 8 };

/* A step that changes each time costs more with a tape than without. After PATIENCE steps in a row
 * that did not repeat, every second one is followed by some that are not noted: 2, 4 and so on, at
 * most 2^MOST_REST. Every second one, because the first step after a rest meets an old tape. */
enum { PATIENCE = 6, MOST_REST = 4 };

/* ---- the tape's own nodes -------------------------------------------------------------------- */

/* A pending copy of n that the tape owns, with room for its inputs. NULL: the allocation failed. */
static fxi_node *ghost_of(const fxi_node *n, int32_t nin)
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

static void ghost_free(fxi_node *g)
{
    if (!g)
        return;
    g->nin = 0; /* it holds no references to its inputs */
    fxi_node_release(g);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static fxi_tape_leaf class_of(const fxi_node *n)
{
    const fxi_data *d = n->data;
    const uintptr_t at =
        (uintptr_t)d->buffer->ptr + (uintptr_t)d->offset * fx_dtype_size((fx_dtype)n->dtype);
    fxi_tape_leaf l = {.device = n->device,
                       .place = d->buffer->device,
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
    const uintptr_t at =
        (uintptr_t)d->buffer->ptr + (uintptr_t)d->offset * fx_dtype_size((fx_dtype)n->dtype);
    return l->dtype == n->dtype && l->ndim == n->ndim && l->device == n->device &&
           l->place == d->buffer->device && l->borrowed == d->buffer->borrowed &&
           l->unaligned == (at % 64 != 0) &&
           memcmp(l->shape, n->shape, n->ndim * sizeof *l->shape) == 0 &&
           memcmp(l->stride, d->stride, n->ndim * sizeof *l->stride) == 0;
}

/* Makes n leaf i of this step. Two leaves are never one node: their plan may write one of them
 * while it still reads the other. */
static bool take_leaf(fxi_tape *t, int32_t i, fxi_node *n)
{
    if (!fxi_identity_put(&t->numbers, n, (void *)(intptr_t)(i + 1)))
        return false;
    fxi_node_retain(n);
    t->leaves[i].node = n;
    t->nbound = i + 1;
    return true;
}

/* Is n leaf i of this step? It becomes it if the leaf has not been met yet. */
static bool is_leaf(fxi_tape *t, int32_t i, fxi_node *n)
{
    fxi_tape_leaf *l = &t->leaves[i];
    void *known;
    if (l->node)
        return l->node == n;
    return n->data && !n->ghost && !n->stale && !n->data->buffer->freed && same_class(l, n) &&
           !fxi_identity_get(&t->numbers, n, &known) && take_leaf(t, i, n);
}

static void drop_leaves(fxi_tape *t)
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
    const int32_t i = n->tape - 1;
    void *leaf;
    *out = i;
    if (i >= 0 && i < t->n && (t->entries[i].live == n || t->entries[i].node == n))
        return true;
    if (!fxi_identity_get(&t->numbers, n, &leaf))
        return false;
    *out = ~(int32_t)((intptr_t)leaf - 1);
    return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void free_events(fxi_event *e)
{
    for (fxi_event *next; e; e = next) {
        next = e->next;
        e->kind->free(e);
    }
}

/* Drops the events that the present step has not reached. They are freed when it closes, because
 * their owners may be at work on them. */
static void cut_events(fxi_tape *t)
{
    fxi_event *kept = NULL;
    for (fxi_event *e = t->events, *next; e; e = next) {
        next = e->next;
        const bool evaluation = e->first == e->end;
        const bool reached = evaluation ? t->ran && e->end <= t->ran->end : e->end <= t->pos;
        for (int32_t i = e->first; !reached && i < e->end && i < t->pos; i++)
            t->entries[i].inside = false; /* nothing skips them any more */
        fxi_event **to = reached ? kept ? &kept->next : &t->events : &t->dropped;
        e->next = reached ? NULL : t->dropped;
        *to = e;
        kept = reached ? e : kept;
        if (evaluation && e == t->ran)
            t->ran = NULL; /* later evaluations at the same entry were not reached */
    }
    if (!kept)
        t->events = NULL;
    t->latest = kept;
}

void fxi_tape_add(fxi_context *c, fxi_event *e, int32_t first)
{
    fxi_tape *t = c->tape;
    e->next = NULL;
    e->first = first;
    e->end = t->n;
    if (t->latest)
        t->latest->next = e;
    else
        t->events = e;
    t->latest = e;
}

fxi_event *fxi_tape_event(const fxi_context *c, const fxi_event_kind *kind)
{
    const fxi_tape *t = c->tape;
    for (fxi_event *e = t->events; e; e = e->next)
        if (e->kind == kind && e->first == t->pos && e->end > t->pos)
            return e;
    return NULL;
}

/* ---- noting ---------------------------------------------------------------------------------- */

static void empty(fxi_tape *t)
{
    drop_leaves(t);
    for (int32_t i = t->n - 1; i >= 0; i--)
        ghost_free(t->entries[i].node);
    free_events(t->events);
    free_events(t->dropped);
    t->events = t->latest = t->dropped = t->ran = NULL;
    t->n = t->pos = t->noperands = t->nleaf_uses = t->nleaves = t->nusers = 0;
    t->impure = t->changed = false;
}

static void tape_free(fxi_tape *t)
{
    empty(t);
    void *const all[] = {t->entries, t->operands, t->leaf_uses, t->users, t->leaves, t->file};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fxi_free(all[i]);
    fxi_identity_free(&t->numbers);
    fxi_free(t);
}

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
    if (!fxi_grow(&t->leaf_uses, &t->leaf_use_capacity, t->nleaf_uses + 1, sizeof *t->leaf_uses))
        return false;
    t->leaf_uses[t->nleaf_uses++] = (fxi_tape_place){t->n, k};
    return true;
}

static bool note(fxi_tape *t, fxi_node *n)
{
    if (n->op == FX_OP_COLLECTIVE || n->op == FX_OP_TRANSFER ||
        !fxi_grow(&t->entries, &t->capacity, t->n + 1, sizeof *t->entries))
        return false;
    fxi_tape_entry *e = &t->entries[t->n];
    *e = (fxi_tape_entry){.node = ghost_of(n, n->nin),
                          .live = n,
                          .device = n->device,
                          .nin = n->nin,
                          .operand = t->noperands,
                          .leaf_use = t->nleaf_uses};
    bool ok = e->node != NULL;
    for (int32_t k = 0; k < n->nin && ok; k++)
        ok = note_operand(t, e, k, n->in[k]);
    if (!ok) {
        ghost_free(e->node);
        return false;
    }
    t->impure |= n->op == FX_OP_OWN_GRADIENT || n->op == FX_OP_CUSTOM;
    n->tape = e->node->tape = ++t->n;
    return true;
}

void fxi_tape_note(fxi_context *c, fxi_node *n)
{
    fxi_tape *t = c->tape;
    if (t->mode == FXI_TAPE_NOTES && n->op != FX_OP_LEAF && !note(t, n))
        fxi_tape_break(c);
}

void fxi_tape_forget(fxi_context *c, const fxi_node *n)
{
    fxi_tape *t = c->tape;
    const int32_t i = n->tape - 1;
    if (t->mode == FXI_TAPE_NOTES && i >= 0 && i < t->n && t->entries[i].live == n) {
        t->entries[i].live = NULL;
        t->entries[i].node->weak = n->weak;
        t->entries[i].node->device = n->device;
    }
}

void fxi_tape_inside(fxi_tape *t, int32_t first)
{
    for (int32_t i = first; i < t->n; i++)
        t->entries[i].inside = true;
}

bool fxi_tape_can_skip(const fxi_tape *t, int32_t first, bool literals, int32_t leaves)
{
    if (first == t->n)
        return false;
    for (int32_t i = first; i < t->n; i++) {
        const uint8_t op = t->entries[i].node->op;
        if (op == FX_OP_RANDOM || (op == FX_OP_CONST && !literals))
            return false;
    }
    int32_t before = 0;
    for (int32_t k = 0; k < t->entries[first].operand; k++)
        if (t->operands[k] < 0 && ~t->operands[k] >= before)
            before = ~t->operands[k] + 1;
    return t->nleaves - before <= leaves;
}

int32_t fxi_tape_evaluations(const fxi_tape *t)
{
    int32_t n = 0;
    if (t->mode == FXI_TAPE_REPEATS && !t->ran)
        return 0;
    for (const fxi_event *e = t->events; e; e = e->next) {
        n += e->first == e->end;
        if (t->mode == FXI_TAPE_REPEATS && e == t->ran)
            break;
    }
    return n;
}

/* Lists the operands of later entries that are entry i, for each i: if the node of an entry is
 * replaced, they change with it. False: the allocation failed. */
static bool list_users(fxi_tape *t)
{
    if (!fxi_grow(&t->users, &t->user_capacity, t->noperands + 1, sizeof *t->users))
        return false;
    int32_t *count = fxi_calloc((size_t)t->n + 1, sizeof *count);
    if (!count)
        return false;
    for (int32_t k = 0; k < t->noperands; k++)
        if (t->operands[k] >= 0)
            count[t->operands[k]]++;
    int32_t sum = 0;
    for (int32_t i = 0; i < t->n; i++) {
        t->entries[i].user = sum;
        sum += count[i];
        count[i] = t->entries[i].user;
    }
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t k = 0; k < t->entries[i].nin; k++) {
            const int32_t from = t->operands[t->entries[i].operand + k];
            if (from >= 0)
                t->users[count[from]++] = (fxi_tape_place){i, k};
        }
    t->nusers = sum;
    fxi_free(count);
    return true;
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
    t->changed |= op == FX_OP_CONST && !e->inside && memcmp(&g->attr, attr, sizeof *attr) != 0;
    return true;
}

fxi_node *fxi_tape_next(fxi_context *c, fx_op op, fx_dtype dtype, int ndim, const int64_t *shape,
                        fx_device *device, const fx_attr *attr, int nin, fxi_node *const *in)
{
    fxi_tape *t = c->tape;
    if (t->mode != FXI_TAPE_REPEATS || op == FX_OP_LEAF)
        return NULL;
    fxi_tape_entry *e = &t->entries[t->pos];
    bool same = t->pos < t->n && same_call(t, e, op, dtype, ndim, shape, device, attr, nin);
    for (int k = 0; k < nin && same; k++) {
        const int32_t from = t->operands[e->operand + k];
        same = from >= 0 ? t->entries[from].node == in[k] : is_leaf(t, ~from, in[k]);
    }
    if (!same) {
        fxi_tape_leave(c);
        return NULL;
    }
    fxi_node *g = e->node;
    for (int k = 0; k < nin; k++)
        g->in[k] = in[k];
    /* Literals and random streams are not compared: the plan takes them as inputs. */
    if (attr)
        g->attr = *attr;
    g->weak = g->wanted = g->used = false;
    g->device = device;
    g->seq = c->seq++;
    t->pos++;
    fxi_node_retain(g);
    return g;
}

bool fxi_tape_skip(fxi_context *c, int32_t end, int n, fxi_node *const *fresh)
{
    fxi_tape *t = c->tape;
    const int32_t last = end < t->n ? t->entries[end].leaf_use : t->nleaf_uses;
    const int32_t first = t->entries[t->pos].leaf_use;
    int32_t most = t->nbound - 1;
    for (int32_t u = first; u < last; u++) {
        const fxi_tape_place *p = &t->leaf_uses[u];
        const int32_t leaf = ~t->operands[t->entries[p->entry].operand + p->input];
        most = leaf > most ? leaf : most;
    }
    if (most + 1 - t->nbound != n)
        return false;
    for (int i = 0; i < n; i++)
        if (!is_leaf(t, t->nbound, fresh[i]))
            return false;
    for (int32_t u = first; u < last; u++) {
        const fxi_tape_place *p = &t->leaf_uses[u];
        const fxi_tape_entry *e = &t->entries[p->entry];
        e->node->in[p->input] = t->leaves[~t->operands[e->operand + p->input]].node;
    }
    for (; t->pos < end; t->pos++)
        t->entries[t->pos].node->seq = c->seq++;
    return true;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Makes the ghosts up to the present one ordinary nodes: they hold their inputs and count as their
 * consumers. Those with a value keep what they have of their history. */
static void make_real(fxi_context *c, fxi_tape *t)
{
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

/* New ghosts for the entries that this step has repeated. False: the allocation failed. */
static bool renew_ghosts(fxi_tape *t)
{
    bool ok = true;
    for (int32_t i = 0; i < t->pos; i++) {
        fxi_tape_entry *e = &t->entries[i];
        e->live = e->node;
        e->node = ok ? ghost_of(e->live, e->nin) : NULL;
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
    if (!t || t->mode != FXI_TAPE_REPEATS)
        return;
    for (int32_t i = t->n - 1; i >= t->pos; i--)
        ghost_free(t->entries[i].node);
    if (t->pos < t->n) {
        t->noperands = t->entries[t->pos].operand;
        t->nleaf_uses = t->entries[t->pos].leaf_use;
    }
    t->n = t->pos;
    t->nleaves = t->nbound;
    make_real(c, t);
    t->version++;
    t->mode = renew_ghosts(t) ? FXI_TAPE_NOTES : FXI_TAPE_OFF;
    cut_events(t);
    /* The tape's references. Nodes that nothing else needs are freed here, consumers first. */
    for (int32_t i = t->n - 1; i >= 0; i--)
        fxi_node_release(t->entries[i].live);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static fxi_tape *new_tape(const char *file)
{
    const size_t bytes = strlen(file) + 1;
    fxi_tape *t = fxi_calloc(1, sizeof *t);
    char *name = t ? fxi_malloc(bytes) : NULL;
    if (!name) {
        fxi_free(t);
        return NULL;
    }
    t->file = memcpy(name, file, bytes);
    return t;
}

static fxi_tape *tape_at(fxi_context *c, const fxi_scope *s)
{
    fxi_tape **at = &c->tapes;
    int n = 0;
    while (*at && ((*at)->line != s->line || strcmp((*at)->file, s->file) != 0)) {
        if (++n == MOST_TAPES && (*at)->next) {
            tape_free((*at)->next);
            (*at)->next = NULL;
        }
        at = &(*at)->next;
    }
    fxi_tape *t = *at;
    if (t)
        *at = t->next;
    else
        t = new_tape(s->file);
    if (!t)
        return NULL;
    t->line = s->line;
    t->next = c->tapes;
    c->tapes = t;
    return t;
}

void fxi_tape_open(fxi_context *c, const fxi_scope *s)
{
    if (c->tape || !s->file)
        return; /* the inner one of two recorded steps is part of the outer one */
    fxi_tape *t = tape_at(c, s);
    if (!t || t->rest-- > 0)
        return;
    t->scope = s;
    t->pos = 0;
    t->ran = NULL;
    t->changed = false;
    t->mode = t->n > 0 ? FXI_TAPE_REPEATS : FXI_TAPE_NOTES;
    c->tape = t;
}

/* A ghost with a value outlives the step: it becomes an ordinary node without history, and a new
 * ghost takes its place on the tape. False: the allocation failed. */
static bool part_with(fxi_tape *t, int32_t i)
{
    fxi_tape_entry *e = &t->entries[i];
    fxi_node *old = e->node, *g = ghost_of(old, e->nin);
    if (!g)
        return false;
    for (int32_t k = 0; k < e->nin; k++)
        g->in[k] = old->in[k];
    old->history_cut |= old->nin > 0;
    old->nin = 0;
    old->ghost = false;
    e->node = g;
    t->version += !e->moves;
    e->moves = true;
    const int32_t last = i + 1 < t->n ? t->entries[i + 1].user : t->nusers;
    for (int32_t u = e->user; u < last; u++)
        t->entries[t->users[u].entry].node->in[t->users[u].input] = g;
    fxi_node_release(old);
    return true;
}

/* Makes all ghosts pending again. False: one of them is a pending result that outlives the step, or
 * an allocation failed. */
static bool rewind_tape(fxi_tape *t)
{
    for (int32_t i = 0; i < t->pos; i++)
        if (!t->entries[i].node->data && t->entries[i].node->refs > 1)
            return false;
    for (int32_t i = 0; i < t->pos; i++) {
        fxi_node *g = t->entries[i].node;
        g->used = false;
        if (!g->data)
            continue;
        if (__atomic_load_n(&g->refs, __ATOMIC_ACQUIRE) == 1)
            g->nin = t->entries[i].nin, fxi_node_unsettle(g);
        else if (!part_with(t, i))
            return false;
    }
    return true;
}

static void end_noting(fxi_context *c, fxi_tape *t)
{
    for (int32_t i = 0; i < t->n; i++)
        if (t->entries[i].live)
            fxi_tape_forget(c, t->entries[i].live);
    if (!list_users(t))
        t->mode = FXI_TAPE_OFF;
}

void fxi_tape_close(fxi_context *c)
{
    fxi_tape *t = c->tape;
    if (t->mode == FXI_TAPE_REPEATS && !rewind_tape(t))
        fxi_tape_leave(c);
    if (t->mode == FXI_TAPE_NOTES)
        end_noting(c, t);
    drop_leaves(t);
    free_events(t->dropped);
    t->dropped = NULL;
    t->failures = t->mode == FXI_TAPE_REPEATS ? 0 : t->failures + 1;
    const int over = (t->failures - PATIENCE) / 2;
    t->rest = over <= 0 || t->failures % 2 != 0 ? 0 : 1 << (over < MOST_REST ? over : MOST_REST);
    if (t->mode == FXI_TAPE_OFF)
        empty(t);
    t->scope = NULL;
    c->tape = NULL;
}

void fxi_tapes_free(fxi_context *c)
{
    fxi_tape **at = &c->tapes;
    while (*at) {
        fxi_tape *t = *at;
        if (t == c->tape) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        tape_free(t);
    }
}
