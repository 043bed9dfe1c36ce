/* test_simulated_failures.c: every function of the drivers and compilers of NVIDIA and AMD fails at
 * one of its calls, once, or loses the device there, while a network is trained on a simulated
 * device (tests/sim/sim.h). Then memory runs out where the vendors' libraries and the recording of
 * graphs need it. Whatever fails: no crash, no leak, a message that names the device, and another
 * device computes. The address sanitizer finds leaks of the host. ctest: simulated timeout=300
 *
 * A backend is opened once in a process, so every point is a child of its own. Without an argument
 * every tenth point runs, from CFLUX_SEED on, which is printed; with "all" every point.
 */
#include <cflux.h>

#include "own_child.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "evaluate.h"

#define SIM       CFLUX_BUILD_DIR "/tests/sim"
#define LIBRARIES " by libraries"

typedef struct vendor {
    const char *backend, *driver, *compiler;
    int out_of_memory;
} vendor;
static const vendor vendors[] = {{"CUDA", "libcuda.so.1", "libnvrtc.so.13", 2},
                                 {"AMDGPU", "libamdhip64.so.7", "libhiprtc.so.7", 2}};

/* ---- the child ------------------------------------------------------------------------------- */

/* Finds a function of a simulated library that exists for tests. */
static void call_simulated(const char *library, const char *name)
{
    void *it = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    void (*function)(void) = NULL;
    if (it)
        *(void **)&function = dlsym(it, name);
    if (function)
        function();
}

static void clear_script(const char *library)
{
    void *it = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    void (*set)(const char *) = NULL;
    if (it)
        *(void **)&set = dlsym(it, "sim_set_script");
    if (set)
        set("");
}

/* Two training steps, a write in pieces, and a copy to another device and back. */
static double train(fx_device *device, fx_device *neighbour)
{
    FX_SCOPE;
    double sum = 0;
    fx_seed(7);
    void *model =
        fx_to(device, fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU), fx_maxpool(FX_DIMS(2, 2)),
                               FX_FLATTEN, fx_dropout(0.25), fx_dense(8, 3)));
    void *optimiser = fx_setup(fx_adam(.eta = 0.01), model);
    fx_array *x = fx_to(device, fx_rand(6, 6, 1, 6));
    fx_array *y =
        fx_to(device, fx_onehotbatch(fx_mod(fx_range_dtype(FX_DTYPE_I32, 0, 1, 6), 3), 3));
    for (int k = 0; k < 2; k++) {
        FX_STEP;
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        fx_update(optimiser, model, fx_gradient(loss, model));
        sum += fx_item(loss);
    }
    fx_array *large = fx_to(device, fx_full(0.5, 80000));
    fx_eval(large);
    fx_array *there = fx_to(neighbour, fx_call(model, x));
    return sum + fx_item(fx_sum(fx_cpu(there))) + fx_item(fx_mean(large));
}

/* Four training steps with products and a convolution by the vendor's libraries; a graph of them is
 * recorded in the second one. */
static double train_by_libraries(fx_device *device, fx_device *neighbour)
{
    FX_SCOPE;
    double sum = 0;
    (void)neighbour;
    fx_seed(7);
    void *model = fx_to(device, fx_chain(fx_conv(FX_DIMS(3, 3), 3, 4, FX_RELU), FX_FLATTEN,
                                         fx_dense(400, 30), fx_dense(30, 3)));
    void *optimiser = fx_setup(fx_descent(0.01), model);
    fx_array *x = fx_to(device, fx_rand(12, 12, 3, 8));
    for (int k = 0; k < 4; k++) {
        FX_STEP;
        fx_array *loss = fx_mean(fx_square(fx_call(model, x)));
        fx_update(optimiser, model, fx_gradient(loss, model));
        sum += fx_item(loss);
    }
    return sum;
}

static double (*program)(fx_device *device, fx_device *neighbour) = train;
static double right;

/* "; first runs", "; first FX_STATUS_DEVICE exp: CUDA:0 …", or the number that is wrong. */
static void report(const char *what, fx_device *device, fx_device *neighbour)
{
    const double got = program(device, neighbour);
    const fx_error e = fx_error_take();
    if (e.status)
        printf("; %s fails: %s %s", what, fx_status_name(e.status), e.message);
    else if (fabs(got - right) < 1e-4 * (1 + fabs(right)))
        printf("; %s runs", what);
    else
        printf("; %s is wrong: %.9g, not %.9g", what, got, right);
}

static void hear(int level, const char *text, void *user)
{
    (void)user;
    printf("; message %d: %s", level, text);
}

