/* trainstep.c: one training step for loops that programs write: see train.h. fx_want marks the
 * outputs before the update, so the plan of the update computes them from the old parameters. */
#include "error.h"
#include "map_gradient.h"

#include <cflux/grad.h>
#include <cflux/ops.h>
#include <cflux/train.h>
#include <math.h>

/* Marks an array for the plan of the update. *user becomes the status of the first error array. */
static void want(fx_array *x, const char *path, bool trainable, void *user)
{
    fx_status *status = user;
    (void)path, (void)trainable;
    if (fx_is_error(x) && *status == FX_OK)
        *status = fx_array_status(x);
    fx_want(x);
}

/* The loss: the array that the function returned, or the first item of its tuple; else an error
 * array. */
static fx_array *loss_in(void *outputs)
{
    fx_array *loss = outputs;
    if (outputs && fx_type_of(outputs) && (fx_type_of(outputs)->flags & FX_TYPE_TUPLE))
        loss = fx_count(outputs) > 0 ? fx_child(outputs, 0) : NULL;
    if (loss && fx_is_array(loss))
        return loss;
    return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "trainstep",
                                  "the function must return the loss, or a tuple that begins with "
                                  "it"));
}

static fx_status training_step(void *model, void *state, fx_array *loss, void *outputs,
                               void *gradient)
{
    if (fx_is_error(loss))
        return fx_array_status(loss);
    if (fx_is_error(gradient))
        return fx_error_status();
    fx_status status = FX_OK;
    fx_visit(outputs, want, &status);
    fx_visit(gradient, want, &status);
    if (status != FX_OK) /* the model is unchanged */
        return status;
    const fx_error earlier = fxi_error_begin(); /* of the program's other calls */
    status = fx_update(state, model, gradient, .guard = loss);
    const bool refused = fxi_error_end(&earlier) != FX_OK;
    if (status != FX_STATUS_NONFINITE)
        return status;
    const double value = fx_item(loss);
    if (isfinite(value)) /* a rule recorded an error, or a MixedPrecision skipped the update */
        return refused ? status : FX_OK;
    return fx_fail(status, "trainstep", "the loss is %g; model and state did not change", value);
}

static fx_array *unscaled(fx_array *x, void *factor)
{
    return fx_div(x, *(const double *)factor);
}

static void *trainstep(fx_outputs_fn f, void *model, const fx_batch *batch, void *state, void *user,
                       bool with_gradient)
{
    if (!f || !model || !state)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "trainstep", "the %s is NULL",
                                      !f       ? "function"
                                      : !model ? "model"
                                               : "state"));
    /* FX_RECORD; error records keep the location of the program's scope */
    FXI_OPEN_AT(FXI_SCOPE_RECORD_INSIDE, __FILE__, __LINE__);
    void *outputs = f(model, batch, user);
    fx_array *loss = loss_in(outputs);
    double factor = fx_loss_scale(state); /* 0: the loss is not scaled */
    fx_array *scaled = factor > 0 && !fx_is_error(loss) ? fx_mul(loss, factor) : loss;
    void *gradient = fx_is_error(loss) ? (void *)loss : fxi_gradient(scaled, model);
    const fx_status status = training_step(model, state, loss, outputs, gradient);
    if (status != FX_OK)
        return fx_error_array(status);
    if (factor > 0 && with_gradient)
        gradient = fxi_map_gradient(unscaled, &factor, gradient);
    return fx_keep(with_gradient ? fx_named_tuple("outputs", outputs, "gradient", gradient)
                                 : outputs);
}

void *fx_trainstep(fx_outputs_fn loss, void *model, const fx_batch *batch, void *state, void *user)
{
    return trainstep(loss, model, batch, state, user, false);
}

void *fx_trainstep_withgradient(fx_outputs_fn loss, void *model, const fx_batch *batch, void *state,
                                void *user)
{
    return trainstep(loss, model, batch, state, user, true);
}
