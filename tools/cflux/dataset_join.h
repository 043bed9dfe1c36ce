/* dataset_join.h: joins the observations of several files into one data set. */
#ifndef CFLUX_TOOL_DATASET_JOIN_H
#define CFLUX_TOOL_DATASET_JOIN_H

#include "dataset.h"

/* Appends the parts in order. Observations must have the same sizes, and targets the same kind; the
 * labels of all files are merged in alphabetical order. EXIT_FINE, or the exit status of a failure
 * (printed).
 */
int dataset_join(dataset *parts, int n, dataset *out);

#endif
