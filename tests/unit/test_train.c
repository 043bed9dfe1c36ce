/* test_train.c: fx_train: it learns a solution that can be computed by hand, stops when it must,
 * keeps the parameters if a loss is not finite, and shows its progress.
 *
 * The known solution is that of a noiseless linear problem, y = 2a − 3b + 1. Updates are compared
 * with gradient descent written out in C.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"

enum { N = 40 };
static const double TRUE_A = 2, TRUE_B = -3, TRUE_C = 1;

static void fill(float x[2 * N], float y[N])
{
    for (int i = 0; i < N; i++) {
        x[2 * i] = (float)(i % 7) / 3.0f - 1;
        x[2 * i + 1] = (float)(i % 5) / 2.0f - 1;
        y[i] = (float)(TRUE_A * (double)x[2 * i] + TRUE_B * (double)x[2 * i + 1] + TRUE_C);
    }
}

/* The linear problem, `poison` (−1: none) being an observation whose target is `value`. */
static fx_loader *linear(int64_t batchsize, int poison, float value)
{
    float x[2 * N], y[N];
    fill(x, y);
    if (poison >= 0)
        y[poison] = value;
    return fx_dataloader(fx_tuple(fx_from(FX_DTYPE_F32, x, 2, N), fx_from(FX_DTYPE_F32, y, 1, N)),
                         .batchsize = batchsize);
}

static fx_array *squared_error(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), b->y);
}

static fx_dense_layer *zero_model(void)
{
    return fx_dense(2, 1, .init = fx_zeros_init);
}

/* Three epochs of ten batches. The first two steps of the training differ, because the state of
 * the optimiser is pending in the first one. */
static void training_steps_are_repeated(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = zero_model();
    const fx_counters before = fx_stats();
    assert_int_equal(
        fx_train(squared_error, m, linear(4, -1, 0), fx_setup(fx_adam(), m), .epochs = 3), FX_OK);
    const fx_counters after = fx_stats();
    assert_int_equal(after.evals - before.evals, 30);
    assert_in_range(after.repeated_evals - before.repeated_evals, 28, 29);
}

static void finds_the_solution(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.3), m);
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 200), FX_OK);
    assert_float_equal(fx_at(m->weight, 0), TRUE_A, 1e-4);
    assert_float_equal(fx_at(m->weight, 1), TRUE_B, 1e-4);
    assert_float_equal(fx_at(m->bias, 0), TRUE_C, 1e-4);
    assert_int_equal(fx_error_status(), FX_OK);
}

/* Descent by hand over the same batches, in double. */
static void descend(double w[3], int first, int count, double eta)
{
    float x[2 * N], y[N];
    double g[3] = {0};
    fill(x, y);
    for (int i = first; i < first + count; i++) {
        const double a = (double)x[2 * i], b = (double)x[2 * i + 1];
        const double e = 2.0 / count * (w[0] * a + w[1] * b + w[2] - (double)y[i]);
        g[0] += e * a, g[1] += e * b, g[2] += e;
    }
    for (int k = 0; k < 3; k++)
        w[k] -= eta * g[k];
}

typedef struct log {
    int batches, epochs;
    int stop_batch, stop_epoch; /* 0: never */
    float weights[2], bias;     /* after the last finished step */
    fx_progress last;
    double losses;
    const double *metrics;
    int metric_calls;
} log_book;

