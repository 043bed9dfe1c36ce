/* entries_load.h: arrays of a file into an object, by their names. Internal. */
#ifndef CFLUX_ENTRIES_LOAD_H
#define CFLUX_ENTRIES_LOAD_H

#include "entries.h"

/* Gives every array of `to` the value of that of the same name in `from`, all or nothing as below.
 * `source`: what `from` is, for messages. */
fx_status fxi_entries_assign(const char *source, fxi_entries *to, fxi_entries *from);
/* Gives the arrays of `object` the values of the arrays of `file`, a named tuple, that are called
 * as they would be saved under `name`. Nothing changes unless all of them are there, with the right
 * sizes, and no other array of that name is. */
fx_status fxi_entries_load(const char *op, const char *path, void *file, const char *name,
                           void *object);

#endif
