/* cpu_masked_sum.h: sums of the elements that a Bool mask chooses. Internal. */
#ifndef CFLUX_CPU_MASKED_SUM_H
#define CFLUX_CPU_MASKED_SUM_H

#include <stdbool.h>
#include <stdint.h>

enum { FXI_MASKED_LEAST = 16 /* elements; fewer are added in another order */ };

/* *sum += Σ of the x[i] with mask[i], with the bits that the reducer of Float32 sums gives for an
 * array that is 0 where the mask is false. n ≥ FXI_MASKED_LEAST. Returns false if too many elements
 * are true for this to be fast; *sum is unchanged then. */
bool fxi_cpu_sparse_sum(const uint8_t *mask, const float *x, int64_t n, double *sum);

#endif
