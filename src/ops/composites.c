/* composites.c: elementwise operations that are expressions of primitives.
 *
 * Each is a formula over the public API. So its gradients of every order follow from the rules of
 * the primitives, no backend knows it, and the planner fuses it into one kernel. The formulas give
 * correct values over the whole range: no overflow where the result is finite, no cancellation near
 * zero. First and second derivatives are right at 0: inside a smooth formula |x| is written
 * where(x < 0, −x, x), whose derivative is ±1 everywhere, and not fx_abs, whose derivative is 0 at
 * 0. Comparisons and floor have no gradient, so functions built only from them are constant.
 */
#include "composites.h"

#include <cflux/tree.h>
#include <math.h>

/* ---- integers and remainders ----------------------------------------------------------------- */

/* Julia's mod: r = rem(a, b), or r + b if r and b have different signs; a result of 0 has the sign
 * of b. For integers a mod 0 is a, because rem is. */
fx_array *fxi_mod(fxi_arg a, fxi_arg b)
{
    FXI_OPERATION("mod");
    FXI_SCOPE;
    const fxi_arg zero = fxi_arg_int(0);
    fx_array *r = fxi_rem(a, b);
    if (fx_is_error(r))
        return fx_keep(r);
    fx_array *negative = fxi_lt(b, zero);
    fx_array *other = fx_ne(fx_lt(r, 0), negative);
    fx_array *y = fx_where(other, fxi_add(fxi_arg_array(r), b), r);
    fx_array *none = fx_eq(r, 0);
    y = fx_where(none, 0, y);
    if (fxi_is_float((int)fx_eltype(r)))
        y = fx_where(fx_and(none, negative), -0.0, y);
    return fx_keep(y);
}

/* ---- comparison and logic -------------------------------------------------------------------- */

fx_array *fxi_gt(fxi_arg a, fxi_arg b)
{
    FXI_OPERATION("gt");
    return fxi_lt(b, a);
}
fx_array *fxi_ge(fxi_arg a, fxi_arg b)
{
    FXI_OPERATION("ge");
    return fxi_le(b, a);
}

/* The operand of a logical operation: a Bool array, or a literal as 0 or 1. Returns false
 * (recorded) for anything else. */
static bool logical(const char *op, fxi_arg *a)
{
    if (a->kind != FXI_ARG_ARRAY) {
        *a = fxi_arg_int(a->kind == FXI_ARG_INT ? a->u.integer != 0 : a->u.real != 0);
        return true;
    }
    const fx_array *x = a->u.array;
    if (!fx_is_array(x) || fx_is_error(x) || fx_eltype(x) == FX_DTYPE_BOOL)
        return true; /* the primitive reports an operand that is not an array */
    fx_fail(FX_STATUS_DTYPE, op, "takes Bool, got %s", fx_dtype_name(fx_eltype(x)));
    return false;
}

static fx_array *combine(const char *op, fx_array *(*f)(fxi_arg, fxi_arg), fxi_arg a, fxi_arg b)
{
    if (!logical(op, &a) || !logical(op, &b))
        return fx_error_array(FX_STATUS_DTYPE);
    fx_array *y = f(a, b);
    return fx_is_error(y) || fx_eltype(y) == FX_DTYPE_BOOL ? y : fx_cast(y, FX_DTYPE_BOOL);
}

fx_array *fxi_and(fxi_arg a, fxi_arg b)
{
    FXI_OPERATION("and");
    return combine("and", fxi_min, a, b);
}
fx_array *fxi_or(fxi_arg a, fxi_arg b)
{
    FXI_OPERATION("or");
    return combine("or", fxi_max, a, b);
}
fx_array *fxi_xor(fxi_arg a, fxi_arg b)
{
    FXI_OPERATION("xor");
    return combine("xor", fxi_ne, a, b);
}
fx_array *fx_not(fx_array *x)
{
    FXI_OPERATION("not");
    return combine("not", fxi_eq, fxi_arg_array(x), fxi_arg_int(0));
}

/* Julia's clamp. From bound to bound, inclusive, the gradient is x's; NaN stays NaN. */
fx_array *fxi_clamp(fxi_arg x, fxi_arg lo, fxi_arg hi)
{
    FXI_OPERATION("clamp");
    FXI_SCOPE;
    fx_array *low = fxi_where(fxi_arg_array(fxi_lt(x, lo)), lo, x);
    return fx_keep(fxi_where(fxi_arg_array(fxi_lt(hi, x)), hi, fxi_arg_array(low)));
}

/* If x is 0 and log y is not finite, y is replaced by 1, so that value and gradients are 0 and not
 * NaN. */
