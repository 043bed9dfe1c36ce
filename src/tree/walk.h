/* walk.h: a visit that reports tied arrays, and paths by parts. Internal. */
#ifndef CFLUX_WALK_H
#define CFLUX_WALK_H

#include <cflux/tree.h>

/* Like fx_visit, without the paths, which cost time. `of` is the array of the same object that x is
 * a view of, and that is not a view itself; NULL if there is none. */
typedef void (*fxi_visit_tied_fn)(fx_array *x, fx_array *of, bool trainable, void *user);
fx_status fxi_visit_tied(void *x, fxi_visit_tied_fn visit, void *user);

/* Writes the path of a position, given that the path of its parent is in dst already and has
 * `before` characters. Returns the length of the path, as fx_spot_path. */
size_t fxi_spot_part(const fx_spot *at, size_t before, char *dst, size_t capacity);

#endif
