/* object_types.h: objects made from descriptors, for the files of this folder. Internal. */
#ifndef CFLUX_OBJECT_TYPES_H
#define CFLUX_OBJECT_TYPES_H

#include "object.h"

/* What takes the place of a child in a copy; called for children that are not NULL. */
typedef void *(*fxi_child_fn)(void *user, void *child);

/* An object of the type with the bytes of `init`: children go through `child` (NULL: stay) and are
 * retained, shared fields are retained, lists copied. Owned by the scope; NULL when memory is out
 * (recorded). */
void *fxi_object_copy(const fx_type *type, const void *init, fxi_child_fn child, void *user);

/* The status an object carries: of an error array its own, of an error object that of its arrays.
 */
fx_status fxi_object_status(const void *object);
static inline void *fxi_field_at(const void *object, const fx_field *field)
{
    return (char *)(uintptr_t)object + field->offset;
}
static inline void *fxi_field_child(const void *object, const fx_field *field)
{
    return *(void **)fxi_field_at(object, field);
}

static inline bool fxi_is_array(const void *object)
{
    return object && ((const fx_object *)object)->type == &fxi_array_type;
}

/* How many children of the object are in the field. */
static inline int64_t fxi_field_children(const void *object, const fx_field *field)
{
    if (field->kind == FX_FIELD_LIST)
        return ((const fx_list *)fxi_field_at(object, field))->n;
    return field->kind == FX_FIELD_CHILD;
}
/* Is the field one that optimisers do not see? */
bool fxi_field_frozen(const fx_type *type, const fx_field *field);

/* Nested deeper than this is an error, which a cycle made by hand is too. */
enum { FXI_MAX_DEPTH = 1000 };

#endif
