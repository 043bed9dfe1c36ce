/* conv_layer.c: Conv, a true convolution (the kernel is flipped) with stride, padding, dilation,
 * groups.
 *
 * The constructor expands the options once: stride and dilation to one number per spatial axis,
 * padding to (before, after) per axis. Padding given as one number per axis stays in that form,
 * because Flux keeps and prints it.
 */
#include "nn_layer.h"

#include <inttypes.h>
#include <string.h>

static void *conv_forward(void *self, int n, void *const *args)
{
    fx_conv_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_weighted_input(self, n, args, l->weight);
    if (fx_is_error(x))
        return x;
    const int nd = fx_ndims(l->weight), c = nd - 2;
    fx_status s = fxi_expect_ndims(self, x, nd);
    if (s == FX_OK)
        s = fxi_expect_size(self, x, c, fx_size(l->weight, c) * l->groups);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *y = fx_convolve(fxi_match_type(l->weight, x), l->weight, .stride = l->stride,
                              .pad = l->pad, .dilation = l->dilation, .groups = l->groups);
    return fx_keep(fxi_activate(l->act, fxi_biased(y, l->bias, c)));
}

/* Checks kernel, channels and groups, taken from the weight if it was given. */
static bool conv_sizes(const fx_type *type, const fx_conv_args *a, fx_dims *kernel, int64_t *in,
                       int64_t *out)
{
    fx_array *w = a->weight_array;
    const int c = w ? fx_ndims(w) - 2 : (int)a->kernel.n;
    if (c < 1 || c > 3 || a->groups < 1)
        return fxi_layer_fail(
            type,
            "takes kernels of 1 to 3 axes and at least one group, got %d axes and "
            "%" PRId64 " groups",
            c, a->groups);
    *in = w ? fx_size(w, c) * a->groups : a->in;
    *out = w ? fx_size(w, c + 1) : a->out;
    bool ok = *in >= 1 && *out >= 1 && *in % a->groups == 0 && *out % a->groups == 0;
    kernel->n = c;
    for (int i = 0; i < c; i++) {
        kernel->v[i] = w ? fx_size(w, i) : a->kernel.v[i];
        ok = ok && kernel->v[i] >= 1;
    }
    return ok || fxi_layer_fail(type,
                                "sizes must be positive and the groups divide the channels, got "
                                "%" PRId64 " => %" PRId64 ", %" PRId64 " groups",
                                *in, *out, a->groups);
}

/* Checks that a given weight has the sizes of kernel, in and out, if those were given too. */
static bool conv_agrees(const fx_type *type, const fx_conv_args *a, const fx_dims *kernel,
                        int64_t in, int64_t out)
{
    bool ok = (!a->in || a->in == in) && (!a->out || a->out == out) &&
              (!a->kernel.n || a->kernel.n == kernel->n);
    for (int64_t i = 0; ok && i < a->kernel.n; i++)
        ok = a->kernel.v[i] == kernel->v[i];
    return ok || fxi_layer_fail(type, "the sizes of the weight do not match kernel, in and out");
}

static bool conv_build(const fx_type *type, const void *options, void *self)
{
    const fx_conv_args *a = options;
    fx_conv_layer *l = self;
    fx_dims kernel;
    int64_t in = 0, out = 0;
    if (!conv_sizes(type, a, &kernel, &in, &out) || !conv_agrees(type, a, &kernel, in, out))
        return false;
    const int c = (int)kernel.n;
    int64_t sizes[5];
    memcpy(sizes, kernel.v, (size_t)c * sizeof *sizes);
    sizes[c] = in / l->groups;
    sizes[c + 1] = out;
    return fxi_spread_option(type, "stride", &a->stride, c, 1, &l->stride) &&
           fxi_spread_option(type, "dilation", &a->dilation, c, 1, &l->dilation) &&
           fxi_spread_padding(type, &a->pad, &kernel, &l->dilation, &l->pad) &&
           fxi_weight(type, &l->weight, a->init, c + 2, sizes) &&
           fxi_bias(type, &l->bias, a->bias, l->weight, out);
}

static bool conv_recover(const void *self, void *options)
{
    const fx_conv_layer *l = self;
    fx_conv_args *a = options;
    if (!l->weight || fx_ndims(l->weight) < 3)
        return false;
    const int c = fx_ndims(l->weight) - 2;
    a->kernel.n = c;
    for (int i = 0; i < c; i++)
        a->kernel.v[i] = fx_size(l->weight, i);
    a->in = fx_size(l->weight, c) * l->groups;
    a->out = fx_size(l->weight, c + 1);
    return true;
}

/* Flux's struct stores its options inline. */
static int64_t conv_bytes(const void *self)
{
    const fx_conv_layer *l = self;
    return 24 + 32 * l->stride.n;
}

/* clang-format off */
#define ROWS(M, O, F)                                                                              \
    O(kernel, KERNEL, .place = "a kernel such as (5, 5)", .least = 1, .required = true)            \
    O(in, PAIR, .place = "in => out", .least = 1, .required = true)                                \
    M(act, SHARED, FX_FROM(act, FUNCTION), .place = "a function", .flux = "σ")                     \
    M(weight, CHILD, FX_FROM(weight_array, ARRAY), .flux = "weight", .layout = FX_TORCH_LAYOUT_FLIPPED)   \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "bias")                                    \
    M(pad, DIMS, FX_FROM(pad, PADDING), .names = "pad", .flux = "pad")                             \
    M(stride, DIMS, FX_FROM(stride, NUMBERS), .names = "stride", .least = 1, .flux = "stride")     \
    M(dilation, DIMS, FX_FROM(dilation, NUMBERS), .names = "dilation", .least = 1,                 \
      .flux = "dilation")                                                                          \
    M(groups, INTEGER, FX_FROM(groups, INTEGER), .names = "groups", .least = 1, .flux = "groups")  \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    O(init, INIT, .names = "init")
/* clang-format on */
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
