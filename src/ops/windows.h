/* windows.h: options of convolutions and pools along spatial axes. Internal to this folder. */
#ifndef CFLUX_WINDOWS_H
#define CFLUX_WINDOWS_H

#include <cflux/ops.h>

/* Reads one number for each spatial axis from an option with one or `spatial` of them, each at
 * least `least`. `what` names the option in the error. */
fx_status fxi_spread(const char *op, const char *what, const fx_dims *d, int spatial, int64_t least,
                     int32_t *out);
/* Padding: one number, one for each axis, or (before, after) for each axis. */
fx_status fxi_spread_pad(const char *op, const fx_dims *d, int spatial, int32_t *before,
                         int32_t *after);
/* ⌊(n + before + after − dilation·(k−1) − 1)/stride⌋ + 1; −1 if the window does not fit. */
int64_t fxi_window_count(int64_t n, int64_t k, int32_t stride, int32_t before, int32_t after,
                         int32_t dilation);
/* Records that the window is larger than x with its padding. */
fx_status fxi_window_too_large(const char *op, const fx_array *x, const int64_t *window,
                               int spatial);

#endif
