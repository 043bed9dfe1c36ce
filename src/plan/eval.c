/* eval.c: evaluation: graph → plan → bind → run → results; commits of updates; promises.
 *
 * Everything that can fail for want of memory happens before the first step runs; results are
 * handed to their nodes only after the last one has. So a failed evaluation leaves every array as
 * it was.
 */
#include <cflux/backend.h>
#include "counters.h"
#include "elements.h"
#include "host.h"
#include "plan.h"
#include "pool.h"

#include <cflux/optim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fxi_scratch {
    fxi_graph graph;
    fxi_root *roots;
    int32_t root_capacity;
    fxi_buffer *arena;        /* of the device it was last needed on */
    bool running;             /* a run is using it */
    const fxi_node **foreign; /* values of other threads that an update replaces, sorted */
    int32_t nforeign, foreign_capacity;
} fxi_scratch;

/* What one run brings along. */
typedef struct binding {
    const fxi_plan *plan;
    fxi_buffer **buffers; /* output buffers */
    fxi_data **datas;     /* per output */
    void **base;          /* per value */
    const void **in;      /* operand pointers of one step */
    void **out;           /* output pointers of a foreach step */
    uint64_t (*streams)[2];
    uint64_t *constants; /* per slot, in its type */
    fxi_node **leaves;
} binding;

static fxi_scratch *scratch_of(fxi_context *c)
{
    if (!c->scratch) {
        c->scratch = fxi_calloc(1, sizeof *c->scratch);
        if (!c->scratch)
            fx_fail(FX_STATUS_MEMORY, "eval", "no memory for the evaluator");
    }
    return c->scratch;
}

void fxi_scratch_free(fxi_context *c)
{
    fxi_scratch *s = c->scratch;
    if (!s)
        return;
    fxi_graph_free(&s->graph);
    fxi_free(s->roots);
    fxi_free(s->foreign);
    if (s->arena)
        fxi_buffer_release(s->arena);
    fxi_free(s);
    c->scratch = NULL;
}

void fxi_drain(void)
{
    fxi_context *c = fxi_here();
    fxi_scratch_free(c);
    if (c->npromises == 0) {
        fxi_free(c->promises);
        c->promises = NULL;
        c->promise_capacity = 0;
    }
    fxi_plans_drop();
    fxi_pools_trim();
    fxi_memory_trim();
}

/* ---- binding --------------------------------------------------------------------------------- */

static void binding_free(binding *b)
{
    for (int32_t i = 0; b->buffers && i < b->plan->nbuffers; i++)
        if (b->buffers[i])
            fxi_buffer_release(b->buffers[i]);
    for (int32_t i = 0; b->datas && i < b->plan->noutputs; i++)
        fxi_data_free(b->datas[i]);
    void *const all[] = {b->buffers, b->datas,   b->base,      b->in,
                         b->out,     b->streams, b->constants, b->leaves};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fxi_free(all[i]);
}

static bool binding_alloc(binding *b, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    b->buffers = fxi_calloc((size_t)p->nbuffers + 1, sizeof *b->buffers);
    b->datas = fxi_calloc((size_t)p->noutputs + 1, sizeof *b->datas);
    b->base = fxi_calloc((size_t)p->nvalues + 1, sizeof *b->base);
    b->in = fxi_calloc((size_t)p->max_inputs + 1, sizeof *b->in);
    b->out = fxi_calloc((size_t)p->max_outputs + 1, sizeof *b->out);
    b->streams = fxi_calloc((size_t)g->nstreams + 1, sizeof *b->streams);
    b->constants = fxi_calloc((size_t)p->nslots + 1, sizeof *b->constants);
    b->leaves = fxi_calloc((size_t)(g->nleaves + g->nconsts) + 1, sizeof *b->leaves);
    return b->buffers && b->datas && b->base && b->in && b->out && b->streams && b->constants &&
           b->leaves;
}

/* What is no literal but an array of one number has that number in its own type first. */
static void put_literal(const fxi_node *n, uint8_t dtype, uint64_t *out)
{
    const fx_attr *a = &n->attr;
    double number = a->number;
    if (!a->i[2] && !n->weak && n->dtype != dtype) {
        fxi_host_put_double(n->dtype, out, number);
        number = fxi_host_double(n->dtype, out);
    }
    if (a->i[2])
        fxi_host_put_integer(dtype, out, a->i[1]);
    else
        fxi_host_put_double(dtype, out, number);
}

