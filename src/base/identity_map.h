/* identity_map.h: a map from addresses to addresses, with which walks over objects remember what
 * they visited. Internal. Open addressing, at most half full. Keys are never NULL, values may be. A
 * zeroed struct is empty.
 */
#ifndef CFLUX_IDENTITY_MAP_H
#define CFLUX_IDENTITY_MAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fxi_identity_map {
    const void **keys;
    void **values;
    size_t count, capacity; /* capacity: 0 or a power of two */
} fxi_identity_map;

/* Looks key up; *out_value is NULL if it is absent. */
bool fxi_identity_get(const fxi_identity_map *map, const void *key, void **out_value);
/* Adds or replaces a value; false if the allocation fails (not recorded). */
bool fxi_identity_put(fxi_identity_map *map, const void *key, void *value);
void fxi_identity_free(fxi_identity_map *map);

#endif
