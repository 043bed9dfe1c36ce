/* flux_state.c: the state of a model as Flux.state gives it.
 *
 * Flux copies a state into a model only when every field of every layer is there, in order and with
 * its own name: numbers as they are, functions and what has no value of its own as empty tuples.
 * The arrays are those of the model, so the same tree is where a state that was read is put.
 */
#include "bson_objects.h"
#include "bson_shapes.h"

#include <cflux/io.h>
#include <string.h>

static void *state_of(const fxi_item *item, int depth);

static void *empty(void)
{
    return fxi_tuple(0, NULL);
}

static void *state_of_list(const fx_list *list, int depth)
{
    void *t = list->names
                  ? fxi_named_tuple((int)list->n, (const char *const *)list->names, list->items)
                  : fxi_tuple((int)list->n, list->items);
    if (fx_is_error(t))
        return t;
    fx_tuple_object *state = t;
    for (int64_t i = 0; i < list->n; i++) {
        const fxi_item item = {.kind = FXI_ITEM_OBJECT, .object = list->items[i]};
        fxi_set(&state->items.items[i], state_of(&item, depth + 1));
    }
    return state;
}

static void *state_of_dims(const fxi_item *item)
{
    const fx_dims *d = item->object;
    void *items[2 * FX_MAX_DIMS];
    for (int64_t i = 0; i < d->n; i++) {
        const int64_t v = d->v[i] + item->integer;
        items[i] = fxi_from(FX_DTYPE_I64, &v, 0, NULL);
    }
    return fxi_tuple((int)d->n, items);
}

/* "Flux.Dense", "Optimisers.Leaf"; what belongs to Julia's Base goes by its own name. */
static const char *names_of(const fxi_shape *s)
{
    char type[80];
    if (strcmp(s->path[0], "Main") == 0)
        snprintf(type, sizeof type, "%s", s->path[2]);
    else
        snprintf(type, sizeof type, "%s.%s", s->path[0], s->path[1]);
    return fxi_bson_field_names(type, s->nitems);
}

static void *state_of_shape(const fxi_shape *s, int depth)
{
    char words[200];
    const char *names[FXI_SHAPE_FIELDS];
    void *items[FXI_SHAPE_FIELDS];
    char *rest = words;
    snprintf(words, sizeof words, "%s", names_of(s));
    for (int i = 0; i < s->nitems; i++) {
        names[i] = strtok_r(NULL, " ", &rest);
        items[i] = state_of(&s->items[i], depth + 1);
    }
    return fxi_named_tuple(s->nitems, names, items);
}

static void *state_of_object(const fxi_item *item, int depth)
{
    fxi_shape shape;
    void *object = (void *)(uintptr_t)item->object;
    if (fxi_shape_of_item(item, &shape))
        return state_of_shape(&shape, depth);
    if (!object || fx_is_array(object) || fx_is_error(object))
        return object;
    if (fx_type_of(object)->flags & FX_TYPE_TUPLE)
        return state_of_list(&((const fx_tuple_object *)object)->items, depth);
    return fx_type_of(object)->flags & FX_TYPE_FUNCTION ? empty() : fx_state(object);
}

static void *state_of(const fxi_item *item, int depth)
{
    if (depth > FXI_IO_MAX_DEPTH)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "flux_state",
                                      "objects nested deeper than %d", FXI_IO_MAX_DEPTH));
    switch (item->kind) {
    case FXI_ITEM_BOOL:
        return fxi_full(FX_DTYPE_BOOL, (double)item->integer, 0, NULL);
    case FXI_ITEM_INT:
        return fxi_from(FX_DTYPE_I64, &item->integer, 0, NULL);
    case FXI_ITEM_FLOAT32:
        return fxi_full(FX_DTYPE_F32, item->number, 0, NULL);
    case FXI_ITEM_FLOAT64:
        return fxi_full(FX_DTYPE_F64, item->number, 0, NULL);
    case FXI_ITEM_DIMS:
        return state_of_dims(item);
    case FXI_ITEM_LIST:
        return state_of_list(item->object, depth);
    case FXI_ITEM_SINGLE:
        return empty();
    default:
        return state_of_object(item, depth);
    }
}

void *fx_flux_state(void *model)
{
    FXI_SCOPE;
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "flux_state", "there is no model"));
    const fxi_item item = {.kind = FXI_ITEM_OBJECT, .object = model};
    return fxi_keep(state_of(&item, 0));
}
