/* recorded_run.c: the evaluations of a recorded training step (value/tape.h). While a training step
 * is recorded, each evaluation keeps its graph and its plan. In a later training step an evaluation
 * of the same roots, at the same entry of the tape, runs that plan with its own leaves, literals
 * and random streams.
 *
 * The new graph has the key of the recorded one if all of these are equal: the calls and the
 * classes of leaves (which the tape compares), the roots, the set of recorded results that have a
 * handle (it determines the sinks, and the values that are needed later), whether sinks are
 * computed, the buffers that may be overwritten, and the modes of the process. fxi_repeats_run
 * compares them.
 */
#include "counters.h"
#include "elements.h"
#include "planning.h"
#include "run.h"
#include "tape.h"

#include <cflux/device.h>
#include <string.h>

enum { NO_DONOR = INT32_MIN, UNKNOWN_DONOR };

typedef struct recorded_root {
    int32_t entry;
    int32_t donor; /* an entry, ~leaf, NO_DONOR, or UNKNOWN_DONOR: a value that the training step
                      does not read */
    bool denied;   /* its buffer must not be overwritten */
    int32_t
        output; /* its number among the outputs, if it takes over the buffer of a leaf; else −1 */
    fx_array *handle, *made; /* while the evaluation is repeated, if the handle keeps its node: see
                                fxi_tape_keep_node */
} recorded_root;

/* A copy that the evaluation added to the graph as a leaf. The value that it copies belongs to no
 * device, and had been computed on another device than the graph's. */
typedef struct recorded_copy {
    int32_t at;     /* its number in the graph */
    fxi_node *node; /* while the evaluation is repeated */
} recorded_copy;

typedef struct fxi_recorded_run {
    fxi_event event;
    recorded_root *roots;
    int32_t nroots;  /* without sinks */
    bool sinks;      /* of an update that computed the sinks of the training step */
    bool *alive;     /* per entry: it had a handle */
    bool *leaf;      /* per node of the graph */
    bool *in_place;  /* per output: its handle keeps its node, in the repetition that runs */
    int32_t *source; /* per node of the graph: its entry, or ~leaf */
    int32_t *moving; /* nodes of the graph that each training step replaces: leaves, results */
    int32_t *inputs; /* nodes of the graph that are leaves or random streams, then the literals */
    int32_t nmoving, ninputs, nvarying,
        version; /* nvarying: number of inputs before the literals; version: of the tape, when
                    `moving` was listed */
    recorded_copy *copies;
    int32_t ncopies, copy_capacity;
    fxi_graph graph;
    fxi_plan *plan;
    fxi_binding binding; /* of all repetitions; its lists are allocated by the first one */
    int plans;     /* number of plans that the evaluation ran; it can be repeated only if it is 1 */
    bool unusable; /* it cannot be repeated */
} recorded_run;

static void run_free(fxi_event *e)
{
    recorded_run *r = (recorded_run *)e;
    fxi_free(r->roots);
    fxi_free(r->alive);
    fxi_free(r->moving);
    fxi_free(r->inputs);
    fxi_free(r->leaf);
    fxi_free(r->in_place);
    fxi_free(r->source);
    fxi_free(r->copies);
    fxi_free(r->binding.lists);
    fxi_graph_free(&r->graph);
    if (r->plan)
        fxi_plan_release(r->plan);
    fxi_free(r);
}

/* The training step leaves the tape: marks the intermediate results of the repeated evaluation as
 * used, like hand_over in run.c. As ghosts they needed no marks, because ghosts are never sinks. */
static void run_leave(const fxi_event *e, const fxi_tape *t)
{
    const recorded_run *r = (const recorded_run *)e;
    for (int32_t i = 0; i < r->graph.n; i++)
        if (!r->leaf[i] && r->source[i] >= 0)
            t->entries[r->source[i]].node->used = true;
}

static const fxi_event_kind run_kind = {run_free, false, run_leave};

/* ---- noting ---------------------------------------------------------------------------------- */

static int32_t donor_number(const fxi_tape *t, const fxi_node *donor)
{
    int32_t i;
    return !donor ? NO_DONOR : fxi_tape_find(t, donor, &i) ? i : UNKNOWN_DONOR;
}

static bool denied(const fxi_node *donor)
{
    /* 0, as if the graph read the donor: the tape decides whether it does. */
    return donor && fxi_not_donatable(donor, 0);
}

