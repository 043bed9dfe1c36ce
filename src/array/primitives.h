/* primitives.h: builders of primitives that the public API does not name. Internal. */
#ifndef CFLUX_PRIMITIVES_H
#define CFLUX_PRIMITIVES_H

#include <cflux/ops.h>
#include "context.h"

static inline bool fxi_is_float(int dtype)
{
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
           dtype == FX_DTYPE_BF16;
}

/* "3×4", "scalar"; for messages. Returns buf. */
enum { FXI_SHAPE_TEXT = 96 };
const char *fxi_shape_text(int ndim, const int64_t *shape, char buf[FXI_SHAPE_TEXT]);

/* Before a builder makes nodes: evaluates when the bound on pending work is reached. The context.
 */
fxi_context *fxi_begin(void);
/* What is wrong with an argument (recorded), or FX_OK: an error array's own status is not recorded
 * again. */
/* A pending copy of x on another device, through which gradients flow. */
fx_array *fxi_transfer(fx_device *device, fx_array *x);
fx_status fxi_check_array(const char *op, const fx_array *x);
fx_status fxi_check_axis(const char *op, const fx_array *x, int axis);
/* Checks sizes from outside: count, sign, and that the bytes fit; records what is wrong. */
fx_status fxi_check_dims(const char *op, fx_dtype dtype, int ndims, const int64_t *dims);

/* Reduces the axes in mask, which stay with size 1; no conversion. The max or min of an empty axis
 * is an error naming op. */
fx_array *fxi_reduce(fx_fold kind, fx_array *x, unsigned mask, const char *op);
/* The index along `axis`. */
fx_array *fxi_iota(fx_dtype dtype, int axis, int ndims, const int64_t *dims);
fx_array *fxi_scatter_primitive(fx_fold kind, fx_array *src, fx_array *idx, int axis, int64_t n);
fx_array *fxi_pool_mean_primitive(const fx_pool_args *a);

/* The raw contractions, for gradient rules; shapes are the caller's promise. */
fx_array *fxi_conv_node(const fx_conv_attr *attr, fx_array *a, fx_array *b, int ndim,
                        const int64_t *shape);
fx_array *fxi_pool_node(const fx_pool_attr *attr, int n, fx_array *const *in, int ndim,
                        const int64_t *shape);
/* a with its first two axes swapped when ta, times b likewise; batch axes broadcast. */
fx_array *fxi_matmul_node(bool ta, bool tb, fx_array *a, fx_array *b, const char *op);

#endif