/* Leaves, literals and random streams of this graph, in the plan's numbering. */
static void bind_inputs(binding *b, const fxi_graph *g)
{
    fxi_node **consts = b->leaves + g->nleaves;
    for (int32_t i = 0; i < g->n; i++) {
        fxi_node *n = g->nodes[i];
        if (n->data)
            b->leaves[g->slot[i]] = n;
        else if (n->op == FX_OP_CONST)
            consts[g->slot[i]] = n;
        else if (n->op == FX_OP_RANDOM)
            memcpy(b->streams[g->slot[i]], n->attr.stream, sizeof b->streams[0]);
    }
    for (int32_t i = 0; i < b->plan->nslots; i++)
        put_literal(consts[b->plan->slots[i].constant], b->plan->slots[i].dtype, &b->constants[i]);
}

/* Each returns how many bytes could not be had, less than 0 when they are of the host; 0: all is
 * there. */
static int64_t reserve_arena(fxi_scratch *s, const fxi_plan *p)
{
    if (s->arena && (s->arena->device != p->device || (int64_t)s->arena->bytes < p->arena_bytes)) {
        fxi_buffer_release(s->arena);
        s->arena = NULL;
    }
    if (!s->arena && p->arena_bytes > 0)
        s->arena = fxi_buffer_new(p->device, (size_t)p->arena_bytes);
    return s->arena ? 0 : p->arena_bytes;
}

static int64_t reserve_outputs(binding *b, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    for (int32_t i = 0; i < p->nbuffers; i++) {
        if (p->buffer_bytes[i] < 0)
            continue;
        b->buffers[i] = fxi_buffer_new(p->device, (size_t)p->buffer_bytes[i]);
        if (!b->buffers[i])
            return p->buffer_bytes[i] > 0 ? p->buffer_bytes[i] : 1;
    }
    for (int32_t k = 0; k < p->noutputs; k++) {
        const fxi_result *r = &p->results[k];
        const fxi_value *v = &p->values[r->value];
        const fxi_node *n = g->nodes[g->outputs[k]];
        fxi_buffer *buffer =
            v->kind == FXI_VALUE_OUTPUT ? b->buffers[v->index] : b->leaves[v->index]->data->buffer;
        const int64_t base = v->kind == FXI_VALUE_OUTPUT ? 0 : b->leaves[v->index]->data->offset;
        fxi_buffer_retain(buffer);
        fxi_pool_name(buffer, (fx_dtype)n->dtype, n->ndim, n->shape);
        b->datas[k] = fxi_data_new(buffer, base + r->offset, n->ndim, n->shape, r->stride);
        if (!b->datas[k])
            return -(int64_t)sizeof(fxi_data);
    }
    return 0;
}

static int64_t reserve(binding *b, fxi_scratch *s, const fxi_graph *g)
{
    if (!binding_alloc(b, g))
        return -(int64_t)sizeof *b;
    bind_inputs(b, g);
    const int64_t missing = reserve_arena(s, b->plan);
    return missing ? missing : reserve_outputs(b, g);
}

/* ---- room ------------------------------------------------------------------------------------ */

static int64_t result_bytes(const fxi_plan *p)
{
    int64_t n = 0;
    for (int32_t i = 0; i < p->nbuffers; i++)
        if (p->buffer_bytes[i] > 0)
            n += p->buffer_bytes[i];
    return n;
}

/* As reserve; what cannot fit is not even begun. The thread's work space counts as room: the run
 * takes it over or replaces it. */
static int64_t reserve_if_it_fits(binding *b, fxi_scratch *s, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    const int64_t idle = s->arena && s->arena->device == p->device ? (int64_t)s->arena->held : 0;
    const int64_t need = fxi_device_is_bounded(p->device) ? p->arena_bytes + result_bytes(p) : 0;
    return need && !fxi_device_has_room(p->device, need, idle) ? need : reserve(b, s, g);
}

