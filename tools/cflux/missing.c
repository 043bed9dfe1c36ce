/* missing.c: see missing.h. */
#include "missing.h"
#include "array_stats.h"
#include "failure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- dropping -------------------------------------------------------------------------------- */

/* Marks the observations that contain NaN. False on failure (recorded). */
static bool mark(fx_array *x, int64_t n, bool *dropped)
{
    const int64_t each = fx_length(x) / n;
    if (!has_floats(x))
        return true;
    const double *values = fx_data(fx_cast(x, FX_DTYPE_F64));
    for (int64_t i = 0; values && i < n * each; i++)
        if (isnan(values[i]))
            dropped[i / each] = true;
    return values != NULL;
}

static int keep_others(dataset *d, const bool *dropped)
{
    int64_t *kept = calloc((size_t)d->n + 1, sizeof *kept), n = 0;
    for (int64_t i = 0; kept && i < d->n; i++)
        if (!dropped[i])
            kept[n++] = i;
    if (!kept || n == 0 || n == d->n) {
        free(kept);
        return !kept    ? fail(EXIT_FAILED, "no memory for %lld observations", (long long)d->n)
               : n == 0 ? fail(EXIT_BAD_INPUT, "%s: every observation has a missing value", d->path)
                        : EXIT_FINE;
    }
    warn("%s: left out %lld of %lld observations because of missing values", d->path,
         (long long)(d->n - n), (long long)d->n);
    fx_array *indices = fx_from(FX_DTYPE_I64, kept, n);
    free(kept);
    if (d->line)
        d->lines = fx_gather(dataset_lines(d), indices, 0);
    d->x = fx_gather(d->x, indices, fx_ndims(d->x) - 1);
    d->y = d->y ? fx_gather(d->y, indices, fx_ndims(d->y) - 1) : NULL;
    d->n = n;
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
}

int missing_drop(const data_request *r, dataset *d)
{
    bool *dropped = calloc((size_t)d->n + 1, sizeof *dropped);
    if (!dropped)
        return fail(EXIT_FAILED, "no memory for %lld observations", (long long)d->n);
    const bool read = (!d->y || mark(d->y, d->n, dropped)) &&
                      (r->missing != MISSING_DROPPED || mark(d->x, d->n, dropped));
    const int status = read ? keep_others(d, dropped) : fail_library(EXIT_FAILED);
    free(dropped);
    return status;
}

/* ---- filling --------------------------------------------------------------------------------- */

/* The mean of two middle values if n is even, as in NumPy. */
static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, compare_numbers);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The replacements of all features; −1, or the first feature that has no value. */
static int64_t compute(const char *method, const float *x, int64_t each, int64_t n, double *column,
                       float *out)
{
    for (int64_t k = 0; k < each; k++) {
        int64_t known = 0;
        for (int64_t i = 0; i < n; i++)
            if (!isnan(x[i * each + k]))
                column[known++] = (double)x[i * each + k];
        if (known == 0)
            return k;
        out[k] =
            (float)(strcmp(method, "mean") == 0 ? mean_of(column, known) : median(column, known));
    }
    return -1;
}

int missing_fill(const char *method, fx_array *x, const dataset *d, fx_array **out)
{
    int64_t sizes[FX_MAX_DIMS];
    const int ndims = fx_ndims(x) - 1;
    const int64_t n = fx_size(x, ndims), each = fx_length(x) / n;
    const float *values = fx_data(x);
    double *column = calloc((size_t)n + 1, sizeof *column);
    float *fills = calloc((size_t)each + 1, sizeof *fills);
    if (!values || !column || !fills) {
        free(column);
        free(fills);
        return values ? fail(EXIT_FAILED, "no memory for %lld observations", (long long)n)
                      : fail_library(EXIT_FAILED);
    }
    for (int k = 0; k < ndims; k++)
        sizes[k] = fx_size(x, k);
    const int64_t empty = compute(method, values, each, n, column, fills);
    *out = fxi_from(FX_DTYPE_F32, fills, ndims, sizes);
    free(column);
    free(fills);
    if (empty >= 0 && d->columns)
        return fail(EXIT_BAD_INPUT, "column \"%s\" has no value in the training data",
                    dataset_column(d, empty));
    if (empty >= 0)
        return fail(EXIT_BAD_INPUT, "feature %lld has no value in the training data",
                    (long long)empty + 1);
    return fx_is_error(*out) ? fail_library(EXIT_FAILED) : EXIT_FINE;
}
