/* bench_convolutions.c: measures single convolutions of each class of shape that the CPU treats
 * differently (cpu_plugin.c, cpu_conv.c): with one group, with a kernel of one element, depthwise,
 * with groups, with a dilation, transposed, along one and three axes.
 *
 * A row computes the value, or the value and both gradients, from arrays in the library's order.
 * The copies into another order, which a kernel library may need, are part of the time.
 */
#include "bench.h"

typedef struct conv_shape {
    int axes;             /* spatial axes, all of the same size */
    int64_t size, kernel; /* along each axis */
    int64_t in, out, batch;
    int64_t stride, pad, dilation, groups; /* 0: the default */
    bool transposed;
} conv_shape;

static const conv_shape *shape_of(const bench_state *s)
{
    return s->which->details;
}

/* n along each of `axes` axes, then two more sizes. */
static fx_array *random_of(int axes, int64_t n, int64_t first, int64_t second)
{
    int64_t size[5] = {n, n, n};
    size[axes] = first;
    size[axes + 1] = second;
    return fxi_randn(FX_DTYPE_F32, axes + 2, size);
}

static fx_dims along(int axes, int64_t n)
{
    fx_dims d = {.n = axes};
    for (int i = 0; i < axes; i++)
        d.v[i] = n;
    return d;
}

static fx_array *convolved(bench_state *s)
{
    const conv_shape *c = shape_of(s);
    const fx_dims stride = along(c->axes, c->stride ? c->stride : 1), pad = along(c->axes, c->pad),
                  dilation = along(c->axes, c->dilation ? c->dilation : 1);
    const int64_t groups = c->groups ? c->groups : 1;
    return c->transposed ? fx_convolve_transposed(s->x, s->w, .stride = stride, .pad = pad,
                                                  .dilation = dilation, .groups = groups)
                         : fx_convolve(s->x, s->w, .stride = stride, .pad = pad,
                                       .dilation = dilation, .groups = groups);
}

static void open_conv(bench_state *s)
{
    const conv_shape *c = shape_of(s);
    const int64_t groups = c->groups ? c->groups : 1;
    fx_set(&s->x, random_of(c->axes, c->size, c->in, c->batch));
    fx_set(&s->w, c->transposed ? random_of(c->axes, c->kernel, c->out / groups, c->in)
                                : random_of(c->axes, c->kernel, c->in / groups, c->out));
    fx_set(&s->g, fx_ones_like(convolved(s)));
    fx_eval(fx_tuple(s->x, s->w, s->g));
}

static void forward(bench_state *s)
{
    FX_TEST;
    fx_eval(convolved(s));
}

/* The gradients of x and w. */
static void gradient(bench_state *s)
{
    FX_SCOPE;
    fx_array *y = convolved(s), *g[2];
    fx_pullback(y, s->g, (fx_array *[]){s->x, s->w}, 2, g);
    fx_eval(fx_tuple(y, g[0], g[1]));
}

#define CONVOLUTION(label, ...)                                                                    \
    {.name = "conv/" label,                                                                        \
     .setup = open_conv,                                                                           \
     .body = forward,                                                                              \
     .details = &(const conv_shape){__VA_ARGS__}},                                                 \
    {                                                                                              \
        .name = "conv/" label "-gradient", .setup = open_conv, .body = gradient,                   \
        .details = &(const conv_shape)                                                             \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

const bench_case bench_convolutions[] = {
    CONVOLUTION("3x3-64x64-56-b4", 2, 56, 3, 64, 64, 4, .pad = 1),
    CONVOLUTION("3x3-64x64-56-b1", 2, 56, 3, 64, 64, 1, .pad = 1),
    CONVOLUTION("1x1-256x64-56-b4", 2, 56, 1, 256, 64, 4, .stride = 1),
    CONVOLUTION("1x1-stride-2-128x256-28-b4", 2, 28, 1, 128, 256, 4, .stride = 2),
    CONVOLUTION("depthwise-3x3-64-56-b4", 2, 56, 3, 64, 64, 4, .pad = 1, .groups = 64),
    CONVOLUTION("depthwise-5x5-stride-2-64-28-b4", 2, 28, 5, 64, 64, 4, .stride = 2, .pad = 2,
                .groups = 64),
    CONVOLUTION("32-groups-3x3-512x512-28-b4", 2, 28, 3, 512, 512, 4, .pad = 1, .groups = 32),
    CONVOLUTION("3x3-stride-2-64x64-56-b4", 2, 56, 3, 64, 64, 4, .stride = 2, .pad = 1),
    CONVOLUTION("3x3-dilation-2-64x64-56-b4", 2, 56, 3, 64, 64, 4, .pad = 2, .dilation = 2),
    CONVOLUTION("transposed-4x4-stride-2-64x64-28-b4", 2, 28, 4, 64, 64, 4, .stride = 2, .pad = 1,
                .transposed = true),
    CONVOLUTION("1d-5-64x64-1024-b16", 1, 1024, 5, 64, 64, 16, .pad = 2),
    CONVOLUTION("3d-3x3x3-32x32-16-b4", 3, 16, 3, 32, 32, 4, .pad = 1),
    {.name = NULL},
};
