/* cpu_conv_product.c: convolutions with one tap and no padding are matrix products.
 *
 * An image's channels are the columns of a matrix X with one row per position (Y likewise), and a
 * group's kernel is a matrix W with one row per channel of x:
 *
 *   FORWARD  Y = X·W        DATA  X = Y·Wᵀ        WEIGHT  W = Σ Xᵀ·Y over the images
 * With strides, the positions that windows read are first copied into a dense X; for DATA, the
 * product is spread over them afterwards. If x has a single position, its images are the columns of
 * one matrix, and one product computes all of them.
 *
 * The products of many images are divided between the threads. The product of few images is itself
 * divided (cpu_gemm.c), unless the threads get equal numbers of images: then no thread waits for
 * another one before the end, and a dense copy stays in the cache of the thread that made it. Two
 * threads compute 4 images of 28×28×128, with a stride of 2 and 256 output channels, in 127 µs in
 * this way, and took 146 µs when the products were divided and the copies were not. The gradient of
 * weights is summed in shares of the images, whose number depends on the shapes alone; the shares
 * are added in order.
 */
#include "cpu_conv.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    ENOUGH_UNITS = 8,     /* from this number of units on, each unit is computed by one thread */
    FEW_POSITIONS = 16,   /* fewer rows do not fill a tile of the product */
    SHARE_WINDOWS = 1024, /* positions of a share */
    MOST_SHARES = 8       /* each share has sums as large as the result */
};

typedef struct job {
    const fxi_conv_geometry *g;
    int kind;
    char *x, *w, *y;
    fxi_gemm product;         /* of one unit, without its operands */
    size_t picked;            /* bytes of a dense copy of x's positions; 0: x is dense */
    int64_t units, parts;     /* a unit: one group of one image; WEIGHT: one group of one share */
    int64_t shares;           /* WEIGHT only */
    char *sums;               /* of all shares but the first, whose sums are in w */
    const fxi_finish *finish; /* NULL: none */
} job;

/* ---- positions ------------------------------------------------------------------------------- */

/* Copies between a dense array of positions and those elements of x's channels that windows read,
 * at distances of the strides. A copy to x sets its other elements to zero. */
typedef struct copies {
    const fxi_conv_geometry *g;
    char *x, *dense;
    bool to_dense;
    int64_t parts; /* of the channels */
} copies;

static void copy_channel(const copies *c, int64_t channel)
{
    const fxi_conv_geometry *g = c->g;
    const fxi_conv_core *core = &fxi_cpu_simd()->conv[g->dtype == FX_DTYPE_F64];
    const int64_t pitch = g->x[0] * g->stride[1];
    char *x = fxi_at_out(c->x, channel * g->xs, g->size);
    char *dense = fxi_at_out(c->dense, channel * g->positions, g->size);
    /* Just before the elements are spread, and by the thread that spreads them: the channel is then
     * in its cache. */
    if (!c->to_dense)
        memset(x, 0, (size_t)g->xs * g->size);
    for (int64_t k = 0; k < g->y[2]; k++) {
        char *plane = fxi_at_out(x, g->x[0] * g->x[1] * k * g->stride[2], g->size);
        (c->to_dense ? core->rows
                     : core->spread)(&(fxi_conv_rows){.d = c->to_dense ? dense : plane,
                                                      .s = c->to_dense ? plane : dense,
                                                      .dpitch = c->to_dense ? g->y[0] : pitch,
                                                      .spitch = c->to_dense ? pitch : g->y[0],
                                                      .stride = g->stride[0],
                                                      .n = g->y[0],
                                                      .rows = g->y[1]});
        dense += g->y[0] * g->y[1] * (int64_t)g->size;
    }
}

/* Channels do not overlap, neither in x nor in the dense copy. */
static void copy_part(void *user, int64_t part)
{
    const copies *c = user;
    int64_t from, to;
    fxi_cpu_range(c->g->cin, c->parts, part, &from, &to);
    for (int64_t channel = from; channel < to; channel++)
        copy_channel(c, channel);
}

