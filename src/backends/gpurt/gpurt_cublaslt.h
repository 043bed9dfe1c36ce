/* gpurt_cublaslt.h: the functions of cuBLASLt that the CUDA plugin uses, so that its header is not
 * needed; see gpurt_api.h. Internal.
 *
 *     X(result, member, symbol, NEEDED or OPTIONAL, arguments)
 */
#ifndef CFLUX_GPURT_CUBLASLT_H
#define CFLUX_GPURT_CUBLASLT_H

#include "gpurt_api.h"

typedef struct fxi_lt_handle_object *fxi_lt_handle;
typedef struct fxi_lt_desc_object *fxi_lt_desc;
typedef struct fxi_lt_layout_object *fxi_lt_layout;
typedef struct fxi_lt_preference_object *fxi_lt_preference; /* cuBLASLt calls it a preference */

typedef struct fxi_lt_algorithm {
    uint64_t data[8];
} fxi_lt_algorithm;

/* An answer of the heuristic. */
typedef struct fxi_lt_found {
    fxi_lt_algorithm algorithm;
    size_t work;
    int status;
    float waves;
    int reserved[4];
} fxi_lt_found;

enum {
    FXI_LT_OK = 0,
    FXI_LT_NOT_SUPPORTED = 15,

    FXI_LT_R_32F = 0, /* types of elements */
    FXI_LT_R_64F = 1,
    FXI_LT_R_16F = 2,
    FXI_LT_R_16BF = 14,
    FXI_LT_COMPUTE_32F = 68, /* types of sums */
    FXI_LT_COMPUTE_64F = 70,
    FXI_LT_COMPUTE_TF32 = 77,

    FXI_LT_DESC_TRANSPOSE_A = 3, /* attributes of a product */
    FXI_LT_DESC_TRANSPOSE_B = 4,
    FXI_LT_DESC_EPILOGUE = 7,
    FXI_LT_DESC_BIAS = 8,
    FXI_LT_OP_T = 1,
    FXI_LT_EPILOGUE_BIAS = 4,
    FXI_LT_LAYOUT_BATCHES = 5, /* of a matrix */
    FXI_LT_LAYOUT_BATCH_STRIDE = 6,
    FXI_LT_PREFERENCE_WORK = 1, /* of a preference */
    FXI_LT_PREFERENCE_REDUCTIONS = 3,
    FXI_LT_PREFERENCE_ALIGNMENT_A = 5, /* then of B, C and D */
    FXI_LT_REDUCTION_COMPUTE_TYPE = 2,
};

#define FXI_LT_FUNCTIONS(X)                                                                        \
    X(size_t, Version, cublasLtGetVersion, NEEDED, (void))                                         \
    X(const char *, StatusName, cublasLtGetStatusName, NEEDED, (int))                              \
    X(int, Create, cublasLtCreate, NEEDED, (fxi_lt_handle *))                                      \
    X(int, DescCreate, cublasLtMatmulDescCreate, NEEDED, (fxi_lt_desc *, int, int))                \
    X(int, DescSet, cublasLtMatmulDescSetAttribute, NEEDED,                                        \
      (fxi_lt_desc, int, const void *, size_t))                                                    \
    X(int, DescDestroy, cublasLtMatmulDescDestroy, NEEDED, (fxi_lt_desc))                          \
    X(int, LayoutCreate, cublasLtMatrixLayoutCreate, NEEDED,                                       \
      (fxi_lt_layout *, int, uint64_t, uint64_t, int64_t))                                         \
    X(int, LayoutSet, cublasLtMatrixLayoutSetAttribute, NEEDED,                                    \
      (fxi_lt_layout, int, const void *, size_t))                                                  \
    X(int, LayoutDestroy, cublasLtMatrixLayoutDestroy, NEEDED, (fxi_lt_layout))                    \
    X(int, PreferenceCreate, cublasLtMatmulPreferenceCreate, NEEDED, (fxi_lt_preference *))        \
    X(int, PreferenceSet, cublasLtMatmulPreferenceSetAttribute, NEEDED,                            \
      (fxi_lt_preference, int, const void *, size_t))                                              \
    X(int, PreferenceDestroy, cublasLtMatmulPreferenceDestroy, NEEDED, (fxi_lt_preference))        \
    X(int, Heuristic, cublasLtMatmulAlgoGetHeuristic, NEEDED,                                      \
      (fxi_lt_handle, fxi_lt_desc, fxi_lt_layout, fxi_lt_layout, fxi_lt_layout, fxi_lt_layout,     \
       fxi_lt_preference, int, fxi_lt_found *, int *))                                             \
    X(int, Matmul, cublasLtMatmul, NEEDED,                                                         \
      (fxi_lt_handle, fxi_lt_desc, const void *, const void *, fxi_lt_layout, const void *,        \
       fxi_lt_layout, const void *, const void *, fxi_lt_layout, void *, fxi_lt_layout,            \
       const fxi_lt_algorithm *, void *, size_t, fxi_rt_stream))

#endif
