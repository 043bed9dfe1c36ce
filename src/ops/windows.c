/* windows.c: reads the options of convolutions and pools along spatial axes, and counts windows;
 * see windows.h.
 */
#include "windows.h"
#include "primitives.h"

#include <string.h>

fx_status fxi_spread(const char *op, const char *what, const fx_dims *d, int spatial, int64_t least,
                     int32_t *out)
{
    if (d->n != 1 && d->n != spatial)
        return fx_fail(FX_STATUS_ARGUMENT, op, "%s has %lld numbers for %d spatial axes", what,
                       (long long)d->n, spatial);
    for (int i = 0; i < spatial; i++) {
        const int64_t v = d->v[d->n == 1 ? 0 : i];
        if (v < least || v > INT32_MAX)
            return fx_fail(FX_STATUS_ARGUMENT, op, "%s is %lld, expected %lld to %d", what,
                           (long long)v, (long long)least, INT32_MAX);
        out[i] = (int32_t)v;
    }
    return FX_OK;
}

fx_status fxi_spread_pad(const char *op, const fx_dims *d, int spatial, int32_t *before,
                         int32_t *after)
{
    if (d->n != 2 * spatial || spatial == 0) {
        const fx_status s = fxi_spread(op, "pad", d, spatial, 0, before);
        memcpy(after, before, (size_t)spatial * sizeof *after);
        return s;
    }
    for (int i = 0; i < 2 * spatial; i++) {
        if (d->v[i] < 0 || d->v[i] > INT32_MAX)
            return fx_fail(FX_STATUS_ARGUMENT, op, "pad is %lld, expected 0 to %d",
                           (long long)d->v[i], INT32_MAX);
        (i % 2 ? after : before)[i / 2] = (int32_t)d->v[i];
    }
    return FX_OK;
}

int64_t fxi_window_count(int64_t n, int64_t k, int32_t stride, int32_t before, int32_t after,
                         int32_t dilation)
{
    const int64_t padded = fxi_add_sizes(fxi_add_sizes(n, before), after);
    const int64_t span = padded - (fxi_mul_sizes(k - 1, dilation) + 1);
    return span < 0 ? -1 : span / stride + 1;
}

fx_status fxi_window_too_large(const char *op, const fx_array *x, const int64_t *window,
                               int spatial)
{
    char t[FXI_SHAPE_TEXT], u[FXI_SHAPE_TEXT];
    return fx_fail(FX_STATUS_SHAPE, op, "a window of %s is larger than x and its padding: x is %s",
                   fxi_shape_text(spatial, window, u),
                   fxi_shape_text(x->node->ndim, x->node->shape, t));
}