/* Copies all channels of one group of one image; on all threads if `shared`. */
static void copy_positions(const fxi_conv_geometry *g, char *x, char *dense, bool to_dense,
                           bool shared)
{
    copies c = {.g = g, .x = x, .dense = dense, .to_dense = to_dense, .parts = 1};
    const int64_t elements = g->positions + (to_dense ? g->positions * g->stride[0] : g->xs);
    const double cost = fxi_cpu_cost((double)(g->cin * elements) * (double)g->size, 0);
    /* The threads are awake: the product before this copy was divided, and the next one will be. */
    if (shared)
        c.parts = fxi_cpu_parts_if_awake(g->cin, cost);
    if (c.parts == 1 || !fxi_cpu_parallel_if_awake(c.parts, copy_part, &c)) {
        c.parts = 1;
        copy_part(&c, 0);
    }
}

/* ---- one unit -------------------------------------------------------------------------------- */

/* The three operands of a unit. A group's channels are neighbours in x and y, and its part of the
 * kernel is one matrix, so each operand is dense. */

static char *image_x(const job *q, int64_t image, int64_t group)
{
    const fxi_conv_geometry *g = q->g;
    return fxi_at_out(q->x, (image * g->groups + group) * g->cin * g->xs, g->size);
}

static char *image_y(const job *q, int64_t image, int64_t group)
{
    const fxi_conv_geometry *g = q->g;
    return fxi_at_out(q->y, (image * g->groups + group) * g->cout * g->positions, g->size);
}

static char *kernel_of(const job *q, int64_t group)
{
    return fxi_at_out(q->w, group * q->g->cin * q->g->cout, q->g->size);
}

/* Computes a product in the calling thread if it gets memory for it, else on all threads. */
static fx_status multiply(const job *q, const void *a, const void *b, void *c, bool accumulate,
                          void *memory)
{
    fxi_gemm g = q->product;
    g.a = a, g.b = b, g.c = c;
    g.accumulate = accumulate;
    if (!memory)
        return fxi_cpu_gemm(q->g->dtype, &g);
    fxi_cpu_gemm_alone(q->g->dtype, &g, memory);
    return FX_OK;
}

/* FORWARD or DATA of one group of one image. `picked`: memory for the dense positions of x. */
static fx_status run_image(const job *q, int64_t unit, char *picked, void *memory)
{
    const fxi_conv_geometry *g = q->g;
    const int64_t group = unit % g->groups, image = unit / g->groups;
    char *x = image_x(q, image, group), *y = image_y(q, image, group);
    char *dense = q->picked ? picked : x;
    if (q->kind == FX_CONV_DATA) {
        const fx_status status = multiply(q, y, kernel_of(q, group), dense, false, memory);
        if (dense != x && !status)
            copy_positions(g, x, dense, false, !memory);
        return status;
    }
    if (dense != x)
        copy_positions(g, x, dense, true, !memory);
    const fx_status status = multiply(q, dense, kernel_of(q, group), y, false, memory);
    /* A product that all threads share has no epilogue yet: it is applied to the whole output at
     * the end. */
    const int64_t n = g->cout * g->positions;
    if (q->finish && memory && !status)
        fxi_cpu_finish_range(q->finish, unit * n, (unit + 1) * n);
    return status;
}

static char *share_sums(const job *q, int64_t group, int64_t share)
{
    const int64_t n = q->g->cin * q->g->cout;
    return share == 0 ? kernel_of(q, group)
                      : fxi_at_out(q->sums, ((share - 1) * q->g->groups + group) * n, q->g->size);
}

/* A share is never divided: its sums are added in the order of its images. */
static fx_status sum_share(const job *q, int64_t unit, char *picked, void *memory)
{
    const fxi_conv_geometry *g = q->g;
    const int64_t group = unit % g->groups, share = unit / g->groups;
    int64_t from, to;
    fx_status status = FX_OK;
    fxi_cpu_range(g->batch, q->shares, share, &from, &to);
    for (int64_t image = from; image < to && !status; image++) {
        char *x = image_x(q, image, group);
        if (q->picked)
            copy_positions(g, x, picked, true, !memory);
        /* The first image overwrites, so sums need not be cleared. */
        status = multiply(q, q->picked ? picked : x, image_y(q, image, group),
                          share_sums(q, group, share), image > from, memory);
    }
    return status;
}

