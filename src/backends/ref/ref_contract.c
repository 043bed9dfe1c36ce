/* ref_contract.c: matrix products and convolutions, from their definitions.
 *
 * matmul: y[m, n, b…] = Σ_k A[m, k, b…]·B[k, n, b…]. Either operand may be transposed in its first
 * two axes; batch axes of size 1 (or missing) are broadcast.
 *
 * Each kind of convolution computes one of x, w and y from the two others, over the same triples of
 * elements. Forward:
 *     y[o] = Σ_{k, c} x[o·stride − before + k·dilation, c]·w[tap(k), c],
 *     tap(k) = flipped ? k : K−1−k
 * So the gradient of x sums over (k, o) with o·stride − before + k·dilation = i, and the gradient
 * of w over all o. Convolutions of one or two spatial axes are treated as three, with sizes of 1.
 */
#include "ref_kernels.h"

fx_status fxi_ref_matmul(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    const fx_tensor *a = &s->in[0], *b = &s->in[1];
    const bool ta = fx_step_matmul(s)->transpose_a, tb = fx_step_matmul(s)->transpose_b;
    int64_t index[FX_MAX_DIMS], ia[FX_MAX_DIMS], ib[FX_MAX_DIMS];
    (void)run;
    const int64_t inner = a->shape[ta ? 0 : 1], n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        /* Also right for broadcast axes: fxi_ref_offset ignores the index on an axis of size 1. */
        for (int d = 2; d < FX_MAX_DIMS; d++)
            ia[d] = ib[d] = index[d];
        ia[ta ? 1 : 0] = index[0];
        ib[tb ? 0 : 1] = index[1];
        fxi_ref_value y = fxi_ref_number(a->dtype, 0);
        for (int64_t k = 0; k < inner; k++) {
            ia[ta ? 0 : 1] = ib[tb ? 1 : 0] = k;
            const fxi_ref_value p = fxi_ref_get(a->dtype, in[0], fxi_ref_offset(a, ia));
            const fxi_ref_value q = fxi_ref_get(b->dtype, in[1], fxi_ref_offset(b, ib));
            y = fxi_ref_sum2(a->dtype, y, fxi_ref_product2(a->dtype, p, q));
        }
        fxi_ref_put(s->out.dtype, out, fxi_ref_offset(&s->out, index), y);
    }
    return FX_OK;
}

/* Sizes of the x side, the kernel and the y side, always with three spatial axes. */
typedef struct geometry {
    fx_conv_attr c;
    int64_t x[3], k[3], y[3];
    int64_t in_group, out_group; /* channels of one group */
    int64_t in, out, batch;
} geometry;

/* A tap of the kernel at one position: its three kernel indices and positions on the x and y sides.
 */
typedef struct tap_position {
    int64_t x[3], k[3], y[3];
} tap_position;

static void spatial_sizes(const fx_tensor *t, int spatial, int64_t *size)
{
    for (int d = 0; d < 3; d++)
        size[d] = d < spatial ? t->shape[d] : 1;
}

static geometry describe(const fx_step *s)
{
    geometry g = {.c = fx_step_conv(s)->attr};
    const int kind = g.c.kind, n = g.c.spatial;
    const fx_tensor *x = kind == FX_CONV_DATA ? &s->out : &s->in[0];
    const fx_tensor *w = kind == FX_CONV_WEIGHT ? &s->out : &s->in[1];
    const fx_tensor *y = kind == FX_CONV_FORWARD ? &s->out
                         : kind == FX_CONV_DATA  ? &s->in[0]
                                                 : &s->in[1];
    spatial_sizes(x, n, g.x);
    spatial_sizes(w, n, g.k);
    spatial_sizes(y, n, g.y);
    for (int d = n; d < 3; d++)
        g.c.stride[d] = g.c.dilation[d] = 1, g.c.before[d] = g.c.after[d] = 0;
    g.in = x->shape[n], g.out = y->shape[n], g.batch = x->shape[n + 1];
    g.in_group = g.in / g.c.groups, g.out_group = g.out / g.c.groups;
    return g;
}

/* Column-major position of element (i0, i1, i2, c, n) of a dense tensor; n: the image, or the
 * output channel of a kernel. */
static int64_t at5(const int64_t *size, int64_t channels, const int64_t *i, int64_t c, int64_t n)
{
    return i[0] + size[0] * (i[1] + size[1] * (i[2] + size[2] * (c + channels * n)));
}

static int64_t at_w(const geometry *g, const tap_position *p, int64_t in, int64_t out)
{
    int64_t tap[3];
    for (int d = 0; d < 3; d++)
        tap[d] = g->c.flipped ? p->k[d] : g->k[d] - 1 - p->k[d];
    return at5(g->k, g->in_group, tap, in % g->in_group, out);
}

