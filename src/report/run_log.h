/* run_log.h: access to an open log for the other files of src/report. Internal to src/report. */
#ifndef CFLUX_RUN_LOG_H
#define CFLUX_RUN_LOG_H

#include <cflux/report.h>

/* Writes the buffered lines, and a line of the training steps that have none yet. */
fx_status fxi_run_log_flush(fx_run_log *log);
/* The file's descriptor, which is open for reading too. */
int fxi_run_log_descriptor(const fx_run_log *log);

#endif