static fx_flow log_batch(const fx_progress *p)
{
    log_book *l = p->user;
    const fx_dense_layer *m = p->model;
    l->batches++;
    l->last = *p;
    l->losses = p->batch == 1 ? p->loss : l->losses + p->loss;
    assert_int_equal(p->step, l->batches);
    assert_true(fabs(p->mean_loss - l->losses / (double)p->batch) <= 1e-12 * fabs(p->mean_loss));
    assert_true(p->seconds >= 0);
    assert_false(fx_training());
    assert_int_equal(fx_read_into(m->weight, l->weights, sizeof l->weights), FX_OK);
    assert_int_equal(fx_read_into(m->bias, &l->bias, sizeof l->bias), FX_OK);
    return l->batches == l->stop_batch ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

static fx_flow log_epoch(const fx_progress *p)
{
    log_book *l = p->user;
    l->epochs++;
    assert_int_equal(p->epoch, l->epochs);
    assert_int_equal(p->batch, p->batches);
    return l->epochs == l->stop_epoch ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

static void steps_are_descent(void **state)
{
    (void)state;
    FX_SCOPE;
    log_book l = {0};
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    assert_int_equal(fx_train(squared_error, m, linear(16, -1, 0), opt, .epochs = 2,
                              .on_batch = log_batch, .on_epoch = log_epoch, .user = &l),
                     FX_OK);
    assert_int_equal(l.batches, 6);
    assert_int_equal(l.epochs, 2);
    assert_int_equal(l.last.batches, 3);
    assert_int_equal(l.last.epochs, 2);
    assert_ptr_equal(l.last.model, m);
    assert_ptr_equal(l.last.state, opt);
    double w[3] = {0};
    for (int epoch = 0; epoch < 2; epoch++) {
        descend(w, 0, 16, 0.1);
        descend(w, 16, 16, 0.1);
        descend(w, 32, 8, 0.1);
    }
    assert_float_equal(fx_at(m->weight, 0), w[0], 1e-5);
    assert_float_equal(fx_at(m->weight, 1), w[1], 1e-5);
    assert_float_equal(fx_at(m->bias, 0), w[2], 1e-5);
}

static void check_nonfinite(float poison, int at, const char *expected, int good_batches)
{
    FX_SCOPE;
    log_book l = {0};
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_adam(.eta = 0.01), m);
    assert_int_equal(fx_train(squared_error, m, linear(8, at, poison), opt, .epochs = 3,
                              .on_batch = log_batch, .user = &l),
                     FX_STATUS_NONFINITE);
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_NONFINITE);
    assert_string_equal(e.message, expected);
    assert_int_equal(l.batches, good_batches);
    assert_memory_equal(fx_data(m->weight), l.weights, sizeof l.weights);
    assert_memory_equal(fx_data(m->bias), &l.bias, sizeof l.bias);
    /* The optimiser's state is usable too: the next steps are finite. */
    assert_int_equal(fx_train(squared_error, m, linear(8, -1, 0), opt), FX_OK);
    assert_true(isfinite(fx_at(m->weight, 0)) && isfinite(fx_at(m->bias, 0)));
}

static void nonfinite_losses(void **state)
{
    (void)state;
    check_nonfinite(NAN, 17, "train: loss is NaN on batch 3 of epoch 1", 2);
    check_nonfinite(INFINITY, 39, "train: loss is Inf on batch 5 of epoch 1", 4);
    check_nonfinite(NAN, 0, "train: loss is NaN on batch 1 of epoch 1", 0);
}

static fx_array *loss_in_float32(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_cast(fx_mse(fx_call(model, b->x), b->y), FX_DTYPE_F32);
}

static void *step_in_float32(void *model, const fx_batch *b, void *user)
{
    return loss_in_float32(model, b, user);
}

/* Leaves an error record of the same status as that of a gradient that is not finite. */
static void fail_elsewhere(void)
{
    fx_array *w = fx_vector(1, 2);
    assert_int_equal(fx_update(fx_setup(fx_clip_norm(1), w), w, fx_mul(w, INFINITY)),
                     FX_STATUS_NONFINITE);
}

/* The gradients of Float16 are infinite until the factor of the loss is small enough, which ends
 * no training. The result does not depend on an error record that the program has not taken yet. */
