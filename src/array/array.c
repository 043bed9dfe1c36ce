/* array.c: handles: what an array is, creation from C memory and generators, reading. */
#include "context.h"
#include <cflux/backend.h>
#include "elements.h"
#include "host.h"
#include "pool.h"
#include "primitives.h"
#include "random.h"

#include <math.h>
#include <string.h>

const fx_type fxi_array_type = {
    .fxi_size = sizeof(fx_type), .name = "Array", .size = sizeof(fx_array)};

/* ---- what it is ------------------------------------------------------------------------------ */

/* C turns a void * into an fx_array * silently: it may be another object. */
static bool has_node(const fx_array *x)
{
    return x && x->base.type == &fxi_array_type && x->node;
}

int fx_ndims(const fx_array *x)
{
    return has_node(x) ? x->node->ndim : 0;
}

int64_t fx_size(const fx_array *x, int axis)
{
    if (!has_node(x))
        return 0;
    return axis >= 0 && axis < x->node->ndim ? x->node->shape[axis] : 1;
}

int64_t fx_length(const fx_array *x)
{
    return has_node(x) ? fxi_length(x->node->ndim, x->node->shape) : 0;
}

fx_dtype fx_eltype(const fx_array *x)
{
    return has_node(x) ? (fx_dtype)x->node->dtype : FX_DTYPE_F32;
}

/* A pending value made of nothing but generators is on no device yet: it is computed on the device
 * of what it meets, or on the CPU. */
fx_device *fx_array_device(const fx_array *x)
{
    return has_node(x) && x->node->device ? x->node->device : fx_cpu_device();
}

fx_status fx_array_status(const fx_array *x)
{
    return fx_is_array(x) ? x->status : FX_STATUS_ARGUMENT;
}
bool fx_is_evaluated(const fx_array *x)
{
    return has_node(x) && x->node->data;
}

bool fx_is_error(const void *object)
{
    const fx_object *o = object;
    if (!o || !o->type)
        return true;
    return o->type == &fxi_array_type ? ((const fx_array *)o)->status != FX_OK
                                      : o->type->error == o;
}

const char *fxi_shape_text(int ndim, const int64_t *shape, char buf[FXI_SHAPE_TEXT])
{
    if (ndim == 0)
        return strcpy(buf, "scalar");
    size_t n = 0;
    for (int i = 0; i < ndim && n < FXI_SHAPE_TEXT; i++)
        n += (size_t)snprintf(buf + n, FXI_SHAPE_TEXT - n, i ? "×%lld" : "%lld",
                              (long long)shape[i]);
    return buf;
}

/* ---- creation -------------------------------------------------------------------------------- */

fx_status fxi_check_dims(const char *op, fx_dtype dtype, int ndims, const int64_t *dims)
{
    if ((unsigned)dtype >= FX_DTYPE_COUNT)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%d is not an element type", (int)dtype);
    if (ndims < 0 || ndims > FX_MAX_DIMS)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%d dimensions; at most %d are possible", ndims,
                       FX_MAX_DIMS);
    int64_t n = (int64_t)fx_dtype_size(dtype);
    for (int i = 0; i < ndims; i++) {
        if (dims[i] < 0)
            return fx_fail(FX_STATUS_ARGUMENT, op, "size %lld of axis %d is negative",
                           (long long)dims[i], i);
        /* Those of an empty array too: strides are products of the sizes before them. */
        if (!fxi_mul_i64(n, dims[i] ? dims[i] : 1, &n) || n > INT64_MAX / 16)
            return fx_fail(FX_STATUS_ARGUMENT, op, "the sizes overflow");
    }
    return FX_OK;
}

static fx_array *leaf(const char *op, fx_dtype dtype, int ndims, const int64_t *dims, fxi_buffer *b)
{
    fxi_pool_name(b, dtype, ndims, dims);
    fxi_data *d = fxi_data_new(b, 0, ndims, dims, NULL);
    if (!d)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, op, "no memory for the array"));
    fxi_node *n =
        fxi_node_new(fxi_here(), FX_OP_LEAF, dtype, ndims, dims, d->buffer->device, NULL, 0, NULL);
    if (n)
        n->data = d;
    else
        fxi_data_free(d);
    return fxi_array_take(n);
}

fx_array *fxi_from(fx_dtype dtype, const void *data, int ndims, const int64_t *dims)
{
    fx_status s = fxi_check_dims("from", dtype, ndims, dims);
    if (s != FX_OK)
        return fx_error_array(s);
    const size_t bytes = (size_t)fxi_length(ndims, dims) * fx_dtype_size(dtype);
    if (bytes && !data)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "from", "the data pointer is NULL"));
    fxi_buffer *b;
    s = fxi_buffer_need("from", fx_cpu_device(), bytes, &b);
    if (s != FX_OK)
        return fx_error_array(s);
    if (bytes)
        memcpy(b->ptr, data, bytes);
    return leaf("from", dtype, ndims, dims, b);
}

