/* Tests of src/ops/reductions.c: small integers whose sums, products and extremes are known by
 * hand, softmax against exp in long double, gradients of both orders against central differences;
 * empty arrays, infinities, NaN, 16-bit sums, and errors.
 */
#include "composite_check.h"

static const double inf = (double)INFINITY, nan_ = (double)NAN;

/* 2×3: columns (1, 4), (2, 5), (3, 6). */
static fx_array *matrix(fx_dtype dtype)
{
    return fx_cast(fx_from(FX_DTYPE_F32, ((const float[]){1, 4, 2, 5, 3, 6}), 2, 3), dtype);
}

static void axes_and_shapes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = matrix(FX_DTYPE_F32), *cube = fx_reshape(fx_range(1, 1, 24), 2, 3, 4);
    CHECK(fx_sum(x), (), 0, 21);
    CHECK(fx_sum(x, FX_AXES(0)), (1, 3), 0, 5, 7, 9);
    CHECK(fx_sum(x, .dims = FX_AXES(1)), (2, 1), 0, 6, 15);
    CHECK(fx_sum(x, FX_AXES(0, 1)), (1, 1), 0, 21);
    CHECK(fx_sum(x, FX_AXES(1), .drop = true), (2), 0, 6, 15);
    CHECK(fx_sum(x, FX_AXES(0, 1), .drop = true), (), 0, 21);
    CHECK(fx_sum(cube, FX_AXES(0, 2)), (1, 3, 1), 0, 84, 100, 116);
    CHECK(fx_sum(cube, FX_AXES(0, 2), .drop = true), (3), 0, 84, 100, 116);
    CHECK(fx_prod(x, FX_AXES(1)), (2, 1), 0, 6, 120);
    CHECK(fx_maximum(x, FX_AXES(0)), (1, 3), 0, 4, 5, 6);
    CHECK(fx_minimum(x, FX_AXES(1), .drop = true), (2), 0, 1, 4);
    CHECK(fx_sum(fx_scalar(3)), (), 0, 3);
    CHECK(fx_maximum(scalar32(2.5)), (), 0, 2.5);
}

static void moments(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = matrix(FX_DTYPE_F64);
    CHECK(fx_mean(x), (), 1e-15, 3.5);
    CHECK(fx_mean(x, FX_AXES(1)), (2, 1), 1e-15, 2, 5);
    CHECK(fx_var(x), (), 1e-15, 3.5); /* deviations ±2.5, ±1.5, ±0.5: 17.5/5 */
    CHECK(fx_var(x, .corrected = false), (), 1e-15, 17.5 / 6);
    CHECK(fx_var(x, FX_AXES(0)), (1, 3), 1e-15, 4.5, 4.5, 4.5);
    CHECK(fx_std(x, FX_AXES(1), .drop = true), (2), 1e-15, 1, 1);
    CHECK(fx_std(x, .corrected = false), (), 1e-15, sqrt(17.5 / 6));
    CHECK(fx_norm(x), (), 1e-15, sqrt(91));
    CHECK(fx_norm(x, FX_AXES(0)), (1, 3), 1e-15, sqrt(17), sqrt(29), sqrt(45));
    /* two passes: Σx² − n·mean² has no digits left here */
    fx_array *far = fx_add(fx_vector(1, 2, 3, 4), 1e6F);
    CHECK(fx_var(far), (), 1e-6, 5.0 / 3);
    CHECK(fx_var(fx_vector(7)), (), 0, nan_);
    CHECK(fx_var(fx_vector(7), .corrected = false), (), 0, 0);
}

/* The gradient is divided by the number of equal extremes, which Float16 cannot hold here. */
static void many_equal_extremes_share_the_gradient(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_full_dtype(FX_DTYPE_F16, 0, 70000), *g = NULL;
    assert_int_equal(fx_gradient_of(fx_maximum(x), &x, 1, &g), FX_OK);
    const double got = fx_at(fx_cast(g, FX_DTYPE_F64), 69999);
    assert_true(fabs(got * 70000 - 1) < 1e-2);
}

