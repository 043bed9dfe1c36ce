/* cpu_conv_winograd.c: 3×3 convolutions of Float32 with fewer multiplications: Winograd's F(2×2,
 * 3×3), after A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks" (2015).
 *
 * The output of an image is cut into tiles of 2×2. Each depends on a tile d of 4×4 elements of the
 * input. With the kernel g (3×3) of an input and an output channel, the outputs of a tile are
 *
 *   Aᵀ·[ Σ (G·g·Gᵀ) ⊙ (Bᵀ·d·B) ]·A     Σ over the input's channels, ⊙: element by element
 *
 *        1  0 -1  0          1    0    0
 *   Bᵀ = 0  1  1  0     G =  1/2  1/2  1/2     Aᵀ = 1  1  1  0
 *        0 -1  1  0          1/2 -1/2  1/2          0  1 -1 -1
 *        0  1  0 -1          0    0    1
 *
 * That is 16 multiplications for 4 outputs, where the defining sum has 36. For each of the 16, the
 * sums over the channels are a product of matrices, tiles × channels × columns, which the inner
 * loop of the direct method computes (fxi_conv_forward). DATA is the same with gy for x and the
 * kernel reversed. All factors but 1/2 are 1 or −1, so errors are relative to the largest number of
 * the window times the largest tap, also where other taps are 0.
 *
 * A unit of work is some consecutive rows of tiles, of one image or of several. Its transformed
 * input stays in the second-level cache while groups of columns are computed:
 *
 *   x       rows of some channels, with the padding around them
 *   t       x·B, for even and odd rows separately
 *   v       Bᵀ·x·B: 16 arrays, channel after channel; the tiles of a unit without gaps
 *   m       the 16 arrays of sums for a group of columns
 *   z       Aᵀ·m·A: for each column the upper outputs of all tiles, then the lower ones
 *
 * With a dilation of d, outputs whose positions have the same remainder modulo d form a part. The
 * inputs that they read have one remainder too, and taps are neighbours among these inputs: so a
 * part is computed as an image of its own. Parts are gathered when rows are copied into x, and
 * spread when outputs are copied out. All parts have the size of the largest.
 *
 * The sums of an element have one order, whatever the unit and the tile are in which it is
 * computed. So the bits depend neither on the number of threads nor on the other images of a batch.
 *
 * Numbers that are not finite: a transformation may give NaN (Inf − Inf) where the true result is
 * infinite, and an intermediate sum may overflow although the true result is finite. Neither can
 * give a finite result here, because no sum and no product with such a number is finite. So an
 * image whose results are not all finite is computed again by the other methods.
 */
#include "cpu_conv.h"
#include "cpu_parallel.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    TAPS = 9,                /* of the kernel */
    NUMBERS = 16,            /* of a transformed tile */
    FEW_CHANNELS = 16,       /* with fewer, the other methods were always faster */
    FEW_POSITIONS = 200,     /* of an image; with fewer, transforming the kernel took too long */
    INPUT_BYTES = 384 << 10, /* of v: it stays in the second-level cache */
    FEW_POINTS = 48,         /* about the fewest tiles of a unit (choose_rows) */
    MOST_BYTES = 128 << 20,  /* of the transformed kernel */
    ROW_BYTES = 8 << 20,     /* of v for one row of tiles; longer rows were slower */
    DEPTH = 512,             /* terms of a sum before it is stored and loaded again */
    CHANNELS = 4,            /* of the input, transformed at a time */
    GROUP = 32,              /* columns computed before their outputs are transformed */
    ENOUGH_UNITS = 16,
    LINE = 16, /* Float32 of a cache line */
    HEAD = 64
};

/* The smallest estimate of the gain with which this method is chosen. */
static const double WORTH = 1.2;

