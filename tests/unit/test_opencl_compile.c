/* test_opencl_compile.c: the kernels of a plan are compiled by several threads, with the results
 * and errors of one. It runs over a libOpenCL that computes nothing (fake_opencl.c).
 * ctest: threads native
 */
#include <cflux.h>

#include "cores.h"
#include "memory.h"
#include "opencl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FAKE CFLUX_BUILD_DIR "/tests/plugins/libfake-opencl.so"

static fx_device *device;
static const fxi_gpu_counters *counts;

static int open_fake(void **state)
{
    (void)state;
    setenv("FX_OPENCL_LIBRARY", FAKE, 1);
    setenv("FX_PLUGIN_PATH", CFLUX_BUILD_DIR, 1);
    setenv("FX_CACHE", "off", 1);
    setenv("FX_OPENCL_DEVICES", "", 1);
    assert_int_equal(fx_use("OpenCL"), FX_OK);
    device = fx_device_find("opencl:0");
    counts = fx_backend_proc("OpenCL", "counters");
    return 0;
}

static int compiled(void)
{
    return (int)__atomic_load_n(&counts->compiled, __ATOMIC_RELAXED);
}

static int most_builds(void)
{
    int (*most)(void);
    *(void **)&most = dlsym(dlopen(FAKE, RTLD_NOW | RTLD_NOLOAD), "fake_most_builds");
    return most();
}

/* A graph of six maps, each of which is a program of its own, in this order. Element types and
 * constants make the programs of a test others than those of the tests before. */
static fx_array *six_maps(fx_dtype dtype)
{
    fx_array *x = fx_to(device, fx_cast(fx_vector(1, 2, 3), dtype));
    fx_array *y = fx_cumsum(fx_exp(x), 0);
    y = fx_cumsum(fx_sqrt(y), 0);
    y = fx_cumsum(fx_sin(y), 0);
    y = fx_cumsum(fx_cos(y), 0);
    y = fx_cumsum(fx_tanh(y), 0);
    return fx_log(y);
}

enum { PROGRAMS = 7 }; /* with the sum */

/* ---- at the same time ------------------------------------------------------------------------ */

static void programs_of_a_plan_are_compiled_together(void **state)
{
    (void)state;
    FX_SCOPE;
    const int before = compiled();
    setenv("FAKE_OPENCL", "meets", 1);
    fx_array *y = six_maps(FX_DTYPE_F32);
    assert_int_equal(compiled(), before);
    if (fxi_system_cores() == 1)
        setenv("FAKE_OPENCL", "", 1);
    assert_int_equal(fx_eval(y), FX_OK);
    setenv("FAKE_OPENCL", "", 1);
    assert_int_equal(compiled(), before + PROGRAMS);
    assert_in_range(most_builds(), fxi_system_cores() > 1 ? 2 : 1, 8);
    assert_int_equal(fx_eval(six_maps(FX_DTYPE_F32)), FX_OK);
    assert_int_equal(compiled(), before + PROGRAMS);
}

/* ---- two plans ------------------------------------------------------------------------------- */

static void *evaluate(void *fine)
{
    FX_SCOPE;
    *(bool *)fine = fx_eval(six_maps(FX_DTYPE_F16)) == FX_OK;
    return NULL;
}

static void two_plans_share_their_programs(void **state)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    bool fine[THREADS] = {false};
    (void)state;
    const int before = compiled();
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, evaluate, &fine[k]), 0);
    for (int k = 0; k < THREADS; k++) {
        pthread_join(threads[k], NULL);
        assert_true(fine[k]);
    }
    assert_int_equal(compiled(), before + PROGRAMS);
}

/* ---- failures -------------------------------------------------------------------------------- */

static char heard[512];
static int messages, errors;
static pthread_t caller;

static void hear(int level, const char *text, void *unused)
{
    (void)level, (void)unused;
    assert_true(pthread_equal(pthread_self(), caller));
    snprintf(heard, sizeof heard, "%s", text);
    messages++;
}

static void hear_error(const fx_error *error, void *unused)
{
    (void)error, (void)unused;
    assert_true(pthread_equal(pthread_self(), caller));
    errors++;
}

/* The first that fails in the order of the plan takes longer to do so than the others. */
static void the_first_failure_of_the_plan_is_reported(void **state)
{
    (void)state;
    FX_SCOPE;
    caller = pthread_self();
    messages = errors = 0;
    fx_message_set_hook(hear, NULL);
    fx_error_set_hook(hear_error, NULL);
    setenv("FAKE_OPENCL_REFUSES", "FX_F32(sin)|FX_F32(cos)|FX_F32(tanh)", 1);
    fx_array *y = six_maps(FX_DTYPE_BF16);
    assert_int_equal(fx_eval(y), FX_STATUS_DEVICE);
    setenv("FAKE_OPENCL_REFUSES", "", 1);
    fx_message_set_hook(NULL, NULL);
    fx_error_set_hook(NULL, NULL);
    assert_int_equal(messages, 1);
    assert_string_equal(heard, "kernel.cl:3:1: error: the fake compiler is tired of FX_F32(sin)");
    const fx_error e = fx_error_take();
    assert_string_equal(e.message, "compile: OpenCL:0 (Fake GPU) cannot compile a kernel: "
                                   "CL_BUILD_PROGRAM_FAILURE: error: the fake compiler is tired of "
                                   "FX_F32(sin)");
    assert_int_equal(fx_eval(six_maps(FX_DTYPE_BF16)), FX_OK); /* the program is compiled again */
}

/* Whatever cannot be allocated, by whichever thread: an error or a plan, and nothing leaks. */
static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    int64_t failures = 0;
    bool reached = true;
    for (int64_t nth = 0; reached; nth++) {
        FX_SCOPE;
        fx_array *y = six_maps(FX_DTYPE_F64);
        fxi_fault_set(nth);
        failures += fx_eval(y) != FX_OK;
        reached = fxi_fault_seen() > nth;
        fxi_fault_set(-1);
        fx_error_take();
        assert_in_range(nth, 0, 5000);
    }
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_of_a_plan_are_compiled_together),
                                       cmocka_unit_test(two_plans_share_their_programs),
                                       cmocka_unit_test(the_first_failure_of_the_plan_is_reported),
                                       cmocka_unit_test(every_allocation_fails_in_turn)};
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
