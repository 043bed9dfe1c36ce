/* read_log.h: reads the log of a training run (docs/log.md), also if it is still being written, was
 * cut off, or was written by another program. Unusable lines are skipped and reported.
 */
#ifndef CFLUX_READ_LOG_H
#define CFLUX_READ_LOG_H

#include "json_value.h"

#include <stddef.h>
#include <stdio.h>

/* A line of training steps. Numbers are doubles as in JSON; a loss that is not finite is NaN. */
typedef struct fxi_log_step {
    double step, epoch; /* of the final training step of the line */
    double steps;       /* number of training steps in the line */
    double loss, least, most;
    double seconds; /* training time so far over all runs of this log; NaN if unknown */
    double each;    /* seconds per training step; NaN if unknown */
} fxi_log_step;

enum { FXI_LOG_METRICS = 8 };
/* The end of an epoch. metrics: the numbers of its event, in the order of the names in the record.
 */
typedef struct fxi_log_epoch {
    double step, epoch, seconds;
    double metrics[FXI_LOG_METRICS];
} fxi_log_epoch;

typedef struct fxi_log_record {
    fxi_json *start, *end; /* latest event of each kind; NULL if none */
    fxi_log_step *steps;
    fxi_log_epoch *epochs;
    size_t nsteps, nepochs;
    char *metrics[FXI_LOG_METRICS]; /* "loss", "validation_loss", "accuracy", …, in order of
                                       appearance */
    int nmetrics;
    char **warnings; /* complete sentences */
    int32_t nwarnings, capacity;
} fxi_log_record;

/* Reads to the end of the file. `name` is the file's name in messages. FX_STATUS_FORMAT if no line
 * is an event; also FX_STATUS_IO and FX_STATUS_MEMORY. Skipped lines are reported by a message. A
 * run that continues from a checkpoint replaces the training steps after that checkpoint; a new run
 * replaces everything. The caller must free the record in any case. */
fx_status fxi_read_log(FILE *file, const char *name, fxi_log_record *out);
void fxi_log_free(fxi_log_record *record);

#endif
