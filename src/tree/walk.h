/* walk.h: a visit that reports tied arrays. Internal. */
#ifndef CFLUX_WALK_H
#define CFLUX_WALK_H

#include <cflux/tree.h>

/* Like fx_visit, without the paths, which cost time. `of` is the array of the same object that x is
 * a view of, and that is not a view itself; NULL if there is none. */
typedef void (*fxi_visit_tied_fn)(fx_array *x, fx_array *of, bool trainable, void *user);
fx_status fxi_visit_tied(void *x, fxi_visit_tied_fn visit, void *user);

#endif
