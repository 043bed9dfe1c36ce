/* cpu_conv_masked.c: convolutions with groups of few channels, such as depthwise ones, along two
 * axes: vectors run along the windows of a row, and x is read in its own memory.
 *
 * Such a convolution multiplies each element a few times only, so copies of images and of results
 * take as long as the sums. Here nothing is copied: a vector of windows loads its taps where they
 * are, with a mask for those outside x, and its sums are stored where they belong, with a mask for
 * the windows beyond the last. A tile has up to eight rows of windows, so that a vector of x is
 * loaded once for all rows that read it (cpu_isa_conv_masked.h). With strides of 2, every second
 * element of two vectors is used.
 *
 *   FORWARD  y = Σ x·w over the channels of a group and the taps
 *   DATA     the same with gy for x and the kernel reversed. For strides of 2, even and odd
 *            elements of x have taps of their own, and are interleaved.
 *   WEIGHT   gw = Σ x·gy over the windows of all images
 *
 * Taps outside x are left out of the sums, not multiplied by 0, so infinities and NaN need no
 * special case.
 *
 * A unit of work is one or two output channels of an image; for WEIGHT, those of all images, or of
 * some. The order of every sum depends on the shapes only, and outputs do not depend on the other
 * images of a batch.
 *
 * Rejected: scratch memory with padding, as in cpu_conv_direct.c. There a vector of windows may run
 * across the end of a row, so fewer lanes are empty, but each image and each result is copied once
 * more. Groups of one channel multiply each element as few times as the kernel has taps, and the
 * copies took a third of the time. Narrow rows are left to that method: too many lanes would be
 * empty.
 */
#include "cpu_conv.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    MOST_BYTES =
        512 << 10, /* bytes of the planes that a sum reads: they stay in the second-level cache */
    MOST_PADDING = 1 << 20, /* the largest padding and reach of the taps; taps farther away would be
                               loaded with empty masks */
    MOST_SHARES = 16
};

/* The fraction of the lanes that must hold windows: 7 windows are enough for a vector of 16 lanes.
 * With fewer, too many lanes would be empty, and an image is so small that copying it takes little
 * time. */
static const double FULL = 0.4;

typedef struct job {
    const fxi_conv_geometry *g;
    const fxi_conv_masked_core *core;
    fxi_conv_masked tile; /* what all units share */
    int kind, rows;       /* index of the kernel's rows in the tables */
    bool spread;
    const float *x, *w, *y; /* what is read: x and w, or for WEIGHT x and y */
    float *out;
    int64_t tap0;          /* of the kernel: the one that reads the first element of a window */
    int64_t columns, pair; /* output channels of a group, and of a unit */
    int64_t panels, units, parts;
    int64_t inner, outer; /* elements of a plane that is read, and of one that is written */
    char *epilogue_values;
    const fxi_finish *finish; /* an epilogue of other instructions; NULL: none */
    int64_t shares;           /* WEIGHT: of the images, each with its own sums */
    float *sums;              /* of all shares but the first */
} job;

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Vectors that hold a row of windows. */
static int64_t vectors_of(const job *s)
{
    const fxi_conv_masked *p = &s->tile;
    return s->spread ? fxi_cpu_divide_up(p->out[0] + (p->before[0] & 1), 2 * s->core->lanes)
                     : fxi_cpu_divide_up(p->out[0], s->core->lanes);
}

/* The kernel's strides. `against`: tap 0 reads the farthest element of a window. */
static void set_taps(job *s, bool against)
{
    const fxi_conv_geometry *g = s->g;
    const int64_t sign = against ? -1 : 1;
    s->tile.wtap[0] = sign;
    s->tile.wtap[1] = sign * g->k[0];
    s->tap0 = against ? g->taps - 1 : 0;
}

/* Fills in the sizes. `planes[0][rows][1]` is NULL if a tile of two columns needs more registers
 * than the processor has; units then have one column. With strides of 1, the gradient of data is a
 * convolution of gy with the padding with which each element of x reaches all windows that read it.
 */
