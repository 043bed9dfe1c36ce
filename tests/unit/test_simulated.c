/* test_simulated.c: the digits' network on every simulated device, NVIDIA's with warps of 32 and
 * AMD's with 64: the first 20 losses are those of the CPU, also in deferred mode. With an argument:
 * without graphs, and with the vendors' libraries for products, for convolutions, or both. Then the
 * model moves from each device to the next one, also to the other vendor's, and predicts the same.
 * ctest: simulated timeout=300
 */
#include <cflux.h>
#include <cflux/backend.h>

#include "own_child.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SIM CFLUX_BUILD_DIR "/tests/sim"
enum { LOSSES = 20, BATCH = 16, PIXELS = 64, DIGITS = 10, DEVICES = 5 };

/* ---- the child ------------------------------------------------------------------------------- */

/* The first batches of the digits: examples/digits.c, without its shuffling. */
static fx_array *pixels, *labels;

static void read_digits(void)
{
    fx_array *table = fx_read_csv(CFLUX_SOURCE_DATA_DIR "/digits.csv.gz");
    const int64_t n = LOSSES * BATCH;
    fx_array *some = fx_slice(table, 1, 0, n);
    pixels = fx_reshape(fx_div(fx_slice(some, 0, 0, PIXELS), 16), 8, 8, 1, n);
    labels = fx_onehotbatch(fx_cast(fx_vec(fx_slice(some, 0, PIXELS, PIXELS + 1)), FX_DTYPE_I64),
                            DIGITS);
    fx_eval(fx_tuple(pixels, labels));
}

static void *train(fx_device *device, double *losses)
{
    fx_seed(1);
    void *model = fx_to(device, fx_chain(fx_conv(FX_DIMS(3, 3), 1, 8, FX_RELU, .pad = FX_SAME),
                                         fx_maxpool(FX_DIMS(2, 2)),
                                         fx_conv(FX_DIMS(3, 3), 8, 16, FX_RELU, .pad = FX_SAME),
                                         fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN, fx_dropout(0.2),
                                         fx_dense(64, DIGITS)));
    void *optimiser = fx_setup(fx_adam(.eta = 0.01), model);
    for (int k = 0; k < LOSSES; k++) {
        FX_STEP;
        const int64_t from = (int64_t)k * BATCH;
        fx_array *x = fx_to(device, fx_slice(pixels, 3, from, from + BATCH)),
                 *y = fx_to(device, fx_slice(labels, 1, from, from + BATCH));
        fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
        fx_update(optimiser, model, fx_gradient(loss, model));
        losses[k] = fx_item(loss);
    }
    return model;
}

static uint64_t launches(fx_device *device)
{
    const uint64_t *n = fx_backend_proc(device->backend->head.name, "launches");
    return n ? *n : 0;
}

/* Sum of all predictions for the first batch. */
static double predict(void *model, fx_device *device)
{
    fx_array *x = fx_to(device, fx_slice(pixels, 3, 0, BATCH));
    return fx_item(fx_sum(fx_mul(fx_call(model, x), fx_to(device, fx_slice(labels, 1, 0, BATCH)))));
}

static double apart(const double *a, const double *b)
{
    double most = 0;
    for (int k = 0; k < LOSSES; k++)
        most = fabs(a[k] - b[k]) > most || isnan(a[k]) ? fabs(a[k] - b[k]) : most;
    return most;
}

static void train_on(fx_device *device, const double *right)
{
    double own[LOSSES] = {0};
    const uint64_t before = launches(device), replays = fx_stats().graphs_replayed;
    FX_SCOPE;
    train(device, own);
    const double d = apart(own, right);
    printf("%s: %s, %s, %s\n", fx_device_name(device), d < 1e-4 ? "agrees" : "differs",
           launches(device) - before > LOSSES * 10 ? "launched" : "not launched",
           fx_stats().graphs_replayed - replays > LOSSES / 2 ? "replayed" : "not replayed");
    if (!(d < 1e-4))
        printf("by %g\n", d);
}

/* x, of mean 0, divided by its length: two sums, the second of which uses the memory of the first
 * while other warps may still read it. */
static fx_array *unit_length(fx_array *x)
{
    fx_array *centred = fx_sub(x, fx_mul(fx_sum(x, .dims = FX_AXES(0)), 1.0 / 2100));
    return fx_div(centred, fx_sqrt(fx_sum(fx_mul(centred, centred), .dims = FX_AXES(0))));
}

/* Kernels whose groups share memory several times: tiles that are transposed, sums along an axis
 * that is longer than a group, and long rows with two reductions, of two kinds and of one. Without
 * any one of their barriers a result differs. The last row is cut into pieces of an odd number of
 * elements, which a kernel must not load as vectors. */
static double group_work(fx_device *device, int k)
{
    FX_SCOPE;
    fx_seed(3);
    const int64_t n = k == 4 ? 20001 : 150 * 70;
    fx_array *x = fx_rand(n), *weights = fx_rand(n);
    x = fx_to(device, k == 0 ? fx_reshape(x, 150, 70) : k == 4 ? x : fx_reshape(x, 2100, 5));
    fx_array *y = k == 0   ? fx_transpose(x)
                  : k == 1 ? fx_cumsum(x, 0)
                  : k == 2 ? unit_length(x)
                           : fx_softmax(fx_mul(x, 9), .dims = FX_AXES(0));
    y = fx_cpu(fx_reshape(y, n));
    return fx_item(fx_sum(fx_mul(y, weights)));
}

