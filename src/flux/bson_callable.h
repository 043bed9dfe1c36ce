/* bson_callable.h: small functions as structs of Julia's Base and of Flux. Internal. */
#ifndef CFLUX_BSON_CALLABLE_H
#define CFLUX_BSON_CALLABLE_H

#include "bson_objects.h"
#include "bson_shapes.h"

/* The callable object of Julia that means the same as a closure layer, or as a function of numbers
 * that a chain calls with an array; NULL for every other object. An error object when memory is out
 * (recorded). Owned by the scope. */
void *fxi_callable_for(const void *object, bool in_chain);
/* True and the struct, when the object is a part of what fxi_callable_for returned. */
bool fxi_callable_shape(const void *object, fxi_shape *out);

/* The closure layer or function that a struct of this type means; NULL: it means something else. */
void *fxi_bson_callable(fxi_julia *j, const char *type, fxi_bson v);

#endif
