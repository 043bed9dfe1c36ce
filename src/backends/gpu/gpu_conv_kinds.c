/* gpu_conv_kinds.c: the numbers of the three kinds of convolution (gpu_conv.c), and the division of
 * their terms into tiles and slices. */
#include "gpu_conv.h"

enum { DEPTH = FXI_GPU_CONV_DEPTH, MOST_EACH = 4 };
typedef fxi_gpu_contraction contraction;

static int64_t *on_axis(contraction *c, int param, int d)
{
    return &c->v[3 * param + d];
}

/* ---- the three kinds ------------------------------------------------------------------------- */

/* Sizes of x or its gradient, the weights, and y or its gradient; missing axes have size 1. */
typedef struct geometry {
    int64_t x[3], k[3], y[3], stride[3], before[3], dilation[3];
    int64_t xs, taps, ys; /* products of the sizes */
    int64_t in, out;      /* channels of a group */
    int64_t groups, batch;
    bool flipped;
} geometry;

/* All kinds are described by the sizes of the forward convolution, whichever array is the output.
 */
static geometry geometry_of(const fx_step *s)
{
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    const int n = a->spatial;
    const fx_tensor *x = a->kind == FX_CONV_DATA ? &s->out : &s->in[0],
                    *w = a->kind == FX_CONV_WEIGHT ? &s->out : &s->in[1],
                    *y = a->kind == FX_CONV_FORWARD ? &s->out : &s->in[a->kind == FX_CONV_WEIGHT];
    geometry g = {.xs = 1,
                  .taps = 1,
                  .ys = 1,
                  .in = w->shape[n],
                  .out = w->shape[n + 1] / a->groups,
                  .groups = a->groups,
                  .batch = x->shape[n + 1],
                  .flipped = a->flipped != 0};
    for (int d = 0; d < 3; d++) {
        const bool exists = d < n;
        g.xs *= g.x[d] = exists ? x->shape[d] : 1;
        g.taps *= g.k[d] = exists ? w->shape[d] : 1;
        g.ys *= g.y[d] = exists ? y->shape[d] : 1;
        g.stride[d] = exists ? a->stride[d] : 1;
        g.before[d] = exists ? a->before[d] : 0;
        g.dilation[d] = exists ? a->dilation[d] : 1;
    }
    return g;
}

/* x = y·stride − before + tap·dilation. If the attribute `flipped` is set (a cross-correlation),
 * the tap is the index of w's element; otherwise it counts from the other end. */