static void element_types(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_dtype integers[] = {FX_DTYPE_I32, FX_DTYPE_I64, FX_DTYPE_U8};
    for (size_t i = 0; i < COUNT(integers); i++) {
        fx_array *x = matrix(integers[i]);
        assert_int_equal(fx_eltype(fx_sum(x)), FX_DTYPE_I64);
        assert_int_equal(fx_eltype(fx_prod(x)), FX_DTYPE_I64);
        assert_int_equal(fx_eltype(fx_mean(x)), FX_DTYPE_F64);
        assert_int_equal(fx_eltype(fx_var(x)), FX_DTYPE_F64);
        assert_int_equal(fx_eltype(fx_maximum(x)), integers[i]);
        assert_int_equal(fx_eltype(fx_norm(x)), FX_DTYPE_F32);
        assert_int_equal(fx_eltype(fx_softmax(x)), FX_DTYPE_F32);
        CHECK(fx_mean(x), (), 0, 3.5);
    }
    const uint8_t bytes[] = {200, 100, 255};
    CHECK(fx_sum(fx_from(FX_DTYPE_U8, bytes, 3)), (), 0, 555);
    const int32_t large[] = {2000000000, 2000000000};
    CHECK(fx_sum(fx_from(FX_DTYPE_I32, large, 2)), (), 0, 4e9);
    fx_array *truth = fx_gt(matrix(FX_DTYPE_F32), 2);
    CHECK(fx_sum(truth), (), 0, 4);
    assert_int_equal(fx_eltype(fx_sum(truth)), FX_DTYPE_I64);
    assert_int_equal(fx_eltype(fx_mean(truth)), FX_DTYPE_F32);
    CHECK(fx_mean(truth), (), 1e-7, 4.0 / 6);
    assert_int_equal(fx_eltype(fx_sum(matrix(FX_DTYPE_F16))), FX_DTYPE_F16);
    /* the sum of these overflows Float16, their mean does not; BFloat16 cannot count beyond 256 */
    fx_array *half = fx_full_dtype(FX_DTYPE_F16, 60000, 8);
    assert_int_equal(fx_eltype(fx_mean(half)), FX_DTYPE_F16);
    CHECK(fx_mean(half), (), 0, 60000);
    CHECK(fx_mean(fx_full_dtype(FX_DTYPE_BF16, 1, 1000)), (), 0, 1);
    CHECK(fx_norm(fx_full_dtype(FX_DTYPE_F16, 300, 4)), (), 0, 600);
    CHECK(fx_maximum(fx_softmax(fx_full_dtype(FX_DTYPE_F16, 1, 1024))), (), 0, 1.0 / 1024);
}

static void logical_reductions(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = matrix(FX_DTYPE_F32), *over = fx_gt(x, 4),
             *nothing = fx_full_dtype(FX_DTYPE_BOOL, 0, 0, 2);
    CHECK(fx_any(over, FX_AXES(0)), (1, 3), 0, 0, 1, 1);
    CHECK(fx_all(over, FX_AXES(0)), (1, 3), 0, 0, 0, 0);
    CHECK(fx_any(over), (), 0, 1);
    CHECK(fx_all(fx_gt(x, 0)), (), 0, 1);
    CHECK(fx_any(nothing, FX_AXES(0)), (1, 2), 0, 0, 0);
    CHECK(fx_all(nothing), (), 0, 1);
    assert_int_equal(fx_eltype(fx_any(over)), FX_DTYPE_BOOL);
    check_error(fx_any(x), FX_STATUS_DTYPE, "any: takes Bool, got Float32");
    check_error(fx_all(x), FX_STATUS_DTYPE, "all: takes Bool");
}

static void softmax_and_its_logarithm(void **state)
{
    (void)state;
    FX_SCOPE;
    const double v[] = {1, 2, 3, -1, 0, 1000, 1000, 1001, 999};
    double s[9], l[9], e[3];
    for (int c = 0; c < 3; c++) {
        long double sum = 0, m = fmaxl(fmaxl(v[3 * c], v[3 * c + 1]), v[3 * c + 2]);
        for (int i = 0; i < 3; i++)
            sum += expl(v[3 * c + i] - m);
        for (int i = 0; i < 3; i++) {
            s[3 * c + i] = (double)(expl(v[3 * c + i] - m) / sum);
            l[3 * c + i] = (double)(v[3 * c + i] - m - logl(sum));
        }
        e[c] = (double)(m + logl(sum));
    }
    fx_array *x = fxi_from(FX_DTYPE_F64, v, 2, (const int64_t[]){3, 3});
    check_array("softmax", fx_softmax(x), 9, s, 4e-15, 0);
    check_array("logsoftmax", fx_logsoftmax(x), 9, l, 4e-15, 0);
    check_array("logsumexp", fx_logsumexp(x, FX_AXES(0)), 3, e, 4e-15, 0);
    fx_array *t = fx_transpose(x);
    check_array("softmax rows", fx_transpose(fx_softmax(t, FX_AXES(1))), 9, s, 4e-15, 0);
    check_array("logsumexp rows", fx_logsumexp(t, FX_AXES(1), .drop = true), 3, e, 4e-15, 0);
    CHECK(fx_logsumexp(fx_vector(0, 0, 0, 0)), (), 1e-6, log(4));
    CHECK(fx_sum(fx_softmax(x, FX_AXES(0, 1))), (), 1e-14, 1);
}

