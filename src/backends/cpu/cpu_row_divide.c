/* cpu_row_divide.c: divides the rows of a row step into blocks and tiles, estimates the cost of the
 * step, and lays out its scratch: see cpu_row_divide.h. */
#include "cpu_row_divide.h"
#include "cpu_parallel.h"
#include "cpu_task.h"

enum {
    /* Bounds the scratch for values of rows: 8 bytes for each value and row of a block (lay_out).
     */
    BLOCK_ROWS = 64,
    PART_TERMS = 16, /* the fewest terms of a part for each accumulator of a sum across rows */
    BLOCK_BYTES = 24 << 10, /* bytes of a block's elements in all locations: they stay in the
                               first-level cache */
    /* Longer rows: a block has LEAST_ROWS of them, so that they share the calls on values of rows;
     * MORE_ROWS if there are MANY_CALLS; fewer if the rows would not fit in LONG_BYTES of the
     * second-level cache. */
    LEAST_ROWS = 4,
    MORE_ROWS = 8,
    MANY_CALLS = 4,
    LONG_BYTES = 128 << 10,
    /* Bytes of a tile's elements in all its locations. With 64 KiB, minima of 16 rounds on one
     * thread were up to 5 % lower for cross-entropies and gradients of norms, and 1 % higher for a
     * layer norm. On two threads, the differences were smaller than the noise. */
    TILE_BYTES = 32 << 10,
    /* Columns: a block has all neighbouring columns or from LEAST_COLUMNS to MOST_COLUMNS of them,
     * so that calls are long, and about COLUMN_BYTES in all locations: a part of the second-level
     * cache. As far as LEAST_COLUMNS allows, blocks are narrowed until there are BLOCKS of them,
     * or one for every BLOCK_ELEMENTS elements if that is a smaller number. */
    MOST_COLUMNS = 512,
    LEAST_COLUMNS = 128,
    COLUMN_BYTES = 1 << 20,
    BLOCKS = 16,
    BLOCK_ELEMENTS = 32 << 10
};

/* The numbers and the distances of rows and their elements. */
static void set_rows(fxi_row_plan *p, const fx_row_step *row)
{
    const int64_t *shape = row->space.shape;
    const int first = row->column_axes, end = first + row->row_axes,
              outer = row->space.ndim - row->outer_axes;
    p->columns = first > 0 ? fxi_length(first, shape) : 0;
    p->piece = fxi_length(row->row_axes, shape + first);
    p->rows = fxi_length(first, shape) * fxi_length(outer - end, shape + end);
    p->inner = p->piece * fxi_length(row->outer_axes, shape + outer);
    p->stretch = p->piece;
    p->apart = p->piece < p->inner ? p->piece * p->rows : p->piece;
    p->pitch = p->columns ? 1 : p->piece;
    p->run = p->width = p->groups = 1;
    for (int a = 0; a < row->space.ndim && row->across_axes; a++) {
        const bool added = row->across_axes >> a & 1;
        if (fx_row_has_axis(row, a))
            *(added ? &p->run : &p->width) *= shape[a];
        else if (!added)
            p->groups *= shape[a];
    }
    /* Several rows share a tile only if at least two fit in it. */
    p->tile_rows =
        p->inner <= FXI_TILE / 2 && p->piece == p->inner ? (int32_t)(FXI_TILE / p->inner) : 0;
}

/* Decides how many columns a block has, before operands are assigned: as many as stay in the cache
 * between passes, but few enough that threads can share the blocks. */
static void divide_columns(fxi_row_plan *p, const fx_step *s)
{
    const fx_program *q = &fx_step_row(s)->program;
    const int64_t all = p->rows * p->inner, runs = p->rows / p->columns,
                  wanted = all / BLOCK_ELEMENTS < BLOCKS ? all / BLOCK_ELEMENTS : BLOCKS;
    int64_t width = MOST_COLUMNS, locations = 1;
    for (int k = 0; k < s->nin; k++)
        locations += fx_tensor_length(&s->in[k]) == all;
    for (int k = 0; k <= fx_step_more(s)->n; k++) {
        const int reg = k == 0 ? fx_step_row(s)->out_reg : fx_step_more(s)->reg[k - 1];
        locations += !q->instr[reg - s->nin].row;
    }
    const int64_t bytes = locations * p->inner * (int64_t)fxi_cpu_register_size(s->out.dtype);
    while (width > LEAST_COLUMNS &&
           (width * bytes > COLUMN_BYTES || runs * ((p->columns - 1) / width + 1) < wanted))
        width /= 2;
    if (width > p->columns)
        width = p->columns;
    /* Elements of a part of the columns are neighbours in memory only if they have the same
     * position in their columns. */
    const int64_t terms = width < p->columns ? 1 : FXI_TILE_MOST / width;
    p->block = width;
    p->tile_rows = (int32_t)width;
    p->tile = (int32_t)(width * (terms < p->inner ? terms : p->inner));
}

