/* Tests of src/optim/rules.c, by direct calls of apply: recorded trajectories of Optimisers.jl's
 * formulas (optim_flux/ of the recorded data), the formulas in double written out here, and how
 * rules are made, checked and printed. Without the recorded data the trajectories are skipped, and
 * the test says so. */
#include <cflux.h>

#include "composite_check.h"
#include "memory.h"
#include "option_struct.h"
#include "rules.h"
#include "julia_number.h"
#include "temp_file.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a parameter with its state -------------------------------------------------------------- */

typedef struct leaf {
    const fx_rule *rule;
    const fxi_rule_info *info;
    fx_array *x, *states[FXI_RULE_STATES];
    double numbers[FXI_RULE_NUMBERS];
} leaf;

static leaf leaf_of(fx_rule *rule, fx_array *x)
{
    leaf l = {.rule = rule, .info = fxi_rule_info_of(rule), .x = x};
    assert_non_null(l.info);
    fxi_rule_init(rule, x, l.states, l.numbers);
    return l;
}

/* x ← x − dx′, everything evaluated, so that graphs stay small. False if nothing changed. */
static bool step(leaf *l, fx_array *dx)
{
    fx_array *next[FXI_RULE_STATES] = {NULL};
    fxi_literals literals = {0};
    fxi_checks checks = {0};
    fxi_literals_begin(&literals, l->rule, fx_eltype(l->x), l->numbers);
    fxi_application s = {.rule = l->rule,
                         .x = l->x,
                         .dx = dx,
                         .states = l->states,
                         .new_states = next,
                         .numbers = l->numbers,
                         .literals = &literals,
                         .norms = &checks};
    fx_array *change = fxi_rule_apply(&s);
    if (change) {
        l->x = s.new_x ? s.new_x : fx_sub(l->x, change);
        assert_int_equal(fx_eltype(change), fxi_rule_state_type(l->rule, fx_eltype(l->x)));
        assert_int_equal(fx_eval(l->x), FX_OK);
    }
    for (int i = 0; i < fxi_rule_nstates(l->rule, fx_eltype(l->x)); i++)
        if (next[i]) {
            assert_int_equal(fx_eltype(next[i]), fxi_rule_state_type(l->rule, fx_eltype(l->x)));
            assert_int_equal(fx_eval(l->states[i] = next[i]), FX_OK);
        }
    fxi_free(checks.all);
    return change != NULL;
}

/* ---- recorded trajectories -------------------------------------------------------------- */

enum { SIZE = 5, STEPS = 20 };

/* The elements after the header of a .npy file of format 1.0. */
static void read_npy(const char *name, const char *file, void *out, size_t bytes)
{
    char rest[200];
    unsigned char head[10];
    snprintf(rest, sizeof rest, "torch/optim_flux/%s/%s", name, file);
    const char *path = recorded_path(rest);
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f)
        fail_msg("%s is missing", rest);
    assert_int_equal(fread(head, 1, 10, f), 10);
    assert_int_equal(fseek(f, 10 + head[8] + 256 * head[9], SEEK_SET), 0);
    assert_int_equal(fread(out, 1, bytes, f), bytes);
    fclose(f);
}

