/* report.h: the report of a training run: its log as one HTML file that needs nothing else. */
#ifndef CFLUX_TOOL_REPORT_H
#define CFLUX_TOOL_REPORT_H

#include "run_log.h"

/* Reads the log in a file ("-": standard input) and writes the page, to standard output where `out`
 * is NULL. Both return an exit status, with the reason printed where it is not EXIT_FINE; the page
 * is written whole or not at all. */
int report_file(const char *log, const char *out);
/* The same for a log that this program writes: at the end of a run. */
int report_run(const run_log *log, const char *out);

#endif
