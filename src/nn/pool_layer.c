/* pool_layer.c: MaxPool and MeanPool as layers.
 *
 * A pool has no parameters, only a window; the descriptors are one per kind and number of spatial
 * axes, as Conv's are, because Flux's struct holds the options inline (32·N bytes). The mean
 * divides by the whole window, padding counted, as NNlib's.
 */
#include "layer.h"

static void *maxpool_forward(void *self, int n, void *const *args);
static void *meanpool_forward(void *self, int n, void *const *args);
static void pool_describe(const void *self, fx_text *text);

static const fx_field pool_fields[] = {
    FXI_LAYER_FIELD(fx_pool_layer, window, DIMS),
    FXI_LAYER_FIELD(fx_pool_layer, pad, DIMS),
    FXI_LAYER_FIELD(fx_pool_layer, stride, DIMS),
};
static fx_pool_layer pool_errors[6];
#define POOL_TYPE(text, call, spatial, nth)                                                        \
    {                                                                                              \
        .fxi_size = sizeof(fx_type), .name = (text), .size = sizeof(fx_pool_layer),                \
        .fields = pool_fields, .nfields = FXI_COUNT(pool_fields), .forward = (call),               \
        .describe = pool_describe, .error = &pool_errors[nth], .layout_bytes = 32 * (spatial),     \
    }
static const fx_type maxpool_types[3] = {
    POOL_TYPE("MaxPool", maxpool_forward, 1, 0),
    POOL_TYPE("MaxPool", maxpool_forward, 2, 1),
    POOL_TYPE("MaxPool", maxpool_forward, 3, 2),
};
static const fx_type meanpool_types[3] = {
    POOL_TYPE("MeanPool", meanpool_forward, 1, 3),
    POOL_TYPE("MeanPool", meanpool_forward, 2, 4),
    POOL_TYPE("MeanPool", meanpool_forward, 3, 5),
};

static void *pool_forward(fx_pool_layer *l, fx_array *(*apply)(const fx_pool_args *), int n,
                          void *const *args)
{
    fx_array *x = fxi_layer_input(l, n, args);
    if (fx_is_error(x))
        return x;
    const fx_status s = fxi_expect_ndims(l, x, (int)l->window.n + 2);
    if (s != FX_OK)
        return fx_error_array(s);
    return apply(FXI_POOL(x, .window = l->window, .pad = l->pad, .stride = l->stride));
}

static void *maxpool_forward(void *self, int n, void *const *args)
{
    return pool_forward(self, fxi_pool_max, n, args);
}
static void *meanpool_forward(void *self, int n, void *const *args)
{
    return pool_forward(self, fxi_pool_mean, n, args);
}

static void pool_describe(const void *self, fx_text *text)
{
    const fx_pool_layer *l = self;
    bool own_stride = l->stride.n != l->window.n;
    for (int64_t i = 0; i < l->window.n && !own_stride; i++)
        own_stride = l->stride.v[i] != l->window.v[i];
    fx_text_add(text, "%s(", fx_type_of(self)->name);
    fxi_describe_dims(text, &l->window);
    fxi_describe_option(text, "pad", &l->pad, 0);
    if (own_stride)
        fxi_describe_option(text, "stride", &l->stride, -1);
    fx_text_add(text, ")");
}

static fx_pool_layer *pool_new(const fx_type *types, const fx_pool_layer_args *a)
{
    fx_pool_layer l = {.window = a->window};
    const int c = (int)a->window.n;
    if (c < 1 || c > 3)
        return fxi_refuse(&types[1], "takes windows of 1 to 3 axes, got %d", c);
    const fx_type *type = &types[c - 1];
    if (!fxi_spread_option(type, "window", &a->window, c, 1, 1, &l.window) ||
        !fxi_spread_option(type, "stride", a->stride.n ? &a->stride : &a->window, c, 1, 1,
                           &l.stride) ||
        !fxi_spread_padding(type, &a->pad, &a->window, NULL, &l.pad))
        return fxi_error_object(type);
    return fxi_new(type, &l);
}

fx_pool_layer *fxi_maxpool(const fx_pool_layer_args *a)
{
    return pool_new(maxpool_types, a);
}
fx_pool_layer *fxi_meanpool(const fx_pool_layer_args *a)
{
    return pool_new(meanpool_types, a);
}
