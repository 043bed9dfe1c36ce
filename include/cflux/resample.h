/* cflux/resample.h: operations that change the resolution of images: resizing, pixel shuffle,
 * patches, sampling at given positions. x: spatial…×channels×batch with 1 to 3 spatial axes.
 * NNlib's paddings (fx_pad, fx_pad_reflect, …) are in ops.h. Errors are those of ops.h. All
 * operations have gradients. */
#ifndef CFLUX_RESAMPLE_H
#define CFLUX_RESAMPLE_H

#include <cflux/ops.h>

FXI_BEGIN_C

/* How fx_resize computes elements between those of x. */
typedef enum fx_resize_mode {
    FX_RESIZE_MODE_NEAREST = 0, /* the nearest element */
    FX_RESIZE_MODE_LINEAR,      /* linear along each axis: bilinear, trilinear */
    FX_RESIZE_MODE_CUBIC        /* cubic along each axis: bicubic */
} fx_resize_mode;
/* Options of fx_resize. Set exactly one of scale, size and factors. */
/* clang-format off */
#define FXI_RESIZE_ARGS(F)                                                                         \
    F(fx_array *, x, FXI_NULL)       /* the array */                                               \
    F(fx_resize_mode, mode, FX_RESIZE_MODE_NEAREST) /* how to interpolate */                       \
    F(fx_dims, scale, FXI_DIMS_NONE) /* factors, one per spatial axis, or one number for all */    \
    F(fx_dims, size, FXI_DIMS_NONE)  /* spatial sizes of the result, given like scale */           \
    F(bool, align_corners, true)     /* true: the centres of the outer elements stay in place; false:   \
                                        the outer edges do. NEAREST ignores it */                       \
    F(fx_fractions, factors, FXI_FRACTIONS_NONE) /* like scale, for factors such as 1.5: the sizes are  \
                                                    ⌊factor·n⌋ */
/* clang-format on */
FXI_OPTION_STRUCT(fx_resize_args, FXI_RESIZE_ARGS);
/* Changes the spatial sizes of x from n to m. NEAREST: y[i] = x[⌊i·n/m⌋]. LINEAR: y[i] =
 * (1−w)·x[⌊u⌋] + w·x[⌊u⌋+1] along each axis with w = u − ⌊u⌋ and u = i·(n−1)/(m−1), 0 if m = 1.
 * With .align_corners = false, u = (i+½)·n/m − ½, at least 0 and at most n−1. CUBIC: u is as for
 * LINEAR, but not bounded; y[i] is the sum of the four elements around u, weighted by Keys' kernel
 * with a = −¾. Beyond the edges the outer elements are repeated. Keys, 1981; PyTorch's bicubic.
 * LINEAR and CUBIC turn integers into Float32. FX_STATUS_SHAPE if n = 0 and m > 0.
 * NNlib.upsample_nearest (which takes multiples only), upsample_linear, upsample_bilinear,
 * upsample_trilinear. */