static void earlier_errors_do_not_matter(void **state)
{
    (void)state;
    double scales[2][2];
    for (int earlier = 0; earlier < 2; earlier++) {
        FX_SCOPE;
        const double hundreds[] = {100, 100, 100, 100, 100, 100, 100, 100};
        fx_array *x = fx_cast(fx_from(FX_DTYPE_F64, hundreds, 2, 4), FX_DTYPE_F16);
        fx_array *y = fx_cast(fx_ones(1, 4), FX_DTYPE_F16);
        fx_loader *data = fx_dataloader(fx_tuple(x, y), .batchsize = 4);
        fx_dense_layer *m = fx_f16(zero_model()), *n = fx_f16(zero_model());
        void *opt = fx_setup(fx_mixed_precision(fx_descent(1e-6), .growth = 100), m),
             *own = fx_setup(fx_mixed_precision(fx_descent(1e-6), .growth = 100), n);
        if (earlier)
            fail_elsewhere();
        assert_int_equal(fx_train(loss_in_float32, m, data, opt, .epochs = 20), FX_OK);
        for (int i = 0; i < 20; i++)
            for (fx_batch b = {0}; fx_next(data, &b);)
                assert_false(fx_is_error(fx_trainstep(step_in_float32, n, &b, own, NULL)));
        assert_int_equal(fx_error_take().status, earlier ? FX_STATUS_NONFINITE : FX_OK);
        scales[earlier][0] = fx_loss_scale(opt);
        scales[earlier][1] = fx_loss_scale(own);
    }
    assert_true(scales[0][0] < 65536 && scales[0][0] == scales[0][1]);
    assert_memory_equal(scales[0], scales[1], sizeof scales[0]);
}

/* The loss turns to −Inf in the second epoch only. */
static fx_array *loss_that_breaks(void *model, const fx_batch *b, void *user)
{
    int *calls = user;
    fx_array *loss = squared_error(model, b, NULL);
    return ++*calls == 7 ? fx_sub(loss, INFINITY) : loss;
}

static void nonfinite_in_a_later_epoch(void **state)
{
    (void)state;
    FX_SCOPE;
    int calls = 0;
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.01), m);
    assert_int_equal(
        fx_train(loss_that_breaks, m, linear(10, -1, 0), opt, .epochs = 9, .user = &calls),
        FX_STATUS_NONFINITE);
    assert_string_equal(fx_error_take().message, "train: loss is -Inf on batch 3 of epoch 2");
    assert_int_equal(calls, 7);
}

static void callbacks_stop(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.01), m);
    log_book by_batch = {.stop_batch = 6}, by_epoch = {.stop_epoch = 2};
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 5,
                              .on_batch = log_batch, .on_epoch = log_epoch, .user = &by_batch),
                     FX_OK);
    assert_int_equal(by_batch.batches, 6);
    assert_int_equal(by_batch.epochs, 1);
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 5,
                              .on_batch = log_batch, .on_epoch = log_epoch, .user = &by_epoch),
                     FX_OK);
    assert_int_equal(by_epoch.batches, 8);
    assert_int_equal(by_epoch.epochs, 2);
}

static double scripted_metric(void *model, void *user)
{
    log_book *l = user;
    assert_non_null(model);
    return l->metrics[l->metric_calls++];
}

static void early_stop(void **state)
{
    (void)state;
    static const double metrics[] = {5, 4, 4, 4.5, 3, NAN, 3.5, 7, 1};
    FX_SCOPE;
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.01), m);
    log_book two = {.metrics = metrics}, three = {.metrics = metrics};
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 9,
                              .on_epoch = log_epoch, .metric = scripted_metric, .patience = 2,
                              .user = &two),
                     FX_OK);
    assert_int_equal(two.epochs, 4);
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 9,
                              .on_epoch = log_epoch, .metric = scripted_metric, .patience = 3,
                              .user = &three),
                     FX_OK);
    assert_int_equal(three.epochs, 8);
    for (int patience = 0; patience <= 1; patience++) { /* the first that does not improve */
        log_book one = {.metrics = metrics};
        assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 9,
                                  .on_epoch = log_epoch, .metric = scripted_metric,
                                  .patience = patience, .user = &one),
                         FX_OK);
        assert_int_equal(one.epochs, 3);
    }
    log_book none = {.metrics = metrics};
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 0,
                              .on_epoch = log_epoch, .user = &none),
                     FX_OK);
    assert_int_equal(none.epochs, 0);
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .patience = -2),
                     FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "patience is -2"));

    /* Without a metric the mean loss counts: with a learning rate of zero it never improves. */
    log_book still = {0};
    void *frozen = fx_setup(fx_descent(.eta = 0), m);
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), frozen, .epochs = 9,
                              .on_epoch = log_epoch, .patience = 2, .user = &still),
                     FX_OK);
    assert_int_equal(still.epochs, 3);
}

