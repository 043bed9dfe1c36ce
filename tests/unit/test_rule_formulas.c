/* test_rule_formulas.c: every rule of Optimisers.jl through fx_update, against its formula written
 * out here for one number in double; compositions, printing, files, and that the update of a whole
 * model stays one step of the plan.
 */
#include "composite_check.h"

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>

#include "state_parts.h"
#include "temp_file.h"
#include "refused.h"

/* ---- formulas ---------------------------------------------------------------------------- */

/* The state of one number, as the formula of a rule keeps it. */
typedef struct number {
    double x, a, b, c, t; /* t: updates so far */
} number;

static const double GRADIENTS[] = {0.5, -0.3, -0.2, 0.7, 0.0, 0.4, 1.9, -2.5, 0.1, 0.05};

static double m_hat(number *n, double g, double b1)
{
    n->a = b1 * n->a + (1 - b1) * g;
    return n->a / (1 - pow(b1, n->t));
}
static double v_hat(number *n, double g, double b2)
{
    n->b = b2 * n->b + (1 - b2) * g * g;
    return n->b / (1 - pow(b2, n->t));
}

static double by_rprop(number *n, double g)
{
    const double turn = n->a * g;
    if (n->t == 1)
        n->b = 0.1;
    n->b = turn > 0 ? fmin(n->b * 1.5, 0.2) : turn < 0 ? fmax(n->b * 0.25, 0.05) : n->b;
    n->a = turn < 0 ? 0 : g;
    return n->b * ((n->a > 0) - (n->a < 0));
}
static double by_rmsprop(number *n, double g)
{
    n->a = 0.8 * n->a + 0.2 * g * g;
    return 0.1 * g / (sqrt(n->a) + 1e-3);
}
static double by_centred(number *n, double g)
{
    n->a = 0.8 * n->a + 0.2 * g * g;
    n->b = 0.8 * n->b + 0.2 * g;
    return 0.1 * g / (sqrt(n->a - n->b * n->b) + 1e-3);
}
static double by_adam(number *n, double g)
{
    const double m = m_hat(n, g, 0.7), v = v_hat(n, g, 0.9);
    return 0.1 * m / (sqrt(v) + 1e-3);
}
static double by_adamax(number *n, double g)
{
    const double m = m_hat(n, g, 0.7);
    n->b = fmax(0.9 * n->b, fabs(g));
    return 0.1 * m / (n->b + 1e-3);
}
static double by_nadam(number *n, double g)
{
    m_hat(n, g, 0.7);
    const double v = v_hat(n, g, 0.9);
    const double ahead = 0.7 * n->a / (1 - pow(0.7, n->t + 1));
    return 0.1 * (ahead + 0.3 * g / (1 - pow(0.7, n->t))) / (sqrt(v * 0.9) + 1e-3);
}
static double by_radam(number *n, double g)
{
    const double m = m_hat(n, g, 0.7), v = v_hat(n, g, 0.999), most = 1999;
    const double p = pow(0.999, n->t), rho = most - 2 * n->t * p / (1 - p);
    if (rho <= 4)
        return 0.1 * m;
    const double r = sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho));
    return 0.1 * r * m / (sqrt(v) + 1e-3);
}
static double by_amsgrad(number *n, double g)
{
    if (n->t == 1)
        n->a = n->b = n->c = 1e-3;
    n->a = 0.7 * n->a + 0.3 * g;
    n->b = 0.9 * n->b + 0.1 * g * g;
    n->c = fmax(n->c, n->b);
    return 0.1 * n->a / (sqrt(n->c) + 1e-3);
}
static double by_oadam(number *n, double g)
{
    const double d = by_adam(n, g), before = n->c;
    n->c = d;
    return 2 * d - before;
}
static double by_adabelief(number *n, double g)
{
    const double m = m_hat(n, g, 0.7);
    n->b = 0.9 * n->b + 0.1 * (g - n->a) * (g - n->a) + 1e-3;
    return 0.1 * m / (sqrt(n->b / (1 - pow(0.9, n->t))) + 1e-3);
}
static double by_adagrad(number *n, double g)
{
    n->a = (n->t == 1 ? 1e-3 : n->a) + g * g;
    return 0.1 * g / (sqrt(n->a) + 1e-3);
}
static double by_adadelta(number *n, double g)
{
    n->a = 0.8 * n->a + 0.2 * g * g;
    const double d = g * sqrt(n->b + 1e-3) / sqrt(n->a + 1e-3);
    n->b = 0.8 * n->b + 0.2 * d * d;
    return d;
}
static double by_lion(number *n, double g)
{
    const double c = 0.7 * n->a + 0.3 * g;
    n->a = 0.9 * n->a + 0.1 * g;
    return 0.1 * ((c > 0) - (c < 0));
}
static double by_chain(number *n, double g)
{
    const double x = n->x, decayed = g + 0.1 * x, clipped = fmax(-0.6, fmin(0.6, decayed));
    n->a = 0.5 * n->a + 0.1 * (clipped + 0.2 * ((x > 0) - (x < 0)));
    return n->a;
}
static double by_clip_norm(number *n, double g)
{
    (void)n; /* both elements of the array are g: the norm is √2·|g| */
    const double norm = sqrt(2) * fabs(g);
    return norm > 0 ? g * fmin(0.5 / norm, 1) : 0;
}
static double by_clip_infinity(number *n, double g)
{
    (void)n;
    return g == 0 ? 0 : g * fmin(0.25 / fabs(g), 1);
}
static double by_accum(number *n, double g)
{
    n->a = (fmod(n->t, 3) == 1 ? 0 : n->a) + g / 3;
    if (fmod(n->t, 3) != 0)
        return 0;
    n->b = 0.5 * n->b + 0.1 * n->a; /* a Momentum after it */
    return n->b;
}

