/* test_gpurt_dnn.c: convolutions by cuDNN and MIOpen, and without them, on simulated drivers and
 * libraries (tests/sim/sim.h). The conformance suite tests the values (conform/cuda_blas,
 * conform/amdgpu_blas). ctest: simulated timeout=300
 *
 * A library is opened once in a process: every row runs in a child of its own, with its own
 * environment.
 */
#include <cflux.h>

#include "gpu_device.h"
#include "simulated_rows.h"
#include "temp_file.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#define SIM CFLUX_BUILD_DIR "/tests/sim"

/* ---- what a child does: prints what it sees -------------------------------------------------- */

static void hear(int level, const char *text, void *user)
{
    (void)user;
    /* Whether compiling takes long enough to be mentioned depends on the machine. */
    if (strstr(text, "compiling kernels for the first time") == NULL)
        printf("; %d: %s; ", level, text);
}

static const char *backend = "CUDA", *part = "CUDA:cuDNN";

static const fxi_gpu_counters *counters(void)
{
    return fx_backend_proc(backend, "counters");
}

static uint64_t calls(void)
{
    return counters()->calls;
}

static fx_device *gpu(void)
{
    return fx_device_get(backend, 0);
}

/* The sum of a layer's gradients on a device, and how many library calls they took. */
static double train(fx_device *device, int64_t pad, fx_function *act)
{
    const uint64_t before = calls();
    double sum = 0;
    fx_seed(3);
    FX_STEP;
    void *layer = fx_to(device, fx_conv(FX_DIMS(3, 3), 2, 4, act, .pad = FX_DIMS(pad, pad)));
    fx_array *x = fx_to(device, fx_randn(6, 5, 2, 3));
    fx_array *y = fx_call(layer, x);
    fx_array *loss = fx_sum(fx_mul(y, y));
    fx_conv_layer *g = fx_gradient(loss, layer);
    sum = fx_item(fx_sum(fx_abs(g->weight))) + fx_item(loss);
    printf("%d calls, ", (int)(calls() - before));
    return sum;
}

static void compare(int64_t pad, fx_function *act)
{
    const double own = train(gpu(), pad, act), cpu = train(fx_cpu_device(), pad, act);
    printf("%s; ", fabs(own - cpu) < 1e-4 * fabs(cpu) ? "as on the CPU" : "other");
}

static void layers(void)
{
    compare(0, FX_IDENTITY);
    compare(1, FX_IDENTITY);
    compare(1, FX_RELU);
    printf("%s", fx_error_take().message);
}

/* The gradient of the weights of a padded convolution where gy has `odd` in a corner, which the
 * outer taps multiply by the padding only. */
static bool same_weights(float odd, int64_t stride, int64_t dilation, int64_t groups)
{
    bool same = true;
    float own[400], cpu[400], gy[400];
    fx_seed(5);
    fx_array *x = fx_randn(6, 5, 2, 2);
    for (int k = 0; k < 2; k++) {
        fx_device *device = k ? fx_cpu_device() : gpu();
        fx_seed(6);
        fx_conv_layer *c = fx_to(
            device, fx_conv(FX_DIMS(3, 3), 2, 4, .pad = FX_DIMS(2, 1), .groups = groups,
                            .stride = FX_DIMS(stride, stride), .dilation = FX_DIMS(dilation, 1)));
        fx_array *y = fx_call(c, fx_to(device, x)), *g;
        for (int64_t i = 0; i < fx_length(y); i++)
            gy[i] = i ? (float)(i % 7) - 3 : odd;
        fx_array *seed =
            fx_from(FX_DTYPE_F32, gy, fx_size(y, 0), fx_size(y, 1), fx_size(y, 2), fx_size(y, 3));
        fx_pullback(y, fx_to(device, seed), &c->weight, 1, &g);
        fx_read_into(g, k ? cpu : own, (size_t)fx_length(g) * sizeof(float));
        for (int64_t i = 0; k && i < fx_length(g); i++)
            same &= isfinite(cpu[i]) ? fabsf(own[i] - cpu[i]) < 1e-3f * (1 + fabsf(cpu[i]))
                                     : !isfinite(own[i]) && isnan(own[i]) == isnan(cpu[i]);
    }
    return same;
}

