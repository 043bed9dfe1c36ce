/* test_schedule.c: schedules against the formulas of ParameterSchedulers.jl worked out by hand,
 * their notation, triggers, and schedules in fx_train. */
#include "composite_check.h"

#include <cflux.h>

#include "refused.h"

static void follows(fx_schedule *s, int n, const double *want)
{
    char text[300], again[300];
    for (int k = 0; k < n; k++)
        check_value("schedule", k, fx_schedule_at(s, k), want[k], 1e-14, 1e-15);
    fx_summary(s, text, sizeof text);
    fx_schedule *parsed = fx_parse_schedule(text);
    fx_summary(parsed, again, sizeof again);
    assert_string_equal(again, text);
    for (int k = 0; k < n; k++)
        assert_true(fx_schedule_at(parsed, k) == fx_schedule_at(s, k));
}
#define FOLLOWS(s, ...)                                                                            \
    follows((s), (int)COUNT(((const double[]){__VA_ARGS__})), (const double[]){__VA_ARGS__})

static void formulas(void **state)
{
    (void)state;
    FX_SCOPE;
    const double r = sqrt(0.5);
    FOLLOWS(fx_schedule_constant(0.25), 0.25, 0.25);
    FOLLOWS(fx_schedule_step(1, 0.5, 2), 1, 1, 0.5, 0.5, 0.25);
    FOLLOWS(fx_schedule_exp(2, 0.5), 2, 1, 0.5, 0.25);
    FOLLOWS(fx_schedule_inv(1, 1, 2), 1, 0.25, 1.0 / 9);
    FOLLOWS(fx_schedule_poly(1, 2, 4), 1, 0.5625, 0.25, 0.0625, 0, 0);
    FOLLOWS(fx_schedule_cosine(3, 1, 4, true), 3, 2 + r, 2, 2 - r, 3, 2 + r);
    FOLLOWS(fx_schedule_cosine(1, 3, 4, false), 3, 2 + r, 2, 2 - r, 1, 2 - r, 2);
    FOLLOWS(fx_schedule_triangle(1, 3, 4), 1, 2, 3, 2, 1, 2, 3);
    FOLLOWS(fx_schedule_triangle_half(1, 3, 4), 1, 2, 3, 2, 1, 1.5, 2);
    FOLLOWS(fx_schedule_triangle_exp(1, 3, 4, 0.5), 1, 1.5, 1.5, 1.125, 1);
    FOLLOWS(fx_schedule_sin(0, 2, 4), 0, 2 * r, 2, 2 * r, 0, 2 * r);
    FOLLOWS(fx_schedule_sin_half(0, 2, 4), 0, 2 * r, 2, 2 * r, 0, r);
    FOLLOWS(fx_schedule_sin_exp(0, 2, 4, 0.5), 0, r, 0.5);
    fx_schedule *down = fx_schedule_exp(8, 0.5);
    FOLLOWS(fx_schedule_warmup(0, 4, down), 0, 2, 4, 6, 8, 4, 2);
    FOLLOWS(fx_schedule_loop(down, 2), 8, 4, 8, 4, 8);
    fx_schedule *const parts[] = {down, fx_schedule_constant(1), fx_schedule_step(3, 0.5, 1)};
    FOLLOWS(fx_schedule_sequence(3, parts, (const int64_t[]){2, 1, 2}), 8, 4, 1, 3, 1.5, 0.75);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Values from the formulas of ParameterSchedulers.jl, whose t is k + 1. */
static void schedules_of_schedules(void **state)
{
    (void)state;
    FX_SCOPE;
    const double r = sqrt(0.5);
    fx_schedule *down = fx_schedule_exp(8, 0.5);
    /* 4 steps of 8 rise from 1 to 3, 4 fall to 0 */
    FOLLOWS(fx_schedule_onecycle(8, 3, 1, 0, 0.5), 1, 2 - r, 2, 2 + r, 3, 1.5 * (1 + r), 1.5,
            1.5 * (1 - r), 0, 0);
    FOLLOWS(fx_schedule_onecycle(2, 3, 1, 0, 0), 3, 1.5, 0, 0);
    FOLLOWS(fx_schedule_onecycle(2, 3, 1, 0, 1), 1, 2, 0, 0);
    FOLLOWS(fx_schedule_interpolator(down, 2), 8, 8, 4, 4, 2);
    FOLLOWS(fx_schedule_interpolator(down, 0.5), 4, 1, 0.25);
    FOLLOWS(fx_schedule_interpolator(down, 1.5), 8, 4, 4, 2, 1, 1);
    FOLLOWS(fx_schedule_shifted(down, 3), 2, 1, 0.5);
    fx_schedule *const numbers[] = {fx_schedule_step(1, 0.5, 2), fx_schedule_constant(0.5)};
    FOLLOWS(fx_schedule_composed(down, 2, numbers), 1, 0.5, 0.125, 0.0625);
    fx_schedule *const period[] = {numbers[1], numbers[1], fx_schedule_poly(1, 1, 2)};
    fx_schedule *s = fx_schedule_composed(fx_schedule_cosine(0, 0, 1, true), 3, period);
    FOLLOWS(s, 1, 1);
    assert_true(isnan(fx_schedule_at(s, 2))); /* a period of 0 */
    assert_int_equal(fx_error_status(), FX_OK);
}

/* The right text is printed for the schedule that is read from either text. The left one has
 * keywords, or omits arguments that have a default in Julia. */
static void texts_of_schedules_of_schedules(void **state)
{
    (void)state;
    FX_SCOPE;
    static const char *const rows[][2] = {
        {"OneCycle(50, 1)", "OneCycle(50.0, 1.0, 0.04, 1.0e-5, 0.25)"},
        {"OneCycle(50, 1; percent_start = 0.5, startval = 0.5)",
         "OneCycle(50.0, 1.0, 0.5, 1.0e-5, 0.5)"},
        {"Interpolator(Exp(1, 0.5), 390)", "Interpolator(Exp(1.0, 0.5), 390.0)"},
        {"Shifted(Loop(Exp(1, 0.5), 2), 5)", "Shifted(Loop(Exp(1.0, 0.5), 2.0), 5.0)"},
        {"Loop(2, Exp(1, 0.5))", "Loop(Exp(1.0, 0.5), 2.0)"}, /* the order of earlier versions */
        {"ComposedSchedule(Exp(0, 0), (Step(1, 0.5, 2), 0.5))",
         "ComposedSchedule(Exp(0.0, 0.0), (Step(1.0, 0.5, 2.0), Constant(0.5)))"},
        {"ComposedSchedule(Constant(0), (1,))",
         "ComposedSchedule(Constant(0.0), (Constant(1.0),))"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[200];
        fx_summary(fx_parse_schedule(rows[i][0]), text, sizeof text);
        assert_string_equal(text, rows[i][1]);
        fx_summary(fx_parse_schedule(rows[i][1]), text, sizeof text);
        assert_string_equal(text, rows[i][1]);
    }
}

/* The first two arguments in ParameterSchedulers.jl 0.4 are a range and an offset: its
 * Triangle(range, offset, period) is range·tri(t) + offset, and CosAnneal begins at range + offset.
 */
static void ranges_and_offsets(void **state)
{
    (void)state;
    FX_SCOPE;
    const double r = sqrt(0.5), d = 0.5;
    FOLLOWS(fx_parse_schedule("CosAnneal(2, 1, 4)"), 3, 2 + r, 2, 2 - r, 3);
    FOLLOWS(fx_parse_schedule("CosAnneal(2, 1, 4, false)"), 3, 2 + r, 2, 2 - r, 1);
    FOLLOWS(fx_parse_schedule("CosAnneal(1, 3, 2)"), 4, 3.5, 4);
    FOLLOWS(fx_parse_schedule("Triangle(2, 1, 4)"), 1, 2, 3, 2, 1);
    FOLLOWS(fx_parse_schedule("TriangleDecay2(2, 1, 4)"), 1, 2, 3, 2, 1, 1 + d);
    FOLLOWS(fx_parse_schedule("TriangleExp(2, 1, 4, 0.5)"), 1, 1.5, 1.5, 1.125, 1);
    FOLLOWS(fx_parse_schedule("Sin(2, 1, 4)"), 1, 1 + 2 * r, 3, 1 + 2 * r, 1);
    FOLLOWS(fx_parse_schedule("SinDecay2(2, 1, 4)"), 1, 1 + 2 * r, 3, 1 + 2 * r, 1, 1 + r);
    FOLLOWS(fx_parse_schedule("SinExp(2, 1, 4, 0.5)"), 1, 1 + r, 1.5);
    FOLLOWS(fx_parse_schedule("ComposedSchedule(Triangle(0, 0, 1), (2, 1, 4))"), 1, 2, 3, 2, 1);
    char text[100];
    fx_summary(fx_schedule_cosine(1, 3, 4, true), text, sizeof text);
    assert_string_equal(text, "CosAnneal(2.0, 1.0, 4.0, true)");
}

static void wrong_schedules(void **state)
{
    (void)state;
    FX_SCOPE;
    refused_exactly(fx_schedule_step(1, 0.5, 0),
                    "Step: the number of steps must be positive, got 0");
    refused_exactly(fx_schedule_exp((double)NAN, 1), "Exp: expects finite numbers, got nan");
    refused_exactly(fx_schedule_loop(NULL, 3), "Loop: expects schedules, got NULL");
    assert_true(isnan(fx_schedule_at((void *)fx_dense(1, 1), 0)));
    assert_string_equal(fx_error_take().message, "schedule_at: expects a schedule, got Dense");
    refused_exactly(fx_schedule_onecycle(0, 1, 0, 0, 0.5),
                    "OneCycle: the number of steps must be positive, got 0");
    refused_exactly(fx_schedule_onecycle(5, 1, 0, 0, 1.5),
                    "OneCycle: the share of the rise must be from 0 to 1, got 1.5");
    refused_exactly(
        fx_parse_schedule("OneCycle(-1.0e30, 1)"),
        "schedule, column 1: OneCycle: the number of steps must be positive, got -1e+30");
    fx_schedule *one = fx_schedule_constant(1);
    refused_exactly(fx_schedule_shifted(one, 0), "Shifted: the offset must be positive, got 0");
    refused_exactly(fx_schedule_interpolator(one, -1),
                    "Interpolator: the rate must be positive, got -1");
    refused_exactly(fx_schedule_composed(NULL, 1, &one),
                    "ComposedSchedule: expects schedules, got NULL");
    refused_exactly(fx_schedule_composed(one, 2, (fx_schedule *const[]){one, one}),
                    "ComposedSchedule: Constant does not take 2 numbers");
    refused_exactly(fx_schedule_composed(fx_schedule_shifted(one, 1), 1, &one),
                    "ComposedSchedule: Shifted does not take 1 numbers");
    refused_exactly(fx_parse_schedule("OneCycle(5)"),
                    "schedule, column 1: OneCycle takes 2 numbers, got 1");
    refused_exactly(fx_parse_schedule("OneCycle(5, 1, start = 1)"),
                    "schedule, column 16: OneCycle takes numbers in order, without names");
    refused_exactly(fx_schedule_sequence(0, NULL, NULL), "Sequence: takes 1 to 16 parts, got 0");
    fx_schedule *twice = fx_schedule_constant(1);
    for (int i = 0; i < 60 && !fx_is_error(twice); i++)
        twice =
            fx_schedule_sequence(2, (fx_schedule *const[]){twice, twice}, (const int64_t[]){1, 1});
    refused_exactly(twice, "Sequence: contains more than 64 schedules");
    refused_exactly(
        fx_parse_schedule("Stop(1)"),
        "schedule, column 1: unknown schedule Stop; known are Constant, Step, Exp, Inv, "
        "Poly, CosAnneal, Triangle, TriangleDecay2, TriangleExp, Sin, SinDecay2, SinExp, "
        "OneCycle, Warmup, Sequence, Loop, Interpolator, Shifted, ComposedSchedule");
    refused_exactly(fx_parse_schedule("Step(1, 2)"),
                    "schedule, column 1: Step takes 3 numbers, got 2");
    refused_exactly(fx_parse_schedule("Loop(1.5, Exp(1, 1))"),
                    "schedule, column 9: expected a number of steps, got ,");
    refused_exactly(fx_parse_schedule("Sequence(Exp(1, 1), 2)"),
                    "schedule, column 19: expected =>, got ,");
    refused_exactly(fx_parse_schedule("3"),
                    "schedule, column 1: expected a schedule such as Step(0.1, 0.5, 10), got 3");
    refused_exactly(fx_parse_schedule(NULL), "schedule: the text is NULL");
    assert_true(isnan(fx_schedule_at(NULL, 1)));
    assert_int_equal(fx_error_take().status, FX_STATUS_ARGUMENT);
    refused_exactly(fx_parse_schedule("CosAnneal(1, 0, 2, true, 7)"),
                    "schedule, column 1: CosAnneal takes 3 numbers, got 5");
    refused_exactly(fx_parse_schedule("SinExp(1, 0, 2, 3, 4, 5, 6)"),
                    "schedule, column 1: SinExp takes 4 numbers, got 7");
    refused_exactly(fx_parse_schedule("Exp(decay = 0.9, start = 0.1)"),
                    "schedule, column 5: Exp takes numbers in order, without names");
    assert_true(fx_schedule_at(fx_parse_schedule("CosAnneal(1, 0, 2; restart=false)"), 2) == 0);
    assert_true(fx_schedule_at(fx_parse_schedule("CosAnneal(1, 0, 2)"), 2) == 1);
    assert_true(fx_is_error(fx_parse_schedule("CosAnneal(1, 0, 2, true, 5)")));
    assert_int_equal(fx_error_take().status, FX_STATUS_FORMAT);
    assert_true(fx_is_error(fx_parse_schedule("CosAnneal(1, 0, 2, true, 5, 6, 7)")));
    assert_int_equal(fx_error_take().status, FX_STATUS_FORMAT);
}

/* Parts of more than 511 bytes: a text that ends early would not tell schedules apart. */
static void long_texts(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_schedule *parts[16];
    int64_t steps[16];
    for (int i = 0; i < 16; i++) {
        parts[i] = fx_schedule_triangle_exp(0.123456789, 0.987654321, 1000 + i, 0.99999);
        steps[i] = 100 + i;
    }
    fx_schedule *s = fx_schedule_warmup(0, 5, fx_schedule_sequence(16, parts, steps));
    char text[2000], again[2000];
    fx_summary(s, text, sizeof text);
    fx_summary(fx_parse_schedule(text), again, sizeof again);
    assert_true(strlen(text) > 800);
    assert_string_equal(again, text);
    void *clips[20];
    for (int i = 0; i < 20; i++)
        clips[i] = fx_clip_norm(1.23456789 + i, .p = 3);
    fx_summary(fx_optimiser_chain(fxi_optimiser_chain(20, clips), fx_descent()), text, sizeof text);
    fx_summary(fx_parse_optimiser(text), again, sizeof again);
    assert_true(strlen(text) > 800);
    assert_string_equal(again, text);
    fx_summary(fx_setup(fx_parse_optimiser(text), fx_ones(2)), again, sizeof again);
    assert_non_null(strstr(again, text)); /* Leaf(OptimiserChain(…), …) */
}

/* Flux's tests of patience, early_stopping and plateau. */
static void triggers(void **state)
{
    (void)state;
    fx_trigger t = fx_patience(3);
    const bool when[] = {true, true, false, true, true, true, true};
    const bool over[] = {false, false, false, false, false, true, true};
    for (int i = 0; i < COUNT(when); i++)
        assert_int_equal(fx_patience_over(&t, when[i]), over[i]);
    t = fx_early_stopping(2, 0);
    const double scores[] = {1, 0.5, 0.75, 0.25, 0.5, 0.5};
    const bool stop[] = {false, false, false, false, false, true};
    for (int i = 0; i < COUNT(scores); i++)
        assert_int_equal(fx_stop_early(&t, scores[i]), stop[i]);
    t = fx_early_stopping(1, 0.5);
    assert_false(fx_stop_early(&t, 10));
    assert_true(fx_stop_early(&t, 9.75)); /* less than 0.5 better */
    t = fx_early_stopping(1, 0);
    assert_true(fx_stop_early(&t, (double)NAN));
    t = fx_plateau(2, 0.1);
    const double flat[] = {1, 1.05, 1.5, 1.45, 1.4};
    const bool reached[] = {false, false, false, false, true};
    for (int i = 0; i < COUNT(flat); i++)
        assert_int_equal(fx_on_plateau(&t, flat[i]), reached[i]);
    fx_throttle every = fx_throttle_every(1000, true), later = fx_throttle_every(1000, false);
    assert_true(fx_throttle_pass(&every));
    assert_false(fx_throttle_pass(&every) || fx_throttle_pass(&later) || fx_throttle_pass(&later));
    every = fx_throttle_every(0, false);
    fx_throttle_pass(&every);
    assert_true(fx_throttle_pass(&every));
}

/* ---- in fx_train ----------------------------------------------------------------------------- */

static fx_array *sum_of(void *model, const fx_batch *b, void *user)
{
    (void)b, (void)user;
    return fx_sum(fx_mul(1000, (fx_array *)model));
}
static double rates[8];
static int nrates;
static fx_flow note_rate(const fx_progress *p)
{
    rates[nrates++] = fx_eta(p->state);
    return FX_FLOW_CONTINUE;
}

static void training(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_schedule *s = fx_schedule_exp(1, 0.5);
    for (int by_step = 0; by_step < 2; by_step++) {
        fx_array *w = fx_zeros(2);
        void *opt = fx_setup(fx_descent(7), w);
        nrates = 0;
        assert_int_equal(fx_train(sum_of, w, fx_dataloader(fx_ones(1, 4), .batchsize = 2), opt,
                                  .epochs = 2, .schedule = s, .schedule_steps = by_step,
                                  .on_batch = note_rate),
                         FX_OK);
        assert_int_equal(nrates, 4);
        for (int i = 0; i < 4; i++)
            check_value("rate", i, rates[i], pow(0.5, by_step ? i : i / 2), 0, 0);
    }
    /* the gradient (1000, 1000) is cut to length 1 */
    fx_array *w = fx_zeros(2);
    void *opt = fx_setup(fx_descent(1), w);
    fx_loader *one = fx_dataloader(fx_ones(1, 1));
    assert_int_equal(fx_train(sum_of, w, one, opt, .clip_norm = 1), FX_OK);
    CHECK(w, (2), 1e-6, -sqrt(0.5), -sqrt(0.5));
    assert_int_equal(fx_train(sum_of, w, one, opt, .clip_norm = -1), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "train: clip_norm is -1, expected at least 0");
    fx_schedule *below = fx_schedule_constant(-1);
    assert_int_equal(fx_train(sum_of, w, one, opt, .schedule = below), FX_STATUS_ARGUMENT);
    fx_error_take();
    fx_schedule *root = fx_schedule_inv(1, -2, 0.5); /* 1/√(1 − 2k) */
    assert_int_equal(fx_train(sum_of, w, one, opt, .epochs = 2, .schedule = root),
                     FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "adjust_eta: the learning rate is NaN");
    fx_schedule *wrong = fx_parse_schedule("Stop(1)");
    fx_error_take();
    assert_int_equal(fx_train(sum_of, w, one, opt, .schedule = wrong), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message, "train: the schedule is an error object");
    opt = fx_setup(fx_adadelta(), w);
    assert_int_equal(fx_train(sum_of, w, one, opt, .schedule = s), FX_STATUS_ARGUMENT);
    assert_string_equal(fx_error_take().message,
                        "adjust: AdaDelta(rho=0.9, epsilon=1.0e-8) has no eta");
}

static fx_array *infinite_gradient(void *model, const fx_batch *b, void *user)
{
    (void)b, (void)user;
    return fx_sum(fx_sqrt((fx_array *)model)); /* 0, with the gradient Inf */
}

/* The loss is finite and its gradient is not. */
static void gradients_that_are_not_finite(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_zeros(2);
    fx_loader *one = fx_dataloader(fx_ones(1, 1));
    assert_int_equal(fx_train(infinite_gradient, w, one, fx_setup(fx_adam(), w), .clip_norm = 1),
                     FX_STATUS_NONFINITE);
    assert_string_equal(fx_error_take().message,
                        "train: the gradient is not finite on batch 1 of epoch 1");
    assert_int_equal(fx_train(infinite_gradient, w, one, fx_setup(fx_clip_norm(), w)),
                     FX_STATUS_NONFINITE);
    assert_string_equal(fx_error_take().message,
                        "ClipNorm: gradient has 2.0-norm Inf, for array 2-element Vector{Float32}");
    /* with a factor of the loss, the update is skipped and training continues */
    void *opt = fx_setup(fx_mixed_precision(fx_adam(), .scale = 2), w);
    assert_int_equal(fx_train(infinite_gradient, w, one, opt, .epochs = 2), FX_OK);
    CHECK(w, (2), 0, 0, 0);
    assert_int_equal(fx_error_status(), FX_OK);
    /* a factor that changes: fx_train multiplies the loss by it, and .clip_norm uses the gradient
     * without it */
    opt = fx_setup(fx_mixed_precision(fx_adam(), .growth = 1), w);
    assert_int_equal(fx_train(infinite_gradient, w, one, opt, .epochs = 2, .clip_norm = 1), FX_OK);
    assert_true(fx_loss_scale(opt) == 16384);
    CHECK(w, (2), 0, 0, 0);
    fx_array *v = fx_zeros(2);
    opt = fx_setup(fx_mixed_precision(fx_descent(1), .growth = 1), v);
    assert_int_equal(fx_train(sum_of, v, one, opt, .clip_norm = 1), FX_OK);
    assert_true(fx_loss_scale(opt) == 131072);
    CHECK(v, (2), 1e-6, -sqrt(0.5), -sqrt(0.5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas),
        cmocka_unit_test(ranges_and_offsets),
        cmocka_unit_test(wrong_schedules),
        cmocka_unit_test(schedules_of_schedules),
        cmocka_unit_test(texts_of_schedules_of_schedules),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(triggers),
        cmocka_unit_test(training),
        cmocka_unit_test(gradients_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
