/* test_plan_memory.c: cached plans keep a bounded amount of memory, and free it. ctest: native
 *
 * The bytes of a plan are counted while it is built. The memory that the thread frees when all
 * plans are dropped must be equal to the count.
 */
#include "evaluate.h"
#include "semantics_check.h"

#include "planning.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SHAPES = 600 };
static const int64_t BOUND = (int64_t)32 << 20;

/* One training step of a small network with h hidden values: a graph of about 230 nodes. */
static void train_once(int64_t h)
{
    FX_SCOPE;
    fx_chain_layer *m = fx_chain(fx_dense(20, h, FX_RELU), fx_batchnorm(h), fx_dense(h, 3));
    void *opt = fx_setup(fx_adam(), m);
    FX_STEP;
    fx_array *loss = fx_mse(fx_call(m, fx_ones(20, 4)), fx_ones(3, 4));
    assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
}

static void plans_stay_within_their_bytes(void **state)
{
    (void)state;
    fxi_reclaim_all();
    assert_true(fxi_plans_bytes() == 0);
    assert_true(fx_memory_status(NULL).plans == 0);
    train_once(SHAPES + 1);
    const int64_t one = fxi_plans_bytes();
    assert_true(fx_memory_status(NULL).plans == one);
    assert_true(one > 10000 && one < 1000000);
    const uint64_t evicted = fx_stats().plans_evicted;
    int64_t most = 0;
    for (int64_t h = 1; h <= SHAPES; h++) {
        train_once(h);
        most = fxi_plans_bytes() > most ? fxi_plans_bytes() : most;
    }
    assert_true(SHAPES * one > BOUND); /* otherwise this shows nothing */
    assert_true(most <= BOUND && most > BOUND / 2);
    assert_true(fx_stats().plans_evicted > evicted);
    fx_reclaim();
    assert_true(fxi_plans_bytes() == 0);
}

/* Dropping the plans frees as many bytes as the count says. */
static void bytes_are_counted(void **state)
{
    (void)state;
    fxi_reclaim_all();
    for (int64_t h = 1; h <= 20; h++)
        train_once(h);
    const int64_t plans = fxi_plans_bytes(), held = fxi_memory_held_here();
    assert_true(plans > 0);
    fxi_plans_reclaim();
    const int64_t freed = held - fxi_memory_held_here();
    if (llabs(freed - plans) > plans / 20)
        fail_msg("%lld bytes counted, %lld freed", (long long)plans, (long long)freed);
}

/* A program that alternates between a few graphs plans each once, however large they are. */
static void a_few_large_plans_stay(void **state)
{
    (void)state;
    fxi_reclaim_all();
    uint64_t built = 0;
    for (int round = 0; round < 2; round++) {
        built = fx_stats().plans_built;
        for (int64_t n = 1; n <= 6; n++) {
            FX_SCOPE;
            fx_array *x = fx_ones(n, 2), *y = x;
            for (int k = 0; k < 4000; k++)
                y = fx_tanh(fx_sum(fx_add(fx_expand(y, n, 2), x), .dims = FX_AXES(0)));
            assert_int_equal(fx_eval(y), FX_OK);
        }
    }
    if (fxi_plans_bytes() <= BOUND)
        fail_msg("%lld bytes of plans show nothing", (long long)fxi_plans_bytes());
    assert_int_equal(fx_stats().plans_built, built);
    fxi_reclaim_all();
}

static long resident_kilobytes(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void reclaiming_returns_memory_to_the_system(void **state)
{
    (void)state;
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    fx_reclaim();
    const long before = resident_kilobytes();
    for (int64_t h = 1; h <= 250; h++)
        train_once(h);
    const long full = resident_kilobytes();
    fx_reclaim();
    const long after = resident_kilobytes();
    if (full < before + 10000 || after > before + (full - before) / 4)
        fail_msg("%ld KB, %ld KB with plans, %ld KB after", before, full, after);
#else
    (void)resident_kilobytes;
#endif
}

/* After a thousand shapes and a large temporary value, fx_reclaim leaves the live arrays. */
static void resident_memory_is_that_of_live_arrays(void **state)
{
    (void)state;
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    enum { MANY = 1000, ELEMENTS = 1 << 20, MOST_KILOBYTES = 20 << 10 };
    FX_SCOPE;
    fx_reclaim();
    const long before = resident_kilobytes();
    fx_array *kept = fx_ones(ELEMENTS);
    assert_int_equal(fx_eval(kept), FX_OK);
    for (int64_t n = 1; n <= MANY; n++) {
        FX_SCOPE;
        fx_array *x = fx_rand(32, n), *y = fx_softmax(fx_matmul(fx_rand(64, 32), x));
        assert_int_equal(fx_eval(fx_gradient(fx_sum(fx_square(y)), x)), FX_OK);
    }
    {
        FX_SCOPE;
        assert_int_equal(fx_eval(fx_cumsum(fx_concat(0, kept, kept, kept, kept, kept, kept), 0)),
                         FX_OK);
    }
    const long full = resident_kilobytes();
    fx_reclaim();
    const long after = resident_kilobytes() - ELEMENTS * 4 / 1024;
    if (full < before + MOST_KILOBYTES || after > before + MOST_KILOBYTES)
        fail_msg("%ld KB, %ld KB before fx_reclaim, %ld KB after, without the array", before, full,
                 after);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plans_stay_within_their_bytes),
        TEST(bytes_are_counted),
        TEST(a_few_large_plans_stay),
        TEST(reclaiming_returns_memory_to_the_system),
        TEST(resident_memory_is_that_of_live_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
