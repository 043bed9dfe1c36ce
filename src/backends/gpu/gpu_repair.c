/* gpu_repair.c: the gradient of a convolution's weights after the padding was multiplied.
 *
 * The interface of backends promises that terms whose x is in the padding add nothing to the
 * gradient of the weights. A library, or a tile of gpu_conv.c, that multiplies the padding's zeros
 * by gy breaks this promise if gy is infinite or NaN. So one kernel looks for such numbers, in gy
 * or in the result, whichever is smaller. The result shows them too: each weight that has a term
 * with such a number of gy becomes infinite or NaN, even if the term's x is in the padding. If
 * there are any, a second kernel computes all weights again: slowly, but then training has failed
 * already. (Finite terms may add up to an infinite weight. Then the second kernel computes the
 * same.) Otherwise the groups of the second kernel end at once. The host does not wait.
 */
#include "gpu_text.h"

/* At most as many groups as a group has work-items: every work-item of the second kernel then reads
 * one word of the first. A work-item looks at EACH elements, or at more if there would be too many
 * groups. */
enum { MOST_GROUPS = FXI_GPU_GROUP, EACH = 16 };

/* Parameters of the second kernel. */
#define AXIS_PARAMS(X) X(TAPS) X(XS) X(YS) X(STRIDE)
#define NUMBER(name)   name,
enum { WEIGHTS, GROUPS, APART, CHANNELS, OUTS, BATCHES, FIRST_PARAM };
static const char *const names[] = {"WEIGHTS", "GROUPS", "APART", "CHANNELS", "OUTS", "BATCHES"};
enum { AXIS_PARAMS(NUMBER) AXES };
enum {
    ORIGIN = FIRST_PARAM + 3 * AXES,
    TAP_DISTANCE = ORIGIN + 3,
    XSTRIDE = TAP_DISTANCE + 3,
    YSTRIDE = XSTRIDE + 5
};
enum { PARAMS = YSTRIDE + 5 };
#define NAME(name) #name,
static const char *const axis_names[] = {AXIS_PARAMS(NAME)};

static void set_type(fxi_gpu_builder *b, const fxi_gpu_type *t)
{
    fxi_gpu_set(b, "stored", t->stored);
    fxi_gpu_set(b, "value", t->value);
    fxi_gpu_set(b, "name", t->name);
}

static int64_t groups_for(int64_t n)
{
    const int64_t groups = fxi_gpu_divide_up(n, (int64_t)FXI_GPU_GROUP * EACH);
    return groups < MOST_GROUPS ? groups : MOST_GROUPS;
}

static void find_infinite(fxi_gpu_builder *b, fxi_gpu_buffer_ref in, int64_t n, int64_t groups,
                          bool wide, int64_t work)
{
    fxi_gpu_begin(b, wide);
    fxi_gpu_kernel(b, "fx_repair_look", 2, 2);
    set_type(b, &fxi_gpu_types[b->step->out.dtype]);
    fxi_gpu_say_part(b, fxi_gpu_text_repair_look);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, (fxi_gpu_role)in.role, in.k);
    fxi_gpu_buffer(c, 1, FXI_GPU_WORK, work);
    fxi_gpu_param(c, 0, n);
    fxi_gpu_param(c, 1, groups * FXI_GPU_GROUP);
    c->groups[0] = groups;
}

static void say_weights(fxi_gpu_builder *b, bool wide)
{
    fxi_gpu_begin(b, wide);
    fxi_gpu_kernel(b, "fx_repair_weights", 4, PARAMS);
    set_type(b, &fxi_gpu_types[b->step->out.dtype]);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_repair_weights, "parameters");
    for (int k = 0; k < FIRST_PARAM; k++)
        fxi_gpu_say(b, "#define %s P(%d)\n", names[k], k);
    for (int a = 0; a < AXES; a++)
        fxi_gpu_say(b, "#define %s(d) P(%d + (d))\n", axis_names[a], FIRST_PARAM + 3 * a);
    /* The position in x, at position 0 of y, of element k of the weights: it decreases with k
     * unless the attribute `flipped` is set (a cross-correlation). */
    fxi_gpu_say(b, "#define FIRST(d, k) (P(%d + (d)) + (k) * P(%d + (d)))\n", ORIGIN, TAP_DISTANCE);
    fxi_gpu_say(b, "#define XSTRIDE(d) P(%d + (d))\n#define YSTRIDE(d) P(%d + (d))\n", XSTRIDE,
                YSTRIDE);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

