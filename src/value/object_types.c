/* object_types.c: constructs and copies objects by the descriptors of their types, checks types,
 * and provides error objects.
 *
 * An incomplete object must be releasable, because a scope owns it from its allocation on. So a
 * copy takes the bytes of the original, and then fills the fields that own something one at a time,
 * each with a reference of its own; if that fails, the remaining ones are cleared.
 *
 * Error objects are static, one for each type, and never freed. Several threads may fill in the
 * same error object at once. Its arrays are error arrays, which are never freed either, so a reader
 * sees an older or a newer array, and both are valid.
 */
#include "object_types.h"
#include "thread.h"

#include <cflux/layer.h>

#include <string.h>

/* ---- construction ---------------------------------------------------------------------------- */

static fx_status no_memory(const char *op)
{
    return fx_fail(FX_STATUS_MEMORY, op, "no memory for a list of children");
}

/* fxi_retain, without a call for most objects. */
static inline void *retain(void *object)
{
    fx_object *o = object;
    if (!o || __atomic_load_n(&o->refs, __ATOMIC_RELAXED) >= FXI_IMMORTAL)
        return fxi_retain(object);
    __atomic_fetch_add(&o->refs, 1, __ATOMIC_RELAXED);
    return object;
}

/* Copies a list. It counts the items that are filled in, so that an incomplete list can be
 * released. */
static fx_status copy_list(fx_list *to, const fx_list *from, const char *op, fxi_child_fn child,
                           void *user)
{
    if (from->n <= 0)
        return FX_OK;
    to->items = fxi_malloc((size_t)from->n * sizeof *to->items);
    to->names = from->names ? fxi_malloc((size_t)from->n * sizeof *to->names) : NULL;
    if (!to->items || (from->names && !to->names)) {
        fxi_free(to->items);
        fxi_free(to->names);
        *to = (fx_list){0};
        return no_memory(op);
    }
    for (int64_t i = 0; i < from->n; i++) {
        void *item = from->items[i];
        to->items[i] = retain(item && child ? child(user, item) : item);
        if (from->names)
            to->names[i] = from->names[i] ? fxi_strdup(from->names[i]) : NULL;
        to->n = i + 1;
        if (from->names && from->names[i] && !to->names[i])
            return no_memory(op);
    }
    return FX_OK;
}

/* Clears the fields from number i on that own something. */
static void clear_fields(void *object, const fx_type *type, int i)
{
    for (; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        if (f->kind == FX_FIELD_LIST)
            *(fx_list *)fxi_field_at(object, f) = (fx_list){0};
        else if (f->kind == FX_FIELD_CHILD || f->kind == FX_FIELD_SHARED)
            *(void **)fxi_field_at(object, f) = NULL;
    }
}

void *fxi_object_copy(const fx_type *type, const void *init, fxi_child_fn child, void *user)
{
    void *object = fxi_object_like(type, init);
    if (!object)
        return NULL;
    for (int i = 0; i < type->nfields; i++) {
        const fx_field *f = &type->fields[i];
        void *at = fxi_field_at(object, f);
        if (f->kind == FX_FIELD_LIST) {
            *(fx_list *)at = (fx_list){0};
            if (copy_list(at, fxi_field_at(init, f), type->name, child, user) == FX_OK)
                continue;
            clear_fields(object, type, i + 1);
            return NULL; /* the scope releases the incomplete object */
        }
        void **to = at;
        if (f->kind == FX_FIELD_CHILD)
            *to = retain(*to && child ? child(user, *to) : *to);
        else if (f->kind == FX_FIELD_SHARED)
            retain(*to);
    }
    return object;
}

void *fxi_new(const fx_type *type, const void *init)
{
    if (!type || type->size < sizeof(fx_object) || !init) {
        fx_fail(FX_STATUS_ARGUMENT, "new", "%s",
                !type   ? "the type is NULL"
                : !init ? "init is NULL"
                        : "type->size is too small");
        return fx_error_object(type);
    }
    void *object = fxi_object_copy(type, init, NULL, NULL);
    return object ? object : fx_error_object(type);
}

/* ---- error objects --------------------------------------------------------------------------- */

static fxi_mutex error_lock = FXI_MUTEX_INIT;

static void point_at(void *field, void *value)
{
    if (__atomic_load_n((void **)field, __ATOMIC_RELAXED) != value)
        __atomic_store_n((void **)field, value, __ATOMIC_RELEASE);
}

void *fx_error_object(const fx_type *type)
{
    const fx_status recorded = fx_error_status();
    fx_array *bad = fx_error_array(recorded == FX_OK ? FX_STATUS_MEMORY : recorded);
    if (!type || !type->error)
        return bad;
    fx_object *o = type->error;
    fxi_mutex_lock(&error_lock);
    if (__atomic_load_n(&o->type, __ATOMIC_RELAXED) != type) {
        o->refs = FXI_IMMORTAL;
        __atomic_store_n(&o->type, type, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < type->nfields; i++)
        if (type->fields[i].kind == FX_FIELD_CHILD)
            point_at(fxi_field_at(o, &type->fields[i]), bad);
    fxi_mutex_unlock(&error_lock);
    return o;
}

const char *fxi_type_name(const void *object)
{
    const fx_type *type = fx_type_of(object);
    if (!type)
        return object ? "a value that is not a cflux object" : "NULL";
    return fx_is_error(object) ? "an error object" : type->name;
}

fx_status fxi_object_status(const void *object)
{
    if (!fx_is_error(object))
        return FX_OK;
    if (!object)
        return FX_STATUS_ARGUMENT;
    if (fx_is_array(object))
        return fx_array_status(object);
    const fx_type *type = fx_type_of(object);
    for (int i = 0; type && i < type->nfields; i++)
        if (type->fields[i].kind == FX_FIELD_CHILD)
            return fx_array_status(fxi_field_child(object, &type->fields[i]));
    return fx_error_status() == FX_OK ? FX_STATUS_MEMORY : fx_error_status();
}

/* ---- types ----------------------------------------------------------------------------------- */

const fx_type *fx_type_of(const void *object)
{
    return fxi_type_of(object);
}

/* The program may have been compiled with a header whose fx_type ends before this member. */
const fx_layer *fx_layer_of(const fx_type *type)
{
    const size_t end = offsetof(fx_type, layer) + sizeof type->layer;
    return type && type->fxi_size >= end ? type->layer : NULL;
}

/* FX_FUNCTOR makes a descriptor in every source file that sees it, so equal descriptors at
 * different addresses are one type. */
static bool same_type(const fx_type *a, const fx_type *b)
{
    return a == b ||
           (a->size == b->size && a->nfields == b->nfields && strcmp(a->name, b->name) == 0);
}

/* Is `name` one of the words of a list? */
static bool listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || strchr(" ,", at[-1])) && strchr(" ,", at[n]))
            return true;
    return false;
}

bool fxi_field_not_listed(const fx_type *type, const fx_field *field)
{
    return !listed(type->trainable, field->name);
}

bool fx_is(const void *object, const fx_type *type)
{
    const fx_type *own = fx_type_of(object);
    return own && type && same_type(own, type);
}

bool fx_is_array(const void *object)
{
    return fxi_is_array(object);
}
