/* tape_events.c: events that are recorded between two calls, and the parts of a tape that are
 * skipped. */
#include "tape_parts.h"

void fxi_events_free(fxi_event *e)
{
    for (fxi_event *next; e; e = next) {
        next = e->next;
        e->kind->free(e);
    }
}

void fxi_events_cut(fxi_tape *t)
{
    fxi_event *kept = NULL;
    for (fxi_event *e = t->events, *next; e; e = next) {
        next = e->next;
        const bool evaluation = e->first == e->end;
        const bool reached = evaluation ? t->ran && e->end <= t->ran->end : e->end <= t->pos;
        for (int32_t i = e->first; e->kind->skips && !reached && i < e->end && i < t->pos; i++)
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
    fxi_tape *t = c->tape;
    for (fxi_event *e = fxi_tape_ahead(t); e; e = e->next)
        if (e->kind == kind && e->first == t->pos && e->end > t->pos)
            return e;
    return NULL;
}

/* ---- parts that are skipped ------------------------------------------------------------------ */

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
        /* The next collective operation must know the previous one. */
        if (op == FX_OP_RANDOM || op == FX_OP_COLLECTIVE || (op == FX_OP_CONST && !literals))
            return false;
    }
    return t->nused - t->entries[first].leaves <= leaves;
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

bool fxi_tape_skip(fxi_context *c, int32_t end, int n, fxi_node *const *fresh)
{
    fxi_tape *t = c->tape;
    if ((end < t->n ? t->entries[end].leaves : t->nused) - t->nbound != n)
        return false;
    for (int i = 0; i < n; i++)
        if (!fxi_tape_is_leaf(t, t->nbound, fresh[i]))
            return false;
    fxi_tape_entry *e = &t->entries[t->pos];
    e->skipped = end;
    e->seq = c->seq;
    c->seq += (uint64_t)(end - t->pos);
    t->pos = end;
    return true;
}

void fxi_tape_number(fxi_tape *t)
{
    for (int32_t i = 0; i < t->pos; i = fxi_tape_after(t, i))
        for (int32_t k = i; k < t->entries[i].skipped; k++)
            t->entries[k].node->seq = t->entries[i].seq + (uint64_t)(k - i);
}
