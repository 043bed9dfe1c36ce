/* command_train.c: cflux train: trains a model given in Flux's notation on data from files.
 *
 * All input is checked before the first training step and before a file is written: options, data,
 * the model's sizes, output paths. fx_train does the training; this file prepares it, reports on
 * it, and writes the results.
 */
#include "class_scores.h"
#include "clean_text.h"
#include "data_sum.h"
#include "failure.h"
#include "initial_weights.h"
#include <cflux/json_out.h>
#include "model_check.h"
#include "options.h"
#include "output_paths.h"
#include <cflux/report.h>
#include "run_record.h"
#include "system.h"
#include "trained.h"
#include "training_data.h"
#include "tree_text.h"
#include "write_report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static data_options data = {.normalise = "auto", .missing = "error"};
static const char *model_text, *loss_text, *optimiser_text = "Adam()", *device_text = "cpu";
static const char *save_path, *checkpoint_path, *log_path, *report_path;
static const char *schedule_text, *init_path;
static double clip_norm;
static bool schedule_steps;
static int64_t frozen_layers;
static int64_t epochs = 10, batchsize = 32, seed, patience = FX_NEVER, checkpoint_every;
static bool quiet, as_json, drop_partial;

static option_row options[] = {
    OPTION_DATA(data.request,
                "The training data: a CSV file (.gz or not), an npz or npy file, an IDX file, or a "
                "folder of IDX files such as MNIST's; - reads CSV from standard input"),
    DATA_OPTIONS(data.request),
    {"model", 'm', OPTION_TEXT, &model_text, "NOTATION",
     "The model in Flux's notation: 'Chain(Dense(4 => 8, relu), Dense(8 => 3))'", 0, 0},
    {"init", 0, OPTION_TEXT, &init_path, "FILE",
     "Start from the weights of a saved model: copies each array that has the same path and sizes "
     "in both models, and scales the inputs as that model does (default: random weights)",
     0, 0},
    {"freeze", 0, OPTION_INTEGER, &frozen_layers, "N",
     "Do not train the first N layers of the Chain (default: 0)", 0, 1e6},
    {"loss", 'l', OPTION_TEXT, &loss_text, "NAME",
     "The loss, by Flux's name (default: logitcrossentropy for classes, mse for numbers)", 0, 0},
    {"classes", 0, OPTION_FLAG, &data.classes, NULL,
     "The target's values are classes (default: for text, and with a loss for classes; without "
     "--loss also for integers with at most two distinct values, or ten or more occurrences "
     "per value on average)",
     0, 0},
    {"regression", 0, OPTION_FLAG, &data.numbers, NULL,
     "The target's values are numbers, even if they look like classes", 0, 0},
    {"class-weights", 0, OPTION_TEXT, &data.weights, "balanced|NUMBERS",
     "The factor of each class in the loss of training and validation: a number for each class, "
     "such as 1,5, or balanced: all classes have the same total weight (default: 1 for each). "
     "cflux "
     "eval prints the loss without factors",
     0, 0},
    {"optimiser", 'o', OPTION_TEXT, &optimiser_text, "RULE",
     "The optimiser in Flux's notation (default: Adam())", 0, 0},
    {"schedule", 0, OPTION_TEXT, &schedule_text, "SCHEDULE",
     "The learning rate of each epoch, by ParameterSchedulers' names: 'CosAnneal(0.01, 0, 10)', "
     "'Warmup(0, 3, Exp(0.01, 0.9))' (default: that of the optimiser)",
     0, 0},
    {"schedule-steps", 0, OPTION_FLAG, &schedule_steps, NULL,
     "The schedule counts training steps instead of epochs", 0, 0},
    {"clip-norm", 0, OPTION_NUMBER, &clip_norm, "NORM",
     "Scale the gradient of the whole model down to this norm (default: no limit)", 0, 1e30},
    {"epochs", 'e', OPTION_INTEGER, &epochs, "N", "Number of passes over the data (default: 10)", 1,
     1e12},
    {"batchsize", 'b', OPTION_INTEGER, &batchsize, "N",
     "Observations in a training step (default: 32)", 1, 1e12},
    {"drop-partial", 0, OPTION_FLAG, &drop_partial, NULL,
     "Leave out the last batch of an epoch if it is smaller", 0, 0},
    {"validation", 'v', OPTION_TEXT, &data.validation, "SHARE|FILE|FOLDER",
     "Data for validation, not used for training: a share of the data (of each class) such as 0.2, "
     "drawn at random with --seed, or other files; in a folder of IDX files, the test part "
     "(default: none)",
     0, 0},
    {"normalise", 0, OPTION_CHOICE, &data.normalise, "auto|features|channels|none",
     "Shift and scale the inputs to mean 0 and standard deviation 1 over the training data: each "
     "feature, or each channel of images. The mean and deviation are saved with the model. auto: "
     "channels if an observation has three sizes, else features (default: auto)",
     0, 0},
    {"missing", 0, OPTION_CHOICE, &data.missing, "error|mean|median|drop",
     "What to do with missing values: refuse them, replace them by the mean or the median of the "
     "feature in the training data (also in eval and predict), or leave the observation out. "
     "Observations without a target are refused with error, else left out (default: error)",
     0, 0},
    OPTION_DEVICE(&device_text),
    {"seed", 's', OPTION_INTEGER, &seed, "N",
     "Seed for the initial weights, the order of the data and the validation share (default: 0). "
     "On one machine the same seed gives the same result, bit for bit",
     0, 9e15},
    {"save", 'S', OPTION_TEXT, &save_path, "FILE",
     "Save the model to FILE: .bson (for Flux) or .safetensors", 0, 0},
    {"patience", 'p', OPTION_INTEGER, &patience, "N",
     "Stop when the validation loss (the training loss if there is no --validation) has not "
     "improved for N epochs, and keep the model of the best epoch (default: never)",
     0, 1e12},
    {"checkpoint", 'c', OPTION_TEXT, &checkpoint_path, "FILE",
     "Save the state of training to FILE after every epoch and when stopped. If FILE exists, "
     "training resumes from it and gives the same result as without the interruption",
     0, 0},
    {"checkpoint-every", 0, OPTION_INTEGER, &checkpoint_every, "STEPS",
     "Save the checkpoint every STEPS training steps instead of after every epoch", 1, 1e12},
    {"log", 'L', OPTION_TEXT, &log_path, "FILE",
     "Write a log, as lines of JSON; a resumed run appends to it", 0, 0},
    {"report", 'r', OPTION_TEXT, &report_path, "FILE",
     "Write an HTML page about the run when it ends: curves, confusion matrix, samples, layers", 0,
     0},
    {"quiet", 'q', OPTION_FLAG, &quiet, NULL, "Do not show progress", 0, 0},
    OPTION_JSON(&as_json),
    OPTIONS_END};

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct run {
    problem p;
    training_data d;
    trained t;
    initial_model init;
    void *state;
    char *settings; /* see put_settings */
    fx_run_log *log;
    scores validation; /* after the final epoch */
    int64_t step, epoch, best_epoch;
    double loss, seconds;
    bool started;
    int status; /* exit status of a failure in a callback */
} run;

