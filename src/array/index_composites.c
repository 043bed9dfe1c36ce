/* index_composites.c: one-hot arrays, indexing by element, scatter and the mean pool's border.
 *
 * The primitives gather and scatter take whole slices along one axis. Indexing by element
 * (GatherElements, take_along_axis) is the same thing on the flattened array with linear indices
 * computed from the axis index and the element's own position. An index outside its axis could name
 * an element of another column; it is therefore sent outside the whole array, where the primitive
 * reports it when the value is computed.
 */
#include "composites.h"
#include "memory.h"

/* ---- one-hot --------------------------------------------------------------------------------- */

static fx_status check_labels(const char *op, const fx_array *labels, int64_t nclasses)
{
    if (fx_is_error(labels))
        return fxi_operand_status(op, labels);
    if (fxi_is_float((int)fx_eltype(labels)))
        return fx_fail(FX_STATUS_DTYPE, op, "labels must be integers, got %s",
                       fx_dtype_name(fx_eltype(labels)));
    if (nclasses < 0 || fx_ndims(labels) == FX_MAX_DIMS)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%lld classes of labels with %d axes",
                       (long long)nclasses, fx_ndims(labels));
    return FX_OK;
}

fx_array *fx_onehot(fx_array *labels, int64_t nclasses)
{
    const fx_status s = check_labels("onehot", labels, nclasses);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    return fx_keep(fx_eq(fxi_iota(FX_DTYPE_I64, 0, 1, &nclasses), fx_unsqueeze(labels, 0)));
}

/* FX_OK when all labels are classes; reads them. */
static fx_status check_values(fx_array *labels, int64_t nclasses)
{
    const int64_t n = fx_length(labels);
    int64_t *values = fxi_malloc((size_t)(n ? n : 1) * sizeof *values);
    if (!values)
        return fx_fail(FX_STATUS_MEMORY, "onehotbatch", "no memory for %lld labels", (long long)n);
    fx_status s = fx_read_as(labels, FX_DTYPE_I64, values, n);
    for (int64_t i = 0; i < n && s == FX_OK; i++)
        if (values[i] < 0 || values[i] >= nclasses)
            s = fx_fail(FX_STATUS_ARGUMENT, "onehotbatch", "Value %lld is not in labels",
                        (long long)values[i]);
    fxi_free(values);
    return s;
}

fx_array *fx_onehotbatch(fx_array *labels, int64_t nclasses)
{
    fx_status s = check_labels("onehotbatch", labels, nclasses);
    if (s == FX_OK)
        s = check_values(labels, nclasses);
    return s == FX_OK ? fx_onehot(labels, nclasses) : fx_error_array(s);
}

fx_array *fx_onecold(fx_array *y)
{
    return fx_argmax(y, .dims = FX_AXIS(0), .drop = true);
}

/* ---- indexing by element --------------------------------------------------------------------- */

/* FX_OK when idx picks from x along axis: as many axes, and not longer than x beside that axis. */
static fx_status check_elements(const char *op, const fx_array *x, const fx_array *idx, int axis)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (fx_is_error(x) || fx_is_error(idx))
        return fxi_operand_status(op, fx_is_error(x) ? x : idx);
    if (fxi_is_float((int)fx_eltype(idx)) || fx_eltype(idx) == FX_DTYPE_BOOL)
        return fx_fail(FX_STATUS_DTYPE, op, "indices must be integers, got %s",
                       fx_dtype_name(fx_eltype(idx)));
    if (axis < 0 || axis >= fx_ndims(x))
        return fx_fail(FX_STATUS_ARGUMENT, op, "axis %d of a %d-d array", axis, fx_ndims(x));
    bool fits = fx_ndims(x) == fx_ndims(idx);
    for (int i = 0; i < fx_ndims(x); i++)
        fits &= i == axis || fx_size(idx, i) <= fx_size(x, i);
    if (!fits)
        return fx_fail(FX_STATUS_SHAPE, op, "indices %s do not fit %s along axis %d",
                       fxi_shape_text(idx->node->ndim, idx->node->shape, a),
                       fxi_shape_text(x->node->ndim, x->node->shape, b), axis);
    return FX_OK;
}

/* Positions along axis i as a vector that broadcasts. */
static fx_array *positions(int axis, int ndims, int64_t n)
{
    int64_t dims[FX_MAX_DIMS];
    for (int i = 0; i < ndims; i++)
        dims[i] = i == axis ? n : 1;
    return fxi_iota(FX_DTYPE_I64, axis, ndims, dims);
}

/* Index into the flattened x of the element that idx names; outside it where idx is outside the
 * axis. */
static fx_array *linear_index(const fx_array *x, fx_array *idx, int axis)
{
    const int64_t n = fx_size(x, axis), total = fx_length(x);
    int64_t stride = 1;
    fx_array *own = fx_cast(idx, FX_DTYPE_I64), *linear = NULL;
    for (int i = 0; i < fx_ndims(x); i++) {
        fx_array *at = i == axis ? own : positions(i, fx_ndims(x), fx_size(idx, i));
        fx_array *term = fx_mul(at, stride);
        linear = linear ? fx_add(linear, term) : term;
        stride *= fx_size(x, i);
    }
    fx_array *outside = fx_or(fx_lt(own, 0), fx_ge(own, n));
    return fx_where(outside, fx_where(fx_lt(own, 0), own, fx_add(own, total)), linear);
}

fx_array *fx_gather_elements(fx_array *x, fx_array *idx, int axis)
{
    const fx_status s = check_elements("gather_elements", x, idx, axis);
    if (s != FX_OK)
        return fx_error_array(s);
    FXI_SCOPE;
    return fx_keep(fx_gather(fx_vec(x), linear_index(x, idx, axis), 0));
}

