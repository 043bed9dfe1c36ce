/* cpu_elements.c: gather and scatter by element.
 *
 * gather:  y[…, k, …] = x[…, idx[…, k, …], …]
 * scatter: y[…, idx[…, k, …], …] ⊕= src[…, k, …]  in the order of k
 *
 * There are as many indices as elements, and reading the indices takes most of the time. So each is
 * read once: a tile of indices is checked in the first-level cache, directly before it is used. The
 * output of a step that fails is undefined. Arrays are seen as inner × axis × outer. A run is a row
 * of neighbouring elements: those along the axis if it is the first one, else the inner ones.
 */
#include "cpu_index.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "memory.h"
#include "strided.h"

enum {
    TILE = 512, /* indices: two tiles of them and the column that they choose from share the
                   first-level cache */
    CHUNK = 64, /* indices that are used between two requests for later ones */
    LINE = 64,
    COLUMN_BYTES = 64 << 10, /* of x that are requested early */
    SLAB_BYTES = 256 << 10   /* of the output of a scatter, which stay in the second-level cache */
};

typedef struct job {
    const void *idx; /* dense */
    bool narrow;     /* Int32 */
    const char *x;   /* or src */
    char *out;
    size_t size;
    int64_t n, m;         /* sizes along the axis: of x or the output of a scatter, and of idx */
    int64_t inner, outer; /* elements of the other axes */
    int64_t run, stride, next; /* length of a run; in x or the output of a scatter, the distances of
                                  neighbours along the axis and in a run (0: runs along the axis) */
    fxi_walk outers;           /* of x */
    int64_t piece, pieces;     /* of the inner axes, in a scatter */
    fxi_index_merge_fn merge;
    char neutral[8];
    bool streams; /* stores bypass the caches */
    bool fetches; /* prefetches columns of x */
    int64_t parts;
    int64_t bad; /* position of the first index that is out of range; INT64_MAX: none */
} job;

/* Threads may find different wrong indices. The first one is reported, so that the message does not
 * depend on which thread was faster. */
