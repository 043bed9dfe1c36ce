/* layout.c: chooses the order in which the elements of activations are in memory.
 *
 * Every value is column-major, W×H×C×N with W fastest. The exception: a backend may ask for
 * convolutions and pooling with C fastest (channels last), because the vendors' kernels are about
 * twice as fast in that order. The output of a channels-last step stays in that order. Elementwise
 * steps and reductions whose full-size operands are channels last are written with their axes in
 * memory order (C, W, H, N). In that order the operands are dense, so kernels need no code for
 * layouts.
 *
 * Copies are made only where the two orders meet: at the input of the first channels-last step,
 * where a step needs column-major memory (a reshape before a Dense layer), and for results of the
 * plan. Nodes, attributes and places keep the logical order of axes throughout. Measurements:
 * docs/design/0006.
 */
#include "build.h"
#include <cflux/backend.h>

#include <string.h>

/* ---- the order of axes ----------------------------------------------------------------------- */

/* The axis that is k-th in memory of a channels-last tensor with n axes: C, then the axes of space,
 * then N. */
static int axis_at(int n, int k)
{
    return k == 0 ? n - 2 : k == n - 1 ? k : k - 1;
}

static void channels_last_strides(int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t next = 1;
    for (int k = 0; k < ndim; k++) {
        const int d = axis_at(ndim, k);
        stride[d] = next;
        next *= shape[d];
    }
}

/* Axes of size 1 are ignored: their stride is never used, and views leave any number there. */
static bool has_channels_last_strides(int ndim, const int64_t *shape, const int64_t *stride)
{
    int64_t expected[FX_MAX_DIMS];
    /* Without a spatial axis before the channels, both orders are the same. */
    if (ndim < 3)
        return false;
    channels_last_strides(ndim, shape, expected);
    for (int d = 0; d < ndim; d++)
        if (shape[d] != 1 && stride[d] != expected[d])
            return false;
    return true;
}

/* Is node n, seen through a place, channels last because a step wrote it in that order? Strides
 * alone do not decide: a permuted leaf may have them by chance. False if it is dense as well, since
 * then both orders are the same. */
static bool is_channels_last(const fxi_builder *b, const fxi_node *n, const fxi_place *at)
{
    return b->p->values[at->value].channels_last &&
           has_channels_last_strides(n->ndim, n->shape, at->stride) &&
           !fxi_is_dense(n->ndim, n->shape, at->stride);
}

/* Strides move together with their axes, so the tensor names the same elements as before. */
static void permute_tensor(fx_tensor *t)
{
    const fx_tensor old = *t;
    for (int k = 0; k < t->ndim; k++) {
        t->shape[k] = old.shape[axis_at(t->ndim, k)];
        t->stride[k] = old.stride[axis_at(t->ndim, k)];
    }
}

/* The bits of reduced axes, in memory order. */
static uint64_t permute_mask(int ndim, uint64_t mask)
{
    uint64_t permuted = 0;
    for (int k = 0; k < ndim; k++)
        permuted |= (uint64_t)FXI_AXIS_IN(mask, axis_at(ndim, k)) << k;
    return permuted;
}

/* The place keeps the logical order of axes; only its strides show the layout. */
void fxi_permute_place(const fxi_node *n, fxi_place *at)
{
    channels_last_strides(n->ndim, n->shape, at->stride);
}

/* The output becomes dense in the new order of axes; tensors of fewer axes (numbers) are unchanged.
 */
void fxi_permute_axes(fx_step *s)
{
    const int n = s->out.ndim;
    s->in_memory_order = true;
    for (int i = 0; i < s->nin; i++)
        if (s->in[i].ndim == n)
            permute_tensor(&s->in[i]);
    permute_tensor(&s->out);
    fxi_dense_strides(n, s->out.shape, s->out.stride);
    /* The space of a reduction has the axes of the input, which were permuted, and its mask names
     * them by number.
     */
    if (s->cls == FX_CLASS_REDUCE) {
        fx_reduce_step *r = &s->as.reduce;
        r->mask = (uint32_t)permute_mask(n, r->mask);
        permute_tensor(&r->space);
        fxi_dense_strides(n, r->space.shape, r->space.stride);
    }
}

