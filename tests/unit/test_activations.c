/* Tests of src/ops/activations.c: values against libm in long double over ±1e4, NaN and infinities
 * as in NNlib, first and second gradients against central differences, gradients at kinks, element
 * types, the two modes of rrelu.
 */
#include "composite_check.h"

/* ---- NNlib's definitions, in long double ----------------------------------------------------- */

typedef long double real;
static real r_sigmoid(real x)
{
    return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}
static real r_softplus(real x)
{
    return log1pl(expl(-fabsl(x))) + fmaxl(x, 0);
}
static real r_identity(real x)
{
    return x;
}
static real r_hardsigmoid(real x)
{
    return fminl(fmaxl((x + 3) / 6, 0), 1);
}
static real r_logsigmoid(real x)
{
    return -r_softplus(-x);
}
static real r_hardtanh(real x)
{
    return fminl(fmaxl(x, -1), 1);
}
static real r_relu(real x)
{
    return fmaxl(x, 0);
}
static real r_relu6(real x)
{
    return fminl(fmaxl(x, 0), 6);
}
static real r_leakyrelu(real x)
{
    return fmaxl(0.01L * x, x);
}
static real r_rrelu(real x)
{
    return x > 0 ? x : x * (1.0L / 8 + 1.0L / 3) / 2;
}
static real r_elu(real x)
{
    return x > 0 ? x : expm1l(x);
}
static real r_elu2(real x)
{
    return x > 0 ? x : 2 * expm1l(x);
}
static real r_celu2(real x)
{
    return x > 0 ? x : 2 * expm1l(x / 2);
}
static real r_selu(real x)
{
    return 1.0507009873554804934L * (x > 0 ? x : 1.6732632423543772848L * expm1l(x));
}
static real r_gelu(real x)
{
    const real inner = sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x);
    return x * r_sigmoid(2 * inner); /* 1 + tanh(z) = 2σ(2z) */
}
static real r_gelu_erf(real x)
{
    return x / 2 * erfcl(-x / sqrtl(2));
}
static real r_swish(real x)
{
    return x * r_sigmoid(x);
}
static real r_hardswish(real x)
{
    return x * r_hardsigmoid(x);
}
static real r_lisht(real x)
{
    return x * tanhl(x);
}
static real r_softsign(real x)
{
    return x / (1 + fabsl(x));
}
static real r_logcosh(real x)
{
    return fabsl(x) + log1pl(expl(-2 * fabsl(x))) - logl(2);
}
static real r_mish(real x)
{
    return x * tanhl(r_softplus(x));
}
static real r_tanhshrink(real x)
{
    return x - tanhl(x);
}
static real r_softshrink(real x)
{
    return x > 0.5L ? x - 0.5L : x < -0.5L ? x + 0.5L : 0;
}
static real r_trelu(real x)
{
    return x > 1 ? x : 0;
}

static fx_array *elu2(fx_array *x)
{
    return fx_elu_alpha(x, 2);
}
static fx_array *celu2(fx_array *x)
{
    return fx_celu_alpha(x, 2);
}

static const double inf = (double)INFINITY, nan_ = (double)NAN;

/* f, its definition, f(+Inf), f(−Inf); smooth: f has no kink, so central differences also hold at
 * 0. */
