/* commit.c: gives handles new values: the updates of optimisers, values promised by fx_want and
 * fx_set, and the evaluation that a thread starts by itself when too many nodes are pending.
 */
#include "counters.h"
#include "elements.h"
#include "evaluate.h"
#include "run.h"
#include "tape.h"

#include <cflux/optim.h>
#include <string.h>

/* Binds a handle to its new value. The value forgets its history: otherwise each training step
 * would keep the graphs of all earlier ones. Values of other threads keep theirs. */
static void commit_one(fxi_context *c, fx_array *handle, fxi_node *n)
{
    if (!n->data) /* the handle keeps its node (fxi_keep_nodes) */
        return;
    if (handle && handle->node != n) {
        fxi_node *old = handle->node;
        __atomic_store_n(&old->rebound, handle, __ATOMIC_RELAXED);
        if (!c->tape || !old->stale || !fxi_tape_rebind(c, handle, n))
            fxi_array_rebind(handle, n);
    }
    if (n->owner == c->id)
        fxi_node_cut(n);
}

/* Ends all promises made at `depth` or deeper; `commit`: binds their handles. Backwards, because
 * dropping a promise moves those after it. */
static void settle_promises(fxi_context *c, int depth, bool commit)
{
    for (int i = c->npromises - 1; i >= 0; i--) {
        fxi_promise *p = &c->promises[i];
        if (p->depth < depth)
            continue;
        if (commit && p->kind != FXI_PROMISE_WANT)
            commit_one(c, p->target, p->value->node);
        fxi_promise_drop(c, i);
    }
}

/* Drops promises after an update that failed. Staged state is always dropped. Values asked for by
 * fx_want and fx_set stay promised until the end of their scope, unless the evaluation itself
 * failed: then one of them may be the value that failed. */
static void drop_promises(fxi_context *c, bool staged_only)
{
    for (int i = c->npromises - 1; i >= 0; i--)
        if (!staged_only || c->promises[i].kind == FXI_PROMISE_STAGE)
            fxi_promise_drop(c, i);
}

/* Evaluates and commits the promises made at this depth or deeper, in one plan. On error they are
 * dropped. */
static void promises_due(fxi_context *c, int depth)
{
    fxi_scratch *s = NULL;
    int32_t n = 0;
    bool due = false, ok = true;
    for (int i = 0; i < c->npromises && ok; i++) {
        const fxi_promise *p = &c->promises[i];
        if (p->depth < depth)
            continue;
        due = true;
        s = s ? s : fxi_scratch_of(c);
        ok = s && p->value->status == FX_OK &&
             (p->value->node->data || fxi_root_push(s, &n, p->value->node, NULL));
    }
    /* Most scopes close without promises; they need no evaluation. */
    if (!due)
        return;
    if (ok && n > 0)
        ok = fxi_run_all(c, n, s->roots) == FX_OK;
    settle_promises(c, depth, ok);
}

/* The weight of an automatic evaluation for fxi_scope_watch, which warns about scopes that grow. An
 * ordinary evaluation has weight 1, but an automatic one follows thousands of pending nodes or much
 * memory (set_pending_bounds), so few of them are enough for the warning. */
enum { FLUSH_WEIGHT = 20 };

/* Evaluates the pending results that nothing has consumed, to bound the memory of pending nodes.
 * Results that read an overwritten value cannot be computed; they report that when they are read.
 * Results that are computed only on demand (fxi_node.on_demand) stay pending, because they would
 * take more memory than they free. */
static void flush(fxi_context *c)
{
    fxi_scratch *s = fxi_scratch_of(c);
    int32_t n = 0;
    fxi_count_nodes_here();
    fxi_tape_break(c);
    /* Counts again from 0: otherwise a flush that leaves nodes pending would be followed by another
     * at the next node. */
    fxi_pending_counted(c);
    c->mark++;
    fxi_sinks_wake(c, 0);
    /* No update runs, so no value is being replaced: only results that read a value lost in an
     * earlier update are left out. */
    if (s) {
        s->nforeign = 0;
        s->oldest = 0;
    }
    for (fxi_node *k = c->sinks.next; s && k != &c->sinks; k = k->next)
        if (!k->on_demand && fxi_what_it_reads(c, s, k) != FXI_READS_LOST &&
            !fxi_root_push(s, &n, k, NULL))
            return;
    c->unwatched++; /* fxi_scope_watch below counts its evaluations together */
    if (s && n > 0 && fxi_run_all(c, n, s->roots) == FX_OK)
        fxi_count(&fxi_counters.implicit_evals, 1);
    c->unwatched--;
    fxi_scope_watch(c, FLUSH_WEIGHT);
}

/* The folders `value` and `ops` call evaluation only through this table, so they do not depend on
 * this folder.
 */
const fxi_evaluator fxi_the_evaluator = {.flush = flush,
                                         .promises_due = promises_due,
                                         .reclaim = fxi_reclaim_for,
                                         .thread_ends = fxi_scratch_free};

/* ---- updates --------------------------------------------------------------------------------- */

fx_status fxi_check_value(const fx_array *handle, const fxi_node *value)
{
    char old[FXI_SHAPE_TEXT], new[FXI_SHAPE_TEXT];
    if (handle->status != FX_OK)
        return fx_array_status(handle);
    const fxi_node *n = handle->node;
    if (n->dtype == value->dtype && fxi_same_shape(n, value))
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, "update", "the new value is %s %s, but the old one is %s %s",
                   fxi_shape_text(value->ndim, value->shape, new),
                   fx_dtype_name((fx_dtype)value->dtype), fxi_shape_text(n->ndim, n->shape, old),
                   fx_dtype_name((fx_dtype)n->dtype));
}

