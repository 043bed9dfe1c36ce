/* write_report.h: the page of a training run, as a file that is there whole or not at all. */
#ifndef CFLUX_TOOL_WRITE_REPORT_H
#define CFLUX_TOOL_WRITE_REPORT_H

#include <cflux/report.h>

/* Makes the page `out` (NULL: standard output) of the log in `what`. Returns an exit status; the
 * reason is printed if it is not EXIT_FINE. */
int write_report(fx_report_args what, const char *out);

#endif
