/* number_scores.c: sums of errors of predicted numbers: see number_scores.h. */
#include "number_scores.h"
#include <math.h>
#include <stdlib.h>

fx_status number_sums_begin(number_sums *s, fx_array *y)
{
    FX_SCOPE;
    const int last = fx_ndims(y) - 1;
    const int64_t n = fx_size(y, last);
    *s = (number_sums){.each = n ? fx_length(y) / n : 0};
    const size_t count = (size_t)s->each + 1;
    s->means = calloc(count, sizeof(double));
    s->errors = calloc(count, sizeof(double));
    s->spread = calloc(count, sizeof(double));
    s->absolute = calloc(count, sizeof(double));
    if (!s->means || !s->errors || !s->spread || !s->absolute) {
        s->each = 0; /* number_sums_scores reads no sums */
        return fx_fail(FX_STATUS_MEMORY, "scores", "no memory for the sums of %lld targets",
                       (long long)count - 1);
    }
    fx_array *means = fx_mean(fx_cast(fx_cpu(y), FX_DTYPE_F64), .dims = FX_AXES(last));
    return fx_read_as(means, FX_DTYPE_F64, s->means, s->each);
}

static void add_values(number_sums *s, const double *predicted, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < s->each; k++) {
            const double error = predicted[i * s->each + k] - y[i * s->each + k];
            const double distance = y[i * s->each + k] - s->means[k];
            s->errors[k] += error * error;
            s->spread[k] += distance * distance;
            s->absolute[k] += fabs(error);
        }
    s->n += n;
}

fx_status number_sums_add(number_sums *s, fx_array *predicted, fx_array *y)
{
    const int64_t length = fx_length(y);
    double *values = calloc(2 * (size_t)length + 1, sizeof *values);
    fx_status status = values ? FX_OK
                              : fx_fail(FX_STATUS_MEMORY, "scores", "no memory for %lld numbers",
                                        (long long)(2 * length));
    if (status == FX_OK)
        status = fx_read_as(predicted, FX_DTYPE_F64, values, length);
    if (status == FX_OK)
        status = fx_read_as(y, FX_DTYPE_F64, values + length, length);
    if (status == FX_OK && s->each)
        add_values(s, values, values + length, length / s->each);
    free(values);
    return status;
}

/* The scores of the targets from `first` to before `end`. */
static number_scores scores_of(const number_sums *s, int64_t first, int64_t end)
{
    double absolute = 0, squares = 0, shares = 0;
    int64_t varying = 0;
    const double count = (double)(s->n * (end - first));
    for (int64_t k = first; k < end; k++) {
        absolute += s->absolute[k];
        squares += s->errors[k];
        if (s->spread[k] > 0) {
            shares += 1 - s->errors[k] / s->spread[k];
            varying++;
        }
    }
    return (number_scores){.mae = count > 0 ? absolute / count : NAN,
                           .rmse = count > 0 ? sqrt(squares / count) : NAN,
                           .r2 = varying ? shares / (double)varying : NAN};
}

number_scores number_sums_scores(const number_sums *s)
{
    return scores_of(s, 0, s->each);
}

number_scores number_sums_target(const number_sums *s, int64_t k)
{
    return scores_of(s, k, k + 1);
}

void number_sums_free(number_sums *s)
{
    free(s->means);
    free(s->errors);
    free(s->spread);
    free(s->absolute);
}

void print_number_scores(const number_scores *s)
{
    printf("MAE %.6g, RMSE %.6g, R² ", s->mae, s->rmse);
    isnan(s->r2) ? printf("undefined") : printf("%.6g", s->r2);
}

void put_number_scores(fx_json *j, const number_scores *s)
{
    fx_json_number(j, "mae", s->mae);
    fx_json_number(j, "rmse", s->rmse);
    fx_json_number(j, "r2", s->r2);
}