static fx_status no_memory(const fxi_plan *p, int64_t missing)
{
    char needs[120];
    if (missing < 0)
        return fxi_no_memory("eval", fx_cpu_device(), -missing, "");
    snprintf(needs, sizeof needs, "; the plan needs %lld bytes of work space and %lld of results",
             (long long)p->arena_bytes, (long long)result_bytes(p));
    return fxi_no_memory("eval", p->device, missing, needs);
}

/* All the memory that a run needs. Where there is not enough, room is made and one more try. */
static fx_status reserve_all(binding *b, fxi_scratch *s, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    int64_t missing = reserve_if_it_fits(b, s, g);
    if (missing) {
        binding_free(b);
        *b = (binding){.plan = p};
        const fx_status status = fxi_make_room(p->device);
        if (status != FX_OK)
            return status;
        missing = reserve_if_it_fits(b, s, g);
    }
    return missing ? no_memory(p, missing) : FX_OK;
}

/* The thread's work space, unless a run is using it. */
static void drop_arena(fxi_scratch *s)
{
    if (!s || !s->arena || s->running)
        return;
    fxi_buffer_release(s->arena);
    s->arena = NULL;
}

fx_status fxi_make_room(fx_device *device)
{
    drop_arena(fxi_here()->scratch);
    fxi_pool_trim(device);
    fxi_memory_trim();
    const fx_status status = device->backend->sync ? device->backend->sync(device) : FX_OK;
    fxi_plans_drop_idle();
    return status;
}

void fx_reclaim(void)
{
    drop_arena(fxi_here()->scratch);
    fxi_plans_drop_idle();
    fxi_pools_trim();
    fxi_memory_trim();
}

void fx_reclaim_device(fx_device *device)
{
    fxi_scratch *s = fxi_here()->scratch;
    device = device ? device : fx_cpu_device();
    if (s && s->arena && s->arena->device == device)
        drop_arena(s);
    fxi_pool_trim(device);
    if (fxi_device_on_host(device))
        fxi_memory_trim();
}

