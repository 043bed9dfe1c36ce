/* cpu_pool.c: max and mean pooling, their gradients, and picking by the position of the maximum.
 *
 * One to three spatial axes are treated as three; the axes after them are planes, each pooled on
 * its own. A window is first cut to the array, so padding is never the maximum. A row of windows is
 * computed together, tap after tap in the order of a window (cpu_isa_pool.h). The maximum is the
 * first NaN of the window, else its first largest element in column-major order; the same search
 * serves MAX, MAX_GRAD and MAX_PICK, which therefore agree on ties. Gradients of windows that
 * overlap are added in the order of the windows.
 */
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include <string.h>

typedef struct geometry {
    const fxi_pool_core *core;
    size_t size; /* of an element */
    int64_t x[3], y[3];
    int64_t window[3], stride[3], before[3], dilation[3];
    int64_t xs, ys, planes; /* elements of one plane of x and of y */
    double count;           /* elements of a whole window */
} geometry;

/* The mean divides by the size of the whole window, padding included. */
static geometry geometry_of(const fx_pool_attr *a, const fx_tensor *x, const fx_tensor *y)
{
    geometry g = {.count = 1, .size = fxi_cpu_size(x->dtype)};
    for (int d = 0; d < 3; d++) {
        /* Unused axes have one tap at stride 1, which changes nothing. */
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
    g.core = &fxi_cpu_simd()->pool[x->dtype];
    return g;
}

/* Up to FXI_TILE neighbouring windows of one row: as many as the buffers on the stack hold. */
typedef struct row {
    int64_t n;
    int64_t at;           /* index of the first window in the plane of y */
    int64_t lo[3], hi[3]; /* taps lo … hi − 1 are inside the array; axes 1 and 2 only */
    int64_t origin[3];    /* index in x of tap 0 of the first window */
    const void *a, *b;    /* planes of the inputs */
    void *out;
} row;

/* Finds the taps along axis 1 or 2 that are inside the array. They are the same for all windows of
 * a row. */
static void clip(const geometry *g, int axis, int64_t position, row *r)
{
    const int64_t first = position * g->stride[axis] - g->before[axis],
                  dilation = g->dilation[axis];
    const int64_t lo = first < 0 ? (-first + dilation - 1) / dilation : 0;
    const int64_t inside = first >= g->x[axis] ? 0 : (g->x[axis] - 1 - first) / dilation + 1;
    r->hi[axis] = inside < g->window[axis] ? inside : g->window[axis];
    r->lo[axis] = lo < r->hi[axis] ? lo : r->hi[axis];
    r->origin[axis] = first;
}

/* Of the row's windows, those whose tap i along axis 0 is inside: [*from, *to). */
static void windows_inside(const geometry *g, const row *r, int64_t i, int64_t *from, int64_t *to)
{
    const int64_t first = r->origin[0] + i * g->dilation[0], s = g->stride[0];
    *from = first < 0 ? (-first + s - 1) / s : 0;
    *to = r->n;
    if (first + (r->n - 1) * s >= g->x[0])
        *to = first >= g->x[0] ? 0 : (g->x[0] - 1 - first) / s + 1;
}

/* Calls RUN with first, from and n for every tap of the row; along axis 0 the tap is I, an
 * expression in t. first: the element that window `from` reads; n: the number of windows. */
#define FOR_TAPS(g, r, I, RUN)                                                                     \
    for (int64_t k = (r)->lo[2]; k < (r)->hi[2]; k++)                                              \
        for (int64_t j = (r)->lo[1]; j < (r)->hi[1]; j++)                                          \
            for (int64_t t = 0; t < (g)->window[0]; t++) {                                         \
                int64_t from, to;                                                                  \
                windows_inside(g, r, I, &from, &to);                                               \
                const int64_t n = to - from, first = tap_index(g, r, I, j, k, from);               \
                if (n > 0)                                                                         \
                    RUN;                                                                           \
            }

static int64_t tap_index(const geometry *g, const row *r, int64_t i, int64_t j, int64_t k,
                         int64_t window)
{
    const int64_t x1 = r->origin[1] + j * g->dilation[1], x2 = r->origin[2] + k * g->dilation[2];
    return r->origin[0] + i * g->dilation[0] + window * g->stride[0] +
           g->x[0] * (x1 + g->x[1] * x2);
}

/* ---- maxima ---------------------------------------------------------------------------------- */
/* Sets the index in x of each window's first tap that is inside the array, −1 for windows wholly in
 * the padding. The search for the maximum starts with this index, so a window of −Inf alone, in
 * which no tap exceeds the start value, has an index too. */
static void first_taps(const geometry *g, const row *r, int64_t *at)
{
    const bool any = r->lo[1] < r->hi[1] && r->lo[2] < r->hi[2];
    const int64_t d = g->dilation[0];
    for (int64_t w = 0; w < r->n; w++) {
        const int64_t first = r->origin[0] + w * g->stride[0];
        /* The first tap that is not in the padding before the array. */
        const int64_t i = first < 0 ? (-first + d - 1) / d : 0;
        const bool inside = any && i < g->window[0] && first + i * d < g->x[0];
        at[w] = inside ? tap_index(g, r, i, r->lo[1], r->lo[2], w) : -1;
    }
}

/* Finds the maxima, and their indices unless at is NULL. top and at hold FXI_TILE + FXI_POOL_SLACK
 * elements. */
static void find(const geometry *g, const row *r, const void *x, void *top, int64_t *at)
{
    /* −Inf, or the least integer: every tap beats or equals it. */
    g->core->low(r->n, top);
    if (at)
        first_taps(g, r, at);
    FOR_TAPS(g, r, t,
             g->core->max(x, first, n, g->stride[0], fxi_at_out(top, from, g->size),
                          at ? at + from : NULL))
}

static void row_max(const geometry *g, const row *r)
{
    _Alignas(64) char top[(FXI_TILE + FXI_POOL_SLACK) * sizeof(double)]; /* of any type */
    find(g, r, r->a, top, NULL);
    memcpy(fxi_at_out(r->out, r->at, g->size), top, (size_t)r->n * g->size);
}

#define PICK(S, T)                                                                                 \
    static void row_pick_##S(const geometry *g, const row *r)                                      \
    {                                                                                              \
        T top[FXI_TILE + FXI_POOL_SLACK], *out = (T *)r->out + r->at;                              \
        int64_t at[FXI_TILE + FXI_POOL_SLACK];                                                     \
        find(g, r, r->b, top, at);                                                                 \
        for (int64_t i = 0; i < r->n; i++)                                                         \
            out[i] = at[i] < 0 ? 0 : ((const T *)r->a)[at[i]];                                     \
    }
PICK(f32, float)
PICK(f64, double)
PICK(i32, int32_t)
PICK(i64, int64_t)
PICK(u8, uint8_t)

/* ---- floats ---------------------------------------------------------------------------------- */
/* Sums run in double, as in the reductions. */
#define FLOAT_ROWS(S, T)                                                                           \
    static void row_max_grad_##S(const geometry *g, const row *r)                                  \
    {                                                                                              \
        const T *gy = (const T *)r->a + r->at;                                                     \
        T top[FXI_TILE + FXI_POOL_SLACK], *gx = r->out;                                            \
        int64_t at[FXI_TILE + FXI_POOL_SLACK];                                                     \
        find(g, r, r->b, top, at);                                                                 \
        for (int64_t i = 0; i < r->n; i++)                                                         \
            if (at[i] >= 0)                                                                        \
                gx[at[i]] += gy[i];                                                                \
    }                                                                                              \
    static void row_mean_##S(const geometry *g, const row *r)                                      \
    {                                                                                              \
        double sum[FXI_TILE] = {0};                                                                \
        FOR_TAPS(g, r, t, g->core->sum(r->a, first, n, g->stride[0], sum + from))                  \
        for (int64_t i = 0; i < r->n; i++)                                                         \
            ((T *)r->out)[r->at + i] = (T)(sum[i] / g->count);                                     \
    }                                                                                              \
    /* Taps are taken backwards: an element then gets the share of an earlier window first. */     \
    static void row_mean_grad_##S(const geometry *g, const row *r)                                 \
    {                                                                                              \
        const T *gy = (const T *)r->a + r->at;                                                     \
        T share[FXI_TILE];                                                                         \
        for (int64_t i = 0; i < r->n; i++)                                                         \
            share[i] = (T)((double)gy[i] / g->count);                                              \
        FOR_TAPS(g, r, g->window[0] - 1 - t,                                                       \
                 g->core->spread(r->out, first, n, g->stride[0], share + from))                    \
    }
FLOAT_ROWS(f32, float)
FLOAT_ROWS(f64, double)

/* ---- the step -------------------------------------------------------------------------------- */
typedef void (*row_fn)(const geometry *g, const row *r);

/* Cuts a row of windows into tiles. */
static void run_rows(const geometry *g, row_fn fn, row *r)
{
    for (int64_t i = 0; i < g->y[0]; i += r->n) {
        r->n = g->y[0] - i < FXI_TILE ? g->y[0] - i : FXI_TILE;
        r->origin[0] = i * g->stride[0] - g->before[0];
        fn(g, r);
        r->at += r->n;
    }
}

/* In the order of the windows, in which the gradients of overlapping windows are added. */
static void run_plane(const geometry *g, row_fn fn, const void *a, const void *b, void *out)
{
    row r = {.a = a, .b = b, .out = out};
    for (int64_t k = 0; k < g->y[2]; k++) {
        clip(g, 2, k, &r);
        for (int64_t j = 0; j < g->y[1]; j++) {
            clip(g, 1, j, &r);
            run_rows(g, fn, &r);
        }
    }
}

/* By kind: which operand has x's sizes and which has y's (0 and 1 are inputs, 2 is the output), and
 * the kernel for each element type. */
static const struct {
    uint8_t x, y;
    bool adds; /* adds to the output, which is cleared first */
    row_fn fn[FX_DTYPE_COUNT];
} kinds[] = {
    [FX_POOL_MAX] = {0, 2, false, {row_max, row_max, row_max, row_max, row_max, row_max}},
    [FX_POOL_MEAN] = {0, 2, false, {row_mean_f32, row_mean_f64}},
    [FX_POOL_MAX_GRAD] = {1 /* x */, 0, true, {row_max_grad_f32, row_max_grad_f64}},
    [FX_POOL_MEAN_GRAD] = {2, 0, true, {row_mean_grad_f32, row_mean_grad_f64}},
    [FX_POOL_MAX_PICK] = {1,
                          2,
                          false,
                          {row_pick_f32, row_pick_f64, row_pick_i32, row_pick_i64, row_pick_u8,
                           row_pick_u8}},
};

/* Are the windows 2×2 without padding, side by side, in planes of two axes? This is the usual
 * pooling, and it has loops of its own. */
static bool in_pairs(const geometry *g)
{
    bool pairs = g->x[2] == 1 && g->y[2] == 1 && g->window[2] == 1 && g->before[2] == 0;
    for (int d = 0; d < 2; d++)
        /* The last line of x may be left over if its size is odd. */
        pairs = pairs && g->window[d] == 2 && g->stride[d] == 2 && g->dilation[d] == 1 &&
                g->before[d] == 0 && 2 * g->y[d] <= g->x[d];
    return pairs;
}

/* Which operands are x, y and v of fxi_pool_pairs, by kind: 0 is input 0, 1 the last input, 2 the
 * output. */
static const struct {
    uint8_t x, y, v;
} pair_operands[] = {[FX_POOL_MAX] = {0, 2, 0},
                     [FX_POOL_MEAN] = {0, 2, 0},
                     [FX_POOL_MAX_GRAD] = {1, 0, 2},
                     [FX_POOL_MEAN_GRAD] = {2, 0, 2},
                     [FX_POOL_MAX_PICK] = {1, 2, 0}};

/* Rows and columns of x beyond the windows, if its sizes are odd, are not touched; gradients were
 * cleared. */
static void run_pairs(const geometry *g, int kind, const void *a, const void *b, void *out)
{
    void *const operands[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, out};
    const fxi_pool_pairs p = {.x = operands[pair_operands[kind].x],
                              .y = operands[pair_operands[kind].y],
                              .v = operands[pair_operands[kind].v],
                              .pitch = g->x[0],
                              .n = g->y[0],
                              .rows = g->y[1]};
    g->core->pairs[kind](&p);
}

/* The number of elements in one plane of an operand. */
static int64_t plane_of(const geometry *g, const fx_tensor *t)
{
    return g->planes ? fx_tensor_length(t) / g->planes : 0;
}

typedef struct planes {
    const geometry *g;
    int kind;
    row_fn fn;
    bool pairs;
    int64_t parts;
    const char *a, *b;
    char *out;
    int64_t an, bn, on; /* elements of a plane */
} planes;

/* A plane is the unit of work: windows of one plane may overlap, and their gradients are added in
 * order. */
static void run_planes(void *user, int64_t part)
{
    const planes *p = user;
    const geometry *g = p->g;
    int64_t from, to;
    fxi_cpu_range(g->planes, p->parts, part, &from, &to);
    /* Each part clears its own planes, so no thread waits for another. */
    if (kinds[p->kind].adds)
        memset(fxi_at_out(p->out, from * p->on, g->size), 0,
               (size_t)((to - from) * p->on) * g->size);
    for (int64_t k = from; k < to; k++) {
        const void *a = fxi_at(p->a, k * p->an, g->size), *b = fxi_at(p->b, k * p->bn, g->size);
        void *out = fxi_at_out(p->out, k * p->on, g->size);
        p->pairs ? run_pairs(g, p->kind, a, b, out) : run_plane(g, p->fn, a, b, out);
    }
}

/* In nanoseconds: the memory traffic, and half a nanosecond for each tap of a window. The loops for
 * windows of 2×2 count as one tap. */
static double cost_of(const geometry *g, bool pairs)
{
    const double taps = pairs ? 1 : g->count;
    return (double)g->planes * (fxi_cpu_cost((double)((g->xs + g->ys) * (int64_t)g->size), 0) +
                                0.5 * taps * (double)g->ys);
}

/* Kinds differ in which operand is x and which is y: the tables above say which, so one function
 * serves all. */
fx_status fxi_cpu_pool(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const int kind = fx_step_pool(step)->attr.kind, dtype = step->out.dtype;
    if (fx_step_pool(step)->channels_last) {
        fxi_cpu_pool_channels_last(step, in, out);
        return FX_OK;
    }
    const fx_tensor *t[] = {&step->in[0], &step->in[step->nin - 1], &step->out};
    if (!kinds[kind].fn[dtype])
        return fxi_cpu_no_dtype(step, dtype);
    const geometry g = geometry_of(&fx_step_pool(step)->attr, t[kinds[kind].x], t[kinds[kind].y]);
    planes p = {.g = &g,
                .kind = kind,
                .fn = kinds[kind].fn[dtype],
                /* Integer types have no loops for pairs. */
                .pairs = in_pairs(&g) && g.core->pairs[kind],
                .a = in[0],
                .b = in[step->nin - 1],
                .out = out,
                .an = plane_of(&g, t[0]),
                .bn = plane_of(&g, t[1]),
                .on = plane_of(&g, t[2])};
    p.parts = fxi_cpu_parts(g.planes, cost_of(&g, p.pairs));
    fxi_cpu_parallel(p.parts, run_planes, &p);
    return FX_OK;
}