static void set_sizes(job *s)
{
    const fxi_conv_geometry *g = s->g;
    const bool data = s->kind == FX_CONV_DATA;
    fxi_conv_masked *p = &s->tile;
    s->spread = data && g->stride[0] == 2;
    for (int d = 0; d < 2; d++) {
        p->in[d] = data ? g->y[d] : g->x[d];
        p->out[d] = data ? g->x[d] : g->y[d];
        p->k[d] = g->k[d];
        p->dilation[d] = g->dilation[d];
        p->before[d] =
            data && !s->spread ? (g->k[d] - 1) * g->dilation[d] - g->before[d] : g->before[d];
    }
    p->terms = data ? g->cout : g->cin;
    p->wterm = data ? g->depth : g->taps;
    p->wcolumn = data ? g->taps : g->depth;
    s->columns = data ? g->cin : g->cout;
    s->rows = (int)(g->k[1] - 3) / 2;
    s->pair = s->core->planes[0][s->rows][1] && !s->spread && s->columns > 1 ? 2 : 1;
    s->panels = fxi_cpu_divide_up(s->columns, s->pair);
    s->inner = p->in[0] * p->in[1];
    s->outer = p->out[0] * p->out[1];
}

/* The windows of vector v for which column k of the kernel is inside x: lanes lo … hi−1. They are
 * the same for all rows and images, so they are computed once for each call. */
static void lanes_at(const job *s, int64_t v, int64_t k, int64_t *lo, int64_t *hi)
{
    const fxi_conv_masked *p = &s->tile;
    const int64_t lanes = s->core->lanes, stride = s->spread ? 1 : s->g->stride[0];
    /* The position of lane 0 in the array that is read, unless `spread`. */
    int64_t at = v * lanes * stride + k * p->dilation[0] - p->before[0];
    int64_t windows = p->out[0] - v * lanes;
    if (s->spread) {
        at = v * lanes + (p->before[0] - (p->before[0] & 1)) / 2 - k / 2;
        windows = lanes;
    }
    *lo = fxi_cpu_min(fxi_cpu_divide_up(-at, stride), lanes);
    *hi = fxi_cpu_min(fxi_cpu_divide_up(p->in[0] - at, stride), fxi_cpu_min(windows, lanes));
    *hi = fxi_cpu_max(*lo, *hi);
}

static void fill_lanes(const job *s, fxi_conv_lanes *out)
{
    const bool every_second = !s->spread && s->g->stride[0] == 2;
    for (int64_t v = 0; v < vectors_of(s); v++)
        for (int64_t k = 0; k < s->tile.k[0]; k++, out++) {
            int64_t lo, hi;
            lanes_at(s, v, k, &lo, &hi);
            out->add = (UINT32_C(1) << hi) - (UINT32_C(1) << lo);
            out->load = out->add;
            if (every_second && lo < hi)
                out->load = (uint32_t)((UINT64_C(1) << (2 * hi - 1)) - (UINT64_C(1) << (2 * lo)));
        }
}

/* Nanoseconds of all images. Memory traffic counts here, unlike in the other methods: a depthwise
 * convolution reads and writes an element for every few multiplications. */
static double cost_of(const fxi_conv_geometry *g)
{
    const double images = (double)(g->batch * g->groups);
    const double flops = 2.0 * (double)g->depth * (double)g->cout * (double)g->positions;
    const double elements = (double)(g->cin * g->xs + g->cout * g->positions);
    return fxi_cpu_cost(images * elements * sizeof(float), images * flops);
}

/* ---- forward and data ------------------------------------------------------------------------ */

/* One or two output channels of an image. Neighbouring units read the same planes of x, which stay
 * in the cache of the thread that runs both. An epilogue of other instructions is applied while the
 * result is in the cache. */
