/* train.c: fx_train: Flux.train! with epochs, progress, callbacks, checkpoints and early stopping.
 *
 * An epoch is equivalent to this loop:
 *
 *   for (fx_batch b = {0}; fx_next(data, &b);) {
 *       FX_RECORD;
 *       fx_array *loss = fn(model, &b, user);
 *       fx_update(state, model, fx_gradient(loss, model), .guard = loss);
 *   }
 *
 * If the loss is not finite, the guard makes the update change nothing, within the same plan. The
 * parameters from before that batch are kept without a copy and without computing the loss twice.
 * The loss is read once, after the update that computed it. All batches have the same weight
 * in means, because the loop does not know whether a loss is a mean or a sum. Callbacks and the
 * metric run in their own scope outside the training step, in the mode of the scope that called
 * fx_train (default: inference), and their results are released.
 */
#include "clock.h"
#include "error.h"
#include "memory.h"
#include "option_struct.h"
#include "progress.h"
#include "train_dist.h"
#include "train_log.h"

#include <cflux/grad.h>
#include <cflux/ops.h>
#include <cflux/io.h>
#include <cflux/train.h>
#include <math.h>
#include <string.h>

static const char *const OP = "train";

typedef struct training {
    fx_train_args a;
    fx_progress p;
    fxi_meter meter;
    fx_run_log *log; /* NULL: no log */
    double began;
    double loss_sum; /* sum over the epoch */
    double metric;   /* latest metric; NaN without a metric */
    void *kept;      /* the model after the best epoch; NULL before, or if not requested */
    int64_t waited;  /* epochs since the best one */
    int64_t saved;   /* training step of the latest checkpoint */
    bool resumed;    /* the epoch continues from a checkpoint in its middle */
    bool unshown;    /* the latest epoch printed no line */
    bool stop;
    fxi_together together;
} training;

static fx_status check_args(const fx_train_args *a)
{
    if (!a->loss)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "the loss function is NULL");
    if (!a->model || !a->data || !a->state)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "the %s is NULL",
                       !a->model  ? "model"
                       : !a->data ? "data loader"
                                  : "optimiser state");
    if (a->epochs < 0 || a->patience < FX_NEVER)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "%s is %lld, expected at least 0",
                       a->epochs < 0 ? "epochs" : "patience",
                       (long long)(a->epochs < 0 ? a->epochs : a->patience));
    if (a->checkpoint_every < 0)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "checkpoint_every is %lld, expected at least 0",
                       (long long)a->checkpoint_every);
    if (!(a->clip_norm >= 0))
        return fx_fail(FX_STATUS_ARGUMENT, OP, "clip_norm is %g, expected at least 0",
                       a->clip_norm);
    if (a->schedule && fx_is_error(a->schedule))
        return fx_fail(FX_STATUS_ARGUMENT, OP, "the schedule is an error object");
    if (a->log && a->checkpoint && strcmp(a->log, a->checkpoint) == 0)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "%s is given for both the log and the checkpoint",
                       a->log);
    if (fx_is_error(a->data))
        return fx_fail(FX_STATUS_ARGUMENT, OP, "the data loader is an error object");
    return FX_OK;
}

/* True if the metric has not improved for `patience` epochs. */
static bool out_of_patience(const training *t)
{
    return t->a.patience != FX_NEVER && t->waited > 0 && t->waited >= t->a.patience;
}

static fx_array *loss_of(const training *t, const fx_batch *batch)
{
    const fx_train_args *a = &t->a;
    const fxi_outside before = fxi_together_enter(&t->together, batch, t->p.step);
    fx_array *loss = a->loss(a->model, batch, a->user);
    fxi_together_leave(&t->together, before);
    return loss ? fxi_together_share(&t->together, batch, loss) : NULL;
}

/* *out_stop: a member asked to stop. *out_refused: the update recorded an error. */
static fx_status train_step(const training *t, const fx_batch *batch, double *out_loss,
                            bool *out_stop, bool *out_refused)
{
    /* FX_RECORD; error records keep the location of the program's scope */
    FXI_OPEN_AT(FXI_SCOPE_RECORD_INSIDE, __FILE__, __LINE__);
    const fx_train_args *a = &t->a;
    *out_loss = NAN;
    fx_array *loss = loss_of(t, batch);
    if (!loss)
        return fx_fail(FX_STATUS_ARGUMENT, OP, "the loss function returned NULL");
    const double factor = fx_loss_scale(a->state); /* 0: the loss is not scaled */
    void *gradient = fx_gradient(factor > 0 ? fx_mul(loss, factor) : loss, a->model);
    fx_array *stop;
    const double clip_norm = a->clip_norm * (factor > 0 ? factor : 1);
    const fx_error earlier = fxi_error_begin(); /* of the program's other calls */
    const fx_status status =
        fxi_together_update(&t->together, a, clip_norm, gradient, &loss, &stop);
    *out_refused = fxi_error_end(&earlier) != FX_OK;
    if (status != FX_OK && status != FX_STATUS_NONFINITE)
        return status;
    const fx_status read = fx_item_get(loss, out_loss);
    *out_stop = stop && fx_item(stop) > 0;
    return status != FX_OK ? status : read;
}

