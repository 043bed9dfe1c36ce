/* identity_map.c: a hash table with linear probing over two plain arrays; see identity_map.h. Walks
 * over models hold tens to thousands of arrays, so nothing more is needed.
 */
#include "identity_map.h"
#include "memory.h"

static bool grow(fxi_identity_map *map)
{
    const size_t capacity = map->capacity ? 4 * map->capacity : 32;
    fxi_identity_map bigger = {.capacity = capacity};
    void **block = fxi_calloc(capacity, 2 * sizeof *block); /* the keys, then the values */
    if (!block)
        return false;
    bigger.keys = (const void **)block;
    bigger.values = block + capacity;
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
    const size_t i = fxi_identity_at(map, key);
    map->count += !map->keys[i];
    map->keys[i] = key;
    map->values[i] = value;
    return true;
}

void fxi_identity_free(fxi_identity_map *map)
{
    fxi_free((void *)map->keys);
    *map = (fxi_identity_map){0};
}
