/* creation.c: creates arrays from C memory, from numbers and from generators of random numbers. */
#include "composites.h"
#include "error.h"
#include "handle.h"
#include "own_gradient.h"
#include "pool.h"
#include "primitives.h"
#include "random.h"

#include <cflux/device.h>
#include <math.h>
#include <string.h>

fx_status fxi_check_sizes(const char *op, fx_dtype dtype, int ndims, const int64_t *sizes)
{
    if ((unsigned)dtype >= FX_DTYPE_COUNT)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%d is not an element type", (int)dtype);
    if (ndims < 0 || ndims > FX_MAX_DIMS)
        return fx_fail(FX_STATUS_ARGUMENT, op, "expected 0 to %d axes, got %d", FX_MAX_DIMS, ndims);
    const fx_status listed = fxi_check_list(op, "sizes", ndims, sizes);
    if (listed != FX_OK)
        return listed;
    for (int i = 0; i < ndims; i++)
        if (sizes[i] < 0)
            return fx_fail(FX_STATUS_ARGUMENT, op, "size %lld of axis %d is negative",
                           (long long)sizes[i], i);
    return fxi_sizes_fit(dtype, ndims, sizes) ? FX_OK : fxi_fail_sizes(op, dtype, ndims, sizes);
}

fx_array *fxi_leaf_over(const char *op, fx_dtype dtype, int ndims, const int64_t *sizes,
                        fxi_buffer *b)
{
    fxi_pool_name(b, dtype, ndims, sizes);
    fxi_data *d = fxi_data_new(b, 0, ndims, sizes, NULL);
    if (!d)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, op, "no memory for the array"));
    fxi_node *n =
        fxi_node_new(fxi_here(), FX_OP_LEAF, dtype, ndims, sizes, d->buffer->device, NULL, 0, NULL);
    if (n)
        n->data = d;
    else
        fxi_data_free(d);
    return fxi_array_take(n);
}

fx_array *fxi_from(fx_dtype dtype, const void *data, int ndims, const int64_t *sizes)
{
    fx_status s = fxi_check_sizes("from", dtype, ndims, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    const size_t bytes = (size_t)fxi_length(ndims, sizes) * fx_dtype_size(dtype);
    if (bytes && !data)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "from", "the data pointer is NULL"));
    fxi_buffer *b;
    s = fxi_buffer_need("from", fx_cpu_device(), bytes, &b);
    if (s != FX_OK)
        return fx_error_array(s);
    if (bytes)
        memcpy(b->ptr, data, bytes);
    return fxi_leaf_over("from", dtype, ndims, sizes, b);
}

fx_array *fxi_vector(int64_t n, const double *values)
{
    fxi_buffer *b;
    fx_status s = fxi_check_list("vector", "values", n, values);
    if (s == FX_OK)
        s = fxi_check_sizes("vector", FX_DTYPE_F32, 1, &n);
    if (s == FX_OK)
        s = fxi_buffer_need("vector", fx_cpu_device(), (size_t)n * sizeof(float), &b);
    if (s != FX_OK)
        return fx_error_array(s);
    for (int64_t i = 0; i < n; i++)
        ((float *)b->ptr)[i] = (float)values[i];
    return fxi_leaf_over("vector", FX_DTYPE_F32, 1, &n, b);
}

fx_array *fxi_borrow(fx_dtype dtype, const void *data, fx_release_fn release, void *user, int ndims,
                     const int64_t *sizes)
{
    fx_status s = fxi_check_sizes("borrow", dtype, ndims, sizes);
    if (s == FX_OK && !data && fxi_length(ndims, sizes) > 0)
        s = fx_fail(FX_STATUS_ARGUMENT, "borrow", "the data pointer is NULL");
    if (s == FX_OK && (uintptr_t)data % fx_dtype_size(dtype) != 0)
        s = fx_fail(FX_STATUS_ARGUMENT, "borrow", "the address is not aligned for %s",
                    fx_dtype_name(dtype));
    fxi_buffer *b = s == FX_OK ? fxi_calloc(1, sizeof *b) : NULL;
    if (!b) {
        if (release)
            release((void *)(uintptr_t)data, user);
        if (s == FX_OK)
            fx_fail(FX_STATUS_MEMORY, "borrow", "no memory for the array");
        return fx_error_array(s == FX_OK ? FX_STATUS_MEMORY : s);
    }
    *b = (fxi_buffer){.refs = 1,
                      .ptr = (void *)(uintptr_t)data,
                      .device = fx_cpu_device(),
                      .borrowed = true,
                      .bytes = (size_t)fxi_length(ndims, sizes) * fx_dtype_size(dtype),
                      .release = release,
                      .user = user};
    return fxi_leaf_over("borrow", dtype, ndims, sizes, b);
}

