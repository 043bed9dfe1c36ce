/* group.h: which nodes are computed together. */
#ifndef CFLUX_GROUP_H
#define CFLUX_GROUP_H

#include "row.h"

/* The budgets of one elementwise step (planner rule 1). */
enum { FXI_GROUP_INSTRUCTIONS = 64, FXI_GROUP_INPUTS = 24, FXI_GROUP_OUTPUTS = 4 };

typedef struct fxi_groups {
    fxi_rows rows; /* row steps, and the order in which nodes are computed */
    int32_t *root; /* per node: the node at whose place it is computed; itself where it is a step of
                      its own */
    bool *stored;  /* per node: its value is needed outside its group */
    int32_t *next; /* per node: the member of its group that is computed before it, −1 at the end; a
                      list from the root */
} fxi_groups;

/* The i-th input of node `id`, from the graph's records. */
int32_t fxi_graph_input(const fxi_graph *g, int32_t id, int i);
int fxi_graph_inputs(const fxi_graph *g, int32_t id); /* how many */

/* Groups the nodes of g; without how->fuses every node is left alone. False when memory is out. */
bool fxi_group(const fxi_planner *how, const fxi_graph *g, fxi_groups *out);
void fxi_groups_free(fxi_groups *groups);

#endif
