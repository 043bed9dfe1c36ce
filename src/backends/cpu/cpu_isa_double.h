/* cpu_isa_double.h: functions of Float64 vectors; part of cpu_isa.h.
 *
 * The methods are those of cpu_isa_math.h with more terms, and the rounding error of a reduced
 * argument is added where it would show. Every function is within 2 ulp, with NaN, Inf, denormals
 * and −0 as C has them (tests/unit/test_cpu_double.c measures it for each instruction set). The C
 * library's functions take 5 to 20 ns an element; with AVX2 these take 1.3 to 2.7. All polynomials
 * are minimax fits of our own (Remez exchange), each with its largest error. Integers of 64 bits
 * are only added, shifted and masked (cpu_isa_wide.h).
 */

/* ln 2 in two parts, the first of 42 bits: its product with a whole number below 2¹¹ is exact. */
#define LN2_HIGH_F64 0x1.62e42fefa38p-1
#define LN2_LOW_F64  0x1.ef35793c7673p-45
#define ONE_BITS     (UINT64_C(1023) << 52)       /* the bits of 1 */
#define ROOT_BITS    UINT64_C(0x3fe6a09e667f3bcd) /* the bits of √½ */
#define EXPONENT_F64 (UINT64_C(0xfff) << 52)

/* x = n·ln 2 + r + lost with |r| ≤ ½ ln 2, where `lost` is the rounding error of r. NaN stays in r.
 * `bias` is added to n before it is stored in t: the lowest bits of t are the exponent's bits of
 * 2^(n + bias − 1023). */
typedef struct vd_whole {
    vd r, lost, t;
} vd_whole;
static inline vd_whole vd_nearest(vd x, double bias)
{
    const vd magic = vd_splat(ROUND_F64 + bias);
    const vd t = vd_fma(x, vd_splat(0x1.71547652b82fep+0), magic), n = t - magic;
    const vd exact = vd_fma(n, vd_splat(-LN2_HIGH_F64), x);
    const vd r = vd_fma(n, vd_splat(-LN2_LOW_F64), exact);
    return (vd_whole){r, vd_fma(n, vd_splat(-LN2_LOW_F64), exact - r), t};
}

/* eʳ − 1 − r + more for |r| ≤ ½ ln 2. With r as `more` this is eʳ − 1. With `lost` as `more`, the
 * caller adds r, which gives eʳ⁺ˡᵒˢᵗ − 1 with a smaller error. */
static inline vd vd_tail(vd r, vd more)
{
    static const double c[] = {0x1.1e3d1a8d6a274p-29,
                               0x1.af6be782b616bp-26,
                               0x1.27e5b4522a57ap-22,
                               0x1.71ddf021104a2p-19,
                               0x1.a01a01368a1f7p-16,
                               0x1.a01a01b37e17fp-13,
                               0x1.6c16c16c3049cp-10,
                               0x1.111111110ec5ep-7,
                               0x1.5555555555503p-5,
                               0x1.555555555555bp-3,
                               0x1.0p-1}; /* 2⁻⁶⁴ of eʳ */
    return vd_fma(vd_poly(r, c, 11), r * r, more);
}

/* r and lost of vd_whole, and 2ⁿ as the product of two numbers, since 2ⁿ itself may be denormal or
 * overflow. */
typedef struct vd_parts {
    vd r, lost;
    vl scale[2];
} vd_parts;

/* The limits least and most, which are whole numbers above −1024 and below 1024, keep the exponents
 * of both factors in range; beyond them the result is 0, Inf or constant anyway. */
static inline vd_parts vd_reduce(vd x, double least, double most)
{
    x = vd_max(vd_splat(least), vd_min(vd_splat(most), x));
    const vd_whole w = vd_nearest(x, 2 * 1023);
    const vl half = (vl)w.t >> 1, rest = (vl)w.t - half;
    return (vd_parts){w.r, w.lost, {half << 52, rest << 52}};
}

