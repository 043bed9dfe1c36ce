/* cflux/metrics.h: how well predicted classes match the actual ones.
 *
 * Labels are integers (or Bool) in 0 … nclasses − 1, for example fx_onecold(fx_call(model, x)). All
 * results are computed on the device of the labels. In formulas, C is the confusion matrix, tp =
 * C[c, c] the correct predictions of class c, fp = Σ_a C[a, c] − tp and fn = Σ_p C[c, p] − tp.
 *
 * Errors: FX_STATUS_SHAPE if predicted and actual labels differ in their sizes; FX_STATUS_DTYPE for
 * labels that are not integers; FX_STATUS_ARGUMENT for NULL, and, in fx_confusion, for a label
 * outside 0 … nclasses − 1; the message names it. */
#ifndef CFLUX_METRICS_H
#define CFLUX_METRICS_H

#include <cflux/ops.h>

FXI_BEGIN_C

/* The confusion matrix C, nclasses×nclasses, Int64: C[a, p] counts the observations of class a that
 * were predicted as p. Reads the smallest and the largest label to check them. Matrices of several
 * batches may be added. FX_STATUS_ARGUMENT if nclasses is below 1 or above 2³¹ − 1. */
FX_API fx_array *fx_confusion(fx_array *predicted, fx_array *actual, int64_t nclasses);
/* The share of equal labels, from 0 to 1: a 0-d Float32 array; NaN if there are no labels. */
FX_API fx_array *fx_accuracy(fx_array *predicted, fx_array *actual);
/* How the scores of classes become one score. */
typedef enum fx_averaging {
    FX_AVERAGING_NONE = 0, /* one score per class: a vector of nclasses */
    FX_AVERAGING_MACRO, /* the mean of the scores of all classes that occur: actual or predicted */
    FX_AVERAGING_MICRO, /* the score of the sums of tp, fp and fn over all classes */
    FX_AVERAGING_WEIGHTED /* the mean of the classes' scores, weighted by their number of actual
                           observations */
} fx_averaging;
/* Scores of a confusion matrix from fx_confusion: Float32, from 0 to 1; 0 where the divisor is 0.
 *   precision  tp/(tp + fp)
 *   recall     tp/(tp + fn)
 *   f1         2·tp/(2·tp + fp + fn)
 * FX_STATUS_SHAPE if the matrix is not square; FX_STATUS_ARGUMENT for another `average`. */
FX_API fx_array *fx_precision_score(fx_array *confusion, fx_averaging average);
FX_API fx_array *fx_recall_score(fx_array *confusion, fx_averaging average);
FX_API fx_array *fx_f1_score(fx_array *confusion, fx_averaging average);

FXI_END_C
#endif
