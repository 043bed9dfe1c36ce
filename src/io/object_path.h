/* object_path.h: finds a part of a loaded file by its path. Internal.
 *
 * A path is names of children with dots between them, "model.layers.0.weight"; a child without a
 * name has its number, from 0. It may contain or omit the name of a list field ("layers"). Names
 * may contain dots. */
#ifndef CFLUX_OBJECT_PATH_H
#define CFLUX_OBJECT_PATH_H

#include <cflux/tree.h>

/* The object at the path; NULL if there is none, or nothing (not recorded). The path "" is x. */
void *fxi_object_at(void *x, const char *path);
/* Records `status`: "PATH: there is no entry "model.x"" with the names that exist where the path
 * ends. */
fx_status fxi_no_entry(fx_status status, const char *op, const char *path, void *file,
                       const char *name);

#endif
