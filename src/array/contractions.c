/* contractions.c: builders of the primitives that are not elementwise: reductions, scans, indexing,
 * matrix products, convolution, pooling, custom operations. See primitives.c for the pattern.
 */
#include "context.h"
#include "primitives.h"

#include <cflux/device.h>
#include <string.h>

static fx_array *failed(fx_status s)
{
    return fx_error_array(s);
}

/* Can x be an operand? Looks at the bound on pending work first. */
static fx_status usable(const char *op, const fx_array *x)
{
    fxi_begin();
    return fxi_check_array(op, x);
}

static fx_status same_device(const char *op, const fx_array *a, const fx_array *b, fx_device **out)
{
    fx_device *x = a->node->device, *y = b->node->device;
    if (x && y && x != y)
        return fx_fail(FX_STATUS_DEVICE, op,
                       "arrays on two devices: %s and %s; move one with fx_to", fx_device_name(x),
                       fx_device_name(y));
    *out = x ? x : y;
    return FX_OK;
}

static fx_array *node1(fx_op op, fx_array *x, fx_dtype dtype, int ndim, const int64_t *shape,
                       const fx_attr *attr)
{
    return fxi_array_take(
        fxi_node_new(fxi_here(), op, dtype, ndim, shape, x->node->device, attr, 1, &x->node));
}

/* ---- reductions and scans -------------------------------------------------------------------- */

fx_array *fxi_reduce(fx_fold kind, fx_array *x, unsigned mask, const char *op)
{
    char t[FXI_SHAPE_TEXT];
    const fx_status s = usable(op, x);
    if (s != FX_OK)
        return failed(s);
    const fxi_node *n = x->node;
    if (mask >> n->ndim) {
        fx_fail(FX_STATUS_ARGUMENT, op, "axes beyond the %d of %s", n->ndim,
                fxi_shape_text(n->ndim, n->shape, t));
        return failed(FX_STATUS_ARGUMENT);
    }
    int64_t shape[FX_MAX_DIMS], reduced = 1;
    for (int i = 0; i < n->ndim; i++) {
        shape[i] = FXI_AXIS_IN(mask, i) ? 1 : n->shape[i];
        if (FXI_AXIS_IN(mask, i))
            reduced *= n->shape[i];
    }
    const bool index = kind == FX_FOLD_ARGMAX || kind == FX_FOLD_ARGMIN;
    if ((kind == FX_FOLD_MAX || kind == FX_FOLD_MIN || index) && reduced == 0 &&
        fxi_length(n->ndim, shape) > 0 && n->dtype != FX_DTYPE_BOOL) {
        fx_fail(FX_STATUS_SHAPE, op, "the %s of no elements: %s", op,
                fxi_shape_text(n->ndim, n->shape, t));
        return failed(FX_STATUS_SHAPE);
    }
    if (mask == 0 && kind <= FX_FOLD_PROD)
        return x;
    const fx_attr a = {.i = {kind, mask}};
    return node1(FX_OP_REDUCE, x, index ? FX_DTYPE_I64 : (fx_dtype)n->dtype, n->ndim, shape, &a);
}

static fx_array *cumulative(fx_array *x, int axis, bool reverse)
{
    fx_status s = usable("cumsum", x);
    if (s == FX_OK)
        s = fxi_check_axis("cumsum", x, axis);
    if (s != FX_OK)
        return failed(s);
    if (!fxi_is_float(x->node->dtype))
        x = fx_cast(x, FX_DTYPE_I64);
    if (fx_is_error(x))
        return x;
    const fx_attr a = {.i = {axis, reverse}};
    return node1(FX_OP_CUMSUM, x, (fx_dtype)x->node->dtype, x->node->ndim, x->node->shape, &a);
}

fx_array *fx_cumsum(fx_array *x, int axis)
{
    return cumulative(x, axis, false);
}
fx_array *fx_cumsum_reverse(fx_array *x, int axis)
{
    return cumulative(x, axis, true);
}

/* ---- indexing -------------------------------------------------------------------------------- */

