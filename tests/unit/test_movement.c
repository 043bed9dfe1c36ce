/* test_movement.c: slices, paddings, shapes and joins at all their edges: which arguments are
 * refused, and the elements of all other results. The rule for each element is written out here
 * with wide numbers. */
#include "composite_check.h"

enum { SIZE = 4 };

/* 1, 2, … in this shape. */
#define MATRIX(rows, columns) fx_reshape(fx_range(1, 1, (rows) * (columns)), rows, columns)

/* The elements first, first + step, …: the elements of fx_range(0, 1, SIZE) are their positions. */
static void check_slice(int64_t first, int64_t step, int64_t n)
{
    FX_SCOPE;
    fx_array *y = fx_slice_step(fx_range(0, 1, SIZE), 0, first, step, n);
    double want[CHECK_MOST];
    bool inside = n >= 0;
    for (int64_t i = 0; i < n; i++) {
        want[i] = (double)first + (double)i * (double)step;
        inside &= want[i] >= 0 && want[i] < SIZE;
    }
    if (inside)
        check_array("slice", y, n, want, 0, 0);
    else
        check_error(y, FX_STATUS_ARGUMENT, "are outside axis 0 of 4");
}

static void slices(void **state)
{
    (void)state;
    for (int64_t first = -2; first <= SIZE + 1; first++)
        for (int64_t step = -SIZE; step <= SIZE; step++)
            for (int64_t n = -1; n <= SIZE + 1; n++)
                check_slice(first, step, n);
    const int64_t far = INT64_C(1) << 62; /* 4 of these steps lead back to the first element */
    check_slice(1, far, 5);
    check_slice(1, -far, 5);
    check_slice(INT64_MAX, 1, 2);
    check_slice(INT64_MIN, -1, 2);
    check_error(fx_slice(fx_ones(3), 0, 2, 1), FX_STATUS_ARGUMENT, "stop 1 is before start 2");
    check_error(fx_slice(fx_ones(3), 0, INT64_MIN, INT64_MAX), FX_STATUS_ARGUMENT,
                "9223372036854775807 elements from index -9223372036854775808");
    check_error(fx_slice(fx_ones(3), 1, 0, 1), FX_STATUS_ARGUMENT, "axis 1");
    check_error(fx_slice(fx_ones(3), -1, 0, 1), FX_STATUS_ARGUMENT, "axis -1");
}

static void check_padding(int64_t before, int64_t after)
{
    FX_SCOPE;
    const int64_t size = SIZE + before + after;
    fx_array *y = fx_pad(fx_range(0, 1, SIZE), 0, before, after, 9);
    double want[CHECK_MOST];
    for (int64_t i = 0; i < size; i++) {
        const int64_t at = i - before;
        want[i] = at >= 0 && at < SIZE ? (double)at : 9;
    }
    if (before >= -SIZE && after >= -SIZE && size >= 0)
        check_array("pad", y, size, want, 0, 0);
    else
        check_error(y, FX_STATUS_ARGUMENT, "after axis 0 of 4");
}

static void paddings(void **state)
{
    (void)state;
    for (int64_t before = -SIZE - 1; before <= 3; before++)
        for (int64_t after = -SIZE - 1; after <= 3; after++)
            check_padding(before, after);
    FX_SCOPE;
    fx_array *x = fx_full_dtype(FX_DTYPE_I64, 1, 2, 1), *y = fx_pad(x, 1, 1, 0, -3);
    CHECK(y, (2, 2), 0, -3, -3, 1, 1);
    assert_int_equal(fx_eltype(y), FX_DTYPE_I64);
    CHECK(fx_pad(fx_ones(1), 0, 0, 1, 0.5), (2), 0, 1, 0.5);
    check_error(fx_pad(x, 2, 1, 1, 0), FX_STATUS_ARGUMENT, "axis 2");
}

