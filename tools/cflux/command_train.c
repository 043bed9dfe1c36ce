/* command_train.c: cflux train: trains a model given in Flux's notation on data from files.
 *
 * All input is checked before the first training step and before a file is written: options, data,
 * the model's sizes, output paths. fx_train does the training; this file prepares it, reports on
 * it, and writes the results.
 */
#include "class_scores.h"
#include "clean_text.h"
#include "dataset_text.h"
#include "failure.h"
#include "language.h"
#include "leaks.h"
#include "members.h"
#include "options.h"
#include "output_paths.h"
#include "layer_precision.h"
#include "rate_schedule.h"
#include "system.h"
#include "target_scale.h"
#include "train_run.h"
#include "write_report.h"
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static train_options o = {.data = {.normalise = "auto", .missing = "error"},
                          .optimiser = "Adam()",
                          .device = "cpu",
                          .precision = "f32",
                          .epochs = 10,
                          .batchsize = 32,
                          .patience = FX_NEVER};

static option_row options[] = {
    OPTIONS_HEADING("Data"),
    OPTION_DATA(
        o.data.request,
        "The training data: a CSV file (.gz or not), an npz or npy file, an IDX file, a text file "
        "(.gz or not) with \"__label__NAME text\" in each line, a folder "
        "that contains a folder of PNG or JPEG images for each class, or a folder of IDX files "
        "such as MNIST's. FILE can be -, which reads CSV from standard input"),
    DATA_OPTIONS(o.data.request),
    {"classes", 0, OPTION_FLAG, &o.data.classes, NULL,
     "The target's values are classes (default: if they are text, or if --loss is for classes; "
     "without --loss also if they are integers with at most two distinct values, or with ten or "
     "more occurrences per value on average)",
     0, 0},
    {"regression", 0, OPTION_FLAG, &o.data.numbers, NULL,
     "The target's values are numbers, even if they look like classes", 0, 0},
    {"missing", 0, OPTION_CHOICE, &o.data.missing, "error|mean|median|drop",
     "How to treat missing values. error: refuse them; mean, median: replace them by the mean or "
     "median of the feature in the training data, also in eval and predict; drop: leave out the "
     "observation, also in eval; predict then refuses it. An observation without a target: error "
     "refuses it too, the other choices leave it out (default: error)",
     0, 0},
    {"normalise", 0, OPTION_CHOICE, &o.data.normalise, "auto|features|channels|none",
     "Shift and scale the inputs to mean 0 and standard deviation 1 over the training data: each "
     "feature, or each channel of images. The mean and the standard deviation are saved with the "
     "model. auto: channels if an observation has three sizes, else features (default: auto)",
     0, 0},
    {"raw-targets", 0, OPTION_FLAG, &o.raw_targets, NULL,
     "Do not scale targets that are numbers. By default, with the losses mse, mae and huber_loss "
     "and a model that ends in a Dense layer with a bias and without an activation, training "
     "shifts and scales the targets to mean 0 and standard deviation 1, and shows the loss of the "
     "scaled targets; the trained model predicts in the units of the data",
     0, 0},
    {"augment", 0, OPTION_TEXT, &o.augment, "CHANGES",
     "Change the images of each training step at random, by a list such as "
     "flip,shift=2,noise=0.1. flip: mirror an image, left to right, with probability 0.5; shift: "
     "move it by up to this many pixels; noise: add normally distributed numbers with this "
     "standard "
     "deviation to the scaled inputs (default: no changes)",
     0, 0},
    OPTIONS_HEADING("Texts"),
    {"text", 0, OPTION_FLAG, &o.data.text, NULL,
     "Train a language model: the data is a text in UTF-8 (.gz or not), and the model learns to "
     "predict its next token. cflux generate continues texts with the saved model",
     0, 0},
    {"context", 0, OPTION_INTEGER, &o.data.context, "N",
     "With --text: the largest number of tokens from which the model predicts the next one; "
     "training divides the text into pieces of this length (default: 64)",
     1, 1e6},
    {"vocabulary", 0, OPTION_INTEGER, &o.data.vocabulary, "N",
     "For texts: learn at most N tokens (bytes and pieces of words) from the training files "
     "(default: "
     "8000, or with --text the 256 bytes)",
     1, 1e8},
    OPTIONS_HEADING("Model"),
    {"model", 'm', OPTION_TEXT, &o.model, "NOTATION",
     "The model in Flux's notation: 'Chain(Dense(4 => 8, relu), Dense(8 => 3))'. For texts it "
     "begins with EmbeddingBag (default for texts: an EmbeddingBag of 64 numbers and a Dense "
     "layer); a language model begins with Embedding (default: a GRU with 256 outputs)",
     0, 0},
    {"init", 0, OPTION_TEXT, &o.init, "FILE",
     "Start from the weights of a saved model: copies each array that has the same path and sizes "
     "in both models, and with --normalise auto scales the inputs as that model does (default: "
     "random weights)",
     0, 0},
    {"freeze", 0, OPTION_INTEGER, &o.frozen_layers, "N",
     "Do not train the first N layers of the Chain (default: 0)", 0, 1e6},
    OPTIONS_HEADING("Training"),
    {"loss", 'l', OPTION_TEXT, &o.loss, "NAME",
     "The loss, by Flux's name (default: logitcrossentropy for classes, mse for numbers)", 0, 0},
    {"class-weights", 0, OPTION_TEXT, &o.data.weights, "balanced|sqrt|NUMBERS",
     "The factor of each class in the loss of training and validation: a number for each class, "
     "such as 1,5; or balanced, which gives all classes the same total weight and finds most "
     "observations of a rare class; or sqrt, the square roots of these factors, with fewer false "
     "alarms (default: 1 for each class). cflux eval prints the loss without factors",
     0, 0},
    {"optimiser", 'o', OPTION_TEXT, &o.optimiser, "RULE",
     "The optimiser in Flux's notation (default: Adam())", 0, 0},
    {"schedule", 0, OPTION_TEXT, &o.schedule, "SCHEDULE",
     "The learning rate of each epoch, by ParameterSchedulers' names: 'CosAnneal(0.01, 0, 10)', "
     "'Warmup(0, 3, Exp(0.01, 0.9))'; or cosine or linear, which fall from the rate of the "
     "optimiser to 0 at the end of the run, or cosine:warmup=500, which rises in the first 500 "
     "training steps (default: the constant rate of the optimiser)",
     0, 0},
    {"schedule-steps", 0, OPTION_FLAG, &o.schedule_steps, NULL,
     "The schedule counts training steps instead of epochs", 0, 0},
    {"clip-norm", 0, OPTION_NUMBER, &o.clip_norm, "NORM",
     "Scale the gradient of the whole model down if its norm exceeds NORM (default: no limit)", 0,
     1e30},
    {"precision", 0, OPTION_CHOICE, &o.precision, PRECISION_CHOICES,
     "The type in which the layers compute in training: Float32, BFloat16 or Float16. The "
     "parameters and the saved model stay Float32, and validation computes in Float32. f16 also "
     "multiplies the loss by a factor, so that small gradients do not become 0 (default: f32)",
     0, 0},
    {"epochs", 'e', OPTION_INTEGER, &o.epochs, "N", "Number of passes over the data (default: 10)",
     1, 1e12},
    {"batchsize", 'b', OPTION_INTEGER, &o.batchsize, "N",
     "Observations in a training step (default: 32)", 1, 1e12},
    {"drop-partial", 0, OPTION_FLAG, &o.drop_partial, NULL,
     "Leave out the last batch of an epoch if it is smaller", 0, 0},
    {"seed", 's', OPTION_INTEGER, &o.seed, "N",
     "Seed for the initial weights, the order of the data and the validation share (default: 0). "
     "On one machine the same seed gives the same result, bit for bit; on a GPU only with "
     "FX_GPU_MEASURE=0 in the environment",
     0, 9e15},
    OPTION_DEVICE(&o.device),
    OPTIONS_HEADING("Validation and early stopping"),
    {"validation", 'v', OPTION_TEXT, &o.data.validation, "SHARE|FILE|FOLDER",
     "Data for validation, not used for training: other files, the test part of a folder of images "
     "or IDX files, or a share of the training data (of each class) such as 0.2, drawn at random "
     "with --seed, or with --text the end of the data (default: none)",
     0, 0},
    {"patience", 'p', OPTION_INTEGER, &o.patience, "N",
     "Stop when the validation loss (the training loss if there is no --validation) has not "
     "improved for N epochs, and keep the model of the best epoch (default: never)",
     0, 1e12},
    {"folds", 0, OPTION_INTEGER, &o.folds, "K",
     "K-fold validation: divide the data (each class) into K equal parts, train K models, each "
     "without one of the parts, and measure each model on that part. Print the mean and the "
     "standard deviation of the scores",
     2, 1e6},
    {"seeds", 0, OPTION_INTEGER, &o.seeds, "N",
     "Train N models, with --seed and the seeds after it, and print the mean and the standard "
     "deviation of their scores",
     2, 1e6},
    OPTIONS_HEADING("Files to write"),
    {"save", 'S', OPTION_TEXT, &o.save, "FILE",
     "Save the model to FILE: .bson (for Flux) or .safetensors", 0, 0},
    {"checkpoint", 'c', OPTION_TEXT, &o.checkpoint, "FILE",
     "Save the state of training to FILE after every epoch and when stopped. If FILE exists, "
     "training resumes from it and gives the same result as without the interruption",
     0, 0},
    {"checkpoint-every", 0, OPTION_INTEGER, &o.checkpoint_every, "STEPS",
     "Save the checkpoint every STEPS training steps instead of after every epoch", 1, 1e12},
    {"log", 'L', OPTION_TEXT, &o.log, "FILE",
     "Write a log, as lines of JSON; a resumed run appends to it", 0, 0},
    {"report", 'r', OPTION_TEXT, &o.report, "FILE",
     "Write an HTML page about the run when it ends: curves, confusion matrix, samples, layers", 0,
     0},
    OPTIONS_HEADING("Output"),
    {"quiet", 'q', OPTION_FLAG, &o.quiet, NULL, "Do not show progress", 0, 0},
    OPTION_JSON(&o.as_json),
    OPTIONS_END};