typedef struct rule_case {
    fx_rule *rule;
    double (*formula)(number *n, double g);
    const char *leaf; /* as printed for two numbers */
} rule_case;

#define BETAS .eta = 0.1, .beta1 = 0.7, .beta2 = 0.9, .epsilon = 1e-3
#define V2    "2-element Vector{Float64}"
enum { CASES = 17 };
static void make_cases(rule_case out[CASES])
{
    fx_rule *inner = fx_optimiser_chain(fx_clip_grad(0.6), fx_sign_decay(0.2));
    const rule_case all[CASES] = {
        {fx_rprop(.eta = 0.1, .ell1 = 0.25, .ell2 = 1.5, .gamma1 = 0.05, .gamma2 = 0.2), by_rprop,
         "Leaf(Rprop(eta=0.1, ell=(0.25, 1.5), gamma=(0.05, 0.2)), (" V2 ", " V2 "))"},
        {fx_rmsprop(.eta = 0.1, .rho = 0.8, .epsilon = 1e-3), by_rmsprop,
         "Leaf(RMSProp(eta=0.1, rho=0.8, epsilon=0.001, centred=false), (" V2 ", false))"},
        {fx_rmsprop(.eta = 0.1, .rho = 0.8, .epsilon = 1e-3, .centred = true), by_centred,
         "Leaf(RMSProp(eta=0.1, rho=0.8, epsilon=0.001, centred=true), (" V2 ", " V2 "))"},
        {fx_adamax(BETAS), by_adamax,
         "Leaf(AdaMax(eta=0.1, beta=(0.7, 0.9), epsilon=0.001), (" V2 ", " V2 ", (0.7, 0.9)))"},
        {fx_nadam(BETAS), by_nadam, NULL},
        {fx_radam(.eta = 0.1, .beta1 = 0.7, .epsilon = 1e-3), by_radam,
         "Leaf(RAdam(eta=0.1, beta=(0.7, 0.999), epsilon=0.001), (" V2 ", " V2
         ", (0.7, 0.999), 1))"},
        {fx_amsgrad(BETAS), by_amsgrad,
         "Leaf(AMSGrad(eta=0.1, beta=(0.7, 0.9), epsilon=0.001), (" V2 ", " V2 ", " V2 "))"},
        {fx_oadam(BETAS), by_oadam,
         "Leaf(OAdam(eta=0.1, beta=(0.7, 0.9), epsilon=0.001), (" V2 ", " V2 ", (0.7, 0.9), " V2
         "))"},
        {fx_adabelief(BETAS), by_adabelief, NULL},
        {fx_adagrad(.eta = 0.1, .epsilon = 1e-3), by_adagrad,
         "Leaf(AdaGrad(eta=0.1, epsilon=0.001), " V2 ")"},
        {fx_adadelta(.rho = 0.8, .epsilon = 1e-3), by_adadelta,
         "Leaf(AdaDelta(rho=0.8, epsilon=0.001), (" V2 ", " V2 "))"},
        {fx_lion(.eta = 0.1, .beta1 = 0.7, .beta2 = 0.9), by_lion,
         "Leaf(Lion(eta=0.1, beta=(0.7, 0.9)), " V2 ")"},
        {fx_optimiser_chain(fx_weight_decay(0.1), inner, fx_momentum(.eta = 0.1, .rho = 0.5)),
         by_chain,
         "Leaf(OptimiserChain(WeightDecay(lambda=0.1), OptimiserChain(ClipGrad(delta=0.6), "
         "SignDecay(lambda=0.2)), "
         "Momentum(eta=0.1, rho=0.5)), (nothing, (nothing, nothing), " V2 "))"},
        {fx_clip_norm(0.5), by_clip_norm, "Leaf(ClipNorm(omega=0.5, p=2.0, throw=true), nothing)"},
        {fx_clip_norm(.omega = 0.25, .p = (double)INFINITY, .throws = false), by_clip_infinity,
         "Leaf(ClipNorm(omega=0.25, p=Inf, throw=false), nothing)"},
        {fx_optimiser_chain(fx_accum_grad(3), fx_momentum(.eta = 0.1, .rho = 0.5)), by_accum,
         "Leaf(OptimiserChain(AccumGrad(3), Momentum(eta=0.1, rho=0.5)), ((" V2 ", 1), " V2 "))"},
        {fx_optimiser_chain(), NULL, "Leaf(OptimiserChain(), ())"},
    };
    memcpy(out, all, sizeof all);
}

