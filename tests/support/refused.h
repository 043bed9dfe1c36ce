/* refused.h: checks that a call failed, and with which message. Include it after cmocka.h. */
#ifndef CFLUX_TEST_REFUSED_H
#define CFLUX_TEST_REFUSED_H

#include <cflux.h>
#include <string.h>

/* The message contains these words. */
static inline void refused(const void *x, fx_status status, const char *words)
{
    assert_true(fx_is_error(x));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, status);
    if (!strstr(e.message, words))
        fail_msg("\"%s\" does not say \"%s\"", e.message, words);
}

/* The message is exactly this. */
static inline void refused_exactly(const void *x, const char *message)
{
    assert_true(fx_is_error(x));
    assert_string_equal(fx_error_take().message, message);
}

#endif
