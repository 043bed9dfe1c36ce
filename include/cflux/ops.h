/* cflux/ops.h: operations on arrays.
 *
 * Every function returns a new array owned by the innermost scope and never NULL. Where an argument
 * may be a number or an array, the C macros and the C++ overloads accept either: fx_sub(1, x).
 * A literal is weak: an integer keeps the array's element type, a real turns integer arrays into
 * Float32; between arrays Julia's promotion holds. Broadcasting is Julia's: sizes are aligned at
 * the first axis, missing trailing axes count as 1. Errors: FX_STATUS_SHAPE ("add: sizes do not
 * broadcast: 3×4 and 5"), FX_STATUS_DTYPE, FX_STATUS_DEVICE (arrays on two devices).
 */
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
    a.u.array = (fx_array *)(uintptr_t)x;
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
    return x <= (uint64_t)INT64_MAX ? fxi_arg_int((int64_t)x) : fxi_arg_real((double)x);
}

/* The argument is bound once: _Generic(x)(x) would double the text at every level of nesting. */
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

#define fx_add(a, b) fxi_add(FXI_ARG(a), FXI_ARG(b)) /* a + b */
#define fx_sub(a, b) fxi_sub(FXI_ARG(a), FXI_ARG(b)) /* a − b */
#define fx_mul(a, b) fxi_mul(FXI_ARG(a), FXI_ARG(b)) /* a · b, elementwise */
#define fx_div(a, b) fxi_div(FXI_ARG(a), FXI_ARG(b)) /* a / b; Float32 for two integer arrays */
#define fx_fld(a, b)                                                                               \
    fxi_fld(FXI_ARG(a), FXI_ARG(b)) /* ⌊a / b⌋, keeps integers; x ÷ 0 is 0 for integers */
#define fx_mod(a, b)                                                                               \
    fxi_mod(FXI_ARG(a), FXI_ARG(b)) /* as Julia's mod: exact but for one rounding of rem + b; the  \
                                       sign of b; a mod 0 is a for integers */
#define fx_rem(a, b)                                                                               \
    fxi_rem(FXI_ARG(a), FXI_ARG(b)) /* C's fmod, exact: the sign of a; a rem 0 is a for integers   \
                                     */
#define fx_pow(a, b)                                                                               \
    fxi_pow(FXI_ARG(a),                                                                            \
            FXI_ARG(b)) /* a ^ b; an integer literal exponent is exact and part of the plan */
#define fx_max(a, b)                                                                               \
    fxi_max(FXI_ARG(a),                                                                            \
            FXI_ARG(b)) /* elementwise; NaN propagates; equal values share the gradient */
#define fx_min(a, b)   fxi_min(FXI_ARG(a), FXI_ARG(b))   /* the same of the smaller one */
#define fx_atan2(y, x) fxi_atan2(FXI_ARG(y), FXI_ARG(x)) /* the angle of (x, y), in (−π, π] */
#define fx_lt(a, b)                                                                                \
    fxi_lt(FXI_ARG(a), FXI_ARG(b)) /* a < b; comparisons give Bool, with NaN all but fx_ne false   \
                                    */
#define fx_le(a, b)  fxi_le(FXI_ARG(a), FXI_ARG(b))  /* a ≤ b */
#define fx_gt(a, b)  fxi_gt(FXI_ARG(a), FXI_ARG(b))  /* a > b */
#define fx_ge(a, b)  fxi_ge(FXI_ARG(a), FXI_ARG(b))  /* a ≥ b */
#define fx_eq(a, b)  fxi_eq(FXI_ARG(a), FXI_ARG(b))  /* a = b */
#define fx_ne(a, b)  fxi_ne(FXI_ARG(a), FXI_ARG(b))  /* a ≠ b */
#define fx_and(a, b) fxi_and(FXI_ARG(a), FXI_ARG(b)) /* logical, of Bool */
#define fx_or(a, b)  fxi_or(FXI_ARG(a), FXI_ARG(b))  /* one of them, or both */
#define fx_xor(a, b) fxi_xor(FXI_ARG(a), FXI_ARG(b)) /* one of them, not both */
#define fx_where(c, a, b)                                                                          \
    fxi_where(FXI_ARG(c), FXI_ARG(a), FXI_ARG(b)) /* c ? a : b, elementwise                        \
                                                   */