static fx_status check_index(const char *op, fx_array *x, fx_array *idx, int axis)
{
    fx_status s = usable(op, x);
    if (s == FX_OK)
        s = usable(op, idx);
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
    const fx_status s = same_device(fxi_ops[op].name, x, idx, &device);
    if (s != FX_OK)
        return failed(s);
    fxi_node *in[] = {x->node, idx->node};
    return fxi_array_take(
        fxi_node_new(fxi_here(), op, (fx_dtype)x->node->dtype, ndim, shape, device, a, 2, in));
}

fx_array *fx_gather(fx_array *x, fx_array *idx, int axis)
{
    const fx_status s = check_index("gather", x, idx, axis);
    if (s != FX_OK)
        return failed(s);
    const fxi_node *n = x->node, *k = idx->node;
    if (n->ndim - 1 + k->ndim > FX_MAX_DIMS) {
        fx_fail(FX_STATUS_ARGUMENT, "gather", "the result would have %d dimensions",
                n->ndim - 1 + k->ndim);
        return failed(FX_STATUS_ARGUMENT);
    }
    int64_t shape[FX_MAX_DIMS];
    int d = 0;
    for (int i = 0; i < axis; i++)
        shape[d++] = n->shape[i];
    for (int i = 0; i < k->ndim; i++)
        shape[d++] = k->shape[i];
    for (int i = axis + 1; i < n->ndim; i++)
        shape[d++] = n->shape[i];
    const fx_attr a = {.i = {axis}};
    return index_node(FX_OP_GATHER, x, idx, d, shape, &a);
}

fx_array *fxi_scatter_primitive(fx_fold kind, fx_array *src, fx_array *idx, int axis, int64_t n)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_status s = usable("scatter", src);
    if (s == FX_OK)
        s = usable("scatter", idx);
    if (s == FX_OK && (fxi_is_float(idx->node->dtype) || idx->node->dtype == FX_DTYPE_BOOL))
        s = fx_fail(FX_STATUS_DTYPE, "scatter", "indices must be integers, got %s",
                    fx_dtype_name(fx_eltype(idx)));
    if (s != FX_OK)
        return failed(s);
    const fxi_node *x = src->node, *k = idx->node;
    const int rank = x->ndim - k->ndim + 1; /* of the result */
    bool fits = axis >= 0 && rank >= 1 && axis < rank && n >= 0;
    for (int i = 0; i < k->ndim && fits; i++)
        fits = x->shape[axis + i] == k->shape[i];
    if (!fits) {
        fx_fail(FX_STATUS_SHAPE, "scatter", "source %s does not fit indices %s at axis %d",
                fxi_shape_text(x->ndim, x->shape, t), fxi_shape_text(k->ndim, k->shape, u), axis);
        return failed(FX_STATUS_SHAPE);
    }
    int64_t shape[FX_MAX_DIMS];
    int d = 0;
    for (int i = 0; i < axis; i++)
        shape[d++] = x->shape[i];
    shape[d++] = n;
    for (int i = axis + k->ndim; i < x->ndim; i++)
        shape[d++] = x->shape[i];
    const fx_attr a = {.i = {kind, axis}};
    return index_node(FX_OP_SCATTER, src, idx, d, shape, &a);
}

/* ---- matrix products ------------------------------------------------------------------------- */

/* Both operands in their common type, Bool as Int64. */
static fx_status promote_pair(const char *op, fx_array **a, fx_array **b)
{
    fx_dtype t = fx_dtype_promote(fx_eltype(*a), fx_eltype(*b));
    if (t == FX_DTYPE_BOOL)
        t = FX_DTYPE_I64;
    *a = fx_cast(*a, t);
    *b = fx_cast(*b, t);
    if (fx_is_error(*a) || fx_is_error(*b))
        return fx_fail(FX_STATUS_MEMORY, op, "no memory for a conversion");
    return FX_OK;
}

