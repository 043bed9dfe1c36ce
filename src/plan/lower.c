/* lower.c: makes the steps of a plan from the nodes of a graph.
 *
 * A group of elementwise nodes, with the reduction at its end if there is one, becomes one step
 * with a register program. Any other node becomes a step of its own. A step reads its inputs
 * through the views that lead to them, or as a dense copy if its kernel needs that.
 */
#include "build.h"
#include <cflux/backend.h>

#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

/* A process on x86-64 has 2^47 bytes of addresses, so larger values are refused. With this limit,
 * sums of sizes do not overflow, neither in the planner nor in the kernels of backends. */
static const int64_t most_bytes = INT64_C(1) << 47;

int32_t fxi_add_value(fxi_plan *p, fxi_value_kind kind, int32_t index, int64_t bytes)
{
    if (kind == FXI_VALUE_ARENA) {
        p->stored_bytes = fxi_add_sizes(p->stored_bytes, bytes);
        if (bytes > most_bytes || p->stored_bytes >= FXI_SIZE_CAP) {
            p->too_large = bytes;
            return -1;
        }
    }
    /* Values are named by number, because the list may move when it grows. first and last are noted
     * when the order of steps is final (note_lives in plan.c). */
    if (!fxi_grow(&p->values, &p->value_capacity, p->nvalues + 1, sizeof *p->values))
        return -1;
    p->values[p->nvalues] =
        (fxi_value){.kind = kind, .index = index, .first = -1, .last = -1, .bytes = bytes};
    return p->nvalues++;
}