static void softmax_of_infinities(void **state)
{
    (void)state;
    FX_SCOPE;
    const float v[] = {-INFINITY, 0, -INFINITY, -INFINITY, INFINITY, 0, NAN, 0};
    fx_array *x = fx_from(FX_DTYPE_F32, v, 2, 4), *g = NULL;
    CHECK(fx_softmax(x), (2, 4), 0, 0, 1, nan_, nan_, nan_, 0 * nan_, nan_, nan_);
    CHECK(fx_logsoftmax(fx_slice(x, 1, 0, 1)), (2, 1), 0, -inf, 0);
    CHECK(fx_logsumexp(x, FX_AXES(0)), (1, 4), 0, 0, -inf, inf, nan_);
    fx_array *masked = fx_slice(x, 1, 0, 2);
    fx_gradient_of(fx_sum(fx_logsumexp(masked, FX_AXES(0), .drop = true)), &masked, 1, &g);
    CHECK(g, (2, 2), 0, 0, 1, 0, 0);
    fx_array *one = fx_slice(x, 1, 0, 1);
    fx_gradient_of(fx_sum(fx_mul(fx_softmax(one), fx_vector(2, 5))), &one, 1, &g);
    CHECK(g, (2, 1), 0, 0, 0);
}

static void index_of_extremes(void **state)
{
    (void)state;
    FX_SCOPE;
    const float v[] = {3, 7, 7, 1, NAN, 9, 2, 2, 5, -1, NAN, NAN};
    fx_array *x = fx_from(FX_DTYPE_F32, v, 3, 4);
    CHECK(fx_argmax(x, FX_AXES(0)), (1, 4), 0, 1, 1, 2, 1);
    CHECK(fx_argmin(x, FX_AXES(0)), (1, 4), 0, 0, 1, 0, 1);
    CHECK(fx_argmax(x, FX_AXES(1), .drop = true), (3), 0, 0, 1, 3);
    CHECK(fx_argmax(x), (), 0, 4);
    assert_int_equal(fx_eltype(fx_argmax(x)), FX_DTYPE_I64);
    fx_array *m = matrix(FX_DTYPE_I32);
    CHECK(fx_argmax(m), (), 0, 5);
    CHECK(fx_argmin(m, FX_AXES(1)), (2, 1), 0, 0, 0);
    CHECK(fx_argmax(fx_gt(m, 3), FX_AXES(1), .drop = true), (2), 0, 0, 0);
    CHECK(fx_argmax(fx_vector(-INFINITY, -INFINITY)), (), 0, 0);
    CHECK(fx_argmax(scalar32(4)), (), 0, 0);
    CHECK(fx_onecold(m), (3), 0, 1, 1, 1);
    check_error(fx_argmax(m, FX_AXES(0, 1)), FX_STATUS_ARGUMENT, "argmax: takes one axis");
    check_error(fx_argmin(fx_zeros(0, 2), FX_AXES(0)), FX_STATUS_SHAPE, "argmin");
    check_dims("argmax of no columns", fx_argmax(fx_zeros(2, 0), FX_AXES(0)), 2,
               (const int64_t[]){1, 0});
}

static void nothing_to_reduce(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_zeros(0, 2);
    CHECK(fx_sum(x), (), 0, 0);
    CHECK(fx_prod(x, FX_AXES(0)), (1, 2), 0, 1, 1);
    CHECK(fx_mean(x, FX_AXES(0)), (1, 2), 0, nan_, nan_);
    CHECK(fx_mean(x), (), 0, nan_);
    CHECK(fx_var(x), (), 0, nan_);
    CHECK(fx_norm(x), (), 0, 0);
    CHECK(fx_logsumexp(x), (), 0, -inf);
    check_dims("sum", fx_sum(x, FX_AXES(1)), 2, (const int64_t[]){0, 1});
    check_dims("maximum", fx_maximum(x, FX_AXES(1)), 2, (const int64_t[]){0, 1});
    check_dims("softmax", fx_softmax(x), 2, (const int64_t[]){0, 2});
    check_error(fx_maximum(x), FX_STATUS_SHAPE, "maximum");
    check_error(fx_minimum(x, FX_AXES(0)), FX_STATUS_SHAPE, "minimum");
}

/* ---- gradients ------------------------------------------------------------------------------- */

