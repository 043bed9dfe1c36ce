/* row_order.c: the order in which the nodes of a large graph are computed, before row steps change
 * it.
 *
 * Nodes are numbered in the order in which a walk from the roots finishes them, and a row step is
 * searched near its first reduction only. In the graph of a large training step both ends of a
 * cross-entropy are far from its gradient. The walk enters a node by its first input, so the labels
 * are computed before the forward pass. The value of the loss is the last root, so it is computed
 * after the backward pass. The row step of the loss would then be divided, and its parts would
 * exchange arrays as large as the scores.
 *
 * The depth of a node is the length of its longest path from a leaf. Here the roots are walked in
 * the order of their depths, the least first. So the loss follows the forward pass, and then come
 * the gradients of the last layers, whose operands are no longer needed after that. Of the inputs
 * of a node, the deepest one is walked first. So what is computed from leaves alone, such as the
 * one-hot array of the labels, comes immediately before the first node that reads it.
 */
#include "row.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* A node of the walk's path, and the inputs that it has tried. */
typedef struct visit {
    int32_t id, next;
} visit;

typedef struct walk {
    const fxi_graph *g;
    int32_t *depth; /* per node: the length of its longest path from a leaf */
    bool *done;
    visit *path; /* at most all nodes, because a graph has no cycle */
    int32_t *order, n;
} walk;

static void find_depths(walk *w)
{
    for (int32_t i = 0; i < w->g->n; i++) {
        w->depth[i] = 0;
        for (int k = 0; k < fxi_graph_inputs(w->g, i); k++) {
            const int32_t below = w->depth[fxi_graph_input(w->g, i, k)] + 1;
            w->depth[i] = below > w->depth[i] ? below : w->depth[i];
        }
    }
}

/* The input to visit next, or −1. Inputs of operations with many inputs, such as a concatenation,
 * are visited in their order: comparing all of them after each visit would take long. */
static int32_t next_input(const walk *w, visit *at)
{
    enum { COMPARED = 8 };
    const int n = fxi_graph_inputs(w->g, at->id);
    int32_t best = -1;
    for (; n > COMPARED && at->next < n; at->next++)
        if (!w->done[fxi_graph_input(w->g, at->id, at->next)])
            return fxi_graph_input(w->g, at->id, at->next);
    for (int k = 0; n <= COMPARED && k < n; k++) {
        const int32_t id = fxi_graph_input(w->g, at->id, k);
        if (!w->done[id] && (best < 0 || w->depth[id] > w->depth[best]))
            best = id;
    }
    return best;
}

static void visit_root(walk *w, int32_t root)
{
    int32_t length = 0;
    if (!w->done[root])
        w->path[length++] = (visit){root, 0};
    while (length > 0) {
        const int32_t id = w->path[length - 1].id, in = next_input(w, &w->path[length - 1]);
        if (in >= 0) {
            w->path[length++] = (visit){in, 0};
            continue;
        }
        w->done[id] = true;
        w->order[w->n++] = id;
        length--;
    }
}

/* A root and its depth, for qsort. */
typedef struct root {
    int32_t depth, at, id;
} root;

static int by_depth(const void *a, const void *b)
{
    const root *x = a, *y = b;
    const int32_t d = x->depth != y->depth ? x->depth - y->depth : x->at - y->at;
    return (d > 0) - (d < 0);
}

bool fxi_order_for_rows(const fxi_graph *g, int32_t *order)
{
    const size_t n = (size_t)g->n + 1;
    walk w = {.g = g, .order = order};
    root *roots = fxi_malloc(((size_t)g->noutputs + 1) * sizeof *roots);
    w.depth = fxi_malloc(n * sizeof *w.depth);
    w.done = fxi_calloc(n, sizeof *w.done);
    w.path = fxi_malloc(n * sizeof *w.path);
    const bool ok = roots && w.depth && w.done && w.path;
    if (ok)
        find_depths(&w);
    for (int32_t k = 0; k < g->noutputs && ok; k++)
        roots[k] = (root){w.depth[g->outputs[k]], k, g->outputs[k]};
    if (ok)
        qsort(roots, (size_t)g->noutputs, sizeof *roots, by_depth);
    for (int32_t k = 0; k < g->noutputs && ok; k++)
        visit_root(&w, roots[k].id);
    /* A root that is already evaluated is a node of the graph, but not an output. */
    for (int32_t i = 0; i < g->n && ok; i++)
        visit_root(&w, i);
    fxi_free(roots);
    fxi_free(w.depth);
    fxi_free(w.done);
    fxi_free(w.path);
    return ok;
}
