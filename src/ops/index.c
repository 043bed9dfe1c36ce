/* index.c: gather, scatter, indexing by element, and one-hot arrays.
 *
 * The primitives gather and scatter copy whole slices along one axis, or index by element
 * (GatherElements, take_along_axis): an index for each element of the result or of the source. The
 * numbers of axes decide between the two: slices of an array of n axes at indices of k axes have n
 * − 1 + k axes. So source, indices and result have equally many axes only if elements are indexed,
 * or if all three are vectors, for which both forms give the same result.
 */
#include "composites.h"
#include "memory.h"
#include "object_types.h"
#include "operands.h"
#include "own_gradient.h"
#include "primitives.h"

#include <string.h>

/* ---- primitives ------------------------------------------------------------------------------ */

static fx_status check_index(const char *op, fx_array *x, fx_array *idx, int axis)
{
    fx_status s = fxi_check_operand(op, x);
    if (s == FX_OK)
        s = fxi_check_operand(op, idx);
    if (s == FX_OK)
        s = fxi_check_axis(op, x, axis);
    if (s == FX_OK && (fxi_is_float(idx->node->dtype) || idx->node->dtype == FX_DTYPE_BOOL))
        s = fx_fail(FX_STATUS_DTYPE, op, "indices must be integers, got %s",
                    fx_dtype_name(fx_eltype(idx)));
    return s;
}

static fx_array *index_node(fx_op op, fx_array *x, fx_array *idx, int ndim, const int64_t *shape,
                            const fx_attr *a)
{
    fx_device *device;
    if (idx->node->dtype == FX_DTYPE_U8)
        idx = fx_cast(idx, FX_DTYPE_I32);
    if (fx_is_error(idx))
        return idx;
    const fx_status s = fxi_same_device(fxi_ops[op].name, x, idx, &device);
    if (s != FX_OK)
        return fx_error_array(s);
    fxi_node *in[] = {x->node, idx->node};
    return fxi_array_take(
        fxi_node_new(fxi_here(), op, (fx_dtype)x->node->dtype, ndim, shape, device, a, 2, in));
}

fx_array *fx_gather(fx_array *x, fx_array *idx, int axis)
{
    const fx_status s = check_index("gather", x, idx, axis);
    if (s != FX_OK)
        return fx_error_array(s);
    const fxi_node *n = x->node, *k = idx->node;
    if (n->ndim - 1 + k->ndim > FX_MAX_DIMS) {
        fx_fail(FX_STATUS_ARGUMENT, "gather", "the result would have %d axes; the maximum is %d",
                n->ndim - 1 + k->ndim, FX_MAX_DIMS);
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    int64_t shape[FX_MAX_DIMS];
    int d = 0;
    for (int i = 0; i < axis; i++)
        shape[d++] = n->shape[i];
    for (int i = 0; i < k->ndim; i++)
        shape[d++] = k->shape[i];
    for (int i = axis + 1; i < n->ndim; i++)
        shape[d++] = n->shape[i];
    const fx_attr a = {.axis = axis};
    return index_node(FX_OP_GATHER, x, idx, d, shape, &a);
}

fx_array *fxi_scatter_primitive(fx_reduce kind, fx_array *src, fx_array *idx, int axis, int64_t n)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_status s = fxi_check_operand("scatter", src);
    if (s == FX_OK)
        s = fxi_check_operand("scatter", idx);
    if (s == FX_OK && (fxi_is_float(idx->node->dtype) || idx->node->dtype == FX_DTYPE_BOOL))
        s = fx_fail(FX_STATUS_DTYPE, "scatter", "indices must be integers, got %s",
                    fx_dtype_name(fx_eltype(idx)));
    if (s != FX_OK)
        return fx_error_array(s);
    const fxi_node *x = src->node, *k = idx->node;
    const int rank = x->ndim - k->ndim + 1; /* ndims of the result */
    if (n < 0)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "scatter", "n is %lld, expected at least 0", (long long)n));
    if (rank > FX_MAX_DIMS)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "scatter",
                                      "the result would have %d axes; the maximum is %d", rank,
                                      FX_MAX_DIMS));
    if (rank >= 1 && (axis < 0 || axis >= rank))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "scatter",
                                      "there is no axis %d: the result has %d axes", axis, rank));
    bool fits = rank >= 1;
    for (int i = 0; i < k->ndim && fits; i++)
        fits = x->shape[axis + i] == k->shape[i];
    if (!fits) {
        fx_fail(FX_STATUS_SHAPE, "scatter", "source %s does not match indices %s at axis %d",
                fxi_shape_text(x->ndim, x->shape, t), fxi_shape_text(k->ndim, k->shape, u), axis);
        return fx_error_array(FX_STATUS_SHAPE);
    }
    int64_t shape[FX_MAX_DIMS];
    int d = 0;
    for (int i = 0; i < axis; i++)
        shape[d++] = x->shape[i];
    shape[d++] = n;
    for (int i = axis + k->ndim; i < x->ndim; i++)
        shape[d++] = x->shape[i];
    const fx_attr a = {.scatter = {kind, axis}};
    return index_node(FX_OP_SCATTER, src, idx, d, shape, &a);
}

