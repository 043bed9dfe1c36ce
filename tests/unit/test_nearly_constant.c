/* Means, variances and normalisations of numbers that are equal, or differ in their last bits, on
 * every available device.
 *
 * The bounds are those of exact arithmetic: the mean of n equal numbers is that number, their
 * variance 0, and a normalised value is at most sqrt(n) in size. Values, offsets, lengths and
 * layers are drawn at random. ctest: timeout=600
 */
#include "every_device.h"

#include <cflux/nn.h>

/* ±10^e, e from −8 to 30 (of Float16 to 4). */
static double draw(fx_dtype t)
{
    const int most = t == FX_DTYPE_F16 ? 4 : 30, least = t == FX_DTYPE_F16 ? -2 : -8;
    const double m = 1 + (double)(next_random() % 900000007) / 1e8;
    const double v = m * pow(10, (double)(least + (int)(next_random() % (uint64_t)(most - least))));
    return next_random() % 2 ? v : -v;
}

static const int64_t lengths[] = {1, 2, 3, 5, 7, 13, 49, 100, 257, 1000, 4099};

static fx_array *on_device(fx_dtype t, const double *v, int64_t n)
{
    fx_array *x = fx_cast(fxi_from(FX_DTYPE_F64, v, 1, &n), t);
    fx_eval(x);
    return fx_array_to(device, x);
}

enum { MOST = 4099 * 2 };
static double values[MOST];

static double largest(fx_array *x)
{
    double most = 0;
    static double v[MOST];
    check_read("values", x, v, fx_length(x));
    for (int64_t i = 0; i < fx_length(x); i++)
        most = isnan(v[i]) || isnan(most) ? NAN : fmax(most, fabs(v[i]));
    return most;
}

static void expect_at_most(const char *what, fx_array *x, double bound, fx_dtype t, int64_t n)
{
    const double most = largest(x);
    if (!(most <= bound))
        fail_msg("%s of %lld %s: %.17g, at most %.17g is possible (%s, %s)", what, (long long)n,
                 fx_dtype_name(t), most, bound, fx_device_name(device), fxi_cpu_simd()->name);
}

/* n×2 of one number. */
static void equal_numbers(void **unused)
{
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    (void)unused;
    int checked = 0;
    for (int k = 0; k < (slow ? 6 : 200); k++) {
        FX_SCOPE;
        const fx_dtype t = types[slow ? k % 2 : k % 4];
        const int64_t n = slow ? 257 : lengths[next_random() % (uint64_t)COUNT(lengths)];
        const double c = draw(t);
        for (int64_t i = 0; i < 2 * n; i++)
            values[i] = c;
        fx_array *x = fx_reshape(on_device(t, values, 2 * n), n, 2), *g;
        static double got[2], own[2];
        check_read("x", fx_slice(x, 0, 0, 1), own, 2);
        for (int axis = 0; axis < 2; axis++) { /* along columns and along rows */
            fx_array *y = axis ? fx_transpose(x) : x;
            check_read("mean", fx_mean(y, .dims = axis ? FX_AXES(1) : FX_AXES(0)), got, 2);
            assert_true(got[0] == own[0] && got[1] == own[0]);
            const fx_axes dims = axis ? FX_AXES(1) : FX_AXES(0);
            expect_at_most("var", fx_var(y, .dims = dims, .corrected = false), 0, t, n);
            expect_at_most("std", fx_std(y, .dims = dims, .corrected = false), 0, t, n);
            expect_at_most("normalise", fx_normalise(y, dims, 1e-5), 0, t, n);
        }
        assert_true(fx_item(fx_mean(x)) == own[0]);
        fx_gradient_of(fx_sum(fx_std(x, .dims = FX_AXES(0))), &x, 1, &g);
        if (n > 1)
            expect_at_most("gradient of std", g, 0, t, n);
        fx_gradient_of(fx_sum(fx_square(fx_normalise(x, FX_AXES(0), 1e-5))), &x, 1, &g);
        expect_at_most("gradient of normalise", g, 0, t, n);
        checked++;
    }
    assert_true(checked >= 6);
}