static bool call_back(training *t, fx_callback_fn callback)
{
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    return callback && callback(&t->p) == FX_FLOW_STOP;
}

/* ---- the best epoch -------------------------------------------------------------------------- */

typedef struct array_list {
    fx_array **items;
    int32_t n, capacity;
    bool no_memory;
} array_list;

static void add_array(fx_array *x, const char *path, bool trainable, void *user)
{
    array_list *list = user;
    (void)path;
    (void)trainable;
    if (fxi_grow(&list->items, &list->capacity, list->n + 1, sizeof(fx_array *)))
        list->items[list->n++] = x;
    else
        list->no_memory = true;
}

/* All arrays of a model as a tuple, in walk order. */
static void *arrays_of(void *model)
{
    array_list list = {.n = 0};
    const fx_error earlier = fxi_error_begin();
    fx_visit(model, add_array, &list); /* does not report a failed walk */
    if (list.no_memory)
        fx_fail(FX_STATUS_MEMORY, OP, "no memory for a list of arrays");
    const fx_status status = fxi_error_end(&earlier);
    void *arrays =
        status == FX_OK ? fxi_tuple(list.n, (void *const *)list.items) : fx_error_array(status);
    fxi_free((void *)list.items);
    return arrays;
}

static fx_status keep(training *t)
{
    void *copy = fx_snapshot(t->a.model);
    if (fx_is_error(copy))
        return fx_error_status();
    fx_release(t->kept);
    t->kept = fx_retain(copy);
    return FX_OK;
}

/* Restores the best model from the metrics of a checkpoint, where its arrays are named best.0,
 * best.1, …. */
static fx_status keep_from(training *t, void *metrics)
{
    char name[32];
    fx_status status = keep(t);
    void *arrays = status == FX_OK ? arrays_of(t->kept) : NULL;
    if (arrays && fx_is_error(arrays))
        status = fx_error_status();
    for (int64_t i = 0; status == FX_OK && i < fx_count(arrays); i++) {
        snprintf(name, sizeof name, "best.%lld", (long long)i);
        status = fx_copy_into(fx_child(arrays, i), fx_child_named(metrics, name));
    }
    return status;
}

