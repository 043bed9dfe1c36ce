/* gpurt_dnn.h: convolutions by the vendor's library, cuDNN or MIOpen. Internal.
 *
 * gpurt_dnn.c decides which steps a library computes, and adds the calls. gpurt_cuda_dnn.c and
 * gpurt_hip_dnn.c have the calls of each library, as the functions below. Both libraries number
 * their axes in the opposite order: batch, channels, then the spatial axes, the one with the
 * largest stride first.
 */
#ifndef CFLUX_GPURT_DNN_H
#define CFLUX_GPURT_DNN_H

#include "gpu_build.h"
#include "gpurt_library.h"

/* Adds the call of a convolution, as `library` of the runtime does (gpu.h). */
bool fxi_rt_dnn_step(fxi_gpu_builder *b);
/* For fx_functional: NULL if `name` is not a name of the library, "" if the library works,
 * otherwise why not. */
const char *fxi_rt_dnn_part(const char *name);

/* ---- for the two libraries ------------------------------------------------------------------- */

/* A prepared convolution. */
typedef struct fxi_rt_conv {
    int kind; /* FX_CONV_… */
    bool f64;
    void *x, *y, *w, *conv; /* descriptors; NULL: not made */
    size_t work;            /* bytes */
    uint64_t solution;      /* MIOpen's number of the algorithm */
} fxi_rt_conv;

/* The operands, in the order of the library's axes. */
enum { FXI_RT_AXES = 5, FXI_RT_SPACE = 3 };
typedef struct fxi_rt_shape {
    int n, size[FXI_RT_AXES], stride[FXI_RT_AXES];
} fxi_rt_shape;
typedef struct fxi_rt_conv_about {
    fxi_rt_shape x, w, y;
    int dtype;
    int space, pad[FXI_RT_SPACE], stride[FXI_RT_SPACE], dilation[FXI_RT_SPACE]; /* spatial axes */
    int groups;
    bool flips;         /* a convolution; false: a cross-correlation */
    bool tf32;          /* Float32 factors may be rounded */
    bool channels_last; /* x and y have the strides of channels last, and w has this order, too */
} fxi_rt_conv_about;

/* Addresses of a call: the operands in the order of the step, output and work space. */
typedef struct fxi_rt_conv_at {
    const void *first, *second;
    void *out, *work;
} fxi_rt_conv_at;

/* The functions return the library's errors. */
typedef struct fxi_rt_dnn_calls {
    fxi_rt_library *library;
    /* The library computes cross-correlations only, so the weights are copied in reverse
     * (fxi_gpu_reverse). */
    bool needs_flip;
    bool needs_dense; /* it takes dense operands only */
    /* The library's version, a part of the keys of decisions (fxi_gpu_compare). NULL: unknown. */
    int64_t (*version)(void);
    /* Makes the descriptors. */
    int (*describe)(fxi_rt_conv *c, const fxi_rt_conv_about *about);
    /* Chooses the algorithm, and sets c->work. The caller holds the device's lock. */
    int (*choose)(fxi_rt_device *d, fxi_rt_conv *c);
    /* Queues the call, whose name is in *out_call. */
    int (*run)(fxi_rt_device *d, const fxi_rt_conv *c, const fxi_rt_conv_at *at,
               const char **out_call);
    void (*release)(fxi_rt_conv *c); /* frees the descriptors */
    bool (*unsupported)(int error);  /* the library has no algorithm for the step */
    const char *(*error_name)(int error);
} fxi_rt_dnn_calls;
extern const fxi_rt_dnn_calls fxi_rt_dnn;

#endif
