/* reductions.c: sums, means, extremes, softmax and the index of an extreme.
 *
 * The only primitive is REDUCE (reduce.c), which keeps reduced axes with size 1. `reduce` in this
 * file adds the rest: it checks the axes, chooses the element type to compute in, calls a core
 * function, and shapes the result.
 *
 * Each operation names its domain. SAME: the type of x. BOOL: only Bool is accepted. COUNT:
 * integers become Int64. MEAN: integers become Float64, Bool becomes Float32. REAL: integers
 * become Float32. In MEAN and REAL the 16-bit types compute in Float32 and are rounded once, at the
 * end, because their sums overflow or stop growing (Float16 ends at 65504, BFloat16 counts to 256).
 *
 * Maxima that only shift an exponential are constants for gradients of every order, because the
 * result does not depend on the shift.
 */
#include "composites.h"
#include "memory.h"
#include "option_struct.h"
#include "own_gradient.h"

#include <math.h>

typedef enum domain { DOMAIN_SAME, DOMAIN_COUNT, DOMAIN_MEAN, DOMAIN_REAL, DOMAIN_BOOL } domain;

/* Reduces the axes of mask, which keep size 1. Variances divide by n − correction. */
typedef fx_array *(*core_fn)(fx_array *x, unsigned mask, int64_t correction);

/* The number of elements reduced to one. */
static int64_t extent(const fx_array *x, unsigned mask)
{
    int64_t n = 1;
    for (int i = 0; i < fx_ndims(x); i++)
        if (FXI_AXIS_IN(mask, i))
            fxi_mul_i64(n, fx_size(x, i), &n);
    return n;
}

/* r without the axes of mask. */
static fx_array *without_axes(fx_array *r, int ndims, unsigned mask)
{
    int64_t sizes[FX_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < ndims; i++)
        if (!FXI_AXIS_IN(mask, i))
            sizes[n++] = fx_size(r, i);
    return fx_is_error(r) ? r : fxi_reshape(r, n, sizes);
}

/* The element type to compute in. */
static fx_dtype working_type(domain d, fx_dtype t)
{
    const bool half = t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
    if (d == DOMAIN_COUNT)
        return fxi_is_float((int)t) ? t : FX_DTYPE_I64;
    if (d == DOMAIN_MEAN && !fxi_is_float((int)t))
        return t == FX_DTYPE_BOOL ? FX_DTYPE_F32 : FX_DTYPE_F64;
    if (d == DOMAIN_MEAN || d == DOMAIN_REAL)
        return half || !fxi_is_float((int)t) ? FX_DTYPE_F32 : t;
    return t;
}

/* x converted to the type to compute in; NULL (recorded) if the operation does not accept the type
 * of x. */
static fx_array *working(const char *op, domain d, fx_array *x)
{
    const fx_dtype t = fx_eltype(x), w = working_type(d, t);
    if (d == DOMAIN_BOOL && t != FX_DTYPE_BOOL) {
        fx_fail(FX_STATUS_DTYPE, op, "takes Bool, got %s", fx_dtype_name(t));
        return NULL;
    }
    return w == t ? x : fx_cast(x, w);
}

/* Converts the result to its final type: 16-bit types return to 16 bits. */
static fx_array *handed_out(fx_array *y, domain d, fx_dtype t)
{
    const bool half = t == FX_DTYPE_F16 || t == FX_DTYPE_BF16;
    return half && (d == DOMAIN_MEAN || d == DOMAIN_REAL) ? fx_cast(y, t) : y;
}

static fx_array *reduce(const char *op, const fx_var_args *a, domain d, core_fn core)
{
    unsigned mask;
    if (fx_is_error(a->x))
        return fxi_pass_error(op, a->x);
    if (!fxi_axes_of(op, a->x, a->dims, &mask))
        return fx_error_array(FX_STATUS_ARGUMENT);
    FXI_SCOPE;
    fx_array *x = working(op, d, a->x);
    if (!x)
        return fx_error_array(FX_STATUS_DTYPE);
    fx_array *y = handed_out(core(x, mask, a->corrected), d, fx_eltype(a->x));
    if (a->dims.bits == FXI_BIT_ALL || a->drop)
        y = without_axes(y, fx_ndims(a->x), mask);
    return fx_keep(y);
}

/* ---- cores ----------------------------------------------------------------------------------- */

static fx_array *sum_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_reduce(FX_REDUCE_SUM, x, mask, "sum");
}

static fx_array *prod_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_reduce(FX_REDUCE_PROD, x, mask, "prod");
}

static fx_array *maximum_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_reduce(FX_REDUCE_MAX, x, mask, "maximum");
}

static fx_array *minimum_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_reduce(FX_REDUCE_MIN, x, mask, "minimum");
}

/* fx_any of no elements is false, and fx_all is true: the neutral elements of max and min, the
 * smallest and the largest Bool. */
