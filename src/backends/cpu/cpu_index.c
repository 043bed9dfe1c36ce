/* cpu_index.c: gather and scatter along one axis, on several threads.
 *
 * gather:  y[…, i…, …] = x[…, idx[i…], …]    the axis is replaced by the axes of idx
 * scatter: y[…, idx[i…], …] ⊕= src[…, i…, …]  in the order of the indices
 *
 * Gather and scatter by element are in cpu_elements.c.
 *
 * In this file, all indices are checked first: nothing is written if one is out of range. Both
 * operations see their arrays as inner × axis × outer, and a row is the inner elements of one
 * position along the others. x may have any strides; a src that is not dense is copied first.
 * Threads share the rows of the result.
 *
 * Scatter first sorts the indices, so that it writes each row once: the whole of a gradient of an
 * embedding is written, but a batch has terms for a few rows only. One thread takes all terms of a
 * row in their order, so sums do not depend on the number of threads. Rows shorter than a cache
 * line are merged in the order of the indices instead, because sorting would take longer.
 */
#include "cpu_index.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <math.h>
#include <string.h>

/* The sign of i | n − 1 − i is set if i is out of range. The loop has no early exit and compares
 * nothing, so it becomes vectors even if the processor cannot compare integers of 64 bits. */
int64_t fxi_index_outside(const int64_t *idx, int64_t count, int64_t n)
{
    uint64_t signs = 0;
    for (int64_t k = 0; k < count; k++)
        signs |= (uint64_t)idx[k] | ((uint64_t)n - 1 - (uint64_t)idx[k]);
    for (int64_t k = 0; signs >> 63; k++)
        if (idx[k] < 0 || idx[k] >= n)
            return k;
    return -1;
}

fx_status fxi_index_fail(const fx_step *step, int64_t index, int axis, int64_t n)
{
    return fxi_cpu_fail(FX_STATUS_ARGUMENT, step,
                        "index %lld is out of range for axis %d of size %lld", (long long)index,
                        axis, (long long)n);
}

fx_status fxi_index_dense(const fx_step *step, const fx_tensor *t, const void *in, const void **out,
                          void **copy)
{
    *out = in;
    *copy = NULL;
    if (fxi_is_dense(t->ndim, t->shape, t->stride))
        return FX_OK;
    *out = *copy = fxi_aligned(64, (size_t)fx_tensor_length(t) * fxi_cpu_size(t->dtype));
    return *copy ? fxi_cpu_copy(t, in, *copy) : fxi_cpu_no_memory(step);
}

/* Dense Int64 indices are used in their own memory. Others are copied to *own, which the caller
 * frees. n: the size along the axis. All indices are checked before the first write, so a wrong
 * index leaves the output unchanged. */
static fx_status read_indices(const fx_step *step, const void *in, int axis, int64_t n,
                              const int64_t **out, void **own)
{
    const fx_tensor *t = &step->in[1];
    const int64_t count = fx_tensor_length(t);
    const bool narrow = t->dtype == FX_DTYPE_I32;
    *own = NULL;
    *out = in;
    if (!narrow && t->dtype != FX_DTYPE_I64)
        return fxi_cpu_no_dtype(step, t->dtype);
    if (narrow || !fxi_is_dense(t->ndim, t->shape, t->stride)) {
        int64_t *idx = *own = fxi_malloc((size_t)count * sizeof *idx);
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
        *out = idx;
    }
    const int64_t bad = fxi_index_outside(*out, count, n);
    if (bad < 0)
        return FX_OK;
    const int64_t index = (*out)[bad];
    fxi_free(*own);
    return fxi_index_fail(step, index, axis, n);
}

/* ---- gather ---------------------------------------------------------------------------------- */
/* out[k] = x[idx[k]·stride + k·next] */
#define PICK(NAME, T)                                                                              \
    static void NAME(void *out, const void *x, const int64_t *idx, int64_t n, int64_t stride,      \
                     int64_t next)                                                                 \
    {                                                                                              \
        /* The most frequent case needs no arithmetic. */                                          \
        if (stride == 1 && next == 0)                                                              \
            for (int64_t k = 0; k < n; k++)                                                        \
                ((T *)out)[k] = ((const T *)x)[idx[k]];                                            \
        else                                                                                       \
            for (int64_t k = 0; k < n; k++)                                                        \
                ((T *)out)[k] = ((const T *)x)[idx[k] * stride + k * next];                        \
    }