void fxi_note_begin(fxi_context *c, fxi_scratch *s, int n, const fxi_root *roots)
{
    if (!fxi_tape_notes(c))
        return;
    const fxi_tape *t = c->tape;
    recorded_run *r = fxi_calloc(1, sizeof *r);
    if (r) {
        *r = (recorded_run){
            .event.kind = &run_kind, .nroots = n - s->nsinks, .sinks = s->takes_sinks};
        r->roots = fxi_calloc((size_t)n + 1, sizeof *r->roots);
        r->alive = fxi_calloc((size_t)t->n + 1, sizeof *r->alive);
    }
    if (!r || !r->roots || !r->alive) {
        if (r)
            run_free(&r->event);
        fxi_tape_break(c);
        return;
    }
    for (int32_t i = 0; i < r->nroots; i++) {
        recorded_root *root = &r->roots[i];
        r->unusable |= !fxi_tape_find(t, roots[i].node, &root->entry) || root->entry < 0;
        root->donor = donor_number(t, roots[i].donor);
        root->denied = denied(roots[i].donor);
        root->output = -1;
    }
    /* A result with a handle may be read later, so the plan stores it; a plan for other handles
     * would leave it out. */
    for (int32_t i = 0; i < t->n; i++)
        r->alive[i] = t->entries[i].live && t->entries[i].live->handles > 0;
    s->noting = r;
}

/* Lists the inputs of the plan. The nodes of literals are ghosts, which all repetitions share, so
 * only the first repetition looks them up. */
static void note_inputs(recorded_run *r)
{
    for (int32_t i = 0; i < r->graph.n; i++)
        if (r->leaf[i] || r->graph.nodes[i]->op == FX_OP_RANDOM)
            r->inputs[r->ninputs++] = i;
    r->nvarying = r->ninputs;
    for (int32_t i = 0; i < r->graph.n; i++)
        if (!r->leaf[i] && r->graph.nodes[i]->op == FX_OP_CONST)
            r->inputs[r->ninputs++] = i;
}

/* Notes how node i of the graph is found in a later training step. */
static bool note_node(const fxi_tape *t, recorded_run *r, int32_t i)
{
    const fxi_node *n = r->graph.nodes[i];
    r->leaf[i] = n->data != NULL;
    if (!fxi_tape_find(t, n, &r->source[i]))
        return false;
    if (n->tape != FXI_TAPE_COPY)
        return true;
    if (!fxi_grow(&r->copies, &r->copy_capacity, r->ncopies + 1, sizeof *r->copies))
        return false;
    r->copies[r->ncopies++] = (recorded_copy){.at = i};
    return true;
}

/* The outputs begin with the roots, in the same order. */
static void note_outputs(recorded_run *r, const fxi_plan *p)
{
    int32_t k = 0;
    for (int32_t j = 0; j < r->nroots && k < p->noutputs; j++) {
        recorded_root *root = &r->roots[j];
        if (r->source[r->graph.outputs[k]] != root->entry)
            continue;
        if (root->donor < 0 && root->donor > UNKNOWN_DONOR && !root->denied &&
            p->values[p->results[k].value].kind == FXI_VALUE_DONATED)
            root->output = k;
        k++;
    }
}

static void *copy(const void *from, size_t n, size_t size)
{
    void *to = fxi_malloc((n + 1) * size);
    if (to && n > 0)
        memcpy(to, from, n * size);
    return to;
}