static fx_status run_unit(const job *q, int64_t unit, char *picked, void *memory)
{
    return (q->kind == FX_CONV_WEIGHT ? sum_share : run_image)(q, unit, picked, memory);
}

/* ---- all units ------------------------------------------------------------------------------- */

/* A thread's scratch begins with the dense positions; packed operands of the product follow. A
 * product in the calling thread cannot fail, because it allocates nothing. */
static void run_part(void *user, int64_t part, void *scratch)
{
    const job *q = user;
    int64_t from, to;
    fxi_cpu_range(q->units, q->parts, part, &from, &to);
    for (int64_t unit = from; unit < to; unit++)
        run_unit(q, unit, scratch, (char *)scratch + q->picked);
}

/* Few units follow one another, and the threads share each product. */
static fx_status run_in_order(const job *q)
{
    char *picked = q->picked ? fxi_aligned(64, q->picked) : NULL;
    if (q->picked && !picked)
        return FX_STATUS_MEMORY;
    fx_status status = FX_OK;
    for (int64_t unit = 0; unit < q->units && !status; unit++)
        status = run_unit(q, unit, picked, NULL);
    fxi_free(picked);
    if (q->finish && !status)
        fxi_cpu_finish(q->finish);
    return status;
}

/* Is each unit computed by one thread? If units are few, only where the threads get equal numbers
 * of them; otherwise all threads share each product. The number of threads may decide, because both
 * ways compute the same bits: those of a product do not depend on how it is divided. */
static bool one_thread_each(const job *q, double cost)
{
    /* The cost of all units decides whether there is enough work to divide. The number of units
     * does not: the gradient of weights is often a single share. */
    return q->units >= ENOUGH_UNITS || fxi_cpu_parts(ENOUGH_UNITS, cost) == 1 ||
           q->units % fx_num_threads() == 0;
}

static fx_status run_units(job *q)
{
    const fxi_conv_geometry *g = q->g;
    const double flops =
        2.0 * (double)(g->cin * g->cout) * (double)(g->positions * g->batch) * (double)g->groups;
    const double cost = fxi_cpu_cost(0, flops);
    if (!one_thread_each(q, cost))
        return run_in_order(q);
    q->parts = fxi_cpu_parts(q->units, cost);
    /* One byte more: `memory` tells run_image that one thread computes, even if the product needs
     * none. */
    const size_t bytes = q->picked + fxi_cpu_gemm_bytes(g->dtype, &q->product) + 1;
    return fxi_cpu_parallel_scratch(q->parts, bytes, run_part, q);
}

/* ---- the three kinds ------------------------------------------------------------------------- */

/* The product of one image, whose positions are `rows` elements in each channel of x and y. */
static fxi_gemm image_product(const fxi_conv_geometry *g, int kind, int64_t rows)
{
    /* Xᵀ: its rows are the channels, whose positions are neighbours. */
    if (kind == FX_CONV_WEIGHT)
        return (fxi_gemm){.m = g->cin,
                          .n = g->cout,
                          .k = rows,
                          .rsa = rows,
                          .csa = 1,
                          .rsb = 1,
                          .csb = rows,
                          .csc = g->cin};
    /* FORWARD and DATA: one product; DATA reads the kernel transposed. */
    const bool data = kind == FX_CONV_DATA;
    return (fxi_gemm){.m = rows,
                      .n = data ? g->cin : g->cout,
                      .k = data ? g->cout : g->cin,
                      .rsa = 1,
                      .csa = rows,
                      .rsb = data ? g->cin : 1,
                      .csb = data ? 1 : g->cin,
                      .csc = rows};
}

/* x and y have one position and one group: their columns are the images. The kernel is the left
 * factor, or for WEIGHT the result. */
