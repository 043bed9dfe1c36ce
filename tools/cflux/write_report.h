/* write_report.h: writes the page of a training run to a file that exists completely or not at all.
 */
#ifndef CFLUX_TOOL_WRITE_REPORT_H
#define CFLUX_TOOL_WRITE_REPORT_H

#include <cflux/report.h>

/* Makes the page `out` (NULL: standard output) from the log in `what`. Returns EXIT_FINE or another
 * exit status, after printing the reason. */
int write_report(fx_report_args what, const char *out);

#endif
