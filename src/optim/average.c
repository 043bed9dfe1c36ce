/* average.c: means over the members of a communicator: of the gradients of an update, before a rule
 * sees them, and of the arrays of an object (fxi_average_arrays).
 *
 * Gradients are joined into buckets, vectors of one element type on one device, because a
 * collective operation costs about as much for a small array as for 100 KB. The buckets are the
 * same for all members: they follow the order of the state, and an array without a gradient has
 * zeros (update_items.c). Everything here records nodes, so the means are part of the plan of the
 * update.
 *
 * The buckets are filled from the end of the list, because the backward pass computes the gradients
 * of the last layers first. The plan begins to send a bucket when it is complete, and computes the
 * gradients of the next one meanwhile (plan/overlap.c). Only the last bucket is sent after the
 * backward pass. A bucket has about 1/SHARES of all bytes, within limits, so that the last one is
 * small.
 *
 * A sum of means is the mean of the sums. So while an AccumGrad adds up gradients, each member adds
 * up its own, and only the complete sum is averaged.
 */
#include "evaluate.h"
#include "memory.h"
#include "primitives.h"
#include "update_items.h"

#include <math.h>
#include <string.h>

/* Bytes. Smaller buckets would cost more time to begin than to send; larger ones save hardly any
 * calls, and each needs twice its size as work space. */
enum { LEAST_BYTES = 1 << 20, MOST_BYTES = 25 << 20, SHARES = 16 };

/* Arrays of one type, on one device, for one communicator; each is replaced by its mean. */
typedef struct bucket {
    const fx_communicator *among;
    fx_device *device;
    fx_dtype type;
    int64_t bytes, n;
    int64_t most;  /* a bucket with that many bytes is full */
    bool exact;    /* the arrays must not be rounded when they are sent */
    double weight; /* of this member; negative: all members have the same */
    fx_array ***arrays;
} bucket;

/* `inexact`: the number of elements at the start that are gradients, which may be rounded when they
 * are sent. */
static fx_array *over_all(const fx_communicator *among, fx_reduce fold, fx_array *x,
                          int64_t inexact)
{
    return fxi_collective(&(const fx_collective){.communicator = among,
                                                 .kind = FX_COLLECTIVE_ALL_REDUCE,
                                                 .fold = fold,
                                                 .inexact = inexact},
                          x);
}

/* 16-bit floats are added, and multiplied by a weight, as Float32. */
static fx_dtype sum_type(const bucket *b)
{
    return b->type == FX_DTYPE_F16 || b->type == FX_DTYPE_BF16 ? FX_DTYPE_F32 : b->type;
}

/* Gives an array of literals, which has no device, the device of the exchange. To move it there
 * would be an evaluation of its own. */
static fx_array *recorded_on(fx_device *device, fx_array *x)
{
    if (!fx_is_error(x) && !x->node->data && !x->node->device)
        x->node->device = device;
    return x;
}

/* The term of a gradient in the sum. The gradient of no observations may be NaN, so its term is
 * zeros. */
static fx_array *weighted(const bucket *b, fx_array *g)
{
    fx_array *v = fx_vec(fx_cast(g, sum_type(b)));
    return b->weight < 0    ? v
           : b->weight == 0 ? recorded_on(b->device, fx_zeros_like(v))
                            : fx_mul(v, b->weight);
}

/* The mean over all members. If there are weights, the last element of the sum is the sum of the
 * weights. */
static fx_array *mean_of(const bucket *b, fx_array *v)
{
    int64_t inexact = 0;
    for (int64_t i = 0; i < b->n && !b->exact; i++)
        inexact += fx_length(*b->arrays[i]);
    if (b->weight < 0)
        return over_all(b->among, FX_REDUCE_MEAN, v, inexact);
    fx_array *sum = over_all(b->among, FX_REDUCE_SUM, v, inexact);
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

/* Numbers that are averaged with the first bucket: the guard of the update, or the caller's. */
typedef struct extras {
    fx_array **all;
    int n;
    bool sent; /* they have been replaced by their means */
} extras;

static int64_t bytes_of(const fx_array *x)
{
    return fx_length(x) * (int64_t)fx_dtype_size(fx_eltype(x));
}

/* Moves the arrays that fill whole cache lines to the front. Their gradients can then be computed
 * inside the bucket, which saves copying them (plan/inside.c). After a bias of 10 numbers this is
 * not possible. False if the allocation fails. */
static bool put_whole_lines_first(bucket *b)
{
    const int64_t width = (int64_t)fx_dtype_size(sum_type(b));
    fx_array ***sorted = fxi_malloc(((size_t)b->n + 1) * sizeof *sorted);
    int64_t n = 0;
    if (!sorted)
        return false;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < b->n; i++)
            if ((fx_length(*b->arrays[i]) * width % FXI_ARENA_ALIGN == 0) == (pass == 0))
                sorted[n++] = b->arrays[i];
    memcpy(b->arrays, sorted, (size_t)n * sizeof *sorted);
    fxi_free(sorted);
    return true;
}

