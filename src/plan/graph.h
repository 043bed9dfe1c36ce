/* graph.h: the pending nodes that some results depend on, collected and written in canonical form:
 * the key of the plan cache.
 *
 * Nodes are numbered in the order in which a depth-first walk from the roots finishes them, so
 * inputs come before consumers. Each node is written as a record of 64-bit words: operation,
 * element type, input numbers, sizes, attributes. Literals, random streams and addresses are not in
 * the key: each run binds its own to the plan. So a learning rate that changes every training step
 * needs no new plan. Equal keys mean equal plans.
 *
 * Record: word 0 = op | dtype << 8 | ndim << 16 | flags << 24 | nin << 32; then the input numbers,
 * two to a word; then ndim sizes; then attributes, or for a leaf that is not dense its strides.
 * After the records: one word for each output, with its donor; then the device, with the bit of
 * eager mode and, if there are products, their precision.
 */
#ifndef CFLUX_GRAPH_H
#define CFLUX_GRAPH_H

#include "context.h"

/* Properties of a leaf that a plan may depend on. They are part of the key, so a plan gets only
 * leaves with the properties that it was made for. */
enum { FXI_LEAF_STRIDED = 1, FXI_LEAF_BORROWED = 2, FXI_LEAF_UNALIGNED = 4 };

/* A node that the walk has entered and not finished. */
typedef struct fxi_frame {
    fxi_node *node;
    fx_device *device; /* device on which its consumer runs; NULL: that of the graph */
    int32_t next;      /* the next input to visit */
} fxi_frame;

typedef struct fxi_graph {
    /* Set by the caller. `eager`: every node becomes a step of its own. `precision`: of products.
     * Both are part of the key. `patient`: the graph is not built if a value that it reads and
     * replaces is pending. `denied`: called with the old value and the reason why a donation is
     * denied; NULL: not called. */
    bool eager, patient;
    uint8_t precision; /* fx_precision of products */
    void (*denied)(const fxi_node *n, const char *why);
    fx_device *device;
    fxi_node **nodes; /* n of them, inputs first */
    int32_t *slot;    /* per node: its number among leaves, constants or streams; else −1 */
    int32_t *uses;    /* per node: how often nodes of the graph read it */
    int32_t *output;  /* per node: its number among the outputs, or −1 */
    uint32_t *record; /* per node: where its record starts in key */
    int32_t n, node_capacity;
    int32_t nleaves, nconsts, nstreams;
    bool multiplies;  /* there are products */
    int32_t *outputs; /* node numbers */
    int32_t *donors;  /* per output: the node whose buffer it may take over, or −1 */
    int32_t noutputs, output_capacity;
    uint64_t *key;
    uint32_t nkey, key_capacity;
    bool waits;        /* not built: a value that a root replaces is pending, and the graph reads
                          it */
    fxi_node *blocked; /* a pending move from another device that has to run before this graph can
                          be built */
    fxi_frame *stack;
    int32_t stack_capacity;
    struct fxi_foreign *foreign; /* numbers of the evaluated nodes of other threads, by address */
    int32_t nforeign, foreign_capacity;
} fxi_graph;

/* A literal converted to another type is bound as a literal of that type. Converting it in a step
 * would round it twice. */
static inline bool fxi_is_cast_literal(const fxi_node *n)
{
    return n->op == FX_OP_CAST && !n->data && n->ndim == 0 && n->in[0]->op == FX_OP_CONST &&
           !n->in[0]->data;
}

/* The i-th input of node `id`. It is read from the key, because nodes of other threads do not store
 * their number. This function and the next one are inline: the planner calls them for every edge,
 * many times. */
static inline int32_t fxi_graph_input(const fxi_graph *g, int32_t id, int i)
{
    return (int32_t)(g->key[g->record[id] + 1 + (uint32_t)i / 2] >> (i % 2 ? 32 : 0));
}

static inline int fxi_graph_inputs(const fxi_graph *g, int32_t id) /* their number */
{
    return g->nodes[id]->data ? 0 : g->nodes[id]->nin;
}
/* The input whose elements a movement returns. An OWN_GRADIENT returns its last input; the others
 * only have to be computed before it. */
static inline int32_t fxi_graph_moved(const fxi_graph *g, int32_t id)
{
    const fxi_node *n = g->nodes[id];
    return fxi_graph_input(g, id, n->op == FX_OP_OWN_GRADIENT ? n->nin - 1 : 0);
}

/* The consumers of every node: those of node i are list[first[i]] … list[first[i + 1] − 1]. */
typedef struct fxi_consumers {
    int32_t *first, *list;
} fxi_consumers;

/* False if an allocation fails; the lists must be freed then, too. */
bool fxi_graph_consumers(const fxi_graph *g, fxi_consumers *out);
void fxi_consumers_free(fxi_consumers *c);

/* A result to compute, and the value whose buffer it may take over (NULL: none). */
typedef struct fxi_root {
    fxi_node *node;
    fxi_node *donor;
} fxi_root;

/* Fills g from the roots. To make a plan of g, all roots must be on one device or on none.
 * FX_STATUS_UNSUPPORTED, not recorded: g->waits is set, or g->blocked is a TRANSFER node that the
 * caller must evaluate before the graph can be built (none of its inputs waits for another
 * TRANSFER). Nodes that are needed outside the graph become outputs too, so they are not computed
 * twice. FX_STATUS_MEMORY and FX_STATUS_STATE are recorded. */
fx_status fxi_graph_build(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots);
void fxi_graph_free(fxi_graph *g);
/* A hash of the key. */
uint64_t fxi_graph_hash(const fxi_graph *g);
/* Why a result may not take over the buffer of n, whose number in the graph is id (−1: none); NULL
 * if it may. */
const char *fxi_not_donatable(const fxi_node *n, int64_t id);

#endif
