/* cpu_plugin.c: opens the oneDNN plugin and gives it the large BFloat16 matrix products and the
 * large convolutions of the CPU backend.
 *
 * The library is opened when a plan first contains a step that repays the time for loading it (31
 * ms), so a program of small networks never opens it. FX_ONEDNN=0 switches it off. If the library
 * is missing or cannot be used, the CPU's own kernels compute everything.
 */
#include "cpu_plugin.h"
#include "c_text.h"
#include "cpu_conv.h"
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "error.h"
#include "kernel_plugin.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static const fxi_kernel_host host = {fxi_aligned, fxi_free, fxi_fail_text,
                                     fxi_cpu_parallel_scratch};

static const char *open_library(const fx_plugin_head *plugin)
{
    return ((const fxi_kernel_library *)plugin)->open(&host);
}

static const uint32_t sizes[] = FXI_KERNEL_SIZES_HERE;
static fxi_kernel_plugin library =
    FXI_KERNEL_PLUGIN(.name = "oneDNN", .serves = "CPU", .variable = "FX_ONEDNN",
                      .off = "FX_ONEDNN is 0", .sizes = sizes, .open = open_library);

const char *fxi_cpu_plugin_name(bool open)
{
    const fx_plugin_head *p =
        open ? fxi_kernel_plugin_get(&library) : fxi_kernel_plugin_opened(&library);
    return p ? p->name : NULL;
}

const char *fxi_cpu_plugin_why(const char *name)
{
    return fxi_same_ignoring_case(name, library.name) ? fxi_kernel_plugin_why(&library) : NULL;
}

void fxi_cpu_plugin_reset(void)
{
    fxi_kernel_plugin_reset(&library);
}

/* ---- which steps ----------------------------------------------------------------------------- */

/* The multiplications and additions of a matrix product or convolution. */
static double work(const fx_step *s)
{
    if (s->op == FX_OP_MATMUL)
        return 2 * (double)fx_tensor_length(&s->out) *
               (double)s->in[0].shape[fx_step_matmul(s)->transpose_a ? 0 : 1];
    const int kind = fx_step_conv(s)->attr.kind;
    /* All three kinds multiply as often: each element of y belongs to as many products as w has
     * elements for one output channel. */
    const fx_tensor *y = kind == FX_CONV_FORWARD ? &s->out : &s->in[kind == FX_CONV_WEIGHT];
    const fx_tensor *w = kind == FX_CONV_WEIGHT ? &s->out : &s->in[1];
    return 2 * (double)fx_tensor_length(y) * (double)fxi_length(w->ndim - 1, w->shape);
}

/* The classes of convolutions, and for each class two pairs of numbers of channels. The plugin is
 * faster than our own kernels if a group has at least as many channels, of x and of y, as one of
 * the pairs says. The rows conv/… of the benchmark compare both: `bench_runner --no-onednn`, and
 * with FX_ONEDNN=all. */
enum {
    ONE_GROUP,
    GROUPS,
    OURS, /* our own kernels are faster, whatever the number of channels */
    CLASSES,
    NEVER = 1 << 30
};
static const struct {
    int64_t in, out;
} fewest[CLASSES][2] = {
    /* With fewer, the vectors of a channels-last kernel are mostly empty: for LeNet's second
     * convolution (6 to 16 channels) a training step took 1.32 ms with the plugin and 1.18 without.
     * The second pair is the first layer of a deep network. */
    [ONE_GROUP] = {{16, 16}, {1, 32}},
    [GROUPS] = {{1, 1}, {1, 1}},
    [OURS] = {{NEVER, NEVER}, {NEVER, NEVER}}};

