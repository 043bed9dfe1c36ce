/* half.h: converts Float16 (IEEE 754 binary16) and BFloat16 from and to Float32, by bit operations:
 * round to nearest even, NaN stays NaN, denormals are kept.
 *
 * Float64 → Float32 → Float16 would round twice. So Float64 and Int64 are first rounded "to odd":
 * an inexact Float32 gets an odd last bit, which keeps the information that it was inexact, so that
 * the rounding to 16 bits is the only one (Boldo and Melquiond, "Emulation of FMA and correctly
 * rounded sums", 2008). This has no branches on data, so loops over it become vector code.
 */
#ifndef CFLUX_HALF_H
#define CFLUX_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t fxi_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float fxi_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float fxi_bf16_to_f32(uint16_t h)
{
    return fxi_float((uint32_t)h << 16);
}
static inline uint16_t fxi_f32_to_bf16(float f)
{
    const uint32_t u = fxi_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

static inline float fxi_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3FFu;
    if (e == 31)
        return fxi_float(sign | 0x7F800000u | (m << 13));
    if (e == 0) { /* zero and denormals: m·2^−24 */
        const float v = (float)m * 0x1p-24f;
        return sign ? -v : v;
    }
    return fxi_float(sign | ((e + 112u) << 23) | (m << 13));
}
static inline uint16_t fxi_f32_to_f16(float f)
{
    const uint32_t u = fxi_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | ((a >> 13) & 0x3FFu));
    if (a >= 0x477FF000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (a < 0x38800000u) /* below 2^−14: adding 0.5 lines the bits up and rounds to even */
        return (uint16_t)(sign | (fxi_bits(fxi_float(a) + 0.5f) - 0x3F000000u));
    return (uint16_t)(sign | ((a - 0x38000000u + 0xFFFu + ((a >> 13) & 1u)) >> 13));
}

/* Converts x to Float32, rounding to odd. */
static inline float fxi_f64_to_odd(double x)
{
    const float r = (float)x;
    const double back = (double)r;
    const uint32_t u = fxi_bits(r);
    /* An inexact r with an even last bit is replaced by its odd neighbour on the other side of x:
     * the next number towards zero if |r| > |x|, else away from zero. */
    const uint32_t neighbour = __builtin_fabs(back) > __builtin_fabs(x) ? u - 1u : u + 1u;
    const int inexact = back < x || back > x;
    return fxi_float(inexact && !(u & 1u) ? neighbour : u);
}

/* The same for an integer. An integer beyond ±2^53 may not fit in a double: bit 11, far below the
 * last bit of the Float32, then says that some of the bits below it were set. */
static inline float fxi_i64_to_odd(int64_t x)
{
    const int64_t most = INT64_C(1) << 53, low = x & 2047;
    const bool large = x > most || x < -most;
    return fxi_f64_to_odd((double)(large ? (x - low) | (low ? 2048 : 0) : x));
}

#endif
