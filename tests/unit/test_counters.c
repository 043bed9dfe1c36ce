/* test_counters.c: fx_stats adds up what all threads have counted: running ones, those that have
 * ended, and those without a memory cache.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>

#include "counters.h"
#include "memory.h"
#include "thread.h"

enum { THREADS = 4, EVALS = 50 };

static fxi_mutex lock = FXI_MUTEX_INIT;
static fxi_cond changed = FXI_COND_INIT;
static int counted;
static bool may_end;

static void evaluate(int times)
{
    FX_SCOPE;
    for (int i = 0; i < times; i++)
        if (fx_eval(fx_add(fx_ones(3), i)) != FX_OK)
            fail();
}

/* Evaluates, and ends when the main thread has read the counters. */
static void *evaluate_and_wait(void *user)
{
    evaluate(EVALS);
    fxi_mutex_lock(&lock);
    counted++;
    fxi_cond_wake_all(&changed);
    while (!may_end)
        fxi_cond_wait(&changed, &lock);
    fxi_mutex_unlock(&lock);
    return user;
}

static void assert_evals(const fx_counters *before, uint64_t more)
{
    const fx_counters now = fx_stats();
    assert_int_equal(now.evals - before->evals, more);
    assert_int_equal(now.steps_run - before->steps_run, more);
    assert_int_equal(now.plan_hits - before->plan_hits + now.plans_built - before->plans_built,
                     more);
}

static void threads_count_before_and_after_their_end(void **state)
{
    (void)state;
    fxi_thread threads[THREADS];
    evaluate(1);
    const fx_counters before = fx_stats();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fxi_thread_start(&threads[i], evaluate_and_wait, NULL), 0);
    fxi_mutex_lock(&lock);
    while (counted < THREADS)
        fxi_cond_wait(&changed, &lock);
    fxi_mutex_unlock(&lock);
    assert_evals(&before, THREADS * EVALS);
    fxi_mutex_lock(&lock);
    may_end = true;
    fxi_cond_wake_all(&changed);
    fxi_mutex_unlock(&lock);
    for (int i = 0; i < THREADS; i++)
        fxi_thread_join(threads[i]);
    assert_evals(&before, THREADS * EVALS);
    evaluate(2);
    assert_evals(&before, THREADS * EVALS + 2);
}

/* Counts before anything is allocated: the thread has no counters of its own. */
static void *count_only(void *user)
{
    if (fxi_own_counters)
        return user;
    fxi_count(&fxi_counters.transfers, 5);
    fxi_free(fxi_malloc(1));
    if (fxi_own_counters)
        fxi_count(&fxi_counters.transfers, 2);
    return NULL;
}

static void a_thread_without_a_cache_counts(void **state)
{
    (void)state;
    fxi_thread thread;
    const fx_counters before = fx_stats();
    assert_int_equal(fxi_thread_start(&thread, count_only, NULL), 0);
    fxi_thread_join(thread);
    assert_int_equal(fx_stats().transfers - before.transfers, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_count_before_and_after_their_end),
        cmocka_unit_test(a_thread_without_a_cache_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
