/* object_set.c: a set of visited objects: a hash table of addresses with linear probing. */
#include "object_set.h"
#include <stdint.h>
#include <stdlib.h>

static size_t index_of(const object_set *set, const void *object)
{
    const uint64_t hash = (uint64_t)(uintptr_t)object * 0x9E3779B97F4A7C15u; /* Knuth, 6.4 */
    size_t i = (size_t)(hash >> 32) & (set->capacity - 1);
    while (set->objects[i] && set->objects[i] != object)
        i = (i + 1) & (set->capacity - 1);
    return i;
}

bool object_set_has(const object_set *set, const void *object)
{
    return set->capacity && set->objects[index_of(set, object)];
}

static bool grow(object_set *set)
{
    object_set more = {.capacity = set->capacity ? 2 * set->capacity : 64};
    more.objects = calloc(more.capacity, sizeof *more.objects);
    for (size_t i = 0; more.objects && i < set->capacity; i++)
        if (set->objects[i])
            object_set_add(&more, set->objects[i]);
    if (!more.objects)
        return false;
    free(set->objects);
    *set = more;
    return true;
}

bool object_set_add(object_set *set, const void *object)
{
    if (2 * (set->n + 1) > set->capacity && !grow(set))
        return false;
    const size_t i = index_of(set, object);
    set->n += !set->objects[i];
    set->objects[i] = object;
    return true;
}

void object_set_free(object_set *set)
{
    free(set->objects);
    *set = (object_set){0};
}