typedef struct job {
    const fxi_conv_geometry *g;
    const fxi_conv_core *core;
    const fxi_winograd_core *transform;
    int64_t in[2], out[2], before[2]; /* sizes of an input and an output image, padding */
    int64_t dilation[2], phases[2];   /* parts of an image along an axis: at most the dilation */
    int64_t all;                      /* rows of tiles of all parts of all images */
    int64_t channels, columns;        /* of the input, of the output */
    int64_t across, down;             /* tiles of a part of an image */
    int64_t rows, points;             /* of a unit: rows of tiles, and tiles */
    int64_t segments;                 /* parts of images of which a unit can have rows */
    int64_t vectors;                  /* that cover `points` */
    int64_t panels, panel;            /* panels of the kernel, and elements of each */
    int64_t pitch;                    /* between channels of v and columns of m */
    int64_t vapart, mapart, uapart;   /* between the 16 arrays */
    int64_t xpitch, xlength, tlength; /* of a row of x; of a channel of x and of t */
    int64_t groups, slices, units, parts;
    const float *x, *w;
    float *y, *u;
    char *epilogue_values;
    const fxi_finish *finish; /* an epilogue of other instructions, unless images have parts */
    int32_t *offset;          /* of the channels in v */
    char *spoiled;            /* atomic, one for each image: its results are not all finite */
} job;

/* ---- sizes ----------------------------------------------------------------------------------- */

/* An odd number of cache lines: with a power of two, all rows would compete for the same cache
 * sets. */
static int64_t odd_lines(int64_t elements)
{
    return (fxi_cpu_divide_up(elements, LINE) | 1) * LINE;
}

/* Time of the sums of some rows of tiles, per tile: a single vector left after the inner loop's
 * groups of three takes about twice as long. */
static double cost_of_rows(const job *s, int64_t rows)
{
    const int64_t vectors = fxi_cpu_divide_up(rows * s->across, s->core->lanes);
    return (double)(vectors + (vectors % 3 == 1)) / (double)(rows * s->across);
}

/* The number of rows of a unit: at most as many as the cache holds, and few enough for ENOUGH_UNITS
 * units, but at least FEW_POINTS tiles. Of the numbers above half of this maximum, the one with the
 * least time per tile. */
static int64_t choose_rows(const job *s, int64_t all)
{
    const int64_t fit = INPUT_BYTES / (NUMBERS * (int64_t)sizeof(float) * s->channels) / s->across;
    const int64_t fewest = fxi_cpu_divide_up(FEW_POINTS, s->across);
    const int64_t most = fxi_cpu_min(
        all, fxi_cpu_max(fewest, fxi_cpu_min(fit, fxi_cpu_divide_up(all, ENOUGH_UNITS))));
    int64_t best = most;
    for (int64_t rows = most - 1; 2 * rows > most; rows--)
        if (cost_of_rows(s, rows) < cost_of_rows(s, best))
            best = rows;
    return best;
}

static void finish_sizes(job *s)
{
    const int64_t lanes = s->core->lanes, all = s->all;
    s->rows = choose_rows(s, all);
    s->points = s->rows * s->across;
    s->segments = fxi_cpu_min(all / s->down, (s->rows + s->down - 2) / s->down + 1);
    s->vectors = fxi_cpu_divide_up(s->points, lanes);
    s->panels = fxi_cpu_divide_up(s->columns, s->core->columns);
    s->panel = (s->channels + 1) * s->core->columns;
    s->uapart = s->panels * s->panel;
    s->pitch = odd_lines(s->vectors * lanes);
    /* One line more, so that the arrays do not compete for the same cache sets either. */
    s->vapart = s->channels * s->pitch + LINE;
    s->mapart = fxi_cpu_min(GROUP, s->columns) * s->pitch + LINE;
    s->xpitch = 2 * s->across + 2;
    s->xlength = 2 * (s->rows + s->segments) * s->xpitch + 2 * lanes;
    s->tlength = 8 * ((s->rows + s->segments) * s->across + s->segments * lanes);
    s->groups = fxi_cpu_divide_up(s->columns, GROUP);
    s->units = fxi_cpu_divide_up(all, s->rows);
    s->slices = s->units < ENOUGH_UNITS
                    ? fxi_cpu_min(s->groups, fxi_cpu_divide_up(ENOUGH_UNITS, s->units))
                    : 1;
}

