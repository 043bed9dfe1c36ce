/* product_order.c: a product stores its axes in the order in which they are read.
 *
 * Attention computes a product for each head and joins the heads: a permutation of the product's
 * axes, then a reshape. A reshape of permuted axes has no strides, so it would be a copy, in the
 * forward pass and for each of the gradients of query, key and value. A kernel of a product
 * computes the address of each element that it stores anyway, so the product stores the permuted
 * order, and the reshape is a view.
 *
 * The gradient of a matrix that was transposed before a product is a transposed product. An
 * elementwise step, for example the update of an optimiser, would read each column of that product
 * from as many cache lines as the column has elements. So this product is stored in the order of
 * the elementwise step.
 *
 * The order in memory does not change the sums, so it does not change the bits. One of the matrix
 * axes must be the first one in memory: kernels store vectors of neighbours. All readers of the
 * product must be permutations. Any other reader would read it with gaps, or could no longer become
 * an epilogue of the product.
 */
#include "build.h"

#include <string.h>

/* Is node id a pending node of this operation? */
static bool computes(const fxi_graph *g, int32_t id, uint8_t op)
{
    return !g->nodes[id]->data && g->nodes[id]->op == op;
}

/* Follows permutations backwards from id to the node that they permute; axes[k]: the axis of that
 * node that is axis k of id. */
static int32_t permuted(const fxi_graph *g, int32_t id, int *axes)
{
    for (int k = 0; k < g->nodes[id]->ndim; k++)
        axes[k] = k;
    for (; computes(g, id, FX_OP_PERMUTE); id = fxi_graph_input(g, id, 0))
        for (int k = 0; k < g->nodes[id]->ndim; k++)
            axes[k] = (int)g->nodes[id]->attr.permutation[axes[k]];
    return id;
}

/* Strides without gaps, where axes[0] is the first axis in memory. */
static void ordered_strides(const fxi_node *n, const int *axes, int64_t *stride)
{
    int64_t next = 1;
    for (int k = 0; k < n->ndim; k++) {
        stride[axes[k]] = next;
        next *= n->shape[axes[k]];
    }
}

/* The movements between a product and a node that it is reshaped to. A longer chain is not
 * followed, and keeps its copy. */
enum { CHAIN = 8 };
typedef struct chain {
    int32_t product, last; /* last: the last of the permutations that follow the product */
    int n;
    int32_t moves[CHAIN]; /* from the reshaped node down to the product */
} chain;

/* False if no product is reshaped to node id after permutations, or if the first axis in memory
 * would not be one of its matrix axes. */
static bool find_chain(const fxi_graph *g, int32_t id, chain *out)
{
    int axes[FX_MAX_DIMS];
    *out = (chain){.last = -1};
    for (; computes(g, id, FX_OP_RESHAPE) || computes(g, id, FX_OP_PERMUTE);
         id = fxi_graph_input(g, id, 0)) {
        if (out->n == CHAIN)
            return false;
        if (g->nodes[id]->op == FX_OP_RESHAPE)
            out->last = -1;
        else if (out->last < 0)
            out->last = id;
        out->moves[out->n++] = id;
    }
    out->product = id;
    if (!computes(g, id, FX_OP_MATMUL) || out->last < 0)
        return false;
    permuted(g, out->last, axes);
    return axes[0] < 2;
}

/* Are all movements of the chain views of a product with these strides? */
static bool all_views(const fxi_graph *g, const chain *c, const int64_t *stride)
{
    fxi_place at = {.value = 0}, next;
    memcpy(at.stride, stride, sizeof at.stride);
    for (int k = c->n - 1; k >= 0; k--) {
        if (!fxi_view(g->nodes[c->moves[k]], &at, &next))
            return false;
        at = next;
    }
    return true;
}

/* Does the reshape `id` need a copy only because of the order in which a product is stored? */
static bool wants_order(const fxi_graph *g, int32_t id, chain *out)
{
    int axes[FX_MAX_DIMS];
    int64_t dense[FX_MAX_DIMS] = {0}, ordered[FX_MAX_DIMS] = {0};
    if (!computes(g, id, FX_OP_RESHAPE) || !find_chain(g, id, out))
        return false;
    const fxi_node *m = g->nodes[out->product];
    fxi_dense_strides(m->ndim, m->shape, dense);
    permuted(g, out->last, axes);
    ordered_strides(m, axes, ordered);
    return !all_views(g, out, dense) && all_views(g, out, ordered);
}

/* Does elementwise node id read a transposed product as its k-th input? */
static bool reads_transposed(const fxi_graph *g, int32_t id, int k, chain *out)
{
    int axes[FX_MAX_DIMS];
    const int32_t from = fxi_graph_input(g, id, k);
    *out = (chain){.last = from};
    if (fxi_ops[g->nodes[id]->op].cls != FX_CLASS_ELEMENTWISE || !computes(g, from, FX_OP_PERMUTE))
        return false;
    out->product = permuted(g, from, axes);
    return computes(g, out->product, FX_OP_MATMUL) && axes[0] == 1;
}

/* Gives the usual order back to products that nodes other than permutations read, and to results of
 * the graph, which must be column-major for the program. */
static void keep_permuted(const fxi_graph *g, int32_t *order)
{
    for (int32_t i = 0; i < g->n; i++)
        for (int k = 0; k < fxi_graph_inputs(g, i) && g->nodes[i]->op != FX_OP_PERMUTE; k++)
            order[fxi_graph_input(g, i, k)] = -1;
    for (int32_t k = 0; k < g->noutputs; k++)
        order[g->outputs[k]] = -1;
}

/* Notes the order of a chain's product. With several orders, the first one is taken. Returns false
 * if the allocation fails. */
static bool note(fxi_builder *b, const chain *c)
{
    if (!b->order) {
        b->order = fxi_malloc((size_t)b->g->n * sizeof *b->order);
        if (!b->order)
            return false;
        memset(b->order, -1, (size_t)b->g->n * sizeof *b->order);
    }
    if (b->order[c->product] < 0)
        b->order[c->product] = c->last;
    return true;
}

bool fxi_order_products(fxi_builder *b)
{
    const fxi_graph *g = b->g;
    const bool orders = b->how->fuses && b->views;
    chain c;
    for (int32_t i = 0; i < g->n && orders; i++)
        if (wants_order(g, i, &c) && !note(b, &c))
            return false;
    /* Afterwards, because a reshape that copies costs more than a transposed reader. */
    for (int32_t i = 0; i < g->n && orders; i++)
        for (int k = 0; k < fxi_graph_inputs(g, i); k++)
            if (reads_transposed(g, i, k, &c) && !note(b, &c))
                return false;
    if (b->order)
        keep_permuted(g, b->order);
    return true;
}

void fxi_reorder_product(fxi_builder *b, int32_t id, fx_step *s)
{
    int axes[FX_MAX_DIMS];
    if (!b->order || b->order[id] < 0)
        return;
    permuted(b->g, b->order[id], axes);
    ordered_strides(b->g->nodes[id], axes, s->out.stride);
    memcpy(b->places[id].stride, s->out.stride, sizeof s->out.stride);
}
