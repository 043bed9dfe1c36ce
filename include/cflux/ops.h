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

FXI_END_C
#ifdef __cplusplus
template <class T, bool Float = std::is_floating_point<T>::value> struct fxi_argof {
    static fxi_arg of(T x)
    {
        return std::is_unsigned<T>::value ? fxi_arg_u64(static_cast<uint64_t>(x))
                                          : fxi_arg_int(static_cast<int64_t>(x));
    }
};
template <class T> struct fxi_argof<T, true> {
    static fxi_arg of(T x) { return fxi_arg_real(static_cast<double>(x)); }
};
template <class T> struct fxi_argof<T *, false> {
    static fxi_arg of(T *x) { return fxi_arg_array(x); }
};
template <class T> inline fxi_arg fxi_any(T x)
{
    return fxi_argof<T>::of(x);
}
#define FXI_ARG(x) fxi_any(x)
#else
/* The argument is bound once: _Generic(x)(x) would double the text at every level of nesting. */
#define FXI_ARG_(x, v)                                                                               \
    __extension__({                                                                                  \
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
#endif
FXI_BEGIN_C

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

FXI_END_C
#ifdef __cplusplus
#define FXI_CXX2(name)                                                                             \
    template <class A, class B> inline fx_array *fx_##name(A a, B b)                               \
    {                                                                                              \
        return fxi_##name(FXI_ARG(a), FXI_ARG(b));                                                 \
    }
#define FXI_CXX3(name)                                                                             \
    template <class A, class B, class C> inline fx_array *fx_##name(A a, B b, C c)                 \
    {                                                                                              \
        return fxi_##name(FXI_ARG(a), FXI_ARG(b), FXI_ARG(c));                                     \
    }
FXI_CXX2(add)
FXI_CXX2(sub)
FXI_CXX2(mul)
FXI_CXX2(div)
FXI_CXX2(fld)
FXI_CXX2(mod)
FXI_CXX2(rem)
FXI_CXX2(pow)
FXI_CXX2(max)
FXI_CXX2(min)
FXI_CXX2(atan2)
FXI_CXX2(lt)
FXI_CXX2(le)
FXI_CXX2(gt)
FXI_CXX2(ge)
FXI_CXX2(eq)
FXI_CXX2(ne)
FXI_CXX2(and)
FXI_CXX2(or)
FXI_CXX2(xor)
FXI_CXX2(xlogy)
FXI_CXX3(where)
FXI_CXX3(clamp)
#else
#define fx_add(a, b) fxi_add(FXI_ARG(a), FXI_ARG(b)) /* a + b */
#define fx_sub(a, b) fxi_sub(FXI_ARG(a), FXI_ARG(b)) /* a − b */
#define fx_mul(a, b) fxi_mul(FXI_ARG(a), FXI_ARG(b)) /* a · b, elementwise */
#define fx_div(a, b) fxi_div(FXI_ARG(a), FXI_ARG(b)) /* a / b; Float32 for two integer arrays */
#define fx_fld(a, b)                                                                               \
    fxi_fld(FXI_ARG(a), FXI_ARG(b)) /* ⌊a / b⌋, keeps integers; x ÷ 0 is 0 for integers */
#define fx_mod(a, b) fxi_mod(FXI_ARG(a), FXI_ARG(b)) /* a − b⌊a/b⌋: the sign of b */
#define fx_rem(a, b) fxi_rem(FXI_ARG(a), FXI_ARG(b)) /* C's fmod: the sign of a */
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
#endif
FXI_BEGIN_C

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
/* Axes for .dims: FX_AXES(0, 2) are the first and the third of them, FX_AXIS(a) is one, FX_ALL
 * all. */
#define FX_AXIS(a)                                  (1u << (unsigned)(a))
#define FXI_AXES1(a)                                FX_AXIS(a)
#define FXI_AXES2(a, ...)                           (FX_AXIS(a) | FXI_AXES1(__VA_ARGS__))
#define FXI_AXES3(a, ...)                           (FX_AXIS(a) | FXI_AXES2(__VA_ARGS__))
#define FXI_AXES4(a, ...)                           (FX_AXIS(a) | FXI_AXES3(__VA_ARGS__))
#define FXI_AXES5(a, ...)                           (FX_AXIS(a) | FXI_AXES4(__VA_ARGS__))
#define FXI_AXES6(a, ...)                           (FX_AXIS(a) | FXI_AXES5(__VA_ARGS__))
#define FXI_AXES7(a, ...)                           (FX_AXIS(a) | FXI_AXES6(__VA_ARGS__))
#define FXI_AXES8(a, ...)                           (FX_AXIS(a) | FXI_AXES7(__VA_ARGS__))
#define FXI_PICK9TH(a, b, c, d, e, f, g, h, n, ...) n
#define FX_AXES(...)                                                                               \
    FXI_PICK9TH(__VA_ARGS__, FXI_AXES8, FXI_AXES7, FXI_AXES6, FXI_AXES5, FXI_AXES4, FXI_AXES3,     \
                FXI_AXES2, FXI_AXES1, 0)                                                           \
    (__VA_ARGS__)
#define FX_ALL 0u

/* Options of reductions. */
typedef struct fx_reduce_args {
    size_t fxi_size;
    fx_array *x;
    unsigned dims;    /* FX_AXES(…); 0: all, to a 0-d array */
    bool drop;        /* remove the reduced axes */
    bool uncorrected; /* var, std: divide by n instead of n − 1 */
} fx_reduce_args;
/* fx_sum(x) reduces to a 0-d array; fx_sum(x, .dims = FX_AXES(0, 2)) reduces those axes to size 1,
 * as Julia's dims does; .drop removes them. Integer sums and products are Int64, means of integers
 * Float64 (of Bool Float32). The mean of nothing is NaN, the maximum of nothing an error. */
FX_API fx_array *fxi_sum(const fx_reduce_args *a);      /* Σx */
FX_API fx_array *fxi_prod(const fx_reduce_args *a);     /* Πx */
FX_API fx_array *fxi_mean(const fx_reduce_args *a);     /* Σx/n */
FX_API fx_array *fxi_var(const fx_reduce_args *a);      /* Σ(x−mean)²/(n−1) */
FX_API fx_array *fxi_std(const fx_reduce_args *a);      /* √var */
FX_API fx_array *fxi_maximum(const fx_reduce_args *a);  /* the largest; NaN where there is one */
FX_API fx_array *fxi_minimum(const fx_reduce_args *a);  /* the smallest; NaN where there is one */
FX_API fx_array *fxi_any_true(const fx_reduce_args *a); /* of Bool: is one true? */
FX_API fx_array *fxi_all_true(const fx_reduce_args *a); /* of Bool: are all true? */
FX_API fx_array *fxi_norm(const fx_reduce_args *a);     /* √Σx² */
/* Default dims: axis 0. Softmax e^(x−max)/Σ, log-softmax and log-sum-exp are stable for large x. */
FX_API fx_array *fxi_softmax(const fx_reduce_args *a);
FX_API fx_array *fxi_logsoftmax(const fx_reduce_args *a);
FX_API fx_array *fxi_logsumexp(const fx_reduce_args *a); /* dims 0: over everything, to 0-d */
/* Index (Int64, from 0) of the first largest or smallest element along one axis (.dims one axis),
 * or in the whole array, column-major (dims 0). NaN counts as the extreme, as in Julia. */
FX_API fx_array *fxi_argmax(const fx_reduce_args *a);
FX_API fx_array *fxi_argmin(const fx_reduce_args *a);

FXI_END_C
#ifdef __cplusplus
#define FXI_CXXR(name, sym)                                                                        \
    inline fx_array *name(const fx_reduce_args &a)                                                 \
    {                                                                                              \
        return sym(&a);                                                                            \
    }                                                                                              \
    inline fx_array *name(fx_array *x, unsigned dims = 0, bool drop = false,                       \
                          bool uncorrected = false)                                                \
    {                                                                                              \
        const fx_reduce_args a = {sizeof(fx_reduce_args), x, dims, drop, uncorrected};             \
        return sym(&a);                                                                            \
    }
FXI_CXXR(fx_sum, fxi_sum)
FXI_CXXR(fx_prod, fxi_prod)
FXI_CXXR(fx_mean, fxi_mean)
FXI_CXXR(fx_var, fxi_var)
FXI_CXXR(fx_std, fxi_std)
FXI_CXXR(fx_maximum, fxi_maximum)
FXI_CXXR(fx_minimum, fxi_minimum)
FXI_CXXR(fx_any, fxi_any_true)
FXI_CXXR(fx_all, fxi_all_true)
FXI_CXXR(fx_norm, fxi_norm)
FXI_CXXR(fx_softmax, fxi_softmax)
FXI_CXXR(fx_logsoftmax, fxi_logsoftmax)
FXI_CXXR(fx_logsumexp, fxi_logsumexp)
FXI_CXXR(fx_argmax, fxi_argmax)
FXI_CXXR(fx_argmin, fxi_argmin)
#else
#define FXI_REDUCE(...)                                                                            \
    (&(const fx_reduce_args){.fxi_size = sizeof(fx_reduce_args), .x = __VA_ARGS__})
#define fx_sum(...)        fxi_sum(FXI_REDUCE(__VA_ARGS__))
#define fx_prod(...)       fxi_prod(FXI_REDUCE(__VA_ARGS__))
#define fx_mean(...)       fxi_mean(FXI_REDUCE(__VA_ARGS__))
#define fx_var(...)        fxi_var(FXI_REDUCE(__VA_ARGS__))
#define fx_std(...)        fxi_std(FXI_REDUCE(__VA_ARGS__))
#define fx_maximum(...)    fxi_maximum(FXI_REDUCE(__VA_ARGS__))
#define fx_minimum(...)    fxi_minimum(FXI_REDUCE(__VA_ARGS__))
#define fx_any(...)        fxi_any_true(FXI_REDUCE(__VA_ARGS__))
#define fx_all(...)        fxi_all_true(FXI_REDUCE(__VA_ARGS__))
#define fx_norm(...)       fxi_norm(FXI_REDUCE(__VA_ARGS__))
#define fx_softmax(...)    fxi_softmax(FXI_REDUCE(__VA_ARGS__))
#define fx_logsoftmax(...) fxi_logsoftmax(FXI_REDUCE(__VA_ARGS__))
#define fx_logsumexp(...)  fxi_logsumexp(FXI_REDUCE(__VA_ARGS__))
#define fx_argmax(...)     fxi_argmax(FXI_REDUCE(__VA_ARGS__))
#define fx_argmin(...)     fxi_argmin(FXI_REDUCE(__VA_ARGS__))
#endif
FXI_BEGIN_C

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

/* ---- shape ----------------------------------------------------------------------------------- */
/* Views where possible: no bytes move until somebody needs them dense. */
/* One size may be −1: it is inferred. */
FX_API fx_array *fxi_reshape(fx_array *x, int ndims, const int64_t *dims);
/* y's axis i is x's axis perm[i]. */
FX_API fx_array *fxi_permute(fx_array *x, int ndims, const int64_t *perm);
FX_API fx_array *fxi_expand(fx_array *x, int ndims,
                            const int64_t *dims);        /* broadcast to these sizes */
FX_API fx_array *fx_transpose(fx_array *x);              /* swaps axes 0 and 1 */
FX_API fx_array *fx_flatten(fx_array *x);                /* (:, last axis): Flux.flatten */
FX_API fx_array *fx_vec(fx_array *x);                    /* one axis */
FX_API fx_array *fx_unsqueeze(fx_array *x, int axis);    /* a new axis of size 1 there */
FX_API fx_array *fx_squeeze(fx_array *x, unsigned axes); /* drops these axes of size 1 */
/* start ≤ i < stop along one axis; bounds beyond the array are an error. */
FX_API fx_array *fx_slice(fx_array *x, int axis, int64_t start, int64_t stop);
/* Every step-th element from start, n of them; step may be negative. */
FX_API fx_array *fx_slice_step(fx_array *x, int axis, int64_t start, int64_t step, int64_t n);
FX_API fx_array *fx_flip(fx_array *x, unsigned axes); /* reversed along these axes */
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

FXI_END_C
#ifdef __cplusplus
#define FXI_CXXL(name)                                                                             \
    template <class... D> inline fx_array *fx_##name(fx_array *x, D... d)                          \
    {                                                                                              \
        const int64_t dims[] = {0, static_cast<int64_t>(d)...};                                    \
        return fxi_##name(x, static_cast<int>(sizeof...(d)), dims + 1);                            \
    }
FXI_CXXL(reshape)
FXI_CXXL(permute)
FXI_CXXL(expand)
FXI_CXXL(repeat)
template <class... A> inline fx_array *fx_concat(int axis, A... a)
{
    fx_array *const list[] = {a...};
    return fxi_concat(axis, static_cast<int>(sizeof...(a)), list);
}
template <class... A> inline fx_array *fx_stack(int axis, A... a)
{
    fx_array *const list[] = {a...};
    return fxi_stack(axis, static_cast<int>(sizeof...(a)), list);
}
#else
#define fx_reshape(x, ...) fxi_reshape((x), FXI_LIST(__VA_ARGS__))
#define fx_permute(x, ...) fxi_permute((x), FXI_LIST(__VA_ARGS__))
#define fx_expand(x, ...)  fxi_expand((x), FXI_LIST(__VA_ARGS__))
#define fx_repeat(x, ...)  fxi_repeat((x), FXI_LIST(__VA_ARGS__))
#define FXI_ARRAYS(...)                                                                            \
    (int)(sizeof((fx_array *[]){__VA_ARGS__}) / sizeof(fx_array *)), (fx_array *const[])           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define fx_concat(axis, ...)                                                                       \
    fxi_concat((axis), FXI_ARRAYS(__VA_ARGS__)) /* fx_concat(0, a, b, c)                           \
                                                 */
#define fx_stack(axis, ...) fxi_stack((axis), FXI_ARRAYS(__VA_ARGS__))
#endif
FXI_BEGIN_C

/* ---- indexing -------------------------------------------------------------------------------- */
/* Indices are integer arrays, from 0. Out-of-range indices are found when the value is computed:
 * FX_STATUS_ARGUMENT naming the index and the size. */
/* Slices of x along `axis` at idx: size x[:axis] × size idx × x[axis+1:]. NNlib.gather is axis =
 * last. */
FX_API fx_array *fx_gather(fx_array *x, fx_array *idx, int axis);
/* y[i,j,…] = x[…idx[i,j,…]…] along axis, idx and y of one shape (take_along_axis, GatherElements).
 */
FX_API fx_array *fx_gather_elements(fx_array *x, fx_array *idx, int axis);
/* What fx_scatter does with values that meet in one place. */
typedef enum fx_reduction {
    FX_REDUCE_SUM = 0,
    FX_REDUCE_MAX,
    FX_REDUCE_MIN,
    FX_REDUCE_PROD,
    FX_REDUCE_MEAN
} fx_reduction;
/* The inverse of gather: n slices along `axis`, y[…,idx[k],…] = reduction of src[…,k,…]; slices no
 * index names hold 0 for sum and mean, −Inf, +Inf, 1 for max, min, prod (NNlib.scatter). The sum is
 * taken in index order: deterministic. */
FX_API fx_array *fx_scatter(fx_reduction reduction, fx_array *src, fx_array *idx, int axis,
                            int64_t n);
/* x with x[…idx[i,j,…]…] along axis replaced by src[i,j,…]; idx and src of one shape, indices
 * distinct. */
FX_API fx_array *fx_scatter_elements(fx_array *x, fx_array *idx, fx_array *src, int axis);

/* ---- convolution and pooling ----------------------------------------------------------------- */
/* x: spatial… × channels × batch (1 to 3 spatial axes), w: kernel… × in/groups × out. */
typedef struct fx_conv_args {
    size_t fxi_size;
    fx_array *x, *w;
    fx_dims stride;   /* default 1; one number holds for all axes */
    fx_dims pad;      /* default 0; n, or one per axis, or (before, after) per axis */
    fx_dims dilation; /* default 1 */
    int64_t groups;   /* default 1 */
    bool flipped;     /* cross-correlation (PyTorch's): the kernel is not flipped */
    fx_dims outpad;   /* transposed only: extra output size */
} fx_conv_args;
/* NNlib.conv: a true convolution, size (n + pads − (k−1)·dilation − 1)/stride + 1. */
FX_API fx_array *fxi_convolve(const fx_conv_args *a);
/* The gradient of conv by its data, as a layer of its own: w: kernel… × out/groups × in; size
 * (n−1)·stride + 1 + (k−1)·dilation − pads + outpad. */
FX_API fx_array *fxi_convolve_transposed(const fx_conv_args *a);

/* Options of pooling. x: spatial… × channels × batch; size (n + pads − (k−1)·dilation − 1)/stride
 * + 1. */
typedef struct fx_pool_args {
    size_t fxi_size;
    fx_array *x;
    fx_dims window;   /* per spatial axis */
    fx_dims pad;      /* default 0 */
    fx_dims stride;   /* default: the window */
    fx_dims dilation; /* max only; default 1 */
    bool exclude_pad; /* mean only: divide by the elements inside the array instead of the window */
} fx_pool_args;
FX_API fx_array *fxi_pool_max(const fx_pool_args *a);  /* padding never wins */
FX_API fx_array *fxi_pool_mean(const fx_pool_args *a); /* divides by the whole window (NNlib) */

FXI_END_C
#ifdef __cplusplus
inline fx_array *fx_convolve(const fx_conv_args &a)
{
    return fxi_convolve(&a);
}
inline fx_array *fx_convolve_transposed(const fx_conv_args &a)
{
    return fxi_convolve_transposed(&a);
}
inline fx_array *fx_pool_max(const fx_pool_args &a)
{
    return fxi_pool_max(&a);
}
inline fx_array *fx_pool_mean(const fx_pool_args &a)
{
    return fxi_pool_mean(&a);
}
#else
#define FXI_CONV(...) (&(const fx_conv_args){.fxi_size = sizeof(fx_conv_args), .x = __VA_ARGS__})
#define FXI_POOL(...) (&(const fx_pool_args){.fxi_size = sizeof(fx_pool_args), .x = __VA_ARGS__})
#define fx_convolve(...)                                                                           \
    fxi_convolve(FXI_CONV(__VA_ARGS__)) /* fx_convolve(x, w, .pad = FX_DIMS(1)) */
#define fx_convolve_transposed(...) fxi_convolve_transposed(FXI_CONV(__VA_ARGS__))
#define fx_pool_max(...)            fxi_pool_max(FXI_POOL(__VA_ARGS__)) /* fx_pool_max(x, FX_DIMS(2, 2)) */
#define fx_pool_mean(...)           fxi_pool_mean(FXI_POOL(__VA_ARGS__))
#endif
FXI_BEGIN_C

/* ---- an operation of one's own --------------------------------------------------------------- */
/* An operand as a forward function sees it: dense, column-major, on the host. */
typedef struct fx_custom_operand {
    fx_dtype dtype;
    int ndims;
    const int64_t *dims;
    void *data; /* inputs must not be written */
} fx_custom_operand;

/* forward computes out from n inputs; it may return FX_STATUS_DTYPE for element types it does not
 * take, and must not call cflux. gradient (may be NULL: no gradient) builds, with cflux operations,
 * the gradient of each input from the upstream gradient gy into gx[k]; NULL entries mean none. The
 * struct must outlive the arrays made with it. */
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
                           fx_dims out_dims);

FXI_END_C
#endif