/* Tiles along an axis of the largest part of `out` outputs. */
static int64_t tiles_of(int64_t out, int64_t dilation)
{
    return fxi_cpu_divide_up(fxi_cpu_divide_up(out, dilation), 2);
}

/* DATA reads gy, with the padding with which each element of x reaches all windows that read it. */
static job job_of(const fxi_conv_geometry *g, bool data)
{
    const fxi_simd *simd = fxi_cpu_simd();
    job s = {.g = g,
             .core = &simd->conv[0],
             .transform = simd->winograd,
             .channels = data ? g->cout : g->cin,
             .columns = data ? g->cin : g->cout};
    for (int d = 0; d < 2; d++) {
        s.in[d] = data ? g->y[d] : g->x[d];
        s.out[d] = data ? g->x[d] : g->y[d];
        s.dilation[d] = g->dilation[d];
        s.phases[d] = fxi_cpu_min(g->dilation[d], s.out[d]);
        s.before[d] = data ? 2 * g->dilation[d] - g->before[d] : g->before[d];
    }
    /* An epilogue of other instructions runs over consecutive elements, which parts do not have: it
     * waits for the whole output (run). */
    if (g->epilogue.n == 0 && s.phases[0] * s.phases[1] == 1)
        s.finish = g->finish;
    s.across = tiles_of(s.out[0], s.dilation[0]);
    s.down = tiles_of(s.out[1], s.dilation[1]);
    s.all = g->batch * s.phases[0] * s.phases[1] * s.down;
    finish_sizes(&s);
    return s;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* The first column of a panel, and the number of its columns. Panels are about equally wide. */
static int64_t panel_at(const job *s, int64_t panel, int64_t *out_n)
{
    int64_t from, to;
    fxi_cpu_range(s->columns, s->panels, panel, &from, &to);
    *out_n = to - from;
    return from;
}

/* Transforms the kernel for the columns of a panel. They are transposed first, so that a vector has
 * one tap of all of them. */
static void transform_panel(const job *s, int64_t panel, float *taps)
{
    const fxi_conv_geometry *g = s->g;
    const bool data = g->attr->kind == FX_CONV_DATA;
    /* The kernel is taps × cin × cout. */
    const int64_t column = data ? TAPS : g->depth, channel = data ? g->depth : TAPS;
    int64_t n;
    const float *w = s->w + panel_at(s, panel, &n) * column;
    /* Where all channels of a column are neighbours, one transposition copies them. */
    const int64_t each = data ? 1 : s->channels;
    for (int64_t c = 0; c < s->channels; c += each)
        fxi_transpose(taps + TAPS * c * n, w + c * channel, n, TAPS * each, column, n,
                      sizeof(float));
    s->transform->kernel(&(fxi_winograd_kernel){.g = taps,
                                                .u = s->u + panel * s->panel,
                                                .channels = s->channels,
                                                .n = n,
                                                .apart = s->uapart,
                                                .against = (g->attr->flipped != 0) == data});
}

static void transform_panels(void *user, int64_t part, void *scratch)
{
    const job *s = user;
    int64_t from, to;
    fxi_cpu_range(s->panels, fxi_cpu_min(s->parts, s->panels), part, &from, &to);
    for (int64_t panel = from; panel < to; panel++)
        transform_panel(s, panel, scratch);
}

/* The kernel is transformed at every run, because in training it changes between runs. */
static fx_status transform_kernel(job *s)
{
    /* The last tap is read as a vector of all columns of the widest panel. */
    const size_t taps = (size_t)(TAPS * s->channels + 1) * (size_t)s->core->columns;
    return fxi_cpu_parallel_scratch(fxi_cpu_min(s->parts, s->panels), taps * sizeof(float),
                                    transform_panels, s);
}

/* ---- a unit ---------------------------------------------------------------------------------- */

/* Consecutive rows of tiles of one part of an image. */
typedef struct segment {
    int64_t image, phase[2], first, rows;
    int64_t at; /* the first tile's number in the unit */
} segment;

/* The segment that begins with row `row` of all rows; `end`: the unit's end. */
static segment segment_at(const job *s, int64_t row, int64_t begin, int64_t end)
{
    const int64_t first = row % s->down, part = row / s->down, across = s->phases[0];
    return (segment){.image = part / (across * s->phases[1]),
                     .phase = {part % across, part / across % s->phases[1]},
                     .first = first,
                     .rows = fxi_cpu_min(s->down - first, end - row),
                     .at = (row - begin) * s->across};
}

/* A thread's memory. It begins with `ready` because fxi_cpu_parallel_scratch clears the first 64
 * bytes of a thread's scratch before a job. */
typedef struct workspace {
    int64_t ready; /* the padding in x is cleared */
    float *x, *t, *v, *m, *z;
} workspace;

/* `take` rounds each of the five arrays up to a cache line. */
static size_t workspace_bytes(const job *s)
{
    const int64_t floats = CHANNELS * (s->xlength + s->tlength) +
                           NUMBERS * (s->vapart + s->mapart) +
                           s->core->columns * 4 * s->vectors * s->core->lanes;
    return HEAD + (size_t)(floats + 6 * LINE) * sizeof(float);
}

static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += fxi_cpu_round_up(n, LINE);
    return p;
}

