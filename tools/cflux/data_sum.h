/* data_sum.h: a checksum that identifies the data of a run. */
#ifndef CFLUX_TOOL_DATA_SUM_H
#define CFLUX_TOOL_DATA_SUM_H

#include "dataset.h"

/* The CRC-32 of the observations, targets and labels as read; 0 on failure, with an error of the
 * library. */
uint32_t data_sum(const dataset *d);

#endif
