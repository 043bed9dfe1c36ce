/* sim_cudnn.c: the functions of cuDNN that the CUDA plugin uses. They refuse other algorithms,
 * sizes that do not match, and too little work space.
 */
#include "gpurt_cudnn.h"
#include "sim_conv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DECLARE(result, member, symbol, need, arguments)                                           \
    __attribute__((visibility("default"))) result sim_##member arguments __asm__(#symbol);
FXI_DNN_FUNCTIONS(DECLARE)
#define DRIVER "libcuda.so.1"
enum { NOT_INITIALIZED = 1001, BAD_PARAM = 2000, INTERNAL_ERROR = 4000, EXECUTION_FAILED = 5000 };

struct fxi_dnn_handle_object {
    int device, users; /* users: calls in progress; atomic */
    fxi_rt_stream stream;
};
struct fxi_dnn_tensor_object {
    int type;
    sim_tensor t;
};
struct fxi_dnn_filter_object {
    int type;
    bool last; /* channels last */
    sim_tensor t;
};
struct fxi_dnn_conv_object {
    sim_conv conv; /* all but the tensors */
    int sum, math;
};

#define BEGIN(symbol)                                                                              \
    do {                                                                                           \
        bool lost;                                                                                 \
        const int error = sim_script(#symbol, &lost);                                              \
        if (error)                                                                                 \
            return error;                                                                          \
    } while (0)

const char *sim_ErrorString(int status)
{
    return status == EXECUTION_FAILED        ? "CUDNN_STATUS_EXECUTION_FAILED"
           : status == INTERNAL_ERROR        ? "CUDNN_STATUS_INTERNAL_ERROR"
           : status == NOT_INITIALIZED       ? "CUDNN_STATUS_NOT_INITIALIZED"
           : status == FXI_DNN_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                             : "CUDNN_STATUS_BAD_PARAM";
}

size_t sim_Version(void)
{
    return (size_t)sim_setting("SIM_CUDNN", 91300);
}

/* ---- objects --------------------------------------------------------------------------------- */

int sim_Create(fxi_dnn_handle *out)
{
    BEGIN(cudnnCreate);
    const int device = sim_product_device(DRIVER);
    *out = device >= 0 ? calloc(1, sizeof **out) : NULL;
    if (*out)
        (*out)->device = device;
    return *out ? FXI_DNN_OK : NOT_INITIALIZED;
}

int sim_SetStream(fxi_dnn_handle h, fxi_rt_stream stream)
{
    BEGIN(cudnnSetStream);
    h->stream = stream;
    return FXI_DNN_OK;
}

#define OBJECT(Kind, kind)                                                                         \
    int sim_##Kind##Create(fxi_dnn_##kind *out)                                                    \
    {                                                                                              \
        *out = calloc(1, sizeof **out);                                                            \
        return *out ? FXI_DNN_OK : INTERNAL_ERROR;                                                 \
    }                                                                                              \
    int sim_##Kind##Destroy(fxi_dnn_##kind object)                                                 \
    {                                                                                              \
        free(object);                                                                              \
        return FXI_DNN_OK;                                                                         \
    }
OBJECT(Tensor, tensor)
OBJECT(Filter, filter)
OBJECT(Conv, conv)

static sim_type type_of(int type)
{
    return type == FXI_DNN_FLOAT      ? SIM_F32
           : type == FXI_DNN_DOUBLE   ? SIM_F64
           : type == FXI_DNN_HALF     ? SIM_F16
           : type == FXI_DNN_BFLOAT16 ? SIM_BF16
                                      : SIM_TYPES;
}

int sim_TensorSet(fxi_dnn_tensor t, int type, int n, const int *sizes, const int *strides)
{
    BEGIN(cudnnSetTensorNdDescriptor);
    t->type = type;
    t->t = (sim_tensor){.type = type_of(type), .n = n};
    if (n < 4 || n > SIM_AXES)
        return BAD_PARAM;
    for (int k = 0; k < n; k++) {
        t->t.size[k] = sizes[k];
        t->t.stride[k] = strides[k];
        if (sizes[k] < 1 || strides[k] < 1)
            return BAD_PARAM;
    }
    return FXI_DNN_OK;
}

int sim_FilterSet(fxi_dnn_filter w, int type, int format, int n, const int *sizes)
{
    BEGIN(cudnnSetFilterNdDescriptor);
    w->type = type;
    w->t = (sim_tensor){.type = type_of(type), .n = n};
    if ((format != FXI_DNN_NCHW && format != FXI_DNN_NHWC) || n < 4 || n > SIM_AXES)
        return BAD_PARAM;
    memcpy(w->t.size, sizes, (size_t)n * sizeof *sizes);
    const bool last = w->last = format == FXI_DNN_NHWC;
    int next = last ? sizes[1] : 1;
    w->t.stride[1] = 1;
    for (int k = n - 1; k >= 0; k--) {
        if (k == 1 && last)
            continue;
        w->t.stride[k] = next;
        next *= sizes[k];
    }
    return FXI_DNN_OK;
}

int sim_ConvSet(fxi_dnn_conv c, int n, const int *pad, const int *stride, const int *dilation,
                int mode, int sum)
{
    BEGIN(cudnnSetConvolutionNdDescriptor);
    if (n < 2 || n > SIM_SPACE)
        return BAD_PARAM;
    *c = (struct fxi_dnn_conv_object){.sum = sum};
    c->conv = (sim_conv){.space = n, .flips = mode == FXI_DNN_CONVOLUTION, .groups = 1};
    memcpy(c->conv.pad, pad, (size_t)n * sizeof *pad);
    memcpy(c->conv.stride, stride, (size_t)n * sizeof *stride);
    memcpy(c->conv.dilation, dilation, (size_t)n * sizeof *dilation);
    return FXI_DNN_OK;
}

int sim_ConvSetGroups(fxi_dnn_conv c, int groups)
{
    BEGIN(cudnnSetConvolutionGroupCount);
    c->conv.groups = groups;
    return groups > 0 ? FXI_DNN_OK : BAD_PARAM;
}

int sim_ConvSetMath(fxi_dnn_conv c, int math)
{
    BEGIN(cudnnSetConvolutionMathType);
    c->math = math;
    return FXI_DNN_OK;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* The convolution of these descriptors. */
static sim_conv conv_of(sim_conv_kind kind, fxi_dnn_tensor x, fxi_dnn_filter w, fxi_dnn_conv c,
                        fxi_dnn_tensor y)
{
    sim_conv v = c->conv;
    v.kind = kind;
    v.x = x->t;
    v.w = w->t;
    v.y = y->t;
    v.tf32 = v.x.type == SIM_F32 && c->math == FXI_DNN_DEFAULT_MATH;
    return v;
}

static int check(fxi_dnn_tensor x, fxi_dnn_filter w, fxi_dnn_conv c, fxi_dnn_tensor y,
                 int algorithm)
{
    const sim_conv v = conv_of(SIM_FORWARD, x, w, c, y);
    const int sum = x->type == FXI_DNN_DOUBLE ? FXI_DNN_DOUBLE : FXI_DNN_FLOAT;
    if (!sim_conv_fits(&v) || c->sum != sum)
        return BAD_PARAM;
    /* Kernels with channels last need operands with channels last. */
    if (w->last && (v.x.stride[1] != 1 || v.y.stride[1] != 1))
        return FXI_DNN_NOT_SUPPORTED;
    return algorithm == 1 && v.x.type < SIM_TYPES ? FXI_DNN_OK : FXI_DNN_NOT_SUPPORTED;
}

/* Only one thread at a time may use a handle of cuDNN. With SIM_SLOW the call takes 5 ms, so that
 * two threads meet. */
static int ask(fxi_dnn_handle h, size_t *out)
{
    if (!h)
        return BAD_PARAM;
    if (__atomic_fetch_add(&h->users, 1, __ATOMIC_ACQ_REL) > 0)
        fprintf(stderr, "simulated driver: two threads use one handle of cuDNN\n");
    if (getenv("SIM_SLOW"))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    __atomic_fetch_sub(&h->users, 1, __ATOMIC_ACQ_REL);
    *out = SIM_CONV_WORK;
    return FXI_DNN_OK;
}

static int compute(fxi_dnn_handle h, sim_conv_kind kind, const char *name, const double scales[2],
                   fxi_dnn_tensor x, const void *px, fxi_dnn_filter w, const void *pw,
                   fxi_dnn_conv c, fxi_dnn_tensor y, const void *py, int algorithm, void *work,
                   size_t bytes)
{
    size_t none;
    int error = check(x, w, c, y, algorithm);
    if (!error)
        error = ask(h, &none);
    if (error)
        return error;
    if (scales[0] != 1 || scales[1] != 0 || !work || bytes < SIM_CONV_WORK ||
        h->device != sim_product_device(DRIVER))
        return BAD_PARAM;
    sim_conv v = conv_of(kind, x, w, c, y);
    v.call.milliseconds =
        (getenv("SIM_CHANNELS_FIRST") && !w->last ? 10 : 0) + (getenv("SIM_SLOW") ? 20 : 0);
    return sim_conv_queue(DRIVER, name, &v, (const void *[]){px, pw, py}, work, h->stream)
               ? EXECUTION_FAILED
               : FXI_DNN_OK;
}

static double scale(const void *value, int type)
{
    return type == FXI_DNN_DOUBLE ? *(const double *)value : (double)*(const float *)value;
}
#define SCALES                                                                                     \
    (const double[])                                                                               \
    {                                                                                              \
        scale(alpha, x->type), scale(beta, x->type)                                                \
    }

int sim_ForwardWork(fxi_dnn_handle h, fxi_dnn_tensor x, fxi_dnn_filter w, fxi_dnn_conv c,
                    fxi_dnn_tensor y, int algorithm, size_t *out)
{
    BEGIN(cudnnGetConvolutionForwardWorkspaceSize);
    const int error = ask(h, out);
    return error ? error : check(x, w, c, y, algorithm);
}

int sim_DataWork(fxi_dnn_handle h, fxi_dnn_filter w, fxi_dnn_tensor y, fxi_dnn_conv c,
                 fxi_dnn_tensor x, int algorithm, size_t *out)
{
    BEGIN(cudnnGetConvolutionBackwardDataWorkspaceSize);
    const int error = ask(h, out);
    return error ? error : check(x, w, c, y, algorithm);
}

int sim_WeightWork(fxi_dnn_handle h, fxi_dnn_tensor x, fxi_dnn_tensor y, fxi_dnn_conv c,
                   fxi_dnn_filter w, int algorithm, size_t *out)
{
    BEGIN(cudnnGetConvolutionBackwardFilterWorkspaceSize);
    const int error = ask(h, out);
    return error ? error : check(x, w, c, y, algorithm);
}

int sim_Forward(fxi_dnn_handle h, const void *alpha, fxi_dnn_tensor x, const void *px,
                fxi_dnn_filter w, const void *pw, fxi_dnn_conv c, int algorithm, void *work,
                size_t bytes, const void *beta, fxi_dnn_tensor y, void *py)
{
    BEGIN(cudnnConvolutionForward);
    return compute(h, SIM_FORWARD, "cudnnConvolutionForward", SCALES, x, px, w, pw, c, y, py,
                   algorithm, work, bytes);
}

int sim_Data(fxi_dnn_handle h, const void *alpha, fxi_dnn_filter w, const void *pw,
             fxi_dnn_tensor y, const void *py, fxi_dnn_conv c, int algorithm, void *work,
             size_t bytes, const void *beta, fxi_dnn_tensor x, void *px)
{
    BEGIN(cudnnConvolutionBackwardData);
    return compute(h, SIM_DATA, "cudnnConvolutionBackwardData", SCALES, x, px, w, pw, c, y, py,
                   algorithm, work, bytes);
}

int sim_Weight(fxi_dnn_handle h, const void *alpha, fxi_dnn_tensor x, const void *px,
               fxi_dnn_tensor y, const void *py, fxi_dnn_conv c, int algorithm, void *work,
               size_t bytes, const void *beta, fxi_dnn_filter w, void *pw)
{
    BEGIN(cudnnConvolutionBackwardFilter);
    return compute(h, SIM_WEIGHT, "cudnnConvolutionBackwardFilter", SCALES, x, px, w, pw, c, y, py,
                   algorithm, work, bytes);
}
