/* gpurt_cuda_dnn.c: convolutions and their gradients by cuDNN.
 *
 * cflux's arrays are column by column, so with all axes reversed a convolution has cuDNN's axes:
 * batch, channels, then space with the widest stride first. The algorithms are those that add the
 * terms themselves, in the same order in every run. cuDNN's others transform tiles (Winograd, FFT),
 * in which one infinite number spoils its neighbours, or add in any order.
 */
#include "gpurt_cudnn.h"
#include "gpurt_dnn.h"

#include "gpu_text.h"

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

const char *fxi_rt_dnn_part(const char *name)
{
    return fxi_rt_library_part(&library, name);
}

/* ---- preparing ------------------------------------------------------------------------------- */

typedef struct conv {
    int kind;
    fxi_dnn_tensor x, y;
    fxi_dnn_filter w;
    fxi_dnn_conv conv;
    size_t work;
    bool f64;
} conv;

static void release(fx_device *device, void *state)
{
    conv *c = state;
    (void)device;
    if (c->x)
        dnn.TensorDestroy(c->x);
    if (c->y)
        dnn.TensorDestroy(c->y);
    if (c->w)
        dnn.FilterDestroy(c->w);
    if (c->conv)
        dnn.ConvDestroy(c->conv);
    fxi_rt_host->free(c);
}

/* The numbers of the operands that are x, w and y; −1: the output. */
static const struct {
    int x, w, y;
} places[] = {
    [FX_CONV_FORWARD] = {0, 1, -1}, [FX_CONV_DATA] = {-1, 1, 0}, [FX_CONV_WEIGHT] = {0, -1, 1}};

static const fx_tensor *operand(const fx_step *s, int k)
{
    return k < 0 ? &s->out : &s->in[k];
}

/* cuDNN needs at least two spatial axes: a single one gets an axis of size 1 before it. */
enum { MOST_AXES = 5 };
static int reversed(const fx_tensor *t, bool strides, int *out)
{
    const int more = t->ndim == 3;
    for (int k = 0; k < t->ndim; k++) {
        const int64_t value = strides ? t->stride[t->ndim - 1 - k] : t->shape[t->ndim - 1 - k];
        out[k < 2 ? k : k + more] = (int)value;
    }
    if (more)
        out[2] = strides ? (int)(t->shape[0] * t->stride[0]) : 1;
    return t->ndim + more;
}

static const struct {
    int element, sum, math;
} types[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = {FXI_DNN_FLOAT, FXI_DNN_FLOAT, FXI_DNN_FMA_MATH},
    [FX_DTYPE_F64] = {FXI_DNN_DOUBLE, FXI_DNN_DOUBLE, FXI_DNN_DEFAULT_MATH},
    [FX_DTYPE_F16] = {FXI_DNN_HALF, FXI_DNN_FLOAT, FXI_DNN_TENSOR_OP_MATH},
    [FX_DTYPE_BF16] = {FXI_DNN_BFLOAT16, FXI_DNN_FLOAT, FXI_DNN_TENSOR_OP_MATH}};

static int describe_tensor(fxi_dnn_tensor *out, const fx_tensor *t)
{
    int sizes[MOST_AXES], strides[MOST_AXES];
    const int n = reversed(t, false, sizes);
    reversed(t, true, strides);
    const int error = dnn.TensorCreate(out);
    return error ? error : dnn.TensorSet(*out, types[t->dtype].element, n, sizes, strides);
}

static int describe_conv(conv *c, const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const bool tf32 =
        s->out.dtype == FX_DTYPE_F32 && fx_step_conv(s)->precision != FX_PRECISION_HIGHEST;
    const int n = a->spatial, more = n == 1;
    int pad[3] = {0}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
    for (int k = 0; k < n; k++) {
        pad[k + more] = a->before[n - 1 - k];
        stride[k + more] = a->stride[n - 1 - k];
        dilation[k + more] = a->dilation[n - 1 - k];
    }
    int error = dnn.ConvCreate(&c->conv);
    if (!error)
        error = dnn.ConvSet(c->conv, n + more, pad, stride, dilation,
                            a->flipped ? FXI_DNN_CROSS_CORRELATION : FXI_DNN_CONVOLUTION,
                            types[s->out.dtype].sum);
    if (!error)
        error = dnn.ConvSetGroups(c->conv, a->groups);
    if (!error)
        error = dnn.ConvSetMath(c->conv, tf32 ? FXI_DNN_DEFAULT_MATH : types[s->out.dtype].math);
    return error;
}

static int describe(conv *c, const fx_step *s)
{
    const fx_tensor *w = operand(s, places[c->kind].w);
    int sizes[MOST_AXES];
    const int n = reversed(w, false, sizes);
    int error = describe_tensor(&c->x, operand(s, places[c->kind].x));
    if (!error)
        error = describe_tensor(&c->y, operand(s, places[c->kind].y));
    if (!error)
        error = dnn.FilterCreate(&c->w);
    if (!error)
        error = dnn.FilterSet(c->w, types[w->dtype].element, FXI_DNN_NCHW, n, sizes);
    return error ? error : describe_conv(c, s);
}

