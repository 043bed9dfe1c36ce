/* gpu_product.h: describes a matmul step as the product that BLAS libraries compute. Internal.
 */
#ifndef CFLUX_GPU_PRODUCT_H
#define CFLUX_GPU_PRODUCT_H

#include "gpu_text.h"

/* The matrices of a product, and the numbers of a call's buffers. */
enum { FXI_GPU_A, FXI_GPU_B, FXI_GPU_C, FXI_GPU_MATRICES };

/* An axis of batches: `stride` has the distances in elements from one batch to the next; 0: all
 * batches have the same factor. */
typedef struct fxi_gpu_batches {
    int64_t n, stride[FXI_GPU_MATRICES];
} fxi_gpu_batches;

/* C = op(A)·op(B), column by column: C has m rows and n columns. */
typedef struct fxi_gpu_product {
    int dtype;     /* F32, F64, F16 or BF16, of all three */
    bool may_tf32; /* factors may be rounded to TensorFloat-32 */
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* the factor's rows are dense, not its columns */
    int64_t lda, ldb, ldc;         /* from one column, or row, to the next */
    fxi_gpu_batches batch;         /* the batches of one call */
    /* Axes of batches besides `batch`: there is a call for each combination of their indices. */
    int nmore;
    fxi_gpu_batches more[FX_MAX_DIMS];
    int64_t calls;
    fxi_gpu_buffer_ref at[FXI_GPU_MATRICES];
    /* If `ld` is above 0, the matrix is a wider copy in work space, and this is the operand or the
     * output. */
    fxi_gpu_matrix narrow[FXI_GPU_MATRICES];
    bool bias; /* operand 2, m numbers, is added to every column of C */
} fxi_gpu_product;

/* Describes the product of a step, without what follows it (the step's program). False if the
 * element type, the order of the elements in memory or the number of batches suits no library. */
bool fxi_gpu_product_read(const fx_step *s, fxi_gpu_product *out);
/* Writes the addresses of A, B and C of call number `call`, from 0 to p->calls − 1. */
void fxi_gpu_product_addresses(const fxi_gpu_product *p, int64_t call, void *const *buffers,
                               char *out[FXI_GPU_MATRICES]);

#endif
