/* cross_cor.c: CrossCor, a convolution whose kernel is not flipped, as in PyTorch. */
#include "conv_shape.h"

static void *crosscor_forward(void *self, int n, void *const *args)
{
    fx_crosscor_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_conv_input(self, n, args, l->weight, 1, false);
    if (fx_is_error(x))
        return fx_keep(x);
    fx_array *y = fx_convolve(x, l->weight, .stride = l->stride, .pad = l->pad,
                              .dilation = l->dilation, .flipped = true);
    return fx_keep(fxi_activate(l->act, fxi_biased(y, l->bias, fx_ndims(x) - 2)));
}

static bool crosscor_build(const fx_type *type, const void *options, void *self)
{
    const fx_crosscor_args *a = options;
    fx_crosscor_layer *l = self;
    fxi_conv_shape s = {
        .groups = 1, .weight = a->weight_array, .kernel = a->kernel, .in = a->in, .out = a->out};
    if (!fxi_conv_shape_complete(type, &s))
        return false;
    const int c = (int)s.kernel.n;
    return fxi_spread_option(type, "stride", &a->stride, c, 1, &l->stride) &&
           fxi_spread_option(type, "dilation", &a->dilation, c, 1, &l->dilation) &&
           fxi_spread_padding(type, &a->pad, &s.kernel, &l->dilation, &l->pad) &&
           fxi_weight(type, &l->weight, a->init, c + 2, s.sizes) &&
           fxi_bias(type, &l->bias, a->bias, l->weight, s.out);
}

static bool crosscor_recover(const void *self, void *options)
{
    const fx_crosscor_layer *l = self;
    fx_crosscor_args *a = options;
    fxi_conv_shape s = {.groups = 1, .weight = l->weight};
    const bool known = fxi_conv_shape_recover(&s);
    a->kernel = s.kernel;
    a->in = s.in;
    a->out = s.out;
    return known;
}

/* Flux's struct stores its options inline. */
static int64_t crosscor_bytes(const void *self)
{
    return 16 + 32 * ((const fx_crosscor_layer *)self)->stride.n;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(kernel, KERNEL, .positional = "a kernel such as (5, 5)", .least = 1, .required = true)            \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)                                \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "σ")                     \
    M(weight, CHILD, FX_FROM(weight_array, ARRAY), .flux = "weight")                               \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "bias")                                    \
    M(pad, DIMS, FX_FROM(pad, PADDING), .names = "pad", .flux = "pad")                             \
    M(stride, DIMS, FX_FROM(stride, NUMBERS), .names = "stride", .least = 1, .flux = "stride")     \
    M(dilation, DIMS, FX_FROM(dilation, NUMBERS), .names = "dilation", .least = 1,                 \
      .flux = "dilation")                                                                          \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    O(init, INIT, .names = "init")
/* clang-format on */
static const fx_flux_form forms[] = {
    {"σ weight bias stride pad dilation", "#stride #pad σ weight bias", 900, 0}, {0}};
FX_LAYER_TYPE(crosscor, fx_crosscor_layer, fx_crosscor_args, FXI_CROSSCOR_ARGS, ROWS,
              (.name = "CrossCor", .forward = crosscor_forward), .build = crosscor_build,
              .recover = crosscor_recover, .layout_bytes = crosscor_bytes, .flux = "Flux.CrossCor",
              .forms = forms);
FXI_LIBRARY_LAYER(crosscor, fx_crosscor_layer, fx_crosscor_args)
