/* gpu_conv.c: convolution and its two gradients, of one to three spatial axes, in one kernel text.
 *
 * All three kinds are products of matrices one of which is gathered from an array with spatial axes
 * (the source: x, or gy for the gradient by x) and never laid out in memory:
 *     out[m, n] = Σ_k source[position(m) + position(k), plane(m) + plane(k)] · other[k, n]
 * Rows m and terms k are numbers of four digits, three along the spatial axes and one of channels
 * or of the batch; positions, planes and places in memory are linear in the digits. What differs
 * between the kinds are the numbers, which are parameters:
 *     FORWARD   source x,  rows: places of y, batch;  terms: taps, input channels;   other w
 *     DATA      source gy, rows: places of x, batch;  terms: taps, output channels;  other w
 *     WEIGHT    source x,  rows: taps, input channels;  terms: places of y, batch;   other gy
 * Columns n are channels of a group. With strides only every so manyeth tap of DATA meets a place
 * of gy, and which ones they are depends on the remainder of x's place: rows of one remainder (a
 * phase) are computed together, with just these taps.
 *
 * A work-item computes one row and WIDTH columns in registers, DEPTH terms at a time, of which
 * `other` and the decoded digits lie in local memory: neighbours read neighbouring elements of the
 * source, and what is read by all items of a group is the same element. Where there are few tiles
 * or few rows the terms are cut into slices, and where rows are fewer than work-items several lanes
 * of a group take a slice each. Slices are written to scratch memory and added up by a second
 * kernel, always in the same order: no atomics, the same bits in every run.
 *
 * In the padding the source counts as 0, so an infinite weight gives NaN there.
 */
#include "gpu_text.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 16, FEW_ROWS = 32, MOST_EACH = 4, SUM_COLUMNS = 32 };

/* Parameters of the text: one for each spatial axis, and single ones. */
#define AXIS_PARAMS(X)                                                                             \
    X(ROWS)      /* digits of m, all phases together */                                            \
    X(TAPS)      /* digits of k, all phases together */                                            \
    X(FROM)      /* position of the first row's first term; DATA: padding before */                \
    X(ROW_STEP)  /* position of m */                                                               \
    X(TERM_STEP) /* position of k */                                                               \
    X(SIZE)      /* of the source */                                                               \
    X(OTHER)     /* k in `other` */                                                                \
    X(OUT)       /* m in the output */                                                             \
    X(PHASES)    /* this and the following only where there are phases: how many */                \
    X(STRIDE)                                                                                      \
    X(DILATION)                                                                                    \
    X(EVERY)     /* distance of the taps of a phase */                                             \
    X(OTHER_TAP) /* one tap in `other` */                                                          \
    X(OUT_PHASE) /* one phase in the output */
#define PARAMS(X)                                                                                  \
    X(ROW_TILES)                                                                                   \
    X(COLUMN_TILES)                                                                                \
    X(SLICES) /* groups that share the terms */                                                    \
    X(LENGTH) /* of a slice, of which a group has one a lane: a multiple of DEPTH */               \
    X(COLUMNS)                                                                                     \
    X(LAST_ROWS)   /* the fourth digits */                                                         \
    X(LAST_TERMS)  /* … of k */                                                                  \
    X(SOURCE_ROW)  /* of m's fourth digit in the source */                                         \
    X(SOURCE_TERM) /* of k's */                                                                    \
    X(SOURCE_GROUP)                                                                                \
    X(OTHER_START)                                                                                 \
    X(OTHER_TERM)                                                                                  \
    X(OTHER_COLUMN)                                                                                \
    X(OTHER_GROUP)                                                                                 \
    X(OUT_ROW)                                                                                     \
    X(OUT_COLUMN)                                                                                  \
    X(OUT_GROUP)                                                                                   \
    X(OUT_SLICE)
#define NUMBER(name) name,
enum { AXIS_PARAMS(NUMBER) AXIS_PARAM_COUNT };
enum { AXES_END = 3 * AXIS_PARAM_COUNT - 1, PARAMS(NUMBER) PARAM_COUNT };
#define NAME(name) #name,
static const char *const axis_names[] = {AXIS_PARAMS(NAME)}, *const names[] = {PARAMS(NAME)};

