/* ref_pool.c: max and mean pooling, from their definitions.
 *
 * The window of output position o covers x at o·stride − before + k·dilation; positions outside x
 * are padding. Max: the largest element inside; of several equal ones the first in column-major
 * order of the window. NaN is larger than everything. A window with nothing but padding gives −Inf
 * (integers: the type's smallest number) and no gradient. Mean: the sum of the elements inside,
 * divided by the size of the whole window. The gradients search, for every element of x, the
 * windows that contain it: the same equation solved for o.
 *
 * Channels and batch do not mix: all axes after the spatial ones count as one axis of planes.
 */
#include <math.h>

#include "ref_kernels.h"

typedef struct geometry {
    fx_pool_attr p;
    int64_t x[3], y[3], k[3];
    int dtype;
} geometry;

static geometry describe(const fx_step *s)
{
    geometry g = {.p = fx_step_pool(s)->attr, .dtype = s->out.dtype};
    const bool backward = g.p.kind == FX_POOL_MAX_GRAD || g.p.kind == FX_POOL_MEAN_GRAD;
    const fx_tensor *x = backward ? &s->out : &s->in[0], *y = backward ? &s->in[0] : &s->out;
    for (int d = 0; d < 3; d++) {
        const bool there = d < g.p.spatial;
        g.x[d] = there ? x->shape[d] : 1;
        g.y[d] = there ? y->shape[d] : 1;
        g.k[d] = there ? g.p.window[d] : 1;
        if (!there)
            g.p.stride[d] = g.p.dilation[d] = 1, g.p.before[d] = 0;
    }
    return g;
}

/* The position in the plane of x of tap k of output o, or −1 in the padding. */
static int64_t position(const geometry *g, int64_t o, int64_t k)
{
    int64_t io[3], ik[3], x[3];
    fxi_ref_unravel3(o, g->y, io);
    fxi_ref_unravel3(k, g->k, ik);
    for (int d = 0; d < 3; d++) {
        x[d] = io[d] * g->p.stride[d] - g->p.before[d] + ik[d] * g->p.dilation[d];
        if (x[d] < 0 || x[d] >= g->x[d])
            return -1;
    }
    return x[0] + g->x[0] * (x[1] + g->x[1] * x[2]);
}

/* The output whose tap k is at position i, or −1. */
static int64_t window_of(const geometry *g, int64_t i, int64_t k)
{
    int64_t ii[3], ik[3], o[3];
    fxi_ref_unravel3(i, g->x, ii);
    fxi_ref_unravel3(k, g->k, ik);
    for (int d = 0; d < 3; d++) {
        const int64_t scaled = ii[d] + g->p.before[d] - ik[d] * g->p.dilation[d];
        o[d] = scaled / g->p.stride[d];
        if (scaled < 0 || scaled % g->p.stride[d] != 0 || o[d] >= g->y[d])
            return -1;
    }
    return o[0] + g->y[0] * (o[1] + g->y[1] * o[2]);
}

static bool larger(int dtype, fxi_ref_value a, fxi_ref_value b)
{
    if (!fxi_ref_is_real(dtype))
        return a.integer > b.integer;
    return !isnan(b.real) && (isnan(a.real) || a.real > b.real);
}

/* Position of the first largest element of the window of o in the plane of x that begins at
 * `plane`. */
static int64_t pick(const geometry *g, const void *x, int64_t plane, int64_t o)
{
    int64_t best = -1;
    const int64_t taps = fxi_ref_volume(g->k);
    for (int64_t k = 0; k < taps; k++) {
        const int64_t i = position(g, o, k);
        if (i < 0)
            continue;
        if (best < 0 || larger(g->dtype, fxi_ref_get(g->dtype, x, plane + i),
                               fxi_ref_get(g->dtype, x, plane + best)))
            best = i;
    }
    return best;
}

