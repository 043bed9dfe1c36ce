/* gpu_pool.c: max and mean pooling, their gradients, and picking by the position of the maximum.
 *
 * Kernels over windows have one work-item for each element of the output. It reads the taps of one
 * window, in column-major order, and skips those in the padding: the maximum is the first NaN, else
 * the first largest. In kernels over positions a work-item has a pack of neighbouring elements of
 * x, which are stored as a vector. It finds the windows that contain them, and adds their
 * contributions in the order of the windows; so no element is written by two work-items. For the
 * gradient of the maximum, a first kernel stores in work space at which tap each window has it:
 * searching again for each element of x would repeat the work for overlapping windows. Windows that
 * are tiles of x (choose_tiles) need only one kernel: a work-item finds the maxima of its windows,
 * and writes the gradients of all of their positions.
 *
 * If a window has few taps, its numbers are constants in the text: the loops over taps and windows
 * are unrolled, so their loads are in flight together, and divisions by strides are cheap. A
 * network has few different windows. Sizes are always parameters.
 */
#include "gpu_text.h"

/* Numbers of an axis; those from TAPS on are constants in the text of a small window. The kernels
 * explain SPAN and INSIDE. */
#define AXIS_PARAMS(X) X(XS) X(YS) X(TAPS) X(STRIDE) X(BEFORE) X(DILATION) X(SPAN) X(INSIDE)
#define NUMBER(name)   name,
enum { AXIS_PARAMS(NUMBER) AXIS_PARAM_COUNT };
/* Parameters by which kernels divide: FX_DIV. A kernel divides by sizes, strides and dilations for
 * each element of the output, so ordinary divisions would take most of its time. */
static const int divisors[] = {XS, YS, STRIDE, DILATION};
enum {
    DIVISOR_COUNT = sizeof divisors / sizeof *divisors,
    DIVISORS = 1 + 3 * AXIS_PARAM_COUNT, /* after LENGTH and the axes' numbers */
    PARAM_COUNT = DIVISORS + 9 * DIVISOR_COUNT
};
/* Of a small window: the most taps, which a byte can count, and the most comparisons of a pack with
 * the windows that contain it. More would take long to compile. */
enum { FEW_TAPS = 32, COMPARISONS = 128 };
#define NAME(name) #name,
static const char *const axis_names[] = {AXIS_PARAMS(NAME)};

typedef struct pooling {
    const fxi_gpu_type *type;
    int64_t v[3 * AXIS_PARAM_COUNT];
    int64_t windows, positions; /* elements of an array with y's sizes, and with x's */
    int pack;                   /* positions of a work-item */
    int tiles; /* neighbouring windows of a work-item; 0: they are not tiles (choose_tiles) */
    bool wide, small;
} pooling;

/* The most windows that contain one of `pack` neighbouring positions. It bounds an unrolled loop,
 * so it depends on the window alone: a position near the border is in fewer windows, and the loop
 * then skips the others. */
static int64_t span_of(const pooling *p, int d, int pack)
{
    const int64_t reach = (p->v[3 * TAPS + d] - 1) * p->v[3 * DILATION + d];
    return (pack - 1 + reach) / p->v[3 * STRIDE + d] + 1;
}

static double comparisons(const pooling *p, int pack)
{
    return (double)span_of(p, 0, pack) * (double)span_of(p, 1, 1) * (double)span_of(p, 2, 1) * pack;
}

/* Chooses whether the numbers of the window are constants, and the positions of a work-item: as
 * many as a vector has, if they divide the rows. */
static void choose_pack(const fxi_gpu_builder *b, pooling *p, double taps)
{
    p->small = taps <= FEW_TAPS && comparisons(p, 1) <= COMPARISONS;
    p->pack = p->small && !b->limits->serial ? b->limits->vector_bytes / p->type->size : 1;
    while (p->pack > 1 && (p->v[3 * XS] % p->pack != 0 || comparisons(p, p->pack) > COMPARISONS))
        p->pack /= 2;
    for (int d = 0; d < 3; d++)
        p->v[3 * SPAN + d] = span_of(p, d, d == 0 ? p->pack : 1);
}

/* Tiles are small windows without gaps, overlaps and padding. Their work-items take as many of them
 * as fill a vector with their taps along axis 0, if that is possible, so that each row of taps is
 * one load of x and one store of its gradient; else one. Tiles also cover x: a position beyond the
 * last window has a gradient too, 0, which no work-item would write. */
