/* cpu_conv.c: convolution and its two gradients, in general, as matrix products over unfolded
 * windows. Most are computed directly instead (cpu_conv_direct.c); what is left are gradients by
 * data with strides, very few windows, and weights' gradients of numbers that are not finite.
 *
 * One, two or three spatial axes are treated as three. For one image and one group let Col be the
 * matrix of windows, positions × (kernel taps × channels). Then y  = Col(x)·W          FORWARD gx =
 * fold(gy·Wᵀ)       DATA, fold adds every window element back to where it came from gW = Σ
 * Col(x)ᵀ·gy      WEIGHT, over the images y and W need no copying: their memory is such a matrix
 * already. Col is made for a chunk of positions at a time, so its memory is bounded; a 1×1 kernel
 * without stride and padding uses x itself. Chunks, images and groups run in a fixed order: sums
 * are deterministic.
 */
#include "cpu_conv.h"
#include "cpu_kernels.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum { COL_BYTES = 1 << 20 }; /* one chunk of Col stays in the second-level cache */

static void spatial_sizes(const fxi_tensor *t, int spatial, int64_t out[3])
{
    for (int d = 0; d < 3; d++)
        out[d] = d < spatial ? t->shape[d] : 1;
}

static void read_attr(fxi_conv_geometry *g, const fxi_conv_attr *a)
{
    for (int d = 0; d < 3; d++) {
        const bool used = d < a->spatial;
        g->stride[d] = used ? a->stride[d] : 1;
        g->before[d] = used ? a->before[d] : 0;
        g->dilation[d] = used ? a->dilation[d] : 1;
    }
}

static bool covers_directly(const fxi_conv_geometry *g)
{
    bool direct = g->taps == 1;
    for (int d = 0; d < 3; d++)
        direct = direct && g->stride[d] == 1 && g->before[d] == 0 && g->x[d] == g->y[d];
    return direct;
}

/* x, w, y: the tensors of the x side, the kernel and the y side, whichever are inputs. */
static fxi_conv_geometry geometry_of(const fxi_step *step, const fxi_tensor *x, const fxi_tensor *w,
                                     const fxi_tensor *y)
{
    const fxi_conv_attr *a = &step->attr.conv;
    const int s = a->spatial;
    fxi_conv_geometry g = {
        .attr = a, .dtype = step->out.dtype, .size = fxi_cpu_size(step->out.dtype)};
    spatial_sizes(x, s, g.x);
    spatial_sizes(w, s, g.k);
    spatial_sizes(y, s, g.y);
    read_attr(&g, a);
    g.groups = a->groups;
    g.cin = w->shape[s];
    g.cout = w->shape[s + 1] / g.groups;
    g.batch = x->shape[s + 1];
    g.positions = fxi_length(3, g.y);
    g.taps = fxi_length(3, g.k);
    g.xs = fxi_length(3, g.x);
    g.depth = g.taps * g.cin;
    g.direct = covers_directly(&g);
    const int64_t fit = COL_BYTES / (int64_t)g.size / (g.depth ? g.depth : 1);
    g.chunk = fit < 64 ? 64 : fit;
    /* Never above 64 MiB: fewer positions for very deep windows. */
    const int64_t most = ((int64_t)64 << 20) / (int64_t)g.size / (g.depth ? g.depth : 1);
    g.chunk = g.chunk < most ? g.chunk : most;
    g.chunk = g.chunk < 1 ? 1 : g.chunk > g.positions ? g.positions : g.chunk;
    return g;
}

/* ---- unfolding ------------------------------------------------------------------------------- */
/* A run of positions in one line of y: first, first + 1, … < end with the same second and third
 * index. */
typedef struct line {
    int64_t first, count; /* along axis 0 of y */
    int64_t y1, y2;
} line;

static line line_at(const fxi_conv_geometry *g, int64_t p, int64_t end)
{
    line l = {.first = p % g->y[0], .y1 = p / g->y[0] % g->y[1], .y2 = p / g->y[0] / g->y[1]};
    const int64_t left = g->y[0] - l.first;
    l.count = left < end - p ? left : end - p;
    return l;
}

/* The index of x along an axis for a position of y and a tap of the kernel; may lie outside. */
static int64_t x_index(const fxi_conv_geometry *g, int axis, int64_t y, int64_t tap)
{
    const int64_t t = g->attr->flipped ? tap : g->k[axis] - 1 - tap;
    return y * g->stride[axis] - g->before[axis] + t * g->dilation[axis];
}

/* Which of the line's positions have their tap inside x: [*from, *to); *start: index in x (all
 * axes) of position *from. */