typedef struct best_book {
    float first[16]; /* a weight after each epoch */
    double metrics[16];
    int starts;
    int64_t best_epoch; /* as the last callback saw it */
} best_book;

static fx_flow count_start(const fx_progress *p)
{
    best_book *b = p->user;
    b->starts++;
    assert_int_equal(p->epoch, 0);
    assert_int_equal(p->step, 0);
    assert_true(isinf(p->best));
    return FX_FLOW_CONTINUE;
}

static fx_flow note_epoch(const fx_progress *p)
{
    best_book *b = p->user;
    const fx_dense_layer *m = p->model;
    b->first[p->epoch] = (float)fx_at(m->weight, 0);
    b->metrics[p->epoch] = p->mean_loss;
    b->best_epoch = p->best_epoch;
    return FX_FLOW_CONTINUE;
}

/* Smallest where the loss, which falls, is nearest to 3. */
static double near_three(void *model, void *user)
{
    const best_book *b = user;
    (void)model;
    int64_t last = 0;
    while (last + 1 < 16 && b->metrics[last + 1] > 0)
        last++;
    return fabs(b->metrics[last] - 3);
}

static void best_epoch_is_kept(void **state)
{
    (void)state;
    FX_SCOPE;
    best_book b = {.starts = 0};
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.05), m);
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 12,
                              .on_start = count_start, .on_epoch = note_epoch, .keep_best = true,
                              .metric = near_three, .user = &b),
                     FX_OK);
    int best = 1;
    for (int i = 1; i <= 12; i++)
        best = fabs(b.metrics[i] - 3) < fabs(b.metrics[best] - 3) ? i : best;
    assert_in_range(best, 2, 10);
    assert_int_equal(b.starts, 1);
    assert_int_equal(b.best_epoch, best);
    assert_true((float)fx_at(m->weight, 0) == b.first[best]);
    assert_true(b.first[12] != b.first[best]);
    /* the restored arrays are the model's again, and can be trained */
    assert_int_equal(fx_train(squared_error, m, linear(10, -1, 0), opt), FX_OK);
    assert_true((float)fx_at(m->weight, 0) != b.first[best]);
}

static fx_array *loss_null(void *model, const fx_batch *b, void *user)
{
    (void)model, (void)b, (void)user;
    return NULL;
}
static fx_array *loss_vector(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_square(fx_sub(fx_call(model, b->x), b->y));
}
static fx_array *loss_mismatch(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, fx_ones(3, 4)), b->y);
}

static void expect_failure(fx_status got, fx_status status, const char *text)
{
    assert_int_equal(got, status);
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, status);
    assert_string_equal(e.file, __FILE__); /* not a file of the library */
    if (!strstr(e.message, text))
        fail_msg("\"%s\" does not say \"%s\"", e.message, text);
}

static void refusals(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.01), m);
    fx_loader *data = linear(10, -1, 0);
    expect_failure(fx_train(NULL, m, data, opt), FX_STATUS_ARGUMENT, "loss function is NULL");
    expect_failure(fx_train(squared_error, NULL, data, opt), FX_STATUS_ARGUMENT, "model is NULL");
    expect_failure(fx_train(squared_error, m, NULL, opt), FX_STATUS_ARGUMENT,
                   "data loader is NULL");
    expect_failure(fx_train(squared_error, m, data, NULL), FX_STATUS_ARGUMENT,
                   "optimiser state is NULL");
    expect_failure(fx_train(squared_error, m, data, m), FX_STATUS_ARGUMENT,
                   "needs state = fx_setup(rule, model), got Dense(2 => 1)");
    expect_failure(fx_train(squared_error, m, data, fx_descent()), FX_STATUS_ARGUMENT,
                   "needs state = fx_setup(rule, model), got Descent(0.1)");
    expect_failure(fx_train(squared_error, m, data, opt, .epochs = -1), FX_STATUS_ARGUMENT,
                   "epochs is -1");
    expect_failure(fx_train(squared_error, m, data, opt, .log = "run", .checkpoint = "run"),
                   FX_STATUS_ARGUMENT, "run is given for both the log and the checkpoint");
    expect_failure(fx_train(loss_null, m, data, opt), FX_STATUS_ARGUMENT, "returned NULL");
    expect_failure(fx_train(loss_vector, m, data, opt), FX_STATUS_SHAPE, "");
    expect_failure(fx_train(loss_mismatch, m, data, opt), FX_STATUS_SHAPE, "");
    assert_true(fx_at(m->weight, 0) == 0 && fx_at(m->weight, 1) == 0 && fx_at(m->bias, 0) == 0);
    assert_int_equal(fx_train(squared_error, m, data, opt), FX_OK);
}

