/* group.h: which nodes of a graph are computed together in one step. */
#ifndef CFLUX_GROUP_H
#define CFLUX_GROUP_H

#include "row.h"

/* The largest elementwise step (planner rule 1). Inputs and outputs together must also fit the
 * argument limit of the device (Metal has 31 arguments, less those for sizes). An update of a
 * parameter and its optimiser state needs up to four outputs, a recurrent cell eight. */
enum { FXI_GROUP_INSTRUCTIONS = 64, FXI_GROUP_INPUTS = 24, FXI_GROUP_OUTPUTS = 8 };

typedef struct fxi_groups {
    fxi_rows rows; /* row steps, and the order in which nodes are computed */
    int32_t *root; /* per node: the last member of its group, where the group is computed; the node
                      itself if it has a step of its own */
    bool *stored;  /* per node: its value is needed outside its group */
    bool *literal; /* per node: only literals determine it (literal.c); it joins no step */
    int32_t *next; /* per node: the member of its group that is computed before it, −1 at the end;
                      the list of a group starts at its root */
} fxi_groups;

/* Groups the nodes of g; without how->fuses every node is a group of its own. False if an
 * allocation fails. */
bool fxi_group(const fxi_planner *how, const fxi_graph *g, fxi_groups *out);
void fxi_groups_free(fxi_groups *groups);

#endif