static fx_array *sum0(fx_array *x)
{
    return fx_sum(x, FX_AXES(0));
}
static fx_array *prod1(fx_array *x)
{
    return fx_prod(x, FX_AXES(1));
}
static fx_array *mean_all(fx_array *x)
{
    return fx_mean(x);
}
static fx_array *var0(fx_array *x)
{
    return fx_var(x, FX_AXES(0));
}
static fx_array *var_all(fx_array *x)
{
    return fx_var(x, .corrected = false);
}
static fx_array *std1(fx_array *x)
{
    return fx_std(x, FX_AXES(1), .drop = true);
}
static fx_array *maximum0(fx_array *x)
{
    return fx_square(fx_maximum(x, FX_AXES(0)));
}
static fx_array *minimum1(fx_array *x)
{
    return fx_square(fx_minimum(x, FX_AXES(1)));
}
static fx_array *norm0(fx_array *x)
{
    return fx_norm(x, FX_AXES(0));
}
static fx_array *softmax0(fx_array *x)
{
    return fx_softmax(x);
}
static fx_array *softmax1(fx_array *x)
{
    return fx_softmax(x, FX_AXES(1));
}
static fx_array *logsoftmax0(fx_array *x)
{
    return fx_logsoftmax(x);
}
static fx_array *logsumexp1(fx_array *x)
{
    return fx_logsumexp(x, FX_AXES(1));
}
static fx_array *logsumexp_all(fx_array *x)
{
    return fx_logsumexp(x);
}

static void gradients_match_central_differences(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unary_fn f;
    } cases[] = {{"sum", sum0},
                 {"prod", prod1},
                 {"mean", mean_all},
                 {"var", var0},
                 {"var all", var_all},
                 {"std", std1},
                 {"maximum", maximum0},
                 {"minimum", minimum1},
                 {"norm", norm0},
                 {"softmax", softmax0},
                 {"softmax rows", softmax1},
                 {"logsoftmax", logsoftmax0},
                 {"logsumexp", logsumexp1},
                 {"logsumexp all", logsumexp_all}};
    static const double at[] = {0.3, -1.2, 0.7, 2.1, -0.4, 1.6, 0.9, -0.8, 1.1, 0.2, -1.7, 0.5};
    const int64_t sizes[] = {4, 3};
    for (size_t k = 0; k < COUNT(cases); k++)
        check_gradients(cases[k].name, cases[k].f, at, 2, sizes, 2e-8);
}

static void gradients_where_formulas_break(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *zero = fx_zeros(3), *same = fx_full(2, 4), *g = NULL;
    fx_gradient_of(fx_norm(zero), &zero, 1, &g);
    CHECK(g, (3), 0, 0, 0, 0);
    fx_gradient_of(fx_std(same), &same, 1, &g);
    CHECK(g, (4), 0, 0, 0, 0, 0);
    fx_array *tie = fx_vector(1, 5, 5, 2, 5);
    fx_gradient_of(fx_maximum(tie), &tie, 1, &g); /* shared evenly */
    CHECK(g, (5), 1e-7, 0, 1.0 / 3, 1.0 / 3, 0, 1.0 / 3);
    fx_array *factor = fx_vector(2, 0, 3);
    fx_gradient_of(fx_prod(factor), &factor, 1, &g);
    CHECK(g, (3), 0, 0, 6, 0);
}

static void errors(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = matrix(FX_DTYPE_F32), *bad = fx_error_array(FX_STATUS_IO);
    check_error(fx_softmax(x, FX_AXES(3)), FX_STATUS_ARGUMENT,
                "softmax: there is no axis 3: the array has 2 axes (");
    check_error(fx_sum(x, FX_AXES(0, 2)), FX_STATUS_ARGUMENT,
                "sum: there is no axis 2: the array has 2 axes (");
    check_error(fx_argmax(x, FX_AXES(2)), FX_STATUS_ARGUMENT,
                "argmax: there is no axis 2: the array has 2 axes (");
    check_error(fx_softmax(scalar32(1)), FX_STATUS_ARGUMENT,
                "softmax: there is no axis 0: the array has 0 axes (scalar)");
    check_error(fx_mean((fx_array *)NULL), FX_STATUS_ARGUMENT, "mean: an argument is NULL");
    assert_int_equal(fx_array_status(fx_sum(bad)), FX_STATUS_IO);
    assert_int_equal(fx_array_status(fx_softmax(bad)), FX_STATUS_IO);
    assert_int_equal(fx_array_status(fx_argmax(bad)), FX_STATUS_IO);
    assert_int_equal(fx_error_status(), FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_equal_extremes_share_the_gradient),
        cmocka_unit_test(axes_and_shapes),
        cmocka_unit_test(moments),
        cmocka_unit_test(element_types),
        cmocka_unit_test(logical_reductions),
        cmocka_unit_test(softmax_and_its_logarithm),
        cmocka_unit_test(softmax_of_infinities),
        cmocka_unit_test(index_of_extremes),
        cmocka_unit_test(nothing_to_reduce),
        cmocka_unit_test(gradients_match_central_differences),
        cmocka_unit_test(gradients_where_formulas_break),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
