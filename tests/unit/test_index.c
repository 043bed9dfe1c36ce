/* test_index.c: gathers and scatters along every axis, their element types, and what is refused. */
#include "composite_check.h"

static fx_array *indices(int ndims, const int64_t *sizes, const int64_t *v)
{
    return fxi_from(FX_DTYPE_I64, v, ndims, sizes);
}

/* Element (…, i, j, …) of the result is element (…, index[i, j], …) of x, for the axes of 2×3×2. */
static void gathers_along_every_axis(void **state)
{
    (void)state;
    FX_SCOPE;
    static const int64_t sizes[3] = {2, 3, 2}, pick[6] = {1, 0, 1, 1, 0, 1}, square[2] = {2, 3};
    fx_array *x = fx_reshape(fx_range(0, 1, 12), 2, 3, 2), *idx = indices(2, square, pick);
    for (int axis = 0; axis < 3; axis++) {
        int64_t shape[4], n = 0, inner = 1, outer = 1;
        double want[CHECK_MOST];
        for (int i = 0; i < 4; i++)
            shape[i] = i < axis ? sizes[i] : i < axis + 2 ? square[i - axis] : sizes[i - 1];
        for (int i = 0; i < 3; i++)
            *(i < axis ? &inner : &outer) *= i == axis ? 1 : sizes[i];
        for (int64_t o = 0; o < outer; o++)
            for (int64_t p = 0; p < 6; p++)
                for (int64_t i = 0; i < inner; i++)
                    want[n++] = (double)(i + inner * (pick[p] + sizes[axis] * o));
        fx_array *y = fx_gather(x, idx, axis);
        check_dims("gather", y, 4, shape);
        check_array("gather", y, n, want, 0, 0);
    }
}

static void scatters_of_every_kind(void **state)
{
    (void)state;
    FX_SCOPE;
    static const int64_t four[] = {4}, to[] = {2, 0, 2, 2};
    const float values[] = {3, 5, 2, 7};
    const uint8_t bits[] = {1, 0, 1, 1};
    fx_array *idx = indices(1, four, to), *x = fxi_from(FX_DTYPE_F32, values, 1, four);
    fx_array *b = fxi_from(FX_DTYPE_BOOL, bits, 1, four);
    CHECK(fx_scatter(FX_REDUCE_SUM, x, idx, 0, 3), (3), 0, 5, 0, 12);
    CHECK(fx_scatter(FX_REDUCE_PROD, x, idx, 0, 3), (3), 0, 5, 1, 42);
    CHECK(fx_scatter(FX_REDUCE_MEAN, x, idx, 0, 3), (3), 0, 5, 0, 4);
    CHECK(fx_scatter(FX_REDUCE_SUM, b, idx, 0, 3), (3), 0, 0, 0, 3);
    CHECK(fx_scatter(FX_REDUCE_PROD, b, idx, 0, 3), (3), 0, 0, 1, 1);
    CHECK(fx_scatter(FX_REDUCE_MEAN, b, idx, 0, 3), (3), 0, 0, 0, 1);
    CHECK(fx_scatter(FX_REDUCE_MAX, b, indices(1, four, (const int64_t[]){0, 0, 1, 1}), 0, 2), (2),
          0, 1, 1);
    CHECK(fx_scatter(FX_REDUCE_MIN, b, indices(1, four, (const int64_t[]){0, 0, 1, 1}), 0, 2), (2),
          0, 0, 1);
    assert_int_equal(fx_eltype(fx_scatter(FX_REDUCE_SUM, b, idx, 0, 3)), FX_DTYPE_I64);
    assert_int_equal(fx_eltype(fx_scatter(FX_REDUCE_PROD, b, idx, 0, 3)), FX_DTYPE_I64);
    assert_int_equal(fx_eltype(fx_scatter(FX_REDUCE_MIN, b, idx, 0, 3)), FX_DTYPE_BOOL);
    assert_int_equal(fx_eltype(fx_scatter(FX_REDUCE_MEAN, b, idx, 0, 3)), FX_DTYPE_F32);
    fx_array *columns = fx_scatter(FX_REDUCE_MEAN, fx_reshape(fx_range(1, 1, 8), 2, 4), idx, 1, 3);
    CHECK(columns, (2, 3), 0, 3, 4, 0, 0, 13.0F / 3, 16.0F / 3);
}

