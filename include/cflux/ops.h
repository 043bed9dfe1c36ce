/* cflux/ops.h: operations on arrays.
 *
 * Every function returns a new array that the innermost scope owns; it returns an error array on
 * failure, never NULL. Where an argument may be a number or an array, the C macros and the C++
 * overloads accept both: fx_sub(1, x). An integer number keeps the array's element type; a real
 * number turns integer arrays into Float32. Two arrays are converted to their common type
 * (fx_dtype_promote).
 *
 * Broadcasting is Julia's: sizes are compared from the first axis, and missing trailing axes count
 * as 1. Two sizes must be equal, or one of them must be 1; an axis of size 1 is repeated. In
 * formulas, n is a number of elements and σ the logistic function; 3×4 lists the sizes from axis 0.
 *
 * Errors of all operations: FX_STATUS_SHAPE ("add: sizes do not broadcast: 3×4 and 5"),
 * FX_STATUS_DTYPE, FX_STATUS_DEVICE (arrays on two devices), FX_STATUS_ARGUMENT (NULL, or an axis
 * that x does not have). */
#ifndef CFLUX_OPS_H
#define CFLUX_OPS_H

#include <cflux/array.h>

FXI_BEGIN_C

/* ---- numbers or arrays --------------------------------------------------------------------- */
typedef enum fxi_arg_kind { FXI_ARG_ARRAY = 0, FXI_ARG_REAL, FXI_ARG_INT } fxi_arg_kind;
typedef struct fxi_arg {
    fxi_arg_kind kind;
    union {
        fx_array *array;
        double real;
        int64_t integer;
    } u;
} fxi_arg;
static inline fxi_arg fxi_arg_array(const void *x)
{
    fxi_arg a;
    a.kind = FXI_ARG_ARRAY;
    a.u.array = FXI_NO_CONST(fx_array, x);
    return a;
}
static inline fxi_arg fxi_arg_real(double x)
{
    fxi_arg a;
    a.kind = FXI_ARG_REAL;
    a.u.real = x;
    return a;
}
static inline fxi_arg fxi_arg_int(int64_t x)
{
    fxi_arg a;
    a.kind = FXI_ARG_INT;
    a.u.integer = x;
    return a;
}
static inline fxi_arg fxi_arg_u64(uint64_t x)
{
    return x <= FXI_TO(uint64_t, INT64_MAX) ? fxi_arg_int(FXI_TO(int64_t, x))
                                            : fxi_arg_real(FXI_TO(double, x));
}

/* The macro evaluates and expands its argument once; _Generic(x)(x) would double the text at every
 * level of nesting. */
#define FXI_ARG_(x, v)                                                                               \
    __extension__({                                                                                  \
        FXI_HERE;                                                                                    \
        __auto_type v = (x);                                                                         \
        _Generic(v,                                                                                \
            fx_array *: fxi_arg_array, const fx_array *: fxi_arg_array, void *: fxi_arg_array,     \
            const void *: fxi_arg_array, float: fxi_arg_real, double: fxi_arg_real,                \
            long double: fxi_arg_real, bool: fxi_arg_int, char: fxi_arg_int,                       \
            signed char: fxi_arg_int, unsigned char: fxi_arg_int, short: fxi_arg_int,              \
            unsigned short: fxi_arg_int, int: fxi_arg_int, unsigned: fxi_arg_int,                  \
            long: fxi_arg_int, long long: fxi_arg_int, unsigned long: fxi_arg_u64,                 \
            unsigned long long: fxi_arg_u64)(v); \
    })
#define FXI_ID(n)  FXI_CAT(fxi_arg_, n)
#define FXI_ARG(x) FXI_ARG_(x, FXI_ID(__COUNTER__))