void fxi_note_plan(fxi_context *c, fxi_scratch *s, fxi_plan *plan)
{
    recorded_run *r = s->noting;
    const fxi_graph *g = &s->graph;
    /* An evaluation with several plans (moves between devices, old values that are computed first)
     * is not repeated. */
    if (r->plans++ > 0 || r->unusable)
        return;
    const size_t n = (size_t)g->n, outputs = (size_t)g->noutputs;
    fxi_graph *own = &r->graph;
    *own = (fxi_graph){.eager = g->eager,
                       .precision = g->precision,
                       .device = g->device,
                       .n = g->n,
                       .nleaves = g->nleaves,
                       .nconsts = g->nconsts,
                       .nstreams = g->nstreams,
                       .noutputs = g->noutputs};
    own->nodes = copy(g->nodes, n, sizeof *g->nodes);
    own->slot = copy(g->slot, n, sizeof *g->slot);
    own->outputs = copy(g->outputs, outputs, sizeof *g->outputs);
    r->source = fxi_malloc((n + 1) * sizeof *r->source);
    r->leaf = fxi_malloc((n + 1) * sizeof *r->leaf);
    r->moving = fxi_malloc((n + 1) * sizeof *r->moving);
    r->inputs = fxi_malloc((n + 1) * sizeof *r->inputs);
    r->in_place = fxi_calloc(outputs + 1, sizeof *r->in_place);
    /* Another version than the tape's, so that the first repetition lists `moving`. */
    r->version = c->tape->version - 1;
    r->unusable = !r->moving || !r->inputs || !own->nodes || !own->slot || !own->outputs ||
                  !r->source || !r->leaf || !r->in_place;
    for (int32_t i = 0; i < g->n && !r->unusable; i++)
        r->unusable = !note_node(c->tape, r, i);
    if (!r->unusable) {
        note_inputs(r);
        note_outputs(r, plan);
    }
    /* The cache may evict the plan, which the recording still needs. */
    __atomic_fetch_add(&plan->refs, 1, __ATOMIC_RELAXED);
    r->plan = plan;
    r->binding = (fxi_binding){.plan = plan,
                               .in_place = r->in_place,
                               .inputs = r->inputs,
                               .ninputs = r->ninputs,
                               .kept = true};
}

void fxi_note_end(fxi_context *c, fxi_scratch *s, fx_status status)
{
    recorded_run *r = s->noting;
    s->noting = NULL;
    if (status == FX_OK && r->plans == 1 && !r->unusable && fxi_tape_notes(c)) {
        fxi_tape_add(c, &r->event, c->tape->n);
        return;
    }
    run_free(&r->event);
    fxi_tape_break(c);
}

/* ---- repeating ------------------------------------------------------------------------------- */

/* Returns the evaluation that the training step must repeat next; NULL: none. */
static recorded_run *next_run(const fxi_context *c)
{
    const fxi_tape *t = c->tape;
    fxi_event *e = t->ran ? t->ran->next : t->events;
    while (e && e->kind != &run_kind)
        e = e->next;
    return e && e->first == t->pos ? (recorded_run *)e : NULL;
}

/* Is it forbidden to overwrite the buffer of this leaf, although the buffer of the recorded leaf
 * was overwritten? The tape has found that both leaves are of one class, so the memory is not
 * borrowed and the elements are dense. The other conditions of fxi_not_donatable are tested again.
 */
static inline bool still_denied(const fxi_node *leaf)
{
    const fxi_buffer *b = leaf->data->buffer;
    return leaf->handles != 1 || leaf->data->offset != 0 ||
           __atomic_load_n(&b->refs, __ATOMIC_RELAXED) != 1 ||
           __atomic_load_n(&b->pins, __ATOMIC_RELAXED) > 0;
}

static bool same_donor(const fxi_tape *t, const recorded_root *root, const fxi_node *donor)
{
    if (root->donor <= UNKNOWN_DONOR)
        return donor_number(t, donor) == root->donor && denied(donor) == root->denied;
    if (fxi_tape_node(t, root->donor) != donor)
        return false;
    return root->donor < 0 && !root->denied ? !still_denied(donor) : denied(donor) == root->denied;
}

static bool same_roots(const fxi_tape *t, const recorded_run *r, int n, const fxi_root *roots)
{
    if (n != r->nroots)
        return false;
    for (int i = 0; i < n; i++) {
        const recorded_root *root = &r->roots[i];
        if (t->entries[root->entry].node != roots[i].node || !same_donor(t, root, roots[i].donor))
            return false;
    }
    return true;
}

/* Returns true if the same results have a handle as in the recording. An entry of a skipped part
 * can have one only if it is listed in t->shown. */
static bool same_handles(const fxi_tape *t, const recorded_run *r)
{
    for (int32_t i = 0; i < t->pos; i = fxi_tape_after(t, i))
        if (!t->entries[i].skipped && (t->entries[i].node->handles > 0) != r->alive[i])
            return false;
    for (int32_t k = 0; k < t->nshown; k++)
        if ((t->entries[t->shown[k]].node->handles > 0) != r->alive[t->shown[k]])
            return false;
    return true;
}

