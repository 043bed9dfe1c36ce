/* depthwise_conv.c: DepthwiseConv, which makes a Conv with one group per input channel.
 *
 * The type exists only in the notation and in files of Flux 0.7 to 0.12, where DepthwiseConv was a
 * struct whose weight is kernel…×(out/in)×in. The same elements in the same order are the weight
 * kernel…×1×out of a Conv with `in` groups.
 */
#include "conv_shape.h"

static void *make_conv(const fx_type *type, const void *options)
{
    fx_conv_args a = *(const fx_conv_args *)options;
    if (a.groups != 1) {
        fxi_layer_fail(type, "groups cannot be set: there is one group for each input channel");
        return fx_error_object(fxi_conv_type());
    }
    a.groups = a.in;
    return fxi_conv(&a);
}

static bool depthwise_from_flux(const fx_flux_source *source, void *options, void *self)
{
    fx_conv_args *a = options;
    fx_array *w = a->weight_array;
    const int c = w ? fx_ndims(w) - 2 : 0;
    (void)source, (void)self;
    if (c < 1)
        return false;
    int64_t sizes[FX_MAX_DIMS];
    for (int i = 0; i < c; i++)
        sizes[i] = fx_size(w, i);
    sizes[c] = 1;
    sizes[c + 1] = fx_size(w, c) * fx_size(w, c + 1);
    a->in = fx_size(w, c + 1);
    a->weight_array = fxi_reshape(w, c + 2, sizes);
    return !fx_is_error(a->weight_array);
}

#define ROWS(M, O, F) FXI_CONV_ROWS(M, O, FX_TORCH_LAYOUT_SAME, , )
static const fx_flux_form forms[] = {{"σ weight bias stride pad dilation", NULL, 700, 1299}, {0}};
FX_LAYER_TYPE(depthwiseconv, fx_conv_layer, fx_conv_args, FXI_CONV_ARGS, ROWS,
              (.name = "DepthwiseConv"), .make = make_conv, .flux = "Flux.DepthwiseConv",
              .forms = forms, .from_flux = depthwise_from_flux);
FXI_LIBRARY_LAYER(depthwiseconv, fx_depthwiseconv_layer, fx_depthwiseconv_args)
