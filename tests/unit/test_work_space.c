/* test_work_space.c: memory that steps need besides their operands, and the data that a run writes
 * to a device before its first step. The stand-in devices request as much work space as the test
 * sets (standin.h) and overwrite all of it. ctest: devices threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <string.h>

#include "evaluate.h"
#include "planning.h"
#include "standin.h"

enum { N = 512, MIB = 1 << 20 }; /* a matrix is 1 MiB */

static fx_device *d;
static const standin *script;

static int setup(void **state)
{
    (void)state;
    standin_path();
    if (fx_use("CUDA") != FX_OK)
        return 1;
    d = fx_device_get("CUDA", 0);
    script = d ? standin_of(d) : NULL;
    fxi_plans_checked_set(true);
    return !script;
}

static fx_array *ones(void)
{
    fx_array *x = fx_to(d, fx_full(1, N, N));
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* Two steps with 3 MiB of work space each, of which the product reads the sum: 4 MiB in all. */
static fx_array *needs_work(fx_array *x)
{
    fxi_reclaim_all();
    script->work(d->id, 3 * MIB);
    return fx_matmul(fx_cumsum(x, 0), x);
}

static void a_plan_that_does_not_fit_fails_first(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = ones(), *y = needs_work(x);
    const int64_t live = fx_memory_status(d).live;
    fx_set_memory_limit(d, live + 5 * MIB - 1);
    const int64_t launches = script->calls(d->id, STANDIN_LAUNCH);
    assert_int_equal(fx_eval(y), FX_STATUS_MEMORY);
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message,
                           "; the plan needs 4194304 bytes of temporary memory (3145728 of "
                           "them for the kernels of cumsum) and 1048576 of results"));
    assert_int_equal(script->calls(d->id, STANDIN_LAUNCH), launches);
    assert_int_equal(fx_memory_status(d).live, live);
    fx_set_memory_limit(d, live + 5 * MIB);
    assert_int_equal(fx_eval(y), FX_OK); /* the same array, after memory was freed */
    assert_int_equal(fx_memory_status(d).live, live + 5 * MIB);
    fx_set_memory_limit(d, 0);
    script->work(d->id, 100);
    assert_true(fx_item(fx_sum(y)) == (double)N * N * N * (N + 1) / 2);
    assert_true(fx_item(fx_sum(x)) == (double)N * N);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void it_is_shown(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = ones(), *y = needs_work(x);
    char text[2000] = "";
    FILE *f = tmpfile();
    assert_non_null(f);
    fx_plan_show(f, y);
    script->work(d->id, 100);
    rewind(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "4.0 MiB of arena"));
    assert_non_null(strstr(text, "  1  cumsum(x0) → Float32 512×512, 2.0 MiB and 3.0 MiB of work "
                                 "space\n"));
}

enum { MANY = 64 };

/* A number of two random arrays and one literal. */
static fx_array *of_noise(fx_array *x)
{
    return fx_sum(fx_mul(x, fx_mul(fx_sub(fx_rand(MANY), fx_rand(MANY)), 3)));
}

/* Seeds and counters go to the device with the literals; each run has its own. */
static void streams_are_written_with_literals(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *here = fx_full(1, MANY), *x = fx_to(d, here);
    assert_int_equal(fx_eval(x), FX_OK);
    for (uint64_t seed = 0; seed < 3; seed++) {
        fx_seed(seed);
        fx_array *y = of_noise(x);
        const int64_t writes = script->calls(d->id, STANDIN_WRITE),
                      bytes = script->bytes(d->id, STANDIN_WRITE);
        assert_int_equal(fx_eval(y), FX_OK);
        assert_int_equal(script->calls(d->id, STANDIN_WRITE) - writes, 1);
        assert_int_equal(script->bytes(d->id, STANDIN_WRITE) - bytes, 8 + 2 * 16);
        fx_seed(seed);
        assert_true(fx_item(of_noise(here)) == fx_item(y));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_that_does_not_fit_fails_first),
        cmocka_unit_test(it_is_shown),
        cmocka_unit_test(streams_are_written_with_literals),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
