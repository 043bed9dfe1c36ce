/* Tests of src/nn/losses.c: every loss against its formula in double from libm, in all
 * aggregations, its gradient against central differences; extreme logits, label smoothing, one-hot
 * targets, size errors.
 */
#include <cflux.h>

#include "composite_check.h"
#include "option_struct.h"

#include <float.h>

typedef fx_array *(*loss_fn)(const fx_loss_args *a);

enum { CLASSES = 3, OBSERVATIONS = 4, SIZE = CLASSES * OBSERVATIONS };
static const int64_t sizes[] = {CLASSES, OBSERVATIONS};

/* ---- the formulas, on one element; NaN marks those that sum over classes ---------------- */

static double xlogy(double x, double y)
{
    return x == 0 ? 0 : x * log(y);
}
static double log_sigmoid(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}
static const double eps = DBL_EPSILON;

static double f_mse(double p, double y)
{
    return (p - y) * (p - y);
}
static double f_mae(double p, double y)
{
    return fabs(p - y);
}
static double f_msle(double p, double y)
{
    return pow(log((p + eps) / (y + eps)), 2);
}
static double f_huber(double p, double y)
{
    const double e = fabs(p - y), delta = 0.3;
    return e < delta ? e * e / 2 : delta * (e - delta / 2);
}
static double f_crossentropy(double p, double y)
{
    return -xlogy(y, p + eps);
}
static double f_kl(double p, double y)
{
    return xlogy(y, y) - xlogy(y, p + eps);
}
static double f_binary(double p, double y)
{
    return -xlogy(y, p + eps) - xlogy(1 - y, 1 - p + eps);
}
static double f_logit_binary(double p, double y)
{
    return (1 - y) * p - log_sigmoid(p);
}
static double f_poisson(double p, double y)
{
    return p - xlogy(y, p);
}
static double f_hinge(double p, double y)
{
    return fmax(0, 1 - p * y);
}
static double f_squared_hinge(double p, double y)
{
    return pow(fmax(0, 1 - p * y), 2);
}

typedef struct row {
    const char *name;
    loss_fn loss;
    double (*formula)(double p, double y);
    bool per_class; /* summed along the class axis */
    double delta;
} row;
static const row rows[] = {
    {"mse", fxi_mse, f_mse, false, 0},
    {"mae", fxi_mae, f_mae, false, 0},
    {"msle", fxi_msle, f_msle, false, 0},
    {"huber_loss", fxi_huber_loss, f_huber, false, 0.3},
    {"crossentropy", fxi_crossentropy, f_crossentropy, true, 0},
    {"kldivergence", fxi_kldivergence, f_kl, true, 0},
    {"binarycrossentropy", fxi_binarycrossentropy, f_binary, false, 0},
    {"logitbinarycrossentropy", fxi_logitbinarycrossentropy, f_logit_binary, false, 0},
    {"poisson_loss", fxi_poisson_loss, f_poisson, false, 0},
    {"hinge_loss", fxi_hinge_loss, f_hinge, false, 0},
    {"squared_hinge_loss", fxi_squared_hinge_loss, f_squared_hinge, false, 0},
};

/* Predictions in (0, 1), targets in [0, 1] with exact zeros and ones. */
static double pred_at(int i)
{
    return 0.5 + 0.45 * sin(1 + 1.7 * i);
}
static double target_at(int i)
{
    return i % 3 == 0 ? 0 : i % 5 == 4 ? 1 : 0.5 + 0.5 * cos(2.3 * i);
}

static void fill(double *p, double *y)
{
    for (int i = 0; i < SIZE; i++) {
        p[i] = pred_at(i);
        y[i] = target_at(i);
    }
}

static fx_loss_args args_of(const row *r, const double *p, const double *y)
{
    FXI_DEFAULT_OPTIONS(fx_loss_args, FXI_LOSS_ARGS, a);
    a.pred = fxi_from(FX_DTYPE_F64, p, 2, sizes);
    a.target = fxi_from(FX_DTYPE_F64, y, 2, sizes);
    a.delta = r->delta;
    return a;
}

static void check_row(const row *r)
{
    FX_SCOPE;
    double p[SIZE], y[SIZE], each[SIZE] = {0}, total = 0;
    fill(p, y);
    const int n = r->per_class ? OBSERVATIONS : SIZE;
    for (int i = 0; i < SIZE; i++) {
        const double f = r->formula(p[i], y[i]);
        each[r->per_class ? i / CLASSES : i] += f;
        total += f;
    }
    fx_loss_args a = args_of(r, p, y);
    check_value(r->name, -1, fx_item(r->loss(&a)), total / n, 1e-13, 1e-15);
    a.sum = true;
    check_value(r->name, -2, fx_item(r->loss(&a)), total, 1e-13, 1e-15);
    a.sum = false, a.none = true;
    check_dims(r->name, r->loss(&a), 2,
               (const int64_t[]){r->per_class ? 1 : CLASSES, OBSERVATIONS});
    check_array(r->name, r->loss(&a), n, each, 1e-13, 1e-15);
    a.pred = fx_cast(a.pred, FX_DTYPE_F32), a.target = fx_cast(a.target, FX_DTYPE_F32),
    a.none = false, a.eps = eps;
    assert_int_equal(fx_eltype(r->loss(&a)), FX_DTYPE_F32);
    check_value(r->name, -3, fx_item(r->loss(&a)), total / n, 1e-5, 1e-5);
}