static void compare_groups(fx_device *device)
{
    for (int k = 0; k < 5; k++)
        for (int times = 0; times < 3; times++) {
            const double own = group_work(device, k), right = group_work(fx_cpu_device(), k);
            if (!(fabs(own - right) < 1e-4 * fabs(right)))
                printf("%s, group %d: %.9g, not %.9g\n", fx_device_name(device), k, own, right);
        }
}

static int child(void)
{
    fx_device *devices[DEVICES];
    double right[LOSSES] = {0};
    fx_message_set_hook(NULL, NULL);
    for (int k = 0; k < DEVICES; k++) {
        fx_use(k < 3 ? "CUDA" : "AMDGPU");
        devices[k] = fx_device_get(k < 3 ? "CUDA" : "AMDGPU", k < 3 ? k : k - 3);
    }
    read_digits();
    void *model = train(fx_cpu_device(), right);
    printf("the loss %s\n", right[LOSSES - 1] < 0.8 * right[0] ? "falls" : "does not fall");
    for (int k = 0; k < DEVICES; k++)
        train_on(devices[k], right);
    compare_groups(devices[0]);
    compare_groups(devices[3]);
    fx_testmode(model);
    const double expected = predict(model, fx_cpu_device());
    static const int route[] = {0, 2, 4, 1, 3, 0};
    for (int k = 0; k < 6; k++) {
        fx_device *device = devices[route[k]];
        const uint64_t before = launches(device);
        model = fx_to(device, model);
        const double got = predict(model, device);
        if (fabs(got - expected) > 1e-4 * fabs(expected) || launches(device) == before)
            printf("moved to %s: %g, not %g\n", fx_device_name(device), got, expected);
    }
    printf("moved\n");
    return fx_error_print(stdout);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void run(const char *environment, const char *graphs)
{
    char all[2048], heard[8192], expected[1024] = "the loss falls\n";
    static const char *const names[DEVICES] = {"CUDA:0", "CUDA:1", "CUDA:2", "AMDGPU:0",
                                               "AMDGPU:1"};
    snprintf(all, sizeof all,
             "LD_LIBRARY_PATH=" SIM " FX_PLUGIN_PATH=" CFLUX_BUILD_DIR " SIM_CACHE=" CFLUX_SIM_CACHE
             " FX_CACHE=off %s",
             environment);
    const int status = own_child(all, "child", heard, sizeof heard);
    assert_int_equal(status, 0);
    for (int k = 0; k < DEVICES; k++) {
        const size_t n = strlen(expected);
        snprintf(expected + n, sizeof expected - n, "%s: agrees, launched, %s\n", names[k], graphs);
    }
    strcat(expected, "moved\n");
    if (strcmp(heard, expected) != 0)
        fail_msg("with %s: %s", environment, heard);
}

#define NO_PRODUCTS     "FX_CUBLASLT_LIBRARY=off FX_ROCBLAS_LIBRARY=off "
#define NO_CONVOLUTIONS "FX_CUDNN_LIBRARY=off FX_MIOPEN_LIBRARY=off "

static void digits_on_every_device(void **unused)
{
    (void)unused;
    run(NO_PRODUCTS NO_CONVOLUTIONS, "replayed");
}

static void digits_in_deferred_mode(void **unused)
{
    char environment[256];
    const char *seed = getenv("CFLUX_SEED");
    (void)unused;
    snprintf(environment, sizeof environment,
             NO_PRODUCTS NO_CONVOLUTIONS "SIM_DEFER=1 SIM_SEED=%ld",
             seed ? labs(atol(seed)) + 1 : 1);
    printf("%s\n", environment);
    run(environment, "replayed");
}

static void digits_without_graphs(void **unused)
{
    (void)unused;
    run(NO_PRODUCTS NO_CONVOLUTIONS "FX_GPU_GRAPHS=0", "not replayed");
    run("SIM_DEFER=1 FX_GPU_GRAPHS=0", "not replayed");
}

/* The vendors' libraries for products and convolutions, for convolutions, and for products. */
static void digits_with_libraries(void **unused)
{
    (void)unused;
    run("SIM_DEFER=1", "replayed");
    run(NO_PRODUCTS "SIM_DEFER=1", "replayed");
    run(NO_CONVOLUTIONS "SIM_DEFER=1", "replayed");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest quick[] = {cmocka_unit_test(digits_on_every_device),
                                              cmocka_unit_test(digits_in_deferred_mode)};
    static const struct CMUnitTest others[] = {cmocka_unit_test(digits_without_graphs),
                                               cmocka_unit_test(digits_with_libraries)};
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return child();
    return argc > 1 ? cmocka_run_group_tests(others, NULL, NULL)
                    : cmocka_run_group_tests(quick, NULL, NULL);
}