static void forward(contraction *c, const geometry *g)
{
    int64_t w = 1, y = 1;
    for (int d = 0; d < 3; d++) {
        *on_axis(c, ROWS, d) = g->y[d];
        *on_axis(c, TAPS, d) = g->k[d];
        *on_axis(c, FROM, d) = -g->before[d];
        *on_axis(c, ROW_DISTANCE, d) = g->stride[d];
        *on_axis(c, TERM_DISTANCE, d) = g->dilation[d];
        *on_axis(c, SIZE, d) = g->x[d];
        *on_axis(c, OTHER, d) = g->flipped ? w : -w;
        *on_axis(c, OUT, d) = y;
        c->v[OTHER_START] += g->flipped ? 0 : (g->k[d] - 1) * w;
        w *= g->k[d], y *= g->y[d];
    }
    c->v[COLUMNS] = g->out;
    c->v[LAST_ROWS] = g->batch;
    c->v[LAST_TERMS] = g->in;
    c->v[SOURCE_ROW] = g->xs * g->in * g->groups;
    c->v[SOURCE_TERM] = g->xs;
    c->v[SOURCE_GROUP] = g->xs * g->in;
    c->v[OTHER_TERM] = g->taps;
    c->v[OTHER_COLUMN] = g->taps * g->in;
    c->v[OTHER_GROUP] = g->taps * g->in * g->out;
    c->v[OUT_ROW] = g->ys * g->out * g->groups;
    c->v[OUT_COLUMN] = g->ys;
    c->v[OUT_GROUP] = g->ys * g->out;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* y = (x + before − tap·dilation)/stride, where that is a whole number. For x = phase + row·stride
 * these are the taps first + every·k, and from one to the next y decreases by
 * every·dilation/stride. */
static void data(contraction *c, const geometry *g)
{
    int64_t w = 1, x = 1;
    for (int d = 0; d < 3; d++) {
        /* Along an axis a phase meets every `every`-th tap: after that many taps the position has
         * moved by a multiple of the stride. */
        const int64_t every = g->stride[d] / common_divisor(g->stride[d], g->dilation[d]);
        *on_axis(c, ROWS, d) = g->x[d];
        *on_axis(c, TAPS, d) = g->k[d];
        *on_axis(c, FROM, d) = g->before[d];
        *on_axis(c, ROW_DISTANCE, d) = 1;
        *on_axis(c, TERM_DISTANCE, d) = -(every * g->dilation[d] / g->stride[d]);
        *on_axis(c, SIZE, d) = g->y[d];
        *on_axis(c, OTHER, d) = every * (g->flipped ? w : -w);
        *on_axis(c, OUT, d) = g->stride[d] * x;
        *on_axis(c, PHASES, d) = g->stride[d] < g->x[d] ? g->stride[d] : g->x[d];
        *on_axis(c, STRIDE, d) = g->stride[d];
        *on_axis(c, DILATION, d) = g->dilation[d];
        *on_axis(c, EVERY, d) = every;
        *on_axis(c, OTHER_TAP, d) = g->flipped ? w : -w;
        *on_axis(c, OUT_PHASE, d) = x;
        c->v[OTHER_START] += g->flipped ? 0 : (g->k[d] - 1) * w;
        /* With strides of 1 there is one phase, and the shorter text without phases computes it. */
        c->phased |= g->stride[d] > 1;
        w *= g->k[d], x *= g->x[d];
    }
    c->v[COLUMNS] = g->in;
    c->v[LAST_ROWS] = g->batch;
    c->v[LAST_TERMS] = g->out;
    c->v[SOURCE_ROW] = g->ys * g->out * g->groups;
    c->v[SOURCE_TERM] = g->ys;
    c->v[SOURCE_GROUP] = g->ys * g->out;
    c->v[OTHER_TERM] = g->taps * g->in;
    c->v[OTHER_COLUMN] = g->taps;
    c->v[OTHER_GROUP] = g->taps * g->in * g->out;
    c->v[OUT_ROW] = g->xs * g->in * g->groups;
    c->v[OUT_COLUMN] = g->xs;
    c->v[OUT_GROUP] = g->xs * g->in;
}

/* As FORWARD, with taps as rows and positions of y as terms. */
static void weight(contraction *c, const geometry *g)
{
    int64_t w = 1, y = 1;
    for (int d = 0; d < 3; d++) {
        const int64_t dilation = g->dilation[d];
        *on_axis(c, ROWS, d) = g->k[d];
        *on_axis(c, TAPS, d) = g->y[d];
        *on_axis(c, FROM, d) = -g->before[d] + (g->flipped ? 0 : (g->k[d] - 1) * dilation);
        *on_axis(c, ROW_DISTANCE, d) = g->flipped ? dilation : -dilation;
        *on_axis(c, TERM_DISTANCE, d) = g->stride[d];
        *on_axis(c, SIZE, d) = g->x[d];
        *on_axis(c, OTHER, d) = y;
        *on_axis(c, OUT, d) = w;
        w *= g->k[d], y *= g->y[d];
    }
    c->v[COLUMNS] = g->out;
    c->v[LAST_ROWS] = g->in;
    c->v[LAST_TERMS] = g->batch;
    c->v[SOURCE_ROW] = g->xs;
    c->v[SOURCE_TERM] = g->xs * g->in * g->groups;
    c->v[SOURCE_GROUP] = g->xs * g->in;
    c->v[OTHER_TERM] = g->ys * g->out * g->groups;
    c->v[OTHER_COLUMN] = g->ys;
    c->v[OTHER_GROUP] = g->ys * g->out;
    c->v[OUT_ROW] = g->taps;
    c->v[OUT_COLUMN] = g->taps * g->in;
    c->v[OUT_GROUP] = g->taps * g->in * g->out;
}

/* ---- tiles and slices ------------------------------------------------------------------------ */

/* The number of columns of a work-item. For every WIDTH products it reads one element of the
 * source, which takes about as long as six products; columns that do not exist are wasted. */
static int width_for(int64_t columns)
{
    static const int widths[] = {16, 8, 4, 1};
    int best = widths[0];
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int64_t cost = fxi_gpu_divide_up(columns, widths[i]) * (widths[i] + 6);
        if (cost < least) {
            least = cost;
            best = widths[i];
        }
    }
    return best;
}

static bool is_wide(contraction *c, const geometry *g)
{
    const int64_t lengths[] = {c->length * c->v[SLICES] * c->lanes,
                               fx_tensor_length(&c->step->in[0]), fx_tensor_length(&c->step->in[1]),
                               c->rows + c->items * c->each, c->terms + c->v[LENGTH] * c->lanes};
    bool wide = false;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        wide |= fxi_gpu_wide(lengths[i]);
    /* A parameter may exceed 32 bits although all lengths fit: a distance with a large stride. */
    for (int k = 0; k < PARAM_COUNT; k++)
        wide |= c->v[k] != (int32_t)c->v[k];
    /* Positions of 32 bits must stay below 2²⁹, because they are added to FAR (2³⁰, in conv.cl),
     * which marks a term as outside. Addresses in the source are computed for positions in the
     * padding too. */
    double positions = (double)fx_tensor_length(&c->step->in[0]);
    for (int d = 0; d < 3; d++) {
        const int64_t size = *on_axis(c, SIZE, d), beyond = g->before[d] + g->k[d] * g->dilation[d];
        positions *= size > 0 ? (double)(size + beyond) / (double)size : 1;
        wide |= g->x[d] + g->before[d] + g->k[d] * g->dilation[d] + g->y[d] * g->stride[d] >=
                (int64_t)1 << 29;
    }
    return wide || positions >= INT32_MAX;
}

