/* entries_load.h: copies the arrays of a file into an object, matched by name. Internal. */
#ifndef CFLUX_ENTRIES_LOAD_H
#define CFLUX_ENTRIES_LOAD_H

#include "entries.h"

/* Gives every array of `to` the value of the array with the same name in `from`. Nothing changes
 * unless both have the same names and sizes. `source` names `from` in messages. */
fx_status fxi_entries_assign(const char *source, fxi_entries *to, fxi_entries *from);
/* Copies arrays of `file` (a named tuple) into `object`. Each array of `object` has the name that
 * fx_save gives it when `object` is saved as `name`. Nothing changes unless all names are present
 * with the right sizes and `file` has no further array under `name`, except numbers of optimiser
 * states. */
fx_status fxi_entries_load(const char *op, const char *path, void *file, const char *name,
                           void *object);
/* Copies arrays of `from` into the arrays of `to` that have the same name and sizes; all other
 * arrays stay unchanged. Returns the report of fx_load_matching, or an error array:
 * FX_STATUS_FORMAT if `to` has arrays, but none matches. */
void *fxi_entries_match(const char *source, fxi_entries *to, fxi_entries *from);
/* Have both lists the same names and sizes, if b's entry `except` (−1: none) is left out? False if
 * out of memory, which is recorded in the lists. */
bool fxi_entries_alike(fxi_entries *a, fxi_entries *b, int32_t except);

#endif