static workspace *workspace_in(const job *s, void *memory)
{
    workspace *w = memory;
    float *at = (float *)(void *)((char *)memory + HEAD);
    w->x = take(&at, CHANNELS * s->xlength);
    w->t = take(&at, CHANNELS * s->tlength);
    w->v = take(&at, NUMBERS * s->vapart);
    w->m = take(&at, NUMBERS * s->mapart);
    w->z = at;
    if (!w->ready)
        memset(w->x, 0, (size_t)(CHANNELS * s->xlength) * sizeof(float));
    w->ready = 1;
    return w;
}

/* n elements of an array of size `in` begin at `from` and are `step` apart. Those with the numbers
 * *lo … *hi − 1 exist; the others are padding. */
static void inside(int64_t from, int64_t step, int64_t n, int64_t in, int64_t *lo, int64_t *hi)
{
    *lo = from < 0 ? fxi_cpu_min(fxi_cpu_divide_up(-from, step), n) : 0;
    *hi = from < in ? fxi_cpu_min(fxi_cpu_divide_up(in - from, step), n) : 0;
    *hi = fxi_cpu_max(*lo, *hi);
}

/* Copies the rows that a segment reads of one channel. Columns of padding are zeros from the start
 * of the job and are never written if an image has one part. Else another part may have elements
 * there. */
static void fill_rows(const job *s, const segment *g, int64_t channel, float *to)
{
    const int64_t rows = 2 * g->rows + 2, d0 = s->dilation[0], d1 = s->dilation[1];
    const int64_t x0 = g->phase[0] - s->before[0];
    const int64_t x1 = g->phase[1] - s->before[1] + 2 * g->first * d1;
    const size_t line = (size_t)s->xpitch * sizeof(float);
    int64_t left, right, low, high;
    inside(x0, d0, s->xpitch, s->in[0], &left, &right);
    inside(x1, d1, rows, s->in[1], &low, &high);
    /* The whole block is cleared, which is one call, and not only the columns of padding. */
    const bool clear = s->phases[0] > 1;
    memset(to, 0, (size_t)(clear ? rows : low) * line);
    memset(to + high * s->xpitch, 0, (size_t)(rows - high) * line);
    if (low < high && left < right)
        s->core->rows(&(fxi_conv_rows){
            .d = to + low * s->xpitch + left,
            .s = s->x + ((g->image * s->channels + channel) * s->in[1] + x1 + low * d1) * s->in[0] +
                 x0 + left * d0,
            .dpitch = s->xpitch,
            .spitch = s->in[0] * d1,
            .stride = d0,
            .n = right - left,
            .rows = high - low});
}

