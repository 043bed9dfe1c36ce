/* conv_transpose.c: ConvTranspose, the gradient of a convolution by its input as a layer. */
#include "conv_shape.h"

#include <inttypes.h>

static void *convtranspose_forward(void *self, int n, void *const *args)
{
    fx_convtranspose_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_conv_input(self, n, args, l->weight, l->groups, true);
    if (fx_is_error(x))
        return fx_keep(x);
    fx_array *y =
        fx_convolve_transposed(x, l->weight, .stride = l->stride, .pad = l->pad,
                               .dilation = l->dilation, .groups = l->groups, .outpad = l->outpad);
    return fx_keep(fxi_activate(l->act, fxi_biased(y, l->bias, fx_ndims(x) - 2)));
}

/* FX_SAME makes the output `stride` times as large as the input: Flux pads as for a convolution
 * with a kernel of k − stride + 1 elements. A stride larger than the kernel would need negative
 * padding. */
static bool spread_padding(const fx_type *type, const fx_dims *given, const fxi_conv_shape *s,
                           fx_convtranspose_layer *l)
{
    fx_dims kernel = s->kernel;
    for (int64_t i = 0; i < kernel.n; i++) {
        kernel.v[i] -= l->stride.v[i] - 1;
        if (given->n == -1 && kernel.v[i] < 1)
            return fxi_layer_fail(type,
                                  "SamePad needs a stride that is not larger than the kernel, got "
                                  "stride %" PRId64 " and kernel %" PRId64,
                                  l->stride.v[i], s->kernel.v[i]);
    }
    return fxi_spread_padding(type, given, &kernel, &l->dilation, &l->pad);
}

static bool convtranspose_build(const fx_type *type, const void *options, void *self)
{
    const fx_convtranspose_args *a = options;
    fx_convtranspose_layer *l = self;
    fxi_conv_shape s = {.transposed = true,
                        .groups = a->groups,
                        .weight = a->weight_array,
                        .kernel = a->kernel,
                        .in = a->in,
                        .out = a->out};
    if (!fxi_conv_shape_complete(type, &s))
        return false;
    const int c = (int)s.kernel.n;
    return fxi_spread_option(type, "stride", &a->stride, c, 1, &l->stride) &&
           fxi_spread_option(type, "dilation", &a->dilation, c, 1, &l->dilation) &&
           fxi_spread_option(type, "outpad", &a->outpad, c, 0, &l->outpad) &&
           spread_padding(type, &a->pad, &s, l) &&
           fxi_weight(type, &l->weight, a->init, c + 2, s.sizes) &&
           fxi_bias(type, &l->bias, a->bias, l->weight, s.out);
}

static bool convtranspose_recover(const void *self, void *options)
{
    const fx_convtranspose_layer *l = self;
    fx_convtranspose_args *a = options;
    fxi_conv_shape s = {.transposed = true, .groups = l->groups, .weight = l->weight};
    const bool known = fxi_conv_shape_recover(&s);
    a->kernel = s.kernel;
    a->in = s.in;
    a->out = s.out;
    return known;
}

/* Flux's struct stores its options inline. */
static int64_t convtranspose_bytes(const void *self)
{
    return 24 + 40 * ((const fx_convtranspose_layer *)self)->stride.n;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(kernel, KERNEL, .positional = "a kernel such as (5, 5)", .least = 1, .required = true)            \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)                                \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "σ")                     \
    M(weight, CHILD, FX_FROM(weight_array, ARRAY), .flux = "weight", .layout = FX_TORCH_LAYOUT_FLIPPED)   \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "bias")                                    \
    M(pad, DIMS, FX_FROM(pad, PADDING), .names = "pad", .flux = "pad")                             \
    M(stride, DIMS, FX_FROM(stride, NUMBERS), .names = "stride", .least = 1, .flux = "stride")     \
    M(dilation, DIMS, FX_FROM(dilation, NUMBERS), .names = "dilation", .least = 1,                 \
      .flux = "dilation")                                                                          \
    M(groups, INTEGER, FX_FROM(groups, INTEGER), .names = "groups", .least = 1, .flux = "groups")  \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    M(outpad, DIMS, FX_FROM(outpad, TUPLE), .names = "outpad", .flux = "outpad")                   \
    O(init, INIT, .names = "init")
/* clang-format on */
static const fx_flux_form forms[] = {
    {"σ weight bias stride pad dilation", NULL, 800, 1207},
    {"σ weight bias stride pad dilation groups", NULL, 1208, 1416},
    {"σ weight bias stride pad outpad dilation groups", "#stride #pad σ weight bias", 1417, 0},
    {0},
};
FX_LAYER_TYPE(convtranspose, fx_convtranspose_layer, fx_convtranspose_args, FXI_CONVTRANSPOSE_ARGS,
              ROWS, (.name = "ConvTranspose", .forward = convtranspose_forward),
              .build = convtranspose_build, .recover = convtranspose_recover,
              .layout_bytes = convtranspose_bytes, .flux = "Flux.ConvTranspose", .forms = forms);
FXI_LIBRARY_LAYER(convtranspose, fx_convtranspose_layer, fx_convtranspose_args)
