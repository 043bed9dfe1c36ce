/* name_pairs.h: a growing list of names and objects, as fxi_save and fxi_named_pairs take it. */
#ifndef CFLUX_TOOL_NAME_PAIRS_H
#define CFLUX_TOOL_NAME_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct name_pairs {
    const void **items; /* name (a copy), object, name, object, … */
    int n, room;        /* items, two for each pair */
    bool failed;        /* memory was out */
} name_pairs;

void pairs_add(name_pairs *p, const char *name, const void *object);
/* The first `length` bytes of the name. */
void pairs_add_part(name_pairs *p, const char *name, size_t length, const void *object);
bool pairs_have(const name_pairs *p, const char *name);
void pairs_free(name_pairs *p);

#endif