#define fx_clamp(x, lo, hi)                                                                        \
    fxi_clamp(FXI_ARG(x), FXI_ARG(lo), FXI_ARG(hi))      /* min(max(x, lo), hi) */
#define fx_xlogy(x, y) fxi_xlogy(FXI_ARG(x), FXI_ARG(y)) /* x·log(y), and 0 where x is 0 */

/* ---- elementwise, one argument --------------------------------------------------------------- */
/* Functions of real numbers turn integers into Float32. */
FX_API fx_array *fx_neg(fx_array *x);        /* −x */
FX_API fx_array *fx_abs(fx_array *x);        /* gradient sign(x), 0 at 0 */
FX_API fx_array *fx_sign(fx_array *x);       /* −1, 0 or 1; gradient 0 */
FX_API fx_array *fx_square(fx_array *x);     /* x² */
FX_API fx_array *fx_sqrt(fx_array *x);       /* √x */
FX_API fx_array *fx_rsqrt(fx_array *x);      /* 1/√x */
FX_API fx_array *fx_reciprocal(fx_array *x); /* 1/x */
FX_API fx_array *fx_exp(fx_array *x);        /* e^x */
FX_API fx_array *fx_expm1(fx_array *x);      /* e^x − 1, exact near 0 */
FX_API fx_array *fx_log(fx_array *x);        /* the natural logarithm */
FX_API fx_array *fx_log1p(fx_array *x);      /* log(1 + x), exact near 0 */
FX_API fx_array *fx_sin(fx_array *x);
FX_API fx_array *fx_cos(fx_array *x);
FX_API fx_array *fx_tan(fx_array *x);
FX_API fx_array *fx_asin(fx_array *x);
FX_API fx_array *fx_acos(fx_array *x);
FX_API fx_array *fx_atan(fx_array *x);
FX_API fx_array *fx_sinh(fx_array *x);
FX_API fx_array *fx_cosh(fx_array *x);
FX_API fx_array *fx_asinh(fx_array *x);
FX_API fx_array *fx_acosh(fx_array *x);
FX_API fx_array *fx_atanh(fx_array *x);
FX_API fx_array *fx_erf(fx_array *x);   /* 2/√π · ∫₀ˣ e^−t² dt */
FX_API fx_array *fx_floor(fx_array *x); /* ⌊x⌋; rounding has gradient 0 */
FX_API fx_array *fx_ceil(fx_array *x);  /* ⌈x⌉ */
FX_API fx_array *fx_round(fx_array *x); /* half to even */
FX_API fx_array *fx_trunc(fx_array *x); /* towards 0 */
FX_API fx_array *fx_isnan(fx_array *x); /* these three give Bool */
FX_API fx_array *fx_isinf(fx_array *x);
FX_API fx_array *fx_isfinite(fx_array *x); /* neither NaN nor ±Inf */
FX_API fx_array *fx_not(fx_array *x);      /* logical, of Bool */
/* Conversion. Float → integer truncates and saturates, NaN → 0; anything → Bool is x ≠ 0; integers
 * wrap. */
FX_API fx_array *fx_cast(fx_array *x, fx_dtype dtype);
/* x, as a constant for every gradient. */
FX_API fx_array *fx_stop_gradient(fx_array *x);