/* Puts the nodes of this training step into the recorded graph: all of them if the tape has new
 * nodes, otherwise those that differ between training steps. False: a value is lost, or the nodes
 * that have values are not those of the recording. These differ if a value that an update replaces
 * is pending: old_values.c computes it only while the training step is built. */
static bool fill_graph(const fxi_tape *t, recorded_run *r)
{
    if (r->version != t->version) {
        r->nmoving = 0;
        for (int32_t i = 0; i < r->graph.n; i++) {
            r->graph.nodes[i] = fxi_tape_node(t, r->source[i]);
            if (r->source[i] < 0 || r->leaf[i] || t->entries[r->source[i]].moves)
                r->moving[r->nmoving++] = i;
        }
        r->version = t->version;
        r->binding.ninputs = r->ninputs;
    }
    for (int32_t k = 0; k < r->nmoving; k++) {
        const int32_t i = r->moving[k];
        fxi_node *n = fxi_tape_node(t, r->source[i]);
        if (!n || r->leaf[i] != (n->data != NULL) ||
            (n->data && (n->stale || n->data->buffer->freed)))
            return false;
        r->graph.nodes[i] = n;
    }
    return true;
}

bool fxi_repeats_run(fxi_context *c, const fxi_scratch *s, int n, const fxi_root *roots)
{
    recorded_run *r = next_run(c);
    if (!r || r->sinks != s->takes_sinks || r->graph.eager != fxi_eager() ||
        r->graph.precision != (uint8_t)fx_matmul_precision() || !same_roots(c->tape, r, n, roots) ||
        !same_handles(c->tape, r) || !fill_graph(c->tape, r))
        return false;
    memset(r->in_place, 0, (size_t)r->graph.noutputs);
    return true;
}

/* Can the old node n hold the new value with the same effect as the new node g? `block` has the
 * layout of the new value. */
static bool serves_as(const fxi_node *n, const fxi_node *g, const fxi_data *block)
{
    const fxi_data *d = n->data;
    bool same = (n->op == g->op) & (n->weak == g->weak) & (n->device == g->device) & (n->nin == 0) &
                !n->history_cut & (d->offset == block->offset);
    for (int i = 0; i < n->ndim; i++)
        same &= d->stride[i] == block->stride[i];
    return same;
}

/* Can the handle of a leaf keep its node, whose memory gets the new value? Only the tape and the
 * handle may refer to it, and only `made` to the new value: nothing else can tell the two nodes
 * apart. `spare` holds the data of the latest new value. */
static inline bool keeps_node(const fxi_context *c, const recorded_root *root, const fx_array *made)
{
    const fxi_tape_entry *e = &c->tape->entries[root->entry];
    fxi_tape_leaf *l = &c->tape->leaves[~root->donor];
    const fxi_node *g = e->node, *n = l->node;
    if (!e->spare || g->handles != (made != NULL) || (made && made->node != g) ||
        __atomic_load_n(&n->refs, __ATOMIC_ACQUIRE) != 2 || n->data->dense)
        return false;
    l->serves = l->serves || (n->owner == c->id && serves_as(n, g, e->spare));
    return l->serves;
}

static inline void try_to_keep(const fxi_context *c, recorded_run *r, int32_t j, fx_array *handle,
                               fx_array *made)
{
    recorded_root *root = &r->roots[j];
    if (root->output < 0 || !keeps_node(c, root, made))
        return;
    root->handle = handle;
    root->made = made;
    r->in_place[root->output] = true;
}

void fxi_keep_nodes(fxi_context *c, int n, fx_array *const *handles, fxi_node *const *values,
                    fx_array *const *made)
{
    fxi_tape *t = c->tape;
    recorded_run *r = next_run(c);
    int32_t j = 0;
    if (!fxi_grow(&t->overwritten, &t->overwritten_capacity, t->noverwritten + r->nroots,
                  sizeof *t->overwritten))
        return;
    for (int i = 0; i < n; i++)
        if (!values[i]->data)
            try_to_keep(c, r, j++, handles[i], made ? made[i] : NULL);
    for (int i = 0; i < c->npromises; i++) {
        const fxi_promise *p = &c->promises[i];
        if (p->value->node->data)
            continue;
        if (p->kind == FXI_PROMISE_STAGE)
            try_to_keep(c, r, j, p->target, p->value);
        j++;
    }
}

