/* test_gpurt.c: the messages of the CUDA and AMDGPU backends for failures, and which devices remain
 * usable; their cache, forks, and the order of their writes. They run on simulated drivers
 * (tests/sim/sim.h). ctest: simulated timeout=300
 *
 * A backend is opened once in a process: every row runs in a child of its own, with its own
 * environment.
 */
#include <cflux.h>

#include "gpu_device.h"
#include "simulated_rows.h"
#include "temp_file.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SIM CFLUX_BUILD_DIR "/tests/sim"

/* ---- what a child does: prints what it sees -------------------------------------------------- */

static const char *backend = "CUDA";

static void hear(int level, const char *text, void *user)
{
    (void)user;
    /* Whether compiling takes long enough to be mentioned depends on the machine. */
    if (strstr(text, "compiling kernels for the first time") == NULL)
        printf("; %d: %s", level, text);
}

/* "3 devices: Simulated NVIDIA GPU 0, …" of those that can be used, or why there are none. */
static void open_it(void)
{
    fx_use(backend);
    const int n = fx_device_count(backend);
    printf("%d devices:", n);
    for (int k = 0; k < n; k++)
        printf(" %s,", fx_device_model(fx_device_get(backend, k)));
    if (n == 0)
        printf(" %s", fx_why_not(backend));
}

/* The exponentials of three numbers on device k. */
static void compute(int k)
{
    char name[32];
    float back[3] = {0};
    snprintf(name, sizeof name, "%s:%d", backend, k);
    fx_array *y = fx_exp(fx_to(fx_device_get(backend, k), fx_vector(0, 0, 0)));
    const bool ok = fx_read_into(y, back, sizeof back) == FX_OK && back[2] == 1;
    const fx_error e = ok ? (fx_error){.message = ""} : fx_error_take();
    printf("; %d %s %s", k, ok ? "runs" : fx_status_name(e.status), e.message);
}

static void open_only(void)
{
    open_it();
}

static void compute_both(void)
{
    open_it();
    compute(0);
    compute(1);
    compute(0);
}

/* Adds the numbers of programs that were compiled and read from files so far. */
static void count_programs(void)
{
    fx_use(backend);
    compute(0);
    const fxi_gpu_counters *n = fx_backend_proc(backend, "counters");
    printf("; compiled %d, loaded %d", (int)n->compiled, (int)n->loaded);
}

/* A backend whose devices cannot be used: what is listed, and where models go. */
static void list(void)
{
    fx_use(backend);
    printf("functional %d, gpu %s, why: %s", fx_functional(backend),
           fx_device_name(fx_gpu_device()), fx_why_not(backend));
    fx_show(fx_devices(backend));
    fx_device_get(backend, 0);
    printf("; %s", fx_error_take().message);
}

static void parts(void)
{
    fx_use(backend);
    const bool cuda = strcmp(backend, "CUDA") == 0;
    printf("%d %d: %s", fx_functional(cuda ? "CUDA:nvrtc" : "AMDGPU:hiprtc"),
           fx_functional(cuda ? "CUDA:cuDNN" : "AMDGPU:MIOpen"),
           fx_why_not(cuda ? "CUDA:cuDNN" : "AMDGPU:MIOpen"));
}

static void copy(void)
{
    float back[3] = {0};
    fx_use(backend);
    fx_array *x = fx_exp(fx_to(fx_device_get(backend, 0), fx_vector(0, 0, 0)));
    fx_array *y = fx_add(fx_to(fx_device_get(backend, 1), x), fx_scalar(1));
    fx_read_into(y, back, sizeof back);
    const fxi_gpu_counters *n = fx_backend_proc(backend, "counters");
    printf("%g %g, direct %d", (double)back[0], (double)back[2], (int)n->direct);
}

/* Copies between devices whose queues are not empty: each waits for the source's earlier work. The
 * source then computes another array, for which it may use the same memory. */
static void copies(void)
{
    enum { ROUNDS = 24, N = 64 };
    float back[N];
    int wrong = 0;
    fx_use(backend);
    fx_device *from = fx_device_get(backend, 0), *to = fx_device_get(backend, 1);
    fx_array *ones = fx_to(from, fx_ones(N));
    for (int k = 0; k < ROUNDS; k++) {
        fx_array *x = fx_mul(ones, fx_scalar(k)), *copy = fx_to(to, x);
        fx_array *y = fx_add(copy, fx_scalar(1));
        fx_eval(y);
        fx_release(x);
        fx_release(copy);
        fx_array *next = fx_mul(ones, fx_scalar(-1));
        fx_eval(next);
        fx_read_into(y, back, sizeof back);
        for (int i = 0; i < N; i++)
            wrong += back[i] != (float)(k + 1);
        fx_release(y);
        fx_release(next);
    }
    const fxi_gpu_counters *n = fx_backend_proc(backend, "counters");
    printf("wrong numbers: %d, direct %d. %s", wrong, (int)n->direct, fx_error_take().message);
}

