/* gpu_conv.c: convolution and its two gradients, of one to three spatial axes, as one kernel text.
 *
 * All three kinds are products of matrices one of which is gathered from an array with spatial axes
 * (the source: x, or gy for the gradient of x) and never stored in memory:
 *     out[m, n] = Σ_k source[position(m) + position(k), plane(m) + plane(k)] · other[k, n]
 * Rows m and terms k are numbers of four digits, three along the spatial axes and one of channels
 * or of the batch; positions, planes and addresses are linear in the digits. The kinds differ in
 * the numbers only, which are parameters:
 *
 *   FORWARD  source x,  rows: positions of y, batch;  terms: taps, input channels;   other w
 *   DATA     source gy, rows: positions of x, batch;  terms: taps, output channels;  other w
 *   WEIGHT   source x,  rows: taps, input channels;   terms: positions of y, batch;  other gy
 *
 * Columns n are channels of a group. With strides, most taps of DATA meet no element of gy, and
 * which ones do depends on the remainder of x's position by the stride. Rows of one remainder (a
 * phase) are computed together, with their taps only.
 *
 * A work-item computes one row and WIDTH columns in registers, DEPTH terms at a time. The factors
 * of `other` and the decoded digits of these terms are in local memory. Neighbouring work-items
 * read neighbouring elements of the source, and all work-items of a group read the same factor. If
 * there are few tiles or few rows, the terms are cut into slices; if there are fewer rows than
 * work-items, several lanes of a group take a slice each. Slices are written to work space, and a
 * second kernel adds them, always in the same order: no atomics, and the same bits in every run.
 *
 * In the padding the source counts as 0, so an infinite weight gives NaN there. WEIGHT leaves these
 * terms out, because its factor is gy, which becomes infinite or NaN sooner than weights do.
 */
#include "gpu_text.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 16, MOST_EACH = 4 };

/* Parameters of the text: one for each spatial axis, and single ones. */
#define AXIS_PARAMS(X)                                                                             \
    X(ROWS)      /* digits of m, of all phases together */                                         \
    X(TAPS)      /* digits of k, of all phases together */                                         \
    X(FROM)      /* position of the first row's first term; DATA: padding before */                \
    X(ROW_STEP)  /* position of m */                                                               \
    X(TERM_STEP) /* position of k */                                                               \
    X(SIZE)      /* of the source */                                                               \
    X(OTHER)     /* k in `other` */                                                                \
    X(OUT)       /* m in the output */                                                             \
    X(PHASES)    /* number of phases; this and the following are used only with phases */          \
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
    int64_t rows, terms, groups; /* counts of the largest phase */
    int64_t length;              /* elements of the output */
    bool phased;
    int items, lanes; /* work-items of a group, along rows and slices */
    int each, width;  /* rows and columns of a work-item */
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

/* x = y·stride − before + tap·dilation. The tap is the index of w's element, or counts from the
 * other end if the kernel is not flipped. */
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

/* The number of columns of a work-item. For every WIDTH products it reads one element of the
 * source, which takes about as long as six products; columns that do not exist are wasted. */
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
    /* Positions must stay below 2²⁹, because they are added to FAR (2³⁰, in conv.cl), which marks a
     * term as outside. Addresses in the source are computed for positions in the padding too. */
    double positions = (double)fx_tensor_length(&c->step->in[0]);
    for (int d = 0; d < 3; d++) {
        const int64_t size = *on_axis(c, SIZE, d), beyond = g->before[d] + g->k[d] * g->dilation[d];
        positions *= size > 0 ? (double)(size + beyond) / (double)size : 1;
        wide |= g->x[d] + g->before[d] + g->k[d] * g->dilation[d] + g->y[d] * g->stride[d] >=
                (int64_t)1 << 29;
    }
    return wide || positions >= INT32_MAX;
}

enum { SLICE_LEAST = 16 * DEPTH, SLICES_MOST = 1 << 26 };

static int64_t tiles_of(contraction *c)
{
    int64_t tiles = c->groups;
    for (int d = 0; d < 3 && c->phased; d++)
        tiles *= *on_axis(c, PHASES, d);
    c->v[ROW_TILES] = ceil_div(c->rows, c->items * c->each);
    c->v[COLUMN_TILES] = ceil_div(c->v[COLUMNS], c->width);
    return tiles * c->v[ROW_TILES] * c->v[COLUMN_TILES];
}

/* Chooses the tile. A work-item computes several rows if enough tiles remain to keep the device
 * busy, because it reads a factor once for all of its rows. On a CPU one row is as fast: the rows
 * of a group are vectors. */