/* Averages a bucket and empties it. A bucket may have no arrays, only extra numbers. */
static fx_status send(bucket *b, extras *r)
{
    const int also = r->sent ? 0 : r->n;
    if (!put_whole_lines_first(b))
        return fxi_update_no_memory();
    fx_array **parts = fxi_malloc(((size_t)b->n + (size_t)also + 1) * sizeof(fx_array *));
    if (!parts)
        return fxi_update_no_memory();
    int n = 0;
    for (int64_t i = 0; i < b->n; i++)
        parts[n++] = weighted(b, *b->arrays[i]);
    for (int i = 0; i < also; i++)
        parts[n++] = fx_vec(fx_cast(fx_array_to(b->device, r->all[i]), sum_type(b)));
    if (b->weight >= 0)
        parts[n++] = recorded_on(b->device, fx_full_dtype(sum_type(b), b->weight, 1));
    fx_array *mean = mean_of(b, fxi_concat(0, n, parts));
    fxi_free(parts);
    int64_t at = 0;
    for (int64_t i = 0; i < b->n; i++)
        *b->arrays[i] = fx_cast(part_like(mean, *b->arrays[i], &at), b->type);
    for (int i = 0; i < also; i++)
        r->all[i] = part_like(mean, r->all[i], &at);
    r->sent = true;
    b->n = b->bytes = 0;
    return fx_is_error(mean) ? fx_array_status(mean) : FX_OK;
}

static bool belongs(const bucket *b, const fx_array *g, const fx_communicator *among, double weight)
{
    return b->n > 0 && b->bytes < b->most && b->type == fx_eltype(g) &&
           b->device == fx_array_device(g) && b->among == among && (b->weight < 0) == (weight < 0);
}

static int64_t full_at(int64_t all_bytes)
{
    const int64_t share = all_bytes / SHARES;
    return share < LEAST_BYTES ? LEAST_BYTES : share > MOST_BYTES ? MOST_BYTES : share;
}

/* Puts an array into the bucket; sends the bucket first if the array does not belong to it. */
static fx_status put(bucket *b, fx_array **array, const fx_communicator *among, double weight,
                     extras *r)
{
    if (b->n > 0 && !belongs(b, *array, among, weight)) {
        const fx_status status = send(b, r);
        if (status != FX_OK)
            return status;
    }
    b->among = among;
    b->weight = weight;
    b->device = fx_array_device(*array);
    b->type = fx_eltype(*array);
    b->bytes += bytes_of(*array);
    b->arrays[b->n++] = array;
    return FX_OK;
}

/* Sends the rest: arrays, or extra numbers for which no bucket was sent. */
static fx_status finish(bucket *b, extras *r)
{
    if (b->n == 0 && (r->n == 0 || r->sent))
        return FX_OK;
    if (b->n == 0) {
        b->weight = -1;
        b->type = fx_eltype(r->all[0]);
        b->device = fx_array_device(r->all[0]);
    }
    return send(b, r);
}

/* ---- sums of AccumGrad ----------------------------------------------------------------------- */

/* The factor by which this member multiplies its gradients, so that the plain mean over the members
 * is the weighted mean. Computing it takes one small collective operation. */
typedef struct share {
    double weight; /* negative: all members have the same */
    const fx_communicator *among;
    fx_device *device;
    fx_dtype type;    /* Float32, or Float64 for sums in Float64 */
    fx_array *factor; /* NULL: not known yet */
} share;

static fx_array *factor_of(share *f, const fx_communicator *among, fx_device *device, fx_dtype type)
{
    type = type == FX_DTYPE_F64 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    if (f->factor && f->among == among && f->device == device && f->type == type)
        return f->factor;
    fx_array *mine = recorded_on(device, fx_full_dtype(type, f->weight, 1));
    fx_array *sum = over_all(among, FX_REDUCE_SUM, mine, 0);
    f->among = among;
    f->device = device;
    f->type = type;
    f->factor = fx_div(f->weight * among->size, fx_max(sum, 1e-30));
    return f->factor;
}

/* This member's term of the sum of an AccumGrad, in the type of the sum. */
static fx_array *term_of(share *f, const fxi_item *it, const fx_communicator *among, fx_dtype type)
{
    fx_array *g = fx_cast(it->gradient, type);
    if (f->weight < 0)
        return g;
    fx_array *factor = factor_of(f, among, fx_array_device(g), type);
    /* The gradient of no observations may be NaN. */
    return f->weight == 0 ? recorded_on(fx_array_device(g), fx_zeros_like(g))
                          : fx_mul(g, fx_cast(factor, type));
}

