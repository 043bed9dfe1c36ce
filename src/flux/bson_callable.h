/* bson_callable.h: writes small functions as structs of Julia's Base and of Flux, and reads them.
 * Internal. */
#ifndef CFLUX_BSON_CALLABLE_H
#define CFLUX_BSON_CALLABLE_H

#include "bson_objects.h"
#include "bson_shapes.h"

/* The callable Julia object that means the same as a closure layer, or as a function of numbers
 * that a chain applies to an array; NULL for every other object. An error object if out of memory
 * (recorded). The scope owns the result. */
void *fxi_callable_for(const void *object, bool in_chain);
/* True and the struct, if the object is part of a result of fxi_callable_for. */
bool fxi_callable_shape(const void *object, fxi_shape *out);

/* The closure layer or function that a struct of this type represents; NULL if it represents
 * neither. */
void *fxi_bson_callable(fxi_julia *j, const char *type, fxi_bson v);
/* The activation that a value represents: a function of numbers, or an anonymous function. NULL if
 * it represents none. */
fx_function *fxi_bson_activation(fxi_julia *j, fxi_bson v);

#endif
