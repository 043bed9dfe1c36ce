/* cpu_row.h: a row step, prepared: which loops are called with which operands, and how rows are
 * divided. Internal.
 *
 * Rows are taken in blocks, and in a pass the elements of a block in tiles: parts of a row, of at
 * most 1024 elements unless the step only reduces, or, when rows are short, several whole rows. If
 * rows are columns, a block is some neighbouring columns, and a tile is some elements of each.
 * Calls read and write numbered locations: operands, outputs, then scratch. A table of their
 * addresses is the state of a run.
 */
#ifndef CFLUX_CPU_ROW_H
#define CFLUX_CPU_ROW_H

#include "cpu_simd.h"
#include "strided.h"

/* A loop over a tile or over the values of a block's rows, or a reduction of a tile. */
typedef struct fxi_row_call {
    fxi_tile_fn loop; /* NULL: the call is a reduction */
    /* Reduces src[0] in the accumulators `to`, and stores the result in src[1]. */
    const fxi_reducer *reducer;
    int64_t attr;
    int16_t to, src[3];
    uint8_t in_size, size; /* of a reduced element, and of the result */
    /* A second result of the same accumulators, in src[2]; NULL: none. */
    const fxi_reducer *also;
    uint8_t also_size;
    /* The reduction is fxi_row_plan.sums[across − 1]; 0: it is one of rows. */
    uint8_t across;
    /* A masked sum (cpu_masked_sum.c): `terms` computes the reduced elements src[0] from these
     * operands, of which [0] is the mask. NULL: another call computes them. `counts`: the elements
     * are 1 where the mask is true. `picks`: they are [1] there, and a single number [2]
     * elsewhere. */
    fxi_tile_fn terms;
    int16_t operands[3];
    bool counts, picks;
    /* A loop whose operand src[choice] is one of two numbers, chosen by a mask: `terms` computes
     * this operand, which only this call reads. Where no element of the mask is true, `sparse` runs
     * instead, a loop that reads the single number operands[2] instead of src[choice]. `ones`: bits
     * of the src that are single numbers for both loops. */
    fxi_tile_fn sparse;
    uint8_t choice, ones;
    uint8_t fused; /* fxi_row_plan.fused[fused − 1] computes this call and the next ones; 0: none */
} fxi_row_call;

/* Several calls in one loop (cpu_row_fuse.c, fxi_fused_loops). */
typedef enum fxi_row_fused_kind {
    FXI_ROW_DEVIATIONS, /* a reduction of at[1], which fetches at[2] */
    FXI_ROW_NORM,
    FXI_ROW_SHIFT,
    FXI_ROW_EXPONENTIALS,
    FXI_ROW_DOTS,
    FXI_ROW_PRODUCTS, /* at[1]·at[2], which the second call adds across rows */
    FXI_ROW_STREAMED  /* the first call, whose result the second one stores past the caches */
} fxi_row_fused_kind;
typedef struct fxi_row_fused {
    fxi_row_fused_kind kind;
    int32_t calls;                  /* how many calls it replaces */
    int16_t at[FXI_FUSED_OPERANDS]; /* locations; −1: NULL */
    int64_t ahead;                  /* elements to the one that is fetched */
    bool streams;
    fxi_tile_fn loop; /* of FXI_ROW_STREAMED */
} fxi_row_fused;
enum {
    FXI_ROW_FUSED_MOST = 16,
    FXI_ROW_AHEAD_BYTES = 256 << 10 /* of a block, the most that are fetched in advance */
};

/* A sum across rows: an output that a part accumulates over all its rows. */
typedef struct fxi_row_sum {
    const fxi_reducer *reducer;
    int64_t at;    /* offset of its accumulators among those of a part; bytes */
    int16_t out;   /* output */
    uint8_t dtype; /* of the output */
} fxi_row_sum;

/* A location whose address depends on another one. */
typedef struct fxi_row_link {
    int16_t from, to;
    uint8_t size; /* of an element */
} fxi_row_link;

/* The kinds of values that are gathered: elements, values of stretches and values of rows for every
 * block, a single number once for each part. */
typedef enum fxi_row_extent {
    FXI_ROW_ELEMENTS,
    FXI_ROW_STRETCHES,
    FXI_ROW_VALUES,
    FXI_ROW_ONE
} fxi_row_extent;
typedef struct fxi_row_load {
    fxi_walk walk;
    int16_t in, to;
    uint8_t dtype, extent;
} fxi_row_load;