static void promise(void)
{
    static const float odd[] = {1, INFINITY, -INFINITY, NAN};
    for (int k = 0; k < 4; k++)
        printf("%d%d%d%d ", same_weights(odd[k], 1, 1, 1), same_weights(odd[k], 2, 1, 2),
               same_weights(odd[k], 1, 2, 1),
               same_weights(odd[k], 4, 1, 1)); /* fewer elements of gy than weights */
    printf("%s, %d calls", fx_error_take().message, (int)calls());
}

/* A convolution or cross-correlation with its gradients, whose kernel is not symmetric. */
static bool same_as_cpu(bool flipped, int64_t width, int64_t height, fx_dtype dtype)
{
    enum { MOST = 1000 };
    float all[2][MOST];
    int64_t n = 0;
    for (int k = 0; k < 2; k++) {
        fx_device *device = k ? fx_cpu_device() : gpu();
        fx_seed(8);
        fx_array *x = fx_to(device, fx_cast(fx_randn(6, 5, 2, 3), dtype));
        fx_array *w = fx_to(device, fx_cast(fx_randn(width, height, 2, 4), dtype)), *g[2];
        fx_array *y = fx_convolve(x, w, .flipped = flipped);
        fx_array *const of[] = {x, w};
        fx_pullback(y, fx_mul(y, 0.1), of, 2, g);
        fx_array *const parts[] = {y, g[0], g[1]};
        n = 0;
        for (int i = 0; i < 3 && n + fx_length(parts[i]) <= MOST; n += fx_length(parts[i++]))
            fx_read_as(parts[i], FX_DTYPE_F32, all[k] + n, fx_length(parts[i]));
    }
    bool same = n > fx_length(fx_zeros(6, 5, 2, 3));
    for (int64_t i = 0; i < n && same; i++)
        same = fabsf(all[0][i] - all[1][i]) < 1e-3f * (1 + fabsf(all[1][i]));
    return same;
}

static void windows(void)
{
    static const int64_t sizes[][2] = {{3, 2}, {1, 2}, {1, 1}};
    for (int k = 0; k < 3; k++)
        printf("%d%d%d%d ", same_as_cpu(false, sizes[k][0], sizes[k][1], FX_DTYPE_F32),
               same_as_cpu(true, sizes[k][0], sizes[k][1], FX_DTYPE_F32),
               same_as_cpu(false, sizes[k][0], sizes[k][1], FX_DTYPE_F32),
               same_as_cpu(false, sizes[k][0], sizes[k][1], FX_DTYPE_F64));
    printf("%s, %d calls", fx_error_take().message, (int)calls());
}

static void convolve(void)
{
    float back[4] = {0};
    for (int k = 0; k < 2; k++) {
        fx_conv_layer *c =
            fx_to(gpu(), fx_conv(FX_DIMS(2, 2), 1, 1, .init = fx_ones_init, .bias = false));
        fx_array *x = fx_to(gpu(), fx_ones(3, 3, 1, 1));
        const bool ok = fx_read_into(fx_call(c, x), back, sizeof back) == FX_OK && back[3] == 4;
        const fx_error e = ok ? (fx_error){.message = ""} : fx_error_take();
        printf("; %s %s, %d calls", ok ? "right" : fx_status_name(e.status), e.message,
               (int)calls());
    }
}

/* A step that one kernel computes, with its epilogue or without: prints the calls of the library
 * and the launches of kernels. */
static void relu(bool fuses)
{
    float back[4] = {0};
    fx_array *x = fx_to(gpu(), fx_ones(3, 3, 1, 1)), *w = fx_to(gpu(), fx_ones(2, 2, 1, 1));
    fx_eval(fx_tuple(x, w));
    for (int k = 0; k < 2; k++) {
        FX_STEP;
        const fxi_gpu_counters before = *counters();
        fx_array *y = fx_convolve(x, w);
        const bool ok = fx_read_into(fuses ? fx_relu(y) : y, back, sizeof back) == FX_OK;
        const int by_library = (int)(counters()->calls - before.calls),
                  all = (int)(counters()->launches - before.launches);
        printf("%s %d calls, %d kernels; ", ok && back[3] == 4 ? "right" : "wrong", by_library,
               all - by_library);
    }
    printf("%s", fx_error_take().message);
}

static void fused(void)
{
    relu(true);
}

static void single(void)
{
    relu(false);
}

/* The same step in three plans: two identical steps in one, then two more. Prints the number of
 * library calls of each plan, and whether all results have the same bits. The plan of two steps
 * runs twice, so that its second run is recorded, and once more, so that it is replayed. */
