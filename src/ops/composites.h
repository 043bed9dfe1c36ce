/* composites.h: what the operations built from primitives share. Internal.
 *
 * A composite is a function over the public operations, so its gradients of every order come from
 * the primitives' rules. Two things need care in each: numbers must stay literals (weak types), and
 * a branch that `where` does not select must not produce NaN or Inf gradients, because 0·Inf is
 * NaN; the argument of such a branch is replaced before the function is applied.
 */
#ifndef CFLUX_COMPOSITES_H
#define CFLUX_COMPOSITES_H

#include "primitives.h"

/* FX_OK for a usable operand; an error array's own status without a new record; a record for NULL.
 */
static inline fx_status fxi_operand_status(const char *op, const fx_array *x)
{
    return x ? fx_array_status(x) : fx_fail(FX_STATUS_ARGUMENT, op, "an argument is NULL");
}

/* The result of an operation on an error array. */
static inline fx_array *fxi_pass_error(const char *op, const fx_array *x)
{
    return fx_error_array(fxi_operand_status(op, x));
}

/* The axes as a mask; false (recorded) when they are none, or one is not x's. */
bool fxi_axes_of(const char *op, const fx_array *x, fx_axes axes, unsigned *out_mask);

/* FX_OK for labels that fx_onehot takes: integers with room for one more axis. */
fx_status fxi_check_labels(const char *op, const fx_array *labels, int64_t nclasses);

/* x, integers and Bool turned into Float32: for formulas that negate before a real function would.
 */
static inline fx_array *fxi_real(fx_array *x)
{
    return fx_is_error(x) || fxi_is_float((int)fx_eltype(x)) ? x : fx_cast(x, FX_DTYPE_F32);
}

/* √v with gradient 0 instead of 0·Inf where v is 0 (PyTorch's std and norm). */
static inline fx_array *fxi_sqrt_or_zero(fx_array *v)
{
    fx_array *zero = fx_eq(v, 0);
    return fx_where(zero, 0, fx_sqrt(fx_where(zero, 1, v)));
}

#endif
