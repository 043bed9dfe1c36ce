/* plan_steps.h: compares the steps of a plan, as text, with expected lines or words. Include it
 * after cmocka.h.
 */
#ifndef CFLUX_TEST_PLAN_STEPS_H
#define CFLUX_TEST_PLAN_STEPS_H

#include <cflux.h>
#include <string.h>

/* The step lines of the plan of x, without the first line; valid until the next call. */
static inline const char *plan_of(void *x)
{
    static char text[8192];
    assert_true(fx_plan_text(x, text, sizeof text) < sizeof text);
    const char *first = strchr(text, '\n');
    assert_non_null(first);
    return first + 1;
}

static inline void expect(void *x, const char *steps)
{
    assert_string_equal(plan_of(x), steps);
}

/* How often the text contains the part. */
static inline int times(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

#endif
