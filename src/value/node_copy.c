/* node_copy.c: makes nodes that repeat operations of the calling thread. One loop without calls
 * makes them all, because an update of an optimiser makes very many.
 */
#include "node_copy.h"
#include "node_parts.h"

/* Frees the n nodes that were made. */
static void free_made(int n, fxi_node **made)
{
    for (int k = 0; k < n; k++)
        made[k]->refs++;
    for (int k = 0; k < n; k++)
        fxi_node_release(made[k]);
}

bool fxi_nodes_copy(fxi_context *c, int n, const fxi_copied_node *list, const fxi_node *like,
                    int given, fxi_node **values)
{
    fxi_node **made = values + given;
    int k = 0;
    for (; k < n; k++) {
        const fxi_copied_node *e = &list[k];
        fxi_node *x = fxi_spare_malloc(sizeof *x);
        if (!x)
            break;
        made[k] = x;
        fxi_node_begin(c, x, c->seq + (uint64_t)k, (fx_op)e->op, (fx_dtype)e->dtype,
                       e->whole ? like->ndim : 0, e->whole ? like->device : NULL, e->nin, x->inl);
        x->refs = 0; /* its readers and the caller count */
        x->weak = e->weak;
        memcpy(x->shape, like->shape, 2 * sizeof *x->shape);
        for (int i = 2; i < like->ndim; i++)
            x->shape[i] = like->shape[i];
        x->attr.literal = e->attr.literal;
        for (int i = 0; i < e->nin; i++)
            fxi_node_capture(values[e->in[i]], &x->inl[i]);
    }
    fxi_nodes_made(c, k);
    if (k == n)
        return true;
    fx_fail(FX_STATUS_MEMORY, fxi_ops[list[k].op].name, "no memory for a node");
    free_made(k, made);
    return false;
}