fx_array *fxi_matmul_node(bool ta, bool tb, fx_array *a, fx_array *b, const char *op)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_device *device;
    fx_status s = usable(op, a);
    if (s == FX_OK)
        s = usable(op, b);
    if (s == FX_OK)
        s = same_device(op, a, b, &device);
    if (s == FX_OK && (fx_ndims(a) < 2 || fx_ndims(b) < 2))
        s = fx_fail(FX_STATUS_SHAPE, op, "takes matrices: A is %s, B is %s",
                    fxi_shape_text(a->node->ndim, a->node->shape, t),
                    fxi_shape_text(b->node->ndim, b->node->shape, u));
    if (s == FX_OK && fx_size(a, !ta) != fx_size(b, tb))
        s = fx_fail(FX_STATUS_SHAPE, op, "inner sizes differ: A is %s, B is %s",
                    fxi_shape_text(a->node->ndim, a->node->shape, t),
                    fxi_shape_text(b->node->ndim, b->node->shape, u));
    if (s == FX_OK)
        s = promote_pair(op, &a, &b);
    if (s != FX_OK)
        return failed(s);
    const int ndim = fx_ndims(a) > fx_ndims(b) ? fx_ndims(a) : fx_ndims(b);
    int64_t shape[FX_MAX_DIMS] = {fx_size(a, ta), fx_size(b, !tb)};
    for (int i = 2; i < ndim; i++) {
        const int64_t p = fx_size(a, i), q = fx_size(b, i);
        if (p != q && p != 1 && q != 1) {
            fx_fail(FX_STATUS_SHAPE, op, "batch sizes differ: A is %s, B is %s",
                    fxi_shape_text(a->node->ndim, a->node->shape, t),
                    fxi_shape_text(b->node->ndim, b->node->shape, u));
            return failed(FX_STATUS_SHAPE);
        }
        shape[i] = p == 1 ? q : p;
    }
    const fx_attr attr = {.i = {ta, tb}};
    fxi_node *in[] = {a->node, b->node};
    return fxi_array_take(fxi_node_new(fxi_here(), FX_OP_MATMUL, (fx_dtype)a->node->dtype, ndim,
                                       shape, device, &attr, 2, in));
}

fx_array *fx_matmul(fx_array *a, fx_array *b)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_status s = usable("matmul", a);
    if (s == FX_OK)
        s = usable("matmul", b);
    if (s != FX_OK)
        return failed(s);
    const int da = fx_ndims(a), db = fx_ndims(b);
    if (da == 2 && db == 2)
        return fxi_matmul_node(false, false, a, b, "matmul");
    /* A vector is a column; a column times a row is the outer product. */
    const bool columns = da >= 1 && da <= 2 && db >= 1 && db <= 2;
    if (!columns || (da == 2 && fx_size(a, 1) != fx_size(b, 0)) ||
        (da == 1 && (db == 1 || fx_size(b, 0) != 1))) {
        fx_fail(FX_STATUS_SHAPE, "matmul",
                columns ? "inner sizes differ: A is %s, B is %s"
                        : "takes matrices and vectors: A is %s, B is %s",
                fxi_shape_text(da, a->node->shape, t), fxi_shape_text(db, b->node->shape, u));
        return failed(FX_STATUS_SHAPE);
    }
    FXI_SCOPE;
    fx_array *ma = da == 2 ? a : fx_reshape(a, -1, 1),
             *mb = db == 2 ? b : fx_reshape(b, fx_size(b, 0), 1);
    fx_array *y = fxi_matmul_node(false, false, ma, mb, "matmul");
    return fx_keep(db == 2 ? y : fx_reshape(y, fx_size(a, 0)));
}

fx_array *fx_batched_mul(fx_array *a, fx_array *b)
{
    return fxi_matmul_node(false, false, a, b, "batched_mul");
}

/* ---- convolution and pooling ----------------------------------------------------------------- */

/* One value per spatial axis from an option: none → fallback, one → all. */
static fx_status spread(const char *op, const char *what, const fx_dims *d, int spatial,
                        int64_t least, int32_t fallback, int32_t *out)
{
    if (d->n != 0 && d->n != 1 && d->n != spatial)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%s has %lld numbers for %d spatial axes", what,
                       (long long)d->n, spatial);
    for (int i = 0; i < spatial; i++) {
        const int64_t v = d->n == 0 ? fallback : d->v[d->n == 1 ? 0 : i];
        if (v < least || v > INT32_MAX)
            return fx_fail(FX_STATUS_ARGUMENT, op, "%s of %lld is out of range", what,
                           (long long)v);
        out[i] = (int32_t)v;
    }
    return FX_OK;
}

