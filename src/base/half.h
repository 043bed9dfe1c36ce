/* half.h: converts Float16 (IEEE 754 binary16) and BFloat16 from and to Float32, by bit operations:
 * round to nearest even, NaN stays NaN, denormals are kept.
 */
#ifndef CFLUX_HALF_H
#define CFLUX_HALF_H

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

#endif
