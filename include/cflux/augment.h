/* cflux/augment.h: random changes of images, by operations that run on the images' device.
 *
 * x: spatial…×channels×batch with 1 to 3 spatial axes (width×height×channels×batch for images).
 * Each observation of a batch is changed independently. Its channels are flipped, cut and moved
 * together; noise differs for each element. Outside of training (FX_STEP) the result is x itself,
 * or the centre for fx_random_crop. With .always the functions also change images outside of
 * training: set it in functions of fx_mapobs, because workers are never in training mode. The
 * numbers come from the thread's random stream, or from .seed. Results are differentiable.
 *
 * Errors: FX_STATUS_SHAPE if x does not have 3 to 5 axes; FX_STATUS_ARGUMENT for NULL and for an
 * option out of range. */
#ifndef CFLUX_AUGMENT_H
#define CFLUX_AUGMENT_H

#include <cflux/data.h>
#include <cflux/ops.h>

FXI_BEGIN_C

/* Options of the functions below. Each function uses the options that its comment names. */
/* clang-format off */
#define FXI_AUGMENT_ARGS(F)                                                                        \
    F(fx_array *, x, FXI_NULL)          /* the images */                                           \
    F(fx_dims, sizes, FXI_DIMS_NONE)    /* one number per spatial axis, or one for all */          \
    F(fx_axes, dims, FXI_AXES_OF(0))    /* spatial axes to flip; default: the width */             \
    F(double, p, 0.5)                   /* probability of a flip, from 0 to 1 */                   \
    F(double, std, 0.1)                 /* standard deviation of the noise, at least 0 */          \
    F(double, fill, 0)                  /* value of elements that are shifted in */                \
    F(bool, always, false)              /* true: also outside of training */                       \
    F(uint64_t, seed, FX_DRAWN)         /* seed of this call; FX_DRAWN: the thread's stream */
/* clang-format on */
FXI_OPTION_STRUCT(fx_augment_args, FXI_AUGMENT_ARGS);
/* fx_random_flip(x, .p = 0.5): each observation is reversed along each axis of .dims with
 * probability p, independently. */
FX_API fx_array *fxi_random_flip(const fx_augment_args *a);
/* fx_random_crop(x, FX_DIMS(28, 28)): cuts a part of the sizes .sizes out of each observation, at a
 * random position; all positions are equally likely. Outside of training: the centre, which begins
 * at ⌊(n − size)/2⌋. FX_STATUS_ARGUMENT if a size is below 1 or above the image's. */
FX_API fx_array *fxi_random_crop(const fx_augment_args *a);
/* fx_random_shift(x, FX_DIMS(2, 2)): moves each observation along each spatial axis by a random
 * whole number from −s to s, with s from .sizes. Elements that are shifted in are .fill. */
FX_API fx_array *fxi_random_shift(const fx_augment_args *a);
/* fx_random_noise(x, .std = 0.1): x + std·n, n standard normal, one number per element.
 * FX_STATUS_DTYPE if x is not floating-point. */
FX_API fx_array *fxi_random_noise(const fx_augment_args *a);

/* x, which has two spatial axes, rotated by `theta` radians about their centre. The result at
 * distance (u, v) from the centre along axes 0 and 1 is the value of x at distance (cos θ·u − sin
 * θ·v, sin θ·u + cos θ·v): linear between elements, or with `nearest` that of the nearest element;
 * 0 outside of the image. Images of integers give Float32. Unlike the functions above it is not
 * random, and it acts in inference too. FX_STATUS_SHAPE unless x has 4 axes. NNlib.imrotate rotates
 * about the element ⌊n/2⌋, which is not the centre if n is even. With linear interpolation it gives
 * 0 where one of the four neighbours is outside of the image. */
FX_API fx_array *fx_imrotate(fx_array *x, double theta, bool nearest);

#define FXI_AUGMENT(f, ...)                                                                        \
    FXI_CALL((f)(FXI_OPTIONS(fx_augment_args, FXI_AUGMENT_ARGS(FXI_DEFAULT).x = __VA_ARGS__)))
#define fx_random_flip(...)  FXI_AUGMENT(fxi_random_flip, __VA_ARGS__)
#define fx_random_crop(...)  FXI_AUGMENT(fxi_random_crop, __VA_ARGS__)
#define fx_random_shift(...) FXI_AUGMENT(fxi_random_shift, __VA_ARGS__)
#define fx_random_noise(...) FXI_AUGMENT(fxi_random_noise, __VA_ARGS__)

FXI_END_C
#endif
