/* average.c: the mean of gradients over the members of a communicator: of an update before a rule
 * sees them, and of an object's arrays (fxi_average_arrays).
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

/* Arrays of one type, on one device, for one communicator; each is replaced by its mean. */
typedef struct bucket {
    const fx_communicator *among;
    fx_device *device;
    fx_dtype type;
    int64_t bytes, n;
    double weight; /* of this member; negative: all have the same */
    fx_array ***arrays;
} bucket;

static fx_array *over_all(const fx_communicator *among, fx_reduce fold, fx_array *x)
{
    return fxi_collective(&(const fx_collective){.communicator = among,
                                                 .kind = FX_COLLECTIVE_ALL_REDUCE,
                                                 .fold = fold},
                          x);
}

/* 16-bit floats are added, and multiplied by a weight, as Float32. */
static fx_dtype sum_type(const bucket *b)
{
    return b->type == FX_DTYPE_F16 || b->type == FX_DTYPE_BF16 ? FX_DTYPE_F32 : b->type;
}

/* The term of a gradient in the sum. The gradient of no observations may be NaN, so its term is
 * zeros. */
static fx_array *weighted(const bucket *b, fx_array *g)
{
    fx_array *v = fx_vec(fx_cast(g, sum_type(b)));
    return b->weight < 0    ? v
           : b->weight == 0 ? fx_to(b->device, fx_zeros_like(v))
                            : fx_mul(v, b->weight);
}

/* The mean over all members. If there are weights, the last element of the sum is the sum of the
 * weights. */
static fx_array *mean_of(const bucket *b, fx_array *v)
{
    if (b->weight < 0)
        return over_all(b->among, FX_REDUCE_MEAN, v);
    fx_array *sum = over_all(b->among, FX_REDUCE_SUM, v);
    const int64_t n = fx_length(sum);
    /* Without any observation the mean is 0. */
    return fx_div(sum, fx_max(fx_slice(sum, 0, n - 1, n), 1e-30));
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
    fx_array **parts = fxi_malloc(((size_t)b->n + 2) * sizeof(fx_array *));
    if (!parts)
        return fxi_update_no_memory();
    int n = 0;
    for (int64_t i = 0; i < b->n; i++)
        parts[n++] = weighted(b, *b->arrays[i]);
    if (*io_flag)
        parts[n++] = fx_vec(fx_cast(fx_array_to(b->device, *io_flag), sum_type(b)));
    if (b->weight >= 0)
        parts[n++] = fx_array_to(b->device, fx_full_dtype(sum_type(b), b->weight, 1));
    fx_array *mean = mean_of(b, fxi_concat(0, n, parts));
    fxi_free(parts);
    int64_t at = 0;
    for (int64_t i = 0; i < b->n; i++)
        *b->arrays[i] = fx_cast(part_like(mean, *b->arrays[i], &at), b->type);
    if (*io_flag)
        *io_flag = fx_slice(mean, 0, at, at + 1);
    b->n = b->bytes = 0;
    return fx_is_error(mean) ? fx_array_status(mean) : FX_OK;
}

static bool belongs(const bucket *b, const fx_array *g, const fx_communicator *among)
{
    return b->n > 0 && b->bytes < BUCKET_BYTES && b->type == fx_eltype(g) &&
           b->device == fx_array_device(g) && b->among == among;
}

/* Puts an array into the bucket; sends the bucket first if the array does not belong to it. The
 * flag is sent with the first bucket: *out_sent is then its mean, and *io_flag NULL. */
static fx_status put(bucket *b, fx_array **array, const fx_communicator *among, fx_array **io_flag,
                     fx_array **out_sent)
{
    if (b->n > 0 && !belongs(b, *array, among)) {
        const fx_status status = send(b, io_flag);
        *out_sent = *out_sent ? *out_sent : *io_flag;
        *io_flag = NULL;
        if (status != FX_OK)
            return status;
    }
    b->among = among;
    b->device = fx_array_device(*array);
    b->type = fx_eltype(*array);
    b->bytes += fx_length(*array) * (int64_t)fx_dtype_size(b->type);
    b->arrays[b->n++] = array;
    return FX_OK;
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

/* Without observations, gradients that no distributed rule averages become zeros: fxi_update may
 * have passed the model in their place. */
static void drop_undistributed(fxi_items *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (!fxi_rule_among(s->all[i].leaf->rule))
            s->all[i].gradient = fx_zeros_like(s->all[i].gradient);
}

fx_status fxi_items_average(fxi_items *s, fx_array **io_guard, double observations)
{
    if (observations == 0)
        drop_undistributed(s);
    int64_t i = next_distributed(s, 0);
    if (i == s->n)
        return FX_OK;
    bucket b = {.weight = observations, .arrays = fxi_malloc((size_t)s->n * sizeof *b.arrays)};
    fx_array *flag = *io_guard ? flag_of(*io_guard) : NULL, *sent = NULL;
    fx_status status = b.arrays ? FX_OK : fxi_update_no_memory();
    for (; i < s->n && status == FX_OK; i = next_distributed(s, i + 1))
        status = put(&b, &s->all[i].gradient, fxi_rule_among(s->all[i].leaf->rule), &flag, &sent);
    if (status == FX_OK)
        status = send(&b, &flag);
    sent = sent ? sent : flag;
    if (*io_guard && status == FX_OK)
        *io_guard = sent;
    fxi_free(b.arrays);
    return status;
}

fx_status fxi_average_arrays(const fx_communicator *among, int64_t n, fx_array **io_arrays)
{
    bucket b = {.weight = -1, .arrays = fxi_malloc(((size_t)n + 1) * sizeof *b.arrays)};
    fx_array *flag = NULL, *sent = NULL;
    fx_status status = b.arrays ? FX_OK : fxi_update_no_memory();
    for (int64_t i = 0; i < n && status == FX_OK; i++)
        status = put(&b, &io_arrays[i], among, &flag, &sent);
    if (status == FX_OK && b.n > 0)
        status = send(&b, &flag);
    fxi_free(b.arrays);
    return status;
}
