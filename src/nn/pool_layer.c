/* pool_layer.c: MaxPool and MeanPool as layers.
 *
 * A pool has no parameters, only a window. As in NNlib, the mean divides by the size of the whole
 * window, padding included.
 */
#include "nn_layer.h"

static void *pool_forward(fx_maxpool_layer *l, bool max, int n, void *const *args)
{
    fx_array *x = fxi_layer_input(l, n, args);
    if (fx_is_error(x))
        return x;
    const fx_status s = fxi_expect_ndims(l, x, (int)l->window.n + 2);
    if (s != FX_OK)
        return fx_error_array(s);
    return max ? fx_pool_max(x, .window = l->window, .pad = l->pad, .stride = l->stride)
               : fx_pool_mean(x, .window = l->window, .pad = l->pad, .stride = l->stride);
}

static void *maxpool_forward(void *self, int n, void *const *args)
{
    return pool_forward(self, true, n, args);
}
static void *meanpool_forward(void *self, int n, void *const *args)
{
    return pool_forward(self, false, n, args);
}

static bool pool_build(const fx_type *type, const void *options, void *self)
{
    const fx_maxpool_args *a = options;
    fx_maxpool_layer *l = self;
    const int c = (int)a->window.n;
    if (c < 1 || c > 3)
        return fxi_layer_fail(type, "takes windows of 1 to 3 axes, got %d", c);
    const fx_dims *stride = a->stride.n ? &a->stride : &a->window;
    return fxi_spread_option(type, "window", &a->window, c, 1, &l->window) &&
           fxi_spread_option(type, "stride", stride, c, 1, &l->stride) &&
           fxi_spread_padding(type, &a->pad, &a->window, NULL, &l->pad);
}

/* A stride equal to the window is the default, which is an empty list. */
static bool pool_recover(const void *self, void *options)
{
    const fx_maxpool_layer *l = self;
    fx_maxpool_args *a = options;
    if (fxi_same_dims(&l->stride, &l->window))
        a->stride.n = 0;
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
