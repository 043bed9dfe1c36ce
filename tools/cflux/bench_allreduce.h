/* bench_allreduce.h: the speed of sums over the processes of a group. */
#ifndef CFLUX_TOOL_BENCH_ALLREDUCE_H
#define CFLUX_TOOL_BENCH_ALLREDUCE_H

#include <stdbool.h>

/* Spends about `seconds` on each size. Returns EXIT_FINE, or the exit status of a failure
 * (printed). */
int bench_allreduce(double seconds, bool as_json);

#endif