/* ---- before training ------------------------------------------------------------------------- */

static int check_files(void)
{
    const output_path outputs[] = {{o.save, "--save"},
                                   {o.checkpoint, "--checkpoint"},
                                   {o.log, "--log"},
                                   {o.report, "--report"}};
    int status = check_outputs(outputs, 4, &o.data.validation, 1);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, &o.init, 1);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, o.data.request.data.items, o.data.request.data.n);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, o.data.request.targets.items, o.data.request.targets.n);
    if (status == EXIT_FINE)
        status = check_outputs(outputs, 4, (const char *const *)o.data.request.operands,
                               o.data.request.more - o.data.request.data.n + 1);
    if (status == EXIT_FINE && o.checkpoint_every && !o.checkpoint)
        status = fail(EXIT_BAD_INPUT, "--checkpoint-every needs --checkpoint FILE");
    return status;
}

static void announce(const train_run *r)
{
    char sizes[100], classes[CLASSES_TEXT];
    if (r->o->quiet)
        return;
    describe_sizes(r->d.data.x, true, sizes, sizeof sizes);
    if (r->p.context)
        snprintf(sizes, sizeof sizes, "%lld tokens", (long long)r->p.context);
    else if (r->p.tokens)
        snprintf(sizes, sizeof sizes, "text, %lld tokens", (long long)r->p.tokens);
    put_clean(stderr, r->d.data.path, 0);
    fprintf(stderr, ": %lld observations of %s", (long long)r->d.ntrain, sizes);
    if (r->d.vx)
        fprintf(stderr, ", %lld for validation", (long long)r->d.nvalidation);
    describe_target(&r->p, classes, sizeof classes);
    fprintf(stderr, "; %s; loss %s%s", classes, r->p.loss,
            r->target_std ? " of scaled targets" : "");
    if (members_count() > 1)
        fprintf(stderr, "; %d processes", members_count());
    fprintf(stderr, "\n");
    fx_show_to(stderr, r->t.model);
    fx_error_take(); /* text on stderr that cannot be written does not stop the training */
}

