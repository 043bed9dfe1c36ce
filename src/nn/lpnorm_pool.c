/* lpnorm_pool.c: LPNormPool, the p-norm of every window as a layer. */
#include "nn_layer.h"

#include <math.h>

static void *lpnormpool_forward(void *self, int n, void *const *args)
{
    fx_lpnormpool_layer *l = self;
    fx_array *x = fxi_layer_input(l, n, args);
    if (fx_is_error(x))
        return x;
    const fx_status s = fxi_expect_ndims(l, x, (int)l->window.n + 2);
    if (s != FX_OK)
        return fx_error_array(s);
    return fx_pool_lpnorm(x, .window = l->window, .pad = l->pad, .stride = l->stride, .p = l->p);
}

static bool lpnormpool_build(const fx_type *type, const void *options, void *self)
{
    const fx_lpnormpool_args *a = options;
    fx_lpnormpool_layer *l = self;
    const int c = (int)a->window.n;
    if (c < 1 || c > 3)
        return fxi_layer_fail(type, "takes windows of 1 to 3 axes, got %d", c);
    if (!(a->p > 0 && a->p < (double)INFINITY))
        return fxi_layer_fail(type, "expects a finite p > 0, got p = %g", a->p);
    const fx_dims *stride = a->stride.n ? &a->stride : &a->window;
    return fxi_spread_option(type, "window", &a->window, c, 1, &l->window) &&
           fxi_spread_option(type, "stride", stride, c, 1, &l->stride) &&
           fxi_spread_padding(type, &a->pad, &a->window, NULL, &l->pad);
}

/* A stride equal to the window is the default, which is an empty list. */
static bool lpnormpool_recover(const void *self, void *options)
{
    const fx_lpnormpool_layer *l = self;
    fx_lpnormpool_args *a = options;
    if (fxi_same_dims(&l->stride, &l->window))
        a->stride.n = 0;
    return true;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(window, DIMS, FX_FROM(window, KERNEL), .positional = "a window such as (2, 2)", .least = 1,       \
      .required = true)                                                                            \
    M(p, NUMBER, FX_FROM(p, REAL), .names = "p")                                                   \
    M(pad, DIMS, FX_FROM(pad, PADDING), .names = "pad")                                            \
    M(stride, DIMS, FX_FROM(stride, NUMBERS), .names = "stride", .least = 1)
/* clang-format on */
FX_LAYER_TYPE(lpnormpool, fx_lpnormpool_layer, fx_lpnormpool_args, FXI_LPNORMPOOL_ARGS, ROWS,
              (.name = "LPNormPool", .forward = lpnormpool_forward), .build = lpnormpool_build,
              .recover = lpnormpool_recover);
FXI_LIBRARY_LAYER(lpnormpool, fx_lpnormpool_layer, fx_lpnormpool_args)