/* loss = ½wᵀAw − bᵀw: the gradient is Aw − b, A made symmetric. */
static void check_trajectory(const char *name, fx_rule *rule, fx_dtype dtype, double tolerance)
{
    FX_SCOPE;
    float a[SIZE * SIZE], b[SIZE], w[SIZE];
    double want[(STEPS + 1) * SIZE];
    read_npy(name, "input.A.npy", a, sizeof a);
    read_npy(name, "input.b.npy", b, sizeof b);
    read_npy(name, "input.w0.npy", w, sizeof w);
    read_npy(name, "output.traj.npy", want, sizeof want);
    fx_array *A = fx_cast(fx_from(FX_DTYPE_F32, a, SIZE, SIZE), dtype);
    A = fx_mul(0.5, fx_add(A, fx_transpose(A)));
    fx_array *B = fx_cast(fx_from(FX_DTYPE_F32, b, SIZE), dtype);
    leaf l = leaf_of(rule, fx_cast(fx_from(FX_DTYPE_F32, w, SIZE), dtype));
    for (int k = 0; k <= STEPS; k++) {
        check_array(name, l.x, SIZE, want + (ptrdiff_t)k * SIZE, tolerance, tolerance);
        step(&l, fx_sub(fx_matmul(A, l.x), B));
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

static void test_trajectories(void **state)
{
    (void)state;
    FX_SCOPE;
    if (!recorded_path("torch/optim_flux")) {
        printf(
            "skipped: recorded trajectories of optimisers (CFLUX_DATA is not set or not there)\n");
        return;
    }
    const fx_dtype types[] = {FX_DTYPE_F64, FX_DTYPE_F32};
    const double tolerances[] = {1e-12, 1e-5};
    for (int i = 0; i < 2; i++) {
        check_trajectory("Adam", fx_adam(.eta = 0.05), types[i], tolerances[i]);
        check_trajectory("Nesterov", fx_nesterov(.eta = 0.05), types[i], tolerances[i]);
        check_trajectory("AdamW_couple", fx_adamw(.eta = 0.05, .lambda = 0.1), types[i],
                         tolerances[i]);
        check_trajectory("AdamW_decoupled", fx_adamw(.eta = 0.05, .lambda = 0.01, .couple = false),
                         types[i], tolerances[i]);
        check_trajectory("RMSProp", fx_rmsprop(.eta = 0.01), types[i], tolerances[i]);
        check_trajectory("RMSProp_centred", fx_rmsprop(.eta = 0.01, .centred = true), types[i],
                         i ? 1e-4 : 1e-10);
        check_trajectory("NAdam", fx_nadam(.eta = 0.05), types[i], tolerances[i]);
        check_trajectory("OAdam", fx_oadam(.eta = 0.05), types[i], tolerances[i]);
        check_trajectory("AdaBelief", fx_adabelief(.eta = 0.05), types[i], i ? 1e-3 : 1e-9);
        check_trajectory("AdaDelta", fx_adadelta(), types[i], tolerances[i]);
        check_trajectory("WeightDecay_Descent",
                         fx_optimiser_chain(fx_weight_decay(0.05), fx_descent(0.1)), types[i],
                         tolerances[i]);
        check_trajectory("SignDecay_Descent",
                         fx_optimiser_chain(fx_sign_decay(0.05), fx_descent(0.1)), types[i],
                         tolerances[i]);
    }
}

/* ---- formulas --------------------------------------------------------------------------- */

static double gradient_at(int k)
{
    return cos(1.1 * k) + 0.3;
}

static void test_descent_and_momentum(void **state)
{
    (void)state;
    FX_SCOPE;
    leaf d = leaf_of(fx_descent(.eta = 0.2), fx_full_dtype(FX_DTYPE_F64, 1, 1));
    leaf m = leaf_of(fx_momentum(.eta = 0.2, .rho = 0.8), fx_full_dtype(FX_DTYPE_F64, 1, 1));
    leaf z = leaf_of(fx_momentum(.eta = 0.2, .rho = 0), fx_full_dtype(FX_DTYPE_F64, 1, 1));
    double wd = 1, wm = 1, v = 0;
    for (int k = 0; k < 10; k++) {
        const double g = gradient_at(k);
        fx_array *dx = fx_full_dtype(FX_DTYPE_F64, g, 1);
        wd -= 0.2 * g;
        wm -= v = 0.8 * v + 0.2 * g;
        step(&d, dx);
        step(&m, dx);
        step(&z, dx);
        CHECK(d.x, (1), 1e-14, wd);
        CHECK(m.x, (1), 1e-14, wm);
        CHECK(z.x, (1), 1e-14, wd); /* no momentum */
    }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* The first step of Adam is η·sign(g), whatever the size of g; with η = 0 nothing moves. */
static void test_adam_details(void **state)
{
    (void)state;
    FX_SCOPE;
    leaf l = leaf_of(fx_adam(.eta = 0.5, .epsilon = 0), fx_zeros(3));
    assert_true(l.numbers[0] == 0.9 && l.numbers[1] == 0.999);
    step(&l, fx_vector(1e-6f, -3, 1000));
    CHECK(l.x, (3), 1e-5, -0.5, 0.5, -0.5);
    assert_true(l.numbers[0] == 0.9 * 0.9 && l.numbers[1] == 0.999 * 0.999);
    leaf still = leaf_of(fx_adam(.eta = 0), fx_vector(1, 2));
    step(&still, fx_vector(1, 2));
    CHECK(still.x, (2), 0, 1, 2);
    /* Float16: ε does not vanish, so a zero gradient is no 0/0 */
    leaf half = leaf_of(fx_adam(), fx_cast(fx_vector(1, 2), FX_DTYPE_F16));
    step(&half, fx_cast(fx_vector(0, 0), FX_DTYPE_F16));
    CHECK(half.x, (2), 0, 1, 2);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Changing numbers need no new plan: from the third step on, all plans are in the cache. */
static void test_plans_are_reused(void **state)
{
    (void)state;
    FX_SCOPE;
    leaf l = leaf_of(fx_adamw(.lambda = 0.1), fx_ones(4));
    uint64_t built = 0;
    for (int k = 0; k < 6; k++) {
        if (k == 2)
            built = fx_stats().plans_built;
        step(&l, fx_full(gradient_at(k), 4));
    }
    assert_int_equal(fx_stats().plans_built, built);
}

/* ---- making, checking, printing --------------------------------------------------------- */

static void describes(void *rule, const char *text)
{
    char got[200];
    fx_summary(rule, got, sizeof got);
    assert_string_equal(got, text);
}

static void test_descriptions(void **state)
{
    (void)state;
    FX_SCOPE;
    describes(fx_descent(), "Descent(0.1)");
    describes(fx_momentum(), "Momentum(eta=0.01, rho=0.9)");
    describes(fx_nesterov(.eta = 1e-5), "Nesterov(eta=1.0e-5, rho=0.9)");
    describes(fx_adam(), "Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)");
    describes(fx_adamw(.couple = false),
              "AdamW(eta=0.001, beta=(0.9, 0.999), lambda=0.0, epsilon=1.0e-8, couple=false)");
    assert_int_equal(fx_error_status(), FX_OK);
}

static fx_rule *with_eta(const fx_rule *r, double eta)
{
    FXI_DEFAULT_OPTIONS(fx_adjust_args, FXI_ADJUST_ARGS, numbers);
    numbers.eta = eta;
    return fxi_rule_with(r, &numbers);
}

static void test_making(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_rule *bad = fx_adam(.eta = -0.1);
    fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_ARGUMENT);
    assert_non_null(
        strstr(e.message, "Adam: the learning rate must be at least 0, got eta = -0.1"));
    assert_null(fxi_rule_info_of(bad));
    assert_null(fxi_rule_info_of(NULL));
    assert_null(fxi_rule_info_of((fx_rule *)(void *)fx_ones(2)));
    fx_rule *r = fx_adam(.beta1 = 0.5), *slow = with_eta(r, 1e-4);
    assert_true(slow->eta == 1e-4 && slow->beta1 == 0.5 && r->eta == 0.001);
    assert_ptr_equal(fxi_rule_info_of(slow), fxi_rule_info_of(r));
    assert_string_equal(fxi_rule_info_of(r)->name, "Adam");
    assert_null(fxi_rule_info_of(with_eta(r, -1)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    assert_null(fxi_rule_info_of(with_eta(bad, 1)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
}

/* Julia's own texts. */
static void shortest_texts_of_numbers(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } table[] = {
        {0.1, "0.1"},
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {0.0001, "0.0001"},
        {1e-5, "1.0e-5"},
        {100000, "100000.0"},
        {1e6, "1.0e6"},
        {1.5e10, "1.5e10"},
        {-2.5, "-2.5"},
        {123.456, "123.456"},
        {1.0 / 3, "0.3333333333333333"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, "5.0e-324"},
        {1.7976931348623157e308, "1.7976931348623157e308"},
        {(double)INFINITY, "Inf"},
        {-(double)INFINITY, "-Inf"},
        {(double)NAN, "NaN"},
    };
    char text[FXI_NUMBER_TEXT];
    for (int i = 0; i < COUNT(table); i++)
        assert_string_equal(fxi_float64_text(table[i].v, text), table[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trajectories),         cmocka_unit_test(test_descent_and_momentum),
        cmocka_unit_test(test_adam_details),         cmocka_unit_test(test_plans_are_reused),
        cmocka_unit_test(test_descriptions),         cmocka_unit_test(test_making),
        cmocka_unit_test(shortest_texts_of_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