/* ---- activations (NNlib's definitions) ------------------------------------------------------- */
FX_API fx_array *fx_identity(fx_array *x);    /* x itself */
FX_API fx_array *fx_sigmoid(fx_array *x);     /* 1/(1+e^−x) */
FX_API fx_array *fx_hardsigmoid(fx_array *x); /* clamp((x+3)/6, 0, 1) */
FX_API fx_array *fx_logsigmoid(fx_array *x);  /* −softplus(−x) */
FX_API fx_array *fx_tanh(fx_array *x);        /* (e^x − e^−x)/(e^x + e^−x) */
FX_API fx_array *fx_hardtanh(fx_array *x);    /* clamp(x, −1, 1) */
FX_API fx_array *fx_relu(fx_array *x);        /* max(0, x); NaN stays */
FX_API fx_array *fx_relu6(fx_array *x);       /* clamp(x, 0, 6) */
FX_API fx_array *fx_leakyrelu(fx_array *x);   /* max(0.01·x, x) */
FX_API fx_array *fx_leakyrelu_slope(fx_array *x, double slope); /* x > 0 ? x : slope·x */
FX_API fx_array *
fx_rrelu(fx_array *x); /* leakyrelu, slope uniform in [1/8, 1/3] in training, its mean else */
FX_API fx_array *fx_elu(fx_array *x);                     /* x > 0 ? x : e^x − 1 */
FX_API fx_array *fx_elu_alpha(fx_array *x, double alpha); /* x > 0 ? x : α(e^x − 1) */
FX_API fx_array *fx_celu(fx_array *x); /* max(0,x) + min(0, α(e^(x/α) − 1)), α = 1 */
FX_API fx_array *fx_celu_alpha(fx_array *x, double alpha); /* the same with another α */
FX_API fx_array *fx_selu(fx_array *x);                     /* Klambauer et al., 2017 */
FX_API fx_array *fx_gelu(fx_array *x); /* the tanh form: NNlib's gelu = gelu_tanh */
FX_API fx_array *
fx_gelu_sigmoid(fx_array *x); /* NNlib's: gelu again, as x·σ(√(8/π)·(x + 0.044715·x³)) */
FX_API fx_array *fx_gelu_erf(fx_array *x);   /* x/2·(1 + erf(x/√2)) */
FX_API fx_array *fx_swish(fx_array *x);      /* x·σ(x) */
FX_API fx_array *fx_hardswish(fx_array *x);  /* x·hardsigmoid(x) */
FX_API fx_array *fx_lisht(fx_array *x);      /* x·tanh(x) */
FX_API fx_array *fx_softplus(fx_array *x);   /* log(1 + e^x) */
FX_API fx_array *fx_softsign(fx_array *x);   /* x/(1+|x|) */
FX_API fx_array *fx_logcosh(fx_array *x);    /* log((e^x + e^−x)/2) */
FX_API fx_array *fx_mish(fx_array *x);       /* x·tanh(softplus(x)) */
FX_API fx_array *fx_tanhshrink(fx_array *x); /* x − tanh(x) */
FX_API fx_array *fx_softshrink(fx_array *x); /* sign(x)·max(|x| − λ, 0), λ = 0.5 */
FX_API fx_array *fx_softshrink_lambda(fx_array *x, double lambda); /* the same with another λ */
FX_API fx_array *fx_trelu(fx_array *x);                            /* x > 1 ? x : 0 */
FX_API fx_array *fx_trelu_theta(fx_array *x, double theta);        /* x > θ ? x : 0 */

