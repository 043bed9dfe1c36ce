/* conv_infinite.h: the gradient of a convolution's weights if gy contains infinities or NaN.
 *
 * Kernels read the padding of x as zeros, and 0·Inf and 0·NaN are NaN; but a tap outside x must
 * contribute nothing. So for a padded WEIGHT, a kernel first tests whether gy is finite. If not, it
 * computes with a copy of gy in which infinities and NaN are replaced by zeros. Then
 * fxi_conv_add_infinite adds the contributions of these elements; it reads positions inside x only.
 * Everything is static, because the CPU backend and the plugins use it and share no symbols.
 */
#ifndef CFLUX_CONV_INFINITE_H
#define CFLUX_CONV_INFINITE_H

#include "half.h"
#include "step.h"
#include <math.h>
#include <string.h>

/* Must gy be tested before the step runs? Without padding every tap is inside x. */
static inline bool fxi_conv_must_test_gy(const fx_conv_attr *a)
{
    bool padded = false;
    for (int d = 0; d < a->spatial; d++)
        padded |= a->before[d] != 0 || a->after[d] != 0;
    return padded && a->kind == FX_CONV_WEIGHT;
}

/* An element of a floating-point array as a double. */
static inline double fxi_conv_get(int dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case FX_DTYPE_F64:
        return ((const double *)p)[i];
    case FX_DTYPE_F16:
        return (double)fxi_f16_to_f32(((const uint16_t *)p)[i]);
    case FX_DTYPE_BF16:
        return (double)fxi_bf16_to_f32(((const uint16_t *)p)[i]);
    default:
        return (double)((const float *)p)[i];
    }
}

static inline void fxi_conv_put(int dtype, void *p, int64_t i, double v)
{
    switch (dtype) {
    case FX_DTYPE_F64:
        ((double *)p)[i] = v;
        break;
    case FX_DTYPE_F16:
        ((uint16_t *)p)[i] = fxi_f32_to_f16((float)v);
        break;
    case FX_DTYPE_BF16:
        ((uint16_t *)p)[i] = fxi_f32_to_bf16((float)v);
        break;
    default:
        ((float *)p)[i] = (float)v;
        break;
    }
}

/* Are n elements finite? Tests the exponents, a block at a time, so that an early infinity ends the
 * scan. */
#define FXI_CONV_FINITE(NAME, T, EXPONENT)                                                         \
    static inline bool NAME(const void *p, int64_t n)                                              \
    {                                                                                              \
        const T *x = p;                                                                            \
        for (int64_t i = 0; i < n;) {                                                              \
            const int64_t end = n - i < 4096 ? n : i + 4096;                                       \
            T found = 0;                                                                           \
            for (; i < end; i++)                                                                   \
                found |= (T)((x[i] & (EXPONENT)) == (EXPONENT));                                   \
            if (found)                                                                             \
                return false;                                                                      \
        }                                                                                          \
        return true;                                                                               \
    }
FXI_CONV_FINITE(fxi_conv_finite_f32, uint32_t __attribute__((may_alias)), 0x7f800000u)
FXI_CONV_FINITE(fxi_conv_finite_f64, uint64_t __attribute__((may_alias)), UINT64_C(0x7ff) << 52)
FXI_CONV_FINITE(fxi_conv_finite_f16, uint16_t __attribute__((may_alias)), 0x7c00u)
FXI_CONV_FINITE(fxi_conv_finite_bf16, uint16_t __attribute__((may_alias)), 0x7f80u)

static inline bool fxi_conv_finite(int dtype, const void *p, int64_t n)
{
    return dtype == FX_DTYPE_F64    ? fxi_conv_finite_f64(p, n)
           : dtype == FX_DTYPE_F16  ? fxi_conv_finite_f16(p, n)
           : dtype == FX_DTYPE_BF16 ? fxi_conv_finite_bf16(p, n)
                                    : fxi_conv_finite_f32(p, n);
}

/* d[i] = s[i] where that is finite, else 0. */
static inline void fxi_conv_finite_part(int dtype, void *d, const void *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = fxi_conv_get(dtype, s, i);
        fxi_conv_put(dtype, d, i, isfinite(v) ? v : 0);
    }
}

/* Sizes and strides of a tensor: three spatial axes, then channels, then the batch. */
typedef struct fxi_conv_side {
    int64_t size[5], stride[5];
} fxi_conv_side;

