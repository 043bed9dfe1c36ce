/* test_plan_layout.c: golden tests of physical layouts: a graph in, its list of steps with their
 * layouts out. The backend is the CPU's with one change: it takes every convolution with at least
 * 16 output channels, and all pooling, channels last. The plans are looked at and not run. Expected
 * lists follow from the rules of src/plan/layout.c, worked out by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdlib.h>
#include <string.h>

#include "backends.h"
#include "networks.h"
#include "plan.h"

static bool wants_last(fx_device *device, const fx_step *s)
{
    (void)device;
    if (s->op == FX_OP_POOL)
        return true;
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const fx_tensor *w = a->kind == FX_CONV_WEIGHT ? &s->out : &s->in[1];
    return w->shape[a->spatial + 1] >= 16;
}

/* Accepts every step. */
static fx_status takes_all(fx_device *device, fx_step *s)
{
    (void)device, (void)s;
    return FX_OK;
}

enum { CAPACITY = 1 << 16 };

static char *plan_of(void *object)
{
    static char text[CAPACITY];
    fx_backend backend = fxi_cpu_backend;
    backend.channels_last = wants_last;
    backend.prepare = takes_all;
    fx_cpu_device()->backend = &backend;
    const size_t n = fx_plan_text(object, text, sizeof text);
    fx_cpu_device()->backend = &fxi_cpu_backend;
    assert_true(n > 0 && n < sizeof text);
    return text;
}

static void expect(void *object, const char *steps)
{
    assert_string_equal(strchr(plan_of(object), '\n') + 1, steps);
}

/* Lines of the plan that hold all the words. */
static int count(const char *text, const char *a, const char *b)
{
    char line[500];
    int n = 0;
    for (; *text; text += *text == '\n') {
        const size_t length = strcspn(text, "\n");
        assert_true(length < sizeof line);
        memcpy(line, text, length);
        line[length] = '\0';
        n += strstr(line, a) && strstr(line, b);
        text += length;
    }
    return n;
}