static void bind_values(binding *b, const fxi_scratch *s)
{
    const fxi_plan *p = b->plan;
    char *arena = s->arena ? s->arena->ptr : NULL;
    for (int32_t i = 0; i < p->nvalues; i++) {
        const fxi_value *v = &p->values[i];
        if (v->kind == FXI_VALUE_LEAF || v->kind == FXI_VALUE_DONATED) {
            const fxi_node *n = b->leaves[v->index];
            b->base[i] = (char *)n->data->buffer->ptr +
                         n->data->offset * (int64_t)fx_dtype_size((fx_dtype)n->dtype);
        } else if (v->kind == FXI_VALUE_SLOT) {
            b->base[i] = p->slots_bytes ? (void *)(arena + p->slots_offset + 8 * v->index)
                                        : (void *)&b->constants[v->index];
        } else if (v->kind == FXI_VALUE_OUTPUT) {
            b->base[i] = b->buffers[v->index]->ptr;
        } else {
            b->base[i] = arena + v->offset;
        }
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static fx_status kernel_failed(const fx_step *s, const fx_run *run, fx_status status)
{
    const char *name = fxi_ops[s->op].name, *text = run->error;
    const size_t n = strlen(name);
    if (strncmp(text, name, n) == 0 &&
        text[n] == ':') /* the sentence begins with the operation already */
        text += n + 1 + (text[n + 1] == ' ');
    return fx_fail(status, name, "%s",
                   *text                        ? text
                   : status == FX_STATUS_MEMORY ? "no memory"
                                                : "the kernel failed");
}

/* Step i failed: values that were being replaced in place until then are lost. */
static void spoil(const binding *b, int32_t i)
{
    const fxi_plan *p = b->plan;
    for (int32_t k = 0; k < p->noutputs; k++) {
        const fxi_value *v = &p->values[p->results[k].value];
        if (v->kind == FXI_VALUE_DONATED && v->first <= i)
            b->leaves[v->index]->stale = true;
    }
}

static fx_status run_step(const binding *b, const fx_step *s, fx_run *run)
{
    fx_device *device = b->plan->device;
    void *out = b->base[s->out_value];
    return fxi_runs_away(device, s) ? fxi_run_custom_away(device, s, b->in, out, run)
                                    : device->backend->run(device, s, b->in, out, run);
}

/* Literals go where the device's kernels can read them, all at once. */
static fx_status write_slots(const binding *b, const fxi_scratch *s)
{
    const fxi_plan *p = b->plan;
    return p->slots_bytes == 0
               ? FX_OK
               : p->device->backend->write(p->device, (char *)s->arena->ptr + p->slots_offset,
                                           b->constants, (size_t)p->slots_bytes);
}

static fx_status run_steps(binding *b, const fxi_scratch *scratch)
{
    const fxi_plan *p = b->plan;
    fx_run run = {.outputs = b->out, .streams = (const uint64_t(*)[2])b->streams};
    const fx_status written = write_slots(b, scratch);
    if (written != FX_OK)
        return written;
    for (int32_t i = 0; i < p->nsteps; i++) {
        const fx_step *s = &p->steps[i];
        for (int k = 0; k < s->nin; k++)
            b->in[k] = (const char *)b->base[s->in_value[k]] +
                       s->in_offset[k] * (int64_t)fx_dtype_size((fx_dtype)s->in[k].dtype);
        for (int k = 0; k < s->nmore; k++)
            run.more[k] = b->base[s->more_value[k]];
        for (int32_t k = 0; s->segments && k < fx_step_outputs(s); k++)
            b->out[k] = b->base[fx_step_output(s, k)];
        const fx_status status = run_step(b, s, &run);
        if (status != FX_OK) {
            spoil(b, i);
            return kernel_failed(s, &run, status);
        }
    }
    if (p->device->backend->submit)
        p->device->backend->submit(p->device);
    fxi_count(&fxi_counters.steps_run, (uint64_t)p->nsteps);
    fxi_count(&fxi_counters.fused_steps, (uint64_t)p->fused_steps);
    fxi_count(&fxi_counters.bytes_moved, p->bytes_moved);
    fxi_count(&fxi_counters.bytes_saved, p->bytes_saved);
    fxi_count(&fxi_counters.evals, 1);
    fxi_count(&fxi_counters.donations, (uint64_t)p->donations);
    fxi_count(&fxi_counters.donation_misses, (uint64_t)p->donations_denied);
    return FX_OK;
}

static void hand_over(binding *b, const fxi_graph *g)
{
    const fxi_plan *p = b->plan;
    for (int32_t k = 0; k < p->noutputs; k++) {
        fxi_node *n = g->nodes[g->outputs[k]];
        if (p->values[p->results[k].value].kind == FXI_VALUE_DONATED)
            b->leaves[p->values[p->results[k].value].index]->stale = true;
        n->device = p->device;
        fxi_node_settle(n, b->datas[k]);
        b->datas[k] = NULL;
    }
}

/* The plan of the graph that has been built. */
static fx_status run_graph(fxi_scratch *s)
{
    fxi_graph *g = &s->graph;
    if (g->noutputs == 0)
        return FX_OK;
    fxi_plan *plan = fxi_plan_of(g);
    if (!plan)
        return FX_STATUS_MEMORY;
    binding b = {.plan = plan};
    fx_status status = reserve_all(&b, s, g);
    if (status == FX_OK) {
        const bool nested = s->running;
        s->running = true;
        bind_values(&b, s);
        status = run_steps(&b, s);
        s->running = nested;
    }
    if (status == FX_OK)
        hand_over(&b, g);
    binding_free(&b);
    fxi_plan_release(plan);
    return status;
}

/* A pending move: its input is computed on its own device, then copied. */
static fx_status settle_transfer(fxi_context *c, fxi_scratch *s, fxi_node *n)
{
    const fxi_root source = {n->in[0], NULL};
    fx_status status = fxi_graph_build(c, &s->graph, 1, &source);
    if (status == FX_OK)
        status = run_graph(s);
    fxi_data *data = status == FX_OK ? fxi_moved("to", n->in[0], n->device, &status) : NULL;
    if (data)
        fxi_node_settle(n, data);
    return status;
}

/* Builds the graph of roots, settling moves from other devices that it needs. */
static fx_status build_graph(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots)
{
    fx_status status = fxi_graph_build(c, &s->graph, n, roots);
    while (s->graph.blocked) {
        status = settle_transfer(c, s, s->graph.blocked);
        if (status != FX_OK)
            return status;
        status = fxi_graph_build(c, &s->graph, n, roots);
    }
    return status;
}

/* One plan over roots on one device. */
static fx_status run_roots(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots)
{
    const fx_status status = build_graph(c, s, n, roots);
    return status == FX_OK ? run_graph(s) : status;
}

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

/* Evaluates roots, device by device. Moves between them come first: a plan may replace values in
 * place that the others were computed from. */
static fx_status run_all(fxi_context *c, int n, fxi_root *roots)
{
    fxi_scratch *s = scratch_of(c);
    if (!s)
        return FX_STATUS_MEMORY;
    const bool nested = c->busy;
    c->busy = true;
    fx_status status = several_devices(n, roots) ? build_graph(c, s, n, roots) : FX_OK;
    for (int done = 0; done < n && status == FX_OK;) {
        fx_device *d = roots[done].node->device;
        int m = done;
        for (int i = done; i < n; i++) { /* those on this device, or on none, come next */
            fx_device *own = roots[i].node->device;
            if (own && d && own != d)
                continue;
            d = d ? d : own;
            const fxi_root r = roots[m];
            roots[m++] = roots[i];
            roots[i] = r;
        }
        status = run_roots(c, s, m - done, roots + done);
        done = m;
    }
    c->busy = nested;
    fxi_count_nodes_here();
    c->created = 0;
    return status;
}

static bool push_root(fxi_scratch *s, int32_t *n, fxi_node *node, fxi_node *donor)
{
    if (!fxi_grow(&s->roots, &s->root_capacity, *n + 1, sizeof *s->roots))
        return false;
    s->roots[(*n)++] = (fxi_root){node, donor};
    return true;
}

static fx_status no_roots(void)
{
    return fx_fail(FX_STATUS_MEMORY, "eval", "no memory for the list of results");
}

fx_status fxi_evaluate(fxi_context *c, int n, fxi_node *const *nodes)
{
    fxi_scratch *s = scratch_of(c);
    if (!s)
        return FX_STATUS_MEMORY;
    int32_t m = 0;
    for (int i = 0; i < n; i++)
        if (!nodes[i]->data && !push_root(s, &m, nodes[i], NULL))
            return no_roots();
    return m ? run_all(c, m, s->roots) : FX_OK;
}

fx_status fxi_evaluate_array(fx_array *x)
{
    if (x->status != FX_OK)
        return x->status;
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

typedef struct visit_state {
    fxi_scratch *scratch;
    int32_t n;
    fx_status status;
} visit_state;

static void visit_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    visit_state *v = user;
    if (x->status != FX_OK)
        v->status = v->status == FX_OK ? x->status : v->status;
    else if (!x->node->data && !push_root(v->scratch, &v->n, x->node, NULL))
        v->status = no_roots();
}

fx_status fxi_evaluate_object(void *object)
{
    fxi_context *c = fxi_here();
    visit_state v = {.scratch = scratch_of(c)};
    if (!v.scratch)
        return FX_STATUS_MEMORY;
    fx_visit(object, visit_array, &v);
    if (v.status != FX_OK)
        return v.status;
    return v.n ? run_all(c, v.n, v.scratch->roots) : FX_OK;
}

void fxi_flush(fxi_context *c)
{
    fxi_scratch *s = scratch_of(c);
    int32_t n = 0;
    fxi_count_nodes_here();
    c->created = 0;
    for (fxi_node *k = c->sinks.next; s && k != &c->sinks; k = k->next)
        if (!push_root(s, &n, k, NULL))
            return;
    if (s && n > 0 && run_all(c, n, s->roots) == FX_OK)
        fxi_count(&fxi_counters.implicit_evals, 1);
}

/* ---- promises -------------------------------------------------------------------------------- */

/* A state array's handle gets its new value; the value is a constant from now on. */
static void commit_one(fx_array *handle, fx_array *value)
{
    fxi_node *n = value->node;
    if (handle && handle->node != n) {
        __atomic_store_n(&handle->node->rebound, handle, __ATOMIC_RELAXED);
        fxi_array_rebind(handle, n);
    }
    if (n->owner == fxi_here()->id)
        fxi_node_cut(n);
}

static void settle_promises(fxi_context *c, int depth, bool commit)
{
    for (int i = c->npromises - 1; i >= 0; i--) {
        fxi_promise *p = &c->promises[i];
        if (p->depth < depth)
            continue;
        if (commit && p->kind != FXI_PROMISE_WANT)
            commit_one(p->slot, p->value);
        fxi_promise_drop(c, i);
    }
}

/* After an update that failed: staged state goes; what fx_want and fx_set asked for stays promised
 * to the step's close, unless it may be what failed. */
static void drop_promises(fxi_context *c, bool staged_only)
{
    for (int i = c->npromises - 1; i >= 0; i--)
        if (!staged_only || c->promises[i].kind == FXI_PROMISE_STAGE)
            fxi_promise_drop(c, i);
}

void fxi_promises_due(fxi_context *c, int depth)
{
    fxi_scratch *s = NULL;
    int32_t n = 0;
    bool due = false, ok = true;
    for (int i = 0; i < c->npromises && ok; i++) {
        const fxi_promise *p = &c->promises[i];
        if (p->depth < depth)
            continue;
        due = true;
        s = s ? s : scratch_of(c);
        ok = s && p->value->status == FX_OK &&
             (p->value->node->data || push_root(s, &n, p->value->node, NULL));
    }
    if (!due)
        return;
    if (ok && n > 0)
        ok = run_all(c, n, s->roots) == FX_OK;
    settle_promises(c, depth, ok);
}

/* ---- commits --------------------------------------------------------------------------------- */

static int by_node(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const fxi_node *const *)a;
    const uintptr_t y = (uintptr_t) * (const fxi_node *const *)b;
    return x < y ? -1 : x > y;
}

/* Is n one of the values of other threads that are about to be replaced? */
static bool foreign_replaced(const fxi_scratch *s, const fxi_node *n)
{
    return s->nforeign > 0 &&
           bsearch(&n, s->foreign, (size_t)s->nforeign, sizeof *s->foreign, by_node);
}

/* Does the pending graph behind n read a value that is about to be replaced? Those are marked with
 * id 1; answers are kept in the nodes: 1 yes, 0 no. Iterative, as the graph may be deep. */
static bool reads_replaced(fxi_context *c, fxi_scratch *s, fxi_node *n)
{
    fxi_graph *g = &s->graph;
    int32_t depth = 0;
    if (!fxi_grow(&g->stack, &g->stack_capacity, 1, sizeof *g->stack))
        return true;
    g->stack[depth++] = (fxi_frame){.node = n};
    while (depth > 0) {
        fxi_frame *f = &g->stack[depth - 1];
        fxi_node *x = f->node;
        if (f->next == 0 && x->mark != c->mark) {
            x->mark = c->mark;
            x->id = 0;
        }
        if (x->data || x->id == 1 || f->next >= x->nin) {
            if (--depth > 0 && x->id == 1)
                g->stack[depth - 1].node->id = 1;
            continue;
        }
        fxi_node *in = x->in[f->next++];
        if (in->owner != c->id) {
            x->id |= foreign_replaced(s, in);
            continue;
        }
        if (in->mark == c->mark) {
            if (in->id == 1)
                x->id = 1;
            continue;
        }
        if (in->data)
            continue;
        if (!fxi_grow(&g->stack, &g->stack_capacity, depth + 1, sizeof *g->stack))
            return true;
        g->stack[depth++] = (fxi_frame){.node = in};
    }
    return n->id == 1;
}

static bool mark_replaced(const fxi_context *c, fxi_scratch *s, fxi_node *n)
{
    if (n->owner == c->id) {
        n->mark = c->mark;
        n->id = 1;
        return true;
    }
    if (!fxi_grow(&s->foreign, &s->foreign_capacity, s->nforeign + 1, sizeof *s->foreign))
        return false;
    s->foreign[s->nforeign++] = n;
    return true;
}

/* Adds the pending results that nothing consumed and that read what the update replaces: the
 * handles' values and staged state. */
static bool push_sinks(fxi_context *c, fxi_scratch *s, int32_t *m, int n, fx_array *const *handles)
{
    bool ok = true;
    c->mark++;
    s->nforeign = 0;
    for (int i = 0; i < n && ok; i++)
        ok = mark_replaced(c, s, handles[i]->node);
    for (int i = 0; i < c->npromises && ok; i++)
        if (c->promises[i].kind == FXI_PROMISE_STAGE)
            ok = mark_replaced(c, s, c->promises[i].slot->node);
    if (!ok)
        return false;
    if (s->nforeign > 1)
        qsort(s->foreign, (size_t)s->nforeign, sizeof *s->foreign, by_node);
    for (fxi_node *k = c->sinks.next; k != &c->sinks; k = k->next)
        if (reads_replaced(c, s, k) && !push_root(s, m, k, NULL))
            return false;
    return true;
}

static fx_status check_commit(int n, fx_array *const *handles, fx_array *const *values)
{
    for (int i = 0; i < n; i++) {
        if (fx_is_error(handles[i]) || fx_is_error(values[i]))
            return fx_is_error(handles[i]) ? fx_array_status(handles[i])
                                           : fx_array_status(values[i]);
        const fxi_node *a = handles[i]->node, *b = values[i]->node;
        if (a->ndim != b->ndim ||
            memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)) != 0 ||
            a->dtype != b->dtype)
            return fx_fail(FX_STATUS_SHAPE, "update",
                           "a new value differs from the old one in size or type");
    }
    return FX_OK;
}