static fx_array *twice(double x, fx_dtype type)
{
    return fx_full_dtype(type, x, 2);
}

static void check_formula(const rule_case *c, fx_dtype type, double tolerance)
{
    FX_SCOPE;
    fx_array *x = twice(1, type);
    void *state = fx_setup(c->rule, x);
    number n = {.x = 1};
    char name[400];
    fx_summary(c->rule, name, sizeof name);
    for (int64_t k = 0; k < COUNT(GRADIENTS); k++) {
        FX_STEP;
        n.t++;
        n.x -= c->formula ? c->formula(&n, GRADIENTS[k]) : GRADIENTS[k];
        assert_int_equal(fx_update(state, x, twice(GRADIENTS[k], type)), FX_OK);
        check_array(name, x, 2, (double[]){n.x, n.x}, tolerance, tolerance);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void formulas(void **state)
{
    (void)state;
    FX_SCOPE;
    rule_case all[CASES];
    make_cases(all);
    for (int i = 0; i < CASES; i++) {
        check_formula(&all[i], FX_DTYPE_F64, 1e-12);
        check_formula(&all[i], FX_DTYPE_F32, 2e-5);
    }
}

/* Six updates of two arrays, in recorded training steps or in others. */
static void update_pair(fx_rule *rule, bool record, double *out)
{
    FX_SCOPE;
    fx_array *x[] = {twice(1, FX_DTYPE_F64), fx_full_dtype(FX_DTYPE_F64, -2, 3)};
    void *both = fx_tuple(x[0], x[1]), *state = fx_setup(rule, both);
    for (int k = 0; k < 6; k++) {
        FXI_OPEN_AT(record ? FXI_SCOPE_RECORD : FXI_SCOPE_STEP, __FILE__, __LINE__);
        fx_array *loss = fx_add(fx_sum(fx_square(x[0])), fx_mul(k, fx_sum(fx_exp(x[1]))));
        assert_int_equal(fx_update(state, both, fx_gradient(loss, both)), FX_OK);
    }
    check_read("first", x[0], out, 2);
    check_read("second", x[1], out + 2, 3);
}

/* Any rule after any other. */
static void recorded_chains_are_as_others(void **state)
{
    (void)state;
    FX_SCOPE;
    rule_case all[CASES];
    fx_rule *rules[CASES + 3] = {fx_adam(BETAS), fx_adamw(BETAS, .lambda = 0.1), fx_nesterov(0.1)};
    make_cases(all);
    for (int i = 0; i < CASES; i++)
        rules[3 + i] = all[i].rule;
    for (int pair = 0; pair < (CASES + 3) * (CASES + 3); pair++) {
        FX_SCOPE;
        double built[5], recorded[5];
        char name[600];
        fx_rule *chain = fx_optimiser_chain(rules[pair / (CASES + 3)], rules[pair % (CASES + 3)]);
        fx_summary(chain, name, sizeof name);
        update_pair(chain, false, built);
        update_pair(chain, true, recorded);
        for (int i = 0; i < 5; i++)
            check_value(name, i, recorded[i], built[i], 0, 0);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void printing_and_notation(void **state)
{
    (void)state;
    FX_SCOPE;
    rule_case all[CASES];
    char text[600], again[600];
    make_cases(all);
    for (int i = 0; i < CASES; i++) {
        fx_summary(fx_setup(all[i].rule, twice(1, FX_DTYPE_F64)), text, sizeof text);
        if (all[i].leaf)
            assert_string_equal(text, all[i].leaf);
        fx_summary(all[i].rule, text, sizeof text);
        fx_summary(fx_parse_optimiser(text), again, sizeof again);
        assert_string_equal(again, text);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* After some updates the state goes to a file and back, beside its model; both take the same steps
 * afterwards. */
static void check_file(const rule_case *c, fx_dtype type)
{
    FX_SCOPE;
    fx_dense_layer *m = fx_dense(2, 1, .bias = false);
    m = fxi_in_precision(type, m);
    void *state = fx_setup(c->rule, m);
    const char *path = temp_text("rule.bson", "");
    char name[400];
    fx_summary(c->rule, name, sizeof name);
    for (int k = 0; k < 4; k++)
        assert_int_equal(fx_update(state, m, fx_gradient(fx_sum(fx_square(m->weight)), m)), FX_OK);
    if (fx_save(path, "model", m, "opt", state) != FX_OK)
        fail_msg("%s: %s", name, fx_error_take().message);
    void *file = fx_load(path), *opt = fx_child_named(file, "opt");
    fx_dense_layer *read = fx_child_named(file, "model");
    char was[600], is[600];
    fx_summary(fx_child_named(state, "weight"), was, sizeof was);
    fx_summary(fx_child_named(opt, "weight"), is, sizeof is);
    /* powers of β are rounded to the parameter's type, as Optimisers.jl has them */
    assert_int_equal(strcspn(is, "("), strcspn(was, "("));
    assert_memory_equal(is, was, strlen(name));
    for (int k = 0; k < 4; k++) {
        fx_update(state, m, fx_gradient(fx_sum(fx_square(m->weight)), m));
        fx_update(opt, read, fx_gradient(fx_sum(fx_square(read->weight)), read));
        double want[2];
        check_read(name, m->weight, want, 2);
        check_array(name, read->weight, 2, want, type == FX_DTYPE_F64 ? 1e-12 : 2e-4, 1e-6);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void files(void **state)
{
    (void)state;
    FX_SCOPE;
    rule_case all[CASES];
    make_cases(all);
    for (int i = 0; i < CASES; i++) {
        check_file(&all[i], FX_DTYPE_F64);
        check_file(&all[i], FX_DTYPE_F32);
    }
    check_file(&(rule_case){fx_mixed_precision(fx_adam()), NULL, NULL}, FX_DTYPE_F32);
    check_file(&(rule_case){fx_mixed_precision(fx_adam(.eta = 0.1)), NULL, NULL}, FX_DTYPE_BF16);
    check_file(
        &(rule_case){fx_mixed_precision(fx_radam(.eta = 0.1), .type = FX_DTYPE_F64), NULL, NULL},
        FX_DTYPE_F16);
}

/* ---- mixed precision ----------------------------------------------------------------------- */

/* 2⁻¹⁰ is too small for a BFloat16 of 1: without a copy nothing moves, with one 2⁸ updates do. */
static void small_steps_add_up(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *plain = twice(1, FX_DTYPE_BF16), *mixed = twice(1, FX_DTYPE_BF16);
    fx_array *g = fx_eval(plain) == FX_OK ? twice(1, FX_DTYPE_BF16) : NULL;
    void *a = fx_setup(fx_descent(ldexp(1, -10)), plain);
    void *b = fx_setup(fx_mixed_precision(fx_descent(ldexp(1, -10)), .scale = 4), mixed);
    for (int k = 0; k < 256; k++) {
        FX_STEP;
        assert_int_equal(fx_update(a, plain, g), FX_OK);
        assert_int_equal(fx_update(b, mixed, fx_mul(4, g)), FX_OK);
    }
    CHECK(plain, (2), 0, 1, 1);
    CHECK(mixed, (2), 0, 0.75, 0.75);
    assert_int_equal(fx_eltype(mixed), FX_DTYPE_BF16);
    /* a gradient that overflowed changes nothing, and records no error */
    assert_int_equal(fx_update(b, mixed, twice((double)INFINITY, FX_DTYPE_BF16)),
                     FX_STATUS_NONFINITE);
    assert_int_equal(fx_error_status(), FX_OK);
    CHECK(mixed, (2), 0, 0.75, 0.75);
    assert_int_equal(fx_adjust(b, .scale = 2), FX_OK);
    assert_int_equal(fx_update(b, mixed, twice(512, FX_DTYPE_BF16)), FX_OK);
    CHECK(mixed, (2), 0, 0.5, 0.5);
}

/* Two good updates double the factor, a bad one halves it and changes nothing else. */
static void the_factor_of_the_loss_follows_the_gradients(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = twice(1, FX_DTYPE_BF16), *plain = twice(1, FX_DTYPE_F32);
    fx_eval(fx_tuple(x, plain));
    void *opt = fx_setup(fx_mixed_precision(fx_descent(0.25), .scale = 4, .growth = 2), x);
    assert_true(fx_loss_scale(fx_setup(fx_descent(1), plain)) == 0);
    static const struct {
        double gradient, scale, value; /* of x after the update */
    } rows[] = {{1, 4, 0.75},   {1, 8, 0.5}, {1, 8, 0.25}, {INFINITY, 4, 0.25},
                {NAN, 2, 0.25}, {1, 2, 0},   {1, 4, -0.25}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FX_STEP;
        const double g = rows[i].gradient * fx_loss_scale(opt);
        assert_int_equal(fx_update(opt, x, twice(g, FX_DTYPE_BF16)),
                         isfinite(rows[i].gradient) ? FX_OK : FX_STATUS_NONFINITE);
        assert_true(fx_loss_scale(opt) == rows[i].scale);
        CHECK(x, (2), 0, rows[i].value, rows[i].value);
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A part without a gradient has the factor of the others, a state has its own, and a checkpoint the
 * factor with its count. */
static void the_factor_belongs_to_a_state(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = fx_tuple(fx_ones(2), fx_ones(2));
    fx_rule *rule = fx_mixed_precision(fx_adam(), .growth = 2);
    void *a = fx_setup(rule, model), *b = fx_setup(rule, model);
    fx_freeze(fx_child(a, 1));
    double numbers[64];
    for (int i = 0; i < 3; i++) {
        FX_STEP;
        assert_int_equal(fx_update(a, model, fx_tuple(fx_ones(2), fx_ones(2))), FX_OK);
    }
    assert_true(fx_loss_scale(a) == 131072 && fx_loss_scale(fx_child(a, 1)) == 131072);
    assert_true(fx_loss_scale(b) == 65536);
    const int64_t n = fxi_state_numbers(a, numbers, 64);
    assert_int_equal(fxi_state_numbers_set(b, numbers, n, false), FX_OK);
    assert_true(fx_loss_scale(b) == 131072);
    fx_thaw(b);
    FX_STEP;
    assert_int_equal(fx_update(b, model, fx_tuple(fx_ones(2), fx_ones(2))), FX_OK);
    assert_true(fx_loss_scale(b) == 262144); /* the fourth good update */
    void *fixed = fx_setup(fx_mixed_precision(fx_adam(), .scale = 2), model);
    assert_int_equal(fxi_state_numbers_set(fixed, numbers, n, false), FX_STATUS_ARGUMENT);
    fx_error_take();
}

/* The numbers of two rules are equal, but the rules compute in different types. */
static void restored_rules_keep_their_types(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = fx_tuple(fx_ones(2));
    void *single = fx_setup(fx_mixed_precision(fx_adam()), model),
         *twice = fx_setup(fx_mixed_precision(fx_adam(), .type = FX_DTYPE_F64), model);
    void *both = fx_tuple(single, twice);
    double numbers[64];
    char text[300];
    const int64_t n = fxi_state_numbers(both, numbers, 64);
    assert_int_equal(fxi_state_numbers_set(both, numbers, n, false), FX_OK);
    fx_summary(fx_child(single, 0), text, sizeof text);
    assert_non_null(strstr(text, "MixedPrecision{Float32}"));
    fx_summary(fx_child(twice, 0), text, sizeof text);
    assert_non_null(strstr(text, "MixedPrecision{Float64}"));
    assert_int_equal(fx_update(both, fx_tuple(model, model), fx_tuple(model, model)), FX_OK);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void wrong_rules(void **state)
{
    (void)state;
    FX_SCOPE;
    refused_exactly(fx_lion(.eta = -1),
                    "Lion: the learning rate must be at least 0, got eta = -1.0");
    refused_exactly(fx_rprop((double)NAN),
                    "Rprop: the learning rate must be at least 0, got eta = NaN");
    refused_exactly(fx_adam(.beta1 = 2),
                    "Adam: the decay must be at least 0 and less than 1, got beta1 = 2.0");
    refused_exactly(fx_lion(.beta2 = 1),
                    "Lion: the decay must be at least 0 and less than 1, got beta2 = 1.0");
    refused_exactly(fx_adam(.epsilon = -1),
                    "Adam: the number must be at least 0, got epsilon = -1.0");
    refused_exactly(fx_momentum(.rho = NAN),
                    "Momentum: the number must be at least 0, got rho = NaN");
    refused_exactly(fx_clip_norm(-1), "ClipNorm: the number must be at least 0, got omega = -1.0");
    refused_exactly(fx_weight_decay(-1),
                    "WeightDecay: the number must be at least 0, got lambda = -1.0");
    refused_exactly(fx_rprop(.gamma1 = -1),
                    "Rprop: the number must be at least 0, got gamma1 = -1.0");
    refused_exactly(fx_accum_grad(0),
                    "AccumGrad: the number of gradients n must be at least 1, got 0");
    refused_exactly(fx_mixed_precision(fx_adam(), .scale = 0),
                    "MixedPrecision: the factor of the loss must be positive, got scale = 0.0");
    refused_exactly(fx_mixed_precision(fx_adam(), .growth = -1),
                    "MixedPrecision: the number of updates growth must be at least 0, got -1");
    refused_exactly(fx_mixed_precision(fx_adam(), .type = FX_DTYPE_F16),
                    "MixedPrecision: computes in Float32 or Float64, not in Float16");
    refused_exactly(fx_optimiser_chain(fx_adam(), NULL),
                    "OptimiserChain: expects optimiser rules, got NULL");
    refused_exactly(fx_optimiser_chain(fx_mixed_precision(fx_adam())),
                    "OptimiserChain: MixedPrecision cannot be inside another rule: it must be the "
                    "outermost rule");
    refused_exactly(fx_optimiser_chain(fx_adam(.eta = -1)),
                    "Adam: the learning rate must be at least 0, got eta = -1.0");
    fx_rule *many[8];
    for (int i = 0; i < 8; i++)
        many[i] = fx_oadam();
    refused_exactly(
        fxi_optimiser_chain(8, (void *const *)many),
        "OptimiserChain: holds at most 32 rules, which keep at most 15 arrays and 16 numbers "
        "for each parameter; got 8 rules, 24 arrays, 16 numbers");
    fx_rule *doubled = fx_descent();
    for (int i = 0; i < 60 && !fx_is_error(doubled); i++)
        doubled = fx_optimiser_chain(doubled, doubled);
    refused_exactly(doubled,
                    "OptimiserChain: holds at most 32 rules, which keep at most 15 arrays and 16 "
                    "numbers for each parameter; got 62 rules, 0 arrays, 0 numbers");
}

static void adjusting(void **state)
{
    (void)state;
    FX_SCOPE;
    void *model = fx_tuple(twice(1, FX_DTYPE_F32), twice(2, FX_DTYPE_F32));
    void *opt = fx_setup(fx_optimiser_chain(fx_clip_norm(1), fx_weight_decay(), fx_adamw()), model);
    char text[400];
    assert_int_equal(fx_adjust(opt, .eta = 0.5, .lambda = 0.25, .omega = 2, .p = 1, .throws = 0,
                               .couple = 0, .beta1 = 0.5, .epsilon = 1e-4),
                     FX_OK);
    assert_true(fx_eta(opt) == 0.5);
    fx_summary(fx_child(opt, 1), text, sizeof text);
    assert_non_null(strstr(text, "OptimiserChain(ClipNorm(omega=2.0, p=1.0, throw=false), "
                                 "WeightDecay(lambda=0.25), AdamW(eta=0.5, beta=(0.5, 0.999), "
                                 "lambda=0.25, epsilon=0.0001, couple=false))"));
    assert_int_equal(fx_adjust(opt, .eta = 0.125, .rho = 0.5), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "AdamW(eta=0.5, beta=(0.5, 0.999), lambda="
                                                    "0.25, epsilon=0.0001, couple=false)) has no "
                                                    "rho"));
    assert_true(fx_eta(opt) == 0.5);
    assert_int_equal(fx_adjust_eta(opt, -1), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_true(fx_eta(opt) == 0.5);
    void *steps = fx_setup(fx_rprop(), model);
    assert_int_equal(
        fx_adjust(steps, .ell1 = 0.25, .ell2 = 2, .gamma1 = 0.125, .gamma2 = 4, .eta = 1), FX_OK);
    fx_summary(fx_child(steps, 0), text, sizeof text);
    assert_non_null(strstr(text, "Rprop(eta=1.0, ell=(0.25, 2.0), gamma=(0.125, 4.0))"));
    void *sum = fx_setup(fx_optimiser_chain(fx_accum_grad(3), fx_clip_grad()), model);
    assert_int_equal(fx_adjust(sum, .n = 5, .delta = 2), FX_OK);
    assert_int_equal(fx_adjust(sum, .n = 0), FX_STATUS_ARGUMENT);
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

static void expect_argument(const char *text)
{
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_ARGUMENT);
    if (!strstr(e.message, text))
        fail_msg("%s", e.message);
}

/* The norm of the second array is not finite: nothing changes, and the message names the array. */
static void norms_that_are_not_finite(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_ones(2), *b = fx_ones(3, 2);
    void *model = fx_tuple(a, b), *opt = fx_setup(fx_clip_norm(), model);
    void *bad = fx_tuple(fx_ones(2), fx_full((double)NAN, 3, 2));
    assert_int_equal(fx_update(opt, model, bad), FX_STATUS_NONFINITE);
    assert_string_equal(fx_error_take().message,
                        "ClipNorm: gradient has 2.0-norm NaN, for array 3×2 Matrix{Float32}");
    CHECK(a, (2), 0, 1, 1);
    assert_true(fx_is_error(fx_child(fx_updated(opt, model, bad), 1)));
    assert_int_equal(fx_error_take().status, FX_STATUS_NONFINITE);
    assert_int_equal(fx_update(opt, model, fx_tuple(fx_ones(2), fx_ones(3, 2))), FX_OK);
    CHECK(a, (2), 0, 0, 0);
    opt = fx_setup(fx_clip_norm(.throws = false), model);
    assert_int_equal(fx_update(opt, model, bad), FX_OK);
    assert_true(isnan(fx_item(fx_sum(b))));
}

/* Squares of 1e30 and of 1e-30 leave the range of Float32, the norms do not. p = 0 counts the
 * elements that are not 0, −∞ is the smallest magnitude; both as Julia's norm. */
static void norms_of_huge_and_tiny_numbers(void **state)
{
    (void)state;
    FX_SCOPE;
    const struct {
        double omega, p, factor, want;
    } rows[] = {{5, 2, 1e30, 3},
                {5e-30, 2, 1e-27, 3e-30},
                {0.091, 3, 1e20, 3 * 0.091 / 4.497941445275415},
                {1, 0, 1e30, 1.5e30},
                {4, -INFINITY, 1, 3},
                {3, -INFINITY, 2, 3},
                {7, 1, 1e30, 3},
                {4, INFINITY, 1e30, 3}};
    for (int i = 0; i < COUNT(rows); i++) {
        fx_array *x = fx_zeros(3), *g = fx_mul(fx_vector(3, -4, 0), rows[i].factor);
        if (rows[i].p == -INFINITY)
            g = fx_mul(fx_vector(3, -4, 5), rows[i].factor);
        void *opt =
            fx_setup(fx_optimiser_chain(fx_clip_norm(rows[i].omega, rows[i].p), fx_descent(1)), x);
        assert_int_equal(fx_update(opt, x, g), FX_OK);
        check_value("clip norm", i, -fx_at(x, 0), rows[i].want, 1e-5, 0);
    }
    assert_true(fx_is_error(fx_clip_norm(1, (double)NAN)));
    expect_argument("ClipNorm: the exponent of the norm must be a number, got p = NaN");
    void *g = fx_tuple(fx_mul(fx_vector(3, 4), 1e30), fx_mul(fx_vector(12, 0), 1e30), fx_zeros(0));
    CHECK(fx_div(fx_global_norm(g), 1e30), (), 1e-5, 13);
    CHECK((fx_array *)fx_child(fx_clip_global_norm(g, 6.5), 0), (2), 1e-5, 1.5, 2);
    CHECK(fx_mul(fx_global_norm(fx_mul(fx_vector(3, 4), 1e-30)), 1e30), (), 1e-5, 5);
    CHECK(fx_global_norm(fx_zeros(2)), (), 0, 0);
}

/* The norm of (3, 4) and (12, 0) is 13. */
static void clipping_by_the_norm_of_all(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = fx_vector(3, 4), *b = fx_cast(fx_vector(12, 0), FX_DTYPE_F16);
    void *g = fx_tuple(a, fx_tuple(b, a)), *c = fx_clip_global_norm(g, 6.5);
    CHECK(fx_global_norm(g), (), 1e-6, 13);
    CHECK((fx_array *)fx_child(c, 0), (2), 1e-6, 1.5, 2);
    CHECK((fx_array *)fx_child(fx_child(c, 1), 0), (2), 1e-3, 6, 0);
    assert_int_equal(fx_eltype(fx_child(fx_child(c, 1), 0)), FX_DTYPE_F16);
    CHECK((fx_array *)fx_child(fx_clip_global_norm(g, 20), 0), (2), 0, 3, 4);
    /* a limit of 0 gives zeros, also for a gradient of zeros */
    CHECK((fx_array *)fx_child(fx_clip_global_norm(g, 0), 0), (2), 0, 0, 0);
    CHECK((fx_array *)fx_clip_global_norm(fx_zeros(2), 0), (2), 0, 0, 0);
    fx_array *v = fx_ones(2);
    void *none = fx_setup(fx_optimiser_chain(fx_clip_norm(0), fx_descent(1)), v);
    assert_int_equal(fx_update(none, v, fx_zeros(2)), FX_OK);
    assert_int_equal(fx_update(none, v, fx_vector(3, 4)), FX_OK);
    CHECK(v, (2), 0, 1, 1);
    /* a norm that is not finite is the guard of an update */
    fx_array *w = fx_ones(2), *bad = fx_vector(1, INFINITY);
    void *opt = fx_setup(fx_adam(), w);
    assert_int_equal(fx_update(opt, w, fx_clip_global_norm(bad, 1), .guard = fx_global_norm(bad)),
                     FX_STATUS_NONFINITE);
    CHECK(w, (2), 0, 1, 1);
    assert_int_equal(fx_error_status(), FX_OK);
    assert_true(fx_is_error(fx_clip_global_norm(g, -1)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_true(fx_is_error(fx_global_norm(NULL)));
    fx_error_take();
}

/* ---- checkpoints --------------------------------------------------------------------------- */

/* The numbers of a state go into another one of the same rule, and of no other rule. */
static void numbers(void **state)
{
    (void)state;
    FX_SCOPE;
    rule_case all[CASES];
    make_cases(all);
    for (int i = 0; i < CASES; i++) {
        fx_array *x = twice(1, FX_DTYPE_F32);
        void *a = fx_setup(all[i].rule, x), *b = fx_setup(all[i].rule, x);
        double saved[100], read[100];
        for (int k = 0; k < 2; k++)
            fx_update(a, x, twice(1, FX_DTYPE_F32));
        const int64_t n = fxi_state_numbers(a, saved, 100);
        assert_in_range(n, 11, 100);
        assert_int_equal(fxi_state_numbers_set(b, saved, n, false), FX_OK);
        assert_int_equal(fxi_state_numbers(b, read, 100), n);
        assert_memory_equal(read, saved, (size_t)n * sizeof *read);
        void *other = fx_setup(fx_adamw(), x);
        assert_int_equal(fxi_state_numbers_set(other, saved, n, false), FX_STATUS_ARGUMENT);
        fx_error_take();
    }
}

/* ---- one step ------------------------------------------------------------------------------ */

static char plan_text[8192];
static int64_t steps_of_update(fx_rule *rule)
{
    FX_SCOPE;
    fx_array *a = fx_rand(4, 5), *b = fx_rand(3), *c = fx_rand(1, 7);
    void *model = fx_tuple(a, b, c), *state = fx_setup(rule, model);
    void *gradient = fx_tuple(fx_rand(4, 5), fx_rand(3), fx_rand(1, 7));
    char *text = plan_text;
    fx_eval(fx_tuple(model, gradient));
    fx_update(state, model, gradient);
    assert_true(fx_plan_text(fx_updated(state, model, gradient), text, sizeof plan_text) <
                sizeof plan_text);
    int64_t lines = 0;
    for (const char *at = strchr(text, '\n'); at && at[1]; at = strchr(at + 1, '\n'))
        lines++;
    if (lines > 0 && !strstr(text, "foreach of 3"))
        fail_msg("%s", text);
    return lines;
}

/* The update of three arrays is one step, whatever the rule. Only ClipNorm needs the norm of each
 * array before. */
static void the_update_of_a_model_is_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    rule_case all[CASES];
    make_cases(all);
    char name[400];
    for (int i = 0; i < CASES; i++) {
        fx_summary(all[i].rule, name, sizeof name);
        if (strstr(name, "ClipNorm") || strstr(name, "AccumGrad(3)"))
            continue; /* fx_updated copies what AccumGrad leaves unchanged */
        const int64_t n = steps_of_update(all[i].rule);
        if (n != 1)
            fail_msg("%s: %lld steps\n%s", name, (long long)n, plan_text);
    }
    fx_rule *others[] = {fx_descent(),  fx_momentum(),
                         fx_nesterov(), fx_adam(),
                         fx_adamw(),    fx_optimiser_chain(fx_accum_grad(1), fx_momentum())};
    for (int i = 0; i < COUNT(others); i++)
        assert_int_equal(steps_of_update(others[i]), 1);
}

/* The variance of equal gradients is 0. Rounding makes it negative for some of them. */
static void equal_gradients_have_no_variance(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_zeros(200);
    void *opt = fx_setup(fx_rmsprop(.centred = true), x);
    for (int k = 0; k < 300; k++) {
        FX_STEP;
        assert_int_equal(fx_update(opt, x, fx_range(0.01, 0.01, 200)), FX_OK);
    }
    assert_true(fx_item(fx_all(fx_isfinite(x))) == 1);
    assert_true(fx_item(fx_all(fx_lt(x, 0))) == 1);
}

/* The square of 300 is infinite in Float16; the first steps of RAdam do not depend on it. */
static void first_steps_of_radam(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_cast(fx_ones(2), FX_DTYPE_F16);
    void *opt = fx_setup(fx_radam(), x);
    assert_int_equal(fx_update(opt, x, fx_cast(fx_mul(fx_ones(2), 300), FX_DTYPE_F16)), FX_OK);
    check_value("radam", 0, fx_at(x, 0), 0.7, 2e-3, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas),
        cmocka_unit_test(recorded_chains_are_as_others),
        cmocka_unit_test(printing_and_notation),
        cmocka_unit_test(files),
        cmocka_unit_test(small_steps_add_up),
        cmocka_unit_test(the_factor_of_the_loss_follows_the_gradients),
        cmocka_unit_test(the_factor_belongs_to_a_state),
        cmocka_unit_test(restored_rules_keep_their_types),
        cmocka_unit_test(wrong_rules),
        cmocka_unit_test(adjusting),
        cmocka_unit_test(norms_that_are_not_finite),
        cmocka_unit_test(norms_of_huge_and_tiny_numbers),
        cmocka_unit_test(clipping_by_the_norm_of_all),
        cmocka_unit_test(numbers),
        cmocka_unit_test(equal_gradients_have_no_variance),
        cmocka_unit_test(first_steps_of_radam),
        cmocka_unit_test(the_update_of_a_model_is_one_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
