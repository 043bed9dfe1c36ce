/* collate.c: gathers observations into batches: see collate.h. In host memory, each array of a
 * batch is copied into a new block. On a device with its own memory a batch is gathered there, and
 * only the observation numbers are copied to it. */
#include "collate.h"
#include "lend.h"
#include "observations.h"

#include <cflux/backend.h>
#include <string.h>

static const char *const OP = "dataloader";

bool fxi_own_memory(const fx_device *device)
{
    return device->backend->read != NULL;
}

int64_t fxi_collation_total(const fxi_collation *c, int64_t k)
{
    const int64_t left = c->n - k * c->batchsize;
    return left < c->batchsize ? left : c->batchsize;
}

int64_t fxi_collation_size(const fxi_collation *c, int64_t k)
{
    const int64_t n = fxi_collation_total(c, k);
    return n < c->parts ? n : n / c->parts + (c->part < n % c->parts);
}

int64_t fxi_collation_start(const fxi_collation *c, int64_t k)
{
    const int64_t n = fxi_collation_total(c, k), rest = n % c->parts;
    const int64_t before =
        n < c->parts ? 0 : c->part * (n / c->parts) + (c->part < rest ? c->part : rest);
    return k * c->batchsize + before;
}

/* ---- the snapshot ---------------------------------------------------------------------------- */

/* Opens a leaf on its device if that has its own memory, else on the CPU. */
static fx_status open_source(fxi_source *s, fx_array *leaf, bool on_data_device)
{
    fx_device *home = fx_array_device(leaf);
    fx_array *x = fxi_own_memory(home) ? leaf : fx_array_to(fx_cpu_device(), leaf);
    if (fx_is_error(x))
        return fx_array_status(x);
    const int64_t n = fx_size(x, fx_ndims(x) - 1);
    s->leaf = leaf;
    s->array = fx_retain(x);
    s->to = on_data_device ? home : fx_array_device(x);
    s->obs_bytes = n ? (size_t)(fx_length(x) / n) * fx_dtype_size(fx_eltype(x)) : 0;
    if (fxi_own_memory(fx_array_device(x)))
        return FX_OK;
    s->bytes = fx_data(x);
    return s->bytes || fx_length(x) == 0 ? FX_OK : fx_error_status();
}

/* On a device with its own memory, a batch of consecutive observations is a slice, which shares
 * memory with the data. If batches must not share it, makes a list of positions: gathering by
 * positions copies. */
static fx_status open_order(fxi_collation *c)
{
    bool slices = false;
    for (int i = 0; i < c->nsources; i++)
        slices = slices || !c->sources[i].bytes;
    if (c->order || !c->own || !slices || c->n == 0)
        return FX_OK;
    c->order = fxi_calloc((size_t)c->n, sizeof *c->order);
    for (int64_t i = 0; c->order && i < c->n; i++)
        c->order[i] = i;
    return c->order
               ? FX_OK
               : fx_fail(FX_STATUS_MEMORY, OP, "out of memory for %lld positions", (long long)c->n);
}

static void count_leaf(void *leaf, void *io_count)
{
    (void)leaf;
    ++*(int *)io_count;
}

typedef struct opening {
    fxi_collation *c;
    bool on_data_device;
    int leaves;
    fx_status status;
} opening;

static void open_leaf(void *leaf, void *user)
{
    opening *o = user;
    if (o->c->nsources == o->leaves)
        o->status = fx_fail(FX_STATUS_MEMORY, OP, "out of memory");
    if (o->status == FX_OK)
        o->status = open_source(&o->c->sources[o->c->nsources++], leaf, o->on_data_device);
}

