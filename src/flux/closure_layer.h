/* closure_layer.h: the layer that a small anonymous function of Julia becomes. Internal.
 */
#ifndef CFLUX_CLOSURE_LAYER_H
#define CFLUX_CLOSURE_LAYER_H

#include <cflux/tree.h>

/* x -> reshape(x, sizes…), or x -> x .* number and its like. A size of −1 is what is left, −1 − k
 * the input's size of axis k, which Julia counts from 1. */
typedef struct fxi_closure_layer {
    fx_object base;
    fx_dims dims;
    int64_t op; /* 'r' reshape, or one of * + - / */
    bool number_first;
    double number;
    int64_t literal; /* the fx_dtype of the number in Julia: I64, F64 or F32 */
} fxi_closure_layer;

/* The layer, owned by the scope; base is ignored. */
void *fxi_closure_new(const fxi_closure_layer *init);
/* NULL when the object is no such layer. */
const fxi_closure_layer *fxi_closure_of(const void *object);

#endif