static int need(const char *value, const char *name)
{
    return value ? EXIT_FINE : fail(EXIT_BAD_INPUT, "--%s is missing", name);
}

/* ---- the model ------------------------------------------------------------------------------- */

static void describe_trained(run *r)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(r->d.data.x) - 1;
    for (int i = 0; i < n; i++)
        sizes[i] = fx_size(r->d.data.x, i);
    r->t.kind = r->d.data.kind;
    r->t.target = r->d.data.target;
    r->t.columns = r->d.data.columns;
    r->t.shape = fx_from(FX_DTYPE_I64, sizes, n);
}

/* BatchNorm needs more than one observation in a batch, and the final batch of an epoch may have
 * only one. Checked now, because otherwise the run would fail at the end of its first epoch. */
static int check_last_batch(const run *r)
{
    FX_STEP;
    const bool alone = r->d.ntrain % batchsize == 1 || batchsize == 1 || r->d.ntrain == 1;
    if (!alone || (drop_partial && batchsize > 1))
        return EXIT_FINE;
    void *probe = fx_parse_model(model_text); /* a copy: a training step changes it */
    if (!fx_is_error(fx_call(probe, fx_slice(r->d.x, fx_ndims(r->d.x) - 1, 0, 1))))
        return EXIT_FINE;
    const fx_error e = fx_error_take();
    return fail(EXIT_BAD_INPUT,
                "the last batch of an epoch has one observation: %s; --drop-partial "
                "leaves it out",
                failure_sentence(&e));
}

