/* conform_mixed.h: random graphs of mixed element types: how they grow (conform_mixed_ops.c) and
 * what is compared (conform_mixed.c). */
#ifndef CFLUX_TEST_CONFORM_MIXED_H
#define CFLUX_TEST_CONFORM_MIXED_H

#include "conform.h"

enum { CFM_LEAVES = 5, CFM_MOST = 32 };

/* A graph while it grows. Its choices depend on the seed and on the sizes and types of nodes only,
 * never on the device or on what has been evaluated. */
typedef struct cfm_graph {
    uint64_t state;
    fx_device *device;
    bool real;                /* gradients are computed too, so there are no 16-bit floats */
    bool large;               /* arrays larger than a tile of the kernels */
    bool stepwise;            /* each node is evaluated as soon as it is recorded */
    bool list;                /* print the nodes */
    fx_array *node[CFM_MOST]; /* the leaves, then results */
    int n;
    int picked[8], npicked; /* nodes that the latest operation uses */
} cfm_graph;

int cfm_below(cfm_graph *g, int n); /* 0 … n−1 */
fx_array *cfm_pick(cfm_graph *g);   /* any node */
/* Limits x to integers between −8 and 8 (Bool and U8: to those that the type has). */
fx_array *cfm_tame(fx_array *x);
/* Any element type; not a 16-bit float if gradients are computed. */
fx_dtype cfm_type(cfm_graph *g);

void cfm_leaf(cfm_graph *g, int k, fx_dtype dtype);
/* Adds operations until the graph has `target` nodes, and reads some nodes in between. False: an
 * error. */
bool cfm_grow(cfm_graph *g, int target);

#endif
