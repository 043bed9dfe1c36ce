/* read_log.h: reads the log of a training run (docs/log.md), also one that is still being written,
 * was cut off, or comes from elsewhere. What cannot be used is left out, and said.
 */
#ifndef CFLUX_TOOL_READ_LOG_H
#define CFLUX_TOOL_READ_LOG_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdio.h>

/* A line of steps. Numbers are doubles as in JSON; a loss that is no finite number is NaN. */
typedef struct log_step {
    double step, epoch; /* of the last of its steps */
    double steps;       /* how many it stands for */
    double loss, least, most;
    double seconds; /* of training so far, all runs of this log together; NaN: not said */
    double each;    /* seconds of one of its steps; NaN: cannot be known */
} log_step;

enum { LOG_METRICS = 8 };
/* The end of an epoch. metrics: the numbers of its event, by the names in the record. */
typedef struct log_epoch {
    double step, epoch, seconds;
    double metrics[LOG_METRICS];
} log_epoch;

typedef struct log_record {
    cJSON *start, *end; /* the last events of these kinds; NULL: none */
    log_step *steps;
    log_epoch *epochs;
    size_t nsteps, nepochs;
    char *metrics[LOG_METRICS]; /* "loss", "validation_loss", "accuracy", …, as they came */
    int nmetrics;
    cJSON *warnings; /* an array of sentences */
} log_record;

/* Reads to the end of the file. `name` is what messages call it. Returns an exit status, with the
 * reason printed where it is not EXIT_FINE: EXIT_BAD_INPUT when no line of it is an event. A run
 * that goes on from a checkpoint replaces the steps after that checkpoint; a new run replaces
 * everything. The record is to be released in any case. */
int read_log(FILE *file, const char *name, log_record *out);
void log_record_release(log_record *record);

#endif