/* Padding: none, one number, one per axis, or (before, after) per axis. */
static fx_status spread_pad(const char *op, const fx_dims *d, int spatial, int32_t *before,
                            int32_t *after)
{
    if (d->n != 2 * spatial || spatial == 0) {
        const fx_status s = spread(op, "pad", d, spatial, 0, 0, before);
        memcpy(after, before, (size_t)spatial * sizeof *after);
        return s;
    }
    for (int i = 0; i < spatial; i++) {
        if (d->v[2 * i] < 0 || d->v[2 * i + 1] < 0 || d->v[2 * i] > INT32_MAX ||
            d->v[2 * i + 1] > INT32_MAX)
            return fx_fail(FX_STATUS_ARGUMENT, op, "pad is negative");
        before[i] = (int32_t)d->v[2 * i];
        after[i] = (int32_t)d->v[2 * i + 1];
    }
    return FX_OK;
}

/* floor((n + before + after − dilation·(k−1) − 1)/stride) + 1; negative when the window does not
 * fit. */
static int64_t window_count(int64_t n, int64_t k, int32_t stride, int32_t before, int32_t after,
                            int32_t dilation)
{
    const int64_t room = n + before + after - ((k - 1) * dilation + 1);
    return room < 0 ? -1 : room / stride + 1;
}

static fx_status conv_attr(const char *op, const fx_conv_args *a, fx_conv_attr *attr)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    fx_status s = usable(op, a->x);
    if (s == FX_OK)
        s = usable(op, a->w);
    if (s != FX_OK)
        return s;
    const int spatial = fx_ndims(a->x) - 2;
    if (spatial < 1 || spatial > 3 || fx_ndims(a->w) != fx_ndims(a->x))
        return fx_fail(FX_STATUS_SHAPE, op,
                       "takes 1 to 3 spatial axes, channels and batch, and a kernel of as many "
                       "axes: x is %s, w is %s",
                       fxi_shape_text(a->x->node->ndim, a->x->node->shape, t),
                       fxi_shape_text(a->w->node->ndim, a->w->node->shape, u));
    *attr = (fx_conv_attr){.flipped = a->flipped, .spatial = spatial};
    if (a->groups < 0 || a->groups > INT32_MAX)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%lld groups", (long long)a->groups);
    attr->groups = a->groups ? (int32_t)a->groups : 1;
    s = spread(op, "stride", &a->stride, spatial, 1, 1, attr->stride);
    if (s == FX_OK)
        s = spread(op, "dilation", &a->dilation, spatial, 1, 1, attr->dilation);
    if (s == FX_OK)
        s = spread_pad(op, &a->pad, spatial, attr->before, attr->after);
    return s;
}

fx_array *fxi_conv_node(const fx_conv_attr *attr, fx_array *a, fx_array *b, int ndim,
                        const int64_t *shape)
{
    fx_device *device;
    fx_status s = usable("conv", a);
    if (s == FX_OK)
        s = usable("conv", b);
    if (s == FX_OK)
        s = same_device("conv", a, b, &device);
    if (s != FX_OK)
        return failed(s);
    fx_dtype t = fx_dtype_promote(fx_eltype(a), fx_eltype(b));
    if (!fxi_is_float((int)t))
        t = FX_DTYPE_F32;
    a = fx_cast(a, t);
    b = fx_cast(b, t);
    if (fx_is_error(a) || fx_is_error(b))
        return failed(FX_STATUS_MEMORY);
    fx_attr at = {.i = {0}};
    at.conv = *attr;
    fxi_node *in[] = {a->node, b->node};
    return fxi_array_take(fxi_node_new(fxi_here(), FX_OP_CONV, t, ndim, shape, device, &at, 2, in));
}

