/* test_memory_limit.c: a limit of device memory: caches are freed first, then the evaluation fails
 * with the figures, and no value is lost. The same if the system refuses memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdlib.h>
#include <string.h>

#include <cflux/backend.h>
#include "context.h"
#include "evaluate.h"
#include "memory.h"
#include "pool.h"
#include "system_memory.h"

enum { N = 512, BYTES = N * N * 4 }; /* a matrix: 1 MiB */

static fx_array *ones(void)
{
    fx_array *x = fx_full(1, N, N);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* Work space of two matrices, a result of one number: the row sums of products of products. */
static fx_array *needs_an_arena(fx_array *x)
{
    return fx_sum(fx_matmul(fx_matmul(fx_matmul(x, x), x), x));
}

static int64_t live(void)
{
    return fxi_device_live(fx_cpu_device());
}

static void live_bytes_are_counted(void **state)
{
    (void)state;
    fxi_reclaim_all();
    const int64_t before = live();
    {
        FX_SCOPE;
        ones();
        assert_int_equal(live() - before, BYTES);
    }
    assert_int_equal(live(), before);
}

static void beyond_the_limit(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    fx_array *x = ones(), *y = fx_add(x, 1);
    fx_set_memory_limit(fx_cpu_device(), live() + BYTES - 1);
    assert_int_equal(fx_eval(y), FX_STATUS_MEMORY);
    const fx_error e = fx_error_take();
    char want[160];
    snprintf(want, sizeof want, "no memory for %d bytes on CPU (%lld bytes live of at most %lld",
             (int)BYTES, (long long)live(), (long long)live() + BYTES - 1);
    assert_non_null(strstr(e.message, want));
    assert_true(fx_at(x, 0) == 1); /* existing values are unchanged */
    fx_set_memory_limit(fx_cpu_device(), live() + BYTES);
    assert_int_equal(fx_eval(y), FX_OK); /* the same array, after memory was freed */
    fx_set_memory_limit(fx_cpu_device(), 0);
    assert_true(fx_at(y, 3) == 2);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void sum_in_hook(const fx_error *e, void *user)
{
    assert_int_equal(e->status, FX_STATUS_MEMORY);
    fx_error_set_hook(NULL, NULL);
    FX_SCOPE;
    *(double *)user = fx_item(fx_sum(fx_mul(fx_full(2, 3), 5)));
}

/* The hook of an evaluation that fails may evaluate. The plans of both are freed later. */
static void an_error_hook_evaluates(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = ones();
    double sum = 0;
    fxi_reclaim_all();
    const int64_t before = fxi_live_allocations();
    {
        FX_SCOPE;
        fx_array *y = fx_add(x, 1);
        fx_set_memory_limit(fx_cpu_device(), live() + BYTES - 1);
        fx_error_set_hook(sum_in_hook, &sum);
        assert_int_equal(fx_eval(y), FX_STATUS_MEMORY);
        fx_error_take();
        fx_set_memory_limit(fx_cpu_device(), 0);
        assert_true(sum == 30);
        assert_true(fx_at(y, 3) == 2);
    }
    fxi_reclaim_all();
    assert_int_equal(fxi_live_allocations(), before);
}

/* The work space of an earlier evaluation, and unused plans, are freed. */
static void what_is_kept_for_speed_goes_first(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    fx_array *x = ones();
    const int64_t before = live();
    assert_true(fx_item(needs_an_arena(x)) == (double)N * N * N * N * N);
    const int64_t arena = live() - before;
    assert_true(arena >= 2 * BYTES);
    const uint64_t evicted = fx_stats().plans_evicted;
    fx_set_memory_limit(fx_cpu_device(), before + arena);
    fx_array *y = fx_add(x, 1);
    assert_int_equal(fx_eval(y), FX_OK); /* arena and result together are too much */
    assert_int_equal(fx_error_status(), FX_OK);
    assert_true(live() - before < BYTES + 100); /* y and the number */
    assert_true(fx_stats().plans_evicted > evicted);
    assert_int_equal(fx_eval(needs_an_arena(x)),
                     FX_STATUS_MEMORY); /* y now occupies the memory that the arena needs */
    fx_error_take();
    fx_set_memory_limit(fx_cpu_device(), 0);
    assert_true(fx_item(needs_an_arena(x)) == (double)N * N * N * N * N);
}

/* A request that can never fit frees nothing: the plan of y is still in the cache. */
static void impossible_requests_free_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    fx_array *x = ones();
    assert_true(fx_item(needs_an_arena(x)) == (double)N * N * N * N * N);
    const uint64_t evicted = fx_stats().plans_evicted;
    const int64_t kept = live();
    fx_set_memory_limit(fx_cpu_device(), BYTES - 1);
    assert_int_equal(fx_eval(fx_add(x, 1)), FX_STATUS_MEMORY);
    float *values = calloc(1, BYTES);
    assert_int_equal(fx_array_status(fx_from(FX_DTYPE_F32, values, N, N)), FX_STATUS_MEMORY);
    free(values);
    fx_error_take();
    assert_int_equal(live(), kept);
    assert_int_equal(fx_stats().plans_evicted, evicted);
    fx_set_memory_limit(fx_cpu_device(), 0);
}

/* Float32 copies of 16-bit operands are work space of the plan, not of the kernel's call. */
static void copies_of_16_bits_count(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    fx_array *x = fx_cast(ones(), FX_DTYPE_F16), *y = fx_cumsum(x, 0);
    assert_int_equal(fx_eval(x), FX_OK);
    fxi_reclaim_all();
    /* Two copies, with 64 bytes more for each. */
    const int64_t before = live(), need = 2 * BYTES + 128;
    fx_set_memory_limit(fx_cpu_device(), before + need + BYTES / 2 - 1);
    assert_int_equal(fx_eval(y), FX_STATUS_MEMORY);
    const fx_error e = fx_error_take();
    char want[120];
    snprintf(want, sizeof want,
             "the plan needs %lld bytes of temporary memory (%lld of them for the", (long long)need,
             (long long)need);
    assert_non_null(strstr(e.message, want));
    fx_set_memory_limit(fx_cpu_device(), before + need + BYTES / 2);
    assert_int_equal(fx_eval(y), FX_OK);
    fx_set_memory_limit(fx_cpu_device(), 0);
    assert_true(fx_at(y, N - 1) == N);
}

static void reclaim_gives_back(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    fx_array *x = ones();
    const int64_t before = live();
    fx_eval(needs_an_arena(x));
    assert_true(live() - before > BYTES);
    fx_reclaim();
    assert_true(live() - before < 100);
    assert_int_equal(fxi_memory_cached(), 0);
    assert_true(fx_at(x, 1) == 1);
}

/* Each allocation of an evaluation fails in turn: freeing caches makes it succeed, or the failure
 * is reported and the next attempt gives the result. */
static void allocations_that_fail(void **state)
{
    (void)state;
    int survived = 0, reported = 0;
    for (int64_t n = 0;; n++) {
        FX_SCOPE;
        fxi_reclaim_all();
        fx_array *x = fx_full(2, 8, 8), *y = fx_mul(fx_matmul(x, x), 3);
        fxi_fault_set(n);
        const fx_status status = fx_eval(y);
        const bool past = fxi_fault_seen() <= n;
        fxi_fault_set(-1);
        survived += status == FX_OK && !past;
        reported += status == FX_STATUS_MEMORY;
        assert_true(status == FX_OK || status == FX_STATUS_MEMORY);
        assert_int_equal(fx_error_take().status, status);
        assert_int_equal(fx_eval(y), FX_OK);
        assert_true(fx_at(y, 63) == 96);
        if (past)
            break;
    }
    assert_true(survived >= 4); /* the lists of a run are one allocation */
    assert_true(reported >= 8);
}

/* Blocks of sizes that are not used any more leave the cache for one that is. */
static void the_cache_follows_use(void **state)
{
    (void)state;
    enum { MIB = 1 << 20, OLD = 8 };
    void *old[OLD];
    fxi_reclaim_all();
    for (int k = 0; k < OLD; k++)
        assert_non_null(old[k] = fxi_aligned(64, 8 * MIB));
    for (int k = 0; k < OLD; k++)
        fxi_free(old[k]);
    if (fxi_memory_cached() == 0) /* with a sanitizer nothing is cached */
        return;
    assert_int_equal(fxi_memory_cached(), 64 * MIB);
    fxi_free(fxi_aligned(64, 32 * MIB));
    assert_int_equal(fxi_memory_cached(), 64 * MIB);
    const uint64_t before = fx_stats().allocations;
    fxi_free(fxi_aligned(64, 32 * MIB));
    assert_int_equal(fx_stats().allocations, before);
    fxi_free(fxi_aligned(64, 100 * MIB)); /* more than the cache may hold */
    assert_int_equal(fxi_memory_cached(), 64 * MIB);
    fxi_reclaim_all();
}

/* Linux would grant the memory, and kill the process when it is written to. Runs last, because the
 * peak of live memory decides how much is cached. */
static void the_system_is_a_limit(void **state)
{
    (void)state;
    fxi_reclaim_all();
    enum { BESIDES = 64 << 20 };
    int64_t held;
    const int64_t most = fxi_system_memory_most(&held), before = live();
    fxi_buffer *b, *part;
    if (most < 0)
        skip();
    assert_true(most >= fxi_system_memory_total());
    assert_int_equal(fxi_buffer_need("test", fx_cpu_device(), (size_t)most + 4096, &b),
                     FX_STATUS_MEMORY);
    assert_non_null(strstr(fx_error_take().message, "no memory for"));
    assert_int_equal(fxi_buffer_need("test", fx_cpu_device(), 8 << 20, &part), FX_OK);
    /* Alone it would fit. */
    assert_int_equal(
        fxi_buffer_need("test", fx_cpu_device(), (size_t)(most - before) - (4 << 20), &b),
        FX_STATUS_MEMORY);
    fx_error_take();
    fxi_buffer_release(part);
    /* Other memory of the process counts too: this is more than is left, and would fit alone. */
    void *besides = malloc(BESIDES);
    assert_non_null(besides);
    memset(besides, 1, BESIDES);
    int64_t now;
    assert_true(fxi_system_memory_most(&now) == most);
    assert_true(now >= held + BESIDES);
    const size_t asked = (size_t)(most - held - BESIDES / 2);
    assert_int_equal(fxi_buffer_need("test", fx_cpu_device(), asked, &b), FX_STATUS_MEMORY);
    fx_error_take();
    free(besides);
    assert_int_equal(live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_bytes_are_counted),
        cmocka_unit_test(beyond_the_limit),
        cmocka_unit_test(an_error_hook_evaluates),
        cmocka_unit_test(what_is_kept_for_speed_goes_first),
        cmocka_unit_test(impossible_requests_free_nothing),
        cmocka_unit_test(copies_of_16_bits_count),
        cmocka_unit_test(reclaim_gives_back),
        cmocka_unit_test(allocations_that_fail),
        cmocka_unit_test(the_cache_follows_use),
        cmocka_unit_test(the_system_is_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
