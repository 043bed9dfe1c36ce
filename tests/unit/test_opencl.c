/* test_opencl.c: the OpenCL backend on a driver that computes, PoCL, with three devices: training
 * with the same losses as on the CPU, copies between devices, many buffers, several threads, and a
 * second start. ctest: timeout=300 native
 *
 * Where no OpenCL is installed this prints that it is skipped; the conformance suite on opencl:0,
 * which is part of the same run, then fails.
 */
#include <cflux.h>

#include "opencl.h"
#include "temp_file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "same_bits.h"

enum { DEVICES = 3 };
static fx_device *d[DEVICES];

static fxi_gpu_counters *counters(void)
{
    return fx_backend_proc("OpenCL", "counters");
}

static int setup(void **state)
{
    (void)state;
    if (fx_use("OpenCL") != FX_OK) {
        printf("skipped: OpenCL: %s\n", fx_why_not("OpenCL"));
        exit(0);
    }
    assert_int_equal(fx_device_count("OpenCL"), DEVICES);
    for (int k = 0; k < DEVICES; k++)
        d[k] = fx_device_get("OpenCL", k);
    return 0;
}

/* ---- launches -------------------------------------------------------------------------------- */
/* An optimiser over 16 arrays: segments of one step, of which a launch does several. */
static void an_update_is_few_launches(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { LAYERS = 8 };
    fx_chain_layer *model =
        fx_to(d[0], fx_chain(fx_dense(9, 8), fx_dense(8, 7), fx_dense(7, 6), fx_dense(6, 5),
                             fx_dense(5, 4), fx_dense(4, 3), fx_dense(3, 2), fx_dense(2, 1)));
    void *opt = fx_setup(fx_adam(.eta = 0.1), model);
    fx_array *x = fx_to(d[0], fx_ones(9, 3));
    void *g = fx_gradient(fx_sum(fx_call(model, x)), model);
    assert_int_equal(fx_eval(model), FX_OK);
    assert_int_equal(fx_eval(g), FX_OK);
    assert_int_equal(fx_synchronize(d[0]), FX_OK);
    const uint64_t before = counters()->launches;
    assert_int_equal(fx_update(opt, model, g), FX_OK);
    const uint64_t launches = counters()->launches - before;
    print_message("%d launches update %d arrays\n", (int)launches, 2 * LAYERS);
    assert_in_range(launches, 1, LAYERS - 2); /* includes the launches for the powers of beta */
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* Work space of kernels counts: a plan that does not fit fails before its first step. */
static void work_space_has_limits(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { MANY = 1 << 20 };
    fx_array *x = fx_to(d[0], fx_full(1, MANY));
    assert_int_equal(fx_eval(x), FX_OK);
    assert_int_equal(fx_synchronize(d[0]), FX_OK);
    fx_reclaim();
    const int64_t live = fx_memory_status(d[0]).live;
    fx_array *y = fx_sum(x);
    fx_set_memory_limit(d[0], live + 8);
    const uint64_t launches = counters()->launches;
    assert_int_equal(fx_eval(y), FX_STATUS_MEMORY);
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "of them for the kernels of reduce) and 4 of results"));
    assert_int_equal(counters()->launches, launches);
    assert_int_equal(fx_memory_status(d[0]).live, live);
    fx_set_memory_limit(d[0], 0);
    assert_true(fx_item(y) == MANY);
    assert_true(fx_item(fx_sum(x)) == MANY);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- training -------------------------------------------------------------------------------- */
enum { BATCH = 64, STEPS = 20, EPOCHS = 6, PIXELS = 64, DIGITS = 10 };

static fx_array *table;

static fx_array *images(int64_t from, int64_t to)
{
    return fx_div(fx_slice(fx_slice(table, 1, from, to), 0, 0, PIXELS), 16);
}

static fx_array *labels(int64_t from, int64_t to)
{
    fx_array *digit = fx_vec(fx_slice(fx_slice(table, 1, from, to), 0, PIXELS, PIXELS + 1));
    return fx_onehotbatch(fx_cast(digit, FX_DTYPE_I64), DIGITS);
}

typedef struct result {
    double loss[STEPS];
    double accuracy; /* percent, of the fifth that is not trained on */
} result;

