/* array_stats.h: statistics of the numbers in an array. */
#ifndef CFLUX_TOOL_ARRAY_STATS_H
#define CFLUX_TOOL_ARRAY_STATS_H

#include <cflux.h>

/* Statistics of the n finite elements; NaN if there are none. std divides by n − 1, as in Julia, so
 * it is NaN for fewer than two. */
typedef struct array_stats {
    double min, max, mean, std;
    int64_t n, nan, inf;
} array_stats;

/* FX_STATUS_MEMORY, or the status of reading the array (recorded). */
fx_status array_stats_of(fx_array *x, array_stats *out);

/* True for Float16, BFloat16, Float32 and Float64. */
bool has_floats(const fx_array *x);

double mean_of(const double *values, int64_t n);

/* Orders doubles, for qsort. */
int compare_numbers(const void *a, const void *b);

#endif
