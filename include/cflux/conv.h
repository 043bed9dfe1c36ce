/* cflux/conv.h: layers of convolution, pooling and resizing. Included by nn.h, which describes
 * constructors and errors. Names, defaults and formulas are those of Flux 0.16. In formulas n is
 * the size of x along a spatial axis, k that of the kernel, and x is spatial…×channels×batch with 1
 * to 3 spatial axes. */
#ifndef CFLUX_CONV_H
#define CFLUX_CONV_H

#include <cflux/nn.h>

FXI_BEGIN_C

/* Padding that keeps the spatial sizes for stride 1: (k−1)·dilation in total per axis, half of it
 * before (rounded up) and half after. ConvTranspose: (k−stride)·dilation. Flux's SamePad(),
 * resolved by the constructor. */
#define FX_SAME fxi_same_pad()
static inline fx_dims fxi_same_pad(void)
{
    fx_dims d = {-1, {0}};
    return d;
}

/* ---- Conv ------------------------------------------------------------------------------------ */
/* y = act(W ∗ x + b), a convolution with a flipped kernel (fx_convolve). x: spatial…×in×batch, W:
 * kernel…×in/groups×out, y: spatial…×out×batch. Size of y along a spatial axis: ⌊(n + pads −
 * (k−1)·dilation − 1)/stride⌋ + 1. Flux.Conv. */
typedef struct fx_conv_layer {
    fx_object base;
    fx_array *weight, *bias; /* bias is NULL with .bias = false */
    fx_function *act;
    fx_dims stride, pad, dilation; /* one per spatial axis; pad may hold (before, after) per axis */
    int64_t groups;
} fx_conv_layer;
/* clang-format off */
#define FXI_CONV_ARGS(F)                                                                           \
    F(fx_dims, kernel, FXI_DIMS_NONE)      /* sizes k, e.g. FX_DIMS(5, 5) */                       \
    F(int64_t, in, 0)                      /* channels of x */                                     \
    F(int64_t, out, 0)                     /* channels of y */                                     \
    F(fx_function *, act, FX_IDENTITY)     /* activation */                                        \
    F(fx_dims, stride, FXI_DIMS_ONE)       /* one per axis, or one number for all */               \
    F(fx_dims, pad, FXI_DIMS_ZERO)         /* as stride, or (before, after) per axis, or           \
                                              FX_SAME */                                           \
    F(fx_dims, dilation, FXI_DIMS_ONE)     /* one per axis, or one number for all */               \
    F(int64_t, groups, 1)                  /* must divide in and out */                            \
    F(int, bias, true)                     /* false: no bias */                                    \
    F(fx_init_fn, init, fx_glorot_uniform) /* initialiser of W */                                  \
    F(fx_array *, weight_array, FXI_NULL)  /* W itself, instead of init; in and out may be 0 */    \
    F(fx_array *, bias_array, FXI_NULL)    /* b itself, instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_conv_args, FXI_CONV_ARGS);
FX_API fx_conv_layer *fxi_conv(const fx_conv_args *a);
#define fx_conv(...)                                                                               \
    FXI_CALL(fxi_conv(FXI_OPTIONS(fx_conv_args, FXI_CONV_ARGS(FXI_DEFAULT).kernel =                \
                                                    FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- CrossCor -------------------------------------------------------------------------------- */
/* y = act(W ⋆ x + b), a cross-correlation: Conv with a kernel that is not flipped. W:
 * kernel…×in×out, y: spatial…×out×batch. Sizes as for Conv; there are no groups. Flux.CrossCor;
 * PyTorch's Conv1d to Conv3d. */
typedef struct fx_crosscor_layer {
    fx_object base;
    fx_array *weight, *bias; /* bias is NULL with .bias = false */
    fx_function *act;
    fx_dims stride, pad, dilation; /* one per spatial axis; pad may hold (before, after) per axis */
} fx_crosscor_layer;
/* clang-format off */
#define FXI_CROSSCOR_ARGS(F)                                                                       \
    F(fx_dims, kernel, FXI_DIMS_NONE)      /* sizes k, e.g. FX_DIMS(5, 5) */                       \
    F(int64_t, in, 0)                      /* channels of x */                                     \
    F(int64_t, out, 0)                     /* channels of y */                                     \
    F(fx_function *, act, FX_IDENTITY)     /* activation */                                        \
    F(fx_dims, stride, FXI_DIMS_ONE)       /* one per axis, or one number for all */               \
    F(fx_dims, pad, FXI_DIMS_ZERO)         /* as stride, or (before, after) per axis, or           \
                                              FX_SAME */                                           \
    F(fx_dims, dilation, FXI_DIMS_ONE)     /* one per axis, or one number for all */               \
    F(int, bias, true)                     /* false: no bias */                                    \
    F(fx_init_fn, init, fx_glorot_uniform) /* initialiser of W */                                  \
    F(fx_array *, weight_array, FXI_NULL)  /* W itself, instead of init; in and out may be 0 */    \
    F(fx_array *, bias_array, FXI_NULL)    /* b itself, instead of zeros */
