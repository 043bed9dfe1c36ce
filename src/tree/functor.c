/* functor.c: takes an object apart and rebuilds it, one level at a time (Functors.functor).
 *
 * The children of an object are those that fx_count counts: child fields and list items, in field
 * order. Functors returns two things: the children, here a tuple, named if the children have names,
 * and a function that rebuilds the object, here fx_rebuild.
 */
#include "object_types.h"
#include "tuples.h"

static bool has_children(const void *x)
{
    return x && !fx_is_array(x) && !fx_is_error(x) &&
           !(fx_type_of(x)->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF));
}

void *fx_functor(void *x)
{
    if (!x)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "functor", "the object is NULL"));
    const int64_t n = has_children(x) ? fx_count(x) : 0;
    void **items = fxi_calloc((size_t)n + 1, sizeof *items);
    const char **names = fxi_calloc((size_t)n + 1, sizeof *names);
    bool named = n > 0;
    for (int64_t i = 0; items && names && i < n; i++) {
        items[i] = fx_child(x, i);
        names[i] = fx_child_name(x, i);
        named &= names[i][0] != 0;
    }
    void *t = NULL;
    if (items && names)
        t = named ? fx_named_tuple_from((int)n, names, items) : fxi_tuple((int)n, items);
    else
        fx_fail(FX_STATUS_MEMORY, "functor", "no memory for %lld children", (long long)n);
    fxi_free(items);
    fxi_free((void *)names);
    return t ? t : fx_error_object(&fxi_tuple_type);
}

void *fxi_rebuild(void *x, void *children)
{
    if (!x || !children)
        return fx_error_array(
            fx_fail(FX_STATUS_ARGUMENT, "rebuild", "the %s is NULL", x ? "tuple" : "object"));
    const fx_type *type = fx_type_of(x);
    const int64_t n = has_children(x) ? fx_count(x) : 0;
    if (fx_is_array(children) || fx_is_error(children) || fx_count(children) != n) {
        fx_fail(FX_STATUS_ARGUMENT, "rebuild", "%s has %lld children, got %lld", type->name,
                (long long)n, (long long)(fx_is_array(children) ? 1 : fx_count(children)));
        return fx_error_object(type);
    }
    if (n == 0)
        return x;
    void *y = fxi_object_copy(type, x, NULL, NULL);
    for (int64_t i = 0; y && i < n; i++)
        fxi_child_set(y, i, fx_child(children, i));
    if (y && type->rebuild)
        y = type->rebuild(y);
    return y ? y : fx_error_object(type);
}