/* The fewest terms of a slice, and the most sums of all slices: 256 MiB of Float32. */
enum { SLICE_LEAST = 16 * DEPTH, SLICES_MOST = 1 << 26 };

static int64_t tiles_of(contraction *c)
{
    int64_t tiles = c->groups;
    for (int d = 0; d < 3 && c->phased; d++)
        tiles *= *on_axis(c, PHASES, d);
    c->v[ROW_TILES] = fxi_gpu_divide_up(c->rows, c->items * c->each);
    c->v[COLUMN_TILES] = fxi_gpu_divide_up(c->v[COLUMNS], c->width);
    return tiles * c->v[ROW_TILES] * c->v[COLUMN_TILES];
}

/* Chooses the rows and columns of a work-item that has no tile (conv.cl). A work-item computes
 * several rows if enough tiles remain to keep the device busy, because it reads a factor once for
 * all of its rows. On a CPU one row is as fast: the rows of a group are vectors. */
static void choose_rows(contraction *c, const fxi_gpu_limits *limits)
{
    /* At least a warp, so that all work-items of a warp read the same factors. At least DEPTH,
     * because a work-item decodes at most one of the group's LANES·DEPTH terms. */
    const int32_t few_rows = limits->warp > DEPTH ? limits->warp : DEPTH;
    const bool few = c->rows <= few_rows * 4 && c->terms >= 8 * DEPTH && !limits->serial &&
                     c->length <= SLICES_MOST / 8;
    c->items = few ? few_rows : FXI_GPU_GROUP;
    c->lanes = FXI_GPU_GROUP / c->items;
    c->width = width_for(c->v[COLUMNS]);
    c->each = few || limits->serial || c->type->size == 8 ? 1 : MOST_EACH;
    /* Fewer rows for a work-item give more tiles. */
    if (tiles_of(c) < 2 * limits->units)
        c->each = 1;
}

/* Cuts the terms into slices until the device is busy, but not into very short ones, and within a
 * limit of work space. */
static void cut(contraction *c, const fxi_gpu_limits *limits)
{
    choose_rows(c, limits);
    const int64_t tiles = tiles_of(c), want = 4 * (int64_t)limits->units,
                  most = SLICES_MOST / c->length / c->lanes;
    int64_t slices = tiles < want ? fxi_gpu_divide_up(want, tiles) : 1;
    if (slices > c->terms / (SLICE_LEAST * c->lanes))
        slices = c->terms / (SLICE_LEAST * c->lanes);
    if (slices > most)
        slices = most;
    if (slices < 1)
        slices = 1;
    /* Whole blocks of DEPTH terms, so only the last slice has terms that do not exist. */
    const int64_t rounds = fxi_gpu_divide_up(c->terms, slices * c->lanes * DEPTH);
    c->v[LENGTH] = (rounds < 1 ? 1 : rounds) * DEPTH;
    /* Rounding up may leave fewer slices. */
    slices = fxi_gpu_divide_up(c->terms, c->v[LENGTH] * c->lanes);
    c->v[SLICES] = slices < 1 ? 1 : slices;
    c->v[OUT_SLICE] = c->length;
}

fxi_gpu_contraction fxi_gpu_contraction_of(const fx_step *s, const fxi_gpu_limits *limits)
{
    static void (*const kinds[])(contraction *, const geometry *) = {
        [FX_CONV_FORWARD] = forward, [FX_CONV_DATA] = data, [FX_CONV_WEIGHT] = weight};
    const geometry g = geometry_of(s);
    contraction c = {.step = s,
                     .type = &fxi_gpu_types[s->out.dtype],
                     .groups = g.groups,
                     .length = fx_tensor_length(&s->out)};
    kinds[fx_step_conv(s)->attr.kind](&c, &g);
    /* If an operand has no elements, the sums have no terms, and nothing may be read. */
    if (fx_tensor_length(&s->in[0]) == 0 || fx_tensor_length(&s->in[1]) == 0)
        c.v[LAST_TERMS] = 0;
    c.rows = c.v[LAST_ROWS];
    c.terms = c.v[LAST_TERMS];
    for (int d = 0; d < 3; d++) {
        const int64_t stride = c.phased ? *on_axis(&c, STRIDE, d) : 1,
                      every = c.phased ? *on_axis(&c, EVERY, d) : 1;
        c.rows *= fxi_gpu_divide_up(*on_axis(&c, ROWS, d), stride);
        c.terms *= fxi_gpu_divide_up(*on_axis(&c, TAPS, d), every);
    }
    /* Words of 64 bits would need more registers than a work-item of a tile has. */
    fxi_gpu_conv_choose_tile(&c, limits);
    if (c.tile && is_wide(&c, &g))
        c.tile = NULL;
    if (!c.tile)
        cut(&c, limits);
    c.wide = is_wide(&c, &g);
    return c;
}
