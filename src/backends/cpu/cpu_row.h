/* cpu_row.h: a row step, prepared: which loops are called on what, and how rows are divided.
 *
 * Rows are taken in blocks, and in a pass the elements of a block in tiles: parts of a row of at
 * most 1024 elements or, when rows are short, several whole rows. All that calls read and write are
 * places: operands, outputs, then scratch; a table of addresses by place is the state of a run.
 */
#ifndef CFLUX_CPU_ROW_H
#define CFLUX_CPU_ROW_H

#include "cpu_simd.h"
#include "strided.h"

/* A loop over a tile or over the values of a block's rows, or a reduction of a tile. */
typedef struct fxi_row_call {
    fxi_tile_fn loop;           /* NULL: a reduction of src[0], in the accumulators `to`, */
    const fxi_reducer *reducer; /* into src[1] */
    int64_t attr;
    int16_t to, src[3];
    uint8_t in_size, size; /* of a reduced element, and of the result */
    /* A second result of the same accumulators, in src[2]; NULL: none. */
    const fxi_reducer *also;
    uint8_t also_size;
} fxi_row_call;

/* A place that depends on another one. */
typedef struct fxi_row_link {
    int16_t from, to;
    uint8_t size; /* of an element */
} fxi_row_link;

/* An operand that is gathered for every block, one number once. */
typedef enum fxi_row_extent { FXI_ROW_ELEMENTS, FXI_ROW_VALUES, FXI_ROW_ONE } fxi_row_extent;
typedef struct fxi_row_load {
    fxi_walk walk;
    int16_t in, to;
    uint8_t dtype, extent;
} fxi_row_load;

/* Calls on values of rows, then on elements: calls[first … elements − 1], calls[elements … last −
 * 1]. Spreads, from the last pass's end on, are done whenever a row begins. */
typedef struct fxi_row_pass {
    int32_t first, elements, last, spreads;
} fxi_row_pass;

enum { FXI_ROW_PASSES_MOST = 8, FXI_ROW_PLACES = 512 };

typedef struct fxi_row_plan {
    int64_t inner, rows; /* elements of a row, rows */
    int64_t block;       /* rows of a block */
    int32_t tile;        /* elements of a tile at most */
    int32_t tile_rows;   /* whole rows of a tile; 0: a tile is part of a row */
    int32_t nin, nout, nplaces, npasses;
    int32_t nsplats, nlaid, nloads, nmovers, ncolumns, nones;
    int64_t scratch;     /* bytes */
    bool streams;        /* stores go past the caches */
    double cost;         /* fxi_cpu_cost */
    int64_t *offset;     /* per place: of operands and outputs the bytes from row to row, of scratch
                            where it is */
    fxi_row_call *calls; /* those after the last pass's are on values of rows */
    int32_t ncalls;
    fxi_row_link *splats; /* single operands spread over a tile, once */
    fxi_row_link *laid;   /* operands that repeat with every row, for tiles of rows, once */
    fxi_row_load *loads;
    fxi_row_link *movers;  /* `to`: elements, from tile to tile */
    fxi_row_link *columns; /* `to`: operands that repeat with every row, from tile to tile of it */
    fxi_row_link *ones;    /* `to`: the value of the current row among the values `from` */
    fxi_row_link *spreads; /* values of rows `from`, at every element */
    fxi_row_pass passes[FXI_ROW_PASSES_MOST];
} fxi_row_plan;

/* *out_plan is NULL unless FX_OK. FX_STATUS_UNSUPPORTED: an instruction has no meaning for its
 * type. */
fx_status fxi_row_plan_make(const fx_step *step, fxi_row_plan **out_plan);
void fxi_row_plan_free(fxi_row_plan *p);

#endif