fx_array *fxi_vector(int64_t n, const double *values)
{
    fxi_buffer *b;
    const fx_status s = fxi_buffer_need("vector", fx_cpu_device(), (size_t)n * sizeof(float), &b);
    if (s != FX_OK)
        return fx_error_array(s);
    for (int64_t i = 0; i < n; i++)
        ((float *)b->ptr)[i] = (float)values[i];
    return leaf("vector", FX_DTYPE_F32, 1, &n, b);
}

fx_array *fxi_borrow(fx_dtype dtype, const void *data, fx_release_fn release, void *user, int ndims,
                     const int64_t *dims)
{
    fx_status s = fxi_check_dims("borrow", dtype, ndims, dims);
    if (s == FX_OK && !data && fxi_length(ndims, dims) > 0)
        s = fx_fail(FX_STATUS_ARGUMENT, "borrow", "the data pointer is NULL");
    if (s == FX_OK && (uintptr_t)data % fx_dtype_size(dtype) != 0)
        s = fx_fail(FX_STATUS_ARGUMENT, "borrow", "the address is not one of a %s",
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
                      .bytes = (size_t)fxi_length(ndims, dims) * fx_dtype_size(dtype),
                      .release = release,
                      .user = user};
    return leaf("borrow", dtype, ndims, dims, b);
}

fx_array *fxi_from_c(fx_dtype dtype, const void *data, int ndims, const size_t *level_bytes)
{
    int64_t dims[FX_MAX_DIMS];
    for (int i = 0; i < ndims; i++) { /* level i of the C array is axis ndims−1−i */
        const size_t inner = i + 1 < ndims ? level_bytes[i + 1] : fx_dtype_size(dtype);
        dims[ndims - 1 - i] = (int64_t)(level_bytes[i] / inner);
    }
    return fxi_borrow(dtype, data, NULL, NULL, ndims, dims);
}

static fxi_node *constant(fx_dtype dtype, double value)
{
    const fx_attr a = {.number = value};
    return fxi_node_new(fxi_here(), FX_OP_CONST, dtype, 0, NULL, NULL, &a, 0, NULL);
}

fx_array *fx_scalar(double value)
{
    fxi_node *n = constant(FX_DTYPE_F32, value);
    if (n)
        n->weak = true;
    return fxi_array_take(n);
}

fx_array *fxi_full(fx_dtype dtype, double value, int ndims, const int64_t *dims)
{
    const fx_status s = fxi_check_dims("full", dtype, ndims, dims);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *x = fxi_array_take(constant(dtype, value));
    return ndims == 0 ? x : fxi_expand(x, ndims, dims);
}

fx_array *fxi_zeros_like(const fx_array *x)
{
    if (fx_is_error(x))
        return fx_error_array(fx_array_status(x));
    fx_array *y = fxi_full(fx_eltype(x), 0, x->node->ndim, x->node->shape);
    if (y->node) /* else it would be evaluated alone on the CPU */
        y->node->device = x->node->device;
    return y;
}

fx_array *fxi_iota(fx_dtype dtype, int axis, int ndims, const int64_t *dims)
{
    const fx_status s = fxi_check_dims("iota", dtype, ndims, dims);
    if (s != FX_OK)
        return fx_error_array(s);
    const fx_attr a = {.i = {axis}};
    return fxi_array_take(
        fxi_node_new(fxi_here(), FX_OP_IOTA, dtype, ndims, dims, NULL, &a, 0, NULL));
}

fx_array *fx_range_dtype(fx_dtype dtype, double start, double step, int64_t n)
{
    fx_array *i = fxi_iota(dtype, 0, 1, &n);
    if (!fxi_is_float((int)dtype))
        return fx_add(fx_mul(i, (int64_t)step), (int64_t)start);
    return fx_add(fx_mul(i, step), start);
}

fx_array *fxi_rand(fx_dtype dtype, int ndims, const int64_t *dims)
{
    const fx_status s = fxi_check_dims("rand", dtype, ndims, dims);
    if (s != FX_OK)
        return fx_error_array(s);
    if (!fxi_is_float((int)dtype)) {
        fx_fail(FX_STATUS_DTYPE, "rand", "takes floating-point types, got %s",
                fx_dtype_name(dtype));
        return fx_error_array(FX_STATUS_DTYPE);
    }
    fx_attr a = {.i = {0}};
    fxi_random_next(a.stream);
    const fx_dtype made = dtype == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    fx_array *x = fxi_array_take(
        fxi_node_new(fxi_here(), FX_OP_RANDOM, made, ndims, dims, NULL, &a, 0, NULL));
    if (made == dtype)
        return x;
    /* the largest value below 1 of the narrow type: rounding must not reach 1 */
    return fx_cast(fx_min(x, dtype == FX_DTYPE_F16 ? 0x1.ffcp-1 : 0x1.fep-1), dtype);
}

