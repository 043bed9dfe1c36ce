/* run.c: evaluates pending arrays: builds their graph, gets its plan, allocates memory, runs the
 * steps and hands over the results.
 *
 * Nodes get their results only after the last step has run. So a failed evaluation leaves every
 * array as it was, except values that a step was replacing in place: those are lost.
 */
#include "counters.h"
#include "elements.h"
#include "error.h"
#include "evaluate.h"
#include "handle.h"
#include "run.h"
#include "tape.h"
#include "timeline.h"

#include <stdio.h>
#include <string.h>

/* The status of a kernel that failed. The backend has normally recorded why; if it has not, this
 * records the operation, so that every failure has an error. */
static fx_status kernel_failed(const fx_step *s, fx_status status)
{
    if (fx_error_status() != FX_OK)
        return status;
    return fx_fail(status, fx_op_name(s->op), "%s",
                   status == FX_STATUS_MEMORY ? "out of memory" : "the kernel failed");
}

/* Marks values as lost that steps up to i were replacing in place: a kernel may have written part
 * of them. */
static void spoil(const fxi_binding *b, int32_t i)
{
    const fxi_plan *p = b->plan;
    for (int32_t k = 0; k < p->noutputs; k++) {
        const fxi_value *v = &p->values[p->results[k].value];
        /* Steps after i have not run, so the values that they replace are intact. */
        if (v->kind == FXI_VALUE_DONATED && v->first <= i)
            fxi_node_spoil(b->leaves[v->index]);
    }
}

/* Adds the step to the timeline, as "matmul 10×64 Float32": the operation, and the size and type of
 * its result. began: 0 if no timeline is recorded. */
static void note_step(const fx_step *s, int64_t began)
{
    char name[100], shape[FXI_SHAPE_TEXT];
    if (began == 0)
        return;
    snprintf(name, sizeof name, "%s %s %s", fx_op_name(s->op),
             fxi_shape_text(s->out.ndim, s->out.shape, shape), fx_dtype_name(s->out.dtype));
    fxi_timeline_event(FXI_ROW_THREAD, s->cls == FX_CLASS_COLLECTIVE ? "waiting" : "compute", name,
                       began);
}

/* Some steps run on the host although the device has its own memory (custom operations);
 * fxi_run_on_host copies their operands. A collective step may be begun here and finished later
 * (begun.c). */
static fx_status run_step(const fxi_binding *b, int32_t i, fx_run *run, fxi_begun *begun)
{
    fx_device *device = b->plan->device;
    const fx_step *s = &b->plan->steps[i];
    const fxi_operands *o = &b->plan->operands[i];
    if (s->cls == FX_CLASS_COLLECTIVE) {
        bool begins = false;
        const fx_status status = fxi_begin_step(b, i, begun, &begins);
        if (status != FX_OK || begins)
            return status;
    }
    const int64_t began = fxi_timeline_now();
    const void *const *in = (const void *const *)(b->at + o->in);
    void **out = b->at + o->out;
    /* Work space is part of the arena, so its address differs from step to step. */
    run->work = o->work >= 0 ? b->at[o->work] : NULL;
    run->outputs = b->at + o->outputs;
    for (int32_t k = 0; k < o->more; k++)
        run->more[k] = out[1 + k];
    const fx_status status = fxi_runs_on_host(device, s)
                                 ? fxi_run_on_host(device, s, in, *out)
                                 : device->backend->run(device, s, in, *out, run);
    note_step(s, began);
    return status;
}

/* Writes literals and streams to the device's memory in one transfer, as each transfer has a fixed
 * cost. */
static fx_status write_literals(const fxi_binding *b)
{
    const fxi_plan *p = b->plan;
    return p->literals_bytes == 0
               ? FX_OK
               : p->device->backend->write(p->device, (char *)b->arena->ptr + p->literals_offset,
                                           b->constants, (size_t)p->literals_bytes);
}

/* The streams of the run, in the memory that kernels read; NULL: the plan has none. */
static const uint64_t (*streams_of(const fxi_binding *b))[2]
{
    const fxi_plan *p = b->plan;
    /* The streams follow the literals, which have 8 bytes each, so one transfer writes both. */
    void *at = p->literals_bytes
                   ? (char *)b->arena->ptr + p->literals_offset + 8 * (int64_t)p->nliterals
                   : (void *)b->streams;
    return p->nstreams ? at : NULL;
}