static const struct activation {
    const char *name;
    unary_fn f;
    real (*definition)(real);
    double at_inf, at_minus_inf;
} activations[] = {
    {"identity", fx_identity, r_identity, INFINITY, -INFINITY},
    {"sigmoid", fx_sigmoid, r_sigmoid, 1, 0},
    {"hardsigmoid", fx_hardsigmoid, r_hardsigmoid, 1, 0},
    {"logsigmoid", fx_logsigmoid, r_logsigmoid, 0, -INFINITY},
    {"tanh", fx_tanh, tanhl, 1, -1},
    {"hardtanh", fx_hardtanh, r_hardtanh, 1, -1},
    {"relu", fx_relu, r_relu, INFINITY, 0},
    {"relu6", fx_relu6, r_relu6, 6, 0},
    {"leakyrelu", fx_leakyrelu, r_leakyrelu, INFINITY, -INFINITY},
    {"rrelu", fx_rrelu, r_rrelu, INFINITY, -INFINITY},
    {"elu", fx_elu, r_elu, INFINITY, -1},
    {"elu2", elu2, r_elu2, INFINITY, -2},
    {"celu", fx_celu, r_elu, INFINITY, -1},
    {"celu2", celu2, r_celu2, INFINITY, -2},
    {"selu", fx_selu, r_selu, INFINITY, -1.0507009873554805 * 1.6732632423543772},
    {"gelu", fx_gelu, r_gelu, INFINITY, NAN},
    {"gelu_sigmoid", fx_gelu_sigmoid, r_gelu, INFINITY, NAN},
    {"gelu_erf", fx_gelu_erf, r_gelu_erf, INFINITY, NAN},
    {"swish", fx_swish, r_swish, INFINITY, NAN},
    {"hardswish", fx_hardswish, r_hardswish, INFINITY, NAN},
    {"lisht", fx_lisht, r_lisht, INFINITY, INFINITY},
    {"softplus", fx_softplus, r_softplus, INFINITY, 0},
    {"softsign", fx_softsign, r_softsign, NAN, NAN},
    {"logcosh", fx_logcosh, r_logcosh, INFINITY, INFINITY},
    {"mish", fx_mish, r_mish, INFINITY, NAN},
    {"tanhshrink", fx_tanhshrink, r_tanhshrink, INFINITY, -INFINITY},
    {"softshrink", fx_softshrink, r_softshrink, INFINITY, -INFINITY},
    {"trelu", fx_trelu, r_trelu, INFINITY, 0},
};

static const double points[] = {
    -1e4, -1000, -100, -90,  -50, -20, -7.5, -6, -3.25, -3, -2,  -1, -0.75, -0.5, -0.1, -1e-4, 0,
    1e-4, 0.1,   0.5,  0.75, 1,   1.5, 2.5,  3,  3.25,  6,  7.5, 20, 50,    90,   100,  1000,  1e4};

static void values_follow_the_definitions(void **state)
{
    (void)state;
    double want[COUNT(points)];
    float narrow[COUNT(points)];
    for (size_t k = 0; k < COUNT(activations); k++) {
        FX_SCOPE;
        const struct activation *a = &activations[k];
        for (int64_t i = 0; i < COUNT(points); i++) {
            want[i] = (double)a->definition((real)points[i]);
            narrow[i] = (float)points[i];
        }
        fx_array *wide = a->f(vector64(points, COUNT(points)));
        assert_int_equal(fx_eltype(wide), FX_DTYPE_F64);
        check_array(a->name, wide, COUNT(points), want, 1e-12, 1e-14);
        for (int64_t i = 0; i < COUNT(points); i++)
            want[i] = (double)a->definition((real)narrow[i]);
        fx_array *single = a->f(fx_from(FX_DTYPE_F32, narrow, COUNT(points)));
        assert_int_equal(fx_eltype(single), FX_DTYPE_F32);
        check_array(a->name, single, COUNT(points), want, 2e-6, 2e-7);
    }
}

static void special_values_follow_NNlib(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(activations); k++) {
        FX_SCOPE;
        const struct activation *a = &activations[k];
        const double x[] = {nan_, inf, -inf}, want[] = {nan_, a->at_inf, a->at_minus_inf};
        check_array(a->name, a->f(vector64(x, 3)), 3, want, 1e-12, 0);
        const float y[] = {NAN, INFINITY, -INFINITY};
        check_array(a->name, a->f(fx_from(FX_DTYPE_F32, y, 3)), 3, want, 1e-6, 0);
    }
}

/* Away from kinks, and at 0 for those that are smooth there. */
static void gradients_match_central_differences(void **state)
{
    (void)state;
    static const double away[] = {-4.5, -2.25, -1.25, -0.75, -0.25, 0.25, 0.75, 1.25, 2.25, 4.5, 7};
    const int64_t n = COUNT(away), one = 1;
    for (size_t k = 0; k < COUNT(activations); k++)
        check_gradients(activations[k].name, activations[k].f, away, 1, &n, 2e-8);
    static const unary_fn smooth[] = {fx_sigmoid,  fx_tanh,    fx_logsigmoid, fx_gelu,
                                      fx_gelu_erf, fx_swish,   fx_lisht,      fx_softplus,
                                      fx_mish,     fx_logcosh, fx_tanhshrink};
    for (size_t k = 0; k < COUNT(smooth); k++)
        check_gradients("smooth at 0", smooth[k], (const double[]){0}, 1, &one, 2e-8);
}

