/* identity_map.h: a map from addresses to addresses; what walks remember. Internal.
 *
 * Open addressing, at most half full, keys never NULL, values may be. A zeroed struct is empty.
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

/* Looks key up; *out_value is NULL when it is not there. */
bool fxi_identity_get(const fxi_identity_map *map, const void *key, void **out_value);
/* Adds or replaces; false when memory is out (not recorded). */
bool fxi_identity_put(fxi_identity_map *map, const void *key, void *value);
void fxi_identity_free(fxi_identity_map *map);

#endif