/* ---- reductions ------------------------------------------------------------------------------ */
/* What becomes of the numbers that a reduction, or fx_scatter, puts into one. */
typedef enum fx_reduce {
    FX_REDUCE_SUM = 0, /* in a step, of Float32 also with a Float64 result, unrounded */
    FX_REDUCE_MAX,
    FX_REDUCE_MIN,
    FX_REDUCE_PROD,
    FX_REDUCE_SQDEV,  /* Σ(x − mean x)², of floats */
    FX_REDUCE_ARGMAX, /* of one axis: the index of its first NaN, else of its first largest; Int64
                       */
    FX_REDUCE_ARGMIN,
    FX_REDUCE_MEAN, /* of fx_scatter: the library computes it by steps with the others */
    FX_REDUCE_COUNT /* how many there are */
} fx_reduce;
/* Options of reductions, of variances, and of what keeps the sizes of x. */
/* clang-format off */
#define FXI_REDUCE_ARGS(F)                                                                         \
    F(fx_array *, x, FXI_NULL)                                                                     \
    F(fx_axes, dims, FXI_AXES_ALL) /* FX_AXES(…); all of them reduce to a 0-d array */             \
    F(bool, drop, false)           /* remove the reduced axes */
#define FXI_VAR_ARGS(F)                                                                            \
    F(fx_array *, x, FXI_NULL)                                                                     \
    F(fx_axes, dims, FXI_AXES_ALL) /* FX_AXES(…); all of them reduce to a 0-d array */             \
    F(bool, drop, false)           /* remove the reduced axes */                                   \
    F(bool, corrected, true)       /* divide by n − 1; false: by n */
#define FXI_SOFTMAX_ARGS(F)                                                                        \
    F(fx_array *, x, FXI_NULL)                                                                     \
    F(fx_axes, dims, FXI_AXES_OF(0))
/* clang-format on */
FXI_OPTION_STRUCT(fx_reduce_args, FXI_REDUCE_ARGS);
FXI_OPTION_STRUCT(fx_var_args, FXI_VAR_ARGS);
FXI_OPTION_STRUCT(fx_softmax_args, FXI_SOFTMAX_ARGS);
/* fx_sum(x) reduces to a 0-d array; fx_sum(x, .dims = FX_AXES(0, 2)) reduces those axes to size 1,
 * as Julia's dims does; .drop removes them. Integer sums and products are Int64, means of integers
 * Float64 (of Bool Float32). The mean of nothing is NaN, the maximum of nothing an error. */
FX_API fx_array *fxi_sum(const fx_reduce_args *a);  /* Σx */
FX_API fx_array *fxi_prod(const fx_reduce_args *a); /* Πx */
FX_API fx_array *fxi_mean(const fx_reduce_args *a); /* Σx/n */
/* What rounding the mean to its element type lost, a constant for gradients: x − mean(x) − rest is
 * centred also where the numbers differ in their last bits only. 0 for equal numbers. */
FX_API fx_array *fxi_mean_rest(const fx_reduce_args *a);
FX_API fx_array *fxi_var(const fx_var_args *a);         /* Σ(x−mean)²/(n−1) */
FX_API fx_array *fxi_std(const fx_var_args *a);         /* √var */
FX_API fx_array *fxi_maximum(const fx_reduce_args *a);  /* the largest; NaN where there is one */
FX_API fx_array *fxi_minimum(const fx_reduce_args *a);  /* the smallest; NaN where there is one */
FX_API fx_array *fxi_any_true(const fx_reduce_args *a); /* of Bool: is one true? */
FX_API fx_array *fxi_all_true(const fx_reduce_args *a); /* of Bool: are all true? */
FX_API fx_array *fxi_norm(const fx_reduce_args *a);     /* √Σx² */
/* Softmax along axis 0 by default. Softmax e^(x−max)/Σ, log-softmax and log-sum-exp are stable for
 * large x. */
FX_API fx_array *fxi_softmax(const fx_softmax_args *a);
FX_API fx_array *fxi_logsoftmax(const fx_softmax_args *a);
FX_API fx_array *fxi_logsumexp(const fx_reduce_args *a); /* default dims: FX_ALL, to 0-d */
/* Index (Int64, from 0) of the first largest or smallest element along one axis (.dims one axis),
 * or in the whole array, column-major (dims FX_ALL, the default). NaN counts as the extreme, as in
 * Julia. */
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

