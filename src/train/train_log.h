/* train_log.h: writes the log that fx_train's option .log asks for. Internal to src/train. */
#ifndef CFLUX_TRAIN_LOG_H
#define CFLUX_TRAIN_LOG_H

#include <cflux/report.h>
#include <cflux/train.h>

/* Opens the log and writes the start event. A run that continues from a checkpoint appends to the
 * file. NULL on failure (recorded). */
fx_run_log *fxi_train_log_open(const char *path, const fx_progress *p);
/* metric: NaN if there is none. */
void fxi_train_log_epoch(fx_run_log *log, const fx_progress *p, double metric);
/* Writes the end event and closes the log. `status` is that of the training; its error record
 * becomes the message of the event. Returns the status of writing the log; a failure is recorded
 * only if the training succeeded. */
fx_status fxi_train_log_close(fx_run_log *log, const fx_progress *p, const char *why,
                              fx_status status);

#endif
