/* Tests of src/ops/composites.c: values against libm in long double, remainders and rounding
 * against C's own, logic as truth tables, first and second gradients against central differences.
 */
#include "composite_check.h"

static const double inf = (double)INFINITY, nan_ = (double)NAN;
typedef long double real;

static fx_array *clamp11(fx_array *x)
{
    return fx_clamp(x, -1, 1);
}
static fx_array *mod_2_5(fx_array *x)
{
    return fx_mod(x, 2.5);
}
static fx_array *rem_2_5(fx_array *x)
{
    return fx_rem(x, 2.5);
}
static fx_array *xlogx(fx_array *x)
{
    return fx_xlogy(x, x);
}

static real r_sign(real x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}
static real r_square(real x)
{
    return x * x;
}
static real r_rsqrt(real x)
{
    return 1 / sqrtl(x);
}
static real r_reciprocal(real x)
{
    return 1 / x;
}
static real r_clamp11(real x)
{
    return x < -1 ? -1 : x > 1 ? 1 : x;
}
static real r_mod(real x)
{
    return x - 2.5L * floorl(x / 2.5L);
}
static real r_rem(real x)
{
    return fmodl(x, 2.5L);
}
static real r_xlogx(real x)
{
    return x == 0 ? 0 : x * logl(x);
}

static const double all[] = {-80,  -9.5, -3,  -1.25, -0.5, -1e-3, -1e-7, 0,
                             1e-7, 1e-3, 0.5, 1.25,  3,    9.5,   80};
static const double unit[] = {-0.999, -0.75, -0.5, -1e-3, -1e-7, 0, 1e-7, 1e-3, 0.5, 0.75, 0.999};
static const double positive[] = {1e-7, 1e-3, 0.25, 0.5, 1, 1.5, 3, 9.5, 1e3};
static const double above_one[] = {1, 1 + 1e-7, 1.001, 1.5, 3, 9.5, 1e3, 1e30};
static const double huge[] = {-1e30, -1e10, -300, -1.5, -1,   -1e-4, 0,
                              1e-4,  1,     1.5,  300,  1e10, 1e30};

#define DOMAIN(a) (a), COUNT(a)
static const struct function {
    const char *name;
    unary_fn f;
    real (*definition)(real);
    const double *at;
    int64_t n;
} functions[] = {
    {"abs", fx_abs, fabsl, DOMAIN(all)},
    {"sign", fx_sign, r_sign, DOMAIN(all)},
    {"square", fx_square, r_square, DOMAIN(all)},
    {"rsqrt", fx_rsqrt, r_rsqrt, DOMAIN(positive)},
    {"reciprocal", fx_reciprocal, r_reciprocal, DOMAIN(positive)},
    {"tan", fx_tan, tanl, DOMAIN(unit)},
    {"asin", fx_asin, asinl, DOMAIN(unit)},
    {"acos", fx_acos, acosl, DOMAIN(unit)},
    {"atan", fx_atan, atanl, DOMAIN(huge)},
    {"sinh", fx_sinh, sinhl, DOMAIN(all)},
    {"cosh", fx_cosh, coshl, DOMAIN(all)},
    {"asinh", fx_asinh, asinhl, DOMAIN(huge)},
    {"acosh", fx_acosh, acoshl, DOMAIN(above_one)},
    {"atanh", fx_atanh, atanhl, DOMAIN(unit)},
    {"ceil", fx_ceil, ceill, DOMAIN(all)},
    {"round", fx_round, nearbyintl, DOMAIN(all)},
    {"trunc", fx_trunc, truncl, DOMAIN(all)},
    {"clamp", clamp11, r_clamp11, DOMAIN(all)},
    {"mod", mod_2_5, r_mod, DOMAIN(all)},
    {"rem", rem_2_5, r_rem, DOMAIN(all)},
    {"xlogx", xlogx, r_xlogx, DOMAIN(positive)},
};

