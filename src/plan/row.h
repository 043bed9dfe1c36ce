/* row.h: which nodes are computed together row by row, e.g. those of softmax and layer norm. A row
 * consists of the elements that a reduction combines into one value. If kept axes are between its
 * reduced axes, it is a row around kept axes, and consists of contiguous pieces: in batch norm a
 * row is one channel, and a piece is this channel of one image. If kept axes are first in memory, a
 * row is a column: its elements are apart from each other, and neighbours in memory belong to
 * neighbouring rows. */
#ifndef CFLUX_ROW_H
#define CFLUX_ROW_H

#include "graph.h"
#include "planner.h"

/* The largest row step (planner rule 3). Six passes are enough for layer norm with its gradient in
 * one step, and for compositions that users write: one more pass over a row in the cache costs far
 * less than one over memory (docs/design/0007). */
enum {
    FXI_ROW_MEMBERS = 64,
    FXI_ROW_ALL = 72, /* members, including the sums across rows, which join last */
    FXI_ROW_INPUTS = 24,
    FXI_ROW_OUTPUTS = 1 + FX_MORE_OUTPUTS,
    FXI_ROW_PASSES = 6,
    FXI_ROW_BYTES = 64 << 10, /* most bytes of a row: it stays in the cache between passes */
    FXI_ROW_LONG = 4 << 20,   /* the same, for devices that divide a row between work-groups */
    FXI_ROW_AROUND = 1 << 20, /* the same, if there are at least FXI_ROW_PIECE rows: a row stays in
                                 the second-level cache */
    FXI_ROW_PIECE = 16,       /* the fewest elements of a piece of a row around kept axes, and the
                                 fewest rows for FXI_ROW_AROUND */
    FXI_ROW_COLUMN = 512,     /* the most bytes of a column, so that a block of columns stays in the
                                 second-level cache */
    FXI_ROW_PLANE = 256 << 10, /* the most bytes of all neighbouring columns together, if one column
                                  is longer than FXI_ROW_COLUMN */
    FXI_ROW_COLUMNS = 64,      /* the fewest elements of all neighbouring columns together */
    FXI_ROW_SUMS = 8 << 10     /* the most sums across rows, so that they stay in the cache */
};

/* The role of a node for rows of shape x×y… that are reduced to 1×y…. */
typedef enum fxi_row_kind {
    FXI_ROW_NONE,
    FXI_ROW_FULL,   /* elementwise, one value for each element */
    FXI_ROW_SCALAR, /* elementwise, one value for each row */
    FXI_ROW_REDUCE,
    FXI_ROW_ACROSS, /* a sum across rows, which no member reads */
    FXI_ROW_ALIAS   /* another name for its input, without memory: an EXPAND of a row's value to all
                       its elements, or stop_gradient */
} fxi_row_kind;

typedef struct fxi_rows {
    /* The nodes in the order of computation; members of a row step are neighbours. */
    int32_t *order;
    int32_t *row;   /* per node: the number of its row step, or −1 */
    uint8_t *level; /* per member: the pass in which it is computed; a value of the row is computed
                       before that pass */
    uint8_t *kind;  /* per member: fxi_row_kind */
    int32_t n;      /* row steps */
} fxi_rows;

/* Finds the row steps of g; none if how->rows is false. `literal`: per node, whether it is a
 * literal, which is in no step. False if an allocation fails. */
bool fxi_rows_find(const fxi_planner *how, const fxi_graph *g, const bool *literal, fxi_rows *out);
void fxi_rows_free(fxi_rows *rows);
/* Writes the nodes of a large graph to `order`, inputs before consumers, so that those of a row
 * step are near each other (row_order.c). False if an allocation fails. */
bool fxi_order_for_rows(const fxi_graph *g, int32_t *order);

#endif