/* The numbers of the even rows are in one array, those of the odd rows in the next. */
static int64_t rows_apart(const job *s, const segment *g)
{
    return (g->rows + 1) * s->across + s->core->lanes;
}

/* The three passes over some channels, one after the other: a load that is wider than the stores
 * before it would wait for them. A vector beyond the end of a segment overwrites what the next
 * segment or channel will write. */
static void transform_channels(const job *s, const workspace *w, int64_t begin, int64_t end,
                               int64_t channel, int64_t n)
{
    for (int pass = 0; pass < 3; pass++)
        for (int64_t c = 0; c < n; c++) {
            float *x = w->x + c * s->xlength, *t = w->t + c * s->tlength;
            segment g;
            for (int64_t row = begin; row < end; row += g.rows) {
                g = segment_at(s, row, begin, end);
                const int64_t apart = rows_apart(s, &g);
                if (pass == 0)
                    fill_rows(s, &g, channel + c, x);
                else if (pass == 1)
                    s->transform->rows(&(fxi_winograd_rows){.x = x,
                                                            .t = t,
                                                            .rows = 2 * g.rows + 2,
                                                            .pitch = s->xpitch,
                                                            .across = s->across,
                                                            .apart = apart});
                else
                    s->transform->points(
                        &(fxi_winograd_points){.t = t,
                                               .v = w->v + (channel + c) * s->pitch + g.at,
                                               .n = g.rows * s->across,
                                               .across = s->across,
                                               .apart = apart,
                                               .vapart = s->vapart});
                x += (2 * g.rows + 2) * s->xpitch;
                t += 8 * apart;
            }
        }
}

/* The sums of a panel for each of the 16 numbers. */
static void sum_panel(const job *s, const workspace *w, int number, int64_t panel, int64_t at,
                      int64_t vectors)
{
    int64_t n;
    panel_at(s, panel, &n);
    const float *u = s->u + number * s->uapart + panel * s->panel;
    for (int64_t c = 0; c < s->channels; c += DEPTH)
        s->core->forward[n - 1](&(fxi_conv_forward){.x = w->v + number * s->vapart,
                                                    .w = u + c * n,
                                                    .y = w->m + number * s->mapart + at * s->pitch,
                                                    .offset = s->offset + c,
                                                    .k = fxi_cpu_min(DEPTH, s->channels - c),
                                                    .vectors = vectors,
                                                    .ypitch = s->pitch,
                                                    .accumulate = c > 0});
}

/* The outputs of a panel of columns. */
typedef struct panel {
    int64_t first, n;        /* columns */
    int64_t vectors, length; /* of the upper or the lower outputs of a column */
} panel;

/* The upper (half 0) or the lower outputs (half 1) of a segment's tiles in column c of a panel. */
static float *outputs_at(const workspace *w, const panel *p, const segment *g, int64_t c, int half)
{
    return w->z + (2 * c + half) * p->length + 2 * g->at;
}

/* Marks the images whose results are not all finite. This is tested before the epilogue, which may
 * change an infinite number to a finite one. */
static void check_panel(const job *s, const workspace *w, const panel *p, const segment *g)
{
    const int64_t n = 2 * g->rows * s->across;
    bool finite = true;
    for (int64_t c = 0; c < p->n && finite; c++)
        finite = s->core->finite(outputs_at(w, p, g, c, 0), n) &&
                 s->core->finite(outputs_at(w, p, g, c, 1), n);
    if (!finite)
        __atomic_store_n(&s->spoiled[g->image], 1, __ATOMIC_RELAXED);
}

