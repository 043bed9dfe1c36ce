/* cpu_isa_wide.h: functions of Float32 that compute in double, and the loops over all functions of
 * this file and cpu_isa_math.h; part of cpu_isa.h.
 *
 * pow multiplies the error of its logarithm by up to 150, and an angle near a multiple of π loses
 * nearly all of its digits when the multiple is subtracted. In double both are plain arithmetic,
 * and the result is nearly always the exact one rounded once. Half a vector of Float32 fills a
 * vector of double. All Float32 values, denormals too, are normal numbers in double. Polynomials
 * are minimax fits of our own (Remez exchange), each with its largest relative error. Integers of
 * 64 bits are added, shifted and masked but never compared or converted: SSE2 and AVX2 have no
 * instructions for that.
 */
typedef float vh __attribute__((vector_size(FXI_VECTOR_BYTES / 2)));
#define SIGN_BIT   (UINT64_C(1) << 63)
#define ROUND_F64  0x1.8p52 /* added and subtracted, it rounds to an integer */
#define INT_IN_F64 0x1p52   /* its mantissa is an integer */

static inline vd vd_splat(double x)
{
    return x - (vd){0};
}
static inline vd_mask vd_less(vd a, vd b)
{
    return FXI_LESS_F64(a, b);
}
static inline vd_mask vd_same(vd a, vd b)
{
    return FXI_SAME_F64(a, b);
}
static inline vd_mask vd_ordered(vd a, vd b)
{
    return FXI_ORDERED_F64(a, b);
}
static inline vd vd_pick(vd_mask m, vd a, vd b)
{
    return FXI_PICK_F64(m, a, b);
}
static inline vd vd_min(vd a, vd b)
{
    return FXI_MIN_F64(a, b);
}
static inline vd vd_max(vd a, vd b)
{
    return FXI_MAX_F64(a, b);
}
static inline vd vd_abs(vd x)
{
    return (vd)((vl)x & ~SIGN_BIT);
}
static inline vd vd_fma(vd a, vd b, vd c)
{
    return FXI_FMA_F64(a, b, c);
}

FXI_POLY(vd, double)
#ifndef FXI_WIDE
#define FXI_WIDE(h)   __builtin_convertvector((h), vd)
#define FXI_NARROW(v) __builtin_convertvector((v), vh)
#endif
static inline vd vd_wide(vh x)
{
    return FXI_WIDE(x);
}
static inline vh vd_narrow(vd x)
{
    return FXI_NARROW(x);
}

/* ---- sin and cos ----------------------------------------------------------------------------- */
/* π in two parts, the first of 32 bits: its product with a multiple of ½ below 2²⁰ is exact. */
#define PI_HIGH 0x1.921fb544p+1
#define PI_LOW  0x1.0b4611a626331p-33
#define FAR     0x1p20f /* larger angles are computed by libm */

/* (−1)ᵏ·sin(x − (k + shift)·π), where k is the integer nearest to x/π − shift: sin x for shift 0,
 * −cos x for shift ½. So one polynomial serves both. */
static inline vd vd_sin_shifted(vd x, double shift)
{
    static const double c[] = {-0x1.9a6782ccd5004p-26, 0x1.717074d7c754bp-19,
                               -0x1.a017d94a7af60p-13, 0x1.11110c49023abp-7,
                               -0x1.5555554765c1dp-3}; /* 2⁻³⁵ */
    const vd t = vd_fma(x, vd_splat(0x1.45f306dc9c883p-2), vd_splat(-shift)) + ROUND_F64;
    const vd n = (t - ROUND_F64) + shift;
    vd r = vd_fma(n, vd_splat(-PI_HIGH), x);
    r = vd_fma(n, vd_splat(-PI_LOW), r);
    const vd z = r * r, y = r * vd_fma(vd_poly(z, c, 5), z, vd_splat(1.0));
    return (vd)((vl)y ^ ((vl)t << 63));
}
static inline vh vh_sin(vh x)
{
    return vd_narrow(vd_sin_shifted(vd_wide(x), 0.0));
}
static inline vh vh_cos(vh x)
{
    return -vd_narrow(vd_sin_shifted(vd_wide(x), 0.5));
}

