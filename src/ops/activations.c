/* activations.c: NNlib's activation functions, as expressions of primitives.
 *
 * Values and gradients follow NNlib. At kinks where NNlib's rule and PyTorch's differ, NNlib's
 * holds; where NNlib's result depends on chance (clamps inside a broadcast), PyTorch's holds. So
 * relu has gradient 0 at 0; hardtanh, hardsigmoid and relu6 have 0 at their bounds; elu has 1, selu
 * λα.
 *
 * NaN stays NaN in all of them: the branch that a false comparison selects is a function of x. The
 * gradient there is NNlib's: 0 for functions that NNlib differentiates by comparing their result
 * (relu, relu6, hardtanh, hardsigmoid, trelu), because all comparisons with NaN are false. At ±Inf
 * the gradient of tanhshrink is NaN and that of softsign is 0: NNlib's rules are (x − y)² and
 * 1/(1 + |x|)².
 * Functions of e^x never get an argument that overflows, not even in a branch that is not selected
 * (its gradient would be 0·Inf). So they are correct for all finite x, except that the gradient of
 * gelu is NaN where x² overflows, as PyTorch's is. Products such as x·σ(x) give NaN at −Inf, as in
 * NNlib.
 */
#include "composites.h"
#include "own_gradient.h"

fx_array *fx_identity(fx_array *x)
{
    return fx_is_error(x) ? fxi_pass_error("identity", x) : x;
}

/* ---- piecewise linear functions -------------------------------------------------------------- */

/* `line` for x between lo and hi, with its gradient. Elsewhere the gradient is 0, and the result is
 * `low` up to lo, where NaN must stay NaN, and `high` from hi on. */
static fx_array *between(fx_array *x, int lo, int hi, fx_array *line, fx_array *low, int high)
{
    return fx_where(fx_gt(x, lo), fx_where(fx_lt(x, hi), line, high), fx_stop_gradient(low));
}

/* Limits x to lo … hi; the gradient is 0 at the bounds and beyond. Integers stay integers. */
static fx_array *saturate(fx_array *x, int lo, int hi)
{
    FXI_SCOPE;
    return fx_keep(between(x, lo, hi, x, fx_max(x, lo), hi));
}

/* UInt8 and Bool cannot represent −1 and are never below 0, so their lower bound is 0. */
fx_array *fx_hardtanh(fx_array *x)
{
    FXI_OPERATION("hardtanh");
    const fx_dtype t = fx_eltype(x);
    return saturate(x, t == FX_DTYPE_U8 || t == FX_DTYPE_BOOL ? 0 : -1, 1);
}
fx_array *fx_relu6(fx_array *x)
{
    FXI_OPERATION("relu6");
    return saturate(x, 0, 6);
}

fx_array *fx_hardsigmoid(fx_array *x)
{
    FXI_OPERATION("hardsigmoid");
    FXI_SCOPE;
    x = fxi_real(x);
    fx_array *line = fx_div(fx_add(x, 3), 6.0);
    return fx_keep(between(x, -3, 3, line, fx_max(line, 0), 1));
}

/* At ±3 the gradient is that of x·(x + 3)/6: −½ and 3/2. */
fx_array *fx_hardswish(fx_array *x)
{
    FXI_OPERATION("hardswish");
    FXI_SCOPE;
    x = fxi_real(x);
    fx_array *line = fx_div(fx_add(x, 3), 6.0);
    fx_array *gate = fx_where(fx_lt(x, -3), 0, fx_where(fx_gt(x, 3), 1, line));
    return fx_keep(fx_mul(x, gate));
}

fx_array *fx_leakyrelu_slope(fx_array *x, double slope)
{
    FXI_OPERATION("leakyrelu_slope");
    FXI_SCOPE;
    return fx_keep(fx_where(fx_gt(x, 0), x, fx_mul(slope, x)));
}
fx_array *fx_leakyrelu(fx_array *x)
{
    FXI_OPERATION("leakyrelu");
    return fx_leakyrelu_slope(x, 0.01);
}

