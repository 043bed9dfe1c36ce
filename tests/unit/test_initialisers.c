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

/* A normal distribution of deviation sigma, cut at ±bound. */
static void check_truncated(const char *what, double sigma, double bound)
{
    /* variance of a standard normal cut at ±b: 1 − 2bφ(b)/(Φ(b) − Φ(−b)) */
    const double b = bound / sigma, inside = erf(b / sqrt(2)),
                 phi = exp(-b * b / 2) / sqrt(2 * acos(-1));
    check_moments(what, sigma * sqrt(1 - 2 * b * phi / inside), bound,
                  fmin(0.995 * bound, 3.5 * sigma));
    qsort(sample, N, sizeof *sample, ascending);
    double distance = 0;
    for (int i = 0; i < N; i++) {
        const double cdf = 0.5 + 0.5 * erf(sample[i] / sigma / sqrt(2)) / inside;
        distance = fmax(distance, fmax(fabs(cdf - (double)i / N), fabs(cdf - (i + 1.0) / N)));
    }
    assert_true(distance * sqrt(N) < 1.95); /* Kolmogorov: exceeded once in a thousand samples */
}

/* Flux cuts lecun_normal at ±2, not at two deviations, so that the deviation is √(1/fan_in): its
 * documentation has 0.32 for 10 inputs. */