fx_array *fxi_randn(fx_dtype dtype, int ndims, const int64_t *dims)
{
    /* Box and Muller, 1958: √(−2 ln u)·cos 2πv with u in (0, 1]. */
    FXI_SCOPE;
    const fx_dtype made = dtype == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    fx_array *u = fx_sub(1, fxi_rand(fxi_is_float((int)dtype) ? made : dtype, ndims, dims));
    fx_array *v = fxi_rand(fxi_is_float((int)dtype) ? made : dtype, ndims, dims);
    fx_array *r = fx_sqrt(fx_mul(-2, fx_log(u)));
    return fx_keep(fx_cast(fx_mul(r, fx_cos(fx_mul(6.283185307179586, v))), dtype));
}

/* ---- reading --------------------------------------------------------------------------------- */

fx_status fx_eval(void *object)
{
    if (fx_is_array(object) || !object)
        return object ? fxi_evaluate_array(object)
                      : fx_fail(FX_STATUS_ARGUMENT, "eval", "there is no object");
    return fxi_evaluate_object(object);
}

static fx_status ready(const char *op, fx_array *x)
{
    if (!x)
        return fx_fail(FX_STATUS_ARGUMENT, op, "there is no array");
    if (x->base.type != &fxi_array_type)
        return fx_fail(FX_STATUS_ARGUMENT, op, "takes an array, got %s", x->base.type->name);
    if (x->status != FX_OK)
        return x->status;
    return fxi_evaluate_array(x);
}

fx_status fx_item_get(fx_array *x, double *out_value)
{
    *out_value = (double)NAN;
    const fx_status s = ready("item", x);
    if (s != FX_OK)
        return s;
    char t[FXI_SHAPE_TEXT];
    if (fx_length(x) != 1)
        return fx_fail(FX_STATUS_SHAPE, "item", "takes an array of one element, got %s",
                       fxi_shape_text(x->node->ndim, x->node->shape, t));
    return fxi_element_get("item", x, 0, out_value);
}

double fx_item(fx_array *x)
{
    double v;
    fx_item_get(x, &v);
    return v;
}

double fx_at(fx_array *x, int64_t i)
{
    if (ready("at", x) != FX_OK)
        return (double)NAN;
    const fxi_node *n = x->node;
    if (i < 0 || i >= fx_length(x)) {
        fx_fail(FX_STATUS_ARGUMENT, "at", "index %lld is outside 0 … %lld", (long long)i,
                (long long)fx_length(x) - 1);
        return (double)NAN;
    }
    int64_t offset = 0;
    for (int k = 0; k < n->ndim; k++) {
        offset += i % n->shape[k] * n->data->stride[k];
        i /= n->shape[k];
    }
    double v = (double)NAN;
    if (fxi_scalar_allowed("at", x))
        fxi_element_get("at", x, offset, &v);
    return v;
}

fx_status fx_read_as(fx_array *x, fx_dtype dtype, void *dst, int64_t count)
{
    const fx_status s = ready("read", x);
    if (s != FX_OK)
        return s;
    if (!dst && count > 0)
        return fx_fail(FX_STATUS_ARGUMENT, "read", "the destination is NULL");
    if (count != fx_length(x))
        return fx_fail(FX_STATUS_SHAPE, "read", "the array has %lld elements, the destination %lld",
                       (long long)fx_length(x), (long long)count);
    return fxi_elements_copy("read", x, dtype, dst);
}

fx_status fx_read_into(fx_array *x, void *dst, size_t bytes)
{
    const size_t size = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    if (has_node(x) && bytes != size)
        return fx_fail(FX_STATUS_SHAPE, "read", "the array has %zu bytes, the destination %zu",
                       size, bytes);
    return fx_read_as(x, fx_eltype(x), dst, fx_length(x));
}

fx_status fxi_read_pieces(fx_array *x, fxi_piece_fn take, void *user)
{
    const fx_status s = ready("read", x);
    return s == FX_OK ? fxi_elements_pieces("read", x, take, user) : s;
}

