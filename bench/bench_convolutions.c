/* bench_convolutions.c: measures single convolutions of each class of shape that the CPU treats
 * differently (cpu_plugin.c, cpu_conv.c): with one group, with one tap, depthwise, with groups.
 *
 * A row computes the value, or the value and both gradients, from arrays in the library's order.
 * The copies into another order, which a kernel library may need, are part of the time.
 */
#include "bench.h"

enum { WIDE, POINT, POINT_STRIDE_2, DEPTHWISE, DEPTHWISE_STRIDE_2, GROUPED };

static const struct window {
    int64_t kernel, stride, pad, groups; /* groups 0: one for each channel */
} windows[] = {[WIDE] = {3, 1, 1, 1},
               [POINT] = {1, 1, 0, 1},
               [POINT_STRIDE_2] = {1, 2, 0, 1},
               [DEPTHWISE] = {3, 1, 1, 0},
               [DEPTHWISE_STRIDE_2] = {5, 2, 2, 0},
               [GROUPED] = {3, 1, 1, 32}};

static int64_t groups_of(const bench_case *c)
{
    const int64_t groups = windows[c->flag].groups;
    return groups ? groups : c->size[1];
}

static fx_array *convolve(bench_state *s)
{
    const struct window *w = &windows[s->which->flag];
    return fx_convolve(s->x, s->w, .pad = FX_DIMS(w->pad, w->pad),
                       .stride = FX_DIMS(w->stride, w->stride), .groups = groups_of(s->which));
}

/* size: side, channels of x, channels of y, images; flag: the window. */
static void open_convolution(bench_state *s)
{
    const int64_t *n = s->which->size, kernel = windows[s->which->flag].kernel;
    fx_set(&s->x, fx_randn(n[0], n[0], n[1], n[3]));
    fx_set(&s->w, fx_randn(kernel, kernel, n[1] / groups_of(s->which), n[2]));
    fx_set(&s->g, fx_ones_like(convolve(s)));
    fx_eval(fx_tuple(s->x, s->w, s->g));
}

static void value(bench_state *s)
{
    FX_TEST;
    fx_eval(convolve(s));
}

static void with_gradients(bench_state *s)
{
    FX_SCOPE;
    fx_array *y = convolve(s), *g[2];
    fx_pullback(y, s->g, (fx_array *[]){s->x, s->w}, 2, g);
    fx_eval(fx_tuple(y, g[0], g[1]));
}

#define CONVOLUTION(label, window, ...)                                                            \
    {.name = "conv/" label,                                                                        \
     .setup = open_convolution,                                                                    \
     .step = value,                                                                                \
     .size = {__VA_ARGS__},                                                                        \
     .flag = window},                                                                              \
    {                                                                                              \
        .name = "conv/" label "-gradient", .setup = open_convolution, .step = with_gradients,      \
        .size = {__VA_ARGS__}, .flag = window                                                      \
    }

const bench_case bench_convolutions[] = {
    CONVOLUTION("3x3-64x64-56-b4", WIDE, 56, 64, 64, 4),
    CONVOLUTION("3x3-64x64-56-b1", WIDE, 56, 64, 64, 1),
    CONVOLUTION("1x1-256x64-56-b4", POINT, 56, 256, 64, 4),
    CONVOLUTION("1x1-stride-2-128x256-28-b4", POINT_STRIDE_2, 28, 128, 256, 4),
    CONVOLUTION("depthwise-3x3-64-56-b4", DEPTHWISE, 56, 64, 64, 4),
    CONVOLUTION("depthwise-5x5-stride-2-64-28-b4", DEPTHWISE_STRIDE_2, 28, 64, 64, 4),
    CONVOLUTION("32-groups-3x3-512x512-28-b4", GROUPED, 28, 512, 512, 4),
    {.name = NULL},
};
