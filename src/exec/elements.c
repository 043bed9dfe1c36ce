/* elements.c: reads and copies the elements of evaluated arrays: to the host, to another device,
 * and one by one.
 */
#include "elements.h"
#include "counters.h"
#include "error.h"
#include "host.h"
#include "memory.h"
#include "pool.h"

#include <cflux/device.h>

/* The most bytes of a dense array that fxi_elements_pieces reads from a device at once, so a larger
 * array needs no more host memory. */
enum { PIECE = 4 << 20 };

static fx_status no_memory(const char *op, size_t bytes)
{
    return fx_fail(FX_STATUS_MEMORY, op, "no memory for %zu bytes", bytes);
}

/* The range of elements that n covers, relative to its first element: [*low, *high]. *low is
 * negative if a stride is. */
static void span(const fxi_node *n, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    for (int k = 0; k < n->ndim; k++) {
        const int64_t reach = (n->shape[k] - 1) * n->data->stride[k];
        *(reach < 0 ? low : high) += reach;
    }
}

fx_status fxi_elements_open(const char *op, const fx_array *x, fxi_elements *out)
{
    *out = (fxi_elements){.at = fxi_elements_here(x)};
    /* An empty array has no first element to read. */
    if (fxi_on_host(x) || fx_length(x) == 0)
        return FX_OK;
    int64_t low, high;
    span(x->node, &low, &high);
    const int64_t size = (int64_t)fx_dtype_size(fx_eltype(x));
    const size_t bytes = (size_t)((high - low + 1) * size);
    fx_device *device = x->node->data->buffer->device;
    /* One read of the whole range, because a read for each element would cost a transfer each. */
    out->copy = fxi_malloc(bytes);
    if (!out->copy)
        return no_memory(op, bytes);
    const fx_status s = device->backend->read(device, out->copy, out->at + low * size, bytes);
    /* The first element of x is not the first one copied if strides are negative. */
    out->at = out->copy - low * size;
    if (s != FX_OK)
        fxi_elements_close(out);
    return s;
}

void fxi_elements_close(fxi_elements *e)
{
    fxi_free(e->copy);
    e->copy = NULL;
}

fx_status fxi_element_get(const char *op, const fx_array *x, int64_t offset, double *out)
{
    (void)op;
    /* One element is read and not the range that x covers, which may be a large array. */
    const size_t size = fx_dtype_size(fx_eltype(x));
    const char *at = fxi_elements_here(x) + offset * (int64_t)size;
    fx_device *device = x->node->data->buffer->device;
    /* Large enough for every element type. */
    uint64_t element;
    if (!fxi_on_host(x)) {
        const fx_status s = device->backend->read(device, &element, at, size);
        if (s != FX_OK)
            return s;
        at = (const char *)&element;
    }
    *out = fxi_host_double(x->node->dtype, at);
    return FX_OK;
}

fx_status fxi_elements_copy(const char *op, const fx_array *x, fx_dtype dtype, void *dst)
{
    fxi_elements e;
    const fxi_node *n = x->node;
    const fx_status s = fxi_elements_open(op, x, &e);
    if (s != FX_OK)
        return s;
    fxi_host_copy(n->ndim, n->shape, n->dtype, e.at, n->data->stride, (int)dtype, dst);
    fxi_elements_close(&e);
    return FX_OK;
}

/* Copies dense memory of a device to a host buffer of at most PIECE bytes, piece by piece, and
 * passes each piece to `take`. */
static fx_status pieces_of_device(const char *op, const fx_array *x, size_t bytes,
                                  fxi_piece_fn take, void *user)
{
    fx_device *device = x->node->data->buffer->device;
    /* One small buffer for all pieces: a checkpoint of a large model must not need twice its
     * memory. */
    const char *at = fxi_elements_here(x);
    /* Small arrays must not allocate 4 MiB. */
    const size_t most = bytes < PIECE ? bytes : PIECE;
    char *buffer = fxi_malloc(most);
    if (!buffer)
        return no_memory(op, most);
    fx_status s = FX_OK;
    for (size_t done = 0, n; done < bytes && s == FX_OK; done += n) {
        n = bytes - done < PIECE ? bytes - done : PIECE;
        s = device->backend->read(device, buffer, at + done, n);
        if (s == FX_OK)
            s = take(buffer, n, user);
    }
    fxi_free(buffer);
    return s;
}

fx_status fxi_elements_pieces(const char *op, const fx_array *x, fxi_piece_fn take, void *user)
{
    const fxi_node *n = x->node;
    const size_t bytes = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    if (bytes == 0)
        return FX_OK;
    if (fxi_is_dense(n->ndim, n->shape, n->data->stride))
        return fxi_on_host(x) ? take(fxi_elements_here(x), bytes, user)
                              : pieces_of_device(op, x, bytes, take, user);
    /* A strided array is gathered on the host first. */
    void *dense = fxi_malloc(bytes);
    if (!dense)
        return no_memory(op, bytes);
    fx_status s = fxi_elements_copy(op, x, fx_eltype(x), dense);
    if (s == FX_OK)
        s = take(dense, bytes, user);
    fxi_free(dense);
    return s;
}

/* ---- to another device ----------------------------------------------------------------------- */

/* Work that is queued on `device` from now on starts only when `other` has finished the work that
 * is queued on it now. The host does not wait. FX_STATUS_UNSUPPORTED, not recorded: the two queues
 * cannot wait for each other, as with two OpenCL contexts. */
static fx_status follow(fx_device *device, fx_device *other)
{
    const fx_backend *backend = device->backend;
    /* One queue keeps its own order. A backend without marks orders the two queues in its `copy`.
     */
    if (device == other || !backend->mark)
        return FX_OK;
    const fx_error earlier = fxi_error_begin();
    void *mark = backend->mark(other);
    const fx_status failed = fxi_error_end(&earlier);
    if (!mark)
        return failed != FX_OK ? failed : FX_STATUS_DEVICE;
    const fx_status status = backend->wait(device, mark);
    backend->unmark(other, mark);
    return status;
}

