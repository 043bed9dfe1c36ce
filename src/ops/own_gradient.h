/* own_gradient.h: a result with another gradient than that of the operations that compute it.
 * Internal.
 */
#ifndef CFLUX_OWN_GRADIENT_H
#define CFLUX_OWN_GRADIENT_H

#include <cflux/ops.h>

/* `gradient` sets gx[i] from gy for each input with need[i], except the last one. in[n − 1] is the
 * result without the gradient. */
typedef struct fxi_own_gradient_op {
    fx_custom_op op; /* name and user; the functions are not used */
    void (*gradient)(const fx_custom_op *op, const bool *need, int n, fx_array *const *in,
                     fx_array *gy, fx_array **gx);
} fxi_own_gradient_op;

/* The value of in[n − 1], with another gradient: none flows to in[n − 1]. A plan computes the other
 * inputs, in their order, before the operations that only in[n − 1] needs. `op` is never freed. */
fx_array *fxi_own_gradient(const fxi_own_gradient_op *op, int n, fx_array *const *in);

/* The value of x, with its gradient. A plan computes the n arrays of `first`, and then what only x
 * needs. Devices may differ. */
fx_array *fxi_after(int n, fx_array *const *first, fx_array *x);

#endif
