/* bench_devices.c: measures a device (bench_runner --device opencl:0 device/): the host's cost of
 * launching a step; kernels as fractions of the device's own limits (copies for memory-bound
 * kernels, this library's product of 1024³ for the others), so that one table is readable for a CPU
 * and for a large GPU; and a second start of the program, with compiled kernels on disk.
 *
 * device/matmul-1024-clblast is CLBlast's product on OpenCL's first device, whatever --device says;
 * the case fails without libclblast.
 */
#include "bench.h"
#include "opencl_api.h"
#include "primitives.h"

#include <dlfcn.h>
#include <string.h>

const char *bench_device; /* NULL: none */

static fx_device *device(void)
{
    return fx_device_find(bench_device);
}

enum { N = 1 << 24, SIDE = 1024, STEPS = 400, SAMPLES = 15 };

/* ---- bandwidth and products ------------------------------------------------------------------ */
static fx_array *op_copy(bench_state *s)
{
    return fx_neg(s->x); /* reads one number and writes one: the speed of memory */
}
static fx_array *op_arithmetic(bench_state *s)
{
    fx_array *t = fx_tanh(fx_add(fx_mul(s->x, 1.5), 0.25));
    return fx_add(fx_mul(t, fx_sigmoid(s->x)), fx_exp(fx_neg(fx_square(s->x))));
}
static fx_array *op_sum(bench_state *s)
{
    return fx_sum(s->x, .dims = FX_AXES(0));
}
static fx_array *op_softmax(bench_state *s)
{
    return fx_softmax(s->x);
}
static fx_array *op_transpose(bench_state *s)
{
    return fx_mul(fx_transpose(s->x), 2);
}
static fx_array *op_product(bench_state *s)
{
    return fx_matmul(s->x, s->x);
}

/* Seconds of one evaluation, including the device's work. */
static double seconds_of(bench_state *s, fx_array *(*op)(bench_state *))
{
    FX_SCOPE;
    const double start = bench_now();
    fx_eval(op(s));
    fx_synchronize(fx_array_device(s->x));
    return bench_now() - start;
}

static void open_array(bench_state *s, int64_t m, int64_t n)
{
    fx_set(&s->x, fx_to(device(), fx_randn(m, n)));
    fx_eval(s->x);
}

static double best_of(bench_state *s, fx_array *(*op)(bench_state *))
{
    double best = seconds_of(s, op);
    for (int k = 0; k < SAMPLES; k++) {
        const double now = seconds_of(s, op);
        best = now < best ? now : best;
    }
    return best;
}

/* size: that of the array; flag: bytes read and written per element; 0: the case is the copy
 * itself, in GB/s. */
static bool measure_memory(const bench_case *c, bench_row *out)
{
    double value[SAMPLES];
    bench_state s = {.which = c};
    open_array(&s, c->size[0], c->size[1]);
    const double bytes = (double)(c->size[0] * c->size[1]) * (c->flag ? (double)c->flag : 8);
    const double copy = 8.0 * (double)(c->size[0] * c->size[1]) / best_of(&s, op_copy);
    seconds_of(&s, c->op);
    for (int k = 0; k < SAMPLES; k++) {
        const double rate = bytes / seconds_of(&s, c->op);
        value[k] = c->flag ? rate / copy : rate * 1e-9;
    }
    fx_release(s.x);
    bench_row_of(value, SAMPLES, c->flag ? "of copy" : "GB/s", out);
    return fx_error_status() == FX_OK;
}

static bool measure_product(const bench_case *c, bench_row *out)
{
    double value[SAMPLES];
    bench_state s = {.which = c};
    open_array(&s, SIDE, SIDE);
    seconds_of(&s, op_product);
    for (int k = 0; k < SAMPLES; k++)
        value[k] = 2e-9 * SIDE * SIDE * SIDE / seconds_of(&s, op_product);
    fx_release(s.x);
    bench_row_of(value, SAMPLES, "GF/s", out);
    return fx_error_status() == FX_OK;
}

/* 3×3 over 64 channels. All kinds have the same amount of work. */
static fx_array *op_convolution(bench_state *s)
{
    static const int64_t map[] = {32, 32, 64, 16}, kernel[] = {3, 3, 64, 64};
    const bool by_weight = s->which->flag == FX_CONV_WEIGHT;
    const fx_conv_attr attr = {.kind = (int32_t)s->which->flag,
                               .groups = 1,
                               .spatial = 2,
                               .stride = {1, 1},
                               .before = {1, 1},
                               .after = {1, 1},
                               .dilation = {1, 1}};
    return fxi_conv_node(&attr, s->y, by_weight ? s->y : s->w, 4, by_weight ? kernel : map);
}

/* flag: the kind of convolution. */
static bool measure_convolution(const bench_case *c, bench_row *out)
{
    double value[SAMPLES];
    const double work = 2.0 * 9 * 64 * 64 * 32 * 32 * 16;
    bench_state s = {.which = c};
    open_array(&s, SIDE, SIDE);
    const double product = 2.0 * SIDE * SIDE * SIDE / best_of(&s, op_product);
    fx_set(&s.y, fx_to(device(), fx_randn(32, 32, 64, 16)));
    fx_set(&s.w, fx_to(device(), fx_randn(3, 3, 64, 64)));
    fx_eval(s.y);
    fx_eval(s.w);
    seconds_of(&s, op_convolution);
    for (int k = 0; k < SAMPLES; k++)
        value[k] = work / seconds_of(&s, op_convolution) / product;
    bench_close(&s);
    bench_row_of(value, SAMPLES, "of product", out);
    return fx_error_status() == FX_OK;
}

