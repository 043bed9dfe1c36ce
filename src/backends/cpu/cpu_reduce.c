/* cpu_reduce.c: reductions over any axes, and cumulative sums.
 *
 * The input's axes are divided into kept and reduced ones, and each group is collapsed to a walk.
 * If the reduced axes have the smaller stride, results are computed one by one, row after row of
 * memory. Otherwise a tile of neighbouring results is kept in accumulators while the reduced axes
 * are walked ("columns"). So memory is read in order either way. All this is decided when the step
 * is prepared, for 16-bit types in each run. Threads share the results; where results are few and
 * have many terms each, threads share the terms too: in pieces, whose accumulators are merged in
 * order. The division depends on shapes and strides only, and so do the bits of the result. Float32
 * sums and products accumulate in Float64. An empty reduction gives the neutral element.
 */
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    /* The accumulators of a tile: they are on the stack and stay in the first-level cache. A tile
     * has as many neighbouring results as fit, because it reads a piece of each row, and short
     * pieces of many rows are slow: maxima of 4096 columns of 4096 took 5.8 ms with 512 columns in
     * a tile, and take 3.3 with all. */
    TILE_BYTES = 16 << 10,
    /* Contiguous rows of at least LONG_ROW elements are reduced several in a tile, because a tile
     * costs time of its own. It has at most ROWS of them, fewer if the rows would make fewer than
     * ROW_TILES tiles, which threads share. */
    LONG_ROW = 1024,
    ROWS = 16,
    ROW_TILES = 64
};

typedef struct reduction {
    const fxi_reducer *op;
    const void *in;
    char *out;
    size_t size, out_size; /* of an element */
    bool columns;
    fxi_walk kept, reduced; /* walks over the axes other than the two below */
    int64_t width, stride;  /* size and stride of the kept axis of a tile; 1 if tiles are one row */
    int64_t most;           /* results of a tile, at most */
    int64_t terms, pitch;  /* size and stride of the reduced axis that a row or column runs along */
    int64_t outer;         /* number of positions of `reduced` */
    int64_t tiles, items;  /* tiles along `width`; all tiles */
    int64_t longest;       /* size of the axis that pieces divide */
    double cost;           /* nanoseconds for one thread, roughly */
    int64_t pieces, parts; /* pieces of an item's terms; parts of all items */
    char *partial;         /* accumulators by piece and item, where terms are divided; else NULL */
} reduction;

/* Adds n terms of m results to their accumulators. `x`: the first term of the first result. */
static inline void add_terms(const reduction *r, const void *x, int64_t m, int64_t n, void *acc)
{
    if (r->columns)
        r->op->col(x, m, r->stride, n, r->pitch, acc);
    else
        /* More than one row only if accumulators are separate (describe). */
        for (int64_t k = 0; k < m; k++)
            r->op->row(fxi_at(x, k * r->stride, r->size), n, r->pitch,
                       (char *)acc + k * (int64_t)r->op->size);
}

/* Computes the accumulators of m results, the first at element `at`, over one piece of their
 * terms. The outer axes are divided if they have enough positions for all pieces, else the
 * innermost one. */
static void accumulate(const reduction *r, int64_t at, int64_t m, int64_t piece, void *acc)
{
    fxi_walk w = r->reduced;
    int64_t k0 = 0, k1 = r->outer, from = 0, to = r->terms;
    if (r->outer >= r->pieces)
        fxi_cpu_range(r->outer, r->pieces, piece, &k0, &k1);
    else
        fxi_cpu_range(r->terms, r->pieces, piece, &from, &to);
    /* The walk starts at position 0. */
    if (k0 > 0)
        fxi_walk_seek(&w, k0);
    r->op->init(acc, m);
    for (; k0 < k1; k0++, fxi_walk_next(&w))
        add_terms(r, fxi_at(r->in, at + w.offset + from * r->pitch, r->size), m, to - from, acc);
}

