/* conv_shape.h: options, sizes and inputs of convolution layers. Internal.
 *
 * Conv, CrossCor, ConvTranspose and DepthwiseConv share these functions and rows. The weight of a
 * transposed convolution is kernel…×out/groups×in, that of the others kernel…×in/groups×out.
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

/* The options and the members that all these layers have, whatever the type of their struct. */
typedef struct fxi_conv_options {
    fxi_conv_shape shape;
    const fx_dims *stride, *dilation, *pad;
    fx_init_fn init;
    bool bias;
} fxi_conv_options;
typedef struct fxi_conv_members {
    fx_dims *stride, *dilation, *pad;
    fx_array **weight, **bias;
} fxi_conv_members;
#define FXI_CONV_OPTIONS(a, is_transposed, ngroups)                                                \
    {                                                                                              \
        .shape = {.transposed = (is_transposed),                                                   \
                  .groups = (ngroups),                                                             \
                  .weight = (a)->weight_array,                                                     \
                  .kernel = (a)->kernel,                                                           \
                  .in = (a)->in,                                                                   \
                  .out = (a)->out},                                                                \
        .stride = &(a)->stride, .dilation = &(a)->dilation, .pad = &(a)->pad, .init = (a)->init,   \
        .bias = (a)->bias                                                                          \
    }
#define FXI_CONV_MEMBERS(l)                                                                        \
    {                                                                                              \
        &(l)->stride, &(l)->dilation, &(l)->pad, &(l)->weight, &(l)->bias                          \
    }
/* Checks the options, expands stride and dilation to one number for each spatial axis and padding
 * as fxi_spread_padding does, and makes weight and bias. Completes the shape. False after a failure
 * that it recorded. */
bool fxi_conv_build(const fx_type *type, fxi_conv_options *options, const fxi_conv_members *out);

/* The rows of the options. GROUPS and LAST are further rows, or empty. */
/* clang-format off */
#define FXI_CONV_ROWS(M, O, LAYOUT, GROUPS, LAST)                                                  \
    O(kernel, KERNEL, .positional = "a kernel such as (5, 5)", .least = 1, .required = true)            \
    O(in, PAIR, .positional = "in => out", .least = 1, .required = true)                                \
    M(act, SHARED, FX_FROM(act, FUNCTION), .positional = "a function", .flux = "σ")                     \
    M(weight, CHILD, FX_FROM(weight_array, ARRAY), .flux = "weight", .layout = LAYOUT)             \
    M(bias, CHILD, FX_FROM(bias_array, VECTOR), .flux = "bias")                                    \
    M(pad, DIMS, FX_FROM(pad, PADDING), .names = "pad", .flux = "pad")                             \
    M(stride, DIMS, FX_FROM(stride, NUMBERS), .names = "stride", .least = 1, .flux = "stride")     \
    M(dilation, DIMS, FX_FROM(dilation, NUMBERS), .names = "dilation", .least = 1,                 \
      .flux = "dilation")                                                                          \
    GROUPS                                                                                         \
    O(bias, BIAS, FX_PRESENT(bias), .names = "bias")                                               \
    LAST                                                                                           \
    O(init, INIT, .names = "init")
#define FXI_CONV_GROUPS(M)                                                                         \
    M(groups, INTEGER, FX_FROM(groups, INTEGER), .names = "groups", .least = 1, .flux = "groups")
/* clang-format on */

/* Completes and checks a shape whose members other than `sizes` are the options of a layer: a given
 * weight decides, and kernel, in and out must be 0 or agree. False after a failure that it
 * recorded. */
bool fxi_conv_shape_complete(const fx_type *type, fxi_conv_shape *io);

/* The reverse: kernel, in and out from the weight; false if it has fewer than 3 axes or is NULL. */
bool fxi_conv_shape_recover(fxi_conv_shape *io);
/* fxi_conv_shape_recover for the options of a layer. */
bool fxi_conv_recover(bool transposed, int64_t groups, fx_array *weight, fx_dims *out_kernel,
                      int64_t *out_in, int64_t *out_out);

/* The input of a convolution layer in the type of its weight; an error array unless it has as many
 * axes as the weight, and the number of channels that the weight requires. */
fx_array *fxi_conv_input(void *self, int n, void *const *args, fx_array *weight, int64_t groups,
                         bool transposed);

#endif