static inline fxi_conv_side fxi_conv_side_of(const fx_tensor *t, int spatial, bool channels_last)
{
    fxi_conv_side s;
    int64_t stride = 1;
    for (int d = 0; d < 5; d++)
        s.size[d] = d >= 3 ? t->shape[spatial + d - 3] : d < spatial ? t->shape[d] : 1;
    for (int k = 0; k < 5; k++) {
        const int d = !channels_last || k == 4 ? k : (k + 3) % 4;
        s.stride[d] = stride;
        stride *= s.size[d];
    }
    return s;
}

/* The properties of a convolution that fxi_conv_add_one uses. */
typedef struct fxi_conv_scatter {
    const fx_conv_attr *a;
    fxi_conv_side x, y;
    int64_t k[3], channels; /* sizes of the kernel; input channels of a group */
    int dtype;
} fxi_conv_scatter;

/* For the element g of gy at o, adds g·x at every tap that is inside x. gw: the gradient of its
 * output channel. */
static inline void fxi_conv_add_one(const fxi_conv_scatter *s, const int64_t *o, double g,
                                    int64_t first_channel, const void *x, void *gw)
{
    const int64_t taps = s->k[0] * s->k[1] * s->k[2];
    for (int64_t t = 0; t < taps; t++) {
        const int64_t tap[] = {t % s->k[0], t / s->k[0] % s->k[1], t / s->k[0] / s->k[1]};
        int64_t at = o[4] * s->x.stride[4] + first_channel * s->x.stride[3];
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            const bool used = d < s->a->spatial;
            const int64_t k = s->a->flipped ? tap[d] : s->k[d] - 1 - tap[d];
            const int64_t p =
                used ? o[d] * s->a->stride[d] - s->a->before[d] + k * s->a->dilation[d] : 0;
            inside &= p >= 0 && p < s->x.size[d];
            at += p * s->x.stride[d];
        }
        for (int64_t c = 0; inside && c < s->channels; c++) {
            const int64_t w = t + c * taps;
            fxi_conv_put(s->dtype, gw, w,
                         fxi_conv_get(s->dtype, gw, w) +
                             g * fxi_conv_get(s->dtype, x, at + c * s->x.stride[3]));
        }
    }
}

static inline bool fxi_conv_all_nan(int dtype, const void *p, int64_t n)
{
    bool all = true;
    for (int64_t i = 0; i < n && all; i++)
        all = isnan(fxi_conv_get(dtype, p, i));
    return all;
}

/* Adds the contributions of the elements of gy that are not finite. The work on a channel ends as
 * soon as its whole gradient is NaN, because no contribution can change it any more. So a gy of
 * only NaN takes as long as a few windows of each channel. */
static inline void fxi_conv_add_infinite(const fx_step *step, const void *x, const void *gy,
                                         void *gw)
{
    const fx_conv_attr *a = &fx_step_conv(step)->attr;
    const bool channels_last = fx_step_conv(step)->channels_last;
    const int n = a->spatial;
    fxi_conv_scatter s = {.a = a,
                          .x = fxi_conv_side_of(&step->in[0], n, channels_last),
                          .y = fxi_conv_side_of(&step->in[1], n, channels_last),
                          .channels = step->out.shape[n],
                          .dtype = step->out.dtype};
    for (int d = 0; d < 3; d++)
        s.k[d] = d < n ? step->out.shape[d] : 1;
    const int64_t one = s.k[0] * s.k[1] * s.k[2] * s.channels, out = s.y.size[3];
    const size_t size = s.dtype == FX_DTYPE_F64 ? 8 : s.dtype == FX_DTYPE_F32 ? 4 : 2;
    for (int64_t c = 0; c < out; c++) {
        char *own = (char *)gw + (size_t)(c * one) * size;
        const int64_t first = c / (out / a->groups) * s.channels;
        const int64_t positions = s.y.size[0] * s.y.size[1] * s.y.size[2];
        for (int64_t i = 0; i < positions * s.y.size[4]; i++) {
            const int64_t o[] = {i % s.y.size[0], i / s.y.size[0] % s.y.size[1],
                                 i / s.y.size[0] / s.y.size[1] % s.y.size[2], c, i / positions};
            int64_t at = 0;
            for (int d = 0; d < 5; d++)
                at += o[d] * s.y.stride[d];
            const double g = fxi_conv_get(s.dtype, gy, at);
            if (isfinite(g))
                continue;
            fxi_conv_add_one(&s, o, g, first, x, own);
            if (fxi_conv_all_nan(s.dtype, own, one))
                break;
        }
    }
}

#endif