/* Only the first of several processes has a standard input. */
static int check_standard_input(const data_options *data)
{
    const data_request *r = &data->request;
    bool uses = data->validation && strcmp(data->validation, "-") == 0;
    for (int i = 0; i < r->data.n; i++)
        uses |= strcmp(r->data.items[i], "-") == 0;
    for (int i = 0; i < r->more - r->data.n + 1; i++)
        uses |= strcmp(r->operands[i], "-") == 0;
    return uses && members_count() > 1
               ? fail(EXIT_BAD_INPUT, "%d processes cannot share standard input: give a file",
                      members_count())
               : EXIT_FINE;
}

static bool is_sweep(void)
{
    return o.folds > 0 || o.seeds > 0;
}

/* Several models have no common file. */
static int check_sweep(void)
{
    const struct {
        const char *value, *name;
    } files[] = {
        {o.save, "save"}, {o.checkpoint, "checkpoint"}, {o.log, "log"}, {o.report, "report"}};
    for (size_t i = 0; is_sweep() && i < sizeof files / sizeof files[0]; i++)
        if (files[i].value)
            return fail(EXIT_BAD_INPUT, "--%s is for one model, but %s trains several",
                        files[i].name, o.folds ? "--folds" : "--seeds");
    if (is_sweep() && members_count() > 1)
        return fail(EXIT_BAD_INPUT, "--folds and --seeds run in one process, not in %d",
                    members_count());
    return o.folds && o.data.validation
               ? fail(EXIT_BAD_INPUT, "--folds and --validation exclude each other")
               : EXIT_FINE;
}

