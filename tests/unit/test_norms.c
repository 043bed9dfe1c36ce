/* test_norms.c: InstanceNorm, GroupNorm, RMSNorm and AlphaDropout against numbers worked out by
 * hand; files, gradients and devices are in test_every_layer.c and test_bson_layers.c. */
#include "semantics_check.h"

/* Two channels of two observations: (1, 3), (2, 6) and (0, 8), (5, 5). */
static fx_array *input(void)
{
    return fx_reshape(fx_vector(1, 3, 2, 6, 0, 8, 5, 5), 2, 2, 2);
}

static void expect_values(fx_array *y, int n, const double *expected)
{
    assert_int_equal(fx_length(y), n);
    for (int i = 0; i < n; i++)
        NEAR(fx_at(y, i), expected[i], 1e-5);
}

/* Means 2, 4, 4, 5, deviations 1, 2, 4, 0. */
static void instance_norm_is_per_channel_and_observation(void **state)
{
    (void)state;
    FX_SCOPE;
    static const double plain[] = {-1, 1, -1, 1, -1, 1, 0, 0};
    expect_values(fx_call(fx_instancenorm(2, .eps = 1e-12), input()), 8, plain);
    fx_instancenorm_layer *l =
        fx_instancenorm(2, .affine = true, .track_stats = true, .momentum = 0.5, .eps = 1e-12);
    fx_set(&l->gamma, fx_vector(2, 3));
    fx_set(&l->beta, fx_vector(10, 20));
    {
        FX_STEP;
        static const double affine[] = {8, 12, 17, 23, 8, 12, 20, 20};
        expect_values(fx_call(l, input()), 8, affine);
    }
    /* half of the old 0 and half of the mean over observations: means 3 and 4.5; variances 17/2 and
     * 4/2, times n/(n − 1) = 2, with half of the old 1 */
    NEAR(fx_at(l->mean, 0), 1.5, 1e-6);
    NEAR(fx_at(l->mean, 1), 2.25, 1e-6);
    NEAR(fx_at(l->var, 0), 0.5 + 8.5, 1e-6);
    NEAR(fx_at(l->var, 1), 0.5 + 2, 1e-6);
    fx_array *y = fx_call(l, input()); /* inference: by the running statistics */
    NEAR(fx_at(y, 0), 10 + 2 * (1 - 1.5) / 3, 1e-5);
    NEAR(fx_at(y, 7), 20 + 3 * (5 - 2.25) / sqrt(2.5), 1e-5);
}

/* Groups of two channels: means 3 and 4.5. */
static void group_norm_is_per_group(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y = fx_call(fx_groupnorm(2, 1, .eps = 0.5), input());
    const double d1 = sqrt(3.5 + 0.5), d2 = sqrt((20.25 + 12.25 + 0.25 + 0.25) / 4 + 0.5);
    const double expected[] = {-2 / d1,   0,        -1 / d1,  3 / d1,
                               -4.5 / d2, 3.5 / d2, 0.5 / d2, 0.5 / d2};
    expect_values(y, 8, expected);
    assert_true(fx_is_error(fx_groupnorm(8, 3)));
    expect_error(FX_STATUS_ARGUMENT,
                 "The number of groups (3) must divide the number of channels (8)");
}

static void rms_norm_divides_by_the_root_of_the_mean_square(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_rmsnorm_layer *l = fx_rmsnorm(FX_DIMS(2), .eps = 0);
    fx_set(&l->scale, fx_vector(1, 10));
    fx_array *y = fx_call(l, fx_reshape(fx_vector(3, 4, 0, 2), 2, 2));
    const double r = sqrt(12.5), expected[] = {3 / r, 40 / r, 0, 20 / sqrt(2)};
    expect_values(y, 4, expected);
    assert_true(fx_is_error(fx_call(l, fx_ones(3, 2))));
    expect_error(FX_STATUS_SHAPE, "layer RMSNorm(2, eps=0.0) expects size(input, 1) == 2");
}

/* Two values occur, A·x + B and A·α′ + B; normal inputs keep mean 0 and variance 1. */
static void alpha_dropout_keeps_mean_and_variance(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 20000 };
    fx_seed(5);
    void *l = fx_alphadropout(0.3);
    fx_array *x = fx_randn(N), *y;
    {
        FX_STEP;
        y = fx_keep(fx_call(l, x));
        fx_eval(y);
    }
    const double limit = -1.7580993408473766, a = 1 / sqrt(0.7 * (1 + 0.3 * limit * limit)),
                 b = -a * limit * 0.3;
    int dropped = 0;
    for (int i = 0; i < N; i++) {
        const double kept = a * fx_at(x, i) + b, value = fx_at(y, i);
        const bool is_dropped = fabs(value - (a * limit + b)) < 1e-5;
        assert_true(is_dropped || fabs(value - kept) < 1e-5);
        dropped += is_dropped;
    }
    assert_true(dropped > 0.28 * N && dropped < 0.32 * N);
    NEAR(fx_item(fx_mean(y)), 0, 0.05);
    NEAR(fx_item(fx_var(y)), 1, 0.05);
    assert_true(fx_call(l, x) == x); /* inference */
    assert_true(fx_is_error(fx_alphadropout(1.5)));
    expect_error(FX_STATUS_ARGUMENT, "AlphaDropout: expects 0 ≤ p ≤ 1, got p = 1.5");
}

