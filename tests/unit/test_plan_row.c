/* test_plan_row.c: planner rule 3: what is computed row by row, as plans in text. The expected
 * plans follow from src/plan/row.c, worked out by hand: passes are separated by |, values of the
 * row are in parentheses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "plan_steps.h"

static fx_array *leaf(int64_t m, int64_t n)
{
    fx_array *x = fx_rand(m, n);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* A loss and its gradient of x, in one plan. */
static void *with_gradient(fx_array *loss, fx_array *x)
{
    fx_array *g;
    assert_int_equal(fx_gradient_of(loss, &x, 1, &g), FX_OK);
    return fx_tuple(loss, g);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void softmax_is_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64);
    expect(fx_softmax(x), "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 100×64\n");
    expect(fx_logsoftmax(x), "  1  row max | sub exp sum | (log) sub(x0) → Float32 100×64\n");
}

static void values_of_rows_are_outputs(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64);
    expect(fx_logsumexp(x, .dims = FX_AXES(0)),
           "  1  row max | (neg max add lt select) sub exp sum | (eq select log select add)"
           "(x0, c0, c1, c2, c3, c5, c4) → Float32 1×64\n");
}

/* As the batch norm of a residual block, whose backward pass reads many of its values. */
static void a_step_may_have_many_outputs(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { N = 12 };
    fx_array *x = leaf(100, 64), *far = fx_sub(x, fx_maximum(x, .dims = FX_AXES(0))), *out[N];
    for (int k = 0; k < N; k++)
        out[k] = fx_mul(far, ldexp(1, k));
    const char *plan = plan_of(fxi_tuple(N, (void *const *)out));
    assert_non_null(strstr(plan, "  1  row max | sub"));
    assert_null(strstr(plan, "  2  "));
    assert_int_equal(fx_eval(fxi_tuple(N, (void *const *)out)), FX_OK);
    for (int k = 1; k < N; k++)
        assert_true(fx_at(out[k], 507) == ldexp(fx_at(out[0], 507), k));
}

static void norms_are_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *scale = leaf(100, 1), *bias = leaf(100, 1);
    expect(fx_div(x, fx_norm(x, .dims = FX_AXES(0))),
           "  1  row powi sum | (eq select sqrt select) div(x0, c0, c2, c1) → Float32 100×64\n");
    expect(fx_div(x, fx_sqrt(fx_add(fx_mean(fx_square(x), .dims = FX_AXES(0)), 1e-5))),
           "  1  row powi sum | (div cast add sqrt) div(x0, c0, c1) → Float32 100×64\n");
    expect(
        fx_add(fx_mul(scale, fx_normalise(x, FX_AXES(0), 1e-5)), bias),
        "  1  row sum squared deviations | (div cast div cast cast sub cast div add sqrt div) sub "
        "sub mul mul add(x1, c0, c1, c3, c4, c2, x0′, x2′) → Float32 100×64\n");
}

/* The mean over the rows is a step of its own, with its division. */
static void crossentropy_is_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *y = leaf(100, 64);
    expect(fx_logitcrossentropy(x, y),
           "  1  row max | sub exp sum | (log) sub mul sum | (neg)(x1, x0) → Float32 1×64\n"
           "  2  row sum | (div cast)(1, c0) → Float32 1×1\n");
}

/* With one-hot targets all sums are computed in the pass of the exponentials. */
static void crossentropy_of_one_hot_targets_has_two_passes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *y = fx_gt(leaf(100, 64), 2);
    assert_int_equal(fx_eval(y), FX_OK);
    expect(fx_logitcrossentropy(x, y), "  1  row cast sum max | sub exp sum select sum | (log mul "
                                       "sub)(x0, x1, c0) → Float32 1×64\n"
                                       "  2  row sum | (div cast)(1, c1) → Float32 1×1\n");
    expect(with_gradient(fx_logitcrossentropy(x, y), x),
           "  1  row cast sum max | (mul) sub exp sum select sum | (log mul sub div) select mul add"
           "(x0, x1, c0, c6, c7, c5) → Float32 100×64, Float32 1×64\n"
           "  2  row sum | (div cast)(1, c1) → Float32 1×1\n");
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The loss, which is computed before the gradient but is not part of it, is an output of the same
 * step. */
