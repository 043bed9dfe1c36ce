/* missing.h: observations with missing values, which are NaN. */
#ifndef CFLUX_TOOL_MISSING_H
#define CFLUX_TOOL_MISSING_H

#include "dataset.h"

/* Drops the observations without a target, and with MISSING_DROPPED also those with a missing
 * feature; a warning counts them. A failure if none is left. Functions return EXIT_FINE, or the
 * exit status of a failure (printed). */
int missing_drop(const data_request *r, dataset *d);

/* Computes the value that replaces a missing one of each feature: the mean or the median (`method`)
 * of the feature's values in x, which is a part of the data d. Returns it in *out, Float32 with the
 * shape of an observation. A failure if a feature has no value. */
int missing_fill(const char *method, fx_array *x, const dataset *d, fx_array **out);

#endif
