/* gpurt_blas.h: matrix products by the vendor's library: cuBLASLt or rocBLAS. Internal.
 *
 * gpurt_library.c opens the library, and gpu_product.c describes a step as a product.
 * gpurt_cuda_blas.c and gpurt_hip_blas.c have the tables of functions and the calls.
 * If the library does not support a step, or if there is no library, cflux's own kernels compute
 * it. docs/design/0050.
 */
#ifndef CFLUX_GPURT_BLAS_H
#define CFLUX_GPURT_BLAS_H

#include "gpu_product.h"
#include "gpurt_library.h"

/* Adds the calls of a product, as `library` of the runtime does (gpu.h). */
bool fxi_rt_blas_step(fxi_gpu_builder *b);
/* For the libraries: the first is called before the product's call is added, and copies factors;
 * the second after it, and copies the result. */
void fxi_rt_blas_before(fxi_gpu_builder *b, fxi_gpu_product *p);
void fxi_rt_blas_after(fxi_gpu_builder *b, fxi_gpu_product *p);

/* ---- what differs (gpurt_cuda_blas.c, gpurt_hip_blas.c) -------------------------------------- */

extern fxi_rt_library fxi_rt_blas;
/* The version of the open library; 0: unknown. */
int64_t fxi_rt_blas_version(void);
/* Adds the product's call. False, with nothing added, if the library cannot compute the product. */
bool fxi_rt_blas_product(fxi_gpu_builder *b, const fxi_gpu_product *p);

#endif