static void values_follow_libm(void **state)
{
    (void)state;
    double want[CHECK_MOST];
    float narrow[CHECK_MOST];
    for (size_t k = 0; k < COUNT(functions); k++) {
        FX_SCOPE;
        const struct function *f = &functions[k];
        for (int64_t i = 0; i < f->n; i++) {
            want[i] = (double)f->definition((real)f->at[i]);
            narrow[i] = (float)f->at[i];
        }
        fx_array *wide = f->f(vector64(f->at, f->n));
        assert_int_equal(fx_eltype(wide), FX_DTYPE_F64);
        check_array(f->name, wide, f->n, want, 4e-15, 1e-14 * (f->f == mod_2_5 || f->f == rem_2_5));
        for (int64_t i = 0; i < f->n; i++)
            want[i] = (double)f->definition((real)narrow[i]);
        check_array(f->name, f->f(fx_from(FX_DTYPE_F32, narrow, f->n)), f->n, want, 2e-6,
                    1e-5 * (f->f == mod_2_5 || f->f == rem_2_5));
    }
}

static void gradients_match_central_differences(void **state)
{
    (void)state;
    static const double some[] = {-2.25, -1.3, -0.6, -0.2, 0.2, 0.6, 1.3, 2.25};
    static const double inside[] = {-0.8, -0.45, -0.1, 0.1, 0.45, 0.8};
    static const double beyond[] = {1.25, 1.75, 3, 8};
    const int64_t n = COUNT(some), m = COUNT(inside), p = COUNT(beyond), one = 1;
    for (size_t k = 0; k < COUNT(functions); k++) {
        const struct function *f = &functions[k];
        if (f->at == unit)
            check_gradients(f->name, f->f, inside, 1, &m, 2e-8);
        else if (f->at == positive || f->at == above_one)
            check_gradients(f->name, f->f, beyond, 1, &p, 2e-8);
        else
            check_gradients(f->name, f->f, some, 1, &n, 2e-8);
    }
    static const unary_fn smooth[] = {fx_tan,  fx_asin, fx_acos,  fx_atan,
                                      fx_sinh, fx_cosh, fx_asinh, fx_atanh};
    for (size_t k = 0; k < COUNT(smooth); k++)
        check_gradients("smooth at 0", smooth[k], (const double[]){0}, 1, &one, 2e-8);
}

static double slope_at(unary_fn f, double x)
{
    FX_SCOPE;
    fx_array *a = vector64(&x, 1), *g = NULL;
    fx_gradient_of(fx_sum(f(a)), &a, 1, &g);
    return fx_item(g);
}

static void gradients_at_special_points(void **state)
{
    (void)state;
    check_value("abs at 0", 0, slope_at(fx_abs, 0), 0, 0, 0);
    check_value("sign at 0", 0, slope_at(fx_sign, 0), 0, 0, 0);
    check_value("clamp at its bound", 0, slope_at(clamp11, 1), 1, 0,
                0); /* as ChainRules and PyTorch */
    check_value("clamp at its bound", 0, slope_at(clamp11, -1), 1, 0, 0);
    check_value("asin at 1", 0, slope_at(fx_asin, 1), inf, 0, 0);
    check_value("atan at 1e200", 0, slope_at(fx_atan, 1e200), 0, 0, 1e-300);
    check_value("asinh at 1e200", 0, slope_at(fx_asinh, 1e200), 1e-200, 1e-12, 0);
    check_value("sinh at 2000", 0, slope_at(fx_sinh, 2000), inf, 0, 0); /* PyTorch's */
    check_value("sinh at -2000", 0, slope_at(fx_sinh, -2000), inf, 0, 0);
    check_value("cosh at 2000", 0, slope_at(fx_cosh, 2000), inf, 0, 0);
    check_value("cosh at -2000", 0, slope_at(fx_cosh, -2000), -inf, 0, 0);
    check_value("sinh at 30", 0, slope_at(fx_sinh, 30), cosh(30), 1e-12, 0);
    check_value("floor-like", 0, slope_at(fx_round, 0.5), 0, 0, 0);
}

static fx_array *log_of_max(fx_array *x, fx_array *y)
{
    return fx_log(fx_max(x, y));
}
static fx_array *log_of_min(fx_array *x, fx_array *y)
{
    return fx_log(fx_min(x, y));
}
static fx_array *power(fx_array *x, fx_array *y)
{
    return fx_pow(x, y);
}

