/* object_set.h: a set of visited objects. A zeroed struct is an empty set. */
#ifndef CFLUX_TOOL_OBJECT_SET_H
#define CFLUX_TOOL_OBJECT_SET_H

#include <stdbool.h>
#include <stddef.h>

typedef struct object_set {
    const void **objects; /* at least half of them are NULL */
    size_t n, capacity;   /* capacity: 0 or a power of two */
} object_set;

bool object_set_has(const object_set *set, const void *object);
/* Adds an object; false if out of memory. */
bool object_set_add(object_set *set, const void *object);
void object_set_free(object_set *set);

#endif