/* Is the gradient only a part of a sum that each member adds up? Then it becomes this member's
 * term; with the final part it becomes the complete sum of this member, which is to be averaged. */
static bool only_added(share *f, fxi_item *it, const fx_communicator *among)
{
    const int at = fxi_leaf_sum(it->leaf);
    const double k = it->leaf->numbers[0];
    const fx_rule *r = at < 0 ? NULL : fxi_rule_accumulates(it->leaf->rule);
    if (!r || (r->n <= 1 && k <= 1))
        return false;
    fx_array *sum = it->leaf->states.items[at];
    it->gradient = term_of(f, it, among, fx_eltype(sum));
    if (k < (double)r->n)
        return true;
    fx_array *part = fx_div(it->gradient, (double)r->n);
    it->gradient = k <= 1 ? part : fx_add(sum, part);
    it->total = true;
    return false;
}

/* ---- the gradients of an update -------------------------------------------------------------- */

/* 0 if the guard is finite, otherwise NaN. The mean over all members is NaN if the flag of one
 * member is. */
static fx_array *flag_of(fx_array *guard)
{
    return fx_where(fx_all(fx_isfinite(fx_want(guard))), fx_scalar(0), fx_scalar(NAN));
}

/* The nearest item before item i whose gradient is averaged; −1: none. */
static int64_t previous_distributed(const fxi_items *s, int64_t i)
{
    const fx_rule *none = NULL; /* a rule that averages nothing; most items have the same rule */
    for (i--; i >= 0; i--) {
        const fxi_state_leaf *l = s->all[i].leaf;
        if (l->rule == none)
            continue;
        if (fxi_items_among(s, l))
            break;
        none = l->rule;
    }
    return i;
}

/* The bytes of all gradients that are averaged. */
static int64_t distributed_bytes(const fxi_items *s)
{
    int64_t sum = 0;
    for (int64_t i = previous_distributed(s, s->n); i >= 0; i = previous_distributed(s, i))
        sum += bytes_of(s->all[i].gradient);
    return sum;
}

/* Without observations, gradients that no distributed rule averages become zeros: fxi_update may
 * have passed the model in their place. */
static void drop_undistributed(fxi_items *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (!fxi_items_among(s, s->all[i].leaf))
            s->all[i].gradient = fx_zeros_like(s->all[i].gradient);
}

fx_status fxi_items_average(fxi_items *s, fx_array **io_guard, double observations)
{
    if (observations == 0)
        drop_undistributed(s);
    int64_t i = previous_distributed(s, s->n);
    if (i < 0 && s->nmeans == 0)
        return FX_OK;
    bucket b = {.among = i >= 0 ? fxi_items_among(s, s->all[i].leaf) : s->among,
                .most = full_at(distributed_bytes(s)),
                .arrays = fxi_malloc(((size_t)s->n + 1) * sizeof *b.arrays)};
    fx_array *flag = *io_guard ? flag_of(*io_guard) : NULL;
    extras r = {.all = s->nmeans ? s->means : &flag, .n = s->nmeans ? s->nmeans : flag != NULL};
    share f = {.weight = observations};
    fx_status status = b.arrays ? FX_OK : fxi_update_no_memory();
    if (status == FX_OK)
        status = fxi_run_previous_collective(i >= 0 ? s->all[i].gradient : s->means[0]);
    for (; i >= 0 && status == FX_OK; i = previous_distributed(s, i)) {
        fxi_item *it = &s->all[i];
        const fx_communicator *among = fxi_items_among(s, it->leaf);
        if (!only_added(&f, it, among))
            status = put(&b, &it->gradient, among, it->total ? -1 : observations, &r);
    }
    if (status == FX_OK)
        status = finish(&b, &r);
    if (status == FX_OK && r.n > 0)
        *io_guard = r.all[0];
    fxi_free(b.arrays);
    return status;
}

fx_status fxi_average_arrays(const fx_communicator *among, int64_t n, fx_array **io_arrays)
{
    int64_t all = 0;
    for (int64_t i = 0; i < n; i++)
        all += bytes_of(io_arrays[i]);
    bucket b = {.exact = true,
                .most = full_at(all),
                .arrays = fxi_malloc(((size_t)n + 1) * sizeof *b.arrays)};
    extras none = {.n = 0};
    fx_status status = b.arrays ? FX_OK : fxi_update_no_memory();
    if (status == FX_OK && n > 0)
        status = fxi_run_previous_collective(io_arrays[n - 1]);
    for (int64_t i = n - 1; i >= 0 && status == FX_OK; i--)
        status = put(&b, &io_arrays[i], among, -1, &none);
    if (status == FX_OK)
        status = finish(&b, &none);
    fxi_free(b.arrays);
    return status;
}