static fx_status conv_channels(const char *op, const fx_conv_args *a, int64_t want)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    const int c = fx_ndims(a->x) - 2;
    const int64_t groups = a->groups ? a->groups : 1;
    if (fx_size(a->x, c) == want && fx_size(a->w, c + 1) % groups == 0 &&
        fx_size(a->x, c) % groups == 0)
        return FX_OK;
    return fx_fail(FX_STATUS_SHAPE, op, "channels do not fit: x is %s, w is %s, %lld groups",
                   fxi_shape_text(a->x->node->ndim, a->x->node->shape, t),
                   fxi_shape_text(a->w->node->ndim, a->w->node->shape, u), (long long)groups);
}

static fx_status no_room(const char *op, const fx_array *x, const int64_t *window, int spatial)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    return fx_fail(FX_STATUS_SHAPE, op, "a window of %s does not fit into %s",
                   fxi_shape_text(spatial, window, u),
                   fxi_shape_text(x->node->ndim, x->node->shape, t));
}

fx_array *fxi_convolve(const fx_conv_args *a)
{
    fx_conv_attr attr;
    fx_status s = conv_attr("conv", a, &attr);
    const int c = s == FX_OK ? attr.spatial : 0;
    if (s == FX_OK)
        s = conv_channels("conv", a, fx_size(a->w, c) * attr.groups);
    if (s != FX_OK)
        return failed(s);
    int64_t shape[FX_MAX_DIMS];
    for (int i = 0; i < c; i++) {
        shape[i] = window_count(fx_size(a->x, i), fx_size(a->w, i), attr.stride[i], attr.before[i],
                                attr.after[i], attr.dilation[i]);
        if (shape[i] < 0)
            return failed(no_room("conv", a->x, a->w->node->shape, c));
    }
    shape[c] = fx_size(a->w, c + 1);
    shape[c + 1] = fx_size(a->x, c + 1);
    attr.kind = FX_CONV_FORWARD;
    return fxi_conv_node(&attr, a->x, a->w, c + 2, shape);
}

fx_array *fxi_convolve_transposed(const fx_conv_args *a)
{
    char t[FXI_SHAPE_TEXT];
    fx_conv_attr attr;
    int32_t extra[3] = {0};
    fx_status s = conv_attr("conv_transpose", a, &attr);
    const int c = s == FX_OK ? attr.spatial : 0;
    if (s == FX_OK)
        s = conv_channels("conv_transpose", a, fx_size(a->w, c + 1));
    if (s == FX_OK)
        s = spread("conv_transpose", "outpad", &a->outpad, c, 0, 0, extra);
    if (s != FX_OK)
        return failed(s);
    int64_t shape[FX_MAX_DIMS];
    for (int i = 0; i < c; i++) {
        shape[i] = (fx_size(a->x, i) - 1) * attr.stride[i] + 1 +
                   (fx_size(a->w, i) - 1) * attr.dilation[i] - attr.before[i] - attr.after[i] +
                   extra[i];
        if (shape[i] < 0 || fx_size(a->x, i) == 0) {
            fx_fail(FX_STATUS_SHAPE, "conv_transpose",
                    "the result of %s would have a negative size",
                    fxi_shape_text(a->x->node->ndim, a->x->node->shape, t));
            return failed(FX_STATUS_SHAPE);
        }
    }
    shape[c] = fx_size(a->w, c) * attr.groups;
    shape[c + 1] = fx_size(a->x, c + 1);
    attr.kind = FX_CONV_DATA;
    return fxi_conv_node(&attr, a->x, a->w, c + 2, shape);
}

fx_array *fxi_pool_node(const fx_pool_attr *attr, int n, fx_array *const *in, int ndim,
                        const int64_t *shape)
{
    fxi_node *nodes[2];
    fx_device *device = NULL;
    for (int i = 0; i < n; i++) {
        const fx_status s = usable("pool", in[i]);
        if (s != FX_OK)
            return failed(s);
        nodes[i] = in[i]->node;
        device = nodes[i]->device ? nodes[i]->device : device;
    }
    fx_attr a = {.i = {0}};
    a.pool = *attr;
    return fxi_array_take(fxi_node_new(fxi_here(), FX_OP_POOL, (fx_dtype)nodes[0]->dtype, ndim,
                                       shape, device, &a, n, nodes));
}