/* ---- pow ------------------------------------------------------------------------------------- */
/* log₂ of a Float32 x ≥ 0, with a relative error of 2⁻⁴⁵: x = 2ᵏ·m with √½ ≤ m < √2, and log₂ m is
 * an odd function of s = (m − 1)/(m + 1), which needs half the terms. */
static inline vd vd_log2(vd x)
{
    static const double c[] = {0x1.21b6049bd60e1p-2, 0x1.4794ffa2cbd10p-2, 0x1.a61a30c5967a7p-2,
                               0x1.2776c290e8216p-1, 0x1.ec709dc53e4aap-1, 0x1.71547652b8250p+1};
    const vl above = (vl)x - UINT64_C(0x3fe6a09e667f3bcd); /* bits of √½ */
    const vl biased = (above + (UINT64_C(1023) << 52)) >> 52;
    const vd k = (vd)(biased | (vl)vd_splat(INT_IN_F64)) - (INT_IN_F64 + 1023);
    const vd m = (vd)((vl)x - (above & (UINT64_C(0xfff) << 52)));
    const vd s = (m - 1.0) / (m + 1.0), y = vd_fma(vd_poly(s * s, c, 6), s, k);
    const vd finite = vd_pick(vd_less(x, vd_splat(INFINITY)), y, x);
    return vd_pick(vd_same(x, vd_splat(0.0)), vd_splat(-INFINITY), finite);
}

/* 2ᵗ, with a relative error of 2⁻³⁴. Beyond ±200 every result is 0 or Inf in Float32. */
static inline vd vd_exp2(vd t)
{
    static const double c[] = {0x1.fe17848dd4e5bp-17, 0x1.446a1feaa0ef6p-13, 0x1.5d8a7087ff344p-10,
                               0x1.3b29dc40c12c0p-7,  0x1.c6b08aaf2ec9dp-5,  0x1.ebfbe0a4be9e7p-3,
                               0x1.62e42ff116290p-1,  0x1.ffffffffabbcap-1};
    t = vd_max(vd_splat(-200.0), vd_min(vd_splat(200.0), t));
    const vd shifted = t + ROUND_F64, r = t - (shifted - ROUND_F64);
    return vd_poly(r, c, 8) * (vd)(((vl)shifted << 52) + (UINT64_C(1023) << 52));
}

/* IEEE 754's pow: x⁰ and 1ʸ are 1, whatever the other operand is. x < 0 needs a whole y, and an odd
 * y keeps the sign. Beyond ±2⁵⁰ every y acts as 2⁵⁰ does: it is even, and the power of any Float32
 * but ±1 is 0 or Inf. */
static inline vh vh_pow(vh xs, vh ys)
{
    const vd x = vd_wide(xs), one = vd_splat(1.0), zero = vd_splat(0.0);
    const vd y = vd_max(vd_splat(-0x1p50), vd_min(vd_splat(0x1p50), vd_wide(ys)));
    const vd rounded = y + ROUND_F64;
    const vd_mask whole = vd_same(rounded - ROUND_F64, y);
    const vd r = vd_exp2(y * vd_log2(vd_abs(x)));
    const vd odd = vd_pick(whole, (vd)((vl)rounded << 63), zero);
    vd p = (vd)((vl)r ^ ((vl)x & (vl)odd));
    const vd_mask rootless = vd_less(x, zero) & vd_less(vd_splat(-INFINITY), x);
    p = vd_pick(rootless, vd_pick(whole, p, vd_splat(NAN)), p);
    return vd_narrow(vd_pick(vd_same(y, zero) | vd_same(x, one), one, p));
}

