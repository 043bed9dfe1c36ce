/* conv_layer.c: Conv, a true convolution (the kernel is flipped) with stride, padding, dilation,
 * groups.
 *
 * Options are made explicit in the constructor, once: stride and dilation per spatial axis; padding
 * as (before, after) per axis, but per axis when it was given so, because Flux keeps and prints
 * that form. There is one descriptor per number of spatial axes: they differ in nothing but the
 * size of Flux's struct, which holds its options inline (24 + 32·N bytes), and byte counts shall
 * agree with Flux.
 */
#include "layer.h"

#include <inttypes.h>

static void *conv_forward(void *self, int n, void *const *args);
static void conv_describe(const void *self, fx_text *text);

/* Flux's order. */
static const fx_field conv_fields[] = {
    FXI_LAYER_FIELD(fx_conv_layer, act, SHARED),     FXI_LAYER_FIELD(fx_conv_layer, weight, CHILD),
    FXI_LAYER_FIELD(fx_conv_layer, bias, CHILD),     FXI_LAYER_FIELD(fx_conv_layer, stride, DIMS),
    FXI_LAYER_FIELD(fx_conv_layer, pad, DIMS),       FXI_LAYER_FIELD(fx_conv_layer, dilation, DIMS),
    FXI_LAYER_FIELD(fx_conv_layer, groups, INTEGER),
};
static fx_conv_layer conv_errors[3];
#define CONV_TYPE(spatial)                                                                         \
    {                                                                                              \
        .fxi_size = sizeof(fx_type), .name = "Conv", .size = sizeof(fx_conv_layer),                \
        .fields = conv_fields, .nfields = FXI_COUNT(conv_fields), .forward = conv_forward,         \
        .describe = conv_describe, .error = &conv_errors[(spatial)-1],                             \
        .layout_bytes = 24 + 32 * (spatial),                                                       \
    }
static const fx_type conv_types[3] = {CONV_TYPE(1), CONV_TYPE(2), CONV_TYPE(3)};