/* The child of a process that has used the device. */
static void fork_it(void)
{
    fx_use(backend);
    compute(0);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        compute(0);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    compute(0);
}

/* Writes to memory that earlier work, which is perhaps still queued, uses. Returns how many numbers
 * are wrong. */
static int64_t write_sizes(fx_device *device, int64_t n, int rounds)
{
    float *numbers = malloc((size_t)n * sizeof *numbers), *back = malloc((size_t)n * sizeof *back);
    int64_t wrong = 0;
    fx_array *sums[16] = {NULL};
    for (int k = 0; k < rounds; k++) {
        for (int64_t i = 0; i < n; i++)
            numbers[i] = (float)((i + k) % 97);
        fx_array *x = fx_to(device, fx_from(FX_DTYPE_F32, numbers, n));
        sums[k] = fx_add(x, fx_scalar(1));
        fx_eval(sums[k]);
        /* The memory of x is free now, and the next x may get it. */
        fx_release(x);
    }
    for (int k = 0; k < rounds; k++) {
        fx_read_into(sums[k], back, (size_t)n * sizeof *back);
        for (int64_t i = 0; i < n; i++)
            wrong += back[i] != (float)((i + k) % 97 + 1);
        fx_release(sums[k]);
    }
    free(numbers);
    free(back);
    return wrong;
}

static void write_many(void)
{
    fx_use(backend);
    fx_device *device = fx_device_get(backend, 0);
    int64_t wrong = 0;
    static const int64_t sizes[] = {97, 50000, 70000, 3000000};
    for (int k = 0; k < 4; k++)
        wrong += write_sizes(device, sizes[k], sizes[k] > 100000 ? 3 : 12);
    printf("wrong numbers: %d. %s", (int)wrong, fx_error_take().message);
}

/* Steps of two devices alternate, and memory is returned to the driver while it is in use. */
static void take_turns(void)
{
    fx_use(backend);
    fx_array *x[2], *y[2];
    float back[3] = {0};
    for (int k = 0; k < 2; k++)
        fx_eval(x[k] = fx_exp(fx_to(fx_device_get(backend, k), fx_vector(0, 0, 0))));
    for (int k = 0; k < 2; k++)
        y[k] = fx_add(x[k], fx_scalar(k));
    fx_eval(y[0]);
    fx_eval(y[1]);
    for (int k = 0; k < 2; k++) {
        fx_release(x[k]);
        fx_reclaim();
        fx_read_into(y[k], back, sizeof back);
        printf("%g ", (double)back[1]);
    }
    printf("in turn. %s", fx_error_take().message);
}

/* Four runs of one plan of several kernels: from the third on, a graph is replayed. The host waits
 * after each run, when it reads the result. */
static void read_replays(void)
{
    float back[9] = {0};
    fx_use(backend);
    fx_array *x = fx_to(fx_device_get(backend, 0), fx_ones(3, 3));
    fx_eval(x);
    for (int k = 0; k < 4; k++) {
        FX_SCOPE;
        fx_array *y = fx_softmax(fx_matmul(x, x), .dims = FX_AXES(0));
        fx_read_into(fx_matmul(y, x), back, sizeof back);
    }
    printf("replayed %d: %s", (int)fx_stats().graphs_replayed, fx_error_take().message);
}

enum { LOSSES = 20 };

/* The first losses of a small classifier, with convolution, pooling, dropout and Adam. */
static void train(fx_device *device, double *losses)
{
    int64_t labels[16];
    for (int k = 0; k < 16; k++)
        labels[k] = k;
    fx_seed(7);
    fx_array *x = fx_to(device, fx_randn(12, 12, 1, 16));
    fx_array *y = fx_to(device, fx_onehot(fx_from(FX_DTYPE_I64, labels, 16), 16));
    void *model =
        fx_to(device, fx_chain(fx_conv(FX_DIMS(3, 3), 1, 4, FX_RELU), fx_maxpool(FX_DIMS(2, 2)),
                               FX_FLATTEN, fx_dropout(0.25), fx_dense(100, 16)));
    void *optimiser = fx_setup(fx_adam(.eta = 0.01), model);
    for (int k = 0; k < LOSSES; k++) {
        FX_STEP;
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        fx_update(optimiser, model, fx_gradient(loss, model));
        losses[k] = fx_item(loss);
    }
}