fx_array *fxi_xlogy(fxi_arg x, fxi_arg y)
{
    FXI_OPERATION("xlogy");
    FXI_SCOPE;
    fx_array *usable = fx_and(fxi_lt(fxi_arg_int(0), y), fxi_lt(y, fxi_arg_real(INFINITY)));
    fx_array *moot = fx_and(fxi_eq(x, fxi_arg_int(0)), fx_not(usable));
    fx_array *safe = fxi_where(fxi_arg_array(moot), fxi_arg_int(1), y);
    return fx_keep(fxi_mul(x, fxi_arg_array(fx_log(safe))));
}

/* ---- sign and powers ------------------------------------------------------------------------- */

static bool is_unsigned(const fx_array *x)
{
    return fx_eltype(x) == FX_DTYPE_U8 || fx_eltype(x) == FX_DTYPE_BOOL;
}

/* max(x, −x) divides the gradient at 0 equally: +½ − ½ = 0. Adding 0 turns −0 into 0. */
fx_array *fx_abs(fx_array *x)
{
    if (fx_is_error(x))
        return fxi_pass_error("abs", x);
    if (is_unsigned(x))
        return x;
    FXI_SCOPE;
    return fx_keep(fx_add(fx_max(x, fx_neg(x)), 0));
}

/* ±1, and x itself if it is ±0 or NaN. */
fx_array *fx_sign(fx_array *x)
{
    FXI_OPERATION("sign");
    FXI_SCOPE;
    fx_array *s = fx_where(fx_gt(x, 0), 1, x);
    if (!fx_is_error(x) && !is_unsigned(x))
        s = fx_where(fx_lt(x, 0), -1, s);
    return fx_keep(fx_stop_gradient(s));
}

fx_array *fx_square(fx_array *x)
{
    FXI_OPERATION("square");
    return fx_pow(x, 2);
}
fx_array *fx_rsqrt(fx_array *x)
{
    FXI_OPERATION("rsqrt");
    return fx_div(1, fx_sqrt(x));
}
fx_array *fx_reciprocal(fx_array *x)
{
    FXI_OPERATION("reciprocal");
    return fx_div(1, x);
}

/* ---- trigonometry ---------------------------------------------------------------------------- */

fx_array *fx_tan(fx_array *x)
{
    FXI_OPERATION("tan");
    return fx_div(fx_sin(x), fx_cos(x));
}
fx_array *fx_atan(fx_array *x)
{
    FXI_OPERATION("atan");
    return fx_atan2(x, 1);
}

/* √(1 − x²) without cancellation near ±1, and with gradient ±Inf, not NaN, at ±1. */
static fx_array *cosine_of(fx_array *x)
{
    return fx_mul(fx_sqrt(fx_sub(1, x)), fx_sqrt(fx_add(1, x)));
}

fx_array *fx_asin(fx_array *x)
{
    FXI_OPERATION("asin");
    FXI_SCOPE;
    x = fxi_real(x);
    return fx_keep(fx_atan2(x, cosine_of(x)));
}

fx_array *fx_acos(fx_array *x)
{
    FXI_OPERATION("acos");
    FXI_SCOPE;
    x = fxi_real(x);
    return fx_keep(fx_atan2(cosine_of(x), x));
}

/* ---- hyperbolic functions -------------------------------------------------------------------- */

/* (expm1(x) − expm1(−x))/2: the terms have opposite signs, so nothing cancels. expm1(x) is u·(u +
 * 2) with u = expm1(x/2), and eˣ overflows before the half of that product does. Each term depends
 * on one exponential only, so that infinite parts of the gradient do not meet with opposite signs.
 */
fx_array *fx_sinh(fx_array *x)
{
    FXI_OPERATION("sinh");
    FXI_SCOPE;
    fx_array *t = fx_mul(0.5, fxi_real(x)), *up = fx_expm1(t), *down = fx_expm1(fx_neg(t));
    return fx_keep(
        fx_sub(fx_mul(fx_mul(0.5, up), fx_add(up, 2)), fx_mul(fx_mul(0.5, down), fx_add(down, 2))));
}

fx_array *fx_cosh(fx_array *x)
{
    FXI_OPERATION("cosh");
    FXI_SCOPE;
    /* eˣ/2 = (e^t/2)·e^t with t = x/2: eˣ overflows before its half does. */
    fx_array *t = fx_mul(0.5, fxi_real(x)), *up = fx_exp(t), *down = fx_exp(fx_neg(t));
    return fx_keep(fx_add(fx_mul(fx_mul(0.5, up), up), fx_mul(fx_mul(0.5, down), down)));
}

