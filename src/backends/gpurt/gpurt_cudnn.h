/* gpurt_cudnn.h: the functions of cuDNN 9 that the CUDA plugin uses, so that its header is not
 * needed; see gpurt_api.h. Internal.
 *
 *     X(result, member, symbol, NEEDED or OPTIONAL, arguments)
 */
#ifndef CFLUX_GPURT_CUDNN_H
#define CFLUX_GPURT_CUDNN_H

#include "gpurt_api.h"

typedef struct fxi_dnn_handle_object *fxi_dnn_handle;
typedef struct fxi_dnn_tensor_object *fxi_dnn_tensor;
typedef struct fxi_dnn_filter_object *fxi_dnn_filter;
typedef struct fxi_dnn_conv_object *fxi_dnn_conv;

enum {
    FXI_DNN_OK = 0,
    FXI_DNN_PARTS_DIFFER = 1002,  /* cuDNN's libraries are of different versions */
    FXI_DNN_NOT_SUPPORTED = 3000, /* and the 999 numbers above it */

    FXI_DNN_FLOAT = 0, /* types */
    FXI_DNN_DOUBLE = 1,
    FXI_DNN_HALF = 2,
    FXI_DNN_BFLOAT16 = 9,
    FXI_DNN_DEFAULT_MATH = 0, /* Float32 may be rounded to TensorFloat-32 */
    FXI_DNN_TENSOR_OP_MATH = 1,
    FXI_DNN_FMA_MATH = 3,
    FXI_DNN_NCHW = 0,
    FXI_DNN_NHWC = 1,
    FXI_DNN_CONVOLUTION = 0,
    FXI_DNN_CROSS_CORRELATION = 1,
    FXI_DNN_FORWARD_PRECOMP_GEMM = 1, /* algorithms: sums of the terms themselves */
    FXI_DNN_DATA_1 = 1,
    FXI_DNN_WEIGHT_1 = 1,
};

#define FXI_DNN_FUNCTIONS(X)                                                                       \
    X(const char *, ErrorString, cudnnGetErrorString, NEEDED, (int))                               \
    X(size_t, Version, cudnnGetVersion, OPTIONAL, (void))                                          \
    X(int, Create, cudnnCreate, NEEDED, (fxi_dnn_handle *))                                        \
    X(int, SetStream, cudnnSetStream, NEEDED, (fxi_dnn_handle, fxi_rt_stream))                     \
    X(int, TensorCreate, cudnnCreateTensorDescriptor, NEEDED, (fxi_dnn_tensor *))                  \
    X(int, TensorSet, cudnnSetTensorNdDescriptor, NEEDED,                                          \
      (fxi_dnn_tensor, int, int, const int *, const int *))                                        \
    X(int, TensorDestroy, cudnnDestroyTensorDescriptor, NEEDED, (fxi_dnn_tensor))                  \
    X(int, FilterCreate, cudnnCreateFilterDescriptor, NEEDED, (fxi_dnn_filter *))                  \
    X(int, FilterSet, cudnnSetFilterNdDescriptor, NEEDED,                                          \
      (fxi_dnn_filter, int, int, int, const int *))                                                \
    X(int, FilterDestroy, cudnnDestroyFilterDescriptor, NEEDED, (fxi_dnn_filter))                  \
    X(int, ConvCreate, cudnnCreateConvolutionDescriptor, NEEDED, (fxi_dnn_conv *))                 \
    X(int, ConvSet, cudnnSetConvolutionNdDescriptor, NEEDED,                                       \
      (fxi_dnn_conv, int, const int *, const int *, const int *, int, int))                        \
    X(int, ConvSetGroups, cudnnSetConvolutionGroupCount, NEEDED, (fxi_dnn_conv, int))              \
    X(int, ConvSetMath, cudnnSetConvolutionMathType, NEEDED, (fxi_dnn_conv, int))                  \
    X(int, ConvDestroy, cudnnDestroyConvolutionDescriptor, NEEDED, (fxi_dnn_conv))                 \
    X(int, ForwardWork, cudnnGetConvolutionForwardWorkspaceSize, NEEDED,                           \
      (fxi_dnn_handle, fxi_dnn_tensor, fxi_dnn_filter, fxi_dnn_conv, fxi_dnn_tensor, int,          \
       size_t *))                                                                                  \
    X(int, DataWork, cudnnGetConvolutionBackwardDataWorkspaceSize, NEEDED,                         \
      (fxi_dnn_handle, fxi_dnn_filter, fxi_dnn_tensor, fxi_dnn_conv, fxi_dnn_tensor, int,          \
       size_t *))                                                                                  \
    X(int, WeightWork, cudnnGetConvolutionBackwardFilterWorkspaceSize, NEEDED,                     \
      (fxi_dnn_handle, fxi_dnn_tensor, fxi_dnn_tensor, fxi_dnn_conv, fxi_dnn_filter, int,          \
       size_t *))                                                                                  \
    X(int, Forward, cudnnConvolutionForward, NEEDED,                                               \
      (fxi_dnn_handle, const void *, fxi_dnn_tensor, const void *, fxi_dnn_filter, const void *,   \
       fxi_dnn_conv, int, void *, size_t, const void *, fxi_dnn_tensor, void *))                   \
    X(int, Data, cudnnConvolutionBackwardData, NEEDED,                                             \
      (fxi_dnn_handle, const void *, fxi_dnn_filter, const void *, fxi_dnn_tensor, const void *,   \
       fxi_dnn_conv, int, void *, size_t, const void *, fxi_dnn_tensor, void *))                   \
    X(int, Weight, cudnnConvolutionBackwardFilter, NEEDED,                                         \
      (fxi_dnn_handle, const void *, fxi_dnn_tensor, const void *, fxi_dnn_tensor, const void *,   \
       fxi_dnn_conv, int, void *, size_t, const void *, fxi_dnn_filter, void *))

#endif
