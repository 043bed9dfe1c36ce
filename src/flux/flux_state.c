/* flux_state.c: the state of a model in the structure that Flux.state returns.
 *
 * Flux copies a state into a model only if every field of every layer is present, in order and
 * under Flux's name: numbers as they are, functions and valueless fields as empty tuples. The tree
 * holds the model's own arrays, so a state that was read is copied into the same tree. An object
 * that is reached twice has one state, which is reached twice.
 */
#include "bson_objects.h"
#include "bson_shapes.h"
#include "c_text.h"
#include "file_node.h"
#include "identity_map.h"

#include <cflux/io.h>
#include <string.h>

typedef fxi_identity_map made; /* object → its state */

static void *state_of(made *m, const fxi_item *item, int depth);

static void *empty(void)
{
    return fxi_tuple(0, NULL);
}

static void *state_of_list(made *m, const fx_list *list, int depth)
{
    void *t = list->names
                  ? fx_named_tuple_from((int)list->n, (const char *const *)list->names, list->items)
                  : fxi_tuple((int)list->n, list->items);
    if (fx_is_error(t))
        return t;
    fx_tuple_object *state = t;
    for (int64_t i = 0; i < list->n; i++) {
        const fxi_item item = {.kind = FXI_ITEM_OBJECT, .object = list->items[i]};
        fxi_set(&state->items.items[i], state_of(m, &item, depth + 1));
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

/* The field names, found by the type's name: "Flux.Dense", "Optimisers.Leaf", without modules for
 * types of Julia's Base. */
static const char *names_of(const fxi_shape *s)
{
    char type[80];
    if (s->names)
        return s->names;
    if (strcmp(s->path[0], "Main") == 0)
        snprintf(type, sizeof type, "%s", s->path[2]);
    else
        snprintf(type, sizeof type, "%s.%s", s->path[0], s->path[1]);
    return fxi_bson_field_names(type, s->nitems);
}

static void *state_of_shape(made *m, const fxi_shape *s, int depth)
{
    char words[200];
    const char *names[FXI_SHAPE_FIELDS];
    void *items[FXI_SHAPE_FIELDS];
    char *rest = words;
    snprintf(words, sizeof words, "%s", names_of(s));
    for (int i = 0; i < s->nitems; i++) {
        names[i] = fxi_cut_word(" ", &rest);
        items[i] = state_of(m, &s->items[i], depth + 1);
    }
    return fx_named_tuple_from(s->nitems, names, items);
}

/* The state of an object for which Flux has no struct: its children under the names of the
 * library's fields. */
static void *state_of_other(made *m, void *object, int depth)
{
    void *t = fx_functor(object);
    for (int64_t i = 0; !fx_is_error(t) && i < fx_count(t); i++) {
        const fxi_item item = {.kind = FXI_ITEM_OBJECT, .object = fx_child(t, i)};
        fxi_set(&((fx_tuple_object *)t)->items.items[i], state_of(m, &item, depth + 1));
    }
    return t;
}

static void *state_of_new(made *m, const fxi_item *item, int depth)
{
    fxi_shape shape;
    void *object = (void *)(uintptr_t)item->object;
    if (fxi_shape_of_item(item, &shape))
        return state_of_shape(m, &shape, depth);
    if (fx_type_of(object)->flags & FX_TYPE_TUPLE)
        return state_of_list(m, &((const fx_tuple_object *)object)->items, depth);
    return fx_type_of(object)->flags & FX_TYPE_FUNCTION ? empty()
                                                        : state_of_other(m, object, depth);
}

static void *state_of_object(made *m, const fxi_item *item, int depth)
{
    void *object = (void *)(uintptr_t)item->object, *state;
    if (item->kind != FXI_ITEM_OBJECT) /* part of a layer, for example the Scale of a LayerNorm */
        return state_of_new(m, item, depth);
    if (!object || fx_is_array(object) || fx_is_error(object))
        return object;
    if (fxi_identity_get(m, object, &state))
        return state;
    state = state_of_new(m, item, depth);
    if (!fxi_identity_put(m, object, state))
        return fx_error_array(
            fx_fail(FX_STATUS_MEMORY, "flux_state", "no memory for the list of visited objects"));
    return state;
}

static void *state_of(made *m, const fxi_item *item, int depth)
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
    case FXI_ITEM_SYMBOL:
        return fxi_file_text(item->object, strlen(item->object));
    case FXI_ITEM_DIMS:
        return state_of_dims(item);
    case FXI_ITEM_LIST:
        return state_of_list(m, item->object, depth);
    case FXI_ITEM_SINGLE:
        return empty();
    case FXI_ITEM_LAYER: /* files may store another struct for it, with this state */
        return state_of_object(m, &(const fxi_item){.object = item->object}, depth);
    default:
        return state_of_object(m, item, depth);
    }
}

void *fx_flux_state(void *model)
{
    FXI_SCOPE;
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "flux_state", "the model is NULL"));
    const fxi_item item = {.kind = FXI_ITEM_OBJECT, .object = model};
    made m = {0};
    void *state = state_of(&m, &item, 0);
    fxi_identity_free(&m);
    return fxi_keep(state);
}