static void choose_tiles(const fxi_gpu_builder *b, pooling *p)
{
    const int64_t taps = p->v[3 * TAPS], vector = b->limits->vector_bytes / p->type->size;
    bool tiles = p->small;
    for (int d = 0; d < 3; d++)
        tiles &= p->v[3 * TAPS + d] == p->v[3 * STRIDE + d] && p->v[3 * DILATION + d] == 1 &&
                 p->v[3 * BEFORE + d] == 0 &&
                 p->v[3 * YS + d] * p->v[3 * STRIDE + d] == p->v[3 * XS + d];
    p->tiles = tiles;
    if (tiles && !b->limits->serial && taps < vector && vector % taps == 0 &&
        p->v[3 * YS] % (vector / taps) == 0)
        p->tiles = (int)(vector / taps);
}

static pooling pooling_of(const fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_pool_attr *a = &fx_step_pool(s)->attr;
    const bool back = a->kind == FX_POOL_MAX_GRAD || a->kind == FX_POOL_MEAN_GRAD;
    const fx_tensor *x = back ? &s->out : &s->in[0], *y = back ? &s->in[0] : &s->out;
    pooling p = {.type = &fxi_gpu_types[s->out.dtype],
                 .windows = fx_tensor_length(y),
                 .positions = fx_tensor_length(x)};
    p.wide = fxi_gpu_wide(p.windows) || fxi_gpu_wide(p.positions);
    double taps = 1; /* taps of a window, which are numbered, and counted for the mean */
    for (int d = 0; d < 3; d++) {
        /* Axes that do not exist have one tap at stride 1. */
        const bool exists = d < a->spatial;
        const int64_t v[AXIS_PARAM_COUNT] = {
            [XS] = exists ? x->shape[d] : 1,      [YS] = exists ? y->shape[d] : 1,
            [TAPS] = exists ? a->window[d] : 1,   [STRIDE] = exists ? a->stride[d] : 1,
            [BEFORE] = exists ? a->before[d] : 0, [DILATION] = exists ? a->dilation[d] : 1};
        for (int k = 0; k < AXIS_PARAM_COUNT; k++)
            p.v[3 * k + d] = v[k];
        p.v[3 * INSIDE + d] =
            v[BEFORE] == 0 && (v[YS] - 1) * v[STRIDE] + (v[TAPS] - 1) * v[DILATION] < v[XS];
        /* Positions in the padding and beyond are computed too, before they are found to be
         * outside. */
        p.wide |= fxi_gpu_wide(v[XS] + v[BEFORE] + v[YS] * v[STRIDE] + v[TAPS] * v[DILATION]);
        p.wide |= (taps *= (double)v[TAPS]) >= INT32_MAX;
    }
    choose_pack(b, &p, taps);
    choose_tiles(b, &p);
    return p;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* A kernel over windows or positions of x. Buffers: `from` is read, `to` is the output, `also` is
 * another input that some kernels have. */
typedef struct kernel {
    const char *name;
    bool positions; /* over positions of x, else over windows */
    bool tiles;     /* over windows, and writes positions */
    int from;       /* the number of the operand that is read */
    bool notes; /* `to` is work space and gets the index of the maximum's tap; none: −1, or 255
                   in a byte */
    bool also;  /* reads another operand too (over windows), or those notes (over positions) */
    const char *text; /* its macros (pool.cl) */
} kernel;
enum { TAP_OF_MAX = FX_POOL_MAX_PICK + 1, MAX_GRAD_OF_TILES };

static const kernel kernels[] = {
    [FX_POOL_MAX] = {.name = "fx_pool_max", .text = fxi_gpu_text_pool_max},
    [FX_POOL_MEAN] = {.name = "fx_pool_mean", .text = fxi_gpu_text_pool_mean},
    [FX_POOL_MAX_GRAD] = {.name = "fx_pool_max_grad",
                          .positions = true,
                          .also = true,
                          .text = fxi_gpu_text_pool_max_grad},
    [FX_POOL_MEAN_GRAD] = {.name = "fx_pool_mean_grad",
                           .positions = true,
                           .text = fxi_gpu_text_pool_mean_grad},
    [FX_POOL_MAX_PICK] = {.name = "fx_pool_pick",
                          .from = 1,
                          .also = true,
                          .text = fxi_gpu_text_pool_pick},
    [MAX_GRAD_OF_TILES] = {.name = "fx_pool_max_grad", .tiles = true, .also = true, .text = ""},
    [TAP_OF_MAX] = {.name = "fx_pool_tap", .from = 1, .notes = true, .text = fxi_gpu_text_pool_tap},
};

/* The type of the notes: they are written once and read for each position, so a small window saves
 * three quarters of that traffic. */
static const char *note_type(const pooling *p)
{
    return p->small ? "fx_u8" : "fx_int";
}

/* Appends the macros for the numbers of the axes, and for divisions by them. A compiler turns the
 * division of an unsigned number by a constant into shifts. The operand is never negative, which
 * the compiler knows only from an unsigned type. */
static void say_parameters(fxi_gpu_builder *b, const pooling *p)
{
    for (int a = 0; a < AXIS_PARAM_COUNT; a++) {
        const int64_t *v = &p->v[3 * a];
        if (a >= TAPS && p->small)
            fxi_gpu_say(b, "#define %s(d) ((d) == 0 ? %d : (d) == 1 ? %d : %d)\n", axis_names[a],
                        (int)v[0], (int)v[1], (int)v[2]);
        else
            fxi_gpu_say(b, "#define %s(d) P(%d + (d))\n", axis_names[a], 1 + 3 * a);
    }
    for (int d = 0; d < DIVISOR_COUNT; d++) {
        const char *name = axis_names[divisors[d]];
        if (divisors[d] >= TAPS && p->small)
            fxi_gpu_say(b, "#define OVER_%s(d, n) ((fx_int)((%s)(n) / %s(d)))\n", name,
                        p->wide ? "fx_u64" : "fx_u32", name);
        else
            fxi_gpu_say(b, "#define OVER_%s(d, n) FX_DIV(n, %d + 3 * (d))\n", name,
                        DIVISORS + 9 * d);
    }
}

/* Appends the store of a pack of positions: as one vector if the address is aligned. */
static void say_store(fxi_gpu_builder *b, const pooling *p)
{
    const fxi_gpu_pack z = {.name = "z", .type = p->type, .elements = p->pack};
    if (p->pack == 1) {
        fxi_gpu_say(b, "STORE(to, i, END(sum[0]));\n");
        return;
    }
    fxi_gpu_say_pack(b, &z);
    fxi_gpu_say(b,
                "UNROLL for (fx_int e = 0; e < PACK; e++) STORE(z.e, e, END(sum[e]));\n"
                "if ((FX_ADDRESS(to) & %du) == 0) {\n",
                fxi_gpu_pack_bytes(&z) - 1);
    fxi_gpu_say_pack_moved(b, &z, true, "to + i * PACK");
    fxi_gpu_say(b, "} else\nUNROLL for (fx_int e = 0; e < PACK; e++) to[i * PACK + e] = z.e[e];\n");
}

/* The pack of a row of tiles: x is loaded, z is stored. */
static fxi_gpu_pack row_of(const pooling *p, bool stores)
{
    return (fxi_gpu_pack){
        .name = stores ? "z" : "x", .type = p->type, .elements = p->tiles * (int)p->v[3 * TAPS]};
}

/* Appends the pack; the taps of a single window may not fill a vector. */
static void say_row(fxi_gpu_builder *b, const pooling *p, bool stores)
{
    const fxi_gpu_pack z = row_of(p, stores);
    if (p->tiles > 1)
        fxi_gpu_say_pack(b, &z);
    else
        fxi_gpu_say(b, "struct { STORED e[PACK]; } %s;\n", z.name);
}

/* Appends the loading or storing of the pack: as a vector if all addresses are aligned. */
static void say_row_moved(fxi_gpu_builder *b, const pooling *p, bool stores)
{
    const fxi_gpu_pack z = row_of(p, stores);
    if (p->tiles > 1) {
        fxi_gpu_say(b, "if (((FX_ADDRESS(to) | FX_ADDRESS(also)) & %du) == 0) {\n",
                    fxi_gpu_pack_bytes(&z) - 1);
        fxi_gpu_say_pack_moved(b, &z, stores, stores ? "to + row" : "also + row");
        fxi_gpu_say(b, "} else\n");
    }
    fxi_gpu_say(b, "UNROLL for (fx_int e = 0; e < PACK; e++) %s;\n",
                stores ? "to[row + e] = z.e[e]" : "x.e[e] = also[row + e]");
}

/* Two loops over the rows of taps: the first finds the maxima, the second writes the gradients. The
 * loads of x come before all stores, as compilers do not move them. */
static void say_tiles(fxi_gpu_builder *b, const pooling *p)
{
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_pool_tiles, "load");
    say_row(b, p, false);
    say_row_moved(b, p, false);
    text = fxi_gpu_say_until(b, text, "pack");
    say_row(b, p, true);
    text = fxi_gpu_say_until(b, text, "store");
    say_row_moved(b, p, true);
    fxi_gpu_say_part(b, text);
}