static int prepare_model(run *r)
{
    void *model = fx_parse_model(model_text);
    if (fx_is_error(model))
        return fail_library(EXIT_BAD_INPUT);
    int status = model_check(&r->p, model, r->d.data.path, r->d.x, r->d.y);
    if (status == EXIT_FINE) {
        model_check_ending(&r->p, model);
        status = check_last_batch(r);
    }
    if (status == EXIT_FINE && init_path)
        status = initial_copy(&r->init, model, !quiet, &model);
    if (status == EXIT_FINE && init_path)
        initial_check_columns(&r->init, r->d.data.columns);
    r->t.model = model;
    describe_trained(r);
    if (status == EXIT_FINE && save_path)
        status = trained_try(save_path, &r->t, &r->p);
    if (status == EXIT_FINE) {
        r->t.model = fx_to(r->p.device, model);
        r->state = fx_setup(fx_parse_optimiser(optimiser_text), r->t.model);
        if (schedule_text) /* refuses a negative rate, or a rule without one, before training */
            fx_adjust_eta(r->state, fx_schedule_at(fx_parse_schedule(schedule_text), 0));
    }
    if (status == EXIT_FINE && frozen_layers > 0)
        status = freeze_layers(r->state, model, frozen_layers);
    return status == EXIT_FINE && fx_error_status() != FX_OK ? fail_library(EXIT_BAD_INPUT)
                                                             : status;
}

/* ---- settings that a checkpoint must match --------------------------------------------------- */

enum { CLASSES_TEXT = 300 };

static void describe_target(const problem *p, char *text, size_t size)
{
    char first[100], last[100];
    snprintf(text, size, "numbers");
    if (!p->classes)
        return;
    clean_text(class_name(p, 0), first, sizeof first);
    clean_text(class_name(p, p->nclasses - 1), last, sizeof last);
    snprintf(text, size, "%lld classes, from %s to %s", (long long)p->nclasses, first, last);
}

/* Prints an option as the library prints its value, so that spaces and explicit defaults make no
 * difference. */
static void put_notation(FILE *to, const char *option, void *object)
{
    char *text = text_of(object, fx_summary);
    fprintf(to, "%s %s\n", option, text ? text : "");
    free(text);
}

/* The name of the target column or entry. A target file has no name, so that it may be renamed. */
static const char *name_of_target(const dataset *d)
{
    const bool named = strcmp(d->kind, "csv") == 0 || strcmp(d->kind, "npz") == 0;
    return named && d->target ? d->target : "";
}

