/* collective.c: operations over the arrays of all members of a communicator.
 *
 * All members must run their collective operations in the same order. A graph alone gives no order
 * between two of them, and does not run an operation whose result is not read yet. So while the
 * previous collective operation is pending, the next one takes it as an additional input, without
 * reading it. The planner then keeps the order, as for any value and its consumer.
 *
 * The previous operation is the first input, because the walk over the graph computes the first
 * input first: an operation then starts before the operand of the next one is computed, and runs
 * beside that (plan/overlap.c).
 */
#include "operands.h"

static const char *name_of(const fx_collective *w)
{
    return w->kind == FX_COLLECTIVE_BROADCAST ? "broadcast"
           : w->kind == FX_COLLECTIVE_REDUCE  ? "reduce"
                                              : "all_reduce";
}

/* Fills in the inputs and returns their number. The previous collective operation is the first
 * input, but only if it is pending on the same device: a plan computes pending values of one device
 * only. Before an operation on another device, fxi_run_previous_collective runs it. The last input
 * is x. */
static int inputs(const fxi_context *c, const fx_array *x, const fx_device *device, fxi_node *in[2])
{
    const fxi_node *previous = c->collective;
    int n = 0;
    if (previous && !previous->data && fxi_home_of(previous->device) == fxi_home_of(device))
        in[n++] = c->collective;
    in[n++] = x->node;
    return n;
}

static fx_status check(const fx_collective *w, const fx_array *x)
{
    const char *op = name_of(w);
    const fx_communicator *c = w->communicator;
    if (!c || c->fxi_size < sizeof *c || !c->run || c->rank < 0 || c->rank >= c->size)
        return fx_fail(
            FX_STATUS_ARGUMENT, op,
            "a communicator needs its fxi_size, the function `run`, and a rank below its size");
    if (w->kind != FX_COLLECTIVE_ALL_REDUCE && (w->root < 0 || w->root >= c->size))
        return fx_fail(FX_STATUS_ARGUMENT, op, "the root is %lld, expected a rank below %d",
                       (long long)w->root, (int)c->size);
    const fx_status status = fxi_check_operand(op, x);
    if (status != FX_OK || w->kind == FX_COLLECTIVE_BROADCAST)
        return status;
    const fx_dtype type = fx_eltype(x);
    return type == FX_DTYPE_BOOL || (w->fold == FX_REDUCE_MEAN && !fxi_is_float((int)type))
               ? fx_fail(FX_STATUS_DTYPE, op, "the array is %s, expected %s", fx_dtype_name(type),
                         w->fold == FX_REDUCE_MEAN ? "floats" : "numbers")
               : FX_OK;
}

/* An operation on `device`; x is on it, or on none. */
static fx_array *record(const fx_collective *what, fx_array *x, fx_device *device)
{
    fxi_context *c = fxi_here();
    fxi_node *in[2], *n = x->node;
    const fx_attr attr = {.collective = *what};
    const int nin = inputs(c, x, device, in);
    fxi_node *made = fxi_node_new(c, FX_OP_COLLECTIVE, (fx_dtype)n->dtype, n->ndim, n->shape,
                                  device, &attr, nin, in);
    if (made) {
        /* The plan that computes it keeps the value: a collective operation cannot be repeated. */
        made->wanted = true;
        fxi_node_retain(made);
        if (c->collective)
            fxi_node_release(c->collective);
        c->collective = made;
    }
    return fxi_array_take(made);
}

/* Does the device run this operation on its own memory? */
static bool on_device(fx_collective w, fx_reduce fold, const fxi_node *n)
{
    fx_step step = {.op = FX_OP_COLLECTIVE, .cls = FX_CLASS_COLLECTIVE};
    step.out.dtype = n->dtype;
    step.out.ndim = n->ndim;
    for (int i = 0; i < n->ndim; i++)
        step.out.shape[i] = n->shape[i];
    w.fold = fold;
    step.as.collective.what = w;
    return n->device->backend->collective(n->device, &step);
}

/* Does the device compute sums but not this mean? An example is MPI on arrays in the memory of a
 * GPU. */
static bool only_adds(const fx_collective *w, const fxi_node *n)
{
    return w->kind == FX_COLLECTIVE_ALL_REDUCE && w->fold == FX_REDUCE_MEAN && n->device &&
           n->device->backend->collective && !on_device(*w, FX_REDUCE_MEAN, n) &&
           on_device(*w, FX_REDUCE_SUM, n);
}

fx_array *fxi_collective(const fx_collective *what, fx_array *x)
{
    const fx_status status = check(what, x);
    if (status != FX_OK)
        return fx_error_array(status);
    if (!only_adds(what, x->node))
        return record(what, x, x->node->device);
    fx_collective sum = *what;
    sum.fold = FX_REDUCE_SUM;
    return fx_div(record(&sum, x, x->node->device), what->communicator->size);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* An operation on the gradient. A gradient of literals alone is on no device. Its operation then
 * runs on the device of the operation in `a`, because it must run after that one. */
static fx_array *backward(const fxi_rule_args *a, const fx_collective *w)
{
    const fx_status status = check(w, G);
    if (status != FX_OK)
        return fx_error_array(status);
    return record(w, G, G->node->device ? G->node->device : a->node->device);
}

/* The gradient of the sum of all members' losses. */
RULE(COLLECTIVE)
{
    fx_collective w = a->node->attr.collective;
    fx_array **gx = &a->gx[a->node->nin - 1];
    if (w.kind == FX_COLLECTIVE_BROADCAST) {
        w.kind = FX_COLLECTIVE_REDUCE;
        w.fold = FX_REDUCE_SUM;
        *gx = backward(a, &w);
    } else if (w.fold != FX_REDUCE_SUM && w.fold != FX_REDUCE_MEAN) {
        *gx = fx_error_array(
            fx_fail(FX_STATUS_UNSUPPORTED, name_of(&w), "only sums and means have a gradient"));
    } else if (w.kind == FX_COLLECTIVE_ALL_REDUCE) {
        *gx = backward(a, &w);
    } else {
        const int32_t size = w.fold == FX_REDUCE_MEAN ? w.communicator->size : 1;
        w.kind = FX_COLLECTIVE_BROADCAST;
        *gx = fx_div(backward(a, &w), size);
    }
}
