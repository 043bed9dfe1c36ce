/* node_copy.h: makes nodes that repeat operations of the calling thread. Internal. */
#ifndef CFLUX_NODE_COPY_H
#define CFLUX_NODE_COPY_H

#include "context.h"

/* A node to repeat: a literal, or an elementwise operation. Values are numbered: first those that
 * the caller gives, then the nodes of the list. */
typedef struct fxi_copied_node {
    uint8_t op, dtype, nin;
    bool weak;
    bool whole;    /* has the shape and device of `like`; false: 0-d, on no device */
    int16_t in[3]; /* numbers of the inputs */
    fx_attr attr;
} fxi_copied_node;

/* Makes the n nodes of a list: values[given + k] is that of entry k. Only the nodes that read it
 * have references to it: the caller must retain the others. The calls have been made before with
 * arrays of these types, numbers of axes and devices, so the caller checks only the sizes of
 * `like`: they must fit with any type. Not in a recorded training step. False (recorded) if an
 * allocation fails; no node remains then. */
bool fxi_nodes_copy(fxi_context *c, int n, const fxi_copied_node *list, const fxi_node *like,
                    int given, fxi_node **values);

#endif