/* Copies the values that the recorded evaluation copied. */
static fx_status make_copies(fxi_context *c, recorded_run *r)
{
    fx_device *device = r->graph.device;
    fx_status status = FX_OK;
    for (int32_t k = 0; k < r->ncopies && status == FX_OK; k++) {
        recorded_copy *copy = &r->copies[k];
        fxi_node *n = r->graph.nodes[copy->at];
        fxi_data *data = fxi_moved("to", n, device, &status);
        if (!data)
            break;
        copy->node =
            fxi_node_new(c, FX_OP_LEAF, (fx_dtype)n->dtype, n->ndim, n->shape, NULL, NULL, 0, NULL);
        if (copy->node) {
            fxi_node_settle(copy->node, data);
            r->graph.nodes[copy->at] = copy->node;
        } else {
            fxi_data_free(data);
            status = FX_STATUS_MEMORY;
        }
    }
    return status;
}

static void drop_copies(recorded_run *r)
{
    for (int32_t k = 0; k < r->ncopies; k++)
        if (r->copies[k].node) {
            fxi_node_release(r->copies[k].node);
            r->copies[k].node = NULL;
        }
}

/* Lets the results use the blocks that earlier values of the ghosts have left. If there is no
 * memory for the lists, fxi_binding_reserve tries again, and reports the failure. */
static void take_spares(fxi_tape *t, recorded_run *r)
{
    fxi_binding *b = &r->binding;
    if (!fxi_binding_alloc(b, &r->graph))
        return;
    for (int32_t k = 0; k < r->graph.noutputs; k++) {
        fxi_tape_entry *e = &t->entries[r->source[r->graph.outputs[k]]];
        if (r->in_place[k])
            continue;
        b->datas[k] = e->spare;
        e->spare = NULL;
    }
}

/* Gives the results to the ghosts. */
static void hand_over(fxi_tape *t, fxi_binding *b, const recorded_run *r)
{
    const fxi_plan *p = b->plan;
    const fxi_graph *g = &r->graph;
    int64_t spoiled = 0;
    fxi_binding_let_go(b);
    for (int32_t k = 0; k < p->noutputs; k++) {
        if (r->in_place[k])
            continue;
        fxi_node *n = g->nodes[g->outputs[k]];
        const fxi_value *v = &p->values[p->results[k].value];
        /* The result is in the leaf's buffer, so the leaf has lost its value. */
        if (v->kind == FXI_VALUE_DONATED) {
            spoiled += !b->leaves[v->index]->stale;
            b->leaves[v->index]->stale = true;
        }
        __atomic_store_n(&n->data, b->datas[k], __ATOMIC_RELEASE);
        b->datas[k] = NULL;
        fxi_tape_settled(t, n);
    }
    fxi_stale_count(spoiled);
    for (int32_t j = 0; j < r->nroots; j++) {
        const recorded_root *root = &r->roots[j];
        if (root->output >= 0 && r->in_place[root->output])
            fxi_tape_keep_node(t, root->handle, root->made, ~root->donor, root->entry);
    }
}

fx_status fxi_repeat_run(fxi_context *c, fxi_scratch *s)
{
    recorded_run *r = next_run(c);
    fxi_binding *b = &r->binding;
    fx_status status = make_copies(c, r);
    if (status == FX_OK) {
        take_spares(c->tape, r);
        status = fxi_binding_reserve(b, s, &r->graph);
    }
    if (status == FX_OK) {
        s->running = true;
        fxi_bind_values(b);
        status = fxi_run_plan(b);
        s->running = false;
    }
    if (status == FX_OK) {
        hand_over(c->tape, b, r);
        b->ninputs = r->nvarying;
        fxi_count(&fxi_counters.plan_hits, 1);
        fxi_count(&fxi_counters.repeated_evals, 1);
        c->tape->ran = &r->event;
        if (fxi_traced("repeat"))
            fx_message(0, "repeat: evaluation at call %d of the training step at %s:%d",
                       (int)r->event.first, c->tape->file, c->tape->line);
    }
    fxi_binding_free(b, s);
    drop_copies(r);
    /* The rest of the training step is built as usual (tape.h). */
    if (status != FX_OK)
        fxi_tape_leave(c);
    return status;
}