/* The same network, from the same numbers, on a device. */
static result train(fx_device *device)
{
    result r;
    fx_seed(5);
    const int64_t total = fx_size(table, 1), known = total * 4 / 5;
    fx_chain_layer *model =
        fx_keep(fx_to(device, fx_chain(fx_dense(PIXELS, 48, FX_TANH), fx_dense(48, 32, FX_RELU),
                                       fx_dense(32, DIGITS))));
    void *opt = fx_keep(fx_setup(fx_adam(.eta = 0.004), model));
    int step = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        for (int64_t at = 0; at + BATCH <= known; at += BATCH, step++) {
            FX_SCOPE;
            fx_array *x = fx_to(device, images(at, at + BATCH)),
                     *y = fx_to(device, labels(at, at + BATCH));
            fx_array *loss = fx_logitcrossentropy(fx_call(model, x), y);
            assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
            if (step < STEPS)
                r.loss[step] = fx_item(loss);
        }
    fx_array *guess = fx_onecold(fx_call(model, fx_to(device, images(known, total)))),
             *right = fx_onecold(fx_to(device, labels(known, total)));
    r.accuracy = 100 * fx_item(fx_mean(fx_eq(guess, right)));
    assert_int_equal(fx_error_status(), FX_OK);
    return r;
}

static void digits_are_learnt_as_on_the_cpu(void **state)
{
    (void)state;
    FX_SCOPE;
    table = fx_keep(fx_read_csv(CFLUX_SOURCE_DATA_DIR "/digits.csv.gz"));
    const uint64_t before = counters()->launches;
    const result here = train(fx_cpu_device()), there = train(d[0]);
    assert_true(counters()->launches - before > 500);
    for (int k = 0; k < STEPS; k++)
        if (fabs(here.loss[k] - there.loss[k]) > 1e-4 * fabs(here.loss[k]))
            fail_msg("loss %d is %.7g on OpenCL and %.7g on the CPU", k, there.loss[k],
                     here.loss[k]);
    assert_true(here.loss[STEPS - 1] < 0.8 * here.loss[0]);
    assert_true(fabs(here.accuracy - there.accuracy) <= 0.5);
    assert_true(here.accuracy > 85);
    print_message("accuracy %.2f %% on the CPU, %.2f %% on OpenCL\n", here.accuracy,
                  there.accuracy);
}

/* PoCL divides correctly rounded when its compiler is told so. */
static void quotients_are_those_of_the_cpu(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_randn(1000, 50), *y = fx_randn(1000, 50);
    assert_int_equal(fx_eval(x), FX_OK);
    assert_int_equal(fx_eval(y), FX_OK);
    fx_array *there = fx_to(d[0], x), *by = fx_to(d[0], y);
    same_bits(fx_div(there, by), fx_div(x, y));
    same_bits(fx_fld(there, by), fx_fld(x, y));
    same_bits(fx_sqrt(fx_abs(there)), fx_sqrt(fx_abs(x)));
}

