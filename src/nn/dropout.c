/* dropout.c: Dropout as a layer and as a function, and AlphaDropout.
 *
 * The mask is uniform noise compared with p: an element is kept if its noise is larger, as in
 * NNlib. The noise is Float32 for every element type, because 16-bit noise would be too coarse for
 * small p. Each call takes a new counter of the thread's random stream, so two dropouts never share
 * a mask; a recomputation repeats the mask. For p = 1 the scale is 0 instead of 1/0, so that values
 * and gradients are zeros and not NaN. For p = 0, and for a layer outside training, the result is x
 * itself.
 */
#include "nn_layer.h"

#include "error.h"
#include "julia_number.h"

#include <math.h>

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
    FXI_OPERATION("dropout_apply");
    char text[FXI_NUMBER_TEXT];
    if (fx_is_error(x))
        return fx_cast(x, FX_DTYPE_F32); /* records an error for NULL, passes an error array on */
    if (is_probability(p))
        return fxi_dropped(x, p, &(const fx_dims){0});
    fx_fail(FX_STATUS_ARGUMENT, "dropout_apply", "expects 0 ≤ p ≤ 1, got p = %s",
            fxi_float64_text(p, text));
    return fx_error_array(FX_STATUS_ARGUMENT);
}

static void *dropout_forward(void *self, int n, void *const *args)
{
    const fx_dropout_layer *l = self;
    fx_array *x = fxi_layer_input(self, n, args);
    return fxi_is_active(l->active) && !fx_is_error(x) ? fxi_dropped(x, l->p, &l->dims) : x;
}

/* Checks the probability of a layer, and turns −0 into 0. */
static bool check_probability(const fx_type *type, double *io_p)
{
    char text[FXI_NUMBER_TEXT];
    if (!is_probability(*io_p))
        return fxi_layer_fail(type, "expects 0 ≤ p ≤ 1, got p = %s", fxi_float64_text(*io_p, text));
    *io_p = *io_p == 0 ? 0.0 : *io_p;
    return true;
}

static bool dropout_build(const fx_type *type, const void *options, void *self)
{
    (void)options;
    return check_probability(type, &((fx_dropout_layer *)self)->p);
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(p, NUMBER, FX_FROM(p, REAL), .names = "p", .positional = "a probability", .required = true, .flux = "p") \
    M(dims, DIMS, FX_FROM(dims, AXES), .names = "dims", .least = 1, .flux = "dims")                \
    M(active, INTEGER, FX_FROM(active, ACTIVE), .names = "active", .flux = "active")               \
    F(rng, RNG, .flux = "rng")
/* clang-format on */
static const fx_flux_form forms[] = {
    {"p dims", NULL, 0, 1001},
    {"p active", NULL, 0, 1001},
    {"p dims active", NULL, 900, 1299},
    {"p dims active rng", "p dims rng", 1300, 0},
    {0},
};
FX_LAYER_TYPE(dropout, fx_dropout_layer, fx_dropout_args, FXI_DROPOUT_ARGS, ROWS,
              (.name = "Dropout", .forward = dropout_forward, .layout_bytes = 16,
               .flags = FX_TYPE_MUTABLE),
              .build = dropout_build, .flux = "Flux.Dropout", .forms = forms);
FXI_LIBRARY_LAYER(dropout, fx_dropout_layer, fx_dropout_args)

/* ---- AlphaDropout ---------------------------------------------------------------------------- */

/* The limit of selu at −∞: −λ·α. */
#define SELU_LIMIT (-1.7580993408473766)

static void *alphadropout_forward(void *self, int n, void *const *args)
{
    const fx_alphadropout_layer *l = self;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x) || !fxi_is_active(l->active) || l->p == 0)
        return x;
    FXI_SCOPE;
    if (l->p == 1)
        return fx_keep(fx_mul(fx_sign(x), 0));
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        sizes[i] = fx_size(x, i);
    const double a = 1 / sqrt((1 - l->p) * (1 + l->p * SELU_LIMIT * SELU_LIMIT));
    fx_array *keep = fx_gt(fxi_rand(FX_DTYPE_F32, fx_ndims(x), sizes), l->p);
    fx_array *y = fx_mul(a, fx_where(keep, x, SELU_LIMIT));
    return fx_keep(fx_add(y, -a * SELU_LIMIT * l->p));
}

static bool alphadropout_build(const fx_type *type, const void *options, void *self)
{
    (void)options;
    return check_probability(type, &((fx_alphadropout_layer *)self)->p);
}

/* clang-format off */
#define ALPHA_ROWS(M, O, F)                                                                        \
    M(p, NUMBER, FX_FROM(p, REAL), .names = "p", .positional = "a probability", .required = true, .flux = "p") \
    M(active, INTEGER, FX_FROM(active, ACTIVE), .names = "active", .flux = "active")               \
    F(rng, RNG, .flux = "rng")
/* clang-format on */
static const fx_flux_form alpha_forms[] = {
    {"p active", NULL, 0, 0},
    {"p active rng", "p rng", 0, 0},
    {0},
};
FX_LAYER_TYPE(alphadropout, fx_alphadropout_layer, fx_alphadropout_args, FXI_ALPHADROPOUT_ARGS,
              ALPHA_ROWS,
              (.name = "AlphaDropout", .forward = alphadropout_forward, .layout_bytes = 16,
               .flags = FX_TYPE_MUTABLE),
              .build = alphadropout_build, .flux = "Flux.AlphaDropout", .forms = alpha_forms);
FXI_LIBRARY_LAYER(alphadropout, fx_alphadropout_layer, fx_alphadropout_args)
