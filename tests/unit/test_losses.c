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
static double f_quantile(double p, double y)
{
    return y > p ? 0.8 * (y - p) : 0.2 * (p - y);
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

static double f_focal(double p, double y)
{
    return -y * pow(1 - p - eps, 2) * log(p + eps);
}
static double f_binary_focal(double p, double y)
{
    const double q = y * (p + eps) + (1 - y) * (1 - p - eps);
    return -pow(1 - q, 2) * log(q);
}
static double f_contrastive(double p, double y)
{
    return (1 - y) * p * p + y * pow(fmax(0, 1 - p), 2);
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
    {"quantile_loss", fxi_quantile_loss, f_quantile, false, 0},
    {"crossentropy", fxi_crossentropy, f_crossentropy, true, 0},
    {"kldivergence", fxi_kldivergence, f_kl, true, 0},
    {"binarycrossentropy", fxi_binarycrossentropy, f_binary, false, 0},
    {"logitbinarycrossentropy", fxi_logitbinarycrossentropy, f_logit_binary, false, 0},
    {"poisson_loss", fxi_poisson_loss, f_poisson, false, 0},
    {"hinge_loss", fxi_hinge_loss, f_hinge, false, 0},
    {"squared_hinge_loss", fxi_squared_hinge_loss, f_squared_hinge, false, 0},
    {"focal_loss", fxi_focal_loss, f_focal, true, 0},
    {"binary_focal_loss", fxi_binary_focal_loss, f_binary_focal, false, 0},
    {"siamese_contrastive_loss", fxi_siamese_contrastive_loss, f_contrastive, false, 0},
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
    a.quantile = 0.8;
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
    static const row whole[] = {{"dice_coeff_loss", fxi_dice_coeff_loss, NULL, false, 0},
                                {"tversky_loss", fxi_tversky_loss, NULL, false, 0}};
    for (int i = 0; i < COUNT(rows); i++)
        check_gradient(&rows[i]);
    check_gradient(&logit);
    for (int i = 0; i < COUNT(whole); i++)
        check_gradient(&whole[i]);
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
    check_error(fx_mse(Q, Y, .smoothing = 0.1), FX_STATUS_ARGUMENT,
                "mse: takes no label smoothing, got 0.1");
    check_error(fx_focal_loss(Q, Y, .smoothing = 0.1), FX_STATUS_ARGUMENT,
                "takes no label smoothing");
    check_error(fx_crossentropy(Q, Y, .smoothing = 1), FX_STATUS_ARGUMENT,
                "smoothing must be in [0, 1)");
    check_error(fx_huber_loss(Q, Y, .delta = -1), FX_STATUS_ARGUMENT, "delta must be at least 0");
    check_error(fx_quantile_loss(Q, Y, .quantile = 1), FX_STATUS_ARGUMENT,
                "quantile must be between 0 and 1, got 1");
    check_error(fx_focal_loss(Q, Y, .gamma = NAN), FX_STATUS_ARGUMENT, "gamma must be at least 0");
}

/* y = (1, 0, 1), ŷ = (0.5, 0.25, 0): Σ yŷ = ½, Σ y² = 2, Σ ŷ² = 5/16, Σ (1−y)ŷ = ¼, Σ y(1−ŷ) = 3/2
 */
/* The examples of scikit-learn's documentation of mean_pinball_loss; and the constant with the
 * least loss is the quantile of the targets. */
static void test_quantiles(void **state)
{
    (void)state;
    FX_SCOPE;
    static const struct {
        double x[3], quantile, loss;
    } documented[] = {{{0, 2, 3}, 0.1, 0.1 / 3},
                      {{1, 2, 4}, 0.1, 0.9 / 3},
                      {{0, 2, 3}, 0.9, 0.9 / 3},
                      {{1, 2, 4}, 0.9, 0.1 / 3}};
    fx_array *y = fx_vector(1, 2, 3);
    for (int i = 0; i < (int)(sizeof documented / sizeof *documented); i++) {
        fx_array *x = fx_from(FX_DTYPE_F64, documented[i].x, 3);
        check_value("documentation", i,
                    fx_item(fx_quantile_loss(x, y, .quantile = documented[i].quantile)),
                    documented[i].loss, 1e-6, 0);
    }
    fx_array *targets = fx_range(0, 1, 101);
    double best = INFINITY, at = -1;
    for (int i = 0; i <= 100; i++) {
        FX_SCOPE;
        const double loss =
            fx_item(fx_quantile_loss(fx_mul(fx_ones(101), i), targets, .quantile = 0.9));
        at = loss < best ? i : at;
        best = fmin(best, loss);
    }
    assert_true(at == 90);
}

static void test_overlaps(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *p = fx_vector(0.5f, 0.25f, 0), *y = fx_vector(1, 0, 1);
    check_value("dice", 0, fx_item(fx_dice_coeff_loss(p, y)), 1 - 2.0 / (2 + 5.0 / 16 + 1), 1e-6,
                0);
    check_value("dice, smooth", 0, fx_item(fx_dice_coeff_loss(p, y, .smooth = 0)),
                1 - 1.0 / (2 + 5.0 / 16), 1e-6, 0);
    check_value("tversky", 0, fx_item(fx_tversky_loss(p, y)),
                1 - 1.5 / (0.5 + 0.3 * 0.25 + 0.7 * 1.5 + 1), 1e-6, 0);
    /* a missed one costs more than a false one when β is large */
    fx_array *missed = fx_vector(0, 0), *invented = fx_vector(1, 1), *truth = fx_vector(1, 0);
    assert_true(fx_item(fx_tversky_loss(missed, truth, .beta = 0.9)) >
                fx_item(fx_tversky_loss(invented, truth, .beta = 0.9)));
    check_value("label_smoothing", 0,
                fx_at(fx_label_smoothing(fx_vector(0, 1, 0), 0.3, FX_AXES(0)), 1), 0.8, 1e-6, 0);
    check_value("label_smoothing, two", 0,
                fx_at(fx_label_smoothing(fx_vector(0, 1), 0.3, fx_axes_of(0, NULL)), 0), 0.15, 1e-6,
                0);
    check_error(fx_label_smoothing(y, 1, FX_AXES(0)), FX_STATUS_ARGUMENT,
                "alpha must be between 0 and 1, got 1");
    check_error(fx_tversky_loss(p, y, .beta = 2), FX_STATUS_ARGUMENT,
                "beta must be in [0, 1], got 2");
    check_error(fx_siamese_contrastive_loss(p, y, .margin = -1), FX_STATUS_ARGUMENT,
                "the margin cannot be negative, got -1");
}

static void test_weights_of_classes(void **state)
{
    (void)state;
    FX_SCOPE;
    double p[SIZE], y[SIZE], want = 0;
    const double w[CLASSES] = {0.5, 2, 3};
    fill(p, y);
    for (int i = 0; i < SIZE; i++)
        want -= w[i % CLASSES] * xlogy(y[i], p[i] + eps) / OBSERVATIONS;
    fx_array *P = fxi_from(FX_DTYPE_F64, p, 2, sizes), *Y = fxi_from(FX_DTYPE_F64, y, 2, sizes);
    fx_array *W = fx_from(FX_DTYPE_F64, w, CLASSES);
    check_value("weights", 0, fx_item(fx_crossentropy(P, Y, .weights = W)), want, 1e-13, 0);
    check_value("weights, other axis", 0,
                fx_item(fx_crossentropy(fx_transpose(P), fx_transpose(Y), .dims = FX_AXES(1),
                                        .weights = W)),
                want, 1e-13, 0);
    check_value("weights, logits", 0,
                fx_item(fx_logitcrossentropy(fx_log(fx_softmax(P)), Y, .weights = W)),
                fx_item(fx_crossentropy(fx_softmax(P), Y, .weights = W, .eps = 0)), 1e-12, 0);
    check_error(fx_crossentropy(P, Y, .weights = fx_ones(2)), FX_STATUS_SHAPE,
                "expects one weight for each of 3 classes, got size (2,)");
    check_error(fx_mse(P, Y, .weights = W), FX_STATUS_ARGUMENT, "takes no weights of classes");
}

/* ---- CTC ------------------------------------------------------------------------------------- */

/* The probability of all paths of 3 times over 3 classes (2 is the blank) that give the labels, by
 * enumeration. */
static double ctc_by_paths(const double scores[9], const int *labels, int n)
{
    double p[9], sum = 0;
    for (int t = 0; t < 3; t++)
        for (int c = 0; c < 3; c++)
            p[3 * t + c] = exp(scores[3 * t + c] - log_sum_exp(scores + (ptrdiff_t)3 * t, 3));
    for (int path = 0; path < 27; path++) {
        const int at[] = {path % 3, path / 3 % 3, path / 9};
        int out[3], length = 0;
        for (int t = 0; t < 3; t++)
            if (at[t] != 2 && (t == 0 || at[t] != at[t - 1]))
                out[length++] = at[t];
        bool same = length == n;
        for (int i = 0; i < n && same; i++)
            same = out[i] == labels[i];
        sum += same ? p[at[0]] * p[3 + at[1]] * p[6 + at[2]] : 0;
    }
    return -log(sum);
}

static void test_ctc(void **state)
{
    (void)state;
    FX_SCOPE;
    const double x[9] = {0.3, -1.2, 0.5, 2, 0.1, -0.4, 0, 1.5, 0.7};
    static const struct {
        int labels[3], n;
    } cases[] = {{{0}, 1},    {{1}, 1},       {{0, 1}, 2}, {{1, 0}, 2},
                 {{0, 0}, 2}, {{0, 1, 0}, 3}, {{0}, 0}};
    fx_array *X = fx_from(FX_DTYPE_F64, x, 3, 3), *g;
    for (int i = 0; i < COUNT(cases); i++) {
        int64_t labels[3] = {-1, -1, -1};
        for (int k = 0; k < cases[i].n; k++)
            labels[k] = cases[i].labels[k];
        const double want = ctc_by_paths(x, cases[i].labels, cases[i].n);
        fx_array *y = fx_from(FX_DTYPE_I64, labels, 3), *loss = fx_ctc_loss(X, y);
        check_value("ctc", i, fx_item(loss), want, 1e-12, 0);
        assert_int_equal(fx_gradient_of(fx_ctc_loss(X, y), &X, 1, &g), FX_OK);
        for (int k = 0; k < 9; k++) {
            double side[2], moved[9];
            for (int s = 0; s < 2; s++) {
                memcpy(moved, x, sizeof x);
                moved[k] += s ? 1e-6 : -1e-6;
                side[s] = ctc_by_paths(moved, cases[i].labels, cases[i].n);
            }
            check_value("ctc gradient", k, fx_at(g, k), (side[1] - side[0]) / 2e-6, 1e-6, 1e-8);
        }
    }
    const int64_t batch[] = {0, 1, 1, -1}, long_one[] = {0, 0, 0}, bad[] = {2};
    fx_array *both = fx_stack(2, X, X);
    fx_array *each = fx_ctc_loss(both, fx_from(FX_DTYPE_I64, batch, 2, 2), .none = true);
    CHECK(each, (2), 1e-12, ctc_by_paths(x, (const int[]){0, 1}, 2),
          ctc_by_paths(x, (const int[]){1}, 1));
    assert_true(isinf(fx_item(fx_ctc_loss(X, fx_from(FX_DTYPE_I64, long_one, 3)))));
    check_error(fx_ctc_loss(X, fx_from(FX_DTYPE_I64, bad, 1)), FX_STATUS_ARGUMENT,
                "label 2 is not in 0 … 1: the last class is the blank");
    check_error(fx_ctc_loss(X, fx_ones(1)), FX_STATUS_DTYPE, "expects labels as integers");
    check_error(fx_ctc_loss(X, fx_from(FX_DTYPE_I64, batch, 1), .eps = 1e-3), FX_STATUS_ARGUMENT,
                "takes neither eps nor smoothing");
    check_error(fx_ctc_loss(X, fx_from(FX_DTYPE_I64, batch, 1), .weights = fx_ones(3)),
                FX_STATUS_ARGUMENT, "takes no weights of classes");
    /* the label and the blank are both impossible at the second of three times */
    const double masked[] = {1, 2, 3, -(double)INFINITY, 1, -(double)INFINITY, 1, 2, 3};
    fx_array *M = fx_from(FX_DTYPE_F64, masked, 3, 3);
    assert_true(fx_item(fx_ctc_loss(M, fx_from(FX_DTYPE_I64, batch, 1))) == (double)INFINITY);
    check_error(fx_ctc_loss(fx_ones(3), fx_from(FX_DTYPE_I64, bad, 1)), FX_STATUS_SHAPE,
                "expects scores of classes×times");
    assert_int_equal(fx_error_status(), FX_OK);
}

/* A class whose score is −Inf costs nothing if its target is false, and infinitely much if it is
 * true. The values are those of torch.nn.functional.cross_entropy with class numbers. */
static void test_masked_logits(void **state)
{
    (void)state;
    FX_SCOPE;
    const double wanted[] = {0.26894142, 0, -0.26894142};
    fx_array *x = fx_from(FX_DTYPE_F32, ((const float[]){1, -INFINITY, 2}), 3, 1), *g[1];
    const int64_t last = 2, second = 1;
    fx_array *loss = fx_logitcrossentropy(x, fx_onehotbatch(fx_from(FX_DTYPE_I64, &last, 1), 3));
    assert_int_equal(fx_gradient_of(loss, &x, 1, g), FX_OK);
    check_value("masked logits", 0, fx_item(loss), 0.31326169, 1e-6, 0);
    for (int i = 0; i < 3; i++)
        check_value("gradient of masked logits", i, fx_item(fx_slice(g[0], 0, i, i + 1)), wanted[i],
                    1e-6, 1e-7);
    loss = fx_logitcrossentropy(x, fx_onehotbatch(fx_from(FX_DTYPE_I64, &second, 1), 3));
    assert_true(fx_item(loss) == (double)INFINITY);
}

/* ŷ + ε is above 1: a power of 1 − ŷ − ε with a fraction would be NaN, and so would its logarithm.
 */
static void test_focal_of_certain_predictions(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *y = fx_from(FX_DTYPE_F32, ((const float[]){1, 0, 0, 1}), 2, 2), *g[1];
    for (double gamma = 0; gamma <= 3; gamma += 0.5) {
        fx_array *p = fx_from(FX_DTYPE_F32, ((const float[]){1, 0, 0, 1}), 2, 2);
        fx_array *both[] = {fx_focal_loss(p, y, .gamma = gamma),
                            fx_binary_focal_loss(p, y, .gamma = gamma)};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(fx_gradient_of(both[i], &p, 1, g), FX_OK);
            check_value("focal", i, fx_item(both[i]), 0, 0, 1e-6);
            assert_true(fx_item(fx_all(fx_isfinite(g[0]))) == 1);
        }
        fx_array *wrong = fx_sub(1, p), *loss = fx_binary_focal_loss(wrong, y, .gamma = gamma);
        assert_int_equal(fx_gradient_of(loss, &wrong, 1, g), FX_OK);
        check_value("wrong and certain", 0, fx_item(loss), -log(0x1p-23), 1e-6, 0);
        /* of −(1−q)^γ·log q at q = ε; q rises with ŷ where y is 1, and falls where y is 0 */
        const double q = 0x1p-23,
                     slope = gamma * pow(1 - q, gamma - 1) * log(q) - pow(1 - q, gamma) / q;
        for (int i = 0; i < 4; i++)
            check_value("gradient", i, fx_at(g[0], i), (fx_at(y, i) == 1 ? slope : -slope) / 4,
                        1e-6, 0);
    }
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
    assert_true(isnan(fx_item(fx_mse(fx_zeros(0), fx_zeros(0))))); /* the mean of no elements */
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
    check_error(fx_logitcrossentropy(fx_ones(3, 4), fx_full_dtype(FX_DTYPE_I64, 0, 4)),
                FX_STATUS_SHAPE,
                "to match size(y) = (4,); for class numbers, pass fx_onehotbatch(y, 3)");
    check_error(fx_crossentropy(fx_ones(5, 2, 4), fx_full_dtype(FX_DTYPE_U8, 0, 2, 4)),
                FX_STATUS_SHAPE,
                "to match size(y) = (2, 4); for class numbers, pass fx_onehotbatch(y, 5)");
    check_error(fx_focal_loss(fx_ones(3, 4), fx_ones(4)), FX_STATUS_SHAPE,
                "for class numbers, pass fx_onehotbatch(fx_cast(y, FX_DTYPE_I64), 3)");
    check_error(fx_mse(fx_ones(1, 4), fx_ones(4)), FX_STATUS_SHAPE,
                "to match size(y) = (4,); pass fx_unsqueeze(y, 0)");
    check_error(fx_logitbinarycrossentropy(fx_ones(1, 4), fx_full_dtype(FX_DTYPE_I64, 0, 4)),
                FX_STATUS_SHAPE, "pass fx_unsqueeze(y, 0)");
    fx_mse(fx_ones(3, 4), fx_ones(4)); /* targets of a regression */
    assert_null(strstr(fx_error_take().message, "onehotbatch"));
    fx_logitcrossentropy(fx_ones(3, 4), fx_full_dtype(FX_DTYPE_I64, 0, 3)); /* no column each */
    assert_null(strstr(fx_error_take().message, "onehotbatch"));
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
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_weights_of_classes),
        cmocka_unit_test(test_ctc),
        cmocka_unit_test(test_focal_of_certain_predictions),
        cmocka_unit_test(test_masked_logits),
        cmocka_unit_test(test_element_types),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