/* Compares the gradients of all activations with differences of their definitions, at 8 points. */
static void check_far_out(const float far[8], fx_dtype dtype, double near)
{
    for (size_t k = 0; k < COUNT(activations); k++) {
        FX_SCOPE;
        fx_array *x = fx_cast(fx_from(FX_DTYPE_F32, far, 8), dtype), *g = NULL;
        fx_gradient_of(fx_sum(activations[k].f(x)), &x, 1, &g);
        double v[8];
        check_read(activations[k].name, g, v, 8);
        for (int i = 0; i < 8; i++) {
            const real h = 1, d = (activations[k].definition((real)far[i] + h) -
                                   activations[k].definition((real)far[i] - h)) /
                                  (2 * h);
            check_value(activations[k].name, i, v[i], (double)d, near, near);
        }
    }
}

/* The branch that is not taken must not overflow and give 0·Inf, nor must squares and exponentials
 * that leave the range of Float16. */
static void gradients_are_finite_far_out(void **state)
{
    (void)state;
    static const float far[] = {-1e4F, -1e3F, -300, -100, 100, 300, 1e3F, 1e4F};
    static const float far16[] = {-6e4F, -1e3F, -300, -100, 100, 300, 1e3F, 6e4F};
    check_far_out(far, FX_DTYPE_F32, 1e-5);
    check_far_out(far16, FX_DTYPE_F16, 2e-3);
}

/* ---- NNlib's derivatives --------------------------------------------------------------------- */
/* The rules of NNlib 0.9.36 for x and the result y, in its own form: at kinks, NaN and infinities
 * the form decides. */

static const real selu_factor = 1.0507009873554804934L,
                  selu_limit = 1.0507009873554804934L * 1.6732632423543772848L;

static real d_identity(real x, real y)
{
    (void)x, (void)y;
    return 1;
}
static real d_sigmoid(real x, real y)
{
    (void)x;
    return y * (1 - y);
}
static real d_hardsigmoid(real x, real y)
{
    (void)x;
    return y > 0 && y < 1 ? 1 / 6.0L : 0;
}
static real d_logsigmoid(real x, real y)
{
    (void)y;
    return r_sigmoid(-x);
}
static real d_tanh(real x, real y)
{
    (void)x;
    return 1 - y * y;
}
static real d_hardtanh(real x, real y)
{
    (void)x;
    return y > -1 && y < 1;
}
static real d_positive(real x, real y) /* relu and trelu */
{
    (void)x;
    return y > 0;
}
static real d_relu6(real x, real y)
{
    (void)x;
    return y > 0 && y < 6;
}
static real d_leakyrelu(real x, real y)
{
    (void)x;
    return y > 0 ? 1 : 0.01L;
}
static real d_elu(real x, real y)
{
    (void)x;
    return y >= 0 ? 1 : y + 1;
}
static real d_elu2(real x, real y)
{
    (void)x;
    return y >= 0 ? 1 : y + 2;
}
static real d_celu(real x, real y)
{
    (void)x;
    return y > 0 ? 1 : y + 1;
}
static real d_celu2(real x, real y)
{
    (void)x;
    return y > 0 ? 1 : y / 2 + 1;
}
static real d_selu(real x, real y)
{
    (void)x;
    return y > 0 ? selu_factor : y + selu_limit;
}
static real d_gelu(real x, real y)
{
    (void)y;
    const real scale = sqrtl(8 / acosl(-1)), t = 1 + 0.044715L * x * x;
    const real gate = r_sigmoid(scale * x * t);
    return gate * (1 - gate) * scale * (0.08943L * x * x + t) * x + gate;
}
static real d_gelu_erf(real x, real y)
{
    (void)y;
    return erfcl(-x / sqrtl(2)) / 2 + x * expl(-x * x / 2) / sqrtl(2 * acosl(-1));
}
static real d_swish(real x, real y)
{
    return y + r_sigmoid(x) * (1 - y);
}
static real d_hardswish(real x, real y)
{
    (void)y;
    return x < -3 ? 0 : x > 3 ? 1 : x / 3 + 0.5L;
}
static real d_softplus(real x, real y)
{
    (void)y;
    return r_sigmoid(x);
}
static real d_softsign(real x, real y)
{
    (void)y;
    return 1 / ((1 + fabsl(x)) * (1 + fabsl(x)));
}
static real d_tanhshrink(real x, real y)
{
    return (x - y) * (x - y);
}
static real d_softshrink(real x, real y)
{
    (void)x;
    return y != 0;
}

