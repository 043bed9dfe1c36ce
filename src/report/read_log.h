/* read_log.h: reads the log of a training run (docs/log.md), also one that is still being written,
 * was cut off, or comes from elsewhere. What cannot be used is left out, and said.
 */
#ifndef CFLUX_READ_LOG_H
#define CFLUX_READ_LOG_H

#include "json_value.h"

#include <stddef.h>
#include <stdio.h>

/* A line of steps. Numbers are doubles as in JSON; a loss that is no finite number is NaN. */
typedef struct fxi_log_step {
    double step, epoch; /* of the last of its steps */
    double steps;       /* how many it stands for */
    double loss, least, most;
    double seconds; /* of training so far, all runs of this log together; NaN: not said */
    double each;    /* seconds of one of its steps; NaN: cannot be known */
} fxi_log_step;

enum { FXI_LOG_METRICS = 8 };
/* The end of an epoch. metrics: the numbers of its event, by the names in the record. */
typedef struct fxi_log_epoch {
    double step, epoch, seconds;
    double metrics[FXI_LOG_METRICS];
} fxi_log_epoch;

typedef struct fxi_log_record {
    fxi_json *start, *end; /* the last events of these kinds; NULL: none */
    fxi_log_step *steps;
    fxi_log_epoch *epochs;
    size_t nsteps, nepochs;
    char *metrics[FXI_LOG_METRICS]; /* "loss", "validation_loss", "accuracy", …, as they came */
    int nmetrics;
    char **warnings; /* sentences */
    int32_t nwarnings, capacity;
} fxi_log_record;

/* Reads to the end of the file. `name` is what messages call it. FX_STATUS_FORMAT if no line of it
 * is an event, FX_STATUS_IO, FX_STATUS_MEMORY. Lines that are left out are named by a message. A
 * run that goes on from a checkpoint replaces the training steps after that checkpoint; a new run
 * replaces everything. The record must be released in any case. */
fx_status fxi_read_log(FILE *file, const char *name, fxi_log_record *out);
void fxi_log_release(fxi_log_record *record);

#endif