static void test_values(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(rows); i++)
        check_row(&rows[i]);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void check_gradient(const row *r)
{
    FX_SCOPE;
    double p[SIZE], y[SIZE], got[SIZE];
    fill(p, y);
    fx_loss_args a = args_of(r, p, y);
    fx_array *pred = a.pred, *g = NULL;
    assert_int_equal(fx_gradient_of(r->loss(&a), &pred, 1, &g), FX_OK);
    check_read(r->name, g, got, SIZE);
    for (int i = 0; i < SIZE; i++) {
        FX_SCOPE;
        double side[2];
        for (int s = 0; s < 2; s++) {
            p[i] = pred_at(i) + (s ? 1e-6 : -1e-6);
            a = args_of(r, p, y);
            side[s] = fx_item(r->loss(&a));
        }
        p[i] = pred_at(i);
        check_value(r->name, i, got[i], (side[1] - side[0]) / 2e-6, 1e-6, 1e-7);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    static const row logit = {"logitcrossentropy", fxi_logitcrossentropy, NULL, true, 0};
    for (int i = 0; i < COUNT(rows); i++)
        check_gradient(&rows[i]);
    check_gradient(&logit);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- logits ---------------------------------------------------------------------------------- */

static double log_sum_exp(const double *x, int n)
{
    double m = x[0], s = 0;
    for (int i = 1; i < n; i++)
        m = fmax(m, x[i]);
    for (int i = 0; i < n; i++)
        s += exp(x[i] - m);
    return m + log(s);
}

static void test_logitcrossentropy(void **state)
{
    (void)state;
    FX_SCOPE;
    double p[SIZE], y[SIZE], each[OBSERVATIONS], mean = 0;
    fill(p, y);
    for (int j = 0; j < OBSERVATIONS; j++) {
        each[j] = 0;
        for (int i = 0; i < CLASSES; i++)
            each[j] -= y[CLASSES * j + i] *
                       (p[CLASSES * j + i] - log_sum_exp(p + (ptrdiff_t)CLASSES * j, CLASSES));
        mean += each[j] / OBSERVATIONS;
    }
    fx_array *P = fxi_from(FX_DTYPE_F64, p, 2, sizes), *Y = fxi_from(FX_DTYPE_F64, y, 2, sizes);
    check_value("mean", 0, fx_item(fx_logitcrossentropy(P, Y)), mean, 1e-13, 0);
    check_array("none", fx_logitcrossentropy(P, Y, .none = true), OBSERVATIONS, each, 1e-13, 0);
    /* the same with classes on the last axis */
    fx_array *turned =
        fx_logitcrossentropy(fx_transpose(P), fx_transpose(Y), .dims = FX_AXES(1), .none = true);
    check_dims("dims", turned, 2, (const int64_t[]){OBSERVATIONS, 1});
    check_array("dims", turned, OBSERVATIONS, each, 1e-13, 0);
    check_value("crossentropy of softmax", 0, fx_item(fx_crossentropy(fx_softmax(P), Y)), mean,
                1e-12, 0);
}

static void test_extreme_logits(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *labels = fx_from(FX_DTYPE_I64, ((const int64_t[]){0, 1}), 2);
    fx_array *x = fx_reshape(fx_vector(1000, -1000, -1000, 1000, 0, 1e30f), 3, 2), *g = NULL;
    fx_array *l = fx_logitcrossentropy(x, fx_onehot(labels, 3), .none = true);
    CHECK(l, (1, 2), 1e-6, 0, 1e30);
    fx_gradient_of(fx_sum(l), &x, 1, &g);
    CHECK(g, (3, 2), 1e-6, 0, 0, 0, 0, -1, 1);
    x = fx_vector(1e4f, -1e4f, 1e4f, -1e4f);
    l = fx_logitbinarycrossentropy(x, fx_vector(1, 0, 0, 1), .none = true);
    CHECK(l, (4), 1e-6, 0, 0, 1e4, 1e4);
    fx_gradient_of(fx_sum(l), &x, 1, &g);
    CHECK(g, (4), 1e-6, 0, 0, 1, -1);
    /* a sure and right prediction costs log(1 + ε) of the element type, a sure and wrong one log ε
     */
    fx_array *sure = fx_from(FX_DTYPE_F64, ((const double[]){1, 0}), 2, 1);
    check_value("right", 0, fx_item(fx_crossentropy(sure, sure)), 0, 0, 3e-16);
    check_value("wrong", 0, fx_item(fx_crossentropy(sure, fx_sub(1, sure))), -log(DBL_EPSILON),
                1e-12, 0);
    fx_array *sure32 = fx_cast(sure, FX_DTYPE_F32);
    check_value("wrong, Float32", 0, fx_item(fx_crossentropy(sure32, fx_sub(1, sure32))),
                -log((double)FLT_EPSILON), 1e-6, 0);
    check_value("given ε", 0, fx_item(fx_crossentropy(sure, fx_sub(1, sure), .eps = 0.5)),
                -log(0.5), 1e-12, 0);
    assert_true(isinf(fx_item(fx_crossentropy(sure, fx_sub(1, sure), .eps = 0))));
}

/* ---- smoothing, types, errors ----------------------------------------------------------- */

static void test_smoothing(void **state)
{
    (void)state;
    FX_SCOPE;
    const double q[] = {0.7, 0.2, 0.1}, y[] = {0, 1, 0};
    double want = 0, binary = 0;
    for (int i = 0; i < 3; i++) {
        want -= (0.9 * y[i] + 0.1 / 3) * log(q[i] + eps);
        const double s = 0.9 * y[i] + 0.05;
        binary -= (s * log(q[i] + eps) + (1 - s) * log(1 - q[i] + eps)) / 3;
    }
    fx_array *Q = fx_from(FX_DTYPE_F64, q, 3), *Y = fx_from(FX_DTYPE_F64, y, 3);
    fx_array *onehot = fx_ne(Y, 0), *logits = fx_log(Q), *odds = fx_log(fx_div(Q, fx_sub(1, Q)));
    check_value("crossentropy", 0, fx_item(fx_crossentropy(Q, Y, .smoothing = 0.1)), want, 1e-13,
                0);
    check_value("one-hot", 0, fx_item(fx_crossentropy(Q, onehot, .smoothing = 0.1)), want, 1e-13,
                0);
    check_value("logits", 0, fx_item(fx_logitcrossentropy(logits, onehot, .smoothing = 0.1)), want,
                1e-13, 0);
    check_value("binary", 0, fx_item(fx_binarycrossentropy(Q, onehot, .smoothing = 0.1)), binary,
                1e-13, 0);
    check_value("binary logits", 0,
                fx_item(fx_logitbinarycrossentropy(odds, onehot, .smoothing = 0.1)), binary, 1e-12,
                0);
    check_error(fx_crossentropy(Q, Y, .smoothing = 1), FX_STATUS_ARGUMENT,
                "smoothing must be in [0, 1)");
}

static void test_element_types(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y = fx_from(FX_DTYPE_I64, ((const int64_t[]){1, 0, 2}), 3);
    fx_array *l = fx_mse(fx_vector(1, 2, 4), y);
    assert_int_equal(fx_eltype(l), FX_DTYPE_F32);
    check_value("integer target", 0, fx_item(l), 8.0 / 3, 1e-6, 0);
    l = fx_mae(y, fx_vector(1, 2, 4));
    assert_int_equal(fx_eltype(l), FX_DTYPE_F32);
    check_value("integer prediction", 0, fx_item(l), 4.0 / 3, 1e-6, 0);
    check_value("trailing axes of size 1", 0, fx_item(fx_mse(fx_ones(3), fx_zeros(3, 1))), 1, 0, 0);
    assert_true(isnan(fx_item(fx_mse(fx_zeros(0), fx_zeros(0))))); /* the mean of nothing */
    check_value("sum of nothing", 0, fx_item(fx_mse(fx_zeros(0), fx_zeros(0), .sum = true)), 0, 0,
                0);
    assert_int_equal(fx_error_status(), FX_OK);
}

static void test_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    check_error(fx_mse(fx_ones(3, 4), fx_ones(4)), FX_STATUS_SHAPE,
                "mse: loss function expects size(ŷ) = (3, 4) to match size(y) = (4,)");
    check_error(fx_logitcrossentropy(fx_ones(3, 4), fx_ones(3, 5)), FX_STATUS_SHAPE,
                "expects size(ŷ) = (3, 4) to match size(y) = (3, 5)");
    check_error(fx_mae(fx_ones(2), fx_ones()), FX_STATUS_SHAPE, "to match size(y) = ()");
    check_error(fx_mse(fx_ones(2), NULL), FX_STATUS_ARGUMENT, "mse: the target is NULL");
    check_error(fx_mse(fx_ones(2), fx_ones(2), .sum = true, .none = true), FX_STATUS_ARGUMENT,
                "sum or none, not both");
    fx_array *bad = fx_add(fx_ones(2), fx_ones(3));
    fx_error_take();
    assert_int_equal(fx_array_status(fx_mse(bad, fx_ones(2))), FX_STATUS_SHAPE);
    assert_int_equal(fx_array_status(fx_mse(fx_ones(2), bad)), FX_STATUS_SHAPE);
    assert_int_equal(fx_error_status(), FX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_logitcrossentropy),
        cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_smoothing),
        cmocka_unit_test(test_element_types),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
