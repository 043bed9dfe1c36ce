/* test_metal.c: the Metal plugin with a simulated Objective-C runtime and a simulated Metal
 * (tests/sim/sim_objc.h), in processes of their own: how it is refused, what errors say, and that
 * its objects are freed. A process that makes a mistake with objects ends with status 70.
 * ctest: simulated
 */
#include <cflux.h>

#include "own_child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE CFLUX_BUILD_DIR "/tests/sim/libmetal-simulated.so"

/* ---- what the processes do ------------------------------------------------------------------- */

/* Prints the error record, if there is one, and clears it. */
static bool says_error(void)
{
    const fx_error e = fx_error_take();
    if (e.status != FX_OK)
        printf("error: %s\n", e.message);
    return e.status != FX_OK;
}

static int refuse(void)
{
    printf("%d %s\n", fx_use("Metal") == FX_OK, fx_why_not("Metal"));
    return 0;
}

static fx_array *numbers(int n)
{
    return fx_to(fx_device_find("metal:0"), fx_range(0, 1.0 / n, n));
}

/* The second result shows whether the device works after an error. */
static int compute(void)
{
    FX_SCOPE;
    for (int k = 0; k < 2; k++) {
        fx_array *x = numbers(1000), *y = fx_sum(fx_mul(fx_sqrt(x), fx_sqrt(x)));
        const double sum = fx_item(y);
        if (!says_error())
            printf("sum %.3f\n", sum);
    }
    return 0;
}

/* A convolution large enough for the kernels of tiles, whose groups have 128 to 192 work-items.
 * Each output is a sum of 3 · 3 · 16 ones. */
static int convolve(void)
{
    FX_SCOPE;
    fx_array *w = fx_ones(3, 3, 16, 32);
    void *model =
        fx_to(fx_device_find("metal:0"), fx_conv(FX_DIMS(3, 3), .weight_array = w, .bias = false));
    fx_array *x = fx_to(fx_device_find("metal:0"), fx_ones(32, 32, 16, 8));
    fx_array *y = fx_call(model, x);
    const double least = fx_item(fx_minimum(y)), largest = fx_item(fx_maximum(y));
    if (!says_error())
        printf("from %.0f to %.0f\n", least, largest);
    return 0;
}

static int move_f64(void)
{
    FX_SCOPE;
    fx_array *x = fx_to(fx_device_find("metal:0"), fx_cast(fx_vector(1, 2), FX_DTYPE_F64));
    printf("%.1f\n", fx_item(fx_sum(x)));
    return !says_error();
}

static int fill_memory(void)
{
    FX_SCOPE;
    fx_array *x = fx_to(fx_device_find("metal:0"), fx_zeros(1 << 20));
    bool failed = false;
    for (int k = 0; k < 16 && !failed; k++) {
        x = fx_concat(0, x, x);
        fx_eval(x);
        failed = says_error();
    }
    return !failed;
}

