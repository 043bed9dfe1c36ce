/* attention_parts.h: the two ways to compute dot-product attention. Internal to this folder. */
#ifndef CFLUX_ATTENTION_PARTS_H
#define CFLUX_ATTENTION_PARTS_H

#include "nn_layer.h"

/* Attention computed with products and softmax, without dropout and bias. The result has the sizes
 * of the query, but the features of the value. The options are valid. */
fx_array *fxi_attention_composed(const fx_dot_product_attention_args *a);

/* The same computed with one kernel; NULL if the device has none for this call. A mask has four
 * axes, each of the size of the scores or 1, with the batch as one axis. The gradient is also
 * computed with kernels; the gradient of this gradient, with products and softmax. */
fx_array *fxi_attention_in_one_kernel(const fx_dot_product_attention_args *a);

#endif