static void note_step(const fx_progress *p, char *text, size_t capacity)
{
    snprintf(text, capacity, "note %lld", (long long)p->step);
}

static void plain_progress(void **state)
{
    (void)state;
    FX_SCOPE;
    char line[512];
    int lines = 0;
    FILE *out = tmpfile();
    assert_non_null(out);
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 2, .progress_to = out);
    assert_int_equal(ftell(out), 0); /* progress was not requested */
    log_book l = {0};
    fx_train(squared_error, m, linear(10, -1, 0), opt, .epochs = 3, .progress = true,
             .progress_to = out, .on_batch = log_batch, .epoch_note = note_step, .user = &l);
    rewind(out);
    double loss = NAN;
    while (fgets(line, sizeof line, out)) {
        char start[32];
        snprintf(start, sizeof start, "epoch %d/3 ", ++lines);
        assert_memory_equal(line, start, strlen(start));
        assert_null(strpbrk(line, "\r\033"));
        assert_non_null(strstr(line, "batches/s"));
        assert_non_null(strstr(line, "loss "));
        int step = 0;
        assert_int_equal(sscanf(strstr(line, "loss "), "loss %lf  note %d", &loss, &step), 2);
        assert_int_equal(step, 4 * lines);
    }
    assert_int_equal(lines, 3);
    assert_true(fabs(loss - l.last.mean_loss) <= 1e-3 * l.last.mean_loss);
    fclose(out);
}

static fx_flow note_seconds(const fx_progress *p)
{
    *(double *)p->user = p->seconds;
    return FX_FLOW_CONTINUE;
}

static int64_t broken_at, losses_made; /* 0: never */

static fx_array *breaks_off(void *model, const fx_batch *b, void *user)
{
    if (broken_at && ++losses_made == broken_at)
        return fx_error_array(fx_fail(FX_STATUS_UNSUPPORTED, "loss", "broken off"));
    return squared_error(model, b, user);
}

/* Of many quick epochs the first have lines, and the last. */
static void lines_are_few(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { MANY = 3000, FIRST = 20 };
    char line[512];
    int lines = 0, epoch = 0;
    FILE *out = tmpfile();
    assert_non_null(out);
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    double seconds = 0;
    assert_int_equal(fx_train(squared_error, m, linear(40, -1, 0), opt, .epochs = MANY,
                              .progress = true, .progress_to = out, .on_epoch = note_seconds,
                              .user = &seconds),
                     FX_OK);
    rewind(out);
    while (fgets(line, sizeof line, out)) {
        assert_int_equal(sscanf(line, "epoch %d/3000 ", &epoch), 1);
        assert_true(lines++ >= FIRST || epoch == lines);
    }
    assert_int_equal(epoch, MANY);
    assert_true(lines > FIRST && lines <= FIRST + 10 * seconds + 2);
    fclose(out);
}