static void lower(int64_t *to, int64_t value)
{
    int64_t was = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (value < was &&
           !__atomic_compare_exchange_n(to, &was, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* The indices from `first` on as Int64: in their own memory, or in `wide` if they are Int32. NULL
 * if one is out of range. */
static const int64_t *next_indices(job *j, int64_t first, int64_t n, int64_t *wide)
{
    const int64_t *idx = j->narrow ? wide : (const int64_t *)j->idx + first;
    const int32_t *narrow = (const int32_t *)j->idx + first;
    for (int64_t k = 0; j->narrow && k < n; k++)
        wide[k] = narrow[k];
    const int64_t bad = fxi_index_outside(idx, n, j->n);
    if (bad < 0)
        return idx;
    lower(&j->bad, first + bad);
    return NULL;
}

/* Sets the members of *j that both operations use. t: x, or the output of a scatter. */
static fx_status begin(job *j, const fx_step *step, const fx_tensor *t, int axis)
{
    const fx_tensor *idx = &step->in[1];
    *j = (job){.narrow = idx->dtype == FX_DTYPE_I32,
               .n = t->shape[axis],
               .m = idx->shape[axis],
               .inner = fxi_length(axis, t->shape),
               .outer = fxi_length(t->ndim - axis - 1, t->shape + axis + 1),
               .size = fxi_cpu_size(t->dtype),
               .bad = INT64_MAX};
    /* Along the first axis, the elements that share a column of x are neighbours, so a run can be
     * as long as the axis. */
    j->run = j->inner == 1 ? j->m : j->inner;
    j->next = j->inner > 1;
    j->stride = j->inner;
    j->streams = fx_tensor_length(&step->out) * (int64_t)j->size >= FXI_STREAM_BYTES;
    return j->narrow || idx->dtype == FX_DTYPE_I64 ? FX_OK : fxi_cpu_no_dtype(step, idx->dtype);
}

/* Counts an index, an element that is read and one that is written. The unused rest of a column of
 * x, or of the output of a scatter, is usually small and is not counted. */
static double cost(const job *j)
{
    return fxi_cpu_cost((double)(j->m * j->inner * j->outer) * (8 + 2 * (double)j->size), 0);
}

static fx_status end(const job *j, const fx_step *step, int axis)
{
    if (j->bad == INT64_MAX)
        return FX_OK;
    const int64_t index =
        j->narrow ? ((const int32_t *)j->idx)[j->bad] : ((const int64_t *)j->idx)[j->bad];
    return fxi_index_fail(step, index, axis, j->n);
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* Indices choose the elements of a column of x in any order, so the processor cannot prefetch them.
 * While one column is read, this function requests the next one: a part of it with each tile of
 * indices. It goes to the second-level cache, because two columns of 16 KB and the tiles do not fit
 * in the first level: with both columns there, a gather of 4096² took 25 ms in place of 18. */
static void fetch_column(const job *j, const char *column, int64_t i, int64_t n)
{
    const int64_t bytes = j->n * (int64_t)j->size, end = (i + n) * bytes / j->run;
    for (int64_t k = i * bytes / j->run; k < end; k += LINE)
        __builtin_prefetch(column + k, 0, 2);
}

/* y[k] = x[idx[k]], for a tile of indices from `first` on. The check of the next tile would wait
 * for its indices, because the processor fetches few of them while it writes the elements of this
 * tile. So they are requested here, a few lines at a time. A request beyond the end does nothing.
 */
static void pick_tile(const job *j, char *y, const char *x, const int64_t *idx, int64_t first,
                      int64_t n)
{
    const int64_t size = (int64_t)j->size, each = j->narrow ? 4 : 8;
    const uintptr_t ahead = (uintptr_t)j->idx + (uintptr_t)((first + n) * each);
    for (int64_t k = 0; k < n; k += CHUNK) {
        for (int64_t b = 0; b < CHUNK * each; b += LINE)
            __builtin_prefetch((const void *)(ahead + (uintptr_t)(k * each + b)));
        fxi_index_pick(y + k * size, x + k * j->next * size, idx + k, fxi_cpu_min(CHUNK, n - k),
                       j->stride, j->next, j->size);
    }
}

/* Run r of the output belongs to outer position r / each. */
static void pick_part(void *user, int64_t part)
{
    job *j = user;
    const int64_t size = (int64_t)j->size, each = j->m * j->inner / j->run;
    fxi_walk outers = j->outers;
    int64_t r, to, wide[TILE];
    _Alignas(64) char tile[TILE * 8];
    fxi_cpu_range(j->outer * each, j->parts, part, &r, &to);
    for (; r < to; r++) {
        /* The column after the part's last one belongs to another part. */
        const bool fetch = j->fetches && r + 1 < to;
        fxi_walk_seek(&outers, (r + fetch) / each);
        const char *next = j->x + outers.offset * size;
        fxi_walk_seek(&outers, r / each);
        const char *x = j->x + outers.offset * size;
        for (int64_t i = 0, n; i < j->run; i += n, x += n * j->next * size) {
            n = fxi_cpu_min(j->run - i, TILE);
            const int64_t first = r * j->run + i, *idx = next_indices(j, first, n, wide);
            char *y = j->out + first * size;
            if (fetch)
                fetch_column(j, next, i, n);
            if (!idx)
                return;
            pick_tile(j, j->streams ? tile : y, x, idx, first, n);
            if (j->streams)
                fxi_cpu_simd()->stream(y, tile, (size_t)(n * size));
        }
    }
    if (j->streams)
        fxi_cpu_simd()->stream_end();
}

/* x keeps its strides if its inner axes can be seen as one. Otherwise it is copied, because a run
 * must have one distance between neighbours: this is rare, for x must be a view of more than two
 * axes. */
fx_status fxi_cpu_gather_elements(const fx_step *step, const void *const *in, void *out)
{
    const int axis = fx_step_gather(step)->axis;
    fx_tensor x = step->in[0];
    const void *from = in[0];
    void *idx_copy = NULL, *x_copy = NULL;
    fxi_walk inner;
    job j;
    fx_status status = begin(&j, step, &x, axis);
    fxi_walk_init(&inner, axis, x.shape, x.stride);
    if (!status)
        status = fxi_index_dense(step, &step->in[1], in[1], &j.idx, &idx_copy);
    if (!status && inner.nd > 1) {
        status = fxi_index_dense(step, &x, in[0], &from, &x_copy);
        fxi_dense_strides(x.ndim, x.shape, x.stride);
        fxi_walk_init(&inner, axis, x.shape, x.stride);
    }
    if (!status && fx_tensor_length(&step->out) > 0) {
        j.x = from;
        j.out = out;
        j.stride = x.stride[axis];
        j.next = j.inner > 1 ? inner.stride[0] : 0;
        /* Only if most of a column is read, and stays in the cache until then. */
        j.fetches = j.inner == 1 && j.stride == 1 && j.n <= 2 * j.m &&
                    j.n * (int64_t)j.size <= COLUMN_BYTES;
        fxi_walk_init(&j.outers, x.ndim - axis - 1, x.shape + axis + 1, x.stride + axis + 1);
        j.parts = fxi_cpu_parts(j.m * j.inner * j.outer / j.run, cost(&j));
        fxi_cpu_parallel(j.parts, pick_part, &j);
        status = end(&j, step, axis);
    }
    fxi_free(idx_copy);
    fxi_free(x_copy);
    return status;
}

/* ---- scatter --------------------------------------------------------------------------------- */

/* An item is an outer position and a piece of the inner elements: a slab of the output that no
 * other item writes. A slab that is contiguous and streamed is computed in the scratch. */
static void merge_part(void *user, int64_t part, void *scratch)
{
    job *j = user;
    const int64_t size = (int64_t)j->size, runs = j->inner == 1 ? 1 : j->m;
    int64_t item, to, wide[TILE];
    fxi_cpu_range(j->outer * j->pieces, j->parts, part, &item, &to);
    for (; item < to; item++) {
        const int64_t o = item / j->pieces, i = item % j->pieces * j->piece,
                      width = fxi_cpu_min(j->piece, j->inner - i),
                      run = j->inner == 1 ? j->m : width;
        char *slab = j->out + (o * j->n * j->inner + i) * size, *y = j->streams ? scratch : slab;
        for (int64_t row = 0; row < (width < j->inner ? j->n : 1); row++)
            fxi_index_fill(y + row * j->inner * size, j->neutral,
                           width < j->inner ? width : width * j->n, j->size);
        for (int64_t r = 0; r < runs; r++)
            for (int64_t k = 0, n; k < run; k += n) {
                n = fxi_cpu_min(run - k, TILE);
                const int64_t first =
                                  j->inner == 1 ? o * j->m + k : (o * j->m + r) * j->inner + i + k,
                              *idx = next_indices(j, first, n, wide);
                /* The step fails, so it does not matter that the scratch is not stored. */
                if (!idx)
                    return;
                j->merge(y + k * j->next * size, j->x + first * size, idx, n, j->stride, j->next);
            }
        if (j->streams)
            fxi_cpu_simd()->stream(slab, y, (size_t)(j->n * size));
    }
    if (j->streams)
        fxi_cpu_simd()->stream_end();
}

/* Divides the inner elements: slabs should stay in the cache, because their elements are read and
 * written in any order, but their rows should be long, because each is one call. */
static void divide(job *j)
{
    const int64_t fit = SLAB_BYTES / (fxi_cpu_max(j->n, 1) * (int64_t)j->size);
    j->piece = fxi_cpu_min(j->inner, fxi_cpu_min(fxi_cpu_max(fit, 64), TILE));
    j->pieces = fxi_cpu_divide_up(j->inner, j->piece);
    /* Only a slab that is contiguous and fits in the scratch can be stored in one piece. */
    j->streams &= j->inner == 1 && fit >= 1 && j->n * (int64_t)j->size % 64 == 0;
}

fx_status fxi_cpu_scatter_elements(const fx_step *step, const void *const *in, void *out)
{
    const fx_scatter_step *s = fx_step_scatter(step);
    void *idx_copy = NULL, *src_copy = NULL;
    const void *src;
    job j;
    fx_status status = begin(&j, step, &step->out, s->axis);
    if (!status)
        status = fxi_index_dense(step, &step->in[1], in[1], &j.idx, &idx_copy);
    if (!status)
        status = fxi_index_dense(step, &step->in[0], in[0], &src, &src_copy);
    if (!status && j.inner > 0 && j.outer > 0) {
        j.x = src;
        j.out = out;
        j.merge = fxi_index_merge(s->fold, step->out.dtype);
        fxi_index_neutral(s->fold, step->out.dtype, j.neutral);
        divide(&j);
        j.parts = fxi_cpu_parts(j.outer * j.pieces, cost(&j));
        status = fxi_cpu_parallel_scratch(j.parts, j.streams ? SLAB_BYTES : 64, merge_part, &j)
                     ? fxi_cpu_no_memory(step)
                     : end(&j, step, s->axis);
    }
    fxi_free(idx_copy);
    fxi_free(src_copy);
    return status;
}
