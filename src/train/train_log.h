/* train_log.h: the log that fx_train writes with .log. Internal to src/train. */
#ifndef CFLUX_TRAIN_LOG_H
#define CFLUX_TRAIN_LOG_H

#include <cflux/report.h>
#include <cflux/train.h>

/* Opens the log and writes its start; a run that goes on from a checkpoint adds to the file. NULL
 * with an error recorded if it cannot. */
fx_run_log *fxi_train_log_open(const char *path, const fx_progress *p);
/* metric: NaN if there is none. */
void fxi_train_log_epoch(fx_run_log *log, const fx_progress *p, double metric);
/* Writes the end and closes. `status`: of the training; its error record is the end's message.
 * Returns the log's own failure, recorded if the training had none. */
fx_status fxi_train_log_close(fx_run_log *log, const fx_progress *p, const char *why,
                              fx_status status);

#endif
