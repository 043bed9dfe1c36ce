/* test_attention_kernel.c: which calls become attention steps, on a stand-in device that has them
 * (standin/attention_loop.h), and the steps of their plans. conform_attention.c compares values and
 * gradients with ref. ctest: devices once */
#include "semantics_check.h"

#include "plan_steps.h"
#include "replay.h"

enum { D = 16, L = 64, B = 2, HEADS = 2 };
static fx_device *device;

/* Numbers in (−1, 1) by a formula, so that the CPU can have the same. */
static fx_array *numbers(fx_device *on, fx_dtype type, int64_t features, int64_t length, int shift)
{
    fx_array *i = fx_range_dtype(FX_DTYPE_F32, shift, 1, features * length * B);
    fx_array *x = fx_sin(fx_mul(i, 1.7));
    x = fx_to(on, fx_cast(fx_reshape(x, features, length, B), type));
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* Attention of three slices of x, the first of which begins at a feature. */
static fx_array *of_slices(fx_array *x, int64_t first, bool causal)
{
    fx_array *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = fx_slice(x, 0, first + i * D, first + (i + 1) * D);
    return fx_child(
        fx_dot_product_attention(part[0], part[1], part[2], .nheads = HEADS, .causal = causal), 0);
}

/* 2·(8 + 8) operations for each of 64·64 scores of 2·2 heads, and half of them with the mask. */
static void slices_are_views(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = numbers(device, FX_DTYPE_BF16, 3 * D, L, 0), *g;
    expect(of_slices(x, 0, false),
           "  1  attention forward(x0′, x0′, x0′) → BFloat16 16×64×2, 0.524 MFLOP\n");
    fx_array *y = of_slices(x, 0, true);
    expect(y, "  1  attention forward(x0′, x0′, x0′) → BFloat16 16×64×2, 0.262 MFLOP\n");
    fx_pullback(y, fx_cos(y), &x, 1, &g);
    const char *plan = plan_of(g);
    assert_int_equal(
        times(plan, "  1  attention forward(x0′, x0′, x0′) → BFloat16 16×64×2 and 1 more"), 1);
    assert_int_equal(times(plan, "attention forward(") + times(plan, "attention log sum exp("), 1);
    /* One step computes all gradients. */
    assert_int_equal(times(plan, "attention gradients(x0′, x0′, x0′, "), 1);
    assert_int_equal(times(plan, "attention by "), 0);
    assert_int_equal(times(plan, "copy") + times(plan, "matmul") + times(plan, "row"), 0);
    /* The forward step of an earlier plan has stored no logarithms. */
    assert_int_equal(fx_eval(y), FX_OK);
    plan = plan_of(g);
    assert_int_equal(times(plan, "attention forward("), 0);
    assert_int_equal(times(plan, "attention log sum exp(x0′, x1′) → Float32 2×64×2"), 1);
}

/* A mask of the keys of each sequence is one operand of all steps. It is a view where it can be,
 * and nothing has the size of the scores. */
static void a_mask_is_an_operand(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = numbers(device, FX_DTYPE_BF16, D, L, 0), *g;
    fx_array *lengths = fx_to(device, fx_vector(L - 7, L / 2));
    fx_array *keys = fx_reshape(fx_range_dtype(FX_DTYPE_F32, 0, 1, L), 1, L);
    fx_array *seen = fx_lt(keys, fx_reshape(lengths, B, 1)); /* batch×keys */
    assert_int_equal(fx_eval(seen), FX_OK);
    fx_array *mask = fx_reshape(fx_permute(seen, 1, 0), L, 1, 1, B);
    fx_array *y = fx_child(fx_dot_product_attention(x, x, x, .nheads = HEADS, .mask = mask), 0);
    expect(y, "  1  attention forward(x0, x0, x0, x1′) → BFloat16 16×64×2, 0.524 MFLOP\n");
    fx_pullback(y, fx_cos(y), &x, 1, &g);
    const char *plan = plan_of(g);
    assert_int_equal(times(plan, "attention forward("), 1);
    assert_int_equal(times(plan, " and 1 more"), 2);
    assert_int_equal(times(plan, "attention "), 2);
    assert_int_equal(times(plan, "×2×2"), 0); /* keys×queries×heads×batch */
    /* The logarithms differ without the mask, so the masked step cannot store those too. */
    fx_array *z = fx_child(fx_dot_product_attention(x, x, x, .nheads = HEADS), 0);
    fx_pullback(z, fx_cos(z), &x, 1, &g);
    assert_int_equal(fx_eval(z), FX_OK);
    plan = plan_of(fx_add(y, g));
    assert_int_equal(times(plan, "attention forward("), 1);
    assert_int_equal(times(plan, "attention log sum exp(x0, x0)"), 1);
}

/* 16 bytes are 8 features. With one operand aligned, the two others are copied. */
static void other_views_are_copied(void **state)
{
    (void)state;
    static const struct {
        int64_t features, first;
        int copies;
    } rows[] = {{3 * D + 8, 8, 0}, {3 * D + 8, 4, 3}, {3 * D + 4, 0, 3}, {3 * D + 4, 4, 3}};
    FX_SCOPE;
    for (int r = 0; r < COUNT(rows); r++) {
        fx_array *y =
            of_slices(numbers(device, FX_DTYPE_F16, rows[r].features, L, r), rows[r].first, false);
        const char *plan = plan_of(y);
        assert_int_equal(times(plan, "copy("), rows[r].copies);
        assert_int_equal(times(plan, "attention forward("), 1);
    }
    fx_array *q = numbers(device, FX_DTYPE_F16, D, L, 1);
    fx_array *rows_first = fx_permute(numbers(device, FX_DTYPE_F16, L, D, 2), 1, 0, 2);
    fx_array *y = fx_child(fx_dot_product_attention(q, rows_first, q, .nheads = HEADS), 0);
    expect(y, "  1  copy(x1′) → Float16 16×64×2\n"
              "  2  attention forward(x0, 1, x0) → Float16 16×64×2, 0.524 MFLOP\n");
}

/* Everything that the kernels lack is computed with products and softmax. */
static void other_calls_have_no_such_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x[FX_DTYPE_COUNT], *on_cpu = numbers(fx_cpu_device(), FX_DTYPE_F16, D, L, 0);
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F16, FX_DTYPE_BF16};
    for (int i = 0; i < COUNT(types); i++)
        x[types[i]] = numbers(device, types[i], D, L, i);
    fx_array *half = x[FX_DTYPE_F16], *mask = fx_make_causal_mask(half, 1);
    fx_array *bias = fx_to(device, fx_cast(fx_randn(L, L), FX_DTYPE_F16));
    const struct {
        void *pair;
        int steps;
    } rows[] = {
        {fx_dot_product_attention(half, half, half, .nheads = HEADS), 1},
        {fx_dot_product_attention(half, half, .nheads = 1, .causal = true), 1},
        {fx_dot_product_attention(half, half, half, .nheads = HEADS, .mask = mask), 1},
        {fx_dot_product_attention(half, half, half, .nheads = HEADS, .bias = bias), 0},
        {fx_dot_product_attention(half, half, half, .nheads = HEADS, .dropout = 0.5), 0},
        {fx_dot_product_attention(half, half, x[FX_DTYPE_BF16], .nheads = HEADS), 0},
        {fx_dot_product_attention(x[FX_DTYPE_F32], x[FX_DTYPE_F32], .nheads = HEADS), 0},
        {fx_dot_product_attention(on_cpu, on_cpu, .nheads = HEADS), 0},
        {fx_dot_product_attention(fx_slice(half, 1, 0, 0), half, .nheads = HEADS), 0},
    };
    for (int r = 0; r < COUNT(rows); r++)
        assert_int_equal(times(plan_of(fx_child(rows[r].pair, 0)), "attention"), rows[r].steps);
    /* The scores are computed only if the program asks for them. */
    fx_array *y = fx_child(rows[0].pair, 0), *scores = fx_child(rows[0].pair, 1);
    const uint64_t before = fx_stats().steps_run;
    assert_int_equal(fx_eval(y), FX_OK);
    assert_int_equal(fx_stats().steps_run - before, 1);
    fx_array *sums = fx_sum(fx_cast(scores, FX_DTYPE_F32), .dims = FX_AXES(0));
    NEAR(fx_item(fx_maximum(fx_abs(fx_sub(sums, 1)))), 0, 5e-3);
}