static const struct {
    const char *name;
    real (*slope)(real x, real y); /* NULL: NNlib has no rule */
} rules[] = {
    {"identity", d_identity},
    {"sigmoid", d_sigmoid},
    {"hardsigmoid", d_hardsigmoid},
    {"logsigmoid", d_logsigmoid},
    {"tanh", d_tanh},
    {"hardtanh", d_hardtanh},
    {"relu", d_positive},
    {"relu6", d_relu6},
    {"leakyrelu", d_leakyrelu},
    {"rrelu", NULL},
    {"elu", d_elu},
    {"elu2", d_elu2},
    {"celu", d_celu},
    {"celu2", d_celu2},
    {"selu", d_selu},
    {"gelu", d_gelu},
    {"gelu_sigmoid", d_gelu},
    {"gelu_erf", d_gelu_erf},
    {"swish", d_swish},
    {"hardswish", d_hardswish},
    {"lisht", NULL},
    {"softplus", d_softplus},
    {"softsign", d_softsign},
    {"logcosh", NULL},
    {"mish", NULL},
    {"tanhshrink", d_tanhshrink},
    {"softshrink", d_softshrink},
    {"trelu", d_positive},
};

static double expected_slope(size_t k, double x)
{
    const struct activation *a = &activations[k];
    const double y = isnan(x)   ? nan_
                     : isinf(x) ? (x > 0 ? a->at_inf : a->at_minus_inf)
                                : (double)a->definition((real)x);
    return (double)rules[k].slope((real)x, (real)y);
}

static void gradients_follow_the_rules_of_NNlib(void **state)
{
    (void)state;
    const double x[] = {nan_, inf, -inf, 0,  -0.0, 0.5, -0.5, 1,   -1,
                        2,    -2,  3,    -3, 6,    -6,  1e-3, 100, -100};
    assert_int_equal(COUNT(rules), COUNT(activations));
    for (size_t k = 0; k < COUNT(activations); k++) {
        FX_SCOPE;
        assert_string_equal(rules[k].name, activations[k].name);
        if (!rules[k].slope)
            continue;
        double want[COUNT(x)];
        for (size_t i = 0; i < COUNT(x); i++)
            want[i] = expected_slope(k, x[i]);
        fx_array *wide = vector64(x, COUNT(x)), *narrow = fx_cast(wide, FX_DTYPE_F32), *g = NULL;
        fx_gradient_of(fx_sum(activations[k].f(wide)), &wide, 1, &g);
        check_array(activations[k].name, g, COUNT(x), want, 1e-12, 1e-12);
        fx_gradient_of(fx_sum(activations[k].f(narrow)), &narrow, 1, &g);
        check_array(activations[k].name, g, COUNT(x), want, 2e-6, 2e-6);
    }
}

/* Slopes that are small differences of other numbers: tanh² x near 0, and 1/(1 + |x|)² far out. */
static void small_slopes_are_precise(void **state)
{
    (void)state;
    static const float x[] = {1e-6F, -1e-4F, 1e-3F, 0.01F, -0.1F, 1e2F, -1e3F, 1e4F, -1e6F};
    enum { N = sizeof x / sizeof *x };
    double shrink[N], sign[N];
    for (int i = 0; i < N; i++) {
        shrink[i] = (double)(tanhl((real)x[i]) * tanhl((real)x[i]));
        sign[i] = (double)d_softsign((real)x[i], 0);
    }
    FX_SCOPE;
    fx_array *a = fx_from(FX_DTYPE_F32, x, N), *g = NULL;
    fx_gradient_of(fx_sum(fx_tanhshrink(a)), &a, 1, &g);
    check_array("tanhshrink", g, N, shrink, 0, 1e-6);
    fx_gradient_of(fx_sum(fx_softsign(a)), &a, 1, &g);
    check_array("softsign", g, N, sign, 0, 1e-6);
}