/* Xu et al., 2015. */
fx_array *fx_rrelu(fx_array *x)
{
    static const double lo = 1.0 / 8, hi = 1.0 / 3;
    if (fx_is_error(x))
        return fxi_pass_error("rrelu", x);
    if (!fx_training())
        return fx_leakyrelu_slope(x, (lo + hi) / 2);
    FXI_SCOPE;
    x = fxi_real(x);
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    fx_array *slope = fx_add(fx_mul(fxi_rand(fx_eltype(x), fx_ndims(x), sizes), hi - lo), lo);
    return fx_keep(fx_where(fx_gt(x, 0), x, fx_mul(slope, x)));
}

/* If x is neither at most theta nor above it, it is NaN, and the result is x. */
static fx_array *above(fx_array *x, fx_array *at_most, fx_array *greater)
{
    return fx_where(greater, x, fx_stop_gradient(fx_where(at_most, 0, x)));
}
fx_array *fx_trelu_theta(fx_array *x, double theta)
{
    FXI_OPERATION("trelu_theta");
    FXI_SCOPE;
    return fx_keep(above(x, fx_le(x, theta), fx_gt(x, theta)));
}
fx_array *fx_trelu(fx_array *x)
{
    FXI_OPERATION("trelu");
    FXI_SCOPE;
    return fx_keep(above(x, fx_le(x, 1), fx_gt(x, 1)));
}

fx_array *fx_softshrink_lambda(fx_array *x, double lambda)
{
    FXI_OPERATION("softshrink_lambda");
    FXI_SCOPE;
    fx_array *low = fx_where(fx_ge(x, -lambda), 0, fx_add(x, lambda));
    return fx_keep(fx_where(fx_gt(x, lambda), fx_sub(x, lambda), low));
}
fx_array *fx_softshrink(fx_array *x)
{
    FXI_OPERATION("softshrink");
    return fx_softshrink_lambda(x, 0.5);
}

fx_array *fx_glu(fx_array *x, int axis)
{
    if (!x || fx_is_error(x))
        return fxi_pass_error("glu", x);
    const fx_status status = fxi_check_axis("glu", x, axis);
    if (status != FX_OK)
        return fx_error_array(status);
    const int64_t n = fx_size(x, axis);
    if (n % 2)
        return fx_error_array(fx_fail(FX_STATUS_SHAPE, "glu",
                                      "axis %d has %lld elements, expected an even number", axis,
                                      (long long)n));
    FXI_SCOPE;
    fx_array *gate = fx_sigmoid(fx_slice(x, axis, n / 2, n));
    return fx_keep(fx_mul(fx_slice(x, axis, 0, n / 2), gate));
}

fx_array *fx_softsign(fx_array *x)
{
    FXI_OPERATION("softsign");
    FXI_SCOPE;
    x = fxi_real(x);
    return fx_keep(fxi_softsign_of(x, fx_add(1, fx_abs(x))));
}

/* ---- exponential below zero ------------------------------------------------------------------ */

/* upper ? x : α(e^(x/β) − 1), where `upper` is true for all positive x. */
static fx_array *exponential_below(fx_array *x, fx_array *upper, double alpha, double beta)
{
    fx_array *below = fx_where(upper, 0, x);
    if (beta != 1)
        below = fx_div(below, beta);
    return fx_where(upper, x, fx_mul(alpha, fx_expm1(below)));
}

fx_array *fx_elu_alpha(fx_array *x, double alpha)
{
    FXI_OPERATION("elu_alpha");
    FXI_SCOPE;
    return fx_keep(exponential_below(x, fx_ge(x, 0), alpha, 1));
}
fx_array *fx_elu(fx_array *x)
{
    FXI_OPERATION("elu");
    return fx_elu_alpha(x, 1);
}

fx_array *fx_celu_alpha(fx_array *x, double alpha)
{
    FXI_OPERATION("celu_alpha");
    FXI_SCOPE;
    return fx_keep(exponential_below(x, fx_ge(x, 0), alpha, alpha));
}
fx_array *fx_celu(fx_array *x)
{
    FXI_OPERATION("celu");
    return fx_celu_alpha(x, 1);
}

