/* custom.c: operations that a program defines with C functions. */
#include "error.h"
#include "own_gradient.h"
#include "memory.h"
#include "operands.h"
#include "primitives.h"

#include <string.h>

fx_array *fx_custom(const fx_custom_op *op, int n, fx_array *const *in, fx_dtype out_dtype,
                    fx_dims out_sizes)
{
    if (op && op->fxi_size < sizeof *op) {
        fx_fail(FX_STATUS_ARGUMENT, "custom",
                "the fx_custom_op must begin with .fxi_size = sizeof(fx_custom_op)");
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    const char *name = op && op->name ? op->name : "custom";
    if (!op || !op->forward) {
        fx_fail(FX_STATUS_ARGUMENT, name, "the %s is NULL", op ? "forward function" : "operation");
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    if (n < 0 || out_sizes.n < 0 || out_sizes.n > FX_MAX_DIMS) {
        fx_fail(FX_STATUS_ARGUMENT, name,
                "expected at least 0 inputs and 0 to %d sizes, got %d and %lld", FX_MAX_DIMS, n,
                (long long)out_sizes.n);
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    fx_status s = fxi_check_list(name, "inputs", n, in);
    if (s == FX_OK)
        s = fxi_check_sizes(name, out_dtype, (int)out_sizes.n, out_sizes.v);
    if (s != FX_OK)
        return fx_error_array(s);
    fxi_node **nodes = fxi_malloc(((size_t)n + 1) * sizeof *nodes);
    s = nodes ? FX_OK : fx_fail(FX_STATUS_MEMORY, name, "out of memory");
    fx_device *device = NULL;
    for (int i = 0; i < n && s == FX_OK; i++) {
        s = fxi_check_operand(name, in[i]);
        if (s == FX_OK)
            s = fxi_add_device(name, in[i]->node, &device);
        nodes[i] = s == FX_OK ? in[i]->node : NULL;
    }
    fx_attr a = {.words = {0}};
    a.custom = op;
    fx_array *y =
        s == FX_OK
            ? fxi_array_take(fxi_node_new(fxi_here(), FX_OP_CUSTOM, out_dtype, (int)out_sizes.n,
                                          out_sizes.v, device, &a, n, nodes))
            : fx_error_array(s);
    fxi_free(nodes);
    return y;
}

fx_array *fxi_own_gradient(const fxi_own_gradient_op *op, const fxi_own_call *call, int n,
                           fx_array *const *in)
{
    fxi_node **nodes = fxi_malloc((size_t)n * sizeof *nodes);
    fx_status s = nodes ? FX_OK : fx_fail(FX_STATUS_MEMORY, op->op.name, "out of memory");
    for (int i = 0; i < n && s == FX_OK; i++) {
        s = fx_array_status(in[i]);
        nodes[i] = in[i]->node;
    }
    fx_attr a = {.words = {0}};
    a.own.custom = &op->op;
    if (call) {
        a.own.number = call->number;
        memcpy(a.own.stream, call->stream, sizeof a.own.stream);
    }
    const fxi_node *y = in[n - 1]->node;
    fx_array *result =
        s == FX_OK
            ? fxi_array_take(fxi_node_new(fxi_begin(), FX_OP_OWN_GRADIENT, (fx_dtype)y->dtype,
                                          y->ndim, y->shape, y->device, &a, n, nodes))
            : fx_error_array(s);
    fxi_free(nodes);
    return result;
}

static void pass_through(const fx_custom_op *op, const fxi_own_call *call, const bool *need, int n,
                         fx_array *const *in, fx_array *gy, fx_array **gx)
{
    (void)op, (void)call, (void)need, (void)in;
    gx[n - 1] = gy;
}

fx_array *fxi_after(int n, fx_array *const *first, fx_array *x)
{
    static const fxi_own_gradient_op after = {
        .op = {.fxi_size = sizeof(fx_custom_op), .name = "after"}, .gradient = pass_through};
    fx_array **in = fxi_malloc(((size_t)n + 1) * sizeof *in);
    if (!in)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, "after", "out of memory"));
    for (int i = 0; i < n; i++)
        in[i] = first[i];
    in[n] = x;
    fx_array *y = fxi_own_gradient(&after, NULL, n + 1, in);
    fxi_free(in);
    return y;
}

void fxi_on_demand(fx_array *x)
{
    if (!fx_is_error(x) && !x->node->data)
        x->node->on_demand = true;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Returns gx, the gradient that a program's function stored for input i, or an error array if it
 * does not fit. The gradient of a 0-d input may have any size: the sweep sums it. */
static fx_array *checked(const fx_custom_op *op, const fxi_node *input, int i, fx_array *gx)
{
    const char *name = op->name ? op->name : "custom";
    char got[FXI_SHAPE_TEXT], want[FXI_SHAPE_TEXT];
    if (fx_is_error(gx))
        return gx;
    if (!fx_is_array(gx))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, name,
                                      "its gradient function stored an object that is not an array "
                                      "in gx[%d]",
                                      i));
    if (input->ndim == 0 || fxi_same_shape(gx->node, input))
        return gx;
    return fx_error_array(fx_fail(FX_STATUS_SHAPE, name,
                                  "its gradient function stored an array of size %s in gx[%d], but "
                                  "the size of input %d is %s",
                                  fxi_shape_text(gx->node->ndim, gx->node->shape, got), i, i,
                                  fxi_shape_text(input->ndim, input->shape, want)));
}

RULE(CUSTOM)
{
    const fx_custom_op *op = a->node->attr.custom;
    fx_array *out = Z;
    bool ok = op->gradient && !fx_is_error(out);
    for (int i = 0; i < a->node->nin && ok; i++)
        ok = !fx_is_error(fxi_rule_in(a, i));
    if (!ok)
        return;
    op->gradient(op, a->node->nin, a->in, out, a->gy, a->gx);
    for (int i = 0; i < a->node->nin; i++)
        if (a->need[i] && a->gx[i])
            a->gx[i] = checked(op, a->node->in[i], i, a->gx[i]);
}

RULE(OWN_GRADIENT)
{
    const fx_attr *attr = &a->node->attr;
    const fx_custom_op *op = attr->own.custom;
    fxi_own_call call = {.number = attr->own.number};
    memcpy(call.stream, attr->own.stream, sizeof call.stream);
    for (int i = 0; i < a->node->nin; i++)
        if (fx_is_error(fxi_rule_in(a, i)))
            return;
    ((const fxi_own_gradient_op *)op)
        ->gradient(op, &call, a->need, a->node->nin, a->in, a->gy, a->gx);
}