void fxi_row_set_rows(fxi_row_plan *p, const fx_step *step)
{
    set_rows(p, fx_step_row(step));
    if (p->columns)
        divide_columns(p, step);
}

/* Does the step only reduce operands, in its first pass? Then nothing else uses their elements, so
 * a tile may have more than FXI_TILE_MOST. Variances are such steps: after the reduction they
 * compute values of rows only. */
static bool only_reduces(const fxi_row_plan *p)
{
    bool only = true;
    for (int32_t pass = 0; pass < p->npasses; pass++)
        for (int32_t k = p->passes[pass].elements; k < p->passes[pass].last; k++) {
            const fxi_row_call *c = &p->calls[k];
            only = only && pass == 0 && !c->loop && !c->terms && !c->across;
        }
    return only;
}

/* The length of a tile that is part of a row. As large as the first-level cache allows, because
 * each call costs time of its own and each reduction ends with a fold: softmax of 1024 rows of 1000
 * takes 0.41 ms with whole rows and 0.62 with tiles of 256. The tiles of a row are about equal.
 * Tiles of equal numbers do not count: most operations on elements have a loop that reads a single
 * number at its address. */
static int32_t part_of_row(const fxi_row_plan *p, const fxi_row_scratch *scratch)
{
    int64_t tiles = p->nmovers;
    const int64_t piece = p->stretch;
    for (int k = p->nin + p->nout; k < p->nlocations; k++)
        tiles += scratch->use[k] == FXI_SCRATCH_TILE || scratch->use[k] == FXI_SCRATCH_FILLED;
    const int64_t bytes =
        fxi_cpu_max(1, tiles * (int64_t)scratch->width); /* a step may have no tiles */
    /* Reducers take any number of elements. If a tile has more than FXI_TILE_MOST, they prefetch
     * the elements after it, for which they would wait otherwise. Only TILE_BYTES bounds such a
     * tile. */
    const int64_t most = only_reduces(p) ? INT32_MAX : FXI_TILE_MOST;
    /* At least 256 elements: in shorter tiles, calls would cost more than their elements. */
    const int64_t tile = fxi_cpu_min(most, fxi_cpu_max(FXI_TILE, TILE_BYTES / bytes));
    const int64_t parts = (piece + tile - 1) / tile, each = (piece + parts - 1) / parts;
    return (int32_t)((each + 15) / 16 * 16);
}

/* The number of calls on values of rows. */
static int32_t calls_of_rows(const fxi_row_plan *p)
{
    int32_t n = p->ncalls;
    for (int32_t k = 0; k < p->npasses; k++)
        n -= p->passes[k].last - p->passes[k].elements;
    return n;
}

/* Decides how many contiguous rows a block has. */
static void divide_rows(fxi_row_plan *p, const fxi_row_scratch *scratch, int64_t bytes)
{
    /* Short rows: as many whole rows as fit in 256 elements. */
    p->tile = p->tile_rows ? (int32_t)(p->tile_rows * p->inner) : part_of_row(p, scratch);
    const int64_t unit = p->tile_rows ? p->tile_rows : 1,
                  least = calls_of_rows(p) < MANY_CALLS ? LEAST_ROWS : MORE_ROWS,
                  some = fxi_cpu_min(least, LONG_BYTES / bytes),
                  fit = fxi_cpu_max(some, BLOCK_BYTES / bytes);
    p->block = fit < BLOCK_ROWS ? fit : BLOCK_ROWS;
    /* A block is a whole number of tiles of rows, and at least one tile. */
    p->block = p->block < unit ? unit : p->block / unit * unit;
    if (p->piece < p->inner)
        p->block = 1;
    p->block = p->block < p->rows ? p->block : p->rows;
}