/* ---- devices --------------------------------------------------------------------------------- */
static void arrays_move_between_devices(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_randn(300, 70);
    const uint64_t direct = counters()->direct;
    fx_array *y = fx_to(d[2], fx_to(d[1], fx_mul(fx_to(d[0], x), 2)));
    same_bits(y, fx_mul(x, 2));
    assert_true(counters()->direct == direct + 2);
    for (int k = 0; k < DEVICES; k++)
        for (int l = 0; l < DEVICES; l++)
            same_bits(fx_to(d[l], fx_to(d[k], x)), x);
    /* arrays that are not dense, and single elements */
    same_bits(fx_to(d[1], fx_slice(fx_to(d[0], x), 0, 10, 20)), fx_slice(x, 0, 10, 20));
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A device must not compute before its inputs have arrived, nor overwrite data that is still to be
 * copied. */
static void copies_keep_the_order(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(d[0], fx_ones(1 << 16));
    for (int k = 0; k < 50; k++) {
        fx_array *y = fx_to(d[1 + k % 2], x);
        x = fx_to(d[0], fx_add(y, 1));
        assert_int_equal(fx_eval(x), FX_OK);
    }
    assert_true(fx_item(fx_sum(fx_eq(x, 51))) == 1 << 16);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* More than one block of the table of addresses; freed ones are used again. */
static void many_buffers(void **state)
{
    (void)state;
    enum { N = 5000 };
    static fx_array *kept[N];
    for (int round = 0; round < 2; round++) {
        FX_SCOPE;
        for (int k = 0; k < N; k++)
            kept[k] = fxi_retain(fx_to(d[k % DEVICES], fx_vector(k, 2 * k, k + 0.5)));
        for (int k = 0; k < N; k += 97) {
            float back[3];
            assert_int_equal(fx_read_into(kept[k], back, sizeof back), FX_OK);
            assert_true(back[0] == (float)k && back[1] == 2 * (float)k &&
                        back[2] == (float)k + 0.5f);
        }
        for (int k = 0; k < N; k++)
            fx_release(kept[k]);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Long writes wait; short ones go through a ring, which is filled several times here. */
static void writes_of_all_lengths(void **state)
{
    (void)state;
    FX_SCOPE;
    static const int64_t lengths[] = {1, 15, 16, 17, 1000, 65535, 65536, 65537, 300000};
    enum { LENGTHS = sizeof lengths / sizeof *lengths, ROUNDS = 12 };
    fx_array *here[ROUNDS][LENGTHS], *there[ROUNDS][LENGTHS];
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < LENGTHS; k++) {
            here[r][k] = fx_rand(lengths[k]);
            fx_eval(here[r][k]);
            there[r][k] = fx_to(d[0], here[r][k]);
        }
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < LENGTHS; k++)
            same_bits(here[r][k], there[r][k]);
}

/* ---- threads --------------------------------------------------------------------------------- */
static void *work(void *seed)
{
    FX_SCOPE;
    const double number = *(double *)seed;
    fx_array *x = fx_to(d[0], fx_full(number, 50, 40));
    bool ok = true;
    for (int k = 1; k <= 40 && ok; k++) {
        fx_array *y = fx_sum(fx_mul(fx_add(x, k), fx_sub(x, k)));
        ok = fabs(fx_item(y) - 2000 * (number * number - k * k)) < 1;
    }
    return ok && fx_error_status() == FX_OK ? seed : NULL;
}

static void threads_share_a_device(void **state)
{
    (void)state;
    double numbers[] = {1, 2, 3, 4};
    pthread_t threads[4];
    for (int k = 0; k < 4; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, work, &numbers[k]), 0);
    for (int k = 0; k < 4; k++) {
        void *same = NULL;
        pthread_join(threads[k], &same);
        assert_ptr_equal(same, &numbers[k]);
    }
}

/* ---- a second start -------------------------------------------------------------------------- */
static const char *self;

/* Runs as a separate process; the exit status contains its counters. */
static int start(void)
{
    fx_use("OpenCL");
    fx_device *device = fx_device_get("OpenCL", 0);
    fx_array *x = fx_to(device, fx_ones(30, 20));
    const double y = fx_item(fx_sum(fx_tanh(fx_matmul(fx_transpose(x), x))));
    const fxi_gpu_counters *n = counters();
    return fabs(y - 400) < 1e-3 && n->launches > 0
               ? (int)(n->compiled * 10 + n->loaded + (n->packed ? 100 + n->packed : 0))
               : 255;
}

static int started(void)
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        execl(self, self, "--start", (char *)NULL);
        _exit(254);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_second_start_compiles_nothing(void **state)
{
    (void)state;
    char folder[512];
    snprintf(folder, sizeof folder, "%s.d", temp_text("start", "x"));
    setenv("XDG_CACHE_HOME", folder, 1);
    const int first = started(), second = started();
    assert_true(first >= 10 && first < 100 && first % 10 == 0);
    assert_int_equal(second, first / 10);
    /* With the kernels in a pack, no cache is needed. */
    const char *pack = temp_text("opencl.pack", "");
    assert_int_equal(fx_kernels_pack(pack), FX_OK);
    setenv("FX_CACHE", "off", 1);
    setenv("CFLUX_KERNELS", pack, 1);
    assert_int_equal(started(), 100 + first / 10);
    unsetenv("CFLUX_KERNELS");
    unsetenv("FX_CACHE");
}

int main(int argc, char **argv)
{
    self = argv[0];
    setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR, 1);
    setenv("FX_OPENCL_DEVICES", "portable", 1); /* PoCL's full name */
    setenv("POCL_DEVICES", "pthread pthread pthread", 1);
    if (argc > 1 && strcmp(argv[1], "--start") == 0)
        return start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_is_few_launches),
        cmocka_unit_test(work_space_has_limits),
        cmocka_unit_test(digits_are_learnt_as_on_the_cpu),
        cmocka_unit_test(quotients_are_those_of_the_cpu),
        cmocka_unit_test(arrays_move_between_devices),
        cmocka_unit_test(copies_keep_the_order),
        cmocka_unit_test(many_buffers),
        cmocka_unit_test(writes_of_all_lengths),
        cmocka_unit_test(threads_share_a_device),
        cmocka_unit_test(a_second_start_compiles_nothing),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
