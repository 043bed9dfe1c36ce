/* train_run.h: a run of cflux train: its options and its state, and the parts of the command. */
#ifndef CFLUX_TOOL_TRAIN_RUN_H
#define CFLUX_TOOL_TRAIN_RUN_H

#include "augmentation.h"
#include "trained.h"
#include "training_data.h"
#include <cflux/report.h>

/* The values of the options. A text or path is NULL if the option is not given and has no default.
 */
typedef struct train_options {
    data_options data;
    const char *model, *loss, *optimiser, *schedule, *device;
    const char *init, *save, *checkpoint, *log, *report;
    const char *augment, *precision;
    double clip_norm;
    int64_t frozen_layers, epochs, batchsize, seed, patience, checkpoint_every;
    int64_t folds, seeds; /* 0: one run */
    bool schedule_steps, quiet, as_json, drop_partial, raw_targets;
} train_options;

typedef struct train_run {
    train_options *o;
    problem p;
    training_data d;
    fx_array *y, *vy;                   /* the targets of training: d.y and d.vy, or these scaled */
    fx_array *target_mean, *target_std; /* of each output, Float64; NULL: targets are not scaled */
    trained t;
    initial_model init;
    augmentation augment;
    void *state;
    fx_schedule *schedule; /* of the learning rate; NULL: constant */
    bool schedule_steps;   /* it counts training steps, not epochs */
    char *settings;        /* see train_settings */
    fx_run_log *log;
    scores validation; /* after the latest epoch; of scaled targets, if targets are scaled */
    int64_t step, epoch, best_epoch;
    double loss, seconds;
    bool started;
    int status; /* exit status of a failure in a callback */
} train_run;

/* Functions return EXIT_FINE, or the exit status of a failure (printed), unless stated otherwise.
 */

/* train_model.c: parses the model and the optimiser, checks them with the data, and copies the
 * initial weights. */
int train_model(train_run *r);

/* train_settings.c */

enum { CLASSES_TEXT = 300 };
/* Describes the targets: "3 classes, from a to c". */
void describe_target(const problem *p, char *text, size_t size);
/* Sets r->settings to all options that affect the bits of a training step, one per line. A
 * checkpoint must match them. */
int train_settings(train_run *r);

/* train_loop.c: runs fx_train; if it succeeds, the model predicts in the units of the data. Returns
 * the status of fx_train; another failure is in r->status. The caller calls interrupt_begin before,
 * because the loop stops at a signal. */
fx_status train_loop(train_run *r);

/* train_sweep.c: trains a model for each fold and each seed, and prints their scores with mean and
 * standard deviation. The data of the run are read but not divided. */
int train_sweep(const train_run *run);

/* train_result.c */

/* Completes the log. why: "finished", "error", ...; last: the scores after training, or no
 * observations. */
void train_log_end(train_run *r, const char *why, const char *message, const scores *last);
/* Prints the results, as text or as JSON. */
void train_print(const train_run *r, const char *why, const scores *last);
/* The names of the classes, without copying them; the caller frees the list. NULL without classes.
 */
const char **train_class_names(const problem *p);

#endif
