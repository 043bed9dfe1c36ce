/* Tests of src/nn/initialisers.c: bounds, moments and distribution of starting values.
 *
 * The expected moments are the formulas of the papers; a sample mean may be off by 5 standard
 * errors. The truncated normal is compared with its distribution function, (Φ(x) − Φ(−2))/(Φ(2) −
 * Φ(−2)), by the Kolmogorov–Smirnov statistic.
 */
#include <cflux.h>

#include "composite_check.h"

#include <stdlib.h>

enum { ROWS = 100, COLUMNS = 300, N = ROWS * COLUMNS };
static double sample[N];

static void draw(fx_init_fn init, int ndims, const int64_t *sizes)
{
    FX_SCOPE;
    fx_array *x = init(ndims, sizes);
    assert_int_equal(fx_eltype(x), FX_DTYPE_F32);
    check_dims("init", x, ndims, sizes);
    check_read("init", x, sample, N);
}

/* Mean 0, deviation sigma, nothing beyond bound, something beyond reach. */
static void check_moments(const char *what, double sigma, double bound, double reach)
{
    double mean = 0, square = 0, largest = 0;
    for (int i = 0; i < N; i++) {
        mean += sample[i] / N;
        square += sample[i] * sample[i] / N;
        largest = fmax(largest, fabs(sample[i]));
    }
    check_value(what, 0, mean / sigma, 0, 0, 5 / sqrt(N));
    check_value(what, 1, sqrt(square) / sigma, 1, 0,
                5 / sqrt(N)); /* 5 standard errors, or more, of a deviation */
    if (largest > bound * (1 + 1e-6) || largest < reach)
        fail_msg("%s: largest is %g, expected %g to %g", what, largest, reach, bound);
}

static const int64_t matrix[] = {ROWS, COLUMNS}, kernel[] = {5, 4, 50, 30};
static const double beyond = 1e9;

static void test_uniform(void **state)
{
    (void)state;
    fx_seed(11);
    double bound = sqrt(6.0 / (ROWS + COLUMNS));
    draw(fx_glorot_uniform, 2, matrix);
    check_moments("glorot_uniform", bound / sqrt(3), bound, 0.999 * bound);
    bound = sqrt(6.0 / (20 * (50 + 30)));
    draw(fx_glorot_uniform, 4, kernel);
    check_moments("glorot_uniform of a kernel", bound / sqrt(3), bound, 0.999 * bound);
    bound = sqrt(2) * sqrt(3.0 / COLUMNS);
    draw(fx_kaiming_uniform, 2, matrix);
    check_moments("kaiming_uniform", bound / sqrt(3), bound, 0.999 * bound);
    bound = sqrt(6.0 / (1 + N));
    draw(fx_glorot_uniform, 1, (const int64_t[]){N});
    check_moments("glorot_uniform of a vector", bound / sqrt(3), bound, 0.999 * bound);
}

static void test_normal(void **state)
{
    (void)state;
    fx_seed(12);
    double sigma = sqrt(2.0 / (ROWS + COLUMNS));
    draw(fx_glorot_normal, 2, matrix);
    check_moments("glorot_normal", sigma, beyond, 3.5 * sigma);
    sigma = sqrt(2.0 / COLUMNS);
    draw(fx_kaiming_normal, 2, matrix);
    check_moments("kaiming_normal", sigma, beyond, 3.5 * sigma);
    sigma = sqrt(2.0 / (20 * 50));
    draw(fx_kaiming_normal, 4, kernel);
    check_moments("kaiming_normal of a kernel", sigma, beyond, 3.5 * sigma);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_truncated(const char *what, double sigma)
{
    /* variance of a standard normal cut at ±2: 1 − 2·2φ(2)/(Φ(2) − Φ(−2)) */
    const double inside = erf(sqrt(2)), phi = exp(-2) / sqrt(2 * acos(-1));
    check_moments(what, sigma * sqrt(1 - 4 * phi / inside), 2 * sigma, 1.99 * sigma);
    qsort(sample, N, sizeof *sample, ascending);
    double distance = 0;
    for (int i = 0; i < N; i++) {
        const double cdf = 0.5 + 0.5 * erf(sample[i] / sigma / sqrt(2)) / inside;
        distance = fmax(distance, fmax(fabs(cdf - (double)i / N), fabs(cdf - (i + 1.0) / N)));
    }
    assert_true(distance * sqrt(N) < 1.95); /* Kolmogorov: exceeded once in a thousand samples */
}

static void test_truncated(void **state)
{
    (void)state;
    fx_seed(13);
    draw(fx_truncated_normal, 2, matrix);
    check_truncated("truncated_normal", 1);
    draw(fx_lecun_normal, 2, matrix);
    check_truncated("lecun_normal", sqrt(1.0 / COLUMNS));
    draw(fx_lecun_normal, 4, kernel);
    check_truncated("lecun_normal of a kernel", sqrt(1.0 / (20 * 50)));
}

/* The same uniform number u gives the quantile: Φ-quantiles put back into erf return u to 1e-6. */
static void test_truncated_quantiles(void **state)
{
    (void)state;
    FX_SCOPE;
    static double u[N];
    fx_seed(14);
    check_read("uniform", fxi_rand(FX_DTYPE_F32, 2, matrix), u, N);
    fx_seed(14);
    draw(fx_truncated_normal, 2, matrix);
    for (int i = 0; i < N; i++)
        check_value("quantile", i, erf(sample[i] / sqrt(2)) / erf(sqrt(2)), 2 * u[i] - 1, 0, 1e-6);
}

static void test_plain_and_seeded(void **state)
{
    (void)state;
    FX_SCOPE;
    CHECK(fx_zeros_init(2, (const int64_t[]){2, 1}), (2, 1), 0, 0, 0);
    CHECK(fx_ones_init(1, (const int64_t[]){3}), (3), 0, 1, 1, 1);
    static double first[N];
    fx_seed(3);
    draw(fx_glorot_normal, 2, matrix);
    memcpy(first, sample, sizeof first);
    draw(fx_glorot_normal, 2, matrix);
    assert_memory_not_equal(first, sample, sizeof first);
    fx_seed(3);
    draw(fx_glorot_normal, 2, matrix);
    assert_memory_equal(first, sample, sizeof first);
    check_dims("empty", fx_lecun_normal(2, (const int64_t[]){0, 3}), 2, (const int64_t[]){0, 3});
    assert_true(fx_is_error(fx_glorot_uniform(2, (const int64_t[]){-1, 3})));
    assert_int_not_equal(fx_error_take().status, FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform),          cmocka_unit_test(test_normal),
        cmocka_unit_test(test_truncated),        cmocka_unit_test(test_truncated_quantiles),
        cmocka_unit_test(test_plain_and_seeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