static void say_kernel(fxi_gpu_builder *b, const pooling *p, const kernel *k)
{
    const fxi_gpu_type *t = p->type;
    fxi_gpu_begin(b, p->wide);
    fxi_gpu_kernel(b, k->name, k->also ? 3 : 2, PARAM_COUNT);
    fxi_gpu_set(b, "stored", t->stored);
    fxi_gpu_set(b, "value", t->value);
    fxi_gpu_set(b, "lowest", t->low);
    fxi_gpu_set(b, "larger", t->math ? "(b == b && (a != a || a > b))" : "(a > b)");
    fxi_gpu_set(b, "name", t->name);
    fxi_gpu_set(b, "to", k->notes ? note_type(p) : "STORED");
    fxi_gpu_set(b, "unroll", p->small ? "FX_UNROLL" : "");
    fxi_gpu_set_number(b, "elements",
                       k->tiles       ? p->tiles * (int)p->v[3 * TAPS]
                       : k->positions ? p->pack
                                      : 1);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_pool_definitions, "parameters");
    say_parameters(b, p);
    fxi_gpu_say_part(b, text);
    if (k->tiles) {
        say_tiles(b, p);
        fxi_gpu_end(b);
        return;
    }
    fxi_gpu_say_part(b, k->text);
    text = fxi_gpu_say_until(b, fxi_gpu_text_pool_item, "also");
    if (k->also)
        fxi_gpu_say(b, "FX_USE(2, const %s, also)\n", k->positions ? note_type(p) : "STORED");
    fxi_gpu_say_part(b, text);
    if (k->positions) {
        text = fxi_gpu_say_until(b, fxi_gpu_text_pool_over_positions, "store");
        say_store(b, p);
    } else
        text = fxi_gpu_text_pool_over_windows;
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */

static void add(fxi_gpu_builder *b, const pooling *p, const kernel *k, int64_t work)
{
    const int64_t length = k->positions ? p->positions / p->pack
                           : k->tiles   ? p->windows / p->tiles
                                        : p->windows;
    if (length == 0)
        return;
    say_kernel(b, p, k);
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_param(c, 0, length);
    for (int a = 0; a < 3 * AXIS_PARAM_COUNT; a++)
        fxi_gpu_param(c, 1 + a, p->v[a]);
    for (int d = 0; d < 3 * DIVISOR_COUNT; d++) {
        const int64_t size = p->v[3 * divisors[d / 3] + d % 3];
        /* Along axis 0, XS and YS may be counted in packs. */
        const int pack = d == 0 && k->positions ? p->pack : d == 3 && k->tiles ? p->tiles : 1;
        fxi_gpu_divisor(c, DIVISORS + 3 * d, size / pack);
    }
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, k->from);
    fxi_gpu_buffer(c, 1, k->notes ? FXI_GPU_WORK : FXI_GPU_OUT, work);
    if (k->also)
        fxi_gpu_buffer(c, 2, k->positions ? FXI_GPU_WORK : FXI_GPU_IN, k->tiles ? 1 : work);
    c->groups[0] = fxi_gpu_divide_up(length, FXI_GPU_GROUP);
}

void fxi_gpu_pool(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const int kind = fx_step_pool(s)->attr.kind;
    const pooling p = pooling_of(b);
    int64_t work = 0;
    if (!p.type->math && kind != FX_POOL_MAX && kind != FX_POOL_MAX_PICK) {
        fxi_gpu_fail(b, FX_STATUS_DTYPE, "no mean or gradient for element type %s", p.type->name);
        return;
    }
    /* The kernel reads x itself, so it needs no work space. */
    if (kind == FX_POOL_MAX_GRAD && p.tiles) {
        add(b, &p, &kernels[MAX_GRAD_OF_TILES], 0);
        return;
    }
    if (kind == FX_POOL_MAX_GRAD && p.positions > 0) {
        /* One element more, so that the second kernel gets an address even if there is no window.
         */
        work = fxi_gpu_work(b, (p.windows + 1) * (p.small ? 1 : p.wide ? 8 : 4));
        add(b, &p, &kernels[TAP_OF_MAX], work);
    }
    add(b, &p, &kernels[kind], work);
}