/* Gradients of functions of two arrays where a factor is infinite: PyTorch's. */
static void gradients_with_infinite_factors(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        fx_array *(*f)(fx_array *x, fx_array *y);
        double x, y, gx, gy;
    } rows[] = {{"max", log_of_max, -1, 0, 0, inf},
                {"max", log_of_max, 0, -1, inf, 0},
                {"max", log_of_max, 0, 0, inf, inf},
                {"max", log_of_max, 2, 2, 0.25, 0.25},
                {"max", log_of_max, -1, 4, 0, 0.25},
                {"min", log_of_min, 1, 0, 0, inf},
                {"min", log_of_min, 0, 1, inf, 0},
                {"min", log_of_min, 4, 5, 0.25, 0},
                {"pow", power, 0, -1, -inf, -inf},
                {"pow", power, 0, 0, 0, 0},
                {"pow", power, 0, 2, 0, 0},
                {"pow", power, 0, 0.5, inf, 0},
                {"pow", power, 4, 0.5, 0.25, 2.772588722239781}};
    for (size_t k = 0; k < COUNT(rows); k++) {
        FX_SCOPE;
        fx_array *x[] = {vector64(&rows[k].x, 1), vector64(&rows[k].y, 1)}, *g[2];
        fx_gradient_of(fx_sum(rows[k].f(x[0], x[1])), x, 2, g);
        check_value(rows[k].name, (int64_t)k, fx_item(g[0]), rows[k].gx, 0, 0);
        check_value(rows[k].name, (int64_t)k, fx_item(g[1]), rows[k].gy, 1e-15, 0);
    }
}

static void special_values(void **state)
{
    (void)state;
    FX_SCOPE;
    const double x[] = {nan_, inf, -inf, -0.0, 0.0};
    fx_array *a = vector64(x, 5);
    CHECK(fx_abs(a), (5), 0, nan_, inf, inf, 0, 0);
    CHECK(fx_reciprocal(fx_abs(a)), (5), 0, nan_, 0, 0, inf, inf); /* |−0| is +0 */
    CHECK(fx_sign(a), (5), 0, nan_, 1, -1, 0, 0);
    CHECK(fx_ceil(a), (5), 0, nan_, inf, -inf, 0, 0);
    CHECK(fx_round(a), (5), 0, nan_, inf, -inf, 0, 0);
    CHECK(fx_trunc(a), (5), 0, nan_, inf, -inf, 0, 0);
    CHECK(fx_isnan(a), (5), 0, 1, 0, 0, 0, 0);
    CHECK(fx_isinf(a), (5), 0, 0, 1, 1, 0, 0);
    CHECK(fx_isfinite(a), (5), 0, 0, 0, 0, 1, 1);
    CHECK(fx_asinh(a), (5), 0, nan_, inf, -inf, 0, 0);
    CHECK(fx_sinh(a), (5), 0, nan_, inf, -inf, 0, 0);
    CHECK(fx_cosh(a), (5), 0, nan_, inf, inf, 1, 1);
    CHECK(fx_atan(a), (5), 1e-15, nan_, acos(0), -acos(0), 0, 0);
    CHECK(fx_clamp(a, -2, 2), (5), 0, nan_, 2, -2, 0, 0);
    CHECK(fx_asin(fx_vector(-1, 1, 2)), (3), 1e-6, -acos(0), acos(0), nan_);
    CHECK(fx_acos(fx_vector(-1, 1, -2)), (3), 1e-6, acos(-1), 0, nan_);
    CHECK(fx_atanh(fx_vector(-1, 1, 2)), (3), 0, -inf, inf, nan_);
    CHECK(fx_acosh(fx_vector(0.5F, INFINITY)), (2), 0, nan_, inf);
    CHECK(fx_round(fx_vector(-2.5F, -1.5F, -0.5F, 0.5F, 1.5F, 2.5F, 0.49999997F, 8388609)), (8), 0,
          -2, -2, 0, 0, 2, 2, 0, 8388609);
    const int32_t i[] = {-7, 0, 7};
    fx_array *whole = fx_from(FX_DTYPE_I32, i, 3);
    assert_int_equal(fx_eltype(fx_round(whole)), FX_DTYPE_I32);
    CHECK(fx_ceil(whole), (3), 0, -7, 0, 7);
    CHECK(fx_isfinite(whole), (3), 0, 1, 1, 1);
}