fx_status fxi_collation_open(fxi_collation *c, void *data, bool on_data_device)
{
    FXI_SCOPE;
    int64_t n;
    int leaves = 0;
    fx_status status = fx_eval(data);
    if (status != FX_OK)
        return status;
    void *copy = fx_snapshot(data);
    status = fxi_obs_check(OP, copy, &n);
    if (status != FX_OK)
        return status;
    if (n != c->data_n)
        return fx_fail(FX_STATUS_STATE, OP, "the data had %lld observations but now has %lld",
                       (long long)c->data_n, (long long)n);
    fxi_obs_each(copy, count_leaf, &leaves);
    c->data = fx_retain(copy);
    c->sources = fxi_calloc((size_t)leaves, sizeof *c->sources);
    if (!c->sources)
        return fx_fail(FX_STATUS_MEMORY, OP, "out of memory for a pass over %lld observations",
                       (long long)n);
    opening o = {.c = c, .on_data_device = on_data_device, .leaves = leaves};
    fxi_obs_each(copy, open_leaf, &o);
    return o.status == FX_OK ? open_order(c) : o.status;
}

void fxi_collation_close(fxi_collation *c)
{
    for (int i = 0; i < c->nsources; i++)
        fx_release(c->sources[i].array);
    fx_release(c->data);
    fxi_free(c->sources);
    fxi_free(c->order);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void gather_bytes(const fxi_source *src, const int64_t *order, int64_t start, int64_t count,
                         unsigned char *dst)
{
    if (!order) {
        memcpy(dst, src->bytes + (size_t)start * src->obs_bytes, (size_t)count * src->obs_bytes);
        return;
    }
    for (int64_t i = 0; i < count; i++, dst += src->obs_bytes)
        memcpy(dst, src->bytes + (size_t)order[start + i] * src->obs_bytes, src->obs_bytes);
}

static fx_array *from_host(const fxi_collation *c, const fxi_source *src, int64_t start,
                           int64_t count)
{
    const int axes = fx_ndims(src->array);
    int64_t sizes[FX_MAX_DIMS];
    for (int axis = 0; axis < axes; axis++)
        sizes[axis] = axis == axes - 1 ? count : fx_size(src->array, axis);
    const size_t bytes = (size_t)count * src->obs_bytes;
    unsigned char *block = fxi_lend_alloc(bytes);
    if (!block)
        return fx_error_array(fx_fail(FX_STATUS_MEMORY, OP,
                                      "out of memory for batch %lld: %zu bytes",
                                      (long long)(start / c->batchsize), bytes));
    if (bytes)
        gather_bytes(src, c->order, start, count, block);
    return fx_array_to(src->to, fxi_lend(fx_eltype(src->array), block, axes, sizes));
}

/* Copies the positions of a batch to the device, unless the previous copy, *io_copy, is on it. */
static fx_array *positions(const fxi_collation *c, int64_t start, int64_t count, fx_device *device,
                           fx_array **io_copy)
{
    if (!*io_copy || fx_array_device(*io_copy) != device)
        *io_copy = fx_array_to(device, fxi_from(FX_DTYPE_I64, c->order + start, 1, &count));
    return *io_copy;
}

static fx_array *on_device(const fxi_collation *c, const fxi_source *src, int64_t start,
                           int64_t count, fx_array **io_positions)
{
    const int axis = fx_ndims(src->array) - 1;
    if (!c->order)
        return fx_slice(src->array, axis, start, start + count);
    fx_device *device = fx_array_device(src->array);
    return fx_gather(src->array, positions(c, start, count, device, io_positions), axis);
}

typedef struct batch {
    const fxi_collation *c;
    int64_t start, count;
    fx_array *positions;
} batch;

static void *collate_leaf(void *leaf, void *user)
{
    batch *b = user;
    const fxi_source *src = b->c->sources, *end = src + b->c->nsources;
    while (src < end && src->leaf != leaf)
        src++;
    if (src == end)
        return NULL;
    fx_array *y = src->bytes || src->obs_bytes == 0
                      ? from_host(b->c, src, b->start, b->count)
                      : on_device(b->c, src, b->start, b->count, &b->positions);
    return fx_is_error(y) ? NULL : y;
}

void *fxi_collate(const fxi_collation *c, int64_t k)
{
    batch b = {.c = c, .start = fxi_collation_start(c, k), .count = fxi_collation_size(c, k)};
    void *items = fxi_obs_map(c->data, collate_leaf, &b);
    return fx_is_error(items) ? NULL : items;
}
