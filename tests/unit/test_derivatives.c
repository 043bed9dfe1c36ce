/* test_derivatives.c: Jacobians, Hessians and their diagonals against derivatives worked out by
 * hand; training steps with auxiliary outputs against the update rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "refused.h"

static void about(fx_array *x, int64_t n, const double *want)
{
    double got[64];
    if (fx_length(x) != n || fx_read_as(x, FX_DTYPE_F64, got, n) != FX_OK)
        fail_msg("%lld numbers: %s", (long long)fx_length(x), fx_error_take().message);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * (1 + fabs(want[i]))))
            fail_msg("number %lld is %.17g, not %.17g", (long long)i, got[i], want[i]);
}
#define ABOUT(x, ...)                                                                              \
    about((x), (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)),                  \
          (const double[]){__VA_ARGS__})

static fx_array *vector(double a, double b, double c)
{
    return fx_from(FX_DTYPE_F64, ((const double[]){a, b, c}), 3);
}

/* y = (x0·x1, x2²): J = [x1 x0 0; 0 0 2·x2]. */
static fx_array *two_results(fx_array *x)
{
    fx_array *a = fx_slice(x, 0, 0, 1), *b = fx_slice(x, 0, 1, 2), *c = fx_slice(x, 0, 2, 3);
    return fx_concat(0, fx_mul(a, b), fx_square(c));
}

static void jacobians(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = vector(2, 3, 5), *y = two_results(x);
    fx_array *j = fx_jacobian(y, x);
    assert_int_equal(fx_size(j, 0), 2);
    assert_int_equal(fx_size(j, 1), 3);
    ABOUT(fx_vec(j), 3, 0, 2, 0, 0, 10); /* by columns */
    y = two_results(x);
    j = fx_withjacobian(y, x);
    assert_true(fx_is_evaluated(y) && fx_is_evaluated(j));
    ABOUT(y, 6, 25);
    ABOUT(fx_vec(j), 3, 0, 2, 0, 0, 10);
    /* Of matrices: elements in column-major order. y = 2·transpose(x). */
    fx_array *m = fx_reshape(fx_cast(fx_range(0, 1, 4), FX_DTYPE_F64), 2, 2);
    j = fx_jacobian(fx_mul(fx_transpose(m), 2), m);
    ABOUT(fx_vec(j), 2, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0, 2);
    assert_int_equal(fx_size(fx_jacobian(fx_slice(x, 0, 0, 0), x), 0), 0);
    assert_int_equal(fx_eltype(fx_jacobian(fx_ones(2), fx_ones(3))), FX_DTYPE_F32);
    fx_array *whole = fx_range_dtype(FX_DTYPE_I64, 0, 1, 3);
    refused(fx_jacobian(fx_add(whole, 0.5), whole), FX_STATUS_DTYPE, "Int64");
    fx_array *none = fx_slice(x, 0, 0, 0);
    j = fx_jacobian(none, x);
    assert_true(fx_ndims(j) == 2 && fx_size(j, 0) == 0 && fx_size(j, 1) == fx_length(x));
    refused(fx_jacobian(none, whole), FX_STATUS_DTYPE, "the argument is Int64");
    refused(fx_jacobian(fx_slice(whole, 0, 0, 0), x), FX_STATUS_DTYPE, "the result is Int64");
    refused(fx_diaghessian(fx_sum(x), fx_slice(whole, 0, 0, 0)), FX_STATUS_DTYPE, "Int64");
    refused(fx_jacobian(NULL, x), FX_STATUS_ARGUMENT, "the result is NULL");
    refused(fx_hessian(fx_sum(x), NULL), FX_STATUS_ARGUMENT, "the argument is NULL");
}

/* f = x0²·x1 + e^x2: H = [2·x1 2·x0 0; 2·x0 0 0; 0 0 e^x2]. */
static fx_array *loss(fx_array *x)
{
    fx_array *a = fx_slice(x, 0, 0, 1), *b = fx_slice(x, 0, 1, 2), *c = fx_slice(x, 0, 2, 3);
    return fx_sum(fx_add(fx_mul(fx_square(a), b), fx_exp(c)));
}

static void hessians(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = vector(2, 3, 1);
    const double e = exp(1);
    ABOUT(fx_vec(fx_hessian(loss(x), x)), 6, 4, 0, 4, 0, 0, 0, 0, e);
    ABOUT(fx_diaghessian(loss(x), x), 6, 0, e);
    ABOUT(fx_vec(fx_hessian(fx_sum(x), x)), 0, 0, 0, 0, 0, 0, 0, 0, 0);
    fx_array *m = fx_reshape(fx_cast(fx_range(1, 1, 4), FX_DTYPE_F64), 2, 2);
    fx_array *d = fx_diaghessian(fx_sum(fx_pow(m, 3)), m);
    assert_int_equal(fx_ndims(d), 2);
    ABOUT(fx_vec(d), 6, 12, 18, 24);
    refused(fx_hessian(x, x), FX_STATUS_SHAPE, "hessian: the loss must have one element, got 3");
    refused(fx_diaghessian(x, x), FX_STATUS_SHAPE, "diaghessian: the loss must have one element");
}

