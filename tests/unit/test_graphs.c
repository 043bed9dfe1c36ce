/* test_graphs.c: plans that are recorded as graphs and replayed, on simulated devices of NVIDIA and
 * AMD (tests/sim/sim.h). A child computes with graphs and prints the bits of its results, which
 * must be those of a child with FX_GPU_GRAPHS=0. The simulated driver computes a graph in a random
 * order that its dependencies allow, and counts its calls. ctest: simulated timeout=300
 */
#include <cflux.h>

#include "own_child.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "evaluate.h"

#define SIM CFLUX_BUILD_DIR "/tests/sim"

/* ---- the child ------------------------------------------------------------------------------- */

static fx_device *device;

/* Prints a number that depends on every bit of an array. */
static void show(const char *what, fx_array *x)
{
    uint64_t sum = 14695981039346656037u;
    fx_array *host = fx_cpu(x);
    const float *values = fx_data(host);
    for (int64_t k = 0; values && k < fx_length(host); k++) {
        uint32_t bits;
        memcpy(&bits, &values[k], sizeof bits);
        sum = (sum ^ bits) * 1099511628211u;
    }
    printf("%s %016llx\n", what, (unsigned long long)sum);
}

/* Batches of five addresses in turn, a handle of the last loss, another learning rate and seed for
 * every training step, and an arena that grows in between. */
static void train(void)
{
    enum { STEPS = 24, BATCHES = 5 };
    fx_array *x[BATCHES], *y[BATCHES], *last = NULL;
    fx_seed(1);
    void *model =
        fx_to(device, fx_chain(fx_dense(6, 12, FX_TANH), fx_dropout(0.3), fx_dense(12, 3)));
    void *optimiser = fx_setup(fx_adam(.eta = 0.01), model);
    for (int k = 0; k < BATCHES; k++) {
        x[k] = fx_to(device, fx_randn(6, 7));
        y[k] = fx_to(device, fx_onehotbatch(fx_mod(fx_range_dtype(FX_DTYPE_I32, k, 1, 7), 3), 3));
        fx_eval(fx_tuple(x[k], y[k]));
    }
    for (int k = 0; k < STEPS; k++) {
        FX_STEP;
        fx_seed((uint64_t)(100 + k));
        fx_adjust(optimiser, 0.01 / (1 + k));
        const int b = k % BATCHES;
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x[b]), y[b]);
        fx_update(optimiser, model, fx_gradient(loss, model));
        fx_eval(loss);
        if (last)
            show("the last loss", last);
        fx_release(last);
        last = fx_retain(loss);
        if (k == 12) {
            fx_array *large = fx_to(device, fx_rand(60, 3));
            show("large", fx_softmax(fx_matmul(large, fx_transpose(large)), .dims = FX_AXES(0)));
        }
    }
    show("the last loss", last);
    fx_release(last);
    show("weights", fx_destructure(model));
}

/* Steps that do not depend on each other, and values that share bytes of the arena. */
static fx_array *branch(fx_array *x, int k)
{
    fx_array *a = fx_matmul(x, fx_transpose(x));
    a = fx_softmax(k % 2 ? a : fx_transpose(a), .dims = FX_AXES(0));
    return fx_sum(fx_matmul(a, x), .dims = FX_AXES(k % 3 ? 1 : 0));
}

static void branches(void)
{
    for (int k = 0; k < 5; k++) {
        FX_SCOPE;
        fx_seed((uint64_t)k);
        fx_array *x = fx_to(device, fx_randn(9, 9)), *sum = fx_zeros(1);
        for (int i = 0; i < 6; i++)
            sum = fx_add(sum, fx_sum(branch(fx_mul(x, 1 + i), i)));
        show("branches", sum);
        /* Each product is cut along its inner axis and has the slices' sums in work space: all
         * products get the same bytes, one after the other. */
        fx_array *a = fx_to(device, fx_randn(16, 1100)), *b = fx_to(device, fx_randn(1100, 8));
        fx_array *products[6];
        for (int i = 0; i < 6; i++)
            products[i] = fx_matmul(fx_slice(a, 0, i, i + 8), b);
        show("products", fx_stack(0, products[0], products[1], products[2], products[3],
                                  products[4], products[5]));
    }
}

/* A graph of random operations, of few kinds, so that few kernels are compiled. */
static uint64_t state;
static int some(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (unsigned)n);
}

