/* own_gradient.h: a result with another gradient than that of the operations that compute it.
 * Internal.
 */
#ifndef CFLUX_OWN_GRADIENT_H
#define CFLUX_OWN_GRADIENT_H

#include <cflux/ops.h>

/* The data of a call that its gradient needs besides the inputs. A plan does not depend on them. */
typedef struct fxi_own_call {
    double number;
    uint64_t stream[2]; /* of random numbers that the gradient draws again */
} fxi_own_call;

/* `gradient` sets gx[i] from gy for each input with need[i]. in[n − 1] is the result without this
 * gradient; gx[n − 1] stays NULL unless a gradient flows to it as well, as in fxi_after. */
typedef struct fxi_own_gradient_op {
    fx_custom_op op; /* name and user; the functions are not used */
    void (*gradient)(const fx_custom_op *op, const fxi_own_call *call, const bool *need, int n,
                     fx_array *const *in, fx_array *gy, fx_array **gx);
} fxi_own_gradient_op;

/* The value of in[n − 1], with the gradient of `op`. A plan computes the other inputs, in their
 * order, before the operations that only in[n − 1] needs. `op` must be valid until the process
 * ends. `call` is copied; NULL: zeros. */
fx_array *fxi_own_gradient(const fxi_own_gradient_op *op, const fxi_own_call *call, int n,
                           fx_array *const *in);

/* The value of x, with its gradient. A plan computes the n arrays of `first`, and then what only x
 * needs. Devices may differ. */
fx_array *fxi_after(int n, fx_array *const *first, fx_array *x);

/* x/d as x·(1/d), rounded twice: faster if d is one number for many elements. The gradients are
 * those of the quotient, which need x/d and not x. */
fx_array *fxi_quotient(fx_array *x, fx_array *d);

/* y = x − t for t = tanh x, with the slope t²; NaN at ±Inf, like NNlib's slope (x − y)², which is
 * wrong for large x: x − y rounds to 0 or 2. */
fx_array *fxi_minus_tanh(fx_array *x, fx_array *t);

/* x/d for d = 1 + |x|, with the slope 1/d², which is 0 at ±Inf, as in NNlib. */
fx_array *fxi_softsign_of(fx_array *x, fx_array *d);

/* The pending result x is computed only when the program reads or evaluates it: neither before an
 * update replaces a value that x is computed from, nor when a thread evaluates by itself. Nothing
 * happens if x is an error or has a value. */
void fxi_on_demand(fx_array *x);

/* Float32 numbers, uniform in [0, 1), of the stream (seed, counter) of fxi_random_next. */
fx_array *fxi_rand_of(const uint64_t stream[2], int ndims, const int64_t *sizes);

/* Each element is its index along `axis`. */
fx_array *fxi_iota(fx_dtype dtype, int axis, int ndims, const int64_t *sizes);

#endif