static void compare_losses(void)
{
    double own[LOSSES] = {0}, cpu[LOSSES] = {0}, most = 0;
    fx_use(backend);
    train(fx_device_get(backend, 0), own);
    train(fx_cpu_device(), cpu);
    for (int k = 0; k < LOSSES; k++) {
        const double apart = own[k] > cpu[k] ? own[k] - cpu[k] : cpu[k] - own[k];
        most = apart > most ? apart : most;
    }
    const fxi_gpu_counters *n = fx_backend_proc(backend, "counters");
    printf("losses %s, %s, %s%s", most < 1e-4 ? "agree" : "differ",
           own[LOSSES - 1] < 0.8 * own[0] ? "fall" : "do not fall",
           n->launches > 100 ? "launched" : "not launched", fx_error_take().message);
}

static void out_of_memory(void)
{
    fx_use(backend);
    fx_array *x = fx_to(fx_device_get(backend, 0), fx_ones(1000, 1000));
    fx_eval(x);
    const fx_error e = fx_error_take();
    printf("%s %s", fx_status_name(e.status), e.message);
    compute(1);
}

static const struct act {
    const char *name;
    void (*run)(void);
} acts[] = {{"open", open_only},      {"compute", compute_both},  {"count", count_programs},
            {"list", list},           {"parts", parts},           {"copy", copy},
            {"fork", fork_it},        {"write", write_many},      {"copies", copies},
            {"turns", take_turns},    {"losses", compare_losses}, {"memory", out_of_memory},
            {"replays", read_replays}};

