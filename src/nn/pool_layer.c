/* pool_layer.c: MaxPool, MeanPool and LPNormPool, the p-norm of every window, as layers.
 *
 * A pool has no parameters, only a window. As in NNlib, the mean divides by the size of the whole
 * window, padding included.
 */
#include "nn_layer.h"

#include <math.h>
#include <stddef.h>

/* `pool` is fxi_pool_max, fxi_pool_mean or fxi_pool_lpnorm. Only fxi_pool_lpnorm reads p. */
static void *pool_forward(fx_maxpool_layer *l, fx_array *(*pool)(const fx_pool_args *), double p,
                          int n, void *const *args)
{
    fx_array *x = fxi_layer_input(l, n, args);
    if (fx_is_error(x))
        return x;
    const fx_status s = fxi_expect_ndims(l, x, (int)l->window.n + 2);
    if (s != FX_OK)
        return fx_error_array(s);
    return FXI_POOL(pool, x, .window = l->window, .pad = l->pad, .stride = l->stride, .p = p);
}

static void *maxpool_forward(void *self, int n, void *const *args)
{
    return pool_forward(self, fxi_pool_max, 2, n, args);
}
static void *meanpool_forward(void *self, int n, void *const *args)
{
    return pool_forward(self, fxi_pool_mean, 2, n, args);
}

/* The window, stride and padding of any of the three. */
static bool expand(const fx_type *type, const fx_dims *window, const fx_dims *stride,
                   const fx_dims *pad, fx_maxpool_layer *l)
{
    const int c = (int)window->n;
    if (c < 1 || c > 3)
        return fxi_layer_fail(type, "takes windows of 1 to 3 axes, got %d", c);
    return fxi_spread_option(type, "window", window, c, 1, &l->window) &&
           fxi_spread_option(type, "stride", stride->n ? stride : window, c, 1, &l->stride) &&
           fxi_spread_padding(type, pad, window, NULL, &l->pad);
}

/* A stride equal to the window is the default, which is an empty list. */
static void contract(const fx_maxpool_layer *l, fx_dims *stride)
{
    if (fxi_same_dims(&l->stride, &l->window))
        stride->n = 0;
}

static bool pool_build(const fx_type *type, const void *options, void *self)
{
    const fx_maxpool_args *a = options;
    return expand(type, &a->window, &a->stride, &a->pad, self);
}

static bool pool_recover(const void *self, void *options)
{
    contract(self, &((fx_maxpool_args *)options)->stride);
    return true;
}

/* Flux's struct stores its options inline. */
static int64_t pool_bytes(const void *self)
{
    return 32 * ((const fx_maxpool_layer *)self)->window.n;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(window, DIMS, FX_FROM(window, KERNEL), .positional = "a window such as (2, 2)", .least = 1,       \
      .required = true, .flux = "k")                                                               \
    M(pad, DIMS, FX_FROM(pad, PADDING), .names = "pad", .flux = "pad")                             \
    M(stride, DIMS, FX_FROM(stride, NUMBERS), .names = "stride", .least = 1, .flux = "stride")
/* clang-format on */
static const fx_flux_form forms[] = {{"k pad stride", "#k #pad", 700, 0}, {0}};
#define POOL(id, text)                                                                             \
    FX_LAYER_TYPE(id, fx_##id##_layer, fx_##id##_args, FXI_MAXPOOL_ARGS, ROWS,                     \
                  (.name = (text), .forward = id##_forward), .build = pool_build,                  \
                  .recover = pool_recover, .layout_bytes = pool_bytes, .flux = "Flux." text,       \
                  .forms = forms);                                                                 \
    FXI_LIBRARY_LAYER(id, fx_##id##_layer, fx_##id##_args)
POOL(maxpool, "MaxPool")
POOL(meanpool, "MeanPool")

/* ---- LPNormPool ------------------------------------------------------------------------------ */

/* The struct of LPNormPool begins like those of the other two, and has p at the end. */
_Static_assert(offsetof(fx_lpnormpool_layer, stride) == offsetof(fx_maxpool_layer, stride) &&
                   offsetof(fx_lpnormpool_layer, p) >= sizeof(fx_maxpool_layer),
               "the structs of pools begin alike");

static void *lpnormpool_forward(void *self, int n, void *const *args)
{
    return pool_forward(self, fxi_pool_lpnorm, ((const fx_lpnormpool_layer *)self)->p, n, args);
}

static bool lpnormpool_build(const fx_type *type, const void *options, void *self)
{
    const fx_lpnormpool_args *a = options;
    if (!(a->p > 0 && a->p < (double)INFINITY))
        return fxi_layer_fail(type, "expects a finite p > 0, got p = %g", a->p);
    return expand(type, &a->window, &a->stride, &a->pad, self);
}

static bool lpnormpool_recover(const void *self, void *options)
{
    contract(self, &((fx_lpnormpool_args *)options)->stride);
    return true;
}

/* clang-format off */
#define LPNORM_ROWS(M, O, F)                                                                       \
    M(window, DIMS, FX_FROM(window, KERNEL), .positional = "a window such as (2, 2)", .least = 1,       \
      .required = true)                                                                            \
    M(p, NUMBER, FX_FROM(p, REAL), .names = "p")                                                   \
    M(pad, DIMS, FX_FROM(pad, PADDING), .names = "pad")                                            \
    M(stride, DIMS, FX_FROM(stride, NUMBERS), .names = "stride", .least = 1)
/* clang-format on */
FX_LAYER_TYPE(lpnormpool, fx_lpnormpool_layer, fx_lpnormpool_args, FXI_LPNORMPOOL_ARGS, LPNORM_ROWS,
              (.name = "LPNormPool", .forward = lpnormpool_forward), .build = lpnormpool_build,
              .recover = lpnormpool_recover);
FXI_LIBRARY_LAYER(lpnormpool, fx_lpnormpool_layer, fx_lpnormpool_args)
