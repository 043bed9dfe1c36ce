/* gpurt_blas.h: matrix products by the vendor's library: cuBLASLt or rocBLAS. Internal.
 *
 * The library is opened when the first product is prepared, not with the driver: opening cuBLASLt
 * takes a second if its file is not in the page cache. gpurt_blas.c opens it and describes a step
 * as a product that both libraries can compute; gpurt_cuda_blas.c and gpurt_hip_blas.c have the
 * tables of functions and the calls. If the library does not support a step, or if there is no
 * library, cflux's own kernels compute it. docs/design/0050.
 */
#ifndef CFLUX_GPURT_BLAS_H
#define CFLUX_GPURT_BLAS_H

#include "gpu_build.h"
#include "gpurt.h"

/* C = op(A)·op(B), column by column: C has m rows and n columns, without gaps. */
typedef struct fxi_rt_product {
    int dtype;     /* F32, F64, F16 or BF16, of all three */
    bool may_tf32; /* factors may be rounded to TensorFloat-32 */
    int64_t m, n, k;
    bool transpose_a, transpose_b;           /* the factor's rows are dense, not its columns */
    int64_t lda, ldb;                        /* from one column, or row, to the next */
    int64_t batches, step_a, step_b, step_c; /* step: from one batch to the next; 0: the same */
    bool bias; /* operand 2, m numbers, is added to every column of C */
} fxi_rt_product;

/* The runtime's `library` (gpu.h). */
bool fxi_rt_library_step(fxi_gpu_builder *b);
/* For fx_functional: NULL if it is not a name of the library, "" if the library works. */
const char *fxi_rt_blas_part(const char *name);
/* Warns once in the process that products are computed by cflux's kernels, and why. */
void fxi_rt_blas_warn(const char *why);
/* Fails with the library's error in a call, after which the device may be lost. */
fx_status fxi_rt_blas_fail(fxi_rt_device *d, const char *operation, const char *call,
                           const char *error);
/* Begins a call: selects the device for the thread, and counts a launch. */
fx_status fxi_rt_blas_enter(fxi_rt_device *d, const char *operation);

/* ---- what differs (gpurt_cuda_blas.c, gpurt_hip_blas.c) -------------------------------------- */

typedef struct fxi_rt_blas_file {
    const char *file;
    int major; /* the driver's major version that it needs */
} fxi_rt_blas_file;
extern const char *const fxi_rt_blas_names[2]; /* "cuBLASLt", "cuBLAS" */
extern const char fxi_rt_blas_variable[];
extern const char fxi_rt_blas_install[]; /* what to install */
extern const fxi_rt_blas_file fxi_rt_blas_files[];
extern const int fxi_rt_blas_nfiles;
extern const fxi_rt_entry fxi_rt_blas_entries[];
extern const int fxi_rt_blas_nentries;
/* Does a library of this major version work with a driver of that version? */
bool fxi_rt_blas_suits(int major, int driver);
/* Makes the handle of a selected device. NULL with the call and its error in `why`. */
void *fxi_rt_blas_begin(fxi_rt_device *d, char *why, size_t size);
/* Adds the product's call. False, with nothing added, if the library does not take it. */
bool fxi_rt_blas_product(fxi_gpu_builder *b, const fxi_rt_product *p);

#endif
