/* entries.h: lists the arrays of objects under the names of their paths. Internal.
 *
 * The formats that store only arrays (safetensors, NumPy, checkpoints) treat a model as a list of
 * names and arrays. A name is the object's own name, a dot, and the path that fx_visit reports:
 * "layers.0.weight". Unlike in fx_visit, an array that is reached by two paths is listed under both
 * names, so that a reader finds it under either.
 */
#ifndef CFLUX_ENTRIES_H
#define CFLUX_ENTRIES_H

#include "file_out.h"

#include <cflux/tree.h>

typedef struct fxi_entry {
    char *name;
    fx_array *array;      /* borrowed */
    const fx_type *owner; /* type of the object whose field it is; NULL if none, or unknown */
} fxi_entry;

typedef struct fxi_entries {
    const char *op; /* operation name for messages */
    fxi_entry *items;
    int32_t n, capacity;
    fx_status status;    /* the first failure, already recorded */
    fx_naming_fn naming; /* NULL: fields keep their own names */
} fxi_entries;

/* The status of an error object. Only error arrays store it; for others it is taken from the
 * recorded error. */
fx_status fxi_status_of_error(const void *object);

/* Adds one array, or every array of an object; `name` may be empty. */
fx_status fxi_entries_add(fxi_entries *e, const char *name, fx_array *array);
fx_status fxi_entries_walk(fxi_entries *e, const char *name, void *object);
/* FX_STATUS_ARGUMENT if two entries have the same name, or one has no name. */
fx_status fxi_entries_unique(fxi_entries *e);
const fxi_entry *fxi_entries_find(const fxi_entries *e, const char *name); /* NULL: none */
void fxi_entries_remove(fxi_entries *e, int32_t i);
/* The arrays as a named tuple, owned by the scope; an error array after a failure. */
void *fxi_entries_tuple(fxi_entries *e);
void fxi_entries_free(fxi_entries *e);

/* Writes the elements of an array to a file, dense and column-major. */
fx_status fxi_write_elements(fxi_file_out *out, fx_array *x);

/* The arrays of `file` (a named tuple) whose name is `name` or begins with `name` and a dot; all
 * arrays if `name` is "". */
fxi_entries fxi_entries_of(const char *op, void *file, const char *name);
/* The arrays of `file` (a named tuple) whose names begin with `name` and a dot, without that
 * prefix; NULL if there are none (not recorded). */
void *fxi_entries_below(const char *op, void *file, const char *name);

/* Compares entries by name, through pointers, for qsort and bsearch. */
int fxi_entry_by_name(const void *a, const void *b);
/* Pointers to the entries, sorted by name; the caller frees the list. NULL if out of memory
 * (recorded). */
const fxi_entry **fxi_entries_sorted(fxi_entries *e);

#endif