/* ---- one-hot --------------------------------------------------------------------------------- */

fx_status fxi_check_labels(const char *op, const fx_array *labels, int64_t nclasses)
{
    if (fx_is_error(labels))
        return fxi_operand_status(op, labels);
    if (fxi_is_float((int)fx_eltype(labels)))
        return fx_fail(FX_STATUS_DTYPE, op, "labels must be integers, got %s",
                       fx_dtype_name(fx_eltype(labels)));
    if (nclasses < 0 || fx_ndims(labels) == FX_MAX_DIMS)
        return fx_fail(
            FX_STATUS_ARGUMENT, op,
            "expects nclasses ≥ 0 and labels of fewer than %d axes, got %lld and %d axes",
            FX_MAX_DIMS, (long long)nclasses, fx_ndims(labels));
    return FX_OK;
}

fx_array *fx_onehot(fx_array *labels, int64_t nclasses)
{
    FXI_OPERATION("onehot");
    const fx_status s = fxi_check_labels("onehot", labels, nclasses);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    return fx_keep(fx_eq(fxi_iota(FX_DTYPE_I64, 0, 1, &nclasses), fx_unsqueeze(labels, 0)));
}

fx_array *fx_onecold(fx_array *y)
{
    FXI_OPERATION("onecold");
    return fx_argmax(y, .dims = FX_AXES(0), .drop = true);
}

/* ---- indexing by element --------------------------------------------------------------------- */

/* FX_OK if idx can select from x along axis: both have the same number of axes, and idx is not
 * longer than x along the other axes. */
static fx_status check_elements(const char *op, const fx_array *x, const fx_array *idx, int axis)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (fx_is_error(x) || fx_is_error(idx))
        return fxi_operand_status(op, fx_is_error(x) ? x : idx);
    if (fxi_is_float((int)fx_eltype(idx)) || fx_eltype(idx) == FX_DTYPE_BOOL)
        return fx_fail(FX_STATUS_DTYPE, op, "indices must be integers, got %s",
                       fx_dtype_name(fx_eltype(idx)));
    const fx_status status = fxi_check_axis(op, x, axis);
    if (status != FX_OK)
        return status;
    const int missing = fx_ndims(x) - fx_ndims(idx);
    bool fits = true, inserted = missing == 1; /* would idx fit with one more axis, `axis`? */
    for (int i = 0; i < fx_ndims(x); i++) {
        fits &= i == axis || fx_size(idx, i) <= fx_size(x, i);
        inserted &= i == axis || fx_size(idx, i - (i > axis)) <= fx_size(x, i);
    }
    if (fits && missing == 0)
        return FX_OK;
    char hint[60] = "";
    if (inserted)
        snprintf(hint, sizeof hint, "; pass fx_unsqueeze(indices, %d)", axis);
    return fx_fail(FX_STATUS_SHAPE, op, "indices %s do not match %s along axis %d%s",
                   fxi_shape_text(idx->node->ndim, idx->node->shape, a),
                   fxi_shape_text(x->node->ndim, x->node->shape, b), axis, hint);
}

/* y[…, k, …] = x[…, idx[…, k, …], …]; the arrays differ along the axis only. */
static fx_array *gather_by_element(fx_array *x, fx_array *idx, int axis)
{
    const fx_attr a = {.axis = axis};
    return index_node(FX_OP_GATHER, x, idx, idx->node->ndim, idx->node->shape, &a);
}