static void *conv_forward(void *self, int n, void *const *args)
{
    fx_conv_layer *l = self;
    FXI_SCOPE;
    fx_array *x = fxi_layer_input(self, n, args);
    if (fx_is_error(x) || fx_is_error(l->weight))
        return fx_error_array(fx_array_status(fx_is_error(x) ? x : l->weight));
    const int nd = fx_ndims(l->weight), c = nd - 2;
    fx_status s = fxi_expect_ndims(self, x, nd);
    if (s == FX_OK)
        s = fxi_expect_size(self, x, c, fx_size(l->weight, c) * l->groups);
    if (s != FX_OK)
        return fx_error_array(s);
    fx_array *y = fx_convolve(fxi_match_type(l->weight, x), l->weight, .stride = l->stride,
                              .pad = l->pad, .dilation = l->dilation, .groups = l->groups);
    if (l->bias && !fx_is_error(y)) {
        int64_t dims[FX_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
        dims[c] = fx_size(l->bias, 0);
        y = fx_add(y, fxi_reshape(l->bias, nd, dims));
    }
    return fx_keep(fxi_activate(l->act, y));
}

static void conv_describe(const void *self, fx_text *text)
{
    const fx_conv_layer *l = self;
    if (!l->weight || fx_ndims(l->weight) < 3) {
        fx_text_add(text, "Conv()");
        return;
    }
    const int c = fx_ndims(l->weight) - 2;
    fx_dims kernel = {.n = c};
    for (int i = 0; i < c; i++)
        kernel.v[i] = fx_size(l->weight, i);
    fx_text_add(text, "Conv(");
    fxi_describe_dims(text, &kernel);
    fx_text_add(text, ", %" PRId64 " => %" PRId64, fx_size(l->weight, c) * l->groups,
                fx_size(l->weight, c + 1));
    fxi_describe_act(text, l->act);
    fxi_describe_option(text, "pad", &l->pad, 0);
    fxi_describe_option(text, "stride", &l->stride, 1);
    fxi_describe_option(text, "dilation", &l->dilation, 1);
    if (l->groups != 1)
        fx_text_add(text, ", groups=%" PRId64, l->groups);
    fx_text_add(text, l->bias ? ")" : ", bias=false)");
}

/* ---- construction ----------------------------------------------------------------------- */

/* Sizes of the kernel, from the weight when it was given; false (recorded) when they make no sense.
 */
static bool conv_sizes(const fx_conv_layer_args *a, int64_t groups, fx_dims *kernel, int64_t *in,
                       int64_t *out)
{
    const int c = a->weight ? fx_ndims(a->weight) - 2 : (int)a->kernel.n;
    if (c < 1 || c > 3 || groups < 1) {
        fxi_refuse(&conv_types[1],
                   "takes kernels of 1 to 3 axes and at least one group, got %d axes and %" PRId64
                   " groups",
                   c, groups);
        return false;
    }
    kernel->n = c;
    for (int i = 0; i < c; i++)
        kernel->v[i] = a->weight ? fx_size(a->weight, i) : a->kernel.v[i];
    *in = a->weight ? fx_size(a->weight, c) * groups : a->in;
    *out = a->weight ? fx_size(a->weight, c + 1) : a->out;
    bool ok = *in >= 1 && *out >= 1 && *in % groups == 0 && *out % groups == 0;
    for (int i = 0; i < c; i++)
        ok = ok && kernel->v[i] >= 1;
    if (!ok)
        fxi_refuse(&conv_types[c - 1],
                   "sizes must be positive and the groups divide the channels, got %" PRId64
                   " => %" PRId64 ", %" PRId64 " groups",
                   *in, *out, groups);
    return ok;
}

/* A weight given along with other sizes must have them. */
static bool conv_agrees(const fx_conv_layer_args *a, const fx_dims *kernel, int64_t in, int64_t out)
{
    bool ok = (!a->in || a->in == in) && (!a->out || a->out == out) &&
              (!a->kernel.n || a->kernel.n == kernel->n);
    for (int64_t i = 0; ok && i < a->kernel.n; i++)
        ok = a->kernel.v[i] == kernel->v[i];
    if (!ok)
        fxi_refuse(&conv_types[kernel->n - 1],
                   "the weight given has other sizes than kernel, in and out");
    return ok;
}

static fx_array *conv_weight(const fx_conv_layer_args *a, const fx_dims *kernel, int64_t in,
                             int64_t out)
{
    if (a->weight)
        return a->weight;
    const int c = (int)kernel->n;
    int64_t dims[5];
    for (int i = 0; i < c; i++)
        dims[i] = kernel->v[i];
    dims[c] = in;
    dims[c + 1] = out;
    fx_array *w = (a->init ? a->init : fx_glorot_uniform)(c + 2, dims);
    bool ok = fx_is_error(w) || fx_ndims(w) == c + 2;
    for (int i = 0; ok && !fx_is_error(w) && i < c + 2; i++)
        ok = fx_size(w, i) == dims[i];
    if (ok)
        return w;
    fxi_refuse(&conv_types[c - 1], "init returned an array of another size");
    return NULL;
}

fx_conv_layer *fxi_conv(const fx_conv_layer_args *a)
{
    FXI_SCOPE;
    fx_dims kernel;
    int64_t in, out;
    if (fxi_given_error(a->weight) || fxi_given_error(a->bias))
        return fxi_error_object(&conv_types[1]);
    fx_conv_layer l = {.act = a->act ? a->act : FX_IDENTITY, .groups = a->groups ? a->groups : 1};
    if (!conv_sizes(a, l.groups, &kernel, &in, &out) || !conv_agrees(a, &kernel, in, out))
        return fxi_error_object(&conv_types[1]);
    const int c = (int)kernel.n;
    const fx_type *type = &conv_types[c - 1];
    if (a->no_bias && a->bias)
        return fxi_refuse(type, "a bias and no_bias were given");
    if (!fxi_spread_option(type, "stride", &a->stride, c, 1, 1, &l.stride) ||
        !fxi_spread_option(type, "dilation", &a->dilation, c, 1, 1, &l.dilation) ||
        !fxi_spread_padding(type, &a->pad, &kernel, &l.dilation, &l.pad))
        return fxi_error_object(type);
    l.weight = conv_weight(a, &kernel, in / l.groups, out);
    if (fx_is_error(l.weight))
        return fxi_error_object(type);
    l.bias = a->no_bias ? NULL : fxi_parameter_vector(type, a->bias, fx_eltype(l.weight), out, 0);
    if (!a->no_bias && fx_is_error(l.bias))
        return fxi_error_object(type);
    return fx_keep((fx_conv_layer *)fxi_new(type, &l));
}
