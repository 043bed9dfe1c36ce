/* test_thread_end.c: thread-local variables last until the functions at a thread's end have run.
 * ctest: threads */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "thread.h"

static fxi_thread_value value;
static _Thread_local int number;
static int found; /* read when the thread has been joined */

static void at_end(void *expected)
{
    found += number == *(int *)expected;
}

static void *set_both(void *expected)
{
    number = *(int *)expected;
    return fxi_thread_value_set(value, expected) ? expected : NULL;
}

/* Also if the program used a _Thread_local variable before it asked to be called. */
static void thread_local_variables_exist_until_the_end(void **state)
{
    (void)state;
    number = 1;
    assert_true(fxi_thread_value_init(&value, at_end));
    for (int i = 2; i < 6; i++) {
        fxi_thread thread;
        assert_int_equal(fxi_thread_start(&thread, set_both, &i), 0);
        fxi_thread_join(thread);
        assert_int_equal(found, i - 1);
    }
    assert_int_equal(number, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_local_variables_exist_until_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
