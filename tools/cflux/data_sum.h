/* data_sum.h: a number by which data are known again. */
#ifndef CFLUX_TOOL_DATA_SUM_H
#define CFLUX_TOOL_DATA_SUM_H

#include "dataset.h"

/* The CRC-32 of the observations, targets and labels as they were read; 0 with an error of the
 * library where they cannot be had. */
uint32_t data_sum(const dataset *d);

#endif
