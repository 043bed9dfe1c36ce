/* layer_check.h: assertions for tests of layers. HOLDS(y, 1, 2): y has these elements.
 * refused(object, message): a constructor or a call failed with exactly this message. */
#ifndef CFLUX_TEST_LAYER_CHECK_H
#define CFLUX_TEST_LAYER_CHECK_H

#include "semantics_check.h"

static inline void holds(fx_array *x, int64_t n, const double *want)
{
    if (fx_is_error(x))
        fail_msg("%s", fx_error_take().message);
    assert_int_equal(fx_length(x), n);
    for (int64_t i = 0; i < n; i++)
        check_value("element", i, fx_at(x, i), want[i], 1e-6, 1e-6);
}
#define HOLDS(x, ...)                                                                              \
    holds((x), (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)),                  \
          (const double[]){__VA_ARGS__})

static inline void refused(void *object, const char *message)
{
    assert_true(fx_is_error(object));
    assert_string_equal(fx_error_take().message, message);
}

#endif