static void choose_tile(contraction *c, const fxi_gpu_limits *limits)
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
    choose_tile(c, limits);
    const int64_t tiles = tiles_of(c), want = 4 * (int64_t)limits->units,
                  most = SLICES_MOST / c->length / c->lanes;
    int64_t slices = tiles < want ? ceil_div(want, tiles) : 1;
    if (slices > c->terms / (SLICE_LEAST * c->lanes))
        slices = c->terms / (SLICE_LEAST * c->lanes);
    if (slices > most)
        slices = most;
    if (slices < 1)
        slices = 1;
    /* Whole blocks of DEPTH terms, so only the last slice has terms that do not exist. */
    const int64_t steps = ceil_div(c->terms, slices * c->lanes * DEPTH);
    c->v[LENGTH] = (steps < 1 ? 1 : steps) * DEPTH;
    /* Rounding up may leave fewer slices. */
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
    kinds[fx_step_conv(s)->attr.kind](&c, &g);
    /* If an operand has no elements, the sums have no terms, and nothing may be read. */
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

static void set_constants(fxi_gpu_builder *b, const contraction *c, const char *stored_out)
{
    const fxi_gpu_type *t = c->type;
    fxi_gpu_set_number(b, "items", c->items);
    fxi_gpu_set_number(b, "lanes", c->lanes);
    fxi_gpu_set_number(b, "each", c->each);
    fxi_gpu_set_number(b, "width", c->width);
    fxi_gpu_set_number(b, "depth", DEPTH);
    /* With one lane a division is saved. */
    fxi_gpu_set(b, "row", c->lanes > 1 ? "(FX_ITEM % ITEMS)" : "FX_ITEM");
    fxi_gpu_set(b, "lane", c->lanes > 1 ? "(FX_ITEM / ITEMS)" : "0");
    fxi_gpu_set(b, "unsigned", c->wide ? "fx_u64" : "fx_u32");
    fxi_gpu_set(b, "value", t->value);
    fxi_gpu_set(b, "name", t->name);
    fxi_gpu_set(b, "stored", t->stored);
    fxi_gpu_set(b, "out", stored_out);
}

static void say_parameters(fxi_gpu_builder *b)
{
    for (int k = 0; k < AXIS_PARAM_COUNT; k++)
        fxi_gpu_say(b, "#define %s(d) P(%d + (d))\n", axis_names[k], 3 * k);
    for (int k = AXES_END + 1; k < PARAM_COUNT; k++)
        fxi_gpu_say(b, "#define %s P(%d)\n", names[k - AXES_END - 1], k);
}

/* Appends a text once for every number below n, which is the value of its placeholder. */
static void say_numbered(fxi_gpu_builder *b, const char *text, const char *placeholder, int n)
{
    for (int k = 0; k < n; k++) {
        fxi_gpu_set_number(b, placeholder, k);
        fxi_gpu_say_part(b, text);
    }
}

static bool has_padding(const fx_conv_attr *a)
{
    for (int d = 0; d < a->spatial; d++)
        if (a->before[d] != 0 || a->after[d] != 0)
            return true;
    return false;
}

static void say_sums(fxi_gpu_builder *b, const contraction *c)
{
    const fx_conv_attr *a = &fx_step_conv(b->step)->attr;
    /* See the head of this file: gy may be infinite. */
    const bool leaves_out = a->kind == FX_CONV_WEIGHT && has_padding(a);
    for (int r = 0; r < c->each; r++)
        for (int n = 0; n < c->width; n++)
            fxi_gpu_say(b, "    VALUE sum%d_%d = 0;\n", r, n);
    fxi_gpu_say(b, "#define TERM(j) { const fx_int e = LANE * DEPTH + j, q = 4 * e; \\\n");
    say_numbered(b, fxi_gpu_text_conv_term, "r", c->each);
    for (int n = 0; n < c->width; n++) {
        fxi_gpu_say(b, "    const VALUE f%d = factor[e * WIDTH + %d]; \\\n", n, n);
        for (int r = 0; r < c->each; r++) {
            fxi_gpu_say(b, "    sum%d_%d = ", r, n);
            if (leaves_out)
                fxi_gpu_say(b, "!in%d ? sum%d_%d : ", r, r, n);
            fxi_gpu_say(b, "FX_MAD(v%d, f%d, sum%d_%d); \\\n", r, n, r, n);
        }
    }
    fxi_gpu_say(b, "}\n");
}

