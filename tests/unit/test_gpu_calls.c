/* test_gpu_calls.c: steps of a GPU that are calls of a vendor's library, with state, work space and
 * recordings, over a stand-in whose library multiplies matrices (tests/standin/vendor.h).
 * ctest: native
 */
#include <cflux.h>

#include "memory.h"
#include "vendor.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER CFLUX_BUILD_DIR "/tests/vendor"

static fx_device *device;
static vendor_control *control;

static int open_vendor(void **state)
{
    (void)state;
    setenv("FX_PLUGIN_PATH", FOLDER, 1);
    setenv("FX_CACHE", "off", 1);
    assert_int_equal(fx_use("Vendor"), FX_OK);
    device = fx_device_find("vendor:0");
    void *(*get)(void);
    *(void **)&get =
        dlsym(dlopen(FOLDER "/libcflux-vendor.so", RTLD_NOW | RTLD_NOLOAD), "vendor_control_of");
    control = get();
    return 0;
}

static int forget_counts(void **state)
{
    (void)state;
    fx_reclaim();
    assert_int_equal(control->made, control->freed);
    assert_int_equal(control->recordings, 0);
    *control = (vendor_control){.made = 0};
    return 0;
}

/* Small whole numbers: sums are exact in any order. */
static fx_array *matrix(fx_device *on, int64_t rows, int64_t columns, int from)
{
    float values[64];
    assert_true(rows * columns <= 64);
    for (int k = 0; k < rows * columns; k++)
        values[k] = (float)((from + k) % 7 - 3);
    return fx_to(on, fx_from(FX_DTYPE_F32, values, rows, columns));
}

/* a·(b·transpose(c)), of n×3, 3×4 and 5×4 matrices. */
static fx_array *products(fx_device *on, int64_t n, int from)
{
    fx_array *a = matrix(on, n, 3, from), *b = matrix(on, 3, 4, from + 1),
             *c = matrix(on, 5, 4, from + 2);
    return fx_matmul(a, fx_matmul(b, fx_transpose(c)));
}

static void compare(int64_t n, int from)
{
    enum { MOST = 64 };
    FX_SCOPE;
    float expected[MOST], found[MOST];
    const size_t bytes = (size_t)(5 * n) * sizeof(float);
    assert_true(5 * n <= MOST);
    assert_int_equal(fx_read_into(products(fx_device_find("cpu"), n, from), expected, bytes),
                     FX_OK);
    assert_int_equal(fx_read_into(products(device, n, from), found, bytes), FX_OK);
    assert_memory_equal(found, expected, bytes);
}

/* ---- state ----------------------------------------------------------------------------------- */

static void state_is_made_with_the_plan(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++)
        compare(6, k);
    assert_int_equal(control->made, 2);
    assert_int_equal(control->calls, 10);
    assert_int_equal(control->freed, 0);
    compare(7, 0);
    assert_int_equal(control->made, 4);
    fx_reclaim();
    assert_int_equal(control->freed, 4);
}

static void a_failing_step_frees_the_state_of_those_before(void **state)
{
    (void)state;
    FX_SCOPE;
    control->refuse_from = 2;
    fx_array *y = products(device, 8, 0);
    assert_int_equal(fx_eval(y), FX_STATUS_DEVICE);
    assert_non_null(strstr(fx_error_take().message, "the library was told to refuse it"));
    assert_int_equal(control->made, 2);
    assert_int_equal(control->freed, 2);
    assert_int_equal(control->calls, 0);
}

static void a_kernel_that_does_not_compile_frees_the_state(void **state)
{
    (void)state;
    FX_SCOPE;
    control->compiles_nothing = true;
    fx_array *y = fx_cumsum(products(device, 9, 0), 0);
    assert_int_equal(fx_eval(y), FX_STATUS_DEVICE);
    assert_non_null(strstr(fx_error_take().message, "was told to compile nothing"));
    assert_int_equal(control->made, 2);
    assert_int_equal(control->freed, 2);
    assert_int_equal(control->calls, 0);
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    int64_t failures = 0;
    bool reached = true;
    for (int64_t nth = 0; reached; nth++) {
        FX_SCOPE;
        fx_array *y = products(device, 10, 0);
        fxi_fault_set(nth);
        failures += fx_eval(y) != FX_OK;
        reached = fxi_fault_seen() > nth;
        fxi_fault_set(-1);
        fx_error_take();
        assert_in_range(nth, 0, 5000);
    }
    assert_true(failures > 10);
    fx_reclaim();
    assert_int_equal(control->made, control->freed);
}

/* ---- kernels beside calls -------------------------------------------------------------------- */

/* The library takes no epilogue: the product is a call, and the rest a kernel. */
static void what_the_library_does_not_take_is_a_kernel(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_to(device, fx_ones(3, 3));
    fx_eval(a);
    control->kernels = 0;
    assert_int_equal(fx_eval(fx_relu(fx_matmul(a, a))), FX_OK);
    assert_int_equal(control->calls, 1);
    assert_int_equal(control->kernels, 1);
}

/* ---- recordings ------------------------------------------------------------------------------ */

/* New arrays get the addresses of earlier ones, with other values, until one array is kept. */
static void run_ten_times(int64_t n)
{
    FX_SCOPE;
    for (int k = 0; k < 10; k++) {
        if (k == 5)
            assert_int_equal(fx_eval(matrix(device, n, 3, 0)), FX_OK);
        compare(n, k);
    }
    assert_int_equal(control->calls, 20);
}

static void a_plan_is_recorded_and_replayed(void **state)
{
    (void)state;
    run_ten_times(11);
    assert_in_range(control->recorded, 2, 8);
    assert_in_range(control->replayed, 1, 9);
    /* At least one recording for the addresses before run_ten_times kept an array, and one for
     * those after. */
    assert_in_range(control->recordings, 2, 4);
    assert_int_equal(control->recordings, control->recorded);
}

static void a_call_can_refuse_to_be_recorded(void **state)
{
    (void)state;
    control->captures_nothing = true;
    run_ten_times(12);
    assert_int_equal(control->recorded, 0);
}

static void a_plan_that_cannot_be_recorded_is_launched(void **state)
{
    (void)state;
    control->record_fails = true;
    run_ten_times(4);
    assert_int_equal(control->recorded, 1);
    assert_int_equal(control->replayed, 0);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_teardown(test, forget_counts)
    const struct CMUnitTest tests[] = {ROW(state_is_made_with_the_plan),
                                       ROW(a_failing_step_frees_the_state_of_those_before),
                                       ROW(a_kernel_that_does_not_compile_frees_the_state),
                                       ROW(every_allocation_fails_in_turn),
                                       ROW(what_the_library_does_not_take_is_a_kernel),
                                       ROW(a_plan_is_recorded_and_replayed),
                                       ROW(a_call_can_refuse_to_be_recorded),
                                       ROW(a_plan_that_cannot_be_recorded_is_launched)};
#undef ROW
    return cmocka_run_group_tests(tests, open_vendor, NULL);
}
