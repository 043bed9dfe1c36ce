/* pooling.c: maximum and mean pooling over windows. */
#include "composites.h"
#include "operands.h"
#include "option_struct.h"
#include "windows.h"

#include <math.h>
#include <string.h>

fx_array *fxi_pool_node(const fx_pool_attr *attr, int n, fx_array *const *in, int ndim,
                        const int64_t *shape)
{
    fxi_node *nodes[2];
    fx_device *device = NULL;
    for (int i = 0; i < n; i++) {
        const fx_status s = fxi_check_operand("pool", in[i]);
        if (s != FX_OK)
            return fx_error_array(s);
        nodes[i] = in[i]->node;
        device = nodes[i]->device ? nodes[i]->device : device;
    }
    fx_attr a = {.words = {0}};
    a.pool = *attr;
    return fxi_array_take(fxi_node_new(fxi_here(), FX_OP_POOL, (fx_dtype)nodes[0]->dtype, ndim,
                                       shape, device, &a, n, nodes));
}

static fx_array *pool(const char *op, fx_pool_kind kind, const fx_pool_args *a)
{
    fx_pool_attr attr = {.kind = (int32_t)kind};
    fx_status s = fxi_check_operand(op, a->x);
    if (s != FX_OK)
        return fx_error_array(s);
    const int c = attr.spatial = fx_ndims(a->x) - 2;
    if (c < 1 || c > 3 || a->window.n < 1) {
        fx_fail(FX_STATUS_SHAPE, op,
                "takes 1 to 3 spatial axes, channels and batch, and a window; x has %d axes",
                c + 2);
        return fx_error_array(FX_STATUS_SHAPE);
    }
    s = fxi_spread(op, "window", &a->window, c, 1, attr.window);
    if (s == FX_OK)
        s = fxi_spread(op, "stride", a->stride.n ? &a->stride : &a->window, c, 1, attr.stride);
    if (s == FX_OK)
        s = fxi_spread(op, "dilation", &a->dilation, c, 1, attr.dilation);
    if (s == FX_OK)
        s = fxi_spread_pad(op, &a->pad, c, attr.before, attr.after);
    if (s != FX_OK)
        return fx_error_array(s);
    int64_t shape[FX_MAX_DIMS], window[3];
    for (int i = 0; i < c; i++)
        window[i] = attr.window[i];
    for (int i = 0; i < c; i++) {
        shape[i] = fxi_window_count(fx_size(a->x, i), attr.window[i], attr.stride[i],
                                    attr.before[i], attr.after[i], attr.dilation[i]);
        if (shape[i] < 0)
            return fx_error_array(fxi_window_too_large(op, a->x, window, c));
    }
    shape[c] = fx_size(a->x, c);
    shape[c + 1] = fx_size(a->x, c + 1);
    fx_array *x = a->x;
    if (kind == FX_POOL_MEAN && !fxi_is_float(x->node->dtype))
        x = fx_cast(x, FX_DTYPE_F32);
    return fxi_pool_node(&attr, 1, &x, c + 2, shape);
}

fx_array *fxi_pool_max(const fx_pool_args *given)
{
    FXI_TAKE_OPTIONS(fx_pool_args, FXI_POOL_ARGS, a, "maxpool", given);
    return a_ok ? pool("maxpool", FX_POOL_MAX, &a) : fx_error_array(FX_STATUS_ARGUMENT);
}
fx_array *fxi_pool_mean_primitive(const fx_pool_args *a)
{
    return pool("meanpool", FX_POOL_MEAN, a);
}

/* ---- the mean -------------------------------------------------------------------------------- */

static bool has_padding(const fx_dims *pad)
{
    for (int64_t i = 0; i < pad->n; i++)
        if (pad->v[i] != 0)
            return true;
    return false;
}

/* The mean without padding in the divisor: the mean over the whole window, divided by the part of
 * the window that is inside the array. That part is the mean pool of ones. */
