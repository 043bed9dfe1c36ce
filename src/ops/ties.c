/* ties.c: makes the view of one array again on another array; see ties.h.
 *
 * The movements between array and view are repeated on the value of the other array. The new nodes
 * are marked: their history is never cut, so the tie lasts beyond the training step that made them.
 * They hold only the viewed array, whose own history is cut as usual.
 */
#include "ties.h"
#include "tape.h"

/* Repeats a chain of movements; takes over the reference to `made`. NULL: an allocation failed
 * (recorded). */
static fxi_node *repeat(const fxi_node *const *chain, int depth, fxi_node *made)
{
    while (depth-- > 0 && made) {
        const fxi_node *like = chain[depth];
        fxi_node *next = fxi_node_new(fxi_here(), (fx_op)like->op, (fx_dtype)made->dtype,
                                      like->ndim, like->shape, made->device, &like->attr, 1, &made);
        fxi_node_release(made);
        made = next;
        if (made)
            made->tied = true;
        fxi_tape_break(fxi_here()); /* a tape keeps no history, and the history is the tie */
    }
    return made;
}

fx_array *fxi_view_again(const fx_array *view, const fx_array *of, fx_array *other)
{
    if (fx_is_error(view) || fx_is_error(of) || fx_is_error(other))
        return fx_is_error(other) ? other : NULL;
    const fxi_node *chain[FXI_TIE_MOST], *n = view->node;
    int depth = 0;
    for (; n && n != of->node && depth < FXI_TIE_MOST; n = fxi_viewed(n))
        chain[depth++] = n;
    if (n != of->node || depth == 0 || !fxi_same_shape(n, other->node))
        return NULL;
    fxi_node_retain(other->node);
    return fxi_array_take(repeat(chain, depth, other->node));
}
