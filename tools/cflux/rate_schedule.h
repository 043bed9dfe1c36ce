/* rate_schedule.h: --schedule of cflux train. A schedule in the notation of ParameterSchedulers.jl,
 * or a short form that takes the rate from the optimiser and the length from the run:
 *
 *     cosine, linear                 from the rate of the optimiser to 0 at the end of the run
 *     cosine:warmup=500              before this, 500 training steps in which the rate rises from 0
 *
 * Functions return EXIT_FINE, or the exit status of a failure (printed). */
#ifndef CFLUX_TOOL_RATE_SCHEDULE_H
#define CFLUX_TOOL_RATE_SCHEDULE_H

#include <cflux.h>

/* Checks the text without a run. */
int rate_schedule_check(const char *text);
/* The schedule for a run of `steps` training steps whose optimiser has the rate `rate`. A short
 * form counts training steps: it sets *per_step. */
int rate_schedule_make(const char *text, double rate, int64_t steps, fx_schedule **out,
                       bool *per_step);

#endif
