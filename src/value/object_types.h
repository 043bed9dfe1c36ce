/* object_types.h: copies and checks objects by the descriptors of their types. Internal. */
#ifndef CFLUX_OBJECT_TYPES_H
#define CFLUX_OBJECT_TYPES_H

#include "object.h"

/* Returns the replacement of a child in a copy. Called only for children that are not NULL. */
typedef void *(*fxi_child_fn)(void *user, void *child);

/* A new object of the type with the bytes of `init`. Children are replaced by `child` (NULL: kept)
 * and retained, shared fields are retained, lists are copied. Owned by the scope. NULL if an
 * allocation fails (recorded). */
void *fxi_object_copy(const fx_type *type, const void *init, fxi_child_fn child, void *user);

/* A description of an argument for messages: the name of its type, "an error object", "NULL", or "a
 * value that is not a cflux object". */
const char *fxi_type_name(const void *object);

/* The status of an object: an error array has its own, an error object that of its arrays, NULL has
 * FX_STATUS_ARGUMENT; FX_OK for all others. */
fx_status fxi_object_status(const void *object);
static inline void *fxi_field_at(const void *object, const fx_field *field)
{
    return (char *)(uintptr_t)object + field->offset;
}
static inline void *fxi_field_child(const void *object, const fx_field *field)
{
    return *(void **)fxi_field_at(object, field);
}

/* fx_type_of and fx_is_array without a call: walks need them for every object. */
static inline const fx_type *fxi_type_of(const void *object)
{
    return object ? ((const fx_object *)object)->type : NULL;
}
static inline bool fxi_is_array(const void *object)
{
    return object && ((const fx_object *)object)->type == &fxi_array_type;
}
/* Do two arrays have the same sizes? An error array counts as one without axes. */
bool fxi_same_sizes(const fx_array *a, const fx_array *b);

/* The number of children that the object has in the field. */
static inline int64_t fxi_field_children(const void *object, const fx_field *field)
{
    if (field->kind == FX_FIELD_LIST)
        return ((const fx_list *)fxi_field_at(object, field))->n;
    return field->kind == FX_FIELD_CHILD;
}
/* Is the field missing from type->trainable? The type must have that list. */
bool fxi_field_not_listed(const fx_type *type, const fx_field *field);
/* Is the field hidden from optimisers? */
static inline bool fxi_field_frozen(const fx_type *type, const fx_field *field)
{
    return field->frozen || (type->trainable && fxi_field_not_listed(type, field));
}

/* Deeper nesting is an error. This also ends the walk over a cycle that a program has built. */
enum { FXI_MAX_DEPTH = 1000 };

#endif
