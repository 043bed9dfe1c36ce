/* hash.h: a hash of bytes, for tables in memory and for finding damaged files. Internal.
 *
 * FNV-1a, followed by a mix of its bits. It finds accidental damage. It is not cryptographic: two
 * texts with the same hash can be constructed.
 */
#ifndef CFLUX_HASH_H
#define CFLUX_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t fxi_hash(const void *bytes, size_t size, uint64_t seed)
{
    const uint8_t *b = bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < size; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

#endif
