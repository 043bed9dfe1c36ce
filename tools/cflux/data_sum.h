/* data_sum.h: checksums that identify the data and the initial model of a run. */
#ifndef CFLUX_TOOL_DATA_SUM_H
#define CFLUX_TOOL_DATA_SUM_H

#include "dataset.h"

/* The CRC-32 of the observations, targets and labels as read. On failure the library's error is
 * recorded, and the sum has no meaning. */
uint32_t data_sum(const dataset *d);
/* The CRC-32 of all arrays of a model, in the order of fx_visit. On failure as above. */
uint32_t model_sum(void *model);

#endif
