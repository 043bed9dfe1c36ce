/* error.h: how the library records errors and their locations. Internal. */
#ifndef CFLUX_ERROR_H
#define CFLUX_ERROR_H

#include <cflux/base.h>

/* Sets the location where the innermost scope of this thread was opened; error records include it.
 */
void fxi_error_where(const char *file, int line);

/* The location ("file:line") of the latest call of a cflux macro by the program; NULL before the
 * first call (base.h). The library is compiled with FXI_INSIDE, so that its own calls do not change
 * it. */
#ifdef _WIN32 /* not exported: call_site_windows.c */
extern _Thread_local const char *fxi_call_site;
#else
extern FX_API _Thread_local const char *fxi_call_site;
#endif

/* Until the C block ends, errors of this thread name the operation `name` instead of the operations
 * that it calls: fx_clamp calls fx_lt and fx_where, but its messages begin with "clamp: ". The
 * outermost name counts. For blocks that call no functions of the program. */
#define FXI_OPERATION(name)                                                                        \
    const char *const fxi_operation_before __attribute__((cleanup(fxi_operation_end), unused)) =   \
        fxi_operation_begin(name)
const char *fxi_operation_begin(const char *name);
void fxi_operation_end(const char *const *before);

/* The status of this thread's latest call of fx_fail; FX_OK before the first. The record may hold
 * an earlier failure. */
fx_status fxi_error_latest(void);

/* Is this thread inside the program's message hook? */
bool fxi_in_message_hook(void);

/* fx_fail with a text that is not a format. */
fx_status fxi_fail_text(fx_status status, const char *operation, const char *text);

/* FX_STATUS_ARGUMENT if the number `n` of elements is negative, or if there are elements and the
 * list is NULL. `what` names the elements, such as "arrays". */
fx_status fxi_refuse_list(const char *operation, const char *what, int64_t n);
static inline fx_status fxi_check_list(const char *operation, const char *what, int64_t n,
                                       const void *list)
{
    return n == 0 || (n > 0 && list) ? FX_OK : fxi_refuse_list(operation, what, n);
}

/* Stores a worker's record in the thread that waited for the worker, unless that thread has a
 * record. A record without a location gets the thread's. */
void fxi_error_carry(const fx_error *error);

/* For functions that do not return a status. Between the two calls the record holds the first
 * failure since the first call. The second call returns its status; if there was an earlier
 * failure, it becomes the record again. */
fx_error fxi_error_begin(void);
fx_status fxi_error_end(const fx_error *earlier);

#endif
