/* onnx_case.h: one ONNX node as the operator functions see it, and their shared helpers.
 *
 * An operator function builds its outputs with cflux/ops.h from inputs and attributes. Helpers that
 * begin with np_ take axes, permutations and sizes in NumPy's order and translate: axis a of an
 * r-dimensional array is our axis r−1−a. Broadcasting needs no translation: NumPy aligns the last
 * axes, cflux the first, which are the same. Matrix products swap their arguments: (A·B)ᵀ = Bᵀ·Aᵀ.
 */
#ifndef ONNX_CASE_H
#define ONNX_CASE_H

#include "golden.h"

enum { ONNX_MAX_ARGS = 24 };

typedef struct onnx_node {
    const char *op;
    const cJSON *attrs;
    int opset;
    int nin, nout;
    fx_array *in[ONNX_MAX_ARGS];  /* NULL: an optional input that is left out */
    fx_array *out[ONNX_MAX_ARGS]; /* to be filled */
    const char *variant;          /* set by a function that meets a form which is not built */
} onnx_node;

/* One row of the operator tables; exactly one of the three functions is set. */
typedef struct onnx_op {
    const char *name;
    gold_kind kind;
    void (*run)(onnx_node *n);
    fx_array *(*unary)(fx_array *x);
    fx_array *(*binary)(fxi_arg a, fxi_arg b);
} onnx_op;

/* Tables end with a row without a name. */
extern const onnx_op onnx_elementwise_ops[], onnx_shape_ops[], onnx_reduce_ops[], onnx_index_ops[],
    onnx_window_ops[], onnx_resample_ops[], onnx_train_ops[], onnx_recurrent_ops[];

/* ---- attributes ------------------------------------------------------------------------------ */
bool onnx_has(const onnx_node *n, const char *attr);
/* Reads an attribute that has no influence on the results, because inputs say the same. */
void onnx_ignore(const onnx_node *n, const char *attr);
int64_t onnx_int(const onnx_node *n, const char *attr, int64_t otherwise);
double onnx_real(const onnx_node *n, const char *attr, double otherwise);
const char *onnx_text(const onnx_node *n, const char *attr, const char *otherwise);
/* A list of integers; −1 when the attribute is missing. */
int onnx_ints(const onnx_node *n, const char *attr, int max, int64_t *out);
/* The values of an integer array that decides shapes, such as Reshape's second input. */
int onnx_read_ints(fx_array *x, int max, int64_t *out);
/* Input `index` when it is there, else the attribute (older opsets); −1 when neither is. */
int onnx_ints_of(const onnx_node *n, int index, const char *attr, int max, int64_t *out);
fx_dtype onnx_dtype(int64_t code);

/* ---- NumPy's view of an array ---------------------------------------------------------------- */
int np_axis(const fx_array *x, int64_t axis); /* ours; negative axes count from the end */
int64_t np_size(const fx_array *x, int64_t axis);
/* Sizes in NumPy's order; returns the number of axes. */
int np_shape(const fx_array *x, int64_t *sizes);
unsigned np_axes(const fx_array *x, int n, const int64_t *axes); /* a mask; n ≤ 0: all */
fx_array *np_reshape(fx_array *x, int n, const int64_t *sizes);
fx_array *np_transpose(fx_array *x, int n, const int64_t *perm);
/* 0, 1, 2, … along `axis` (ours) of an array of n dimensions, size 1 elsewhere. */
fx_array *np_iota(fx_dtype dtype, int64_t size, int axis, int n);
/* A vector of channels in the shape that broadcasts over x's NumPy axis 1. */
fx_array *np_channels(fx_array *v, const fx_array *x);
bool np_is_integer(const fx_array *x);

#endif
