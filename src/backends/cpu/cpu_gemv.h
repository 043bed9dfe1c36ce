/* cpu_gemv.h: the product of a matrix and a vector, for cpu_gemm.c. Internal. */
#ifndef CFLUX_CPU_GEMV_H
#define CFLUX_CPU_GEMV_H

#include "cpu_kernels.h"

/* Is C one column, or one row of neighbours, and is the matrix large enough, with a layout that can
 * be read in its own memory? Looks at sizes and strides only. */
bool fxi_cpu_gemv_suits(int dtype, const fxi_gemm *g);

/* Computes a product that fxi_cpu_gemv_suits accepts. kc: terms of a block of the sum. alone: in
 * the calling thread. Allocates nothing. */
void fxi_cpu_gemv(int dtype, const fxi_gemm *g, int64_t kc, bool alone);

#endif
