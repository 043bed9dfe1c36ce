/* cpu_index.c: gather and scatter along one axis, on several threads.
 *
 * gather:  y[…, i…, …] = x[…, idx[i…], …]    the axis is replaced by the axes of idx
 * scatter: y[…, idx[i…], …] ⊕= src[…, i…, …]  in the order of the indices
 *
 * Indices are first copied to dense Int64 and checked: nothing is written if one is out of range.
 * Both operations see their arrays as inner × axis × outer. x may have any strides; a src that is
 * not dense is copied first. For gather, threads share the rows of the result. For scatter, two
 * indices may name the same row, so threads share the inner axes instead: each thread takes all
 * indices in their order, and sums do not depend on the number of threads.
 */
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

/* Copies the indices to dense Int64 in *out, which the caller frees, and checks them. n: the size
 * along the axis. */
static fx_status read_indices(const fx_step *step, const void *in, int axis, int64_t n,
                              int64_t **out)
{
    const fx_tensor *t = &step->in[1];
    const int64_t count = fx_tensor_length(t);
    const bool narrow = t->dtype == FX_DTYPE_I32;
    *out = NULL;
    if (!narrow && t->dtype != FX_DTYPE_I64)
        return fxi_cpu_no_dtype(step, t->dtype);
    int64_t *idx = fxi_malloc((size_t)count * sizeof *idx);
    if (!idx)
        return fxi_cpu_no_memory(step);
    /* Int32 indices fill the front half of the buffer. */
    fxi_cpu_copy(t, in, idx);
    const int32_t *small = (const int32_t *)(const void *)idx;
    for (int64_t k = count; narrow && k-- > 0;) { /* widened in place, so from the end */
        int32_t v;
        memcpy(&v, small + k, sizeof v);
        idx[k] = v;
    }
    /* All indices are checked before the first write, so a wrong index leaves the output
     * unchanged. */
    for (int64_t k = 0; k < count; k++)
        if (idx[k] < 0 || idx[k] >= n) {
            const long long bad = idx[k];
            fxi_free(idx);
            return fxi_cpu_fail(FX_STATUS_ARGUMENT, step,
                                "index %lld is out of range for axis %d of size %lld", bad, axis,
                                (long long)n);
        }
    *out = idx;
    return FX_OK;
}

/* ---- gather ---------------------------------------------------------------------------------- */
/* out[k] = x[idx[k]·stride] */
#define PICK(NAME, T)                                                                              \
    static void NAME(void *out, const void *x, const int64_t *idx, int64_t n, int64_t stride)      \
    {                                                                                              \
        for (int64_t k = 0; k < n; k++)                                                            \
            ((T *)out)[k] = ((const T *)x)[idx[k] * stride];                                       \
    }
PICK(pick1, uint8_t)
PICK(pick2, uint16_t)
PICK(pick4, uint32_t)
PICK(pick8, uint64_t)

/* By size and not by type: a gather only copies. */
static void pick(void *out, const void *x, const int64_t *idx, int64_t n, int64_t stride,
                 size_t size)
{
    static void (*const picks[])(void *, const void *, const int64_t *, int64_t,
                                 int64_t) = {[1] = pick1, [2] = pick2, [4] = pick4, [8] = pick8};
    picks[size](out, x, idx, n, stride);
}

typedef struct gathering {
    const fx_tensor *x;
    int axis;
    const void *in;
    const int64_t *idx;
    int64_t n, parts; /* indices; parts of n times the outer axes */
    size_t size;
    char *out;
    fxi_walk inner, outer;
} gathering;

/* Rows of the result: index k of outer position o is row o·n + k. A part computes rows from …
 * to−1. */