/* Are our own Float32 kernels, with instruction set `set`, faster than the plugin for a convolution
 * of one group?
 *
 * AVX2: oneDNN 2.6 reaches 35 to 60 GF/s, our kernels 45 to 79: 3×3 with 64 channels takes 20 ms
 * with the plugin and 12 without, with gradients 60 and 36; VGG is faster without, too. The
 * gradient of x with strides, a transposed convolution, takes the plugin 7.4 ms, and our kernels
 * 9.3 (4×4, stride 2, 64 channels).
 *
 * AVX-512: the copies into channels-last order and back take longer than the plugin gains. One axis
 * without strides: a gradient of 5 taps, 64 channels, 1024 positions and 16 images takes 9.3 ms,
 * with the plugin 10.0, and on two threads 4.5 and 5.2; 3 taps and 256 channels take 21.4 and 28.0
 * ms. Of seven sizes, the plugin was faster for one only: 16 channels on one thread (2.5 ms, and
 * 2.8 without). Two axes with strides: of 16 sizes with 2×2 to 7×7 taps, our gradients are faster
 * by 1 to 36 % (on two threads by 2 to 52 %); our forward convolution is slower for one size (2.2
 * ms, and 1.9 with the plugin). */
static bool is_ours(const fx_conv_attr *a, bool strided, const char *set)
{
    if (strided && a->kind == FX_CONV_DATA)
        return false;
    return strcmp(set, "avx2") == 0 ||
           (strcmp(set, "avx512") == 0 && a->spatial == (strided ? 2 : 1));
}

/* Our own kernels have no instructions for BFloat16, so the plugin gets those convolutions with
 * groups or with AVX2 too. */
static int class_of(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const bool half = s->out.dtype == FX_DTYPE_BF16;
    const char *set = fxi_cpu_simd()->name;
    bool strided = false;
    for (int d = 0; d < a->spatial; d++)
        strided |= a->stride[d] > 1;
    /* Without strides, the copies into channels-last order and back take longer than the plugin
     * gains. With strides, our own kernels are faster if they read x in its own memory. */
    if (a->groups > 1)
        return half || (strided && !fxi_cpu_conv_reads_in_place(s)) ? GROUPS : OURS;
    if (half)
        return ONE_GROUP;
    /* With AVX-512 a prediction of VGG takes 20 ms, and with the plugin 26; a recorded training
     * step 86 and 91. If the plugin gets the gradients of weights, the step takes 92: they need
     * copies into another order. */
    if (strcmp(set, "base") != 0 && fxi_cpu_conv_multiplies_less(s))
        return OURS;
    return is_ours(a, strided, set) ? OURS : ONE_GROUP;
}

static bool has_enough_channels(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const fx_tensor *w = a->kind == FX_CONV_WEIGHT ? &s->out : &s->in[1];
    const int64_t in = w->shape[a->spatial], out = w->shape[a->spatial + 1] / a->groups;
    const int class = class_of(s);
    bool enough = false;
    for (int k = 0; k < 2; k++)
        enough |= in >= fewest[class][k].in && out >= fewest[class][k].out;
    return enough;
}

/* Is a step worth opening a library for? A plan runs many times, but below these sizes all its
 * runs gain less than the library takes to load. Our own Float32 products are as fast as
 * oneDNN's; those of BFloat16 convert to Float32 first, while oneDNN may use the processor's
 * BFloat16 instructions. */
static bool repays(const fx_step *s)
{
    const bool half = s->out.dtype == FX_DTYPE_BF16;
    if (s->op == FX_OP_MATMUL)
        return half && work(s) >= 4e6;
    return (half || s->out.dtype == FX_DTYPE_F32) && has_enough_channels(s) && work(s) >= 16e6;
}

fx_status fxi_cpu_plugin_prepare(const fx_step *step, fxi_kernel_ready **out_ready)
{
    /* FX_ONEDNN=all gives the plugin every step that it can compute, however small. */
    const char *setting = getenv(library.variable);
    const bool all = setting && strcmp(setting, "all") == 0;
    /* Tested before the library is opened. */
    if (fxi_kernel_plugin_off(&library) || work(step) <= 0 || (!all && !repays(step)))
        return FX_STATUS_UNSUPPORTED;
    const fx_plugin_head *p = fxi_kernel_plugin_get(&library);
    return p ? ((const fxi_kernel_library *)p)->prepare(step, out_ready) : FX_STATUS_UNSUPPORTED;
}

void fxi_cpu_plugin_release(fxi_kernel_ready *ready)
{
    ready->library->release(ready);
}

fx_status fxi_cpu_plugin_run(const fxi_kernel_ready *ready, const fx_step *step,
                             const void *const *in, void *out, fx_run *run)
{
    return ready->library->run(ready, step, in, out, run);
}
