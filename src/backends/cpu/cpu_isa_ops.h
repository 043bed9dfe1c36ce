/* cpu_isa_ops.h: one loop for every elementwise operation and type, and the tables of these loops;
 * part of cpu_isa.h.
 *
 * The loops are made from the expressions of op.def, in the operands a and b, so that an operation
 * is defined once. Integers compute in their unsigned type W, so overflow wraps instead of being
 * undefined. A function that has a faster form than its expression is written here or in
 * cpu_isa_wide.h or cpu_isa_double.h and listed below; no loop is made from its row then. NULL in
 * the tables means that the type does not support the operation (operations are never built with
 * such a type).
 */

/* ---- functions that have a loop of their own, by type ---------------------------------------- */
#define FXI_OWN_f32_EXP     FXI_OWN(vector_exp)
#define FXI_OWN_f32_EXPM1   FXI_OWN(vector_expm1)
#define FXI_OWN_f32_LOG     FXI_OWN(vector_log)
#define FXI_OWN_f32_LOG1P   FXI_OWN(vector_log1p)
#define FXI_OWN_f32_TANH    FXI_OWN(vector_tanh)
#define FXI_OWN_f32_SIGMOID FXI_OWN(vector_sigmoid)
#define FXI_OWN_f32_ERF     FXI_OWN(vector_erf)
#define FXI_OWN_f32_SIN     FXI_OWN(vector_sin)
#define FXI_OWN_f32_COS     FXI_OWN(vector_cos)
#define FXI_OWN_f32_ATAN2   FXI_OWN(vector_atan2)
#define FXI_OWN_f32_POW     FXI_OWN(vector_pow)
#define FXI_OWN_f32_POWI    FXI_OWN(powers_f32)
#define FXI_OWN_f64_POWI    FXI_OWN(powers_f64)
#define FXI_OWN_f64_EXP     FXI_OWN(double_exp)
#define FXI_OWN_f64_EXPM1   FXI_OWN(double_expm1)
#define FXI_OWN_f64_LOG     FXI_OWN(double_log)
#define FXI_OWN_f64_LOG1P   FXI_OWN(double_log1p)
#define FXI_OWN_f64_TANH    FXI_OWN(double_tanh)
#define FXI_OWN_f64_SIGMOID FXI_OWN(double_sigmoid)
#define FXI_OWN_f64_SIN     FXI_OWN(double_sin)
#define FXI_OWN_f64_COS     FXI_OWN(double_cos)
#define FXI_OWN_f32_REM     FXI_OWN(rem_tile_f32)
#ifdef FXI_FUSED
#define FXI_OWN_f64_REM FXI_OWN(rem_tile_f64)
#endif

/* FXI_LOOP_OF(FXI_OWN_f32_EXP, x) is the loop listed above; x if none is listed.
 * FXI_IF_OWN(FXI_OWN_f32_EXP, y, x) is y if a loop is listed, else x. */
#define FXI_OWN(loop)           0, loop
#define FXI_SECOND(a, b, ...)   b
#define FXI_THIRD(a, b, c, ...) c
#define FXI_LOOP_OF(...)        FXI_SECOND(__VA_ARGS__, 0)
#define FXI_IF_OWN(...)         FXI_THIRD(__VA_ARGS__, 0)

/* ---- loops ----------------------------------------------------------------------------------- */
/* In all loops the operands of an element are read before its result is written, because d may be
 * the memory of an operand. */
#define FXI_LOOP1(NAME, T, R, EXPR)                                                                \
    static void NAME(void *dv, const void *const *s, int n, int64_t attr)                          \
    {                                                                                              \
        (void)attr;                                                                                \
        const T *p = s[0];                                                                         \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T a = p[i];                                                                      \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }
#define FXI_LOOP2(NAME, T, R, EXPR)                                                                \
    static void NAME(void *dv, const void *const *s, int n, int64_t attr)                          \
    {                                                                                              \
        (void)attr;                                                                                \
        const T *p = s[0], *q = s[1];                                                              \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        FXI_FOUR                                                                                   \
        for (int i = 0; i < n; i++) {                                                              \
            const T a = p[i], b = q[i];                                                            \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }

/* FXI_LOOP2, and loops in which one operand is a single value: the second (_vs) or the first (_sv).
 * The single value then needs no tile of copies. */
#define FXI_LOOP2_MIXED(NAME, T, R, EXPR)                                                          \
    FXI_LOOP2(NAME, T, R, EXPR)                                                                    \
    static void NAME##_vs(void *dv, const void *const *s, int n, int64_t attr)                     \
    {                                                                                              \
        (void)attr;                                                                                \
        const T *p = s[0], b = *(const T *)s[1];                                                   \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        FXI_FOUR                                                                                   \
        for (int i = 0; i < n; i++) {                                                              \
            const T a = p[i];                                                                      \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void NAME##_sv(void *dv, const void *const *s, int n, int64_t attr)                     \
    {                                                                                              \
        (void)attr;                                                                                \
        const T a = *(const T *)s[0], *q = s[1];                                                   \
        R *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        FXI_FOUR                                                                                   \
        for (int i = 0; i < n; i++) {                                                              \
            const T b = q[i];                                                                      \
            d[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }

/* ---- scalar helpers -------------------------------------------------------------------------- */
static inline uint64_t bits_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
/* The sign bit, which also tells −0 from 0. */
#define NEGATIVE_f32(x) (fxi_bits(x) >> 31)
#define NEGATIVE_f64(x) (bits_f64(x) >> 63)

/* The functions that op.def names, for one element. As in Julia, max and min return NaN if either
 * operand is NaN, and take −0 as less than 0. Conditions are joined with | and &, which do not
 * branch, so the loops become vectors. */
#define FXI_REAL_FUNCTIONS(S, T)                                                                   \
    static inline T max_one_##S(T x, T y)                                                          \
    {                                                                                              \
        return ((x > y) | (x != x) | ((x == y) & !NEGATIVE_##S(x))) ? x : y;                       \
    }                                                                                              \
    static inline T min_one_##S(T x, T y)                                                          \
    {                                                                                              \
        return ((x < y) | (x != x) | ((x == y) & (int)NEGATIVE_##S(x))) ? x : y;                   \
    }                                                                                              \
    static inline T quotient_one_##S(T x, T y)                                                     \
    {                                                                                              \
        return x / y;                                                                              \
    }
FXI_REAL_FUNCTIONS(f32, float)
FXI_REAL_FUNCTIONS(f64, double)

/* Saturating conversion; NaN gives 0. C leaves both undefined. The bounds of Int32 and UInt8 are
 * exact in Float64; the upper bound of Int64 is not, so to_i64 compares with 2⁶³. */
static inline int32_t to_i32(double x)
{
    const double c = x < -2147483648.0 ? -2147483648.0 : x > 2147483647.0 ? 2147483647.0 : x;
    return (int32_t)(c == c ? c : 0.0);
}
static inline uint8_t to_u8(double x)
{
    const double c = x < 0.0 ? 0.0 : x > 255.0 ? 255.0 : x;
    /* Through Int32: x86 has instructions that convert a vector of doubles to Int32, and none for
     * narrower integers. */
    return (uint8_t)(int32_t)(c == c ? c : 0.0);
}
static inline int64_t to_i64(double x)
{
    /* Comparisons with NaN are false, so it reaches the last line. */
    if (x >= 0x1p63)
        return INT64_MAX;
    if (x < -0x1p63)
        return INT64_MIN;
    return (int64_t)(x == x ? x : 0.0);
}

/* ⌊x/y⌋; 0 for y = 0, which C leaves undefined. The narrower types compute in Int64 too, and keep
 * the low bits. */
static inline int64_t whole_fld(int64_t x, int64_t y)
{
    if (y == 0)
        return 0;
    if (y == -1) /* MIN/−1 wraps */
        return (int64_t)(0 - (uint64_t)x);
    return x / y - (x % y != 0 && (x % y < 0) != (y < 0));
}

/* x − y·(x/y truncated); x for y = 0. y = −1 is a case of its own because C leaves INT64_MIN % −1
 * undefined. */
static inline int64_t whole_rem(int64_t x, int64_t y)
{
    return y == 0 ? x : y == -1 ? 0 : x % y;
}

/* xᵉ by squaring, wrapping. A negative exponent gives 0 except for x = ±1. */
static inline int64_t whole_ipow(int64_t x, int64_t e)
{
    if (e < 0)
        return x == 1 ? 1 : x != -1 ? 0 : e % 2 ? -1 : 1;
    /* Unsigned, so overflow wraps. */
    uint64_t r = 1, b = (uint64_t)x;
    for (; e; e >>= 1) {
        r = e & 1 ? r * b : r;
        b *= b;
    }
    return (int64_t)r;
}

/* ---- the rows of op.def, once for each type -------------------------------------------------- */
/* op.def explains K, I64, I, M, F and W. */
#define K                                       attr
#define I64                                     int64_t
#define I(function)                             whole_##function
#define FXI_REAL_LOOP1(NAME, T, R, EXPR)        FXI_LOOP1(NAME, T, R, EXPR)
#define FXI_REAL_LOOP2(NAME, T, R, EXPR)        FXI_LOOP2_MIXED(NAME, T, R, EXPR)
#define FXI_REAL_REAL(inputs, NAME, T, EXPR)    FXI_REAL_LOOP##inputs(NAME, T, T, EXPR)
#define FXI_REAL_COUNT(inputs, NAME, T, EXPR)   FXI_REAL_LOOP##inputs(NAME, T, T, EXPR)
#define FXI_REAL_KEEP(inputs, NAME, T, EXPR)    FXI_REAL_LOOP##inputs(NAME, T, T, EXPR)
#define FXI_REAL_COMPARE(inputs, NAME, T, EXPR) FXI_REAL_LOOP##inputs(NAME, T, uint8_t, EXPR)
#define FXI_NO_LOOP(inputs, NAME, T, EXPR)
#define FXI_WHOLE_REAL(inputs, NAME, T, EXPR)
#define FXI_WHOLE_COUNT(inputs, NAME, T, EXPR)   FXI_LOOP##inputs(NAME, T, T, EXPR)
#define FXI_WHOLE_KEEP(inputs, NAME, T, EXPR)    FXI_LOOP##inputs(NAME, T, T, EXPR)
#define FXI_WHOLE_COMPARE(inputs, NAME, T, EXPR) FXI_LOOP##inputs(NAME, T, uint8_t, EXPR)

#define M(function) function##f
#define F(function) function##_one_f32
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    FXI_IF_OWN(FXI_OWN_f32_##NAME, FXI_NO_LOOP, FXI_REAL_##rule)(inputs, name##_f32, float, real)
#include <cflux/op.def>
#undef M
#undef F

#define M(function) function
#define F(function) function##_one_f64
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    FXI_IF_OWN(FXI_OWN_f64_##NAME, FXI_NO_LOOP, FXI_REAL_##rule)(inputs, name##_f64, double, real)
#include <cflux/op.def>
#undef M
#undef F

#define W uint32_t
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    FXI_WHOLE_##rule(inputs, name##_i32, int32_t, whole)
#include <cflux/op.def>
#undef W

#define W uint64_t
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    FXI_WHOLE_##rule(inputs, name##_i64, int64_t, whole)
#include <cflux/op.def>
#undef W

#define W uint8_t
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    FXI_WHOLE_##rule(inputs, name##_u8, uint8_t, whole)
#include <cflux/op.def>
#undef W

/* ---- select, whose first operand is a Bool --------------------------------------------------- */
#define FXI_SELECT_LOOP(S, T)                                                                      \
    static void select_##S(void *dv, const void *const *s, int n, int64_t attr)                    \
    {                                                                                              \
        (void)attr;                                                                                \
        const uint8_t *c = s[0];                                                                   \
        const T *a = s[1], *b = s[2];                                                              \
        T *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T x = a[i], y = b[i];                                                            \
            d[i] = c[i] ? x : y;                                                                   \
        }                                                                                          \
    }
FXI_SELECT_LOOP(f32, float)
FXI_SELECT_LOOP(f64, double)
FXI_SELECT_LOOP(i32, int32_t)
FXI_SELECT_LOOP(i64, int64_t)
FXI_SELECT_LOOP(u8, uint8_t)
/* The select loops in which one of the two values is the same for all elements, as in the gradient
 * of relu, or in a mask that sets elements to 0; or both are, as in the gradient of a sum over a
 * mask. */
#define FXI_SELECT_MIXED(S, T)                                                                     \
    static void select_##S##_vs(void *dv, const void *const *s, int n, int64_t attr)               \
    {                                                                                              \
        (void)attr;                                                                                \
        const uint8_t *c = s[0];                                                                   \
        const T *a = s[1], y = *(const T *)s[2];                                                   \
        T *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T x = a[i];                                                                      \
            d[i] = c[i] ? x : y;                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void select_##S##_sv(void *dv, const void *const *s, int n, int64_t attr)               \
    {                                                                                              \
        (void)attr;                                                                                \
        const uint8_t *c = s[0];                                                                   \
        const T x = *(const T *)s[1], *b = s[2];                                                   \
        T *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            const T y = b[i];                                                                      \
            d[i] = c[i] ? x : y;                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void select_##S##_ss(void *dv, const void *const *s, int n, int64_t attr)               \
    {                                                                                              \
        (void)attr;                                                                                \
        const uint8_t *c = s[0];                                                                   \
        const T x = *(const T *)s[1], y = *(const T *)s[2];                                        \
        T *d = dv;                                                                                 \
        FXI_IVDEP                                                                                  \
        for (int i = 0; i < n; i++)                                                                \
            d[i] = c[i] ? x : y;                                                                   \
    }
FXI_SELECT_MIXED(f32, float)
FXI_SELECT_MIXED(f64, double)

/* ---- faster than their expressions ----------------------------------------------------------- */
/* Integer powers. The small exponents, which losses and norms use, are products in the order of
 * `power_`: the same bits, but without its loop over the bits of the exponent. */
#define FXI_POWERS(S, T)                                                                             \
    FXI_LOOP1(invert_##S, T, T, 1 / a)                                                               \
    FXI_LOOP1(power0_##S, T, T, ((void)a, 1))                                                        \
    FXI_LOOP1(power1_##S, T, T, a)                                                                   \
    FXI_LOOP1(power2_##S, T, T, a *a)                                                                \
    FXI_LOOP1(power3_##S, T, T, a *(a * a))                                                          \
    FXI_LOOP1(power4_##S, T, T, (a * a) * (a * a))                                                   \
    /* xᵏ, k > 0, of a whole tile by squaring */                                                   \
    static void power_##S(T *d, const T *a, int n, uint64_t k)                                       \
    {                                                                                                \
        /* A copy, because d may be the memory of a. */                                              \
        T b[FXI_TILE_MOST];                                                                          \
        memcpy(b, a, (size_t)n * sizeof *b);                                                         \
        for (int i = 0; i < n; i++)                                                                  \
            d[i] = 1;                                                                                \
        for (; k; k >>= 1) {                                                                         \
            for (int i = 0; k & 1 && i < n; i++)                                                     \
                d[i] *= b[i];                                                                        \
            for (int i = 0; k > 1 && i < n; i++)                                                     \
                b[i] *= b[i];                                                                        \
        }                                                                                            \
    }                                                                                                \
    /* Small exponents have loops of their own, with the same bits; a negative e gives 1/x⁻ᵉ. */ \
    static void powers_##S(void *dv, const void *const *s, int n, int64_t e)                         \
    {                                                                                                \
        static const fxi_tile_fn small[] = {power0_##S, power1_##S, power2_##S, power3_##S,          \
                                            power4_##S};                                             \
        /* Negated as unsigned: −INT64_MIN would overflow. */                                      \
        const uint64_t k = e < 0 ? 0 - (uint64_t)e : (uint64_t)e;                                    \
        if (k < sizeof small / sizeof *small)                                                        \
            small[k](dv, s, n, 0);                                                                   \
        else                                                                                         \
            power_##S(dv, s[0], n, k);                                                               \
        /* In place: each element is read before it is written. */                                   \
        const void *const power[] = {dv};                                                            \
        if (e < 0)                                                                                   \
            invert_##S(dv, power, n, 0);                                                             \
    }
FXI_POWERS(f32, float)
FXI_POWERS(f64, double)
/* fmod. With a quotient below MOST, q = ⌊|x|/|y|⌋ or one more, and |x| − q·|y| is exact (EXACT); if
 * q is one too many, the result is negative and y is added. libm computes the rest: larger
 * quotients, NaN and infinities. */
#define FXI_REM_LOOP(S, T, f, MOST, WHOLE, EXACT)                                                  \
    static void rem_tile_##S(void *dv, const void *const *s, int n, int64_t attr)                  \
    {                                                                                              \
        (void)attr;                                                                                \
        const T *a = s[0], *b = s[1];                                                              \
        T d[FXI_TILE_MOST];                                                                        \
        /* Set without a branch. If it is not 0, libm computes some elements again. */             \
        int32_t far = 0;                                                                           \
        for (int i = 0; i < n; i++) {                                                              \
            const double x = fabs((double)a[i]), y = fabs((double)b[i]), t = x / y;                \
            far |= !((t < MOST) & (y < INFINITY));                                                 \
            const double q = WHOLE, r = EXACT;                                                     \
            d[i] = (T)copysign(r < 0 ? r + y : r, (double)a[i]);                                   \
        }                                                                                          \
        for (int i = 0; far && i < n; i++)                                                         \
            if (!(fabs((double)a[i]) / fabs((double)b[i]) < MOST &&                                \
                  fabs((double)b[i]) < INFINITY))                                                  \
                d[i] = fmod##f(a[i], b[i]);                                                        \
        memcpy(dv, d, (size_t)n * sizeof *d);                                                      \
    }
#ifdef FXI_FUSED
FXI_REM_LOOP(f32, float, f, 0x1p28, trunc(t), x - q * y) /* a product of 28 and 24 bits */
FXI_REM_LOOP(f64, double, , 0x1p53, trunc(t), FXI_FMA1_F64(-q, y, x))
#else
/* Only Float32, whose products are exact in double; a conversion to integers truncates, because
 * SSE2 has no rounding instruction. */
FXI_REM_LOOP(f32, float, f, 0x1p28, (double)(int32_t)(t < 0x1p28 ? t : 0), x - q * y)
#endif

/* ---- tables ---------------------------------------------------------------------------------- */
/* Which types a rule of op.def has loops for. A Bool is a byte, 0 or 1, so it shares the loops of
 * UInt8. */
#define FXI_TILES_FLOAT(NAME, n)                                                                   \
    FXI_LOOP_OF(FXI_OWN_f32_##NAME, n##_f32), FXI_LOOP_OF(FXI_OWN_f64_##NAME, n##_f64)
#define FXI_TILES_REAL(NAME, n)                                                                    \
    {                                                                                              \
        FXI_TILES_FLOAT(NAME, n), NULL, NULL, NULL, NULL                                           \
    }
#define FXI_TILES_COUNT(NAME, n)                                                                   \
    {                                                                                              \
        FXI_TILES_FLOAT(NAME, n), n##_i32, n##_i64, n##_u8, NULL                                   \
    }
#define FXI_TILES_KEEP(NAME, n)                                                                    \
    {                                                                                              \
        FXI_TILES_FLOAT(NAME, n), n##_i32, n##_i64, n##_u8, n##_u8                                 \
    }
#define FXI_TILES_COMPARE(NAME, n) FXI_TILES_KEEP(NAME, n)
static const fxi_tile_fn tile_ops[FX_OP_COUNT][FXI_C_COUNT] = {
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    [FX_OP_##NAME] = FXI_TILES_##rule(NAME, name),
#include <cflux/op.def>
    [FX_OP_SELECT] = FXI_TILES_KEEP(SELECT, select),
};

#define FXI_MIXED_OF(own, n)                                                                       \
    {                                                                                              \
        FXI_IF_OWN(own, NULL, n##_vs), FXI_IF_OWN(own, NULL, n##_sv)                               \
    }
#define FXI_MIXED_2(NAME, n)                                                                       \
    {                                                                                              \
        FXI_MIXED_OF(FXI_OWN_f32_##NAME, n##_f32), FXI_MIXED_OF(FXI_OWN_f64_##NAME, n##_f64)       \
    }
#define FXI_MIXED_ROW_1(NAME, n)
#define FXI_MIXED_ROW_2(NAME, n) [FX_OP_##NAME] = FXI_MIXED_2(NAME, n),
static const fxi_tile_fn tile_mixed[FX_OP_COUNT][2][3] = {
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    FXI_MIXED_ROW_##inputs(NAME, name)
#include <cflux/op.def>
    [FX_OP_SELECT] = {{select_f32_vs, select_f32_sv, select_f32_ss},
                      {select_f64_vs, select_f64_sv, select_f64_ss}},
};
#undef K
#undef I64
#undef I

/* ---- two operations in one loop -------------------------------------------------------------- */
/* t is a variable of its own and contraction is off, so the first result is rounded as it would be
 * if it were stored. A single number is read before the loop: d may be its memory, so the compiler
 * could not move the read out of the loop. */
#define FXI_VECTOR(x, one) x[i]
#define FXI_ONE(x, one)    one
#define FXI_PAIR_LOOP(NAME, A, B, C, FIRST, SECOND)                                                \
    static void NAME(void *dv, const void *const *s, int n, int64_t attr)                          \
    {                                                                                              \
        (void)attr;                                                                                \
        const float *p = s[0], *q = s[1], *r = s[2];                                               \
        const float one_a = *p, one_b = *q, one_c = *r;                                            \
        float *d = dv;                                                                             \
        (void)one_a, (void)one_b, (void)one_c;                                                     \
        FXI_IVDEP                                                                                  \
        FXI_FOUR                                                                                   \
        for (int i = 0; i < n; i++) {                                                              \
            const float a = A(p, one_a), b = B(q, one_b), c = C(r, one_c), t = FIRST;              \
            (void)c;                                                                               \
            d[i] = SECOND;                                                                         \
        }                                                                                          \
    }
/* s[2] as a vector and as a number; then all forms of s[0] and s[1]. */
#define FXI_PAIR_FORM(NAME, A, B, FIRST, SECOND)                                                   \
    FXI_PAIR_LOOP(NAME##_v, A, B, FXI_VECTOR, FIRST, SECOND)                                       \
    FXI_PAIR_LOOP(NAME##_s, A, B, FXI_ONE, FIRST, SECOND)
#define FXI_PAIR_SECOND(NAME, FIRST, SECOND)                                                       \
    FXI_PAIR_FORM(NAME##_vv, FXI_VECTOR, FXI_VECTOR, FIRST, SECOND)                                \
    FXI_PAIR_FORM(NAME##_vs, FXI_VECTOR, FXI_ONE, FIRST, SECOND)                                   \
    FXI_PAIR_FORM(NAME##_sv, FXI_ONE, FXI_VECTOR, FIRST, SECOND)
/* All loops that begin with one operation. A negation does not use the value at s[2], but the loop
 * reads it, so s[2] must be valid. */
#define FXI_PAIR_FIRST(NAME, FIRST)                                                                \
    FXI_PAIR_SECOND(NAME##_sum, FIRST, t + c)                                                      \
    FXI_PAIR_SECOND(NAME##_difference, FIRST, t - c)                                               \
    FXI_PAIR_SECOND(NAME##_product, FIRST, t *c)                                                   \
    FXI_PAIR_SECOND(NAME##_from, FIRST, c - t)                                                     \
    FXI_PAIR_LOOP(NAME##_negated_vv, FXI_VECTOR, FXI_VECTOR, FXI_ONE, FIRST, -t)                   \
    FXI_PAIR_LOOP(NAME##_negated_vs, FXI_VECTOR, FXI_ONE, FXI_ONE, FIRST, -t)                      \
    FXI_PAIR_LOOP(NAME##_negated_sv, FXI_ONE, FXI_VECTOR, FXI_ONE, FIRST, -t)
FXI_PAIR_FIRST(sum, a + b)
FXI_PAIR_FIRST(difference, a - b)
FXI_PAIR_FIRST(product, a *b)
/* The tables have the order of the enumerations in cpu_simd.h. */
#define FXI_PAIR_TABLE_2(n)                                                                        \
    {                                                                                              \
        {n##_vv_v, n##_vv_s}, {n##_vs_v, n##_vs_s},                                                \
        {                                                                                          \
            n##_sv_v, n##_sv_s                                                                     \
        }                                                                                          \
    }
#define FXI_PAIR_TABLE(n)                                                                          \
    {                                                                                              \
        FXI_PAIR_TABLE_2(n##_sum), FXI_PAIR_TABLE_2(n##_difference),                               \
            FXI_PAIR_TABLE_2(n##_product), FXI_PAIR_TABLE_2(n##_from),                             \
        {                                                                                          \
            {n##_negated_vv, n##_negated_vv}, {n##_negated_vs, n##_negated_vs},                    \
            {                                                                                      \
                n##_negated_sv, n##_negated_sv                                                     \
            }                                                                                      \
        }                                                                                          \
    }
static const fxi_pair_loops tile_pairs[FXI_PAIR_FIRSTS] = {
    FXI_PAIR_TABLE(sum), FXI_PAIR_TABLE(difference), FXI_PAIR_TABLE(product)};

/* ---- conversions ----------------------------------------------------------------------------- */
/* Conversions between all types. Bool is x ≠ 0; floats to integers saturate. */
#define FXI_CASTS_TO(S, T, TO_F32, TO_F64, TO_I32, TO_I64, TO_U8)                                  \
    FXI_LOOP1(S##_to_f32, T, float, TO_F32)                                                        \
    FXI_LOOP1(S##_to_f64, T, double, TO_F64)                                                       \
    FXI_LOOP1(S##_to_i32, T, int32_t, TO_I32)                                                      \
    FXI_LOOP1(S##_to_i64, T, int64_t, TO_I64)                                                      \
    FXI_LOOP1(S##_to_u8, T, uint8_t, TO_U8)                                                        \
    FXI_LOOP1(S##_to_bool, T, uint8_t, a != 0)
FXI_CASTS_TO(f32, float, a, a, to_i32((double)a), to_i64((double)a), to_u8((double)a))
FXI_CASTS_TO(f64, double, a, a, to_i32(a), to_i64(a), to_u8(a))
FXI_CASTS_TO(i32, int32_t, a, a, a, a, a)
FXI_CASTS_TO(i64, int64_t, a, a, a, a, a)
FXI_CASTS_TO(u8, uint8_t, a, a, a, a, a)
#define FXI_ROW_CAST(S)                                                                            \
    {                                                                                              \
        S##_to_f32, S##_to_f64, S##_to_i32, S##_to_i64, S##_to_u8, S##_to_bool                     \
    }
static const fxi_tile_fn tile_casts[FXI_C_COUNT][FXI_C_COUNT] = {
    FXI_ROW_CAST(f32), FXI_ROW_CAST(f64), FXI_ROW_CAST(i32),
    FXI_ROW_CAST(i64), FXI_ROW_CAST(u8),  FXI_ROW_CAST(u8),
};

/* Casts to 16-bit floats go through Float32, rounded to odd: the rounding to 16 bits then gives the
 * same result as one rounding of the source (half.h). */
FXI_LOOP1(f64_to_odd, double, float, fxi_f64_to_odd(a))
FXI_LOOP1(i32_to_odd, int32_t, float, fxi_f64_to_odd((double)a))
FXI_LOOP1(i64_to_odd, int64_t, float, fxi_i64_to_odd(a))
/* Float32 and bytes are exact in Float32. */
static const fxi_tile_fn tile_odd[FXI_C_COUNT] = {f32_to_f32, f64_to_odd, i32_to_odd,
                                                  i64_to_odd, u8_to_f32,  u8_to_f32};

FXI_LOOP1(round_f16, float, float, fxi_f16_to_f32(fxi_f32_to_f16(a)))
FXI_LOOP1(round_bf16, float, float, fxi_bf16_to_f32(fxi_f32_to_bf16(a)))
FXI_LOOP1(load_f16, uint16_t, float, fxi_f16_to_f32(a))
FXI_LOOP1(load_bf16, uint16_t, float, fxi_bf16_to_f32(a))
FXI_LOOP1(store_f16, float, uint16_t, fxi_f32_to_f16(a))
FXI_LOOP1(store_bf16, float, uint16_t, fxi_f32_to_bf16(a))
static const fxi_tile_fn tile_round[2] = {round_f16, round_bf16};
static const fxi_tile_fn tile_load[2] = {load_f16, load_bf16};
static const fxi_tile_fn tile_store[2] = {store_f16, store_bf16};

/* ---- stores past the caches ------------------------------------------------------------------ */
#if defined(__SSE2__)
#include <emmintrin.h>
#ifndef FXI_STREAM
#define FXI_STREAM(p, v) _mm_stream_si128((__m128i *)(p), (__m128i)(v))
#endif
/* Streaming stores need addresses that are multiples of the vector's size. The bytes before and
 * after are copied as usual. */
static void stream(void *dv, const void *sv, size_t bytes)
{
    char *d = dv;
    const char *s = sv;
    const size_t odd = (size_t)(-(uintptr_t)d % FXI_VECTOR_BYTES), head = odd < bytes ? odd : bytes;
    memcpy(d, s, head);
    size_t k = head;
    for (; k + 2 * FXI_VECTOR_BYTES <= bytes; k += 2 * FXI_VECTOR_BYTES) {
        vl v, w;
        memcpy(&v, s + k, sizeof v);
        memcpy(&w, s + k + sizeof v, sizeof w);
        FXI_STREAM((void *)(d + k), v);
        FXI_STREAM((void *)(d + k + sizeof v), w);
    }
    memcpy(d + k, s + k, bytes - k);
}
static void stream_end(void)
{
    _mm_sfence();
}
#else
static void stream(void *d, const void *s, size_t bytes)
{
    memcpy(d, s, bytes);
}
static void stream_end(void) {}
#endif
