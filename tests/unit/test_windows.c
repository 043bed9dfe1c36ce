/* test_windows.c: how options become windows along spatial axes, for convolutions, their transposes
 * and pools: the sizes of results, counted out window by window, and what is refused. */
#include "composite_check.h"

/* Returns the number of windows of k elements inside an axis of n elements and its padding; −1:
 * none. */
static int64_t windows(int64_t n, int64_t k, int64_t stride, int64_t pad, int64_t dilation)
{
    int64_t count = 0;
    for (int64_t first = -pad; first + (k - 1) * dilation < n + pad; first += stride)
        count++;
    return count ? count : -1;
}

static void check_sizes(fx_array *y, int64_t count)
{
    if (count < 0)
        check_error(y, FX_STATUS_SHAPE, "is larger than");
    else
        check_dims("windows", y, 3, (const int64_t[]){count, 2, 3});
}

/* One axis, 2 channels, 3 images. */
static void sizes_are_counts_of_windows(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 5; n++)
        for (int64_t k = 1; k <= 3; k++)
            for (int64_t s = 1; s <= 3; s++)
                for (int64_t p = 0; p <= 1; p++)
                    for (int64_t d = 1; d <= 2; d++) {
                        FX_SCOPE;
                        fx_array *x = fx_ones(n, 2, 3), *w = fx_ones(k, 2, 2);
                        check_sizes(fx_convolve(x, w, .stride = FX_DIMS(s), .pad = FX_DIMS(p),
                                                .dilation = FX_DIMS(d)),
                                    windows(n, k, s, p, d));
                        check_sizes(fx_pool_max(x, FX_DIMS(k), .stride = FX_DIMS(s),
                                                .pad = FX_DIMS(p), .dilation = FX_DIMS(d)),
                                    windows(n, k, s, p, d));
                    }
}

/* The result of a transpose is the data that a convolution with the same options makes x's size of:
 * the least one, and `outpad` more. */
static void transposes_go_back(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 4; n++)
        for (int64_t k = 1; k <= 3; k++)
            for (int64_t s = 1; s <= 3; s++)
                for (int64_t p = 0; p <= 1; p++)
                    for (int64_t more = 0; more < s; more++) {
                        FX_SCOPE;
                        int64_t least = 0;
                        while (least < 20 && windows(least, k, s, p, 1) != n)
                            least++;
                        fx_array *y = fx_convolve_transposed(
                            fx_ones(n, 2, 3), fx_ones(k, 2, 2), .stride = FX_DIMS(s),
                            .pad = FX_DIMS(p), .outpad = FX_DIMS(more));
                        const int64_t want = (n - 1) * s + k < 2 * p ? -1 : least;
                        if (want + more < 0)
                            check_error(y, FX_STATUS_SHAPE, "a negative size");
                        else
                            check_sizes(y, want + more);
                    }
}

static void every_axis_has_its_own_options(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(8, 9, 4, 2), *w = fx_ones(3, 2, 2, 6);
    check_dims("conv",
               fx_convolve(x, w, .stride = FX_DIMS(1, 2), .pad = FX_DIMS(1, 0, 2, 3),
                           .dilation = FX_DIMS(2, 3), .groups = 2),
               4, (const int64_t[]){8 + 1 - 4, (9 + 5 - 3 - 1) / 2 + 1, 6, 2});
    check_dims("maxpool", fx_pool_max(x, FX_DIMS(2, 3), .pad = FX_DIMS(0, 1)), 4,
               (const int64_t[]){4, (9 + 2 - 3) / 3 + 1, 4, 2});
    check_dims("transpose",
               fx_convolve_transposed(x, fx_ones(3, 2, 5, 4), .stride = FX_DIMS(2, 1),
                                      .pad = FX_DIMS(1, 0, 0, 1), .groups = 2,
                                      .outpad = FX_DIMS(1, 0)),
               4, (const int64_t[]){7 * 2 + 3 - 1 + 1, 8 + 2 - 1, 10, 2});
    assert_int_equal(fx_error_status(), FX_OK);
}