/* Running sum along an axis: y[i] = Σ_{j ≤ i} x[j]. */
FX_API fx_array *fx_cumsum(fx_array *x, int axis);
/* From the end: y[i] = Σ_{j ≥ i} x[j]. */
FX_API fx_array *fx_cumsum_reverse(fx_array *x, int axis);

/* ---- matrix products ------------------------------------------------------------------------- */
/* A: m×k, B: k×n → m×n. A vector on the right is a column (result m), on the left a row vector is
 * written 1×k. Inner sizes that differ: "matmul: inner sizes differ: A is 2×5, B is 4×3". */
FX_API fx_array *fx_matmul(fx_array *a, fx_array *b);
/* A: m×k×batch…, B: k×n×batch… → m×n×batch…; batch sizes broadcast. NNlib.batched_mul. */
FX_API fx_array *fx_batched_mul(fx_array *a, fx_array *b);

/* How exact products of Float32 have to be: matrix products and convolutions, those of gradients
 * included. Sums are Float32 or better in all three. The same as PyTorch's
 * torch.set_float32_matmul_precision. */
typedef enum fx_precision {
    FX_PRECISION_HIGHEST, /* factors are Float32 */
    FX_PRECISION_HIGH,    /* factors may be rounded to TensorFloat-32 (11 significant bits), or each
                             be a sum of two BFloat16 numbers (16 bits) */
    FX_PRECISION_MEDIUM   /* factors may be rounded to BFloat16 (8 bits) */
} fx_precision;
/* Allows less precision from now on, for what the whole process evaluates, on backends that are
 * faster with it. The default is the environment variable FX_MATMUL_PRECISION (highest, high or
 * medium), else FX_PRECISION_HIGHEST. No backend of this version computes in less: the CPU, with
 * oneDNN too, and OpenCL ignore it. FX_STATUS_ARGUMENT when it is none of the three. May be called
 * from any thread at any time. */
FX_API fx_status fx_set_matmul_precision(fx_precision precision);
FX_API fx_precision fx_matmul_precision(void); /* what is allowed now */

/* ---- shape ----------------------------------------------------------------------------------- */
/* Views where possible: no bytes move until somebody needs them dense. */
/* One size may be −1: it is inferred. */
FX_API fx_array *fxi_reshape(fx_array *x, int ndims, const int64_t *sizes);
/* y's axis i is x's axis perm[i]. */
FX_API fx_array *fxi_permute(fx_array *x, int ndims, const int64_t *perm);
FX_API fx_array *fxi_expand(fx_array *x, int ndims,
                            const int64_t *sizes);      /* broadcast to these sizes */
FX_API fx_array *fx_transpose(fx_array *x);             /* swaps axes 0 and 1 */
FX_API fx_array *fx_flatten(fx_array *x);               /* (:, last axis): Flux.flatten */
FX_API fx_array *fx_vec(fx_array *x);                   /* one axis */
FX_API fx_array *fx_unsqueeze(fx_array *x, int axis);   /* a new axis of size 1 there */
FX_API fx_array *fx_squeeze(fx_array *x, fx_axes axes); /* drops these axes of size 1 */
/* start ≤ i < stop along one axis; bounds beyond the array are an error. */
FX_API fx_array *fx_slice(fx_array *x, int axis, int64_t start, int64_t stop);
/* Every step-th element from start, n of them; step may be negative. */
FX_API fx_array *fx_slice_step(fx_array *x, int axis, int64_t start, int64_t step, int64_t n);
FX_API fx_array *fx_flip(fx_array *x, fx_axes axes); /* reversed along these axes */
/* before and after new elements of `value` on one axis; negative counts crop. */
FX_API fx_array *fx_pad(fx_array *x, int axis, int64_t before, int64_t after, double value);
FX_API fx_array *fx_pad_reflect(fx_array *x, int axis, int64_t before,
                                int64_t after); /* edge not repeated */
FX_API fx_array *fx_pad_symmetric(fx_array *x, int axis, int64_t before,
                                  int64_t after); /* edge repeated */
