/* name_pairs.h: a growing list of names and objects, in the form that fxi_save and fxi_named_pairs
 * expect. */
#ifndef CFLUX_TOOL_NAME_PAIRS_H
#define CFLUX_TOOL_NAME_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct name_pairs {
    const void **items; /* name (a copy), object, name, object, … */
    int n, capacity;    /* number of items, two per pair; capacity */
    bool failed;        /* out of memory */
} name_pairs;

void pairs_add(name_pairs *p, const char *name, const void *object);
void pairs_free(name_pairs *p);

#endif