/* ---- elementwise, two arguments -------------------------------------------------------------- */
FX_API fx_array *fxi_add(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_sub(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_mul(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_div(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_fld(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_mod(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_rem(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_pow(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_max(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_min(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_atan2(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_lt(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_le(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_gt(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_ge(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_eq(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_ne(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_and(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_or(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_xor(fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_where(fxi_arg c, fxi_arg a, fxi_arg b);
FX_API fx_array *fxi_clamp(fxi_arg x, fxi_arg lo, fxi_arg hi);
FX_API fx_array *fxi_xlogy(fxi_arg x, fxi_arg y);

/* Elementwise functions of two arguments, with broadcasting:
 *   integers   fx_div gives Float32; fx_fld(a, 0) = 0; fx_mod(a, 0) = fx_rem(a, 0) = a; overflow
 *              wraps; fx_pow of two arrays is 0 where b < 0, except for a = ±1
 *   Bool       fx_add, fx_sub, fx_fld, fx_mod, fx_rem and fx_pow of two Bool arrays give Int64;
 *              fx_mul, fx_max and fx_min give Bool. A Bool array and an integer number give Int64,
 *              but fx_pow with an exponent of at least 0 gives Bool
 *   fx_mod     Julia's mod: exact apart from one rounding of rem + b
 *   fx_pow     an integer number as exponent: repeated multiplication, whose rounding error grows
 *              with the exponent; a negative one turns integers into Float32. Each exponent has its
 *              own plan
 *   max, min   NaN if either is NaN; where a = b, each gets half of the gradient
 *   compare    results are Bool; with NaN all but fx_ne are false
 *   fx_where   c may have any element type: a where c ≠ 0 */
#define fx_add(a, b)      fxi_add(FXI_ARG(a), FXI_ARG(b)) /* a + b */
#define fx_sub(a, b)      fxi_sub(FXI_ARG(a), FXI_ARG(b)) /* a − b */
#define fx_mul(a, b)      fxi_mul(FXI_ARG(a), FXI_ARG(b)) /* a · b */
#define fx_div(a, b)      fxi_div(FXI_ARG(a), FXI_ARG(b)) /* a / b */
#define fx_fld(a, b)      fxi_fld(FXI_ARG(a), FXI_ARG(b)) /* ⌊a / b⌋ */
#define fx_mod(a, b)      fxi_mod(FXI_ARG(a), FXI_ARG(b)) /* a − b·⌊a / b⌋: the sign of b */
#define fx_rem(a, b)      fxi_rem(FXI_ARG(a), FXI_ARG(b)) /* C's fmod, exact: the sign of a */
#define fx_pow(a, b)      fxi_pow(FXI_ARG(a), FXI_ARG(b)) /* a ^ b */
#define fx_max(a, b)      fxi_max(FXI_ARG(a), FXI_ARG(b)) /* the larger of a and b */
#define fx_min(a, b)      fxi_min(FXI_ARG(a), FXI_ARG(b)) /* the smaller of a and b */
#define fx_atan2(y, x)    fxi_atan2(FXI_ARG(y), FXI_ARG(x)) /* angle of (x, y), in (−π, π] */
#define fx_lt(a, b)       fxi_lt(FXI_ARG(a), FXI_ARG(b))    /* a < b */
#define fx_le(a, b)       fxi_le(FXI_ARG(a), FXI_ARG(b))    /* a ≤ b */
#define fx_gt(a, b)       fxi_gt(FXI_ARG(a), FXI_ARG(b))    /* a > b */
#define fx_ge(a, b)       fxi_ge(FXI_ARG(a), FXI_ARG(b))    /* a ≥ b */
#define fx_eq(a, b)       fxi_eq(FXI_ARG(a), FXI_ARG(b))    /* a = b */
#define fx_ne(a, b)       fxi_ne(FXI_ARG(a), FXI_ARG(b))    /* a ≠ b */
#define fx_and(a, b)      fxi_and(FXI_ARG(a), FXI_ARG(b))   /* a and b, Bool only */
#define fx_or(a, b)       fxi_or(FXI_ARG(a), FXI_ARG(b))    /* a or b, Bool only */
#define fx_xor(a, b)      fxi_xor(FXI_ARG(a), FXI_ARG(b))   /* exactly one of a and b, Bool only */
#define fx_where(c, a, b) fxi_where(FXI_ARG(c), FXI_ARG(a), FXI_ARG(b)) /* c ? a : b */
#define fx_clamp(x, lo, hi)                                                                        \
    fxi_clamp(FXI_ARG(x), FXI_ARG(lo), FXI_ARG(hi))      /* x > hi ? hi : x < lo ? lo : x */
#define fx_xlogy(x, y) fxi_xlogy(FXI_ARG(x), FXI_ARG(y)) /* x·log(y), 0 where x = 0 */

/* ---- elementwise, one argument --------------------------------------------------------------- */
/* Elementwise functions of one array. Functions with real results (exp, sqrt, sin, …) convert
 * integers to Float32; fx_neg of Bool gives Int64. Angles are in radians. */
FX_API fx_array *fx_neg(fx_array *x);        /* −x */
FX_API fx_array *fx_abs(fx_array *x);        /* |x|; gradient sign(x), 0 at 0 */
FX_API fx_array *fx_sign(fx_array *x);       /* −1, 0 or 1; gradient 0 */
FX_API fx_array *fx_square(fx_array *x);     /* x² */
FX_API fx_array *fx_sqrt(fx_array *x);       /* √x */
FX_API fx_array *fx_rsqrt(fx_array *x);      /* 1/√x */
FX_API fx_array *fx_reciprocal(fx_array *x); /* 1/x */
FX_API fx_array *fx_exp(fx_array *x);        /* e^x */
FX_API fx_array *fx_expm1(fx_array *x);      /* e^x − 1, accurate near 0 */
FX_API fx_array *fx_log(fx_array *x);        /* natural logarithm */
FX_API fx_array *fx_log1p(fx_array *x);      /* log(1 + x), accurate near 0 */
FX_API fx_array *fx_sin(fx_array *x);
FX_API fx_array *fx_cos(fx_array *x);
FX_API fx_array *fx_tan(fx_array *x);      /* sin x / cos x */
FX_API fx_array *fx_asin(fx_array *x);     /* in [−π/2, π/2]; NaN if |x| > 1 */
FX_API fx_array *fx_acos(fx_array *x);     /* in [0, π]; NaN if |x| > 1 */
FX_API fx_array *fx_atan(fx_array *x);     /* in [−π/2, π/2] */
FX_API fx_array *fx_sinh(fx_array *x);     /* (e^x − e^−x)/2 */
FX_API fx_array *fx_cosh(fx_array *x);     /* (e^x + e^−x)/2 */
FX_API fx_array *fx_asinh(fx_array *x);    /* log(x + √(x² + 1)) */
FX_API fx_array *fx_acosh(fx_array *x);    /* log(x + √(x² − 1)); NaN if x < 1 */
FX_API fx_array *fx_atanh(fx_array *x);    /* ½·log((1 + x)/(1 − x)); NaN if |x| > 1 */
FX_API fx_array *fx_erf(fx_array *x);      /* 2/√π · ∫₀ˣ e^−t² dt */
FX_API fx_array *fx_floor(fx_array *x);    /* ⌊x⌋; rounding functions have gradient 0 */
FX_API fx_array *fx_ceil(fx_array *x);     /* ⌈x⌉ */
FX_API fx_array *fx_round(fx_array *x);    /* nearest integer, halves to even */
FX_API fx_array *fx_trunc(fx_array *x);    /* rounds towards 0 */
FX_API fx_array *fx_isnan(fx_array *x);    /* x is NaN; Bool */
FX_API fx_array *fx_isinf(fx_array *x);    /* x is ±Inf; Bool */
FX_API fx_array *fx_isfinite(fx_array *x); /* neither NaN nor ±Inf; Bool */
FX_API fx_array *fx_not(fx_array *x);      /* logical negation, Bool only */
/* Converts to an element type. Float → integer truncates towards 0 and saturates, NaN becomes 0;
 * integer → narrower integer wraps; any type → Bool is x ≠ 0. Returns x itself if it has the type
 * already. */
FX_API fx_array *fx_cast(fx_array *x, fx_dtype dtype);
/* Returns x as a constant: its gradient is 0. */
FX_API fx_array *fx_stop_gradient(fx_array *x);

/* ---- activations (NNlib's definitions) ------------------------------------------------------- */
/* Each of them gives NaN for NaN. */
FX_API fx_array *fx_identity(fx_array *x);    /* x itself */
FX_API fx_array *fx_sigmoid(fx_array *x);     /* 1/(1+e^−x) */
FX_API fx_array *fx_hardsigmoid(fx_array *x); /* clamp((x+3)/6, 0, 1) */
FX_API fx_array *fx_logsigmoid(fx_array *x);  /* −softplus(−x) */
FX_API fx_array *fx_tanh(fx_array *x);        /* (e^x − e^−x)/(e^x + e^−x) */
FX_API fx_array *fx_hardtanh(fx_array *x);    /* clamp(x, −1, 1) */
FX_API fx_array *fx_relu(fx_array *x);        /* max(0, x) */
FX_API fx_array *fx_relu6(fx_array *x);       /* clamp(x, 0, 6) */
FX_API fx_array *fx_leakyrelu(fx_array *x);   /* max(0.01·x, x) */
FX_API fx_array *fx_leakyrelu_slope(fx_array *x, double slope); /* x > 0 ? x : slope·x */
FX_API fx_array *fx_rrelu(fx_array *x); /* leakyrelu with a random slope in [1/8, 1/3] per element
                                           in training, else 11/48 */
FX_API fx_array *fx_elu(fx_array *x);   /* x > 0 ? x : e^x − 1 */
FX_API fx_array *fx_elu_alpha(fx_array *x, double alpha); /* x > 0 ? x : α(e^x − 1) */
FX_API fx_array *fx_celu(fx_array *x); /* max(0,x) + min(0, α(e^(x/α) − 1)), α = 1 */
FX_API fx_array *fx_celu_alpha(fx_array *x, double alpha); /* celu with the given α */
FX_API fx_array *fx_selu(fx_array *x); /* λ(x > 0 ? x : α(e^x − 1)), λ ≈ 1.0507, α ≈ 1.6733;
                                          Klambauer et al., 2017 */
FX_API fx_array *fx_gelu(fx_array *x); /* x·σ(√(8/π)·(x + 0.044715·x³)), NNlib's gelu_tanh */
FX_API fx_array *fx_gelu_sigmoid(fx_array *x); /* fx_gelu under NNlib's other name */
FX_API fx_array *fx_gelu_erf(fx_array *x);     /* x/2·(1 + erf(x/√2)) */
FX_API fx_array *fx_swish(fx_array *x);        /* x·σ(x) */
FX_API fx_array *fx_hardswish(fx_array *x);    /* x·hardsigmoid(x) */
FX_API fx_array *fx_lisht(fx_array *x);        /* x·tanh(x) */
FX_API fx_array *fx_softplus(fx_array *x);     /* log(1 + e^x) */
FX_API fx_array *fx_softsign(fx_array *x);     /* x/(1+|x|) */
FX_API fx_array *fx_logcosh(fx_array *x);      /* log((e^x + e^−x)/2) */
FX_API fx_array *fx_mish(fx_array *x);         /* x·tanh(softplus(x)) */
FX_API fx_array *fx_tanhshrink(fx_array *x);   /* x − tanh(x) */
FX_API fx_array *fx_softshrink(fx_array *x);   /* sign(x)·max(|x| − λ, 0), λ = 0.5 */
FX_API fx_array *fx_softshrink_lambda(fx_array *x, double lambda); /* softshrink with the given λ */
FX_API fx_array *fx_trelu(fx_array *x);                            /* x > 1 ? x : 0 */
FX_API fx_array *fx_trelu_theta(fx_array *x, double theta);        /* x > θ ? x : 0 */

/* a·σ(b), where a is the first and b the second half of x along an axis. FX_STATUS_SHAPE if the
 * size of the axis is odd. Dauphin et al., 2017; NNlib.glu. */
FX_API fx_array *fx_glu(fx_array *x, int axis);

/* ---- reductions ------------------------------------------------------------------------------ */
/* How a reduction, or fx_scatter, combines several numbers into one. */
typedef enum fx_reduce {
    FX_REDUCE_SUM = 0, /* Σx. For backends: a step may have a Float32 input and a Float64 output */
    FX_REDUCE_MAX,
    FX_REDUCE_MIN,
    FX_REDUCE_PROD,
    FX_REDUCE_SQDEV,  /* Σ(x − mean(x))², floating-point only */
    FX_REDUCE_ARGMAX, /* along one axis: index of the first NaN, else of the first largest; Int64 */
    FX_REDUCE_ARGMIN, /* the same for the smallest */
    FX_REDUCE_MEAN,   /* fx_scatter and collective operations only */
    FX_REDUCE_COUNT   /* number of reductions */
} fx_reduce;
/* Options of reductions, of variances, and of softmax. */
/* clang-format off */
#define FXI_REDUCE_ARGS(F)                                                                         \
    F(fx_array *, x, FXI_NULL)     /* the array */                                                 \
    F(fx_axes, dims, FXI_AXES_ALL) /* axes to reduce: FX_AXES(…); FX_ALL gives 0-d */              \
    F(bool, drop, false)           /* true: remove the reduced axes */
#define FXI_VAR_ARGS(F)                                                                            \
    F(fx_array *, x, FXI_NULL)     /* the array */                                                 \
    F(fx_axes, dims, FXI_AXES_ALL) /* axes to reduce: FX_AXES(…); FX_ALL gives 0-d */              \
    F(bool, drop, false)           /* true: remove the reduced axes */                             \
    F(bool, corrected, true)       /* true: divide by n − 1; false: by n */
#define FXI_SOFTMAX_ARGS(F)                                                                        \
    F(fx_array *, x, FXI_NULL)       /* the array */                                               \
    F(fx_axes, dims, FXI_AXES_OF(0)) /* axes that are normalised together */
/* clang-format on */
FXI_OPTION_STRUCT(fx_reduce_args, FXI_REDUCE_ARGS);
FXI_OPTION_STRUCT(fx_var_args, FXI_VAR_ARGS);
FXI_OPTION_STRUCT(fx_softmax_args, FXI_SOFTMAX_ARGS);
/* fx_sum(x) reduces all axes and gives a 0-d array. fx_sum(x, .dims = FX_AXES(0, 2)) reduces these
 * axes to size 1, as Julia's dims; .drop = true removes them. n is the number of elements per
 * result. For integers and Bool, sums and products are Int64, and fx_norm, fx_logsumexp and softmax
 * are Float32; means and variances are Float64 for integers and Float32 for Bool. The mean of an
 * empty array is NaN; its maximum, minimum, argmax and argmin are FX_STATUS_SHAPE. */
FX_API fx_array *fxi_sum(const fx_reduce_args *a);  /* Σx */
FX_API fx_array *fxi_prod(const fx_reduce_args *a); /* Πx */
FX_API fx_array *fxi_mean(const fx_reduce_args *a); /* Σx / n */
/* The rounding error of fx_mean: the mean before it is rounded to the element type, minus
 * fx_mean(x). x − mean(x) − mean_rest(x) has mean 0 even if the elements differ only in their last
 * bits. 0 if all elements are equal; a constant for gradients. */
FX_API fx_array *fxi_mean_rest(const fx_reduce_args *a);
FX_API fx_array *fxi_var(const fx_var_args *a);         /* Σ(x − mean(x))² / (n − 1) */
FX_API fx_array *fxi_std(const fx_var_args *a);         /* √var(x) */
FX_API fx_array *fxi_maximum(const fx_reduce_args *a);  /* largest element, NaN if any is NaN */
FX_API fx_array *fxi_minimum(const fx_reduce_args *a);  /* smallest element, NaN if any is NaN */
FX_API fx_array *fxi_any_true(const fx_reduce_args *a); /* some element is true; Bool only */
FX_API fx_array *fxi_all_true(const fx_reduce_args *a); /* all elements are true; Bool only */
FX_API fx_array *fxi_norm(const fx_reduce_args *a);     /* √Σx² */
/* softmax: y = e^(x−m) / Σe^(x−m), m = max(x); logsoftmax: y = x − m − log Σe^(x−m). Along axis 0
 * by default; y has the shape of x. Stable for large x. NaN for x = +Inf, where NNlib's softmax is
 * 1/n for n such elements; −Inf gives 0 beside finite numbers. */
FX_API fx_array *fxi_softmax(const fx_softmax_args *a);
FX_API fx_array *fxi_logsoftmax(const fx_softmax_args *a);
FX_API fx_array *fxi_logsumexp(const fx_reduce_args *a); /* m + log Σe^(x−m); all axes by default */
/* Index (Int64, from 0) of the first largest or smallest element along one axis (.dims), or in the
 * whole array in column-major order (default: FX_ALL). A NaN counts as the extreme, as in Julia.
 * Several axes are FX_STATUS_ARGUMENT. */
FX_API fx_array *fxi_argmax(const fx_reduce_args *a);
FX_API fx_array *fxi_argmin(const fx_reduce_args *a);

#define FXI_REDUCE(f, ...)                                                                         \
    FXI_CALL((f)(FXI_OPTIONS(fx_reduce_args, FXI_REDUCE_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define FXI_VAR(f, ...)                                                                            \
    FXI_CALL((f)(FXI_OPTIONS(fx_var_args, FXI_VAR_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define FXI_SOFTMAX_OF(f, ...)                                                                     \
    FXI_CALL((f)(FXI_OPTIONS(fx_softmax_args, FXI_SOFTMAX_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define fx_sum(...)        FXI_REDUCE(fxi_sum, __VA_ARGS__)
#define fx_prod(...)       FXI_REDUCE(fxi_prod, __VA_ARGS__)
#define fx_mean(...)       FXI_REDUCE(fxi_mean, __VA_ARGS__)
#define fx_mean_rest(...)  FXI_REDUCE(fxi_mean_rest, __VA_ARGS__)
#define fx_var(...)        FXI_VAR(fxi_var, __VA_ARGS__)
#define fx_std(...)        FXI_VAR(fxi_std, __VA_ARGS__)
#define fx_maximum(...)    FXI_REDUCE(fxi_maximum, __VA_ARGS__)
#define fx_minimum(...)    FXI_REDUCE(fxi_minimum, __VA_ARGS__)
#define fx_any(...)        FXI_REDUCE(fxi_any_true, __VA_ARGS__)
#define fx_all(...)        FXI_REDUCE(fxi_all_true, __VA_ARGS__)
#define fx_norm(...)       FXI_REDUCE(fxi_norm, __VA_ARGS__)
#define fx_softmax(...)    FXI_SOFTMAX_OF(fxi_softmax, __VA_ARGS__)
#define fx_logsoftmax(...) FXI_SOFTMAX_OF(fxi_logsoftmax, __VA_ARGS__)
#define fx_logsumexp(...)  FXI_REDUCE(fxi_logsumexp, __VA_ARGS__)
#define fx_argmax(...)     FXI_REDUCE(fxi_argmax, __VA_ARGS__)
#define fx_argmin(...)     FXI_REDUCE(fxi_argmin, __VA_ARGS__)

/* Running sum along an axis: y[i] = Σ_{j ≤ i} x[j]. Same shape as x. Integers and Bool give Int64.
 */
FX_API fx_array *fx_cumsum(fx_array *x, int axis);
/* Running sum from the end: y[i] = Σ_{j ≥ i} x[j]. */
FX_API fx_array *fx_cumsum_reverse(fx_array *x, int axis);

/* ---- matrix products ------------------------------------------------------------------------- */
/* C = A·B with A: m×k, B: k×n, C: m×n. A vector on the right is a column (the result has m
 * elements). A vector on the left is a column m×1 too; write a row vector as 1×k. Bool matrices
 * give Int64. FX_STATUS_SHAPE: "matmul: inner sizes differ: A is 2×5, B is 4×3". */
FX_API fx_array *fx_matmul(fx_array *a, fx_array *b);
/* Matrix product for every batch index: A: m×k×batch…, B: k×n×batch…, C: m×n×batch…; batch sizes
 * broadcast. NNlib.batched_mul. */
FX_API fx_array *fx_batched_mul(fx_array *a, fx_array *b);

/* Precision of Float32 matrix products and convolutions, including those of gradients. Sums are at
 * least Float32 in all three modes. The modes are those of PyTorch's
 * torch.set_float32_matmul_precision. The CPU computes 3×3 convolutions with Winograd's method in
 * Float32: an output's rounding errors are relative to the largest of its 3×3 inputs times the
 * largest element of the kernel, also if that input is multiplied by 0. */
typedef enum fx_precision {
    FX_PRECISION_HIGHEST, /* factors are Float32 (24 significant bits) */
    FX_PRECISION_HIGH,  /* factors may be rounded to TensorFloat-32 (11 significant bits), or split
                           into a sum of two BFloat16 numbers (16 bits) */
    FX_PRECISION_MEDIUM /* factors may be rounded to BFloat16 (8 bits) */
} fx_precision;
/* Allows backends to use less precision for everything that the process evaluates from now on.
 * Default: the environment variable FX_MATMUL_PRECISION (highest, high or medium), otherwise
 * FX_PRECISION_HIGHEST. CUDA with cuBLASLt or cuDNN rounds to TensorFloat-32 for both lower values;
 * everything else always computes with the highest. May be called at any time from any thread.
 * Errors: FX_STATUS_ARGUMENT if `precision` is not one of the three values. */
FX_API fx_status fx_set_matmul_precision(fx_precision precision);
FX_API fx_precision fx_matmul_precision(void); /* the precision in use */

/* ---- shape ----------------------------------------------------------------------------------- */
/* Results are views where strides allow it; otherwise elements are copied when the value is
 * computed. Errors: FX_STATUS_SHAPE if sizes do not fit, FX_STATUS_ARGUMENT if an axis does not
 * exist. */
/* fx_reshape(x, sizes…): the same elements in column-major order with other sizes. One size may be
 * −1 and is then inferred. */
FX_API fx_array *fxi_reshape(fx_array *x, int ndims, const int64_t *sizes);
/* fx_permute(x, perm…): axis i of the result is axis perm[i] of x. Julia's permutedims. */
FX_API fx_array *fxi_permute(fx_array *x, int ndims, const int64_t *perm);
/* fx_expand(x, sizes…): repeats axes of size 1 to the given sizes; every other size must be that of
 * x. Further sizes add axes at the end. */
FX_API fx_array *fxi_expand(fx_array *x, int ndims, const int64_t *sizes);

FX_API fx_array *fx_transpose(fx_array *x); /* swaps axes 0 and 1; a vector of n becomes 1×n */
FX_API fx_array *fx_flatten(fx_array *x);   /* (Π other sizes)×(last size): Flux.flatten */
FX_API fx_array *fx_vec(fx_array *x);       /* a vector of all elements */
/* Inserts an axis of size 1, which becomes axis `axis` of the result: 0 … ndims. */
FX_API fx_array *fx_unsqueeze(fx_array *x, int axis);
/* Removes axes of size 1; another size is FX_STATUS_SHAPE. */
FX_API fx_array *fx_squeeze(fx_array *x, fx_axes axes);
/* Elements start ≤ i < stop along one axis. FX_STATUS_ARGUMENT if they exceed the array. */
FX_API fx_array *fx_slice(fx_array *x, int axis, int64_t start, int64_t stop);
/* n elements start, start + step, … along one axis; step may be negative. FX_STATUS_ARGUMENT if one
 * is outside the array. */
FX_API fx_array *fx_slice_step(fx_array *x, int axis, int64_t start, int64_t step, int64_t n);
FX_API fx_array *fx_flip(fx_array *x, fx_axes axes); /* reversed along these axes */
/* Adds `before` and `after` elements of `value`, converted to x's element type, at the ends of one
 * axis. A negative count removes elements instead; FX_STATUS_ARGUMENT if the axis has fewer. */
FX_API fx_array *fx_pad(fx_array *x, int axis, int64_t before, int64_t after, double value);
/* Add `before` and `after` elements of x itself at the ends of one axis. For x = a b c and two
 * elements at each end:
 *   reflect     c b a b c b a   (at most size − 1 elements)
 *   symmetric   b a a b c c b   (at most size)
 *   repeat      a a a b c c c
 *   circular    b c a b c a b   (at most size)
 * FX_STATUS_ARGUMENT for more elements, and for negative counts. NNlib.pad_reflect, …. */
FX_API fx_array *fx_pad_reflect(fx_array *x, int axis, int64_t before, int64_t after);
FX_API fx_array *fx_pad_symmetric(fx_array *x, int axis, int64_t before, int64_t after);
FX_API fx_array *fx_pad_repeat(fx_array *x, int axis, int64_t before, int64_t after);
FX_API fx_array *fx_pad_circular(fx_array *x, int axis, int64_t before, int64_t after);
/* fx_repeat(x, counts…): tiles the whole array counts[i] times along axis i. Counts beyond the axes
 * of x add axes; axes without a count are not repeated. A negative count is FX_STATUS_ARGUMENT.
 * Julia's repeat(x, counts...). */
FX_API fx_array *fxi_repeat(fx_array *x, int ndims, const int64_t *counts);
/* Repeats each element `count` times along an axis. FX_STATUS_ARGUMENT for a negative count.
 * Julia's repeat(x; inner). */
FX_API fx_array *fx_repeat_inner(fx_array *x, int axis, int64_t count);
/* fx_concat(axis, a, b, …): joins arrays along an existing axis; all other sizes must be equal. */
FX_API fx_array *fxi_concat(int axis, int n, fx_array *const *x);
/* fx_stack(axis, a, b, …): joins arrays of one shape along a new axis, which becomes axis `axis` of
 * the result: 0 … ndims. */
FX_API fx_array *fxi_stack(int axis, int n, fx_array *const *x);
/* Lower and upper triangle of every matrix in x: keeps column − row ≤ k (tril) or ≥ k (triu), the
 * rest is 0. FX_STATUS_SHAPE for fewer than two axes. */
FX_API fx_array *fx_tril(fx_array *x, int64_t k);
FX_API fx_array *fx_triu(fx_array *x, int64_t k);

#define fx_reshape(x, ...) fxi_reshape((x), FXI_LIST(__VA_ARGS__))
#define fx_permute(x, ...) fxi_permute((x), FXI_LIST(__VA_ARGS__))
#define fx_expand(x, ...)  fxi_expand((x), FXI_LIST(__VA_ARGS__))
#define fx_repeat(x, ...)  fxi_repeat((x), FXI_LIST(__VA_ARGS__))
#define FXI_ARRAYS(...)                                                                            \
    (FXI_HERE, (int)(sizeof((fx_array *[]){__VA_ARGS__}) / sizeof(fx_array *))),                   \
        (fx_array *const[])                                                                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define fx_concat(axis, ...) fxi_concat((axis), FXI_ARRAYS(__VA_ARGS__))
#define fx_stack(axis, ...)  fxi_stack((axis), FXI_ARRAYS(__VA_ARGS__))

/* ---- indexing -------------------------------------------------------------------------------- */
/* Indices are integer arrays and count from 0. An index out of range is found when the value is
 * computed: FX_STATUS_ARGUMENT, naming the index and the size. On a GPU the next call that waits
 * for the device (a read, fx_synchronize) fails, and fx_update has then changed the parameters. */
/* Slices of x along `axis` at the indices idx. Shape: (sizes of x before axis)×(sizes of
 * idx)×(sizes of x after axis). NNlib.gather is the case of the last axis. Gradient: fx_scatter
 * with FX_REDUCE_SUM. */
FX_API fx_array *fx_gather(fx_array *x, fx_array *idx, int axis);
/* y[i,j,…] = x[…, idx[i,j,…], …] along `axis`; idx has as many axes as x, and is not longer than x
 * along the other axes; y has the shape of idx. NumPy's take_along_axis, ONNX's GatherElements. */
FX_API fx_array *fx_gather_elements(fx_array *x, fx_array *idx, int axis);
/* Combines slices of src into n slices along `axis`; src has the shape of the result of fx_gather:
 * y[…, k, …] is the reduction of all src[…, i, …] with idx[i] = k. `reduction` is FX_REDUCE_SUM,
 * MAX, MIN, PROD or MEAN; other reductions and a negative n are FX_STATUS_ARGUMENT. A slice that no
 * index selects holds 0 (sum, mean), 1 (prod), −Inf (max) or +Inf (min); for integers the smallest
 * (max) or largest (min) number of the type. Sums and products of Bool are Int64, means of integers
 * Float64 and of Bool Float32. The CPU combines slices in the order of idx. A GPU combines many
 * slices in no fixed order, so the final bits of floating-point sums and products can differ from
 * run to run. NNlib.scatter. */
FX_API fx_array *fx_scatter(fx_reduce reduction, fx_array *src, fx_array *idx, int axis, int64_t n);
/* A copy of x in which x[…, idx[i,j,…], …] along `axis` is src[i,j,…]. src has the shape of idx, to
 * which the rules of fx_gather_elements apply; indices must be distinct. ONNX's ScatterElements. */
FX_API fx_array *fx_scatter_elements(fx_array *x, fx_array *idx, fx_array *src, int axis);

/* ---- convolution and pooling ----------------------------------------------------------------- */
/* Options of convolutions. x: spatial…×in×batch with 1 to 3 spatial axes; w:
 * kernel…×in/groups×out. */
/* clang-format off */
#define FXI_CONVOLVE_ARGS(F)                                                                       \
    F(fx_array *, x, FXI_NULL)         /* the array */                                             \
    F(fx_array *, w, FXI_NULL)         /* the kernel */                                            \
    F(fx_dims, stride, FXI_DIMS_ONE)   /* per spatial axis, or one number for all */               \
    F(fx_dims, pad, FXI_DIMS_ZERO)     /* zeros: n, one per axis, or (before, after) per axis */   \
    F(fx_dims, dilation, FXI_DIMS_ONE) /* distance of kernel elements, given like stride */        \
    F(int64_t, groups, 1)              /* must divide in and out */                                \
    F(bool, flipped, false)            /* true: cross-correlation (PyTorch), no flip of w */       \
    F(fx_dims, outpad, FXI_DIMS_ZERO)  /* transposed only: added to the output size */
/* clang-format on */
FXI_OPTION_STRUCT(fx_convolve_args, FXI_CONVOLVE_ARGS);
/* fx_convolve(x, w, …): convolution with a flipped kernel, as NNlib.conv:
 *     y[i, o, b] = Σ x[i·stride + j·dilation − before, c, b]·w[k−1−j, c, o] over j and c
 * where i, j and k have one number per spatial axis, and x is 0 outside of its elements. With
 * .flipped, w[j, c, o]. With groups, the channels c and o are divided into equal parts, and part g
 * of y uses only part g of x. y: spatial…×out×batch. Output size per spatial axis: ⌊(n + pads −
 * (k−1)·dilation − 1)/stride⌋ + 1, n the size of x, k of w. Integers become Float32.
 * FX_STATUS_SHAPE if channels or sizes do not fit. */
FX_API fx_array *fxi_convolve(const fx_convolve_args *a);
/* fx_convolve_transposed(x, w, …): the gradient of fx_convolve with respect to its input, as an
 * operation. w: kernel…×out/groups×in; y: spatial…×out×batch. Output size: (n−1)·stride + 1 +
 * (k−1)·dilation − pads + outpad. NNlib.∇conv_data. */
FX_API fx_array *fxi_convolve_transposed(const fx_convolve_args *a);

/* Options of pooling. x and the result: spatial…×channels×batch, with 1 to 3 spatial axes. Output
 * size per spatial axis: ⌊(n + pads − (k−1)·dilation − 1)/stride⌋ + 1, k the window's size. */
/* clang-format off */
#define FXI_POOL_ARGS(F)                                                                           \
    F(fx_array *, x, FXI_NULL)         /* the array */                                             \
    F(fx_dims, window, FXI_DIMS_NONE)  /* sizes k: per spatial axis, or one number for all */      \
    F(fx_dims, pad, FXI_DIMS_ZERO)     /* as in convolutions */                                    \
    F(fx_dims, stride, FXI_DIMS_NONE)  /* default: the window */                                   \
    F(fx_dims, dilation, FXI_DIMS_ONE) /* distance of a window's elements, given like stride */    \
    F(bool, exclude_pad, false)        /* fx_pool_mean: true: do not count padding */              \
    F(double, p, 2)                    /* fx_pool_lpnorm: p > 0 */
/* clang-format on */
FXI_OPTION_STRUCT(fx_pool_args, FXI_POOL_ARGS);
/* The largest element, without padding. A window that contains only padding gives −Inf; the
 * smallest number of the type for integers. */
FX_API fx_array *fxi_pool_max(const fx_pool_args *a);
/* Σx / window size, as NNlib; integers become Float32. With .exclude_pad, Σx / the number of
 * elements of x in the window, NaN if it contains only padding. */
FX_API fx_array *fxi_pool_mean(const fx_pool_args *a);
/* (Σ|x|^p)^(1/p); integers become Float32. NNlib.lpnormpool, which computes x^p instead of |x|^p:
 * the results are equal for x ≥ 0 and for even p. The gradient of a window of zeros is 0.
 * FX_STATUS_ARGUMENT unless 0 < p < ∞. */
FX_API fx_array *fxi_pool_lpnorm(const fx_pool_args *a);

#define FXI_CONV(f, ...)                                                                           \
    FXI_CALL((f)(FXI_OPTIONS(fx_convolve_args, FXI_CONVOLVE_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define FXI_POOL(f, ...)                                                                           \
    FXI_CALL((f)(FXI_OPTIONS(fx_pool_args, FXI_POOL_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
/* Calls with options: fx_convolve(x, w, .pad = FX_DIMS(1)), fx_pool_max(x, FX_DIMS(2, 2)). */
#define fx_convolve(...)            FXI_CONV(fxi_convolve, __VA_ARGS__)
#define fx_convolve_transposed(...) FXI_CONV(fxi_convolve_transposed, __VA_ARGS__)
#define fx_pool_max(...)            FXI_POOL(fxi_pool_max, __VA_ARGS__)
#define fx_pool_mean(...)           FXI_POOL(fxi_pool_mean, __VA_ARGS__)
#define fx_pool_lpnorm(...)         FXI_POOL(fxi_pool_lpnorm, __VA_ARGS__)

/* ---- custom operations ----------------------------------------------------------------------- */
/* An operand that `forward` receives: dense and column-major in host memory. */
typedef struct fx_custom_operand {
    fx_dtype dtype;       /* element type */
    int ndims;            /* number of axes */
    const int64_t *sizes; /* ndims sizes */
    void *data;           /* the elements; read-only for inputs */
} fx_custom_operand;

/* A custom operation. `forward` computes `out` from n inputs on the host. On failure it returns a
 * status, such as FX_STATUS_DTYPE for unsupported element types; fx_fail adds a message. It must
 * call no other function of cflux: evaluating an array inside `forward` is FX_STATUS_STATE.
 * `gradient` builds, with cflux operations, the gradient of each input from the upstream gradient
 * gy and stores it in gx[k], which must have the sizes of in[k]: otherwise the gradient fails with
 * FX_STATUS_SHAPE. Exception: for a 0-d input gx[k] may have any size, and its elements are added.
 * Inputs whose gx[k] stays NULL get no gradient. If `gradient` itself is NULL, all gradients
 * through the operation are 0. The struct must outlive all arrays made with it.
 * docs/guide/writing-a-layer.md has an example. */
typedef struct fx_custom_op {
    size_t fxi_size;  /* sizeof(fx_custom_op) */
    const char *name; /* for errors; NULL: "custom" */
    fx_status (*forward)(const struct fx_custom_op *op, int n, const fx_custom_operand *in,
                         const fx_custom_operand *out);
    void (*gradient)(const struct fx_custom_op *op, int n, fx_array *const *in, fx_array *out,
                     fx_array *gy, fx_array **gx);
    void *user; /* for the program; cflux does not use it */
} fx_custom_op;
/* Returns the result of `op` on n arrays, of the given element type and sizes. `forward` runs on
 * the host when the value is needed. FX_STATUS_ARGUMENT if op, op->forward or the list `in` is
 * NULL, op->fxi_size is not set, out_dtype is not an element type, a size is negative, or there are
 * more than FX_MAX_DIMS sizes. */
FX_API fx_array *fx_custom(const fx_custom_op *op, int n, fx_array *const *in, fx_dtype out_dtype,
                           fx_dims out_sizes);

FXI_END_C
#endif