static int ask(fxi_dnn_handle h, conv *c)
{
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

/* Only one thread at a time may use the handle, and another thread may be running a step. */
static int ask_work(fxi_rt_device *d, conv *c)
{
    fxi_mutex_lock(&d->gpu.lock);
    const int error = ask(d->dnn.object, c);
    fxi_mutex_unlock(&d->gpu.lock);
    return error;
}

/* ---- running --------------------------------------------------------------------------------- */

enum { FIRST, SECOND, OUT, WORK };

static fx_status run(fx_device *device, void *state, void *const *buffers, const char *operation)
{
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    fxi_rt_device *d = fxi_rt_of(device);
    const conv *c = state;
    const void *alpha = c->f64 ? (const void *)&one64 : &one,
               *beta = c->f64 ? (const void *)&zero64 : &zero;
    void *work = c->work ? buffers[WORK] : NULL;
    const fx_status status = fxi_rt_library_enter(d, operation);
    const char *call = "cudnnConvolutionForward";
    int error = 0;
    if (status)
        return status;
    if (c->kind == FX_CONV_FORWARD)
        error =
            dnn.Forward(d->dnn.object, alpha, c->x, buffers[FIRST], c->w, buffers[SECOND], c->conv,
                        FXI_DNN_FORWARD_PRECOMP_GEMM, work, c->work, beta, c->y, buffers[OUT]);
    else if (c->kind == FX_CONV_DATA) {
        call = "cudnnConvolutionBackwardData";
        error = dnn.Data(d->dnn.object, alpha, c->w, buffers[SECOND], c->y, buffers[FIRST], c->conv,
                         FXI_DNN_DATA_1, work, c->work, beta, c->x, buffers[OUT]);
    } else {
        call = "cudnnConvolutionBackwardFilter";
        error = dnn.Weight(d->dnn.object, alpha, c->x, buffers[FIRST], c->y, buffers[SECOND],
                           c->conv, FXI_DNN_WEIGHT_1, work, c->work, beta, c->w, buffers[OUT]);
    }
    return error ? fxi_rt_library_fail(d, operation, call, dnn.ErrorString(error)) : FX_OK;
}

static const fxi_gpu_routine routine = {.run = run, .release = release, .captures = true};

/* ---- which steps ----------------------------------------------------------------------------- */

/* Are all strides positive, and sizes and distances small enough for cuDNN's 32-bit numbers? */
static bool plain(const fx_tensor *t)
{
    int64_t far = 1;
    bool ok = fx_tensor_length(t) > 0 && fx_tensor_length(t) <= INT32_MAX;
    for (int k = 0; k < t->ndim; k++) {
        ok = ok && t->shape[k] <= INT32_MAX && (t->shape[k] == 1 || t->stride[k] > 0);
        far += (t->shape[k] - 1) * (ok ? t->stride[k] : 0);
    }
    return ok && far <= INT32_MAX && t->stride[0] >= 0;
}

static bool is_padded(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    bool padded = false;
    for (int k = 0; k < a->spatial; k++)
        padded |= a->before[k] > 0;
    return padded;
}

/* In the gradient of the weights cuDNN multiplies the zeros of the padding by gy, which gives NaN
 * if gy is infinite; cflux promises not to use these terms, so kernels after the call look for such
 * numbers and then compute the weights again. */
static bool must_repair(const fx_step *s)
{
    return fx_step_conv(s)->attr.kind == FX_CONV_WEIGHT && is_padded(s);
}

/* cuDNN pads both ends by the same number and computes the size of y itself, so other steps are
 * refused. */
static bool takes(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const fx_tensor *x = operand(s, places[a->kind].x), *w = operand(s, places[a->kind].w),
                    *y = operand(s, places[a->kind].y);
    bool ok = types[s->out.dtype].sum == FXI_DNN_DOUBLE || s->out.dtype == FX_DTYPE_F32 ||
              s->out.dtype == FX_DTYPE_F16 || s->out.dtype == FX_DTYPE_BF16;
    ok = ok && plain(x) && plain(y) && plain(w) && fxi_is_dense(w->ndim, w->shape, w->stride);
    for (int k = 0; k < a->spatial; k++) {
        const int64_t over =
            x->shape[k] + 2 * (int64_t)a->before[k] - (w->shape[k] - 1) * a->dilation[k] - 1;
        ok = ok && over >= 0 && over / a->stride[k] + 1 == y->shape[k];
    }
    return ok && (!must_repair(s) || fxi_gpu_can_repair(s));
}

static void add(fxi_gpu_builder *b, conv *c)
{
    fxi_gpu_call *call = fxi_gpu_add_routine(b, &routine, c, WORK + (c->work > 0));
    fxi_gpu_buffer(call, FIRST, FXI_GPU_IN, 0);
    fxi_gpu_buffer(call, SECOND, FXI_GPU_IN, 1);
    fxi_gpu_buffer(call, OUT, FXI_GPU_OUT, 0);
    if (c->work > 0)
        fxi_gpu_buffer(call, WORK, FXI_GPU_WORK, fxi_gpu_work(b, (int64_t)c->work));
    if (must_repair(b->step))
        fxi_gpu_repair(b);
}

bool fxi_rt_dnn_step(fxi_gpu_builder *b)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    if (!takes(b->step) || !fxi_rt_library_has(&library, d, &d->dnn))
        return false;
    if (fx_step_has_epilogue(b->step)) {
        fxi_gpu_too_much(b, "an epilogue that cuDNN does not compute");
        return true;
    }
    conv *c = fxi_rt_select(d) == 0 ? fxi_rt_host->alloc(sizeof *c) : NULL;
    if (!c)
        return false;
    *c =
        (conv){.kind = fx_step_conv(b->step)->attr.kind, .f64 = b->step->out.dtype == FX_DTYPE_F64};
    int error = describe(c, b->step);
    if (!error)
        error = ask_work(d, c);
    if (!error) {
        add(b, c);
        return true;
    }
    if (error / 1000 != FXI_DNN_NOT_SUPPORTED / 1000) {
        char why[160];
        snprintf(why, sizeof why, "cuDNN cannot prepare a convolution (%s)",
                 dnn.ErrorString(error));
        fxi_rt_library_warn(&library, why);
    }
    release(b->device, c);
    return false;
}
