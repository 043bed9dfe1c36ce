/* test_plan_again.c: planner rule 8: on a device with memory of its own, steps compute cheap values
 * again from what they read anyway, and an equal value is stored once. Plans as text, and the
 * results beside those of the CPU, where every value is stored. ctest: devices
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_steps.h"
#include "planning.h"
#include "same_bits.h"
#include "standin.h"

enum { W = 8, C = 16, N = 4 };
static fx_device *device;

static int setup(void **state)
{
    (void)state;
    setenv("FX_PLUGIN_PATH", STANDIN_FOLDER, 1);
    setenv("FX_ONEDNN", "0", 1);
    unsetenv("FX_EAGER");
    assert_int_equal(fx_use("CUDA"), FX_OK);
    device = fx_device_get("CUDA", 0);
    return 0;
}

static fx_array *images(fx_dtype type)
{
    fx_array *x = fx_cast(fx_sub(fx_rand(W, W, C, N), 0.5), type);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* A batch norm of 16-bit images between two convolutions, and the gradient of the images. */
static void *normed(fx_device *d, fx_array *x, fx_array *w, void *norm)
{
    fx_array *const in[] = {fx_to(d, x), fx_to(d, w)};
    fx_array *y = fx_call(fx_to(d, norm), fx_convolve(in[0], in[1])), *out[3];
    out[0] = fx_convolve(fx_cast(y, fx_eltype(x)), in[1]);
    assert_int_equal(
        fx_gradient_of(fx_sum(fx_cast(fx_mul(out[0], out[0]), FX_DTYPE_F32)), in, 2, out + 1),
        FX_OK);
    return fxi_tuple(3, (void *const *)out);
}

/* The norm computes in Float32. Neither its converted input nor its output is stored: the backward
 * step reads the 16-bit input. */
static void norms_of_16_bits_store_16_bits(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(1);
    void *norm = fx_batchnorm(C, FX_RELU);
    assert_int_equal(fx_trainmode(norm), FX_OK);
    fx_array *x = images(FX_DTYPE_BF16), *w = fx_cast(fx_rand(1, 1, C, C), FX_DTYPE_BF16);
    assert_int_equal(fx_eval(w), FX_OK);
    void *there = normed(device, x, w, norm), *here = normed(fx_cpu_device(), x, w, norm);
    assert_int_equal(times(plan_of(there), "Float32 8×8×16×4"), 0);
    assert_true(times(plan_of(here), "Float32 8×8×16×4") > 0);
    assert_int_equal(fx_eval(fx_tuple(there, here)), FX_OK);
    for (int k = 0; k < 3; k++)
        same_bits(fx_cpu(fx_child(there, k)), fx_child(here, k));
}

/* The gradients of x through f between two products, on the device and on the CPU. Returns the
 * device's plan, and compares the bits. */
static const char *gradients(void *f, fx_dtype type)
{
    static char plan[8192];
    fx_array *x = fx_cast(fx_sub(fx_rand(20, 40), 0.5), type), *g[2],
             *w[] = {fx_cast(fx_rand(30, 20), type), fx_cast(fx_rand(10, 30), type)};
    assert_int_equal(fx_eval(fx_tuple(x, w[0], w[1], f)), FX_OK);
    for (int k = 0; k < 2; k++) {
        fx_device *d = k ? fx_cpu_device() : device;
        fx_array *in = fx_to(d, x);
        fx_array *y = fx_call(fx_to(d, f), fx_matmul(fx_to(d, w[0]), in)),
                 *out = fx_matmul(fx_to(d, w[1]), y);
        assert_int_equal(
            fx_gradient_of(fx_sum(fx_cast(fx_square(out), FX_DTYPE_F32)), &in, 1, &g[k]), FX_OK);
        if (!k)
            snprintf(plan, sizeof plan, "%s", plan_of(g[k]));
    }
    same_bits(fx_cpu(g[0]), g[1]);
    return plan;
}

/* The gradient of a GELU needs a sigmoid, and two values that lead to it, which follow from the
 * argument. So both of its steps store one array only. */
static void activations_are_computed_again(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(2);
    const char *plan = gradients(FX_GELU, FX_DTYPE_F32);
    assert_int_equal(times(plan, "sigmoid"), 2);
    assert_int_equal(times(plan, "more"), 0);
    /* two products with values and gradients, the GELU, its gradient */
    assert_int_equal(times(plan, "Float32 30×40"), 4);
    plan = gradients(FX_TANH, FX_DTYPE_F32);
    /* That of tanh needs its result only, which the second product reads anyway. */
    assert_int_equal(times(plan, "tanh"), 1);
    assert_int_equal(times(plan, "more"), 0);
}

/* The normalised values of a layer norm are a quotient of each element and a value of the row. */
static void layer_norms_store_16_bits(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(3);
    const char *plan = gradients(fx_bf16(fx_layernorm(FX_DIMS(30))), FX_DTYPE_BF16);
    assert_int_equal(times(plan, "Float32 30×40"), 0);
    assert_int_equal(times(plan, "BFloat16 30×40"), 4);
}

