/* test_metal_products.c: matrix products by MPS on a simulated Metal (tests/sim/sim_mps.c), and
 * without it: which products it computes, that the faster way is used, and failures. The expected
 * numbers are those of the CPU. ctest: simulated timeout=300
 */
#include <cflux.h>

#include "gpu_device.h"
#include "own_child.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FAKE CFLUX_BUILD_DIR "/tests/sim/libmetal-simulated.so"

/* ---- what a child does: prints what it sees -------------------------------------------------- */

static const fxi_gpu_counters *counters(void)
{
    return fx_backend_proc("Metal", "counters");
}

static fx_device *gpu(void)
{
    return fx_device_get("Metal", 0);
}

static void say_error(void)
{
    const fx_error e = fx_error_take();
    printf("%s\n", e.status ? e.message : "no error");
}

/* The largest difference of two arrays, as a part of the largest element; infinity if one cannot be
 * computed. */
static double apart(fx_array *x, fx_array *y)
{
    fx_array *difference = fx_maximum(fx_abs(fx_sub(fx_cpu(x), fx_cpu(y)))),
             *largest = fx_maximum(fx_abs(fx_cpu(y)));
    const double d = fx_item(difference) / fx_item(largest);
    return fx_error_status() ? INFINITY : d;
}

typedef struct form {
    const char *name;
    int64_t m, n, k, a_batches, b_batches;
    bool transpose_a, transpose_b;
    int64_t skip; /* the operands begin this many columns, or rows, inside larger arrays */
    int calls;    /* of MPS; 0: cflux's kernel computes it */
} form;
static const form forms[] = {{"plain", 203, 210, 199, 1, 1, false, false, 0, 1},
                             {"first transposed", 203, 210, 199, 1, 1, true, false, 0, 1},
                             {"second transposed", 203, 210, 199, 1, 1, false, true, 0, 1},
                             {"both transposed", 203, 210, 199, 1, 1, true, true, 0, 1},
                             {"one column", 2897, 1, 2897, 1, 1, false, false, 0, 1},
                             {"one row", 1, 2897, 2897, 1, 1, false, false, 0, 1},
                             {"batches", 203, 210, 199, 2, 2, false, true, 0, 2},
                             {"one first factor", 203, 70, 199, 1, 3, false, false, 0, 1},
                             {"one second factor", 203, 210, 199, 2, 1, false, false, 0, 2},
                             {"columns inside an array", 203, 210, 199, 1, 1, false, false, 3, 1},
                             {"rows inside an array", 203, 210, 199, 1, 1, true, false, 3, 0},
                             {"small", 40, 30, 20, 1, 1, false, false, 0, 0}};

/* A factor, the used part of an array. */
static fx_array *factor(fx_device *device, const form *f, int64_t rows, int64_t columns,
                        int64_t batches, bool transposed)
{
    const int64_t skip = f->skip;
    fx_array *x = transposed ? fx_randn(columns + skip, rows, batches)
                             : fx_randn(rows, columns + skip, batches);
    x = fx_to(device, x);
    if (skip)
        x = transposed ? fx_slice(x, 0, skip, columns + skip)
                       : fx_slice(x, 1, skip, columns + skip);
    return transposed ? fx_permute(x, 1, 0, 2) : x;
}

static fx_array *product(fx_device *device, const form *f)
{
    fx_seed(5);
    fx_array *a = factor(device, f, f->m, f->k, f->a_batches, f->transpose_a);
    fx_array *b = factor(device, f, f->k, f->n, f->b_batches, f->transpose_b);
    return fx_batched_mul(a, b);
}

static int multiply_all(void)
{
    int wrong = 0, taken = 0;
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        FX_STEP;
        const form *f = &forms[k];
        const uint64_t before = counters()->calls;
        const double d = apart(product(gpu(), f), product(fx_cpu_device(), f));
        const int calls = (int)(counters()->calls - before);
        if (!(d < 1e-5))
            printf("%s is %g apart; ", f->name, d);
        wrong += !(d < 1e-5) || calls != f->calls;
        taken += calls > 0;
        if (calls != f->calls)
            printf("%s: %d calls; ", f->name, calls);
    }
    printf("%zu forms, %d wrong, %d by MPS. ", sizeof forms / sizeof *forms, wrong, taken);
    say_error();
    return 0;
}

/* A product with a bias and an activation, twice, and how often MPS was called. */
static int ends(void)
{
    const form f = {.m = 203, .n = 210, .k = 199, .a_batches = 1, .b_batches = 1};
    fx_array *near = fx_relu(fx_add(product(fx_cpu_device(), &f), 0.5));
    for (int k = 0; k < 2; k++) {
        FX_STEP;
        fx_array *x = product(gpu(), &f);
        const uint64_t calls = counters()->calls;
        printf("%s, ", apart(fx_relu(fx_add(x, 0.5)), near) < 1e-5 ? "near" : "far");
        printf("%d calls; ", (int)(counters()->calls - calls));
    }
    say_error();
    return 0;
}