static void crossentropy_and_gradient_are_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *y = leaf(100, 64);
    expect(with_gradient(fx_logitcrossentropy(x, y), x),
           "  1  row max mul sum | (neg) sub exp sum | (log div) sub mul sum mul add | (neg)"
           "(x1, x0, c5) → Float32 100×64, Float32 1×64\n"
           "  2  row sum | (div cast)(1, c0) → Float32 1×1\n");
}

/* The same after 200 layers, more nodes than a search examines: labels that are computed before the
 * forward pass and a loss that is wanted after the gradient belong to one step with it. */
static void crossentropy_of_a_large_graph(void **state)
{
    (void)state;
    FX_SCOPE;
    static char text[1 << 16];
    fx_array *x = leaf(100, 64), *w = leaf(100, 100), *h = x;
    fx_array *labels = fx_cast(fx_zeros(64), FX_DTYPE_I64), *g;
    assert_int_equal(fx_eval(labels), FX_OK);
    for (int k = 0; k < 200; k++)
        h = fx_tanh(fx_matmul(w, h));
    fx_array *loss = fx_logitcrossentropy(h, fx_onehot(labels, 100));
    assert_int_equal(fx_gradient_of(loss, &x, 1, &g), FX_OK);
    assert_true(fx_plan_text(fx_tuple(g, loss), text, sizeof text) < sizeof text);
    int rows = 0, steps = 0;
    for (char *at = strtok(text, "\n"); at; at = strtok(NULL, "\n")) {
        steps++;
        rows += strstr(at, "Float32 100×64") && (strstr(at, "exp") || strstr(at, "eq"));
        if (strstr(at, "exp"))
            assert_non_null(strstr(at, "→ Float32 100×64, Float32 1×64"));
    }
    assert_int_equal(rows, 1);
    assert_true(steps > 600);
}

/* Elements are computed in the first pass that reads them, because a backend keeps them until then.
 * Not if it would have to keep two other values instead. */
static void elements_wait_for_their_readers(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *u = fx_exp(x), *v = fx_exp(x), *w = fx_exp(x), *t = fx_tanh(x);
    expect(fx_div(fx_mul(u, x), fx_sum(u, .dims = FX_AXES(0))),
           "  1  row exp sum | mul div(x0) → Float32 100×64\n");
    expect(fx_div(fx_mul(fx_sqrt(v), x), fx_sum(v, .dims = FX_AXES(0))),
           "  1  row exp sum | sqrt mul div(x0) → Float32 100×64\n");
    fx_array *sums = fx_add(fx_sum(w, .dims = FX_AXES(0)), fx_sum(t, .dims = FX_AXES(0)));
    expect(fx_div(fx_mul(w, t), sums),
           "  1  row exp tanh mul sum sum | (add) div(x0) → Float32 100×64\n");
}

/* The upstream gradient is y. */
static fx_array *pullback(fx_array *value, fx_array *y, fx_array *x)
{
    fx_array *g;
    assert_int_equal(fx_pullback(value, y, &x, 1, &g), FX_OK);
    return g;
}

static void gradients_are_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *y = leaf(100, 64);
    expect(pullback(fx_softmax(x), y, x),
           "  1  row max | sub exp sum | (div) mul mul sum | (neg mul) mul add mul(x1, c0, x0) → "
           "Float32 100×64\n");
    expect(pullback(fx_div(x, fx_norm(x, .dims = FX_AXES(0))), y, x),
           "  1  row powi sum | (eq select sqrt select) div div mul sum | "
           "(neg select mul div select) mul mul add(x1, c0, c2, c1, x0, c5, c4, c3, c6) → Float32 "
           "100×64\n");
}

/* Those of scale and bias are sums across the rows. */
static void layer_norm_gradient(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *y = leaf(100, 64), *scale = leaf(100, 1), *bias = leaf(100, 1);
    fx_array *of[] = {x, scale, bias}, *g[3];
    fx_array *z = fx_add(fx_mul(scale, fx_normalise(x, FX_AXES(0), 1e-5)), bias);
    assert_int_equal(fx_pullback(z, y, of, 3, g), FX_OK);
    expect(
        fx_tuple(z, g[0], g[1], g[2]),
        "  1  row sum squared deviations sum across | (div cast div cast cast sub cast div add "
        "sqrt "
        "div div cast) sub sub mul mul add mul mul sum mul sum mul sum across | (neg mul mul "
        "div div mul neg cast div cast) sub mul add add(x1, c0, c1, c3, c4, c2, x0′, x2′, x3, c6, "
        "c5, c7) → Float32 100×64, Float32 100×1, Float32 100×64, Float32 100×1\n");
}