static void run_unit(const job *s, int64_t unit)
{
    const fxi_conv_geometry *g = s->g;
    const int64_t at = unit / s->panels, group = at % g->groups, c = unit % s->panels * s->pair;
    const int64_t n = fxi_cpu_min(s->pair, s->columns - c),
                  first = (at * s->columns + c) * s->outer;
    fxi_conv_instr instr[FXI_CONV_INSTRUCTIONS];
    fxi_conv_masked p = s->tile;
    p.at = at * p.terms * s->inner;
    p.length = g->batch * g->groups * p.terms * s->inner;
    p.x = s->x + p.at;
    p.w = s->w + s->tap0 + group * g->depth * g->cout + c * p.wcolumn;
    p.y = s->out + first;
    p.n = fxi_conv_epilogue_at(g, s->columns, s->epilogue_values, group, c, instr);
    p.instr = instr;
    if (s->spread)
        s->core->spread[s->rows](&p);
    else
        s->core->planes[s->kind == FX_CONV_DATA ? 0 : g->stride[0] - 1][s->rows][n - 1](&p);
    if (s->finish)
        fxi_cpu_finish_range(s->finish, first, first + n * s->outer);
}

static void run_units(void *user, int64_t part)
{
    const job *s = user;
    int64_t from, to;
    fxi_cpu_range(s->units, s->parts, part, &from, &to);
    for (int64_t unit = from; unit < to; unit++)
        run_unit(s, unit);
}

/* Units need no memory of their own: sums are in registers until they are stored. */
static fx_status run_windows(job *s)
{
    const fxi_conv_geometry *g = s->g;
    s->units = g->batch * g->groups * s->panels;
    s->finish = g->epilogue.n ? NULL : g->finish;
    s->parts = fxi_cpu_parts(s->units, cost_of(g));
    fxi_cpu_parallel(s->parts, run_units, s);
    return FX_OK;
}

/* ---- weight ---------------------------------------------------------------------------------- */

/* Elements of the whole kernel; each share but the first has as many sums. */
static int64_t kernel_length(const fxi_conv_geometry *g)
{
    return g->depth * g->cout * g->groups;
}

/* A vector of sums for each tap and column of a unit: lanes are added up after the last image. */
static int64_t sums_bytes(const job *s)
{
    return s->tile.terms * s->g->taps * s->pair * s->core->lanes * (int64_t)sizeof(float);
}

/* The sums of some output channels over the images of a share. A call of the tile adds one input
 * channel, so that its sums are few enough for registers. */
static void sum_unit(const job *s, int64_t unit, int64_t share, void *sums)
{
    const fxi_conv_geometry *g = s->g;
    const int64_t group = unit / s->panels, c = unit % s->panels * s->pair;
    const int64_t n = fxi_cpu_min(s->pair, s->columns - c);
    const size_t bytes = (size_t)(sums_bytes(s) / s->tile.terms / s->pair * n);
    fxi_conv_masked p = s->tile;
    int64_t from, to;
    p.columns = n;
    fxi_cpu_range(g->batch, s->shares, share, &from, &to);
    p.length = g->batch * g->groups * g->cin * s->inner;
    p.end = s->y + g->batch * g->groups * s->columns * s->outer;
    p.terms = 1;
    memset(sums, 0, bytes * (size_t)g->cin);
    for (int64_t image = from; image < to; image++)
        for (int64_t k = 0; k < g->cin; k++) {
            const int64_t at = image * g->groups + group;
            p.at = (at * g->cin + k) * s->inner;
            p.x = s->x + p.at;
            p.y = (float *)(uintptr_t)(s->y + (at * s->columns + c) * s->outer);
            p.sums = (char *)sums + (size_t)k * bytes;
            s->core->weight[g->stride[0] - 1][s->rows][n - 1](&p);
        }
    float *w = share ? s->sums + (share - 1) * kernel_length(g) : s->out;
    for (int64_t k = 0; k < g->cin; k++) {
        p.sums = (char *)sums + (size_t)k * bytes;
        s->core->add_lanes(&p, w + s->tap0 + (group * g->cout + c) * p.wcolumn + k * p.wterm);
    }
}

static void sum_units(void *user, int64_t part, void *memory)
{
    const job *s = user;
    int64_t from, to;
    fxi_cpu_range(s->units * s->shares, s->parts, part, &from, &to);
    for (int64_t i = from; i < to; i++)
        sum_unit(s, i / s->shares, i % s->shares, memory);
}

/* Few channels are divided into shares of the images, so that all threads have work. The shares are
 * added in their order. */