static fxi_ref_value divided(const geometry *g, fxi_ref_value sum)
{
    return (fxi_ref_value){.real = sum.real / (double)fxi_ref_volume(g->k)};
}

/* One element of the output; `plane` is the number of its plane, `i` its position in the plane. */
static fxi_ref_value max_one(const geometry *g, const void *const *in, int64_t plane, int64_t i)
{
    const int64_t base = plane * fxi_ref_volume(g->x), best = pick(g, in[0], base, i);
    return best < 0 ? fxi_ref_reduce_start(FX_REDUCE_MAX, g->dtype)
                    : fxi_ref_get(g->dtype, in[0], base + best);
}

static fxi_ref_value pick_one(const geometry *g, const void *const *in, int64_t plane, int64_t i)
{
    const int64_t base = plane * fxi_ref_volume(g->x), best = pick(g, in[1], base, i);
    return best < 0 ? fxi_ref_number(g->dtype, 0) : fxi_ref_get(g->dtype, in[0], base + best);
}

static fxi_ref_value mean_one(const geometry *g, const void *const *in, int64_t plane, int64_t o)
{
    fxi_ref_value sum = fxi_ref_number(g->dtype, 0);
    const int64_t taps = fxi_ref_volume(g->k), base = plane * fxi_ref_volume(g->x);
    for (int64_t k = 0; k < taps; k++) {
        const int64_t i = position(g, o, k);
        if (i >= 0)
            sum = fxi_ref_sum2(g->dtype, sum, fxi_ref_get(g->dtype, in[0], base + i));
    }
    return divided(g, sum);
}

/* Σ gy over the windows that contain position i; with x, only those whose maximum is at i. */
static fxi_ref_value sum_windows(const geometry *g, const void *gy, const void *x, int64_t plane,
                                 int64_t i)
{
    fxi_ref_value sum = fxi_ref_number(g->dtype, 0);
    const int64_t taps = fxi_ref_volume(g->k);
    for (int64_t k = 0; k < taps; k++) {
        const int64_t o = window_of(g, i, k);
        if (o < 0 || (x && pick(g, x, plane * fxi_ref_volume(g->x), o) != i))
            continue;
        sum = fxi_ref_sum2(g->dtype, sum,
                           fxi_ref_get(g->dtype, gy, plane * fxi_ref_volume(g->y) + o));
    }
    return sum;
}

static fxi_ref_value max_grad_one(const geometry *g, const void *const *in, int64_t plane,
                                  int64_t i)
{
    return sum_windows(g, in[0], in[1], plane, i);
}

static fxi_ref_value mean_grad_one(const geometry *g, const void *const *in, int64_t plane,
                                   int64_t i)
{
    return divided(g, sum_windows(g, in[0], NULL, plane, i));
}

fx_status fxi_ref_pool(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    static fxi_ref_value (*const kinds[])(const geometry *, const void *const *, int64_t,
                                          int64_t) = {[FX_POOL_MAX] = max_one,
                                                      [FX_POOL_MEAN] = mean_one,
                                                      [FX_POOL_MAX_GRAD] = max_grad_one,
                                                      [FX_POOL_MEAN_GRAD] = mean_grad_one,
                                                      [FX_POOL_MAX_PICK] = pick_one};
    const geometry g = describe(s);
    if (!fxi_ref_is_real(g.dtype) && (g.p.kind == FX_POOL_MEAN || g.p.kind == FX_POOL_MEAN_GRAD)) {
        return fx_fail(FX_STATUS_UNSUPPORTED, "pool", "means need a floating-point type, got %s",
                       fx_dtype_name((fx_dtype)g.dtype));
    }
    int64_t plane = 1;
    for (int d = 0; d < g.p.spatial; d++)
        plane *= s->out.shape[d];
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++)
        fxi_ref_put(g.dtype, out, i, kinds[g.p.kind](&g, in, i / plane, i % plane));
    return FX_OK;
}