static fx_array *pool(const char *op, fx_pool_kind kind, const fx_pool_args *a)
{
    fx_pool_attr attr = {.kind = (int32_t)kind};
    fx_status s = usable(op, a->x);
    if (s != FX_OK)
        return failed(s);
    const int c = attr.spatial = fx_ndims(a->x) - 2;
    if (c < 1 || c > 3 || a->window.n < 1) {
        fx_fail(FX_STATUS_SHAPE, op,
                "takes 1 to 3 spatial axes, channels and batch, and a window; x has %d axes",
                c + 2);
        return failed(FX_STATUS_SHAPE);
    }
    s = spread(op, "window", &a->window, c, 1, 1, attr.window);
    if (s == FX_OK)
        s = a->stride.n ? spread(op, "stride", &a->stride, c, 1, 1, attr.stride)
                        : spread(op, "stride", &a->window, c, 1, 1, attr.stride);
    if (s == FX_OK)
        s = spread(op, "dilation", &a->dilation, c, 1, 1, attr.dilation);
    if (s == FX_OK)
        s = spread_pad(op, &a->pad, c, attr.before, attr.after);
    if (s != FX_OK)
        return failed(s);
    int64_t shape[FX_MAX_DIMS], window[3];
    for (int i = 0; i < c; i++)
        window[i] = attr.window[i];
    for (int i = 0; i < c; i++) {
        shape[i] = window_count(fx_size(a->x, i), attr.window[i], attr.stride[i], attr.before[i],
                                attr.after[i], attr.dilation[i]);
        if (shape[i] < 0)
            return failed(no_room(op, a->x, window, c));
    }
    shape[c] = fx_size(a->x, c);
    shape[c + 1] = fx_size(a->x, c + 1);
    fx_array *x = a->x;
    if (kind == FX_POOL_MEAN && !fxi_is_float(x->node->dtype))
        x = fx_cast(x, FX_DTYPE_F32);
    return fxi_pool_node(&attr, 1, &x, c + 2, shape);
}

fx_array *fxi_pool_max(const fx_pool_args *a)
{
    return pool("maxpool", FX_POOL_MAX, a);
}
fx_array *fxi_pool_mean_primitive(const fx_pool_args *a)
{
    return pool("meanpool", FX_POOL_MEAN, a);
}

/* ---- custom ---------------------------------------------------------------------------------- */

fx_array *fx_custom(const fx_custom_op *op, int n, fx_array *const *in, fx_dtype out_dtype,
                    fx_dims out_dims)
{
    const char *name = op && op->name ? op->name : "custom";
    if (!op || !op->forward || n < 0 || out_dims.n < 0 || out_dims.n > FX_MAX_DIMS) {
        fx_fail(FX_STATUS_ARGUMENT, name,
                "a custom operation needs a forward function and at most %d dimensions",
                FX_MAX_DIMS);
        return failed(FX_STATUS_ARGUMENT);
    }
    fxi_node **nodes = fxi_malloc(((size_t)n + 1) * sizeof *nodes);
    fx_status s = nodes ? FX_OK : fx_fail(FX_STATUS_MEMORY, name, "no memory");
    fx_device *device = NULL;
    for (int i = 0; i < n && s == FX_OK; i++) {
        s = usable(name, in[i]);
        if (s == FX_OK)
            s = same_device(name, in[0], in[i], &device);
        nodes[i] = s == FX_OK ? in[i]->node : NULL;
    }
    fx_attr a = {.i = {0}};
    a.custom = op;
    fx_array *y =
        s == FX_OK ? fxi_array_take(fxi_node_new(fxi_here(), FX_OP_CUSTOM, out_dtype,
                                                 (int)out_dims.n, out_dims.v, device, &a, n, nodes))
                   : failed(s);
    fxi_free(nodes);
    return y;
}