/* Two layers convert one activation: the second conversion is the first one. */
static void equal_values_are_stored_once(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_rand(32, 32), *w = fx_cast(fx_rand(32, 32), FX_DTYPE_BF16), *y[2];
    assert_int_equal(fx_eval(fx_tuple(x, w)), FX_OK);
    for (int k = 0; k < 2; k++) {
        fx_device *d = k ? fx_cpu_device() : device;
        fx_array *v = fx_to(d, w), *s = fx_softmax(fx_to(d, x), .dims = FX_AXES(0));
        y[k] = fx_sub(fx_matmul(v, fx_cast(s, FX_DTYPE_BF16)),
                      fx_matmul(fx_cast(s, FX_DTYPE_BF16), v));
    }
    const char *plan = plan_of(y[0]);
    const char *row = strstr(plan, "row");
    assert_non_null(row);
    assert_int_equal(times(row, "BFloat16 32×32") - times(strchr(row, '\n'), "BFloat16 32×32"), 1);
    same_bits(fx_cpu(y[0]), y[1]);
}

/* A step that computes a cheap value again has equal instructions then. Both are results. */
static void equal_results_are_both_stored(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_rand(32, 32), *w = fx_rand(32, 32), *y[2][3];
    assert_int_equal(fx_eval(fx_tuple(x, w)), FX_OK);
    for (int k = 0; k < 2; k++) {
        fx_device *d = k ? fx_cpu_device() : device;
        fx_array *in = fx_to(d, x), *square = fx_square(in);
        fx_array *p = fx_matmul(fx_to(d, w), fx_exp(square));
        y[k][0] = fx_mul(square, p);
        y[k][1] = fx_mul(fx_square(in), p);
        y[k][2] = fx_exp(y[k][1]);
        void *all = fxi_tuple(3, (void *const *)y[k]);
        if (k == 0)
            expect(all, "  1  powi exp(x0) → Float32 32×32\n"
                        "  2  matmul(x1, 1) → Float32 32×32, 0.0655 MFLOP\n"
                        "  3  powi mul mul exp(2, x0) → Float32 32×32 and 2 more\n");
        assert_int_equal(fx_eval(all), FX_OK);
    }
    for (int i = 0; i < 3; i++)
        same_bits(fx_cpu(y[0][i]), y[1][i]);
}

/* The plan of the first step with this class, and that step. */
static const fx_step *step_of(const fxi_plan *p, fx_class cls)
{
    for (int32_t i = 0; i < p->nsteps; i++)
        if (p->steps[i].cls == cls)
            return &p->steps[i];
    fail_msg("the plan has no such step");
    return NULL;
}

/* A row step computes its first operand again, and reads another one instead. The classes that it
 * compares labels with keep their mark, although they have another number. */
static void counted_operands_keep_their_mark(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { CLASSES = 10, B = 64 };
    fx_array *x = fx_to(device, fx_rand(CLASSES, B)), *w = fx_to(device, fx_rand(CLASSES, CLASSES));
    fx_array *labels = fx_to(device, fx_cast(fx_zeros(B), FX_DTYPE_I64));
    assert_int_equal(fx_eval(fx_tuple(x, w, labels)), FX_OK);
    fx_array *square = fx_square(x), *p = fx_matmul(w, fx_exp(square));
    fx_array *y = fx_logitcrossentropy(fx_mul(square, p), fx_onehot(labels, CLASSES));
    fxi_graph g = {0};
    fxi_plan *plan;
    const fxi_root root = {y->node, NULL};
    assert_int_equal(fxi_graph_of(fxi_here(), &g, 1, &root), FX_OK);
    assert_int_equal(fxi_plan_new(&g, &plan), FX_OK);
    assert_int_equal(fx_step_outputs(step_of(plan, FX_CLASS_ELEMENTWISE)), 1);
    const fx_step *row = step_of(plan, FX_CLASS_ROW);
    int marks = 0;
    for (int k = 0; k < row->nin; k++) {
        const fx_tensor *t = &row->in[k];
        const bool classes = t->dtype == FX_DTYPE_I64 && t->ndim == 2 && t->stride[0] == 1;
        assert_int_equal(row->as.row.counted >> k & 1, classes);
        marks += classes;
    }
    assert_int_equal(marks, 1);
    fxi_plan_release(plan);
    fxi_graph_free(&g);
}

/* A function that costs more than a load is stored for a later step. */
static void expensive_values_are_stored(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_to(device, fx_rand(32, 32)), *e = fx_exp(x);
    assert_int_equal(fx_eval(x), FX_OK);
    expect(fx_mul(fx_matmul(e, e), e), "  1  exp(x0) → Float32 32×32\n"
                                       "  2  matmul(1, 1) → Float32 32×32, 0.0655 MFLOP\n"
                                       "  3  mul(2, 1) → Float32 32×32\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_of_16_bits_store_16_bits),
        cmocka_unit_test(activations_are_computed_again),
        cmocka_unit_test(layer_norms_store_16_bits),
        cmocka_unit_test(equal_values_are_stored_once),
        cmocka_unit_test(equal_results_are_both_stored),
        cmocka_unit_test(counted_operands_keep_their_mark),
        cmocka_unit_test(expensive_values_are_stored),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
