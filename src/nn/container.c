/* container.c: construction of layers that contain other layers, driven by their tables.
 *
 * A child can be anything callable: a layer, an object of a program's own type, a function object.
 * One that cannot be called is refused when the container is built, because then its position is
 * known.
 */
#include "check_arguments.h"
#include "error.h"
#include "memory.h"
#include "nn_layer.h"

#include <string.h>

bool fxi_is_callable(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    return type && (type->forward || (type->flags & FX_TYPE_FUNCTION));
}

fxi_inputs fxi_inputs_of(int n, void *const *args)
{
    const fx_type *type = n == 1 ? fx_type_of(args[0]) : NULL;
    if (!type || !(type->flags & FX_TYPE_TUPLE) || fx_is_error(args[0]))
        return (fxi_inputs){n, args};
    const fx_list *list = &((const fx_tuple_object *)args[0])->items;
    return (fxi_inputs){(int)list->n, list->items};
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Number of rows that take one item each. */
static int single_rows(const fx_layer *layer)
{
    int n = 0;
    for (int i = 0; i < layer->nrows; i++)
        n += fxi_layer_row(layer, i)->kind != FX_OPTION_LAYERS;
    return n;
}

static bool items_fit(const fx_type *type, int n, void *const *items)
{
    const fx_layer *layer = fx_layer_of(type);
    const int single = single_rows(layer);
    if (n < single)
        return fxi_layer_fail(type, "the %s is missing", fxi_layer_row(layer, n > 0 ? n : 0)->name);
    if (n == single && single < layer->nrows)
        return fxi_layer_fail(type, "cannot construct a %s layer with no sub-layers", type->name);
    for (int i = 0; i < n; i++) {
        if (fxi_is_callable(items[i]))
            continue;
        char got[100];
        fxi_given(items[i], got, sizeof got);
        if (i < single)
            return fxi_layer_fail(type, "the %s is not a function or a layer: %s",
                                  fxi_layer_row(layer, i)->name, got);
        return fxi_layer_fail(type, "child %d is not a layer: %s", i - single, got);
    }
    return true;
}

/* "a Parallel layer cannot have a named sub-layer called `connection` or `layers`" */
static bool name_is_free(const fx_type *type, const char *name)
{
    const fx_layer *layer = fx_layer_of(type);
    char list[100] = "";
    bool taken = false;
    for (int i = 0; i < layer->nrows; i++) {
        const char *field = fxi_layer_row(layer, i)->name;
        const size_t used = strlen(list);
        taken |= strcmp(name, field) == 0;
        snprintf(list + used, sizeof list - used, "%s`%s`", i ? " or " : "", field);
    }
    return !taken || fxi_layer_fail(type, "a %s layer cannot have a named sub-layer called %s",
                                    type->name, list);
}

static bool names_fit(const fx_type *type, int n, const char *const *names)
{
    for (int i = 0; i < n; i++) {
        if (!names[i])
            continue;
        if (!name_is_free(type, names[i]))
            return false;
        for (int j = 0; j < i; j++)
            if (names[j] && strcmp(names[i], names[j]) == 0)
                return fxi_layer_fail(type, "two layers are called `%s`", names[i]);
    }
    return true;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* A struct of the type with these members; fxi_new copies the lists. */
static void *filled(const fx_type *type, char *init, int n, const char *const *names,
                    void *const *items)
{
    const fx_layer *layer = fx_layer_of(type);
    int next = 0;
    for (int i = 0; i < layer->nrows; i++) {
        const fx_layer_row *row = fxi_layer_row(layer, i);
        fx_list list = {.n = n - next};
        if (row->kind != FX_OPTION_LAYERS) {
            memcpy(init + row->member, &items[next++], sizeof items[0]);
            continue;
        }
        items += next;
        names = names ? names + next : NULL;
        memcpy(&list.items, &items, sizeof items);
        memcpy(&list.names, &names, sizeof names);
        memcpy(init + row->member, &list, sizeof list);
    }
    return fxi_new(type, init);
}

void *fxi_container(const fx_type *type, int n, const char *const *names, void *const *items)
{
    for (int i = 0; i < n; i++) /* a failed layer recorded its error; the container passes it on */
        if (items[i] && fx_is_error(items[i]))
            return fx_error_object(type);
    if (!items_fit(type, n, items) || (names && !names_fit(type, n, names)))
        return fx_error_object(type);
    char *init = fxi_calloc(1, type->size);
    void *made = NULL;
    if (init)
        made = filled(type, init, n, names, items);
    else
        fx_fail(FX_STATUS_MEMORY, type->name, "no memory for %d layers", n);
    fxi_free(init);
    return made ? made : fx_error_object(type);
}

void *fxi_container_of(const fx_type *type, int n, void *const *items)
{
    if (fxi_check_list(type->name, "layers", n, items) != FX_OK ||
        fxi_check_objects(type->name, 0, n, (const void *const *)items) != FX_OK)
        return fx_error_object(type);
    return fx_layer_of(type)->build_list(n, NULL, items);
}

void *fxi_container_pairs(const fx_type *type, void *connection, int n,
                          const void *const *names_and_items)
{
    const int first = single_rows(fx_layer_of(type)), count = n / 2 + first;
    if (n % 2) {
        fxi_layer_fail(type, "names and layers must alternate, got %d arguments", n);
        return fx_error_object(type);
    }
    if (fxi_check_list(type->name, "names and layers", n, names_and_items) != FX_OK ||
        fxi_check_pairs(type->name, first, n, names_and_items) != FX_OK)
        return fx_error_object(type);
    const char **names = fxi_calloc((size_t)count + 1, sizeof *names);
    void **items = fxi_calloc((size_t)count + 1, sizeof *items);
    void *made = fx_error_object(type);
    for (int i = 0; i < n / 2 && names && items; i++) {
        names[first + i] = names_and_items[2 * i];
        items[first + i] = (void *)(uintptr_t)names_and_items[2 * i + 1];
    }
    if (items && first)
        items[0] = connection;
    if (names && items)
        made = fx_layer_of(type)->build_list(count, names, items);
    else
        fx_fail(FX_STATUS_MEMORY, type->name, "no memory for %d layers", count);
    fxi_free(names);
    fxi_free(items);
    return made;
}
