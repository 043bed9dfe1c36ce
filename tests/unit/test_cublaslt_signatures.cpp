/* test_cublaslt_signatures.cpp: the CUDA plugin calls cuBLASLt and cuDNN as their headers say. The
 * check happens when this file is compiled, where the headers are installed. ctest: native */
#include <cstddef>
#include <cstdio>

#if __has_include(<cublasLt.h>)
#include "../sim/signatures.h"
#include "gpurt_cublaslt.h"

#include <cublasLt.h>

#define SAME(result, member, symbol, need, arguments)                                              \
    static_assert(same_function<result arguments, decltype(symbol)>::value, #symbol);
FXI_LT_FUNCTIONS(SAME)
#define CHECK(own, theirs) static_assert(int(own) == int(theirs), #own);
CHECK(FXI_LT_OK, CUBLAS_STATUS_SUCCESS)
CHECK(FXI_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED)
CHECK(FXI_LT_R_32F, CUDA_R_32F)
CHECK(FXI_LT_R_64F, CUDA_R_64F)
CHECK(FXI_LT_R_16F, CUDA_R_16F)
CHECK(FXI_LT_R_16BF, CUDA_R_16BF)
CHECK(FXI_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F)
CHECK(FXI_LT_COMPUTE_64F, CUBLAS_COMPUTE_64F)
CHECK(FXI_LT_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32)
CHECK(FXI_LT_DESC_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA)
CHECK(FXI_LT_DESC_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB)
CHECK(FXI_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE)
CHECK(FXI_LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
CHECK(FXI_LT_OP_T, CUBLAS_OP_T)
CHECK(FXI_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS)
CHECK(FXI_LT_LAYOUT_BATCHES, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
CHECK(FXI_LT_LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
CHECK(FXI_LT_PREFERENCE_WORK, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
CHECK(FXI_LT_PREFERENCE_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
CHECK(FXI_LT_PREFERENCE_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
CHECK(FXI_LT_PREFERENCE_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
CHECK(FXI_LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
CHECK(sizeof(fxi_lt_algorithm), sizeof(cublasLtMatmulAlgo_t))
CHECK(sizeof(fxi_lt_found), sizeof(cublasLtMatmulHeuristicResult_t))
CHECK(offsetof(fxi_lt_found, work), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize))
CHECK(offsetof(fxi_lt_found, status), offsetof(cublasLtMatmulHeuristicResult_t, state))
static const char found[] = "the header of cuBLASLt agrees";
#else
static const char found[] = "skipped: the header of cuBLASLt is not installed";
#endif

#if __has_include(<cudnn.h>)
#include "../sim/signatures.h"
#include "gpurt_cudnn.h"

#define CUDNN_NO_DEPRECATED_WARNINGS
#include <cudnn.h>

#define SAME_DNN(result, member, symbol, need, arguments)                                          \
    static_assert(same_function<result arguments, decltype(symbol)>::value, #symbol);
FXI_DNN_FUNCTIONS(SAME_DNN)
#define CHECK_DNN(own, theirs) static_assert(int(own) == int(theirs), #own);
CHECK_DNN(FXI_DNN_PARTS_DIFFER, CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)
CHECK_DNN(FXI_DNN_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED)
CHECK_DNN(FXI_DNN_FLOAT, CUDNN_DATA_FLOAT)
CHECK_DNN(FXI_DNN_DOUBLE, CUDNN_DATA_DOUBLE)
CHECK_DNN(FXI_DNN_HALF, CUDNN_DATA_HALF)
CHECK_DNN(FXI_DNN_BFLOAT16, CUDNN_DATA_BFLOAT16)
CHECK_DNN(FXI_DNN_DEFAULT_MATH, CUDNN_DEFAULT_MATH)
CHECK_DNN(FXI_DNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH)
CHECK_DNN(FXI_DNN_FMA_MATH, CUDNN_FMA_MATH)
CHECK_DNN(FXI_DNN_NCHW, CUDNN_TENSOR_NCHW)
CHECK_DNN(FXI_DNN_CONVOLUTION, CUDNN_CONVOLUTION)
CHECK_DNN(FXI_DNN_CROSS_CORRELATION, CUDNN_CROSS_CORRELATION)
CHECK_DNN(FXI_DNN_FORWARD_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
CHECK_DNN(FXI_DNN_DATA_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)
CHECK_DNN(FXI_DNN_WEIGHT_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)
static const char found_dnn[] = "the header of cuDNN agrees";
#else
static const char found_dnn[] = "skipped: the header of cuDNN is not installed";
#endif

int main()
{
    return std::puts(found) < 0 || std::puts(found_dnn) < 0;
}