fx_array *fxi_from_c(fx_dtype dtype, const void *data, int ndims, const size_t *level_bytes)
{
    int64_t sizes[FX_MAX_DIMS];
    fx_status s = fxi_check_list("from_c", "sizes", ndims, level_bytes);
    if (s == FX_OK) /* before the loop, which needs an element type */
        s = fxi_check_sizes("from_c", dtype, ndims > FX_MAX_DIMS ? ndims : 0, NULL);
    if (s != FX_OK)
        return fx_error_array(s);
    for (int i = 0; i < ndims; i++) { /* level i of the C array is axis ndims−1−i */
        const size_t inner = i + 1 < ndims ? level_bytes[i + 1] : fx_dtype_size(dtype);
        sizes[ndims - 1 - i] = (int64_t)(level_bytes[i] / inner);
    }
    return fxi_borrow(dtype, data, NULL, NULL, ndims, sizes);
}

static fxi_node *constant(fx_dtype dtype, double value)
{
    const fx_attr a = {.literal = {.number = value}};
    return fxi_node_new(fxi_here(), FX_OP_CONST, dtype, 0, NULL, NULL, &a, 0, NULL);
}

fx_array *fx_scalar(double value)
{
    fxi_node *n = constant(FX_DTYPE_F32, value);
    if (n)
        n->weak = true;
    return fxi_array_take(n);
}

fx_array *fxi_full(fx_dtype dtype, double value, int ndims, const int64_t *sizes)
{
    const fx_status s = fxi_check_sizes("full", dtype, ndims, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *x = fxi_array_take(constant(dtype, value));
    return ndims == 0 ? x : fxi_expand(x, ndims, sizes);
}

fx_array *fx_zeros_like(const fx_array *x)
{
    if (fx_is_error(x))
        return fxi_pass_error("zeros_like", x);
    fx_array *y = fxi_full(fx_eltype(x), 0, x->node->ndim, x->node->shape);
    if (y->node) /* a literal alone has no device: it would be evaluated on the CPU */
        y->node->device = x->node->device;
    return y;
}

fx_array *fxi_iota(fx_dtype dtype, int axis, int ndims, const int64_t *sizes)
{
    const fx_status s = fxi_check_sizes("range", dtype, ndims, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    const fx_attr a = {.axis = axis};
    return fxi_array_take(
        fxi_node_new(fxi_here(), FX_OP_IOTA, dtype, ndims, sizes, NULL, &a, 0, NULL));
}

/* Truncates as fx_cast does: C leaves the conversion of NaN and of large numbers undefined. */
static int64_t whole(double x)
{
    if (isnan(x))
        return 0;
    return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

/* Bool cannot count, so the positions of its range are Int64, as the result is. */
fx_array *fx_range_dtype(fx_dtype dtype, double start, double step, int64_t n)
{
    fx_array *i = fxi_iota(dtype == FX_DTYPE_BOOL ? FX_DTYPE_I64 : dtype, 0, 1, &n);
    if (!fxi_is_float((int)dtype))
        return fx_add(fx_mul(i, whole(step)), whole(start));
    return fx_add(fx_mul(i, step), start);
}

static fx_array *drawn(const uint64_t stream[2], fx_dtype dtype, int ndims, const int64_t *sizes)
{
    fx_attr a = {.words = {0}};
    a.stream[0] = stream[0];
    a.stream[1] = stream[1];
    return fxi_array_take(
        fxi_node_new(fxi_here(), FX_OP_RANDOM, dtype, ndims, sizes, NULL, &a, 0, NULL));
}

fx_array *fxi_rand_of(const uint64_t stream[2], int ndims, const int64_t *sizes)
{
    const fx_status s = fxi_check_sizes("rand", FX_DTYPE_F32, ndims, sizes);
    return s == FX_OK ? drawn(stream, FX_DTYPE_F32, ndims, sizes) : fx_error_array(s);
}

fx_array *fxi_rand(fx_dtype dtype, int ndims, const int64_t *sizes)
{
    const fx_status s = fxi_check_sizes("rand", dtype, ndims, sizes);
    if (s != FX_OK)
        return fx_error_array(s);
    if (!fxi_is_float((int)dtype)) {
        fx_fail(FX_STATUS_DTYPE, "rand", "takes floating-point types, got %s",
                fx_dtype_name(dtype));
        return fx_error_array(FX_STATUS_DTYPE);
    }
    uint64_t stream[2];
    fxi_random_next(stream);
    const fx_dtype made = dtype == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    fx_array *x = drawn(stream, made, ndims, sizes);
    if (made == dtype)
        return x;
    /* the largest value below 1 of the narrow type: rounding must not reach 1 */
    return fx_cast(fx_min(x, dtype == FX_DTYPE_F16 ? 0x1.ffcp-1 : 0x1.fep-1), dtype);
}

fx_array *fxi_randn(fx_dtype dtype, int ndims, const int64_t *sizes)
{
    /* Box and Muller, 1958: √(−2 ln u)·cos 2πv with u in (0, 1]. */
    FXI_SCOPE;
    const fx_dtype made = dtype == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    fx_array *u = fx_sub(1, fxi_rand(fxi_is_float((int)dtype) ? made : dtype, ndims, sizes));
    fx_array *v = fxi_rand(fxi_is_float((int)dtype) ? made : dtype, ndims, sizes);
    fx_array *r = fx_sqrt(fx_mul(-2, fx_log(u)));
    return fx_keep(fx_cast(fx_mul(r, fx_cos(fx_mul(6.283185307179586, v))), dtype));
}