typedef struct contraction {
    const fx_step *step;
    const fxi_gpu_type *type;
    int64_t v[PARAM_COUNT];
    int64_t rows, terms, groups; /* of the largest phase */
    int64_t length;              /* elements of the output */
    bool phased;
    int items, lanes; /* of a group, along rows and slices */
    int each, width;  /* rows and columns of an item */
    bool wide;
} contraction;

static int64_t *on_axis(contraction *c, int param, int d)
{
    return &c->v[3 * param + d];
}

static int64_t ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

/* ---- the three kinds ------------------------------------------------------------------------- */

/* Sizes of the x side, the kernel and the y side; missing spatial axes are 1. */
typedef struct geometry {
    int64_t x[3], k[3], y[3], stride[3], before[3], dilation[3];
    int64_t xs, taps, ys; /* products of the sizes */
    int64_t in, out;      /* channels of a group */
    int64_t groups, batch;
    bool flipped;
} geometry;

static geometry geometry_of(const fx_step *s)
{
    const fx_conv_attr *a = &s->attr.conv;
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
        const bool there = d < n;
        g.xs *= g.x[d] = there ? x->shape[d] : 1;
        g.taps *= g.k[d] = there ? w->shape[d] : 1;
        g.ys *= g.y[d] = there ? y->shape[d] : 1;
        g.stride[d] = there ? a->stride[d] : 1;
        g.before[d] = there ? a->before[d] : 0;
        g.dilation[d] = there ? a->dilation[d] : 1;
    }
    return g;
}

/* x = y·stride − before + tap·dilation, where the tap is a number of w's element or, not flipped,
 * counts from the other end. */
