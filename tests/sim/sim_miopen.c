/* sim_miopen.c: the functions of MIOpen that the AMDGPU plugin uses. Solutions have to be compiled
 * before a stream is captured; those of Winograd and FFT are the fastest of the list, and give
 * wrong results, because the plugin must not choose them. Operands must be dense.
 */
#include "gpurt_miopen.h"
#include "sim_conv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(result, member, symbol, need, arguments)                                           \
    __attribute__((visibility("default"))) result sim_##member arguments __asm__(#symbol);
FXI_MIO_FUNCTIONS(DECLARE)
#define DRIVER "libamdhip64.so.7"
enum { NOT_INITIALIZED = 1, BAD_PARAM = 3, ALLOCATION = 4, UNKNOWN = 7 };
/* The numbers of the solutions; they are not known to the plugin. */
enum { WINOGRAD = 90, FFT = 91, SLOW = 92, FAST = 93, UNTIMED = 94 };

struct fxi_mio_handle_object {
    int device;
    fxi_rt_stream stream;
};
struct fxi_mio_tensor_object {
    sim_tensor t;
};
struct fxi_mio_conv_object {
    sim_conv conv; /* all but the tensors */
    bool deterministic, no_alternative;
    uint64_t compiled;
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
    return status == NOT_INITIALIZED       ? "miopenStatusNotInitialized"
           : status == FXI_MIO_UNSUPPORTED ? "miopenStatusUnsupportedOp"
           : status == UNKNOWN             ? "miopenStatusUnknownError"
                                           : "miopenStatusBadParm";
}

/* ---- objects --------------------------------------------------------------------------------- */

int sim_Create(fxi_mio_handle *out, fxi_rt_stream stream)
{
    BEGIN(miopenCreateWithStream);
    const int device = sim_product_device(DRIVER);
    *out = device >= 0 ? calloc(1, sizeof **out) : NULL;
    if (*out)
        **out = (struct fxi_mio_handle_object){device, stream};
    return *out ? FXI_MIO_OK : NOT_INITIALIZED;
}

int sim_SetStream(fxi_mio_handle h, fxi_rt_stream stream)
{
    BEGIN(miopenSetStream);
    h->stream = stream;
    return FXI_MIO_OK;
}

#define OBJECT(Kind, kind)                                                                         \
    int sim_##Kind##Create(fxi_mio_##kind *out)                                                    \
    {                                                                                              \
        *out = calloc(1, sizeof **out);                                                            \
        return *out ? FXI_MIO_OK : ALLOCATION;                                                     \
    }                                                                                              \
    int sim_##Kind##Destroy(fxi_mio_##kind object)                                                 \
    {                                                                                              \
        free(object);                                                                              \
        return FXI_MIO_OK;                                                                         \
    }
OBJECT(Tensor, tensor)
OBJECT(Conv, conv)

static sim_type type_of(int type)
{
    return type == FXI_MIO_FLOAT      ? SIM_F32
           : type == FXI_MIO_DOUBLE   ? SIM_F64
           : type == FXI_MIO_HALF     ? SIM_F16
           : type == FXI_MIO_BFLOAT16 ? SIM_BF16
                                      : SIM_TYPES;
}

int sim_TensorSet(fxi_mio_tensor t, int type, int n, const int *sizes, const int *strides)
{
    BEGIN(miopenSetTensorDescriptor);
    int dense = 1;
    t->t = (sim_tensor){.type = type_of(type), .n = n};
    if (n < 4 || n > SIM_AXES)
        return BAD_PARAM;
    for (int k = n - 1; k >= 0; k--) {
        t->t.size[k] = sizes[k];
        t->t.stride[k] = strides[k];
        if (sizes[k] < 1 || (sizes[k] > 1 && strides[k] != dense))
            return BAD_PARAM;
        dense *= sizes[k];
    }
    return FXI_MIO_OK;
}

int sim_ConvSet(fxi_mio_conv c, int n, const int *pad, const int *stride, const int *dilation,
                int mode)
{
    BEGIN(miopenInitConvolutionNdDescriptor);
    if (n < 2 || n > SIM_SPACE || mode != FXI_MIO_CROSS_CORRELATION)
        return BAD_PARAM;
    c->conv = (sim_conv){.space = n, .groups = 1};
    memcpy(c->conv.pad, pad, (size_t)n * sizeof *pad);
    memcpy(c->conv.stride, stride, (size_t)n * sizeof *stride);
    memcpy(c->conv.dilation, dilation, (size_t)n * sizeof *dilation);
    return FXI_MIO_OK;
}

int sim_ConvSetGroups(fxi_mio_conv c, int groups)
{
    BEGIN(miopenSetConvolutionGroupCount);
    c->conv.groups = groups;
    return groups > 0 ? FXI_MIO_OK : BAD_PARAM;
}

int sim_ConvSetAttribute(fxi_mio_conv c, int attribute, int value)
{
    BEGIN(miopenSetConvolutionAttribute);
    c->deterministic |= attribute == FXI_MIO_DETERMINISTIC && value == 1;
    c->no_alternative |= attribute == FXI_MIO_FP16_ALTERNATIVE && value == 0;
    return FXI_MIO_OK;
}

