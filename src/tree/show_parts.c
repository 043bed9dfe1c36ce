/* show_parts.c: lists the parts of an object that are printed: see show_parts.h.
 *
 * Sharing can give an object very many paths, so searches remember the objects they visited.
 */
#include "show_parts.h"
#include "identity_map.h"
#include "object_types.h"

const fx_list *fxi_tuple_list(const void *object)
{
    const fx_type *type = fx_type_of(object);
    return type && (type->flags & FX_TYPE_TUPLE) ? fxi_field_at(object, &type->fields[0]) : NULL;
}

/* A list field, or a field that holds a tuple: their items are printed in the list of the object
 * itself. */
static const fx_list *list_of(const void *object, const fx_field *f)
{
    if (f->kind == FX_FIELD_LIST)
        return fxi_field_at(object, f);
    return f->kind == FX_FIELD_CHILD ? fxi_tuple_list(fxi_field_child(object, f)) : NULL;
}

bool fxi_next_part(fxi_parts *p, fxi_part *out)
{
    const fx_type *type = fx_type_of(p->object);
    for (; type && p->field < type->nfields; p->field++, p->item = 0) {
        const fx_field *f = &type->fields[p->field];
        const fx_list *list = list_of(p->object, f);
        if ((!p->frozen && fxi_field_frozen(type, f)) || (list && p->item >= list->n))
            continue;
        *out = (fxi_part){.field = f, .at = fxi_field_at(p->object, f)};
        out->is_object = list || f->kind == FX_FIELD_CHILD || f->kind == FX_FIELD_SHARED;
        if (list) {
            out->name = list->names ? list->names[p->item] : NULL;
            out->object = list->items[p->item++];
            return true;
        }
        out->object = out->is_object ? fxi_field_child(p->object, f) : NULL;
        p->field++;
        return true;
    }
    return false;
}

bool fxi_is_leaf(const void *object)
{
    return !object || fx_is_array(object) ||
           (fx_type_of(object)->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF));
}

/* Flux's _show_leaflike: true for parts that do not force their container over several lines. */
static bool leaf_like(const fxi_part *p)
{
    if (!p->is_object || p->field->kind == FX_FIELD_SHARED || fxi_is_leaf(p->object))
        return true;
    const fx_list *list = fxi_tuple_list(p->object);
    for (int64_t i = 0; list && i < list->n; i++)
        if (!fxi_is_leaf(list->items[i]))
            return false;
    return list != NULL;
}

bool fxi_expands(const void *object)
{
    if (fxi_is_leaf(object) || fx_is_error(object) ||
        (fx_type_of(object)->flags & FX_TYPE_ONE_LINE))
        return false;
    fxi_parts it = {.object = object};
    for (fxi_part p; fxi_next_part(&it, &p);)
        if (!leaf_like(&p))
            return true;
    return false;
}

bool fxi_has_parameters(const void *object)
{
    const fx_type *type = fx_type_of(object);
    return type && !fx_is_error(object) && (type->forward || !type->describe);
}

/* With `structs`: false for leaves and plain objects (fxi_is_plain). Without: fxi_holds_layer.
 * `seen` holds the tuples and structs that were searched. */
static bool find(fxi_identity_map *seen, const void *object, bool structs, int depth)
{
    const fx_type *type = fx_type_of(object);
    void *unused;
    if (!type || fxi_is_leaf(object) || depth > FXI_MAX_DEPTH)
        return false;
    const bool plain = !type->forward && !type->describe && !fx_is_error(object);
    if (!fxi_tuple_list(object) && !(structs && plain))
        return structs || fxi_has_parameters(object);
    if (fxi_identity_get(seen, object, &unused) || !fxi_identity_put(seen, object, NULL))
        return false;
    for (int64_t i = 0; i < fx_count(object); i++)
        if (find(seen, fx_child(object, i), structs, depth + 1))
            return true;
    return false;
}

static bool holds(const void *object, bool structs)
{
    fxi_identity_map seen = {0};
    const bool found = find(&seen, object, structs, 0);
    fxi_identity_free(&seen);
    return found;
}

bool fxi_holds_layer(const void *object)
{
    return holds(object, false);
}

bool fxi_is_plain(const void *object)
{
    return !fxi_is_leaf(object) && !holds(object, true);
}