static fx_array *operation(fx_array *a, fx_array *b)
{
    switch (some(6)) {
    case 0:
        return fx_add(a, b);
    case 1:
        return fx_mul(fx_tanh(a), b);
    case 2:
        return fx_matmul(a, b);
    case 3:
        return fx_transpose(a);
    case 4:
        return fx_softmax(a, .dims = FX_AXES(0));
    default:
        return fx_sub(a, fx_mean(b, .dims = FX_AXES(1)));
    }
}

/* Every graph is computed in seven training steps, with values that are replaced in place. */
static void random_graphs(void)
{
    enum { GRAPHS = 4, NODES = 14, STEPS = 7 };
    for (int g = 0; g < GRAPHS; g++) {
        fx_seed((uint64_t)g);
        fx_array *kept = fx_retain(fx_to(device, fx_randn(5, 5)));
        for (int k = 0; k < STEPS; k++) {
            FX_SCOPE;
            fx_array *nodes[NODES] = {kept, fx_to(device, fx_randn(5, 5))};
            state = (uint64_t)g + 77;
            for (int i = 2; i < NODES; i++)
                nodes[i] = operation(nodes[some(i)], nodes[some(i)]);
            fx_array *sum = fx_sum(fx_add(nodes[NODES - 1], nodes[NODES - 3]));
            fx_set(&kept, fx_add(fx_mul(nodes[NODES - 2], 0.5), kept));
            show("random", sum);
            show("kept", kept);
        }
        fx_release(kept);
    }
}

static fx_status add_three(const fx_custom_op *op, int n, const fx_custom_operand *in,
                           const fx_custom_operand *out)
{
    (void)op, (void)n;
    for (int i = 0; i < 25; i++)
        ((float *)out->data)[i] = ((const float *)in->data)[i] + 3;
    return FX_OK;
}

static const fx_custom_op three = {
    .fxi_size = sizeof three, .name = "add_three", .forward = add_three};

/* The library runs the custom step between two graphs. */
static void divided(void)
{
    for (int k = 0; k < 4; k++) {
        FX_SCOPE;
        fx_seed((uint64_t)k);
        fx_array *x = fx_to(device, fx_randn(5, 5));
        x = fx_matmul(fx_softmax(fx_matmul(x, x), .dims = FX_AXES(0)), x);
        x = fx_custom(&three, 1, &x, FX_DTYPE_F32, FX_DIMS(5, 5));
        show("divided", fx_sum(fx_matmul(fx_softmax(x, .dims = FX_AXES(0)), x)));
    }
}

static fx_array *deep(fx_array *x)
{
    for (int k = 0; k < 6; k++)
        x = fx_matmul(fx_softmax(x, .dims = FX_AXES(0)), x);
    return x;
}

/* Results of both parts have handles, so their addresses change from run to run: the first part's
 * must not change while the second part copies its own. */
static void results_of_parts(void)
{
    enum { RUNS = 9 };
    fx_array *first[RUNS], *second[RUNS];
    for (int k = 0; k < RUNS; k++) {
        fx_seed((uint64_t)k);
        first[k] = deep(fx_to(device, fx_randn(5, 5)));
        fx_array *x = fx_custom(&three, 1, &first[k], FX_DTYPE_F32, FX_DIMS(5, 5));
        second[k] = fx_matmul(deep(x), first[k]);
        fx_eval(fx_tuple(first[k], second[k]));
    }
    for (int k = 0; k < RUNS; k++) {
        show("first part", first[k]);
        show("second part", second[k]);
    }
}

static void count(const char *what)
{
    static fx_counters before;
    const fx_counters now = fx_stats();
    printf("; %s: %d captured, %d replayed, %d invalidated\n", what,
           (int)(now.graphs_captured - before.graphs_captured),
           (int)(now.graphs_replayed - before.graphs_replayed),
           (int)(now.graphs_invalidated - before.graphs_invalidated));
    before = now;
}

/* Prints how often each function of the driver was called so far. */
static void print_calls(const char *driver)
{
    void *it = dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
    void (*print)(void) = NULL;
    if (it)
        *(void **)&print = dlsym(it, "sim_print_calls");
    printf("; calls ");
    if (print)
        print();
    printf("\n");
}

enum { REPLAYS = 10 };

/* Trains with dropout and Adam, whose numbers change in every training step, first with one batch,
 * then with nine in turn. */