const void *fx_data(fx_array *x)
{
    if (ready("data", x) != FX_OK)
        return NULL;
    const fxi_node *n = x->node;
    fxi_data *d = n->data;
    __atomic_fetch_add(&d->buffer->pins, 1, __ATOMIC_RELAXED);
    if (fxi_is_dense(n->ndim, n->shape, d->stride) && fxi_on_host(x))
        return fxi_elements_here(x);
    void *dense = __atomic_load_n(&d->dense, __ATOMIC_ACQUIRE);
    if (dense)
        return dense;
    dense = fxi_malloc((size_t)fx_length(x) * fx_dtype_size(fx_eltype(x)));
    if (!dense) {
        fx_fail(FX_STATUS_MEMORY, "data", "no memory for a dense copy");
        return NULL;
    }
    if (fxi_elements_copy("data", x, fx_eltype(x), dense) != FX_OK) {
        fxi_free(dense);
        return NULL;
    }
    void *none = NULL;
    if (__atomic_compare_exchange_n(&d->dense, &none, dense, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return dense;
    fxi_free(dense); /* another thread was first */
    return none;
}

/* A new evaluated array on `device` with x's elements as dtype. */
static fx_array *copy_to(const char *op, fx_device *device, fx_array *x, fx_dtype dtype)
{
    const fxi_node *n = x->node;
    fxi_buffer *b;
    fx_status s = fxi_buffer_need(op, device ? device : fx_cpu_device(),
                                  (size_t)fx_length(x) * fx_dtype_size(dtype), &b);
    if (s != FX_OK)
        return fx_error_array(s);
    s = fxi_elements_move(op, x, dtype, b);
    if (s != FX_OK) {
        fxi_buffer_release(b);
        return fx_error_array(s);
    }
    return leaf(op, dtype, n->ndim, n->shape, b);
}

/* A move at once, which keeps x as its history: gradients flow back to a parameter that lives
 * elsewhere than it is used. */
static fx_array *moved_now(fx_device *device, fx_array *x)
{
    fx_status s;
    fxi_data *data = fxi_moved("to", x->node, device, &s);
    if (!data)
        return fx_error_array(s);
    fx_array *y = fxi_transfer(device, x);
    if (y->node)
        fxi_node_settle(y->node, data);
    else
        fxi_data_free(data);
    return y;
}

/* What is pending moves when it is needed; what is made of generators alone is made here first. */
static fx_array *array_to(fx_device *device, fx_array *x, bool alone)
{
    device = device ? device : fx_cpu_device();
    if (has_node(x) &&
        (x->node->device == device || (x->node->data && fx_array_device(x) == device)))
        return x;
    fx_status s = fxi_check_array("to", x);
    if (s == FX_OK && !x->node->data && !x->node->generated)
        return fxi_transfer(device, x);
    s = s == FX_OK ? ready("to", x) : s;
    if (s != FX_OK)
        return fx_error_array(s);
    if (fx_array_device(x) == device)
        return x;
    const bool past = !x->node->generated && x->node->nin > 0 && !x->node->history_cut;
    fx_array *y = fxi_is_float(x->node->dtype) && (past || !alone)
                      ? moved_now(device, x)
                      : copy_to("to", device, x, fx_eltype(x));
    if (y->node)
        y->node->weak = x->node->weak; /* a literal stays one */
    return y;
}

fx_array *fx_array_to(fx_device *device, fx_array *x)
{
    return array_to(device, x, false);
}

fx_array *fxi_array_to_alone(fx_device *device, fx_array *x)
{
    return array_to(device, x, true);
}

void fxi_array_give_up(fx_array *x)
{
    if (has_node(x) && x->node->data)
        fxi_buffer_give_up(x->node->data->buffer);
}

void fxi_array_cut(fx_array *x)
{
    if (!has_node(x) || !x->node->data || x->node->owner != fxi_here()->id)
        return;
    x->node->history_cut |= x->node->nin > 0;
    fxi_node_cut(x->node);
}

fx_status fx_copy_into(fx_array *dst, fx_array *src)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (!fx_is_array(dst))
        return fx_fail(FX_STATUS_ARGUMENT, "copy_into", "the destination is not an array");
    if (fx_is_error(dst))
        return fx_array_status(dst);
    const fx_status s = ready("copy_into", src);
    if (s != FX_OK)
        return s;
    const fxi_node *d = dst->node, *n = src->node;
    if (d->ndim != n->ndim || memcmp(d->shape, n->shape, (size_t)n->ndim * sizeof(int64_t)) != 0)
        return fx_fail(FX_STATUS_SHAPE, "copy_into", "sizes differ: %s into %s",
                       fxi_shape_text(n->ndim, n->shape, a), fxi_shape_text(d->ndim, d->shape, b));
    fx_array *copy = copy_to("copy_into", d->device, src, (fx_dtype)d->dtype);
    if (fx_is_error(copy))
        return copy->status;
    __atomic_store_n(&dst->node->rebound, dst, __ATOMIC_RELAXED);
    fxi_array_rebind(dst, copy->node);
    return FX_OK;
}

fx_array *fxi_array_snapshot(fx_array *x)
{
    if (fx_is_error(x))
        return x;
    const fx_status s = ready("snapshot", x);
    if (s != FX_OK)
        return fx_error_array(s);
    __atomic_fetch_add(&x->node->data->buffer->pins, 1, __ATOMIC_RELAXED);
    return fxi_array_of(x->node);
}
