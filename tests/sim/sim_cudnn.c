/* sim_cudnn.c: the functions of cuDNN that the CUDA plugin uses: convolutions as plain loops over
 * any strides. It refuses other algorithms, sizes that do not match, and too little work space.
 */
#include "gpurt_cudnn.h"
#include "sim_blas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DECLARE(result, member, symbol, need, arguments)                                           \
    __attribute__((visibility("default"))) result sim_##member arguments __asm__(#symbol);
FXI_DNN_FUNCTIONS(DECLARE)
#define DRIVER "libcuda.so.1"
enum { NOT_INITIALIZED = 1001, BAD_PARAM = 2000, INTERNAL_ERROR = 4000, EXECUTION_FAILED = 5000 };
enum { AXES = 5, SPACE = 3, WORK_BYTES = 192 };

struct fxi_dnn_handle_object {
    int device, users; /* users: calls in progress; atomic */
    fxi_rt_stream stream;
};
struct fxi_dnn_tensor_object {
    int type, n, size[AXES], stride[AXES];
};
struct fxi_dnn_filter_object {
    int type, n, size[AXES];
};
struct fxi_dnn_conv_object {
    int n, pad[SPACE], stride[SPACE], dilation[SPACE], mode, sum, groups, math;
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

int sim_TensorSet(fxi_dnn_tensor t, int type, int n, const int *sizes, const int *strides)
{
    BEGIN(cudnnSetTensorNdDescriptor);
    t->type = type;
    t->n = n;
    if (n < 4 || n > AXES)
        return BAD_PARAM;
    for (int k = 0; k < n; k++) {
        t->size[k] = sizes[k];
        t->stride[k] = strides[k];
        if (sizes[k] < 1 || strides[k] < 1)
            return BAD_PARAM;
    }
    return FXI_DNN_OK;
}

int sim_FilterSet(fxi_dnn_filter w, int type, int format, int n, const int *sizes)
{
    BEGIN(cudnnSetFilterNdDescriptor);
    w->type = type;
    w->n = n;
    if (format != FXI_DNN_NCHW || n < 4 || n > AXES)
        return BAD_PARAM;
    memcpy(w->size, sizes, (size_t)n * sizeof *sizes);
    return FXI_DNN_OK;
}

int sim_ConvSet(fxi_dnn_conv c, int n, const int *pad, const int *stride, const int *dilation,
                int mode, int sum)
{
    BEGIN(cudnnSetConvolutionNdDescriptor);
    if (n < 2 || n > SPACE)
        return BAD_PARAM;
    *c = (struct fxi_dnn_conv_object){.n = n, .mode = mode, .sum = sum, .groups = 1};
    memcpy(c->pad, pad, (size_t)n * sizeof *pad);
    memcpy(c->stride, stride, (size_t)n * sizeof *stride);
    memcpy(c->dilation, dilation, (size_t)n * sizeof *dilation);
    return FXI_DNN_OK;
}

int sim_ConvSetGroups(fxi_dnn_conv c, int groups)
{
    BEGIN(cudnnSetConvolutionGroupCount);
    c->groups = groups;
    return groups > 0 ? FXI_DNN_OK : BAD_PARAM;
}

int sim_ConvSetMath(fxi_dnn_conv c, int math)
{
    BEGIN(cudnnSetConvolutionMathType);
    c->math = math;
    return FXI_DNN_OK;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

typedef enum conv_kind { FORWARD, DATA, WEIGHT } conv_kind;
typedef struct conv {
    sim_call call; /* first: the queue frees it */
    conv_kind kind;
    sim_type type;
    struct fxi_dnn_tensor_object x, y;
    struct fxi_dnn_filter_object w;
    struct fxi_dnn_conv_object c;
} conv;

static sim_type type_of(int type)
{
    return type == FXI_DNN_FLOAT      ? SIM_F32
           : type == FXI_DNN_DOUBLE   ? SIM_F64
           : type == FXI_DNN_HALF     ? SIM_F16
           : type == FXI_DNN_BFLOAT16 ? SIM_BF16
                                      : SIM_TYPES;
}

static int check(const struct fxi_dnn_tensor_object *x, const struct fxi_dnn_filter_object *w,
                 const struct fxi_dnn_conv_object *c, const struct fxi_dnn_tensor_object *y,
                 int algorithm)
{
    bool fit = x->n == w->n && y->n == x->n && c->n == x->n - 2 && x->size[0] == y->size[0] &&
               x->size[1] == w->size[1] * c->groups && y->size[1] == w->size[0] &&
               w->size[0] % c->groups == 0;
    for (int k = 0; fit && k < c->n; k++)
        fit = (x->size[k + 2] + 2 * c->pad[k] - (w->size[k + 2] - 1) * c->dilation[k] - 1) /
                      c->stride[k] +
                  1 ==
              y->size[k + 2];
    const int sum = x->type == FXI_DNN_DOUBLE ? FXI_DNN_DOUBLE : FXI_DNN_FLOAT;
    if (!fit || x->type != w->type || x->type != y->type || c->sum != sum)
        return BAD_PARAM;
    return algorithm == 1 && type_of(x->type) < SIM_TYPES ? FXI_DNN_OK : FXI_DNN_NOT_SUPPORTED;
}

/* The index in memory of the element of batch b and channel p at the coordinates `space`. */
static int64_t at(const struct fxi_dnn_tensor_object *t, int64_t b, int64_t p, const int64_t *space)
{
    int64_t i = b * t->stride[0] + p * t->stride[1];
    for (int k = 2; k < t->n; k++)
        i += space[k - 2] * t->stride[k];
    return i;
}

/* Computes the coordinates of element i; the last axis varies fastest. */
static void digits(int64_t i, const int *size, int n, int64_t *out)
{
    for (int k = n - 1; k >= 0; k--) {
        out[k] = i % size[k];
        i /= size[k];
    }
}

static int64_t length(const int *size, int n)
{
    int64_t all = 1;
    for (int k = 0; k < n; k++)
        all *= size[k];
    return all;
}

/* Moves to the next coordinates; the last axis varies fastest. False after the final element. */
static bool next_place(int64_t *place, const int *size, int n)
{
    for (int k = n - 1; k >= 0; k--) {
        if (++place[k] < size[k])
            return true;
        place[k] = 0;
    }
    return false;
}

/* The coordinates in x of the element that a weight multiplies for an element of y; false if they
 * are outside x. */
static bool joined(const conv *v, const int64_t *w, const int64_t *y, int64_t *out_space)
{
    bool inside = true;
    for (int k = 0; k < v->c.n; k++) {
        const int64_t tap =
            v->c.mode == FXI_DNN_CROSS_CORRELATION ? w[k + 2] : v->w.size[k + 2] - 1 - w[k + 2];
        out_space[k] = y[k + 2] * v->c.stride[k] - v->c.pad[k] + tap * v->c.dilation[k];
        inside = inside && out_space[k] >= 0 && out_space[k] < v->x.size[k + 2];
    }
    return inside;
}

/* Adds all terms. `wide` has x, w and y as doubles: two of them are factors, the third has the
 * sums. A weight belongs to one channel of y, so the loop over y leaves out that axis. */
static void add_terms(const conv *v, double *const wide[3])
{
    const int64_t nw = length(v->w.size, v->w.n);
    int64_t w[AXES], y[AXES] = {0}, space[SPACE];
    int places[AXES];
    memcpy(places, v->y.size, sizeof places);
    places[1] = 1;
    for (int64_t i = 0; i < nw; i++) {
        digits(i, v->w.size, v->w.n, w);
        const int64_t plane = w[1] + w[0] / (v->w.size[0] / v->c.groups) * v->w.size[1];
        do {
            if (!joined(v, w, y, space)) {
                /* cuDNN multiplies the padding's zeros by gy. */
                if (v->kind == WEIGHT)
                    wide[1][i] += 0 * wide[2][at(&v->y, y[0], w[0], y + 2)];
                continue;
            }
            double *x_at = wide[0] + at(&v->x, y[0], plane, space), *w_at = wide[1] + i,
                   *y_at = wide[2] + at(&v->y, y[0], w[0], y + 2);
            if (v->kind == FORWARD)
                *y_at += *x_at * *w_at;
            else if (v->kind == DATA)
                *x_at += *y_at * *w_at;
            else
                *w_at += *x_at * *y_at;
        } while (next_place(y, places, v->y.n));
    }
}

static size_t reach(const struct fxi_dnn_tensor_object *t)
{
    int64_t far = 1;
    for (int k = 0; k < t->n; k++)
        far += (int64_t)(t->size[k] - 1) * t->stride[k];
    return (size_t)far;
}

/* The elements of a factor as doubles, converted once for all terms; zeros for the sums. */
static double *widen(const conv *v, int which, bool is_out)
{
    const int64_t n = (int64_t)(v->call.uses[which].bytes / sim_type_size(v->type));
    const bool tf32 = v->type == SIM_F32 && v->c.math == FXI_DNN_DEFAULT_MATH;
    double *wide = calloc((size_t)n, sizeof *wide);
    for (int64_t i = 0; wide && !is_out && i < n; i++) {
        const double factor = sim_load(v->call.at[which], v->type, i);
        wide[i] = tf32 ? sim_to_tf32(factor) : factor;
    }
    return wide;
}

static void store_sums(const conv *v, int out, const double *sums)
{
    if (v->kind == WEIGHT) {
        for (int64_t i = 0; i < length(v->w.size, v->w.n); i++)
            sim_store(v->call.at[1], v->type, i, sums[i]);
        return;
    }
    const struct fxi_dnn_tensor_object *t = v->kind == FORWARD ? &v->y : &v->x;
    int64_t place[AXES] = {0};
    do {
        const int64_t to = at(t, place[0], place[1], place + 2);
        sim_store(v->call.at[out], v->type, to, sums[to]);
    } while (next_place(place, t->size, t->n));
}

/* Sums are doubles, so they are more exact than cuDNN's; the tolerances of tests permit the
 * difference. */
static void run(sim_call *c)
{
    const conv *v = (const conv *)(const void *)c;
    const int out = v->kind == FORWARD ? 2 : v->kind == DATA ? 0 : 1;
    double *wide[3];
    memset(c->at[3], 0xff, WORK_BYTES);
    for (int k = 0; k < 3; k++)
        wide[k] = widen(v, k, k == out);
    if (wide[0] && wide[1] && wide[2]) {
        add_terms(v, wide);
        store_sums(v, out, wide[out]);
    }
    for (int k = 0; k < 3; k++)
        free(wide[k]);
}

/* Only one thread at a time may use a handle of cuDNN. With SIM_SLOW the call takes 20 ms, so that
 * two threads meet. */
static int ask(fxi_dnn_handle h, size_t *out)
{
    if (!h)
        return BAD_PARAM;
    if (__atomic_fetch_add(&h->users, 1, __ATOMIC_ACQ_REL) > 0)
        fprintf(stderr, "simulated driver: two threads use one handle of cuDNN\n");
    if (getenv("SIM_SLOW"))
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    __atomic_fetch_sub(&h->users, 1, __ATOMIC_ACQ_REL);
    *out = WORK_BYTES;
    return FXI_DNN_OK;
}

static int compute(fxi_dnn_handle h, conv_kind kind, const char *name, const double scales[2],
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
    if (scales[0] != 1 || scales[1] != 0 || !work || bytes < WORK_BYTES ||
        h->device != sim_product_device(DRIVER))
        return BAD_PARAM;
    conv *v = calloc(1, sizeof *v);
    if (!v)
        return INTERNAL_ERROR;
    *v = (conv){.kind = kind, .type = type_of(x->type), .x = *x, .y = *y, .w = *w, .c = *c};
    const size_t size = sim_type_size(v->type);
    v->call = (sim_call){.name = name,
                         .run = run,
                         .uses = {{px, reach(x) * size},
                                  {pw, (size_t)length(w->size, w->n) * size},
                                  {py, reach(y) * size},
                                  {work, WORK_BYTES}}};
    return sim_call_queue(DRIVER, &v->call, h->stream) ? EXECUTION_FAILED : FXI_DNN_OK;
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
    return compute(h, FORWARD, "cudnnConvolutionForward", SCALES, x, px, w, pw, c, y, py, algorithm,
                   work, bytes);
}

int sim_Data(fxi_dnn_handle h, const void *alpha, fxi_dnn_filter w, const void *pw,
             fxi_dnn_tensor y, const void *py, fxi_dnn_conv c, int algorithm, void *work,
             size_t bytes, const void *beta, fxi_dnn_tensor x, void *px)
{
    BEGIN(cudnnConvolutionBackwardData);
    return compute(h, DATA, "cudnnConvolutionBackwardData", SCALES, x, px, w, pw, c, y, py,
                   algorithm, work, bytes);
}

int sim_Weight(fxi_dnn_handle h, const void *alpha, fxi_dnn_tensor x, const void *px,
               fxi_dnn_tensor y, const void *py, fxi_dnn_conv c, int algorithm, void *work,
               size_t bytes, const void *beta, fxi_dnn_filter w, void *pw)
{
    BEGIN(cudnnConvolutionBackwardFilter);
    return compute(h, WEIGHT, "cudnnConvolutionBackwardFilter", SCALES, x, px, w, pw, c, y, py,
                   algorithm, work, bytes);
}