/* Copies the outputs of a segment's tiles. Of the last tiles, those that do not exist are left out.
 * An epilogue of other instructions is applied to the columns while they are in the cache. */
static void put_panel(const job *s, const workspace *w, const panel *p, const segment *g,
                      const fxi_finish *finish)
{
    const int64_t length = s->out[0] * s->out[1], d0 = s->dilation[0], d1 = s->dilation[1];
    const int64_t first = g->phase[1] + 2 * g->first * d1, from = first * s->out[0];
    const int64_t to = fxi_cpu_min(length, from + 2 * g->rows * d1 * s->out[0]);
    for (int64_t c = 0; c < p->n; c++) {
        const int64_t column = (g->image * s->columns + p->first + c) * length;
        for (int half = 0; half < 2; half++)
            s->core->spread(&(fxi_conv_rows){
                .d = s->y + column + from + half * d1 * s->out[0] + g->phase[0],
                .s = outputs_at(w, p, g, c, half),
                .dpitch = 2 * d1 * s->out[0],
                .spitch = 2 * s->across,
                .stride = d0,
                .n = fxi_cpu_divide_up(s->out[0] - g->phase[0], d0),
                .rows = fxi_cpu_min(g->rows,
                                    fxi_cpu_divide_up(s->out[1] - first - half * d1, 2 * d1))});
        if (finish)
            fxi_cpu_finish_range(finish, column + from, column + to);
    }
}

/* Transforms the sums of a panel to outputs, applies the epilogue and copies them. at: the panel's
 * first column in m. */
static void finish_panel(const job *s, const workspace *w, int64_t number, int64_t at,
                         int64_t begin, int64_t end)
{
    const int64_t tiles = (end - begin) * s->across, lanes = s->core->lanes;
    panel p;
    p.first = panel_at(s, number, &p.n);
    p.vectors = 2 * fxi_cpu_divide_up(tiles, lanes);
    p.length = p.vectors * lanes;
    s->transform->outputs(&(fxi_winograd_outputs){.m = w->m + at * s->pitch,
                                                  .z = w->z,
                                                  .n = tiles,
                                                  .columns = p.n,
                                                  .mapart = s->mapart,
                                                  .mpitch = s->pitch,
                                                  .zpitch = 2 * p.length,
                                                  .lower = p.length});
    segment g;
    for (int64_t row = begin; row < end; row += g.rows) {
        g = segment_at(s, row, begin, end);
        check_panel(s, w, &p, &g);
    }
    fxi_conv_instr instr[FXI_CONV_INSTRUCTIONS];
    const int count = fxi_conv_epilogue_at(s->g, s->columns, s->epilogue_values, 0, p.first, instr);
    if (count)
        s->core->finish(&(fxi_conv_sums){.y = w->z,
                                         .rows = p.n,
                                         .vectors = 2 * p.vectors,
                                         .pitch = 2 * p.length,
                                         .n = count,
                                         .instr = instr});
    for (int64_t row = begin; row < end; row += g.rows) {
        g = segment_at(s, row, begin, end);
        put_panel(s, w, &p, &g, count ? NULL : s->finish);
    }
}

/* Computes a slice of the panels for one unit. Each slice of a unit transforms the input itself. */
static void run_unit(const job *s, const workspace *w, int64_t unit, int64_t slice)
{
    const int64_t begin = unit * s->rows;
    const int64_t end = fxi_cpu_min(begin + s->rows, s->all);
    const int64_t vectors = fxi_cpu_divide_up((end - begin) * s->across, s->core->lanes);
    const int64_t each = GROUP / s->core->columns;
    int64_t from, to, n;
    fxi_cpu_range(s->panels, s->slices, slice, &from, &to);
    for (int64_t c = 0; c < s->channels; c += CHANNELS)
        transform_channels(s, w, begin, end, c, fxi_cpu_min(CHANNELS, s->channels - c));
    for (int64_t group = from; group < to; group += each) {
        const int64_t last = fxi_cpu_min(to, group + each), first = panel_at(s, group, &n);
        for (int number = 0; number < NUMBERS; number++)
            for (int64_t p = group; p < last; p++)
                sum_panel(s, w, number, p, panel_at(s, p, &n) - first, vectors);
        for (int64_t p = group; p < last; p++)
            finish_panel(s, w, p, panel_at(s, p, &n) - first, begin, end);
    }
}

