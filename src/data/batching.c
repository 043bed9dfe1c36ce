/* batching.c: batches and parts of arrays, and array helpers (MLUtils), written with the operations
 * of ops.h. Only fx_topk reads its argument. */
#include "observations.h"

#include <cflux/mlutils.h>
#include <math.h>
#include <stdlib.h>

#include "error.h"
#include "memory.h"
#include "object_types.h"

/* ---- batches --------------------------------------------------------------------------------- */

static bool is_list(const void *x)
{
    return x && !fx_is_array(x) && fx_type_of(x) && (fx_type_of(x)->flags & FX_TYPE_TUPLE);
}

/* The items of a tuple as an array of pointers, which fxi_free frees; NULL after a recorded
 * error. */
static void **items_of(const char *op, void *list)
{
    if (!is_list(list) || fx_count(list) < 1 || fx_count(list) > INT32_MAX) {
        fx_fail(FX_STATUS_ARGUMENT, op, "expected a tuple with at least one item, got %s",
                is_list(list) ? "an empty one" : fxi_type_name(list));
        return NULL;
    }
    void **items = fxi_calloc((size_t)fx_count(list), sizeof *items);
    for (int64_t i = 0; items && i < fx_count(list); i++)
        items[i] = fx_child(list, i);
    if (!items)
        fx_fail(FX_STATUS_MEMORY, op, "out of memory");
    return items;
}

void *fx_batchobs(void *observations)
{
    void **items = items_of("batchobs", observations);
    if (!items)
        return fx_error_array(fx_error_status());
    void *y = fxi_obs_joined((int)fx_count(observations), items, false);
    fxi_free(items);
    return y;
}

/* A tuple of n items made by make(user, i). */
static void *tuple_of(const char *op, int64_t n, void *(*make)(const void *user, int64_t i),
                      const void *user)
{
    void **items = fxi_calloc((size_t)n + 1, sizeof *items);
    if (!items)
        return fxi_obs_memory(op);
    for (int64_t i = 0; i < n; i++)
        items[i] = make(user, i);
    void *y = fxi_tuple((int)n, items);
    fxi_free(items);
    return y;
}

static void *one_of(const void *data, int64_t i)
{
    return fxi_obs_one((void *)(uintptr_t)data, i);
}

void *fx_unbatch(void *data)
{
    int64_t n;
    const fx_status failed = fxi_obs_check("unbatch", data, &n);
    return failed == FX_OK ? tuple_of("unbatch", n, one_of, data) : fx_error_array(failed);
}

fx_array *fx_batch_sequence(void *sequences, double pad)
{
    void **items = items_of("batch_sequence", sequences);
    if (!items)
        return fx_error_array(fx_error_status());
    const int n = (int)fx_count(sequences);
    int64_t longest = 0, length;
    fx_status failed = FX_OK;
    for (int i = 0; i < n && failed == FX_OK; i++) {
        failed = items[i] && fx_is_array(items[i])
                     ? fxi_obs_check("batch_sequence", items[i], &length)
                     : fx_fail(FX_STATUS_ARGUMENT, "batch_sequence", "item %d is not an array", i);
        longest = failed == FX_OK && length > longest ? length : longest;
    }
    for (int i = 0; i < n && failed == FX_OK; i++) {
        const int time = fx_ndims(items[i]) - 1;
        items[i] = fx_pad(items[i], time, 0, longest - fx_size(items[i], time), pad);
    }
    fx_array *y = failed == FX_OK ? fxi_obs_joined(n, items, false) : fx_error_array(failed);
    fxi_free(items);
    return y;
}

void *fx_batchseq(void *sequences, double pad)
{
    FXI_OPERATION("batchseq");
    fx_array *all = fx_batch_sequence(sequences, pad);
    return fx_is_error(all) ? (void *)all : fx_unstack(all, fx_ndims(all) - 2);
}

/* ---- parts of arrays ------------------------------------------------------------------------- */

typedef struct parts {
    fx_array *x;
    int axis;
    int64_t size;
    bool drop; /* remove the axis */
} parts;

static void *part_of(const void *user, int64_t i)
{
    const parts *p = user;
    const int64_t n = fx_size(p->x, p->axis), start = i * p->size,
                  stop = start + p->size < n ? start + p->size : n;
    fx_array *y = fx_slice(p->x, p->axis, start, stop);
    return p->drop ? fx_squeeze(y, fx_axes_of(1, &(int64_t){p->axis})) : y;
}

static fx_status check_axis(const char *op, const fx_array *x, int axis)
{
    if (!x)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the array is NULL");
    if (fx_is_error(x))
        return fx_array_status(x);
    if (axis >= 0 && axis < fx_ndims(x))
        return FX_OK;
    char got[100];
    fx_summary((void *)(uintptr_t)x, got, sizeof got);
    return fx_fail(FX_STATUS_ARGUMENT, op, "there is no axis %d: the array is a %s", axis, got);
}

