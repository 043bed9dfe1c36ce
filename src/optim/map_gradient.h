/* map_gradient.h: changes the arrays of a gradient. Internal. */
#ifndef CFLUX_MAP_GRADIENT_H
#define CFLUX_MAP_GRADIENT_H

#include <cflux/tree.h>

/* fx_fmap_with for a gradient. The gradients of parameters on which the loss does not depend are
 * not changed, so that an update still recognises them (fxi_is_no_gradient). */
void *fxi_map_gradient(fx_map_user_fn f, void *user, void *gradient);

#endif