/* The reduction of src[…, k, …] into y[…, idx[…, k, …], …], with n elements along the axis. */
static fx_array *scatter_by_element(fx_reduce kind, fx_array *src, fx_array *idx, int axis,
                                    int64_t n)
{
    const fx_attr a = {.scatter = {kind, axis}};
    int64_t shape[FX_MAX_DIMS];
    if (fx_is_error(src) || fx_is_error(idx))
        return fxi_pass_error("scatter", fx_is_error(src) ? src : idx);
    for (int i = 0; i < src->node->ndim; i++)
        shape[i] = i == axis ? n : src->node->shape[i];
    return index_node(FX_OP_SCATTER, src, idx, src->node->ndim, shape, &a);
}

fx_array *fx_gather_elements(fx_array *x, fx_array *idx, int axis)
{
    const fx_status s = check_elements("gather_elements", x, idx, axis);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    for (int i = 0; i < fx_ndims(x); i++)
        if (i != axis && fx_size(idx, i) < fx_size(x, i))
            x = fx_slice(x, i, 0, fx_size(idx, i));
    return fx_keep(fx_is_error(x) ? x : gather_by_element(x, idx, axis));
}

/* Adds values at the indices into zeros of the shape of x. */
static fx_array *placed(const fx_array *x, fx_array *values, fx_array *idx, int axis)
{
    fx_array *y = scatter_by_element(FX_REDUCE_SUM, values, idx, axis, fx_size(x, axis));
    for (int i = 0; i < fx_ndims(x); i++)
        if (fx_size(y, i) < fx_size(x, i))
            y = fx_pad(y, i, 0, fx_size(x, i) - fx_size(y, i), 0);
    return y;
}

static fx_array *ones_like(const fx_array *x, fx_dtype dtype)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    return fxi_full(dtype, 1, fx_ndims(x), sizes);
}

fx_array *fx_scatter_elements(fx_array *x, fx_array *idx, fx_array *src, int axis)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    fx_status s = check_elements("scatter_elements", x, idx, axis);
    if (s == FX_OK && fx_is_error(src))
        s = fxi_operand_status("scatter_elements", src);
    if (s != FX_OK)
        return fx_error_array(s);
    if (!fxi_same_sizes(src, idx))
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, "scatter_elements",
                                      "source %s and indices %s differ",
                                      fxi_shape_text(src->node->ndim, src->node->shape, a),
                                      fxi_shape_text(idx->node->ndim, idx->node->shape, b)));
    FXI_SCOPE;
    fx_array *hit = fx_gt(placed(x, ones_like(idx, FX_DTYPE_I32), idx, axis), 0);
    const bool logical = fx_eltype(src) == FX_DTYPE_BOOL; /* a sum of Bools would be a count */
    fx_array *values = placed(x, logical ? fx_cast(src, FX_DTYPE_U8) : src, idx, axis);
    return fx_keep(fx_where(hit, logical ? fx_cast(values, FX_DTYPE_BOOL) : values, x));
}

/* ---- scatter --------------------------------------------------------------------------------- */

/* The type of a mean: integers as in fx_mean; 16-bit types in Float32, because a 16-bit sum stops
 * growing once its terms are below its precision. */
static fx_dtype mean_type(fx_dtype t)
{
    if (!fxi_is_float((int)t))
        return t == FX_DTYPE_BOOL ? FX_DTYPE_F32 : FX_DTYPE_F64;
    return t == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
}

/* The sum divided by the count; slices that no index names have 0/1. */
static fx_array *scatter_mean(fx_array *src, fx_array *idx, int axis, int64_t n)
{
    FXI_SCOPE;
    const fx_dtype given = fx_eltype(src), t = mean_type(given);
    fx_array *sum = fxi_scatter_primitive(FX_REDUCE_SUM, fx_cast(src, t), idx, axis, n);
    if (fx_is_error(sum))
        return fx_keep(sum);
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(sum); i++)
        sizes[i] = i == axis ? n : 1;
    fx_array *count = fxi_scatter_primitive(FX_REDUCE_SUM, ones_like(idx, FX_DTYPE_I64), idx, 0, n);
    count = fxi_reshape(fx_max(count, 1), fx_ndims(sum), sizes);
    fx_array *mean = fx_div(sum, count);
    return fx_keep(fxi_is_float((int)given) ? fx_cast(mean, given) : mean);
}