/* c and its neighbours a few last places away, n×2. */
static void numbers_that_differ_in_their_last_bits(void **unused)
{
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64};
    (void)unused;
    int checked = 0;
    for (int k = 0; k < (slow ? 6 : 300); k++) {
        FX_SCOPE;
        const fx_dtype t = types[k % 2];
        const int64_t n = slow ? 257 : lengths[1 + next_random() % (uint64_t)(COUNT(lengths) - 1)];
        const double c = draw(t), at = t == FX_DTYPE_F32 ? (double)(float)c : c;
        const double ulp = ldexp(1, ilogb(at) - (t == FX_DTYPE_F32 ? 23 : 52));
        const uint64_t steps = 1 + next_random() % 4, seldom = 1 + next_random() % 50;
        for (int64_t i = 0; i < 2 * n; i++)
            values[i] =
                at + (next_random() % seldom ? 0 : (double)(next_random() % (steps + 1)) * ulp);
        fx_array *x = fx_reshape(on_device(t, values, 2 * n), n, 2);
        const double bound = sqrt((double)n) * (1 + 1e-5), eps = 0x1p-126;
        static double v[2];
        check_read("var", fx_var(x, .dims = FX_AXES(0)), v, 2);
        assert_true(v[0] >= 0 && v[1] >= 0);
        if (t == FX_DTYPE_F32 && fabs(at) > 1e18)
            continue; /* variances beyond Float32 */
        expect_at_most("normalise", fx_normalise(x, FX_AXES(0), eps), bound, t, n);
        expect_at_most("normalise rows", fx_normalise(fx_transpose(x), FX_AXES(1), eps), bound, t,
                       n);
        if (t == FX_DTYPE_F64)
            continue; /* layers are Float32 */
        fx_layernorm_layer *norm = fx_to(device, fx_layernorm(FX_DIMS(n), .eps = eps));
        expect_at_most("LayerNorm", fx_call(norm, x), bound, t, n);
        FX_STEP;
        fx_batchnorm_layer *batch = fx_to(device, fx_batchnorm(2, .eps = eps));
        expect_at_most("BatchNorm", fx_call(batch, fx_transpose(x)), bound, t, n);
        checked++;
    }
    assert_true(checked >= (slow ? 1 : 80));
}

/* Lengths that threads and pieces share. */
static void many_equal_numbers(void **unused)
{
    static const int64_t many[] = {1000003, 10000000};
    (void)unused;
    for (int k = 0; k < 2 && device == fx_cpu_device(); k++)
        for (int t = FX_DTYPE_F32; t <= FX_DTYPE_F64; t++) {
            FX_SCOPE;
            fx_array *x = fx_full_dtype((fx_dtype)t, 1e30 / 3, many[k]);
            fx_eval(x);
            const double own = fx_at(x, 0);
            assert_true(fx_item(fx_mean(x)) == own);
            assert_true(fx_item(fx_var(x)) == 0);
            assert_true(fx_item(fx_mean(fx_sub(x, 0))) == own); /* with what makes x */
        }
}

static void infinities_stay(void **unused)
{
    (void)unused;
    FX_SCOPE;
    for (int t = FX_DTYPE_F32; t <= FX_DTYPE_F64; t++) {
        fx_array *x = on_device((fx_dtype)t, (const double[]){INFINITY, 1, 2}, 3);
        assert_true(fx_item(fx_mean(x)) == (double)INFINITY);
        assert_true(fx_item(fx_mean(fx_neg(x))) == -(double)INFINITY);
        assert_true(
            isnan(fx_item(fx_mean(on_device((fx_dtype)t, (const double[]){NAN, 1, 2}, 3)))));
        fx_array *m = fx_mean(x, .dims = FX_AXES(0)), *y = fx_sub(x, m);
        fx_array *both = fx_add(fx_sum(fx_where(fx_isfinite(y), 0, y)), fx_var(x));
        assert_true(isnan(fx_item(both)));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(equal_numbers),
    cmocka_unit_test(numbers_that_differ_in_their_last_bits),
    cmocka_unit_test(many_equal_numbers),
    cmocka_unit_test(infinities_stay),
};

static int run(const char *name)
{
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
    return run_on_every_device(run);
}