/* Prints all options that affect the bits of a training step, one per line. */
static void put_settings(const run *r, FILE *to)
{
    char sizes[100], target[CLASSES_TEXT];
    double share;
    describe_sizes(r->d.data.x, true, sizes, sizeof sizes);
    describe_target(&r->p, target, sizeof target);
    fprintf(to, "--data of %lld observations of %s, CRC-32 %08x\n", (long long)r->d.data.n, sizes,
            data_sum(&r->d.data));
    fprintf(to, "--target %s: %s\n", name_of_target(&r->d.data), target);
    if (data.weights)
        fprintf(to, "--class-weights %s\n", data.weights);
    fprintf(to, "--loss %s\n--seed %lld\n", r->p.loss, (long long)seed);
    if (training_share(&data, &share))
        fprintf(to, "--validation %.9g\n", share);
    else
        fprintf(to, "--validation of other data, %lld observations, CRC-32 %08x\n",
                (long long)r->d.other.n, data_sum(&r->d.other));
    fprintf(to, "--batchsize %lld\n%s\n--normalise %s\n", (long long)batchsize,
            drop_partial ? "--drop-partial" : "no --drop-partial", data.normalise);
    if (strcmp(data.missing, "error") != 0)
        fprintf(to, "--missing %s\n", data.missing);
    put_notation(to, "--optimiser", fx_parse_optimiser(optimiser_text));
    if (schedule_text) {
        put_notation(to, "--schedule", fx_parse_schedule(schedule_text));
        fprintf(to, "%s--schedule-steps\n", schedule_steps ? "" : "no ");
    }
    if (frozen_layers > 0)
        fprintf(to, "--freeze %lld\n", (long long)frozen_layers);
    if (init_path)
        fprintf(to, "--init of weights, CRC-32 %08x\n", model_sum(r->t.model));
    if (clip_norm > 0)
        fprintf(to, "--clip-norm %.9g\n", clip_norm);
    put_notation(to, "--model", r->t.model);
}

static int prepare_settings(run *r)
{
    size_t n;
    FILE *to = open_memstream(&r->settings, &n);
    if (to)
        put_settings(r, to);
    if (!to || fclose(to) != 0)
        return fail(EXIT_FAILED, "out of memory for the settings");
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int check_files(void)
{
    const output_path outputs[] = {{save_path, "--save"},
                                   {checkpoint_path, "--checkpoint"},
                                   {log_path, "--log"},
                                   {report_path, "--report"}};
    int status = check_outputs(outputs, 4, &data.validation, 1);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, &init_path, 1);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, data.request.data.items, data.request.data.n);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, data.request.targets.items, data.request.targets.n);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, (const char *const *)data.request.operands,
                               data.request.more - data.request.data.n + 1);
    if (status == EXIT_FINE && checkpoint_every && !checkpoint_path)
        status = fail(EXIT_BAD_INPUT, "--checkpoint-every needs --checkpoint FILE");
    return status;
}

static int open_log(run *r)
{
    const bool resumes = checkpoint_path && fx_checkpoint_exists(checkpoint_path);
    if (!log_path && !report_path)
        return EXIT_FINE;
    r->log = fx_run_log_open(log_path, resumes);
    if (r->log)
        return EXIT_FINE;
    const fx_error e = fx_error_take();
    return fail(EXIT_BAD_INPUT, "--log %s", failure_sentence(&e));
}

/* ---- while it runs --------------------------------------------------------------------------- */

static fx_array *batch_loss(void *model, const fx_batch *b, void *user)
{
    const run *r = user;
    return problem_batch_loss(&r->p, model, b->x, b->y);
}

static const char **class_names(const problem *p)
{
    const char **names = p->classes ? calloc((size_t)p->nclasses + 1, sizeof *names) : NULL;
    for (int64_t i = 0; names && i < p->nclasses; i++)
        names[i] = class_name(p, i);
    return names;
}

static fx_flow on_start(const fx_progress *now)
{
    run *r = now->user;
    r->started = true;
    r->step = now->step;
    r->epoch = now->epoch;
    r->best_epoch = now->best_epoch;
    r->loss = NAN; /* no training step yet */
    if (now->step > 0 && !quiet)
        fprintf(stderr, "resuming from %s at epoch %lld, step %lld\n", checkpoint_path,
                (long long)now->epoch + 1, (long long)now->step);
    r->status = open_log(r); /* only now: a wrong checkpoint must leave the log unchanged */
    if (!r->log)
        return r->status == EXIT_FINE ? FX_FLOW_CONTINUE : FX_FLOW_STOP;
    const char **names = class_names(&r->p);
    fx_run_log_start(r->log, .model = model_text, .loss = r->p.loss, .optimiser = optimiser_text,
                     .device = fx_device_name(r->p.device), .data_path = r->d.data.path,
                     .data_kind = r->d.data.kind, .target = r->d.data.target,
                     .observations = r->d.ntrain + r->d.nvalidation, .train = r->d.ntrain,
                     .validation = r->d.nvalidation, .classes = names, .nclasses = r->p.nclasses,
                     .seed = seed, .epochs = epochs, .batchsize = batchsize,
                     .parameters = fx_parameter_count(now->model), .resumed_at_step = now->step);
    free(names);
    return FX_FLOW_CONTINUE;
}