/* The accumulators of a piece of an item. Those of its next piece are at a constant distance. */
static char *partial_of(const reduction *r, int64_t piece, int64_t item)
{
    const int64_t width = fxi_cpu_min(r->width, r->most);
    return r->partial + (piece * r->items + item) * width * (int64_t)r->op->size;
}

/* Computes the items of one part. If terms are divided too, that is one piece of one item. */
static void reduce_part(void *user, int64_t part)
{
    /* Without pieces the accumulators are on the stack, so a reduction allocates nothing. */
    _Alignas(64) char own[TILE_BYTES];
    const reduction *r = user;
    /* The pieces of an item have neighbouring numbers, so a thread's range of parts covers
     * neighbouring memory. */
    const int64_t piece = part % r->pieces;
    int64_t item, last;
    fxi_cpu_range(r->items, r->parts, part / r->pieces, &item, &last);
    fxi_walk kept = r->kept;
    fxi_walk_seek(&kept, item / r->tiles);
    for (int64_t tile = item % r->tiles; item < last; item++) {
        const int64_t j = tile * r->most, m = fxi_cpu_min(r->width - j, r->most);
        void *acc = r->partial ? partial_of(r, piece, item) : own;
        accumulate(r, kept.offset + j * r->stride, m, piece, acc);
        if (!r->partial)
            r->op->done(acc, m, fxi_at_out(r->out, item / r->tiles * r->width + j, r->out_size));
        /* Neighbouring items are neighbouring tiles, so counting replaces divisions. */
        if (++tile == r->tiles) {
            tile = 0;
            fxi_walk_next(&kept);
        }
    }
}

/* In the order of the pieces, so that the result does not depend on which thread was first. */
static void merge_pieces(const reduction *r)
{
    for (int64_t item = 0; item < r->items; item++) {
        const int64_t j = item % r->tiles * r->most, m = fxi_cpu_min(r->width - j, r->most);
        void *acc = partial_of(r, 0, item);
        for (int64_t piece = 1; piece < r->pieces; piece++)
            r->op->merge(acc, partial_of(r, piece, item), m);
        r->op->done(acc, m, fxi_at_out(r->out, item / r->tiles * r->width + j, r->out_size));
    }
}

/* Columns if neighbouring results are closer together in memory than neighbouring terms. A tile of
 * fewer than 8 results is too short for vectors; it is used only if there are fewer than 8 terms
 * too, or if all their terms are contiguous and the reducer has a loop for that (FXI_ARE_FEW);
 * reducers of indices have none. */
static bool by_columns(const reduction *r, int fold)
{
    if (r->kept.nd == 0 || r->reduced.nd == 0)
        return r->kept.nd > 0;
    /* Strides may be negative (reversed views). */
    const int64_t k = r->kept.stride[0], s = r->reduced.stride[0];
    const bool few = k == 1 && s == r->kept.shape[0] && fold <= FX_REDUCE_SQDEV;
    return (k < 0 ? -k : k) < (s < 0 ? -s : s) &&
           (r->kept.shape[0] >= 8 || r->reduced.shape[0] < 8 || few);
}

/* Divides the work: by items, and by terms too if there are fewer than FEW items. So even a single
 * result, such as the sum of an array, has enough pieces for a few threads. */
static void divide(reduction *r)
{
    enum { FEW = 16 };
    r->parts = fxi_cpu_parts(r->items, r->cost);
    /* About 2·FEW pieces in all at most, because one thread merges them. */
    r->pieces = r->items < FEW ? fxi_cpu_min(fxi_cpu_parts(r->longest, r->cost / (double)r->items),
                                             (2 * FEW + r->items - 1) / r->items)
                               : 1;
    /* A part is then one piece of one item. */
    if (r->pieces > 1)
        r->parts = r->items;
}

