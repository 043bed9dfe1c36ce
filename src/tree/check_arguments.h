/* check_arguments.h: detects names and objects that a caller passed in the wrong order. Internal.
 */
#ifndef CFLUX_CHECK_ARGUMENTS_H
#define CFLUX_CHECK_ARGUMENTS_H

#include <cflux/base.h>

/* For functions that take alternating names and objects after `before` other arguments. An object
 * where a name is expected, or a text where an object is expected, is an error that gives the
 * number of the argument. NULL passes: the caller decides whether it is an error. */
fx_status fxi_check_pairs(const char *op, int before, int n, const void *const *names_and_objects);
/* The same check for one text, and for n objects. */
fx_status fxi_check_text(const char *op, int argument, const char *expected, const void *text);
fx_status fxi_check_objects(const char *op, int before, int n, const void *const *objects);

#endif