static void line_inside(const fxi_conv_geometry *g, const line *l, const int64_t tap[3],
                        int64_t *from, int64_t *to, int64_t *start)
{
    const int64_t x0 = x_index(g, 0, l->first, tap[0]), s = g->stride[0];
    const int64_t x1 = x_index(g, 1, l->y1, tap[1]), x2 = x_index(g, 2, l->y2, tap[2]);
    *from = *to = *start = 0;
    if (x1 < 0 || x1 >= g->x[1] || x2 < 0 || x2 >= g->x[2])
        return;
    const int64_t lo = x0 < 0 ? (-x0 + s - 1) / s : 0;
    const int64_t hi = x0 >= g->x[0] ? 0 : (g->x[0] - 1 - x0) / s + 1;
    *to = hi < l->count ? hi : l->count;
    *from = lo < *to ? lo : *to;
    *start = x0 + *from * s + g->x[0] * (x1 + g->x[1] * x2);
}

#define FOLDS(NAME, T)                                                                             \
    static void unfold_##NAME(const fxi_conv_geometry *g, const void *x, int64_t start,            \
                              int64_t from, int64_t to, int64_t count, void *column)               \
    {                                                                                              \
        T *c = column;                                                                             \
        memset(c, 0, (size_t)from * sizeof(T));                                                    \
        fxi_copy_strided(c + from, (const T *)x + start, to - from, g->stride[0], sizeof(T));      \
        memset(c + to, 0, (size_t)(count - to) * sizeof(T));                                       \
    }                                                                                              \
    static void fold_##NAME(const fxi_conv_geometry *g, void *x, int64_t start, int64_t from,      \
                            int64_t to, const void *column)                                        \
    {                                                                                              \
        const T *c = column;                                                                       \
        T *d = (T *)x + start;                                                                     \
        for (int64_t i = from; i < to; i++)                                                        \
            d[(i - from) * g->stride[0]] += c[i];                                                  \
    }
FOLDS(f32, float)
FOLDS(f64, double)

/* Col ↔ x for positions p … end of one image and group. Columns: taps fastest, then channels. */
static void unfold_or_fold(const fxi_conv_geometry *g, void *x, void *col, int64_t p, int64_t end,
                           bool fold)
{
    const bool wide = g->dtype == FX_DTYPE_F64;
    for (int64_t column = 0; column < g->depth; column++) {
        const int64_t t = column % g->taps, channel = column / g->taps;
        const int64_t tap[3] = {t % g->k[0], t / g->k[0] % g->k[1], t / g->k[0] / g->k[1]};
        void *plane = fxi_at_out(x, channel * g->xs, g->size);
        char *c = fxi_at_out(col, column * (end - p), g->size);
        for (int64_t q = p; q < end;) {
            const line l = line_at(g, q, end);
            int64_t from, to, start;
            line_inside(g, &l, tap, &from, &to, &start);
            if (fold)
                (wide ? fold_f64 : fold_f32)(g, plane, start, from, to, c);
            else
                (wide ? unfold_f64 : unfold_f32)(g, plane, start, from, to, l.count, c);
            q += l.count;
            c += l.count * (int64_t)g->size;
        }
    }
}

/* ---- the three kinds: one chunk of one image and group each ---------------------------------- */
typedef struct operands {
    char *x, *w, *y; /* at the image and group */
    char *col;
    int64_t p, end; /* positions of this chunk */
    bool first;     /* WEIGHT: nothing has been summed yet */
} operands;

typedef fx_status (*chunk_fn)(const fxi_conv_geometry *g, const operands *o);

/* The chunk's Col for reading: x itself when the kernel covers it directly. */
static const void *read_col(const fxi_conv_geometry *g, const operands *o, int64_t *out_rows)
{
    *out_rows = g->direct ? g->positions : o->end - o->p;
    if (g->direct)
        return fxi_at(o->x, o->p, g->size);
    unfold_or_fold(g, o->x, o->col, o->p, o->end, false);
    return o->col;
}

static fx_status chunk_forward(const fxi_conv_geometry *g, const operands *o)
{
    fxi_gemm m = {.m = o->end - o->p, .n = g->cout, .k = g->depth, .rsa = 1, .b = o->w};
    m.a = read_col(g, o, &m.csa);
    m.rsb = 1;
    m.csb = g->depth;
    m.c = fxi_at_out(o->y, o->p, g->size);
    m.csc = g->positions;
    return fxi_cpu_gemm(g->dtype, &m);
}

