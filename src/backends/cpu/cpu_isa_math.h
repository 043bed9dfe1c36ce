/* cpu_isa_math.h: functions of Float32 vectors; part of cpu_isa.h.
 *
 * There are no branches: both sides are computed and chosen by masks. Every function is within 4
 * ulp over all Float32 values, with NaN, Inf, denormals and −0 as C has them
 * (tests/unit/test_cpu_math.c measures it for each instruction set). With AVX-512 they take 0.2 to
 * 0.4 ns an element; the C library's take 2 to 10. The polynomial of log is that of Cephes
 * (Moshier, single precision); those of exp, expm1 and erf are minimax fits of our own, each with
 * its largest error in a comment. To round to an integer, 1.5·2²³ is added and subtracted, because
 * SSE2 has no rounding instruction. Scaling by 2ⁿ is two multiplications, which overflow and
 * underflow gradually as they should; AVX-512 has an instruction for it, which gives the same bits
 * (FXI_SCALE_F32). Functions whose intermediate results need more digits than Float32 has (sin,
 * cos, pow, atan2) are in cpu_isa_wide.h.
 */
typedef float vf __attribute__((vector_size(FXI_VECTOR_BYTES)));
typedef double vd __attribute__((vector_size(FXI_VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(FXI_VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(FXI_VECTOR_BYTES)));
typedef uint64_t vl __attribute__((vector_size(FXI_VECTOR_BYTES)));

/* A mask chooses one of two values for every lane; & and | combine masks. MIN is a < b ? a : b and
 * MAX is a > b ? a : b, so that b is the result if either is NaN, as with the processor's
 * instructions. AVX-512 has registers for masks. With vectors as masks, gcc 12 makes code in which
 * every iteration waits for the previous one. */
#ifndef FXI_MASK_F32
#define FXI_MASK_F32       vi
#define FXI_MASK_F64       vl
#define FXI_LESS_F32(a, b) ((vi)((a) < (b)))
#define FXI_SAME_F32(a, b) ((vi)((a) == (b)))
#define FXI_LESS_F64(a, b) ((vl)((a) < (b)))
#define FXI_SAME_F64(a, b) ((vl)((a) == (b)))
#endif
#ifndef FXI_PICK_F32
#define FXI_PICK_F32(m, a, b) ((vf)(((vi)(a) & (m)) | ((vi)(b) & ~(m))))
#define FXI_PICK_F64(m, a, b) ((vd)(((vl)(a) & (m)) | ((vl)(b) & ~(m))))
#endif
#ifndef FXI_MIN_F32
#define FXI_MIN_F32(a, b) vf_pick(vf_less(a, b), a, b)
#define FXI_MAX_F32(a, b) vf_pick(vf_less(b, a), a, b)
#define FXI_MIN_F64(a, b) vd_pick(vd_less(a, b), a, b)
#define FXI_MAX_F64(a, b) vd_pick(vd_less(b, a), a, b)
#endif
/* Is neither of two lanes NaN? */
#ifndef FXI_ORDERED_F32
#define FXI_ORDERED_F32(a, b) (FXI_SAME_F32(a, a) & FXI_SAME_F32(b, b))
#define FXI_ORDERED_F64(a, b) (FXI_SAME_F64(a, a) & FXI_SAME_F64(b, b))
#endif
typedef FXI_MASK_F32 vf_mask;
typedef FXI_MASK_F64 vd_mask;

static inline vf vf_splat(float x)
{
    return x - (vf){0};
}
static inline vf_mask vf_less(vf a, vf b)
{
    return FXI_LESS_F32(a, b);
}
static inline vf_mask vf_same(vf a, vf b)
{
    return FXI_SAME_F32(a, b);
}
static inline vf_mask vf_ordered(vf a, vf b)
{
    return FXI_ORDERED_F32(a, b);
}
static inline vf vf_pick(vf_mask m, vf a, vf b)
{
    return FXI_PICK_F32(m, a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return FXI_MIN_F32(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return FXI_MAX_F32(a, b);
}
static inline vf vf_abs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}
static inline vf vf_with_sign(vf x, vf sign)
{
    return (vf)(((vi)x & INT32_MAX) | ((vi)sign & INT32_MIN));
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return FXI_FMA_F32(a, b, c);
}

/* c[0]·xⁿ⁻¹ + … + c[n−1], term after term. The logarithm uses it instead of vf_poly, whose other
 * order would change its bits, and with them those of normal random numbers. */
static inline vf vf_horner(vf x, const float *c, int n)
{
    vf p = vf_splat(c[0]);
    for (int i = 1; i < n; i++)
        p = vf_fma(p, x, vf_splat(c[i]));
    return p;
}

/* V##_poly: the polynomial of vf_horner, for n ≥ 2, as two sums of even and odd powers. In one sum
 * each addition waits for the addition before it, and the processor can overlap only a few vectors.
 * Two sums halve the wait. p is in registers only if the loop is unrolled. */
#define FXI_POLY(V, T)                                                                             \
    static inline V V##_poly(V x, const T *c, int n)                                               \
    {                                                                                              \
        const V z = x * x;                                                                         \
        V p[2] = {V##_splat(c[0]), V##_splat(c[1])};                                               \
        FXI_UNROLL                                                                                 \
        for (int i = 2; i < n; i++)                                                                \
            p[i % 2] = V##_fma(p[i % 2], z, V##_splat(c[i]));                                      \
        return V##_fma(p[n % 2], x, p[1 - n % 2]);                                                 \
    }
FXI_POLY(vf, float)

#define LN2_HIGH 0.693359375f /* 10 bits: n·LN2_HIGH is exact */
#define LN2_LOW  -2.12194440e-4f

/* x = n·(period·ln 2) + r with |r| ≤ ½·period·ln 2, where period is a power of two. NaN stays in r.
 * `bias` is added to n before it is stored in t: the lowest bits of t are the exponent's bits of
 * 2^(n + bias − 127). */
typedef struct vf_whole {
    vf r, n, t;
} vf_whole;
static inline vf_whole vf_nearest(vf x, float period, float bias)
{
    const vf magic = vf_splat(0x1.8p23f + bias);
    const vf t = vf_fma(x, vf_splat(1.44269504088896341f / period), magic), n = t - magic;
    const vf r = vf_fma(n, vf_splat(-LN2_HIGH * period), x);
    return (vf_whole){vf_fma(n, vf_splat(-LN2_LOW * period), r), n, t};
}

/* x = n·ln 2 + r, and 2ⁿ as the product of two numbers, since 2ⁿ itself may be denormal or
 * overflow. */
typedef struct vf_parts {
    vf r;
    vu scale[2];
} vf_parts;

/* The limits least and most keep the exponents of both factors in range; beyond them the result is
 * 0, Inf or constant anyway. */
static inline vf_parts vf_reduce(vf x, float least, float most)
{
    x = vf_max(vf_splat(least), vf_min(vf_splat(most), x));
    const vf_whole w = vf_nearest(x, 1, 2 * 127);
    const vu half = (vu)w.t >> 1, rest = (vu)w.t - half;
    return (vf_parts){w.r, {half << 23, rest << 23}};
}

/* eʳ − 1 for |r| ≤ ½ ln 2 */
static inline vf vf_exp_less_one(vf r)
{
    static const float c[] = {0x1.6a523ep-10f, 0x1.12396ep-7f, 0x1.5558aap-5f, 0x1.555492p-3f,
                              0x1.fffffcp-2f}; /* 2⁻²⁸·² of eʳ */
    return vf_fma(vf_poly(r, c, 5), r * r, r);
}

/* eˣ for |x| < EXP_NEAR: 2ⁿ and the result are normal numbers. The bias is even, as in vf_reduce:
 * without fused multiply-adds, an odd one would round halves to another n. */
#define EXP_NEAR 87.0f
static inline vf vf_exp_near(vf x)
{
    /* s + s·(eʳ − 1) is rounded once, as 1 + (eʳ − 1) would be, since s is a power of two. */
    const vf_whole w = vf_nearest(x, 1, 2 * 127);
    const vf s = (vf)(((vu)w.t - 127) << 23);
    return vf_fma(vf_exp_less_one(w.r), s, s);
}

#ifdef FXI_SCALE_F32
/* eˣ for |x| ≤ 104. The bias of n is even, as above. */
static inline vf vf_exp_scaled(vf x)
{
    const vf_whole w = vf_nearest(x, 1, 0);
    return FXI_SCALE_F32(1.0f + vf_exp_less_one(w.r), w.n);
}
#endif

/* eˣ. eʳ is multiplied by one factor after the other: each is a normal number, so the product
 * overflows to Inf or underflows gradually, as it should. For |x| < EXP_NEAR the bits are those of
 * vf_exp_near. The limits change no result: e⁻¹⁰⁴ is less than half of the smallest denormal,
 * 2⁻¹⁴⁹, and e⁸⁹ is larger than the largest number. */
static inline vf vf_exp(vf x)
{
#ifdef FXI_SCALE_F32
    return vf_exp_scaled(vf_max(vf_splat(-104.0f), vf_min(vf_splat(89.0f), x)));
#else
    const vf_parts p = vf_reduce(x, -104.0f, 89.0f);
    const vf s = (vf)p.scale[0];
    return vf_fma(vf_exp_less_one(p.r), s, s) * (vf)p.scale[1];
#endif
}

/* eˣ − 1 = 2ⁿ·((eʳ − 1) + (1 − 2⁻ⁿ)): nothing cancels, and for n = 0 the second part is 0. Below
 * −18 the result is −1 in Float32. */
static inline vf vf_expm1(vf x)
{
    static const float c[] = {0x1.a1a930p-13f, 0x1.6d7b7cp-10f, 0x1.11108ap-7f,
                              0x1.5554a8p-5f,  0x1.555556p-3f,  0x1.000000p-1f}; /* 2⁻³¹·⁹ */
    const vf_parts p = vf_reduce(x, -18.0f, 89.0f);
    const vf inverse = (vf)(0x7f000000u - p.scale[0]) * (vf)(0x7f000000u - p.scale[1]);
    const vf y = vf_fma(vf_poly(p.r, c, 6), p.r * p.r, p.r) + (1.0f - inverse);
    return vf_with_sign(y * (vf)p.scale[0] * (vf)p.scale[1], x);
}

/* log(2ᵉ·(1 + f)) for √½ ≤ 1 + f < √2. The largest terms are added last, so that their rounding is
 * the only one that shows. */
static inline vf vf_log_parts(vf e, vf f)
{
    static const float c[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                              -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                              2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
    const vf z = f * f;
    vf y = f * z * vf_horner(f, c, 9);
    y = vf_fma(e, vf_splat(LN2_LOW), y);
    y = vf_fma(z, vf_splat(-0.5f), y);
    return vf_fma(e, vf_splat(LN2_HIGH), f + y);
}

/* The mantissa in [½, 1) and the exponent that belongs to it, of a normal x > 0. */
static inline vf vf_mantissa(vf x)
{
    return (vf)(((vi)x & 0x007fffff) | 0x3f000000);
}
static inline vf vf_exponent(vf x)
{
    return __builtin_convertvector((((vi)x >> 23) & 0xff) - 126, vf);
}
#define ROOT_HALF 0.707106781186547524f

/* Denormals are scaled up first, because their bits have no exponent: 2²⁵ makes even the smallest
 * one, 2⁻¹⁴⁹, a normal number. The interval around 1 is symmetric (√½ … √2), so that log does not
 * cancel near 1. */
static inline vf vf_log(vf x)
{
    const vf_mask denormal = vf_less(x, vf_splat(FLT_MIN));
    const vf s = vf_pick(denormal, x * 0x1p25f, x), m = vf_mantissa(s);
    const vf_mask low = vf_less(m, vf_splat(ROOT_HALF));
    vf e = vf_exponent(s);
    e = vf_pick(denormal, e - 25.0f, e);
    vf y = vf_log_parts(vf_pick(low, e - 1.0f, e), vf_pick(low, m + m, m) - 1.0f);
    y = vf_pick(vf_same(x, vf_splat(0.0f)), vf_splat(-INFINITY), y);
    y = vf_pick(vf_less(x, vf_splat(0.0f)), vf_splat(NAN), y);
    return vf_pick(vf_less(x, vf_splat(INFINITY)), y, x); /* NaN and Inf are returned unchanged */
}

/* log(u + lost) for u = 1 + x rounded, where `lost` is the exact rounding error. With u = 2ᵉ·(1 +
 * f), it is added to f as lost·2⁻ᵉ, so that for small x f is x itself. */
static inline vf vf_log1p(vf x)
{
    const vf u = 1.0f + x, m = vf_mantissa(u), e = vf_exponent(u);
    const vf lost = vf_pick(vf_less(vf_splat(1.0f), x), 1.0f - (u - x), x - (u - 1.0f));
    const vf inverse = (vf)(0x7f000000 - ((vi)u & 0x7f800000)), r = lost * inverse;
    const vf_mask low = vf_less(m, vf_splat(ROOT_HALF));
    const vf f = (vf_pick(low, m + m, m) - 1.0f) + vf_pick(low, r, 0.5f * r);
    vf y = vf_log_parts(vf_pick(low, e - 1.0f, e), f);
    y = vf_pick(vf_same(x, vf_splat(-1.0f)), vf_splat(-INFINITY), y);
    y = vf_pick(vf_less(x, vf_splat(-1.0f)), vf_splat(NAN), y);
    return vf_with_sign(vf_pick(vf_less(x, vf_splat(INFINITY)), y, x), x);
}

/* Up to 1 the result is x + x·P(x²). From 1 on it is 1 − exp(L(|x|)) with L near log(erfc): the
 * error of L counts only as much as erfc does, and L(4) is −18. From 4 on the result is 1. */
static inline vf vf_erf(vf x)
{
    static const float p[] = {0x1.496a30p-14f, -0x1.a3f700p-11f, 0x1.5405b2p-8f, -0x1.b7f90cp-6f,
                              0x1.ce2cf8p-4f,  -0x1.81273ep-2f,  0x1.06eba8p-3f}; /* 2⁻²⁹·⁶ */
    static const float l[] = {-0x1.6bd7d4p-16f, 0x1.cec5f6p-12f, -0x1.138cb8p-8f,
                              0x1.9d0302p-6f,   -0x1.bc1514p-4f, -0x1.443566p-1f,
                              -0x1.212c0cp+0f,  0x1.8a571ep-13f}; /* 2⁻³⁵ of 1 */
    const vf a = vf_abs(x), b = vf_min(vf_splat(4.0f), a);
    const vf small = vf_fma(vf_poly(x * x, p, 7), x, x);
    const vf large = vf_with_sign(1.0f - vf_exp_near(vf_poly(b, l, 8)), x);
    return vf_pick(vf_less(a, vf_splat(1.0f)), small, large);
}

/* With m = (e²ˣ − 1)/2, tanh x = m/(m + 1) for x ≥ 0: nothing cancels, and the error of m vanishes
 * as the quotient approaches 1. For x = n·½ ln 2 + h, m = 2ⁿ·(e²ʰ − 1)/2 + (2ⁿ − 1)/2. From 9.02 on
 * the result is 1. */
static inline vf vf_tanh(vf x)
{
    static const float c[] = {0x1.a1a930p-7f, 0x1.6d7b7cp-5f, 0x1.11108ap-3f,
                              0x1.5554a8p-2f, 0x1.555556p-1f, 0x1.000000p+0f}; /* as in expm1 */
    const vf a = vf_min(vf_splat(10.0f), vf_abs(x));
    const vf_whole w = vf_nearest(a, 0.5f, 127);
    const vf h = w.r, s = (vf)((vu)w.t << 23), whole = vf_fma(s, vf_splat(0.5f), vf_splat(-0.5f));
    const vf m = vf_fma(vf_fma(vf_poly(h, c, 6), h * h, h), s, whole);
    return (vf)((vi)(m / (m + 1.0f)) | ((vi)x & INT32_MIN));
}

/* eˣ for x that is negative, or not far above 0. For x = n·ln 2 + r it is 2ⁿ⁺⁶⁴·eʳ times 2⁻⁶⁴,
 * which underflows gradually: n is from −150, so that one factor is enough, unlike in exp. */
static inline vf vf_exp_down(vf x)
{
#ifdef FXI_SCALE_F32
    return vf_exp_scaled(vf_max(vf_splat(-104.0f), x));
#else
    const vf_whole w = vf_nearest(vf_max(vf_splat(-104.0f), x), 1, 127 + 64);
    const vf s = (vf)((vu)w.t << 23);
    return vf_fma(vf_exp_less_one(w.r), s, s) * 0x1p-64f;
#endif
}

/* 1/(1 + e⁻ˣ). With e = exp(−|x|) this is 1/(1 + e) or e/(1 + e), in which nothing cancels or
 * overflows. */
static inline vf vf_sigmoid(vf x)
{
    const vf e = vf_exp_down(-vf_abs(x));
    return vf_pick(vf_less(x, vf_splat(0.0f)), e, vf_splat(1.0f)) / (1.0f + e);
}