static fx_status run_weight(job *s)
{
    const fxi_conv_geometry *g = s->g;
    const int64_t length = kernel_length(g);
    s->units = g->groups * s->panels;
    s->shares = fxi_cpu_min(fxi_cpu_divide_up(MOST_SHARES, s->units), g->batch);
    s->shares = cost_of(g) < FXI_PARTS_FROM ? 1 : s->shares;
    s->parts = fxi_cpu_parts(s->units * s->shares, cost_of(g));
    if (s->shares > 1 &&
        !(s->sums = fxi_aligned(64, (size_t)((s->shares - 1) * length) * sizeof(float))))
        return FX_STATUS_MEMORY;
    const fx_status status =
        fxi_cpu_parallel_scratch(s->parts, (size_t)sums_bytes(s), sum_units, s);
    for (int64_t i = 0; i < (s->shares - 1) * length && !status; i++)
        s->out[i % length] += s->sums[i];
    fxi_free(s->sums);
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Does the convolution have the form that the tiles compute? Kernels of other heights are rare in
 * depthwise convolutions, and each height is code of its own. Without groups, the other methods
 * multiply each element many times, and their copies cost little. */
static bool has_form(const fxi_conv_geometry *g)
{
    const bool flat = g->attr->spatial == 2 && g->groups > 1 && g->dtype == FX_DTYPE_F32;
    const bool kernel =
        (g->k[1] == 3 || g->k[1] == 5 || g->k[1] == 7) && g->k[0] <= FXI_MASKED_WIDTH;
    const bool strides =
        g->stride[0] == g->stride[1] &&
        (g->stride[0] == 1 || (g->stride[0] == 2 && g->dilation[0] == 1 && g->dilation[1] == 1));
    bool near = true;
    for (int d = 0; d < 2; d++)
        near = near && g->k[d] * g->dilation[d] <= MOST_PADDING && g->before[d] <= MOST_PADDING &&
               g->before[d] >= 0;
    return flat && kernel && strides && near;
}

/* The shapes of one image decide, and the number of images does not. */
bool fxi_cpu_conv_masked_suits(const fxi_conv_geometry *g, int kind)
{
    job s = {.g = g, .core = fxi_cpu_simd()->conv_masked, .kind = kind};
    if (!s.core || !has_form(g) || fxi_cpu_max(g->cin, g->cout) > s.core->channels ||
        g->depth == 0 || g->cout == 0 || g->positions == 0 || g->xs == 0)
        return false;
    set_sizes(&s);
    const int64_t lanes = s.core->lanes * (s.spread ? 2 : 1);
    return (double)s.tile.out[0] >= FULL * (double)(vectors_of(&s) * lanes) &&
           (s.tile.terms == 1 || s.tile.terms * s.inner * (int64_t)sizeof(float) <= MOST_BYTES);
}

/* Masks and the values of an epilogue are in one block of memory. It is allocated before anything
 * is written: if that fails, the output is unchanged. */
bool fxi_cpu_conv_masked(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                         fx_status *out_status)
{
    const bool data = kind == FX_CONV_DATA, weight = kind == FX_CONV_WEIGHT;
    job s = {.g = g, .core = fxi_cpu_simd()->conv_masked, .kind = kind};
    if (g->batch == 0 || !fxi_cpu_conv_masked_suits(g, kind))
        return false;
    set_sizes(&s);
    set_taps(&s, (g->attr->flipped != 0) == (data && !s.spread));
    s.x = data ? y : x;
    s.w = w;
    s.y = y;
    s.out = weight ? w : data ? x : y;
    const size_t lanes =
        (size_t)fxi_cpu_round_up(vectors_of(&s) * g->k[0] * (int64_t)sizeof(fxi_conv_lanes), 64);
    char *memory = fxi_aligned(64, lanes + fxi_conv_epilogue_bytes(g, s.columns));
    *out_status = FX_STATUS_MEMORY;
    if (!memory)
        return true;
    s.tile.lanes = (fxi_conv_lanes *)(void *)memory;
    s.epilogue_values = memory + lanes;
    fill_lanes(&s, (fxi_conv_lanes *)(void *)memory);
    fxi_conv_epilogue_put(g, s.columns, s.epilogue_values);
    *out_status = weight ? run_weight(&s) : run_windows(&s);
    fxi_free(memory);
    return true;
}
