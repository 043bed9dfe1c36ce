/* account.c: counts the bytes that the steps of a plan move and the nodes that they compute. These
 * are the counters that fx_stats returns and the figures of fx_plan_show.
 *
 * Every operand of a step counts once, with the elements that are in memory: a broadcast axis
 * counts as one element. Bytes saved by fusion are the difference from a plan with one step for
 * each node, in which every step reads all its inputs and writes its output. Views cost nothing in
 * either plan.
 */
#include "group.h"
#include "plan.h"

int64_t fxi_stored_bytes(const fx_tensor *t)
{
    int64_t n = fx_tensor_element_bytes(t);
    for (int a = 0; a < t->ndim; a++)
        n *= t->stride[a] == 0 ? 1 : t->shape[a];
    return n;
}

int64_t fxi_step_bytes(const fxi_plan *p, const fx_step *s)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < fx_step_outputs(s); k++)
        bytes += p->values[fx_step_output(s, k)].bytes;
    for (int k = 0; k < s->nin; k++)
        bytes += fxi_stored_bytes(&s->in[k]);
    return bytes;
}

int32_t fxi_step_nodes(const fx_step *s)
{
    /* Other classes are one node, and their program holds the nodes fused before or after it. */
    const bool all = s->cls == FX_CLASS_ELEMENTWISE || s->cls == FX_CLASS_ROW ||
                     (s->cls == FX_CLASS_FOREACH && !fx_step_foreach(s)->each);
    return fx_step_segments(s) * (!all + fx_step_program(s).n);
}

/* The bytes that a reader of node id loads: its own size, or that of a smaller value that it is a
 * view of. */
static int64_t node_bytes(const fxi_graph *g, int32_t id)
{
    int64_t least = INT64_MAX;
    for (;; id = fxi_graph_moved(g, id)) {
        const fxi_node *n = g->nodes[id];
        const int64_t bytes =
            fxi_length(n->ndim, n->shape) * (int64_t)fx_dtype_size((fx_dtype)n->dtype);
        least = bytes < least ? bytes : least;
        if (n->data || fxi_ops[n->op].cls != FX_CLASS_MOVEMENT)
            return least;
    }
}

/* The bytes that node id would move as a step of its own. */
static int64_t bytes_alone(const fxi_graph *g, int32_t id)
{
    const fxi_node *n = g->nodes[id];
    if (n->data || n->op == FX_OP_CONST || fxi_ops[n->op].cls == FX_CLASS_MOVEMENT)
        return 0;
    int64_t bytes = node_bytes(g, id);
    for (int i = 0; i < n->nin; i++)
        bytes = fxi_add_sizes(bytes, node_bytes(g, fxi_graph_input(g, id, i)));
    return bytes;
}

void fxi_account(fxi_plan *p, const fxi_graph *g)
{
    int64_t alone = 0, moved = 0;
    for (int32_t i = 0; i < g->n; i++)
        alone = fxi_add_sizes(alone, bytes_alone(g, i));
    for (int32_t i = 0; i < p->nsteps; i++) {
        moved += fxi_step_bytes(p, &p->steps[i]);
        p->fused_steps += fxi_step_nodes(&p->steps[i]) > 1;
    }
    p->bytes_moved = (uint64_t)moved;
    /* Copies that a layout or a kernel needs can move more bytes than fusion saves; then 0 bytes
     * are counted as saved. */
    p->bytes_saved = alone > moved ? (uint64_t)(alone - moved) : 0;
}