/* "amdgpu-open" is "open" with the other backend. */
static int child(const char *name)
{
    if (strncmp(name, "amdgpu-", 7) == 0) {
        backend = "AMDGPU";
        name += 7;
    }
    fx_message_set_hook(hear, NULL);
    for (size_t k = 0; k < sizeof acts / sizeof *acts; k++)
        if (strcmp(acts[k].name, name) == 0)
            acts[k].run();
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

#define CUDA(k) "Simulated NVIDIA GPU " #k ","
#define LOST    "CUDA:0 (Simulated NVIDIA GPU 0) failed: "

static const simulated_row rows[] = {
    {"", "compute", {"3 devices: " CUDA(0) " " CUDA(1) " " CUDA(2), "; 0 runs ; 1 runs ; 0 runs"}},
    {"", "amdgpu-compute", {"2 devices: Simulated AMD GPU 0,", "; 0 runs ; 1 runs ; 0 runs"}},
    {"", "parts", {"1 0: FX_CUDNN_LIBRARY=off"}},
    {"", "amdgpu-parts", {"1 0: FX_MIOPEN_LIBRARY=off"}},
    {"", "copy", {"2 2, direct 1"}},
    {"SIM_DEFER=1", "copy", {"2 2, direct 1"}},
    {"SIM_DEFER=1", "copies", {"wrong numbers: 0, direct 24. "}},
    {"SIM_DEFER=1", "amdgpu-copies", {"wrong numbers: 0, direct 24. "}},
    {"SIM_DEFER=1", "amdgpu-copy", {"2 2, direct 1"}},
    /* the variables that hide devices */
    {"CUDA_VISIBLE_DEVICES=2,0", "compute", {"2 devices: " CUDA(2) " " CUDA(0), "0 runs ; 1 runs"}},
    {"CUDA_VISIBLE_DEVICES=1,7,0", "open", {"1 devices: " CUDA(1)}},
    {"CUDA_VISIBLE_DEVICES=-1", "open", {"0 devices: ", "CUDA_VISIBLE_DEVICES=-1 hides all"}},
    {"CUDA_VISIBLE_DEVICES=", "open", {"0 devices: ", "CUDA_VISIBLE_DEVICES= hides all"}},
    {"SIM_DEVICES=0", "open", {"0 devices: the driver reports no device"}},
    {"SIM_FAIL=hipInit@0=101", "amdgpu-open", {"0 devices: the driver reports no device"}},
    {"HIP_VISIBLE_DEVICES=1", "amdgpu-open", {"1 devices: Simulated AMD GPU 1,"}},
    {"ROCR_VISIBLE_DEVICES=1", "amdgpu-open", {"1 devices: Simulated AMD GPU 1,"}},
    {"HIP_VISIBLE_DEVICES=-1", "amdgpu-open", {"HIP_VISIBLE_DEVICES=-1 hides all"}},
    /* libraries */
    {"FX_CUDA_LIBRARY=/none.so", "open", {"0 devices: /none.so, which FX_CUDA_LIBRARY names, can"}},
    {"FX_CUDA_LIBRARY=" SIM "/libsim-old.so",
     "open",
     {"0 devices: ", "libsim-old.so has no function cuDriverGetVersion: it is too old or damaged"}},
    {"FX_NVRTC_LIBRARY=/none.so",
     "list",
     {"functional 0, gpu CPU, why: /none.so, which FX_NVRTC_LIBRARY names, cannot be opened",
      "CUDA device 2: Simulated", "Unavailable backend: CUDA: /none.so"}},
    {"FX_HIPRTC_LIBRARY=" SIM "/libsim-old.so",
     "amdgpu-list",
     {"functional 0, gpu CPU, why: ", "libsim-old.so has no function hiprtcVersion"}},
    {"LD_LIBRARY_PATH=" SIM "/damaged:" SIM,
     "compute",
     {"3 devices: " CUDA(0), "; 0 runs ; 1 runs"}},
    /* versions and architectures */
    {"FX_NVRTC_LIBRARY=" SIM "/libnvrtc.so.13 SIM_VERSION=12080",
     "compute",
     {"the driver (CUDA 12.8) cannot load the code of NVRTC (CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
      "); update the driver or install an older NVRTC"}},
    /* every NVRTC found is newer than the driver */
    {"SIM_VERSION=10020",
     "list",
     {"functional 0", "the driver is older than NVRTC (libnvrtc.so.1",
      "it supports version 10; update the driver or install NVRTC 10"}},
    {"SIM_ARCHITECTURE=60",
     "list",
     {"functional 0", "NVRTC 13.0 compiles for sm_75 and later, but the device is sm_60"}},
    {"SIM_FAIL=nvrtcGetNumSupportedArchs@0=1",
     "list",
     {"functional 0", "NVRTC 13.0 does not report the architectures that it supports"}},
    /* drivers without the functions that are not needed */
    {"FX_CUDA_LIBRARY=" SIM "/libcuda-least.so", "copy", {"2 2, direct 0"}},
    {"FX_HIP_LIBRARY=" SIM "/libamdhip64-least.so",
     "amdgpu-list",
     {"functional 0", "the driver does not report the device's architecture"}},
    {"SIM_ARCHITECTURE=121", "compute", {"; 0 runs ; 1 runs"}},
    {"SIM_ARCHITECTURE=gfx1201",
     "amdgpu-list",
     {"functional 0", "hipRTC 9.0 does not know the architecture gfx1201"}},
    {"SIM_ARCHITECTURE=gfx1100", "amdgpu-compute", {"; 0 runs ; 1 runs"}},
    /* a device that does not open, and failures of calls */
    {"SIM_FAIL=cuStreamCreate@1=46",
     "compute",
     {"1: CUDA: Simulated NVIDIA GPU 0 is ignored: cuStreamCreate failed with error 46",
      "2 devices: " CUDA(1), "; 0 runs ; 1 runs"}},
    {"SIM_FAIL=cuDeviceGet@1=101",
     "compute",
     {"1: CUDA: device 0 is ignored: cuDeviceGet failed with ", "2 devices: ", "; 1 runs"}},
    {"SIM_FAIL=cuInit@1=803", "open", {"0 devices: the driver was updated", "restart the machine"}},
    {"SIM_FAIL=cuInit@1=34", "open", {"0 devices: the library found is the toolkit's stub"}},
    {"SIM_FAIL=nvrtcCompileProgram@1=6",
     "compute",
     {"; 0 FX_STATUS_DEVICE compile: CUDA:0 (Simulated NVIDIA GPU 0) cannot compile a kernel: "
      "ERROR_COMPILATION",
      "; 1 runs ; 0 runs"}},
    /* a kernel that needs so many registers that its groups do not fit */
    {"SIM_ITEMS=128",
     "compute",
     {"runs fx_elementwise in groups of at most 128 work-items, but the kernel needs 256"}},
    {"SIM_ITEMS=128",
     "amdgpu-compute",
     {"runs fx_elementwise in groups of at most 128 work-items, but the kernel needs 256"}},
    {"SIM_FAIL=cuLaunchKernel@1=701",
     "compute",
     {"; 0 FX_STATUS_DEVICE exp: CUDA:0 (Simulated NVIDIA GPU 0): cuLaunchKernel failed with error "
      "701",
      "; 1 runs ; 0 runs"}},
    {"SIM_FAIL=cuLaunchKernel@1=719!",
     "compute",
     {"; 0 FX_STATUS_DEVICE exp: " LOST "cuLaunchKernel returned CUDA_ERROR_LAUNCH_FAILED; arrays",
      "; 1 runs ; 0 FX_STATUS_DEVICE", LOST "cuLaunchKernel returned CUDA_ERROR_LAUNCH_FAILED"}},
    {"SIM_FAIL=cuMemcpyDtoHAsync_v2@1=700!",
     "compute",
     {"; 0 FX_STATUS_DEVICE read: " LOST
      "cuMemcpyDtoHAsync_v2 returned CUDA_ERROR_ILLEGAL_ADDRESS after the step exp; arrays",
      "; 1 runs"}},
    /* work of a replay that fails on the device */
    {"SIM_FAIL=cuMemcpyDtoHAsync_v2@4=700!",
     "replays",
     {"replayed 2: read: " LOST
      "cuMemcpyDtoHAsync_v2 returned CUDA_ERROR_ILLEGAL_ADDRESS after the "
      "steps matmul to matmul (set FX_GPU_SYNC=1 to find the step); arrays"}},
    {"SIM_FAIL=hipMemcpyDtoHAsync@4=700!",
     "amdgpu-replays",
     {"replayed 2: read: AMDGPU:0 (Simulated AMD GPU 0) failed: hipMemcpyDtoHAsync returned "
      "hipErrorIllegalAddress after the steps matmul to matmul (set FX_GPU_SYNC=1 to find the "
      "step)"}},
    {"FX_GPU_GRAPHS=0 SIM_FAIL=cuMemcpyDtoHAsync_v2@4=700!",
     "replays",
     {"replayed 0: read: ",
      " after the steps matmul to matmul (set FX_GPU_SYNC=1 to find the step)"}},
    {"FX_GPU_SYNC=1 SIM_FAIL=cuStreamSynchronize@1=700!",
     "compute",
     {"; 0 FX_STATUS_DEVICE exp: " LOST "cuStreamSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS",
      "; 1 runs"}},
    {"SIM_FAIL=hipModuleLaunchKernel@1=719!",
     "amdgpu-compute",
     {"AMDGPU:0 (Simulated AMD GPU 0) failed: hipModuleLaunchKernel returned hipErrorLaunchFailure",
      "; 1 runs"}},
    {"SIM_FAIL=cuMemAlloc_v2@1=2,cuMemAlloc_v2@2=2", "compute", {"; 1 runs ; 0 runs"}},
    {"SIM_MEMORY=2", "memory", {"FX_STATUS_MEMORY", "; 1 runs"}},
    /* without pinned memory */
    {"SIM_FAIL=cuMemHostAlloc@0=2", "compute", {"; 0 runs ; 1 runs ; 0 runs"}},
    {"SIM_FAIL=cuMemHostAlloc@0=2 SIM_DEFER=1", "write", {"wrong numbers: 0. "}},
    /* the order of writes */
    {"SIM_DEFER=1", "write", {"wrong numbers: 0. "}},
    {"SIM_DEFER=1 SIM_SEED=2", "amdgpu-write", {"wrong numbers: 0. "}},
    {"SIM_DEFER=1", "turns", {"1 2 in turn. "}},
    {"SIM_DEFER=1", "amdgpu-turns", {"1 2 in turn. "}},
    /* training */
    {"", "losses", {"losses agree, fall, launched"}},
    {"SIM_DEFER=1", "losses", {"losses agree, fall, launched"}},
    {"SIM_DEFER=1 SIM_SEED=3", "amdgpu-losses", {"losses agree, fall, launched"}},
    {"", "fork", {"; 0 runs ; 0 FX_STATUS_DEVICE", "; 0 runs"}},
    {"", "amdgpu-fork", {"; 0 runs ; 0 FX_STATUS_DEVICE", "; 0 runs"}},
    {"FX_GPU_SYNC=1 SIM_FAIL=hipStreamSynchronize@1=700!",
     "amdgpu-compute",
     {"; 0 FX_STATUS_DEVICE exp: AMDGPU:0 (Simulated AMD GPU 0) failed: hipStreamSynchronize "
      "returned hipErrorIllegalAddress",
      "; 1 runs"}},
    {"SIM_MEMORY=2", "amdgpu-memory", {"FX_STATUS_MEMORY", "; 1 runs"}}};

#define NO_LIBRARIES                                                                               \
    "FX_CUBLASLT_LIBRARY=off FX_CUDNN_LIBRARY=off FX_ROCBLAS_LIBRARY=off FX_MIOPEN_LIBRARY=off"

static void test_rows(void **unused)
{
    (void)unused;
    simulated_rows(NO_LIBRARIES, rows, sizeof rows / sizeof *rows);
}

/* A machine without the vendor's software. Its folder has no driver; the system's folders may. */
static void test_without_driver(void **unused)
{
    static const simulated_row none[] = {
        {"LD_LIBRARY_PATH=/none",
         "list",
         {"functional 0, gpu CPU, why: ", "there is no libcuda.so.1; install NVIDIA's driver"}},
        {"LD_LIBRARY_PATH=/none",
         "amdgpu-list",
         {"functional 0, gpu CPU, why: ",
          "there is no libamdhip64.so.7; install ROCm 5 or later"}}};
    static const char *const drivers[] = {"libcuda.so.1", "libamdhip64.so.7"};
    (void)unused;
    for (int k = 0; k < 2; k++) {
        void *driver = dlopen(drivers[k], RTLD_LAZY);
        if (driver)
            print_message("skipped: %s is installed\n", drivers[k]);
        else
            simulated_rows(NO_LIBRARIES, &none[k], 1);
        if (driver)
            dlclose(driver);
    }
}

static void shell(const char *form, const char *folder)
{
    char command[2048];
    snprintf(command, sizeof command, form, folder);
    assert_int_equal(system(command), 0);
}

/* The files belong to another user, who may have written anything into them. */
static void cached_file_of_another_user(const char *environment, const char *folder)
{
    if (geteuid() != 0) {
        print_message("skipped: only root can give a file to another user\n");
        return;
    }
    shell("chown 65534 %s/cflux/*", folder);
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "; 1: kernel cache: cuda-");
    simulated_expect(environment, " is ignored: it belongs to user 65534, and this process runs as "
                                  "user 0");
    simulated_expect(environment, "; 0 runs ; compiled 1, loaded 0");
    /* The new file belongs to this user. */
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "; 0 runs ; compiled 0, loaded 1");
}