static void gather_part(void *user, int64_t part)
{
    const gathering *g = user;
    fxi_walk inner = g->inner, outer = g->outer;
    const int64_t run = fxi_walk_length(&inner), stride = g->x->stride[g->axis];
    int64_t from, to;
    fxi_cpu_range(g->n * fxi_walk_length(&outer), g->parts, part, &from, &to);
    for (int64_t o = 0; o < from / g->n; o++)
        fxi_walk_next(&outer);
    char *out = g->out + from * run * (int64_t)g->size;
    for (int64_t first = from % g->n, m; from < to; from += m, first = 0, fxi_walk_next(&outer)) {
        const void *base = fxi_at(g->in, outer.offset, g->size);
        const int64_t *idx = g->idx + first;
        m = g->n - first < to - from ? g->n - first : to - from;
        /* Rows of one element: a loop without a call for each of them. */
        if (run == 1)
            pick(out, base, idx, m, stride, g->size);
        for (int64_t k = 0; run > 1 && k < m; k++)
            fxi_walk_read(&inner, fxi_at(base, idx[k] * stride, g->size), g->size,
                          out + k * run * (int64_t)g->size, run);
        out += m * run * (int64_t)g->size;
    }
}

/* Rows are divided between threads, so even a gather of many single elements uses all of them. */
static void gather(const fx_tensor *x, int axis, const void *in, const int64_t *idx, int64_t n,
                   char *out)
{
    gathering g = {.x = x,
                   .axis = axis,
                   .in = in,
                   .idx = idx,
                   .n = n,
                   .size = fxi_cpu_size(x->dtype),
                   .out = out};
    fxi_walk_init(&g.inner, axis, x->shape, x->stride);
    fxi_walk_init(&g.outer, x->ndim - axis - 1, x->shape + axis + 1, x->stride + axis + 1);
    const int64_t run = fxi_walk_length(&g.inner), rows = n * fxi_walk_length(&g.outer);
    if (run == 0 || rows == 0)
        return;
    /* Each element is read and written. */
    const double bytes = 2 * (double)rows * (double)run * (double)g.size;
    g.parts = fxi_cpu_parts(rows, fxi_cpu_cost(bytes, 0));
    fxi_cpu_parallel(g.parts, gather_part, &g);
}

/* x keeps its strides: a copy of a whole table would cost more than the rows that are read. */
fx_status fxi_cpu_gather(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const fx_tensor *x = &step->in[0];
    const int axis = fx_step_gather(step)->axis;
    int64_t *idx;
    const fx_status status = read_indices(step, in[1], axis, x->shape[axis], &idx);
    if (status)
        return status;
    gather(x, axis, in[0], idx, fx_tensor_length(&step->in[1]), out);
    fxi_free(idx);
    return FX_OK;
}

/* ---- scatter --------------------------------------------------------------------------------- */
/* out[i] = out[i] ⊕ src[i] for one run of the inner axes; U: the type to compute in, unsigned for
 * integers, whose overflow wraps. */
#define MERGE(NAME, T, U, EXPR)                                                                    \
    static void NAME(void *out, const void *src, int64_t n)                                        \
    {                                                                                              \
        T *a = out;                                                                                \
        const T *b = src;                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const U p = (U)a[i], q = (U)b[i];                                                      \
            a[i] = (T)(EXPR);                                                                      \
        }                                                                                          \
    }
