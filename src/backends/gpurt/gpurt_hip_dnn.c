/* gpurt_hip_dnn.c: convolutions and their gradients by MIOpen; see gpurt_dnn.h.
 *
 * MIOpen lists its solutions of a convolution, with their algorithms and estimated times. The step
 * uses the fastest of those that add the terms themselves: Winograd and FFT transform tiles, in
 * which one infinite number spoils its neighbours. `prepare` compiles the solution, because the
 * first call of one that is not compiled takes seconds and cannot be recorded. MIOpen keeps
 * compiled solutions on disk. This code has never run with MIOpen itself, only with the simulation
 * in tests/sim.
 */
#include "gpurt_dnn.h"
#include "gpurt_miopen.h"

#include <stdio.h>

static struct {
#define MEMBER(result, member, symbol, need, arguments) result(*member) arguments;
    FXI_MIO_FUNCTIONS(MEMBER)
#undef MEMBER
} mio;
enum { OPTIONAL, NEEDED };
static const fxi_rt_entry entries[] = {
#define ENTRY(result, member, symbol, need, arguments) {#symbol, (void **)&mio.member, need},
    FXI_MIO_FUNCTIONS(ENTRY)
#undef ENTRY
};

/* The library has the same file name in all versions of ROCm. */
static bool suits(int major, int driver)
{
    (void)major, (void)driver;
    return true;
}

static void *begin(fxi_rt_device *d, char *why, size_t size)
{
    fxi_mio_handle handle = NULL;
    const int error = mio.Create(&handle, d->work);
    if (!error)
        return handle;
    snprintf(why, size, "MIOpen cannot be used on %s (%s)", d->gpu.label, mio.ErrorString(error));
    return NULL;
}

static int follow(void *handle, fxi_rt_stream stream)
{
    return mio.SetStream(handle, stream);
}

static fxi_rt_library library = {
    .names = {"MIOpen"},
    .what = "computes convolutions",
    .slower = "cflux's own kernels compute these convolutions, which is slower",
    .variable = "FX_MIOPEN_LIBRARY",
    .install = "install ROCm's package miopen-hip, or set FX_MIOPEN_LIBRARY=off",
    .files = {{"libMIOpen.so.1", 5}},
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
        mio.TensorDestroy(c->x);
    if (c->y)
        mio.TensorDestroy(c->y);
    if (c->w)
        mio.TensorDestroy(c->w);
    if (c->conv)
        mio.ConvDestroy(c->conv);
}

static int describe_tensor(void **out, const fxi_rt_shape *t, int dtype)
{
    static const int types[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = FXI_MIO_FLOAT,
                                              [FX_DTYPE_F64] = FXI_MIO_DOUBLE,
                                              [FX_DTYPE_F16] = FXI_MIO_HALF,
                                              [FX_DTYPE_BF16] = FXI_MIO_BFLOAT16};
    const int error = mio.TensorCreate((fxi_mio_tensor *)out);
    return error ? error : mio.TensorSet(*out, types[dtype], t->n, t->size, t->stride);
}

/* The alternative for Float16 on MI200 is switched off, because it computes gradients with BFloat16
 * factors. */
static int describe_conv(fxi_rt_conv *c, const fxi_rt_conv_about *a)
{
    int error = mio.ConvCreate((fxi_mio_conv *)&c->conv);
    if (!error)
        error = mio.ConvSet(c->conv, a->space, a->pad, a->stride, a->dilation,
                            FXI_MIO_CROSS_CORRELATION);
    if (!error)
        error = mio.ConvSetGroups(c->conv, a->groups);
    if (!error)
        error = mio.ConvSetAttribute(c->conv, FXI_MIO_DETERMINISTIC, 1);
    if (!error)
        error = mio.ConvSetAttribute(c->conv, FXI_MIO_FP16_ALTERNATIVE, 0);
    return error;
}

static int describe(fxi_rt_conv *c, const fxi_rt_conv_about *a)
{
    int error = describe_tensor(&c->x, &a->x, a->dtype);
    if (!error)
        error = describe_tensor(&c->y, &a->y, a->dtype);
    if (!error)
        error = describe_tensor(&c->w, &a->w, a->dtype);
    return error ? error : describe_conv(c, a);
}