/* ---- CLBlast --------------------------------------------------------------------------------- */
enum { COLUMNS = 102, AS_IT_IS = 111 };
typedef int (*sgemm_fn)(int layout, int trans_a, int trans_b, size_t m, size_t n, size_t k,
                        float alpha, cl_mem a, size_t a_offset, size_t lda, cl_mem b,
                        size_t b_offset, size_t ldb, float beta, cl_mem c, size_t c_offset,
                        size_t ldc, cl_command_queue *queue, cl_event *event);

static bool measure_clblast(const bench_case *c, bench_row *out)
{
    char why[200] = "";
    double value[SAMPLES + 1];
    void *library = dlopen("libclblast.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "CLBlastSgemm") : NULL;
    sgemm_fn sgemm;
    cl_platform_id platform;
    cl_device_id id;
    cl_int error = CL_SUCCESS;
    memcpy(&sgemm, &found, sizeof sgemm);
    if (!found || !fxi_cl_open(why, sizeof why) || fxi_cl.GetPlatformIDs(1, &platform, NULL) ||
        fxi_cl.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &id, NULL))
        return fx_fail(FX_STATUS_DEVICE, c->name, "there is no CLBlast, or no device %s", why),
               false;
    cl_context context = fxi_cl.CreateContext(NULL, 1, &id, NULL, NULL, &error);
    cl_command_queue queue = fxi_cl.CreateCommandQueue(context, id, 0, &error);
    cl_mem x[2];
    const float one = 1;
    for (int k = 0; k < 2; k++) {
        x[k] = fxi_cl.CreateBuffer(context, CL_MEM_READ_WRITE, 4 * SIDE * SIDE, NULL, &error);
        error |= fxi_cl.EnqueueFillBuffer(queue, x[k], &one, 4, 0, 4 * SIDE * SIDE, 0, NULL, NULL);
    }
    for (int k = 0; k <= SAMPLES && !error; k++) {
        fxi_cl.Finish(queue);
        const double start = bench_now();
        error |= sgemm(COLUMNS, AS_IT_IS, AS_IT_IS, SIDE, SIDE, SIDE, 1, x[0], 0, SIDE, x[0], 0,
                       SIDE, 0, x[1], 0, SIDE, &queue, NULL);
        error |= fxi_cl.Finish(queue);
        value[k] = 2e-9 * SIDE * SIDE * SIDE / (bench_now() - start);
    }
    for (int k = 0; k < 2; k++)
        fxi_cl.ReleaseMemObject(x[k]);
    bench_row_of(value + 1, SAMPLES, "GF/s", out); /* the first one compiles */
    return !error || (fx_fail(FX_STATUS_DEVICE, c->name, "CLBlast fails"), false);
}

/* ---- the host -------------------------------------------------------------------------------- */
/* The time that fx_eval takes per small product of a chain, without waiting for the products. */
static bool measure_steps(const bench_case *c, bench_row *out)
{
    double value[SAMPLES + 2];
    bench_state s = {.which = c};
    open_array(&s, 4, 4);
    for (int k = 0; k < SAMPLES + 2; k++) {
        FX_SCOPE;
        fx_array *y = s.x;
        for (int i = 0; i < STEPS; i++)
            y = fx_matmul(s.x, y);
        const uint64_t before = fx_stats().steps_run;
        const double start = bench_now();
        fx_eval(y);
        value[k] = 1e6 * (bench_now() - start) / (double)(fx_stats().steps_run - before);
        fx_synchronize(fx_array_device(s.x));
    }
    fx_release(s.x);
    bench_row_of(value + 2, SAMPLES, "us/step", out); /* without planning and compiling */
    return fx_error_status() == FX_OK;
}

static bool measure_second_start(const bench_case *c, bench_row *out)
{
    double value[SAMPLES], seconds, mib;
    for (int k = -1; k < SAMPLES; k++) {
        if (!bench_start_child("--first-prediction", &seconds, &mib))
            return fx_fail(FX_STATUS_IO, c->name, "the child did not answer"), false;
        value[k < 0 ? 0 : k] = 1e3 * seconds;
    }
    bench_row_of(value, SAMPLES, "ms", out);
    return true;
}

const bench_case bench_devices[] = {
    {"device/copy", .measure = measure_memory, .op = op_copy, .size = {N, 1}},
    {"device/arithmetic", .measure = measure_memory, .op = op_arithmetic, .size = {N, 1},
     .flag = 8},
    {"device/sum-columns", .measure = measure_memory, .op = op_sum, .size = {4096, 4096},
     .flag = 4},
    {"device/softmax-1000", .measure = measure_memory, .op = op_softmax, .size = {1000, 16000},
     .flag = 8},
    {"device/transpose", .measure = measure_memory, .op = op_transpose, .size = {4096, 4096},
     .flag = 8},
    {"device/matmul-1024", .measure = measure_product},
    {"device/conv-forward", .measure = measure_convolution, .flag = FX_CONV_FORWARD},
    {"device/conv-by-data", .measure = measure_convolution, .flag = FX_CONV_DATA},
    {"device/conv-by-weight", .measure = measure_convolution, .flag = FX_CONV_WEIGHT},
    {"device/matmul-1024-clblast", .measure = measure_clblast},
    {"device/step-on-host", .measure = measure_steps},
    {"device/second-start", .measure = measure_second_start},
    {0}};
