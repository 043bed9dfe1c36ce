/* object.h: allocates objects into scopes. Internal. */
#ifndef CFLUX_OBJECT_H
#define CFLUX_OBJECT_H

#include <cflux/tree.h>
#include "memory.h"
#include "node.h"

/* Static objects (error objects, function objects) have this count and are never freed. */
#define FXI_IMMORTAL (INT64_MAX / 2)

/* A zeroed object of type->size bytes with one reference, owned by the innermost scope. NULL if the
 * allocation fails (recorded). Releasing the last reference calls type->finish, releases fields
 * that are children or shared, and frees lists with their names. */
void *fxi_object_alloc(const fx_type *type);
/* The same with the bytes of `init` instead of zeros, except for the head. The caller must at once
 * give the object references of its own, or clear the fields. */
void *fxi_object_like(const fx_type *type, const void *init);
extern const fx_type fxi_array_type;
/* Marks an object that no scope owns: the caller will release it. fx_keep then adds a reference
 * that a scope owns. */
void fxi_hand_out(void *object);

#endif