/* Neighbouring units and slices share their input, so a part is a range of them. */
static void run_part(void *user, int64_t part, void *memory)
{
    const job *s = user;
    const workspace *w = workspace_in(s, memory);
    int64_t from, to;
    fxi_cpu_range(s->units * s->slices, s->parts, part, &from, &to);
    for (int64_t k = from; k < to; k++)
        run_unit(s, w, k / s->slices, k % s->slices);
}

/* ---- images that are computed again ---------------------------------------------------------- */

/* Every element of the output belongs to a window, so the other methods write all of them. They
 * apply an epilogue of values of channels themselves. Any other is a program for the whole output,
 * and is applied here. */
static fx_status run_again(const job *s, int64_t first, int64_t images)
{
    const bool data = s->g->attr->kind == FX_CONV_DATA;
    const int64_t in = s->channels * s->in[0] * s->in[1];
    const int64_t out = s->columns * s->out[0] * s->out[1];
    fxi_conv_geometry g = *s->g;
    g.batch = images;
    if (g.epilogue.n == 0)
        g.finish = NULL;
    /* Inputs lose their const, as in cpu_conv.c. */
    void *w = (void *)(uintptr_t)s->w, *from = (void *)(uintptr_t)(s->x + first * in);
    void *to = s->y + first * out, *x = data ? to : from, *y = data ? from : to;
    fx_status status = FX_OK;
    if (!fxi_cpu_conv_direct(&g, s->g->attr->kind, x, w, y, &status))
        status = fxi_cpu_conv_gather(&g, s->g->attr->kind, x, w, y);
    if (status == FX_OK && s->finish)
        fxi_cpu_finish_range(s->finish, first * out, (first + images) * out);
    return status;
}