/* The value, and the first, second and third derivative along v, of Σ w·y. */
static void derivatives(fx_array *y, fx_array *x, fx_array *w, fx_array *v, fx_array *of[4])
{
    of[0] = fx_sum(fx_mul(w, y));
    for (int k = 1; k < 4; k++) {
        fx_array *g;
        assert_int_equal(fx_pullback(of[k - 1], fx_ones_like(of[k - 1]), &x, 1, &g), FX_OK);
        of[k] = fx_sum(fx_mul(v, g));
    }
}

/* Norms multiply by the reciprocal of the deviation, and have gradients of their own: those of the
 * quotient, here in the form of the formula. */
static void gradients_of_every_order_are_those_of_the_quotient(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 7, M = 3 };
    fx_seed(9);
    fx_array *x = fx_randn_dtype(FX_DTYPE_F64, N, M), *w = fx_randn_dtype(FX_DTYPE_F64, N, M),
             *v = fx_randn_dtype(FX_DTYPE_F64, N, M);
    for (int root = 0; root < 2; root++) {
        fx_array *centred = root ? x : fx_sub(x, fx_mean(x, .dims = FX_AXES(0)));
        fx_array *square = fx_mean(fx_mul(centred, centred), .dims = FX_AXES(0));
        fx_array *formula = fx_div(centred, fx_sqrt(fx_add(square, 0.25)));
        fx_array *y = root ? fx_call(fx_rmsnorm(FX_DIMS(N), .affine = false, .eps = 0.25), x)
                           : fx_normalise(x, FX_AXES(0), 0.25);
        fx_array *is[4], *expected[4];
        derivatives(y, x, w, v, is);
        derivatives(formula, x, w, v, expected);
        for (int k = 0; k < 4; k++)
            NEAR(fx_item(is[k]), fx_item(expected[k]), 1e-12 * (1 + fabs(fx_item(expected[k]))));
    }
}

static void keep_float32_in_16_bit_models(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_instancenorm_layer *i = fx_f16(fx_instancenorm(2, .affine = true));
    fx_groupnorm_layer *g = fx_bf16(fx_groupnorm(4, 2));
    fx_rmsnorm_layer *r = fx_f16(fx_rmsnorm(FX_DIMS(2)));
    assert_int_equal(fx_eltype(i->gamma), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(g->beta), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(r->scale), FX_DTYPE_F16);
}

/* Numbers that both 16-bit types round: a Float32 layer gives the exact result, and the layer of a
 * 16-bit model its nearest 16-bit number, also after an activation that is exact. */
static void results_have_the_type_of_16_bit_inputs(void **state)
{
    (void)state;
    FX_SCOPE;
    void *const layers[] = {fx_batchnorm(2, FX_RELU),
                            fx_batchnorm(2, .affine = false, .track_stats = false),
                            fx_instancenorm(2, .affine = true, .track_stats = true),
                            fx_instancenorm(2),
                            fx_groupnorm(2, 1, FX_RELU),
                            fx_groupnorm(2, 1, .affine = false),
                            fx_layernorm(FX_DIMS(2)),
                            fx_rmsnorm(FX_DIMS(2))};
    static const struct {
        fx_dtype type;
        double epsilon; /* half the distance from 1 to the next number */
    } types[] = {{FX_DTYPE_F16, 0x1p-11}, {FX_DTYPE_BF16, 0x1p-8}};
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++)
        for (int t = 0; t < 2; t++)
            for (int training = 0; training < 2; training++) {
                FX_SCOPE;
                fx_array *x = fx_cast(input(), types[t].type), *exact, *y;
                void *small = fxi_in_precision(types[t].type, layers[l]);
                if (training) {
                    FX_STEP;
                    exact = fx_keep(fx_call(layers[l], input()));
                    y = fx_keep(fx_call(small, x));
                    fx_eval(fx_tuple(exact, y));
                } else {
                    exact = fx_call(layers[l], input());
                    y = fx_call(small, x);
                }
                assert_int_equal(fx_eltype(y), types[t].type);
                for (int i = 0; i < 8; i++) {
                    const double want = fx_at(exact, i);
                    NEAR(fx_at(y, i), want, 1e-6 + 1.01 * types[t].epsilon * fabs(want));
                }
            }
    /* statistics and parameters stay Float32; a Float32 input gives a Float32 result */
    fx_batchnorm_layer *b = fx_bf16(fx_batchnorm(2));
    assert_int_equal(fx_eltype(b->mean), FX_DTYPE_F32);
    assert_int_equal(fx_eltype(fx_call(b, input())), FX_DTYPE_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(instance_norm_is_per_channel_and_observation),
        TEST(group_norm_is_per_group),
        TEST(rms_norm_divides_by_the_root_of_the_mean_square),
        TEST(alpha_dropout_keeps_mean_and_variance),
        TEST(gradients_of_every_order_are_those_of_the_quotient),
        TEST(keep_float32_in_16_bit_models),
        TEST(results_have_the_type_of_16_bit_inputs),
    };
    return cmocka_run_group_tests_name("norms", tests, NULL, NULL);
}
