/* cpu_gemv.c: the product of a matrix and a vector, which reads the matrix once and packs nothing.
 *
 * A product whose C is one column, or one row, reads every element of the matrix once, so memory
 * limits it. The matrix is read in its own memory: along its columns or along its rows, whichever
 * are neighbours (cpu_isa_gemv.h). Sums are those of cpu_gemm.c in every bit: terms in order, in
 * the blocks of the sum that the caller gives.
 *
 * 16-bit elements are converted a block at a time, and the sums are rounded when they are complete.
 */
#include "cpu_gemv.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "strided.h"
#include <string.h>

enum {
    ROWS = 4096,      /* rows whose sums are taken together, if rows are neighbours in memory: the
                         prefetcher then follows long runs of each column */
    TERMS = 128,      /* 16-bit neighbours that are converted at a time: terms, or rows if these are
                         neighbours */
    GROUP = 32,       /* such runs of neighbours in a block */
    LEAST = 4096,     /* elements of a matrix that repays the calls */
    FEW_ROWS = 32,    /* fewer do not fill the vectors */
    PART_ROWS = 64,   /* rows of a thread's part, at least */
    PART_RUN = 1024,  /* the same, if rows are neighbours and no cache holds the matrix: of 4096
                         rows, parts of 64 were read at 7 GB/s, parts of 1024 at 11 GB/s, and all
                         rows as one part at 15 GB/s */
    CACHED = 4 << 20, /* a matrix of at most this many bytes may be in a cache */
    HALVES = 2 << 20  /* CACHED in 16-bit elements */
};

typedef struct job {
    const fxi_gemm *g;
    const fxi_gemv_core *core;
    fxi_tile_fn load, store;
    const char *a, *x;
    bool across;     /* terms are neighbours, not rows */
    int64_t rows, k; /* of the matrix */
    int64_t stride;  /* between columns, or between rows if `across` */
    int64_t xs;
    int64_t kc, parts;
    int64_t together;    /* rows whose sums are taken together */
    size_t stored, size; /* bytes of an element, and of a sum */
} job;

/* The matrix may be either factor: C is one column, or one row whose elements are neighbours. */
static bool describe(const fxi_gemm *g, job *q)
{
    const bool column = g->n == 1;
    if (!column && !(g->m == 1 && g->csc == 1))
        return false;
    const int64_t between_rows = column ? g->rsa : g->csb, between_terms = column ? g->csa : g->rsb;
    *q = (job){.g = g,
               .a = column ? g->a : g->b,
               .x = column ? g->b : g->a,
               .across = between_rows != 1,
               .rows = column ? g->m : g->n,
               .k = g->k,
               .stride = between_rows != 1 ? between_rows : between_terms,
               .xs = column ? g->rsb : g->csa};
    return (between_rows == 1 || between_terms == 1) && q->rows >= FEW_ROWS &&
           q->rows >= LEAST / q->k;
}

/* 16-bit matrices whose rows are neighbours are left to the tiles of cpu_gemm.c if they are too
 * large for the caches: a Float16 matrix of 4096² took 30 ms there and 55 ms here, but one of 512²
 * 0.25 ms there and 0.18 ms here. */