/* Records that step i failed and marks the values that it may have overwritten as lost. −1: no step
 * has begun. */
static fx_status failed_at(const fxi_binding *b, int32_t i, fx_status status)
{
    spoil(b, i);
    return kernel_failed(&b->plan->steps[i < 0 ? 0 : i], status);
}

/* Runs a part of the plan in one call. A backend that does not say which step failed may have begun
 * all of them, so all values replaced in place are lost. */
static fx_status run_part(const fxi_binding *b, const fxi_part *part, fx_run *run)
{
    const fxi_plan *p = b->plan;
    /* A backend that knows the failed step overwrites this number. */
    int32_t step = part->whole.nsteps - 1;
    run->captured = run->replayed = run->invalidated = 0;
    const int64_t began = fxi_timeline_now();
    const fx_status status =
        p->device->backend->plan_run(p->device, &part->whole, b->base, run, &step);
    fxi_timeline_event(FXI_ROW_THREAD, "compute", "plan", began);
    fxi_count(&fxi_counters.graphs_captured, (uint64_t)run->captured);
    fxi_count(&fxi_counters.graphs_replayed, (uint64_t)run->replayed);
    fxi_count(&fxi_counters.graphs_invalidated, (uint64_t)run->invalidated);
    return status == FX_OK ? FX_OK : failed_at(b, part->first + step, status);
}

/* Finishes the begun steps that step i needs. If one has failed, step i has not begun, so it has
 * replaced no value in place. */
static fx_status finish_before(const fxi_binding *b, int32_t i, fxi_begun *begun)
{
    const fx_status status = fxi_finish_before(b, i, begun);
    return status == FX_OK ? FX_OK : failed_at(b, i - 1, status);
}

/* Runs steps first … end − 1, and finishes the begun steps that step `end` needs. */
static fx_status run_steps(const fxi_binding *b, int32_t first, int32_t end, fx_run *run,
                           fxi_begun *begun)
{
    for (int32_t i = first; i < end; i++) {
        fx_status status = finish_before(b, i, begun);
        if (status != FX_OK)
            return status;
        status = run_step(b, i, run, begun);
        if (status != FX_OK)
            return failed_at(b, i, status);
    }
    return finish_before(b, end, begun);
}

/* Runs the parts that the backend has taken, and the steps between them one by one. */
static fx_status run_all_steps(const fxi_binding *b, fx_run *run, fxi_begun *begun)
{
    const fxi_plan *p = b->plan;
    fx_status status = FX_OK;
    int32_t done = 0;
    for (int32_t k = 0; k < p->nparts && status == FX_OK; k++) {
        const fxi_part *part = &p->parts[k];
        status = run_steps(b, done, part->first, run, begun);
        if (status == FX_OK)
            status = run_part(b, part, run);
        done = part->first + part->whole.nsteps;
    }
    if (status == FX_OK)
        status = run_steps(b, done, p->nsteps, run, begun);
    if (status != FX_OK)
        fxi_finish_all(b, begun);
    return status;
}

fx_status fxi_run_plan(const fxi_binding *b)
{
    const fxi_plan *p = b->plan;
    fx_run run = {.streams = streams_of(b)};
    fxi_begun begun;
    begun.n = 0;
    fx_status status = write_literals(b);
    if (status == FX_OK)
        status = run_all_steps(b, &run, &begun);
    if (status != FX_OK)
        return status;
    /* Asks a backend that collects commands to start them now, while the host builds the next
     * graph. */
    if (p->device->backend->submit)
        p->device->backend->submit(p->device);
    /* Only runs that completed are counted, with the figures that account.c found when the plan was
     * built. */
    fxi_count(&fxi_counters.steps_run, (uint64_t)p->nsteps);
    fxi_count(&fxi_counters.fused_steps, (uint64_t)p->fused_steps);
    fxi_count(&fxi_counters.bytes_moved, p->bytes_moved);
    fxi_count(&fxi_counters.bytes_saved, p->bytes_saved);
    fxi_count(&fxi_counters.evals, 1);
    fxi_count(&fxi_counters.donations, (uint64_t)p->donations);
    fxi_count(&fxi_counters.donation_misses, (uint64_t)p->donations_denied);
    return FX_OK;
}

/* Gives the results to their nodes. All other nodes of the graph are marked as used: they are
 * intermediate results. Without the mark, as soon as the nodes computed from them are freed, they
 * would count as results that the program has forgotten. */
