/* julia_types.h: structs of the program that have a name in Julia. Internal. */
#ifndef CFLUX_JULIA_TYPES_H
#define CFLUX_JULIA_TYPES_H

#include "bson_objects.h"
#include "bson_shapes.h"

/* True and the Julia struct, if the object is a struct of the program. */
bool fxi_own_shape(const void *object, fxi_shape *out);

/* The program's struct for a struct of this type in a file. NULL if fx_julia_name gave no type this
 * name, or if the fields do not fit (recorded in j->b). */
void *fxi_own_struct(fxi_julia *j, const char *type, fxi_bson v, int depth);

#endif