/* A sum across rows is complete after the last row, so no member may need it. It has the shape of
 * the others, adds up at least 16 rows, and keeps an axis of the rows. */
static void sums_across_rows(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *few = leaf(100, 15), *many = leaf(100, 1000), *y = fx_softmax(x);
    expect(fx_tuple(y, fx_sum(y, .dims = FX_AXES(1)), fx_sum(x, .dims = FX_AXES(1))),
           "  1  row max sum across | sub exp sum | (div) mul sum across(x0, c0) → Float32 100×64, "
           "Float32 100×1, Float32 100×1\n");
    fx_array *centred = fx_sub(many, fx_sum(many, .dims = FX_AXES(1)));
    expect(fx_softmax(centred),
           "  1  reduce sum(x0) → Float32 100×1\n"
           "  2  row sub max | sub exp sum | (div) mul(x0, 1′, c0) → Float32 100×1000\n");
    y = fx_softmax(few);
    expect(fx_tuple(y, fx_sum(y, .dims = FX_AXES(1))),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 100×15\n"
           "  2  reduce sum(1) → Float32 100×1\n");
    y = fx_softmax(x);
    expect(fx_tuple(y, fx_sum(y)),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 100×64\n"
           "  2  reduce sum(1) → Float32 1×1\n");
    expect(fx_tuple(y, fx_maximum(y, .dims = FX_AXES(1))),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 100×64\n"
           "  2  reduce max(1) → Float32 100×1\n");
}

/* ---- steps that are not row steps ------------------------------------------------------------ */

/* A value that depends on the softmax through a product cannot be in the softmax's step: the plan
 * would have a cycle. */
static void cycles_are_kept_out(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *W = leaf(100, 100);
    fx_array *s = fx_softmax(x);
    expect(fx_softmax(fx_add(s, fx_matmul(W, s))),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 100×64\n"
           "  2  matmul then add(x1, 1, 1) → Float32 100×64, 1.28 MFLOP\n"
           "  3  row max | sub exp sum | (div) mul(2, c1) → Float32 100×64\n");
}

