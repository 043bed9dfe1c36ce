/* gpurt_rocblas.h: the functions of rocBLAS that the AMDGPU plugin uses, so that its header is not
 * needed; see gpurt_api.h. Internal.
 *
 *     X(result, member, symbol, NEEDED or OPTIONAL, arguments)
 */
#ifndef CFLUX_GPURT_ROCBLAS_H
#define CFLUX_GPURT_ROCBLAS_H

#include "gpurt_api.h"

typedef struct fxi_roc_handle_object *fxi_roc_handle;

enum {
    FXI_ROC_OK = 0,
    FXI_ROC_NOT_IMPLEMENTED = 2,
    FXI_ROC_DEGRADED = 7, /* computed, with less memory than would have been best */
    FXI_ROC_SIZE_INCREASED = 9,
    FXI_ROC_SIZE_UNCHANGED = 10,

    FXI_ROC_NONE = 111, /* operations */
    FXI_ROC_TRANSPOSE = 112,
    FXI_ROC_F16 = 150, /* types of elements */
    FXI_ROC_F32 = 151,
    FXI_ROC_F64 = 152,
    FXI_ROC_BF16 = 168,
};

#define FXI_ROC_FUNCTIONS(X)                                                                       \
    X(const char *, StatusName, rocblas_status_to_string, NEEDED, (int))                           \
    X(int, Create, rocblas_create_handle, NEEDED, (fxi_roc_handle *))                              \
    X(int, SetStream, rocblas_set_stream, NEEDED, (fxi_roc_handle, fxi_rt_stream))                 \
    X(int, SetAtomics, rocblas_set_atomics_mode, NEEDED, (fxi_roc_handle, int))                    \
    X(int, SetWork, rocblas_set_workspace, NEEDED, (fxi_roc_handle, void *, size_t))               \
    X(int, StartQuery, rocblas_start_device_memory_size_query, NEEDED, (fxi_roc_handle))           \
    X(int, StopQuery, rocblas_stop_device_memory_size_query, NEEDED, (fxi_roc_handle, size_t *))   \
    X(int, Gemm, rocblas_gemm_strided_batched_ex, NEEDED,                                          \
      (fxi_roc_handle, int, int, int32_t, int32_t, int32_t, const void *, const void *, int,       \
       int32_t, int64_t, const void *, int, int32_t, int64_t, const void *, const void *, int,     \
       int32_t, int64_t, void *, int, int32_t, int64_t, int32_t, int, int, int32_t, uint32_t))

#endif