/* Sets x = y·stride − before + k·dilation; false if that is outside. */
static bool solve_x(const geometry *g, tap_position *p)
{
    for (int d = 0; d < 3; d++) {
        p->x[d] = p->y[d] * g->c.stride[d] - g->c.before[d] + p->k[d] * g->c.dilation[d];
        if (p->x[d] < 0 || p->x[d] >= g->x[d])
            return false;
    }
    return true;
}

/* Sets y from x and k; false if no window has tap k at x. */
static bool solve_y(const geometry *g, tap_position *p)
{
    for (int d = 0; d < 3; d++) {
        const int64_t scaled = p->x[d] + g->c.before[d] - p->k[d] * g->c.dilation[d];
        if (scaled < 0 || scaled % g->c.stride[d] != 0)
            return false;
        p->y[d] = scaled / g->c.stride[d];
        if (p->y[d] >= g->y[d])
            return false;
    }
    return true;
}

static fxi_ref_value multiply(int dtype, const void *a, int64_t i, const void *b, int64_t j)
{
    return fxi_ref_product2(dtype, fxi_ref_get(dtype, a, i), fxi_ref_get(dtype, b, j));
}

/* One element of y: a sum over the kernel and the input channels of the group. */
static fxi_ref_value forward_one(const geometry *g, int dtype, const void *x, const void *w,
                                 int64_t linear)
{
    const int64_t rest = linear / fxi_ref_volume(g->y), out = rest % g->out, b = rest / g->out;
    tap_position p;
    fxi_ref_unravel3(linear % fxi_ref_volume(g->y), g->y, p.y);
    fxi_ref_value sum = fxi_ref_number(dtype, 0);
    const int64_t taps = fxi_ref_volume(g->k), first = out / g->out_group * g->in_group;
    for (int64_t in = first; in < first + g->in_group; in++)
        for (int64_t k = 0; k < taps; k++) {
            fxi_ref_unravel3(k, g->k, p.k);
            if (solve_x(g, &p))
                sum = fxi_ref_sum2(
                    dtype, sum,
                    multiply(dtype, x, at5(g->x, g->in, p.x, in, b), w, at_w(g, &p, in, out)));
        }
    return sum;
}

/* One element of the gradient of x: a sum over the kernel and the output channels of the group. */
static fxi_ref_value data_one(const geometry *g, int dtype, const void *gy, const void *w,
                              int64_t linear)
{
    const int64_t rest = linear / fxi_ref_volume(g->x), in = rest % g->in, b = rest / g->in;
    tap_position p;
    fxi_ref_unravel3(linear % fxi_ref_volume(g->x), g->x, p.x);
    fxi_ref_value sum = fxi_ref_number(dtype, 0);
    const int64_t taps = fxi_ref_volume(g->k), first = in / g->in_group * g->out_group;
    for (int64_t out = first; out < first + g->out_group; out++)
        for (int64_t k = 0; k < taps; k++) {
            fxi_ref_unravel3(k, g->k, p.k);
            /* Every y that reads this x by tap k adds to its gradient. No y reads an x that the
             * strides skip. */
            if (solve_y(g, &p))
                sum = fxi_ref_sum2(
                    dtype, sum,
                    multiply(dtype, gy, at5(g->y, g->out, p.y, out, b), w, at_w(g, &p, in, out)));
        }
    return sum;
}

/* One element of the gradient of w: a sum over all positions of y and the batch. */
static fxi_ref_value weight_one(const geometry *g, int dtype, const void *x, const void *gy,
                                int64_t linear)
{
    const int64_t rest = linear / fxi_ref_volume(g->k), out = rest / g->in_group;
    const int64_t in = out / g->out_group * g->in_group + rest % g->in_group;
    tap_position p;
    fxi_ref_unravel3(linear % fxi_ref_volume(g->k), g->k, p.k);
    for (int d = 0; d < 3; d++)
        p.k[d] = g->c.flipped ? p.k[d] : g->k[d] - 1 - p.k[d];
    fxi_ref_value sum = fxi_ref_number(dtype, 0);
    const int64_t positions = fxi_ref_volume(g->y);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t o = 0; o < positions; o++) {
            fxi_ref_unravel3(o, g->y, p.y);
            if (solve_x(g, &p))
                sum = fxi_ref_sum2(dtype, sum,
                                   multiply(dtype, x, at5(g->x, g->in, p.x, in, b), gy,
                                            at5(g->y, g->out, p.y, out, b)));
        }
    return sum;
}

fx_status fxi_ref_conv(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    static fxi_ref_value (*const kinds[])(const geometry *, int, const void *, const void *,
                                          int64_t) = {
        [FX_CONV_FORWARD] = forward_one, [FX_CONV_DATA] = data_one, [FX_CONV_WEIGHT] = weight_one};
    const geometry g = describe(s);
    (void)run;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++)
        fxi_ref_put(s->out.dtype, out, i, kinds[g.c.kind](&g, s->out.dtype, in[0], in[1], i));
    return FX_OK;
}
