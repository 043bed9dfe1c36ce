/* array_stats.h: what the numbers of an array are like. */
#ifndef CFLUX_TOOL_ARRAY_STATS_H
#define CFLUX_TOOL_ARRAY_STATS_H

#include <cflux.h>

/* Of the finite elements, of which there are n: NaN where there are none (std: fewer than two; it
 * divides by n − 1, as Julia's). */
typedef struct array_stats {
    double min, max, mean, std;
    int64_t n, nan, inf;
} array_stats;

/* FX_STATUS_MEMORY and what reading says (recorded). */
fx_status array_stats_of(fx_array *x, array_stats *out);

/* The order of doubles, for qsort. */
int compare_numbers(const void *a, const void *b);

#endif