/* clang-format on */
FXI_OPTION_STRUCT(fx_crosscor_args, FXI_CROSSCOR_ARGS);
FX_API fx_crosscor_layer *fxi_crosscor(const fx_crosscor_args *a);
#define fx_crosscor(...)                                                                           \
    FXI_CALL(fxi_crosscor(FXI_OPTIONS(fx_crosscor_args, FXI_CROSSCOR_ARGS(FXI_DEFAULT).kernel =    \
                                                            FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- ConvTranspose --------------------------------------------------------------------------- */
/* y = act(Wᵀ ∗ x + b): the gradient of a convolution with respect to its input, as a layer
 * (fx_convolve_transposed). W: kernel…×out/groups×in, y: spatial…×out×batch. Size of y along a
 * spatial axis: (n−1)·stride + 1 + (k−1)·dilation − pads + outpad. With FX_SAME and dilation 1 it
 * is n·stride; a stride larger than k is FX_STATUS_ARGUMENT with FX_SAME. Flux.ConvTranspose;
 * Dumoulin, Visin, 2016. */
typedef struct fx_convtranspose_layer {
    fx_object base;
    fx_array *weight, *bias; /* bias is NULL with .bias = false */
    fx_function *act;
    fx_dims stride, pad, dilation; /* one per spatial axis; pad may hold (before, after) per axis */
    fx_dims outpad;                /* one per spatial axis */
    int64_t groups;
} fx_convtranspose_layer;
/* clang-format off */
#define FXI_CONVTRANSPOSE_ARGS(F)                                                                  \
    F(fx_dims, kernel, FXI_DIMS_NONE)      /* sizes k, e.g. FX_DIMS(5, 5) */                       \
    F(int64_t, in, 0)                      /* channels of x */                                     \
    F(int64_t, out, 0)                     /* channels of y */                                     \
    F(fx_function *, act, FX_IDENTITY)     /* activation */                                        \
    F(fx_dims, stride, FXI_DIMS_ONE)       /* one per axis, or one number for all */               \
    F(fx_dims, pad, FXI_DIMS_ZERO)         /* as stride, or (before, after) per axis, or           \
                                              FX_SAME; removed from y */                           \
    F(fx_dims, dilation, FXI_DIMS_ONE)     /* one per axis, or one number for all */               \
    F(int64_t, groups, 1)                  /* must divide in and out */                            \
    F(int, bias, true)                     /* false: no bias */                                    \
    F(fx_init_fn, init, fx_glorot_uniform) /* initialiser of W */                                  \
    F(fx_array *, weight_array, FXI_NULL)  /* W itself, instead of init; in and out may be 0 */    \
    F(fx_array *, bias_array, FXI_NULL)    /* b itself, instead of zeros */                        \
    F(fx_dims, outpad, FXI_DIMS_ZERO)      /* added to the size of y: one per axis, or one number  \
                                              for all */
/* clang-format on */
FXI_OPTION_STRUCT(fx_convtranspose_args, FXI_CONVTRANSPOSE_ARGS);
FX_API fx_convtranspose_layer *fxi_convtranspose(const fx_convtranspose_args *a);
#define fx_convtranspose(...)                                                                      \
    FXI_CALL(fxi_convtranspose(                                                                    \
        FXI_OPTIONS(fx_convtranspose_args,                                                         \
                    FXI_CONVTRANSPOSE_ARGS(FXI_DEFAULT).kernel = FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- DepthwiseConv --------------------------------------------------------------------------- */
/* A Conv with one group per input channel: each channel of x gives out/in channels of y. `in` must
 * divide `out`, and `in` is required with .weight_array too. The options are those of fx_conv;
 * .groups must not be set. In Flux, DepthwiseConv is also a function that makes a Conv. */
typedef fx_conv_layer fx_depthwiseconv_layer;
typedef fx_conv_args fx_depthwiseconv_args;
FX_API fx_depthwiseconv_layer *fxi_depthwiseconv(const fx_depthwiseconv_args *a);
#define fx_depthwiseconv(...)                                                                      \
    FXI_CALL(fxi_depthwiseconv(FXI_OPTIONS(                                                        \
        fx_depthwiseconv_args, FXI_CONV_ARGS(FXI_DEFAULT).kernel = FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- MaxPool, MeanPool ----------------------------------------------------------------------- */
/* Maximum (Flux.MaxPool) or mean (Flux.MeanPool) of every window, fx_pool_max and fx_pool_mean. x:
 * spatial…×channels×batch. Both layers have the same members and options. */
typedef struct fx_maxpool_layer {
    fx_object base;
    fx_dims window, pad, stride;
} fx_maxpool_layer;
typedef fx_maxpool_layer fx_meanpool_layer;
/* clang-format off */
#define FXI_MAXPOOL_ARGS(F)                                                                        \
    F(fx_dims, window, FXI_DIMS_NONE) /* sizes, e.g. FX_DIMS(2, 2) */                              \
    F(fx_dims, pad, FXI_DIMS_ZERO)    /* per axis, or (before, after), or FX_SAME */               \
    F(fx_dims, stride, FXI_DIMS_NONE) /* default: the window */
/* clang-format on */
FXI_OPTION_STRUCT(fx_maxpool_args, FXI_MAXPOOL_ARGS);
typedef fx_maxpool_args fx_meanpool_args;
FX_API fx_maxpool_layer *fxi_maxpool(const fx_maxpool_args *a);
FX_API fx_meanpool_layer *fxi_meanpool(const fx_meanpool_args *a);
#define fx_maxpool(...)                                                                            \
    FXI_CALL(fxi_maxpool(FXI_OPTIONS(fx_maxpool_args, FXI_MAXPOOL_ARGS(FXI_DEFAULT).window =       \
                                                          FXI_DIMS_FIRST(__VA_ARGS__))))
#define fx_meanpool(...)                                                                           \
    FXI_CALL(fxi_meanpool(FXI_OPTIONS(fx_meanpool_args, FXI_MAXPOOL_ARGS(FXI_DEFAULT).window =     \
                                                            FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- GlobalMaxPool, GlobalMeanPool ----------------------------------------------------------- */
/* Maximum or mean over all spatial axes. x: spatial…×channels×batch with 1 to 3 spatial axes, y:
 * the same with spatial sizes of 1. The layers have no options. The maximum of no numbers is
 * FX_STATUS_SHAPE, their mean is NaN. Flux.GlobalMaxPool, Flux.GlobalMeanPool. */
typedef struct fx_globalmaxpool_layer {
    fx_object base;
} fx_globalmaxpool_layer;
typedef fx_globalmaxpool_layer fx_globalmeanpool_layer;
FX_API fx_globalmaxpool_layer *fx_globalmaxpool(void);
FX_API fx_globalmeanpool_layer *fx_globalmeanpool(void);

/* ---- AdaptiveMaxPool, AdaptiveMeanPool ------------------------------------------------------- */
/* Maximum or mean of windows chosen so that the result has the spatial sizes `out`: the stride is
 * ⌊n/out⌋ and the window n − (out−1)·stride, so windows may overlap, as in Flux (PyTorch's windows
 * differ if out does not divide n). FX_STATUS_SHAPE if n < out. Flux.AdaptiveMaxPool,
 * Flux.AdaptiveMeanPool. */
typedef struct fx_adaptivemaxpool_layer {
    fx_object base;
    fx_dims out;
} fx_adaptivemaxpool_layer;
typedef fx_adaptivemaxpool_layer fx_adaptivemeanpool_layer;
#define FXI_ADAPTIVEMAXPOOL_ARGS(F)                                                                \
    F(fx_dims, out, FXI_DIMS_NONE) /* sizes of y, e.g. FX_DIMS(7, 7) */
FXI_OPTION_STRUCT(fx_adaptivemaxpool_args, FXI_ADAPTIVEMAXPOOL_ARGS);
typedef fx_adaptivemaxpool_args fx_adaptivemeanpool_args;
FX_API fx_adaptivemaxpool_layer *fxi_adaptivemaxpool(const fx_adaptivemaxpool_args *a);
FX_API fx_adaptivemeanpool_layer *fxi_adaptivemeanpool(const fx_adaptivemeanpool_args *a);
#define fx_adaptivemaxpool(...)                                                                    \
    FXI_CALL(fxi_adaptivemaxpool(                                                                  \
        FXI_OPTIONS(fx_adaptivemaxpool_args,                                                       \
                    FXI_ADAPTIVEMAXPOOL_ARGS(FXI_DEFAULT).out = FXI_DIMS_FIRST(__VA_ARGS__))))
#define fx_adaptivemeanpool(...)                                                                   \
    FXI_CALL(fxi_adaptivemeanpool(                                                                 \
        FXI_OPTIONS(fx_adaptivemeanpool_args,                                                      \
                    FXI_ADAPTIVEMAXPOOL_ARGS(FXI_DEFAULT).out = FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- LPNormPool ------------------------------------------------------------------------------ */
/* y = (Σ|x|^p)^(1/p) over every window (fx_pool_lpnorm). x: spatial…×channels×batch. Flux has only
 * the function NNlib.lpnormpool, not a layer, so BSON cannot store this layer. In PyTorch: LPPool1d
 * to LPPool3d.
 */
typedef struct fx_lpnormpool_layer {
    fx_object base;
    fx_dims window, pad, stride;
    double p;
} fx_lpnormpool_layer;
/* clang-format off */
#define FXI_LPNORMPOOL_ARGS(F)                                                                     \
    F(fx_dims, window, FXI_DIMS_NONE) /* sizes, e.g. FX_DIMS(2, 2) */                              \
    F(double, p, 2)                   /* p > 0, finite */                                          \
    F(fx_dims, pad, FXI_DIMS_ZERO)    /* per axis, or (before, after), or FX_SAME */               \
    F(fx_dims, stride, FXI_DIMS_NONE) /* default: the window */
/* clang-format on */
FXI_OPTION_STRUCT(fx_lpnormpool_args, FXI_LPNORMPOOL_ARGS);
FX_API fx_lpnormpool_layer *fxi_lpnormpool(const fx_lpnormpool_args *a);
#define fx_lpnormpool(...)                                                                         \
    FXI_CALL(                                                                                      \
        fxi_lpnormpool(FXI_OPTIONS(fx_lpnormpool_args, FXI_LPNORMPOOL_ARGS(FXI_DEFAULT).window =   \
                                                           FXI_DIMS_FIRST(__VA_ARGS__))))

/* ---- Upsample -------------------------------------------------------------------------------- */
/* How Upsample computes new elements: see fx_resize (resample.h). */
typedef enum fx_upsample_mode {
    FX_UPSAMPLE_MODE_NEAREST = 0, /* for 1 to 3 spatial axes */
    FX_UPSAMPLE_MODE_BILINEAR,    /* linear, for 2 spatial axes; corners stay in place */
    FX_UPSAMPLE_MODE_TRILINEAR    /* the same for 3 */
} fx_upsample_mode;
/* Enlarges the spatial axes of x by factors or to sizes; set exactly one of .scale and .size. x:
 * spatial…×channels×batch. Scales are whole numbers; for other factors pass the sizes. With
 * NEAREST, Flux accepts only sizes that are multiples of those of x. Flux.Upsample. */
typedef struct fx_upsample_layer {
    fx_object base;
    int64_t mode;        /* an fx_upsample_mode */
    fx_dims scale, size; /* as the options */
} fx_upsample_layer;
/* clang-format off */
#define FXI_UPSAMPLE_ARGS(F)                                                                       \
    F(fx_upsample_mode, mode, FX_UPSAMPLE_MODE_NEAREST) /* how to interpolate */                   \
    F(fx_dims, scale, FXI_DIMS_NONE) /* factors, one per spatial axis, or one number for all */    \
    F(fx_dims, size, FXI_DIMS_NONE)  /* spatial sizes of y, given like scale */
/* clang-format on */
FXI_OPTION_STRUCT(fx_upsample_args, FXI_UPSAMPLE_ARGS);
FX_API fx_upsample_layer *fxi_upsample(const fx_upsample_args *a);
#define fx_upsample(...)                                                                           \
    FXI_CALL(fxi_upsample(                                                                         \
        FXI_OPTIONS(fx_upsample_args, FXI_UPSAMPLE_ARGS(FXI_DEFAULT).mode = __VA_ARGS__)))

/* ---- PixelShuffle ---------------------------------------------------------------------------- */
/* Moves channels between the pixels: n…×(c·r^d)×batch become (n·r)…×c×batch for d spatial axes
 * (fx_pixel_shuffle). Flux.PixelShuffle; Shi et al., 2016. */
typedef struct fx_pixelshuffle_layer {
    fx_object base;
    int64_t r;
} fx_pixelshuffle_layer;
#define FXI_PIXELSHUFFLE_ARGS(F) F(int64_t, r, 0) /* factor, at least 1 */
FXI_OPTION_STRUCT(fx_pixelshuffle_args, FXI_PIXELSHUFFLE_ARGS);
FX_API fx_pixelshuffle_layer *fxi_pixelshuffle(const fx_pixelshuffle_args *a);
#define fx_pixelshuffle(...)                                                                       \
    FXI_CALL(fxi_pixelshuffle(                                                                     \
        FXI_OPTIONS(fx_pixelshuffle_args, FXI_PIXELSHUFFLE_ARGS(FXI_DEFAULT).r = __VA_ARGS__)))

FXI_END_C
#endif