/* Fills in everything but the addresses and the division into pieces and parts. */
static void describe(reduction *r, const fx_step *step)
{
    const fx_tensor *t = &step->in[0];
    const uint32_t mask = fx_step_reduce(step)->mask;
    const int fold = fx_step_reduce(step)->fold;
    *r = (reduction){.op = fxi_cpu_reducer(fold, t->dtype, step->out.dtype),
                     .size = fxi_cpu_size(t->dtype),
                     .out_size = fxi_cpu_size(step->out.dtype),
                     .width = 1};
    fxi_walk_axes(&r->kept, t, mask, false);
    fxi_walk_axes(&r->reduced, t, mask, true);
    r->columns = by_columns(r, fold);
    /* The reducer's loops run along the innermost reduced axis, the walk over the others. */
    const int64_t all = fxi_walk_length(&r->reduced);
    fxi_walk_pop(&r->reduced, &r->terms, &r->pitch);
    const bool rows =
        !r->columns && r->pitch == 1 && r->terms >= LONG_ROW && fold <= FX_REDUCE_PROD;
    if (r->columns || rows)
        fxi_walk_pop(&r->kept, &r->width, &r->stride);
    /* Whole vectors. A size of 0: the type has no such reduction. */
    const int64_t fit = TILE_BYTES / fxi_cpu_max(1, (int64_t)r->op->size) / 64 * 64;
    /* A tile has few rows, because threads share the tiles: even an array of a few hundred rows
     * must have enough tiles for all threads. */
    r->most = r->columns ? fit : fxi_cpu_max(1, fxi_cpu_min(ROWS, r->width / ROW_TILES));
    /* An empty reduction visits no position and keeps the neutral element. */
    r->outer = all ? fxi_walk_length(&r->reduced) : 0;
    /* Only the last tile along an axis can have fewer results. */
    r->tiles = fxi_cpu_divide_up(r->width, r->most);
    r->items = r->tiles * fxi_walk_length(&r->kept);
    r->longest = r->outer > r->terms ? r->outer : r->terms;
    const double results = (double)(r->items * fxi_cpu_min(r->width, r->most)),
                 terms = (double)(r->outer * r->terms);
    r->cost = fxi_cpu_cost((double)r->size * results * terms, 0);
}

/* A 16-bit operand is replaced by a Float32 copy before each run (cpu_kernels.c), so its reduction
 * is described then. */
fx_status fxi_cpu_reduce_prepare(fx_step *step)
{
    if (fx_step_reduce(step)->program.n > 0)
        return fxi_cpu_reduce_program_prepare(step);
    if (fxi_cpu_is_half(step->out.dtype))
        return FX_OK;
    reduction *r = fxi_malloc(sizeof *r);
    if (!r)
        return fxi_cpu_no_memory(step);
    describe(r, step);
    step->ready = r;
    return FX_OK;
}

void fxi_cpu_reduce_release(fx_step *step)
{
    if (fx_step_reduce(step)->program.n > 0)
        fxi_cpu_program_release(step);
    else
        fxi_free(step->ready);
}

/* Can all results be computed at once, each from one run of terms? */
static inline bool is_small(const reduction *r)
{
    return r->op->size > 0 && r->items == 1 && r->outer == 1 &&
           fxi_cpu_parts(r->longest, r->cost) == 1;
}

/* The reductions of small networks are so short that copying and completing the description would
 * take longer. */
static void reduce_small(const reduction *r, const void *in, void *out)
{
    _Alignas(64) char acc[TILE_BYTES];
    r->op->init(acc, r->width);
    add_terms(r, in, r->width, r->terms, acc);
    r->op->done(acc, r->width, out);
}