/* eˣ. The two factors are multiplied one after the other, so that the product overflows to Inf or
 * underflows gradually. The limits change no result: e⁻⁷⁴⁶ is less than half of the smallest
 * denormal, 2⁻¹⁰⁷⁴, and e⁷¹⁰ is larger than the largest number. */
static inline vd vd_exp(vd x)
{
    /* s + s·(eʳ − 1) is rounded once, as 1 + (eʳ − 1) would be, since s is a power of two. `lost`
     * is at most a quarter of an ulp of eʳ. */
    const vd_parts p = vd_reduce(x, -746.0, 710.0);
    const vd s = (vd)p.scale[0];
    return vd_fma(vd_tail(p.r, p.r), s, s) * (vd)p.scale[1];
}

/* eˣ − 1 = 2ⁿ·((eʳ − 1) + (1 − 2⁻ⁿ)): nothing cancels, and for n = 0 the second part is 0. Below
 * −40 the result is −1. The sum of 1 − 2⁻ⁿ and r is split into its rounded value and the rest. */
static inline vd vd_expm1(vd x)
{
    const vd_parts p = vd_reduce(x, -40.0, 710.0);
    const vd inverse = (vd)(2 * ONE_BITS - p.scale[0]) * (vd)(2 * ONE_BITS - p.scale[1]);
    const vd base = 1.0 - inverse, sum = base + p.r;
    const vd rest =
        vd_pick(vd_less(vd_abs(base), vd_abs(p.r)), base - (sum - p.r), p.r - (sum - base));
    const vd y = sum + (vd_tail(p.r, p.lost) + rest);
    return vd_with_sign(y * (vd)p.scale[0] * (vd)p.scale[1], x);
}

/* x = 2ᵏ·m with √½ ≤ m < √2, of a normal x > 0; `bits` are those of 2ᵏ less those of 1. */
typedef struct vd_log_split {
    vd k, m;
    vl bits;
} vd_log_split;
static inline vd_log_split vd_split(vd x)
{
    const vl above = (vl)x - ROOT_BITS, bits = above & EXPONENT_F64;
    const vl biased = (above + ONE_BITS) >> 52;
    const vd k = (vd)(biased | (vl)vd_splat(INT_IN_F64)) - (INT_IN_F64 + 1023);
    return (vd_log_split){k, (vd)((vl)x - bits), bits};
}

/* k·ln 2 + log(1 + f) for √½ ≤ 1 + f < √2. With s = f/(2 + f), log(1 + f) = 2s + s·R(s²) is f −
 * (f²/2 − s·(f²/2 + R)), in which the largest term is exact. */
static inline vd vd_log_parts(vd k, vd f)
{
    static const double c[] = {0x1.2f063502597d9p-3, 0x1.39a1a712f1209p-3, 0x1.74663f9f5e20ap-3,
                               0x1.c71c52061ea12p-3, 0x1.24924941f4d2ep-2, 0x1.999999997fd7bp-2,
                               0x1.5555555555592p-1}; /* 2⁻⁵⁹ */
    const vd s = f / (2.0 + f), z = s * s, square = 0.5 * f * f;
    const vd small = vd_fma(s, vd_fma(vd_poly(z, c, 7), z, square), k * LN2_LOW_F64);
    return vd_fma(k, vd_splat(LN2_HIGH_F64), f - (square - small));
}

/* y; but −Inf where x is `zero`, NaN where x is less, and x itself where x is Inf or NaN. */
static inline vd vd_log_ends(vd x, vd y, double zero)
{
    y = vd_pick(vd_same(x, vd_splat(zero)), vd_splat(-INFINITY), y);
    y = vd_pick(vd_less(x, vd_splat(zero)), vd_splat(NAN), y);
    return vd_pick(vd_less(x, vd_splat(INFINITY)), y, x);
}

/* Denormals are scaled up first, because their bits have no exponent. 2⁵⁴ makes even the smallest
 * one, 2⁻¹⁰⁷⁴, a normal number, and is exact. */
