/* dropout.c: Dropout as a layer and as a function.
 *
 * The mask is uniform noise compared with p: kept where the noise is larger, as in NNlib, in
 * Float32 for every element type (16-bit noise would be too coarse for small p). Each call draws a
 * fresh counter of the thread's stream, so two dropouts never share a mask and a recomputation
 * repeats it. With p = 1 the scale is 0 instead of 1/0, so that values and gradients are zeros, not
 * NaN; with p = 0, and outside training, the result is x itself.
 */
#include "layer.h"

#include "julia_number.h"

#include <inttypes.h>

static void *dropout_forward(void *self, int n, void *const *args);
static void dropout_describe(const void *self, fx_text *text);

static const fx_field dropout_fields[] = {
    FXI_LAYER_FIELD(fx_dropout_layer, p, NUMBER),
    FXI_LAYER_FIELD(fx_dropout_layer, dims, DIMS),
    FXI_LAYER_FIELD(fx_dropout_layer, active, INTEGER),
};
static fx_dropout_layer dropout_error;
const fx_type fxi_dropout_type = {
    .fxi_size = sizeof(fx_type),
    .name = "Dropout",
    .size = sizeof(fx_dropout_layer),
    .fields = dropout_fields,
    .nfields = FXI_COUNT(dropout_fields),
    .forward = dropout_forward,
    .describe = dropout_describe,
    .error = &dropout_error,
    .flags = FX_TYPE_MUTABLE,
    .layout_bytes = 16,
};

fx_array *fxi_dropped(fx_array *x, double p, const fx_dims *dims)
{
    if (p == 0)
        return x;
    const int nd = fx_ndims(x);
    int64_t mask[FX_MAX_DIMS];
    for (int i = 0; i < nd; i++)
        mask[i] = dims->n == 0 ? fx_size(x, i) : 1;
    for (int64_t i = 0; i < dims->n; i++)
        if (dims->v[i] < nd)
            mask[dims->v[i]] = fx_size(x, (int)dims->v[i]);
    FXI_SCOPE;
    fx_array *keep = fx_gt(fxi_rand(FX_DTYPE_F32, nd, mask), p);
    return fx_keep(fx_where(keep, fx_mul(x, p < 1 ? 1 / (1 - p) : 0.0), 0));
}

static bool is_probability(double p)
{
    return p >= 0 && p <= 1;
}

fx_array *fx_dropout_apply(fx_array *x, double p)
{
    char text[FXI_NUMBER_TEXT];
    if (fx_is_error(x))
        return fx_cast(x, FX_DTYPE_F32); /* records what is wrong with NULL, passes an error on */
    if (is_probability(p))
        return fxi_dropped(x, p, &(const fx_dims){0});
    fx_fail(FX_STATUS_ARGUMENT, "dropout", "expects 0 ≤ p ≤ 1, got p = %s",
            fxi_float64_text(p, text));
    return fx_error_array(FX_STATUS_ARGUMENT);
}

static void *dropout_forward(void *self, int n, void *const *args)
{
    const fx_dropout_layer *l = self;
    fx_array *x = fxi_layer_input(self, n, args);
    const bool active = l->active == FX_ACTIVE_AUTO ? fx_training() : l->active == FX_ACTIVE_ON;
    return active && !fx_is_error(x) ? fxi_dropped(x, l->p, &l->dims) : x;
}

/* Axes are printed as Julia's dims, from 1. */
static void dropout_describe(const void *self, fx_text *text)
{
    const fx_dropout_layer *l = self;
    char p[FXI_NUMBER_TEXT];
    fx_dims shown = l->dims;
    for (int64_t i = 0; i < shown.n; i++)
        shown.v[i]++;
    fx_text_add(text, "Dropout(%s", fxi_float64_text(l->p, p));
    if (shown.n == 1)
        fx_text_add(text, ", dims=%" PRId64, shown.v[0]);
    else if (shown.n > 1) {
        fx_text_add(text, ", dims=");
        fxi_describe_dims(text, &shown);
    }
    if (l->active != FX_ACTIVE_AUTO)
        fx_text_add(text, ", active=%s", l->active == FX_ACTIVE_ON ? "true" : "false");
    fx_text_add(text, ")");
}

fx_dropout_layer *fxi_dropout(const fx_dropout_args *a)
{
    char text[FXI_NUMBER_TEXT];
    if (!is_probability(a->p))
        return fxi_refuse(&fxi_dropout_type, "expects 0 ≤ p ≤ 1, got p = %s",
                          fxi_float64_text(a->p, text));
    bool ok = a->dims.n >= 0 && a->dims.n <= FX_MAX_DIMS;
    for (int64_t i = 0; ok && i < a->dims.n; i++)
        ok = a->dims.v[i] >= 0 && a->dims.v[i] < FX_MAX_DIMS;
    if (!ok)
        return fxi_refuse(&fxi_dropout_type, "dims must be axes from 0 to %d", FX_MAX_DIMS - 1);
    return fxi_new(&fxi_dropout_type, &(const fx_dropout_layer){.p = a->p == 0 ? 0.0 : a->p,
                                                                .dims = a->dims,
                                                                .active = (int64_t)a->active});
}