/* MAX and MIN: NaN replaces a number, and stays, because comparisons with it are false. */
#define MERGES(S, T, U)                                                                            \
    MERGE(sum_##S, T, U, p + q)                                                                    \
    MERGE(prod_##S, T, U, p *q)                                                                    \
    MERGE(max_##S, T, T, q > p || q != q ? q : p)                                                  \
    MERGE(min_##S, T, T, q < p || q != q ? q : p)
MERGES(f32, float, float)
MERGES(f64, double, double)
MERGES(i32, int32_t, uint32_t)
MERGES(i64, int64_t, uint64_t)
MERGES(u8, uint8_t, uint8_t)

typedef void (*merge_fn)(void *, const void *, int64_t);
#define ROW(n)                                                                                     \
    {                                                                                              \
        n##_f32, n##_f64, n##_i32, n##_i64, n##_u8, NULL                                           \
    }
static const merge_fn merges[4][FXI_C_COUNT] = {[FX_REDUCE_SUM] = ROW(sum),
                                                [FX_REDUCE_MAX] = ROW(max),
                                                [FX_REDUCE_MIN] = ROW(min),
                                                [FX_REDUCE_PROD] = ROW(prod)};

/* The neutral element: the result of an empty reduction of this kind and type. */
static void neutral(int kind, int dtype, char value[8])
{
    const fxi_reducer *r = &fxi_cpu_simd()->reduce[kind][dtype];
    /* An accumulator of these four kinds has at most 8 bytes. */
    double acc;
    r->init(&acc, 1);
    r->done(&acc, 1, value);
}

typedef struct scattering {
    const fx_step *step;
    const char *src;
    const int64_t *idx;
    int64_t n, inner, outer,
        parts; /* number of indices, sizes of the array, parts of the inner axes */
    char neutral[8];
    char *out;
} scattering;

/* Each part clears its own inner range first, so that no barrier is needed between clearing and
 * adding. */
static void scatter_part(void *user, int64_t part)
{
    const scattering *s = user;
    const fx_tensor *t = &s->step->out;
    const merge_fn merge = merges[fx_step_scatter(s->step)->fold][t->dtype];
    const int64_t size = (int64_t)fxi_cpu_size(t->dtype),
                  along = t->shape[fx_step_scatter(s->step)->axis];
    int64_t from, to;
    fxi_cpu_range(s->inner, s->parts, part, &from, &to);
    /* One thread alone fills the whole output in one call. */
    const int64_t m = s->parts == 1 ? s->inner * along * s->outer : to - from;
    for (int64_t row = 0; row < (s->parts == 1 ? 1 : along * s->outer); row++)
        fxi_copy_strided(s->out + (row * s->inner + from) * size, s->neutral, m, 0, (size_t)size);
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t k = 0; k < s->n; k++)
            merge(s->out + ((o * along + s->idx[k]) * s->inner + from) * size,
                  s->src + ((o * s->n + k) * s->inner + from) * size, to - from);
}

/* Pieces of the inner axes have at least this many bytes, so that two threads seldom write the same
 * cache line. */
enum { SCATTER_PIECE = 256 };

/* Divided along the inner axes only, so that one thread adds all terms of an element, in their
 * order. */
static void scatter(const fx_step *step, const char *src, const int64_t *idx, int64_t n, char *out)
{
    const fx_tensor *t = &step->out;
    const int axis = fx_step_scatter(step)->axis;
    const int64_t size = (int64_t)fxi_cpu_size(t->dtype);
    scattering s = {.step = step,
                    .src = src,
                    .idx = idx,
                    .n = n,
                    .inner = fxi_length(axis, t->shape),
                    .outer = fxi_length(t->ndim - axis - 1, t->shape + axis + 1),
                    .out = out};
    /* The output is cleared. Then each term reads src, and reads and writes the output. */
    const double bytes =
        (double)s.inner * (double)s.outer * (double)size * ((double)t->shape[axis] + 3 * (double)n);
    /* With few inner elements there is one part: a scatter of single numbers runs on one thread. */
    const int64_t pieces = s.inner * size / SCATTER_PIECE;
    s.parts = fxi_cpu_parts(pieces > 0 ? pieces : 1, fxi_cpu_cost(bytes, 0));
    neutral(fx_step_scatter(step)->fold, t->dtype, s.neutral);
    fxi_cpu_parallel(s.parts, scatter_part, &s);
}

fx_status fxi_cpu_scatter(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const fx_tensor *src = &step->in[0];
    const int axis = fx_step_scatter(step)->axis;
    int64_t *idx;
    void *copy = NULL;
    /* Bool has no merging loops. 16-bit floats do not get here: they are converted around this
     * kernel (cpu_kernels.c). */
    if (src->dtype != step->out.dtype || src->dtype >= FX_DTYPE_BOOL)
        return fxi_cpu_no_dtype(step, src->dtype);
    fx_status status = read_indices(step, in[1], axis, step->out.shape[axis], &idx);
    if (status)
        return status;
    /* The merging loops read runs of the inner axes. */
    if (!fxi_is_dense(src->ndim, src->shape, src->stride)) {
        copy = fxi_aligned(64, (size_t)fx_tensor_length(src) * fxi_cpu_size(src->dtype));
        status = copy ? fxi_cpu_copy(src, in[0], copy) : fxi_cpu_no_memory(step);
    }
    if (!status)
        scatter(step, copy ? copy : in[0], idx, fx_tensor_length(&step->in[1]), out);
    fxi_free(copy);
    fxi_free(idx);
    return status;
}
