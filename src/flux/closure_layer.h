/* closure_layer.h: the layer type for small anonymous Julia functions. Internal. */
#ifndef CFLUX_CLOSURE_LAYER_H
#define CFLUX_CLOSURE_LAYER_H

#include <cflux/tree.h>

/* x -> reshape(x, sizes…), arithmetic with a number such as x -> x .* number, or an activation with
 * its parameter such as x -> leakyrelu.(x, number). Among sizes, −1 is the remaining size, and −1 −
 * k the size of the input's axis k, counted from 1 as in Julia. */
typedef struct fxi_closure_layer {
    fx_object base;
    fx_dims dims;
    int64_t op; /* 'r' for reshape, one of * + - / ^, or fxi_closure_op_named */
    bool number_first;
    double number;
    int64_t literal; /* the fx_dtype that the number has in Julia: I64, F64 or F32 */
} fxi_closure_layer;

/* The op of the activation with a parameter that has this name in NNlib; 0 for other names. */
char fxi_closure_op_named(const char *name);
/* Makes the layer, owned by the scope; init->base is ignored. */
void *fxi_closure_new(const fxi_closure_layer *init);
/* x -> maxpool(x, window), or with meanpool. */
void *fxi_closure_pool(bool max, const fx_dims *window);
/* One layer for n layers, applied in order; identity for none. */
void *fxi_closure_whole(int n, void *const *layers);
/* Makes an anonymous function of a number, for the activation of a layer, from functions and
 * closure layers, applied in order. Returns a single function itself, and identity for n = 0. The
 * error object of functions if out of memory. */
fx_function *fxi_closure_activation(int n, void *const *layers);
/* The parts of such an activation; NULL if the object is not one. */
const fx_list *fxi_closure_parts(const void *object);
/* True for functions of whole arrays, f(x) in Julia; the others are functions of numbers, f.(x). */
bool fxi_takes_whole_array(const fx_function *f);
/* NULL if the object is not a closure layer. */
const fxi_closure_layer *fxi_closure_of(const void *object);

#endif
