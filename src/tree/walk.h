/* walk.h: the visit that knows ties. Internal. */
#ifndef CFLUX_WALK_H
#define CFLUX_WALK_H

#include <cflux/tree.h>

/* As fx_visit; `of` is the array of the same object that x is a view of, and that is no view of
 * another itself; NULL: x is one of its own. */
typedef void (*fxi_visit_tied_fn)(fx_array *x, fx_array *of, const char *path, bool trainable,
                                  void *user);
void fxi_visit_tied(void *x, fxi_visit_tied_fn visit, void *user);

#endif
