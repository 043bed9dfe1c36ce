/* conv.c: convolutions and transposed convolutions: shape rules, nodes and gradients. */
#include "option_struct.h"
#include "operands.h"
#include "windows.h"

#include <string.h>

static fx_status conv_attr(const char *op, const fx_convolve_args *a, fx_conv_attr *attr)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_status s = fxi_check_operand(op, a->x);
    if (s == FX_OK)
        s = fxi_check_operand(op, a->w);
    if (s != FX_OK)
        return s;
    const int spatial = fx_ndims(a->x) - 2;
    if (spatial < 1 || spatial > 3 || fx_ndims(a->w) != fx_ndims(a->x))
        return fx_fail(FX_STATUS_SHAPE, op,
                       "expects x with 1 to 3 spatial axes, channels and batch, and w with as many "
                       "axes as x: x is %s, w is %s",
                       fxi_shape_text(a->x->node->ndim, a->x->node->shape, t),
                       fxi_shape_text(a->w->node->ndim, a->w->node->shape, u));
    *attr = (fx_conv_attr){.flipped = a->flipped, .spatial = spatial};
    if (a->groups < 1 || a->groups > INT32_MAX)
        return fx_fail(FX_STATUS_ARGUMENT, op, "groups is %lld, expected 1 to %d",
                       (long long)a->groups, INT32_MAX);
    attr->groups = (int32_t)a->groups;
    s = fxi_spread(op, "stride", &a->stride, spatial, 1, attr->stride);
    if (s == FX_OK)
        s = fxi_spread(op, "dilation", &a->dilation, spatial, 1, attr->dilation);
    if (s == FX_OK)
        s = fxi_spread_pad(op, &a->pad, spatial, attr->before, attr->after);
    return s;
}

fx_array *fxi_conv_node(const fx_conv_attr *attr, fx_array *a, fx_array *b, int ndim,
                        const int64_t *shape)
{
    fx_device *device;
    fx_status s = fxi_check_operand("conv", a);
    if (s == FX_OK)
        s = fxi_check_operand("conv", b);
    if (s == FX_OK)
        s = fxi_same_device("conv", a, b, &device);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_dtype t = fx_dtype_promote(fx_eltype(a), fx_eltype(b));
    if (!fxi_is_float((int)t))
        t = FX_DTYPE_F32;
    a = fx_cast(a, t);
    b = fx_cast(b, t);
    if (fx_is_error(a) || fx_is_error(b))
        return fx_error_array(FX_STATUS_MEMORY);
    fx_attr at = {.words = {0}};
    at.conv = *attr;
    fxi_node *in[] = {a->node, b->node};
    return fxi_array_take(fxi_node_new(fxi_here(), FX_OP_CONV, t, ndim, shape, device, &at, 2, in));
}

static fx_status conv_channels(const char *op, const fx_convolve_args *a, int64_t want)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    const int c = fx_ndims(a->x) - 2;
    if (fx_size(a->x, c) == want && fx_size(a->w, c + 1) % a->groups == 0 &&
        fx_size(a->x, c) % a->groups == 0)
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, op, "channels do not match: x is %s, w is %s, %lld groups",
                   fxi_shape_text(a->x->node->ndim, a->x->node->shape, t),
                   fxi_shape_text(a->w->node->ndim, a->w->node->shape, u), (long long)a->groups);
}

static fx_array *convolve(const fx_convolve_args *a)
{
    fx_conv_attr attr;
    fx_status s = conv_attr("conv", a, &attr);
    const int c = s == FX_OK ? attr.spatial : 0;
    if (s == FX_OK)
        s = conv_channels("conv", a, fxi_mul_sizes(fx_size(a->w, c), attr.groups));
    if (s != FX_OK)
        return fx_error_array(s);
    int64_t shape[FX_MAX_DIMS];
    for (int i = 0; i < c; i++) {
        shape[i] = fxi_window_count(fx_size(a->x, i), fx_size(a->w, i), attr.stride[i],
                                    attr.before[i], attr.after[i], attr.dilation[i]);
        if (shape[i] < 0)
            return fx_error_array(fxi_window_too_large("conv", a->x, a->w->node->shape, c));
    }
    shape[c] = fx_size(a->w, c + 1);
    shape[c + 1] = fx_size(a->x, c + 1);
    attr.kind = FX_CONV_FORWARD;
    return fxi_conv_node(&attr, a->x, a->w, c + 2, shape);
}