/* The derivative by a factor is the product of the others, also if it is 0. */
static void products_have_gradients_at_zero(void **state)
{
    (void)state;
    FX_SCOPE;
    static const int64_t seven[] = {7}, to[] = {0, 0, 1, 1, 1, 2, 2};
    const float values[] = {0, 2, 0, 3, 0, 4, 5};
    fx_array *x = fxi_from(FX_DTYPE_F32, values, 1, seven), *g = NULL;
    fx_array *y = fx_scatter(FX_REDUCE_PROD, x, indices(1, seven, to), 0, 3);
    assert_int_equal(fx_gradient_of(fx_sum(y), &x, 1, &g), FX_OK);
    CHECK(g, (7), 0, 2, 0, 0, 0, 0, 5, 4);
}

static void indices_that_do_not_fit(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_ones(2, 3), *idx = fx_full_dtype(FX_DTYPE_I64, 0, 3), *deep, *bad = fx_ones(3);
    fx_array *truth = fx_full_dtype(FX_DTYPE_BOOL, 0, 3);
    deep = fx_full_dtype(FX_DTYPE_I64, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    check_error(fx_gather(x, deep, 0), FX_STATUS_ARGUMENT, "the result would have 9 axes");
    check_dims("gather", fx_gather(fx_ones(2), deep, 0), 8,
               (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
    check_error(fx_gather(x, bad, 0), FX_STATUS_DTYPE, "indices must be integers, got Float32");
    check_error(fx_gather(x, truth, 0), FX_STATUS_DTYPE, "indices must be integers, got Bool");
    check_error(fx_gather(x, idx, 2), FX_STATUS_ARGUMENT,
                "gather: there is no axis 2: the array has 2 axes (");
    check_error(fx_gather(x, idx, -1), FX_STATUS_ARGUMENT,
                "gather: there is no axis -1: the array has 2 axes (");
    check_error(fx_scatter(FX_REDUCE_SUM, x, bad, 1, 3), FX_STATUS_DTYPE, "got Float32");
    check_error(fx_scatter(FX_REDUCE_SUM, x, truth, 1, 3), FX_STATUS_DTYPE, "got Bool");
    check_error(fx_scatter(FX_REDUCE_SUM, x, idx, 0, 3), FX_STATUS_SHAPE,
                "source 2×3 does not match indices 3 at axis 0");
    check_error(fx_scatter(FX_REDUCE_SUM, x, idx, -1, 3), FX_STATUS_ARGUMENT,
                "scatter: there is no axis -1: the result has 2 axes");
    check_error(fx_scatter(FX_REDUCE_SUM, x, idx, 2, 3), FX_STATUS_ARGUMENT,
                "scatter: there is no axis 2: the result has 2 axes");
    check_error(fx_scatter(FX_REDUCE_MEAN, x, idx, 2, 3), FX_STATUS_ARGUMENT,
                "scatter: there is no axis 2: the result has 2 axes");
    check_error(fx_scatter(FX_REDUCE_SUM, x, idx, 1, -1), FX_STATUS_ARGUMENT,
                "scatter: n is -1, expected at least 0");
    check_error(fx_scatter(FX_REDUCE_SUM, fx_ones(1, 1, 1, 1, 1, 1, 1, 1), fx_sum(idx), 8, 3),
                FX_STATUS_ARGUMENT, "scatter: the result would have 9 axes; the maximum is 8");
    check_error(fx_scatter(FX_REDUCE_SUM, x, deep, 0, 3), FX_STATUS_SHAPE,
                "does not match indices");
    check_dims(
        "scatter",
        fx_scatter(FX_REDUCE_SUM, fx_ones(2, 0), indices(1, (const int64_t[]){0}, NULL), 1, 0), 2,
        (const int64_t[]){2, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_along_every_axis),
        cmocka_unit_test(scatters_of_every_kind),
        cmocka_unit_test(products_have_gradients_at_zero),
        cmocka_unit_test(indices_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
