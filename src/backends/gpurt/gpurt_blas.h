/* gpurt_blas.h: matrix products by the vendor's library: cuBLASLt or rocBLAS. Internal.
 *
 * gpurt_library.c opens the library. gpurt_blas.c describes a step as a product that both libraries
 * can compute; gpurt_cuda_blas.c and gpurt_hip_blas.c have the tables of functions and the calls.
 * If the library does not support a step, or if there is no library, cflux's own kernels compute
 * it. docs/design/0050.
 */
#ifndef CFLUX_GPURT_BLAS_H
#define CFLUX_GPURT_BLAS_H

#include "gpu_build.h"
#include "gpurt_library.h"

/* C = op(A)·op(B), column by column: C has m rows and n columns, without gaps. */
typedef struct fxi_rt_product {
    int dtype;     /* F32, F64, F16 or BF16, of all three */
    bool may_tf32; /* factors may be rounded to TensorFloat-32 */
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* the factor's rows are dense, not its columns */
    int64_t lda, ldb;              /* from one column, or row, to the next */
    int64_t batches, stride_a, stride_b, stride_c; /* from one batch to the next; 0: the same */
    bool bias; /* operand 2, m numbers, is added to every column of C */
} fxi_rt_product;

/* Adds the calls of a product, as `library` of the runtime does (gpu.h). */
bool fxi_rt_blas_step(fxi_gpu_builder *b);

/* ---- what differs (gpurt_cuda_blas.c, gpurt_hip_blas.c) -------------------------------------- */

extern fxi_rt_library fxi_rt_blas;
/* Adds the product's call. False, with nothing added, if the library does not take it. */
bool fxi_rt_blas_product(fxi_gpu_builder *b, const fxi_rt_product *p);

#endif
