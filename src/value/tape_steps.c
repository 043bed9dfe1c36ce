/* tape_steps.c: the tapes of a thread, and the changes of a tape when a training step opens and
 * closes. */
#include "tape_parts.h"

#include <string.h>

/* Tapes of a thread. With more locations, the least recently used tape is freed, and its location
 * is recorded again when it is used. */
enum { MOST_TAPES = 8 };

/* A training step that changes each time takes longer with a tape than without. After PATIENCE
 * training steps in a row that did not repeat, two more are noted, then two are not, two are noted,
 * then four are not, and so on: at most 2^MOST_REST in a row are not noted. Two are noted between
 * these pauses, because the first one after a pause is compared with an old tape. */
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
    fxi_tape_cut(t, 0);
    fxi_events_free(t->events);
    fxi_events_free(t->dropped);
    t->events = t->latest = t->dropped = t->ran = t->ahead = NULL;
    t->n = t->pos = t->noperands = t->nleaf_users = t->nleaves = t->nused = t->nusers = 0;
    t->impure = t->changed = false;
}

static void tape_free(fxi_tape *t)
{
    empty(t);
    void *const all[] = {t->entries, t->operands, t->leaf_users, t->users, t->settled,
                         t->leaves,  t->rebound,  t->shown,      t->file,  t->overwritten};
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

static fxi_tape *tape_at(fxi_context *c, const char *file, int line)
{
    /* In the order of their latest use: the tapes after the first MOST_TAPES are freed. */
    fxi_tape **at = &c->tapes;
    int n = 0;
    while (*at && ((*at)->line != line || strcmp((*at)->file, file) != 0)) {
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
        t = new_tape(file);
    if (!t)
        return NULL;
    t->line = line;
    t->next = c->tapes;
    c->tapes = t;
    return t;
}

void fxi_tape_open(fxi_context *c, const fxi_scope *s, const char *file, int line)
{
    if (c->tape || !file)
        return; /* of two nested recordings, the outer one records both */
    fxi_tape *t = tape_at(c, file, line);
    if (!t || t->rest-- > 0)
        return;
    t->scope = s;
    t->owner = c->id;
    t->pos = 0;
    t->ran = NULL;
    t->ahead = t->events;
    t->changed = false;
    t->nsettled = t->nshown = 0;
    t->mode = t->n > 0 ? FXI_TAPE_REPEATS : FXI_TAPE_NOTES;
    c->tape = t;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* For each entry and each leaf, lists the operands of entries that refer to it: if its node is
 * replaced, they must be changed too. False: the allocation failed. */
static bool list_users(fxi_tape *t)
{
    if (!fxi_grow(&t->users, &t->user_capacity, t->noperands + 1, sizeof *t->users) ||
        !fxi_grow(&t->leaf_users, &t->leaf_user_capacity, t->noperands + 1, sizeof *t->leaf_users))
        return false;
    const size_t n = (size_t)(t->n + t->nleaves);
    int32_t *all = fxi_calloc(n + 1, sizeof *all), *count = all + t->nleaves;
    if (!all)
        return false;
    /* Leaf i has count[~i]. */
    for (int32_t k = 0; k < t->noperands; k++)
        count[t->operands[k]]++;
    t->nusers = t->nleaf_users = 0;
    for (int32_t i = 0; i < t->n; i++) {
        t->entries[i].user = t->nusers;
        t->nusers += count[i];
        count[i] = t->entries[i].user;
    }
    for (int32_t i = 0; i < t->nleaves; i++) {
        t->leaves[i].user = t->nleaf_users;
        t->nleaf_users += count[~i];
        count[~i] = t->leaves[i].user;
    }
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t k = 0; k < t->entries[i].nin; k++) {
            const int32_t from = t->operands[t->entries[i].operand + k];
            (from >= 0 ? t->users : t->leaf_users)[count[from]++] = (fxi_tape_use){i, k};
        }
    fxi_free(all);
    return true;
}

/* Lets a ghost with a value outlive the training step: it becomes an ordinary node without history,
 * and a new ghost replaces it on the tape. False: the allocation failed. */
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
    fxi_tape_pass_entry(t, i, g);
    fxi_node_release(old);
    return true;
}

/* Does anything but the tape refer to a pending result? Of the results of skipped calls, only those
 * listed in t->shown can have a handle. */
static bool any_pending(const fxi_tape *t)
{
    for (int32_t i = 0; i < t->pos; i = fxi_tape_after(t, i))
        if (!t->entries[i].skipped && t->entries[i].node->refs > 1 && !t->entries[i].node->data)
            return true;
    for (int32_t k = 0; k < t->nshown; k++) {
        const fxi_node *g = t->entries[t->shown[k]].node;
        if (g->refs > 1 && !g->data)
            return true;
    }
    return false;
}

/* Makes all ghosts pending again. False: one of them is a pending result that outlives the training
 * step, or an allocation failed. */
static bool rewind_tape(fxi_context *c, fxi_tape *t)
{
    if (any_pending(t))
        return false;
    int64_t revived = 0;
    for (int32_t i = 0; i < t->nrebound; i++)
        revived += fxi_tape_give_back(c, &t->rebound[i]);
    fxi_stale_count(-revived);
    drop_rebound(t);
    fxi_tape_end_overwritten(c, t);
    while (t->nsettled > 0) {
        const int32_t i = t->settled[--t->nsettled];
        fxi_tape_entry *e = &t->entries[i];
        if (__atomic_load_n(&e->node->refs, __ATOMIC_ACQUIRE) == 1) {
            e->node->nin = e->nin;
            fxi_data_free(e->spare);
            e->spare = fxi_node_unsettle(e->node);
        } else if (!part_with(t, i)) {
            return false;
        }
    }
    return true;
}

static void end_noting(fxi_context *c, fxi_tape *t)
{
    for (int32_t i = 0; i < t->n; i++)
        if (t->entries[i].live)
            fxi_tape_forget(c, t->entries[i].live);
    if (!list_users(t) || !fxi_grow(&t->settled, &t->settled_capacity, t->n, sizeof *t->settled) ||
        !fxi_grow(&t->shown, &t->shown_capacity, t->n, sizeof *t->shown))
        t->mode = FXI_TAPE_OFF;
}

void fxi_tape_close(fxi_context *c)
{
    fxi_tape *t = c->tape;
    if (t->mode == FXI_TAPE_REPEATS && !rewind_tape(c, t))
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