/* Functions that are odd near 0 keep the sign of a zero, and the results of rounding have the sign
 * of x (C's asinh, rint, ceil, trunc, …). */
static void zeros_keep_their_sign(void **state)
{
    (void)state;
    static const struct {
        fx_array *(*f)(fx_array *x);
        double x;
    } rows[] = {{fx_asinh, 0},   {fx_sinh, 0},   {fx_tan, 0},   {fx_asin, 0},    {fx_atan, 0},
                {fx_atanh, 0},   {fx_sign, 0},   {fx_round, 0}, {fx_ceil, 0},    {fx_trunc, 0},
                {fx_round, 0.4}, {fx_round, .5}, {fx_ceil, .5}, {fx_trunc, 0.9}, {fx_tanh, 0}};
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (size_t k = 0; k < COUNT(rows); k++)
        for (size_t t = 0; t < COUNT(types); t++) {
            FX_SCOPE;
            const double y = fx_item(rows[k].f(fx_full_dtype(types[t], -rows[k].x, 1)));
            if (y != 0 || !signbit(y))
                fail_msg("row %zu, %s: got %g, expected -0", k, fx_dtype_name(types[t]), y);
            const double z = fx_item(rows[k].f(fx_full_dtype(types[t], 0, 1)));
            if (z != 0 || signbit(z))
                fail_msg("row %zu, %s: got %g, expected 0", k, fx_dtype_name(types[t]), z);
        }
    FX_SCOPE; /* at 0 the gradient of asinh is 1 */
    fx_array *x = vector64(&(const double){0}, 1);
    fx_array *g = NULL;
    fx_gradient_of(fx_sum(fx_asinh(x)), &x, 1, &g);
    CHECK(g, (1), 0, 1);
}

/* Their parts would overflow. */
static void large_values_are_finite(void **state)
{
    (void)state;
    static const struct {
        fx_array *(*f)(fx_array *x);
        int dtype;
        double x, want;
    } rows[] = {{fx_cosh, FX_DTYPE_F32, 89, 2.2448064095871728e38},
                {fx_sinh, FX_DTYPE_F32, 89, 2.2448064095871728e38},
                {fx_sinh, FX_DTYPE_F32, -89, -2.2448064095871728e38},
                {fx_cosh, FX_DTYPE_F16, 11.5, 49357.885510445296},
                {fx_cosh, FX_DTYPE_F64, 710, 1.1169973830808557e308},
                {fx_acosh, FX_DTYPE_F32, 2e38, 88.88452789489362},
                {fx_acosh, FX_DTYPE_F16, 40000, 11.289781913499768}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        FX_SCOPE;
        fx_array *x = fx_full_dtype((fx_dtype)rows[k].dtype, rows[k].x, 1);
        const double got = fx_item(fx_cast(rows[k].f(x), FX_DTYPE_F64));
        const double near = rows[k].dtype == FX_DTYPE_F16 ? 4e-3 : 2e-6;
        if (!(fabs(got / rows[k].want - 1) <= near))
            fail_msg("row %zu: %.9g, not %.9g", k, got, rows[k].want);
    }
}