/* ---- solutions ------------------------------------------------------------------------------- */

/* The convolution of descriptors in the order of the calls. */
static sim_conv conv_of(sim_conv_kind kind, fxi_mio_tensor first, fxi_mio_tensor second,
                        fxi_mio_conv c, fxi_mio_tensor out)
{
    sim_conv v = c->conv;
    v.kind = kind;
    v.x = kind == SIM_DATA ? out->t : second->t;
    v.w = kind == SIM_FORWARD ? first->t : kind == SIM_DATA ? second->t : out->t;
    v.y = kind == SIM_FORWARD ? out->t : first->t;
    return v;
}

static int check(fxi_mio_handle h, const sim_conv *v, fxi_mio_conv c)
{
    return h && sim_conv_fits(v) && c->deterministic && c->no_alternative &&
                   v->x.type < SIM_TYPES && h->device == sim_product_device(DRIVER)
               ? FXI_MIO_OK
               : BAD_PARAM;
}

static int list(fxi_mio_handle h, const sim_conv *v, fxi_mio_conv c, size_t most, size_t *n,
                fxi_mio_solution *out)
{
    static const fxi_mio_solution all[] = {{0.1f, 0, WINOGRAD, FXI_MIO_WINOGRAD},
                                           {0.2f, 8, FFT, FXI_MIO_FFT},
                                           {0, SIM_CONV_WORK, UNTIMED, FXI_MIO_DIRECT},
                                           {2, SIM_CONV_WORK, SLOW, FXI_MIO_DIRECT},
                                           {1, SIM_CONV_WORK, FAST, FXI_MIO_GEMM}};
    const size_t there = sizeof all / sizeof *all;
    const int error = check(h, v, c);
    /* Float64 has no solution. */
    *n = v->x.type == SIM_F64 ? 0 : there < most ? there : most;
    if (!error)
        memcpy(out, all, *n * sizeof *out);
    return error;
}

static int compile(fxi_mio_handle h, const sim_conv *v, fxi_mio_conv c, uint64_t id)
{
    const int error = check(h, v, c);
    if (id < WINOGRAD || id > UNTIMED)
        return UNKNOWN;
    c->compiled = id;
    return error;
}

/* The address of every operand, in the order of the calls. */
typedef struct addresses {
    const void *first, *second, *out;
} addresses;

static int compute(fxi_mio_handle h, const char *name, const sim_conv *v, fxi_mio_conv c,
                   const addresses *a, void *work, size_t bytes, uint64_t id)
{
    const void *at[3] = {v->kind == SIM_DATA ? a->out : a->second,
                         v->kind == SIM_FORWARD ? a->first
                         : v->kind == SIM_DATA  ? a->second
                                                : a->out,
                         v->kind == SIM_FORWARD ? a->out : a->first};
    const int error = check(h, v, c);
    if (error)
        return error;
    if (id != FAST)
        fprintf(stderr, "simulated driver: MIOpen's solution %d is not the one to choose\n",
                (int)id);
    if (c->compiled != id)
        fprintf(stderr, "simulated driver: a solution of MIOpen was not compiled\n");
    if (!work || bytes < SIM_CONV_WORK)
        return BAD_PARAM;
    return sim_conv_queue(DRIVER, name, v, at, work, h->stream) ? UNKNOWN : FXI_MIO_OK;
}

#define CALLS(Kind, kind, symbol)                                                                  \
    int sim_##Kind##List(fxi_mio_handle h, fxi_mio_tensor first, fxi_mio_tensor second,            \
                         fxi_mio_conv c, fxi_mio_tensor out, size_t most, size_t *n,               \
                         fxi_mio_solution *solutions)                                              \
    {                                                                                              \
        BEGIN(symbol##GetSolution);                                                                \
        const sim_conv v = conv_of(kind, first, second, c, out);                                   \
        return list(h, &v, c, most, n, solutions);                                                 \
    }                                                                                              \
    int sim_##Kind##Compile(fxi_mio_handle h, fxi_mio_tensor first, fxi_mio_tensor second,         \
                            fxi_mio_conv c, fxi_mio_tensor out, uint64_t id)                       \
    {                                                                                              \
        BEGIN(symbol##CompileSolution);                                                            \
        const sim_conv v = conv_of(kind, first, second, c, out);                                   \
        return compile(h, &v, c, id);                                                              \
    }                                                                                              \
    int sim_##Kind(fxi_mio_handle h, fxi_mio_tensor first, const void *p1, fxi_mio_tensor second,  \
                   const void *p2, fxi_mio_conv c, fxi_mio_tensor out, void *p3, void *work,       \
                   size_t bytes, uint64_t id)                                                      \
    {                                                                                              \
        BEGIN(symbol##Immediate);                                                                  \
        const sim_conv v = conv_of(kind, first, second, c, out);                                   \
        return compute(h, #symbol "Immediate", &v, c, &(addresses){p1, p2, p3}, work, bytes, id);  \
    }
CALLS(Forward, SIM_FORWARD, miopenConvolutionForward)
CALLS(Data, SIM_DATA, miopenConvolutionBackwardData)
CALLS(Weight, SIM_WEIGHT, miopenConvolutionBackwardWeights)