static inline vd vd_log(vd x)
{
    const vd_mask denormal = vd_less(x, vd_splat(DBL_MIN));
    const vd_log_split p = vd_split(vd_pick(denormal, x * 0x1p54, x));
    const vd k = vd_pick(denormal, p.k - 54.0, p.k);
    return vd_log_ends(x, vd_log_parts(k, p.m - 1.0), 0.0);
}

/* log(u + lost) for u = 1 + x rounded, where `lost` is the exact rounding error: it is added to f
 * as lost·2⁻ᵏ, so that for small x f is x itself. Beyond 2⁶⁰ it does not count, and 2⁻ᵏ may not
 * exist. */
static inline vd vd_log1p(vd x)
{
    const vd u = 1.0 + x;
    const vd_log_split p = vd_split(u);
    const vd lost = vd_pick(vd_less(vd_splat(1.0), x), 1.0 - (u - x), x - (u - 1.0));
    const vd rest =
        vd_pick(vd_less(x, vd_splat(0x1p60)), lost * (vd)(ONE_BITS - p.bits), vd_splat(0.0));
    return vd_with_sign(vd_log_ends(x, vd_log_parts(p.k, (p.m - 1.0) + rest), -1.0), x);
}

/* With m = e²ˣ − 1, tanh x = m/(m + 2) for x ≥ 0: nothing cancels. For 2x = n·ln 2 + r, m = 2ⁿ·(eʳ
 * − 1) + (2ⁿ − 1). The rounding of m + 2 loses up to half an ulp (`lost`); the quotient y is
 * corrected by its derivative times this error. For y ≥ ¾ the result is 1 − 2/(m + 2), where errors
 * of m and of the quotient count little; from 19.1 on it is 1. */
static inline vd vd_tanh(vd x)
{
    const vd a = vd_min(vd_splat(20.0), vd_abs(x));
    const vd_whole w = vd_nearest(a + a, 1023);
    const vd s = (vd)((vl)w.t << 52), m = vd_fma(w.r + vd_tail(w.r, w.lost), s, s - 1.0);
    const vd_mask large = vd_less(vd_splat(6.0), m);
    const vd sum = m + 2.0, lost = m - (sum - 2.0);
    const vd y = vd_pick(large, vd_splat(-2.0), m) / sum;
    return vd_with_sign(
        vd_pick(large, y + 1.0, vd_fma(y * lost, vd_fma(y, vd_splat(0.5), vd_splat(-0.5)), y)), x);
}

/* 1/(1 + e⁻ˣ) for x ≥ 0, with the roundings of `ref` and of the other backends: near 1 few bits of
 * 1 − y are left, and derivatives magnify each difference in them. For x < 0: e/(1 + e) with e =
 * eˣ. There the rounding of 1 + e loses up to half an ulp (`lost`), and the last line corrects y by
 * its derivative times this error. For x = n·ln 2 + r, e is 2ⁿ⁺⁶⁴·eʳ times 2⁻⁶⁴, which underflows
 * gradually. */
static inline vd vd_sigmoid(vd x)
{
    const vd_mask negative = vd_less(x, vd_splat(0.0));
    const vd_whole w = vd_nearest(vd_max(vd_splat(-746.0), -vd_abs(x)), 1023 + 64);
    /* n is from −1077 to 0, so that one factor is enough, unlike in exp. */
    const vd s = (vd)((vl)w.t << 52);
    const vd e = vd_fma(w.r + vd_tail(w.r, w.lost), s, s) * 0x1p-64;
    const vd sum = 1.0 + e, lost = e - (sum - 1.0);
    const vd y = vd_pick(negative, e, vd_splat(1.0)) / sum;
    return vd_pick(negative, vd_fma(y * lost, y - 1.0, y), y);
}

/* Returns a − b rounded. *out_lost: the exact rounding error, so that a − b is the result plus
 * *out_lost (Knuth). */
