/* entries.h: the arrays of objects under the names of their paths. Internal.
 *
 * Formats of arrays (safetensors, NumPy, checkpoints) see a model as a list of names and arrays. A
 * name is the path that fx_visit gives, "layers.0.weight", after the object's own name and a dot.
 * Unlike there, an array that is reached twice has both its names: whoever loads one finds it.
 */
#ifndef CFLUX_ENTRIES_H
#define CFLUX_ENTRIES_H

#include "file_out.h"

#include <cflux/tree.h>

typedef struct fxi_entry {
    char *name;
    fx_array *array;      /* borrowed */
    const fx_type *owner; /* of the object whose field it is; NULL: none, or not known */
} fxi_entry;

typedef struct fxi_entries {
    const char *op; /* for messages */
    fxi_entry *items;
    int32_t n, capacity;
    fx_status status;    /* the first failure, which is recorded */
    fx_naming_fn naming; /* NULL: fields go by their names */
} fxi_entries;

/* Why an object is an error object; one that is no array does not say, but the record does. */
fx_status fxi_status_of_error(const void *object);

/* Adds one, or every array of an object; `name` may be empty. */
fx_status fxi_entries_add(fxi_entries *e, const char *name, fx_array *array);
fx_status fxi_entries_walk(fxi_entries *e, const char *name, void *object);
/* FX_STATUS_ARGUMENT when two have one name, or one has none. */
fx_status fxi_entries_unique(fxi_entries *e);
const fxi_entry *fxi_entries_find(const fxi_entries *e, const char *name); /* NULL: none */
/* The arrays as a named tuple, owned by the scope; an error array when something failed. */
void *fxi_entries_tuple(fxi_entries *e);
void fxi_entries_free(fxi_entries *e);

/* The elements of an array into a file, dense and column-major. */
fx_status fxi_write_elements(fxi_file_out *out, fx_array *x);

/* The arrays of `file`, a named tuple, that `name` names: itself, or begins; all for "". */
fxi_entries fxi_entries_of(const char *op, void *file, const char *name);
/* The arrays of `file`, a named tuple, whose names begin with `name` and a dot, without that;
 * NULL: none, nothing is recorded. */
void *fxi_entries_below(const char *op, void *file, const char *name);

/* Orders pointers to entries by their names, for qsort and bsearch. */
int fxi_entry_by_name(const void *a, const void *b);
/* Pointers to the entries in the order of their names, to be freed; NULL, recorded, if memory is
 * out. */
const fxi_entry **fxi_entries_sorted(fxi_entries *e);

#endif