static void hand_over(fxi_binding *b, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    fxi_binding_let_go(b);
    for (int32_t i = 0; i < g->n; i++)
        if (!g->nodes[i]->data)
            g->nodes[i]->used = true;
    for (int32_t k = 0; k < p->noutputs; k++) {
        fxi_node *n = g->nodes[g->outputs[k]];
        /* The old node still names the buffer, which now holds the new value: reading it is an
         * error from here on. */
        if (p->values[p->results[k].value].kind == FXI_VALUE_DONATED)
            fxi_node_spoil(b->leaves[p->values[p->results[k].value].index]);
        fxi_node_settle(n, b->datas[k]);
        /* The node owns it now; fxi_binding_free must not free it. */
        b->datas[k] = NULL;
    }
}

/* Runs the graph that has been built in s->graph. */
static fx_status run_graph(fxi_scratch *s)
{
    fxi_graph *g = &s->graph;
    /* All roots have values already. */
    if (g->noutputs == 0)
        return FX_OK;
    /* In use, so that it is not dropped if memory is short. */
    fxi_plan *plan = s->plan;
    s->plan = NULL;
    fx_status status = fxi_plan_again(g, &plan);
    if (status != FX_OK)
        return status;
    fxi_binding b = {.plan = plan};
    status = fxi_binding_reserve(&b, s, g);
    if (status == FX_OK) {
        /* A custom operation calls the program back during the run; `running` refuses an evaluation
         * there, which would overwrite s->graph. */
        s->running = true;
        fxi_bind_values(&b);
        if (s->noting)
            fxi_note_plan(fxi_here(), s, plan);
        status = fxi_run_plan(&b);
        s->running = false;
    }
    if (status == FX_OK)
        hand_over(&b, g);
    fxi_binding_free(&b, s);
    /* If the evaluation failed, the program's error hook may have evaluated, and s->plan is the
     * plan of that. */
    fxi_plan_drop(s);
    s->plan = plan;
    return status;
}

static fx_status build_graph(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots);

/* Evaluates a pending move: computes its input on the input's device, then copies it. Moves that
 * the input needs are evaluated first, by build_graph, because the input may be computed on another
 * device than the graph that needs it. */
static fx_status settle_transfer(fxi_context *c, fxi_scratch *s, fxi_node *n)
{
    const fxi_root source = {n->in[0], NULL};
    fx_status status = build_graph(c, s, 1, &source);
    if (status == FX_OK)
        status = run_graph(s);
    fxi_data *data = status == FX_OK ? fxi_moved("to", n->in[0], n->device, &status) : NULL;
    if (data)
        fxi_node_settle(n, data);
    /* A move that the evaluation added belongs to no device, like its input. */
    if (data && n->attr.transfer.unasked)
        n->device = NULL;
    return status;
}

/* Builds the graph of roots. Each pending move that it meets is evaluated, and the graph is built
 * again: a plan has steps of one device only. */
static fx_status build_graph(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots)
{
    const bool patient = s->graph.patient;
    fx_status status = fxi_graph_of(c, &s->graph, n, roots);
    /* Each round evaluates one move, which is a leaf afterwards, so the loop ends. */
    while (s->graph.blocked) {
        s->graph.patient = false;
        status = settle_transfer(c, s, s->graph.blocked);
        s->graph.patient = patient;
        if (status != FX_OK)
            return status;
        status = fxi_graph_of(c, &s->graph, n, roots);
    }
    return status;
}

fx_status fxi_run_roots(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots)
{
    const fx_status status = build_graph(c, s, n, roots);
    return status == FX_OK ? run_graph(s) : status;
}

/* Evaluates roots on one device in one plan. Pending values that it replaces are computed first if
 * that is possible (old_values.c). */
static fx_status run_update(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots)
{
    s->graph.patient = true;
    fx_status status = build_graph(c, s, n, roots);
    s->graph.patient = false;
    if (s->graph.waits) {
        status = fxi_settle_old_values(c, s, n, roots);
        if (status == FX_OK)
            status = build_graph(c, s, n, roots);
    }
    return status == FX_OK ? run_graph(s) : status;
}

/* A root without a device (made of literals and generators alone) fits any device. */
static bool several_devices(int n, const fxi_root *roots)
{
    const fx_device *d = NULL;
    for (int i = 0; i < n; i++) {
        const fx_device *own = roots[i].node->device;
        if (own && d && own != d)
            return true;
        d = d ? d : own;
    }
    return false;
}