FX_API fx_array *fxi_resize(const fx_resize_args *a);
#define fx_resize(...)                                                                             \
    FXI_CALL(fxi_resize(FXI_OPTIONS(fx_resize_args, FXI_RESIZE_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))

/* Moves channels between the pixels: sizes n…×(c·r^d)×batch become (n·r)…×c×batch for d spatial
 * axes. Channel j₀ + j₁·r + … + c·r^d of x gives element (j₀, j₁, …) of every group of
 * r×r×… pixels in channel c of the result.
 * FX_STATUS_SHAPE if r^d does not divide the channels. NNlib.pixel_shuffle; Shi et al., 2016. */
FX_API fx_array *fx_pixel_shuffle(fx_array *x, int64_t r);

/* Options of fx_unfold. */
/* clang-format off */
#define FXI_UNFOLD_ARGS(F)                                                                         \
    F(fx_array *, x, FXI_NULL)         /* the array */                                             \
    F(fx_dims, kernel, FXI_DIMS_NONE)  /* sizes of a patch: per spatial axis, or one for all */    \
    F(fx_dims, stride, FXI_DIMS_ONE)   /* per spatial axis, or one number for all */               \
    F(fx_dims, pad, FXI_DIMS_ZERO)     /* zeros: n, one per axis, or (before, after) per axis */   \
    F(fx_dims, dilation, FXI_DIMS_ONE) /* distance of a patch's elements, given like stride */     \
    F(bool, flipped, true)             /* true: patches in their own order; false: reversed, for      \
                                          kernels of fx_convolve */
/* clang-format on */
FXI_OPTION_STRUCT(fx_unfold_args, FXI_UNFOLD_ARGS);
/* Copies every patch of x, the numbers that a convolution multiplies by its kernel, to a row of the
 * result: (Π windows)×(Π kernel · channels)×batch. The product of these matrices and w as a matrix,
 * (Π kernel · channels)×out, is fx_convolve(x, w, .flipped = true); for patches with .flipped =
 * false it is fx_convolve(x, w). NNlib.unfold. */
FX_API fx_array *fxi_unfold(const fx_unfold_args *a);
#define fx_unfold(...)                                                                             \
    FXI_CALL(fxi_unfold(FXI_OPTIONS(fx_unfold_args, FXI_UNFOLD_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))

/* Options of fx_fold. `size` is the size of the result; all others are those of fx_unfold. */
/* clang-format off */
#define FXI_FOLD_ARGS(F)                                                                           \
    F(fx_array *, x, FXI_NULL)         /* (Π windows)×(Π kernel · channels)×batch */               \
    F(fx_dims, size, FXI_DIMS_NONE)    /* spatial sizes of the result */                           \
    F(fx_dims, kernel, FXI_DIMS_NONE)  /* sizes of a patch: per spatial axis, or one for all */    \
    F(fx_dims, stride, FXI_DIMS_ONE)   /* per spatial axis, or one number for all */               \
    F(fx_dims, pad, FXI_DIMS_ZERO)     /* as in fx_unfold */                                       \
    F(fx_dims, dilation, FXI_DIMS_ONE) /* distance of a patch's elements, given like stride */     \
    F(bool, flipped, true)             /* as in fx_unfold */
/* clang-format on */
FXI_OPTION_STRUCT(fx_fold_args, FXI_FOLD_ARGS);
/* Adds the patches of fx_unfold at their positions: the gradient of fx_unfold as an operation. The
 * result is size…×channels×batch; where patches overlap it holds sums. FX_STATUS_SHAPE if the
 * number of rows is not the number of windows, or if Π kernel does not divide the number of
 * columns. NNlib.fold. */
FX_API fx_array *fxi_fold(const fx_fold_args *a);
#define fx_fold(...)                                                                               \
    FXI_CALL(fxi_fold(FXI_OPTIONS(fx_fold_args, FXI_FOLD_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))

/* The values that fx_grid_sample uses outside x. */
typedef enum fx_grid_padding {
    FX_GRID_PADDING_ZEROS = 0, /* 0 */
    FX_GRID_PADDING_BORDER     /* the element of the border */
} fx_grid_padding;
/* Options of fx_grid_sample. */
/* clang-format off */
#define FXI_GRID_SAMPLE_ARGS(F)                                                                    \
    F(fx_array *, x, FXI_NULL)       /* the array */                                               \
    F(fx_array *, grid, FXI_NULL)    /* positions: d×out…×batch for d spatial axes, from −1 to 1 */ \
    F(fx_grid_padding, padding, FX_GRID_PADDING_ZEROS) /* values outside x */                      \
    F(bool, nearest, false)          /* true: the nearest element; false: linear along each axis */ \
    F(bool, align_corners, true)     /* true: −1 and 1 are the centres of the outer elements; false: \
                                        the outer edges */
/* clang-format on */
FXI_OPTION_STRUCT(fx_grid_sample_args, FXI_GRID_SAMPLE_ARGS);
/* The values of x at the positions of a grid: the result is out…×channels×batch. grid[k, …] is the
 * position along axis k: −1 at its beginning, 1 at its end. With .nearest the gradient with respect
 * to the grid is 0. Integers become Float32. FX_STATUS_SHAPE if x and the grid do not match, or if
 * x has no elements along a spatial axis. NNlib.grid_sample (whose corners are aligned); Jaderberg
 * et al., 2015. */
FX_API fx_array *fxi_grid_sample(const fx_grid_sample_args *a);
#define fx_grid_sample(...)                                                                        \
    FXI_CALL(fxi_grid_sample(                                                                      \
        FXI_OPTIONS(fx_grid_sample_args, FXI_GRID_SAMPLE_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))

FXI_END_C
#endif
