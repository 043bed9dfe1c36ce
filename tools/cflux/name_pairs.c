/* name_pairs.c: a growing list of names and objects: see name_pairs.h. */
#include "name_pairs.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void pairs_add(name_pairs *p, const char *name, const void *object)
{
    const size_t size = strlen(name) + 1;
    char *copy = malloc(size);
    if (copy)
        memcpy(copy, name, size);
    if (p->n + 2 > p->capacity) {
        const int capacity = 2 * p->capacity + 16;
        const void **more = realloc(p->items, (size_t)capacity * sizeof *more);
        p->items = more ? more : p->items;
        p->capacity = more ? capacity : p->capacity;
    }
    if (!copy || p->n + 2 > p->capacity) {
        free(copy);
        p->failed = true;
        return;
    }
    p->items[p->n++] = copy;
    p->items[p->n++] = object;
}

void pairs_free(name_pairs *p)
{
    for (int i = 0; i < p->n; i += 2)
        free((void *)(uintptr_t)p->items[i]);
    free(p->items);
    *p = (name_pairs){0};
}
