/* tape_steps.c: the tapes of a thread, and the changes of a tape when a training step opens and
 * closes. */
#include "tape_parts.h"

#include <string.h>

/* Tapes of a thread. With more locations, the least recently used tape is freed, and its location
 * is recorded again when it is used. */
enum { MOST_TAPES = 8 };

/* A training step that changes each time takes longer with a tape than without. After PATIENCE
 * training steps in a row that did not repeat, some are not noted: 2, then 4 and so on, at most
 * 2^MOST_REST in a row. Two are noted between these pauses, because the first one after a pause is
 * compared with an old tape. */
enum { PATIENCE = 6, MOST_REST = 4 };

static void drop_rebound(fxi_tape *t)
{
    for (int32_t i = 0; i < t->nrebound; i++)
        fx_release(t->rebound[i].handle);
    t->nrebound = 0;
}

static void empty(fxi_tape *t)
{
    drop_rebound(t);
    fxi_tape_drop_leaves(t);
    for (int32_t i = t->n - 1; i >= 0; i--)
        fxi_ghost_free(t->entries[i].node);
    fxi_events_free(t->events);
    fxi_events_free(t->dropped);
    t->events = t->latest = t->dropped = t->ran = t->ahead = NULL;
    t->n = t->pos = t->noperands = t->nleaf_uses = t->nleaves = t->nused = t->nusers = 0;
    t->impure = t->changed = false;
}

static void tape_free(fxi_tape *t)
{
    empty(t);
    void *const all[] = {t->entries, t->operands, t->leaf_uses, t->users,
                         t->settled, t->leaves,   t->rebound,   t->file};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fxi_free(all[i]);
    fxi_identity_free(&t->numbers);
    fxi_free(t);
}

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
    /* In the order of their latest use: the tapes after the first MOST_TAPES are freed. */
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
        return; /* of two nested recordings, the outer one records both */
    fxi_tape *t = tape_at(c, s);
    if (!t || t->rest-- > 0)
        return;
    t->scope = s;
    t->owner = c->id;
    t->pos = 0;
    t->ran = NULL;
    t->ahead = t->events;
    t->changed = false;
    t->nsettled = 0;
    t->mode = t->n > 0 ? FXI_TAPE_REPEATS : FXI_TAPE_NOTES;
    c->tape = t;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* For each entry, lists the operands of later entries that refer to it: if the node of the entry is
 * replaced, they must be changed too. False: the allocation failed. */
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
                t->users[count[from]++] = (fxi_tape_use){i, k};
        }
    t->nusers = sum;
    fxi_free(count);
    return true;
}

/* A ghost with a value outlives the training step: it becomes an ordinary node without history, and
 * a new ghost replaces it on the tape. False: the allocation failed. */
static bool part_with(fxi_tape *t, int32_t i)
{
    fxi_tape_entry *e = &t->entries[i];
    fxi_node *old = e->node, *g = fxi_ghost_of(old, e->nin);
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

static bool same_data(const fxi_node *a, const fxi_node *b)
{
    const fxi_data *x = a->data, *y = b->data;
    bool same = (x->buffer == y->buffer) & (x->offset == y->offset) & !x->dense & !y->dense;
    for (int i = 0; i < a->ndim; i++)
        same &= x->stride[i] == y->stride[i];
    return same;
}

/* The handle holds its old node again, whose memory has the new value, if nothing else refers to
 * one of the two nodes. So the ghost stays on the tape, and most updates make no nodes. A node with
 * another operation is replaced once, by the node of the update. */
static void give_back(const fxi_tape_rebound *r)
{
    fxi_node *n = r->leaf, *g = r->ghost;
    if (__atomic_load_n(&n->refs, __ATOMIC_ACQUIRE) == 1 &&
        __atomic_load_n(&g->refs, __ATOMIC_ACQUIRE) == 2 && r->handle->node == g && g->data &&
        !g->stale && n->op == g->op && n->weak == g->weak && n->nin == 0 &&
        n->device == g->device && same_data(n, g)) {
        fxi_node_revive(n, g);
        fxi_array_rebind(r->handle, n);
    }
}

/* Makes all ghosts pending again. False: one of them is a pending result that outlives the training
 * step, or an allocation failed. */
static bool rewind_tape(fxi_tape *t)
{
    for (int32_t i = 0; i < t->pos; i++)
        if (t->entries[i].node->refs > 1 && !t->entries[i].node->data)
            return false;
    for (int32_t i = 0; i < t->nrebound; i++)
        give_back(&t->rebound[i]);
    drop_rebound(t);
    while (t->nsettled > 0) {
        const int32_t i = t->settled[--t->nsettled];
        fxi_node *g = t->entries[i].node;
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
    if (!list_users(t) || !fxi_grow(&t->settled, &t->settled_capacity, t->n, sizeof *t->settled))
        t->mode = FXI_TAPE_OFF;
}

void fxi_tape_close(fxi_context *c)
{
    fxi_tape *t = c->tape;
    if (t->mode == FXI_TAPE_REPEATS && !rewind_tape(t))
        fxi_tape_leave(c);
    if (t->mode == FXI_TAPE_NOTES)
        end_noting(c, t);
    drop_rebound(t);
    fxi_tape_drop_leaves(t);
    fxi_events_free(t->dropped);
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
