/* object_path.h: finds a part of a loaded file by its path. Internal.
 *
 * A path is names of children with dots between them, "model.layers.0.weight". A child without a
 * name is named by its number, from 0. A path may contain or omit the name of a list field
 * ("layers"). Names may contain dots. */
#ifndef CFLUX_OBJECT_PATH_H
#define CFLUX_OBJECT_PATH_H

#include <cflux/tree.h>

/* The object at the path. NULL, without an error record, if there is none or if the child is NULL.
 * The path "" is x. */
void *fxi_object_at(void *x, const char *path);
/* Records `status`: "PATH: there is no entry "model.x"" with the names that exist where the path
 * ends. */
fx_status fxi_no_entry(fx_status status, const char *op, const char *path, void *file,
                       const char *name);

#endif