static fx_array *any_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_reduce_logical(FX_REDUCE_MAX, x, mask, "any");
}

static fx_array *all_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_reduce_logical(FX_REDUCE_MIN, x, mask, "all");
}

/* One of the two parts of a mean: the mean rounded to the type of x, and the rounding error, a
 * constant for gradients. With both, the mean of n equal numbers is that number, and the mean of
 * numbers that differ in their last bits is between them. For such numbers, a sum of Float32 in
 * Float64 is exact. Otherwise (Float64, devices without it) a second pass adds the mean of the
 * deviations from the first mean. It adds 0 if that mean is not finite, because x has infinities or
 * a sum overflows. `rest`: returns the second part instead of the first. */
static fx_array *mean_part(fx_array *x, unsigned mask, const char *op, bool rest)
{
    const double n = (double)extent(x, mask);
    const fx_dtype t = fx_eltype(x);
    if (!fx_is_error(x) && t == FX_DTYPE_F32 && fxi_has_f64(x->node->device)) {
        fx_array *wide = fx_div(fxi_sum_wide(x, mask, op), n), *mean = fx_cast(wide, t);
        if (!rest)
            return mean;
        return fx_stop_gradient(fx_cast(fx_sub(wide, fx_cast(mean, FX_DTYPE_F64)), t));
    }
    fx_array *first = fx_div(fxi_reduce(FX_REDUCE_SUM, x, mask, op), n);
    fx_array *more = fx_div(fxi_reduce(FX_REDUCE_SUM, fx_sub(x, first), mask, op), n);
    more = fx_stop_gradient(fx_where(fx_isfinite(more), more, 0));
    fx_array *mean = fx_add(first, more);
    return rest ? fx_stop_gradient(fx_sub(more, fx_sub(mean, first))) : mean;
}

fx_array *fxi_mean_over(fx_array *x, unsigned mask, const char *op)
{
    return mean_part(x, mask, op, false);
}

static fx_array *mean_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_mean_over(x, mask, "mean");
}

static fx_array *mean_rest_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return mean_part(x, mask, "mean_rest", true);
}

/* Not computed as Σx² − (Σx)²/n, which loses all digits if the mean is large. */
static fx_array *var_core(fx_array *x, unsigned mask, int64_t correction)
{
    const int64_t n = extent(x, mask);
    return fx_div(fxi_reduce(FX_REDUCE_SQDEV, x, mask, "var"),
                  (double)(n > 0 ? n - correction : n));
}

static fx_array *std_core(fx_array *x, unsigned mask, int64_t correction)
{
    return fxi_sqrt_or_zero(var_core(x, mask, correction));
}

static fx_array *norm_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    return fxi_sqrt_or_zero(fxi_reduce(FX_REDUCE_SUM, fx_square(x), mask, "norm"));
}

/* m + log Σe^(x−m). An infinite or NaN maximum m is replaced by 0: a slice of only −Inf gives −Inf,
 * one with +Inf gives +Inf. The logarithm of 0 is written as a constant to keep its gradient 0. */
static fx_array *logsumexp_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    fx_array *shift = NULL;
    if (extent(x, mask) > 0) {
        fx_array *m = fx_stop_gradient(fxi_reduce(FX_REDUCE_MAX, x, mask, "logsumexp"));
        shift = fx_where(fx_isfinite(m), m, 0);
        x = fx_sub(x, shift);
    }
    fx_array *sum = fxi_reduce(FX_REDUCE_SUM, fx_exp(x), mask, "logsumexp");
    fx_array *zero = fx_eq(sum, 0);
    fx_array *y = fx_where(zero, -(double)INFINITY, fx_log(fx_where(zero, 1, sum)));
    return shift ? fx_add(y, shift) : y;
}

#define REDUCTION(symbol, name, domain, core)                                                      \
    fx_array *symbol(const fx_reduce_args *given)                                                  \
    {                                                                                              \
        FXI_TAKE_OPTIONS(fx_reduce_args, FXI_REDUCE_ARGS, a, name, given);                         \
        const fx_var_args all = {.x = a.x, .dims = a.dims, .drop = a.drop};                        \
        return a_ok ? reduce(name, &all, domain, core) : fx_error_array(FX_STATUS_ARGUMENT);       \
    }
#define VARIANCE(symbol, name, core)                                                               \
    fx_array *symbol(const fx_var_args *given)                                                     \
    {                                                                                              \
        FXI_TAKE_OPTIONS(fx_var_args, FXI_VAR_ARGS, a, name, given);                               \
        return a_ok ? reduce(name, &a, DOMAIN_MEAN, core) : fx_error_array(FX_STATUS_ARGUMENT);    \
    }
#define ALONG(symbol, name, core)                                                                  \
    fx_array *symbol(const fx_softmax_args *given)                                                 \
    {                                                                                              \
        FXI_TAKE_OPTIONS(fx_softmax_args, FXI_SOFTMAX_ARGS, a, name, given);                       \
        return a_ok ? along(name, &a, core) : fx_error_array(FX_STATUS_ARGUMENT);                  \
    }
