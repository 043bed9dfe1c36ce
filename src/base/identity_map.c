/* identity_map.c: a hash table with linear probing over two plain arrays; see identity_map.h. Walks
 * over models hold tens to thousands of arrays, so nothing more is needed. Addresses are multiples
 * of 16; they are multiplied by an odd constant (Fibonacci hashing, Knuth volume 3, 6.4) and the
 * high bits are used.
 */
#include "identity_map.h"
#include "memory.h"

#include <stdint.h>

static size_t position_of(const fxi_identity_map *map, const void *key)
{
    const uint64_t h = (uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 32) & (map->capacity - 1);
    while (map->keys[i] && map->keys[i] != key)
        i = (i + 1) & (map->capacity - 1);
    return i;
}

bool fxi_identity_get(const fxi_identity_map *map, const void *key, void **out_value)
{
    *out_value = NULL;
    if (map->capacity == 0)
        return false;
    const size_t i = position_of(map, key);
    if (!map->keys[i])
        return false;
    *out_value = map->values[i];
    return true;
}

static bool grow(fxi_identity_map *map)
{
    const size_t capacity = map->capacity ? 2 * map->capacity : 32;
    fxi_identity_map bigger = {.capacity = capacity};
    bigger.keys = fxi_calloc(capacity, sizeof *bigger.keys);
    bigger.values = fxi_calloc(capacity, sizeof *bigger.values);
    if (!bigger.keys || !bigger.values) {
        fxi_identity_free(&bigger);
        return false;
    }
    for (size_t i = 0; i < map->capacity; i++)
        if (map->keys[i])
            fxi_identity_put(&bigger, map->keys[i], map->values[i]);
    fxi_identity_free(map);
    *map = bigger;
    return true;
}

bool fxi_identity_put(fxi_identity_map *map, const void *key, void *value)
{
    if (2 * (map->count + 1) > map->capacity && !grow(map))
        return false;
    const size_t i = position_of(map, key);
    map->count += !map->keys[i];
    map->keys[i] = key;
    map->values[i] = value;
    return true;
}

void fxi_identity_free(fxi_identity_map *map)
{
    fxi_free((void *)map->keys);
    fxi_free(map->values);
    *map = (fxi_identity_map){0};
}
