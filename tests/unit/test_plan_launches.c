/* test_plan_launches.c: the steps, the launches and the memory of a training step with Adam on a
 * device, of four networks. A step is a launch, or a few if its kernel has stages. Steps are those
 * of plans for a stand-in device, which are not run. Launches and memory are counted on an OpenCL
 * driver that computes nothing (fake_opencl.c), so the test runs everywhere. It also tests that
 * small reductions become one step, and that long rows become one. ctest: devices */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evaluate.h" /* before gpt_model.h, whose type `sizes` would hide names in it */

#include "../../examples/gpt_model.h"
#include "networks.h"
#include "plan_steps.h"
#include "same_bits.h"
#include "standin.h"

/* The devices of the OpenCL driver: GPU_KIND has many units, so its products and long rows are
 * divided between groups and then joined, in launches of their own. */
enum { GPU_KIND, CPU_KIND, KINDS };
static fx_device *device;

static int setup(void **state)
{
    (void)state;
    setenv("FX_PLUGIN_PATH", STANDIN_FOLDER ":" CFLUX_BUILD_DIR, 1);
    setenv("FX_OPENCL_LIBRARY", CFLUX_BUILD_DIR "/tests/plugins/libfake-opencl.so", 1);
    setenv("FX_OPENCL_DEVICES", "", 1);
    setenv("FAKE_OPENCL", "large", 1);
    setenv("FX_CACHE", "off", 1);
    setenv("FX_ONEDNN", "0", 1);
    unsetenv("FX_EAGER");
    assert_int_equal(fx_use("CUDA"), FX_OK);
    device = fx_device_get("CUDA", 0);
    assert_int_equal(fx_use("OpenCL"), FX_OK);
    assert_int_equal(fx_device_count("OpenCL"), KINDS);
    return 0;
}

static fx_array *leaf(int64_t m, int64_t n)
{
    fx_array *x = fx_to(device, fx_rand(m, n));
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* ---- networks -------------------------------------------------------------------------------- */

static fx_chain_layer *transformer(void)
{
    const sizes s = {.width = 256, .heads = 4};
    return (fx_chain_layer *)block(&s);
}

/* `steps` include the one of Adam, which updates all parameters. */
static const struct network {
    const char *name;
    fx_chain_layer *(*make)(void);
    int64_t x[4];
    int ndims;
    bool classes; /* the loss is a cross-entropy; else mean squared errors */
    int steps, launches[KINDS];
    double peak; /* MiB of the device so far, with parameters, their state and the batch */
} networks[] = {
    {"784-256-10, B = 64", digit_net, {784, 64}, 2, true, 10, {11, 10}, 4},
    {"LeNet, B = 128", lenet, {28, 28, 1, 128}, 4, true, 26, {32, 32}, 6},
    {"transformer block, B = 8", transformer, {256, 128, 8}, 3, false, 38, {48, 40}, 36},
    {"VGG with BatchNorm, B = 64", vgg, {32, 32, 3, 64}, 4, true, 46, {89, 79}, 77},
};

/* A network in training mode, and a batch. */
typedef struct training {
    void *model;
    fx_array *x, *y;
} training;

static training on(fx_device *d, const struct network *n)
{
    enum { CLASSES = 10 };
    const training t = {
        .model = fx_to(d, n->make()),
        .x = fx_to(d, fxi_rand(FX_DTYPE_F32, n->ndims, n->x)),
        .y = fx_to(d, fx_zeros(CLASSES, n->x[n->ndims - 1])),
    };
    assert_int_equal(fx_trainmode(t.model), FX_OK);
    assert_int_equal(fx_eval(fx_tuple(t.model, t.x, t.y)), FX_OK);
    return t;
}

static fx_array *loss_on(const struct network *n, const training *t)
{
    fx_array *out = fx_call(t->model, t->x);
    return n->classes ? fx_logitcrossentropy(out, t->y) : fx_mse(out, t->x);
}

static int64_t count(const struct network *n)
{
    const training t = on(device, n);
    fx_array *loss = loss_on(n, &t);
    static char text[1 << 16];
    fx_plan_text(fx_tuple(loss, fx_gradient(loss, t.model)), text, sizeof text);
    const char *in = strstr(text, " nodes in ");
    if (!in)
        fail_msg("no counts in\n%.200s", text);
    if (getenv("SHOW_PLANS"))
        printf("%s\n%s\n", n->name, text);
    return strtol(in + strlen(" nodes in "), NULL, 10) + 1;
}

static void training_is_few_steps(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
        FX_SCOPE;
        const int64_t steps = count(&networks[k]);
        printf("%s: %d steps\n", networks[k].name, (int)steps);
        if (steps > networks[k].steps)
            fail_msg("%s: %d steps, more than %d", networks[k].name, (int)steps, networks[k].steps);
    }
}