fx_array *fx_selu(fx_array *x)
{
    FXI_OPERATION("selu");
    static const double lambda = 1.0507009873554804934, alpha = 1.6732632423543772848;
    FXI_SCOPE;
    return fx_keep(fx_mul(lambda, exponential_below(x, fx_gt(x, 0), alpha, 1)));
}

/* ---- gates: x·s(x) --------------------------------------------------------------------------- */

/* x/2·(1 + tanh(√(2/π)(x + 0.044715x³))) = x·σ(√(8/π)·x·(1 + 0.044715x²)), which keeps its relative
 * precision for negative x where 1 + tanh cancels. Hendrycks and Gimpel, 2016; NNlib's gelu_sigmoid
 * is the second form of the same function. */
fx_array *fx_gelu(fx_array *x)
{
    FXI_OPERATION("gelu");
    FXI_SCOPE;
    x = fxi_real(x);
    /* Beyond ±32, σ is 0 or 1. In Float16, x² is infinite from |x| = 256 on, and the gradient would
     * be 0·∞. */
    fx_array *near = fx_eltype(x) == FX_DTYPE_F16 ? fx_clamp(x, -32, 32) : x;
    fx_array *inner = fx_add(1, fx_mul(0.044715, fx_square(near)));
    return fx_keep(fx_mul(x, fx_sigmoid(fx_mul(fx_mul(1.5957691216057308, near), inner))));
}
fx_array *fx_gelu_sigmoid(fx_array *x)
{
    FXI_OPERATION("gelu_sigmoid");
    return fx_gelu(x);
}

fx_array *fx_gelu_erf(fx_array *x)
{
    FXI_OPERATION("gelu_erf");
    FXI_SCOPE;
    fx_array *cdf = fx_add(1, fx_erf(fx_mul(0.70710678118654752, x)));
    return fx_keep(fx_mul(fx_mul(0.5, x), cdf));
}

fx_array *fx_swish(fx_array *x)
{
    FXI_OPERATION("swish");
    return fx_mul(x, fx_sigmoid(x));
}
fx_array *fx_lisht(fx_array *x)
{
    FXI_OPERATION("lisht");
    return fx_mul(x, fx_tanh(x));
}
fx_array *fx_tanhshrink(fx_array *x)
{
    FXI_OPERATION("tanhshrink");
    FXI_SCOPE;
    x = fxi_real(x);
    return fx_keep(fxi_minus_tanh(x, fx_tanh(x)));
}

/* ---- logarithms of sums of exponentials ------------------------------------------------------ */

/* max(x, 0) + log1p(e^−|x|). Both parts branch on the same comparison, so that first and second
 * derivative are right at 0 too. */
fx_array *fx_softplus(fx_array *x)
{
    FXI_OPERATION("softplus");
    FXI_SCOPE;
    x = fxi_real(x);
    fx_array *negative = fx_lt(x, 0);
    fx_array *tail = fx_log1p(fx_exp(fx_where(negative, x, fx_neg(x))));
    return fx_keep(fx_add(fx_where(negative, 0, x), tail));
}

fx_array *fx_logsigmoid(fx_array *x)
{
    FXI_OPERATION("logsigmoid");
    FXI_SCOPE;
    return fx_keep(fx_neg(fx_softplus(fx_neg(fxi_real(x)))));
}

/* With a = |x|: a + log1p((e^−2a − 1)/2): 0 at 0, relative error ε/a instead of NNlib's ε/a². */
fx_array *fx_logcosh(fx_array *x)
{
    FXI_OPERATION("logcosh");
    FXI_SCOPE;
    x = fxi_real(x);
    fx_array *a = fx_where(fx_lt(x, 0), fx_neg(x), x);
    return fx_keep(fx_add(a, fx_log1p(fx_mul(0.5, fx_expm1(fx_mul(-2, a))))));
}

fx_array *fx_mish(fx_array *x)
{
    FXI_OPERATION("mish");
    FXI_SCOPE;
    return fx_keep(fx_mul(x, fx_tanh(fx_softplus(x))));
}
