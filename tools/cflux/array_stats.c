/* array_stats.c: computes statistics of an array in one pass, part by part, because files may be
 * larger than the memory. */
#include "array_stats.h"
#include <math.h>
#include <stdlib.h>

enum { PART = 1 << 16 };

/* Updates mean and squares with each value (Welford, 1962), which avoids cancellation for any mean.
 */
static void take(array_stats *s, double *squares, double x)
{
    if (isnan(x)) {
        s->nan++;
        return;
    }
    if (isinf(x)) {
        s->inf++;
        return;
    }
    const double away = x - s->mean;
    s->n++;
    s->mean += away / (double)s->n;
    *squares += away * (x - s->mean);
    s->min = x < s->min ? x : s->min;
    s->max = x > s->max ? x : s->max;
}

fx_status array_stats_of(fx_array *x, array_stats *out)
{
    const int64_t n = fx_length(x);
    double squares = 0, *values = malloc((size_t)(n < PART ? n + 1 : PART) * sizeof *values);
    fx_status status = values ? FX_OK : fx_fail(FX_STATUS_MEMORY, "stats", "out of memory");
    *out = (array_stats){.min = INFINITY, .max = -INFINITY};
    for (int64_t at = 0; at < n && status == FX_OK; at += PART) {
        FX_SCOPE;
        const int64_t end = n - at < PART ? n : at + PART;
        fx_array *part = n <= PART ? x : fx_slice(fx_vec(x), 0, at, end);
        status = fx_read_as(part, FX_DTYPE_F64, values, end - at);
        for (int64_t i = 0; i < end - at && status == FX_OK; i++)
            take(out, &squares, values[i]);
    }
    free(values);
    out->std = out->n > 1 ? sqrt(squares / (double)(out->n - 1)) : NAN;
    if (out->n == 0)
        out->min = out->max = out->mean = NAN;
    return status;
}

bool has_floats(const fx_array *x)
{
    const fx_dtype t = fx_eltype(x);
    return t == FX_DTYPE_F16 || t == FX_DTYPE_BF16 || t == FX_DTYPE_F32 || t == FX_DTYPE_F64;
}

double mean_of(const double *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    return sum / (double)n;
}

int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
