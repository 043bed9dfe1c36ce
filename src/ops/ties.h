/* ties.h: finds arrays that are views of other arrays, for walks over objects. Internal. A handle
 * whose value is the transposed, permuted, reshaped or sliced value of another handle is tied to
 * that handle. Only the history of the node shows it. See docs/design/0012-ties-through-views.md.
 */
#ifndef CFLUX_TIES_H
#define CFLUX_TIES_H

#include "handle.h"

/* The longest chain of movements that is still a tie. */
enum { FXI_TIE_MOST = 16 };

/* The node that n is a direct view of; NULL if it is not a view. */
static inline const fxi_node *fxi_viewed(const fxi_node *n)
{
    const bool view = n->op == FX_OP_PERMUTE || n->op == FX_OP_RESHAPE || n->op == FX_OP_SLICE;
    return view && n->nin == 1 ? n->in[0] : NULL;
}

/* Can x be a view of another array: was it transposed, permuted, reshaped or sliced from one? */
static inline bool fxi_is_view(const fx_array *x)
{
    return (fxi_array_ok(x) || !fx_is_error(x)) && fxi_viewed(x->node);
}
/* Returns the view of `other` that corresponds to `view`, a view of `of`. `of` and `other` must
 * have equal sizes. NULL if `view` is not a view of `of`. Pending; owned by the scope. */
fx_array *fxi_view_again(const fx_array *view, const fx_array *of, fx_array *other);

#endif