/* Like the reductions of whole arrays: sums and products of Bools count in Int64, their extremes
 * are Bool. */
static fx_array *scatter_bool(fx_reduce kind, fx_array *src, fx_array *idx, int axis, int64_t n)
{
    FXI_SCOPE;
    const bool counts = kind == FX_REDUCE_SUM || kind == FX_REDUCE_PROD;
    fx_array *x = fx_cast(src, counts ? FX_DTYPE_I64 : FX_DTYPE_U8);
    fx_array *y = fxi_scatter_primitive(kind, x, idx, axis, n);
    return fx_keep(counts ? y : fx_cast(y, FX_DTYPE_BOOL));
}

fx_array *fx_scatter(fx_reduce reduction, fx_array *src, fx_array *idx, int axis, int64_t n)
{
    if (fx_is_error(src) || fx_is_error(idx))
        return fxi_pass_error("scatter", fx_is_error(src) ? src : idx);
    if (reduction == FX_REDUCE_MEAN)
        return scatter_mean(src, idx, axis, n);
    if ((unsigned)reduction > FX_REDUCE_PROD)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "scatter",
                                      "expected FX_REDUCE_SUM, MAX, MIN, PROD or MEAN, got %d",
                                      (int)reduction));
    if (fx_is_array(src) && fx_eltype(src) == FX_DTYPE_BOOL)
        return scatter_bool(reduction, src, idx, axis, n);
    return fxi_scatter_primitive(reduction, src, idx, axis, n);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static bool by_element(const fxi_node *n)
{
    return n->ndim == n->in[0]->ndim && n->ndim == n->in[1]->ndim;
}

/* Gathers or sums with the indices of the node, by element or by slice as the node does. n: the
 * size along the axis. */
static fx_array *gathered(const fxi_rule_args *a, fx_array *x, int axis)
{
    return (by_element(a->node) ? gather_by_element : fx_gather)(x, Y, axis);
}
static fx_array *scattered(const fxi_rule_args *a, fx_reduce kind, fx_array *x, int axis, int64_t n)
{
    return (by_element(a->node) ? scatter_by_element : fxi_scatter_primitive)(kind, x, Y, axis, n);
}
static fx_array *summed(const fxi_rule_args *a, fx_array *x, int axis, int64_t n)
{
    return scattered(a, FX_REDUCE_SUM, x, axis, n);
}

/* For each element of a scattered product: the product of the other elements with the same index.
 * It is 0 if one of these is 0, else the whole product divided by the element, where a 0 counts as
 * 1 in both. */
static fx_array *product_of_others(const fxi_rule_args *a, int axis)
{
    const int64_t n = a->node->shape[axis];
    fx_array *zero = fx_eq(X, 0), *factor = fx_where(zero, 1, X);
    fx_array *zeros = gathered(a, summed(a, fx_cast(zero, FX_DTYPE_I32), axis, n), axis);
    fx_array *product = gathered(a, scattered(a, FX_REDUCE_PROD, factor, axis, n), axis);
    fx_array *others = fx_where(zero, fx_sub(zeros, 1), zeros); /* zeros among the others */
    return fx_where(fx_eq(others, 0), fx_div(product, factor), 0);
}

RULE(GATHER)
{
    const int axis = (int)a->node->attr.axis;
    a->gx[0] = summed(a, G, axis, a->node->in[0]->shape[axis]);
}

RULE(SCATTER)
{
    const fx_reduce kind = (fx_reduce)a->node->attr.scatter.fold;
    const int axis = (int)a->node->attr.scatter.axis;
    fx_array *g = gathered(a, G, axis);
    if (kind == FX_REDUCE_SUM) {
        a->gx[0] = g;
        return;
    }
    if (kind == FX_REDUCE_PROD) {
        a->gx[0] = fx_mul(g, product_of_others(a, axis));
        return;
    }
    fx_array *hit = fxi_equal_extremes(X, gathered(a, Z, axis));
    fx_array *count = summed(a, hit, axis, a->node->shape[axis]);
    a->gx[0] = fx_div(fx_mul(g, hit), fx_max(gathered(a, count, axis), 1));
}