static bool has(void *tuple, const char *name)
{
    for (int64_t i = 0; i < fx_count(tuple); i++)
        if (strcmp(fx_child_name(tuple, i), name) == 0)
            return true;
    return false;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

enum { SHOWN = 150 }; /* bytes of a setting in a message */
/* The numbers of fx_train in a checkpoint. Files of the first version end before BEST_EPOCH. */
enum { LOSS_SUM, BEST, WAITED, BATCH, BEST_EPOCH, NMETRICS };

static const char SETTINGS[] = "settings";

static int add_pair(const void **pairs, int n, const char *name, const void *object)
{
    pairs[n] = name;
    pairs[n + 1] = object;
    return n + 2;
}

/* `batch`: the latest batch, in the middle of an epoch; NULL at the end of an epoch. The numbers
 * with which fx_train resumes are stored as metrics of the checkpoint. */
static fx_status save(training *t, const fx_batch *batch)
{
    FXI_SCOPE;
    t->saved = t->p.step;
    const fx_status settled = fxi_together_settle(&t->together, &t->a);
    void *state = settled == FX_OK ? fxi_together_saved(&t->together, &t->a) : NULL;
    if (settled != FX_OK || fx_is_error(state) || !fxi_together_writes(&t->together))
        return settled == FX_OK && fx_is_error(state) ? fx_array_status(state) : settled;
    const double own[NMETRICS] = {[LOSS_SUM] = t->loss_sum,
                                  [BEST] = t->p.best,
                                  [WAITED] = (double)t->waited,
                                  [BATCH] = batch ? (double)t->p.batch : 0,
                                  [BEST_EPOCH] = (double)t->p.best_epoch};
    fx_array *numbers = fx_from(FX_DTYPE_F64, own, NMETRICS);
    const char *text = t->a.settings;
    const void *pairs[6] = {"train", numbers};
    int n = 2;
    if (t->kept)
        n = add_pair(pairs, n, "best", arrays_of(t->kept));
    if (text && *text)
        n = add_pair(pairs, n, SETTINGS, fx_from(FX_DTYPE_U8, text, (int64_t)strlen(text)));
    void *metrics = fxi_named_pairs(n, pairs);
    return fx_checkpoint_save(t->a.checkpoint, t->a.model, .state = state, .data = t->a.data,
                              .batch = batch, .epoch = t->p.epoch - (batch != NULL),
                              .step = t->p.step, .metrics = metrics, .keep = t->a.checkpoint_keep);
}

static bool due(const training *t)
{
    const int64_t every = t->a.checkpoint_every;
    return t->a.checkpoint && (every == 0 || t->p.step - t->saved >= every);
}

/* Saves after a batch. After the final batch of an epoch, save_after_epoch saves instead, unless a
 * callback stops the training: the resumed run must then still run the end of the epoch (metric,
 * callbacks). */
static fx_status save_in_epoch(training *t, const fx_batch *batch)
{
    const bool in_middle = t->p.batch < t->p.batches && t->a.checkpoint_every && due(t);
    return t->a.checkpoint && (t->stop || in_middle) ? save(t, batch) : FX_OK;
}

static fx_status save_after_epoch(training *t)
{
    const bool ends = t->a.checkpoint && (t->stop || t->p.epoch == t->p.epochs);
    return ends || due(t) ? save(t, NULL) : FX_OK;
}

static bool has_line(const char *text, const char *line, size_t n)
{
    bool found = false;
    while (*text && !found) {
        const size_t m = strcspn(text, "\n");
        found = m == n && strncmp(text, line, n) == 0;
        text += m + (text[m] == '\n');
    }
    return found;
}

/* Reports the first line in which two texts differ. If only one text contains the line, names this
 * line alone. */
static fx_status compare_settings(const char *path, const char *then, const char *now)
{
    while (strcmp(then, now) != 0) {
        const size_t n = strcspn(then, "\n"), m = strcspn(now, "\n");
        const int a = n < SHOWN ? (int)n : SHOWN, b = m < SHOWN ? (int)m : SHOWN;
        const bool same = n == m && strncmp(then, now, n) == 0;
        if (!same && has_line(now, then, n))
            return fx_fail(FX_STATUS_ARGUMENT, OP,
                           "%s was written without \"%.*s\", but this training has it", path, b,
                           now);
        if (!same && has_line(then, now, m))
            return fx_fail(FX_STATUS_ARGUMENT, OP,
                           "%s was written with \"%.*s\", but this training does not have it", path,
                           a, then);
        if (!same)
            return fx_fail(FX_STATUS_ARGUMENT, OP,
                           "%s was written with \"%.*s\", but this training has \"%.*s\"", path, a,
                           then, b, now);
        then += n + (then[n] == '\n');
        now += m + (now[m] == '\n');
    }
    return FX_OK;
}

static fx_status check_settings(const training *t, void *metrics)
{
    if (!t->a.settings || !has(metrics, SETTINGS))
        return FX_OK;
    fx_array *kept = fx_child_named(metrics, SETTINGS);
    const int64_t n = fx_length(kept);
    char *text = fxi_calloc((size_t)n + 1, 1);
    if (!text)
        return fx_fail(FX_STATUS_MEMORY, OP, "out of memory for the settings");
    fx_status status = fx_read_as(kept, FX_DTYPE_U8, text, n);
    if (status == FX_OK)
        status = compare_settings(t->a.checkpoint, text, t->a.settings);
    fxi_free(text);
    return status;
}

/* A file of the first version has no best epoch: it is 0, unknown. */
static fx_status read_own(const training *t, void *metrics, double out[NMETRICS])
{
    fx_array *numbers = metrics ? fx_child_named(metrics, "train") : NULL;
    const int64_t n = numbers && fx_eltype(numbers) == FX_DTYPE_F64 ? fx_length(numbers) : 0;
    out[BEST_EPOCH] = 0;
    if (n != BEST_EPOCH && n != NMETRICS)
        return fx_fail(FX_STATUS_FORMAT, OP, "%s: the checkpoint was not written by fx_train",
                       t->a.checkpoint);
    return fx_read_into(numbers, out, (size_t)n * sizeof *out);
}

static fx_status resume(training *t)
{
    FXI_SCOPE;
    if (!t->a.checkpoint || !fx_checkpoint_exists(t->a.checkpoint))
        return FX_OK;
    fx_checkpoint_args c = {.fxi_size = sizeof c,
                            .model = t->a.model,
                            .state = fxi_together_saved(&t->together, &t->a),
                            .data = t->a.data};
    double own[NMETRICS];
    fx_status status =
        fx_is_error(c.state) ? fx_array_status(c.state) : fx_checkpoint_load(t->a.checkpoint, &c);
    if (status == FX_OK)
        status = fxi_together_loaded(&t->together, &t->a, c.state);
    if (status != FX_OK)
        return status;
    status = read_own(t, c.metrics, own);
    if (status == FX_OK)
        status = check_settings(t, c.metrics);
    if (status != FX_OK)
        return status;
    t->p.epoch = c.epoch;
    t->p.step = t->saved = c.step;
    t->loss_sum = own[LOSS_SUM];
    t->p.best = own[BEST];
    t->p.best_epoch = (int64_t)own[BEST_EPOCH];
    t->waited = (int64_t)own[WAITED];
    t->p.batch = (int64_t)own[BATCH];
    t->resumed = t->p.batch > 0;
    t->p.mean_loss = t->resumed ? t->loss_sum / (double)t->p.batch : NAN;
    t->stop = out_of_patience(t);
    if (!t->a.keep_best)
        return FX_OK;
    if (has(c.metrics, "best.0"))
        return keep_from(t, c.metrics);
    t->p.best = INFINITY; /* the best model is not in the file: start the search again */
    t->p.best_epoch = t->waited = 0;
    return FX_OK;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Called if the loss is finite but the gradient is not. An error if .clip_norm is set and the loss
 * is not scaled, or if a rule has recorded an error (`refused`); otherwise a MixedPrecision has
 * skipped the update. */
static fx_status judge_gradient(const training *t, bool refused)
{
    if (t->a.clip_norm > 0 && fx_loss_scale(t->a.state) == 0)
        return fx_fail(FX_STATUS_NONFINITE, OP,
                       "the gradient is not finite on batch %lld of epoch %lld",
                       (long long)t->p.batch, (long long)t->p.epoch);
    return refused ? FX_STATUS_NONFINITE : FX_OK;
}

static fx_status set_rate(const training *t, int64_t k)
{
    return fx_adjust_eta(t->a.state, fx_schedule_at(t->a.schedule, k));
}

static fx_status run_batch(training *t, const fx_batch *batch)
{
    fx_progress *p = &t->p;
    bool stop = false, refused = false;
    p->batch = batch->index + 1;
    fx_status status = t->a.schedule && t->a.schedule_steps ? set_rate(t, p->step) : FX_OK;
    if (status == FX_OK)
        status = train_step(t, batch, &p->loss, &stop, &refused);
    if (status == FX_STATUS_NONFINITE && isfinite(p->loss))
        status = judge_gradient(t, refused);
    else if (status == FX_STATUS_NONFINITE)
        fx_fail(status, OP, "loss is %s on batch %lld of epoch %lld",
                isnan(p->loss) ? "NaN"
                : p->loss > 0  ? "Inf"
                               : "-Inf",
                (long long)p->batch, (long long)p->epoch);
    if (status != FX_OK)
        return status;
    t->loss_sum += p->loss;
    p->mean_loss = t->loss_sum / (double)p->batch;
    p->step++;
    p->seconds = fxi_clock() - t->began;
    fxi_meter_batch(&t->meter, p);
    fx_run_log_step(t->log, p->step, p->epoch, p->loss, p->seconds);
    t->stop = fxi_together_stops(&t->together, call_back(t, t->a.on_batch), stop);
    return save_in_epoch(t, batch);
}

/* If the pass ends before the loader's length, the loader has recorded an error. */
static fx_status run_batches(training *t)
{
    fx_status status = FX_OK;
    int64_t done = t->p.batch;
    fx_batch batch = {0};
    while (status == FX_OK && !t->stop && done < t->p.batches && fx_next(t->a.data, &batch)) {
        status = run_batch(t, &batch);
        done++;
    }
    fx_batch_end(&batch);
    if (status == FX_OK && !t->stop && done < t->p.batches)
        status = fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_STATE;
    return status;
}

/* NaN is not an improvement, nor is a value equal to the best. */
static fx_status judge(training *t)
{
    FXI_OPEN_AT(FXI_SCOPE_INHERIT, NULL, 0);
    double value = t->a.metric ? t->a.metric(t->a.model, t->a.user) : t->p.mean_loss;
    const fx_status status = fxi_together_number(&t->together, &value);
    if (status != FX_OK)
        return status;
    const bool better = value < t->p.best;
    t->metric = t->a.metric ? value : NAN;
    t->p.best = better ? value : t->p.best;
    t->p.best_epoch = better ? t->p.epoch : t->p.best_epoch;
    t->waited = better ? 0 : t->waited + 1;
    t->stop = t->stop || out_of_patience(t);
    return better && t->a.keep_best ? keep(t) : FX_OK;
}

static void show_epoch(training *t, bool due)
{
    char note[160] = "";
    t->unshown = !due && t->meter.out;
    if (due && t->a.epoch_note)
        t->a.epoch_note(&t->p, note, sizeof note);
    fxi_together_note(&t->together, note, sizeof note);
    if (due)
        fxi_meter_epoch(&t->meter, &t->p, note);
    t->meter.epoch_began = t->p.seconds;
}

static fx_status run_epoch(training *t)
{
    if (!t->resumed) {
        t->loss_sum = 0;
        t->p.batch = 0;
        t->p.mean_loss = NAN;
    }
    t->resumed = t->unshown = false;
    fx_status status = t->a.schedule && !t->a.schedule_steps ? set_rate(t, t->p.epoch - 1) : FX_OK;
    if (status == FX_OK)
        status = run_batches(t);
    if (status != FX_OK || t->stop)
        return status;
    t->p.seconds = fxi_clock() - t->began;
    t->stop = call_back(t, t->a.on_epoch);
    status = fxi_together_any(&t->together, &t->stop);
    if (status != FX_OK)
        return status;
    show_epoch(t, fxi_meter_due(&t->meter, &t->p));
    if (t->a.patience != FX_NEVER || t->a.keep_best)
        status = judge(t);
    fxi_train_log_epoch(t->log, &t->p, t->metric);
    return status == FX_OK ? save_after_epoch(t) : status;
}

/* ---- the log --------------------------------------------------------------------------------- */

static fx_status open_log(training *t)
{
    t->log = t->a.log ? fxi_train_log_open(t->a.log, &t->p) : NULL;
    return t->a.log && !t->log ? fx_error_status() : FX_OK;
}

static const char *why_it_ended(const training *t)
{
    const bool whole = t->p.epoch == t->p.epochs && t->p.batch == t->p.batches;
    if (whole || !t->stop)
        return "finished";
    return out_of_patience(t) ? "patience" : "interrupted";
}

static fx_status close_log(training *t, fx_status status)
{
    if (!t->log)
        return status;
    const fx_status logged = fxi_train_log_close(t->log, &t->p, why_it_ended(t), status);
    return status != FX_OK ? status : logged;
}

/* ---- training -------------------------------------------------------------------------------- */

fx_status fxi_train(const fx_train_args *given)
{
    FXI_TAKE_OPTIONS(fx_train_args, FXI_TRAIN_ARGS, a, OP, given);
    training t = {.began = fxi_clock(), .metric = NAN, .a = a, .together = {.d = a.dist}};
    fx_status status = a_ok ? check_args(&a) : FX_STATUS_ARGUMENT;
    if (status == FX_OK)
        status = fxi_together_begin(&t.together, &t.a);
    if (status != FX_OK)
        return fxi_together_end(&t.together, status);
    t.p = (fx_progress){.epochs = t.a.epochs,
                        .batches = fx_loader_length(t.a.data),
                        .loss = NAN,
                        .best = INFINITY,
                        .model = t.a.model,
                        .state = t.a.state,
                        .user = t.a.user};
    fxi_meter_open(&t.meter, !t.a.progress ? NULL : t.a.progress_to ? t.a.progress_to : stderr);
    status = resume(&t);
    if (status == FX_OK)
        status = fxi_together_start(&t.together, &t.a, &t.p);
    t.meter.steps_before = t.p.step;
    if (status == FX_OK)
        status = open_log(&t); /* last: if the checkpoint is refused, the log stays unchanged */
    if (status == FX_OK) {
        t.stop = call_back(&t, t.a.on_start) || t.stop;
        status = fxi_together_any(&t.together, &t.stop);
    }
    while (status == FX_OK && !t.stop && t.p.epoch < t.p.epochs) {
        t.p.epoch++;
        status = run_epoch(&t);
    }
    if (t.unshown)
        show_epoch(&t, true);
    fxi_meter_close(&t.meter);
    if (status == FX_OK)
        status = fxi_together_settle(&t.together, &t.a);
    if (status == FX_OK && t.kept)
        status = fx_loadmodel(t.a.model, t.kept);
    fx_release(t.kept);
    return close_log(&t, fxi_together_end(&t.together, status));
}