/* Trains on `d` and counts the launches of a training step. The first training steps also compute
 * the state of the optimiser. */
static int train(fx_device *d, const struct network *n)
{
    FX_SCOPE;
    const uint64_t *launches = d->backend->proc("launches");
    const training t = on(d, n);
    void *opt = fx_setup(fx_adam(), t.model);
    uint64_t before = 0;
    for (int i = 0; i < 3; i++) {
        FX_SCOPE;
        before = *launches;
        assert_int_equal(fx_update(opt, t.model, fx_gradient(loss_on(n, &t), t.model)), FX_OK);
        assert_int_equal(fx_synchronize(d), FX_OK);
    }
    return (int)(*launches - before);
}

static void launches_and_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        fx_device *d = fx_device_get("OpenCL", kind);
        for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
            const struct network *n = &networks[k];
            const int launches = train(d, n);
            const double peak = (double)fx_memory_status(d).peak / (1 << 20);
            printf("%s: %d launches, %.1f MiB\n", n->name, launches, peak);
            if (launches > n->launches[kind] || peak > n->peak)
                fail_msg("%s: %d launches and %.1f MiB, more than %d and %.1f", n->name, launches,
                         peak, n->launches[kind], n->peak);
            assert_true(launches >= n->steps);
        }
    }
}

/* ---- long rows ------------------------------------------------------------------------------- */

/* A device divides a long row between groups. On the CPU it would leave the cache between passes.
 */
static void long_rows_are_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(20000, 3), *larger = leaf(1025, 1024);
    const char *softmax = "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 20000×3\n";
    expect(fx_softmax(x), softmax);
    expect(fx_mean(fx_square(x)), "  1  row powi sum | (div cast)(x0, c0) → Float32 1×1\n");
    /* 1 MiB and more of each of 16 channels: too much for a cache of the CPU */
    fx_array *images = fx_to(device, fx_rand(64, 64, 16, 65));
    assert_int_equal(fx_eval(images), FX_OK);
    expect(fx_softmax(images, .dims = FX_AXES(0, 1, 3)),
           "  1  row max | sub exp sum | (div) mul(x0, c0) → Float32 64×64×16×65\n");
    /* more than 4 MiB */
    expect(fx_mean(fx_square(larger)), "  1  reduce sum of powi(x0) → Float64 1×1\n"
                                       "  2  div cast(1, c0) → Float32 1×1\n");
    fx_array *here = fx_cpu(x);
    assert_int_equal(fx_eval(here), FX_OK);
    assert_null(strstr(plan_of(fx_softmax(here)), "row"));
    fx_array *found = fx_cpu(fx_softmax(x)), *expected = fx_softmax(here);
    assert_true(fx_item(fx_maximum(fx_abs(fx_sub(fx_div(found, expected), 1)))) < 1e-5);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static void small_reductions_are_one_step(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(4, 5), *b = leaf(3, 7);
    expect(fx_tuple(fx_sum(a, .dims = FX_AXES(1)), fx_sum(b, .dims = FX_AXES(0)), fx_sum(b)),
           "  1  foreach of 3: reduce sum(x0; x1; x1) → Float32 4, 7, 1\n");
    /* Reductions with different programs, folds or types are not merged. */
    expect(fx_tuple(fx_sum(a, .dims = FX_AXES(1)), fx_maximum(b, .dims = FX_AXES(1)),
                    fx_sum(fx_mul(b, b), .dims = FX_AXES(1)),
                    fx_sum(fx_cast(a, FX_DTYPE_F64), .dims = FX_AXES(1))),
           "  1  reduce sum(x0) → Float32 4×1\n"
           "  2  reduce max(x1) → Float32 3×1\n"
           "  3  reduce sum of mul(x1) → Float32 3×1\n"
           "  4  reduce sum of cast(x0) → Float64 4×1\n");
    /* On the CPU, reductions are not merged: a step costs less than keeping the operands for
     * longer. */
    fx_array *c = fx_cpu(a), *d = fx_cpu(b);
    assert_int_equal(fx_eval(fx_tuple(c, d)), FX_OK);
    expect(fx_tuple(fx_sum(c, .dims = FX_AXES(1)), fx_sum(d, .dims = FX_AXES(0))),
           "  1  reduce sum(x0) → Float32 4×1\n"
           "  2  reduce sum(x1) → Float32 1×7\n");
}