static void test_truncated(void **state)
{
    (void)state;
    fx_seed(13);
    draw(fx_truncated_normal, 2, matrix);
    check_truncated("truncated_normal", 1, 2);
    draw(fx_lecun_normal, 2, matrix);
    check_truncated("lecun_normal", sqrt(1.0 / COLUMNS), 2);
    draw(fx_lecun_normal, 4, kernel);
    check_truncated("lecun_normal of a kernel", sqrt(1.0 / (20 * 50)), 2);
    static const int64_t inputs[] = {1, 2, 10};
    for (int i = 0; i < 3; i++) {
        draw(fx_lecun_normal, 2, (const int64_t[]){N / inputs[i], inputs[i]});
        check_truncated("lecun_normal of few inputs", sqrt(1.0 / (double)inputs[i]), 2);
    }
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

/* ---- options --------------------------------------------------------------------------------- */

static void test_gains_and_bounds(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(12);
    const fx_dims sizes = FX_DIMS(ROWS, COLUMNS);
    const double sigma = sqrt(2.0 / (ROWS + COLUMNS));
    check_read("gain", fx_init(fx_glorot_normal, sizes, .gain = 3), sample, N);
    check_moments("glorot_normal, gain", 3 * sigma, beyond, 3 * sigma);
    check_read("gain", fx_init(fx_kaiming_normal, sizes, .gain = 1), sample, N);
    check_moments("kaiming_normal, gain", sqrt(1.0 / COLUMNS), beyond, 0);
    check_read("tail", fx_init(fx_truncated_normal, sizes, .lo = -8, .hi = 8), sample, N);
    check_moments("a normal distribution that is hardly cut", 1, 8, 3.5);
    check_read("part",
               fx_init(fx_truncated_normal, sizes, .mean = 10, .std = 2, .lo = 10, .hi = 11),
               sample, N);
    double mean = 0;
    for (int i = 0; i < N; i++) {
        assert_true(sample[i] >= 10 && sample[i] <= 11);
        mean += sample[i] / N;
    }
    /* the mean of a normal distribution between 0 and ½σ is (φ(0) − φ(½))/(Φ(½) − ½)·σ = 0.4917 */
    const double phi0 = 0.3989422804014327, phi1 = phi0 * exp(-0.125),
                 part = 0.5 * erf(0.5 / sqrt(2));
    check_value("mean of a part", 0, mean, 10 + 2 * (phi0 - phi1) / part, 0, 0.01);
    check_error(fx_init(fx_truncated_normal, sizes, .std = -1), FX_STATUS_ARGUMENT,
                "needs std > 0");
    check_error(fx_init(fx_truncated_normal, sizes, .gain = 2), FX_STATUS_ARGUMENT,
                "truncated_normal has no option gain");
    check_error(fx_init(fx_zeros_init, sizes, .std = 2), FX_STATUS_ARGUMENT,
                "zeros_init has no option std");
    check_error(fx_init(NULL, sizes), FX_STATUS_ARGUMENT, "the initialiser is NULL");
}

/* The products of the columns, or of the rows of a wide matrix, are those of gain·identity. */
static void check_orthogonal(const fx_dims sizes, double gain)
{
    FX_SCOPE;
    fx_array *q = fx_cast(fx_init(fx_orthogonal, sizes, .gain = gain), FX_DTYPE_F64);
    const int64_t columns = sizes.v[sizes.n - 1], rows = fx_length(q) / columns;
    q = fx_reshape(q, rows, columns);
    q = rows < columns ? fx_transpose(q) : q;
    const int64_t n = rows < columns ? rows : columns;
    fx_array *p = fx_matmul(fx_transpose(q), q);
    for (int64_t i = 0; i < n * n; i++)
        check_value("orthogonal", i, fx_at(p, i), i % (n + 1) ? 0 : gain * gain, 0, 1e-6);
}

static void test_structured(void **state)
{
    (void)state;
    FX_SCOPE;
    check_orthogonal(FX_DIMS(7, 4), 1);
    check_orthogonal(FX_DIMS(4, 7), 1.5);
    check_orthogonal(FX_DIMS(3, 3, 2, 5), 1);
    fx_array *sparse = fx_init(fx_sparse_init, FX_DIMS(10, 6), .sparsity = 0.25, .std = 2);
    for (int64_t j = 0; j < 6; j++) {
        int zeros = 0;
        for (int64_t i = 0; i < 10; i++)
            zeros += fx_at(sparse, 10 * j + i) == 0;
        assert_int_equal(zeros, 3); /* ⌈0.25·10⌉ */
    }
    check_error(fx_init(fx_sparse_init, FX_DIMS(3), .sparsity = 0.5), FX_STATUS_SHAPE,
                "Only 2-dimensional outputs are supported");
    check_error(fx_sparse_init(2, (const int64_t[]){3, 3}), FX_STATUS_ARGUMENT, "sparsity is ");
    fx_array *eye = fx_init(fx_identity_init, FX_DIMS(2, 3), .gain = 4);
    CHECK(eye, (2, 3), 0, 4, 0, 0, 4, 0, 0);
    CHECK(fx_init(fx_identity_init, FX_DIMS(2, 3), .shift = FX_DIMS(0, 1)), (2, 3), 0, 0, 0, 1, 0,
          0, 1);
    CHECK(fx_identity_init(1, (const int64_t[]){2}), (2), 0, 0, 0);
    CHECK(fx_identity_init(3, (const int64_t[]){3, 1, 2}), (3, 1, 2), 0, 0, 1, 0, 0, 0, 0);
    check_error(fx_identity_init(2, (const int64_t[]){(1LL << 54) + 1, 1024}), FX_STATUS_ARGUMENT,
                "the product of the sizes overflows");
    CHECK(fx_init(fx_identity_init, FX_DIMS(2, 2), .shift = FX_DIMS(INT64_MAX)), (2, 2), 0, 0, 1, 1,
          0);
    const int64_t negative[] = {-1, 2}, huge[] = {(1LL << 54) + 1, 1024};
    check_error(fx_orthogonal(2, negative), FX_STATUS_ARGUMENT, "size -1 of axis 0 is negative");
    check_error(fx_orthogonal(2, huge), FX_STATUS_ARGUMENT, "the product of the sizes overflows");
    check_error(fx_init(fx_sparse_init, FX_DIMS((1LL << 54) + 1, 1024), .sparsity = 0.5),
                FX_STATUS_ARGUMENT, "the product of the sizes overflows");
    check_error(fx_init(fx_orthogonal, FX_DIMS(-1, 2)), FX_STATUS_ARGUMENT,
                "a size is negative: -1");
    /* as the weight of a layer it returns its input */
    fx_array *x = fx_rand(3, 2);
    fx_array *y = fx_call(fx_dense(3, 3, .init = fx_identity_init), x);
    CHECK(fx_maximum(fx_abs(fx_sub(x, y))), (), 0, 0);
    fx_array *image = fx_rand(5, 5, 2, 1);
    y = fx_call(fx_conv(FX_DIMS(3, 3), 2, 2, .pad = FX_SAME, .init = fx_identity_init), image);
    CHECK(fx_maximum(fx_abs(fx_sub(image, y))), (), 0, 0);
}

static void test_seeds_and_fans(void **state)
{
    (void)state;
    static const fx_init_fn all[] = {fx_glorot_uniform, fx_lecun_normal, fx_orthogonal,
                                     fx_randn_init};
    for (int i = 0; i < COUNT(all); i++) {
        FX_SCOPE;
        double a[12], b[12], c[12];
        fx_seed(3);
        const uint64_t next = fx_rand_u64();
        fx_seed(3);
        check_read("seed", fx_init(all[i], FX_DIMS(4, 3), .seed = 5), a, 12);
        assert_true(fx_rand_u64() == next); /* the thread's stream is unchanged */
        fx_seed(4);
        check_read("seed", fx_init(all[i], FX_DIMS(4, 3), .seed = 5), b, 12);
        check_read("seed", fx_init(all[i], FX_DIMS(4, 3), .seed = 6), c, 12);
        assert_memory_equal(a, b, sizeof a);
        assert_true(memcmp(a, c, sizeof a) != 0);
    }
    double in, out;
    fx_nfan(2, (const int64_t[]){4, 6}, &in, &out);
    assert_true(in == 6 && out == 4);
    fx_nfan(4, (const int64_t[]){3, 5, 4, 6}, &in, &out);
    assert_true(in == 60 && out == 90);
    fx_nfan(1, (const int64_t[]){7}, &in, &out);
    assert_true(in == 1 && out == 7);
    assert_int_equal(fx_error_status(), FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform),          cmocka_unit_test(test_normal),
        cmocka_unit_test(test_truncated),        cmocka_unit_test(test_truncated_quantiles),
        cmocka_unit_test(test_plain_and_seeded), cmocka_unit_test(test_gains_and_bounds),
        cmocka_unit_test(test_structured),       cmocka_unit_test(test_seeds_and_fans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