static int part(void)
{
    printf("%d \"%s\"; %s\n", fx_functional("Metal:MPS"), fx_why_not("Metal:MPS"),
           fx_why_not("Metal:cuDNN"));
    return 0;
}

/* The objects of Metal that 20 products leave behind. */
static int leave(void)
{
    const form f = {.m = 203, .n = 210, .k = 199, .a_batches = 1, .b_batches = 1};
    long early = 0, (*living)(void);
    void *library = dlopen(FAKE, RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&living = dlsym(library, "sim_live_objects");
    for (int k = 0; k < 20; k++) {
        FX_STEP;
        fx_item(fx_sum(product(gpu(), &f)));
        early = k == 10 ? living() : early;
    }
    printf("%ld objects more. ", living() - early);
    say_error();
    return 0;
}

static int act(const char *what)
{
    fx_use("Metal");
    return strcmp(what, "all") == 0    ? multiply_all()
           : strcmp(what, "ends") == 0 ? ends()
           : strcmp(what, "part") == 0 ? part()
                                       : leave();
}

/* ---- tests ----------------------------------------------------------------------------------- */

typedef struct row {
    const char *environment, *act, *says;
} row;

static void check(const row *rows, int n)
{
    static char heard[1 << 14];
    for (int k = 0; k < n; k++) {
        const int status = own_child(rows[k].environment, rows[k].act, heard, sizeof heard);
        if (status != 0 || !strstr(heard, rows[k].says))
            fail_msg("%s %s: status %d: %s, not '%s'", rows[k].environment, rows[k].act, status,
                     heard, rows[k].says);
    }
}
#define CHECK(rows) check(rows, (int)(sizeof(rows) / sizeof *(rows)))

static void mps_computes_large_products(void **state)
{
    static const row rows[] = {
        {"FX_GPU_MEASURE=0", "all", "12 forms, 0 wrong, 10 by MPS. no error"},
        {"FX_GPU_MEASURE=0 SIM_DEFER=1", "all", "12 forms, 0 wrong, 10 by MPS. no error"},
        {"FX_MPS_LIBRARY=off", "ends", "near, 0 calls; near, 0 calls; no error"}};
    (void)state;
    CHECK(rows);
}

/* In the first plan the product is a step of its own. If the kernel is faster, later plans are one
 * step again: the kernel computes the rest too. Each way runs five times when it is measured. */
static void the_faster_way_is_used(void **state)
{
    static const row rows[] = {
        {"", "ends", "near, 6 calls; near, 1 calls; no error"},
        {"SIM_MPS_TIME=200", "ends", "near, 5 calls; near, 0 calls; no error"},
        {"FX_GPU_MEASURE=0 SIM_MPS_TIME=200", "ends", "near, 1 calls; near, 1 calls; no error"}};
    (void)state;
    CHECK(rows);
}

static void what_is_missing_is_named(void **state)
{
    static const row rows[] = {
        {"", "part", "1 \"\"; the backend has no part of that name"},
        {"SIM_MPS=0", "part", "0 \"MPS does not support Simulated Apple GPU\";"},
        {"FX_MPS_LIBRARY=off", "part", "0 \"FX_MPS_LIBRARY=off\";"},
        {"FX_MPS_LIBRARY=/nowhere/MPS", "part", "0 \"/nowhere/MPS cannot be opened: "}};
    (void)state;
    CHECK(rows);
}

static void failures_are_errors_or_leave_the_kernel(void **state)
{
    static const row rows[] = {
        {"FX_GPU_MEASURE=0 SIM_FAIL=MPSMatrixMultiplication@1=1", "ends",
         "near, 0 calls; near, 0 calls; no error"},
        {"FX_GPU_MEASURE=0 SIM_FAIL=initWithBuffer:offset:descriptor:@1=1", "ends",
         "Metal:0 (Simulated Apple GPU): initWithBuffer:offset:descriptor: failed with no object"},
        {"FX_GPU_MEASURE=0 SIM_FAIL=commandBuffer@1=1", "ends", "failed with no "}};
    (void)state;
    CHECK(rows);
}

static void objects_do_not_accumulate(void **state)
{
    static const row rows[] = {{"", "leave", "0 objects more. no error"},
                               {"SIM_DEFER=1", "leave", "0 objects more. no error"}};
    (void)state;
    CHECK(rows);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mps_computes_large_products),
                                       cmocka_unit_test(the_faster_way_is_used),
                                       cmocka_unit_test(what_is_missing_is_named),
                                       cmocka_unit_test(failures_are_errors_or_leave_the_kernel),
                                       cmocka_unit_test(objects_do_not_accumulate)};
    const char *all = argc > 1 ? argv[1] : "";
    setenv("FX_METAL_LIBRARY", FAKE, 0);
    setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR "/tests/sim/metal", 1);
    setenv("SIM_CACHE", CFLUX_SIM_CACHE, 1);
    setenv("FX_CACHE", "off", 1);
    return *all ? act(all) : cmocka_run_group_tests(tests, NULL, NULL);
}