/* Moves between devices are evaluated first, for all roots: the plan of one device may replace
 * values in place from which the moves to another device are computed. */
fx_status fxi_run_all(fxi_context *c, int n, fxi_root *roots)
{
    fxi_scratch *s = fxi_scratch_of(c);
    if (!s)
        return FX_STATUS_MEMORY;
    /* The evaluation would overwrite s->graph, which the one around it uses. */
    if (s->running || (c->busy && fxi_in_message_hook()))
        return fx_fail(FX_STATUS_STATE, "eval",
                       "called during an evaluation, by a hook or the forward function of a custom "
                       "operation, which must not evaluate arrays");
    /* An evaluation inside another one must leave the outer one marked as busy. */
    const bool nested = c->busy;
    c->busy = true;
    fx_status status = FX_OK;
    int done = 0;
    if (fxi_tape_repeats(c) && (s->repeats || fxi_repeats_run(c, s, n, roots))) {
        status = fxi_repeat_run(c, s);
        done = n;
    } else if (c->tape) {
        fxi_tape_leave(c);
        fxi_note_begin(c, s, n, roots);
    }
    if (done == 0 && several_devices(n, roots))
        status = build_graph(c, s, n, roots);
    while (done < n && status == FX_OK) {
        fx_device *d = roots[done].node->device;
        int m = done;
        /* Roots on this device, or on none, move to the front of the rest. */
        for (int i = done; i < n; i++) {
            fx_device *own = roots[i].node->device;
            if (own && d && own != d)
                continue;
            d = d ? d : own;
            const fxi_root r = roots[m];
            roots[m++] = roots[i];
            roots[i] = r;
        }
        status = run_update(c, s, m - done, roots + done);
        done = m;
    }
    if (s->noting)
        fxi_note_end(c, s, status);
    c->busy = nested;
    /* Collective operations are chained so that all processes call them in one order; an evaluated
     * one orders nothing any more. */
    if (c->collective && c->collective->data) {
        fxi_node_release(c->collective);
        c->collective = NULL;
    }
    fxi_count_nodes_here();
    /* The count of pending nodes that makes a thread evaluate by itself starts again. */
    fxi_pending_counted(c);
    if (!c->unwatched)
        fxi_scope_watch(c, 1);
    return status;
}

/* The list is part of the thread's scratch; each evaluation starts it again from 0. */
bool fxi_root_push(fxi_scratch *s, int32_t *n, fxi_node *node, fxi_node *donor)
{
    if (!fxi_grow(&s->roots, &s->root_capacity, *n + 1, sizeof *s->roots))
        return false;
    s->roots[(*n)++] = (fxi_root){node, donor};
    return true;
}

fx_status fxi_no_roots(void)
{
    return fx_fail(FX_STATUS_MEMORY, "eval", "no memory for the list of results");
}

fx_status fxi_evaluate(fxi_context *c, int n, fxi_node *const *nodes)
{
    fxi_scratch *s = fxi_scratch_of(c);
    if (!s)
        return FX_STATUS_MEMORY;
    int32_t m = 0;
    for (int i = 0; i < n; i++)
        if (!nodes[i]->data && !fxi_root_push(s, &m, nodes[i], NULL))
            return fxi_no_roots();
    return m ? fxi_run_all(c, m, s->roots) : FX_OK;
}

fx_status fxi_run_previous_collective(const fx_array *x)
{
    fxi_context *c = fxi_here();
    fxi_node *previous = c->collective;
    return previous && !fx_is_error(x) &&
                   fxi_home_of(previous->device) != fxi_home_of(x->node->device)
               ? fxi_evaluate(c, 1, &previous)
               : FX_OK;
}

fx_status fxi_evaluate_array(fx_array *x)
{
    if (x->status != FX_OK)
        return fxi_array_check("eval", x);
    /* An evaluated value may be lost: given up, or overwritten by an update. */
    if (x->node->data) {
        if (fxi_node_given_up("eval", x->node))
            return FX_STATUS_STATE;
        if (x->node->stale)
            return fx_fail(FX_STATUS_STATE, "eval",
                           "the value was replaced by fx_update and its memory reused");
        return FX_OK;
    }
    return fxi_evaluate(fxi_here(), 1, &x->node);
}
