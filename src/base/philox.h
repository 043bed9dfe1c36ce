/* philox.h: Philox4x32-10, the counter-based generator of all random numbers (Salmon, Moraes, Dror,
 * Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 *
 * A random operation has a key (the seed) and a counter. Element i is word i mod 4 of block i / 4,
 * or, in Float64, one half of block i / 2, which is two words. The block number is the low half of
 * the 128-bit counter. So any element can be computed alone, on any backend, by any thread.
 */
#ifndef CFLUX_PHILOX_H
#define CFLUX_PHILOX_H

#include <stdint.h>

static inline void fxi_philox(uint64_t key, uint64_t hi, uint64_t lo, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32), c2 = (uint32_t)hi,
             c3 = (uint32_t)(hi >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Uniform in [0, 1) with 24 and 53 random bits. */
static inline float fxi_uniform32(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24f;
}
static inline double fxi_uniform64(uint32_t w0, uint32_t w1)
{
    return (double)((((uint64_t)w0 << 32) | w1) >> 11) * 0x1p-53;
}

#endif