/* An epoch that is broken off in its last batch has no line, whether the previous epoch had one. */
static void no_line_for_an_epoch_that_broke_off(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { EPOCHS = 30, BATCHES = 4 }; /* quick: after the first 20 most have no line */
    for (int how = 0; how < 2; how++) {
        char line[512];
        int lines = 0, epoch = 0;
        FILE *out = tmpfile();
        assert_non_null(out);
        fx_dense_layer *m = zero_model();
        log_book l = {.stop_batch = how == 0 ? EPOCHS * BATCHES : 0};
        broken_at = how == 0 ? 0 : EPOCHS * BATCHES;
        const fx_status status =
            fx_train(breaks_off, m, linear(10, -1, 0), fx_setup(fx_descent(.eta = 0.01), m),
                     .epochs = EPOCHS + 10, .progress = true, .progress_to = out,
                     .on_batch = log_batch, .on_epoch = log_epoch, .user = &l);
        assert_int_equal(status, how == 0 ? FX_OK : FX_STATUS_UNSUPPORTED);
        assert_int_equal(fx_error_take().status, status);
        assert_int_equal(l.epochs, EPOCHS - 1);
        rewind(out);
        for (; fgets(line, sizeof line, out); lines++)
            assert_int_equal(sscanf(line, "epoch %d/40 ", &epoch), 1);
        assert_true(lines >= 20 && epoch < EPOCHS);
        fclose(out);
    }
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the width of a terminal ----------------------------------------------------------------- */

static const int widths[] = {200, 80, 60, 40, 20, 10, 3, 1, 0, 33};
enum { WIDTHS = sizeof widths / sizeof *widths };

/* NULL, with a message, if the system has no pseudo-terminals. */
static FILE *open_terminal(int *out_master)
{
    *out_master = posix_openpt(O_RDWR | O_NOCTTY);
    if (*out_master < 0 || grantpt(*out_master) != 0 || unlockpt(*out_master) != 0) {
        print_message("skipped: no pseudo-terminals here\n");
        return NULL;
    }
    FILE *terminal = fopen(ptsname(*out_master), "w");
    assert_non_null(terminal);
    return terminal;
}

/* Reads what the program has written to the terminal. */
static void read_terminal(FILE *terminal, int master, char *text, size_t capacity)
{
    size_t n = 0;
    fflush(terminal);
    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    for (ssize_t got; (got = read(master, text + n, capacity - 1 - n)) > 0;)
        n += (size_t)got;
    assert_true(n > 0);
    text[n] = 0;
}

static void set_width(int master, int columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
}

static fx_flow resize(const fx_progress *p)
{
    set_width(*(const int *)p->user, widths[p->epoch % WIDTHS]);
    return FX_FLOW_CONTINUE;
}

static void note_wide(const fx_progress *p, char *text, size_t capacity)
{
    (void)p;
    snprintf(text, capacity, "全部 e\xCC\x81 done");
}

/* Of the characters that can be there: ASCII and the bar's take a column, those of the note two and
 * none. */
static int columns_of_line(const char *line, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)line[i];
        columns += c < 0x80 || c == 0xC2 || c == 0xE2 ? 1 : c == 0xE5 || c == 0xE9 ? 2 : 0;
    }
    return columns;
}

static void the_bar_fits_the_terminal(void **state)
{
    (void)state;
    FX_SCOPE;
    int master;
    FILE *terminal = open_terminal(&master);
    if (!terminal)
        return;
    fx_dense_layer *m = zero_model();
    set_width(master, widths[0]);
    assert_int_equal(fx_train(squared_error, m, linear(4, -1, 0),
                              fx_setup(fx_descent(.eta = 0.1), m), .epochs = WIDTHS,
                              .progress = true, .progress_to = terminal, .epoch_note = note_wide,
                              .on_epoch = resize, .user = &master),
                     FX_OK);
    char text[16384];
    read_terminal(terminal, master, text, sizeof text);
    int lines = 0, whole = 0;
    for (char *end, *at = text; (end = strstr(at, "\033[K\r\n")); at = end + 5, lines++) {
        const char *begin = end;
        while (begin > at && begin[-1] != '\r')
            begin--;
        const int set = widths[(lines + 1) % WIDTHS], width = set ? set : 80;
        const int columns = columns_of_line(begin, (size_t)(end - begin));
        if (columns > width - 1)
            fail_msg("epoch %d: %d columns of %d: %.*s", lines + 1, columns, width,
                     (int)(end - begin), begin);
        if (columns < (width < 60 ? width / 2 : 50) && width >= 10)
            fail_msg("only %d columns of %d: %.*s", columns, width, (int)(end - begin), begin);
        const char *note = strstr(begin, "全部 e\xCC\x81 done");
        whole += note && note < end;
        assert_true(width < 60 || (note && note < end));
    }
    assert_int_equal(lines, WIDTHS);
    assert_in_range(whole, 4, WIDTHS - 4);
    fclose(terminal);
    close(master);
}