/* Each file gets the contents of another one: they are whole, but of another program. */
static void foreign_file(const char *environment, const char *folder)
{
    shell(
        "cd %s/cflux && set -- * && test $# = 2 && cp \"$1\" x && cp \"$2\" \"$1\" && mv x \"$2\"",
        folder);
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "; 0 runs ; compiled 1, loaded 0");
}

/* A damaged cached file is compiled again, and so is PTX that was made for another driver. */
static void test_cache(void **unused)
{
    char environment[1024];
    /* In the folder of temporary files, which is removed at the end. */
    char folder[512];
    snprintf(folder, sizeof folder, "%s.cache", temp_text("kernels", ""));
    (void)unused;
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(environment, sizeof environment, "FX_CACHE=100 XDG_CACHE_HOME=%s", folder);
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "; 0 runs ; compiled 1, loaded 0");
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "; 0 runs ; compiled 0, loaded 1");
    shell("for f in %s/cflux/*; do printf x | dd of=$f bs=1 seek=90 conv=notrunc 2>/dev/null; done",
          folder);
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "; 0 runs ; compiled 1, loaded 0");
    cached_file_of_another_user(environment, folder);
    snprintf(environment, sizeof environment,
             "FX_CACHE=100 XDG_CACHE_HOME=%s SIM_ARCHITECTURE=121 SIM_VERSION=13000", folder);
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "compiled 1, loaded 0");
    foreign_file(environment, folder);
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "compiled 0, loaded 1");
    snprintf(environment, sizeof environment,
             "FX_CACHE=100 XDG_CACHE_HOME=%s SIM_ARCHITECTURE=121 SIM_VERSION=13020", folder);
    simulated_run(NO_LIBRARIES, environment, "count");
    simulated_expect(environment, "compiled 1, loaded 0");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                              cmocka_unit_test(test_without_driver),
                                              cmocka_unit_test(test_cache)};
    return argc > 1 ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
