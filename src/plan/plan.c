/* plan.c: builds the plan of a graph; the other files of this folder are its stages.
 *
 * Every node gets a place: a value with an offset and strides. A movement (reshape, slice, …) costs
 * nothing if strides can express it and the backend takes strides (view.c); otherwise a copy makes
 * the elements dense first. All other nodes become steps (lower.c), and elementwise steps that
 * follow a product are moved into it (epilogue.c). Results get buffers of their own, or take over
 * the memory of the values that they replace (donate.c). All other values are placed in the arena
 * (place.c).
 *
 * The backend may refuse a fused step, for example because its kernel needs more registers or local
 * memory than the device has. The graph is then planned again without row steps, and if that fails
 * too, with one step for each node. So an operation that the device cannot compute is reported
 * before any step has run. The rules that fuse nodes and steps have numbers: 1 elementwise groups,
 * 2 with a reduction (group.c), 3 row steps (row.c), 4 epilogues (epilogue.c), 5 one program over
 * many tensors (foreach.c), 6 literals (literal.c), 7 small reductions (foreach_reduce.c), 8 values
 * computed again (again.c).
 */
#include "literal.h"
#include <cflux/backend.h>
#include "counters.h"
#include "pool.h"

#include <string.h>

/* Gives a movement node a view of its input's place, or of a dense copy of the input. A backend
 * without strides gets a copy step for every movement. */