static int run_steps(int steps)
{
    FX_SCOPE;
    long (*live)(void);
    void *library = dlopen(FAKE, RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&live = dlsym(library, "sim_live_objects");
    fx_array *w = numbers(64);
    long early = 0;
    double sum = 0;
    for (int k = 0; k < steps; k++) {
        FX_SCOPE;
        sum = fx_item(fx_sum(fx_tanh(fx_mul(0.01 * k, w))));
        early = k == 100 ? live() : early;
    }
    printf("%.4f, %ld objects more\n", sum, live() - early);
    return 0;
}

static int act(const char *what)
{
    return strcmp(what, "refuse") == 0     ? refuse()
           : strcmp(what, "compute") == 0  ? compute()
           : strcmp(what, "convolve") == 0 ? convolve()
           : strcmp(what, "f64") == 0      ? move_f64()
           : strcmp(what, "memory") == 0   ? fill_memory()
                                           : run_steps(atoi(what));
}

/* ---- tests ----------------------------------------------------------------------------------- */

typedef struct row {
    const char *environment, *act, *says[3];
} row;

static void check(const row *rows, int n)
{
    static char heard[1 << 14];
    for (int k = 0; k < n; k++) {
        const int status = own_child(rows[k].environment, rows[k].act, heard, sizeof heard);
        if (status != 0)
            fail_msg("%s %s: status %d: %s", rows[k].environment, rows[k].act, status, heard);
        for (int i = 0; i < 3 && rows[k].says[i]; i++)
            if (!strstr(heard, rows[k].says[i]))
                fail_msg("%s %s: %s: says not '%s'", rows[k].environment, rows[k].act, heard,
                         rows[k].says[i]);
    }
}
#define CHECK(rows) check(rows, (int)(sizeof(rows) / sizeof *(rows)))

static void a_system_without_it_is_refused(void **state)
{
    static const row rows[] = {
        {"FX_METAL_LIBRARY=", "refuse", {"0 ", "Metal needs macOS"}},
        {"FX_METAL_LIBRARY=/nowhere/Metal", "refuse", {"0 ", "/nowhere/Metal cannot be opened"}},
        {"SIM_DEVICES=0", "refuse", {"0 ", "Metal finds no device"}},
        {"SIM_MACOS=12", "refuse", {"0 ", "macOS 13 or later is required", "Version 12.0"}},
        {"SIM_FAIL=newCommandQueue@1=1", "refuse", {"0 ", "newCommandQueue failed"}},
        {"", "refuse", {"1 "}}};
    (void)state;
    CHECK(rows);
}

static void it_computes_on_every_system(void **state)
{
    static const row rows[] = {{"", "compute", {"sum 499.500\nsum 499.500"}},
                               {"SIM_DEFER=1", "compute", {"sum 499.500\nsum 499.500"}},
                               {"SIM_MACOS=15", "compute", {"sum 499.500\nsum 499.500"}},
                               {"SIM_FAMILIES=0", "compute", {"sum 499.500\nsum 499.500"}},
                               {"", "convolve", {"from 144 to 144"}},
                               {"", "f64", {"Metal:0 has no Float64"}}};
    (void)state;
    CHECK(rows);
}

static void errors_name_their_cause(void **state)
{
    static const row rows[] = {
        {"SIM_FAIL=newLibraryWithSource:options:error:@1=1",
         "compute",
         {"Metal:0 (Simulated Apple GPU) cannot compile a kernel: error: the test says so",
          "sum 499.500"}},
        {"SIM_FAIL=newComputePipelineStateWithFunction:error:@1=1",
         "compute",
         {"cannot make a pipeline of fx_", "Threadgroup memory size exceeds", "sum 499.500"}},
        {"SIM_ITEMS=128",
         "compute",
         {"in groups of at most 128 work-items, but the kernel needs 256"}},
        {"SIM_ITEMS=96",
         "convolve",
         {"in groups of at most 96 work-items, but the kernel needs 1"}},
        {"SIM_FAIL=newFunctionWithName:@1=1", "compute", {"a program has no kernel fx_"}},
        {"SIM_FAIL=commit@1=3",
         "compute",
         {"waitUntilCompleted failed with MTLCommandBufferErrorPageFault after the step",
          "sum 499.500"}},
        {"SIM_FAIL=commandBuffer@1=1", "compute", {"no command buffer", "sum 499.500"}},
        {"SIM_FAIL=computeCommandEncoder@1=1", "compute", {"no command buffer", "sum 499.500"}},
        {"SIM_FAIL=commit@1=11!",
         "compute",
         {"MTLCommandBufferErrorDeviceRemoved after the step",
          "arrays on it can no longer be read"}},
        {"SIM_FAIL=newBufferWithLength:options:@0=1", "compute", {"memory"}},
        {"SIM_MEMORY=64", "memory", {"memory"}}};
    (void)state;
    CHECK(rows);
}

static void objects_do_not_accumulate(void **state)
{
    static const row rows[] = {{"", "10000", {", 0 objects more"}},
                               {"SIM_DEFER=1", "400", {", 0 objects more"}}};
    (void)state;
    CHECK(rows);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_system_without_it_is_refused),
                                       cmocka_unit_test(it_computes_on_every_system),
                                       cmocka_unit_test(errors_name_their_cause),
                                       cmocka_unit_test(objects_do_not_accumulate)};
    const char *all = argc > 1 ? argv[1] : "";
    setenv("FX_METAL_LIBRARY", FAKE, 0);
    setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR "/tests/sim/metal", 1);
    setenv("SIM_CACHE", CFLUX_SIM_CACHE, 1);
    setenv("FX_CACHE", "off", 1);
    return *all ? act(all) : cmocka_run_group_tests(tests, NULL, NULL);
}