/* The Hessian of a model's loss with respect to all parameters: ½·Σ(W·x + b)². */
static void of_a_model(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = fx_f64(fx_dense(2, 1));
    fx_array *flat = fx_destructure(m), *x = fx_from(FX_DTYPE_F64, ((const double[]){3, -2}), 2, 1);
    fx_array *y = fx_call(fx_restructure(m, flat), x);
    fx_array *half = fx_mul(fx_sum(fx_square(y)), 0.5);
    ABOUT(fx_vec(fx_hessian(half, flat)), 9, -6, 3, -6, 4, -2, 3, -2, 1);
}

/* ---- training steps -------------------------------------------------------------------------- */

/* (Σw·x, 10·w, (w + 1)): the gradient with respect to w is x. */
static void *with_auxiliary(void *model, const fx_batch *batch, void *user)
{
    fx_array *w = model;
    ++*(int *)user;
    assert_true(fx_training());
    return fx_tuple(fx_sum(fx_mul(w, batch->x)), fx_mul(w, 10), fx_tuple(fx_add(w, 1)));
}

static void *scalar_loss(void *model, const fx_batch *batch, void *user)
{
    (void)batch;
    return user ? user : fx_sum(fx_log((fx_array *)model));
}

static void *infinite_gradient(void *model, const fx_batch *batch, void *user)
{
    (void)batch, (void)user;
    return fx_sum(fx_sqrt((fx_array *)model)); /* 0, with the gradient Inf */
}

/* As in fx_train: a MixedPrecision skips the update, ClipNorm is an error of its own. */
static void steps_with_gradients_that_are_not_finite(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = fx_zeros(2);
    void *skips = fx_setup(fx_mixed_precision(fx_adam(), .scale = 2), w);
    ABOUT(fx_trainstep(infinite_gradient, w, NULL, skips, NULL), 0);
    assert_int_equal(fx_error_status(), FX_OK);
    refused(fx_trainstep(infinite_gradient, w, NULL, fx_setup(fx_clip_norm(), w), NULL),
            FX_STATUS_NONFINITE, "ClipNorm: gradient has 2.0-norm Inf");
    ABOUT(w, 0, 0);
    /* An array without elements has nothing that could be infinite. */
    void *m = fx_tuple(fx_ones(2), fx_zeros(0)), *g = fx_tuple(fx_ones(2), fx_zeros(0));
    void *mixed = fx_setup(fx_mixed_precision(fx_descent(1), .scale = 2), m);
    assert_int_equal(fx_update(mixed, m, g), FX_OK);
    ABOUT(fx_child(m, 0), 0.5, 0.5);
}

static void *failed_auxiliary(void *model, const fx_batch *batch, void *user)
{
    (void)batch, (void)user;
    return fx_tuple(fx_sum((fx_array *)model), fx_add((fx_array *)model, fx_ones(7)));
}

/* An auxiliary output that failed fails the step; the model is as it was. */
static void steps_with_failed_outputs(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w = vector(1, 2, 3);
    refused(fx_trainstep(failed_auxiliary, w, NULL, fx_setup(fx_descent(0.5), w), NULL),
            FX_STATUS_SHAPE, "sizes do not broadcast");
    ABOUT(w, 1, 2, 3);
}

static void training_steps(void **state)
{
    (void)state;
    FX_SCOPE;
    int calls = 0;
    fx_array *w = vector(1, 2, 3);
    void *opt = fx_setup(fx_descent(0.5), w);
    const fx_batch batch = {.x = vector(2, 4, 6), .size = 1};
    void *out = fx_trainstep(with_auxiliary, w, &batch, opt, &calls);
    assert_int_equal(calls, 1);
    ABOUT(fx_child(out, 0), 28);
    ABOUT(fx_child(out, 1), 10, 20, 30); /* of the old parameters */
    ABOUT(fx_child(fx_child(out, 2), 0), 2, 3, 4);
    ABOUT(w, 0, 0, 0);
    out = fx_trainstep_withgradient(with_auxiliary, w, &batch, opt, &calls);
    ABOUT(fx_child(fx_child_named(out, "outputs"), 0), 0);
    ABOUT(fx_child_named(out, "gradient"), 2, 4, 6);
    ABOUT(w, -1, -2, -3);
    out = fx_trainstep(scalar_loss, w, NULL, opt, NULL); /* log of negative numbers */
    assert_true(fx_is_error(out));
    assert_int_equal(fx_error_take().status, FX_STATUS_NONFINITE);
    ABOUT(w, -1, -2, -3);
    refused(fx_trainstep(NULL, w, NULL, opt, NULL), FX_STATUS_ARGUMENT, "the function is NULL");
    refused(fx_trainstep(scalar_loss, NULL, NULL, opt, NULL), FX_STATUS_ARGUMENT, "model");
    refused(fx_trainstep(scalar_loss, w, NULL, NULL, NULL), FX_STATUS_ARGUMENT, "state");
    refused(fx_trainstep(scalar_loss, w, NULL, opt, fx_dense(1, 1)), FX_STATUS_ARGUMENT,
            "a tuple that begins with it");
    refused(fx_trainstep(scalar_loss, w, NULL, opt, fx_ones(2)), FX_STATUS_SHAPE, "one element");
    refused(fx_trainstep(scalar_loss, w, NULL, opt, fx_tuple()), FX_STATUS_ARGUMENT,
            "a tuple that begins with it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jacobians),
        cmocka_unit_test(hessians),
        cmocka_unit_test(of_a_model),
        cmocka_unit_test(steps_with_failed_outputs),
        cmocka_unit_test(training_steps),
        cmocka_unit_test(steps_with_gradients_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
