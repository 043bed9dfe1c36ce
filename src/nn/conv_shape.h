/* conv_shape.h: sizes and inputs of convolution layers. Internal.
 *
 * Conv, CrossCor and ConvTranspose share these functions. The weight of a transposed convolution is
 * kernel…×out/groups×in, that of the others kernel…×in/groups×out.
 */
#ifndef CFLUX_CONV_SHAPE_H
#define CFLUX_CONV_SHAPE_H

#include "nn_layer.h"

typedef struct fxi_conv_shape {
    bool transposed;
    int64_t groups;
    fx_array *weight; /* NULL if it was not given */
    fx_dims kernel;   /* sizes of the kernel */
    int64_t in, out;  /* channels */
    int64_t sizes[5]; /* of the weight */
} fxi_conv_shape;

/* Completes and checks a shape whose first five members are the options of a layer: a given weight
 * decides, and kernel, in and out must be 0 or agree. False after a failure that it recorded. */
bool fxi_conv_shape_complete(const fx_type *type, fxi_conv_shape *io);

/* The reverse: kernel, in and out from the weight; false if there is none. */
bool fxi_conv_shape_recover(fxi_conv_shape *io);

/* The input of a convolution layer in the type of its weight; an error array unless it has as many
 * axes as the weight, and its channels. */
fx_array *fxi_conv_input(void *self, int n, void *const *args, fx_array *weight, int64_t groups,
                         bool transposed);

#endif
