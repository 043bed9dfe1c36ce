/* test_denormals.c: fx_flush_denormals: steps of the CPU flush on every thread, the mode of the
 * program's own thread does not change, and a thread of the pool computes in the mode of the
 * calling thread. Expected values follow from IEEE 754: 2⁻¹³⁰ is a denormal Float32, 2⁻¹⁰³⁰ a
 * denormal Float64.
 */
#include "cpu_check.h"
#include "cpu_float_mode.h"
#include "cpu_parallel.h"

#include <cflux.h>

enum { LENGTH = 300000 }; /* long enough for several threads */

/* The value of all elements of fx_mul(x, by), where x is LENGTH times `value`; −1: they differ. */
static double product(fx_dtype dtype, double value, double by)
{
    FX_SCOPE;
    fx_array *x = fx_mul(fx_cast(fx_ones(LENGTH), dtype), value);
    assert_int_equal(fx_eval(x), FX_OK);
    fx_array *y = fx_mul(x, by);
    const double low = fx_item(fx_minimum(y)), high = fx_item(fx_maximum(y));
    return low == high ? low : -1;
}

/* Only the first group of tests comes before the first use. */
static void environment_is_read_at_first_use(void **state)
{
    (void)state;
    static bool used;
    setenv("FX_FLUSH_DENORMALS", "1", 1);
    if (!used)
        assert_true(product(FX_DTYPE_F32, 0x1p-120, 0x1p-10) == (FXI_MODE_FLUSH ? 0 : 0x1p-130));
    used = true;
}

/* A separate function, so that the compiler cannot compute the value earlier. */
static float half_of(volatile float x)
{
    return x * 0.5f;
}

static void steps_flush_results(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        fx_set_num_threads(threads);
        fx_flush_denormals(false);
        assert_true(product(FX_DTYPE_F32, 0x1p-120, 0x1p-10) == 0x1p-130);
        assert_true(product(FX_DTYPE_BF16, 0x1p-120, 0x1p-10) == 0x1p-130);
        assert_true(product(FX_DTYPE_F64, 0x1p-1000, 0x1p-30) == 0x1p-1030);
        const bool can = fx_flush_denormals(true);
        assert_true(can == (FXI_MODE_FLUSH != 0));
        assert_true(product(FX_DTYPE_F32, 0x1p-120, 0x1p-10) == (can ? 0 : 0x1p-130));
        assert_true(product(FX_DTYPE_BF16, 0x1p-120, 0x1p-10) == (can ? 0 : 0x1p-130));
        assert_true(product(FX_DTYPE_F64, 0x1p-1000, 0x1p-30) == (can ? 0 : 0x1p-1030));
        /* Normal numbers, and denormal Float16 numbers, are kept. */
        assert_true(product(FX_DTYPE_F32, 0x1p-120, 0x1p-6) == 0x1p-126);
        assert_true(product(FX_DTYPE_F16, 0x1p-10, 0x1p-10) == 0x1p-20);
        /* The program's own arithmetic. */
        assert_true(half_of(0x1p-126f) == 0x1p-127f);
        fx_flush_denormals(false);
        assert_true(product(FX_DTYPE_F32, 0x1p-120, 0x1p-10) == 0x1p-130);
    }
    fx_set_num_threads(0);
}

/* Operands: 2⁻¹³⁰ · 2¹⁰ is a normal number, but its first factor counts as 0. */
static void steps_flush_operands(void **state)
{
    (void)state;
    FX_SCOPE;
    float value = 0x1p-130f;
    fx_array *x = FX_FROM_C(((float[2]){value, 1}));
    assert_int_equal(fx_eval(x), FX_OK);
    assert_true(fx_item(fx_maximum(fx_mul(fx_slice(x, 0, 0, 1), 0x1p10))) == 0x1p-120);
    const bool can = fx_flush_denormals(true);
    assert_true(fx_item(fx_maximum(fx_mul(fx_slice(x, 0, 0, 1), 0x1p10))) == (can ? 0 : 0x1p-120));
    fx_flush_denormals(false);
}

typedef struct modes {
    uint64_t mode[64];
} modes;

static void note_mode(void *user, int64_t part)
{
    modes *m = user;
    m->mode[part] = fxi_float_mode();
    /* Long enough for the other threads to take parts. */
    for (volatile int k = 0; k < 20000; k++)
        ;
}

/* If a program changes the mode of its thread itself, all threads compute the same result. */
static void parts_run_in_the_callers_mode(void **state)
{
    (void)state;
    modes m = {{0}};
    const uint64_t before = fxi_float_mode();
    fx_set_num_threads(3);
    for (int on = 0; on < 4; on++) {
        const uint64_t mode = on % 2 ? before | FXI_MODE_FLUSH : before;
        fxi_float_mode_set(mode);
        fxi_cpu_parallel(64, note_mode, &m);
        for (int k = 0; k < 64; k++)
            assert_true(m.mode[k] == mode);
        assert_true(fxi_float_mode() == mode);
    }
    fxi_float_mode_set(before);
    fx_set_num_threads(0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(environment_is_read_at_first_use), cmocka_unit_test(steps_flush_results),
    cmocka_unit_test(steps_flush_operands), cmocka_unit_test(parts_run_in_the_callers_mode)};

RUN_ON_EVERY_ISA(tests)