static fx_flow on_batch(const fx_progress *now)
{
    run *r = now->user;
    r->step = now->step;
    r->seconds = now->seconds;
    r->loss = now->mean_loss;
    fx_run_log_step(r->log, now->step, now->epoch, now->loss, now->seconds);
    return interrupt_caught() ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

static fx_flow on_epoch(const fx_progress *now)
{
    run *r = now->user;
    r->epoch = now->epoch;
    r->best_epoch = now->best_epoch;
    r->loss = now->mean_loss;
    if (r->d.vx)
        r->status = problem_scores(&r->p, now->model, r->d.vx, r->d.vy, &r->validation);
    const bool measured = r->d.vx != NULL;
    fx_run_log_epoch(r->log, .epoch = now->epoch, .step = now->step, .loss = now->mean_loss,
                     .validation_loss = measured ? r->validation.loss : NAN,
                     .accuracy = measured && r->p.classes ? accuracy_of(&r->validation) : NAN,
                     .seconds = now->seconds);
    return r->status != EXIT_FINE ? FX_FLOW_STOP : FX_FLOW_CONTINUE;
}

static double validation_loss(void *model, void *user)
{
    const run *r = user;
    (void)model;
    return r->validation.loss;
}

static void epoch_note(const fx_progress *now, char *text, size_t capacity)
{
    const run *r = now->user;
    if (!r->d.vx)
        return;
    const int n = snprintf(text, capacity, "validation %.4g", r->validation.loss);
    if (r->p.classes && n > 0 && (size_t)n < capacity)
        snprintf(text + n, capacity - (size_t)n, "  accuracy %.2f %%",
                 100 * accuracy_of(&r->validation));
}

/* ---- before and after ------------------------------------------------------------------------ */

static void announce(const run *r)
{
    char sizes[100], classes[CLASSES_TEXT];
    if (quiet)
        return;
    describe_sizes(r->d.data.x, true, sizes, sizeof sizes);
    fprintf(stderr, "%s: %lld observations of %s", r->d.data.path, (long long)r->d.ntrain, sizes);
    if (r->d.vx)
        fprintf(stderr, ", %lld for validation", (long long)r->d.nvalidation);
    describe_target(&r->p, classes, sizeof classes);
    fprintf(stderr, "; %s; loss %s\n", classes, r->p.loss);
    fx_show_to(stderr, r->t.model);
}

static fx_status train(run *r)
{
    fx_loader *batches = fx_dataloader(
        fx_tuple(r->d.x, r->d.y), .batchsize = batchsize < r->d.ntrain ? batchsize : r->d.ntrain,
        .shuffle = true, .partial = !drop_partial, .device = r->p.device);
    interrupt_begin();
    const fx_status status = fx_train(
        batch_loss, r->t.model, batches, r->state, .epochs = epochs, .progress = !quiet,
        .on_start = on_start, .on_batch = on_batch, .on_epoch = on_epoch, .epoch_note = epoch_note,
        .patience = patience, .keep_best = patience != FX_NEVER,
        .metric = r->d.vx ? validation_loss : NULL, .user = r, .checkpoint = checkpoint_path,
        .checkpoint_every = checkpoint_every, .settings = r->settings,
        .schedule = schedule_text ? fx_parse_schedule(schedule_text) : NULL,
        .schedule_steps = schedule_steps, .clip_norm = clip_norm);
    return status;
}

static const char *reason(const run *r)
{
    if (interrupt_caught())
        return "interrupted";
    return r->epoch < epochs ? "patience" : "finished";
}

static void log_end(run *r, const char *why, const char *message, const scores *last)
{
    FX_SCOPE;
    run_record record = {.nsamples = 0};
    fx_array *x = r->d.vx ? r->d.vx : r->d.x, *batch = NULL;
    if (!r->log)
        return;
    const char **names = last->n > 0 ? class_names(&r->p) : NULL;
    if (last->n > 0) {
        batch = fx_to(r->p.device,
                      fx_slice(x, fx_ndims(x) - 1, 0, last->n < batchsize ? last->n : batchsize));
        record_fill(&record, &r->p, r->t.model, x, r->d.vx ? r->d.vy : r->d.y);
    }
    fx_run_log_end(r->log, .why = why, .message = message, .step = r->step, .seconds = r->seconds,
                   .confusion = last->counts, .classes = names, .nclasses = r->p.nclasses,
                   .samples = record.samples, .nsamples = record.nsamples, .model = r->t.model,
                   .batch = batch);
    record_free(&record);
    free(names);
}

static void print_json(const run *r, const char *why, const scores *last)
{
    fx_json j = {.to = stdout};
    fx_json_open(&j, NULL, '{');
    fx_json_text(&j, "why", why);
    fx_json_integer(&j, "epochs", r->epoch);
    fx_json_integer(&j, "steps", r->step);
    fx_json_number(&j, "seconds", r->seconds);
    fx_json_number(&j, "loss", r->loss);
    if (last->n > 0) {
        fx_json_text(&j, "measured_on", r->d.vx ? "validation" : "training");
        fx_json_integer(&j, "observations", last->n);
        fx_json_number(&j, "measured_loss", last->loss);
    }
    if (last->n > 0 && r->p.classes)
        fx_json_number(&j, "accuracy", accuracy_of(last));
    if (last->n > 0 && r->p.classes)
        fx_json_number(&j, "mean_f1", mean_f1(&r->p, last));
    if (last->n > 0 && !r->p.classes) {
        fx_json_number(&j, "mae", last->numbers.mae);
        fx_json_number(&j, "r2", last->numbers.r2);
    }
    fx_json_text(&j, "saved", save_path);
    fx_json_text(&j, "report", report_path);
    fx_json_end(&j);
}

static void print_result(const run *r, const char *why, const scores *last)
{
    if (as_json) {
        print_json(r, why, last);
        return;
    }
    const bool early = strcmp(why, "patience") == 0;
    printf("%s %s epoch %lld, step %lld, %.2f s", early ? "stopped early" : why,
           early ? "at" : "after", (long long)r->epoch, (long long)r->step, r->seconds);
    if (early && r->best_epoch > 0)
        printf("; best epoch %lld", (long long)r->best_epoch);
    printf("\n");
    if (last->n > 0)
        printf("%s: loss %.6g", r->d.vx ? "validation" : "training", last->loss);
    if (last->n > 0 && r->p.classes)
        printf(", accuracy %.2f %% (%lld of %lld), mean F1 %.4f", 100 * accuracy_of(last),
               (long long)last->right, (long long)last->n, mean_f1(&r->p, last));
    if (last->n > 0 && !r->p.classes)
        printf(", MAE %.6g, R² %.6g", last->numbers.mae, last->numbers.r2);
    printf(last->n > 0 ? "\n" : "");
    if (save_path)
        printf("saved %s\n", save_path);
    if (report_path)
        printf("report %s\n", report_path);
}

static int save_model(run *r)
{
    if (!save_path || trained_save(save_path, &r->t, &r->p) == FX_OK)
        return EXIT_FINE;
    return fail_library(EXIT_FAILED);
}

/* Reports a failed training. Before the first training step the input is at fault. A full disk
 * still allows saving the model, which may be on another one. */
static int failed(run *r, fx_status status)
{
    const fx_error e = fx_error_take();
    const scores none = {.n = 0};
    log_end(r, "error", failure_sentence(&e), &none);
    if (!r->started && checkpoint_path) /* the checkpoint is loaded before the start */
        return fail(EXIT_BAD_INPUT,
                    "--checkpoint %s belongs to another run: %s; use the same settings, or "
                    "remove %s and %s.1 to start over",
                    checkpoint_path, failure_sentence(&e), checkpoint_path, checkpoint_path);
    fail(EXIT_FAILED, "%s", failure_sentence(&e));
    if (status == FX_STATUS_IO && save_model(r) == EXIT_FINE && save_path)
        fprintf(stderr, "the current model was saved to %s\n", save_path);
    return EXIT_FAILED;
}

static int finish(run *r)
{
    const int signal = interrupt_caught();
    const scores none = {.n = 0};
    if (r->status != EXIT_FINE) {
        log_end(r, "error", NULL, &none);
        return r->status;
    }
    const char *why = reason(r);
    scores last = {.n = 0};
    int status = save_model(r);
    if (status == EXIT_FINE && !signal) {
        last.counts =
            r->p.classes ? calloc((size_t)(r->p.nclasses * r->p.nclasses), sizeof(int64_t)) : NULL;
        status = problem_scores(&r->p, r->t.model, r->d.vx ? r->d.vx : r->d.x,
                                r->d.vx ? r->d.vy : r->d.y, &last);
    }
    log_end(r, status == EXIT_FINE ? why : "error", NULL, &last);
    if (status == EXIT_FINE)
        print_result(r, why, &last);
    if (status == EXIT_FINE)
        warn_of_unpredicted(&r->p, &last);
    free(last.counts);
    return status != EXIT_FINE ? status : signal ? 128 + signal : EXIT_FINE;
}

static int prepare(run *r)
{
    int status = need(data.request.path, "data");
    if (status == EXIT_FINE)
        status = need(model_text, "model");
    if (status == EXIT_FINE && data.classes && data.numbers)
        status = fail(EXIT_BAD_INPUT, "--classes and --regression exclude each other");
    if (status == EXIT_FINE)
        status = training_share_check(&data);
    if (status == EXIT_FINE)
        status = problem_loss(&r->p, loss_text);
    if (status != EXIT_FINE)
        return status;
    fx_parse_optimiser(optimiser_text);
    if (schedule_text)
        fx_parse_schedule(schedule_text);
    fx_parse_model(model_text); /* parsed again because the seed is set only now */
    r->p.device = fx_device_find(device_text);
    if (fx_error_status() != FX_OK)
        return fail_library(EXIT_BAD_INPUT);
    fx_seed((uint64_t)seed);
    status = check_files();
    if (status == EXIT_FINE && init_path)
        status = initial_load(init_path, &r->init);
    if (status == EXIT_FINE)
        status = training_data_prepare(&data, &r->p, &r->init, &r->d);
    if (status == EXIT_FINE)
        status = prepare_model(r);
    return status == EXIT_FINE && checkpoint_path ? prepare_settings(r) : status;
}

static int run_train(int n, char **operands)
{
    FX_SCOPE;
    static run r;
    dataset_inputs(&data.request, n, operands);
    int status = prepare(&r);
    if (status != EXIT_FINE)
        return status;
    announce(&r);
    const fx_status how = train(&r);
    status = how != FX_OK ? failed(&r, how) : finish(&r);
    interrupt_end();
    const fx_report_args log = {.fxi_size = sizeof log, .run = r.log};
    const int report = report_path && r.log ? write_report(log, report_path) : EXIT_FINE;
    const bool logged = fx_run_log_close(r.log) == FX_OK;
    fx_error_take(); /* the log has already sent a warning */
    free(r.settings);
    return status != EXIT_FINE ? status : logged ? report : EXIT_FAILED;
}

const command command_train = {
    .name = "train",
    .summary = "Train a model on a file",
    .operands = "[FILE]…",
    .most = -1,
    .about =
        "Trains a model to predict one column of a table from the other columns, or the labels of "
        "images. The saved model includes everything that predict needs: the scale of the inputs, "
        "and the names of columns and classes.\n"
        "The first SIGINT (Ctrl-C) or SIGTERM stops training after the current training step and "
        "saves the "
        "model, the checkpoint and the log. A second one stops it at once.",
    .options = options,
    .run = run_train,
};