/* The first pass reads operands from memory, and the processor waits for it. So a later pass
 * requests the elements of the next block: the pass with the most calls, between which the requests
 * are spread. Not if they would push the block itself out of the second-level cache. */
static int32_t pass_ahead(const fxi_row_plan *p)
{
    int64_t bytes = 0;
    int32_t best = -1, most = 0;
    for (int k = 0; k < p->nahead; k++)
        bytes += p->block * p->inner * p->ahead[k].size;
    for (int32_t k = 1; k < p->npasses && bytes <= FXI_ROW_AHEAD_BYTES; k++) {
        const int32_t calls = p->passes[k].last - p->passes[k].elements;
        best = calls > most ? k : best;
        most = calls > most ? calls : most;
    }
    return p->columns || p->piece < p->inner ? -1 : best;
}

/* Is it an output that bypasses the caches? 16-bit outputs do not (store_of). A block has more rows
 * if such outputs are not counted, and more rows share the calls on values of rows: 8 instead of 4
 * for a layer norm of 768 elements. */
static bool bypasses_caches(const fxi_row_plan *p, const fxi_row_link *l)
{
    return !p->columns && l->to >= p->nin && l->to < p->nin + p->nout && l->size != 2 &&
           p->inner * p->rows * l->size >= FXI_STREAM_BYTES;
}

/* Decides how many rows a block has, and estimates the cost. */
static void divide(fxi_row_plan *p, const fxi_row_scratch *scratch)
{
    int64_t bytes = 1, kept = 1;
    for (int k = 0; k < p->nmovers; k++) {
        const int64_t of_row = p->inner * p->movers[k].size;
        /* The cost counts every element that is moved. */
        bytes += of_row;
        /* The elements of one row that are kept between passes: operands, outputs and scratch. */
        kept += bypasses_caches(p, &p->movers[k]) ? 0 : of_row;
    }
    if (!p->columns)
        divide_rows(p, scratch, kept);
    p->ahead_pass = pass_ahead(p);
    /* A rough estimate: each call costs as much as four operations for each element. */
    p->cost = fxi_cpu_cost((double)bytes * (double)p->rows,
                           4.0 * (double)p->ncalls * (double)(p->inner * p->rows));
}

/* The parts of a step with sums across rows. Each part has accumulators, which are filled with
 * zeros and merged: so it needs several terms for each. A row adds `run` terms to each accumulator
 * of its group. */
static int64_t parts_of(const fxi_row_plan *p)
{
    const int64_t most = p->rows * p->run / (p->groups * PART_TERMS);
    return fxi_cpu_max(1, fxi_cpu_min(most, fxi_cpu_parts(fxi_row_blocks(p), p->cost)));
}

/* Locations start an odd number of cache lines apart, so that they do not share cache sets. */
static void lay_out(fxi_row_plan *p, const fxi_row_scratch *scratch)
{
    const int64_t tile = p->tile > p->block ? p->tile : p->block, width = (int64_t)scratch->width;
    const int64_t bytes_of[] = {[FXI_SCRATCH_NONE] = 0,
                                [FXI_SCRATCH_TILE] = tile * width,
                                [FXI_SCRATCH_FILLED] = tile * width,
                                [FXI_SCRATCH_SPLAT] = tile * (int64_t)scratch->splat,
                                [FXI_SCRATCH_BLOCK] = p->block * p->inner * width,
                                [FXI_SCRATCH_ROWS] = p->block * 8,
                                [FXI_SCRATCH_STRETCHES] = p->block * p->inner / p->stretch * 8,
                                [FXI_SCRATCH_SUMS] = (int64_t)scratch->accumulator *
                                                     (p->tile_rows ? p->tile_rows : 1)};
    for (int k = p->nin + p->nout; k < p->nlocations; k++) {
        p->offset[k] = p->scratch;
        if (scratch->use[k] != FXI_SCRATCH_NONE)
            /* Multiples of 128 bytes plus 64: an odd number of 64-byte lines. */
            p->scratch += (bytes_of[scratch->use[k]] + 127) / 128 * 128 + 64;
    }
}

void fxi_row_divide(fxi_row_plan *p, const fxi_row_scratch *scratch)
{
    divide(p, scratch);
    lay_out(p, scratch);
    p->parts = parts_of(p);
}