void fxi_permute_step(fxi_builder *b, fx_step *s)
{
    int64_t stride[FX_MAX_DIMS];
    channels_last_strides(s->out.ndim, s->out.shape, stride);
    /* With one channel, or one pixel, both orders are the same memory. The value then counts as
     * column-major, which saves copies. */
    const bool differs = !fxi_is_dense(s->out.ndim, s->out.shape, stride);
    fxi_permute_axes(s);
    for (int32_t k = 0; k < fx_step_outputs(s); k++)
        b->p->values[fx_step_output(s, k)].channels_last = differs;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* A channels-last place of node id. Adds a copy step if the node has none; later calls return the
 * same copy. */
static bool channels_last_place(fxi_builder *b, int32_t id, fxi_place *out)
{
    const fxi_node *n = b->g->nodes[id];
    *out = b->places[id];
    /* Also true if fxi_permute_step has not changed the value: with one channel or one pixel both
     * orders are the same memory. */
    if (has_channels_last_strides(n->ndim, n->shape, out->stride))
        return true;
    if (b->channels_last_copy[id] < 0) {
        fxi_place made;
        if (!fxi_copy_dense(b, n, out, &made))
            return false;
        /* The copy has been added with a column-major output; permuting its axes makes the output
         * channels last. */
        fxi_permute_step(b, &b->p->steps[b->p->nsteps - 1]);
        b->channels_last_copy[id] = made.value;
    }
    *out = (fxi_place){.value = b->channels_last_copy[id], .dense = -1};
    channels_last_strides(n->ndim, n->shape, out->stride);
    return true;
}

bool fxi_plain_place(fxi_builder *b, int32_t id, fxi_place *out)
{
    *out = b->places[id];
    /* Other strides are kept: the kernels of row steps read any. */
    return !is_channels_last(b, b->g->nodes[id], out) || fxi_dense_place(b, id, out);
}

/* Does node n have all elements of `space` at this place, without a broadcast? */
static bool full_size(const fxi_node *space, const fxi_node *n, const fxi_place *at)
{
    if (n->ndim != space->ndim ||
        memcmp(n->shape, space->shape, (size_t)n->ndim * sizeof *n->shape) != 0)
        return false;
    for (int d = 0; d < n->ndim; d++)
        /* A broadcast operand is read through its strides, so the order of axes costs it nothing.
         */
        if (n->shape[d] != 1 && at->stride[d] == 0)
            return false;
    return true;
}

/* Can a reduction kernel still walk memory in order if the axes are in channels-last order? The
 * condition is that of takes_producers in group.c. */
static bool still_reducible(const fxi_node *root)
{
    if (root->op != FX_OP_REDUCE)
        return true;
    const fxi_node *x = root->in[0];
    int changes = 0;
    bool reduced = true;
    for (int k = 0; k < x->ndim; k++) {
        const int d = axis_at(x->ndim, k);
        if (x->shape[d] == 1)
            continue;
        const bool now = FXI_AXIS_IN(root->attr.reduce.mask, d);
        /* Blocks of reduced and kept axes in memory order: at most reduced, kept, reduced. */
        changes += now != reduced;
        reduced = now;
    }
    return changes <= 2;
}

bool fxi_settle_layout(fxi_builder *b, const fxi_node *root, const fxi_node *space, int n,
                       const int32_t *ids, fxi_place *in, bool *out_channels_last)
{
    int channels_last = 0, dense = 0;
    bool same_axes = true;
    *out_channels_last = false;
    for (int i = 0; i < n; i++) {
        const fxi_node *x = b->g->nodes[ids[i]];
        same_axes = same_axes && (x->ndim == space->ndim || x->ndim == 0);
        if (!full_size(space, x, &in[i]))
            continue;
        channels_last += is_channels_last(b, x, &in[i]);
        dense += fxi_is_dense(x->ndim, x->shape, in[i].stride);
    }
    /* No operand is channels last: nothing to copy, and the step is unchanged. */
    if (channels_last == 0)
        return true;
    /* The layout of most full-size operands needs the fewest copies. Channels last is possible only
     * if all operands have the axes of the step, and the reduction can still walk memory in order.
     */
    *out_channels_last = same_axes && channels_last >= dense && still_reducible(root);
    for (int i = 0; i < n; i++) {
        const fxi_node *x = b->g->nodes[ids[i]];
        if (!full_size(space, x, &in[i]))
            continue;
        const bool is_dense = fxi_is_dense(x->ndim, x->shape, in[i].stride);
        if (*out_channels_last
                ? is_dense && !channels_last_place(b, ids[i], &in[i])
                : is_channels_last(b, x, &in[i]) && !fxi_dense_place(b, ids[i], &in[i]))
            return false;
    }
    return true;
}

/* ---- convolution and pooling ----------------------------------------------------------------- */

/* The operand that is the weights of a convolution, which keep their layout: 1 (input 1); 2 (the
 * output) for the gradient with respect to the weights; −1 for pooling, which has none. */
static int weights_of(const fxi_node *n)
{
    return n->op != FX_OP_CONV ? -1 : n->attr.conv.kind == FX_CONV_WEIGHT ? 2 : 1;
}

/* Describes node n as a dense tensor in the order asked for. */
static void describe(fx_tensor *t, const fxi_node *n, bool channels_last)
{
    *t = (fx_tensor){.dtype = n->dtype, .ndim = n->ndim};
    memcpy(t->shape, n->shape, sizeof t->shape);
    if (channels_last)
        channels_last_strides(n->ndim, n->shape, t->stride);
    else
        fxi_dense_strides(n->ndim, n->shape, t->stride);
}

static void set_channels_last(const fxi_builder *b, fx_step *s, const fxi_node *n)
{
    fxi_step_set_attr(s, &n->attr);
    fxi_set_precision(b, s);
    *(n->op == FX_OP_CONV ? &s->as.conv.channels_last : &s->as.pool.channels_last) = true;
}

/* Is the convolution n a matrix product (one tap without padding), which is as fast in both orders?
 * False for 16-bit floats: a library that has instructions for them gains more from channels last
 * than the copies cost. */
static bool is_product(const fxi_node *n)
{
    const fx_conv_attr *a = &n->attr.conv;
    const int64_t *w = a->kind == FX_CONV_WEIGHT ? n->shape : n->in[1]->shape;
    bool product = n->dtype == FX_DTYPE_F32 || n->dtype == FX_DTYPE_F64;
    for (int d = 0; d < a->spatial; d++)
        product = product && w[d] == 1 && a->before[d] == 0 && a->after[d] == 0;
    return product;
}

/* Does the step of node id run channels last? The backend decides for a convolution, from a step
 * that describes it. Pooling follows its last input, which is x if the step reads x, and a
 * convolution that is a matrix product follows any input: a copy costs more than one such step
 * gains. */
static bool wanted(const fxi_builder *b, int32_t id)
{
    const fxi_node *n = b->g->nodes[id];
    if ((n->op != FX_OP_CONV && n->op != FX_OP_POOL) || !b->how->channels_last)
        return false;
    const bool leads = n->op == FX_OP_CONV && !is_product(n);
    bool follows = false;
    fx_tensor in[2];
    for (int i = 0; i < n->nin; i++) {
        /* Operands are described in the order that they would have: copies are made only if the
         * backend agrees. */
        const fxi_place *at = &b->places[fxi_graph_input(b->g, id, i)];
        const bool channels_last = i != weights_of(n) && is_channels_last(b, n->in[i], at);
        follows = channels_last || (follows && n->op == FX_OP_CONV);
        describe(&in[i], n->in[i], i != weights_of(n));
    }
    fx_step s = {.op = n->op, .cls = (uint8_t)fxi_ops[n->op].cls, .nin = n->nin, .in = in};
    set_channels_last(b, &s, n);
    /* The gradient with respect to the weights has the layout of the weights. */
    describe(&s.out, n, weights_of(n) != 2);
    return (leads || follows) && b->how->channels_last(b->p->device, &s);
}

bool fxi_runs_channels_last(const fxi_planner *how, const fxi_graph *g)
{
    for (int32_t i = 0; i < g->n && how->channels_last; i++) {
        const fxi_node *n = g->nodes[i];
        if (n->data || n->op != FX_OP_CONV || is_product(n))
            continue;
        fx_tensor in[2];
        for (int k = 0; k < 2; k++)
            describe(&in[k], n->in[k], k != weights_of(n));
        fx_step s = {.op = n->op, .cls = (uint8_t)fxi_ops[n->op].cls, .nin = 2, .in = in};
        const fxi_builder b = {.g = g};
        set_channels_last(&b, &s, n);
        describe(&s.out, n, weights_of(n) != 2);
        return how->channels_last(g->device, &s);
    }
    return false;
}

bool fxi_lower_channels_last(fxi_builder *b, int32_t id, bool *out_done)
{
    const fxi_node *n = b->g->nodes[id];
    fxi_place in[2];
    *out_done = wanted(b, id);
    if (!*out_done)
        return true;
    for (int i = 0; i < n->nin; i++) {
        const int32_t k = fxi_graph_input(b->g, id, i);
        if (!(i == weights_of(n) ? fxi_dense_place(b, k, &in[i])
                                 : channels_last_place(b, k, &in[i])))
            return false;
    }
    fx_step *s = fxi_add_step(b, n->op, n->nin, NULL);
    if (!s || !fxi_set_output(b, s, n, &b->places[id]))
        return false;
    for (int i = 0; i < n->nin; i++)
        fxi_set_input(s, i, n->in[i], &in[i]);
    set_channels_last(b, s, n);
    if (weights_of(n) != 2) {
        describe(&s->out, n, true);
        fxi_permute_place(n, &b->places[id]);
        b->p->values[s->out_value].channels_last = true;
    }
    return true;
}
