/* sinks.c: finds the pending results that an update must compute first: those that nothing has
 * consumed yet and that read a value which the update replaces. After the update they could not be
 * computed.
 */
#include "run.h"

#include <stdlib.h>

/* The order for qsort and bsearch: by address of the node. Pointers are compared as integers,
 * because C defines no order between objects. */
static int by_node(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const fxi_node *const *)a;
    const uintptr_t y = (uintptr_t) * (const fxi_node *const *)b;
    return x < y ? -1 : x > y;
}

/* Will the update replace n, a value of another thread? Marks are stored only in nodes of this
 * thread, hence the list. */
static bool foreign_replaced(const fxi_scratch *s, const fxi_node *n)
{
    return s->nforeign > 0 &&
           bsearch(&n, s->foreign, (size_t)s->nforeign, sizeof *s->foreign, by_node);
}

/* The id of a node holds its answer during this walk. */
static void worsen(fxi_node *x, uint32_t answer)
{
    x->id = answer > x->id ? answer : x->id;
}

/* The answer for the input `in`, if it is known without a walk. A calm node reads nothing that is
 * replaced. */
static bool known_answer(const fxi_context *c, const fxi_scratch *s, const fxi_node *in,
                         uint32_t *out_answer)
{
    *out_answer = FXI_READS_NEITHER;
    if (in->owner != c->id)
        *out_answer = in->stale                 ? FXI_READS_LOST
                      : foreign_replaced(s, in) ? FXI_READS_REPLACED
                                                : FXI_READS_NEITHER;
    else if (in->mark == c->mark)
        *out_answer = in->id;
    else if (in->data)
        *out_answer = in->stale ? FXI_READS_LOST : FXI_READS_NEITHER;
    else
        return in->calm == c->calm;
    return true;
}

/* The caller has marked, with FXI_READS_REPLACED, the values that are about to be replaced. Answers
 * are kept in the ids of the nodes, so a node that many results share is visited once. The walk
 * ends as soon as it has the worst possible answer, which is FXI_READS_LOST only if the process has
 * stale values. It is iterative, because the graph can be deeper than the stack of a thread. If an
 * allocation fails, the answer is the safe one: compute the result. */
uint32_t fxi_what_it_reads(fxi_context *c, fxi_scratch *s, fxi_node *n)
{
    fxi_graph *g = &s->graph;
    const uint32_t worst = fxi_any_stale() ? FXI_READS_LOST : FXI_READS_REPLACED;
    int32_t depth = 0;
    uint32_t answer;
    if (!fxi_grow(&g->stack, &g->stack_capacity, 1, sizeof *g->stack))
        return FXI_READS_REPLACED;
    g->stack[depth++] = (fxi_frame){.node = n};
    while (depth > 0) {
        fxi_frame *f = &g->stack[depth - 1];
        fxi_node *x = f->node;
        if (f->next == 0 && x->mark != c->mark) {
            /* The first visit: the id may hold a number of an earlier walk. */
            x->mark = c->mark;
            x->id = FXI_READS_NEITHER;
            c->visited++;
        }
        if (x->data || x->id == worst || f->next >= x->nin) {
            /* Nothing that is replaced is older than `oldest`, so this node need not be visited by
             * later walks. */
            if (x->id == FXI_READS_NEITHER && x->seq < s->oldest)
                x->calm = c->calm;
            if (--depth > 0)
                worsen(g->stack[depth - 1].node, x->id);
            continue;
        }
        fxi_node *in = x->in[f->next++];
        if (known_answer(c, s, in, &answer)) {
            worsen(x, answer);
            continue;
        }
        if (!fxi_grow(&g->stack, &g->stack_capacity, depth + 1, sizeof *g->stack))
            return FXI_READS_REPLACED;
        g->stack[depth++] = (fxi_frame){.node = in};
    }
    return n->id;
}

static bool mark_replaced(const fxi_context *c, fxi_scratch *s, fxi_node *n)
{
    if (n->owner == c->id) {
        n->mark = c->mark;
        n->id = FXI_READS_REPLACED;
        s->oldest = n->seq < s->oldest ? n->seq : s->oldest;
        return true;
    }
    s->oldest = 0; /* the ages of two threads cannot be compared */
    if (!fxi_grow(&s->foreign, &s->foreign_capacity, s->nforeign + 1, sizeof *s->foreign))
        return false;
    s->foreign[s->nforeign++] = n;
    return true;
}

/* Marks the values that the update replaces: those of the handles and staged state. `oldest`
 * becomes the age of the oldest of them. */
static bool mark_all_replaced(fxi_context *c, fxi_scratch *s, int n, fx_array *const *handles)
{
    bool ok = true;
    c->mark++;
    s->nforeign = 0;
    s->oldest = UINT64_MAX;
    for (int i = 0; i < n && ok; i++)
        ok = mark_replaced(c, s, handles[i]->node);
    for (int i = 0; i < c->npromises && ok; i++)
        if (c->promises[i].kind == FXI_PROMISE_STAGE)
            ok = mark_replaced(c, s, c->promises[i].target->node);
    /* Sorted once, then searched for every foreign input of the walk. */
    if (ok && s->nforeign > 1)
        qsort(s->foreign, (size_t)s->nforeign, sizeof *s->foreign, by_node);
    return ok;
}

/* A node that is older than every replaced value reads none of them. This changes only when an
 * update replaces an older value. These nodes are calm, and walks stop at them. So the updates of a
 * loop do not walk through all pending nodes of the past each time. */
void fxi_keep_calm(fxi_context *c, uint64_t oldest)
{
    if (oldest < c->calm_below)
        c->calm++;
    c->calm_below = oldest;
    fxi_sinks_wake(c, oldest);
}

/* Results that cannot be computed any more are not added: an intermediate result whose parameters
 * were replaced before is an error only if it is read. Nor are results that are computed only on
 * demand (fxi_node.on_demand). */
bool fxi_sinks_push(fxi_context *c, fxi_scratch *s, int32_t *m, int n, fx_array *const *handles)
{
    if (c->sinks.next == &c->sinks && c->resting.next == &c->resting)
        return true;
    if (!mark_all_replaced(c, s, n, handles))
        return false;
    if (s->oldest == UINT64_MAX) /* nothing is replaced */
        return true;
    fxi_keep_calm(c, s->oldest);
    for (fxi_node *k = c->sinks.next, *next; k != &c->sinks; k = next) {
        next = k->next;
        c->visited++;
        /* Older than everything that is replaced: it cannot read any of it, and later updates need
         * not look at it again. */
        if (k->seq < s->oldest)
            fxi_sink_rest(c, k);
        else if (!k->on_demand && fxi_what_it_reads(c, s, k) == FXI_READS_REPLACED &&
                 !fxi_root_push(s, m, k, NULL))
            return false;
    }
    return true;
}