/* ---- atan2 ----------------------------------------------------------------------------------- */
static inline vd vd_with_sign(vd x, vd sign)
{
    return (vd)(((vl)x & ~SIGN_BIT) | ((vl)sign & SIGN_BIT));
}

/* The angle of (x, y), from the angle of (larger, smaller) of |x| and |y|, which is in [0, π/4];
 * the polynomial covers this range only. */
static inline vh vh_atan2(vh ys, vh xs)
{
    static const double c[] = {0x1.23f92f3c84147p-10, -0x1.df970d43e1d8ap-8, 0x1.714b1e8cefb1bp-6,
                               -0x1.6e19a44005b17p-5, 0x1.1422c908f858fp-4,  -0x1.68e6ff3963596p-4,
                               0x1.c4f1e1b973476p-4,  -0x1.24737387cc721p-3, 0x1.9997e0313e9a9p-3,
                               -0x1.5555510407a7ap-2}; /* 2⁻³¹ */
    const vd x = vd_wide(xs), y = vd_wide(ys), ax = vd_abs(x), ay = vd_abs(y);
    const vd one = vd_splat(1.0), zero = vd_splat(0.0), inf = vd_splat(INFINITY);
    const vd_mask steep = vd_less(ax, ay);
    const vd lo = vd_pick(steep, ax, ay), hi = vd_pick(steep, ay, ax);
    vd q = lo / hi;
    q = vd_pick(vd_same(lo, zero) & vd_same(hi, zero), zero, q);
    q = vd_pick(vd_same(lo, inf) & vd_same(hi, inf), one, q);
    const vd z = q * q;
    vd a = q * vd_fma(vd_poly(z, c, 10), z, one);
    a = vd_pick(steep, 0x1.921fb54442d18p+0 - a, a);
    a = vd_pick(vd_less(vd_with_sign(one, x), zero), 0x1.921fb54442d18p+1 - a, a);
    return vd_narrow(vd_with_sign(a, y));
}

/* ---- loops ----------------------------------------------------------------------------------- */
/* Loops over a tile. In a function, most instructions wait for the previous one, and the processor
 * cannot look ahead far enough to find those of the next vector. So a round computes several
 * vectors, whose instructions the compiler interleaves.
 *
 * The rest of a tile is computed as a whole vector too, not by a scalar form of the function: so a
 * number's result does not depend on its position. T is the type of an element, V that of the
 * operands u and v in EXPR. With one operand, b is a again and v is not used. */
#define FXI_VECTOR_LOOP(NAME, T, V, NSRC, EXPR)                                                    \
    static inline V NAME##_vector(const T *a, const T *b)                                          \
    {                                                                                              \
        V u, v;                                                                                    \
        memcpy(&u, a, sizeof u);                                                                   \
        memcpy(&v, b, sizeof v);                                                                   \
        (void)v;                                                                                   \
        return EXPR;                                                                               \
    }                                                                                              \
    static FXI_INTERLEAVE void NAME(void *dv, const void *const *s, int n, int64_t attr)           \
    {                                                                                              \
        enum { LANES = sizeof(V) / sizeof(T), ROUND = FXI_INTERLEAVED * LANES };                   \
        (void)attr;                                                                                \
        const T *a = s[0], *b = s[NSRC - 1];                                                       \
        T *d = dv;                                                                                 \
        int i = 0;                                                                                 \
        for (; i + ROUND <= n; i += ROUND) {                                                       \
            V w[FXI_INTERLEAVED];                                                                  \
            FXI_UNROLL                                                                             \
            for (int k = 0; k < FXI_INTERLEAVED; k++)                                              \
                w[k] = NAME##_vector(a + i + k * LANES, b + i + k * LANES);                        \
            FXI_UNROLL                                                                             \
            for (int k = 0; k < FXI_INTERLEAVED; k++)                                              \
                memcpy(d + i + k * LANES, &w[k], sizeof w[k]);                                     \
        }                                                                                          \
        for (; i + LANES <= n; i += LANES) {                                                       \
            const V w = NAME##_vector(a + i, b + i);                                               \
            memcpy(d + i, &w, sizeof w);                                                           \
        }                                                                                          \
        if (i == n)                                                                                \
            return;                                                                                \
        /* Vectors, so that they are filled and read in one width. */                              \
        const size_t rest = (size_t)(n - i) * sizeof *d;                                           \
        V u = {0}, v = {0};                                                                        \
        memcpy(&u, a + i, rest);                                                                   \
        memcpy(&v, b + i, rest);                                                                   \
        u = NAME##_vector((const T *)&u, (const T *)&v);                                           \
        memcpy(d + i, &u, rest);                                                                   \
    }
