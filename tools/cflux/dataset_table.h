/* dataset_table.h: reads observations, targets and names of observations from a CSV file. */
#ifndef CFLUX_TOOL_DATASET_TABLE_H
#define CFLUX_TOOL_DATASET_TABLE_H

#include "dataset.h"

/* Fills in the members of d that the file has. Returns EXIT_FINE, or the exit status of a failure
 * (printed). */
int read_csv(const data_request *r, dataset *d);

#endif