static void remember(void)
{
    enum { PLANS = 5, ELEMENTS = 7 * 7 * 3 * 4 };
    static float all[PLANS][2][ELEMENTS];
    bool same = true;
    fx_seed(9);
    fx_array *x = fx_to(gpu(), fx_randn(9, 9, 2, 4)), *w = fx_to(gpu(), fx_randn(3, 3, 2, 3));
    fx_eval(fx_tuple(x, w));
    for (int k = 0; k < PLANS; k++) {
        FX_STEP;
        const uint64_t before = calls();
        fx_array *y[2] = {fx_convolve(x, w), k < 3 ? fx_convolve(x, fx_neg(w)) : NULL};
        fx_eval(k < 3 ? fx_tuple(y[0], y[1]) : fx_tuple(y[0]));
        printf("%d ", (int)(calls() - before));
        for (int i = 0; i < (k < 3 ? 2 : 1); i++) {
            fx_read_into(y[i], all[k][i], sizeof all[k][i]);
            same &= memcmp(all[k][i], all[0][i], sizeof all[k][i]) == 0;
        }
    }
    fx_array *cpu = fx_convolve(fx_to(fx_cpu_device(), x), fx_to(fx_cpu_device(), w));
    float expected[ELEMENTS];
    fx_read_into(cpu, expected, sizeof expected);
    for (int i = 0; i < ELEMENTS; i++)
        same &= fabsf(all[0][0][i] - expected[i]) < 1e-4f * (1 + fabsf(expected[i]));
    printf("%s %s", same ? "same" : "other", fx_error_take().message);
}

/* Many channels, so that the library is measured with channels last too. The gradients are those of
 * a convolution that is padded at both ends. */
static void many(void)
{
    float all[2][3000];
    int64_t n = 0;
    const uint64_t before = calls();
    for (int k = 0; k < 2; k++) {
        fx_device *device = k ? fx_cpu_device() : gpu();
        fx_seed(12);
        fx_array *x = fx_to(device, fx_randn(3, 4, 33, 2)),
                 *w = fx_to(device, fx_randn(1, 2, 33, 34)), *g[2];
        fx_array *y = fx_convolve(x, w, .pad = FX_DIMS(0, 1));
        fx_array *const of[] = {x, w};
        fx_pullback(y, fx_mul(y, 0.1), of, 2, g);
        fx_array *const parts[] = {y, g[0], g[1]};
        n = 0;
        for (int i = 0; i < 3; i++) {
            const int64_t m = fx_length(parts[i]) < 1000 ? fx_length(parts[i]) : 1000;
            fx_read_as(fx_slice(fx_reshape(parts[i], fx_length(parts[i])), 0, 0, m), FX_DTYPE_F32,
                       all[k] + n, m);
            n += m;
        }
    }
    bool same = n > 2000;
    for (int64_t i = 0; i < n && same; i++)
        same = fabsf(all[0][i] - all[1][i]) < 1e-3f * (1 + fabsf(all[1][i]));
    printf("%s, %d calls %s", same ? "same" : "other", (int)(calls() - before),
           fx_error_take().message);
}

static void parts(void)
{
    printf("%d, why: %s", fx_functional(part), fx_why_not(part));
}

/* Convolutions of other sizes than the other thread's. */
static void *convolve_sizes(void *first)
{
    for (int64_t n = *(const int64_t *)first; n < 16; n += 2) {
        FX_STEP;
        void *c = fx_to(gpu(), fx_conv(FX_DIMS(2, 2), 1, 1));
        fx_eval(fx_call(c, fx_to(gpu(), fx_ones(n, n, 1, 1))));
    }
    printf("%s", fx_error_take().message);
    return NULL;
}

static void threads(void)
{
    int64_t even = 4, odd = 5;
    pthread_t other;
    gpu();
    if (pthread_create(&other, NULL, convolve_sizes, &even) != 0)
        return;
    convolve_sizes(&odd);
    pthread_join(other, NULL);
    printf("%d calls", (int)calls());
}

static const struct act {
    const char *name;
    void (*run)(void);
} acts[] = {{"layers", layers},     {"promise", promise}, {"windows", windows},
            {"convolve", convolve}, {"parts", parts},     {"threads", threads},
            {"remember", remember}, {"many", many},       {"fused", fused},
            {"single", single}};