/* The largest magnitudes of all arrays are one launch, and so are the sums of their squares. */
static void clipping_by_the_global_norm(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_to(device, fx_chain(fx_dense(4, 3), fx_dense(3, 2)));
    assert_int_equal(fx_eval(m), FX_OK);
    expect(fx_clip_global_norm(m, 1.0),
           "  1  foreach of 4: reduce max of neg max add(x0, c3; x1, c4; x2, c5; x3, c6) → "
           "Float32 1, 1, 1, 1\n"
           "  2  max max max max lt neg max add lt min lt lt min max "
           "select(c2, 1, 1, 1, 1, c1, c7, c8, c9, c10, c11) → Float32\n"
           "  3  foreach of 4: reduce sum of div powi(x0, 2; x1, 2; x2, 2; x3, 2) → "
           "Float32 1, 1, 1, 1\n"
           "  4  add add add add sqrt mul div min(c12, 3, 3, 3, 3, 2, c0, c13) → Float32\n"
           "  5  foreach of 4: mul(x0, 4; x1, 4; x2, 4; x3, 4) → Float32 12, 3, 6, 2\n");
}

/* A reduction waits for later ones only until its result is read. */
static void a_reduction_comes_before_its_reader(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *a = leaf(4, 5), *w = leaf(6, 4);
    fx_array *p = fx_matmul(w, fx_sum(a, .dims = FX_AXES(1)));
    expect(fx_sum(fx_matmul(p, fx_transpose(p)), .dims = FX_AXES(1)),
           "  1  reduce sum(x1) → Float32 4×1\n"
           "  2  matmul(x0, 1) → Float32 6×1, 4.8e-05 MFLOP\n"
           "  3  matmul(2, 2) → Float32 6×6, 7.2e-05 MFLOP\n"
           "  4  reduce sum(3) → Float32 6×1\n");
}

/* An update of w overwrites the operand of a reduction, whose result is read only at the end of the
 * plan. The reduction comes before the update. It is merged with another one there, but not with
 * one of the new value. */
static void a_reduction_comes_before_an_update(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = leaf(4, 4), *other = leaf(3, 5), *v = leaf(4, 5), *next = fx_mul(w, 2);
    fx_array *u = leaf(4, 1), *t = leaf(3, 1), *handles[] = {u, t, w};
    float old[16], old_u[4];
    assert_int_equal(fx_read_into(w, old, sizeof old), FX_OK);
    assert_int_equal(fx_read_into(u, old_u, sizeof old_u), FX_OK);
    fx_array *values[] = {fx_add(u, fx_sum(w, .dims = FX_AXES(1))),
                          fx_add(t, fx_sum(other, .dims = FX_AXES(1))), next};
    fx_array *later = fx_want(fx_sum(fx_matmul(next, v), .dims = FX_AXES(1)));
    const uint64_t donated = fx_stats().donations;
    assert_int_equal(fxi_commit(3, handles, values, NULL, false), FX_OK);
    assert_int_equal(fx_stats().donations - donated, 3);
    fx_array *w0 = fx_from(FX_DTYPE_F32, old, 4, 4), *u0 = fx_from(FX_DTYPE_F32, old_u, 4, 1);
    same_bits(w, fx_mul(w0, 2));
    same_bits(u, fx_add(u0, fx_sum(w0, .dims = FX_AXES(1))));
    same_bits(later, fx_sum(fx_matmul(w, v), .dims = FX_AXES(1)));
}

/* 16-bit elements are converted in work space on the device that the stand-ins use. */
static void results_are_those_of_single_steps(void **state)
{
    (void)state;
    FX_SCOPE;
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_BF16, FX_DTYPE_I32};
    for (int t = 0; t < 4; t++) {
        fx_array *there[3], *here[3];
        for (int k = 0; k < 3; k++) {
            fx_array *x = fx_cast(fx_mul(fx_rand(40, 30 + k), 9), types[t]);
            assert_int_equal(fx_eval(x), FX_OK);
            here[k] = fx_sum(x, .dims = FX_AXES(k % 2));
            there[k] = fx_sum(fx_to(device, x), .dims = FX_AXES(k % 2));
        }
        assert_int_equal(fx_eval(fx_tuple(there[0], there[1], there[2])), FX_OK);
        for (int k = 0; k < 3; k++)
            same_bits(fx_cpu(there[k]), here[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_is_few_steps),
        cmocka_unit_test(launches_and_memory),
        cmocka_unit_test(long_rows_are_one_step),
        cmocka_unit_test(small_reductions_are_one_step),
        cmocka_unit_test(clipping_by_the_global_norm),
        cmocka_unit_test(a_reduction_comes_before_its_reader),
        cmocka_unit_test(a_reduction_comes_before_an_update),
        cmocka_unit_test(results_are_those_of_single_steps),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
