/* conv_transpose.c: ConvTranspose, the gradient of a convolution with respect to its input. */
#include "conv_shape.h"

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

static bool convtranspose_build(const fx_type *type, const void *options, void *self)
{
    const fx_convtranspose_args *a = options;
    fx_convtranspose_layer *l = self;
    fxi_conv_options o = FXI_CONV_OPTIONS(a, true, a->groups);
    return fxi_conv_build(type, &o, &(const fxi_conv_members)FXI_CONV_MEMBERS(l)) &&
           fxi_spread_option(type, "outpad", &a->outpad, (int)o.shape.kernel.n, 0, &l->outpad);
}

static bool convtranspose_recover(const void *self, void *options)
{
    const fx_convtranspose_layer *l = self;
    fx_convtranspose_args *a = options;
    return fxi_conv_recover(true, l->groups, l->weight, &a->kernel, &a->in, &a->out);
}

/* Flux's struct stores its options inline. */
static int64_t convtranspose_bytes(const void *self)
{
    return 24 + 40 * ((const fx_convtranspose_layer *)self)->stride.n;
}

#define OUTPAD(M)     M(outpad, DIMS, FX_FROM(outpad, TUPLE), .names = "outpad", .flux = "outpad")
#define ROWS(M, O, F) FXI_CONV_ROWS(M, O, FX_TORCH_LAYOUT_FLIPPED, FXI_CONV_GROUPS(M), OUTPAD(M))
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
