/* error.h: internals of error records. */
#ifndef CFLUX_ERROR_H
#define CFLUX_ERROR_H

#include <cflux/base.h>

/* Where the innermost scope of this thread was opened; part of records. */
void fxi_error_where(const char *file, int line);

/* The place of the program's last macro of ours, "file:line"; NULL: none yet (base.h). The library
 * itself is compiled with FXI_INSIDE, so that its own macros leave it alone. */
extern FX_API _Thread_local const char *fxi_place;

/* fx_fail with a text that is no format. */
fx_status fxi_fail_text(fx_status status, const char *operation, const char *text);

/* Puts a record back (a worker's, in the thread that waited for it) unless one is there already.
 * One without a place gets the thread's. */
void fxi_error_carry(const fx_error *error);

/* Between the two calls the record has what went wrong since the first; the second returns the
 * status of that, and puts an earlier record back in its place. For calls that cannot say
 * themselves that they failed. */
fx_error fxi_error_begin(void);
fx_status fxi_error_end(const fx_error *earlier);

#endif