bool fxi_cpu_gemv_suits(int dtype, const fxi_gemm *g)
{
    job q;
    return g->k > 0 && describe(g, &q) &&
           (q.across || !fxi_cpu_is_half(dtype) || q.rows <= HALVES / q.k);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Adds the terms l … l+n−1 of some rows to their sums. */
static void add_terms(const job *q, int64_t row, int64_t rows, int64_t l, int64_t n, void *sums)
{
    const int64_t at = q->across ? row * q->stride + l : row + l * q->stride;
    (q->across ? q->core->across
               : q->core->columns)(&(fxi_gemv){.a = q->a + at * (int64_t)q->stored,
                                               .x = q->x + l * q->xs * (int64_t)q->stored,
                                               .y = sums,
                                               .rows = rows,
                                               .k = n,
                                               .stride = q->stride,
                                               .xs = q->xs});
}

/* Adds terms of 16-bit elements: converts a block of the matrix first, a run of neighbours at a
 * time. */
static void add_halves(const job *q, int64_t row, int64_t rows, int64_t l, int64_t n, float *sums)
{
    enum { BLOCK = GROUP * TERMS };
    float block[BLOCK], x[TERMS];
    uint16_t dense[TERMS];
    const uint16_t *a = (const uint16_t *)(const void *)q->a;
    const void *from = dense;
    const int64_t run = q->across ? n : rows, count = q->across ? rows : n;
    fxi_copy_strided(dense, (const uint16_t *)(const void *)q->x + l * q->xs, n, q->xs,
                     sizeof *dense);
    q->load(x, &from, (int)n, 0);
    for (int64_t i = 0; i < count; i++) {
        from = a + (q->across ? (row + i) * q->stride + l : row + (l + i) * q->stride);
        q->load(block + i * run, &from, (int)run, 0);
    }
    (q->across ? q->core->across : q->core->columns)(
        &(fxi_gemv){.a = block, .x = x, .y = sums, .rows = rows, .k = n, .stride = run, .xs = 1});
}

/* Adds a block of the sum: n terms, at most kc, of some rows. */
static void add_block(const job *q, int64_t row, int64_t rows, int64_t l, int64_t n, void *sums)
{
    if (!q->load) {
        add_terms(q, row, rows, l, n, sums);
        return;
    }
    /* A block has GROUP runs of TERMS neighbours, so that the loads of many runs overlap. */
    const int64_t group = q->across ? GROUP : TERMS, terms = q->across ? TERMS : GROUP;
    for (int64_t i = 0; i < rows; i += group)
        for (int64_t t = 0; t < n; t += terms)
            add_halves(q, row + i, fxi_cpu_min(group, rows - i), l + t, fxi_cpu_min(terms, n - t),
                       (float *)sums + i);
}

/* The sum of a block begins at 0 and is added to the sums of the earlier blocks. */
#define ADD(S, T)                                                                                  \
    static void add_##S(void *to, const void *block, int64_t n)                                    \
    {                                                                                              \
        T *d = to;                                                                                 \
        const T *s = block;                                                                        \
        for (int64_t i = 0; i < n; i++)                                                            \
            d[i] += s[i];                                                                          \
    }
ADD(f32, float)
ADD(f64, double)

/* Computes some rows of the result. The sums of a block have memory of their own, because C may
 * hold the sums of earlier blocks; adding each block once, and to 0 first, gives the roundings of
 * the tile. 16-bit results are summed in Float32 and rounded once, when all blocks have been added.
 */
static void run_rows(const job *q, int64_t row, int64_t rows)
{
    _Alignas(64) double block[ROWS];
    _Alignas(64) float sums[ROWS]; /* of 16-bit results */
    char *c = fxi_at_out(q->g->c, row, q->stored);
    void *total = q->load ? (void *)sums : c;
    if (q->load || !q->g->accumulate)
        memset(total, 0, (size_t)rows * q->size);
    for (int64_t l = 0; l < q->k; l += q->kc) {
        memset(block, 0, (size_t)rows * q->size);
        add_block(q, row, rows, l, fxi_cpu_min(q->kc, q->k - l), block);
        (q->size == sizeof(double) ? add_f64 : add_f32)(total, block, rows);
    }
    for (int64_t i = 0; q->load && i < rows; i += FXI_TILE) {
        const void *const from[] = {sums + i};
        q->store(fxi_at_out(c, i, q->stored), from, (int)fxi_cpu_min(FXI_TILE, rows - i), 0);
    }
}

/* Parts are ranges of rows: no sum is divided. */
static void run_part(void *user, int64_t part)
{
    const job *q = user;
    int64_t from, to;
    fxi_cpu_range(q->rows, q->parts, part, &from, &to);
    for (int64_t row = from; row < to; row += q->together)
        run_rows(q, row, fxi_cpu_min(q->together, to - row));
}

/* How many rows are summed together: ROWS, unless the terms of a row are neighbours and are not
 * converted. In that case, if no cache holds the matrix: as many as a vector has lanes, and these
 * rows are read to their ends. Measured with rows of 4096 terms: 14 GB/s with 8 rows, 10 with 16,
 * and 6 with blocks of 512 terms of all rows. If a cache holds it: twice as many, which hides the
 * latency of the sums. */
static int64_t rows_together(const job *q, int64_t lanes, bool cached)
{
    return !q->across || q->load ? ROWS : cached ? 2 * lanes : lanes;
}

/* fxi_cpu_gemv_suits has accepted the product. `describe` is called again because the operands are
 * known only now. */
void fxi_cpu_gemv(int dtype, const fxi_gemm *g, int64_t kc, bool alone)
{
    const fxi_simd *simd = fxi_cpu_simd();
    const bool half = fxi_cpu_is_half(dtype);
    job q;
    describe(g, &q);
    q.core = &simd->gemv[dtype == FX_DTYPE_F64];
    q.kc = kc;
    q.stored = fxi_cpu_size(dtype);
    q.size = half ? sizeof(float) : q.stored;
    q.load = half ? simd->load[dtype == FX_DTYPE_BF16] : NULL;
    q.store = half ? simd->store[dtype == FX_DTYPE_BF16] : NULL;
    /* Memory limits the product, so its bytes decide on the number of parts. */
    const double elements = (double)q.rows * (double)q.k, bytes = elements * (double)q.stored;
    const bool cached = bytes <= CACHED;
    q.together = rows_together(&q, simd->gemm[dtype == FX_DTYPE_F64].lanes, cached);
    q.parts =
        alone ? 1
              : fxi_cpu_parts(fxi_cpu_divide_up(q.rows, q.across || cached ? PART_ROWS : PART_RUN),
                              fxi_cpu_cost(bytes, 2 * elements));
    if (q.parts > 1)
        fxi_cpu_parallel(q.parts, run_part, &q);
    else
        run_part(&q, 0);
}