/* The errors are the same as without attention steps. */
static void wrong_calls_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = numbers(device, FX_DTYPE_F16, D, L, 0);
    assert_true(fx_is_error(fx_dot_product_attention(x, x, .nheads = 3)));
    expect_error(FX_STATUS_ARGUMENT, "expected a divisor of both numbers of features");
    assert_true(fx_is_error(fx_dot_product_attention(x, fx_slice(x, 0, 0, 8))));
    expect_error(FX_STATUS_SHAPE, "query and key need the same features");
}

/* ---- training -------------------------------------------------------------------------------- */

enum { STEPS = 8 };

/* The scores are not kept, so the plan does not keep what they would be computed from. */
static fx_array *attended(fx_multiheadattention_layer *layer, fx_array *x)
{
    FX_SCOPE;
    return fx_keep(fx_sub(fx_child(fx_attend(layer, x, .causal = true), 0), x));
}

/* Losses of a layer whose parameters are given by a formula. */
static void train(fx_device *on, fx_dtype type, double *losses)
{
    FX_SCOPE;
    fx_seed(3);
    fx_multiheadattention_layer *layer = fx_multiheadattention(FX_DIMS(D), .nheads = HEADS);
    layer = fx_to(on, type == FX_DTYPE_BF16 ? fx_bf16(layer) : layer);
    void *opt = fx_setup(fx_descent(.eta = 0.5), layer);
    fx_array *x = numbers(on, type, D, L, 0), *want = numbers(on, type, D, L, 5);
    for (int step = 0; step < STEPS; step++) {
        FX_SCOPE;
        fx_array *y = attended(layer, x);
        fx_array *loss = fx_mse(fx_cast(y, FX_DTYPE_F32), fx_cast(want, FX_DTYPE_F32));
        fx_want(loss);
        fx_update(opt, layer, fx_gradient(loss, layer));
        losses[step] = fx_item(loss);
    }
}

/* BFloat16 on the stand-in, whose training steps are recorded and replayed, follows Float32 on the
 * CPU. */
static void a_layer_learns(void **state)
{
    (void)state;
    double got[STEPS], again[STEPS], want[STEPS];
    train(device, FX_DTYPE_BF16, got);
    train(device, FX_DTYPE_BF16, again);
    train(fx_cpu_device(), FX_DTYPE_F32, want);
    for (int i = 0; i < STEPS; i++) {
        SAME(again[i], got[i]);
        NEAR(got[i], want[i], 5e-3);
    }
    assert_true(want[STEPS - 1] < 0.97 * want[0]);
    assert_true(replay_of(device)->count(REPLAY_REPLAYS) > 0);
}

int main(void)
{
    standin_path();
    fx_use("Replay");
    device = fx_device_get("Replay", 0);
    if (fx_error_print(stderr) || !device)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_views),       cmocka_unit_test(a_mask_is_an_operand),
        cmocka_unit_test(other_views_are_copied), cmocka_unit_test(other_calls_have_no_such_step),
        cmocka_unit_test(wrong_calls_are_errors), cmocka_unit_test(a_layer_learns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