FXI_VECTOR_LOOP(vector_expm1, float, vf, 1, vf_expm1(u))
FXI_VECTOR_LOOP(vector_log, float, vf, 1, vf_log(u))
FXI_VECTOR_LOOP(vector_log1p, float, vf, 1, vf_log1p(u))
FXI_VECTOR_LOOP(vector_tanh, float, vf, 1, vf_tanh(u))
FXI_VECTOR_LOOP(vector_sigmoid, float, vf, 1, vf_sigmoid(u))
FXI_VECTOR_LOOP(vector_erf, float, vf, 1, vf_erf(u))
FXI_VECTOR_LOOP(near_sin, float, vh, 1, vh_sin(u))
FXI_VECTOR_LOOP(near_cos, float, vh, 1, vh_cos(u))
FXI_VECTOR_LOOP(vector_atan2, float, vh, 2, vh_atan2(u, v))
FXI_VECTOR_LOOP(vector_pow, float, vh, 2, vh_pow(u, v))

#ifdef FXI_SCALE_F32
/* The test below would take longer than the limits of vf_exp. */
FXI_VECTOR_LOOP(vector_exp, float, vf, 1, vf_exp(u))
#else
FXI_VECTOR_LOOP(near_exp, float, vf, 1, vf_exp_near(u))
FXI_VECTOR_LOOP(any_exp, float, vf, 1, vf_exp(u))

/* Nearly all tiles have only numbers that are near enough to 0 for the shorter way. The tile is
 * tested as a whole: with a branch for each vector, instructions of neighbouring vectors could not
 * be interleaved. */
static void vector_exp(void *dv, const void *const *s, int n, int64_t attr)
{
    const float *a = s[0];
    int32_t far = 0;
    FXI_FOUR
    for (int i = 0; i < n; i++)
        far |= fabsf(a[i]) < EXP_NEAR ? 0 : -1;
    (far ? any_exp : near_exp)(dv, s, n, attr);
}
#endif

/* Angles beyond FAR are computed one by one, after the others. d may be the memory of the angles,
 * so they are copied before. */
#define FXI_ANGLE_LOOP(NAME, T, NEAR, LIBM, ABS)                                                   \
    static void NAME(void *dv, const void *const *s, int n, int64_t attr)                          \
    {                                                                                              \
        const T *a = s[0];                                                                         \
        T *d = dv, x[FXI_TILE_MOST];                                                               \
        int32_t far = 0;                                                                           \
        for (int i = 0; i < n; i++)                                                                \
            far |= ABS(a[i]) > (T)FAR;                                                             \
        if (far)                                                                                   \
            memcpy(x, a, (size_t)n * sizeof *x);                                                   \
        NEAR(dv, s, n, attr);                                                                      \
        for (int i = 0; far && i < n; i++)                                                         \
            if (ABS(x[i]) > (T)FAR)                                                                \
                d[i] = LIBM(x[i]);                                                                 \
    }
FXI_ANGLE_LOOP(vector_sin, float, near_sin, sinf, fabsf)
FXI_ANGLE_LOOP(vector_cos, float, near_cos, cosf, fabsf)
