/* reads.c: reads the elements of arrays into C memory, and moves arrays between devices. Every read
 * evaluates a pending array first.
 */
#include "elements.h"
#include "evaluate.h"
#include "handle.h"
#include "object_types.h"
#include "primitives.h"
#include "reads.h"

#include <cflux/device.h>
#include <math.h>
#include <string.h>

static fx_status ready(const char *op, fx_array *x)
{
    if (!x)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the array is NULL");
    if (x->base.type != &fxi_array_type)
        return fx_fail(FX_STATUS_ARGUMENT, op, "takes an array, got %s", x->base.type->name);
    if (x->status != FX_OK)
        return fxi_array_check(op, x);
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
        return fx_fail(FX_STATUS_SHAPE, "item", "expects an array of one element, got %s",
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
    if ((unsigned)dtype >= FX_DTYPE_COUNT)
        return fx_fail(FX_STATUS_ARGUMENT, "read", "%d is not an element type", (int)dtype);
    if (count != fx_length(x))
        return fx_fail(FX_STATUS_SHAPE, "read", "the array has %lld elements, the destination %lld",
                       (long long)fx_length(x), (long long)count);
    return fxi_elements_copy("read", x, dtype, dst);
}

fx_status fx_read_into(fx_array *x, void *dst, size_t bytes)
{
    const size_t size = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    if (fxi_has_node(x) && bytes != size)
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
    fxi_free(dense); /* another thread stored its copy first */
    return none;
}

/* A new evaluated array on `device` with the elements of x, converted to dtype. */
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
    return fxi_leaf_over(op, dtype, n->ndim, n->shape, b);
}

/* Moves an evaluated array now. The result keeps x as its history, so gradients flow back to a
 * parameter that is on another device than its use. */
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

/* Moves x to a device. A pending array is moved when it is evaluated. A value made only of literals
 * and generators is evaluated here first; a result on the CPU still belongs to no device, so it may
 * meet arrays of any device. */
static fx_array *array_to(fx_device *device, fx_array *x, bool alone)
{
    device = device ? device : fx_cpu_device();
    if (fxi_has_node(x) && x->node->device == device)
        return x;
    fx_status s = fxi_check_array("to", x);
    const bool anywhere = s == FX_OK && !x->node->device;
    if (s == FX_OK && !x->node->data && !anywhere)
        return fxi_transfer(device, x);
    s = s == FX_OK ? ready("to", x) : s;
    if (s != FX_OK)
        return fx_error_array(s);
    if (anywhere && device == fx_cpu_device() && fx_array_device(x) == device)
        return x;
    const bool past = !anywhere && x->node->nin > 0 && !x->node->history_cut;
    fx_array *y = fxi_is_float(x->node->dtype) && (past || !alone)
                      ? moved_now(device, x)
                      : copy_to("to", device, x, fx_eltype(x));
    if (y->node)
        y->node->weak = x->node->weak; /* the copy of a literal still does not widen other types */
    if (y->node && anywhere && device == fx_cpu_device()) {
        y->node->device = NULL;
        y->node->attr.transfer.unasked =
            y->node->op == FX_OP_TRANSFER; /* gradients ignore this move */
    }
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
    if (fxi_has_node(x) && x->node->data)
        fxi_buffer_give_up(x->node->data->buffer);
}

void fxi_array_cut(fx_array *x)
{
    if (!fxi_has_node(x) || !x->node->data || x->node->owner != fxi_here()->id)
        return;
    x->node->history_cut |= x->node->nin > 0;
    fxi_node_cut(x->node);
}

fx_status fx_copy_into(fx_array *dst, fx_array *src)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (!fx_is_array(dst))
        return fx_fail(FX_STATUS_ARGUMENT, "copy_into", "the destination must be an array, got %s",
                       fxi_type_name(dst));
    if (fx_is_error(dst))
        return fx_array_status(dst);
    const fx_status s = ready("copy_into", src);
    if (s != FX_OK)
        return s;
    const fxi_node *d = dst->node, *n = src->node;
    if (d->ndim != n->ndim || memcmp(d->shape, n->shape, (size_t)n->ndim * sizeof(int64_t)) != 0)
        return fx_fail(FX_STATUS_SHAPE, "copy_into", "sizes differ: %s into %s",
                       fxi_shape_text(n->ndim, n->shape, a), fxi_shape_text(d->ndim, d->shape, b));
    fx_array *copy = copy_to("copy_into", fx_array_device(dst), src, (fx_dtype)d->dtype);
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