static void bar_on_a_terminal(void **state)
{
    (void)state;
    FX_SCOPE;
    int master;
    FILE *terminal = open_terminal(&master);
    if (!terminal)
        return;
    fx_dense_layer *m = zero_model();
    void *opt = fx_setup(fx_descent(.eta = 0.1), m);
    /* 20 steps: the most that they can print fits into the terminal's buffer, which is not emptied
     * yet. */
    const double began = seconds_now();
    assert_int_equal(fx_train(squared_error, m, linear(4, -1, 0), opt, .epochs = 2,
                              .progress = true, .progress_to = terminal),
                     FX_OK);
    const double seconds = seconds_now() - began;
    char text[16384];
    read_terminal(terminal, master, text, sizeof text);
    assert_non_null(strstr(text, "\repoch 1/2 "));
    assert_non_null(strstr(text, "100 %"));
    assert_non_null(strstr(text, " left"));
    assert_non_null(strstr(text, "loss "));
    int draws = 0;
    for (const char *p = text; (p = strstr(p, "\repoch")); p++)
        draws++;
    assert_true(draws >= 3 && draws <= 3 + 10 * seconds); /* first, ends of epochs, ten a second */
    fclose(terminal);
    close(master);
}

static fx_flow stop_at_once(const fx_progress *p)
{
    (void)p;
    return FX_FLOW_STOP;
}

/* A program that trains until its callback ends the training may ask for any number of epochs. The
 * time left is then not shown: it has no meaning, and an int cannot represent its seconds. */
static void the_time_left_of_very_many_epochs(void **state)
{
    (void)state;
    static const int64_t epochs[] = {INT64_MAX, INT64_MAX / 10, INT64_C(1) << 55};
    for (int i = 0; i < 3; i++) {
        FX_SCOPE;
        int master;
        char text[16384];
        FILE *terminal = open_terminal(&master);
        if (!terminal)
            return;
        fx_dense_layer *m = zero_model();
        assert_int_equal(fx_train(squared_error, m, linear(4, -1, 0),
                                  fx_setup(fx_descent(.eta = 0.1), m), .epochs = epochs[i],
                                  .progress = true, .progress_to = terminal,
                                  .on_batch = stop_at_once),
                         FX_OK);
        read_terminal(terminal, master, text, sizeof text);
        assert_non_null(strstr(text, "\repoch 1/"));
        assert_non_null(strstr(text, " batches/s"));
        assert_null(strstr(text, " left"));
        fclose(terminal);
        close(master);
    }
}

/* Ten batches in ten seconds, after a checkpoint of 990 batches that were smaller. Two are left. */
static void the_time_left_after_a_checkpoint(void **state)
{
    (void)state;
    int master;
    char text[1000];
    fxi_meter meter;
    FILE *terminal = open_terminal(&master);
    if (!terminal)
        return;
    fxi_meter_open(&meter, terminal);
    meter.steps_before = 990;
    fxi_meter_batch(
        &meter,
        &(const fx_progress){
            .epoch = 3, .epochs = 3, .batch = 2, .batches = 4, .step = 1000, .seconds = 10});
    read_terminal(terminal, master, text, sizeof text);
    assert_non_null(strstr(text, "  0:02 left"));
    fclose(terminal);
    close(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_solution),
        cmocka_unit_test(training_steps_are_repeated),
        cmocka_unit_test(steps_are_descent),
        cmocka_unit_test(nonfinite_losses),
        cmocka_unit_test(nonfinite_in_a_later_epoch),
        cmocka_unit_test(earlier_errors_do_not_matter),
        cmocka_unit_test(callbacks_stop),
        cmocka_unit_test(early_stop),
        cmocka_unit_test(best_epoch_is_kept),
        cmocka_unit_test(refusals),
        cmocka_unit_test(plain_progress),
        cmocka_unit_test(lines_are_few),
        cmocka_unit_test(no_line_for_an_epoch_that_broke_off),
        cmocka_unit_test(bar_on_a_terminal),
        cmocka_unit_test(the_time_left_of_very_many_epochs),
        cmocka_unit_test(the_time_left_after_a_checkpoint),
        cmocka_unit_test(the_bar_fits_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