static void say_phases(fxi_gpu_builder *b, const char *phase, const char *param, bool phased)
{
    for (int d = 0; d < 3 && phased; d++)
        fxi_gpu_say(b, " + %s%d * %s(%d)", phase, d, param, d);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Sums are variables with names of their own and not an array, so that they are registers. */
static void say_row_out(fxi_gpu_builder *b, const contraction *c, const fxi_gpu_finish *f,
                        bool sliced, int row)
{
    fxi_gpu_set_number(b, "r", row);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_conv_out, "phases");
    say_phases(b, "phase", "OUT_PHASE", c->phased);
    text = fxi_gpu_say_until(b, text, "columns");
    for (int n = 0; n < c->width; n++) {
        char sum[32];
        snprintf(sum, sizeof sum, "sum%d_%d", row, n);
        fxi_gpu_say(b, "if (n0 + %d < COLUMNS) {\nconst fx_int i = first + %d * OUT_COLUMN;\n", n,
                    n);
        if (sliced)
            fxi_gpu_say(b, "y[i] = %s;\n", sum);
        else
            fxi_gpu_finish_say(b, f, sum, PARAM_COUNT);
        fxi_gpu_say(b, "}\n");
    }
    fxi_gpu_say_part(b, text);
}

/* Adds the product: into the output, or as slices of sums into work space. */
static fxi_gpu_call *add_product(fxi_gpu_builder *b, const contraction *c, const fxi_gpu_finish *f,
                                 bool sliced)
{
    const fxi_gpu_type *t = c->type;
    const int operands = sliced ? 0 : f->operands,
              params = PARAM_COUNT + (sliced ? 0 : fxi_gpu_walk_params(&f->walk));
    fxi_gpu_begin(b, c->wide);
    fxi_gpu_kernel(b, "fx_conv", 3 + operands, params);
    set_constants(b, c, sliced ? t->value : t->stored);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_conv, "parameters");
    say_parameters(b);
    text = fxi_gpu_say_until(b, text, "operands");
    if (!sliced)
        fxi_gpu_finish_use(b, f, 3);
    text = fxi_gpu_say_until(b, text, "axes");
    say_numbered(b, c->phased ? fxi_gpu_text_conv_axis_of_phase : fxi_gpu_text_conv_axis, "d", 3);
    text = fxi_gpu_say_until(b, text, "rows");
    say_numbered(b, fxi_gpu_text_conv_row, "r", c->each);
    text = fxi_gpu_say_until(b, text, "taps");
    say_phases(b, "tap", "OTHER_TAP", c->phased);
    text = fxi_gpu_say_until(b, text, "sums");
    say_sums(b, c);
    text = fxi_gpu_say_until(b, text, "terms");
    for (int k = 0; k < DEPTH; k++)
        fxi_gpu_say(b, "        TERM(%d)\n", k);
    text = fxi_gpu_say_until(b, text, "outputs");
    for (int r = 0; r < c->each; r++)
        say_row_out(b, c, f, sliced, r);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *call = fxi_gpu_add(b);
    for (int k = 0; k < PARAM_COUNT; k++)
        fxi_gpu_param(call, k, c->v[k]);
    fxi_gpu_buffer(call, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(call, 1, FXI_GPU_IN, 1);
    /* Replaced by work space if there are slices (fxi_gpu_conv). */
    fxi_gpu_buffer(call, 2, FXI_GPU_OUT, 0);
    return call;
}

void fxi_gpu_conv(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    if (!fxi_gpu_types[s->out.dtype].math) {
        fxi_gpu_fail(b, FX_STATUS_DTYPE, "no convolution for element type %s",
                     fxi_gpu_types[s->out.dtype].name);
        return;
    }
    /* Nothing to compute, and a launch of no groups would be an error (check_call in gpu_step.c).
     */
    if (fx_tensor_length(&s->out) == 0 || !fxi_gpu_known(b))
        return;
    const contraction c = contraction_of(s, b->limits);
    const fxi_gpu_finish f = fxi_gpu_finish_of(s);
    const bool sliced = c.v[SLICES] * c.lanes > 1;
    int64_t groups = c.v[ROW_TILES] * c.v[COLUMN_TILES] * c.v[SLICES] * c.groups;
    for (int d = 0; d < 3 && c.phased; d++)
        groups *= c.v[3 * PHASES + d];
    fxi_gpu_call *call = add_product(b, &c, &f, sliced);
    call->groups[0] = groups;
    if (!sliced) {
        fxi_gpu_finish_set(&f, call, 3, PARAM_COUNT);
        return;
    }
    const fxi_gpu_slices slices = {
        .sum = c.type->value, .n = c.v[SLICES] * c.lanes, .length = c.length, .wide = c.wide};
    const int64_t work = fxi_gpu_slices_work(b, &slices);
    fxi_gpu_buffer(call, 2, FXI_GPU_WORK, work);
    fxi_gpu_slices_add(b, &slices, &f, work);
}
