/* gpurt_blas.h: matrix products by the vendor's library: cuBLASLt or rocBLAS. Internal.
 *
 * gpurt_library.c opens the library. gpurt_blas.c describes a step as a product that both libraries
 * can compute; gpurt_cuda_blas.c and gpurt_hip_blas.c have the tables of functions and the calls.
 * If the library does not support a step, or if there is no library, cflux's own kernels compute
 * it. docs/design/0050.
 */
#ifndef CFLUX_GPURT_BLAS_H
#define CFLUX_GPURT_BLAS_H

#include "gpu_text.h"
#include "gpurt_library.h"

/* The matrices of a product, and the numbers of a call's buffers. */
enum { FXI_RT_A, FXI_RT_B, FXI_RT_C, FXI_RT_MATRICES };

/* An axis of batches: `stride` has the distances in elements from one batch to the next; 0: all
 * batches have the same factor. */
typedef struct fxi_rt_batches {
    int64_t n, stride[FXI_RT_MATRICES];
} fxi_rt_batches;

/* C = op(A)·op(B), column by column: C has m rows and n columns. */
typedef struct fxi_rt_product {
    int dtype;     /* F32, F64, F16 or BF16, of all three */
    bool may_tf32; /* factors may be rounded to TensorFloat-32 */
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* the factor's rows are dense, not its columns */
    int64_t lda, ldb, ldc;         /* from one column, or row, to the next */
    fxi_rt_batches batch;          /* the batches of one call */
    /* Axes of batches besides `batch`: there is a call for each combination of their indices. */
    int nmore;
    fxi_rt_batches more[FX_MAX_DIMS];
    int64_t calls;
    fxi_gpu_buffer_ref at[FXI_RT_MATRICES];
    /* If `ld` is above 0, the matrix is a wider copy in work space, and this is the operand or the
     * output. */
    fxi_gpu_matrix narrow[FXI_RT_MATRICES];
    bool bias; /* operand 2, m numbers, is added to every column of C */
} fxi_rt_product;

/* Adds the calls of a product, as `library` of the runtime does (gpu.h). */
bool fxi_rt_blas_step(fxi_gpu_builder *b);
/* For the libraries: the first is called before the product's call is added, and copies factors;
 * the second after it, and copies the result. */
void fxi_rt_blas_before(fxi_gpu_builder *b, fxi_rt_product *p);
void fxi_rt_blas_after(fxi_gpu_builder *b, fxi_rt_product *p);
/* Writes the addresses of A, B and C of call number `call`, from 0 to p->calls − 1. */
void fxi_rt_blas_addresses(const fxi_rt_product *p, int64_t call, void *const *buffers,
                           char *out[FXI_RT_MATRICES]);

/* ---- what differs (gpurt_cuda_blas.c, gpurt_hip_blas.c) -------------------------------------- */

extern fxi_rt_library fxi_rt_blas;
/* The version of the open library; 0: unknown. */
int64_t fxi_rt_blas_version(void);
/* Adds the product's call. False, with nothing added, if the library cannot compute the product. */
bool fxi_rt_blas_product(fxi_gpu_builder *b, const fxi_rt_product *p);

#endif
