/* data_sum.h: checksums that identify the data and the initial model of a run. */
#ifndef CFLUX_TOOL_DATA_SUM_H
#define CFLUX_TOOL_DATA_SUM_H

#include "dataset.h"

/* The CRC-32 of the observations, targets and labels as read; 0 on failure, with an error of the
 * library. */
uint32_t data_sum(const dataset *d);
/* The CRC-32 of all arrays of a model, in the order of fx_visit; 0 on failure, as above. */
uint32_t model_sum(void *model);

#endif