static void rows_are_contiguous_and_short(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *cube = fx_rand(3, 4, 5), *large = leaf(20000, 3);
    fx_eval(cube);
    expect(fx_softmax(cube, .dims = FX_AXES(0, 1)),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 3×4×5\n");
    assert_null(strstr(plan_of(fx_softmax(cube, .dims = FX_AXES(0, 2))), "row"));
    assert_null(strstr(plan_of(fx_softmax(large)), "row"));
    /* Rows of more than 64 KiB, up to 1 MiB, if there are 16 of them. */
    assert_null(strstr(plan_of(fx_softmax(leaf(20000, 15))), "row"));
    expect(fx_softmax(leaf(20000, 16)),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 20000×16\n");
    assert_null(strstr(plan_of(fx_softmax(leaf(262145, 16))), "row"));
}

/* Group norm scales before its result gets the shape of x: the norm is one step, and with the
 * gradient of x it is still one. */
static void group_norm_is_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_groupnorm_layer *l = fx_groupnorm(8, 2);
    fx_array *x = fx_rand(40, 60, 8, 8), *y = fx_rand(40, 60, 8, 8);
    fx_eval(fx_tuple(l, x, y));
    fx_array *z = fx_call(l, x), *g[3];
    const char *text = plan_of(z);
    assert_non_null(strstr(text, "  1  row "));
    assert_null(strstr(text, "  2  "));
    assert_int_equal(fx_pullback(z, y, (fx_array *[]){x, l->gamma, l->beta}, 3, g), FX_OK);
    text = plan_of(fx_tuple(z, g[0]));
    assert_non_null(strstr(text, "  1  row "));
    assert_null(strstr(text, "  2  "));
}

/* Rows along a middle axis or the last one are columns, if an elementwise operation of full size
 * follows the reduction. A reduction alone walks memory in order. */
static void rows_may_be_columns(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *cube = fx_rand(3, 40, 5), *few = fx_rand(7, 9, 5),
             *planes = fx_rand(16, 4096, 2), *wide = fx_rand(33, 2048), *u = fx_rand(3, 40, 5);
    fx_array *ys[1], *tall = fx_rand(1024, 513), *y;
    fx_eval(fx_tuple(cube, few, planes, wide, tall, u));
    expect(fx_softmax(x, .dims = FX_AXES(1)),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 100×64\n");
    expect(fx_softmax(planes, .dims = FX_AXES(1)),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 16×4096×2\n");
    y = fx_softmax(cube, .dims = FX_AXES(1));
    assert_int_equal(fx_pullback(y, u, &cube, 1, ys), FX_OK);
    expect(fx_tuple(y, ys[0]),
           "  1  row max | sub exp sum | (div) mul mul sum | (neg mul) mul add mul(x0, c0, x1) → "
           "Float32 3×40×5, Float32 3×40×5\n");
    assert_null(strstr(plan_of(fx_softmax(few, .dims = FX_AXES(1))), "row"));
    assert_null(strstr(plan_of(fx_softmax(wide, .dims = FX_AXES(1))), "row"));
    assert_null(strstr(plan_of(fx_softmax(tall, .dims = FX_AXES(1))), "row"));
    expect(fx_mean(x, .dims = FX_AXES(1)), "  1  reduce sum(x0) → Float64 100×1\n"
                                           "  2  div cast(1, c0) → Float32 100×1\n");
    expect(fx_normalise(fx_cast(x, FX_DTYPE_BF16), FX_AXES(1), 1e-5),
           "  1  row cast cast sum squared deviations | "
           "(div cast div cast cast sub cast div add sqrt div) sub sub mul cast"
           "(x0, c0, c1, c3, c4, c2) → BFloat16 100×64\n");
}

/* Channels of images, whose pieces have 64 elements: rows around the axis of channels. */
static void rows_may_be_around_kept_axes(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_rand(8, 8, 16, 4), *narrow = fx_rand(8, 8, 15, 4),
             *thin = fx_rand(5, 3, 16, 4);
    fx_array *large = fx_rand(64, 64, 16, 65);
    fx_eval(fx_tuple(x, narrow, thin, large));
    expect(fx_softmax(x, .dims = FX_AXES(0, 1, 3)),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 8×8×16×4\n");
    expect(fx_tuple(fx_mean(x, .dims = FX_AXES(0, 1, 3)),
                    fx_sub(x, fx_mean(x, .dims = FX_AXES(0, 1, 3)))),
           "  1  row sum | (div cast)(x0, c0) → Float32 1×1×16×1\n"
           "  2  row sum | (div cast) sub(x0, c1) → Float32 8×8×16×4\n");
    /* fewer than 16 rows, pieces of fewer than 16 elements, rows of more than 1 MiB */
    assert_null(strstr(plan_of(fx_softmax(narrow, .dims = FX_AXES(0, 1, 3))), "row"));
    assert_null(strstr(plan_of(fx_softmax(thin, .dims = FX_AXES(0, 1, 3))), "row"));
    assert_null(strstr(plan_of(fx_softmax(large, .dims = FX_AXES(0, 1, 3))), "row"));
}

/* The bias goes to the product. The difference that only the last step reads is computed there,
 * from the sum with the bias and the maxima: the row step stores one value of full size, not three.
 */
static void members_leave_for_other_steps(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *W = leaf(16, 8), *b = leaf(16, 1), *x = leaf(8, 4), *g = leaf(16, 4);
    fx_array *y = fx_add(fx_matmul(W, x), b), *u = fx_sub(y, fx_maximum(y, .dims = FX_AXES(0)));
    fx_array *s = fx_div(fx_exp(u), fx_sum(fx_exp(u), .dims = FX_AXES(0)));
    fx_array *p = fx_matmul(fx_transpose(W), s);
    fx_array *far = fx_sub(y, fx_maximum(y, .dims = FX_AXES(0)));
    expect(fx_mul(fx_mul(fx_matmul(W, p), far), g),
           "  1  matmul then add(x0, x1, x2′) → Float32 16×4, 0.00102 MFLOP\n"
           "  2  row max max | sub exp sum | div(1) → Float32 16×4, Float32 1×4\n"
           "  3  matmul(x0′, 2) → Float32 8×4, 0.00102 MFLOP\n"
           "  4  matmul(x0, 3) → Float32 16×4, 0.00102 MFLOP\n"
           "  5  sub mul mul(1, 2′, 4, x3) → Float32 16×4\n");
}

/* The gradients of scale and bias of a norm with given statistics: two sums of one pass. Reductions
 * of other rows, and of a leaf, stay apart. */
static void reductions_of_one_operand_are_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64), *y = leaf(100, 64), *e = fx_mul(x, y);
    expect(fx_tuple(fx_sum(e, .dims = FX_AXES(0)), fx_maximum(fx_neg(e), .dims = FX_AXES(0))),
           "  1  row mul sum neg max(x0, x1) → Float32 1×64, Float32 1×64\n");
    expect(fx_tuple(fx_sum(e, .dims = FX_AXES(0)), fx_sum(fx_neg(e))),
           "  1  mul(x0, x1) → Float32 100×64\n"
           "  2  reduce sum(1) → Float32 1×64\n"
           "  3  reduce sum of neg(1) → Float32 1×1\n");
    expect(fx_tuple(fx_sum(x, .dims = FX_AXES(0)), fx_maximum(x, .dims = FX_AXES(0))),
           "  1  reduce sum(x0) → Float32 1×64\n"
           "  2  reduce max(x0) → Float32 1×64\n");
    fx_array *images = fx_rand(8, 8, 16, 4), *gy = fx_rand(8, 8, 16, 4);
    fx_batchnorm_layer *norm = fx_batchnorm(16);
    assert_int_equal(fx_testmode(norm), FX_OK);
    assert_int_equal(fx_eval(fx_tuple(images, gy, norm)), FX_OK);
    /* The value is still pending and needs the root, which is stored for it. */
    expect(fx_gradient(fx_sum(fx_mul(fx_call(norm, images), gy)), norm),
           "  1  row (add sqrt) mul sum sub mul sum | (div)(c0, x0, x1, x2′, x3, c1) → "
           "Float32 1×1×16×1, Float32 1×1×16×1, Float32 1×1×16×1\n");
}

/* The gradient of the scale of a norm in test mode is divided by a root that the value is divided
 * by too. So value and gradients are one step. The sum of a leaf shares only the leaf. */
static void norms_in_test_mode(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_rand(8, 8, 16, 4), *gy = fx_rand(8, 8, 16, 4), *g[3];
    fx_batchnorm_layer *norm = fx_batchnorm(16);
    assert_int_equal(fx_testmode(norm), FX_OK);
    assert_int_equal(fx_eval(fx_tuple(x, gy, norm)), FX_OK);
    fx_array *const in[] = {x, norm->gamma, norm->beta};
    fx_array *y = fx_call(norm, x);
    assert_int_equal(fx_pullback(y, gy, in, 3, g), FX_OK);
    expect(
        fx_tuple(y, g[0], g[1], g[2]),
        "  1  row (add sqrt div) sub mul add mul mul sum | (div)(x0, x1′, x3, c0, x2, x4′, x5) → "
        "Float32 8×8×16×4, Float32 8×8×16×4, Float32 1×1×16×1\n"
        "  2  reduce sum(x5) → Float32 1×1×16×1\n");
    /* A sum that is divided by a leaf, or by what nothing expands, starts no row step. */
    fx_array *e = fx_mul(x, gy), *s = fx_sum(e, .dims = FX_AXES(0, 1, 3));
    fx_array *v = fx_sqrt(fx_reshape(norm->gamma, 1, 1, 16, 1));
    assert_null(strstr(plan_of(fx_div(s, fx_reshape(norm->gamma, 1, 1, 16, 1))), "row"));
    assert_null(strstr(plan_of(fx_div(s, v)), "row"));
}

/* Rule 2 takes a reduction whose result is not combined with the elements; the division of a mean
 * is not a step of its own. */
static void a_reduction_alone_is_none(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(100, 64);
    expect(fx_sum(fx_square(x), .dims = FX_AXES(0)),
           "  1  reduce sum of powi(x0) → Float32 1×64\n");
    expect(fx_mean(fx_square(x), .dims = FX_AXES(0)),
           "  1  row powi sum | (div cast)(x0, c0) → Float32 1×64\n");
}

/* Values of rows that others see as elements are views of an output. */
static void expanded_values_are_views(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(4, 6), *W = leaf(5, 4);
    fx_array *m = fx_maximum(x, .dims = FX_AXES(0)), *wide = fx_expand(m, 4, 6);
    expect(fx_tuple(fx_sub(x, wide), fx_matmul(W, wide)),
           "  1  row max | sub(x0) → Float32 4×6, Float32 1×6\n"
           "  2  matmul(x1, 1′) → Float32 5×6, 0.00024 MFLOP\n");
}

/* 16-bit floats take part: their reductions are Float32 inside and rounded at the end. */
static void halves_take_part(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_cast(leaf(100, 64), FX_DTYPE_BF16), *y = fx_cast(leaf(100, 64), FX_DTYPE_BF16);
    fx_array *scale = fx_cast(leaf(100, 1), FX_DTYPE_BF16);
    assert_int_equal(fx_eval(fx_tuple(x, y, scale)), FX_OK);
    expect(fx_softmax(x),
           "  1  row cast max | sub exp sum | (div) mul cast(x0, c0) → BFloat16 100×64\n");
    expect(fx_mul(scale, fx_normalise(x, FX_AXES(0), 1e-5)),
           "  1  row cast sum squared deviations | (div cast div cast cast sub cast div add sqrt "
           "div) sub sub mul cast mul(x1, c0, c1, c3, c4, c2, x0′) → BFloat16 100×64\n");
    expect(fx_logitcrossentropy(x, y),
           "  1  row cast max | sub exp sum | (log) sub cast mul sum | (neg cast)(x1, x0) → "
           "Float32 1×64\n"
           "  2  row sum | (div cast cast)(1, c0) → BFloat16 1×1\n");
    expect(fx_div(x, fx_sum(fx_exp(x), .dims = FX_AXES(0))),
           "  1  row exp sum | div(x0) → BFloat16 100×64\n");
    expect(fx_sum(fx_square(x)), "  1  reduce sum of powi(x0) → BFloat16 1×1\n");
}

/* A row is in registers as Float32, so 16-bit rows are no longer than those of Float32. */
static void halves_have_rows_of_float32(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_cast(leaf(16384, 2), FX_DTYPE_F16), *y = fx_cast(leaf(16385, 2), FX_DTYPE_F16);
    assert_int_equal(fx_eval(fx_tuple(x, y)), FX_OK);
    expect(fx_sub(x, fx_sum(x, .dims = FX_AXES(0))), "  1  row sum | sub(x0) → Float16 16384×2\n");
    expect(fx_sub(y, fx_sum(y, .dims = FX_AXES(0))), "  1  reduce sum(x0) → Float16 1×2\n"
                                                     "  2  sub(x0, 1′) → Float16 16385×2\n");
}

int main(void)
{
    unsetenv("FX_EAGER");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_is_one_step),
        cmocka_unit_test(values_of_rows_are_outputs),
        cmocka_unit_test(a_step_may_have_many_outputs),
        cmocka_unit_test(norms_are_one_step),
        cmocka_unit_test(crossentropy_is_one_step),
        cmocka_unit_test(crossentropy_of_one_hot_targets_has_two_passes),
        cmocka_unit_test(crossentropy_and_gradient_are_one_step),
        cmocka_unit_test(crossentropy_of_a_large_graph),
        cmocka_unit_test(elements_wait_for_their_readers),
        cmocka_unit_test(gradients_are_one_step),
        cmocka_unit_test(layer_norm_gradient),
        cmocka_unit_test(sums_across_rows),
        cmocka_unit_test(cycles_are_kept_out),
        cmocka_unit_test(rows_are_contiguous_and_short),
        cmocka_unit_test(group_norm_is_one_step),
        cmocka_unit_test(rows_may_be_columns),
        cmocka_unit_test(rows_may_be_around_kept_axes),
        cmocka_unit_test(members_leave_for_other_steps),
        cmocka_unit_test(reductions_of_one_operand_are_one_step),
        cmocka_unit_test(norms_in_test_mode),
        cmocka_unit_test(a_reduction_alone_is_none),
        cmocka_unit_test(expanded_values_are_views),
        cmocka_unit_test(halves_take_part),
        cmocka_unit_test(halves_have_rows_of_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
