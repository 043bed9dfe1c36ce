/* identity_map.h: a map from addresses to addresses, with which walks over objects remember what
 * they visited. Internal. Open addressing, at most half full. Keys are never NULL, values may be. A
 * zeroed struct is empty.
 */
#ifndef CFLUX_IDENTITY_MAP_H
#define CFLUX_IDENTITY_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fxi_identity_map {
    const void **keys;
    void **values;
    size_t count, capacity; /* capacity: 0 or a power of two */
} fxi_identity_map;

/* Where the key is, or the free entry where it belongs. The map must have a capacity. Addresses are
 * multiples of 16; they are multiplied by an odd constant (Fibonacci hashing, Knuth volume 3, 6.4)
 * and the high bits are used. */
static inline size_t fxi_identity_at(const fxi_identity_map *map, const void *key)
{
    const uint64_t h = (uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 32) & (map->capacity - 1);
    while (map->keys[i] && map->keys[i] != key)
        i = (i + 1) & (map->capacity - 1);
    return i;
}
/* Looks key up; *out_value is NULL if it is absent. */
static inline bool fxi_identity_get(const fxi_identity_map *map, const void *key, void **out_value)
{
    const size_t i = map->capacity ? fxi_identity_at(map, key) : 0;
    const bool found = map->capacity && map->keys[i];
    *out_value = found ? map->values[i] : NULL;
    return found;
}
/* Adds or replaces a value; false if the allocation fails (not recorded). */
bool fxi_identity_put(fxi_identity_map *map, const void *key, void *value);
void fxi_identity_free(fxi_identity_map *map);

#endif