/* Copies between two devices of one backend in the order of both queues. The target waits for the
 * source first, so the bytes are complete; the source waits for the target afterwards, so they are
 * not overwritten or freed too early. FX_STATUS_UNSUPPORTED, not recorded: the caller copies
 * through the host. */
static fx_status copy_direct(fxi_buffer *to, fx_device *from_device, const void *from, size_t bytes)
{
    const fx_backend *backend = to->device->backend;
    /* A backend copies only between its own devices. */
    if (backend != from_device->backend || !backend->copy)
        return FX_STATUS_UNSUPPORTED;
    fx_status status = follow(to->device, from_device);
    if (status == FX_OK)
        status = backend->copy(to->device, to->ptr, from_device, from, bytes);
    if (status != FX_OK)
        return status;
    status = follow(from_device, to->device);
    /* If the source's queue cannot wait for the copy, it could free or overwrite the bytes too
     * early, so the host waits here. */
    if (status != FX_OK && backend->sync)
        backend->sync(to->device);
    return status;
}

typedef struct target {
    fxi_buffer *to;
    size_t done;
} target;

/* Appends a piece to the target buffer. */
static fx_status write_piece(const void *bytes, size_t n, void *user)
{
    target *t = user;
    fx_device *device = t->to->device;
    const fx_status s = device->backend->write(device, (char *)t->to->ptr + t->done, bytes, n);
    /* Pieces arrive in order, so one position is enough. */
    t->done += n;
    return s;
}

static fx_status move(const char *op, const fx_array *x, fx_dtype dtype, fxi_buffer *to)
{
    const fx_backend *backend = to->device->backend;
    const size_t bytes = (size_t)fx_length(x) * fx_dtype_size(dtype);
    const bool as_it_is =
        fx_eltype(x) == dtype && fxi_is_dense(x->node->ndim, x->node->shape, x->node->data->stride);
    if (bytes == 0)
        return FX_OK;
    /* The target is host memory. */
    if (!backend->write)
        return fxi_elements_copy(op, x, dtype, to->ptr);
    /* Conversion and gathering of strides happen on the host; other arrays are copied as bytes. */
    if (as_it_is) {
        target t = {.to = to};
        const fx_status s =
            copy_direct(to, x->node->data->buffer->device, fxi_elements_here(x), bytes);
        return s == FX_STATUS_UNSUPPORTED ? fxi_elements_pieces(op, x, write_piece, &t) : s;
    }
    void *host = fxi_malloc(bytes);
    if (!host)
        return no_memory(op, bytes);
    fx_status s = fxi_elements_copy(op, x, dtype, host);
    if (s == FX_OK)
        s = backend->write(to->device, to->ptr, host, bytes);
    fxi_free(host);
    return s;
}

/* Counts as a transfer only if the device changes. */
fx_status fxi_elements_move(const char *op, const fx_array *x, fx_dtype dtype, fxi_buffer *to)
{
    const fx_status status = move(op, x, dtype, to);
    if (status == FX_OK && x->node->data->buffer->device != to->device) {
        fxi_count(&fxi_counters.transfers, 1);
        fxi_count(&fxi_counters.bytes_transferred, to->bytes);
    }
    return status;
}

/* The array on the stack is a view of the node for functions that take handles; no scope owns it.
 */
fxi_data *fxi_moved(const char *op, fxi_node *n, fx_device *device, fx_status *status)
{
    const fx_array x = {.base = {.type = &fxi_array_type}, .node = n};
    fxi_buffer *b;
    *status = fxi_buffer_need(op, device, (size_t)fx_length(&x) * fx_dtype_size(fx_eltype(&x)), &b);
    if (*status != FX_OK)
        return NULL;
    fxi_pool_name(b, fx_eltype(&x), n->ndim, n->shape);
    *status = fxi_elements_move(op, &x, fx_eltype(&x), b);
    if (*status == FX_OK) {
        fxi_data *d = fxi_data_new(b, 0, n->ndim, n->shape, NULL);
        if (!d)
            *status = fx_fail(FX_STATUS_MEMORY, op, "no memory for the array");
        return d;
    }
    fxi_buffer_release(b);
    return NULL;
}

/* ---- one by one ------------------------------------------------------------------------------ */

static int scalars; /* atomic; 0: allowed, warns once; 1: allowed; −1: an error */

void fx_allowscalar(bool allow)
{
    __atomic_store_n(&scalars, allow ? 1 : -1, __ATOMIC_RELAXED);
}

bool fxi_scalar_allowed(const char *op, const fx_array *x)
{
    static bool warned;
    static const char advice[] = "Such reads copy one element at a time and are slow. Use "
                                 "operations on whole arrays, or move "
                                 "the array to the host with fx_cpu";
    const int rule = __atomic_load_n(&scalars, __ATOMIC_RELAXED);
    /* Host memory is read in place, so single elements cost no transfer. */
    if (fxi_on_host(x) || rule > 0)
        return true;
    if (rule < 0)
        fx_fail(FX_STATUS_STATE, op,
                "Scalar indexing of an array on %s is disallowed. %s; "
                "fx_allowscalar(true) permits it",
                fx_device_name(fx_array_device(x)), advice);
    /* Atomic, so that only one of several threads prints the warning. */
    else if (!__atomic_test_and_set(&warned, __ATOMIC_RELAXED))
        fx_message(1, "Performing scalar indexing of an array on %s.\n%s.",
                   fx_device_name(fx_array_device(x)), advice);
    return rule == 0;
}
