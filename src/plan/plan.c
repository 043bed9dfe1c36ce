/* plan.c: from a graph to steps.
 *
 * Every node gets a place: a value with an offset and strides. Movement costs nothing where strides
 * can express it (and the backend takes strides); where they cannot, a copy makes the elements
 * dense first. All other nodes are one step each. Outputs get buffers of their own; everything else
 * goes to the arena. An update's result may be written into the buffer of the value it replaces
 * (donation) when its step reads that value element by element and no later step needs the old one:
 * such steps are moved to the end.
 */
#include "plan.h"
#include "group.h"
#include "backend.h"
#include "counters.h"

#include <string.h>

/* Where a node's elements are while the plan is built. */
typedef struct place {
    int32_t value;
    int32_t dense; /* value of a dense copy made for a kernel that needs one, or −1 */
    int64_t offset;
    int64_t stride[FX_MAX_DIMS];
} place;

typedef struct builder {
    const fxi_graph *g;
    fxi_plan *p;
    place *places;
    fxi_groups groups;
    bool views;
} builder;

static int64_t bytes_of(const fxi_node *n)
{
    return fxi_length(n->ndim, n->shape) * (int64_t)fx_dtype_size((fx_dtype)n->dtype);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int32_t add_value(fxi_plan *p, fxi_value_kind kind, int32_t index, int64_t bytes)
{
    if (!fxi_grow(&p->values, &p->value_capacity, p->nvalues + 1, sizeof *p->values))
        return -1;
    p->values[p->nvalues] =
        (fxi_value){.kind = kind, .index = index, .first = -1, .last = -1, .bytes = bytes};
    return p->nvalues++;
}

static int32_t add_slot(fxi_plan *p, int32_t constant, uint8_t dtype)
{
    if (!fxi_grow(&p->slots, &p->slot_capacity, p->nslots + 1, sizeof *p->slots))
        return -1;
    p->slots[p->nslots] = (fxi_slot){constant, dtype};
    return add_value(p, FXI_VALUE_SLOT, p->nslots++, 8);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static fxi_step *add_step(builder *b, uint8_t op, int nin, const fxi_attr *attr)
{
    fxi_plan *p = b->p;
    if (!fxi_grow(&p->steps, &p->step_capacity, p->nsteps + 1, sizeof *p->steps))
        return NULL;
    fxi_step *s = &p->steps[p->nsteps];
    memset(s, 0, sizeof *s);
    const size_t n = (size_t)nin + 1;
    s->in = fxi_calloc(n, sizeof *s->in);
    s->in_value = fxi_calloc(n, sizeof *s->in_value);
    s->in_offset = fxi_calloc(n, sizeof *s->in_offset);
    s->op = op;
    s->cls = (uint8_t)fxi_ops[op].cls;
    s->nin = nin;
    s->slot = -1;
    if (attr)
        s->attr = *attr;
    p->nsteps++;
    if (nin > p->max_inputs)
        p->max_inputs = nin;
    return s->in && s->in_value && s->in_offset ? s : NULL;
}

static void set_input(fxi_step *s, int i, const fxi_node *n, const place *at)
{
    fxi_tensor *t = &s->in[i];
    t->dtype = n->dtype;
    t->ndim = n->ndim;
    memcpy(t->shape, n->shape, sizeof t->shape);
    memcpy(t->stride, at->stride, sizeof t->stride);
    s->in_value[i] = at->value;
    s->in_offset[i] = at->offset;
}

/* The output of the newest step: a new dense arena value in `at`. */
static bool set_output(builder *b, fxi_step *s, const fxi_node *n, place *at)
{
    fxi_tensor *t = &s->out;
    t->dtype = n->dtype;
    t->ndim = n->ndim;
    memcpy(t->shape, n->shape, sizeof t->shape);
    fxi_dense_strides(n->ndim, n->shape, t->stride);
    const int32_t v = add_value(b->p, FXI_VALUE_ARENA, 0, bytes_of(n));
    *at = (place){.value = v, .dense = -1};
    memcpy(at->stride, t->stride, sizeof at->stride);
    s->out_value = v;
    return v >= 0;
}

/* Copies n's elements, as seen through `from`, into dense memory. */
static bool copy_dense(builder *b, const fxi_node *n, const place *from, place *to)
{
    fxi_step *s = add_step(b, FXI_OP_RESHAPE, 1, NULL);
    if (!s)
        return false;
    set_input(s, 0, n, from);
    return set_output(b, s, n, to);
}

/* A place of input n that is dense, made if need be. */
static bool dense_place(builder *b, int32_t id, place *out)
{
    const fxi_node *n = b->g->nodes[id];
    place *at = &b->places[id];
    *out = *at;
    if (fxi_is_dense(n->ndim, n->shape, at->stride))
        return true;
    if (at->dense < 0) {
        place made;
        if (!copy_dense(b, n, at, &made))
            return false;
        b->places[id].dense = made.value;
    }
    out->value = b->places[id].dense;
    out->offset = 0;
    fxi_dense_strides(n->ndim, n->shape, out->stride);
    return true;
}

/* ---- elementwise groups ---------------------------------------------------------------------- */

/* A group while its step is made: members oldest first, operands that are no members. */
typedef struct group {
    int32_t members[FXI_GROUP_INSTRUCTIONS];
    int32_t operands[FXI_GROUP_INPUTS];
    const fxi_node *nodes[FXI_GROUP_INPUTS]; /* of the operands */
    int nmembers, noperands;
} group;

static int find_id(const int32_t *list, int n, int32_t id)
{
    for (int i = 0; i < n; i++)
        if (list[i] == id)
            return i;
    return -1;
}

static void list_group(const builder *b, int32_t root, group *out)
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
            if (find_id(out->members, out->nmembers, id) >= 0 ||
                find_id(out->operands, out->noperands, id) >= 0)
                continue;
            out->nodes[out->noperands] = n->in[i];
            out->operands[out->noperands++] = id;
        }
    }
}

