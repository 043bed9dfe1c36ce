/* conv_layer.c: Conv, a true convolution (the kernel is flipped) with stride, padding, dilation,
 * groups.
 *
 * The constructor expands the options once: stride and dilation to one number per spatial axis,
 * padding to (before, after) per axis. Padding given as one number per axis stays in that form,
 * because Flux keeps and prints it.
 */
#include "conv_shape.h"

static void *conv_forward(void *self, int n, void *const *args)
{
    fx_conv_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_conv_input(self, n, args, l->weight, l->groups, false);
    if (fx_is_error(x))
        return fx_keep(x);
    fx_array *y = fx_convolve(x, l->weight, .stride = l->stride, .pad = l->pad,
                              .dilation = l->dilation, .groups = l->groups);
    return fx_keep(fxi_activate(l->act, fxi_biased(y, l->bias, fx_ndims(x) - 2)));
}

static bool conv_build(const fx_type *type, const void *options, void *self)
{
    const fx_conv_args *a = options;
    fx_conv_layer *l = self;
    fxi_conv_options o = FXI_CONV_OPTIONS(a, false, a->groups);
    return fxi_conv_build(type, &o, &(const fxi_conv_members)FXI_CONV_MEMBERS(l));
}

static bool conv_recover(const void *self, void *options)
{
    const fx_conv_layer *l = self;
    fx_conv_args *a = options;
    return fxi_conv_recover(false, l->groups, l->weight, &a->kernel, &a->in, &a->out);
}

/* Flux's struct stores its options inline. */
static int64_t conv_bytes(const void *self)
{
    const fx_conv_layer *l = self;
    return 24 + 32 * l->stride.n;
}

#define ROWS(M, O, F) FXI_CONV_ROWS(M, O, FX_TORCH_LAYOUT_FLIPPED, FXI_CONV_GROUPS(M), )
static const fx_flux_form forms[] = {
    {"σ weight bias stride pad dilation", NULL, 0, 1205},
    {"σ weight bias stride pad dilation groups", "#stride #pad σ weight bias", 1206, 0},
    {0},
};
FX_LAYER_TYPE(conv, fx_conv_layer, fx_conv_args, FXI_CONV_ARGS, ROWS,
              (.name = "Conv", .forward = conv_forward), .build = conv_build,
              .recover = conv_recover, .layout_bytes = conv_bytes, .flux = "Flux.Conv",
              .forms = forms);
FXI_LIBRARY_LAYER(conv, fx_conv_layer, fx_conv_args)