/* Staged layer state under a guard: where the guard is false the old value stays. */
static fx_status guard_promises(fxi_context *c, fx_array *guard)
{
    for (int i = 0; i < c->npromises; i++) {
        fxi_promise *p = &c->promises[i];
        if (p->kind != FXI_PROMISE_STAGE)
            continue;
        fx_array *chosen = fx_where(guard, p->value, p->slot);
        if (fx_is_error(chosen))
            return chosen->status;
        fxi_retain(chosen);
        fx_release(p->value);
        c->promises[i].value = chosen;
    }
    return FX_OK;
}

static fx_status gather_roots(fxi_context *c, fxi_scratch *s, int n, fx_array *const *handles,
                              fx_array *const *values, fx_array *guard, bool no_sinks, int32_t *m)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = values[i]->node->data || push_root(s, m, values[i]->node, handles[i]->node);
    for (int i = 0; i < c->npromises && ok; i++) {
        const fxi_promise *p = &c->promises[i];
        if (p->value->status != FX_OK)
            return p->value->status;
        ok = p->value->node->data ||
             push_root(s, m, p->value->node, p->kind == FXI_PROMISE_STAGE ? p->slot->node : NULL);
    }
    if (ok && guard && !guard->node->data)
        ok = push_root(s, m, guard->node, NULL);
    if (ok && !no_sinks)
        ok = push_sinks(c, s, m, n, handles);
    return ok ? FX_OK : no_roots();
}

fx_status fxi_commit(int n, fx_array *const *handles, fx_array *const *values, fx_array *guard,
                     bool no_sinks)
{
    fxi_context *c = fxi_here();
    fxi_scratch *s = scratch_of(c);
    fx_status status = !s                            ? FX_STATUS_MEMORY
                       : guard && fx_is_error(guard) ? fx_array_status(guard)
                                                     : check_commit(n, handles, values);
    if (status == FX_OK && guard)
        status = guard_promises(c, guard);
    int32_t m = 0;
    if (status == FX_OK)
        status = gather_roots(c, s, n, handles, values, guard, no_sinks, &m);
    const bool launched = status == FX_OK && m > 0;
    if (launched)
        status = run_all(c, m, s->roots);
    if (status != FX_OK) {
        drop_promises(c, !launched);
        return status;
    }
    for (int i = 0; i < n; i++)
        commit_one(handles[i], values[i]);
    settle_promises(c, 0, true);
    return guard && fx_item(guard) == 0 ? FX_STATUS_NONFINITE : FX_OK;
}
