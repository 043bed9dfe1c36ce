/* primitives.h: functions that record primitives which the public API does not name. Internal. */
#ifndef CFLUX_PRIMITIVES_H
#define CFLUX_PRIMITIVES_H

#include <cflux/ops.h>
#include "context.h"

/* An evaluated array over a buffer; takes over the reference to the buffer. */
fx_array *fxi_leaf_over(const char *op, fx_dtype dtype, int ndims, const int64_t *sizes,
                        fxi_buffer *b);
/* Call this before recording nodes: evaluates pending results if they take too much memory
 * (set_pending_bounds in context.c). Returns the context. */
static inline fxi_context *fxi_begin(void)
{
    fxi_context *c = fxi_here();
    if (c->created > c->most_created && !c->busy)
        fxi_the_evaluator.flush(c);
    return c;
}
/* A pending copy of x on another device, through which gradients flow. */
fx_array *fxi_transfer(fx_device *device, fx_array *x);
/* FX_OK if x may be an operand. Otherwise the reason is recorded, except that of an error array,
 * which was recorded before. */
fx_status fxi_check_array(const char *op, const fx_array *x);
/* FX_OK if x is an array with this axis. */
fx_status fxi_check_axis(const char *op, const fx_array *x, int axis);
/* Checks sizes from the caller: their count and sign, and that the number of bytes fits. Failures
 * are recorded. */
fx_status fxi_check_sizes(const char *op, fx_dtype dtype, int ndims, const int64_t *sizes);

/* Reduces the axes in mask, which keep size 1; converts nothing. The max or min of an empty axis is
 * an error named after op. */
fx_array *fxi_reduce(fx_reduce kind, fx_array *x, unsigned mask, const char *op);
/* Σx of Float32 with a Float64 result, for devices that have Float64. */
fx_array *fxi_sum_wide(fx_array *x, unsigned mask, const char *op);
/* The mean of floats, computed like fx_mean. */
fx_array *fxi_mean_over(fx_array *x, unsigned mask, const char *op);
/* 1 where x equals `extremes`, which has the sizes of x, otherwise 0; in a type in which the 1s can
 * be counted. */
fx_array *fxi_equal_extremes(fx_array *x, fx_array *extremes);
/* Like fxi_reduce, but the max or min of an empty axis is the neutral element: for fx_any and
 * fx_all. */
fx_array *fxi_reduce_logical(fx_reduce kind, fx_array *x, unsigned mask, const char *op);
fx_array *fxi_scatter_primitive(fx_reduce kind, fx_array *src, fx_array *idx, int axis, int64_t n);
fx_array *fxi_pool_mean_primitive(const fx_pool_args *a);

/* The result of a collective operation (fx_collective_kind) on x, with the type and sizes of x. It
 * runs after the collective operations that the calling thread has recorded before on the same
 * device. MEAN is for floats; the gradient of MAX, MIN and PROD is an error. */
fx_array *fxi_collective(const fx_collective *what, fx_array *x);

/* Convolutions and pools for gradient rules; the caller guarantees the shapes. */
fx_array *fxi_conv_node(const fx_conv_attr *attr, fx_array *a, fx_array *b, int ndim,
                        const int64_t *shape);
fx_array *fxi_pool_node(const fx_pool_attr *attr, int n, fx_array *const *in, int ndim,
                        const int64_t *shape);
/* The product of a and b; `ta` and `tb` swap the first two axes of a and of b. Batch axes
 * broadcast. */
fx_array *fxi_matmul_node(bool ta, bool tb, fx_array *a, fx_array *b, const char *op);

#endif