/* One instruction a member: inputs are registers 0 … noperands−1, members follow. */
static bool make_program(const builder *b, fxi_step *s, const group *q)
{
    const int n_instr =
        q->nmembers - (s->op == FXI_OP_REDUCE); /* the reduction is the step itself */
    s->program = fxi_calloc((size_t)n_instr, sizeof *s->program);
    if (!s->program)
        return false;
    s->ninstr = n_instr;
    for (int m = 0; m < n_instr; m++) {
        const fxi_node *n = b->g->nodes[q->members[m]];
        fxi_instr *ins = &s->program[m];
        *ins = (fxi_instr){.op = n->op,
                           .dtype = n->dtype,
                           .from = n->nin ? n->in[n->nin - 1]->dtype : n->dtype,
                           .nsrc = (uint8_t)n->nin,
                           .attr = n->attr.i[0]};
        for (int i = 0; i < n->nin; i++) {
            const int32_t id = fxi_graph_input(b->g, q->members[m], i);
            const int k = find_id(q->members, q->nmembers, id);
            ins->src[i] =
                (uint8_t)(k >= 0 ? q->noperands + k : find_id(q->operands, q->noperands, id));
        }
    }
    return true;
}

/* Members whose values are needed elsewhere become further outputs. */
static bool more_outputs(builder *b, int32_t step, const group *q)
{
    for (int m = 0; m + 1 < q->nmembers; m++) {
        const int32_t id = q->members[m];
        if (!b->groups.stored[id])
            continue;
        const fxi_node *n = b->g->nodes[id];
        const int32_t v = add_value(b->p, FXI_VALUE_ARENA, 0, bytes_of(n));
        fxi_step *s = &b->p->steps[step];
        s->more_reg[s->nmore] = (uint8_t)(q->noperands + m);
        s->more_value[s->nmore++] = v;
        b->places[id] = (place){.value = v, .dense = -1};
        fxi_dense_strides(n->ndim, n->shape, b->places[id].stride);
        if (v < 0)
            return false;
    }
    return true;
}