/* Checks all values before anything changes: an update happens for all handles or for none. */
static fx_status check_commit(int n, fx_array *const *handles, fxi_node *const *values)
{
    fx_status status = FX_OK;
    for (int i = 0; i < n && status == FX_OK; i++)
        status = fxi_check_value(handles[i], values[i]);
    return status;
}

/* Replaces each staged value by a selection: the new value if the guard is true, else the old one.
 * So a skipped update does not change the state of layers (the statistics of batch norm) either. */
static fx_status guard_promises(fxi_context *c, fx_array *guard)
{
    for (int i = 0; i < c->npromises; i++) {
        fxi_promise *p = &c->promises[i];
        if (p->kind != FXI_PROMISE_STAGE)
            continue;
        /* The selection is part of the same plan, so the host does not wait for the guard. */
        fx_array *chosen = fx_where(guard, p->value, p->target);
        if (fx_is_error(chosen))
            return chosen->status;
        /* The promise holds a reference: the scope may close before the promised work is done. */
        fxi_retain(chosen);
        fx_release(p->value);
        c->promises[i].value = chosen;
    }
    return FX_OK;
}

/* Lists everything that this update evaluates: the new values, the promises, the guard and, if
 * `sinks`, pending results that read what is replaced. One plan for all shares their common work. A
 * new value may take over the memory of the old one (the donor). */
static fx_status gather_roots(fxi_context *c, fxi_scratch *s, int n, fx_array *const *handles,
                              fxi_node *const *values, fx_array *guard, bool sinks, int32_t *m)
{
    bool ok = fxi_grow(&s->roots, &s->root_capacity, *m + n + 1, sizeof *s->roots);
    for (int i = 0; i < n && ok; i++)
        if (!values[i]->data)
            s->roots[(*m)++] = (fxi_root){values[i], handles[i]->node};
    for (int i = 0; i < c->npromises && ok; i++) {
        const fxi_promise *p = &c->promises[i];
        if (p->value->status != FX_OK)
            /* A promise whose value could not be recorded fails the update: its handle would get no
             * value. */
            return p->value->status;
        ok = p->value->node->data ||
             fxi_root_push(s, m, p->value->node,
                           p->kind == FXI_PROMISE_STAGE ? p->target->node : NULL);
    }
    if (ok && guard && !guard->node->data)
        ok = fxi_root_push(s, m, guard->node, NULL);
    /* If the sinks are not searched, the age of the replaced values stays unknown, so no node
     * counts as calm (sinks.c) any more. */
    const int32_t given = *m;
    if (!sinks)
        fxi_keep_calm(c, 0);
    else if (ok)
        ok = fxi_sinks_push(c, s, m, n, handles);
    s->nsinks = *m - given;
    s->takes_sinks = sinks;
    return ok ? FX_OK : fxi_no_roots();
}

/* Nothing is bound before all values are computed, so after a failed update every handle still has
 * its old value. That value is lost if a step was replacing it in place. */
fx_status fxi_commit_nodes(int n, fx_array *const *handles, fxi_node *const *values,
                           fx_array *const *made, fx_array *guard, bool sinks)
{
    fxi_context *c = fxi_here();
    fxi_scratch *s = fxi_scratch_of(c);
    fx_status status = !s                            ? FX_STATUS_MEMORY
                       : guard && fx_is_error(guard) ? fx_array_status(guard)
                                                     : check_commit(n, handles, values);
    if (status == FX_OK && guard)
        status = guard_promises(c, guard);
    int32_t m = 0;
    if (status == FX_OK)
        status = gather_roots(c, s, n, handles, values, guard, sinks, &m);
    if (s)
        s->repeats = false;
    if (status == FX_OK && m > 0 && fxi_tape_repeats(c) &&
        !(s->repeats = fxi_repeats_run(c, s, m, s->roots))) {
        /* The training step's own sinks can be found only after this call. */
        fxi_tape_leave(c);
        m = 0;
        status = gather_roots(c, s, n, handles, values, guard, sinks, &m);
    }
    if (s && s->repeats)
        fxi_keep_nodes(c, n, handles, values, made);
    /* False if the failure was found before any step could run: then only staged state is dropped.
     */
    const bool launched = status == FX_OK && m > 0;
    if (launched)
        status = fxi_run_all(c, m, s->roots);
    if (s) {
        s->repeats = s->takes_sinks = false;
        s->nsinks = 0;
    }
    if (status != FX_OK) {
        drop_promises(c, !launched);
        return status;
    }
    for (int i = 0; i < n; i++)
        commit_one(c, handles[i], values[i]);
    settle_promises(c, 0, true);
    /* The guard is read after the commit: its value selected the new values on the device already,
     * so nothing waits for it before. */
    double held = 1;
    if (guard)
        status = fxi_element_get("update", guard, 0, &held);
    return status == FX_OK && held == 0 ? FX_STATUS_NONFINITE : status;
}

fx_status fxi_commit(int n, fx_array *const *handles, fx_array *const *values, fx_array *guard,
                     bool sinks)
{
    fxi_node **nodes = fxi_malloc(((size_t)n + 1) * sizeof *nodes);
    fx_status status = nodes ? FX_OK : fxi_no_roots();
    for (int i = 0; i < n && status == FX_OK; i++) {
        nodes[i] = values[i]->node;
        if (fx_is_error(handles[i]) || fx_is_error(values[i]))
            status = fx_array_status(fx_is_error(handles[i]) ? handles[i] : values[i]);
    }
    /* With an error as its guard, fxi_commit_nodes drops staged state and returns the error. */
    status = status == FX_OK ? fxi_commit_nodes(n, handles, nodes, values, guard, sinks)
                             : fxi_commit_nodes(0, NULL, NULL, NULL, fx_error_array(status), false);
    fxi_free(nodes);
    return status;
}
