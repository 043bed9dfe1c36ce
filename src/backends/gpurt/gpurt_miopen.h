/* gpurt_miopen.h: the functions of MIOpen that the AMDGPU plugin uses, so that its header is not
 * needed; see gpurt_api.h. They are those of AMD's manual and public header (MIOpen 3.3); no call
 * has run yet with the library itself. Internal.
 *
 *     X(result, member, symbol, NEEDED or OPTIONAL, arguments)
 */
#ifndef CFLUX_GPURT_MIOPEN_H
#define CFLUX_GPURT_MIOPEN_H

#include "gpurt_api.h"

typedef struct fxi_mio_handle_object *fxi_mio_handle;
typedef struct fxi_mio_tensor_object *fxi_mio_tensor;
typedef struct fxi_mio_conv_object *fxi_mio_conv;

enum {
    FXI_MIO_OK = 0,
    FXI_MIO_NOT_IMPLEMENTED = 6,
    FXI_MIO_UNSUPPORTED = 8,

    FXI_MIO_HALF = 0, /* types */
    FXI_MIO_FLOAT = 1,
    FXI_MIO_BFLOAT16 = 5,
    FXI_MIO_DOUBLE = 6,
    FXI_MIO_CROSS_CORRELATION = 0, /* MIOpen calls it a convolution */
    FXI_MIO_FP16_ALTERNATIVE = 0,  /* attributes of convolutions */
    FXI_MIO_DETERMINISTIC = 1,

    FXI_MIO_GEMM = 0, /* algorithms of solutions */
    FXI_MIO_DIRECT = 1,
    FXI_MIO_FFT = 2,
    FXI_MIO_WINOGRAD = 3,
    FXI_MIO_IMPLICIT_GEMM = 5,
};

/* A way to compute a convolution: miopenConvSolution_t. */
typedef struct fxi_mio_solution {
    float time; /* milliseconds, measured or estimated */
    size_t work;
    uint64_t id;
    int algorithm;
} fxi_mio_solution;

/* The three kinds of calls have the same form: two operands and an output, and the descriptor of
 * the convolution before the output. */
#define FXI_MIO_LIST                                                                               \
    (fxi_mio_handle, fxi_mio_tensor, fxi_mio_tensor, fxi_mio_conv, fxi_mio_tensor, size_t,         \
     size_t *, fxi_mio_solution *)
#define FXI_MIO_COMPILE                                                                            \
    (fxi_mio_handle, fxi_mio_tensor, fxi_mio_tensor, fxi_mio_conv, fxi_mio_tensor, uint64_t)
#define FXI_MIO_RUN                                                                                \
    (fxi_mio_handle, fxi_mio_tensor, const void *, fxi_mio_tensor, const void *, fxi_mio_conv,     \
     fxi_mio_tensor, void *, void *, size_t, uint64_t)

#define FXI_MIO_FUNCTIONS(X)                                                                       \
    X(const char *, ErrorString, miopenGetErrorString, NEEDED, (int))                              \
    X(int, Create, miopenCreateWithStream, NEEDED, (fxi_mio_handle *, fxi_rt_stream))              \
    X(int, SetStream, miopenSetStream, NEEDED, (fxi_mio_handle, fxi_rt_stream))                    \
    X(int, TensorCreate, miopenCreateTensorDescriptor, NEEDED, (fxi_mio_tensor *))                 \
    X(int, TensorSet, miopenSetTensorDescriptor, NEEDED,                                           \
      (fxi_mio_tensor, int, int, const int *, const int *))                                        \
    X(int, TensorDestroy, miopenDestroyTensorDescriptor, NEEDED, (fxi_mio_tensor))                 \
    X(int, ConvCreate, miopenCreateConvolutionDescriptor, NEEDED, (fxi_mio_conv *))                \
    X(int, ConvSet, miopenInitConvolutionNdDescriptor, NEEDED,                                     \
      (fxi_mio_conv, int, const int *, const int *, const int *, int))                             \
    X(int, ConvSetGroups, miopenSetConvolutionGroupCount, NEEDED, (fxi_mio_conv, int))             \
    X(int, ConvSetAttribute, miopenSetConvolutionAttribute, NEEDED, (fxi_mio_conv, int, int))      \
    X(int, ConvDestroy, miopenDestroyConvolutionDescriptor, NEEDED, (fxi_mio_conv))                \
    X(int, ForwardList, miopenConvolutionForwardGetSolution, NEEDED, FXI_MIO_LIST)                 \
    X(int, ForwardCompile, miopenConvolutionForwardCompileSolution, NEEDED, FXI_MIO_COMPILE)       \
    X(int, Forward, miopenConvolutionForwardImmediate, NEEDED, FXI_MIO_RUN)                        \
    X(int, DataList, miopenConvolutionBackwardDataGetSolution, NEEDED, FXI_MIO_LIST)               \
    X(int, DataCompile, miopenConvolutionBackwardDataCompileSolution, NEEDED, FXI_MIO_COMPILE)     \
    X(int, Data, miopenConvolutionBackwardDataImmediate, NEEDED, FXI_MIO_RUN)                      \
    X(int, WeightList, miopenConvolutionBackwardWeightsGetSolution, NEEDED, FXI_MIO_LIST)          \
    X(int, WeightCompile, miopenConvolutionBackwardWeightsCompileSolution, NEEDED,                 \
      FXI_MIO_COMPILE)                                                                             \
    X(int, Weight, miopenConvolutionBackwardWeightsImmediate, NEEDED, FXI_MIO_RUN)

#endif
