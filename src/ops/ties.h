/* ties.h: arrays that are views of other arrays, for the walks over objects. Internal.
 *
 * A handle whose value is another handle's value transposed, permuted, reshaped or sliced is tied
 * to it: the history of the node says so, and nothing else does. See
 * docs/design/0012-ties-through-views.md.
 */
#ifndef CFLUX_TIES_H
#define CFLUX_TIES_H

#include "node.h"

/* A longer chain of movements is no tie. */
enum { FXI_TIE_MOST = 16 };

/* The node that n is a direct view of; NULL: it is none. */
static inline const fxi_node *fxi_viewed(const fxi_node *n)
{
    const bool view = n->op == FX_OP_PERMUTE || n->op == FX_OP_RESHAPE || n->op == FX_OP_SLICE;
    return view && n->nin == 1 ? n->in[0] : NULL;
}

/* May x be a view of another array: was its value made by moving another's elements about
 * (transposed, permuted, reshaped, sliced)? */
bool fxi_is_view(const fx_array *x);
/* The view of `other` that `view` is of `of`, which has the sizes of `other`; NULL if it is none.
 * Pending; owned by the scope. */
fx_array *fxi_view_again(const fx_array *view, const fx_array *of, fx_array *other);

#endif