fx_array *fxi_convolve(const fx_convolve_args *given)
{
    FXI_TAKE_OPTIONS(fx_convolve_args, FXI_CONVOLVE_ARGS, a, "conv", given);
    return a_ok ? convolve(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}

static fx_array *convolve_transposed(const fx_convolve_args *a)
{
    char t[FXI_SHAPE_TEXT];
    fx_conv_attr attr;
    int32_t extra[3] = {0};
    fx_status s = conv_attr("conv_transpose", a, &attr);
    const int c = s == FX_OK ? attr.spatial : 0;
    if (s == FX_OK)
        s = conv_channels("conv_transpose", a, fx_size(a->w, c + 1));
    if (s == FX_OK)
        s = fxi_spread("conv_transpose", "outpad", &a->outpad, c, 0, extra);
    if (s != FX_OK)
        return fx_error_array(s);
    /* The smallest sizes that a convolution with these options reduces to the sizes of x. With a
     * stride it also reduces somewhat larger ones to them, and outpad chooses among these. */
    int64_t shape[FX_MAX_DIMS];
    for (int i = 0; i < c; i++) {
        shape[i] = fxi_mul_sizes(fx_size(a->x, i) - 1, attr.stride[i]) + 1 +
                   fxi_mul_sizes(fx_size(a->w, i) - 1, attr.dilation[i]) - attr.before[i] -
                   attr.after[i] + extra[i];
        if (shape[i] < 0 || fx_size(a->x, i) == 0) {
            fx_fail(FX_STATUS_SHAPE, "conv_transpose",
                    fx_size(a->x, i) == 0 ? "a spatial axis of x is empty: x is %s"
                                          : "the result would have a negative size: x is %s",
                    fxi_shape_text(a->x->node->ndim, a->x->node->shape, t));
            return fx_error_array(FX_STATUS_SHAPE);
        }
    }
    shape[c] = fxi_mul_sizes(fx_size(a->w, c), attr.groups);
    shape[c + 1] = fx_size(a->x, c + 1);
    /* The transpose of a convolution is the gradient of its data, in which x is gy. */
    attr.kind = FX_CONV_DATA;
    return fxi_conv_node(&attr, a->x, a->w, c + 2, shape);
}

fx_array *fxi_convolve_transposed(const fx_convolve_args *given)
{
    FXI_TAKE_OPTIONS(fx_convolve_args, FXI_CONVOLVE_ARGS, a, "conv_transpose", given);
    return a_ok ? convolve_transposed(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The gradients of each of the three kinds of convolution are convolutions of the two other kinds.
 * p and q are in the order of the node's inputs. */
static fx_array *conv_kind(const fxi_rule_args *a, fx_conv_kind kind, fx_array *p, fx_array *q,
                           const fxi_node *shape)
{
    fx_conv_attr attr = a->node->attr.conv;
    attr.kind = (int32_t)kind;
    return fxi_conv_node(&attr, p, q, shape->ndim, shape->shape);
}

RULE(CONV)
{
    static const struct {
        int8_t kind, p, q; /* p, q: 0 and 1 are the inputs, 2 is the upstream gradient */
    } rules[3][2] = {
        [FX_CONV_FORWARD] = {{FX_CONV_DATA, 2, 1}, {FX_CONV_WEIGHT, 0, 2}},
        [FX_CONV_DATA] = {{FX_CONV_FORWARD, 2, 1}, {FX_CONV_WEIGHT, 2, 0}},
        [FX_CONV_WEIGHT] = {{FX_CONV_DATA, 1, 2}, {FX_CONV_FORWARD, 0, 2}},
    };
    fx_array *const from[] = {X, Y, G};
    for (int i = 0; i < 2; i++)
        if (a->need[i])
            a->gx[i] = conv_kind(a, (fx_conv_kind)rules[a->node->attr.conv.kind][i].kind,
                                 from[rules[a->node->attr.conv.kind][i].p],
                                 from[rules[a->node->attr.conv.kind][i].q], a->node->in[i]);
}