/* Signs in all combinations; integers divided by 0 leave a remainder of a. */
static void remainders(void **state)
{
    (void)state;
    FX_SCOPE;
    const int32_t a[] = {7, -7, 7, -7, 6, -6, 5, -5}, b[] = {3, 3, -3, -3, 3, -3, 0, 0};
    fx_array *x = fx_from(FX_DTYPE_I32, a, 8), *y = fx_from(FX_DTYPE_I32, b, 8);
    CHECK(fx_mod(x, y), (8), 0, 1, 2, -2, -1, 0, 0, 5, -5);
    CHECK(fx_rem(x, y), (8), 0, 1, -1, 1, -1, 0, 0, 5, -5);
    assert_int_equal(fx_eltype(fx_mod(x, 3)), FX_DTYPE_I32);
    assert_int_equal(fx_eltype(fx_rem(x, y)), FX_DTYPE_I32);
    CHECK(fx_rem(x, -4), (8), 0, 3, -3, 3, -3, 2, -2, 1, -1);
    CHECK(fx_mod(10, fx_from(FX_DTYPE_I32, b, 4)), (4), 0, 1, 1, -2, -2);
    fx_array *f = fx_vector(7.5F, -7.5F, 7.5F, -7.5F), *g = fx_vector(2, 2, -2, -2);
    CHECK(fx_mod(f, g), (4), 0, 1.5, 0.5, -0.5, -1.5);
    CHECK(fx_rem(f, g), (4), 0, 1.5, -1.5, 1.5, -1.5);
    CHECK(fx_rem(fx_vector(5, -5, 5), fx_vector(INFINITY, INFINITY, 0)), (3), 0, 5, -5, nan_);
    const uint8_t u[] = {200, 7};
    CHECK(fx_rem(fx_from(FX_DTYPE_U8, u, 2), 9), (2), 0, 2, 7);
    /* d mod(a, b)/db = −⌊a/b⌋ */
    fx_array *gb = NULL, *p = fx_vector(7.5F), *q = fx_vector(2);
    fx_gradient_of(fx_sum(fx_mod(p, q)), &q, 1, &gb);
    CHECK(gb, (1), 0, -3);
    fx_gradient_of(fx_sum(fx_rem(fx_neg(p), q)), &q, 1, &gb);
    CHECK(gb, (1), 0, 3);
}

static void comparison_and_logic(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2, NAN), *y = fx_vector(2, 2, 2);
    CHECK(fx_gt(x, y), (3), 0, 0, 0, 0);
    CHECK(fx_ge(x, y), (3), 0, 0, 1, 0);
    CHECK(fx_gt(3, x), (3), 0, 1, 1, 0);
    const bool p[] = {0, 0, 1, 1}, q[] = {0, 1, 0, 1};
    fx_array *a = fx_from(FX_DTYPE_BOOL, p, 4), *b = fx_from(FX_DTYPE_BOOL, q, 4);
    CHECK(fx_and(a, b), (4), 0, 0, 0, 0, 1);
    CHECK(fx_or(a, b), (4), 0, 0, 1, 1, 1);
    CHECK(fx_xor(a, b), (4), 0, 0, 1, 1, 0);
    CHECK(fx_not(a), (4), 0, 1, 1, 0, 0);
    CHECK(fx_and(a, true), (4), 0, 0, 0, 1, 1);
    CHECK(fx_or(0.5, a), (4), 0, 1, 1, 1, 1);
    assert_int_equal(fx_eltype(fx_and(a, 1)), FX_DTYPE_BOOL);
    assert_int_equal(fx_eltype(fx_pow(fx_full_dtype(FX_DTYPE_I32, 3, 2), 0)), FX_DTYPE_I32);
    assert_int_equal(fx_eltype(fx_not(a)), FX_DTYPE_BOOL);
    check_error(fx_and(a, x), FX_STATUS_DTYPE, "and: takes Bool, got Float32");
    check_error(fx_not(y), FX_STATUS_DTYPE, "not: takes Bool");
    check_error(fx_xor(a, fx_full_dtype(FX_DTYPE_BOOL, 1, 3)), FX_STATUS_SHAPE, "do not broadcast");
}

static void clamp_takes_arrays_and_keeps_types(void **state)
{
    (void)state;
    FX_SCOPE;
    const int64_t i[] = {-5, 0, 5};
    fx_array *whole = fx_from(FX_DTYPE_I64, i, 3);
    CHECK(fx_clamp(whole, -1, 2), (3), 0, -1, 0, 2);
    assert_int_equal(fx_eltype(fx_clamp(whole, -1, 2)), FX_DTYPE_I64);
    assert_int_equal(fx_eltype(fx_clamp(whole, -1, 2.5)), FX_DTYPE_F32);
    fx_array *x = fx_vector(-2, 0, 2), *lo = fx_vector(-1, 1, -1), *hi = fx_vector(1), *g[3];
    CHECK(fx_clamp(x, lo, hi), (3), 0, -1, 1, 1);
    fx_gradient_of(fx_sum(fx_clamp(x, lo, hi)), (fx_array *const[]){x, lo, hi}, 3, g);
    CHECK(g[0], (3), 0, 0, 0, 0);
    CHECK(g[1], (3), 0, 1, 1, 0);
    CHECK(g[2], (1), 0, 1);
}

