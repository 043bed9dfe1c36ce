/* test_thread.c: threads, locks and the ends of threads. ctest: threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "thread.h"

static fxi_mutex lock = FXI_MUTEX_INIT;
static fxi_cond changed = FXI_COND_INIT;
static fxi_thread_value value;
static int turn, ended, failures; /* under the lock */

static void at_end(void *number)
{
    fxi_mutex_lock(&lock);
    ended += *(int *)number;
    fxi_mutex_unlock(&lock);
}

/* Waits until the turn has the thread's number and increases it. */
static void *take_turn(void *number)
{
    const int mine = *(int *)number;
    const bool set = fxi_thread_value_set(value, number);
    fxi_mutex_lock(&lock);
    while (turn != mine)
        fxi_cond_wait(&changed, &lock);
    turn++;
    fxi_cond_wake_all(&changed);
    failures += !set;
    fxi_mutex_unlock(&lock);
    return NULL;
}

static void threads_take_turns_and_say_when_they_end(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    fxi_thread threads[THREADS];
    int numbers[THREADS];
    assert_true(fxi_thread_value_init(&value, at_end));
    for (int i = THREADS - 1; i >= 0; i--) {
        numbers[i] = i + 1;
        assert_int_equal(fxi_thread_start(&threads[i], take_turn, &numbers[i]), 0);
    }
    fxi_mutex_lock(&lock);
    turn = 1;
    fxi_cond_wake_all(&changed);
    fxi_mutex_unlock(&lock);
    for (int i = 0; i < THREADS; i++)
        fxi_thread_join(threads[i]);
    assert_int_equal(turn, THREADS + 1);
    assert_int_equal(failures, 0);
    assert_int_equal(ended, 1 + 2 + 3 + 4);
}

static void *blocked_signals(void *out)
{
    pthread_sigmask(SIG_SETMASK, NULL, out);
    return NULL;
}

/* The signal mask of the starting thread is unchanged. */
static void a_thread_gets_no_signals(void **state)
{
    (void)state;
    sigset_t inside, before, after;
    fxi_thread thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_false(sigismember(&before, SIGINT));
    assert_int_equal(fxi_thread_start(&thread, blocked_signals, &inside), 0);
    fxi_thread_join(thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_true(sigismember(&inside, SIGINT) && sigismember(&inside, SIGTERM));
    assert_false(sigismember(&after, SIGINT));
}

static void clocks_go_on(void **state)
{
    (void)state;
    char text[32];
    const int64_t before = fxi_clock_nanoseconds();
    const double seconds = fxi_clock();
    fxi_sleep_milliseconds(2);
    assert_true(fxi_clock_nanoseconds() - before >= 2000000);
    assert_true(fxi_clock() - seconds >= 0.002);
    fxi_clock_utc(text, sizeof text);
    int year, month, day, hour, minute, second, n = 0;
    assert_int_equal(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &year, &month, &day, &hour, &minute,
                            &second, &n),
                     6);
    assert_int_equal(n, strlen(text));
    assert_int_equal(n, 20);
    assert_true(year >= 2024 && month >= 1 && month <= 12 && day >= 1 && day <= 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_take_turns_and_say_when_they_end),
        cmocka_unit_test(a_thread_gets_no_signals),
        cmocka_unit_test(clocks_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
