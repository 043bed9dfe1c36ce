/* dataset_join.h: the observations of several files as those of one. */
#ifndef CFLUX_TOOL_DATASET_JOIN_H
#define CFLUX_TOOL_DATASET_JOIN_H

#include "dataset.h"

/* One after the other. Observations must have the same sizes, and targets be of one sort; labels
 * are those of all files, in alphabetical order. EXIT_FINE, or the exit status of what was printed.
 */
int dataset_join(const dataset *parts, int n, dataset *out);

#endif