static bool move(fxi_builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    const int32_t in = fxi_graph_moved(b->g, id);
    /* The step of an OWN_GRADIENT must read only the value, not the inputs before it. */
    if (!b->views)
        return n->op == FX_OP_OWN_GRADIENT ? fxi_copy_dense(b, n, &b->places[in], &b->places[id])
                                           : fxi_lower(b, id);
    if (fxi_view(n, &b->places[in], &b->places[id]))
        return true;
    /* A reshape of a dense input always has strides, so the second attempt succeeds. */
    fxi_place dense;
    return fxi_dense_place(b, in, &dense) && fxi_view(n, &dense, &b->places[id]);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* A leaf keeps its strides and has offset 0: the run binds the address of its first element. */
static bool place_leaf(fxi_builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    const int32_t v = fxi_add_value(b->p, FXI_VALUE_LEAF, b->g->slot[id], fxi_node_bytes(n));
    b->places[id] = (fxi_place){.value = v, .dense = -1};
    memcpy(b->places[id].stride, n->data->stride, sizeof b->places[id].stride);
    if (v >= 0)
        b->p->values[v].strided = !fxi_is_dense(n->ndim, n->shape, n->data->stride);
    return v >= 0;
}

static bool plan_node(fxi_builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    if (n->data)
        return place_leaf(b, id);
    if (b->groups.literal[id])
        return fxi_place_literal(b, id);
    if (b->groups.root[id] != id) { /* computed in the step of its root */
        b->places[id] = (fxi_place){.value = -1, .dense = -1};
        return true;
    }
    if (b->groups.rows.row[id] >= 0)
        return fxi_lower_row(b, id);
    if (fxi_ops[n->op].cls == FX_CLASS_ELEMENTWISE || b->groups.next[id] >= 0)
        return fxi_lower_group(b, id);
    return fxi_ops[n->op].cls == FX_CLASS_MOVEMENT ? move(b, id) : fxi_lower(b, id);
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Changes an arena value into an output that has a buffer of its own. */
static bool add_buffer(fxi_plan *p, fxi_value *v)
{
    if (!fxi_grow(&p->buffer_bytes, &p->buffer_capacity, p->nbuffers + 1, sizeof *p->buffer_bytes))
        return false;
    p->buffer_bytes[p->nbuffers] = v->bytes;
    v->kind = FXI_VALUE_OUTPUT;
    v->index = p->nbuffers++;
    return true;
}

/* Is node id a view of borrowed memory? It is a leaf, or movements lead from it to one. */
static bool reads_borrowed(const fxi_builder *b, int32_t id)
{
    /* Only movements lead here: the place of any other node is not a leaf. */
    while (!b->g->nodes[id]->data)
        id = fxi_graph_moved(b->g, id);
    return b->g->nodes[id]->data->buffer->borrowed;
}

/* Gives output k memory that outlives the run. Four kinds of output are copied: literals; views of
 * borrowed memory, whose owner may free it after the evaluation; views of less than half of a
 * computed value, which would keep the whole value alive; and channels-last values, because
 * programs expect column-major order. */
static bool settle_output(fxi_builder *b, int32_t k)
{
    fxi_plan *p = b->p;
    const int32_t id = b->g->outputs[k];
    const fxi_node *n = b->g->nodes[id];
    fxi_place at = b->places[id];
    const fxi_value_kind kind = p->values[at.value].kind;
    const bool channels_last =
        p->values[at.value].channels_last &&
        !fxi_is_dense(n->ndim, n->shape, at.stride); /* results are column-major */
    if (kind == FXI_VALUE_LITERAL || (kind == FXI_VALUE_LEAF && reads_borrowed(b, id)) ||
        channels_last ||
        (kind == FXI_VALUE_ARENA && 2 * fxi_node_bytes(n) < p->values[at.value].bytes)) {
        fxi_place made;
        if (!fxi_copy_dense(b, n, &at, &made))
            return false;
        at = made;
    }
    fxi_value *v = &p->values[at.value];
    if (v->kind == FXI_VALUE_ARENA && !add_buffer(p, v))
        return false;
    fxi_result *r = &p->results[k];
    r->value = at.value;
    r->offset = at.offset;
    memcpy(r->stride, at.stride, sizeof r->stride);
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Adds the work space of the steps as values that are needed only while their step runs. `guard`
 * bytes are added after each. */
static bool add_work_space(fxi_plan *p, int64_t guard)
{
    p->work_step = -1;
    for (int32_t i = 0; i < p->nsteps; i++) {
        fx_step *s = &p->steps[i];
        if (s->work_bytes <= 0)
            continue;
        s->work_value = fxi_add_value(p, FXI_VALUE_ARENA, 0, s->work_bytes + guard);
        if (s->work_value < 0)
            return false;
        /* Kept for the message of a run that finds too little memory: it names this step. */
        if (p->work_step < 0 || s->work_bytes > p->steps[p->work_step].work_bytes)
            p->work_step = i;
    }
    return true;
}

/* Notes the steps between which each value must be kept. No later stage may move a step. */
static void note_lives(fxi_plan *p)
{
    for (int32_t i = 0; i < p->nsteps; i++) {
        fx_step *s = &p->steps[i];
        for (int32_t k = 0; k < fx_step_outputs(s); k++) {
            fxi_value *v = &p->values[fx_step_output(s, k)];
            /* A value that no step reads still needs its bytes while its own step writes them. */
            v->first = v->last = i;
        }
        for (int k = 0; k < s->nin; k++)
            p->values[s->in_value[k]].last = i;
        if (s->work_bytes > 0)
            p->values[s->work_value].first = p->values[s->work_value].last = i;
    }
}

/* Sets fx_row_step.counted: the bit of each operand that is a view of the numbers 0, 1, 2, … such
 * as the numbers of the classes, with which labels are compared. An operand is such a view if it
 * begins where the result of an IOTA step with one axis begins: the value of an element is then its
 * offset, whatever the strides. */
static bool note_counted(fxi_plan *p)
{
    bool *counted = fxi_calloc((size_t)p->nvalues + 1, sizeof *counted);
    const bool ok = counted != NULL;
    for (int32_t i = 0; ok && i < p->nsteps; i++) {
        fx_step *s = &p->steps[i];
        if (s->op == FX_OP_IOTA && s->out.ndim == 1)
            counted[s->out_value] = true;
        for (int k = 0; s->cls == FX_CLASS_ROW && k < s->nin; k++)
            if (counted[s->in_value[k]] && s->in_offset[k] == 0)
                s->as.row.counted |= UINT32_C(1) << k;
    }
    fxi_free(counted);
    return ok;
}

/* Copies the key, because the next evaluation overwrites that of the graph. */
static bool keep_key(fxi_plan *p, const fxi_graph *g)
{
    p->key = fxi_malloc((size_t)g->nkey * sizeof *p->key);
    p->record = fxi_malloc(((size_t)g->n + 1) * sizeof *p->record);
    if (!p->key || !p->record)
        return false;
    memcpy(p->key, g->key, (size_t)g->nkey * sizeof *p->key);
    memcpy(p->record, g->record, (size_t)g->n * sizeof *p->record);
    p->nkey = g->nkey;
    p->hash = fxi_graph_hash(g);
    p->nnodes = g->n;
    return true;
}

fx_status fxi_prepare_step(const fxi_planner *how, const fxi_plan *p, fx_step *s)
{
    /* The backend may have set a size in an earlier attempt that it refused. */
    s->work_bytes = 0;
    return how->prepare(p->device, s);
}

/* The status of a plan whose step failed with `status`. If only the fusion was refused
 * (*out_refused), nothing is recorded: the planner tries other steps. */
static fx_status failed_with(const fxi_plan *p, const fx_step *s, fx_status status,
                             bool *out_refused)
{
    *out_refused = status == FX_STATUS_UNSUPPORTED && (fx_step_is_fused(s) || fxi_is_reordered(s));
    return *out_refused || status == FX_STATUS_MEMORY
               ? status
               : fx_fail(status, fxi_ops[s->op].name,
                         "%s has no kernel for this operation with a result of %s", p->device->name,
                         fx_dtype_name((fx_dtype)s->out.dtype));
}

/* Prepares all steps. Steps with an epilogue were prepared by fxi_settle_epilogues; those that
 * failed there are prepared again, so that the failure is recorded. Steps that the library runs
 * itself are left out. */
static fx_status prepare(fxi_builder *b, bool *out_refused)
{
    fxi_plan *p = b->p;
    for (int32_t i = 0; i < p->nsteps; i++) {
        fx_step *s = &p->steps[i];
        if (!b->how->prepare || s->ready || fxi_runs_on_host(p->device, s))
            continue;
        const fx_status status = fxi_prepare_step(b->how, p, s);
        if (status != FX_OK)
            return failed_with(p, s, status, out_refused);
    }
    return FX_OK;
}

/* Compiles all steps at once, so that a backend can compile their kernels together. */
static fx_status compile(const fxi_builder *b, bool *out_refused)
{
    fxi_plan *p = b->p;
    int32_t k = 0;
    const fx_status status = b->how->compile && p->nsteps > 0
                                 ? b->how->compile(p->device, p->steps, p->nsteps, &k)
                                 : FX_OK;
    return status == FX_OK ? FX_OK : failed_with(p, &p->steps[k], status, out_refused);
}

/* Makes the steps from the nodes. False if an allocation fails. */
static bool lower(fxi_builder *b)
{
    const fxi_graph *g = b->g;
    fxi_plan *p = b->p;
    b->places = fxi_malloc(((size_t)g->n + 1) * sizeof *b->places);
    p->results = fxi_calloc((size_t)g->noutputs + 1, sizeof *p->results);
    b->channels_last_copy = fxi_malloc(((size_t)g->n + 1) * sizeof *b->channels_last_copy);
    if (!b->places || !b->channels_last_copy || !p->results || !keep_key(p, g) ||
        !fxi_group(b->how, g, &b->groups) || !fxi_order_products(b))
        return false;
    memset(b->channels_last_copy, -1, (size_t)g->n * sizeof *b->channels_last_copy);
    p->noutputs = g->noutputs;
    /* Nodes are planned in the order that row steps and groups need, not in that of the graph. */
    for (int32_t k = 0; k < g->n; k++)
        if (!plan_node(b, b->groups.rows.order[k]))
            return false;
    for (int32_t k = 0; k < g->noutputs; k++)
        if (!settle_output(b, k))
            return false;
    /* Epilogues are settled before donation, because an instruction that the backend refuses
     * becomes a new step. */
    return !b->how->fuses || (fxi_add_epilogues(b->how, p) && fxi_settle_epilogues(b->how, p));
}

/* Changes the list of steps until it is final. False if an allocation fails.
 *
 * Donation follows the rules that move single steps: their order decides which values may be
 * overwritten. Merging follows donation: it must know which step overwrites which value. Values are
 * computed again, and reductions merged, only on devices with their own memory (GPUs), where a step
 * is a launch and memory is slow: on the CPU, merging would save less than it costs to keep the
 * operands for longer. */
static bool improve(fxi_builder *b)
{
    fxi_plan *p = b->p;
    const bool fuses = b->how->fuses, own_memory = fuses && b->how->own_memory;
    if (fuses)
        fxi_merge_attention(b->how, p);
    if (fuses && b->how->is_cpu && !fxi_merge_pads(p))
        return false;
    return (!own_memory || fxi_compute_again(b->how, p)) && (!fuses || fxi_run_early(p)) &&
           fxi_donate(b) && (!fuses || fxi_merge_foreach(p)) &&
           (!own_memory || fxi_merge_reductions(p)) && note_counted(p);
}

/* Gives the final steps their memory. Their work space is known, because they are prepared. False
 * if an allocation fails. */
static bool place(fxi_builder *b)
{
    fxi_plan *p = b->p;
    if (!add_work_space(p, b->how->work_guard))
        return false;
    note_lives(p);
    if (!fxi_overlap(b))
        return false;
    fxi_account(p, b->g);
    p->nstreams = b->g->nstreams;
    p->literals_bytes = b->how->own_memory ? fxi_plan_literals_bytes(p) : 0;
    return fxi_plan_place(p, b->how->is_cpu) && fxi_list_sites(p);
}

static fx_status build(fxi_builder *b, bool *out_refused)
{
    if (!lower(b) || !improve(b))
        return FX_STATUS_MEMORY;
    fx_status status = prepare(b, out_refused);
    if (status == FX_OK)
        status = compile(b, out_refused);
    return status != FX_OK ? status : place(b) ? FX_OK : FX_STATUS_MEMORY;
}

/* A wrong plan gives wrong numbers without a crash, so debug builds check every plan
 * (plan_check.c). */
static fx_status check(const fxi_planner *how, const fxi_plan *p)
{
    char why[200] = "no memory to check it";
    const fx_status status = how->checks ? fxi_plan_check(p, why, sizeof why) : FX_OK;
    return status == FX_OK ? FX_OK
                           : fx_fail(status, "plan", "a graph of %d nodes on %s: %s",
                                     (int)p->nnodes, p->device->name, why);
}

/* Builds a plan with the rules in `how`. *out_refused: the backend refused a fused step. That is
 * not recorded as an error. */
static fx_status build_once(const fxi_planner *how, const fxi_graph *g, fxi_plan **out_plan,
                            bool *out_refused)
{
    /* The size of the plan is measured, not added up: it includes what the backend allocates. */
    const int64_t before = fxi_memory_held_here();
    fxi_plan *p = fxi_calloc(1, sizeof *p);
    fxi_builder b = {.g = g, .p = p, .how = how, .views = how->views};
    *out_plan = NULL;
    *out_refused = false;
    if (p) {
        p->refs = 1;
        p->device = g->device;
        p->release = how->release;
    }
    /* The tables of the builder are freed in every case; the plan only if building failed. */
    fx_status status = p ? build(&b, out_refused) : FX_STATUS_MEMORY;
    fxi_free(b.places);
    fxi_free(b.channels_last_copy);
    fxi_free(b.order);
    fxi_groups_free(&b.groups);
    if (status == FX_OK)
        status = check(how, p);
    else if (status == FX_STATUS_MEMORY && p && p->too_large)
        fxi_no_memory("eval", p->device, p->too_large, "");
    else if (status == FX_STATUS_MEMORY)
        fx_fail(status, "plan", "no memory for a plan of %d nodes", (int)g->n);
    if (status == FX_OK)
        status = fxi_offer_parts(how, p);
    if (status == FX_OK) {
        *out_plan = p;
        p->bytes = fxi_memory_held_here() - before;
    } else if (p)
        fxi_plan_release(p);
    return status;
}

fx_status fxi_plan_build(const fxi_planner *how, const fxi_graph *g, fxi_plan **out_plan)
{
    fxi_planner less = *how;
    bool refused;
    fx_status status = build_once(&less, g, out_plan, &refused);
    while (refused) {
        /* First without row steps, then without any fusion. A step that is not fused is never
         * refused this way, so the loop ends. */
        less.fuses = less.rows;
        less.rows = false;
        status = build_once(&less, g, out_plan, &refused);
    }
    return status;
}

/* The backend's parts of the plan may refer to steps, so they are released before the steps. */
void fxi_plan_free(fxi_plan *p)
{
    for (int32_t k = 0; k < p->nparts; k++)
        p->plan_release(p->device, &p->parts[k].whole);
    for (int32_t i = 0; i < p->nsteps; i++) {
        if (p->steps[i].ready)
            p->release(p->device, &p->steps[i]);
        fxi_step_free(&p->steps[i]);
    }
    void *const all[] = {p->steps,  p->values, p->literals, p->results, p->buffer_bytes, p->key,
                         p->record, p->parts,  p->shown,    p->sites,   p->operands,     p->outside,
                         p};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fxi_free(all[i]);
}
