/* number_scores.h: how well predicted numbers match the targets: MAE, RMSE and R². */
#ifndef CFLUX_TOOL_NUMBER_SCORES_H
#define CFLUX_TOOL_NUMBER_SCORES_H

#include <cflux.h>
#include <cflux/json_out.h>

/* The sums of errors so far, in Float64. */
typedef struct number_sums {
    int64_t each, n;         /* numbers of an observation; observations so far */
    double *means;           /* of each target over all observations */
    double *errors, *spread; /* Σ (ŷ − y)² and Σ (y − mean)² of each target */
    double *absolute;        /* Σ |ŷ − y| of each target */
} number_sums;

typedef struct number_scores {
    double mae;  /* Σ |ŷ − y| / (n·k) for n observations with k targets */
    double rmse; /* √(Σ (ŷ − y)² / (n·k)) */
    double r2; /* the mean of 1 − Σ (ŷ − y)² / Σ (y − ȳ)² over the targets that vary, as in
                  scikit-learn; NaN if none varies */
} number_scores;

/* Prepares sums for the targets y, whose final axis counts the observations. The caller calls
 * number_sums_free, also after a failure. Functions return FX_OK or the status of a recorded
 * error. */
fx_status number_sums_begin(number_sums *s, fx_array *y);
/* Adds a batch: predictions and targets. */
fx_status number_sums_add(number_sums *s, fx_array *predicted, fx_array *y);
number_scores number_sums_scores(const number_sums *s);
/* The scores of target k alone. */
number_scores number_sums_target(const number_sums *s, int64_t k);
void number_sums_free(number_sums *s);

/* Prints "MAE 1.2, RMSE 1.5, R² 0.9", without a line end. */
void print_number_scores(const number_scores *s);
/* Members "mae", "rmse" and "r2"; null if undefined. */
void put_number_scores(fx_json *j, const number_scores *s);

#endif