static bool compute_group(builder *b, int32_t root)
{
    group q;
    place in[FXI_GROUP_INPUTS];
    list_group(b, root, &q);
    for (int i = 0; i < q.noperands; i++) {
        in[i] = b->places[q.operands[i]];
        if (!b->views && !dense_place(b, q.operands[i], &in[i]))
            return false;
    }
    fxi_step *s = add_step(b, b->g->nodes[root]->op, q.noperands, &b->g->nodes[root]->attr);
    if (!s)
        return false;
    for (int i = 0; i < q.noperands; i++)
        set_input(s, i, q.nodes[i], &in[i]);
    if (s->op == FXI_OP_REDUCE) {
        const fxi_node *x = b->g->nodes[root]->in[0];
        s->space = (fxi_tensor){.dtype = x->dtype, .ndim = x->ndim};
        memcpy(s->space.shape, x->shape, sizeof s->space.shape);
        fxi_dense_strides(x->ndim, x->shape, s->space.stride);
    }
    return make_program(b, s, &q) && set_output(b, s, b->g->nodes[root], &b->places[root]) &&
           more_outputs(b, b->p->nsteps - 1, &q);
}

static bool compute(builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    const fxi_class cls = fxi_ops[n->op].cls;
    const bool dense =
        !b->views || cls == FXI_CLASS_CONV || cls == FXI_CLASS_POOL || cls == FXI_CLASS_CUSTOM;
    /* Copies come first: they are steps of their own. */
    place inline_places[4],
        *in = n->nin <= 4 ? inline_places : fxi_malloc((size_t)n->nin * sizeof *in);
    bool ok = in != NULL;
    for (int i = 0; i < n->nin && ok; i++) {
        const int32_t k = fxi_graph_input(b->g, id, i);
        if (dense)
            ok = dense_place(b, k, &in[i]);
        else
            in[i] = b->places[k];
    }
    fxi_step *s = ok ? add_step(b, n->op, n->nin, &n->attr) : NULL;
    ok = s != NULL;
    for (int i = 0; i < n->nin && ok; i++)
        set_input(s, i, n->in[i], &in[i]);
    if (ok && n->op == FXI_OP_RANDOM)
        s->slot = b->g->slot[id];
    ok = ok && set_output(b, s, n, &b->places[id]);
    if (in != inline_places)
        fxi_free(in);
    return ok;
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Strides of a reshape without moving elements: axes are matched in groups of equal length, and a
 * group of old axes must be one regular run. */
static bool reshape_strides(const fxi_node *from, const int64_t *old, const fxi_node *to,
                            int64_t *stride)
{
    if (fxi_length(to->ndim, to->shape) == 0) {
        fxi_dense_strides(to->ndim, to->shape, stride);
        return true;
    }
    int i = 0, k = 0;
    while (k < to->ndim) {
        int64_t have = i < from->ndim ? from->shape[i] : 1, want = to->shape[k];
        int i1 = i + 1, k1 = k + 1;
        while (have != want) {
            if (have < want)
                have *= from->shape[i1++];
            else
                want *= to->shape[k1++];
        }
        int64_t run = 0, next = -1; /* stride of the group's first element, and the one its next
                                       axis must have */
        for (int a = i; a < i1 && a < from->ndim; a++) {
            if (from->shape[a] == 1)
                continue;
            if (next >= 0 && old[a] != next)
                return false;
            if (next < 0)
                run = old[a];
            next = old[a] * from->shape[a];
            if (next < 0 && a + 1 < i1) /* a reversed axis cannot be joined with others */
                return false;
        }
        for (int a = k; a < k1; a++) {
            stride[a] = run;
            run *= to->shape[a];
        }
        i = i1;
        k = k1;
    }
    return true;
}

/* A movement node as another look at its input's place; false when only a copy can do it. */
static bool view(const fxi_node *n, const place *from, place *to)
{
    const fxi_node *x = n->in[0];
    *to = (place){.value = from->value, .dense = -1, .offset = from->offset};
    memcpy(to->stride, from->stride, sizeof to->stride);
    switch (n->op) {
    case FXI_OP_RESHAPE:
        return reshape_strides(x, from->stride, n, to->stride);
    case FXI_OP_PERMUTE:
        for (int i = 0; i < n->ndim; i++)
            to->stride[i] = from->stride[n->attr.i[i]];
        return true;
    case FXI_OP_EXPAND:
        for (int i = 0; i < n->ndim; i++)
            if (n->shape[i] != x->shape[i])
                to->stride[i] = 0;
        return true;
    case FXI_OP_SLICE:
        to->offset += n->attr.i[1] * from->stride[n->attr.i[0]];
        to->stride[n->attr.i[0]] *= n->attr.i[2];
        return true;
    default:
        return true;
    }
}

static bool move(builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    const int32_t in = fxi_graph_input(b->g, id, 0);
    if (!b->views)
        return compute(b, id);
    if (view(n, &b->places[in], &b->places[id]))
        return true;
    place dense;
    return dense_place(b, in, &dense) && view(n, &dense, &b->places[id]);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool place_leaf(builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    const int32_t v = add_value(b->p, FXI_VALUE_LEAF, b->g->slot[id], bytes_of(n));
    b->places[id] = (place){.value = v, .dense = -1};
    memcpy(b->places[id].stride, n->data->stride, sizeof b->places[id].stride);
    return v >= 0;
}

static bool place_constant(builder *b, int32_t id, int32_t constant)
{
    const int32_t v = add_slot(b->p, constant, b->g->nodes[id]->dtype);
    b->places[id] = (place){.value = v, .dense = -1};
    return v >= 0;
}

static bool plan_node(builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    if (n->data)
        return place_leaf(b, id);
    if (n->op == FXI_OP_CONST)
        return place_constant(b, id, b->g->slot[id]);
    /* a converted literal is a literal: nothing is rounded twice */
    if (n->op == FXI_OP_CAST && n->in[0]->op == FXI_OP_CONST && !n->in[0]->data && n->ndim == 0)
        return place_constant(b, id, b->g->slot[fxi_graph_input(b->g, id, 0)]);
    if (b->groups.root[id] != id) { /* computed at its root's place */
        b->places[id] = (place){.value = -1, .dense = -1};
        return true;
    }
    if (fxi_ops[n->op].cls == FXI_CLASS_ELEMENTWISE || b->groups.next[id] >= 0)
        return compute_group(b, id);
    return fxi_ops[n->op].cls == FXI_CLASS_MOVEMENT ? move(b, id) : compute(b, id);
}

/* ---- outputs --------------------------------------------------------------------------------- */

static bool add_buffer(fxi_plan *p, fxi_value *v)
{
    if (!fxi_grow(&p->buffer_bytes, &p->buffer_capacity, p->nbuffers + 1, sizeof *p->buffer_bytes))
        return false;
    p->buffer_bytes[p->nbuffers] = v->bytes;
    v->kind = FXI_VALUE_OUTPUT;
    v->index = p->nbuffers++;
    return true;
}

/* Is the leaf behind the movements that end in node id in borrowed memory? */
static bool reads_borrowed(const builder *b, int32_t id)
{
    while (!b->g->nodes[id]->data)
        id = fxi_graph_input(b->g, id, 0);
    return b->g->nodes[id]->data->buffer->borrowed;
}

/* Output k gets memory that outlives the run. Constants, views of borrowed memory (which is read
 * now or never) and views of little of a large value are copied. */
static bool settle_output(builder *b, int32_t k)
{
    fxi_plan *p = b->p;
    const int32_t id = b->g->outputs[k];
    const fxi_node *n = b->g->nodes[id];
    place at = b->places[id];
    const fxi_value_kind kind = p->values[at.value].kind;
    if (kind == FXI_VALUE_SLOT || (kind == FXI_VALUE_LEAF && reads_borrowed(b, id)) ||
        (kind == FXI_VALUE_ARENA && 2 * bytes_of(n) < p->values[at.value].bytes)) {
        place made;
        if (!copy_dense(b, n, &at, &made))
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

/* ---- donation -------------------------------------------------------------------------------- */

/* The value of output k of a step; −1 is the first one. */
static int32_t output_value(const fxi_step *s, int k)
{
    return k < 0 ? s->out_value : s->more_value[k];
}

/* The step that makes value v; −1 when none does. */
static int32_t maker(const fxi_plan *p, int32_t v)
{
    for (int32_t i = p->nsteps - 1; i >= 0; i--)
        for (int k = -1; k < p->steps[i].nmore; k++)
            if (output_value(&p->steps[i], k) == v)
                return i;
    return -1;
}

/* Does step s read value v otherwise than element by element at the output's own positions? 0: not
 * at all, 1: aligned, 2: otherwise. */
static int reads(const fxi_step *s, int32_t v)
{
    int how = 0;
    for (int i = 0; i < s->nin; i++) {
        if (s->in_value[i] != v)
            continue;
        const fxi_tensor *t = &s->in[i];
        const bool aligned =
            s->cls == FXI_CLASS_ELEMENTWISE && s->in_offset[i] == 0 && t->ndim == s->out.ndim &&
            fxi_is_dense(t->ndim, t->shape, t->stride) &&
            fx_dtype_size((fx_dtype)t->dtype) == fx_dtype_size((fx_dtype)s->out.dtype);
        how = aligned && how < 2 ? 1 : 2;
    }
    return how;
}

typedef struct donation {
    bool *last;  /* steps that run after all others, because they overwrite what those read */
    bool *taken; /* leaf values that are overwritten */
    bool *late; /* values made by steps that overwrite a leaf, or by steps that need such a value */
} donation;

/* Does another step read value v before, or at or after, step m? Bit 0 and bit 1. */
static int readers(const fxi_plan *p, int32_t v, int32_t m)
{
    int when = 0;
    for (int32_t i = 0; i < p->nsteps; i++)
        if (i != m && reads(&p->steps[i], v))
            when |= i < m ? 1 : 2;
    return when;
}

/* Lets output k be written into its donor's buffer: the step that makes it runs last, or, when
 * other steps need the result, where it is, and then no later step may need the old value. */
static bool try_donation(builder *b, int32_t k, donation *d)
{
    fxi_plan *p = b->p;
    const int32_t v = p->results[k].value, leaf = b->places[b->g->donors[k]].value, m = maker(p, v);
    if (m < 0 || p->values[v].kind != FXI_VALUE_OUTPUT || p->values[leaf].kind != FXI_VALUE_LEAF ||
        p->results[k].offset != 0 || p->values[v].bytes != p->values[leaf].bytes ||
        reads(&p->steps[m], leaf) > 1)
        return false;
    for (int32_t i = 0; i < p->noutputs;
         i++) /* neither the old value nor the new one is wanted elsewhere */
        if (i != k && (p->results[i].value == leaf || p->results[i].value == v))
            return false;
    for (int32_t i = 0; i < p->nsteps; i++)
        if (i != m && d->last[i] && reads(&p->steps[i], leaf))
            return false;
    bool last = true;
    for (int i = -1; i < p->steps[m].nmore && last; i++)
        last = readers(p, output_value(&p->steps[m], i), m) == 0;
    if (!last && (readers(p, leaf, m) & 2))
        return false;
    for (int i = 0; i < p->steps[m].nin && last; i++)
        if (d->taken[p->steps[m].in_value[i]])
            return false;
    p->buffer_bytes[p->values[v].index] = -1; /* needs no memory */
    p->values[v].kind = FXI_VALUE_DONATED;
    p->values[v].index = p->values[leaf].index;
    d->last[m] = last;
    d->taken[leaf] = true;
    return true;
}

/* Steps that overwrite nothing come first: a kernel among them that fails (an index out of range,
 * no memory) leaves all old values as they were. */
static void order_steps(const fxi_plan *p, donation *d, fxi_step *ordered)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->nsteps; i++) {
        const fxi_step *s = &p->steps[i];
        bool late = false;
        for (int k = 0; k < s->nin; k++)
            late |= d->late[s->in_value[k]];
        for (int k = -1; k < s->nmore; k++)
            late |= p->values[output_value(s, k)].kind == FXI_VALUE_DONATED;
        for (int k = -1; k < s->nmore; k++)
            d->late[output_value(s, k)] = late;
        if (!late)
            ordered[n++] = *s;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < p->nsteps; i++)
            if (d->late[p->steps[i].out_value] && d->last[i] == (pass == 1))
                ordered[n++] = p->steps[i];
}

static bool donate(builder *b)
{
    fxi_plan *p = b->p;
    bool any = false;
    for (int32_t k = 0; k < b->g->noutputs; k++)
        any |= b->g->donors[k] >= 0;
    if (!any)
        return true;
    donation d = {.last = fxi_calloc((size_t)p->nsteps + 1, sizeof *d.last),
                  .taken = fxi_calloc((size_t)p->nvalues + 1, sizeof *d.taken),
                  .late = fxi_calloc((size_t)p->nvalues + 1, sizeof *d.late)};
    fxi_step *ordered = fxi_malloc(((size_t)p->nsteps + 1) * sizeof *ordered);
    const bool ok = d.last && d.taken && d.late && ordered;
    for (int32_t k = 0; k < p->noutputs && ok; k++)
        if (b->g->donors[k] >= 0 && !try_donation(b, k, &d))
            p->donations_denied++;
        else if (b->g->donors[k] >= 0)
            p->donations++;
    if (ok) {
        order_steps(p, &d, ordered);
        memcpy(p->steps, ordered, (size_t)p->nsteps * sizeof *ordered);
    }
    fxi_free(d.last);
    fxi_free(d.taken);
    fxi_free(d.late);
    fxi_free(ordered);
    return ok;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void note_lives(fxi_plan *p)
{
    for (int32_t i = 0; i < p->nsteps; i++) {
        fxi_step *s = &p->steps[i];
        for (int k = -1; k < s->nmore; k++) {
            fxi_value *v = &p->values[output_value(s, k)];
            v->first = v->last = i;
            p->bytes_moved += (uint64_t)v->bytes;
        }
        for (int k = 0; k < s->nin; k++) {
            p->values[s->in_value[k]].last = i;
            const fxi_tensor *t = &s->in[k];
            int64_t n = (int64_t)fx_dtype_size((fx_dtype)t->dtype);
            for (int a = 0; a < t->ndim; a++)
                n *= t->stride[a] == 0 ? 1 : t->shape[a];
            p->bytes_moved += (uint64_t)n;
        }
    }
}

static bool keep_key(fxi_plan *p, const fxi_graph *g)
{
    p->key = fxi_malloc((size_t)g->nkey * sizeof *p->key);
    p->record = fxi_malloc(((size_t)g->n + 1) * sizeof *p->record);
    if (!p->key || !p->record)
        return false;
    memcpy(p->key, g->key, (size_t)g->nkey * sizeof *p->key);
    memcpy(p->record, g->record, (size_t)g->n * sizeof *p->record);
    p->nkey = g->nkey;
    p->hash = g->hash;
    p->nnodes = g->n;
    return true;
}

static bool prepare(fxi_plan *p)
{
    const fxi_backend *backend = p->device->backend;
    bool ok = true;
    for (int32_t i = 0; backend->prepare && i < p->nsteps && ok; i++)
        ok = backend->prepare(p->device, &p->steps[i]) == FX_OK;
    return ok;
}

static bool build(builder *b)
{
    const fxi_graph *g = b->g;
    fxi_plan *p = b->p;
    b->places = fxi_malloc(((size_t)g->n + 1) * sizeof *b->places);
    p->results = fxi_calloc((size_t)g->noutputs + 1, sizeof *p->results);
    if (!b->places || !p->results || !keep_key(p, g) ||
        !fxi_group(g, g->device->backend->fuses && !fxi_eager(), &b->groups))
        return false;
    p->noutputs = g->noutputs;
    for (int32_t i = 0; i < g->n; i++)
        if (!plan_node(b, i))
            return false;
    for (int32_t k = 0; k < g->noutputs; k++)
        if (!settle_output(b, k))
            return false;
    if (!donate(b) || !prepare(p))
        return false;
    note_lives(p);
    return fxi_plan_place(p);
}

fxi_plan *fxi_plan_build(const fxi_graph *g)
{
    fxi_plan *p = fxi_calloc(1, sizeof *p);
    builder b = {.g = g, .p = p, .views = g->device->backend->views};
    if (p) {
        p->refs = 1;
        p->device = g->device;
    }
    const bool ok = p && build(&b);
    fxi_free(b.places);
    fxi_groups_free(&b.groups);
    if (ok)
        return p;
    if (p)
        fxi_plan_release(p);
    fx_fail(FX_STATUS_MEMORY, "plan", "no memory for a plan of %d nodes", (int)g->n);
    return NULL;
}

void fxi_plan_release(fxi_plan *p)
{
    if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (int32_t i = 0; i < p->nsteps; i++) {
        if (p->steps[i].ready)
            p->device->backend->release(p->device, &p->steps[i]);
        fxi_free(p->steps[i].in);
        fxi_free(p->steps[i].in_value);
        fxi_free(p->steps[i].in_offset);
        fxi_free(p->steps[i].program);
    }
    void *const all[] = {p->steps,        p->values, p->slots,  p->results,
                         p->buffer_bytes, p->key,    p->record, p};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fxi_free(all[i]);
}