static fx_status chunk_data(const fxi_conv_geometry *g, const operands *o)
{
    const int64_t rows = o->end - o->p;
    const fxi_gemm m = {.m = rows,
                        .n = g->depth,
                        .k = g->cout,
                        .a = fxi_at(o->y, o->p, g->size),
                        .rsa = 1,
                        .csa = g->positions,
                        .b = o->w,
                        .rsb = g->depth,
                        .csb = 1,
                        .c = o->col,
                        .csc = rows};
    const fx_status status = fxi_cpu_gemm(g->dtype, &m);
    if (!status)
        unfold_or_fold(g, o->x, o->col, o->p, o->end, true);
    return status;
}

static fx_status chunk_weight(const fxi_conv_geometry *g, const operands *o)
{
    fxi_gemm m = {.m = g->depth, .n = g->cout, .k = o->end - o->p, .csa = 1, .c = o->w};
    m.a = read_col(g, o, &m.rsa);
    m.b = fxi_at(o->y, o->p, g->size);
    m.rsb = 1;
    m.csb = g->positions;
    m.csc = g->depth;
    m.accumulate = !o->first;
    return fxi_cpu_gemm(g->dtype, &m);
}

static fx_status run_image(const fxi_conv_geometry *g, operands o, chunk_fn chunk)
{
    fx_status status = FX_OK;
    for (o.p = 0; o.p < g->positions && !status; o.p = o.end) {
        o.end = o.p + g->chunk < g->positions ? o.p + g->chunk : g->positions;
        status = chunk(g, &o);
        o.first = false;
    }
    return status;
}

static fx_status run_all(const fxi_conv_geometry *g, operands base, chunk_fn chunk)
{
    const int64_t x = g->xs * g->cin, w = g->depth * g->cout, y = g->positions * g->cout;
    fx_status status = FX_OK;
    for (int64_t n = 0; n < g->batch && !status; n++)
        for (int64_t group = 0; group < g->groups && !status; group++) {
            operands o = base;
            o.x = fxi_at_out(base.x, (n * g->groups + group) * x, g->size);
            o.w = fxi_at_out(base.w, group * w, g->size);
            o.y = fxi_at_out(base.y, (n * g->groups + group) * y, g->size);
            o.first = n == 0;
            status = run_image(g, o, chunk);
        }
    return status;
}

/* Where the x side, the kernel and the y side are, by kind: input 0, input 1 or the output (2). */
static const struct {
    uint8_t x, w, y;
    chunk_fn chunk;
} kinds[] = {[FXI_CONV_FORWARD] = {0, 1, 2, chunk_forward},
             [FXI_CONV_DATA] = {2, 1, 0, chunk_data},
             [FXI_CONV_WEIGHT] = {0, 2, 1, chunk_weight}};

fx_status fxi_cpu_conv(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    const int kind = step->attr.conv.kind;
    const fxi_tensor *tensors[] = {&step->in[0], &step->in[1], &step->out};
    /* Inputs are only read, through the same struct as the one operand that is written. */
    char *const ptrs[] = {(char *)(uintptr_t)in[0], (char *)(uintptr_t)in[1], out};
    if (step->out.dtype != FX_DTYPE_F32 && step->out.dtype != FX_DTYPE_F64)
        return fxi_cpu_no_dtype(run, step, step->out.dtype);
    fxi_conv_geometry g =
        geometry_of(step, tensors[kinds[kind].x], tensors[kinds[kind].w], tensors[kinds[kind].y]);
    g.finish = (fxi_finish){step, in, out};
    if (kind != FXI_CONV_FORWARD || g.depth == 0)
        memset(out, 0, (size_t)fxi_tensor_length(&step->out) * g.size);
    fx_status status = FX_OK;
    if (g.batch == 0 || g.positions == 0 || g.depth == 0 || g.cout == 0) {
        fxi_cpu_finish(&g.finish);
        return FX_OK;
    }
    if (fxi_cpu_conv_direct(&g, kind, ptrs[kinds[kind].x], ptrs[kinds[kind].w], ptrs[kinds[kind].y],
                            &status))
        return status ? fxi_cpu_no_memory(run, step) : FX_OK;
    operands o = {.x = ptrs[kinds[kind].x], .w = ptrs[kinds[kind].w], .y = ptrs[kinds[kind].y]};
    const bool needs_col = !g.direct || kind == FXI_CONV_DATA;
    if (needs_col && !(o.col = fxi_aligned(64, (size_t)(g.chunk * g.depth) * g.size)))
        return fxi_cpu_no_memory(run, step);
    status = run_all(&g, o, kinds[kind].chunk);
    fxi_free(o.col);
    if (status)
        return fxi_cpu_no_memory(run, step);
    fxi_cpu_finish(&g.finish);
    return FX_OK;
}