/* Neighbouring images are computed together. */
static fx_status run_spoiled(const job *s)
{
    const int64_t batch = s->g->batch;
    fx_status status = FX_OK;
    for (int64_t first = 0, n = 1; first < batch && !status; first += n, n = 1) {
        if (!s->spoiled[first])
            continue;
        while (first + n < batch && s->spoiled[first + n])
            n++;
        status = run_again(s, first, n);
    }
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* The transformations are left out because the sums dominate. Only the number of parts depends on
 * this estimate, and no bit of the result. */
static double cost_of(const job *s)
{
    const double tiles = (double)s->across * (double)s->all;
    return fxi_cpu_cost(0, 2.0 * NUMBERS * tiles * (double)s->channels * (double)s->columns);
}

/* One allocation for all that the threads share. */
static fx_status run(job *s)
{
    const size_t kernel = (size_t)(NUMBERS * s->uapart + LINE) * sizeof(float);
    const size_t values = (fxi_conv_epilogue_bytes(s->g, s->columns) + 63) / 64 * 64;
    const size_t offsets = (size_t)fxi_cpu_round_up(s->channels, LINE) * sizeof(int32_t);
    char *memory = fxi_aligned(64, kernel + values + offsets + (size_t)s->g->batch);
    if (!memory)
        return FX_STATUS_MEMORY;
    s->u = (float *)(void *)memory;
    s->epilogue_values = memory + kernel;
    s->offset = (int32_t *)(void *)(s->epilogue_values + values);
    s->spoiled = (char *)s->offset + offsets;
    memset(s->spoiled, 0, (size_t)s->g->batch);
    for (int64_t c = 0; c < s->channels; c++)
        s->offset[c] = (int32_t)(c * s->pitch);
    fxi_conv_epilogue_put(s->g, s->columns, s->epilogue_values);
    s->parts = fxi_cpu_parts(s->units * s->slices, cost_of(s));
    fx_status status = transform_kernel(s);
    if (status == FX_OK)
        status = fxi_cpu_parallel_scratch(s->parts, workspace_bytes(s), run_part, s);
    if (status == FX_OK)
        status = run_spoiled(s);
    /* The elements of a part have gaps, so the whole output is finished at once. */
    if (status == FX_OK && s->g->finish && s->g->epilogue.n == 0 && !s->finish)
        fxi_cpu_finish(s->g->finish);
    fxi_free(memory);
    return status;
}

/* Does the convolution have the form that the formulas describe, and so little padding that every
 * window reads at least one element of the image? */
static bool is_plain(const fxi_conv_geometry *g)
{
    bool plain = g->attr->spatial == 2 && g->groups == 1;
    for (int d = 0; d < 2 && plain; d++) {
        /* For taps farther apart than the first window and the last, `reach` might overflow. */
        if (g->dilation[d] > g->y[d])
            return false;
        const int64_t reach = 2 * g->dilation[d], after = g->y[d] + reach - g->x[d] - g->before[d];
        plain = g->k[d] == 3 && g->stride[d] == 1 && g->before[d] >= 0 && g->before[d] <= reach &&
                after >= 0 && after <= reach;
    }
    return plain;
}

/* How many times as fast as the other methods this one is, estimated from measurements of the three
 * instruction sets. Of its vectors of tiles, only a part holds outputs that exist. A transformation
 * of the input takes a constant time for each channel and tile, however many columns use it;
 * likewise that of the outputs. */
static double gain(const fxi_conv_geometry *g, int kind)
{
    const int64_t *out = kind == FX_CONV_DATA ? g->x : g->y, lanes = fxi_cpu_simd()->conv[0].lanes;
    const int64_t tiles = fxi_cpu_min(out[0], g->dilation[0]) * tiles_of(out[0], g->dilation[0]) *
                          fxi_cpu_min(out[1], g->dilation[1]) * tiles_of(out[1], g->dilation[1]);
    const double used = (double)(out[0] * out[1]) / (double)(4 * fxi_cpu_round_up(tiles, lanes));
    const double transformations = 0.8 * (double)lanes * (1 / (double)g->cin + 1 / (double)g->cout);
    return 2.25 * used / (1 + transformations);
}

/* Are the transformed kernel and a row of transformed tiles small enough? */
static bool is_small(const fxi_conv_geometry *g, bool data)
{
    const int64_t channels = data ? g->cout : g->cin, columns = data ? g->cin : g->cout;
    const int64_t width = fxi_cpu_simd()->conv[0].columns, number = NUMBERS * sizeof(float);
    const int64_t across = tiles_of(data ? g->x[0] : g->y[0], g->dilation[0]);
    return number * (channels + 1) * fxi_cpu_round_up(columns, width) <= MOST_BYTES &&
           number * channels * across <= ROW_BYTES;
}

/* The sizes of one image decide, and the number of images does not: an image gets the same bits in
 * every batch. */
bool fxi_cpu_conv_winograd_suits(const fxi_conv_geometry *g, int kind)
{
    return g->dtype == FX_DTYPE_F32 && kind != FX_CONV_WEIGHT && is_plain(g) &&
           fxi_cpu_min(g->cin, g->cout) >= FEW_CHANNELS && g->positions >= FEW_POSITIONS &&
           is_small(g, kind == FX_CONV_DATA) && gain(g, kind) > WORTH;
}

bool fxi_cpu_conv_winograd(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                           fx_status *out_status)
{
    if (!fxi_cpu_conv_winograd_suits(g, kind))
        return false;
    job s = job_of(g, kind == FX_CONV_DATA);
    s.x = kind == FX_CONV_DATA ? y : x;
    s.y = kind == FX_CONV_DATA ? x : y;
    s.w = w;
    *out_status = run(&s);
    return true;
}