static int child(const char *name)
{
    const vendor *v = &vendors[strncmp(name, "AMDGPU", 6) == 0];
    if (strstr(name, LIBRARIES))
        program = train_by_libraries;
    fx_message_set_hook(hear, NULL);
    right = program(fx_cpu_device(), fx_cpu_device());
    fx_use(v->backend);
    if (fx_device_count(v->backend) == 0) {
        printf("; none: %s", fx_why_not(v->backend));
        return 0;
    }
    fx_device *first = fx_device_get(v->backend, 0), *last = fx_device_get(v->backend, 1);
    const fx_error e = fx_error_take();
    if (e.status)
        printf("; few: %s", e.message);
    report("first", first, e.status ? first : last);
    printf("; calls ");
    call_simulated(v->driver, "sim_print_calls");
    call_simulated(v->compiler, "sim_print_calls");
    clear_script(v->driver);
    clear_script(v->compiler);
    if (!e.status)
        report("other", last, last);
    report("again", first, first);
    report("again", first, first);
    fxi_reclaim_all();
    fx_reclaim();
    printf("; ");
    call_simulated(v->driver, "sim_print_live");
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static bool all;
static long seed;

static char heard[16384];

typedef struct healthy {
    int blocks, pinned, events;
} healthy;

static void run_child(const char *environment, const char *name)
{
    char text[2048];
    snprintf(text, sizeof text,
             "LD_LIBRARY_PATH=" SIM " FX_PLUGIN_PATH=" CFLUX_BUILD_DIR " SIM_CACHE=" CFLUX_SIM_CACHE
             " FX_CACHE=off FX_GPU_MEASURE=0 %s",
             environment);
    const int status = own_child(text, name, heard, sizeof heard);
    if (status)
        fail_msg("with %s the child ends with %d after: %s", environment, status, heard);
    if (strstr(heard, "simulated driver: ") || strstr(heard, "is wrong"))
        fail_msg("with %s: %s", environment, heard);
}

static void run(const char *environment, const vendor *v)
{
    char text[512];
    snprintf(text, sizeof text,
             "FX_CUBLASLT_LIBRARY=off FX_CUDNN_LIBRARY=off FX_ROCBLAS_LIBRARY=off "
             "FX_MIOPEN_LIBRARY=off %s",
             environment);
    run_child(text, v->backend);
}

static healthy live(void)
{
    healthy h = {0};
    const char *at = strstr(heard, "; live ");
    if (!at || sscanf(at, "; live %d %d %d", &h.blocks, &h.pinned, &h.events) != 3)
        fail_msg("%s", heard);
    return h;
}

static bool says(const char *text)
{
    return strstr(heard, text) != NULL;
}

/* The error of the first program, or "". */
static const char *first_error(void)
{
    static char text[1024];
    const char *at = strstr(heard, "; first fails: ");
    const char *end = at ? strstr(at, "; calls") : NULL;
    snprintf(text, sizeof text, "%.*s", end ? (int)(end - at) : 0, at ? at : "");
    return text;
}

/* Does the first program's error name a device? A copy between two may fail in either. */
static bool names(const vendor *v, int k)
{
    char label[32];
    snprintf(label, sizeof label, "%s:%d (", v->backend, k);
    return strstr(first_error(), label) != NULL;
}

/* Runs one point and checks the child's output. Returns true if the program reported an error. */
static bool judge(const char *point, const vendor *v, const healthy *usual, bool lost)
{
    if (says("; none: "))
        return true; /* the reason is checked by unit/gpurt */
    /* The failure was found when the device was opened: later calls report it, and other devices
     * compile. */
    if (says(") cannot compile kernels: ") && says(" runs;"))
        return true;
    const bool failed = !says("; first runs"), neighbour = failed && names(v, 1);
    if (failed && !neighbour && !names(v, 0))
        fail_msg("with %s the error does not name the device: %s", point, heard);
    if (says(neighbour ? "; again fails" : "; other fails"))
        fail_msg("with %s the other device does not go on: %s", point, heard);
    /* Every later call for a lost device fails. */
    if ((lost && failed) !=
        says(neighbour ? "; other fails: FX_STATUS_DEVICE" : "; again fails: FX_STATUS_DEVICE"))
        fail_msg("with %s: %s", point, heard);
    /* Memory that the driver itself refuses to free remains allocated. */
    const int stays = strstr(point, "Destroy") || strstr(point, "Free");
    const healthy now = live();
    if (!lost && (now.blocks > usual->blocks + stays || now.pinned > usual->pinned + stays ||
                  now.events > usual->events + stays))
        fail_msg("with %s there is a leak (%d %d %d before): %s", point, usual->blocks,
                 usual->pinned, usual->events, heard);
    return failed;
}

typedef struct tally {
    int points, reported, functions;
    long next;
} tally;

static void run_point(const vendor *v, const healthy *usual, const char *function, long call,
                      bool lost, tally *t)
{
    const bool allocates = strstr(function, "Alloc") || strstr(function, "Malloc");
    char text[160];
    if (t->next++ % (all ? 1 : 10) != seed % (all ? 1 : 10))
        return;
    /* The driver refuses to free its own host memory. */
    const bool frees = strstr(function, "Destroy") || strstr(function, "Free");
    snprintf(text, sizeof text, "%s SIM_FAIL=%s@%ld=%d%s",
             frees ? "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0" : "", function, call,
             lost        ? 719
             : allocates ? v->out_of_memory
                         : 999,
             lost ? "!" : "");
    run(text, v);
    t->points++;
    t->reported += judge(text, v, usual, lost);
}

/* The first calls, some later ones and the last one of a function. */
static void run_function(const vendor *v, const healthy *usual, const char *function, long calls,
                         tally *t)
{
    t->functions++;
    for (long a = 1, b = 2; a <= calls; b += a, a = b - a) {
        run_point(v, usual, function, a, false, t);
        /* No device is lost by the compiler's functions. */
        if (!strstr(function, "rtc"))
            run_point(v, usual, function, a, true, t);
    }
    run_point(v, usual, function, calls, false, t);
}

static void run_vendor(const vendor *v)
{
    static char calls[sizeof heard];
    char function[64];
    long n;
    int used;
    tally t = {0};
    run("", v);
    assert_true(says("; first runs") && says("; other runs") && says("; again runs"));
    const healthy usual = live();
    snprintf(calls, sizeof calls, "%s", strstr(heard, "; calls ") + 8);
    for (const char *at = calls; sscanf(at, "%63[a-zA-Z0-9_] %ld %n", function, &n, &used) == 2;
         at += used)
        run_function(v, &usual, function, n, &t);
    printf("%s, seed %ld: %d functions, %d of %ld points, %d reported\n", v->backend, seed,
           t.functions, t.points, t.next, t.reported);
    assert_true(t.functions >= 30 && t.points >= (all ? 150 : 15) && t.reported >= t.points / 3);
}

static void every_function_fails(void **unused)
{
    (void)unused;
    for (int k = 0; k < 2; k++)
        run_vendor(&vendors[k]);
}

/* ---- no memory, with libraries --------------------------------------------------------------- */

/* Errors of the libraries themselves; 3, 4004, 5 and 4 are their numbers for a failed allocation.
 */
static const char *const no_memory[][2] = {
    {"cublasLtMatmul@1=3", "rocblas_gemm_strided_batched_ex@1=5"},
    {"cublasLtMatmul@3=3", "rocblas_gemm_strided_batched_ex@3=5"},
    {"cudnnConvolutionForward@1=4004", "miopenConvolutionForwardImmediate@1=4"},
    {"cudnnConvolutionBackwardFilter@1=4004", "miopenConvolutionBackwardWeightsImmediate@1=4"},
    {"cuStreamBeginCapture_v2@1=2", "hipStreamBeginCapture@1=2"},
    {"cuStreamEndCapture@1=2", "hipStreamEndCapture@1=2"},
    {"cuGraphInstantiateWithFlags@1=2", "hipGraphInstantiateWithFlags@1=2"},
    {"cuGraphLaunch@1=2", "hipGraphLaunch@1=2"}};

static void run_without_memory(const vendor *v, const healthy *usual, const char *script, tally *t)
{
    char text[160], name[64];
    if (t->next++ % (all ? 1 : 10) != seed % (all ? 1 : 10))
        return;
    snprintf(text, sizeof text, "SIM_FAIL=%s", script);
    snprintf(name, sizeof name, "%s%s", v->backend, LIBRARIES);
    run_child(text, name);
    t->points++;
    const bool reported = judge(text, v, usual, false);
    t->reported += reported;
    if (reported && strstr(script, "lloc") && !strstr(first_error(), "FX_STATUS_MEMORY") &&
        !says(") cannot compile kernels: ") && !says("; none: "))
        fail_msg("with %s: %s", text, heard);
}

/* Every allocation fails, also when the library repeats it after freeing its caches: those of the
 * arena, which has the libraries' work space, among them. */
static void allocations_fail(const vendor *v, const healthy *usual, const char *function, tally *t)
{
    char script[160], sought[64];
    long calls = 0;
    snprintf(sought, sizeof sought, " %s ", function);
    const char *at = strstr(heard, sought);
    assert_true(at && sscanf(at + strlen(sought), "%ld", &calls) == 1 && calls >= 4);
    for (long k = 1; k <= calls; k++) {
        snprintf(script, sizeof script, "%s@%ld=2,%s@%ld=2", function, k, function, k);
        run_without_memory(v, usual, script, t);
    }
}

static void libraries_without_memory(void **unused)
{
    static const char *const allocate[] = {"cuMemAlloc_v2", "hipMalloc"};
    tally t = {0};
    (void)unused;
    for (int v = 0; v < 2; v++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", vendors[v].backend, LIBRARIES);
        run_child("", name);
        assert_true(says("; first runs") && says("; other runs") && says("; again runs"));
        const healthy usual = live();
        allocations_fail(&vendors[v], &usual, allocate[v], &t);
        for (size_t k = 0; k < sizeof no_memory / sizeof *no_memory; k++)
            run_without_memory(&vendors[v], &usual, no_memory[k][v], &t);
    }
    printf("no memory with libraries, seed %ld: %d of %ld points, %d reported\n", seed, t.points,
           t.next, t.reported);
    assert_true(t.next >= 24 && t.points >= t.next / 10);
    assert_true(!all || t.reported >= 8);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(every_function_fails),
                                              cmocka_unit_test(libraries_without_memory)};
    const char *text = getenv("CFLUX_SEED");
    seed = text ? labs(atol(text)) : 0;
    all = argc > 1 && strcmp(argv[1], "all") == 0;
    return argc > 1 && !all ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