/* The second derivatives: 2·tanh x·(1 − tanh² x) and −2·sign(x)/(1 + |x|)³. */
static void second_derivatives_follow_the_rules(void **state)
{
    (void)state;
    static const double x[] = {-3, -0.5, 1e-3, 0.25, 2, 40};
    enum { N = sizeof x / sizeof *x };
    double shrink[N], sign[N];
    for (int i = 0; i < N; i++) {
        const real t = tanhl((real)x[i]), d = 1 + fabsl((real)x[i]);
        shrink[i] = (double)(2 * t * (1 - t * t));
        sign[i] = (double)(copysignl(2, -(real)x[i]) / (d * d * d));
    }
    FX_SCOPE;
    fx_array *a = vector64(x, N), *g = NULL, *h = NULL;
    fx_gradient_of(fx_sum(fx_tanhshrink(a)), &a, 1, &g);
    fx_gradient_of(fx_sum(g), &a, 1, &h);
    check_array("tanhshrink", h, N, shrink, 1e-12, 1e-12);
    fx_gradient_of(fx_sum(fx_softsign(a)), &a, 1, &g);
    fx_gradient_of(fx_sum(g), &a, 1, &h);
    check_array("softsign", h, N, sign, 1e-12, 1e-12);
}

static double slope_at(unary_fn f, double x)
{
    FX_SCOPE;
    fx_array *a = vector64(&x, 1), *g = NULL;
    fx_gradient_of(fx_sum(f(a)), &a, 1, &g);
    return fx_item(g);
}

/* What PyTorch records at these points, and NNlib where it defines a rule (relu, elu, selu,
 * hardtanh). */
static void gradients_at_kinks(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unary_fn f;
        double x, slope;
    } kinks[] = {
        {"relu", fx_relu, 0, 0},
        {"relu -0", fx_relu, -0.0, 0},
        {"relu6", fx_relu6, 0, 0},
        {"relu6", fx_relu6, 6, 0},
        {"hardtanh", fx_hardtanh, 1, 0},
        {"hardtanh", fx_hardtanh, -1, 0},
        {"hardsigmoid", fx_hardsigmoid, 3, 0},
        {"hardsigmoid", fx_hardsigmoid, -3, 0},
        {"leakyrelu", fx_leakyrelu, 0, 0.01},
        {"elu", fx_elu, 0, 1},
        {"elu2", elu2, 0, 1},
        {"celu2", celu2, 0, 1},
        {"selu", fx_selu, 0, 1.0507009873554805 * 1.6732632423543772},
        {"softshrink", fx_softshrink, 0.5, 0},
        {"softshrink", fx_softshrink, -0.5, 0},
        {"trelu", fx_trelu, 1, 0},
        {"hardswish", fx_hardswish, -3, -0.5},
        {"hardswish", fx_hardswish, 3, 1.5},
        {"softsign", fx_softsign, 0, 1},
    };
    for (size_t k = 0; k < COUNT(kinks); k++)
        check_value(kinks[k].name, 0, slope_at(kinks[k].f, kinks[k].x), kinks[k].slope, 1e-15, 0);
}

static void parameters_of_the_parametric_forms(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(-2, -0.5F, 0.5F, 2);
    CHECK(fx_leakyrelu_slope(x, 0.25), (4), 0, -0.5, -0.125, 0.5, 2);
    CHECK(fx_softshrink_lambda(x, 1), (4), 0, -1, 0, 0, 1);
    CHECK(fx_trelu_theta(x, 0.25), (4), 0, 0, 0, 0.5, 2);
}

