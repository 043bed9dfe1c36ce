/* test_arguments.c: invalid arguments are refused with a message and change nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "refused.h"

static void padding_that_makes_no_size(void **state)
{
    (void)state;
    FX_SCOPE;
    refused(fx_pad(fx_zeros(5), 0, INT64_MAX, INT64_MAX, 0), FX_STATUS_ARGUMENT, "axis 0 of 5");
    refused(fx_pad(fx_ones(2), 0, INT64_MAX - 1, 0, 0), FX_STATUS_ARGUMENT, "pad");
    refused(fx_pad(fx_ones(2), 0, INT64_MIN, 0, 0), FX_STATUS_ARGUMENT, "axis 0 of 2");
    refused(fx_pad(fx_ones(2), 0, -2, -1, 0), FX_STATUS_ARGUMENT, "axis 0 of 2");
    assert_int_equal(fx_length(fx_pad(fx_ones(4), 0, -3, -1, 0)), 0);
    fx_array *y = fx_pad(fx_ones(1), 0, -1, 2, (double)-INFINITY);
    assert_int_equal(fx_length(y), 2);
    assert_true(isinf(fx_at(y, 0)) && fx_at(y, 1) < 0);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void a_gradient_of_another_shape_is_no_gradient(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_vector(1, 2, 3, 4);
    void *opt = fx_setup(fx_descent(.eta = 1), w);
    assert_int_equal(fx_update(opt, w, fx_vector(1)), FX_STATUS_SHAPE);
    const fx_error e = fx_error_take();
    assert_non_null(strstr(e.message, "update"));
    assert_non_null(strstr(e.message, "1-element Vector{Float32}"));
    assert_non_null(strstr(e.message, "4-element Vector{Float32}"));
    for (int i = 0; i < 4; i++)
        assert_true(fx_at(w, i) == i + 1);
}

static void a_window_that_does_not_fit_is_named(void **state)
{
    (void)state;
    FX_SCOPE;
    refused(fx_pool_max(fx_zeros(5, 5, 1, 1), FX_DIMS(6, 7)), FX_STATUS_SHAPE, "window of 6×7");
}

/* An empty array has strides as well. */
static void sizes_that_overflow(void **state)
{
    (void)state;
    FX_SCOPE;
    const int64_t huge = INT64_C(1) << 31;
    refused(fx_zeros(huge, huge, huge), FX_STATUS_ARGUMENT, "overflow");
    refused(fx_zeros(huge, huge, huge, 0), FX_STATUS_ARGUMENT, "overflow");
    refused(fx_zeros(0, huge, huge, huge), FX_STATUS_ARGUMENT, "overflow");
    assert_int_equal(fx_length(fx_zeros(huge, 0)), 0);
}

static void null_memory_is_refused(void **state)
{
    (void)state;
    FX_SCOPE;
    refused(fx_from(FX_DTYPE_F32, NULL, 3), FX_STATUS_ARGUMENT, "NULL");
    refused(fx_borrow(FX_DTYPE_F32, NULL, NULL, NULL, 3), FX_STATUS_ARGUMENT, "NULL");
    assert_int_equal(fx_length(fx_from(FX_DTYPE_F32, NULL, 0)), 0);
    fx_array *x = fx_ones(3);
    assert_int_equal(fx_read_into(x, NULL, 12), FX_STATUS_ARGUMENT);
    fx_error_take();
    fx_array *g = fx_withgradient(fx_sum(fx_square(x)), x, NULL);
    assert_true(fx_at(g, 1) == 2);
    refused(fx_descent(.eta = (double)NAN), FX_STATUS_ARGUMENT, "learning rate");
}

static void devices_and_states_can_be_shown(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[1024];
    fx_show_text(fx_cpu_device(), text, sizeof text);
    assert_string_equal(text, "CPU");
    fx_array *w = fx_ones(3);
    fx_show_text(fx_setup(fx_descent(.eta = 0.5), w), text, sizeof text);
    assert_string_equal(text, "Leaf(Descent(0.5), nothing)");
    fx_show_text(fx_setup(fx_adam(), w), text, sizeof text);
    assert_string_equal(text,
                        "Leaf(Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8), "
                        "(3-element Vector{Float32}, 3-element Vector{Float32}, (0.9, 0.999)))");
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* The calls of every function with a `.mask`, and of layers that take a mask as an input. */
static void *recur(fx_array *mask)
{
    return fx_recur(fx_rnn(2, 3), fx_ones(2, 4, 4), .mask = mask);
}
static void *recur_both_ways(fx_array *mask)
{
    return fx_recur(fx_bidirectional(fx_rnn(2, 3), fx_rnn(2, 3)), fx_ones(2, 4, 4), .mask = mask);
}
static void *attention(fx_array *mask)
{
    fx_array *x = fx_ones(2, 4);
    return fx_child(fx_dot_product_attention(x, x, x, .mask = mask), 0);
}
static void *attention_scores(fx_array *mask)
{
    fx_array *x = fx_ones(2, 4);
    return fx_dot_product_attention_scores(x, x, .mask = mask);
}
static void *attend(fx_array *mask)
{
    return fx_child(fx_attend(fx_multiheadattention(2, .nheads = 1), fx_ones(2, 4), .mask = mask),
                    0);
}
static void *transformerblock(fx_array *mask)
{
    return fx_call(fx_transformerblock(2, .nheads = 1), fx_ones(2, 4), mask);
}

static void a_mask_is_Bool(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void *(*call)(fx_array *mask);
    } rows[] = {
        {"recur", recur},
        {"recur, Bidirectional", recur_both_ways},
        {"dot_product_attention", attention},
        {"dot_product_attention_scores", attention_scores},
        {"attend", attend},
        {"TransformerBlock", transformerblock},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int type = 0; type < FX_DTYPE_COUNT; type++) {
            FX_SCOPE;
            void *y = rows[i].call(fx_cast(fx_ones(4, 4), (fx_dtype)type));
            if (fx_is_error(y) != (type != FX_DTYPE_BOOL))
                fail_msg("%s with a mask of %s: %s", rows[i].name, fx_dtype_name((fx_dtype)type),
                         fx_error_take().message);
            if (fx_is_error(y))
                refused(y, FX_STATUS_DTYPE, "expected Bool");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_that_makes_no_size),
        cmocka_unit_test(a_gradient_of_another_shape_is_no_gradient),
        cmocka_unit_test(a_window_that_does_not_fit_is_named),
        cmocka_unit_test(sizes_that_overflow),
        cmocka_unit_test(null_memory_is_refused),
        cmocka_unit_test(devices_and_states_can_be_shown),
        cmocka_unit_test(a_mask_is_Bool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