FX_API fx_array *fx_pad_repeat(fx_array *x, int axis, int64_t before,
                               int64_t after); /* edge value */
FX_API fx_array *fx_pad_circular(fx_array *x, int axis, int64_t before,
                                 int64_t after); /* from the other end */
/* Each size n times, as Julia's repeat(x, counts...): the whole array is tiled. */
FX_API fx_array *fxi_repeat(fx_array *x, int ndims, const int64_t *counts);
/* Each element `count` times along an axis: repeat(x; inner). */
FX_API fx_array *fx_repeat_inner(fx_array *x, int axis, int64_t count);
/* Joins along an existing axis; all other sizes equal. */
FX_API fx_array *fxi_concat(int axis, int n, fx_array *const *x);
/* Joins along a new axis. */
FX_API fx_array *fxi_stack(int axis, int n, fx_array *const *x);
/* Lower or upper triangle, keeping diagonal k and below or above it; the rest is 0. */
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
#define fx_concat(axis, ...)                                                                       \
    fxi_concat((axis), FXI_ARRAYS(__VA_ARGS__)) /* fx_concat(0, a, b, c)                           \
                                                 */
#define fx_stack(axis, ...) fxi_stack((axis), FXI_ARRAYS(__VA_ARGS__))

/* ---- indexing -------------------------------------------------------------------------------- */
/* Indices are integer arrays, from 0. Out-of-range indices are found when the value is computed:
 * FX_STATUS_ARGUMENT naming the index and the size. */
/* Slices of x along `axis` at idx: size x[:axis] × size idx × x[axis+1:]. NNlib.gather is axis =
 * last. */
FX_API fx_array *fx_gather(fx_array *x, fx_array *idx, int axis);
/* y[i,j,…] = x[…idx[i,j,…]…] along axis, idx and y of one shape (take_along_axis, GatherElements).
 */
FX_API fx_array *fx_gather_elements(fx_array *x, fx_array *idx, int axis);
/* The inverse of gather, with FX_REDUCE_SUM, MAX, MIN, PROD or MEAN: n slices along `axis`,
 * y[…,idx[k],…] = reduction of src[…,k,…]; slices no index names hold 0 for sum and mean, −Inf,
 * +Inf, 1 for max, min, prod (NNlib.scatter). Sums and products of Bool are Int64, as those of
 * fx_sum. The sum is taken in index order: deterministic.
 */
FX_API fx_array *fx_scatter(fx_reduce reduction, fx_array *src, fx_array *idx, int axis, int64_t n);
/* x with x[…idx[i,j,…]…] along axis replaced by src[i,j,…]; idx and src of one shape, indices
 * distinct. */
FX_API fx_array *fx_scatter_elements(fx_array *x, fx_array *idx, fx_array *src, int axis);

/* ---- convolution and pooling ----------------------------------------------------------------- */
/* x: spatial… × channels × batch (1 to 3 spatial axes), w: kernel… × in/groups × out. */
/* clang-format off */
#define FXI_CONVOLVE_ARGS(F)                                                                           \
    F(fx_array *, x, FXI_NULL)                                                                     \
    F(fx_array *, w, FXI_NULL)                                                                     \
    F(fx_dims, stride, FXI_DIMS_ONE)   /* one number holds for all axes */                         \
    F(fx_dims, pad, FXI_DIMS_ZERO)     /* n, or one per axis, or (before, after) per axis */       \
    F(fx_dims, dilation, FXI_DIMS_ONE) /* one number holds for all axes */                         \
    F(int64_t, groups, 1)                                                                          \
    F(bool, flipped, false)            /* true: cross-correlation (PyTorch's), w is not flipped */ \
    F(fx_dims, outpad, FXI_DIMS_ZERO)  /* transposed only: extra output size */