static void options_that_make_no_sense(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(4, 4, 2, 1), *w = fx_ones(2, 2, 2, 2);
    const int64_t huge = (int64_t)INT32_MAX + 1;
    check_error(fx_convolve(x, w, .stride = FX_DIMS(1, 1, 1)), FX_STATUS_ARGUMENT,
                "stride has 3 numbers for 2 spatial axes");
    check_error(fx_convolve(x, w, .stride = FX_DIMS(0)), FX_STATUS_ARGUMENT,
                "stride is 0, expected 1 to 2147483647");
    check_error(fx_convolve(x, w, .stride = FX_DIMS(1, huge)), FX_STATUS_ARGUMENT,
                "stride is 2147483648, expected 1 to 2147483647");
    check_error(fx_convolve(x, w, .dilation = FX_DIMS(1, 0)), FX_STATUS_ARGUMENT,
                "dilation is 0, expected 1 to 2147483647");
    check_error(fx_convolve(x, w, .pad = FX_DIMS(1, 1, 1)), FX_STATUS_ARGUMENT,
                "pad has 3 numbers for 2 spatial axes");
    check_error(fx_convolve(x, w, .pad = FX_DIMS(-1)), FX_STATUS_ARGUMENT,
                "pad is -1, expected 0 to 2147483647");
    check_error(fx_convolve(x, w, .pad = FX_DIMS(-1, 0, 0, 0)), FX_STATUS_ARGUMENT,
                "pad is -1, expected 0 to 2147483647");
    check_error(fx_convolve(x, w, .pad = FX_DIMS(0, -1, 0, 0)), FX_STATUS_ARGUMENT,
                "pad is -1, expected 0 to 2147483647");
    check_error(fx_convolve(x, w, .pad = FX_DIMS(0, 0, huge, 0)), FX_STATUS_ARGUMENT,
                "pad is 2147483648, expected 0 to");
    check_error(fx_convolve(x, w, .pad = FX_DIMS(0, 0, 0, huge)), FX_STATUS_ARGUMENT,
                "pad is 2147483648, expected 0 to");
    check_error(fx_convolve(x, w, .groups = 0), FX_STATUS_ARGUMENT, "groups is 0");
    check_error(fx_convolve(x, w, .groups = huge), FX_STATUS_ARGUMENT, "groups is 2147483648");
    check_error(fx_convolve_transposed(x, w, .outpad = FX_DIMS(-1)), FX_STATUS_ARGUMENT,
                "outpad is -1, expected 0 to 2147483647");
    check_error(fx_pool_max(x, FX_DIMS(0, 1)), FX_STATUS_ARGUMENT,
                "window is 0, expected 1 to 2147483647");
    check_error(fx_pool_max(x, FX_DIMS(1, 1, 1)), FX_STATUS_ARGUMENT,
                "window has 3 numbers for 2 spatial axes");
    check_error(fx_pool_max(x, FX_DIMS(2), .stride = FX_DIMS(0)), FX_STATUS_ARGUMENT,
                "stride is 0, expected 1 to 2147483647");
    check_error(fx_convolve(fx_ones(4, 2), fx_ones(2, 2)), FX_STATUS_SHAPE,
                "expects x with 1 to 3 spatial axes");
    check_error(fx_convolve(x, fx_ones(2, 2, 2)), FX_STATUS_SHAPE, "w is 2×2×2");
    check_error(fx_convolve(x, fx_ones(2, 2, 3, 2)), FX_STATUS_SHAPE,
                "conv: channels do not match");
    check_error(fx_convolve(x, fx_ones(2, 2, 1, 3), .groups = 2), FX_STATUS_SHAPE, "2 groups");
    check_error(fx_convolve_transposed(x, fx_ones(2, 2, 2, 3)), FX_STATUS_SHAPE,
                "conv_transpose: channels");
    check_error(fx_convolve_transposed(fx_ones(0, 2, 1), fx_ones(2, 2, 2)), FX_STATUS_SHAPE,
                "a spatial axis of x is empty: x is 0×2×1");
    check_error(fx_pool_max(fx_ones(4, 2), FX_DIMS(1)), FX_STATUS_SHAPE, "x has 2 axes");
    check_error(fx_pool_max(fx_ones(1, 1, 1, 1, 1, 1), FX_DIMS(1)), FX_STATUS_SHAPE,
                "x has 6 axes");
    check_error(fx_pool_max(x), FX_STATUS_SHAPE, "and a window");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_counts_of_windows),
        cmocka_unit_test(transposes_go_back),
        cmocka_unit_test(every_axis_has_its_own_options),
        cmocka_unit_test(options_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
