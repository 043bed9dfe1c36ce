/* global_pool.c: GlobalMaxPool and GlobalMeanPool: one number per channel and observation.
 *
 * The window is the whole image. The maximum is a pool, so that its gradient goes to one element as
 * in NNlib; the mean is a reduction.
 */
#include "nn_layer.h"

static fx_array *global_input(void *self, int n, void *const *args)
{
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x))
        return x;
    const int c = fx_ndims(x) - 2;
    if (c >= 1 && c <= 3)
        return x;
    return fx_error_array(fxi_layer_mismatch(self, x, FX_STATUS_SHAPE, "3 ≤ ndims(input) ≤ 5"));
}

static void *globalmaxpool_forward(void *self, int n, void *const *args)
{
    fx_array *x = global_input(self, n, args);
    if (fx_is_error(x))
        return x;
    fx_dims window = {.n = fx_ndims(x) - 2};
    for (int i = 0; i < window.n; i++)
        if ((window.v[i] = fx_size(x, i)) == 0)
            return fx_error_array(
                fxi_layer_mismatch(self, x, FX_STATUS_SHAPE, "spatial sizes of at least 1"));
    return fx_pool_max(x, window);
}

static void *globalmeanpool_forward(void *self, int n, void *const *args)
{
    fx_array *x = global_input(self, n, args);
    if (fx_is_error(x))
        return x;
    FXI_SCOPE;
    return fx_keep(fx_mean(fxi_is_floating(fx_eltype(x)) ? x : fx_cast(x, FX_DTYPE_F32),
                           .dims = FXI_AXES((1u << (unsigned)(fx_ndims(x) - 2)) - 1u)));
}

#define ROWS(M, O, F)
static const fx_flux_form forms[] = {{"", "", 0, 0}, {0}};
#define POOL(id, text)                                                                             \
    FX_LAYER_TYPE(id, fx_##id##_layer, fx_no_options, FX_NO_OPTIONS, ROWS,                         \
                  (.name = (text), .forward = id##_forward), .flux = "Flux." text,                 \
                  .forms = forms);                                                                 \
    const fx_type *fxi_##id##_type(void)                                                           \
    {                                                                                              \
        return fxi_type_##id();                                                                    \
    }                                                                                              \
    fx_##id##_layer *fx_##id(void)                                                                 \
    {                                                                                              \
        const fx_no_options none = {sizeof none};                                                  \
        return fx_layer_make(fxi_type_##id(), &none);                                              \
    }
POOL(globalmaxpool, "GlobalMaxPool")
POOL(globalmeanpool, "GlobalMeanPool")
