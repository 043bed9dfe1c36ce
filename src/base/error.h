/* error.h: internals of error records. */
#ifndef CFLUX_ERROR_H
#define CFLUX_ERROR_H

#include <cflux/base.h>

/* Where the innermost scope of this thread was opened; part of records. */
void fxi_error_where(const char *file, int line);

/* Puts a record back (a worker's, in the thread that waited for it) unless one is there already.
 * One without a place gets the thread's. */
void fxi_error_put(const fx_error *error);

#endif
