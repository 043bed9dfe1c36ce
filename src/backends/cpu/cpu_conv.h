/* cpu_conv.h: the sizes of a convolution, and the five methods that compute it. Internal. */
#ifndef CFLUX_CPU_CONV_H
#define CFLUX_CPU_CONV_H

#include "cpu_kernels.h"
#include "cpu_simd.h"

/* The instructions of an epilogue that the methods apply to their panels of sums, which are in the
 * cache: arithmetic with a number or a value of each output channel, and relu. */
enum { FXI_CONV_INSTRUCTIONS = 8 };
typedef struct fxi_conv_epilogue {
    int n;
    int op[FXI_CONV_INSTRUCTIONS];
    const char *value[FXI_CONV_INSTRUCTIONS]; /* of output channel 0 */
    int64_t stride[FXI_CONV_INSTRUCTIONS];    /* to the next channel's value */
} fxi_conv_epilogue;

/* Sizes of the x side, the kernel and the y side. Convolutions with fewer than three spatial axes
 * have size 1, stride 1 and no padding on the others. */
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
    fxi_conv_epilogue epilogue;  /* n is 0 if `finish` is NULL, or has other instructions */
    const fxi_finish *finish;    /* the same epilogue as a program; NULL: none */
} fxi_conv_geometry;

/* Bytes of the values of the instructions, for columns of `padded` channels in each group. */
size_t fxi_conv_epilogue_bytes(const fxi_conv_geometry *g, int64_t padded);
/* Writes them to `values`. Channels that do not exist get zeros. */
void fxi_conv_epilogue_put(const fxi_conv_geometry *g, int64_t padded, char *values);
/* Fills in the instructions for the columns of a group from `first` on, and returns their number.
 */
int fxi_conv_epilogue_at(const fxi_conv_geometry *g, int64_t padded, const char *values,
                         int64_t group, int64_t first, fxi_conv_instr *out);

/* The number of shares in which a gradient of weights is summed. It depends on the sizes alone,
 * because the shares are added in order. A share has about `each` windows. There are at most `most`
 * shares, a power of two. The number is rounded up to a power of two, which two and four threads
 * divide evenly: of 3 shares, one of two threads computes 2. */
static inline int64_t fxi_conv_shares(int64_t windows, int64_t each, int64_t most)
{
    int64_t shares = 1;
    while (shares < most && shares < windows / each)
        shares *= 2;
    return shares;
}

/* Computes a convolution with one tap and no padding as matrix products. Returns true, with FX_OK
 * or FX_STATUS_MEMORY in *out_status; or false for any other convolution. `kind` says which of
 * x, w and y is the output. */
bool fxi_cpu_conv_product(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                          fx_status *out_status);

/* Computes a 3×3 convolution of Float32, or its gradient DATA, with fewer multiplications. Returns
 * true, with FX_OK or FX_STATUS_MEMORY in *out_status; or false if the method does not suit these
 * sizes. `kind` says which of x, w and y is the output. */
bool fxi_cpu_conv_winograd(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                           fx_status *out_status);
bool fxi_cpu_conv_winograd_suits(const fxi_conv_geometry *g, int kind);
/* True if this method computes the convolution of a step. WEIGHT: if it computes the forward
 * convolution of these sizes. */
bool fxi_cpu_conv_multiplies_less(const fx_step *step);

/* Computes a convolution of Float32 along two axes with groups of few channels; reads x in its own
 * memory, without a copy. Returns true, with FX_OK or FX_STATUS_MEMORY in *out_status; or false if
 * the method does not suit these sizes or this instruction set. Every element of the output is
 * written. WEIGHT: x and y need not be finite. */
bool fxi_cpu_conv_masked(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                         fx_status *out_status);
bool fxi_cpu_conv_masked_suits(const fxi_conv_geometry *g, int kind);
/* True if this method computes the convolution of a step. */
bool fxi_cpu_conv_reads_in_place(const fx_step *step);

/* Computes the convolution with vectors along the windows. Returns true, with FX_OK or
 * FX_STATUS_MEMORY in *out_status; or false if the method does not suit these sizes or values.
 * `kind` says which of x, w and y is the output. */
bool fxi_cpu_conv_direct(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                         fx_status *out_status);

/* Computes any kind with vectors along the output's channels. Returns FX_OK, FX_STATUS_MEMORY, or
 * FX_STATUS_UNSUPPORTED if one row of windows reads more than INT32_MAX elements of all channels.
 */
fx_status fxi_cpu_conv_gather(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y);

#endif