/* The calls of a pass: on values of rows calls[first … elements − 1], then on elements
 * calls[elements … last − 1]. `spreads` and `fills` are the ends of the pass's parts of the lists
 * of spreads and of fills; they begin where those of the previous pass end. Spreads are done at the
 * start of each row or tile of whole rows; for columns, at the start of the pass. Fills are done at
 * the start of each stretch. */
typedef struct fxi_row_pass {
    int32_t first, elements, last, spreads, fills;
} fxi_row_pass;

enum { FXI_ROW_SUMS_MOST = 1 + FX_MORE_OUTPUTS, FXI_ROW_PASSES_MOST = 8, FXI_ROW_LOCATIONS = 512 };

typedef struct fxi_row_plan {
    int64_t inner, rows; /* elements of a row; number of rows */
    int64_t piece;       /* contiguous elements of a row; less than `inner` if kept axes are between
                            the axes of a row, and then a block is one row */
    /* Tiles do not cross multiples of this number of elements: the length of the stretches for
     * which operands have one value, or `piece` if there are no stretches. */
    int64_t stretch;
    int64_t apart;     /* elements from the start of one piece to that of the next */
    int64_t columns;   /* rows that are neighbouring columns of memory; 0: rows are not columns */
    int64_t pitch;     /* elements from the start of one row to that of the next */
    int64_t block;     /* rows of a block */
    int32_t tile;      /* elements of a tile at most */
    int32_t tile_rows; /* whole rows of a tile; 0: a tile is a part of a row. Of columns, a tile
                          has all rows of a block, and some elements of each */
    int32_t nin, nout, nlocations, npasses;
    int32_t nsplats, nlaid, nloads, nmovers, nahead, nrepeated, nones;
    int32_t ahead_pass; /* the pass that fetches the lines of the next block; −1: none */
    int64_t scratch;    /* bytes */
    bool streams;       /* some stores bypass the caches */
    double cost;        /* nanoseconds of the whole step for one thread */
    /* Sums across rows. Each has `groups` times `width` accumulators: row r adds `run` neighbouring
     * elements to one accumulator of group r % groups, the next ones to the next accumulator. */
    int64_t run, width, groups;
    int64_t parts;      /* of a step that has such sums */
    int64_t sums_bytes; /* bytes of all accumulators of a part */
    int32_t nsums;
    fxi_row_sum sums[FXI_ROW_SUMS_MOST];
    int64_t *offset; /* by location: for operands and outputs the bytes from row to row, for scratch
                        the offset in it */
    fxi_row_call *calls; /* the calls after the last pass are on values of rows */
    int32_t ncalls;
    int32_t nfused;
    fxi_row_fused fused[FXI_ROW_FUSED_MOST];
    fxi_row_link *splats; /* single numbers, spread over a tile once */
    fxi_row_link *laid;   /* operands that repeat with every row, copied for each row of a tile */
    fxi_row_load *loads;
    fxi_row_link *movers; /* `to` advances from tile to tile */
    /* `to`: operands, and outputs that do not bypass the caches, whose lines of the next block are
     * fetched while the current one is computed. */
    fxi_row_link *ahead;
    /* `to`: operands that repeat with every row; they advance inside a row. */
    fxi_row_link *repeated;
    fxi_row_link *ones;    /* `to`: the value of the current row among the values `from` */
    fxi_row_link *spreads; /* values of rows `from`, repeated at every element */
    fxi_row_link *fills;   /* values of stretches `from`, repeated at every element of the tile */
    fxi_row_pass passes[FXI_ROW_PASSES_MOST];
} fxi_row_plan;

/* Prepares a row step. *out_plan is NULL unless FX_OK is returned. Returns FX_STATUS_UNSUPPORTED if
 * the type of an instruction does not support it. */
fx_status fxi_row_plan_make(const fx_step *step, fxi_row_plan **out_plan);
void fxi_row_plan_free(fxi_row_plan *p);

/* Finds sequences of calls that one loop computes. The blocks must be known. */
void fxi_row_fuse(fxi_row_plan *p);

/* A store past the caches in the form of a loop; attr is the size of an element. */
void fxi_row_stream(void *d, const void *const *s, int n, int64_t size);

/* The number of consecutive rows that one block may contain at most: all rows, but if rows are
 * columns, only those that are neighbours in memory. */
static inline int64_t fxi_row_near(const fxi_row_plan *p)
{
    return p->columns ? p->columns : p->rows;
}

static inline int64_t fxi_row_blocks(const fxi_row_plan *p)
{
    const int64_t near = fxi_row_near(p);
    return p->rows / near * ((near + p->block - 1) / p->block);
}

#endif
