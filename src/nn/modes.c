/* modes.c: fx_trainmode, fx_testmode, fx_automode.
 *
 * The walk follows children, as Flux's does, and sets `active` in each layer that has it. Error
 * objects are never written, because they are static and shared by all threads.
 */
#include "nn_layer.h"

static fx_walk set_active(const fx_spot *at, void *user)
{
    void *object = at->objects[0];
    const int64_t active = *(const fx_active *)user;
    if (!fx_has_children(object) || fx_is_error(object))
        return FX_WALK_PASS;
    const fx_type *type = fx_type_of(object);
    const fx_layer *layer = fx_layer_of(type);
    for (int i = 0; layer && i < layer->nrows; i++) {
        const fx_layer_row *row = fxi_layer_row(layer, i);
        if (row->kind == FX_OPTION_ACTIVE && row->member)
            *(int64_t *)((char *)object + row->member) = active;
    }
    return FX_WALK_ENTER;
}

static fx_status set_mode(const char *op, void *model, fx_active active)
{
    if (!model)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the model is NULL");
    if (fx_is_error(model))
        return fx_fail(FX_STATUS_ARGUMENT, op, "the model is an error object");
    const fx_tree_walker how = {.op = op, .meet = set_active, .user = &active};
    return fx_tree_walk(&how, &model);
}

fx_status fx_trainmode(void *model)
{
    return set_mode("trainmode", model, FX_ACTIVE_ON);
}
fx_status fx_testmode(void *model)
{
    return set_mode("testmode", model, FX_ACTIVE_OFF);
}
fx_status fx_automode(void *model)
{
    return set_mode("automode", model, FX_ACTIVE_AUTO);
}