PICK(pick1, uint8_t)
PICK(pick2, uint16_t)
PICK(pick4, uint32_t)
PICK(pick8, uint64_t)

void fxi_index_pick(void *out, const void *x, const int64_t *idx, int64_t n, int64_t stride,
                    int64_t next, size_t size)
{
    static void (*const picks[])(void *, const void *, const int64_t *, int64_t, int64_t,
                                 int64_t) = {[1] = pick1, [2] = pick2, [4] = pick4, [8] = pick8};
    picks[size](out, x, idx, n, stride, next);
}

/* A table may be too large for the caches, so each row is requested a few rows early. */
enum { ROWS_AHEAD = 4, LINE = 64, LINES_AHEAD = 16 };

static inline void fetch_row(const char *row, int64_t bytes)
{
    const int64_t near = fxi_cpu_min(bytes, LINE * LINES_AHEAD);
    for (int64_t i = 0; i < near; i += LINE)
        __builtin_prefetch(row + i);
}

/* Copies rows of `bytes` contiguous bytes, which are `apart` bytes from each other in x. */
static void pick_rows(char *out, const char *x, const int64_t *idx, int64_t n, int64_t apart,
                      int64_t bytes)
{
    for (int64_t k = 0; k < n; k++) {
        fetch_row(x + idx[fxi_cpu_min(k + ROWS_AHEAD, n - 1)] * apart, bytes);
        memcpy(out + k * bytes, x + idx[k] * apart, (size_t)bytes);
    }
}

typedef struct gathering {
    const fx_tensor *x;
    int axis;
    const void *in;
    const int64_t *idx;
    int64_t n, parts; /* number of indices; parts of the rows of all outer positions */
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
            fxi_index_pick(out, base, idx, m, stride, 0, g->size);
        else if (inner.nd == 1 && inner.stride[0] == 1)
            pick_rows(out, base, idx, m, stride * (int64_t)g->size, run * (int64_t)g->size);
        else
            for (int64_t k = 0; k < m; k++)
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
    if (fx_step_by_element(step))
        return fxi_cpu_gather_elements(step, in, out);
    const int64_t *idx;
    void *own;
    const fx_status status = read_indices(step, in[1], axis, x->shape[axis], &idx, &own);
    if (status)
        return status;
    gather(x, axis, in[0], idx, fx_tensor_length(&step->in[1]), out);
    fxi_free(own);
    return FX_OK;
}

/* ---- scatter --------------------------------------------------------------------------------- */
/* out[idx[k]·stride + k·next] ⊕= src[k]; U: the type to compute in, unsigned for integers, whose
 * overflow wraps. */
#define MERGE(NAME, T, U, EXPR)                                                                    \
    static void NAME(void *out, const void *src, const int64_t *idx, int64_t n, int64_t stride,    \
                     int64_t next)                                                                 \
    {                                                                                              \
        for (int64_t k = 0; k < n; k++) {                                                          \
            T *a = (T *)out + idx[k] * stride + k * next;                                          \
            const U p = (U)*a, q = (U)((const T *)src)[k];                                         \
            *a = (T)(EXPR);                                                                        \
        }                                                                                          \
    }