static void *divide(const char *op, fx_array *x, int axis, int64_t size, bool drop)
{
    const parts p = {.x = x, .axis = axis, .size = size, .drop = drop};
    const int64_t n = fx_size(x, axis);
    return tuple_of(op, n / size + (n % size != 0), part_of, &p);
}

void *fx_unstack(fx_array *x, int axis)
{
    const fx_status failed = check_axis("unstack", x, axis);
    return failed == FX_OK ? divide("unstack", x, axis, 1, true) : fx_error_array(failed);
}

void *fx_chunk_size(fx_array *x, int64_t size, int axis)
{
    fx_status failed = check_axis("chunk_size", x, axis);
    if (failed == FX_OK && size < 1)
        failed = fx_fail(FX_STATUS_ARGUMENT, "chunk_size",
                         "size is %lld, expected a positive number", (long long)size);
    return failed == FX_OK ? divide("chunk_size", x, axis, size, false) : fx_error_array(failed);
}

void *fx_chunk(fx_array *x, int64_t n, int axis)
{
    fx_status failed = check_axis("chunk", x, axis);
    if (failed == FX_OK && n < 1)
        failed = fx_fail(FX_STATUS_ARGUMENT, "chunk", "n is %lld, expected a positive number",
                         (long long)n);
    if (failed != FX_OK)
        return fx_error_array(failed);
    const int64_t size = fx_size(x, axis) / n + (fx_size(x, axis) % n != 0);
    return divide("chunk", x, axis, size > 0 ? size : 1, false);
}

fx_array *fx_rpad_constant(fx_array *x, int64_t n, double value, fx_axes dims)
{
    if (!x || fx_is_error(x))
        return x ? x
                 : fx_error_array(
                       fx_fail(FX_STATUS_ARGUMENT, "rpad_constant", "the array is NULL"));
    const bool all = dims.bits & FX_ALL.bits;
    const unsigned have = (1u << fx_ndims(x)) - 1;
    if (!all && (dims.bits & ~have))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "rpad_constant",
                                      "dims has an axis that the array does not have"));
    for (int axis = 0; axis < fx_ndims(x); axis++)
        if ((all || (dims.bits >> axis & 1)) && fx_size(x, axis) < n)
            x = fx_pad(x, axis, 0, n - fx_size(x, axis), value);
    return x;
}

/* ---- arrays like another --------------------------------------------------------------------- */

static fx_array *bools_like(const fx_array *x)
{
    return fx_cast(fx_zeros_like(x), FX_DTYPE_BOOL);
}

fx_array *fx_full_like(const fx_array *x, double value)
{
    FXI_OPERATION("full_like");
    fx_array *zeros = fx_zeros_like(x);
    return fx_is_error(zeros)
               ? zeros
               : fx_cast(fx_add(zeros, fxi_full(fx_eltype(x), value, 0, NULL)), fx_eltype(x));
}

fx_array *fx_ones_like(const fx_array *x)
{
    FXI_OPERATION("ones_like");
    return fx_full_like(x, 1);
}

fx_array *fx_falses_like(const fx_array *x)
{
    FXI_OPERATION("falses_like");
    return bools_like(x);
}

fx_array *fx_trues_like(const fx_array *x)
{
    FXI_OPERATION("trues_like");
    return fx_not(bools_like(x));
}

/* Adding zeros that are on x's device moves the numbers there. */
static fx_array *random_like(fx_array *(*draw)(fx_dtype, int, const int64_t *), const fx_array *x)
{
    fx_array *zeros = fx_zeros_like(x);
    if (fx_is_error(zeros))
        return zeros;
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    const fx_dtype t = fx_eltype(x);
    const bool real =
        t == FX_DTYPE_F32 || t == FX_DTYPE_F64 || t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
    fx_array *y = draw(real ? t : FX_DTYPE_F32, fx_ndims(x), sizes);
    return fx_add(y, fx_cast(zeros, fx_eltype(y)));
}

fx_array *fx_rand_like(const fx_array *x)
{
    FXI_OPERATION("rand_like");
    return random_like(fxi_rand, x);
}

fx_array *fx_randn_like(const fx_array *x)
{
    FXI_OPERATION("randn_like");
    return random_like(fxi_randn, x);
}

/* ---- values ---------------------------------------------------------------------------------- */

fx_array *fx_rescale(fx_array *x, fx_axes dims, double eps)
{
    FXI_OPERATION("rescale");
    fx_array *least = fx_minimum(x, .dims = dims), *most = fx_maximum(x, .dims = dims);
    return fx_div(fx_sub(x, least), fx_add(fx_sub(most, least), eps));
}

/* Int64 numbers are compared as integers, because a double cannot represent all of them. */
typedef struct ranked {
    double value;
    int64_t whole, index;
} ranked;

