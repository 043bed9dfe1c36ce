/* cpu_pool.c: max and mean pooling, their gradients, and picking by the position of the maximum.
 *
 * One to three spatial axes are treated as three; what follows them are planes, each on its own. A
 * window is clipped to the array first, so padding never wins a maximum. The maximum is the first
 * NaN of the window, else its first largest element in column-major order; the same search serves
 * MAX, MAX_GRAD and MAX_PICK, which therefore agree on ties.
 */
#include "cpu_kernels.h"
#include "cpu_walk.h"
#include <string.h>

typedef struct geometry {
    const fxi_pool_attr *attr;
    int64_t x[3], y[3];
    int64_t window[3], stride[3], before[3], dilation[3];
    int64_t xs, ys, planes; /* elements of one plane of x and of y */
    double count;           /* elements of a whole window */
} geometry;

/* The part of a window that lies inside: taps lo … hi−1 along each axis; origin: index in x of tap
 * 0. */
typedef struct window {
    int64_t lo[3], hi[3], origin[3];
} window;

static geometry geometry_of(const fxi_pool_attr *a, const fxi_tensor *x, const fxi_tensor *y)
{
    geometry g = {.attr = a, .count = 1};
    for (int d = 0; d < 3; d++) {
        const bool used = d < a->spatial;
        g.x[d] = used ? x->shape[d] : 1;
        g.y[d] = used ? y->shape[d] : 1;
        g.window[d] = used ? a->window[d] : 1;
        g.stride[d] = used ? a->stride[d] : 1;
        g.before[d] = used ? a->before[d] : 0;
        g.dilation[d] = used ? a->dilation[d] : 1;
        g.count *= (double)g.window[d];
    }
    g.xs = fxi_length(3, g.x);
    g.ys = fxi_length(3, g.y);
    g.planes = fxi_length(x->ndim - a->spatial, x->shape + a->spatial);
    return g;
}

static void clip(const geometry *g, int axis, int64_t position, window *w)
{
    const int64_t first = position * g->stride[axis] - g->before[axis], step = g->dilation[axis];
    const int64_t lo = first < 0 ? (-first + step - 1) / step : 0;
    const int64_t inside = first >= g->x[axis] ? 0 : (g->x[axis] - 1 - first) / step + 1;
    w->hi[axis] = inside < g->window[axis] ? inside : g->window[axis];
    w->lo[axis] = lo < w->hi[axis] ? lo : w->hi[axis];
    w->origin[axis] = first;
}

#define AT(g, w, i, j, k)                                                                          \
    ((w)->origin[0] + (i) * (g)->dilation[0] +                                                     \
     (g)->x[0] * ((w)->origin[1] + (j) * (g)->dilation[1] +                                        \
                  (g)->x[1] * ((w)->origin[2] + (k) * (g)->dilation[2])))
#define FOR_WINDOW(w, i, j, k)                                                                     \
    for (int64_t k = (w)->lo[2]; k < (w)->hi[2]; k++)                                              \
        for (int64_t j = (w)->lo[1]; j < (w)->hi[1]; j++)                                          \
            for (int64_t i = (w)->lo[0]; i < (w)->hi[0]; i++)

/* What is done at one window: a and b are planes of the inputs, out of the output; y: index in the
 * y-side plane. */
typedef void (*window_fn)(const geometry *g, const window *w, const void *a, const void *b,
                          int64_t y, void *out);

/* LOW: what the maximum of nothing is. */
#define MAX_WINDOWS(S, T, LOW)                                                                     \
    /* The index in x of the window's maximum; −1 for a window wholly in the padding. */         \
    static int64_t find_##S(const geometry *g, const window *w, const T *x)                        \
    {                                                                                              \
        int64_t best = -1;                                                                         \
        T top = LOW;                                                                               \
        FOR_WINDOW(w, i, j, k)                                                                     \
        {                                                                                          \
            const int64_t at = AT(g, w, i, j, k);                                                  \
            const T v = x[at];                                                                     \
            if (best < 0 || v > top || (v != v && top == top)) {                                   \
                best = at;                                                                         \
                top = v;                                                                           \
            }                                                                                      \
        }                                                                                          \
        return best;                                                                               \
    }                                                                                              \
    static void max_##S(const geometry *g, const window *w, const void *a, const void *b,          \
                        int64_t y, void *out)                                                      \
    {                                                                                              \
        (void)b;                                                                                   \
        const int64_t at = find_##S(g, w, a);                                                      \
        ((T *)out)[y] = at < 0 ? LOW : ((const T *)a)[at];                                         \
    }                                                                                              \
    static void pick_##S(const geometry *g, const window *w, const void *a, const void *b,         \
                         int64_t y, void *out)                                                     \
    {                                                                                              \
        const int64_t at = find_##S(g, w, b);                                                      \
        ((T *)out)[y] = at < 0 ? 0 : ((const T *)a)[at];                                           \
    }

