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
    fxi_conv_options o = FXI_CONV_OPTIONS(a, false, 1);
    return fxi_conv_build(type, &o, &(const fxi_conv_members)FXI_CONV_MEMBERS(l));
}

static bool crosscor_recover(const void *self, void *options)
{
    const fx_crosscor_layer *l = self;
    fx_crosscor_args *a = options;
    return fxi_conv_recover(false, 1, l->weight, &a->kernel, &a->in, &a->out);
}

/* Flux's struct stores its options inline. */
static int64_t crosscor_bytes(const void *self)
{
    return 16 + 32 * ((const fx_crosscor_layer *)self)->stride.n;
}

#define ROWS(M, O, F) FXI_CONV_ROWS(M, O, FX_TORCH_LAYOUT_SAME, , )
static const fx_flux_form forms[] = {
    {"σ weight bias stride pad dilation", "#stride #pad σ weight bias", 900, 0}, {0}};
FX_LAYER_TYPE(crosscor, fx_crosscor_layer, fx_crosscor_args, FXI_CROSSCOR_ARGS, ROWS,
              (.name = "CrossCor", .forward = crosscor_forward), .build = crosscor_build,
              .recover = crosscor_recover, .layout_bytes = crosscor_bytes, .flux = "Flux.CrossCor",
              .forms = forms);
FXI_LIBRARY_LAYER(crosscor, fx_crosscor_layer, fx_crosscor_args)
