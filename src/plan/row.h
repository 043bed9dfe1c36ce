/* row.h: which nodes are computed together row by row. */
#ifndef CFLUX_ROW_H
#define CFLUX_ROW_H

#include "graph.h"
#include "planner.h"

/* The budgets of one row step (planner rule 3). The passes are those that layer norm needs with its
 * gradient in one step. */
enum {
    FXI_ROW_MEMBERS = 64,
    FXI_ROW_INPUTS = 24,
    FXI_ROW_OUTPUTS = 8,
    FXI_ROW_PASSES = 6,
    FXI_ROW_BYTES = 64 << 10 /* a row stays in the cache between passes */
};

/* What a node is to the rows of x×y… that are reduced to 1×y…. */
typedef enum fxi_row_kind {
    FXI_ROW_NONE,
    FXI_ROW_FULL,   /* elementwise, of the whole shape */
    FXI_ROW_SCALAR, /* elementwise, one value a row */
    FXI_ROW_REDUCE,
    FXI_ROW_ALIAS /* its input under another name: a value of the row for all its elements, or
                     stop_gradient */
} fxi_row_kind;

typedef struct fxi_rows {
    int32_t *order; /* the nodes as they are computed; members of a row step are neighbours */
    int32_t *row;   /* per node: the number of its row step, or −1 */
    uint8_t
        *level;    /* per member: the pass in which it is computed, for values of a row before it */
    uint8_t *kind; /* per member: fxi_row_kind */
    int32_t n;     /* row steps */
} fxi_rows;

/* Finds the row steps of g; without how->rows there are none. False when memory is out. */
bool fxi_rows_find(const fxi_planner *how, const fxi_graph *g, fxi_rows *out);
void fxi_rows_free(fxi_rows *rows);

#endif