static int child(const char *name)
{
    if (strncmp(name, "amdgpu-", 7) == 0) {
        backend = "AMDGPU";
        part = "AMDGPU:MIOpen";
        name += 7;
    }
    fx_message_set_hook(hear, NULL);
    fx_use(backend);
    for (size_t k = 0; k < sizeof acts / sizeof *acts; k++)
        if (strcmp(acts[k].name, name) == 0)
            acts[k].run();
    /* At the end of the process, plans leave what a library made for them. */
    fx_reclaim();
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

#define SLOWER  "cflux's own kernels compute these convolutions"
#define KERNELS "; right , 0 calls; right , 0 calls"

static const simulated_row rows[] = {
    /* forward and the gradient of the weights, with padding too */
    {"",
     "layers",
     {"2 calls, 0 calls, as on the CPU; 2 calls, 0 calls, as on the CPU; 2 calls, 0 calls, as on "
      "the CPU; ",
      "!" SLOWER}},
    {"SIM_DEFER=1",
     "layers",
     {"2 calls, 0 calls, as on the CPU; 2 calls, 0 calls, as on", "!" SLOWER}},
    {"", "promise", {"1111 1111 1111 1111 , ", "!" SLOWER}},
    {"FX_CUDNN_LIBRARY=off", "promise", {"1111 1111 1111 1111 , 0 calls", "!" SLOWER}},
    {"FX_CUDNN_LIBRARY=off", "layers", {"0 calls, 0 calls, as on the CPU; ", "!" SLOWER}},
    {"", "convolve", {"; right , 1 calls; right , 2 calls", "!" SLOWER}},
    {"SIM_SLOW=1", "threads", {"12 calls", "!" SLOWER}},
    {"", "parts", {"1, why: ", "!off"}},
    {"FX_CUDNN_LIBRARY=off", "parts", {"0, why: FX_CUDNN_LIBRARY=off"}},
    {"FX_CUDNN_LIBRARY=" SIM "/libsim-old.so",
     "convolve",
     {"libsim-old.so has no function cudnnGetErrorString: it is too old", SLOWER, KERNELS}},
    {"SIM_FAIL=cudnnCreate@1=1002",
     "convolve",
     {"those found are of different versions: keep one version in LD_LIBRARY_PATH", SLOWER,
      KERNELS}},
    {"SIM_FAIL=cudnnCreate@1=1001",
     "convolve",
     {"cuDNN cannot be used on CUDA:0 (CUDNN_STATUS_NOT_INITIALIZED)", SLOWER, KERNELS}},
    {"SIM_FAIL=cudnnGetConvolutionForwardWorkspaceSize@0=4000",
     "convolve",
     {"cuDNN cannot prepare a convolution (CUDNN_STATUS_INTERNAL_ERROR)", SLOWER, KERNELS}},
    {"SIM_FAIL=cudnnGetConvolutionForwardWorkspaceSize@0=3000", "convolve", {KERNELS, "!" SLOWER}},
    {"SIM_FAIL=cudnnConvolutionForward@1=5000",
     "convolve",
     {"FX_STATUS_DEVICE conv: CUDA:0 (Simulated NVIDIA GPU 0): cudnnConvolutionForward failed with "
      "CUDNN_STATUS_EXECUTION_FAILED, 1 calls; right , 2 calls",
      "!" SLOWER}},
    /* MIOpen: the kernel of a convolution is reversed by a copy */
    {"",
     "amdgpu-layers",
     {"2 calls, 0 calls, as on the CPU; 2 calls, 0 calls, as on the CPU; 2 calls, 0 calls, as on "
      "the CPU; ",
      "!" SLOWER}},
    {"SIM_DEFER=1", "amdgpu-layers", {"2 calls, 0 calls, as on the CPU; 2 calls, 0", "!" SLOWER}},
    /* MIOpen has no solution for Float64 */
    {"", "amdgpu-windows", {"1111 1111 1111 , 27 calls", "!" SLOWER}},
    {"FX_MIOPEN_LIBRARY=off", "amdgpu-windows", {"1111 1111 1111 , 0 calls", "!" SLOWER}},
    {"", "windows", {"1111 1111 1111 , 36 calls", "!" SLOWER}},
    {"", "amdgpu-promise", {"1111 1111 1111 1111 , ", "!" SLOWER}},
    {"", "amdgpu-convolve", {"; right , 1 calls; right , 2 calls", "!" SLOWER}},
    {"", "amdgpu-parts", {"1, why: ", "!off"}},
    {"FX_MIOPEN_LIBRARY=off", "amdgpu-parts", {"0, why: FX_MIOPEN_LIBRARY=off"}},
    {"FX_MIOPEN_LIBRARY=off", "amdgpu-convolve", {KERNELS, "!" SLOWER}},
    {"FX_MIOPEN_LIBRARY=" SIM "/libsim-old.so",
     "amdgpu-convolve",
     {"libsim-old.so has no function miopenGetErrorString: it is too old", SLOWER, KERNELS}},
    {"SIM_FAIL=miopenCreateWithStream@1=1",
     "amdgpu-convolve",
     {"MIOpen cannot be used on AMDGPU:0 (miopenStatusNotInitialized)", SLOWER, KERNELS}},
    {"SIM_FAIL=miopenConvolutionForwardGetSolution@0=7",
     "amdgpu-convolve",
     {"MIOpen cannot prepare a convolution (miopenStatusUnknownError)", SLOWER, KERNELS}},
    {"SIM_FAIL=miopenConvolutionForwardCompileSolution@0=7",
     "amdgpu-convolve",
     {"MIOpen cannot prepare a convolution (miopenStatusUnknownError)", SLOWER, KERNELS}},
    {"SIM_FAIL=miopenConvolutionForwardGetSolution@0=8", "amdgpu-convolve", {KERNELS, "!" SLOWER}},
    {"SIM_FAIL=miopenConvolutionForwardImmediate@1=7",
     "amdgpu-convolve",
     {"FX_STATUS_DEVICE conv: AMDGPU:0 (Simulated AMD GPU 0): miopenConvolutionForwardImmediate "
      "failed with miopenStatusUnknownError, 1 calls; right , 2 calls",
      "!" SLOWER}}};

static void test_rows(void **unused)
{
    (void)unused;
    simulated_rows("FX_GPU_MEASURE=0", rows, sizeof rows / sizeof *rows);
}

/* SIM_SLOW makes cuDNN's calls take 20 ms on the simulated clock, so that cflux's kernels are
 * faster. Five calls are measured, and the decision is that of all later steps of this size. */
static void test_measured(void **unused)
{
    static const simulated_row measured[] = {
        {"FX_GPU_MEASURE=0", "remember", {"2 2 2 1 1 same ", "!" SLOWER}},
        {"FX_CUDNN_LIBRARY=off", "remember", {"0 0 0 0 0 same ", "!" SLOWER}},
        {"SIM_SLOW=1", "remember", {"5 0 0 0 0 same ", "!" SLOWER}},
        {"SIM_SLOW=1 SIM_DEFER=1", "remember", {"5 0 0 0 0 same ", "!" SLOWER}},
        {"SIM_SLOW=1 FX_GPU_GRAPHS=0", "remember", {"5 0 0 0 0 same ", "!" SLOWER}},
        /* calls with channels first and kernels take 10 ms, and channels last is faster */
        {"FX_GPU_MEASURE=0", "many", {"same, 3 calls ", "!" SLOWER}},
        {"SIM_CHANNELS_FIRST=1 SIM_SLOW_KERNEL=fx_conv:10",
         "many",
         {"same, ", "!same, 30 calls", "!" SLOWER}},
        {"SIM_CHANNELS_FIRST=1 SIM_SLOW_KERNEL=fx_conv:10 SIM_DEFER=1",
         "many",
         {"same, ", "!same, 30 calls", "!" SLOWER}},
        /* the library takes longer than the limit, so channels last has one round */
        {"SIM_SLOW=1", "many", {"same, 24 calls ", "!" SLOWER}},
        {"", "single", {"right 6 calls, 5 kernels; right 1 calls, 0 kernels; ", "!" SLOWER}},
        {"SIM_SLOW=1", "single", {"right 5 calls, 4 kernels; right 0 calls, 1 kernels; "}},
        {"SIM_SLOW_KERNEL=fx_conv:30",
         "single",
         {"right 6 calls, 3 kernels; right 1 calls, 0 kernels; "}},
        /* a way whose first run takes longer than a second is left out */
        {"SIM_SLOW_KERNEL=fx_conv:1001",
         "single",
         {"right 6 calls, 1 kernels; right 1 calls, 0 kernels; "}},
        /* the driver has no function for times */
        {"FX_CUDA_LIBRARY=" SIM "/libcuda-least.so SIM_SLOW=1",
         "single",
         {"right 1 calls, 0 kernels; right 1 calls, 0 kernels; ", "!" SLOWER}},
        /* the sixth call, the first with channels last, fails: this way is left out */
        {"SIM_SLOW_KERNEL=fx_conv:10 SIM_FAIL=cudnnConvolutionForward@6=3000",
         "many",
         {"same, ", "!FX_STATUS", "!" SLOWER}},
        /* the compiler refuses cflux's kernels: the library computes the convolution */
        {"FX_CACHE=off SIM_FAIL=nvrtcCompileProgram@0=6",
         "convolve",
         {"right , 6 calls; right , 7 calls", "!" SLOWER}},
        {"SIM_DEFER=1", "layers", {"as on the CPU; ", "!other", "!" SLOWER}},
        {"", "promise", {"1111 1111 1111 1111 , ", "!" SLOWER}},
        {"", "windows", {"1111 1111 1111 , ", "!" SLOWER}},
        {"", "amdgpu-windows", {"1111 1111 1111 , ", "!" SLOWER}},
        {"", "amdgpu-promise", {"1111 1111 1111 1111 , ", "!" SLOWER}},
        {"SIM_FAIL=cudnnConvolutionForward@3=5000",
         "convolve",
         {"FX_STATUS_DEVICE conv: CUDA:0 (Simulated NVIDIA GPU 0): cudnnConvolutionForward failed "
          "with CUDNN_STATUS_EXECUTION_FAILED, 3 calls; right ",
          "!" SLOWER}},
    };
    (void)unused;
    simulated_rows("FX_GPU_MEASURE=1", measured, sizeof measured / sizeof *measured);
}

/* The decision is read from the disk by the next process, unless the library has another version or
 * the file is damaged. */
static void test_remembered(void **unused)
{
    char folder[512], environment[1024], command[1024];
    (void)unused;
    snprintf(folder, sizeof folder, "%s.cache", temp_text("ways", ""));
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(environment, sizeof environment, "FX_CACHE=100 XDG_CACHE_HOME=%s SIM_SLOW=1", folder);
    simulated_run("", environment, "remember");
    simulated_expect(environment, "5 0 0 0 0 same ");
    simulated_run("", environment, "remember");
    simulated_expect(environment, "0 0 0 0 0 same ");
    snprintf(command, sizeof command,
             "for f in %s/cflux/gpu-ways*; do printf x | dd of=$f bs=1 seek=90 conv=notrunc "
             "2>/dev/null; done",
             folder);
    assert_int_equal(system(command), 0);
    simulated_run("", environment, "remember");
    simulated_expect(environment, "5 0 0 0 0 same ");
    simulated_run("SIM_CUDNN=91400", environment, "remember");
    simulated_expect(environment, "5 0 0 0 0 same ");
}

/* A later process remembers that kernels are faster, but cannot compile them: the library computes
 * the step, and a kernel its epilogue. */
static void test_forgotten(void **unused)
{
    char folder[512], environment[1024], command[1024];
    (void)unused;
    snprintf(folder, sizeof folder, "%s.cache", temp_text("forgotten", ""));
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(environment, sizeof environment, "FX_CACHE=100 XDG_CACHE_HOME=%s SIM_SLOW=1", folder);
    snprintf(command, sizeof command,
             "cd %s/cflux && find . -type f ! -name 'gpu-ways*' -exec rm {} + && ls | grep -q .",
             folder);
    simulated_run("", environment, "single");
    simulated_expect(environment, "right 5 calls, 4 kernels; right 0 calls, 1 kernels; ");
    simulated_run("", environment, "fused");
    simulated_expect(environment, "right 0 calls, 1 kernels; right 0 calls, 1 kernels; ");
    static const simulated_row later[] = {
        {"SIM_FAIL=nvrtcCompileProgram@0=6",
         "single",
         {"right 1 calls, 0 kernels; right 1 calls, 0 kernels; ", "!FX_STATUS"}},
        {"SIM_FAIL=nvrtcCompileProgram@1=6",
         "fused",
         {"right 1 calls, 1 kernels; right 1 calls, 1 kernels; ", "!FX_STATUS"}},
        {"SIM_FAIL=cuModuleLoadData@1=2",
         "fused",
         {"right 1 calls, 1 kernels; right 1 calls, 1 kernels; ", "!FX_STATUS"}}};
    for (size_t k = 0; k < sizeof later / sizeof *later; k++) {
        assert_int_equal(system(command), 0);
        simulated_rows(environment, &later[k], 1);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows), cmocka_unit_test(test_measured),
        cmocka_unit_test(test_remembered), cmocka_unit_test(test_forgotten)};
    return argc > 1 ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