static fx_array *image(int64_t w, int64_t h, int64_t c, int64_t n)
{
    fx_array *x = fx_rand(w, h, c, n);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static void a_convolution_and_what_follows_it(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = image(8, 8, 4, 2), *w = image(3, 3, 4, 16);
    fx_array *y = fx_convolve(x, w);
    /* a copy makes the input channels last; the result of the plan is column-major again */
    expect(fx_exp(y), "  1  copy(x0′) → Float32 8×8×4×2 channels last\n"
                      "  2  conv forward(1′, x1) → Float32 6×6×16×2 channels last, 0.0829 MFLOP\n"
                      "  3  exp(2) → Float32 6×6×16×2 channels last\n"
                      "  4  copy(3′) → Float32 6×6×16×2\n");
    /* a sum over positions and images leaves one axis, which has one order, so there is no copy */
    expect(fx_sum(fx_exp(fx_convolve(x, w)), .dims = FX_AXES(0, 1, 3)),
           "  1  copy(x0′) → Float32 8×8×4×2 channels last\n"
           "  2  conv forward(1′, x1) → Float32 6×6×16×2 channels last, 0.0829 MFLOP\n"
           "  3  reduce sum of exp(2) → Float32 1×1×16×1\n");
}

static void operands_of_one_step_lie_alike(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = image(8, 8, 4, 2), *w = image(3, 3, 4, 16), *d = image(6, 6, 16, 2);
    fx_array *y = fx_convolve(x, w);
    expect(fx_mul(y, d),
           "  1  copy(x0′) → Float32 8×8×4×2 channels last\n"
           "  2  conv forward(1′, x1) → Float32 6×6×16×2 channels last, 0.0829 MFLOP\n"
           "  3  copy(x2′) → Float32 6×6×16×2 channels last\n"
           "  4  mul(2, 3) → Float32 6×6×16×2 channels last\n"
           "  5  copy(4′) → Float32 6×6×16×2\n");
    /* most of them are dense: the step is */
    fx_array *e = image(6, 6, 16, 2);
    expect(fx_where(fx_gt(d, e), d, fx_convolve(x, w)),
           "  1  copy(x2′) → Float32 8×8×4×2 channels last\n"
           "  2  conv forward(1′, x3) → Float32 6×6×16×2 channels last, 0.0829 MFLOP\n"
           "  3  copy(2′) → Float32 6×6×16×2\n"
           "  4  lt select(x0, x1, 3) → Float32 6×6×16×2\n");
}

/* A convolution of one tap is a matrix product in both orders, so no copy is made for it. */
static void one_tap_follows(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = image(8, 8, 4, 2), *w = image(3, 3, 4, 16), *v = image(1, 1, 16, 32),
             *u = image(1, 1, 4, 16);
    expect(fx_convolve(x, u), "  1  conv forward(x0, x1) → Float32 8×8×16×2, 0.0164 MFLOP\n");
    expect(fx_convolve(fx_convolve(x, w), v),
           "  1  copy(x0′) → Float32 8×8×4×2 channels last\n"
           "  2  conv forward(1′, x1) → Float32 6×6×16×2 channels last, 0.0829 MFLOP\n"
           "  3  conv forward(2′, x2) → Float32 6×6×32×2 channels last, 0.0737 MFLOP\n"
           "  4  copy(3′) → Float32 6×6×32×2\n");
    /* Padding adds windows that read no element, so it is not a product. */
    const char *text = plan_of(fx_convolve(x, u, .pad = FX_DIMS(1, 1)));
    assert_int_equal(count(text, "channels last", ""), 2);
}

/* Small convolutions stay dense, and so do all values if no step prefers channels last. */
static void nothing_changes_by_default(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = image(8, 8, 4, 2), *w = image(3, 3, 4, 8), *p = fx_permute(x, 2, 0, 1, 3);
    expect(fx_tanh(fx_convolve(x, w)),
           "  1  conv forward then tanh(x0, x1) → Float32 6×6×8×2, 0.0415 MFLOP\n");
    expect(fx_exp(p), "  1  exp(x0′) → Float32 4×8×8×2\n");
}

/* A row step reads rows of memory: layer normalisation over positions gets a dense copy. */
static void row_steps_are_dense(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = image(8, 8, 4, 2), *w = image(3, 3, 4, 16);
    fx_array *y = fx_softmax(fx_convolve(x, w), .dims = FX_AXES(0, 1));
    const char *text = plan_of(y);
    assert_int_equal(count(text, "copy(", ""), 2);
    assert_int_equal(count(text, "copy(2′) → Float32 6×6×16×2", ""), 1);
    assert_int_equal(count(text, "copy(2′) → Float32 6×6×16×2 channels last", ""), 0);
}

/* Loss and gradients of a model. */
static char *training_plan(void *model, fx_array *x)
{
    fx_eval(model);
    fx_array *loss = fx_sum(fx_call(model, x));
    return plan_of(fx_tuple(loss, fx_gradient(loss, model)));
}

/* The second convolution has 16 output channels, the first has 6. */
static void small_lenet(void **state)
{
    (void)state;
    FX_STEP;
    void *model = fx_chain(fx_conv(FX_DIMS(5, 5), 1, 6, FX_RELU), fx_maxpool(FX_DIMS(2, 2)),
                           fx_conv(FX_DIMS(5, 5), 6, 16, FX_RELU), fx_maxpool(FX_DIMS(2, 2)),
                           FX_FLATTEN, fx_dense(256, 10));
    const char *text = training_plan(model, image(28, 28, 1, 4));
    assert_string_equal(
        strchr(text, '\n') + 1,
        "  1  conv forward then add relu(x1, x2, x3′) → Float32 24×24×6×4, 0.691 MFLOP\n"
        "  2  pool max(1) → Float32 12×12×6×4\n"
        "  3  copy(2′) → Float32 12×12×6×4 channels last\n"
        "  4  conv forward then add relu(3′, x4, x5′) → Float32 8×8×16×4 channels last, 1.23 "
        "MFLOP\n"
        "  5  pool max(4′) → Float32 4×4×16×4 channels last\n"
        "  6  copy(5′) → Float32 4×4×16×4\n"
        "  7  matmul Bᵀ(c2, 6) → Float32 10×256, 0.0205 MFLOP\n"
        "  8  matmul(x0, 6) → Float32 10×4, 0.0205 MFLOP\n"
        "  9  reduce sum of add(8, x6′) → Float32 1×1\n"
        " 10  matmul Aᵀ(x0, c2) → Float32 256×4, 0.0205 MFLOP\n"
        " 11  copy(10′) → Float32 4×4×16×4 channels last\n"
        " 12  pool max gradient(11′, 4′) → Float32 8×8×16×4 channels last\n"
        " 13  lt select(c1, 4, 12, c3) → Float32 8×8×16×4 channels last\n"
        " 14  conv by weight(3′, 13′) → Float32 5×5×6×16, 1.23 MFLOP\n"
        " 15  reduce sum(13) → Float32 1×1×16×1\n"
        " 16  conv by data(13′, x4) → Float32 12×12×6×4 channels last, 1.23 MFLOP\n"
        " 17  copy(16′) → Float32 12×12×6×4\n"
        " 18  pool max gradient(17, 1) → Float32 24×24×6×4\n"
        " 19  lt select(c0, 1, 18, c4) → Float32 24×24×6×4\n"
        " 20  reduce sum(19) → Float32 1×1×6×1\n"
        " 21  conv by weight(x1, 19) → Float32 5×5×1×6, 0.691 MFLOP\n"
        " 22  reduce sum(c2) → Float32 10×1\n");
}

/* Images come in, activations leave before the dense layer, and their gradient comes back. */
static void vgg_has_three_copies(void **state)
{
    (void)state;
    FX_STEP;
    void *model = fx_chain(vgg_block(3, 32), vgg_block(32, 64), FX_FLATTEN, fx_dense(256, 10));
    const char *text = training_plan(model, image(8, 8, 3, 4));
    assert_int_equal(count(text, "copy(", ""), 3);
    assert_int_equal(count(text, "copy(", "channels last"), 2);
    assert_int_equal(count(text, "conv forward", "channels last"), 4);
    assert_int_equal(count(text, "conv by data", "channels last"), 3);
    assert_int_equal(count(text, "conv by weight", ""), 4);
    assert_int_equal(count(text, "pool max", "channels last"), 4);
    /* every activation and gradient of the convolutional part, but for the one copy */
    const char *const sizes[] = {"→ Float32 8×8×32×4", "→ Float32 4×4×32×4", "→ Float32 4×4×64×4",
                                 "→ Float32 2×2×64×4"};
    int all = 0, last = 0;
    for (int i = 0; i < 4; i++) {
        all += count(text, sizes[i], "");
        last += count(text, sizes[i], "channels last");
    }
    print_message("%d of %d values lie channels last\n", last, all);
    assert_true(all >= 24);
    assert_int_equal(last, all - 1);
}

int main(void)
{
    unsetenv("FX_EAGER");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_and_what_follows_it),
        cmocka_unit_test(operands_of_one_step_lie_alike),
        cmocka_unit_test(one_tap_follows),
        cmocka_unit_test(nothing_changes_by_default),
        cmocka_unit_test(row_steps_are_dense),
        cmocka_unit_test(small_lenet),
        cmocka_unit_test(vgg_has_three_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