#define MERGES(S, T, U, MAX, MIN)                                                                  \
    MERGE(sum_##S, T, U, p + q)                                                                    \
    MERGE(prod_##S, T, U, p *q)                                                                    \
    MERGE(max_##S, T, T, MAX)                                                                      \
    MERGE(min_##S, T, T, MIN)
/* NaN replaces a number, and stays, because comparisons with it are false. −0 is below 0. */
#define REAL_MERGES(S, T)                                                                          \
    MERGES(S, T, T, q > p || q != q || (q == p && !signbit(q)) ? q : p,                            \
           q < p || q != q || (q == p && signbit(q)) ? q : p)
#define WHOLE_MERGES(S, T, U) MERGES(S, T, U, q > p ? q : p, q < p ? q : p)
REAL_MERGES(f32, float)
REAL_MERGES(f64, double)
WHOLE_MERGES(i32, int32_t, uint32_t)
WHOLE_MERGES(i64, int64_t, uint64_t)
WHOLE_MERGES(u8, uint8_t, uint8_t)

#define ROW(n)                                                                                     \
    {                                                                                              \
        n##_f32, n##_f64, n##_i32, n##_i64, n##_u8, NULL                                           \
    }
/* The kinds of scatter: loops for single elements, and the operation that merges two vectors. */
static const struct {
    fxi_index_merge_fn merge[FXI_C_COUNT];
    fx_op op;
} kinds[4] = {[FX_REDUCE_SUM] = {ROW(sum), FX_OP_ADD},
              [FX_REDUCE_MAX] = {ROW(max), FX_OP_MAX},
              [FX_REDUCE_MIN] = {ROW(min), FX_OP_MIN},
              [FX_REDUCE_PROD] = {ROW(prod), FX_OP_MUL}};

fxi_index_merge_fn fxi_index_merge(int kind, int dtype)
{
    return kinds[kind].merge[dtype];
}

void fxi_index_neutral(int kind, int dtype, char value[8])
{
    const fxi_reducer *r = &fxi_cpu_simd()->reduce[kind][dtype];
    /* An accumulator of these four kinds has at most 8 bytes. */
    double acc;
    r->init(&acc, 1);
    r->done(&acc, 1, value);
}

void fxi_index_fill(void *out, const void *value, int64_t n, size_t size)
{
    enum { BLOCK = 4096 };
    char *to = out;
    const size_t bytes = (size_t)n * size;
    if (n == 0)
        return;
    memcpy(to, value, size);
    /* The part that is filled already is copied, at most a block at a time. */
    for (size_t at = size, more; at < bytes; at += more) {
        more = at < BLOCK ? at : BLOCK;
        more = more < bytes - at ? more : bytes - at;
        memcpy(to + at, to, more);
    }
}

typedef struct scattering {
    const char *src;
    const int64_t *idx;
    int64_t n, inner, along, outer; /* number of indices, sizes of the array */
    int64_t parts;                  /* of the rows, or for short rows of the outer axes */
    int64_t *start, *order;         /* the terms of row j: order[start[j] … start[j + 1] − 1] */
    size_t size;
    bool streams; /* stores bypass the caches */
    fxi_index_merge_fn merge;
    fxi_tile_fn op;
    char neutral[8];
    char *out;
} scattering;

static void merge_part(void *user, int64_t part)
{
    const scattering *s = user;
    const int64_t size = (int64_t)s->size, row = s->along * s->inner;
    int64_t o, to;
    fxi_cpu_range(s->outer, s->parts, part, &o, &to);
    fxi_index_fill(s->out + o * row * size, s->neutral, (to - o) * row, s->size);
    for (; o < to; o++) {
        char *y = s->out + o * row * size;
        const char *x = s->src + o * s->n * s->inner * size;
        /* Rows of one element: a loop without a call for each of them. It must keep the order,
         * because equal indices may follow each other. */
        if (s->inner == 1)
            s->merge(y, x, s->idx, s->n, 1, 0);
        for (int64_t k = 0; s->inner > 1 && k < s->n; k++, x += s->inner * size) {
            char *to_row = y + s->idx[k] * s->inner * size;
            s->op(to_row, (const void *const[]){to_row, x}, (int)s->inner, 0);
        }
    }
}

/* Long rows are computed in pieces of at most this many bytes. */
enum { PIECE = 4096 };

/* The first term of a row is merged with an empty row, so no row is cleared before. If stores
 * bypass the caches, a row is first summed on the stack: adding to memory that was stored past the
 * caches would have to read it back. */
static void rows_part(void *user, int64_t part)
{
    const scattering *s = user;
    const int64_t size = (int64_t)s->size, most = PIECE / size;
    const int64_t *const last = s->order + s->n;
    int64_t row, to;
    _Alignas(64) char empty[PIECE], sum[PIECE];
    fxi_cpu_range(s->along * s->outer, s->parts, part, &row, &to);
    fxi_index_fill(empty, s->neutral, fxi_cpu_min(most, s->inner), s->size);
    for (int64_t j = row % s->along, o = row / s->along; row < to; row++) {
        const int64_t *k = s->order + s->start[j], *end = s->order + s->start[j + 1];
        for (int64_t i = 0, n; i < s->inner; i += n) {
            char *y = s->out + (row * s->inner + i) * size, *acc = s->streams ? sum : y;
            const void *pair[] = {empty, NULL};
            n = fxi_cpu_min(s->inner - i, most);
            for (const int64_t *t = k; t < end; t++, pair[0] = acc) {
                /* Terms are read from src in any order, so the processor cannot prefetch them. The
                 * later term may be one of the next rows. */
                const int64_t later = t + ROWS_AHEAD < last ? t[ROWS_AHEAD] : *t;
                fetch_row(s->src + ((o * s->n + later) * s->inner + i) * size, n * size);
                pair[1] = s->src + ((o * s->n + *t) * s->inner + i) * size;
                s->op(acc, pair, (int)n, 0);
            }
            if (s->streams)
                fxi_cpu_simd()->stream(y, pair[0], (size_t)(n * size));
            else if (k == end)
                memcpy(y, empty, (size_t)(n * size));
        }
        if (++j == s->along)
            j = 0, o++;
    }
    if (s->streams)
        fxi_cpu_simd()->stream_end();
}

/* Sorts the indices by their rows; equal ones keep their order. The caller frees s->start. */
static bool sort_terms(scattering *s)
{
    int64_t *start = s->start = fxi_calloc((size_t)(s->along + 2 + s->n), sizeof *start);
    if (!start)
        return false;
    s->order = start + s->along + 2;
    /* The count of row j is at start[j + 2], so that the sums below begin with two zeros. */
    for (int64_t k = 0; k < s->n; k++)
        start[s->idx[k] + 2]++;
    for (int64_t j = 0; j <= s->along; j++)
        start[j + 1] += start[j];
    /* Now start[j + 1] is where row j begins, and after the loop where it ends. */
    for (int64_t k = 0; k < s->n; k++)
        s->order[start[s->idx[k] + 1]++] = k;
    return true;
}

static fx_status scatter(const fx_step *step, const char *src, const int64_t *idx, char *out)
{
    const fx_tensor *t = &step->out;
    const fx_scatter_step *q = fx_step_scatter(step);
    scattering s = {.src = src,
                    .idx = idx,
                    .n = fx_tensor_length(&step->in[1]),
                    .inner = fxi_length(q->axis, t->shape),
                    .along = t->shape[q->axis],
                    .outer = fxi_length(t->ndim - q->axis - 1, t->shape + q->axis + 1),
                    .size = fxi_cpu_size(t->dtype),
                    .merge = fxi_index_merge(q->fold, t->dtype),
                    .op = fxi_cpu_simd()->ops[kinds[q->fold].op][t->dtype],
                    .out = out};
    const int64_t row = s.inner * (int64_t)s.size, rows = s.along * s.outer;
    const bool sorts = row >= LINE;
    /* The whole output is written once. Each term reads src, and reads and writes the output. */
    const double bytes = (double)row * (double)s.outer * ((double)s.along + 3 * (double)s.n);
    if (row == 0 || rows == 0)
        return FX_OK;
    if (sorts && !sort_terms(&s))
        return fxi_cpu_no_memory(step);
    s.parts = fxi_cpu_parts(sorts ? rows : s.outer, fxi_cpu_cost(bytes, 0));
    /* Rows must be whole cache lines: a line that two rows share would be written partly past the
     * caches. A small output should stay in the cache for the step that reads it. */
    s.streams = row % LINE == 0 && rows * row >= FXI_STREAM_BYTES;
    fxi_index_neutral(q->fold, t->dtype, s.neutral);
    fxi_cpu_parallel(s.parts, sorts ? rows_part : merge_part, &s);
    fxi_free(s.start);
    return FX_OK;
}

fx_status fxi_cpu_scatter(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const fx_tensor *src = &step->in[0];
    const int axis = fx_step_scatter(step)->axis;
    const int64_t *idx;
    const void *dense;
    void *copy, *own;
    /* Bool has no merging loops. 16-bit floats do not get here: they are converted around this
     * kernel (cpu_kernels.c). */
    if (src->dtype != step->out.dtype || src->dtype >= FX_DTYPE_BOOL)
        return fxi_cpu_no_dtype(step, src->dtype);
    if (fx_step_by_element(step))
        return fxi_cpu_scatter_elements(step, in, out);
    fx_status status = read_indices(step, in[1], axis, step->out.shape[axis], &idx, &own);
    if (status)
        return status;
    /* The merging loops read runs of the inner axes. */
    status = fxi_index_dense(step, src, in[0], &dense, &copy);
    if (!status)
        status = scatter(step, dense, idx, out);
    fxi_free(copy);
    fxi_free(own);
    return status;
}
