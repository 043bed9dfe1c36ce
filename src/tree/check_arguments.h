/* check_arguments.h: names and objects that were given in the wrong order. Internal. */
#ifndef CFLUX_CHECK_ARGUMENTS_H
#define CFLUX_CHECK_ARGUMENTS_H

#include <cflux/base.h>

/* For functions that take names and objects in turn, after `before` other arguments. An object
 * where a name is expected, and a text where an object is, are errors that say which argument it
 * is. NULL passes: whether it is an error is the caller's to say. */
fx_status fxi_check_pairs(const char *op, int before, int n, const void *const *names_and_objects);
/* The same for one text, and for n objects. */
fx_status fxi_check_text(const char *op, int argument, const char *expected, const void *text);
fx_status fxi_check_objects(const char *op, int before, int n, const void *const *objects);

#endif
