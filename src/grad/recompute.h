/* recompute.h: results whose operations are computed again for the gradient. Internal. */
#ifndef CFLUX_RECOMPUTE_H
#define CFLUX_RECOMPUTE_H

#include <cflux/array.h>

/* y with a gradient that computes again what this thread has recorded since its node number `since`
 * (fxi_context.seq). y itself if it was recorded before, or is not floating-point. */
fx_array *fxi_recomputed(fx_array *y, uint64_t since);

/* fx_pullback inside of a gradient rule: the sweep does not enter the history of any x[i]. No
 * x[i] may depend on another one. The result is NULL for an x[i] without a contribution. */
fx_status fxi_pullback_to(fx_array *y, fx_array *gy, fx_array *const *x, int n,
                          fx_array **out_gradients);

#endif