int32_t fxi_add_literal(fxi_plan *p, fxi_plan_literal literal)
{
    /* A literal is added once for each type that reads it, so no kernel has to convert it. */
    if (!fxi_grow(&p->literals, &p->literal_capacity, p->nliterals + 1, sizeof *p->literals))
        return -1;
    p->literals[p->nliterals] = literal;
    return fxi_add_value(p, FXI_VALUE_LITERAL, p->nliterals++, 8);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The lists of inputs have one entry more than needed, because an allocation of 0 bytes may return
 * NULL. The step is counted before the allocations are tested, so fxi_plan_free frees it after a
 * failure. */
fx_step *fxi_add_step(fxi_builder *b, uint8_t op, int nin, const fx_attr *attr)
{
    fxi_plan *p = b->p;
    if (!fxi_grow(&p->steps, &p->step_capacity, p->nsteps + 1, sizeof *p->steps))
        return NULL;
    fx_step *s = &p->steps[p->nsteps];
    /* fxi_grow does not clear new entries, and every field must start at 0. */
    memset(s, 0, sizeof *s);
    const size_t n = (size_t)nin + 1;
    s->in = fxi_calloc(n, sizeof *s->in);
    s->in_value = fxi_calloc(n, sizeof *s->in_value);
    s->in_offset = fxi_calloc(n, sizeof *s->in_offset);
    s->op = op;
    s->cls = (uint8_t)fxi_ops[op].cls;
    s->nin = nin;
    if (attr)
        fxi_step_set_attr(s, attr);
    fxi_set_precision(b, s);
    p->nsteps++;
    return s->in && s->in_value && s->in_offset ? s : NULL;
}

void fxi_step_free(fx_step *s)
{
    fxi_free(s->in);
    fxi_free(s->in_value);
    fxi_free(s->in_offset);
    fxi_free(fx_step_program(s).instr);
    if (s->cls != FX_CLASS_FOREACH)
        return;
    /* The lists above hold the operands of the reductions, and the last reduction shares its
     * program with the step, so only the other programs are freed here. */
    for (int32_t k = 0; s->as.foreach.each && k + 1 < s->as.foreach.nsegments; k++)
        fxi_free(s->as.foreach.each[k].as.reduce.program.instr);
    fxi_free(s->as.foreach.each);
    fxi_free(s->as.foreach.segments);
}

void fxi_set_input(fx_step *s, int i, const fxi_node *n, const fxi_place *at)
{
    fx_tensor *t = &s->in[i];
    t->dtype = n->dtype;
    t->ndim = n->ndim;
    memcpy(t->shape, n->shape, sizeof t->shape);
    memcpy(t->stride, at->stride, sizeof t->stride);
    s->in_value[i] = at->value;
    s->in_offset[i] = at->offset;
}

/* Every output starts as an arena value; outputs of the graph get a buffer later (settle_output in
 * plan.c). */
bool fxi_set_output(fxi_builder *b, fx_step *s, const fxi_node *n, fxi_place *at)
{
    fx_tensor *t = &s->out;
    t->dtype = n->dtype;
    t->ndim = n->ndim;
    memcpy(t->shape, n->shape, sizeof t->shape);
    fxi_dense_strides(n->ndim, n->shape, t->stride);
    const int32_t v = fxi_add_value(b->p, FXI_VALUE_ARENA, 0, fxi_node_bytes(n));
    *at = (fxi_place){.value = v, .dense = -1};
    memcpy(at->stride, t->stride, sizeof at->stride);
    s->out_value = v;
    return v >= 0;
}

/* A program computes dense tiles of its space, whatever the strides of its operands are. */
void fxi_set_space(fx_tensor *space, const fxi_node *x)
{
    *space = (fx_tensor){.dtype = x->dtype, .ndim = x->ndim};
    memcpy(space->shape, x->shape, sizeof space->shape);
    fxi_dense_strides(x->ndim, x->shape, space->stride);
}

/* A copy is a RESHAPE step to the same shape: its output is dense by definition. */
bool fxi_copy_dense(fxi_builder *b, const fxi_node *n, const fxi_place *from, fxi_place *to)
{
    fx_step *s = fxi_add_step(b, FX_OP_RESHAPE, 1, NULL);
    if (!s)
        return false;
    fxi_set_input(s, 0, n, from);
    return fxi_set_output(b, s, n, to);
}

/* The place of the node keeps the number of the copy, so all kernels that need a copy share one. */
static bool copied_place(fxi_builder *b, int32_t id, fxi_place *out)
{
    const fxi_node *n = b->g->nodes[id];
    *out = b->places[id];
    if (out->dense < 0) {
        fxi_place made;
        if (!fxi_copy_dense(b, n, out, &made))
            return false;
        b->places[id].dense = made.value;
    }
    out->value = b->places[id].dense;
    out->offset = 0;
    fxi_dense_strides(n->ndim, n->shape, out->stride);
    return true;
}

bool fxi_dense_place(fxi_builder *b, int32_t id, fxi_place *out)
{
    const fxi_node *n = b->g->nodes[id];
    *out = b->places[id];
    /* Dense views cost nothing: kernels take an offset with every operand. */
    return fxi_is_dense(n->ndim, n->shape, out->stride) || copied_place(b, id, out);
}

/* Operand i of attention. q, k, v and gy may be views if the kernel can load 16 bytes of
 * neighbouring features at a time, otherwise they are copied. The mask, which is Bool, may be any
 * view. All others must be dense (fx_attention_step). */
static bool attention_place(fxi_builder *b, int32_t id, int i, fxi_place *out)
{
    const fxi_node *n = b->g->nodes[id];
    *out = b->places[id];
    if (n->dtype == FX_DTYPE_BOOL)
        return true;
    if (i >= FX_ATTENTION_VIEWS)
        return fxi_dense_place(b, id, out);
    const int64_t elements = 16 / (int64_t)fx_dtype_size((fx_dtype)n->dtype);
    bool loads = n->shape[0] == 1 || out->stride[0] == 1;
    for (int a = 1; a < n->ndim; a++)
        loads = loads && (n->shape[a] == 1 || out->stride[a] % elements == 0);
    loads = loads || fxi_is_dense(n->ndim, n->shape, out->stride);
    return (loads && out->offset % elements == 0) || copied_place(b, id, out);
}

/* ---- elementwise groups ---------------------------------------------------------------------- */

/* A group while its step is made: members, oldest first, and the operands outside. */
typedef struct group {
    int32_t members[FXI_GROUP_INSTRUCTIONS];
    int32_t operands[FXI_GROUP_INPUTS];
    const fxi_node *nodes[FXI_GROUP_INPUTS]; /* the nodes of the operands */
    int nmembers, noperands;
} group;

/* The list of a group starts at its last member, so it is written backwards. */
static void list_group(const fxi_builder *b, int32_t root, group *out)
{
    out->nmembers = out->noperands = 0;
    for (int32_t i = root; i >= 0; i = b->groups.next[i])
        out->nmembers++;
    int k = out->nmembers;
    for (int32_t i = root; i >= 0; i = b->groups.next[i])
        out->members[--k] = i;
    for (int m = 0; m < out->nmembers; m++) {
        const fxi_node *n = b->g->nodes[out->members[m]];
        for (int i = 0; i < n->nin; i++) {
            const int32_t id = fxi_graph_input(b->g, out->members[m], i);
            /* An operand of several members is listed once: it is one buffer of the step, and a
             * tile of it is loaded once. */
            if (fxi_find_id(out->members, out->nmembers, id) >= 0 ||
                fxi_find_id(out->operands, out->noperands, id) >= 0)
                continue;
            out->nodes[out->noperands] = n->in[i];
            out->operands[out->noperands++] = id;
        }
    }
}

/* One instruction for each member. Registers 0 … noperands−1 are the inputs, the results of the
 * instructions follow. */
static bool make_program(const fxi_builder *b, fx_program *p, int n_instr, const group *q)
{
    p->instr = fxi_calloc((size_t)n_instr, sizeof *p->instr);
    if (!p->instr)
        return false;
    p->n = n_instr;
    for (int m = 0; m < n_instr; m++) {
        const fxi_node *n = b->g->nodes[q->members[m]];
        fx_instr *ins = &p->instr[m];
        /* `from` is the type of the last operand: what a CAST converts and a comparison compares.
         * (The first operand of a selection is its Bool condition.) */
        *ins = (fx_instr){.op = n->op,
                          .dtype = n->dtype,
                          .from = n->nin ? n->in[n->nin - 1]->dtype : n->dtype,
                          .nsrc = (uint8_t)n->nin,
                          .attr = fxi_instr_attr(n)};
        for (int i = 0; i < n->nin; i++) {
            const int32_t id = fxi_graph_input(b->g, q->members[m], i);
            const int k = fxi_find_id(q->members, q->nmembers, id);
            ins->src[i] =
                (uint8_t)(k >= 0 ? q->noperands + k : fxi_find_id(q->operands, q->noperands, id));
        }
    }
    return true;
}

/* Members whose values are needed outside the group become further outputs of the step. The last
 * member is the main output. */
static bool more_outputs(fxi_builder *b, int32_t step, const group *q)
{
    /* In the order of the program, so equal groups get equal lists and foreach.c can merge their
     * steps. */
    for (int m = 0; m + 1 < q->nmembers; m++) {
        const int32_t id = q->members[m];
        /* Members without a reader outside stay in registers: that is what fusion saves. */
        if (!b->groups.stored[id])
            continue;
        const fxi_node *n = b->g->nodes[id];
        const int32_t v = fxi_add_value(b->p, FXI_VALUE_ARENA, 0, fxi_node_bytes(n));
        fx_more_outputs *more = &b->p->steps[step].as.elementwise.more;
        more->reg[more->n] = (uint8_t)(q->noperands + m);
        more->value[more->n++] = v;
        b->places[id] = (fxi_place){.value = v, .dense = -1};
        fxi_dense_strides(n->ndim, n->shape, b->places[id].stride);
        if (v < 0)
            return false;
    }
    return true;
}

bool fxi_lower_group(fxi_builder *b, int32_t root)
{
    group q;
    fxi_place in[FXI_GROUP_INPUTS];
    /* Copies of operands are steps of their own. They must be in the list before the step of the
     * group. */
    list_group(b, root, &q);
    for (int i = 0; i < q.noperands; i++) {
        in[i] = b->places[q.operands[i]];
        if (!b->views && !fxi_dense_place(b, q.operands[i], &in[i]))
            return false;
    }
    /* A reduction iterates over the shape of its input, an elementwise step over that of its
     * output. */
    const fxi_node *n = b->g->nodes[root], *x = n->op == FX_OP_REDUCE ? n->in[0] : n;
    bool channels_last;
    if (!fxi_settle_layout(b, n, x, q.noperands, q.operands, in, &channels_last))
        return false;
    fx_step *s = fxi_add_step(b, n->op, q.noperands, &n->attr);
    if (!s)
        return false;
    for (int i = 0; i < q.noperands; i++)
        fxi_set_input(s, i, q.nodes[i], &in[i]);
    /* A reduction is the step itself, not an instruction of its program. */
    const bool reduces = s->cls == FX_CLASS_REDUCE;
    fx_program *program = reduces ? &s->as.reduce.program : &s->as.elementwise.program;
    if (reduces)
        fxi_set_space(&s->as.reduce.space, x);
    if (!make_program(b, program, q.nmembers - reduces, &q) ||
        !fxi_set_output(b, s, n, &b->places[root]) ||
        (!reduces && !more_outputs(b, b->p->nsteps - 1, &q)))
        return false;
    /* Done last, because it permutes the axes of all tensors of the complete step. */
    if (channels_last)
        fxi_permute_step(b, s);
    for (int m = 0; m < q.nmembers && channels_last; m++)
        if (b->groups.stored[q.members[m]])
            fxi_permute_place(b->g->nodes[q.members[m]], &b->places[q.members[m]]);
    return true;
}

/* The layout is decided first, because a channels-last step has other operands than the plain one.
 */
bool fxi_lower(fxi_builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    const fx_class cls = fxi_ops[n->op].cls;
    bool channels_last = false;
    const bool lowered = fxi_lower_channels_last(b, id, &channels_last);
    if (!lowered || channels_last)
        return lowered;
    /* Kernels of these classes take only dense operands, on every backend. */
    const bool dense = !b->views || cls == FX_CLASS_CONV || cls == FX_CLASS_POOL ||
                       cls == FX_CLASS_CUSTOM || cls == FX_CLASS_COLLECTIVE;
    /* Copies must be in the list before the step that reads them. */
    fxi_place inline_places[4],
        *in = n->nin <= 4 ? inline_places : fxi_malloc((size_t)n->nin * sizeof *in);
    bool ok = in != NULL;
    for (int i = 0; i < n->nin && ok; i++) {
        const int32_t k = fxi_graph_input(b->g, id, i);
        if (dense)
            ok = fxi_dense_place(b, k, &in[i]);
        else if (cls == FX_CLASS_ATTENTION)
            ok = attention_place(b, k, i, &in[i]);
        else
            in[i] = b->places[k];
    }
    const int32_t x = n->op == FX_OP_REDUCE ? fxi_graph_input(b->g, id, 0) : -1;
    ok = ok && (x < 0 || fxi_settle_layout(b, n, n->in[0], 1, &x, in, &channels_last));
    fx_step *s = ok ? fxi_add_step(b, n->op, n->nin, &n->attr) : NULL;
    ok = s != NULL;
    for (int i = 0; i < n->nin && ok; i++) {
        /* The previous collective operation is the first input of the node (ops/collective.c), but
         * the last input of the step. */
        const int k = cls == FX_CLASS_COLLECTIVE ? n->nin - 1 - i : i;
        fxi_set_input(s, i, n->in[k], &in[k]);
    }
    /* The step stores only the number of its stream; each run provides the seed and the counter. */
    if (ok && n->op == FX_OP_RANDOM)
        s->as.generator.stream = b->g->slot[id];
    ok = ok && fxi_set_output(b, s, n, &b->places[id]);
    if (ok && cls == FX_CLASS_ATTENTION)
        fxi_step_set_attention_sizes(s);
    if (ok && cls == FX_CLASS_MATMUL)
        fxi_reorder_product(b, id, s);
    /* The backend is asked when the tensors are complete, because what it can sum between devices
     * depends on type and size. If it refuses, the library runs the step on the host. */
    if (ok && cls == FX_CLASS_COLLECTIVE && b->how->collective)
        s->as.collective.by_backend = b->how->collective(b->p->device, s);
    if (ok && channels_last) {
        fxi_permute_step(b, s);
        fxi_permute_place(n, &b->places[id]);
    }
    if (in != inline_places)
        fxi_free(in);
    return ok;
}