static inline vd vd_difference(vd a, vd b, vd *out_lost)
{
    const vd d = a - b, back = d - a;
    *out_lost = (a - (d - back)) - (b + back);
    return d;
}

/* sin x for ahead 0, cos x for ahead 1. With x = n·π/2 + r and |r| ≤ π/4 it is ± sin r if n + ahead
 * is even, else ± cos r. Near a multiple of π/2 nearly all digits cancel, so π/2 has four parts;
 * the first three have 32 bits, and n at most 21, so their products are exact, and so is the first
 * difference. For |x| ≤ 2²⁰ the rest has a relative error of 2⁻⁶⁰ at most; `low` is what r cannot
 * hold. In the cosine, 1 − z/2 is split into its rounded value and the rest. */
static inline vd vd_quadrants(vd x, uint64_t ahead)
{
    static const double s[] = {0x1.5d8fba729c0ebp-33, -0x1.ae5e5a4425390p-26,
                               0x1.71de3567744fcp-19, -0x1.a01a019bfd865p-13,
                               0x1.111111110f7cdp-7,  -0x1.5555555555548p-3}; /* 2⁻⁵⁸ */
    static const double c[] = {-0x1.8fa4820a58fddp-37, 0x1.1ee9d7885424ap-29,
                               -0x1.27e4f7ea85e7dp-22, 0x1.a01a019c83fc4p-16,
                               -0x1.6c16c16c14f8ep-10, 0x1.555555555554bp-5}; /* 2⁻⁶⁴ */
    static const double half_pi[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e0p-69,
                                     0x1.b839a252049c1p-104};
    vd lost[2];
    const vd t = vd_fma(x, vd_splat(0x1.45f306dc9c883p-1), vd_splat(ROUND_F64)), n = t - ROUND_F64;
    vd r = vd_fma(n, vd_splat(-half_pi[0]), x);
    r = vd_difference(r, n * half_pi[1], &lost[0]);
    r = vd_difference(r, n * half_pi[2], &lost[1]);
    const vd rest = (lost[0] + lost[1]) - n * half_pi[3], sum = r + rest, low = rest - (sum - r);
    const vd z = sum * sum, half = 0.5 * z, one = 1.0 - half;
    const vd sine = sum + vd_fma(vd_poly(z, s, 6), z * sum, low);
    const vd cosine = one + (((1.0 - one) - half) + vd_fma(vd_poly(z, c, 6), z * z, -sum * low));
    const vl quadrant = (vl)t + ahead;
    /* The lowest bit becomes an exponent: 0 or 2, which vectors of doubles can compare. */
    const vd_mask odd = vd_less(vd_splat(0.0), (vd)(quadrant << 63 >> 1));
    return (vd)((vl)vd_pick(odd, cosine, sine) ^ ((quadrant & 2) << 62));
}

/* The sums above give +0 for −0. */
static inline vd vd_near_sin(vd x)
{
    return vd_pick(vd_same(x, vd_splat(0.0)), x, vd_quadrants(x, 0));
}

FXI_VECTOR_LOOP(double_exp, double, vd, 1, vd_exp(u))
FXI_VECTOR_LOOP(double_expm1, double, vd, 1, vd_expm1(u))
FXI_VECTOR_LOOP(double_log, double, vd, 1, vd_log(u))
FXI_VECTOR_LOOP(double_log1p, double, vd, 1, vd_log1p(u))
FXI_VECTOR_LOOP(double_tanh, double, vd, 1, vd_tanh(u))
FXI_VECTOR_LOOP(double_sigmoid, double, vd, 1, vd_sigmoid(u))
FXI_VECTOR_LOOP(double_near_sin, double, vd, 1, vd_near_sin(u))
FXI_VECTOR_LOOP(double_near_cos, double, vd, 1, vd_quadrants(u, 1))
FXI_ANGLE_LOOP(double_sin, double, double_near_sin, sin, fabs)
FXI_ANGLE_LOOP(double_cos, double, double_near_cos, cos, fabs)
