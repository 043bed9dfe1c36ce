/* scale.c: Scale, y = act(scale .* x .+ bias).
 *
 * As in Flux, a given scale is used unchanged; a given bias must have its sizes and is converted to
 * its element type. Both broadcast against the input from the first axis on.
 */
#include "nn_layer.h"

#include <inttypes.h>

/* The sizes of x must broadcast with those of the scale. */
static fx_status check_sizes(fx_scale_layer *l, fx_array *x)
{
    for (int i = 0; i < fx_ndims(l->scale) && i < fx_ndims(x); i++)
        if (fx_size(x, i) != fx_size(l->scale, i) && fx_size(x, i) != 1 &&
            fx_size(l->scale, i) != 1)
            return fxi_expect_size(l, x, i, fx_size(l->scale, i));
    return FX_OK;
}

static void *scale_forward(void *self, int n, void *const *args)
{
    fx_scale_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_weighted_input(self, n, args, l->scale);
    if (fx_is_error(x))
        return x;
    const fx_status status = check_sizes(l, x);
    if (status != FX_OK)
        return fx_error_array(status);
    fx_array *y = fx_mul(l->scale, fxi_match_type(l->scale, x));
    return fx_keep(fxi_activate(l->act, l->bias ? fx_add(y, l->bias) : y));
}

static bool same_sizes(fx_array *a, fx_array *b)
{
    bool same = fx_ndims(a) == fx_ndims(b);
    for (int i = 0; i < fx_ndims(a) && same; i++)
        same = fx_size(a, i) == fx_size(b, i);
    return same;
}

static bool scale_bias(const fx_type *type, const fx_scale_args *a, fx_scale_layer *l)
{
    char want[100], got[100];
    if (!a->bias)
        return !l->bias || fxi_layer_fail(type, "bias_array was given with bias = false");
    if (!l->bias) {
        int64_t sizes[FX_MAX_DIMS];
        for (int i = 0; i < fx_ndims(l->scale); i++)
            sizes[i] = fx_size(l->scale, i);
        l->bias = fxi_full(fx_eltype(l->scale), 0, fx_ndims(l->scale), sizes);
    } else if (same_sizes(l->bias, l->scale))
        l->bias = fx_cast(l->bias, fx_eltype(l->scale));
    else {
        fx_summary(l->scale, want, sizeof want);
        fx_summary(l->bias, got, sizeof got);
        fx_fail(FX_STATUS_SHAPE, type->name, "expected bias of the size of a %s, got a %s", want,
                got);
        return false;
    }
    return !fx_is_error(l->bias);
}

static bool scale_build(const fx_type *type, const void *options, void *self)
{
    const fx_scale_args *a = options;
    fx_scale_layer *l = self;
    if (!(l->scale && a->size.n == 0) && !fxi_positive_sizes(type, &a->size))
        return false;
    if (l->scale && a->size.n && a->size.n != fx_ndims(l->scale))
        return fxi_layer_fail(type, "scale_array has %d axes, but there are %" PRId64 " sizes",
                              fx_ndims(l->scale), a->size.n);
    const int ndims = a->size.n ? (int)a->size.n : fx_ndims(l->scale);
    static const int64_t any[FX_MAX_DIMS];
    return fxi_weight(type, &l->scale, a->init, ndims, a->size.n ? a->size.v : any) &&
           scale_bias(type, a, l);
}

static bool scale_recover(const void *self, void *options)
{
    const fx_scale_layer *l = self;
    fx_scale_args *a = options;
    for (int i = 0; l->scale && i < fx_ndims(l->scale); i++)
        a->size.v[a->size.n++] = fx_size(l->scale, i);
    return l->scale != NULL;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(size, SIZES, .positional = "sizes", .least = 1, .required = true)                                 \
    M(scale, CHILD, FX_FROM(scale_array, ARRAY), .flux = "scale α", .torch = "weight")             \
    M(bias, CHILD, FX_FROM(bias_array, ARRAY), .flux = "bias β")                                   \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "σ")                     \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    O(init, INIT, .names = "init")
/* clang-format on */
static const fx_flux_form forms[] = {{"scale bias σ", "σ scale bias", 1300, 0}, {0}};
FX_LAYER_TYPE(scale, fx_scale_layer, fx_scale_args, FXI_SCALE_ARGS, ROWS,
              (.name = "Scale", .forward = scale_forward, .layout_bytes = 16), .build = scale_build,
              .recover = scale_recover, .semicolon = true, .flux = "Flux.Scale", .forms = forms);
FXI_LIBRARY_LAYER(scale, fx_scale_layer, fx_scale_args)
