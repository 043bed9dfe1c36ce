/* node_parts.h: parts of functions that make nodes and handles, inline because every operation runs
 * them. Internal to this folder.
 */
#ifndef CFLUX_NODE_PARTS_H
#define CFLUX_NODE_PARTS_H

#include "context.h"
#include "counters.h"

#include <string.h>

static inline void fxi_sink_add(fxi_context *c, fxi_node *n)
{
    n->prev = c->sinks.prev;
    n->next = &c->sinks;
    n->prev->next = n;
    c->sinks.prev = n;
}

/* Removes a node from the list of sinks if it is there. */
static inline void fxi_sink_remove(fxi_node *n)
{
    if (!n->next)
        return;
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->next = n->prev = NULL;
}

/* Fills in a new node, except for its inputs, shape and attributes. `in`: where its `nin` inputs
 * will be. `seq`: c->seq, which fxi_nodes_made advances. */
static inline void fxi_node_begin(const fxi_context *c, fxi_node *n, uint64_t seq, fx_op op,
                                  fx_dtype dtype, int ndim, fx_device *device, int nin,
                                  fxi_node **in)
{
    /* Each call clears at most 80 bytes: for more, gcc 12 emits `rep stos`, which takes longer than
     * everything else here. */
    memset(&n->data, 0, offsetof(fxi_node, inl) - offsetof(fxi_node, data));
    memset(&n->tape, 0, offsetof(fxi_node, attr) - offsetof(fxi_node, tape));
    n->refs = 1;
    n->op = (uint8_t)op;
    n->dtype = (uint8_t)dtype;
    n->ndim = (uint8_t)ndim;
    n->nin = nin;
    n->owner = c->id;
    n->seq = seq;
    n->device = device;
    n->in = in;
}

/* Counts new nodes. */
static inline void fxi_nodes_made(fxi_context *c, int n)
{
    c->seq += (uint64_t)n;
    c->created += n;
    fxi_nodes_here += (uint64_t)n;
}

/* Makes x an input of a new node, in *out. */
static inline void fxi_node_capture(fxi_node *x, fxi_node **out)
{
    *out = x;
    fxi_node_retain(x);
    if (!x->data && x->consumers++ == 0)
        fxi_sink_remove(x);
}

/* Binds the handle x to n; takes over the caller's reference. */
static inline void fxi_array_hold(fxi_context *c, fx_array *x, fxi_node *n)
{
    x->node = n;
    if (n->data) {
        __atomic_fetch_add(&n->handles, 1, __ATOMIC_RELAXED);
        return;
    }
    if (n->handles++ == 0 && n->consumers == 0 && !n->used && !n->ghost)
        fxi_sink_add(c, n);
}

#endif