/* values added up at linear indices, in x's shape. */
static fx_array *placed(const fx_array *x, fx_array *values, fx_array *linear)
{
    int64_t dims[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        dims[i] = fx_size(x, i);
    return fxi_reshape(fxi_scatter_primitive(FX_FOLD_SUM, values, linear, 0, fx_length(x)),
                       fx_ndims(x), dims);
}

static fx_array *ones_like(const fx_array *x, fx_dtype dtype)
{
    int64_t dims[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        dims[i] = fx_size(x, i);
    return fxi_full(dtype, 1, fx_ndims(x), dims);
}

fx_array *fx_scatter_elements(fx_array *x, fx_array *idx, fx_array *src, int axis)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    fx_status s = check_elements("scatter_elements", x, idx, axis);
    if (s == FX_OK && fx_is_error(src))
        s = fxi_operand_status("scatter_elements", src);
    if (s != FX_OK)
        return fx_error_array(s);
    bool same = fx_ndims(src) == fx_ndims(idx);
    for (int i = 0; i < fx_ndims(idx); i++)
        same &= fx_size(src, i) == fx_size(idx, i);
    if (!same)
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, "scatter_elements",
                                      "source %s and indices %s differ",
                                      fxi_shape_text(src->node->ndim, src->node->shape, a),
                                      fxi_shape_text(idx->node->ndim, idx->node->shape, b)));
    FXI_SCOPE;
    fx_array *linear = linear_index(x, idx, axis);
    fx_array *hit = fx_gt(placed(x, ones_like(idx, FX_DTYPE_I32), linear), 0);
    const bool logical = fx_eltype(src) == FX_DTYPE_BOOL; /* its sums would be counts */
    fx_array *values = placed(x, logical ? fx_cast(src, FX_DTYPE_U8) : src, linear);
    return fx_keep(fx_where(hit, logical ? fx_cast(values, FX_DTYPE_BOOL) : values, x));
}

/* ---- scatter --------------------------------------------------------------------------------- */

/* Integers as in fx_mean, and 16-bit types in Float32, where sums do not stall. */
static fx_dtype mean_type(fx_dtype t)
{
    if (!fxi_is_float((int)t))
        return t == FX_DTYPE_BOOL ? FX_DTYPE_F32 : FX_DTYPE_F64;
    return t == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
}

/* The sum over the count; slices that no index names have 0/1. */
static fx_array *scatter_mean(fx_array *src, fx_array *idx, int axis, int64_t n)
{
    FXI_SCOPE;
    const fx_dtype given = fx_eltype(src), t = mean_type(given);
    fx_array *sum = fxi_scatter_primitive(FX_FOLD_SUM, fx_cast(src, t), idx, axis, n);
    if (fx_is_error(sum))
        return fx_keep(sum);
    int64_t dims[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(sum); i++)
        dims[i] = i == axis ? n : 1;
    fx_array *count = fxi_scatter_primitive(FX_FOLD_SUM, ones_like(idx, FX_DTYPE_I64), idx, 0, n);
    count = fxi_reshape(fx_max(count, 1), fx_ndims(sum), dims);
    fx_array *mean = fx_div(sum, count);
    return fx_keep(fxi_is_float((int)given) ? fx_cast(mean, given) : mean);
}

fx_array *fx_scatter(fx_reduction reduction, fx_array *src, fx_array *idx, int axis, int64_t n)
{
    static const fx_fold kinds[] = {[FX_REDUCE_SUM] = FX_FOLD_SUM,
                                    [FX_REDUCE_MAX] = FX_FOLD_MAX,
                                    [FX_REDUCE_MIN] = FX_FOLD_MIN,
                                    [FX_REDUCE_PROD] = FX_FOLD_PROD};
    if (fx_is_error(src) || fx_is_error(idx))
        return fxi_pass_error("scatter", fx_is_error(src) ? src : idx);
    if (reduction == FX_REDUCE_MEAN)
        return scatter_mean(src, idx, axis, n);
    if ((size_t)reduction >= sizeof kinds / sizeof kinds[0])
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "scatter", "%d is not a reduction", (int)reduction));
    return fxi_scatter_primitive(kinds[reduction], src, idx, axis, n);
}

/* ---- mean pooling ---------------------------------------------------------------------------- */

static bool has_padding(const fx_dims *pad)
{
    for (int64_t i = 0; i < pad->n; i++)
        if (pad->v[i] != 0)
            return true;
    return false;
}

/* Without padding in the divisor: the mean over the whole window, divided by the share of the
 * window that lies inside the array, which is the mean pool of ones. */
fx_array *fxi_pool_mean(const fx_pool_args *a)
{
    if (!a->exclude_pad || !has_padding(&a->pad))
        return fxi_pool_mean_primitive(a);
    FXI_SCOPE;
    const fx_dtype given = fx_eltype(a->x);
    fx_pool_args wide = *a, ones = *a;
    wide.x = given == FX_DTYPE_F64 ? a->x : fx_cast(a->x, FX_DTYPE_F32);
    fx_array *mean = fxi_pool_mean_primitive(&wide);
    if (fx_is_error(mean))
        return fx_keep(mean);
    int64_t dims[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(a->x); i++)
        dims[i] = i < fx_ndims(a->x) - 2 ? fx_size(a->x, i) : 1;
    ones.x = fxi_full(fx_eltype(wide.x), 1, fx_ndims(a->x), dims);
    fx_array *y = fx_div(mean, fxi_pool_mean_primitive(&ones));
    return fx_keep(fxi_is_float((int)given) ? fx_cast(y, given) : y);
}