static fx_status run_single_position(const job *q)
{
    const fxi_conv_geometry *g = q->g;
    const bool data = q->kind == FX_CONV_DATA;
    fxi_gemm p = {.m = data ? g->cin : g->cout,
                  .n = g->batch,
                  .k = data ? g->cout : g->cin,
                  .a = q->w,
                  .b = data ? q->y : q->x,
                  .c = data ? q->x : q->y,
                  .rsa = data ? 1 : g->cin,
                  .csa = data ? g->cin : 1,
                  .rsb = 1,
                  .csb = data ? g->cout : g->cin,
                  .csc = data ? g->cin : g->cout};
    if (q->kind == FX_CONV_WEIGHT)
        p = (fxi_gemm){.m = g->cin,
                       .n = g->cout,
                       .k = g->batch,
                       .a = q->x,
                       .b = q->y,
                       .c = q->w,
                       .rsa = 1,
                       .csa = g->cin,
                       .rsb = g->cout,
                       .csb = 1,
                       .csc = g->cin};
    const fx_status status = fxi_cpu_gemm(g->dtype, &p);
    if (q->finish && !status)
        fxi_cpu_finish(q->finish);
    return status;
}

/* In the order of the shares, never in the order in which threads finished. This takes little time:
 * a share has at least half of SHARE_WINDOWS terms for each of these additions. */
#define ADD_SHARES(S, T)                                                                           \
    static void add_shares_##S(const job *q)                                                       \
    {                                                                                              \
        const int64_t n = q->g->cin * q->g->cout * q->g->groups;                                   \
        T *to = (T *)(void *)q->w;                                                                 \
        for (int64_t share = 1; share < q->shares; share++) {                                      \
            const T *from = (const T *)(const void *)q->sums + (share - 1) * n;                    \
            for (int64_t i = 0; i < n; i++)                                                        \
                to[i] += from[i];                                                                  \
        }                                                                                          \
    }
ADD_SHARES(f32, float)
ADD_SHARES(f64, double)

static fx_status run_weight(job *q)
{
    const fxi_conv_geometry *g = q->g;
    const size_t kernel = (size_t)(g->cin * g->cout * g->groups) * g->size;
    /* By the shapes alone, so that any number of threads adds in the same order. */
    q->shares =
        fxi_cpu_min(g->batch, fxi_conv_shares(g->batch * g->positions, SHARE_WINDOWS, MOST_SHARES));
    q->units = q->shares * g->groups;
    if (q->shares > 1 && !(q->sums = fxi_aligned(64, (size_t)(q->shares - 1) * kernel)))
        return FX_STATUS_MEMORY;
    const fx_status status = run_units(q);
    if (!status)
        (g->size == sizeof(double) ? add_shares_f64 : add_shares_f32)(q);
    fxi_free(q->sums);
    return status;
}

/* Every window must read one element of x, and no padding: copy_positions makes none. The other
 * methods take several images together; here, an image with few positions would not fill the tiles
 * of a product. */
static bool suits(const fxi_conv_geometry *g)
{
    bool inside = g->taps == 1;
    for (int d = 0; d < 3; d++)
        inside = inside && g->before[d] == 0 && (g->y[d] - 1) * g->stride[d] < g->x[d];
    return inside && (g->positions >= FEW_POSITIONS || (g->xs == 1 && g->groups == 1));
}

bool fxi_cpu_conv_product(const fxi_conv_geometry *g, int kind, void *x, void *w, void *y,
                          fx_status *out_status)
{
    if (!suits(g))
        return false;
    job q = {.g = g,
             .kind = kind,
             .x = x,
             .w = w,
             .y = y,
             .product = image_product(g, kind, g->positions),
             .units = g->batch * g->groups,
             .finish = g->finish};
    if (g->xs != g->positions)
        q.picked = ((size_t)(g->cin * g->positions) * g->size + 63) / 64 * 64;
    *out_status = g->xs == 1 && g->groups == 1 ? run_single_position(&q)
                  : kind == FX_CONV_WEIGHT     ? run_weight(&q)
                                               : run_units(&q);
    return true;
}