/* clang-format on */
FXI_OPTION_STRUCT(fx_convolve_args, FXI_CONVOLVE_ARGS);
/* NNlib.conv: a true convolution, size (n + pads − (k−1)·dilation − 1)/stride + 1. */
FX_API fx_array *fxi_convolve(const fx_convolve_args *a);
/* The gradient of conv by its data, as a layer of its own: w: kernel… × out/groups × in; size
 * (n−1)·stride + 1 + (k−1)·dilation − pads + outpad. */
FX_API fx_array *fxi_convolve_transposed(const fx_convolve_args *a);

/* Options of pooling. x: spatial… × channels × batch; size (n + pads − (k−1)·dilation − 1)/stride
 * + 1. */
/* clang-format off */
#define FXI_POOL_ARGS(F)                                                                           \
    F(fx_array *, x, FXI_NULL)                                                                     \
    F(fx_dims, window, FXI_DIMS_NONE)  /* per spatial axis */                                      \
    F(fx_dims, pad, FXI_DIMS_ZERO)                                                                 \
    F(fx_dims, stride, FXI_DIMS_NONE)  /* an empty list: the window */                             \
    F(fx_dims, dilation, FXI_DIMS_ONE) /* max only */                                              \
    F(bool, exclude_pad, false)        /* mean only: divide by the elements inside the array */
/* clang-format on */
FXI_OPTION_STRUCT(fx_pool_args, FXI_POOL_ARGS);
FX_API fx_array *fxi_pool_max(const fx_pool_args *a);  /* padding never wins */
FX_API fx_array *fxi_pool_mean(const fx_pool_args *a); /* divides by the whole window (NNlib) */

#define FXI_CONV(f, ...)                                                                           \
    FXI_CALL((f)(FXI_OPTIONS(fx_convolve_args, FXI_CONVOLVE_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define FXI_POOL(f, ...)                                                                           \
    FXI_CALL((f)(FXI_OPTIONS(fx_pool_args, FXI_POOL_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
/* fx_convolve(x, w, .pad = FX_DIMS(1)), fx_pool_max(x, FX_DIMS(2, 2)) */
#define fx_convolve(...)            FXI_CONV(fxi_convolve, __VA_ARGS__)
#define fx_convolve_transposed(...) FXI_CONV(fxi_convolve_transposed, __VA_ARGS__)
#define fx_pool_max(...)            FXI_POOL(fxi_pool_max, __VA_ARGS__)
#define fx_pool_mean(...)           FXI_POOL(fxi_pool_mean, __VA_ARGS__)

/* ---- an operation of one's own --------------------------------------------------------------- */
/* An operand as a forward function sees it: dense, column-major, on the host. */
typedef struct fx_custom_operand {
    fx_dtype dtype;
    int ndims;
    const int64_t *sizes;
    void *data; /* inputs must not be written */
} fx_custom_operand;

/* forward computes out from n inputs; it may return FX_STATUS_DTYPE for element types it does not
 * take. It must not call cflux: evaluating an array there is an error. gradient (may be NULL: no
 * gradient) builds, with cflux operations, the gradient of each input from the upstream gradient gy
 * into gx[k]; NULL entries mean none. The struct must outlive the arrays made with it. */
typedef struct fx_custom_op {
    size_t fxi_size; /* sizeof(fx_custom_op) */
    const char *name;
    fx_status (*forward)(const struct fx_custom_op *op, int n, const fx_custom_operand *in,
                         const fx_custom_operand *out);
    void (*gradient)(const struct fx_custom_op *op, int n, fx_array *const *in, fx_array *out,
                     fx_array *gy, fx_array **gx);
    void *user;
} fx_custom_op;
/* The result of the operation: of the type and sizes given, computed on the host when somebody
 * needs it. */
FX_API fx_array *fx_custom(const fx_custom_op *op, int n, fx_array *const *in, fx_dtype out_dtype,
                           fx_dims out_sizes);

FXI_END_C
#endif