/* The descriptors in the order of the calls: two operands and the output. */
typedef struct order {
    fxi_mio_tensor first, second, out;
} order;

static order order_of(const fxi_rt_conv *c)
{
    return c->kind == FX_CONV_FORWARD ? (order){c->w, c->x, c->y}
           : c->kind == FX_CONV_DATA  ? (order){c->y, c->w, c->x}
                                      : (order){c->y, c->x, c->w};
}

/* The functions of a kind of convolution, whose arguments have the same types. */
typedef struct functions {
    int(*list) FXI_MIO_LIST;
    int(*compile) FXI_MIO_COMPILE;
    int(*run) FXI_MIO_RUN;
    const char *name;
} functions;

static functions functions_of(const fxi_rt_conv *c)
{
    return c->kind == FX_CONV_FORWARD
               ? (functions){mio.ForwardList, mio.ForwardCompile, mio.Forward,
                             "miopenConvolutionForwardImmediate"}
           : c->kind == FX_CONV_DATA ? (functions){mio.DataList, mio.DataCompile, mio.Data,
                                                   "miopenConvolutionBackwardDataImmediate"}
                                     : (functions){mio.WeightList, mio.WeightCompile, mio.Weight,
                                                   "miopenConvolutionBackwardWeightsImmediate"};
}

static bool adds_the_terms(int algorithm)
{
    return algorithm == FXI_MIO_GEMM || algorithm == FXI_MIO_DIRECT ||
           algorithm == FXI_MIO_IMPLICIT_GEMM;
}

/* A time of 0 or less is unknown, and counts as the longest. */
static bool is_faster(const fxi_mio_solution *a, const fxi_mio_solution *b)
{
    return a->time > 0 && (b->time <= 0 || a->time < b->time);
}

static int choose(fxi_rt_device *d, fxi_rt_conv *c)
{
    enum { MOST = 64 };
    fxi_mio_solution found[MOST];
    const fxi_mio_solution *best = NULL;
    const order o = order_of(c);
    const functions f = functions_of(c);
    size_t n = 0;
    int error = f.list(d->dnn.object, o.first, o.second, c->conv, o.out, MOST, &n, found);
    for (size_t k = 0; !error && k < n && k < MOST; k++)
        if (adds_the_terms(found[k].algorithm) && (!best || is_faster(&found[k], best)))
            best = &found[k];
    if (error || !best)
        return error ? error : FXI_MIO_UNSUPPORTED;
    c->solution = best->id;
    c->work = best->work;
    return f.compile(d->dnn.object, o.first, o.second, c->conv, o.out, c->solution);
}

/* ---- running --------------------------------------------------------------------------------- */

/* MIOpen takes the operands in the order of order_of. The step has the same order in the gradient
 * of x only; in the other two kinds it has x first, which MIOpen takes second. */
static int run(fxi_rt_device *d, const fxi_rt_conv *c, const fxi_rt_conv_at *at,
               const char **out_call)
{
    const order o = order_of(c);
    const functions f = functions_of(c);
    const bool same = c->kind == FX_CONV_DATA;
    *out_call = f.name;
    return f.run(d->dnn.object, o.first, same ? at->first : at->second, o.second,
                 same ? at->second : at->first, c->conv, o.out, at->out, at->work, c->work,
                 c->solution);
}

/* The errors with which MIOpen says that it has no solution. */
static bool unsupported(int error)
{
    return error == FXI_MIO_UNSUPPORTED || error == FXI_MIO_NOT_IMPLEMENTED;
}

static const char *error_name(int error)
{
    return mio.ErrorString(error);
}

const fxi_rt_dnn_calls fxi_rt_dnn = {.library = &library,
                                     .needs_flip = true,
                                     .needs_dense = true,
                                     .describe = describe,
                                     .choose = choose,
                                     .run = run,
                                     .release = release,
                                     .unsupported = unsupported,
                                     .error_name = error_name};