static void forward(contraction *c, const geometry *g)
{
    int64_t w = 1, y = 1;
    for (int d = 0; d < 3; d++) {
        *on_axis(c, ROWS, d) = g->y[d];
        *on_axis(c, TAPS, d) = g->k[d];
        *on_axis(c, FROM, d) = -g->before[d];
        *on_axis(c, ROW_STEP, d) = g->stride[d];
        *on_axis(c, TERM_STEP, d) = g->dilation[d];
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

/* y = (x + before − tap·dilation)/stride where that divides: for x = phase + row·stride these are
 * the taps first + every·k, and y goes down by every·dilation/stride from one to the next. */
static void data(contraction *c, const geometry *g)
{
    int64_t w = 1, x = 1;
    for (int d = 0; d < 3; d++) {
        const int64_t every = g->stride[d] / common_divisor(g->stride[d], g->dilation[d]);
        *on_axis(c, ROWS, d) = g->x[d];
        *on_axis(c, TAPS, d) = g->k[d];
        *on_axis(c, FROM, d) = g->before[d];
        *on_axis(c, ROW_STEP, d) = 1;
        *on_axis(c, TERM_STEP, d) = -(every * g->dilation[d] / g->stride[d]);
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

/* As FORWARD, with taps as rows and places of y as terms. */
static void weight(contraction *c, const geometry *g)
{
    int64_t w = 1, y = 1;
    for (int d = 0; d < 3; d++) {
        const int64_t dilation = g->dilation[d];
        *on_axis(c, ROWS, d) = g->k[d];
        *on_axis(c, TAPS, d) = g->y[d];
        *on_axis(c, FROM, d) = -g->before[d] + (g->flipped ? 0 : (g->k[d] - 1) * dilation);
        *on_axis(c, ROW_STEP, d) = g->flipped ? dilation : -dilation;
        *on_axis(c, TERM_STEP, d) = g->stride[d];
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

/* An item reads one element of the source, at about the price of six products, for every WIDTH
 * products. */
static int width_for(int64_t columns)
{
    static const int widths[] = {16, 8, 4, 1};
    int best = widths[0];
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int64_t cost = ceil_div(columns, widths[i]) * (widths[i] + 6);
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
    /* Positions, and the one that is outside everywhere. */
    for (int d = 0; d < 3; d++)
        wide |= g->x[d] + g->before[d] + g->k[d] * g->dilation[d] + g->y[d] * g->stride[d] >=
                (int64_t)1 << 29;
    return wide;
}

enum { SLICE_LEAST = 16 * DEPTH, SCRATCH_MOST = 1 << 26 };

static int64_t tiles_of(contraction *c)
{
    int64_t tiles = c->groups;
    for (int d = 0; d < 3 && c->phased; d++)
        tiles *= *on_axis(c, PHASES, d);
    c->v[ROW_TILES] = ceil_div(c->rows, c->items * c->each);
    c->v[COLUMN_TILES] = ceil_div(c->v[COLUMNS], c->width);
    return tiles * c->v[ROW_TILES] * c->v[COLUMN_TILES];
}

/* Several rows an item, if there are enough tiles all the same: a factor is read once for all of
 * them. On a CPU the rows of a group are as good, in vectors. */
static void choose_tile(contraction *c, const fxi_gpu_limits *limits)
{
    const bool few = c->rows <= FEW_ROWS * 4 && c->terms >= 8 * DEPTH && !limits->serial &&
                     c->length <= SCRATCH_MOST / 8;
    c->items = few ? FEW_ROWS : FXI_GPU_GROUP;
    c->lanes = FXI_GPU_GROUP / c->items;
    c->width = width_for(c->v[COLUMNS]);
    c->each = few || limits->serial || c->type->size == 8 ? 1 : MOST_EACH;
    if (tiles_of(c) < 2 * limits->units)
        c->each = 1;
}

static void cut(contraction *c, const fxi_gpu_limits *limits)
{
    choose_tile(c, limits);
    const int64_t tiles = tiles_of(c), want = 4 * (int64_t)limits->units,
                  room = SCRATCH_MOST / c->length / c->lanes;
    int64_t slices = tiles < want ? ceil_div(want, tiles) : 1;
    if (slices > c->terms / (SLICE_LEAST * c->lanes))
        slices = c->terms / (SLICE_LEAST * c->lanes);
    if (slices > room)
        slices = room;
    if (slices < 1)
        slices = 1;
    const int64_t steps = ceil_div(c->terms, slices * c->lanes * DEPTH);
    c->v[LENGTH] = (steps < 1 ? 1 : steps) * DEPTH;
    slices = ceil_div(c->terms, c->v[LENGTH] * c->lanes);
    c->v[SLICES] = slices < 1 ? 1 : slices;
    c->v[OUT_SLICE] = c->length;
}

static contraction contraction_of(const fx_step *s, const fxi_gpu_limits *limits)
{
    static void (*const kinds[])(contraction *, const geometry *) = {
        [FX_CONV_FORWARD] = forward, [FX_CONV_DATA] = data, [FX_CONV_WEIGHT] = weight};
    const geometry g = geometry_of(s);
    contraction c = {.step = s,
                     .type = &fxi_gpu_types[s->out.dtype],
                     .groups = g.groups,
                     .length = fx_tensor_length(&s->out)};
    kinds[s->attr.conv.kind](&c, &g);
    /* An operand without elements: nothing is added up, and nothing may be read. */
    if (fx_tensor_length(&s->in[0]) == 0 || fx_tensor_length(&s->in[1]) == 0)
        c.v[LAST_TERMS] = 0;
    c.rows = c.v[LAST_ROWS];
    c.terms = c.v[LAST_TERMS];
    for (int d = 0; d < 3; d++) {
        const int64_t stride = c.phased ? *on_axis(&c, STRIDE, d) : 1,
                      every = c.phased ? *on_axis(&c, EVERY, d) : 1;
        c.rows *= ceil_div(*on_axis(&c, ROWS, d), stride);
        c.terms *= ceil_div(*on_axis(&c, TAPS, d), every);
    }
    cut(&c, limits);
    c.wide = is_wide(&c, &g);
    return c;
}

/* ---- the text -------------------------------------------------------------------------------- */

static void say_constants(fxi_gpu_builder *b, const contraction *c, const char *stored_out)
{
    const fxi_gpu_type *t = c->type;
    for (int k = 0; k < AXIS_PARAM_COUNT; k++)
        fxi_gpu_say(b, "#define %s(d) P(%d + (d))\n", axis_names[k], 3 * k);
    for (int k = AXES_END + 1; k < PARAM_COUNT; k++)
        fxi_gpu_say(b, "#define %s P(%d)\n", names[k - AXES_END - 1], k);
    fxi_gpu_say(b,
                "#define ITEMS %d\n#define LANES %d\n#define EACH %d\n#define WIDTH %d\n"
                "#define DEPTH %d\n"
                "#define TERMS (LANES * DEPTH)\n"
                "#define ROW %s\n#define LANE %s\n#define VALUE %s\n"
                "#define BELOW(x, n) ((%s)(x) < (%s)(n))\n#define FAR ((fx_int)1 << 30)\n",
                c->items, c->lanes, c->each, c->width, DEPTH,
                c->lanes > 1 ? "(FX_ITEM % ITEMS)" : "FX_ITEM",
                c->lanes > 1 ? "(FX_ITEM / ITEMS)" : "0", t->value, c->wide ? "fx_u64" : "fx_u32",
                c->wide ? "fx_u64" : "fx_u32");
    fxi_gpu_say(b,
                "#define LOAD(x, i) FX_LOAD_%s(x, i)\n"
                "FX_USE(0, const %s, source)\nFX_USE(1, const %s, other)\nFX_USE(2, %s, y)\n",
                t->name, t->stored, t->stored, stored_out);
}

/* Local memory: of each term the position along the axes and in the source, the place in `other`
 * or −1 behind the last term, and a row of factors. */
static const char head[] =
    "    FX_LOCAL(fx_int, position, TERMS * 4);\n"
    "    FX_LOCAL(fx_int, place, TERMS);\n"
    "    FX_LOCAL(VALUE, factor, TERMS * WIDTH);\n"
    "    fx_int rest = FX_GROUP_X;\n"
    "    const fx_int m = rest % ROW_TILES * (ITEMS * EACH) + ROW; rest /= ROW_TILES;\n"
    "    const fx_int n0 = rest % COLUMN_TILES * WIDTH; rest /= COLUMN_TILES;\n"
    "    const fx_int slice = rest % SLICES * LANES; rest /= SLICES;\n";

/* One spatial axis, $ its number: of all rows and taps … */
static const char plain_axis[] =
    "    const fx_int rows$ = ROWS($), taps$ = TAPS($), from$ = FROM($);\n";
/* … and of those of a phase: the first tap is found by trying. */
static const char phased_axis[] =
    "    const fx_int phase$ = rest % PHASES($); rest /= PHASES($);\n"
    "    const fx_int rows$ = (ROWS($) - phase$ + STRIDE($) - 1) / STRIDE($);\n"
    "    fx_int tap$ = 0;\n"
    "    while (tap$ < TAPS($) && (FROM($) + phase$ - tap$ * DILATION($)) % STRIDE($) != 0)\n"
    "        tap$++;\n"
    "    const fx_int taps$ = tap$ < TAPS($)\n"
    "        ? (TAPS($) - tap$ + EVERY($) - 1) / EVERY($) : 0;\n"
    "    const fx_int from$ = (FROM($) + phase$ - tap$ * DILATION($)) / STRIDE($);\n";

static const char counts_text[] = "    const fx_int rows = rows0 * rows1 * rows2 * LAST_ROWS;\n"
                                  "    const fx_int terms = taps0 * taps1 * taps2 * LAST_TERMS;\n"
                                  "    const fx_int length = terms > 0 ? LENGTH : 0;\n";
/* One of the item's rows, $ its number. */
static const char row_text[] =
    "    const fx_int m$ = m + $ * ITEMS;\n"
    "    fx_int m$_3 = m$ < rows ? m$ : 0;\n"
    "    const fx_int m$_0 = m$_3 % rows0; m$_3 /= rows0;\n"
    "    const fx_int m$_1 = m$_3 % rows1; m$_3 /= rows1;\n"
    "    const fx_int m$_2 = m$_3 % rows2; m$_3 /= rows2;\n"
    "    const fx_int p$_0 = from0 + m$_0 * ROW_STEP(0), p$_1 = from1 + m$_1 * ROW_STEP(1),\n"
    "        p$_2 = from2 + m$_2 * ROW_STEP(2);\n"
    "    const fx_int p$ = p$_0 + SIZE(0) * (p$_1 + SIZE(1) * p$_2) + m$_3 * SOURCE_ROW\n"
    "        + rest * SOURCE_GROUP;\n";
static const char other_text[] =
    "    const fx_int o = OTHER_START + rest * OTHER_GROUP + n0 * OTHER_COLUMN";

static const char terms_text[] =
    "    for (fx_int done = 0; done < length; done += DEPTH) {\n"
    "        if (FX_ITEM < TERMS) {\n"
    "            const fx_int k = (slice + FX_ITEM / DEPTH) * LENGTH + done + FX_ITEM % DEPTH;\n"
    "            const fx_int e = 4 * FX_ITEM;\n"
    "            fx_int k3 = k < terms ? k : 0;\n"
    "            const fx_int k0 = k3 % taps0; k3 /= taps0;\n"
    "            const fx_int k1 = k3 % taps1; k3 /= taps1;\n"
    "            const fx_int k2 = k3 % taps2; k3 /= taps2;\n"
    "            const fx_int d0 = k0 * TERM_STEP(0), d1 = k1 * TERM_STEP(1),\n"
    "                d2 = k2 * TERM_STEP(2);\n"
    "            position[e] = k < terms ? d0 : FAR;\n"
    "            position[e + 1] = d1;\n"
    "            position[e + 2] = d2;\n"
    "            position[e + 3] = d0 + SIZE(0) * (d1 + SIZE(1) * d2) + k3 * SOURCE_TERM;\n"
    "            place[FX_ITEM] = k < terms ? o + k0 * OTHER(0) + k1 * OTHER(1)\n"
    "                + k2 * OTHER(2) + k3 * OTHER_TERM : -1;\n"
    "        }\n"
    "        FX_BARRIER;\n"
    "        for (fx_int i = FX_ITEM; i < TERMS * WIDTH; i += FX_GROUP) {\n"
    "            const fx_int e = i % TERMS, n = i / TERMS, from = place[e];\n"
    "            factor[e * WIDTH + n] = from >= 0 && n0 + n < COLUMNS\n"
    "                ? LOAD(other, from + n * OTHER_COLUMN) : (VALUE)0;\n"
    "        }\n"
    "        FX_BARRIER;\n";

/* A term's element of the source for one row. */
static const char term_text[] =
    "    const fx_int x$_0 = p$_0 + position[q], x$_1 = p$_1 + position[q + 1]; \\\n"
    "    const fx_int x$_2 = p$_2 + position[q + 2], x$ = p$ + position[q + 3]; \\\n"
    "    const int in$ = BELOW(x$_0, SIZE(0)) & BELOW(x$_1, SIZE(1)) & BELOW(x$_2, SIZE(2)); \\\n"
    "    const VALUE there$ = LOAD(source, in$ ? x$ : 0), v$ = in$ ? there$ : (VALUE)0; \\\n";

static const char out_text[] =
    "    if (m$ < rows) {\n"
    "        const fx_int first = m$_0 * OUT(0) + m$_1 * OUT(1) + m$_2 * OUT(2) + m$_3 * OUT_ROW\n"
    "            + n0 * OUT_COLUMN + rest * OUT_GROUP + (slice + LANE) * OUT_SLICE";

static void say_numbered(fxi_gpu_builder *b, const char *text, int d)
{
    for (size_t n; *text; text += n + (text[n] != '\0')) {
        n = strcspn(text, "$");
        fxi_gpu_say(b, "%.*s", (int)n, text);
        if (text[n])
            fxi_gpu_say(b, "%d", d);
    }
}

static void say_sums(fxi_gpu_builder *b, const contraction *c)
{
    for (int r = 0; r < c->each; r++)
        for (int n = 0; n < c->width; n++)
            fxi_gpu_say(b, "    VALUE sum%d_%d = 0;\n", r, n);
    fxi_gpu_say(b, "#define TERM(j) { const fx_int e = LANE * DEPTH + j, q = 4 * e; \\\n");
    for (int r = 0; r < c->each; r++)
        say_numbered(b, term_text, r);
    for (int n = 0; n < c->width; n++) {
        fxi_gpu_say(b, "    const VALUE f%d = factor[e * WIDTH + %d]; \\\n", n, n);
        for (int r = 0; r < c->each; r++)
            fxi_gpu_say(b, "    sum%d_%d = FX_MAD(v%d, f%d, sum%d_%d); \\\n", r, n, r, n, r, n);
    }
    fxi_gpu_say(b, "}\n");
    fxi_gpu_say_text(b, terms_text);
    for (int k = 0; k < DEPTH; k++)
        fxi_gpu_say(b, "        TERM(%d)\n", k);
    fxi_gpu_say(b, "        FX_BARRIER;\n    }\n");
}

static void say_phases(fxi_gpu_builder *b, const char *phase, const char *param, bool phased)
{
    for (int d = 0; d < 3 && phased; d++)
        fxi_gpu_say(b, " + %s%d * %s(%d)", phase, d, param, d);
    fxi_gpu_say(b, ";\n");
}

/* ---- what becomes of a sum ------------------------------------------------------------------- */

/* The epilogue: operands are walked over the output. */
typedef struct finish {
    fxi_gpu_walk walk;
    int operands, pattern[FXI_GPU_PATTERNS];
} finish;

static finish finish_of(const fx_step *s)
{
    fxi_gpu_layout l = {.nd = s->out.ndim};
    finish f = {.operands = s->nin - 2};
    memcpy(l.shape, s->out.shape, sizeof l.shape);
    for (int k = 0; k < f.operands; k++)
        f.pattern[k] = fxi_gpu_layout_add(&l, s->in[2 + k].stride);
    f.walk = fxi_gpu_walk_over(&l, UINT32_MAX);
    return f;
}

static void use_operands(fxi_gpu_builder *b, const finish *f, int first)
{
    for (int k = 0; k < f->operands; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, e%d)\n", first + k,
                    fxi_gpu_types[b->step->in[2 + k].dtype].stored, k);
}

static void set_operands(const finish *f, fxi_gpu_call *call, int first_buffer, int first_param)
{
    for (int k = 0; k < f->operands; k++)
        fxi_gpu_buffer(call, first_buffer + k, FXI_GPU_IN, 2 + k);
    fxi_gpu_walk_fill(&f->walk, call, first_param);
}

/* Stores element i of the output, of a sum that is rounded to the output's type first, as if the
 * epilogue were steps of their own. */
static void say_finish(fxi_gpu_builder *b, const finish *f, const char *sum, int first_param)
{
    const fx_step *s = b->step;
    const fxi_gpu_type *t = &fxi_gpu_types[s->out.dtype];
    const bool rounds = t->size == 2 && s->ninstr > 0;
    fxi_gpu_say(b, "const %s r0 = %s%s(%s);\n", t->value, rounds ? "fx_round_" : "",
                rounds ? t->name : "", sum);
    fxi_gpu_walk_say(b, &f->walk, first_param, "i", "o", NULL);
    for (int k = 0; k < f->operands; k++) {
        const fxi_gpu_type *from = &fxi_gpu_types[s->in[2 + k].dtype];
        fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(e%d, o%d);\n", from->value, 1 + k, from->name, k,
                    f->pattern[k]);
    }
    for (int k = 0; k < s->ninstr; k++)
        fxi_gpu_say_instr(b, &s->program[k], 1 + f->operands + k);
    fxi_gpu_say(b, "FX_STORE_%s(y, i, r%d);\n", t->name, s->ninstr ? f->operands + s->ninstr : 0);
}

/* ---- the step -------------------------------------------------------------------------------- */

static void say_row_out(fxi_gpu_builder *b, const contraction *c, const finish *f, bool sliced,
                        int row)
{
    say_numbered(b, out_text, row);
    say_phases(b, "phase", "OUT_PHASE", c->phased);
    for (int n = 0; n < c->width; n++) {
        char sum[32];
        snprintf(sum, sizeof sum, "sum%d_%d", row, n);
        fxi_gpu_say(b, "if (n0 + %d < COLUMNS) {\nconst fx_int i = first + %d * OUT_COLUMN;\n", n,
                    n);
        if (sliced)
            fxi_gpu_say(b, "y[i] = %s;\n", sum);
        else
            say_finish(b, f, sum, PARAM_COUNT);
        fxi_gpu_say(b, "}\n");
    }
    fxi_gpu_say(b, "    }\n");
}

/* Into the output, or slices of sums into scratch memory. */
static fxi_gpu_call *add_product(fxi_gpu_builder *b, const contraction *c, const finish *f,
                                 bool sliced)
{
    const fxi_gpu_type *t = c->type;
    const int operands = sliced ? 0 : f->operands,
              params = PARAM_COUNT + (sliced ? 0 : fxi_gpu_walk_params(&f->walk));
    fxi_gpu_begin(b, c->wide);
    fxi_gpu_kernel(b, "fx_conv", 3 + operands, params);
    say_constants(b, c, sliced ? t->value : t->stored);
    if (!sliced)
        use_operands(b, f, 3);
    fxi_gpu_say_text(b, head);
    for (int d = 0; d < 3; d++)
        say_numbered(b, c->phased ? phased_axis : plain_axis, d);
    fxi_gpu_say_text(b, counts_text);
    for (int r = 0; r < c->each; r++)
        say_numbered(b, row_text, r);
    fxi_gpu_say_text(b, other_text);
    say_phases(b, "tap", "OTHER_TAP", c->phased);
    say_sums(b, c);
    for (int r = 0; r < c->each; r++)
        say_row_out(b, c, f, sliced, r);
    fxi_gpu_end(b);
    fxi_gpu_call *call = fxi_gpu_add(b);
    for (int k = 0; k < PARAM_COUNT; k++)
        fxi_gpu_param(call, k, c->v[k]);
    fxi_gpu_buffer(call, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(call, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(call, 2, FXI_GPU_OUT, 0);
    return call;
}

/* Columns of a group: neighbouring elements; its other work-items share their slices. */
static const char sum_text[] =
    "    FX_LOCAL(VALUE, part, FX_GROUP);\n"
    "    const fx_int i = FX_GROUP_X * COLUMNS + FX_ITEM % COLUMNS;\n"
    "    VALUE own = 0;\n"
    "    for (fx_int s = FX_ITEM / COLUMNS; i < P(0) && s < P(1); s += FX_GROUP / COLUMNS)\n"
    "        own += slices[s * P(0) + i];\n"
    "    part[FX_ITEM] = own;\n"
    "    FX_BARRIER;\n"
    "    if (FX_ITEM < COLUMNS && i < P(0)) {\n"
    "        VALUE sum = part[FX_ITEM];\n"
    "        for (fx_int s = FX_ITEM + COLUMNS; s < FX_GROUP; s += COLUMNS)\n"
    "            sum += part[s];\n";

static void add_sum(fxi_gpu_builder *b, const contraction *c, const finish *f, int64_t scratch)
{
    fxi_gpu_begin(b, c->wide);
    fxi_gpu_kernel(b, "fx_conv_sum", 2 + f->operands, 2 + fxi_gpu_walk_params(&f->walk));
    fxi_gpu_say(b, "#define VALUE %s\n#define COLUMNS %d\n", c->type->value, SUM_COLUMNS);
    fxi_gpu_say(b, "FX_USE(0, const %s, slices)\nFX_USE(1, %s, y)\n", c->type->value,
                c->type->stored);
    use_operands(b, f, 2);
    fxi_gpu_say_text(b, sum_text);
    say_finish(b, f, "sum", 2);
    fxi_gpu_say(b, "    }\n");
    fxi_gpu_end(b);
    fxi_gpu_call *call = fxi_gpu_add(b);
    fxi_gpu_buffer(call, 0, FXI_GPU_SCRATCH, scratch);
    fxi_gpu_buffer(call, 1, FXI_GPU_OUT, 0);
    fxi_gpu_param(call, 0, c->length);
    fxi_gpu_param(call, 1, c->v[SLICES] * c->lanes);
    set_operands(f, call, 2, 2);
    call->groups[0] = fxi_gpu_groups(c->length, SUM_COLUMNS);
}

void fxi_gpu_conv(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    if (!fxi_gpu_types[s->out.dtype].math) {
        fxi_gpu_fail(b, FX_STATUS_DTYPE, "there is no convolution of %s",
                     fxi_gpu_types[s->out.dtype].name);
        return;
    }
    if (fx_tensor_length(&s->out) == 0 || !fxi_gpu_known(b, s->program, s->ninstr))
        return;
    const contraction c = contraction_of(s, b->limits);
    const finish f = finish_of(s);
    const bool sliced = c.v[SLICES] * c.lanes > 1;
    int64_t groups = c.v[ROW_TILES] * c.v[COLUMN_TILES] * c.v[SLICES] * c.groups;
    for (int d = 0; d < 3 && c.phased; d++)
        groups *= c.v[3 * PHASES + d];
    if (groups > INT32_MAX) {
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "%lld tiles are too many", (long long)groups);
        return;
    }
    fxi_gpu_call *call = add_product(b, &c, &f, sliced);
    call->groups[0] = (uint32_t)groups;
    if (!sliced) {
        set_operands(&f, call, 3, PARAM_COUNT);
        return;
    }
    const size_t size = c.type->size == 8 ? 8 : 4;
    const int64_t bytes = c.length * c.v[SLICES] * c.lanes * (int64_t)size,
                  scratch = fxi_gpu_scratch(b, bytes);
    fxi_gpu_buffer(call, 2, FXI_GPU_SCRATCH, scratch);
    add_sum(b, &c, &f, scratch);
}
