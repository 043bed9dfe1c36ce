/* cpu_gemm.c: the product of two matrices of floats.
 *
 * The scheme is that of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication",
 * 2008), with one change: some columns of B are packed into panels for the whole sum, or for as
 * many of its blocks as the last-level cache holds; then blocks of rows of A and C are independent
 * of each other, and threads share them without waiting. For each block of the sum over k, a part
 * packs its rows of A, and a register tile (cpu_isa_gemm.h) runs over them, panel of B by panel: A
 * and C stay in the second-level cache, a panel in the first. An operand is read in its own memory,
 * without packing, if its layout suits the tile, or if it is used so rarely that a copy would take
 * longer (docs/design/0005).
 *
 * Each element is a sum over k in order, in blocks whose size depends on k alone, whatever the path
 * and the other sizes are: results do not depend on how a batch or C is divided. For this reason no
 * path computes dot products along k in vectors, although that would be faster for a transposed
 * matrix times a vector.
 *
 * A matrix times a vector has loops of its own, with the same order of sums (cpu_gemv.c).
 *
 * 16-bit operands become Float32 as they are packed, and a part's C is rounded when its sums are
 * complete. If B is packed for some blocks of the sum at a time, the Float32 sums of all parts are
 * kept between them.
 */
#include "cpu_gemv.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "memory.h"
#include "strided.h"
#include <string.h>

enum {
    DEPTH = 512,    /* terms of a block of the sum at most */
    ROWS = 96,      /* rows of a part, if the product has enough rows */
    COLUMNS = 1024, /* columns taken at a time. ROWS·COLUMNS elements of C, 400 KB of Float32, stay
                       in the second-level cache: 128 rows and 1032 columns were slower. More
                       columns and fewer rows are better, because A is packed for each portion of
                       the columns. */
    SMALL = 100000, /* multiplications that one thread does alone */
    FEW_PANELS = 8, /* panels of B: up to this number an A with neighbouring rows is not packed */
    FEW_TILES = 8,  /* tiles of rows: up to this number a B that is read by columns is not packed,
                      whatever the distances of its elements */
    LINE = 64,      /* bytes of a cache line */
    NEAR = LINE,    /* bytes: columns are in the same cache sets if their distance differs by less
                       from a multiple of PAGE */
    LITTLE = 8192,  /* elements of a matrix that is packed although it is used once, or of an A that
                       is not divided */
    PANELS = 8,     /* panels of B packed together */
    PARTS = 8,      /* parts, at least, for several threads */
    EVEN = 4,       /* many parts are a multiple of it, so that two or four threads share them */
    PAGE = 4096,    /* bytes; prefetchers do not cross its end */
    RUN = 8,        /* terms packed at a time, if their columns are in different pages */
    CACHED_BYTES = 1 << 20, /* of a matrix that the second-level cache may hold */
    B_BYTES = 12 << 20,     /* bytes of packed B: a part of the last-level cache */
    STACK_BYTES =
        16384, /* bytes of packed operands on the stack: small products allocate nothing */
};

/* How a product is computed; plan_of() decides it from the sizes and strides. */
typedef struct product {
    fxi_gemm g;
    int dtype;
    const fxi_gemm_core *core;
    int64_t size, mr;        /* bytes of an element in panels and sums; rows of a tile */
    int64_t stored;          /* bytes of an element in memory */
    fxi_tile_fn load, store; /* conversions between the two; NULL if they are the same type */
    int64_t kc, nc;          /* terms of a block of the sum; columns taken at a time */
    int64_t kp;              /* terms of packed B at a time: all, or some blocks of the sum */
    bool pack_a, pack_b;
    bool exchanged;                  /* computes Cᵀ = Bᵀ·Aᵀ: `g` has the factors exchanged */
    bool small;                      /* one part, whatever the number of threads */
    bool vector;                     /* C is one column or row: computed by cpu_gemv.c */
    int64_t row_parts, column_parts; /* of the columns taken at a time */
    int64_t parts;                   /* parts for the threads; 1: the caller computes alone */
    int64_t a_bytes, b_bytes;        /* bytes of packed operands; those of A are for one part */
    int64_t c_bytes;                 /* bytes of a part's sums; 0 if they are summed in C itself */
    int64_t kept_bytes;              /* bytes of the sums of all parts, if they are kept */
    int64_t first, columns;          /* the columns being computed */
    int64_t term, terms;             /* the terms being added */
    int64_t together;                /* panels of B that are packed together */
    char *b, *kept;
} product;