/* The default model, as in fastText. Its first layer begins with zeros, so that a rare token has
 * no random effect. */
static const char *model_of_texts(const problem *p)
{
    static char text[200];
    if (p->context)
        return language_model(p);
    snprintf(text, sizeof text, "Chain(EmbeddingBag(%lld => 64; init=zeros32), Dense(64 => %lld))",
             (long long)p->tokens, (long long)p->nclasses);
    return text;
}

/* Refuses options for classes and numbers, which have no meaning with --text. */
static int check_text(const data_options *d)
{
    const struct {
        bool given;
        const char *name;
    } others[] = {{d->classes, "classes"},
                  {d->numbers, "regression"},
                  {o.raw_targets, "raw-targets"},
                  {d->weights != NULL, "class-weights"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].given)
            return fail(EXIT_BAD_INPUT, "--%s and --text exclude each other", others[i].name);
    return EXIT_FINE;
}

static int prepare(train_run *r)
{
    if (!r->o->data.request.path)
        return no_data();
    int status = check_standard_input(&r->o->data);
    if (status == EXIT_FINE && r->o->data.text)
        status = check_text(&r->o->data);
    else if (status == EXIT_FINE && !r->o->model && !holds_labelled_text(r->o->data.request.path))
        status = refuse_without_model(r->o->data.request.path);
    if (status == EXIT_FINE && r->o->data.classes && r->o->data.numbers)
        status = fail(EXIT_BAD_INPUT, "--classes and --regression exclude each other");
    if (status == EXIT_FINE)
        status = check_sweep();
    if (status == EXIT_FINE)
        status = training_share_check(&r->o->data);
    if (status == EXIT_FINE)
        status = augmentation_parse(r->o->augment, &r->augment);
    if (status == EXIT_FINE)
        status = problem_loss(&r->p, r->o->loss);
    if (status == EXIT_FINE && members_count() > 1 && r->o->loss && r->p.kind->whole)
        status = fail(EXIT_BAD_INPUT,
                      "%s is one value for all observations of a batch, which %d processes cannot "
                      "compute in parts: train in one process, or choose another loss",
                      r->p.loss, members_count());
    if (status != EXIT_FINE)
        return status;
    if (r->o->schedule_steps && !r->o->schedule)
        return fail(EXIT_BAD_INPUT, "--schedule-steps needs --schedule");
    fx_parse_optimiser(r->o->optimiser);
    if (r->o->schedule && (status = rate_schedule_check(r->o->schedule)) != EXIT_FINE)
        return status;
    if (r->o->model)
        fx_parse_model(r->o->model); /* checked only: train_model parses it after fx_seed */
    r->p.device = members_device(r->o->device);
    if (fx_error_status() != FX_OK)
        return fail_library(EXIT_BAD_INPUT);
    fx_seed((uint64_t)r->o->seed);
    status = check_files();
    if (status == EXIT_FINE && r->o->init)
        status = initial_load(r->o->init, &r->init);
    r->o->data.request.tokenizer = r->init.tokenizer;
    if (status == EXIT_FINE)
        status = training_data_read(&r->o->data, &r->p, &r->d);
    if (status == EXIT_FINE && !r->o->model)
        r->o->model = model_of_texts(&r->p);
    if (status != EXIT_FINE || is_sweep())
        return status;
    status = training_data_divide(&r->o->data, &r->p, &r->init, (fold){0, 0}, &r->d);
    if (status == EXIT_FINE)
        status = train_model(r);
    const bool needs_settings = r->o->checkpoint || members_count() > 1;
    return status == EXIT_FINE && needs_settings ? train_settings(r) : status;
}

/* Every process reads the data, and trains on its part of each batch. Only the first one writes. */
static int prepare_together(train_run *r)
{
    int status = members_join();
    if (status != EXIT_FINE)
        return status;
    if (!members_first()) {
        r->o->save = r->o->log = r->o->report = NULL;
        r->o->quiet = true;
    }
    status = members_agree(prepare(r));
    if (status == EXIT_FINE)
        status = members_agree(members_same(r->settings));
    if (status == EXIT_FINE)
        members_use_gpus(r->p.device);
    return status;
}

