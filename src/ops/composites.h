/* composites.h: helpers for operations built from primitives. Internal.
 *
 * A composite is a function over the public operations, so its gradients of every order come from
 * the rules of the primitives. Each needs care in two points. Numbers must stay literals (weak
 * types). And a branch that `where` does not select must not have NaN or Inf gradients, because
 * 0·Inf is NaN; so the argument of the branch is replaced before the function is applied.
 */
#ifndef CFLUX_COMPOSITES_H
#define CFLUX_COMPOSITES_H

#include "error.h"
#include "handle.h"
#include "primitives.h"

/* The result of an operation on an error array. */
static inline fx_array *fxi_pass_error(const char *op, const fx_array *x)
{
    return fx_error_array(fxi_operand_status(op, x));
}

/* The axes as a mask; false (recorded) if none is given, or if one is not an axis of x. */
bool fxi_axes_of(const char *op, const fx_array *x, fx_axes axes, unsigned *out_mask);

/* FX_OK for labels that fx_onehot accepts: integers, with at least one axis fewer than the maximum.
 */
fx_status fxi_check_labels(const char *op, const fx_array *labels, int64_t nclasses);

/* x, with integers and Bool converted to Float32: for formulas that negate before they apply a real
 * function. */
static inline fx_array *fxi_real(fx_array *x)
{
    return fx_is_error(x) || fxi_is_float((int)fx_eltype(x)) ? x : fx_cast(x, FX_DTYPE_F32);
}

/* √v with gradient 0 instead of 0·Inf at v = 0 (like std and norm of PyTorch). */
static inline fx_array *fxi_sqrt_or_zero(fx_array *v)
{
    fx_array *zero = fx_eq(v, 0);
    return fx_where(zero, 0, fx_sqrt(fx_where(zero, 1, v)));
}

#endif
