/* tuples.h: the type of tuples and named tuples. Internal. */
#ifndef CFLUX_TUPLES_H
#define CFLUX_TUPLES_H

#include <cflux/tree.h>

extern const fx_type fxi_tuple_type;

/* Child i; NULL if it does not exist. */
void *fxi_child_or_null(const void *object, int64_t i);

/* Makes `value` child i of an object that nothing else references yet. */
void fxi_child_set(void *object, int64_t i, void *value);

/* Writes `lead` and the first names of the children to dst: "; it has "a", "b", …". Writes "" if no
 * child has a name, or if dst is too short for the first name. For messages. */
void fxi_child_names(const void *object, const char *lead, char *dst, size_t capacity);

/* Compares two pointers into a list of names, for qsort: by text, equal names by position. */
int fxi_by_name(const void *a, const void *b);
/* The number of a name that an earlier name of the list equals; −1 if there is none, −2 if out of
 * memory (not recorded). */
int fxi_repeated_name(int n, const char *const *names);

/* Builds tuples in the shape of x: each object with children becomes a tuple, named if its children
 * have names, and `leaf` replaces everything else, NULL included. Shared objects stay shared. */
void *fxi_mirror(const char *op, void *x, void *(*leaf)(void *x, void *user), void *user);

#endif