/* ---- after training -------------------------------------------------------------------------- */

static const char *reason(const train_run *r)
{
    const int64_t patience = r->o->patience > 0 ? r->o->patience : 1,
                  waited = r->epoch - r->best_epoch;
    if (r->epoch >= r->o->epochs && !interrupt_caught())
        return "finished";
    /* A signal may have ended the run in another process. */
    const bool waits = r->o->patience == FX_NEVER || waited < patience;
    return interrupt_caught() || waits ? "interrupted" : "patience";
}

static int save_model(train_run *r)
{
    if (!r->o->save || trained_save(r->o->save, &r->t, &r->p) == FX_OK)
        return EXIT_FINE;
    return fail_library(EXIT_FAILED);
}

/* Reports a failed training. A full disk still allows saving the model, which may be on another
 * one. */
static int failed(train_run *r, fx_status status)
{
    const fx_error e = fx_error_take();
    const scores none = {.n = 0};
    members_hold(); /* fx_train fails on all members */
    train_log_end(r, "error", failure_sentence(&e), &none);
    /* The checkpoint is loaded before the start. The command has checked all other arguments. */
    if (!r->started && r->o->checkpoint && status != FX_STATUS_MEMORY)
        return members_agree(
            fail(EXIT_BAD_INPUT,
                 "--checkpoint %s belongs to another run: %s; use the same settings, or "
                 "remove %s and %s.1 to start over",
                 r->o->checkpoint, failure_sentence(&e), r->o->checkpoint, r->o->checkpoint));
    members_agree(fail(EXIT_FAILED, "%s", failure_sentence(&e)));
    if (status == FX_STATUS_IO && unscale_model(r) == EXIT_FINE && save_model(r) == EXIT_FINE &&
        r->o->save) {
        fputs("the current model was saved to ", stderr);
        put_clean(stderr, r->o->save, 0);
        fputc('\n', stderr);
    }
    return EXIT_FAILED;
}

static int finish(train_run *r)
{
    const int signal = interrupt_caught();
    const scores none = {.n = 0};
    if (r->status != EXIT_FINE) {
        train_log_end(r, "error", NULL, &none);
        return r->status;
    }
    const char *why = reason(r);
    scores last = {.n = 0};
    int status = save_model(r);
    if (status == EXIT_FINE && !signal && members_first()) {
        last.counts =
            r->p.classes ? calloc((size_t)(r->p.nclasses * r->p.nclasses), sizeof(int64_t)) : NULL;
        status = problem_scores(&r->p, r->t.model, r->d.vx ? r->d.vx : r->d.x,
                                r->d.vx ? r->d.vy : r->d.y, &last);
    }
    train_log_end(r, status == EXIT_FINE ? why : "error", NULL, &last);
    if (status == EXIT_FINE && members_first())
        train_print(r, why, &last);
    if (status == EXIT_FINE)
        warn_of_unpredicted(&r->p, &last);
    free(last.counts);
    return status != EXIT_FINE ? status : signal ? 128 + signal : EXIT_FINE;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run_train(int n, char **operands)
{
    FX_SCOPE;
    static train_run r;
    r.o = &o;
    dataset_inputs(&o.data.request, n, operands);
    int status = prepare_together(&r);
    if (status != EXIT_FINE)
        return status;
    if (is_sweep())
        return train_sweep(&r);
    announce(&r);
    if (members_first()) {
        warn_of_leaks(&r.p, &r.d);
        warn_of_target_scale(&r);
    }
    interrupt_begin();
    const fx_status how = train_loop(&r);
    status = how != FX_OK ? failed(&r, how) : finish(&r);
    interrupt_end();
    const fx_report_args log = {.fxi_size = sizeof log, .run = r.log};
    const int report = o.report && r.log ? write_report(log, o.report) : EXIT_FINE;
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
    .examples = "cflux train --data digits.csv --validation 0.2 --save digits.bson \\\n"
                "    --log run.jsonl --model 'Chain(Dense(64 => 32, relu), Dense(32 => 10))'\n"
                "cflux train --text story.txt --save story.bson\n",
    .about =
        "Trains a model to predict one or more columns of a table from the others, the labels of "
        "images or texts, or the next token of a text. The saved model includes everything that "
        "predict needs: the scale of the inputs, "
        "and the names of columns and classes.\n"
        "The first SIGINT (Ctrl-C) or SIGTERM stops training after the current training step and "
        "saves the model, the checkpoint and the log. A second signal ends the program at once.",
    .options = options,
    .run = run_train,
};