/* Sets the strides of the three spatial axes, of the channels and of the batch. */
static void set_strides(fxi_gpu_call *c, int first, const fx_tensor *t, int spatial)
{
    for (int d = 0; d < 3; d++)
        fxi_gpu_param(c, first + d, d < spatial ? fxi_gpu_stride(t, d) : 0);
    fxi_gpu_param(c, first + 3, fxi_gpu_stride(t, spatial));
    fxi_gpu_param(c, first + 4, fxi_gpu_stride(t, spatial + 1));
}

static void set_axis(fxi_gpu_call *c, const fx_step *s, int d)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const bool exists = d < a->spatial;
    const int64_t taps = exists ? s->out.shape[d] : 1, dilation = exists ? a->dilation[d] : 1;
    const int64_t before = exists ? a->before[d] : 0;
    fxi_gpu_param(c, FIRST_PARAM + 3 * TAPS + d, taps);
    fxi_gpu_param(c, FIRST_PARAM + 3 * XS + d, exists ? s->in[0].shape[d] : 1);
    fxi_gpu_param(c, FIRST_PARAM + 3 * YS + d, exists ? s->in[1].shape[d] : 1);
    fxi_gpu_param(c, FIRST_PARAM + 3 * STRIDE + d, exists ? a->stride[d] : 1);
    fxi_gpu_param(c, ORIGIN + d, (a->flipped ? 0 : (taps - 1) * dilation) - before);
    fxi_gpu_param(c, TAP_DISTANCE + d, a->flipped ? dilation : -dilation);
}

bool fxi_gpu_repairs(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    bool padded = false;
    for (int d = 0; d < a->spatial; d++)
        padded |= a->before[d] != 0 || a->after[d] != 0;
    return padded && a->kind == FX_CONV_WEIGHT;
}

bool fxi_gpu_can_repair(const fx_step *s)
{
    const fx_tensor *y = &s->in[1];
    return fxi_gpu_reach(y->ndim, y->shape, y->stride) + 1 == fx_tensor_length(y);
}

void fxi_gpu_repair(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const int n = fx_step_conv(s)->attr.spatial;
    const int64_t gradients = fx_tensor_length(&s->in[1]), weights = fx_tensor_length(&s->out);
    /* Float16 sums of finite terms are infinite as soon as the scale of a loss is too large. The
     * weights need not be computed again then, so gy is searched, not the weights. */
    const bool in_weights = weights < gradients && s->out.dtype != FX_DTYPE_F16;
    const fxi_gpu_buffer_ref in = {.k = in_weights ? 0 : 1,
                                   .role = in_weights ? FXI_GPU_OUT : FXI_GPU_IN};
    const int64_t length = in_weights ? weights : gradients, groups = groups_for(length),
                  each = groups_for(weights * EACH);
    const bool wide = fxi_gpu_wide(length + MOST_GROUPS * FXI_GPU_GROUP) ||
                      fxi_gpu_wide(fxi_gpu_reach(s->in[0].ndim, s->in[0].shape, s->in[0].stride)) ||
                      fxi_gpu_wide(weights + MOST_GROUPS * FXI_GPU_GROUP);
    /* A word for each group of the first kernel: whether it has found such a number. */
    const int64_t work = fxi_gpu_work(b, groups * 4);
    find_infinite(b, in, length, groups, wide, work);
    say_weights(b, wide);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, FXI_GPU_OUT, 0);
    fxi_gpu_buffer(c, 3, FXI_GPU_WORK, work);
    fxi_gpu_param(c, WEIGHTS, weights);
    fxi_gpu_param(c, GROUPS, groups);
    fxi_gpu_param(c, APART, each * FXI_GPU_GROUP);
    fxi_gpu_param(c, CHANNELS, s->out.shape[n]);
    fxi_gpu_param(c, OUTS, s->out.shape[n + 1] / fx_step_conv(s)->attr.groups);
    fxi_gpu_param(c, BATCHES, s->in[0].shape[n + 1]);
    for (int d = 0; d < 3; d++)
        set_axis(c, s, d);
    set_strides(c, XSTRIDE, &s->in[0], n);
    set_strides(c, YSTRIDE, &s->in[1], n);
    c->groups[0] = each;
}
