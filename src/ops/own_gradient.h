/* own_gradient.h: a result with another gradient than that of the operations that compute it.
 * Internal.
 */
#ifndef CFLUX_OWN_GRADIENT_H
#define CFLUX_OWN_GRADIENT_H

#include <cflux/ops.h>

enum { FXI_OWN_GRADIENT_INPUTS = 8 };
/* The value of in[0], with another gradient: op->gradient sets gx[1 … n−1] from gy, and none flows
 * to in[0]. The rest of `op` is not used. At most FXI_OWN_GRADIENT_INPUTS inputs. */
fx_array *fxi_own_gradient(const fx_custom_op *op, int n, fx_array *const *in);

#endif