/* Larger first, NaN before all numbers, equal ones by index. */
static int descending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    const int nans = (isnan(y->value) != 0) - (isnan(x->value) != 0); /* MinGW's isnan returns -1 */
    const int order = (x->value < y->value) - (x->value > y->value) + (x->whole < y->whole) -
                      (x->whole > y->whole);
    return nans ? nans : order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Indices of the k largest numbers of each line along the axis; `inner` is the distance between two
 * numbers of a line. */
static void rank_lines(const void *x, bool whole, int64_t inner, int64_t n, int64_t outer,
                       int64_t k, ranked *line, int64_t *out)
{
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            for (int64_t j = 0; j < n; j++) {
                const int64_t at = (o * n + j) * inner + i;
                line[j] = (ranked){whole ? 0 : ((const double *)x)[at],
                                   whole ? ((const int64_t *)x)[at] : 0, j};
            }
            qsort(line, (size_t)n, sizeof *line, descending);
            for (int64_t j = 0; j < k; j++)
                out[(o * k + j) * inner + i] = line[j].index;
        }
}

void *fx_topk(fx_array *x, int64_t k, int axis)
{
    fx_status status = check_axis("topk", x, axis);
    if (status == FX_OK && (k < 0 || k > fx_size(x, axis)))
        status = fx_fail(FX_STATUS_ARGUMENT, "topk", "k is %lld, expected 0 to %lld", (long long)k,
                         (long long)fx_size(x, axis));
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t n = fx_size(x, axis), length = fx_length(x);
    int64_t sizes[FX_MAX_DIMS], inner = 1, outer = 1;
    for (int i = 0; i < fx_ndims(x); i++) {
        sizes[i] = i == axis ? k : fx_size(x, i);
        inner *= i < axis ? sizes[i] : 1;
        outer *= i > axis ? sizes[i] : 1;
    }
    const bool whole = fx_eltype(x) == FX_DTYPE_I64;
    void *values = fxi_calloc((size_t)length + 1, whole ? sizeof(int64_t) : sizeof(double));
    ranked *line = fxi_calloc((size_t)n + 1, sizeof *line);
    int64_t *found = fxi_calloc((size_t)(inner * outer * k) + 1, sizeof *found);
    status = values && line && found
                 ? fx_read_as(x, whole ? FX_DTYPE_I64 : FX_DTYPE_F64, values, length)
                 : fx_fail(FX_STATUS_MEMORY, "topk", "out of memory");
    if (status == FX_OK)
        rank_lines(values, whole, inner, n, outer, k, line, found);
    fx_array *idx = status == FX_OK ? fxi_from(FX_DTYPE_I64, found, fx_ndims(x), sizes)
                                    : fx_error_array(status);
    fxi_free(values);
    fxi_free(line);
    fxi_free(found);
    idx = status == FX_OK ? fx_array_to(fx_array_device(x), idx) : idx;
    return status == FX_OK ? fx_tuple(fx_gather_elements(x, idx, axis), idx) : (void *)idx;
}

/* Σ over axis 0 of the comparison of every element of a with every element of v; the result has the
 * sizes of v. */
static fx_array *count_below(const char *op, fx_array *a, fx_array *v, bool or_equal)
{
    if (!a || !v || fx_is_error(a) || fx_is_error(v))
        return fx_error_array(a && v ? fx_is_error(a) ? fx_array_status(a) : fx_array_status(v)
                                     : fx_fail(FX_STATUS_ARGUMENT, op, "an array is NULL"));
    const bool vector = fx_ndims(a) == 1;
    if (!vector && (fx_ndims(a) != 2 || fx_ndims(v) != 2 || fx_size(a, 1) != fx_size(v, 1))) {
        char one[100], other[100];
        fx_summary(a, one, sizeof one);
        fx_summary(v, other, sizeof other);
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, op,
                                      "expected a vector and an array, or two matrices with equal "
                                      "numbers of columns, got a %s and a %s",
                                      one, other));
    }
    fx_array *left = vector ? a : fx_unsqueeze(a, 1), *right = fx_unsqueeze(v, 0);
    fx_array *below = or_equal ? fx_le(left, right) : fx_lt(left, right);
    return fx_sum(below, .dims = FX_AXES(0), .drop = true);
}

fx_array *fx_batched_searchsortedfirst(fx_array *a, fx_array *v)
{
    return count_below("batched_searchsortedfirst", a, v, false);
}

fx_array *fx_batched_searchsortedlast(fx_array *a, fx_array *v)
{
    return fx_sub(count_below("batched_searchsortedlast", a, v, true), 1);
}

fx_array *fx_obsdim(fx_array *x, int axis)
{
    const fx_status failed = check_axis("obsdim", x, axis);
    if (failed != FX_OK)
        return fx_error_array(failed);
    int64_t perm[FX_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < fx_ndims(x); i++)
        if (i != axis)
            perm[n++] = i;
    perm[n++] = axis;
    return fxi_permute(x, n, perm);
}