static fx_array *pool_mean(const fx_pool_args *a)
{
    FXI_OPERATION("meanpool");
    if (!a->exclude_pad || !has_padding(&a->pad))
        return fxi_pool_mean_primitive(a);
    FXI_SCOPE;
    const fx_dtype given = fx_eltype(a->x);
    fx_pool_args wide = *a, ones = *a;
    wide.x = given == FX_DTYPE_F64 ? a->x : fx_cast(a->x, FX_DTYPE_F32);
    fx_array *mean = fxi_pool_mean_primitive(&wide);
    if (fx_is_error(mean))
        return fx_keep(mean);
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(a->x); i++)
        sizes[i] = i < fx_ndims(a->x) - 2 ? fx_size(a->x, i) : 1;
    ones.x = fxi_full(fx_eltype(wide.x), 1, fx_ndims(a->x), sizes);
    fx_array *y = fx_div(mean, fxi_pool_mean_primitive(&ones));
    return fx_keep(fxi_is_float((int)given) ? fx_cast(y, given) : y);
}

fx_array *fxi_pool_mean(const fx_pool_args *given)
{
    FXI_TAKE_OPTIONS(fx_pool_args, FXI_POOL_ARGS, a, "meanpool", given);
    return a_ok ? pool_mean(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}

/* ---- the p-norm ------------------------------------------------------------------------------ */

/* The sum over a window is its mean times its size. Sums of powers of 16-bit floats are taken in
 * Float32. The derivative of a root at 0 is infinite, so a sum of 0 is replaced by 1 before the
 * root, and its result by 0. */
static fx_array *pool_lpnorm(const fx_pool_args *a)
{
    FXI_OPERATION("lpnormpool");
    const fx_status s = fxi_operand_status("lpnormpool", a->x);
    if (s != FX_OK)
        return fx_error_array(s);
    if (!(a->p > 0 && a->p < (double)INFINITY)) {
        fx_fail(FX_STATUS_ARGUMENT, "lpnormpool", "p must be positive and finite, got %g", a->p);
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    FXI_SCOPE;
    const fx_dtype given = fx_eltype(a->x);
    fx_pool_args of = *a;
    of.exclude_pad = false;
    double elements = 1;
    for (int i = 0; i < fx_ndims(a->x) - 2 && a->window.n > 0; i++)
        elements *= (double)a->window.v[a->window.n == 1 ? 0 : i];
    fx_array *x = given == FX_DTYPE_F64 ? a->x : fx_cast(a->x, FX_DTYPE_F32);
    of.x = a->p == 2 ? fx_square(x) : fx_pow(fx_abs(x), a->p);
    fx_array *sum = fx_mul(elements, pool("lpnormpool", FX_POOL_MEAN, &of)), *zero = fx_eq(sum, 0);
    fx_array *safe = fx_where(zero, 1, sum);
    fx_array *y = fx_where(zero, 0, a->p == 2 ? fx_sqrt(safe) : fx_pow(safe, 1 / a->p));
    return fx_keep(fxi_is_float((int)given) ? fx_cast(y, given) : y);
}

fx_array *fxi_pool_lpnorm(const fx_pool_args *given)
{
    FXI_TAKE_OPTIONS(fx_pool_args, FXI_POOL_ARGS, a, "lpnormpool", given);
    return a_ok ? pool_lpnorm(&a) : fx_error_array(FX_STATUS_ARGUMENT);
}

/* ---- gradients ------------------------------------------------------------------------------- */

RULE(POOL)
{
    static const fx_pool_kind adjoint[] = {[FX_POOL_MAX] = FX_POOL_MAX_GRAD,
                                           [FX_POOL_MEAN] = FX_POOL_MEAN_GRAD,
                                           [FX_POOL_MAX_GRAD] = FX_POOL_MAX_PICK,
                                           [FX_POOL_MEAN_GRAD] = FX_POOL_MEAN,
                                           [FX_POOL_MAX_PICK] = FX_POOL_MAX_GRAD};
    const fx_pool_kind kind = (fx_pool_kind)a->node->attr.pool.kind;
    fx_pool_attr attr = a->node->attr.pool;
    attr.kind = (int32_t)adjoint[kind];
    const bool selects = kind != FX_POOL_MEAN && kind != FX_POOL_MEAN_GRAD;
    fx_array *const in[] = {G, !selects ? NULL : kind == FX_POOL_MAX ? X : Y};
    a->gx[0] =
        fxi_pool_node(&attr, selects ? 2 : 1, in, a->node->in[0]->ndim, a->node->in[0]->shape);
}