static void count_calls(const char *driver)
{
    enum { BATCHES = 9 };
    fx_array *x[BATCHES];
    fx_seed(1);
    void *model =
        fx_to(device, fx_chain(fx_dense(6, 12, FX_TANH), fx_dropout(0.3), fx_dense(12, 3)));
    void *optimiser = fx_setup(fx_adam(.eta = 0.01), model);
    for (int k = 0; k < BATCHES; k++)
        fx_eval(x[k] = fx_to(device, fx_randn(6, 7)));
    for (int k = 0; k < 2 * REPLAYS + 4 * BATCHES; k++) {
        if (k == REPLAYS || k == 2 * REPLAYS)
            print_calls(driver);
        if (k == 2 * REPLAYS)
            count("one batch");
        FX_STEP;
        fx_adjust(optimiser, 0.01 / (1 + k));
        fx_array *y = fx_call(model, x[k < 2 * REPLAYS ? 0 : k % BATCHES]);
        fx_update(optimiser, model, fx_gradient(fx_mean(fx_square(y)), model));
    }
    count("nine batches");
}

static int child(const char *what)
{
    const bool amd = strncmp(what, "AMDGPU", 6) == 0;
    const char *backend = amd ? "AMDGPU" : "CUDA";
    fx_message_set_hook(NULL, NULL);
    fx_use(backend);
    device = fx_device_get(backend, 0);
    if (strstr(what, "calls")) {
        count_calls(amd ? "libamdhip64.so.7" : "libcuda.so.1");
        return fx_error_print(stdout);
    }
    train();
    count("training");
    if (!strstr(what, "short")) {
        branches();
        count("branches");
        random_graphs();
        count("random");
        divided();
        count("divided");
        results_of_parts();
        count("results of parts");
        fx_reclaim();
        branches();
        count("after reclaiming");
    }
    fxi_reclaim_all();
    const fx_error e = fx_error_take();
    if (e.status)
        printf("; %s %s\n", fx_status_name(e.status), e.message);
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static const char *const vendors[] = {"CUDA", "AMDGPU"};

static char heard[32768];

static void run(const char *environment, const char *what)
{
    char all[2048];
    snprintf(all, sizeof all,
             "LD_LIBRARY_PATH=" SIM " FX_PLUGIN_PATH=" CFLUX_BUILD_DIR " SIM_CACHE=" CFLUX_SIM_CACHE
             " FX_CACHE=off %s",
             environment);
    const int status = own_child(all, what, heard, sizeof heard);
    if (status || strstr(heard, "simulated driver: "))
        fail_msg("%s with %s ends with %d: %s", what, environment, status, heard);
}

/* The lines that do not begin with a semicolon: results. */
static void results(char *out, size_t size)
{
    size_t n = 0;
    *out = '\0';
    for (const char *at = heard; *at;) {
        const size_t length = strcspn(at, "\n");
        if (*at != ';' && n + length + 2 < size)
            n += (size_t)snprintf(out + n, size - n, "%.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
}

static void same_results(const char *right, const char *environment)
{
    static char got[sizeof heard];
    results(got, sizeof got);
    if (strcmp(got, right) != 0)
        fail_msg("with %s: other results: %s", environment, heard);
}

static void expect(const char *what, int captured, int replayed, int invalidated)
{
    int c, r, i;
    char begin[64];
    snprintf(begin, sizeof begin, "; %s: ", what);
    const char *at = strstr(heard, begin);
    if (!at || sscanf(at + strlen(begin), "%d captured, %d replayed, %d inv", &c, &r, &i) != 3 ||
        c < captured || r < replayed || i < invalidated)
        fail_msg("%s: at least %d, %d and %d expected: %s", what, captured, replayed, invalidated,
                 heard);
}

#define ALONE "FX_CUBLASLT_LIBRARY=off FX_ROCBLAS_LIBRARY=off "

static char right[2][sizeof heard];

static void replays_have_the_same_bits(void **unused)
{
    static const char *const ways[] = {ALONE, ALONE "SIM_DEFER=1 SIM_SEED=3"};
    (void)unused;
    for (int v = 0; v < 2; v++) {
        run(ALONE "FX_GPU_GRAPHS=0", vendors[v]);
        results(right[v], sizeof right[v]);
        assert_non_null(strstr(heard, "; training: 0 captured, 0 replayed, 0 invalidated"));
        assert_null(strstr(heard, "FX_STATUS"));
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            run(ways[k], vendors[v]);
            same_results(right[v], ways[k]);
            expect("training", 5, 8, 1);
            expect("branches", 1, 3, 0);
            expect("random", 4, 4, 0);
            expect("divided", 2, 4, 0);
            expect("results of parts", 10, 6, 0);
            expect("after reclaiming", 1, 3, 0);
        }
    }
}

/* Calls of cuBLASLt and rocBLAS in a graph. */
static void libraries_are_recorded(void **unused)
{
    static char own[sizeof heard];
    (void)unused;
    for (int v = 0; v < 2; v++) {
        run("FX_GPU_GRAPHS=0", vendors[v]);
        results(own, sizeof own);
        run("SIM_DEFER=1", vendors[v]);
        same_results(own, "libraries");
        expect("training", 5, 8, 1);
        expect("branches", 1, 3, 0);
    }
}

/* Every call of a capture fails: then the plan is launched. */
static void failures_of_captures(void **unused)
{
    static const char *const calls[][2] = {
        {"cuStreamBeginCapture_v2", "hipStreamBeginCapture"},
        {"cuStreamEndCapture", "hipStreamEndCapture"},
        {"cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"},
        {"cuGraphLaunch", "hipGraphLaunch"},
        {"cuGraphDestroy", "hipGraphDestroy"},
        {"cuGraphExecDestroy", "hipGraphExecDestroy"}};
    char short_right[sizeof right[0]], what[32], environment[160];
    (void)unused;
    for (int v = 0; v < 2; v++) {
        snprintf(what, sizeof what, "%s short", vendors[v]);
        run(ALONE "FX_GPU_GRAPHS=0", what);
        results(short_right, sizeof short_right);
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
            for (int call = 1; call <= 2; call++) {
                /* 2: out of memory. */
                snprintf(environment, sizeof environment, ALONE "SIM_FAIL=%s@%d=2", calls[k][v],
                         call);
                run(environment, what);
                same_results(short_right, environment);
                assert_null(strstr(heard, "FX_STATUS"));
            }
        snprintf(environment, sizeof environment, ALONE "SIM_FAIL=%s@1=999", calls[3][v]);
        run(environment, what);
        assert_non_null(strstr(heard, v == 0 ? "cuGraphLaunch failed" : "hipGraphLaunch failed"));
    }
}

static long calls_in(const char *line, const char *function)
{
    char sought[80];
    long n;
    snprintf(sought, sizeof sought, " %s ", function);
    const char *at = strstr(line, sought);
    return at && sscanf(at + strlen(sought), "%ld", &n) == 1 ? n : 0;
}

/* A run that is replayed writes its literals and random streams with one call, and launches with
 * one. */
static void a_replay_is_one_write_and_one_launch(void **unused)
{
    static const char *const known[][3] = {
        {"cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuCtxSetCurrent"},
        {"hipGraphLaunch", "hipMemcpyHtoDAsync", "hipSetDevice"}};
    char what[32], function[64];
    long n;
    int used;
    (void)unused;
    for (int v = 0; v < 2; v++) {
        snprintf(what, sizeof what, "%s calls", vendors[v]);
        run(ALONE, what);
        char *before = strstr(heard, "; calls"), *after = strstr(before + 1, "; calls");
        assert_non_null(after);
        after[-1] = '\0';
        assert_int_equal(calls_in(after, known[v][0]) - calls_in(before, known[v][0]), REPLAYS);
        assert_int_equal(calls_in(after, known[v][1]) - calls_in(before, known[v][1]), REPLAYS);
        for (const char *at = after + strlen("; calls ");
             sscanf(at, "%63[a-zA-Z0-9_] %ld %n", function, &n, &used) == 2; at += used)
            if (strcmp(function, known[v][0]) != 0 && strcmp(function, known[v][1]) != 0 &&
                strcmp(function, known[v][2]) != 0 && n != calls_in(before, function))
                fail_msg("%s is called in a replay: %s; then %s", function, before, after);
        /* Four recordings for four sets of addresses, and one whose batch is copied. */
        assert_non_null(strstr(after, "; one batch: 1 captured, 18 replayed, 0 invalidated"));
        assert_non_null(strstr(after, "; nine batches: 4 captured, "));
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_have_the_same_bits),
        cmocka_unit_test(a_replay_is_one_write_and_one_launch),
        cmocka_unit_test(libraries_are_recorded), cmocka_unit_test(failures_of_captures)};
    return argc > 1 ? child(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
