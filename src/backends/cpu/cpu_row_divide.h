/* cpu_row_divide.h: how the rows of a row step are divided into blocks and tiles, and where its
 * scratch is. Internal. */
#ifndef CFLUX_CPU_ROW_DIVIDE_H
#define CFLUX_CPU_ROW_DIVIDE_H

#include "cpu_row.h"

/* The use of a location of scratch, which decides its size. */
typedef enum fxi_scratch_use {
    FXI_SCRATCH_NONE,
    FXI_SCRATCH_TILE,   /* a tile, from one instruction to another */
    FXI_SCRATCH_FILLED, /* a tile that is filled before the first instruction of a row or part */
    FXI_SCRATCH_SPLAT,  /* a tile of equal numbers; usually only calls on values of rows read it */
    FXI_SCRATCH_BLOCK,
    FXI_SCRATCH_ROWS,
    FXI_SCRATCH_STRETCHES, /* one value for each stretch of a block's rows */
    FXI_SCRATCH_SUMS       /* accumulators of a tile's rows */
} fxi_scratch_use;

/* What the locations of scratch are used for, and the sizes that decide how many bytes they need.
 */
typedef struct fxi_row_scratch {
    /* Bytes of the widest register of elements, of the widest number, of one accumulator. */
    size_t width, splat, accumulator;
    uint8_t use[FXI_ROW_LOCATIONS]; /* fxi_scratch_use */
} fxi_row_scratch;

/* Sets the numbers and the distances of rows and of their elements, and the size of a block if rows
 * are columns. It must be called before operands have locations. */
void fxi_row_set_rows(fxi_row_plan *p, const fx_step *step);

/* Decides how many rows a block has, the length of tiles, the cost, the offsets of scratch, and the
 * number of parts of a step with sums across rows. All calls and locations must be known. */
void fxi_row_divide(fxi_row_plan *p, const fxi_row_scratch *scratch);

#endif
