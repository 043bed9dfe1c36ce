/* adaptive_pool.c: AdaptiveMaxPool and AdaptiveMeanPool: pools whose window follows from the size
 * of the result. */
#include "nn_layer.h"

#include <inttypes.h>

/* Flux's rule: stride = in ÷ out, window = in − (out − 1)·stride. The last window ends at the last
 * element; if out does not divide in, the windows overlap. */
static fx_status adaptive_window(void *self, fx_array *x, const fx_dims *out, fx_dims *window,
                                 fx_dims *stride)
{
    char expected[64];
    const fx_status s = fxi_expect_ndims(self, x, (int)out->n + 2);
    if (s != FX_OK)
        return s;
    *window = *stride = *out;
    for (int i = 0; i < out->n; i++) {
        const int64_t in = fx_size(x, i);
        snprintf(expected, sizeof expected, "size(input, %d) ≥ %" PRId64, i + 1, out->v[i]);
        if (in < out->v[i])
            return fxi_layer_mismatch(self, x, FX_STATUS_SHAPE, expected);
        stride->v[i] = in / out->v[i];
        window->v[i] = in - (out->v[i] - 1) * stride->v[i];
    }
    return FX_OK;
}

static void *adaptive_forward(fx_adaptivemaxpool_layer *l, bool max, int n, void *const *args)
{
    fx_dims window, stride;
    fx_array *x = fxi_layer_input(l, n, args);
    if (fx_is_error(x))
        return x;
    const fx_status s = adaptive_window(l, x, &l->out, &window, &stride);
    if (s != FX_OK)
        return fx_error_array(s);
    return max ? fx_pool_max(x, window, .stride = stride)
               : fx_pool_mean(x, window, .stride = stride);
}

static void *adaptivemaxpool_forward(void *self, int n, void *const *args)
{
    return adaptive_forward(self, true, n, args);
}
static void *adaptivemeanpool_forward(void *self, int n, void *const *args)
{
    return adaptive_forward(self, false, n, args);
}

static bool adaptive_build(const fx_type *type, const void *options, void *self)
{
    const fx_adaptivemaxpool_args *a = options;
    fx_adaptivemaxpool_layer *l = self;
    const int c = (int)a->out.n;
    if (c < 1 || c > 3)
        return fxi_layer_fail(type, "takes output sizes of 1 to 3 axes, got %d", c);
    return fxi_spread_option(type, "out", &a->out, c, 1, &l->out);
}

/* Flux's struct stores its options inline. */
static int64_t adaptive_bytes(const void *self)
{
    return 8 * ((const fx_adaptivemaxpool_layer *)self)->out.n;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    M(out, DIMS, FX_FROM(out, KERNEL), .positional = "output sizes such as (7, 7)", .least = 1,         \
      .required = true, .flux = "out")
/* clang-format on */
static const fx_flux_form forms[] = {{"out", "#out+2 #out", 0, 0}, {0}};
#define POOL(id, text)                                                                             \
    FX_LAYER_TYPE(id, fx_##id##_layer, fx_##id##_args, FXI_ADAPTIVEMAXPOOL_ARGS, ROWS,             \
                  (.name = (text), .forward = id##_forward), .build = adaptive_build,              \
                  .layout_bytes = adaptive_bytes, .flux = "Flux." text, .forms = forms);           \
    FXI_LIBRARY_LAYER(id, fx_##id##_layer, fx_##id##_args)
POOL(adaptivemaxpool, "AdaptiveMaxPool")
POOL(adaptivemeanpool, "AdaptiveMeanPool")