static void shapes(void **state)
{
    (void)state;
    FX_SCOPE;
    static const struct {
        int n;
        int64_t sizes[9], want[9];
    } fit[] = {{1, {6}, {6}},
               {1, {-1}, {6}},
               {2, {3, -1}, {3, 2}},
               {2, {-1, 6}, {1, 6}},
               {3, {2, 1, 3}, {2, 1, 3}},
               {8, {1, 1, 1, 1, 1, 1, -1, 3}, {1, 1, 1, 1, 1, 1, 2, 3}}},
      unfit[] = {{1, {5}, {0}},
                 {2, {-1, -1}, {0}},
                 {2, {-1, 0}, {0}},
                 {2, {4, -1}, {0}},
                 {2, {-2, -3}, {0}},
                 {2, {INT64_C(1) << 62, 4}, {0}},
                 {2, {INT64_C(1) << 62, 8}, {0}},
                 {0, {0}, {0}}};
    fx_array *x = MATRIX(2, 3);
    static const double elements[] = {1, 2, 3, 4, 5, 6};
    for (int64_t i = 0; i < COUNT(fit); i++) {
        fx_array *y = fxi_reshape(x, fit[i].n, fit[i].sizes);
        check_dims("reshape", y, fit[i].n, fit[i].want);
        check_array("reshape", y, 6, elements, 0, 0);
    }
    for (int64_t i = 0; i < COUNT(unfit); i++)
        check_error(fxi_reshape(x, unfit[i].n, unfit[i].sizes), FX_STATUS_SHAPE,
                    "reshape: 2×3 (6 elements) does not fit into");
    check_error(fx_reshape(x, -1, -1), FX_STATUS_SHAPE, "-1×-1: only one size may be -1");
    const int64_t ones[9] = {1, 1, 1, 1, 1, 1, 1, 2, 3};
    check_error(fxi_reshape(x, 9, ones), FX_STATUS_ARGUMENT, "expected 0 to 8 axes, got 9");
    check_error(fxi_reshape(x, -1, ones), FX_STATUS_ARGUMENT, "expected 0 to 8 axes, got -1");
    check_dims("reshape", fx_reshape(fx_zeros(0, 3), -1, 3), 2, (const int64_t[]){0, 3});
}

static void permutations(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = MATRIX(2, 3);
    static const int64_t bad[][3] = {{0, 0},  {1, 1},    {0, 2},   {-1, 0},
                                     {0, -1}, {0, 1, 0}, {0, 1, 2}};
    for (int64_t i = 0; i < COUNT(bad); i++)
        check_error(fxi_permute(x, i < 5 ? 2 : 3, bad[i]), FX_STATUS_ARGUMENT,
                    "permute: expects each axis from 0 to 1 once");
    check_error(fxi_permute(x, 3, bad[6]), FX_STATUS_ARGUMENT, "once, got 0, 1, 2");
    check_error(fxi_permute(x, 1, bad[0]), FX_STATUS_ARGUMENT, "once, got 0");
    check_error(fxi_permute(x, 0, bad[0]), FX_STATUS_ARGUMENT, "once, got no axes");
    CHECK(fx_permute(x, 1, 0), (3, 2), 0, 1, 3, 5, 2, 4, 6);
    assert_ptr_equal(fx_permute(x, 0, 1), x);
}

static void expansions(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = MATRIX(2, 1);
    CHECK(fx_expand(x, 2, 2), (2, 2), 0, 1, 2, 1, 2);
    CHECK(fx_expand(x, 2, 1, 2), (2, 1, 2), 0, 1, 2, 1, 2);
    CHECK(fx_expand(x, 2, 1, 1), (2, 1, 1), 0, 1, 2);
    check_dims("expand", fx_expand(x, 2, 0), 2, (const int64_t[]){2, 0});
    assert_ptr_equal(fx_expand(x, 2, 1), x);
    check_error(fx_expand(x, 3, 1), FX_STATUS_SHAPE, "2×1 does not broadcast to 3×1");
    check_error(fx_expand(x, 2), FX_STATUS_SHAPE, "does not broadcast");
    check_error(fx_expand(x, 2, -1), FX_STATUS_SHAPE, "does not broadcast");
    check_error(fxi_expand(x, 9, (const int64_t[9]){2, 1, 1, 1, 1, 1, 1, 1, 1}), FX_STATUS_ARGUMENT,
                "expected 0 to 8 axes, got 9");
}

static void joins(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = MATRIX(2, 1), *wide = MATRIX(2, 2), *flat = fx_ones(2);
    CHECK(fx_concat(1, x, wide), (2, 3), 0, 1, 2, 1, 2, 3, 4);
    assert_ptr_equal(fx_concat(0, x), x);
    check_error(fx_concat(0, x, wide), FX_STATUS_SHAPE,
                "sizes differ in an axis other than 0: 2×1");
    check_error(fx_concat(0, flat, x), FX_STATUS_SHAPE, "sizes differ in an axis other than 0");
    check_error(fx_concat(2, x, x), FX_STATUS_ARGUMENT, "axis 2");
    check_error(fx_concat(-1, x, x), FX_STATUS_ARGUMENT, "axis -1");
    check_error(fxi_concat(0, 0, &x), FX_STATUS_ARGUMENT, "needs at least one array, got 0");
    fx_array *mixed =
        fx_concat(0, fx_full_dtype(FX_DTYPE_I32, 7, 1), fx_full_dtype(FX_DTYPE_F64, 0.5, 1));
    assert_int_equal(fx_eltype(mixed), FX_DTYPE_F64);
    CHECK(mixed, (2), 0, 7, 0.5);
    fx_array *half = fx_full_dtype(FX_DTYPE_U8, 7, INT64_C(1) << 58);
    check_error(fx_concat(0, half, half), FX_STATUS_ARGUMENT, "the product of the sizes overflows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices),       cmocka_unit_test(paddings),   cmocka_unit_test(shapes),
        cmocka_unit_test(permutations), cmocka_unit_test(expansions), cmocka_unit_test(joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
