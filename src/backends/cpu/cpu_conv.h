/* cpu_conv.h: what a convolution is made of, for the two ways to compute it. Internal. */
#ifndef CFLUX_CPU_CONV_H
#define CFLUX_CPU_CONV_H

#include "cpu_kernels.h"

/* Sizes of the x side, the kernel and the y side; one and two spatial axes are filled up with 1. */
typedef struct fxi_conv_geometry {
    const fx_conv_attr *attr;
    int dtype;
    size_t size;
    int64_t x[3], k[3], y[3]; /* spatial sizes */
    int64_t stride[3], before[3], dilation[3];
    int64_t batch, groups;
    int64_t cin, cout;           /* per group */
    int64_t positions, taps, xs; /* of y, of the kernel, of x: products of the sizes */
    int64_t depth;               /* taps·cin */
    fxi_finish finish;           /* of FORWARD */
} fxi_conv_geometry;

/* Computes the kind with vectors along the windows and returns true, with FX_OK or FX_STATUS_MEMORY
 * in *out_status; or returns false when that is not the way for it. Of x, w and y one is the
 * output; that of WEIGHT is zeros before, and is zeros again after false. */
bool fxi_cpu_conv_direct(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                         fx_status *out_status);

/* Computes any kind with vectors along the output's channels. Where no window reaches, the output
 * of DATA is left as it is. FX_OK or FX_STATUS_MEMORY. */
fx_status fxi_cpu_conv_gather(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y);

#endif
