/* modes.c: fx_trainmode, fx_testmode, fx_automode.
 *
 * The walk follows children, as Flux's does, and sets `active` where a layer has it. A layer that
 * is reached twice is set twice, which does no harm. Error objects are static storage shared by all
 * threads: they are never written.
 */
#include "layer.h"

static void set_active(void *object, fx_active active)
{
    if (!object || fx_is_array(object))
        return;
    const fx_type *type = fx_type_of(object);
    if (!type || type->error == object)
        return;
    if (type == &fxi_batchnorm_type)
        ((fx_batchnorm_layer *)object)->active = (int64_t)active;
    else if (type == &fxi_dropout_type)
        ((fx_dropout_layer *)object)->active = (int64_t)active;
    const int64_t n = fx_count(object);
    for (int64_t i = 0; i < n; i++)
        set_active(fx_child(object, i), active);
}

static fx_status set_mode(const char *op, void *model, fx_active active)
{
    if (!model)
        return fx_fail(FX_STATUS_ARGUMENT, op, "there is no model");
    if (fx_is_error(model))
        return fx_fail(FX_STATUS_ARGUMENT, op, "the model carries an error");
    set_active(model, active);
    return FX_OK;
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