#define FLOAT_WINDOWS(S, T)                                                                        \
    MAX_WINDOWS(S, T, (T)-__builtin_inf())                                                         \
    static void mean_##S(const geometry *g, const window *w, const void *a, const void *b,         \
                         int64_t y, void *out)                                                     \
    {                                                                                              \
        (void)b;                                                                                   \
        double sum = 0;                                                                            \
        FOR_WINDOW(w, i, j, k) sum += (double)((const T *)a)[AT(g, w, i, j, k)];                   \
        ((T *)out)[y] = (T)(sum / g->count);                                                       \
    }                                                                                              \
    static void mean_grad_##S(const geometry *g, const window *w, const void *a, const void *b,    \
                              int64_t y, void *out)                                                \
    {                                                                                              \
        (void)b;                                                                                   \
        const T share = (T)((double)((const T *)a)[y] / g->count);                                 \
        FOR_WINDOW(w, i, j, k)((T *)out)[AT(g, w, i, j, k)] += share;                              \
    }                                                                                              \
    static void max_grad_##S(const geometry *g, const window *w, const void *a, const void *b,     \
                             int64_t y, void *out)                                                 \
    {                                                                                              \
        const int64_t at = find_##S(g, w, b);                                                      \
        if (at >= 0)                                                                               \
            ((T *)out)[at] += ((const T *)a)[y];                                                   \
    }
FLOAT_WINDOWS(f32, float)
FLOAT_WINDOWS(f64, double)
MAX_WINDOWS(i32, int32_t, INT32_MIN)
MAX_WINDOWS(i64, int64_t, INT64_MIN)
MAX_WINDOWS(u8, uint8_t, 0)

static void run_plane(const geometry *g, window_fn fn, const void *a, const void *b, void *out)
{
    window w;
    int64_t at = 0;
    for (int64_t k = 0; k < g->y[2]; k++) {
        clip(g, 2, k, &w);
        for (int64_t j = 0; j < g->y[1]; j++) {
            clip(g, 1, j, &w);
            for (int64_t i = 0; i < g->y[0]; i++) {
                clip(g, 0, i, &w);
                fn(g, &w, a, b, at++, out);
            }
        }
    }
}

/* By kind: the operand of x's sizes and that of y's (input 0, input 1 or 2 for the output). */
static const struct {
    uint8_t x, y;
    bool adds; /* into the output, which begins as zeros */
    window_fn fn[FX_DTYPE_COUNT];
} kinds[] = {
    [FXI_POOL_MAX] = {0,
                      2,
                      false,
                      {max_f32, max_f64, max_i32, max_i64, max_u8, max_u8, NULL, NULL}},
    [FXI_POOL_MEAN] = {0, 2, false, {mean_f32, mean_f64}},
    [FXI_POOL_MAX_GRAD] = {1 /* x */, 0, true, {max_grad_f32, max_grad_f64}},
    [FXI_POOL_MEAN_GRAD] = {2, 0, true, {mean_grad_f32, mean_grad_f64}},
    [FXI_POOL_MAX_PICK] = {1, 2, false, {pick_f32, pick_f64, pick_i32, pick_i64, pick_u8, pick_u8}},
};

/* Elements of one plane of an operand: tensors of x's sizes or of y's. */
static int64_t plane_of(const geometry *g, const fxi_tensor *t)
{
    return g->planes ? fxi_tensor_length(t) / g->planes : 0;
}

fx_status fxi_cpu_pool(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    const int kind = step->attr.pool.kind, dtype = step->out.dtype;
    const window_fn fn = kinds[kind].fn[dtype];
    const fxi_tensor *t[] = {&step->in[0], &step->in[step->nin - 1], &step->out};
    const geometry g = geometry_of(&step->attr.pool, t[kinds[kind].x], t[kinds[kind].y]);
    const size_t size = fxi_cpu_size(dtype);
    if (!fn)
        return fxi_cpu_no_dtype(run, step, dtype);
    if (kinds[kind].adds)
        memset(out, 0, (size_t)fxi_tensor_length(&step->out) * size);
    const int64_t pa = plane_of(&g, t[0]), pb = plane_of(&g, t[1]), po = plane_of(&g, t[2]);
    for (int64_t p = 0; p < g.planes; p++)
        run_plane(&g, fn, fxi_at(in[0], p * pa, size), fxi_at(in[step->nin - 1], p * pb, size),
                  fxi_at_out(out, p * po, size));
    return FX_OK;
}