/* Memory is allocated only for pieces, whose accumulators must outlive the parts that fill them. */
static fx_status reduce_tensor(const fx_step *step, const void *in, void *out)
{
    const reduction *ready = step->ready;
    reduction r;
    if (ready && is_small(ready)) {
        reduce_small(ready, in, out);
        return FX_OK;
    }
    if (ready)
        r = *ready;
    else
        describe(&r, step);
    r.in = in;
    r.out = out;
    if (!r.op->size)
        return fxi_cpu_no_dtype(step, step->in[0].dtype);
    divide(&r);
    if (r.pieces > 1) {
        const int64_t results = r.items * fxi_cpu_min(r.width, r.most);
        r.partial = fxi_aligned(64, (size_t)(r.pieces * results) * r.op->size);
        if (!r.partial)
            return fxi_cpu_no_memory(step);
    }
    fxi_cpu_parallel(r.parts * r.pieces, reduce_part, &r);
    if (r.partial)
        merge_pieces(&r);
    fxi_free(r.partial);
    return FX_OK;
}

fx_status fxi_cpu_reduce(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const int fold = fx_step_reduce(step)->fold;
    if (fx_step_reduce(step)->program.n > 0)
        return fxi_cpu_reduce_program(step, in, out);
    const bool index = fold == FX_REDUCE_ARGMAX || fold == FX_REDUCE_ARGMIN;
    const bool wide = fold == FX_REDUCE_SUM && step->in[0].dtype == FX_DTYPE_F32 &&
                      step->out.dtype == FX_DTYPE_F64;
    const int expected = index ? FX_DTYPE_I64 : step->in[0].dtype;
    /* The planner makes no other combination. */
    if (!wide && step->out.dtype != expected)
        return fxi_cpu_fail(FX_STATUS_INTERNAL, step, "expected a result of type %s, got %s",
                            fx_dtype_name((fx_dtype)expected),
                            fx_dtype_name((fx_dtype)step->out.dtype));
    return fx_tensor_length(&step->out) ? reduce_tensor(step, in[0], out) : FX_OK;
}

/* ---- cumulative sums ------------------------------------------------------------------------- */
/* Only whole scans are shared by threads: each element of a scan needs the previous sum. */
typedef struct scans {
    fxi_scan one; /* the first */
    void (*scan)(const fxi_scan *s);
    int64_t count, parts; /* count: of scans */
    size_t size;
} scans;

static void scan_part(void *user, int64_t part)
{
    const scans *s = user;
    int64_t from, to;
    fxi_cpu_range(s->count, s->parts, part, &from, &to);
    for (int64_t k = from; k < to; k++) {
        fxi_scan one = s->one;
        one.x = fxi_at(one.x, k * one.inner * one.n, s->size);
        one.y = fxi_at_out(one.y, k * one.inner * one.n, s->size);
        s->scan(&one);
    }
}

fx_status fxi_cpu_cumsum(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const fx_tensor *t = &step->out;
    const int axis = fx_step_scan(step)->axis;
    const int64_t length = fx_tensor_length(t);
    /* Bool has no scan. 16-bit floats are converted around this kernel (cpu_kernels.c). */
    if (t->dtype >= FX_DTYPE_BOOL)
        return fxi_cpu_no_dtype(step, t->dtype);
    /* A strided input is first copied to the output, densely; the sums then run in place. */
    const bool dense = fxi_is_dense(step->in[0].ndim, step->in[0].shape, step->in[0].stride);
    const fx_status status = dense ? FX_OK : fxi_cpu_copy(&step->in[0], in[0], out);
    if (status || length == 0)
        return status;
    scans s = {.one = {.x = dense ? in[0] : out,
                       .y = out,
                       .inner = fxi_length(axis, t->shape),
                       .n = t->shape[axis],
                       .from_end = fx_step_scan(step)->reverse},
               .scan = fxi_cpu_simd()->scan[t->dtype],
               .size = fxi_cpu_size(t->dtype)};
    s.count = length / (s.one.inner * s.one.n);
    /* About a nanosecond for each element, because every sum waits for the previous one. */
    s.parts = fxi_cpu_parts(s.count, (double)length);
    fxi_cpu_parallel(s.parts, scan_part, &s);
    return FX_OK;
}