REDUCTION(fxi_sum, "sum", DOMAIN_COUNT, sum_core)
REDUCTION(fxi_prod, "prod", DOMAIN_COUNT, prod_core)
REDUCTION(fxi_mean, "mean", DOMAIN_MEAN, mean_core)
REDUCTION(fxi_mean_rest, "mean_rest", DOMAIN_MEAN, mean_rest_core)
VARIANCE(fxi_var, "var", var_core)
VARIANCE(fxi_std, "std", std_core)
REDUCTION(fxi_maximum, "maximum", DOMAIN_SAME, maximum_core)
REDUCTION(fxi_minimum, "minimum", DOMAIN_SAME, minimum_core)
REDUCTION(fxi_any_true, "any", DOMAIN_BOOL, any_core)
REDUCTION(fxi_all_true, "all", DOMAIN_BOOL, all_core)
REDUCTION(fxi_norm, "norm", DOMAIN_REAL, norm_core)
REDUCTION(fxi_logsumexp, "logsumexp", DOMAIN_REAL, logsumexp_core)

/* ---- softmax --------------------------------------------------------------------------------- */

/* x − max x. An empty array has no maximum and needs none. */
static fx_array *shifted(fx_array *x, unsigned mask, const char *op)
{
    if (fx_length(x) == 0)
        return x;
    return fx_sub(x, fx_stop_gradient(fxi_reduce(FX_REDUCE_MAX, x, mask, op)));
}

static fx_array *softmax_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    fx_array *e = fx_exp(shifted(x, mask, "softmax"));
    return fxi_quotient(e, fxi_reduce(FX_REDUCE_SUM, e, mask, "softmax"));
}

static fx_array *logsoftmax_core(fx_array *x, unsigned mask, int64_t correction)
{
    (void)correction;
    fx_array *d = shifted(x, mask, "logsoftmax");
    return fx_sub(d, fx_log(fxi_reduce(FX_REDUCE_SUM, fx_exp(d), mask, "logsoftmax")));
}

/* Like `reduce`, but x keeps its axes, even if the options name all of them. */
static fx_array *along(const char *op, const fx_softmax_args *a, core_fn core)
{
    unsigned mask;
    if (fx_is_error(a->x))
        return fxi_pass_error(op, a->x);
    if (!fxi_axes_of(op, a->x, a->dims, &mask))
        return fx_error_array(FX_STATUS_ARGUMENT);
    FXI_SCOPE;
    fx_array *y = core(working(op, DOMAIN_REAL, a->x), mask, 0);
    return fx_keep(handed_out(y, DOMAIN_REAL, fx_eltype(a->x)));
}

ALONG(fxi_softmax, "softmax", softmax_core)
ALONG(fxi_logsoftmax, "logsoftmax", logsoftmax_core)

/* ---- index of an extreme --------------------------------------------------------------------- */

static fx_array *index_of_extreme(const char *op, fx_reduce kind, const fx_reduce_args *a)
{
    unsigned mask;
    if (fx_is_error(a->x))
        return fxi_pass_error(op, a->x);
    if (!fxi_axes_of(op, a->x, a->dims, &mask))
        return fx_error_array(FX_STATUS_ARGUMENT);
    const bool all = a->dims.bits == FXI_BIT_ALL;
    if (!all && (mask & (mask - 1)) != 0)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, op, "takes one axis, or FX_ALL for the whole array"));
    FXI_SCOPE;
    fx_array *x = all ? fx_vec(a->x) : a->x;
    const int axis = all ? 0 : __builtin_ctz(mask);
    const fx_dtype t = fx_eltype(x); /* Float32 represents all 16-bit floats */
    if (t == FX_DTYPE_F16 || t == FX_DTYPE_BF16)
        x = fx_cast(x, FX_DTYPE_F32);
    fx_array *y = fxi_reduce(kind, x, FXI_AXIS_BIT(axis), op);
    if (all || a->drop)
        y = without_axes(y, fx_ndims(x), FXI_AXIS_BIT(axis));
    return fx_keep(y);
}

fx_array *fxi_argmax(const fx_reduce_args *given)
{
    FXI_TAKE_OPTIONS(fx_reduce_args, FXI_REDUCE_ARGS, a, "argmax", given);
    return a_ok ? index_of_extreme("argmax", FX_REDUCE_ARGMAX, &a)
                : fx_error_array(FX_STATUS_ARGUMENT);
}
fx_array *fxi_argmin(const fx_reduce_args *given)
{
    FXI_TAKE_OPTIONS(fx_reduce_args, FXI_REDUCE_ARGS, a, "argmin", given);
    return a_ok ? index_of_extreme("argmin", FX_REDUCE_ARGMIN, &a)
                : fx_error_array(FX_STATUS_ARGUMENT);
}
