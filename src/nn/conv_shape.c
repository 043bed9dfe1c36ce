/* conv_shape.c: sizes and inputs of convolution layers: see conv_shape.h. */
#include "conv_shape.h"

#include <inttypes.h>
#include <string.h>

bool fxi_conv_shape_recover(fxi_conv_shape *s)
{
    if (!s->weight || fx_ndims(s->weight) < 3)
        return false;
    const int c = fx_ndims(s->weight) - 2;
    s->kernel.n = c;
    for (int i = 0; i < c; i++)
        s->kernel.v[i] = fx_size(s->weight, i);
    s->in = s->transposed ? fx_size(s->weight, c + 1) : fx_size(s->weight, c) * s->groups;
    s->out = s->transposed ? fx_size(s->weight, c) * s->groups : fx_size(s->weight, c + 1);
    return true;
}

/* Checks kernel, channels and groups. */
static bool sizes_fit(const fx_type *type, const fxi_conv_shape *s)
{
    if (s->kernel.n < 1 || s->kernel.n > 3 || s->groups < 1)
        return fxi_layer_fail(
            type,
            "takes kernels of 1 to 3 axes and at least one group, got %d axes and "
            "%" PRId64 " groups",
            (int)s->kernel.n, s->groups);
    bool positive = s->in >= 1 && s->out >= 1;
    for (int64_t i = 0; i < s->kernel.n; i++)
        positive = positive && s->kernel.v[i] >= 1;
    char kernel[100];
    if (!positive)
        return fxi_layer_fail(type, "sizes must be positive, got %s, %" PRId64 " => %" PRId64,
                              fxi_dims_text(&s->kernel, kernel, sizeof kernel), s->in, s->out);
    const bool in = s->in % s->groups == 0;
    return (in && s->out % s->groups == 0) ||
           fxi_layer_fail(type,
                          "%s channel dimension must be divisible by groups, got %" PRId64
                          " => %" PRId64 ", %" PRId64 " groups",
                          in ? "Output" : "Input", s->in, s->out, s->groups);
}

/* Checks that a given weight has the sizes of kernel, in and out, if those were given too. */
static bool agrees(const fx_type *type, const fxi_conv_shape *given, const fxi_conv_shape *s)
{
    bool ok = (!given->in || given->in == s->in) && (!given->out || given->out == s->out) &&
              (!given->kernel.n || given->kernel.n == s->kernel.n);
    for (int64_t i = 0; ok && i < given->kernel.n; i++)
        ok = given->kernel.v[i] == s->kernel.v[i];
    char kernel[100], weight[100];
    return ok || fxi_layer_fail(
                     type, "the weight, a %s, does not match %s, %" PRId64 " => %" PRId64,
                     fxi_given(s->weight, weight, sizeof weight),
                     fxi_dims_text(&given->kernel, kernel, sizeof kernel), given->in, given->out);
}

bool fxi_conv_shape_complete(const fx_type *type, fxi_conv_shape *s)
{
    const fxi_conv_shape given = *s;
    if (s->weight && !fxi_conv_shape_recover(s))
        s->kernel.n = fx_ndims(s->weight) - 2;
    if (!sizes_fit(type, s) || (s->weight && !agrees(type, &given, s)))
        return false;
    const int64_t c = s->kernel.n;
    memcpy(s->sizes, s->kernel.v, (size_t)c * sizeof *s->sizes);
    s->sizes[c] = (s->transposed ? s->out : s->in) / s->groups;
    s->sizes[c + 1] = s->transposed ? s->in : s->out;
    return true;
}

fx_array *fxi_conv_input(void *self, int n, void *const *args, fx_array *weight, int64_t groups,
                         bool transposed)
{
    fx_array *x = fxi_weighted_input(self, n, args, weight);
    if (fx_is_error(x))
        return x;
    const int nd = fx_ndims(weight);
    const int64_t channels =
        transposed ? fx_size(weight, nd - 1) : fx_size(weight, nd - 2) * groups;
    fx_status s = fxi_expect_ndims(self, x, nd);
    if (s == FX_OK)
        s = fxi_expect_size(self, x, nd - 2, channels);
    return s == FX_OK ? fxi_match_type(weight, x) : fx_error_array(s);
}

/* FX_SAME makes the output of a transposed convolution `stride` times as large as the input: Flux
 * pads as for a convolution with a kernel of k − stride + 1 elements. A stride larger than the
 * kernel would need negative padding. */
static bool padded_kernel(const fx_type *type, const fxi_conv_options *o, const fx_dims *stride,
                          fx_dims *kernel)
{
    *kernel = o->shape.kernel;
    for (int64_t i = 0; i < kernel->n && o->shape.transposed; i++) {
        kernel->v[i] -= stride->v[i] - 1;
        if (o->pad->n == -1 && kernel->v[i] < 1)
            return fxi_layer_fail(type,
                                  "SamePad needs a stride that is not larger than the kernel, got "
                                  "stride %" PRId64 " and kernel %" PRId64,
                                  stride->v[i], o->shape.kernel.v[i]);
    }
    return true;
}

bool fxi_conv_build(const fx_type *type, fxi_conv_options *o, const fxi_conv_members *m)
{
    fxi_conv_shape *s = &o->shape;
    fx_dims kernel;
    if (!fxi_conv_shape_complete(type, s))
        return false;
    const int c = (int)s->kernel.n;
    return fxi_spread_option(type, "stride", o->stride, c, 1, m->stride) &&
           fxi_spread_option(type, "dilation", o->dilation, c, 1, m->dilation) &&
           padded_kernel(type, o, m->stride, &kernel) &&
           fxi_spread_padding(type, o->pad, &kernel, m->dilation, m->pad) &&
           fxi_weight(type, m->weight, o->init, c + 2, s->sizes) &&
           fxi_bias(type, m->bias, o->bias, *m->weight, s->out);
}

bool fxi_conv_recover(bool transposed, int64_t groups, fx_array *weight, fx_dims *out_kernel,
                      int64_t *out_in, int64_t *out_out)
{
    fxi_conv_shape s = {.transposed = transposed, .groups = groups, .weight = weight};
    const bool known = fxi_conv_shape_recover(&s);
    *out_kernel = s.kernel;
    *out_in = s.in;
    *out_out = s.out;
    return known;
}
