/* reduce.c: the primitives that reduce or accumulate along axes. The public reductions are in
 * reductions.c.
 */
#include "operands.h"

/* Options of a reduction besides its kind. */
typedef struct fold_options {
    bool may_be_empty; /* max and min of no elements are the neutral element, not an error */
    bool wide;         /* the sum of Float32 is Float64 */
} fold_options;

static fx_array *fold(fx_reduce kind, fx_array *x, unsigned mask, const char *op, fold_options with)
{
    char t[FXI_SHAPE_TEXT];
    const fx_status s = fxi_check_operand(op, x);
    if (s != FX_OK)
        return fx_error_array(s);
    const fxi_node *n = x->node;
    if (mask >> n->ndim) {
        fx_fail(FX_STATUS_ARGUMENT, op, "an axis is not one of the %d axes of %s", n->ndim,
                fxi_shape_text(n->ndim, n->shape, t));
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    int64_t shape[FX_MAX_DIMS], reduced = 1;
    for (int i = 0; i < n->ndim; i++) {
        shape[i] = FXI_AXIS_IN(mask, i) ? 1 : n->shape[i];
        if (FXI_AXIS_IN(mask, i))
            reduced *= n->shape[i];
    }
    const bool index = kind == FX_REDUCE_ARGMAX || kind == FX_REDUCE_ARGMIN;
    if ((kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN || index) && reduced == 0 &&
        fxi_length(n->ndim, shape) > 0 && !with.may_be_empty) {
        fx_fail(FX_STATUS_SHAPE, op, "the %s of an empty array is undefined, got %s", op,
                fxi_shape_text(n->ndim, n->shape, t));
        return fx_error_array(FX_STATUS_SHAPE);
    }
    const fx_dtype type = index ? FX_DTYPE_I64 : with.wide ? FX_DTYPE_F64 : (fx_dtype)n->dtype;
    if (mask == 0 && kind <= FX_REDUCE_PROD)
        return with.wide ? fx_cast(x, type) : x;
    const fx_attr a = {.reduce = {kind, mask}};
    return fxi_node_over(FX_OP_REDUCE, x, type, n->ndim, shape, &a);
}

fx_array *fxi_reduce(fx_reduce kind, fx_array *x, unsigned mask, const char *op)
{
    return fold(kind, x, mask, op, (fold_options){0});
}

fx_array *fxi_reduce_logical(fx_reduce kind, fx_array *x, unsigned mask, const char *op)
{
    return fold(kind, x, mask, op, (fold_options){.may_be_empty = true});
}

fx_array *fxi_sum_wide(fx_array *x, unsigned mask, const char *op)
{
    return fold(FX_REDUCE_SUM, x, mask, op, (fold_options){.wide = true});
}

static fx_array *cumulative(const char *op, fx_array *x, int axis, bool reverse)
{
    fx_status s = fxi_check_operand(op, x);
    if (s == FX_OK)
        s = fxi_check_axis(op, x, axis);
    if (s != FX_OK)
        return fx_error_array(s);
    if (!fxi_is_float(x->node->dtype))
        x = fx_cast(x, FX_DTYPE_I64);
    if (fx_is_error(x))
        return x;
    const fx_attr a = {.scan = {axis, reverse}};
    return fxi_node_over(FX_OP_CUMSUM, x, (fx_dtype)x->node->dtype, x->node->ndim, x->node->shape,
                         &a);
}

fx_array *fx_cumsum(fx_array *x, int axis)
{
    return cumulative("cumsum", x, axis, false);
}
fx_array *fx_cumsum_reverse(fx_array *x, int axis)
{
    return cumulative("cumsum_reverse", x, axis, true);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static fx_array *expand_like(fx_array *y, const fx_array *x)
{
    return fx_is_error(x) ? y : fxi_expand(y, x->node->ndim, x->node->shape);
}

/* The product of the other factors. If exactly one factor is zero, only that one has a gradient. */
static fx_array *product_gradient(const fxi_rule_args *a, unsigned mask)
{
    fx_array *zero = fx_eq(X, 0), *ones = fx_where(zero, 1, X);
    fx_array *zeros =
        fxi_reduce(FX_REDUCE_SUM, fx_cast(zero, (fx_dtype)a->node->in[0]->dtype), mask, "sum");
    fx_array *others = fxi_reduce(FX_REDUCE_PROD, ones, mask, "prod");
    fx_array *d = fx_where(zero, fx_where(fx_eq(zeros, 1), others, 0),
                           fx_where(fx_eq(zeros, 0), fx_div(others, ones), 0));
    return fx_mul(expand_like(G, X), d);
}

/* In Float16 a count above 65,519 is infinite. */
fx_array *fxi_equal_extremes(fx_array *x, fx_array *extremes)
{
    const fx_dtype type = fx_eltype(x);
    return fx_cast(fx_eq(x, extremes),
                   type == FX_DTYPE_F16 || type == FX_DTYPE_BF16 ? FX_DTYPE_F32 : type);
}

RULE(REDUCE)
{
    const fx_reduce kind = (fx_reduce)a->node->attr.reduce.fold;
    const unsigned mask = (unsigned)a->node->attr.reduce.mask;
    const fx_dtype type = (fx_dtype)a->node->in[0]->dtype;
    if (kind == FX_REDUCE_SUM) { /* a wide sum has a wide gradient */
        const fxi_node *x = a->node->in[0];
        a->gx[0] = fxi_expand(G->node->dtype == x->dtype ? G : fx_cast(G, type), x->ndim, x->shape);
    } else if (kind == FX_REDUCE_PROD) {
        a->gx[0] = product_gradient(a, mask);
    } else if (kind == FX_REDUCE_SQDEV) { /* 2·(x − mean): the part through the mean sums to 0 */
        a->gx[0] = fx_mul(expand_like(fx_mul(2, G), X),
                          fx_sub(X, expand_like(fxi_mean_over(X, mask, "var"), X)));
    } else { /* equal extremes share the gradient evenly */
        fx_array *hit = fxi_equal_extremes(X, expand_like(Z, X));
        fx_array *each = fx_div(G, fxi_reduce(FX_REDUCE_SUM, hit, mask, "sum"));
        a->gx[0] = fx_mul(hit, expand_like(each, X));
    }
}

RULE(CUMSUM)
{
    const int axis = (int)a->node->attr.scan.axis;
    a->gx[0] = a->node->attr.scan.reverse ? fx_cumsum(G, axis) : fx_cumsum_reverse(G, axis);
}
