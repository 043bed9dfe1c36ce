/* metrics.c: confusion matrix, accuracy, precision, recall, F1: see metrics.h.
 *
 * The confusion matrix is one scatter: observation i adds 1 at position actual + nclasses·predicted
 * of a vector. The labels are checked before, because a label out of range could give another
 * valid position. Scores are divisions of sums of the matrix.
 */
#include "nn_layer.h"

#include "error.h"

#include <cflux/metrics.h>

static bool is_label(fx_dtype t)
{
    return t == FX_DTYPE_I32 || t == FX_DTYPE_I64 || t == FX_DTYPE_U8 || t == FX_DTYPE_BOOL;
}

static fx_status check_labels(const char *op, fx_array *predicted, fx_array *actual)
{
    fx_status status = fxi_expect_array(op, "the array of predicted labels", predicted);
    if (status == FX_OK)
        status = fxi_expect_array(op, "the array of actual labels", actual);
    if (status != FX_OK)
        return status;
    if (!is_label(fx_eltype(predicted)) || !is_label(fx_eltype(actual)))
        return fx_fail(FX_STATUS_DTYPE, op, "the labels are %s and %s, expected integers",
                       fx_dtype_name(fx_eltype(predicted)), fx_dtype_name(fx_eltype(actual)));
    bool same = fx_ndims(predicted) == fx_ndims(actual);
    for (int i = 0; i < fx_ndims(actual); i++)
        same = same && fx_size(predicted, i) == fx_size(actual, i);
    if (same)
        return FX_OK;
    char one[100], other[100];
    fx_summary(predicted, one, sizeof one);
    fx_summary(actual, other, sizeof other);
    return fx_fail(FX_STATUS_SHAPE, op, "the predicted labels are a %s, but the actual labels a %s",
                   one, other);
}

/* Reads the extremes of both label arrays at once. */
static fx_status check_range(fx_array *predicted, fx_array *actual, int64_t nclasses)
{
    static const char *const names[] = {"predicted", "actual"};
    int64_t extremes[4];
    FXI_SCOPE;
    fx_array *all = fx_stack(0, fx_minimum(predicted), fx_minimum(actual), fx_maximum(predicted),
                             fx_maximum(actual));
    const fx_status status = fx_read_as(all, FX_DTYPE_I64, extremes, 4);
    for (int i = 0; i < 4 && status == FX_OK; i++)
        if (extremes[i] < 0 || extremes[i] >= nclasses)
            return fx_fail(FX_STATUS_ARGUMENT, "confusion", "the %s label %lld is outside 0 … %lld",
                           names[i % 2], (long long)extremes[i], (long long)nclasses - 1);
    return status;
}

fx_array *fx_confusion(fx_array *predicted, fx_array *actual, int64_t nclasses)
{
    FXI_OPERATION("confusion");
    fx_status status = check_labels("confusion", predicted, actual);
    if (status == FX_OK && (nclasses < 1 || nclasses > INT32_MAX))
        status = fx_fail(FX_STATUS_ARGUMENT, "confusion", "nclasses is %lld, expected 1 to %d",
                         (long long)nclasses, INT32_MAX);
    if (status == FX_OK && fx_length(actual) > 0)
        status = check_range(predicted, actual, nclasses);
    if (status != FX_OK)
        return fx_error_array(status);
    FXI_SCOPE;
    fx_array *column = fx_mul(fx_cast(fx_vec(predicted), FX_DTYPE_I64), nclasses);
    fx_array *position = fx_add(fx_cast(fx_vec(actual), FX_DTYPE_I64), column);
    fx_array *one = fx_add(fx_mul(position, 0), 1);
    fx_array *counts = fx_scatter(FX_REDUCE_SUM, one, position, 0, nclasses * nclasses);
    return fx_keep(fx_reshape(counts, nclasses, nclasses));
}

fx_array *fx_accuracy(fx_array *predicted, fx_array *actual)
{
    FXI_OPERATION("accuracy");
    const fx_status status = check_labels("accuracy", predicted, actual);
    if (status != FX_OK)
        return fx_error_array(status);
    FXI_SCOPE;
    return fx_keep(fx_mean(fx_eq(predicted, actual)));
}

/* ---- scores ---------------------------------------------------------------------------------- */

typedef enum divisor { PREDICTED = 1, ACTUAL = 2 } divisor;

/* k·right/all, 0 where all is 0. */
static fx_array *share(fx_array *right, fx_array *all, int k)
{
    return fx_where(fx_gt(all, 0), fx_div(fx_mul(right, k), fx_max(all, 1)), 0);
}

/* The true positives divided by the observations predicted in the class, or by those actually in
 * it; with both divisors, twice the true positives divided by the sum. */
static fx_array *score(const char *op, fx_array *c, fx_averaging average, unsigned divisors)
{
    FXI_OPERATION(op);
    fx_status status = fxi_expect_array(op, "the confusion matrix", c);
    char got[100];
    if (status == FX_OK && (fx_ndims(c) != 2 || fx_size(c, 0) != fx_size(c, 1))) {
        fx_summary(c, got, sizeof got);
        status = fx_fail(FX_STATUS_SHAPE, op, "expected a square confusion matrix, got a %s", got);
    }
    if (status == FX_OK && (unsigned)average > FX_AVERAGING_WEIGHTED)
        status = fx_fail(FX_STATUS_ARGUMENT, op,
                         "average is %d, expected an FX_AVERAGING_ constant", (int)average);
    if (status != FX_OK)
        return fx_error_array(status);
    FXI_SCOPE;
    const int64_t n = fx_size(c, 0);
    fx_array *predicted = fx_sum(c, .dims = FX_AXES(0), .drop = true);
    fx_array *actual = fx_sum(c, .dims = FX_AXES(1), .drop = true);
    fx_array *right = fx_slice_step(fx_reshape(c, n * n), 0, 0, n + 1, n);
    fx_array *all = divisors == PREDICTED ? predicted
                    : divisors == ACTUAL  ? actual
                                          : fx_add(predicted, actual);
    const int k = divisors == (PREDICTED | ACTUAL) ? 2 : 1;
    if (average == FX_AVERAGING_MICRO)
        return fx_keep(share(fx_sum(right), fx_sum(all), k));
    fx_array *each = share(right, all, k);
    if (average == FX_AVERAGING_MACRO) {
        fx_array *seen = fx_gt(fx_add(predicted, actual), 0);
        each = fx_div(fx_sum(each), fx_max(fx_sum(fx_cast(seen, fx_eltype(each))), 1));
    } else if (average == FX_AVERAGING_WEIGHTED)
        each = fx_div(fx_sum(fx_mul(each, actual)), fx_max(fx_sum(actual), 1));
    return fx_keep(each);
}

fx_array *fx_precision_score(fx_array *confusion, fx_averaging average)
{
    return score("precision_score", confusion, average, PREDICTED);
}

fx_array *fx_recall_score(fx_array *confusion, fx_averaging average)
{
    return score("recall_score", confusion, average, ACTUAL);
}

fx_array *fx_f1_score(fx_array *confusion, fx_averaging average)
{
    return score("f1_score", confusion, average, PREDICTED | ACTUAL);
}