static void integers_stay_or_become_Float32(void **state)
{
    (void)state;
    FX_SCOPE;
    const int32_t i[] = {-9, -1, 0, 1, 9};
    const uint8_t u[] = {0, 1, 9, 255};
    fx_array *x = fx_from(FX_DTYPE_I32, i, 5), *y = fx_from(FX_DTYPE_U8, u, 4);
    static const unary_fn keep[] = {fx_relu, fx_relu6, fx_hardtanh, fx_trelu, fx_identity};
    for (size_t k = 0; k < COUNT(keep); k++)
        assert_int_equal(fx_eltype(keep[k](x)), FX_DTYPE_I32);
    CHECK(fx_relu6(x), (5), 0, 0, 0, 0, 1, 6);
    CHECK(fx_hardtanh(x), (5), 0, -1, -1, 0, 1, 1);
    CHECK(fx_hardtanh(y), (4), 0, 0, 1, 1, 1);
    CHECK(fx_hardsigmoid(y), (4), 1e-7, 0.5, 4.0 / 6, 1, 1);
    CHECK(fx_softplus(y), (4), 1e-6, log(2), log1p(exp(1)), 9 + log1p(exp(-9)), 255);
    CHECK(fx_logsigmoid(y), (4), 1e-6, -log(2), -log1p(exp(-1)), -log1p(exp(-9)), 0);
    assert_int_equal(fx_eltype(fx_elu(x)), FX_DTYPE_F32);
    CHECK(fx_elu(x), (5), 1e-6, expm1(-9), expm1(-1), 0, 1, 9);
    assert_int_equal(fx_eltype(fx_gelu(fx_cast(x, FX_DTYPE_F16))), FX_DTYPE_F16);
    assert_int_equal(fx_eltype(fx_selu(fx_cast(x, FX_DTYPE_BF16))), FX_DTYPE_BF16);
}

static void rrelu_draws_slopes_in_training(void **state)
{
    (void)state;
    FX_STEP;
    enum { N = 4000 };
    fx_seed(1);
    fx_array *y = fx_rrelu(fx_full(-1, N)), *z = fx_rrelu(fx_full(-1, N));
    const double lo = fx_item(fx_minimum(fx_neg(y))), hi = fx_item(fx_maximum(fx_neg(y)));
    assert_true(lo >= 0.125 && lo < 0.13 && hi <= 1.0 / 3 + 1e-7 && hi > 0.328);
    /* uniform: mean 11/48, standard deviation of the mean (5/24)/√12/√N = 0.00095 */
    check_value("mean slope", 0, -fx_item(fx_mean(y)), 11.0 / 48, 0, 5 * 0.00095);
    assert_true(fx_item(fx_sum(fx_cast(fx_eq(y, z), FX_DTYPE_I32))) <
                5); /* each call draws new numbers */
    CHECK(fx_rrelu(fx_vector(2, 3)), (2), 0, 2, 3);
}

static void errors_and_empty_arrays_pass(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *bad = fx_error_array(FX_STATUS_SHAPE);
    for (size_t k = 0; k < COUNT(activations); k++) {
        assert_int_equal(fx_array_status(activations[k].f(bad)), FX_STATUS_SHAPE);
        check_dims(activations[k].name, activations[k].f(fx_zeros(3, 0)), 2,
                   (const int64_t[]){3, 0});
        check_dims(activations[k].name, activations[k].f(fx_zeros()), 0, NULL);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void glu_splits_an_axis(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_from(FX_DTYPE_F64, ((const double[]){1, 2, 3, 0, -1, 5, -2, 4}), 4, 2);
    const double by_rows[] = {1 / (1 + exp(-3.0)), 2 * 0.5, -1 / (1 + exp(2.0)),
                              5 / (1 + exp(-4.0))};
    fx_array *y = fx_glu(x, 0);
    assert_int_equal(fx_size(y, 0), 2);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(fx_at(y, i) - by_rows[i]) < 1e-14);
    y = fx_glu(x, 1);
    assert_int_equal(fx_size(y, 1), 1);
    assert_true(fabs(fx_at(y, 2) - 3 / (1 + exp(2.0))) < 1e-14);
    assert_true(fx_is_error(fx_glu(x, 2)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_glu(fx_ones(3), 0)));
    assert_int_equal(fx_error_take().status, FX_STATUS_SHAPE);
    assert_true(fx_is_error(fx_glu(NULL, 0)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glu_splits_an_axis),
        cmocka_unit_test(values_follow_the_definitions),
        cmocka_unit_test(special_values_follow_NNlib),
        cmocka_unit_test(gradients_match_central_differences),
        cmocka_unit_test(gradients_are_finite_far_out),
        cmocka_unit_test(gradients_at_kinks),
        cmocka_unit_test(gradients_follow_the_rules_of_NNlib),
        cmocka_unit_test(small_slopes_are_precise),
        cmocka_unit_test(second_derivatives_follow_the_rules),
        cmocka_unit_test(parameters_of_the_parametric_forms),
        cmocka_unit_test(integers_stay_or_become_Float32),
        cmocka_unit_test(rrelu_draws_slopes_in_training),
        cmocka_unit_test(errors_and_empty_arrays_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