static void xlogy_is_zero_at_zero(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(0, 0, 0, 0, 2, 2), *y = fx_vector(0, 5, INFINITY, NAN, 0, 3), *g[2];
    CHECK(fx_xlogy(x, y), (6), 1e-6, 0, 0, 0, 0, -inf, 2 * log(3));
    fx_gradient_of(fx_sum(fx_xlogy(x, y)), (fx_array *const[]){x, y}, 2, g);
    CHECK(g[0], (6), 1e-6, 0, log(5), 0, 0, -inf, log(3));
    CHECK(g[1], (6), 1e-6, 0, 0, 0, 0, inf, 2.0 / 3);
    CHECK(fx_xlogy(0, y), (6), 0, 0, 0, 0, 0, 0, 0);
    CHECK(fx_xlogy(fx_vector(3), 2), (1), 1e-6, 3 * log(2));
}

static void numbers_do_not_widen(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_dtype types[] = {FX_DTYPE_F16, FX_DTYPE_BF16, FX_DTYPE_F32, FX_DTYPE_F64};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t k = 0; k < COUNT(functions); k++)
            assert_int_equal(fx_eltype(functions[k].f(fx_full_dtype(types[t], 0.5, 2))), types[t]);
    const int32_t i[] = {1, 2};
    static const unary_fn real_functions[] = {fx_rsqrt, fx_reciprocal, fx_tan,  fx_asin,
                                              fx_acos,  fx_atan,       fx_sinh, fx_cosh,
                                              fx_asinh, fx_acosh,      fx_atanh};
    for (size_t k = 0; k < COUNT(real_functions); k++)
        assert_int_equal(fx_eltype(real_functions[k](fx_from(FX_DTYPE_I32, i, 2))), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(fx_abs(fx_from(FX_DTYPE_I32, i, 2))), FX_DTYPE_I32);
    const uint8_t u[] = {0, 200};
    CHECK(fx_abs(fx_from(FX_DTYPE_U8, u, 2)), (2), 0, 0, 200);
    CHECK(fx_sign(fx_from(FX_DTYPE_U8, u, 2)), (2), 0, 0, 1);
}

static void intermediates_do_not_pile_up(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *y = fx_asinh(x);
    /* y is the newest object of the scope and x the second newest, so the call made no object
     * besides y */
    assert_ptr_equal(((fx_object *)y)->fxi_next, x);
}

static void errors_pass(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *bad = fx_error_array(FX_STATUS_DEVICE), *x = fx_vector(1);
    for (size_t k = 0; k < COUNT(functions); k++)
        assert_int_equal(fx_array_status(functions[k].f(bad)), FX_STATUS_DEVICE);
    assert_int_equal(fx_array_status(fx_mod(x, bad)), FX_STATUS_DEVICE);
    assert_int_equal(fx_array_status(fx_and(bad, true)), FX_STATUS_DEVICE);
    assert_int_equal(fx_array_status(fx_clamp(x, bad, 1)), FX_STATUS_DEVICE);
    assert_int_equal(fx_error_status(), FX_OK);
    check_error(fx_abs(NULL), FX_STATUS_ARGUMENT, "abs: an argument is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_follow_libm),
        cmocka_unit_test(gradients_match_central_differences),
        cmocka_unit_test(gradients_at_special_points),
        cmocka_unit_test(gradients_with_infinite_factors),
        cmocka_unit_test(special_values),
        cmocka_unit_test(zeros_keep_their_sign),
        cmocka_unit_test(large_values_are_finite),
        cmocka_unit_test(remainders),
        cmocka_unit_test(comparison_and_logic),
        cmocka_unit_test(clamp_takes_arrays_and_keeps_types),
        cmocka_unit_test(xlogy_is_zero_at_zero),
        cmocka_unit_test(numbers_do_not_widen),
        cmocka_unit_test(intermediates_do_not_pile_up),
        cmocka_unit_test(errors_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
