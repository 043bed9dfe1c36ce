/* average.c: the mean of gradients over the members of a communicator, before a rule sees them.
 *
 * Gradients are joined into buckets, vectors of one element type on one device, because a
 * collective operation costs about as much for a small array as for 100 KB. The buckets are the
 * same for all members: they follow the order of the state, and an array without a gradient has
 * zeros (update_items.c). Everything here records nodes, so the means are part of the plan of the
 * update.
 */
#include "memory.h"
#include "primitives.h"
#include "update_items.h"

#include <math.h>

/* Larger buckets save hardly any calls, and each needs twice its size as work space. */
enum { BUCKET_BYTES = 25 << 20 };

/* Items first ≤ i < last that have gradients of one type, on one device, for one communicator. */
typedef struct bucket {
    const fx_communicator *among;
    fx_device *device;
    fx_dtype type;
    int64_t bytes, n;
    fxi_item **items;
} bucket;

static fx_array *mean_over(const fx_communicator *among, fx_array *x)
{
    return fxi_collective(&(const fx_collective){.communicator = among,
                                                 .kind = FX_COLLECTIVE_ALL_REDUCE,
                                                 .fold = FX_REDUCE_MEAN},
                          x);
}

/* The elements from *io_at on of a vector, with the sizes of x. */
static fx_array *part_like(fx_array *vector, const fx_array *x, int64_t *io_at)
{
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    const int64_t start = *io_at;
    *io_at += fx_length(x);
    return fxi_reshape(fx_slice(vector, 0, start, *io_at), fx_ndims(x), sizes);
}

/* Averages a bucket and empties it. The guard of the update travels as one more element. */
static fx_status send(bucket *b, fx_array **io_flag)
{
    fx_array **parts = fxi_malloc(((size_t)b->n + 1) * sizeof(fx_array *));
    if (!parts)
        return fxi_update_no_memory();
    int n = 0;
    for (int64_t i = 0; i < b->n; i++)
        parts[n++] = fx_vec(b->items[i]->gradient);
    if (*io_flag)
        parts[n++] = fx_vec(fx_cast(fx_array_to(b->device, *io_flag), b->type));
    fx_array *mean = mean_over(b->among, fxi_concat(0, n, parts));
    fxi_free(parts);
    int64_t at = 0;
    for (int64_t i = 0; i < b->n; i++)
        b->items[i]->gradient = part_like(mean, b->items[i]->gradient, &at);
    if (*io_flag)
        *io_flag = fx_slice(mean, 0, at, at + 1);
    b->n = b->bytes = 0;
    return fx_is_error(mean) ? fx_array_status(mean) : FX_OK;
}

static bool belongs(const bucket *b, const fxi_item *it)
{
    const fx_array *g = it->gradient;
    return b->n > 0 && b->bytes < BUCKET_BYTES && b->type == fx_eltype(g) &&
           b->device == fx_array_device(g) && b->among == fxi_rule_among(it->leaf->rule);
}

/* 0 if the guard is finite, otherwise NaN. The mean over all members is NaN if the flag of one
 * member is. */
static fx_array *flag_of(fx_array *guard)
{
    return fx_where(fx_all(fx_isfinite(fx_want(guard))), fx_scalar(0), fx_scalar(NAN));
}

/* The next item from i on that a distributed rule updates; s->n: none. */
static int64_t next_distributed(const fxi_items *s, int64_t i)
{
    while (i < s->n && !fxi_rule_among(s->all[i].leaf->rule))
        i++;
    return i;
}

fx_status fxi_items_average(fxi_items *s, fx_array **io_guard)
{
    int64_t i = next_distributed(s, 0);
    if (i == s->n)
        return FX_OK;
    bucket b = {.items = fxi_malloc((size_t)s->n * sizeof *b.items)};
    fx_array *flag = *io_guard ? flag_of(*io_guard) : NULL, *sent = NULL;
    fx_status status = b.items ? FX_OK : fxi_update_no_memory();
    for (; i < s->n && status == FX_OK; i = next_distributed(s, i + 1)) {
        fxi_item *it = &s->all[i];
        if (b.n > 0 && !belongs(&b, it)) {
            status = send(&b, &flag);
            sent = sent ? sent : flag;
            flag = NULL;
        }
        b.among = fxi_rule_among(it->leaf->rule);
        b.device = fx_array_device(it->gradient);
        b.type = fx_eltype(it->gradient);
        b.bytes += fx_length(it->gradient) * (int64_t)fx_dtype_size(b.type);
        b.items[b.n++] = it;
    }
    if (status == FX_OK)
        status = send(&b, &flag);
    sent = sent ? sent : flag;
    if (*io_guard && status == FX_OK)
        *io_guard = sent;
    fxi_free(b.items);
    return status;
}
