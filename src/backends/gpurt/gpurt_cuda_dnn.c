/* gpurt_cuda_dnn.c: convolutions and their gradients by cuDNN; see gpurt_dnn.h.
 *
 * Only algorithms that add the terms themselves, in the same order in every run, are used. cuDNN's
 * other algorithms transform tiles (Winograd, FFT), in which one infinite number spoils its
 * neighbours, or add in any order.
 */
#include "gpurt_cudnn.h"
#include "gpurt_dnn.h"

#include <stdio.h>

static struct {
#define MEMBER(result, member, symbol, need, arguments) result(*member) arguments;
    FXI_DNN_FUNCTIONS(MEMBER)
#undef MEMBER
} dnn;
enum { OPTIONAL, NEEDED };
static const fxi_rt_entry entries[] = {
#define ENTRY(result, member, symbol, need, arguments) {#symbol, (void **)&dnn.member, need},
    FXI_DNN_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* Libraries for several versions of CUDA have the same file name; cudnnCreate fails if it is the
 * wrong library. */
static bool suits(int major, int driver)
{
    return major <= driver / 1000;
}

static void *begin(fxi_rt_device *d, char *why, size_t size)
{
    fxi_dnn_handle handle = NULL;
    int error = dnn.Create(&handle);
    if (!error)
        error = dnn.SetStream(handle, d->work);
    if (!error)
        return handle;
    if (error == FXI_DNN_PARTS_DIFFER)
        snprintf(why, size,
                 "cuDNN consists of several libraries, and those found are of different versions: "
                 "keep one version in LD_LIBRARY_PATH");
    else
        snprintf(why, size, "cuDNN cannot be used on %s (%s)", d->gpu.label,
                 dnn.ErrorString(error));
    return NULL;
}

static int follow(void *handle, fxi_rt_stream stream)
{
    return dnn.SetStream(handle, stream);
}

static fxi_rt_library library = {
    .names = {"cuDNN"},
    .what = "computes convolutions",
    .slower = "cflux's own kernels compute these convolutions, which is slower",
    .variable = "FX_CUDNN_LIBRARY",
    .install = "install NVIDIA's cuDNN 9, or set FX_CUDNN_LIBRARY=off",
    .files = {{"libcudnn.so.9", 12}},
    .suits = suits,
    .follow = follow,
    .entries = entries,
    .nentries = sizeof entries / sizeof *entries,
    .begin = begin,
    .lock = FXI_MUTEX_INIT};

/* ---- preparing ------------------------------------------------------------------------------- */

static void release(fxi_rt_conv *c)
{
    if (c->x)
        dnn.TensorDestroy(c->x);
    if (c->y)
        dnn.TensorDestroy(c->y);
    if (c->w)
        dnn.FilterDestroy(c->w);
    if (c->conv)
        dnn.ConvDestroy(c->conv);
}

/* Without `tf32` (describe_conv), Float32 uses plain instructions, which do not round operands to
 * TensorFloat-32. */
static const struct {
    int element, sum, math;
} types[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = {FXI_DNN_FLOAT, FXI_DNN_FLOAT, FXI_DNN_FMA_MATH},
    [FX_DTYPE_F64] = {FXI_DNN_DOUBLE, FXI_DNN_DOUBLE, FXI_DNN_DEFAULT_MATH},
    [FX_DTYPE_F16] = {FXI_DNN_HALF, FXI_DNN_FLOAT, FXI_DNN_TENSOR_OP_MATH},
    [FX_DTYPE_BF16] = {FXI_DNN_BFLOAT16, FXI_DNN_FLOAT, FXI_DNN_TENSOR_OP_MATH}};

static int describe_tensor(void **out, const fxi_rt_shape *t, int dtype)
{
    const int error = dnn.TensorCreate((fxi_dnn_tensor *)out);
    return error ? error : dnn.TensorSet(*out, types[dtype].element, t->n, t->size, t->stride);
}

static int describe_conv(fxi_rt_conv *c, const fxi_rt_conv_about *a)
{
    int error = dnn.ConvCreate((fxi_dnn_conv *)&c->conv);
    if (!error)
        error = dnn.ConvSet(c->conv, a->space, a->pad, a->stride, a->dilation,
                            a->flips ? FXI_DNN_CONVOLUTION : FXI_DNN_CROSS_CORRELATION,
                            types[a->dtype].sum);
    if (!error)
        error = dnn.ConvSetGroups(c->conv, a->groups);
    if (!error)
        error = dnn.ConvSetMath(c->conv, a->tf32 ? FXI_DNN_DEFAULT_MATH : types[a->dtype].math);
    return error;
}

static int describe(fxi_rt_conv *c, const fxi_rt_conv_about *a)
{
    int error = describe_tensor(&c->x, &a->x, a->dtype);
    if (!error)
        error = describe_tensor(&c->y, &a->y, a->dtype);
    if (!error)
        error = dnn.FilterCreate((fxi_dnn_filter *)&c->w);
    if (!error)
        error = dnn.FilterSet(c->w, types[a->dtype].element,
                              a->channels_last ? FXI_DNN_NHWC : FXI_DNN_NCHW, a->w.n, a->w.size);
    return error ? error : describe_conv(c, a);
}

static int choose(fxi_rt_device *d, fxi_rt_conv *c)
{
    fxi_dnn_handle h = d->dnn.object;
    switch (c->kind) {
    case FX_CONV_FORWARD:
        return dnn.ForwardWork(h, c->x, c->w, c->conv, c->y, FXI_DNN_FORWARD_PRECOMP_GEMM,
                               &c->work);
    case FX_CONV_DATA:
        return dnn.DataWork(h, c->w, c->y, c->conv, c->x, FXI_DNN_DATA_1, &c->work);
    default:
        return dnn.WeightWork(h, c->x, c->y, c->conv, c->w, FXI_DNN_WEIGHT_1, &c->work);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static int run(fxi_rt_device *d, const fxi_rt_conv *c, const fxi_rt_conv_at *at,
               const char **out_call)
{
    /* cuDNN stores alpha · result + beta · old output; for Float64 both factors must be doubles. */
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    const void *alpha = c->f64 ? (const void *)&one64 : &one,
               *beta = c->f64 ? (const void *)&zero64 : &zero;
    fxi_dnn_handle h = d->dnn.object;
    switch (c->kind) {
    case FX_CONV_FORWARD:
        *out_call = "cudnnConvolutionForward";
        return dnn.Forward(h, alpha, c->x, at->first, c->w, at->second, c->conv,
                           FXI_DNN_FORWARD_PRECOMP_GEMM, at->work, c->work, beta, c->y, at->out);
    case FX_CONV_DATA:
        *out_call = "cudnnConvolutionBackwardData";
        return dnn.Data(h, alpha, c->w, at->second, c->y, at->first, c->conv, FXI_DNN_DATA_1,
                        at->work, c->work, beta, c->x, at->out);
    default:
        *out_call = "cudnnConvolutionBackwardFilter";
        return dnn.Weight(h, alpha, c->x, at->first, c->y, at->second, c->conv, FXI_DNN_WEIGHT_1,
                          at->work, c->work, beta, c->w, at->out);
    }
}

static int64_t version(void)
{
    return dnn.Version ? (int64_t)dnn.Version() : 0;
}

static bool unsupported(int error)
{
    return error / 1000 == FXI_DNN_NOT_SUPPORTED / 1000;
}

static const char *error_name(int error)
{
    return dnn.ErrorString(error);
}

const fxi_rt_dnn_calls fxi_rt_dnn = {.library = &library,
                                     .version = version,
                                     .describe = describe,
                                     .choose = choose,
                                     .run = run,
                                     .release = release,
                                     .unsupported = unsupported,
                                     .error_name = error_name};