/* With a = |x|: a ≤ 1: log1p(a + a²/(1 + √(1 + a²))); a > 1: log a + log(1 + √(1 + a⁻²)), which
 * does not overflow. m is a or 1/a, whichever is at most 1, so that one square root serves both. */
fx_array *fx_asinh(fx_array *x)
{
    FXI_OPERATION("asinh");
    FXI_SCOPE;
    x = fxi_real(x);
    fx_array *negative = fx_lt(x, 0);
    fx_array *a = fx_where(negative, fx_neg(x), x);
    fx_array *large = fx_gt(a, 1);
    fx_array *safe = fx_where(large, a, 1);
    fx_array *m = fx_where(large, fx_div(1, safe), a);
    fx_array *root = fx_sqrt(fx_add(1, fx_square(m)));
    fx_array *small = fx_add(m, fx_div(fx_square(m), fx_add(1, root)));
    fx_array *y = fx_add(fx_log(safe), fx_log1p(fx_where(large, root, small)));
    /* ±0 themselves, because log 1 + (−0) is +0. */
    return fx_keep(fx_where(fx_eq(x, 0), x, fx_where(negative, fx_neg(y), y)));
}

/* With d = x − 1: log1p(d + √d·√(d + 2)); the product of roots cannot overflow. */
fx_array *fx_acosh(fx_array *x)
{
    FXI_OPERATION("acosh");
    FXI_SCOPE;
    x = fxi_real(x);
    /* acosh x is log 2x to the last bit for large x, where 2x may overflow. The other branch then
     * computes with 2, where its gradient is finite. */
    fx_array *large = fx_gt(x, fx_eltype(x) == FX_DTYPE_F16 ? 0x1p8 : 0x1p32);
    fx_array *d = fx_sub(fx_where(large, 2, x), 1);
    fx_array *y = fx_log1p(fx_add(d, fx_mul(fx_sqrt(d), fx_sqrt(fx_add(d, 2)))));
    fx_array *of_large = fx_add(fx_log(fx_where(large, x, 1)), 0.69314718055994531);
    return fx_keep(fx_where(large, of_large, y));
}

fx_array *fx_atanh(fx_array *x)
{
    FXI_OPERATION("atanh");
    FXI_SCOPE;
    x = fxi_real(x);
    return fx_keep(fx_mul(0.5, fx_sub(fx_log1p(x), fx_log1p(fx_neg(x)))));
}

/* ---- rounding -------------------------------------------------------------------------------- */

static bool is_whole(const fx_array *x)
{
    return !fx_is_error(x) && !fxi_is_float((int)fx_eltype(x));
}

fx_array *fx_ceil(fx_array *x)
{
    FXI_OPERATION("ceil");
    if (is_whole(x))
        return x;
    FXI_SCOPE;
    return fx_keep(fx_neg(fx_floor(fx_neg(x))));
}

/* Rounds up if the fraction is above ½, or is ½ and the floor is odd. The fraction of an infinite x
 * is NaN. −(−1 − low) is low + 1, but −0 where low is −1, for x in (−1, 0). */
fx_array *fx_round(fx_array *x)
{
    FXI_OPERATION("round");
    if (is_whole(x))
        return x;
    FXI_SCOPE;
    fx_array *low = fx_floor(x);
    fx_array *fraction = fx_sub(x, low);
    fx_array *odd = fx_ne(low, fx_mul(2, fx_floor(fx_mul(0.5, low))));
    fx_array *up = fx_or(fx_gt(fraction, 0.5), fx_and(fx_eq(fraction, 0.5), odd));
    return fx_keep(fx_where(up, fx_neg(fx_sub(-1, low)), low));
}

fx_array *fx_trunc(fx_array *x)
{
    FXI_OPERATION("trunc");
    if (is_whole(x))
        return x;
    FXI_SCOPE;
    return fx_keep(fx_where(fx_lt(x, 0), fx_ceil(x), fx_floor(x)));
}

/* ---- what kind of number --------------------------------------------------------------------- */

fx_array *fx_isnan(fx_array *x)
{
    FXI_OPERATION("isnan");
    return fx_ne(x, x);
}

fx_array *fx_isinf(fx_array *x)
{
    FXI_OPERATION("isinf");
    FXI_SCOPE;
    return fx_keep(fx_eq(fx_abs(x), (double)INFINITY));
}

fx_array *fx_isfinite(fx_array *x)
{
    FXI_OPERATION("isfinite");
    FXI_SCOPE;
    return fx_keep(fx_lt(fx_abs(x), (double)INFINITY));
}