/* Addresses of an element: of panels and sums with at(), of the operands and C with stored_at(). */
static void *at(void *base, int64_t element, const product *p)
{
    return (char *)base + element * p->size;
}
static void *stored_at(const void *base, int64_t element, const product *p)
{
    return (char *)(uintptr_t)base + element * p->stored;
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* Terms converted at a time; WIDEST is the most rows or columns of a panel. */
enum { CHUNK = 128, WIDEST = 32 };

/* Packs 16-bit elements as Float32. If neighbouring rows are neighbours in memory, each term is one
 * conversion; else a chunk of each row is made dense and converted first, because the conversion
 * works on whole vectors. */
static void pack_halves(const product *p, int width, const uint16_t *s, int64_t stride,
                        int64_t depth_stride, int count, int64_t depth, float *d)
{
    float rows[WIDEST * CHUNK];
    uint16_t run[CHUNK];
    const void *from = run;
    if (stride == 1) {
        for (int64_t q = 0; q < depth; q++, d += width) {
            from = s + q * depth_stride;
            p->load(d, &from, count, 0);
            memset(d + count, 0, (size_t)(width - count) * sizeof *d);
        }
        return;
    }
    for (int64_t q = 0; q < depth; q += CHUNK) {
        const int64_t n = fxi_cpu_min(CHUNK, depth - q);
        for (int r = 0; r < count; r++) {
            fxi_copy_strided(run, s + r * stride + q * depth_stride, n, depth_stride, sizeof *run);
            p->load(rows + r * CHUNK, &from, (int)n, 0);
        }
        /* The chunk is dense Float32 now and is packed like any operand. */
        p->core->pack(width, rows, CHUNK, 1, count, n, false, d + q * width);
    }
}

/* Is a matrix of this many rows of A, or columns of B, too large for the caches? Then it is
 * prefetched: 50257×256 numbers are packed in 2.0 ms instead of 4.8. For a matrix in the caches,
 * prefetches only take time. */
static bool is_far(const product *p, int64_t all)
{
    return all > CACHED_BYTES / (p->g.k * p->stored);
}

/* all: the rows of A, or columns of B, of the whole product. */
static void pack(const product *p, int width, const void *s, int64_t stride, int64_t depth_stride,
                 int count, int64_t depth, int64_t all, void *d)
{
    if (p->load)
        pack_halves(p, width, s, stride, depth_stride, count, depth, d);
    else
        p->core->pack(width, s, stride, depth_stride, count, depth, is_far(p, all), d);
}

/* Packs `count` of the terms being added, from the q-th on, of one panel of B. */
static void pack_terms(const product *p, int64_t panel, int64_t q, int64_t count)
{
    const fxi_gemm *g = &p->g;
    const int64_t j = panel * p->core->nr;
    const int n = (int)fxi_cpu_min(p->core->nr, p->columns - j);
    const int width = (int)fxi_cpu_round_up(n, p->core->unit);
    pack(p, width, stored_at(g->b, (p->term + q) * g->rsb + (p->first + j) * g->csb, p), g->csb,
         g->rsb, n, count, g->n, at(p->b, j * p->terms + q * width, p));
}

static int64_t panels_of(const product *p)
{
    return fxi_cpu_divide_up(p->columns, p->core->nr);
}

/* How many panels are packed together: if rows of B are in different pages, RUN of them are packed
 * for all these panels before the next ones, because a panel's columns are only a cache line of
 * each row. Two groups at least for each thread, if there are enough panels. Another thread may
 * change the number of threads meanwhile, so this is asked once for each portion. */
static int64_t panels_together(const product *p)
{
    if (p->g.csb != 1 || p->g.rsb * p->stored < PAGE)
        return 1;
    return fxi_cpu_max(1, fxi_cpu_min(PANELS, panels_of(p) / (2 * fx_num_threads())));
}

static int64_t groups_of(const product *p)
{
    return p->pack_b ? fxi_cpu_divide_up(panels_of(p), p->together) : 0;
}

/* Packs a group of panels of B, so that every block of rows finds them ready. */
static void pack_panels(const product *p, int64_t group)
{
    const int64_t n = p->together, each = n > 1 ? RUN : p->terms;
    const int64_t from = group * n, to = fxi_cpu_min(from + n, panels_of(p));
    for (int64_t q = 0; q < p->terms; q += each)
        for (int64_t panel = from; panel < to; panel++)
            pack_terms(p, panel, q, fxi_cpu_min(each, p->terms - q));
}

/* ---- one part -------------------------------------------------------------------------------- */

/* The width of the tiles of n columns. */
static int width_of(const product *p, int64_t n)
{
    return (int)fxi_cpu_round_up(fxi_cpu_min(p->core->nr, n), p->core->unit);
}

/* Describes a B in its own memory, for t->n columns. A panel narrower than the unit of widths is
 * read column by column, because the columns that do not exist must not be read. */
static void read_in_place(const product *p, fxi_gemm_tiles *t)
{
    const int width = width_of(p, t->n);
    t->brs = p->g.rsb;
    t->bcs = p->g.csb;
    t->bnext = width * p->g.csb;
    t->columns = p->g.csb != 1 || t->n < width;
}

/* Sets the B of a row of tiles: columns from j on, terms from l on. Returns the width of the
 * tiles. */
static int take_columns(const product *p, int64_t j, int64_t l, fxi_gemm_tiles *t)
{
    const fxi_gemm *g = &p->g;
    const int width = width_of(p, t->n);
    if (p->pack_b) {
        t->b = at(p->b, j * p->terms + (l - p->term) * width, p);
        t->brs = width;
        t->bnext = width * p->terms;
        t->columns = false;
    } else {
        t->b = stored_at(g->b, l * g->rsb + (p->first + j) * g->csb, p);
        read_in_place(p, t);
    }
    return width;
}

/* Returns the A of a part's rows, which begin at row i: terms from l on, t->k of them. Packed rows
 * serve all panels of B. Where columns are in different pages, RUN of them are packed for all
 * rows before the next ones: a tile's rows are only a cache line of each column, and columns whose
 * distance is a power of two share a cache set. */
static const void *take_rows(const product *p, int64_t i, int64_t m, int64_t l, char *a,
                             fxi_gemm_tiles *t)
{
    const fxi_gemm *g = &p->g;
    const void *from = stored_at(g->a, i * g->rsa + l * g->csa, p);
    t->acs = p->pack_a ? p->mr : g->csa;
    t->anext = p->pack_a ? p->mr * t->k : p->mr;
    const int64_t far = g->rsa == 1 && g->csa * p->stored >= PAGE, each = far ? RUN : t->k;
    for (int64_t q = 0; p->pack_a && q < t->k; q += each)
        for (int64_t r = 0; r < m; r += p->mr)
            pack(p, (int)p->mr, stored_at(from, r * g->rsa + q * g->csa, p), g->rsa, g->csa,
                 (int)fxi_cpu_min(p->mr, m - r), fxi_cpu_min(each, t->k - q), g->m,
                 at(a, r * t->k + q * p->mr, p));
    return p->pack_a ? a : from;
}

/* Computes m rows by t->n columns: first the whole tiles of rows, then the rest. `a`, `c` and `d`:
 * their first rows; d: NULL or added (fxi_gemm_tiles). */
static void run_tiles(const product *p, const void *a, char *c, const char *d, int64_t m,
                      const fxi_gemm_tiles_fn *tiles, fxi_gemm_tiles *t)
{
    const int64_t whole = m / p->mr * p->mr;
    t->a = a;
    t->c = c;
    t->d = d;
    t->m = whole;
    if (whole > 0)
        tiles[2](t);
    t->a = at((char *)(uintptr_t)a, whole / p->mr * t->anext, p);
    t->c = at(c, whole, p);
    t->d = d ? stored_at(d, whole, p) : NULL;
    t->m = m - whole;
    if (whole < m)
        tiles[t->m > p->core->lanes](t);
}

/* What a thread packs next of a large A, in runs of neighbouring elements: the next terms of its
 * rows, or the first terms of the rows after them. It is fetched into the second-level cache while
 * tiles are computed, because memory is idle then. */
typedef struct fetching {
    const char *at;
    int64_t run, stride; /* bytes of a run, and from one run to the next */
    int64_t runs;        /* that are left */
    int64_t done;        /* bytes of the first of them that have been fetched */
    int64_t lines;       /* fetched at a time */
} fetching;

/* Rows i0 … i1−1 have been packed from term l on. steps: calls of fetch(). */
static fetching fetch_next(const product *p, int64_t i0, int64_t i1, int64_t l, int64_t steps)
{
    const fxi_gemm *g = &p->g;
    const int64_t end = p->term + p->terms;
    const bool same = l + p->kc < end, across = g->csa == 1;
    const int64_t i = same ? i0 : i1, rows = fxi_cpu_min(i1 - i0, g->m - i);
    const int64_t q = same ? l + p->kc : p->term, terms = fxi_cpu_min(p->kc, end - q);
    fetching f = {.runs = 0};
    /* A part of one tile of rows is computed in one call. */
    if (!p->pack_a || rows <= 0 || i1 - i0 <= p->mr || (!across && g->rsa != 1) || !is_far(p, g->m))
        return f;
    f.at = stored_at(g->a, i * g->rsa + q * g->csa, p);
    f.run = (across ? terms : rows) * p->stored;
    f.stride = (across ? g->rsa : g->csa) * p->stored;
    f.runs = across ? rows : terms;
    f.lines = fxi_cpu_divide_up(f.runs * fxi_cpu_divide_up(f.run, LINE), steps);
    return f;
}

static void fetch(fetching *f)
{
    for (int64_t n = 0; n < f->lines && f->runs > 0; n++) {
        __builtin_prefetch(f->at + f->done, 0, 2);
        f->done += LINE;
        if (f->done >= f->run) {
            f->done = 0;
            f->at += f->stride;
            f->runs--;
        }
    }
}

/* Parts begin at whole tiles. */
static void range_of(int64_t n, int64_t unit, int64_t parts, int64_t part, int64_t *from,
                     int64_t *to)
{
    fxi_cpu_range((n + unit - 1) / unit, parts, part, from, to);
    *from *= unit;
    *to = fxi_cpu_min(*to * unit, n);
}

/* Rounds the m×n sums of a part to 16 bits and writes them to C: one rounding for each element. If
 * a part's columns follow each other without a gap, they are one run, which saves calls. */
static void store_sums(const product *p, const float *sums, int64_t m, int64_t n, char *c)
{
    const bool whole = m == p->g.csc; /* one run */
    const int64_t run = whole ? m * n : m;
    for (int64_t j = 0; j < (whole ? 1 : n); j++)
        for (int64_t i = 0; i < run; i += FXI_TILE) {
            const void *const from[] = {sums + j * m + i};
            p->store(stored_at(c, i + j * p->g.csc, p), from, (int)fxi_cpu_min(FXI_TILE, run - i),
                     0);
        }
}

/* Computes rows i0 … i1−1 of columns j0 … j1−1. The order of loops is that of the caches: a block
 * of terms, then a panel of B (first level), then the tiles of rows (second level). A part of one
 * tile of rows takes all its whole panels in one call, as each of them is used once only. `half`:
 * the Float32 sums of 16-bit results; other results are summed in C itself. D is added only to a
 * sum of one block (fxi_cpu_gemm_adds). */
static void run_rows(const product *p, int64_t i0, int64_t i1, int64_t j0, int64_t j1, char *a,
                     char *half)
{
    const fxi_gemm *g = &p->g;
    const int64_t end = p->term + p->terms;
    char *c = stored_at(g->c, i0 + (p->first + j0) * g->csc, p), *sums = p->load ? half : c;
    const char *d = g->d ? stored_at(g->d, i0 + (p->first + j0) * g->csd, p) : NULL;
    const int64_t nr = p->core->nr, whole = (j1 - j0) / nr * nr;
    fxi_gemm_tiles t; /* the functions above fill in what the tiles need */
    if (j0 == j1)     /* the last columns may be fewer than the parts */
        return;
    t.ccs = p->load ? i1 - i0 : g->csc;
    t.dcs = g->csd;
    t.bcs = 0;
    for (int64_t l = p->term; l < end; l += p->kc) {
        t.k = fxi_cpu_min(p->kc, end - l);
        t.accumulate = l > 0 || g->accumulate || d;
        const void *rows = take_rows(p, i0, i1 - i0, l, a, &t);
        fetching next = fetch_next(p, i0, i1, l, fxi_cpu_divide_up(j1 - j0, nr));
        for (int64_t j = j0; j < j1; j += t.n) {
            const bool all = i1 - i0 <= p->mr && j == j0 && whole > 0;
            t.n = all ? whole : fxi_cpu_min(nr, j1 - j);
            const int width = take_columns(p, j, l, &t);
            fetch(&next);
            run_tiles(p, rows, at(sums, (j - j0) * t.ccs, p),
                      d ? stored_at(d, (j - j0) * g->csd, p) : NULL, i1 - i0,
                      p->core->tile[width / p->core->unit - 1], &t);
        }
    }
    if (p->load && end == g->k)
        store_sums(p, (const float *)(const void *)sums, i1 - i0, j1 - j0, c);
}

/* Threads get ranges of neighbouring parts. While packed B is in the second-level cache, these have
 * all columns of some rows, because the last columns may be fewer: of 64 columns, one of two
 * threads would have 36. A larger B is read from farther away, so each thread reads few of its
 * columns. */
static void run_part(const product *p, int64_t part, char *a)
{
    const bool near = p->columns <= CACHED_BYTES / 2 / (p->g.k * p->size);
    const int64_t row = near ? part / p->column_parts : part % p->row_parts,
                  column = near ? part % p->column_parts : part / p->row_parts;
    int64_t i0, i1, j0, j1;
    range_of(p->g.m, p->mr, p->row_parts, row, &i0, &i1);
    range_of(p->columns, p->core->nr, p->column_parts, column, &j0, &j1);
    run_rows(p, i0, i1, j0, j1, a, p->kept_bytes ? p->kept + part * p->c_bytes : a + p->a_bytes);
}

/* ---- how it is computed ---------------------------------------------------------------------- */

/* Divides C into parts of ROWS rows and all columns taken at a time. Where that makes too few parts
 * for the threads, parts have fewer rows, and then fewer columns. Sizes and strides decide, not the
 * threads. */
static void divide(product *p)
{
    p->parts = p->row_parts = p->column_parts = 1;
    /* Small products are one part: dividing them costs more than it saves. */
    p->small = (p->g.m <= ROWS || p->g.m <= LITTLE / p->g.k) &&
               (double)p->g.m * (double)p->g.n * (double)p->g.k < SMALL;
    if (p->small)
        return;
    const int64_t tiles = (p->g.m + p->mr - 1) / p->mr;
    const int64_t panels = (fxi_cpu_min(p->nc, p->g.n) + p->core->nr - 1) / p->core->nr;
    const double cost = fxi_cpu_cost(0, 2.0 * (double)p->g.m * (double)p->g.n * (double)p->g.k) *
                        (double)p->size / sizeof(float);
    p->parts = fxi_cpu_parts(tiles * panels, cost);
    /* Two threads share an even number of parts evenly. */
    const int64_t want = fxi_cpu_min(p->parts + (p->parts > 1 && p->parts % 2), PARTS),
                  rows = ROWS / p->mr;
    /* If packing A takes much of the time, rows are divided down to single tiles before columns
     * are: each part of the columns packs the rows again. */
    const bool thin = p->pack_a && panels <= FEW_PANELS;
    p->row_parts = (tiles + rows - 1) / rows;
    /* Of 9 or 11 parts, one of two threads would compute one more than the other. */
    if (p->parts > 1 && p->row_parts > want)
        p->row_parts = fxi_cpu_round_up(p->row_parts, EVEN);
    /* Else at least two tiles of rows for a part: its packed rows serve all panels of B. */
    if (p->row_parts < want)
        p->row_parts = fxi_cpu_min(want, thin ? tiles : (tiles + 1) / 2);
    p->column_parts = fxi_cpu_min(panels, (want + p->row_parts - 1) / p->row_parts);
    if (p->parts > 1)
        p->parts = p->row_parts * p->column_parts;
}

/* Columns are taken in portions of about equal size. With a fixed size, 2048 columns were taken as
 * 1020, 1020 and 8, and A was packed a third time for the last 8. */
static int64_t columns_at_a_time(const product *p)
{
    const int64_t n = p->g.n, portions = (n + COLUMNS - 1) / COLUMNS;
    return n <= COLUMNS ? n : fxi_cpu_round_up((n + portions - 1) / portions, p->core->nr);
}

/* Where the packed columns of B would be too large for the cache, they are packed for some blocks
 * of the sum at a time. Fewer columns for the whole sum would have the same size, but A would be
 * packed for each portion of them. */
static int64_t terms_at_a_time(const product *p)
{
    const int64_t k = p->g.k, block = p->kc * fxi_cpu_min(p->nc, p->g.n) * p->size;
    const int64_t blocks = fxi_cpu_divide_up(k, p->kc), most = fxi_cpu_max(1, B_BYTES / block);
    /* A B in its own memory is divided too, if several blocks of rows read it. */
    if ((!p->pack_b && p->g.m <= ROWS) || blocks <= most)
        return k;
    return fxi_cpu_divide_up(blocks, fxi_cpu_divide_up(blocks, most)) * p->kc;
}

/* Computes Cᵀ = Bᵀ·Aᵀ instead, for a C of one row or one column: the matrix can then be read in its
 * own memory, and is not packed for a single use. */
static void exchange_factors(fxi_gemm *g)
{
    const fxi_gemm t = *g;
    g->m = t.n, g->n = t.m;
    g->a = t.b, g->rsa = t.csb, g->csa = t.rsb;
    g->b = t.a, g->rsb = t.csa, g->csb = t.rsa;
    /* The elements of C are neighbours. If they are now a row, its columns have a stride of 1. */
    g->csc = 1;
}

static void count_bytes(product *p)
{
    /* A part may have one tile more than the average. */
    const int64_t rows =
        fxi_cpu_round_up((p->g.m + p->row_parts - 1) / p->row_parts + p->mr, p->mr);
    const int64_t columns = fxi_cpu_min(p->nc, p->g.n),
                  each = columns / p->column_parts + p->core->nr;
    if (p->pack_a)
        p->a_bytes = fxi_cpu_round_up(rows * p->kc * p->size, 64);
    if (p->pack_b)
        p->b_bytes =
            fxi_cpu_round_up(fxi_cpu_round_up(columns, p->core->unit) * p->kp * p->size, 64);
    if (p->load)
        p->c_bytes = rows * fxi_cpu_round_up(each, p->core->nr) * p->size;
    if (p->load && p->kp < p->g.k)
        p->kept_bytes = p->row_parts * p->column_parts * p->c_bytes;
}

/* Is B packed? Tiles can read it as rows or by columns, so packing pays only if several tiles of
 * rows share it: more than two if columns are neighbours, else more than FEW_TILES. By columns
 * whose terms are neighbours, a tile is as fast as with packed B, and no time is lost for packing:
 * 256×1024×784 took 3.3 ms instead of 3.7, 256×256×50257 68 ms instead of 90 (AVX2). This does not
 * hold if the columns are in the same cache sets (NEAR): a first-level cache may keep only 8 lines
 * of a set, and a tile has more columns. */
static bool packs_b(const product *p)
{
    const fxi_gemm *g = &p->g;
    const int64_t off = g->csb * p->size % PAGE;
    if (g->rsb == 1 && g->csb != 1 && off >= NEAR && off <= PAGE - NEAR)
        return false;
    return g->m > (g->csb == 1 ? 2 : FEW_TILES) * p->mr;
}

static product plan_of(int dtype, const fxi_gemm *given)
{
    const fxi_simd *simd = fxi_cpu_simd();
    const fxi_gemm_core *core = &simd->gemm[dtype == FX_DTYPE_F64];
    product p = {.g = *given, .dtype = dtype, .core = core, .mr = 2 * core->lanes};
    fxi_gemm *g = &p.g;
    p.stored = p.size = (int64_t)fxi_cpu_size(dtype);
    if (fxi_cpu_is_half(dtype)) {
        p.size = sizeof(float);
        /* 16-bit products are computed in Float32; the conversions are part of packing and
         * storing. */
        p.load = simd->load[dtype == FX_DTYPE_BF16];
        p.store = simd->store[dtype == FX_DTYPE_BF16];
    }
    /* Only if the exchanged matrix has a layout that a tile reads without packing. A small matrix
     * may be packed: it is in the first-level cache, so packing takes less time than tiles of a
     * single row, which spread each number of B over a vector and use one element of it. */
    const bool small = g->rsb == 1 && g->n >= core->lanes && g->n <= LITTLE / g->k;
    p.exchanged =
        (g->m == 1 && g->csc == 1 && (g->csb == 1 || small)) || (g->n == 1 && g->csa == 1);
    if (p.exchanged)
        exchange_factors(g);
    /* Blocks of the sum are of about equal size, which depends on k alone (see the head of this
     * file). */
    p.kc = g->k;
    if (g->k > DEPTH) {
        const int64_t blocks = (g->k + DEPTH - 1) / DEPTH;
        p.kc = (g->k + blocks - 1) / blocks;
    }
    p.vector = fxi_cpu_gemv_suits(dtype, g);
    p.parts = 1;
    /* Nothing is packed or divided here. */
    if (p.vector)
        return p;
    /* A tile needs neighbouring rows of A. Even then packing is faster if many panels read columns
     * of A that are far apart. */
    p.pack_a = p.load || g->rsa != 1 || (g->n > FEW_PANELS * core->nr && g->csa > 2 * p.mr);
    p.pack_b = p.load || packs_b(&p);
    p.nc = columns_at_a_time(&p);
    p.kp = terms_at_a_time(&p);
    divide(&p);
    count_bytes(&p);
    return p;
}

/* A product without terms: C = 0, or unchanged if it accumulates. */
static void no_terms(const fxi_gemm *g, int64_t size)
{
    for (int64_t j = 0; j < g->n && !g->accumulate; j++)
        memset(fxi_at_out(g->c, j * g->csc, (size_t)size), 0, (size_t)(g->m * size));
}

/* ---- running --------------------------------------------------------------------------------- */

/* Takes the next terms of the columns, and after the last of them the next columns. Returns false
 * after the last columns. */
static bool next_portion(product *p)
{
    p->term += p->terms;
    if (p->term == p->g.k) {
        p->term = 0;
        p->first += p->columns;
    }
    p->terms = fxi_cpu_min(p->kp, p->g.k - p->term);
    p->columns = fxi_cpu_min(p->nc, p->g.n - p->first);
    p->together = panels_together(p);
    return p->columns > 0;
}

/* Bytes of the memory in which a thread computes its parts: packed A, and sums that are not kept.
 */
static int64_t part_bytes(const product *p)
{
    return p->a_bytes + (p->kept_bytes ? 0 : p->c_bytes);
}

/* Bytes of the memory that the caller of run_alone() gives. */
static int64_t alone_bytes(const product *p)
{
    return p->b_bytes + p->kept_bytes + part_bytes(p);
}

/* Uses the memory that the caller gives: packed B, kept sums, then a part's packed A and sums. */
static void run_alone(product *p, char *memory)
{
    if (p->vector) {
        fxi_cpu_gemv(p->dtype, &p->g, p->kc, true);
        return;
    }
    p->b = memory;
    p->kept = p->b + p->b_bytes;
    char *own = p->kept + p->kept_bytes;
    while (next_portion(p)) {
        for (int64_t k = 0; k < groups_of(p); k++)
            pack_panels(p, k);
        if (p->small)
            run_rows(p, 0, p->g.m, 0, p->columns, own, own + p->a_bytes);
        for (int64_t k = 0; k < p->row_parts * p->column_parts && !p->small; k++)
            run_part(p, k, own);
    }
}

static void shared_panels(void *user, int64_t group)
{
    pack_panels(user, group);
}
static void shared_part(void *user, int64_t part, void *scratch)
{
    run_part(user, part, scratch);
}

/* B is packed by all threads together before the first part starts. A thread's packed A and its
 * sums are in its scratch (cpu_parallel.h). */
static fx_status run_shared(product *p)
{
    fx_status status = FX_OK;
    if (p->pack_b && !(p->b = fxi_aligned(64, (size_t)(p->b_bytes + p->kept_bytes))))
        return FX_STATUS_MEMORY;
    if (p->kept_bytes) /* then B is packed */
        p->kept = p->b + p->b_bytes;
    /* Portions one after the other: threads wait for each other between them, since they share the
     * packed B. */
    while (!status && next_portion(p)) {
        fxi_cpu_parallel(groups_of(p), shared_panels, p);
        status = fxi_cpu_parallel_scratch(p->parts, (size_t)part_bytes(p), shared_part, p);
    }
    fxi_free(p->b);
    return status;
}

/* For batches: each thread gets this much memory once and computes many products in it. */
size_t fxi_cpu_gemm_bytes(int dtype, const fxi_gemm *g)
{
    if (g->m == 0 || g->n == 0 || g->k == 0)
        return 0;
    /* Sizes and strides alone decide, so all products of a batch need the same memory. */
    const product p = plan_of(dtype, g);
    return (size_t)alone_bytes(&p);
}

static bool trivial(int dtype, const fxi_gemm *g)
{
    if (g->k == 0)
        no_terms(g, (int64_t)fxi_cpu_size(dtype));
    return g->m == 0 || g->n == 0 || g->k == 0;
}

void fxi_cpu_gemm_alone(int dtype, const fxi_gemm *g, void *memory)
{
    if (trivial(dtype, g))
        return;
    product p = plan_of(dtype, g);
    run_alone(&p, memory);
}

/* On one thread a small product uses the stack for its packed operands, so it allocates nothing. */
static fx_status run_product(product *p)
{
    _Alignas(64) char stack[STACK_BYTES];
    char *heap = NULL;
    if (p->vector) {
        fxi_cpu_gemv(p->dtype, &p->g, p->kc, false);
        return FX_OK;
    }
    if (p->parts > 1)
        return run_shared(p);
    const int64_t bytes = alone_bytes(p);
    if (bytes > STACK_BYTES && !(heap = fxi_aligned(64, (size_t)bytes)))
        return FX_STATUS_MEMORY;
    run_alone(p, heap ? heap : stack);
    fxi_free(heap);
    return FX_OK;
}

fx_status fxi_cpu_gemm(int dtype, const fxi_gemm *g)
{
    if (trivial(dtype, g))
        return FX_OK;
    product p = plan_of(dtype, g);
    return run_product(&p);
}

/* One call of the tiles, whose operands are in their own memory. a, b and c: elements from the
 * beginning of each operand. */
typedef struct tile_call {
    fxi_gemm_tiles_fn run;
    fxi_gemm_tiles tiles;
    int64_t a, b, c, d;
} tile_call;

struct fxi_gemm_plan {
    product p;
    /* All calls of a small product that needs no memory and is one block of the sum: whole tiles
     * and the rest, of rows and of columns. 0: other products. */
    int calls;
    tile_call call[4];
};

/* Adds the call for m rows from row i on and n columns from column j on. The rows are either whole
 * tiles or less than one tile, and so are the columns, because a call has one tile function. An
 * empty rest has no call. */
static void add_call(fxi_gemm_plan *plan, int64_t i, int64_t m, int64_t j, int64_t n)
{
    const product *p = &plan->p;
    const fxi_gemm *g = &p->g;
    if (m == 0 || n == 0)
        return;
    fxi_gemm_tiles t = {.k = g->k,
                        .m = m,
                        .n = n,
                        .acs = g->csa,
                        .anext = p->mr,
                        .ccs = g->csc,
                        .dcs = g->csd,
                        .accumulate = g->accumulate};
    read_in_place(p, &t);
    const fxi_gemm_tiles_fn *run = p->core->tile[width_of(p, n) / p->core->unit - 1];
    plan->call[plan->calls++] = (tile_call){run[m % p->mr == 0 ? 2 : m > p->core->lanes],
                                            t,
                                            i,
                                            j * g->csb,
                                            i + j * g->csc,
                                            i + j * g->csd};
}

fxi_gemm_plan *fxi_cpu_gemm_prepare(int dtype, const fxi_gemm *g)
{
    fxi_gemm_plan *plan = fxi_malloc(sizeof *plan);
    if (!plan)
        return NULL;
    plan->p = plan_of(dtype, g);
    plan->calls = 0;
    const product *p = &plan->p;
    /* A larger product spends little of its time outside the tiles, and needs the order of loops
     * that suits the caches. */
    if (p->vector || p->pack_a || p->pack_b || !p->small || p->kc < p->g.k || p->nc < p->g.n)
        return plan;
    const int64_t rows = p->g.m / p->mr * p->mr, columns = p->g.n / p->core->nr * p->core->nr;
    add_call(plan, 0, rows, 0, columns);
    add_call(plan, rows, p->g.m - rows, 0, columns);
    add_call(plan, 0, rows, columns, p->g.n - columns);
    add_call(plan, rows, p->g.m - rows, columns, p->g.n - columns);
    return plan;
}

/* Four kinds of products cannot add D. An exchanged product would read rows of D that are not
 * neighbours. The loops for a vector add to C only. 16-bit results are rounded before an addition.
 * A sum of several blocks is complete only after the last one. */
bool fxi_cpu_gemm_adds(const fxi_gemm_plan *plan)
{
    const product *p = &plan->p;
    return !p->exchanged && !p->vector && !p->load && p->kc >= p->g.k;
}

/* The prepared product with its operands, in the order in which they are multiplied. */
static product with_operands(const fxi_gemm_plan *plan, const void *a, const void *b, const void *d,
                             void *c)
{
    product p = plan->p;
    p.g.d = d;
    p.g.a = p.exchanged ? b : a;
    p.g.b = p.exchanged ? a : b;
    p.g.c = c;
    return p;
}

/* Only the addresses differ from product to product. The plan is not changed, because threads share
 * it. */
static void run_calls(const fxi_gemm_plan *plan, const void *a, const void *b, const void *d,
                      void *c)
{
    const product *p = &plan->p;
    for (int k = 0; k < plan->calls; k++) {
        const tile_call *call = &plan->call[k];
        fxi_gemm_tiles t = call->tiles;
        t.a = stored_at(p->exchanged ? b : a, call->a, p);
        t.b = stored_at(p->exchanged ? a : b, call->b, p);
        t.c = stored_at(c, call->c, p);
        if (d) {
            t.d = stored_at(d, call->d, p);
            t.accumulate = true;
        }
        call->run(&t);
    }
}

fx_status fxi_cpu_gemm_run(const fxi_gemm_plan *plan, const void *a, const void *b, const void *d,
                           void *c)
{
    if (plan->calls) {
        run_calls(plan, a, b, d, c);
        return FX_OK;
    }
    product p = with_operands(plan, a, b, d, c);
    /* Tests may have changed the division into parts since the plan (fxi_cpu_parts_from). */
    if (!p.small && !p.vector) {
        p.a_bytes = p.b_bytes = p.c_bytes = p.kept_bytes = 0;
        divide(&p);
        count_bytes(&p);
    }
    return run_product(&p);
}

size_t fxi_cpu_gemm_plan_bytes(const fxi_gemm_plan *plan)
{
    return plan->calls ? 0 : (size_t)alone_bytes(&plan->p);
}

void fxi_cpu_gemm_run_alone(const fxi_gemm_plan *plan, const void *a, const void *b, void *c,
                            void *memory)
{
    if (plan->calls) {
        run_calls(plan, a, b, NULL, c);
        return;
    }
    product p = with_operands(plan, a, b, NULL, c);
    run_alone(&p, memory);
}
