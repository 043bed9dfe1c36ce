/* run_log.h: writes the log of a training run: JSON, one event a line (docs/log.md says which).
 *
 * Lines are written whole by one call of the system, so a run that is killed leaves whole lines;
 * where steps or epochs follow each other within RUN_LOG_GAP
 * the last lines wait for the next one and may be lost with it. Steps within a thousandth of the
 * run (at least a tenth of RUN_LOG_GAP, at most all of it) share a line with their mean loss, the
 * least and the most: logging must not slow training down. Call for every step, also where steps
 * are fast.
 *
 * A write that fails (a full disk) takes back what it wrote of its line, and training goes on: the
 * functions return errno then, 0 else, and nothing more is written after the first failure.
 * Texts and arrays are read during the call only. Numbers that are NaN or infinite are null.
 */
#ifndef CFLUX_TOOL_RUN_LOG_H
#define CFLUX_TOOL_RUN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define RUN_LOG_GAP 0.01 /* seconds */

typedef struct run_log run_log;

/* What is known before the first step. Texts may be NULL: then the member is not in the log. */
typedef struct run_start {
    const char *model, *loss, *optimiser; /* in notation */
    const char *device;
    struct {
        const char *path, *kind; /* kind: "idx", "csv", "npy", "npz" */
        const char *target;      /* the target column */
        int64_t observations, train, validation;
        const char *const *classes; /* their names; NULL: a regression */
        int64_t nclasses;
    } data;
    uint64_t seed;
    int64_t epochs, batchsize, parameters;
    int64_t resumed_at_step; /* > 0: the run goes on from that step of a checkpoint */
} run_start;

/* The end of an epoch. Members that are NaN are not in the log. */
typedef struct run_epoch {
    int64_t epoch, step;
    double loss;                      /* mean over the epoch's batches */
    double validation_loss, accuracy; /* on the validation part; accuracy from 0 to 1 */
    double seconds;
} run_epoch;

/* A line of the model's table. */
typedef struct run_layer {
    const char *layer;     /* in notation */
    const int64_t *output; /* the sizes of its output for one batch, in the library's order */
    int rank;
    int64_t parameters, bytes;
    double seconds; /* of one forward pass; NaN: not measured */
} run_layer;

/* An observation with what the model makes of it. With classes, target is the number of the class
 * from 0 and output holds a probability for each. */
typedef struct run_sample {
    const double *input; /* ninput numbers in the library's order, the first dimension fastest */
    int64_t ninput;
    const int64_t *shape; /* (width, height[, channels]) is shown as an image */
    int rank;
    const double *target, *output;
    int64_t ntarget, noutput;
    bool scores;   /* output is of classes, and no probabilities: */
    int64_t guess; /* then the number of the class chosen */
} run_sample;

/* What is known at the end. Absent parts have a count of 0. */
typedef struct run_end {
    const char *why;     /* "finished", "patience", "interrupted", "error" */
    const char *message; /* a sentence, or NULL */
    int64_t step;
    double seconds;
    const int64_t *confusion; /* nclasses rows of nclasses: [truth * nclasses + guess] */
    const char *const *classes;
    int64_t nclasses;
    const run_sample *samples;
    int64_t nsamples;
    const run_layer *layers;
    int64_t nlayers;
} run_end;

/* Opens a log: a new file, or one that is added to (`append`: a run that goes on; a line that was
 * cut off stays a line of its own). path NULL: a temporary file, for a report without a log. NULL
 * with errno set where it cannot be had. */
run_log *run_log_open(const char *path, bool append);
int run_log_start(run_log *log, const run_start *start);
/* After a step: its number and epoch, from 1; its loss; seconds since training began. */
int run_log_step(run_log *log, int64_t step, int64_t epoch, double loss, double seconds);
int run_log_epoch(run_log *log, const run_epoch *epoch);
int run_log_end(run_log *log, const run_end *end);
/* The descriptor, which can be read too: what `report_write` takes. */
int run_log_descriptor(const run_log *log);
/* Writes the steps that are still to be written. Returns the errno of the log's first failure, 0
 * without. log may be NULL. */
int run_log_close(run_log *log);

#endif
