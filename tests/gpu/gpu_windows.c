/* gpu_windows.c: the steps of convolution and pooling in the list of gpu_steps.h: all kinds, with
 * sizes that need every tile, several slices and lanes, and the phases of strides. */
#include "gpu_steps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct row {
    const char *name;
    int spatial;
    int64_t x[3], window[3];
    int64_t in, out, groups, batch; /* channels of a group */
    int32_t stride, before, after, dilation, flipped;
} row;

static const row rows[] = {
    {"1d", 1, {9}, {3}, 2, 4, 1, 3, 1, 0, 0, 1, 0},
    {"2d", 2, {7, 6}, {3, 2}, 2, 3, 1, 4, 1, 0, 0, 1, 0},
    {"3d", 3, {5, 4, 6}, {2, 3, 2}, 2, 3, 1, 2, 1, 1, 0, 1, 0},
    {"flipped", 2, {7, 6}, {3, 3}, 2, 3, 1, 2, 1, 0, 0, 1, 1},
    {"stride", 2, {9, 8}, {3, 3}, 2, 3, 1, 2, 2, 1, 1, 1, 0},
    {"phases", 2, {17, 11}, {4, 4}, 3, 2, 1, 2, 3, 2, 1, 2, 1},
    {"unmet", 2, {13, 13}, {2, 2}, 2, 2, 1, 2, 4, 1, 0, 2, 0}, /* some phases have no taps */
    {"apart", 2, {10, 9}, {2, 2}, 3, 2, 1, 2, 3, 0, 0, 1, 0},
    {"uneven", 2, {6, 5}, {2, 3}, 2, 3, 1, 3, 1, 2, 1, 1, 0},
    {"dilated", 2, {12, 11}, {3, 2}, 2, 3, 1, 2, 1, 2, 2, 3, 0},
    {"groups", 2, {6, 6}, {3, 3}, 2, 3, 3, 2, 1, 1, 1, 1, 0},
    {"depthwise", 2, {9, 7}, {3, 3}, 1, 1, 7, 3, 1, 1, 1, 1, 1},
    {"point", 2, {8, 9}, {1, 1}, 19, 37, 1, 3, 1, 0, 0, 1, 0},
    {"whole", 2, {4, 3}, {4, 3}, 5, 11, 1, 2, 1, 0, 0, 1, 0},
    {"padding", 1, {1}, {7}, 1, 1, 1, 1, 1, 9, 9, 1, 0},
    {"channels", 2, {6, 5}, {3, 3}, 40, 21, 1, 2, 1, 1, 1, 1, 0},
    {"many", 2, {28, 27}, {3, 3}, 2, 20, 1, 9, 1, 1, 1, 1, 0},
    {"batch0", 2, {5, 5}, {3, 3}, 2, 2, 1, 0, 1, 0, 0, 1, 0},
    {"in0", 2, {5, 5}, {3, 3}, 0, 2, 1, 2, 1, 1, 1, 1, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Enough channels for tiles: with one to three axes, parts of tiles, slices, groups, phases. */
static const struct {
    row row;
    uint8_t kinds; /* bits */
} tiles[] = {
    {{"tiles1d", 1, {90}, {5}, 16, 66, 1, 3, 1, 2, 2, 1, 0}, 1 << FX_CONV_FORWARD},
    {{"tiles", 2, {10, 9}, {3, 3}, 17, 40, 1, 7, 1, 1, 1, 1, 0}, 7},
    {{"tiles3d", 3, {6, 5, 7}, {2, 3, 2}, 30, 34, 1, 3, 1, 1, 0, 1, 1}, 1 << FX_CONV_WEIGHT},
    {{"tiles_groups", 2, {17, 12}, {3, 3}, 32, 33, 2, 3, 2, 1, 1, 1, 1}, 1 << FX_CONV_DATA},
};
enum { TILES = sizeof tiles / sizeof *tiles };

static fx_tensor tensor(int dtype, int spatial, const int64_t *sizes, int64_t channels,
                        int64_t last)
{
    fx_tensor t = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)(spatial + 2)};
    int64_t step = 1;
    for (int d = 0; d < t.ndim; d++) {
        t.shape[d] = d < spatial ? sizes[d] : d == spatial ? channels : last;
        t.stride[d] = step;
        step *= t.shape[d];
    }
    return t;
}

static void window_counts(const row *r, int64_t *y)
{
    for (int d = 0; d < r->spatial; d++)
        y[d] =
            (r->x[d] + r->before + r->after - (r->window[d] - 1) * r->dilation - 1) / r->stride + 1;
}

static void set_axes(const row *r, int32_t *stride, int32_t *before, int32_t *after,
                     int32_t *dilation)
{
    for (int d = 0; d < r->spatial; d++) {
        stride[d] = r->stride;
        before[d] = r->before;
        after[d] = r->after;
        dilation[d] = r->dilation;
    }
}

/* The largest number of terms in an element of the output. */
static double terms_of(const row *r, const int64_t *y, int kind)
{
    double terms = (double)(kind == FX_CONV_WEIGHT ? r->batch
                            : kind == FX_CONV_DATA ? r->out
                                                   : r->in);
    for (int d = 0; d < r->spatial; d++)
        terms *= (double)(kind == FX_CONV_WEIGHT ? y[d] : r->window[d]);
    return terms;
}

/* relu(product .+ bias); without `broadcast`, the bias has the size of the output. */
static void add_epilogue(gpu_case *c, int dtype, int spatial, bool broadcast)
{
    c->in[2] = c->step.out;
    for (int d = 0; d < c->in[2].ndim && broadcast; d++) {
        c->in[2].stride[d] = d == spatial;
        c->in[2].shape[d] = c->step.out.shape[d];
    }
    c->step.nin = 3;
    c->program[0] = (fx_instr){
        .op = FX_OP_ADD, .dtype = (uint8_t)dtype, .from = (uint8_t)dtype, .nsrc = 2, .src = {0, 1}};
    c->program[1] = (fx_instr){
        .op = FX_OP_RELU, .dtype = (uint8_t)dtype, .from = (uint8_t)dtype, .nsrc = 1, .src = {2}};
    c->step.as.conv.epilogue = (fx_program){c->program, 2};
}

typedef enum epilogue { NO_EPILOGUE, BIAS, RESIDUAL } epilogue;

static int conv(gpu_visitor visit, void *user, const row *r, int kind, int dtype, epilogue end)
{
    static const char *const kinds[] = {"forward", "data", "weight"};
    gpu_case c = {.step = {.op = FX_OP_CONV, .cls = FX_CLASS_CONV, .nin = 2}};
    fx_conv_attr *a = &c.step.as.conv.attr;
    int64_t ys[3];
    window_counts(r, ys);
    const fx_tensor x = tensor(dtype, r->spatial, r->x, r->in * r->groups, r->batch),
                    w = tensor(dtype, r->spatial, r->window, r->in, r->out * r->groups),
                    y = tensor(dtype, r->spatial, ys, r->out * r->groups, r->batch);
    snprintf(c.name, sizeof c.name, "conv.%s.%s.type%d%s", kinds[kind], r->name, dtype,
             end == BIAS       ? ".bias"
             : end == RESIDUAL ? ".residual"
                               : "");
    *a = (fx_conv_attr){
        .kind = kind, .flipped = r->flipped, .groups = (int32_t)r->groups, .spatial = r->spatial};
    set_axes(r, a->stride, a->before, a->after, a->dilation);
    c.in[0] = kind == FX_CONV_DATA ? y : x;
    c.in[1] = kind == FX_CONV_WEIGHT ? y : w;
    c.step.out = kind == FX_CONV_FORWARD ? y : kind == FX_CONV_DATA ? x : w;
    c.step.in = c.in;
    c.scale = sqrt(terms_of(r, ys, kind));
    c.too_large = fx_tensor_length(&x) > 100000;
    /* Most terms of this element's column are in the padding. */
    c.infinite = kind == FX_CONV_WEIGHT && strncmp(r->name, "tiles", 5) == 0;
    if (end != NO_EPILOGUE)
        add_epilogue(&c, dtype, r->spatial, end == BIAS);
    visit(user, &c);
    return 1;
}

static int pool(gpu_visitor visit, void *user, const row *r, int kind, int dtype)
{
    static const char *const kinds[] = {"max", "mean", "max_grad", "mean_grad", "pick"};
    const bool back = kind == FX_POOL_MAX_GRAD || kind == FX_POOL_MEAN_GRAD,
               two = kind == FX_POOL_MAX_GRAD || kind == FX_POOL_MAX_PICK;
    gpu_case c = {.step = {.op = FX_OP_POOL, .cls = FX_CLASS_POOL, .nin = 1 + two}};
    fx_pool_attr *a = &c.step.as.pool.attr;
    int64_t ys[3];
    window_counts(r, ys);
    const fx_tensor x = tensor(dtype, r->spatial, r->x, r->out, r->batch),
                    y = tensor(dtype, r->spatial, ys, r->out, r->batch);
    snprintf(c.name, sizeof c.name, "pool.%s.%s.type%d", kinds[kind], r->name, dtype);
    *a = (fx_pool_attr){.kind = kind, .spatial = r->spatial};
    for (int d = 0; d < r->spatial; d++)
        a->window[d] = (int32_t)r->window[d];
    set_axes(r, a->stride, a->before, a->after, a->dilation);
    c.in[0] = back ? y : x;
    c.in[1] = x;
    c.step.out = back ? x : y;
    c.step.in = c.in;
    c.specials = kind == FX_POOL_MAX || kind == FX_POOL_MAX_PICK;
    c.too_large = fx_tensor_length(&x) > 100000;
    visit(user, &c);
    return 1;
}

int gpu_visit_windows(gpu_visitor visit, void *user)
{
    static const row large[] = {
        {"wide", 2, {70000, 40000}, {2, 2}, 1, 1, 1, 1, 2, 0, 0, 1, 0},
        {"busy", 2, {600, 600}, {3, 3}, 3, 9, 1, 2, 2, 1, 1, 1, 0},
        /* the largest tile: four rows of sixteen columns for a work-item */
        {"layer", 2, {56, 56}, {3, 3}, 64, 64, 1, 32, 1, 1, 1, 1, 0},
        {"halved", 2, {112, 112}, {3, 3}, 64, 64, 1, 32, 2, 1, 1, 1, 1},
    };
    /* a work-item of the gradients has a vector of positions */
    static const row packs[] = {
        {"tiled", 2, {24, 6}, {2, 2}, 1, 3, 1, 2, 2, 0, 0, 1, 0},
        {"odd tiled", 2, {9, 6}, {3, 3}, 1, 3, 1, 2, 3, 0, 0, 1, 0},
        {"packs", 2, {24, 9}, {3, 3}, 1, 3, 1, 2, 2, 1, 1, 1, 0},
        {"dilated packs", 2, {16, 7}, {3, 2}, 1, 3, 1, 2, 1, 2, 2, 3, 0},
    };
    static const uint8_t reals[] = {FX_DTYPE_F32, FX_DTYPE_F64, FX_DTYPE_F16, FX_DTYPE_BF16};
    int n = 0;
    for (int k = 0; k < ROWS; k++)
        for (int kind = 0; kind <= FX_CONV_WEIGHT; kind++)
            n += conv(visit, user, &rows[k], kind, reals[k % 2 ? k / 2 % 4 : 0], NO_EPILOGUE);
    for (int k = 0; k < ROWS; k++) {
        n += conv(visit, user, &rows[k], FX_CONV_FORWARD, FX_DTYPE_F32, BIAS);
        n += conv(visit, user, &rows[k], FX_CONV_FORWARD, FX_DTYPE_F64, RESIDUAL);
    }
    for (int k = 0; k < TILES; k++)
        for (int kind = 0; kind <= FX_CONV_WEIGHT; kind++)
            if (tiles[k].kinds >> kind & 1)
                n += conv(visit, user, &tiles[k].row, kind, FX_DTYPE_F32, NO_EPILOGUE);
    n += conv(visit, user, &tiles[1].row, FX_CONV_FORWARD, FX_DTYPE_F32, RESIDUAL);
    n += conv(visit, user, &tiles[1].row, FX_CONV_FORWARD, FX_DTYPE_BF16, NO_EPILOGUE);
    for (int k = 0; k < ROWS; k++)
        for (int kind = 0; kind <= FX_POOL_MAX_PICK; kind++)
            n += pool(visit, user, &rows[k], kind, reals[k % 4]);
    for (int k = 0; k < 16; k++) {
        n += pool(visit, user, &packs[k / 4], FX_POOL_MAX_GRAD, reals[k % 4]);
        n += pool(visit, user, &packs[k / 4], FX_POOL_MEAN_GRAD, reals[k % 4]);
    }
    for (int dtype = 0; dtype < FX_DTYPE_COUNT; dtype++) {
        n += pool(visit, user, &rows[4], FX_POOL_MAX, dtype);
        n += pool(visit, user, &rows[4], FX_POOL_MAX_PICK, dtype);
    }
    for (int k = 0; k < 4; k++) {
        for (int kind = 0; kind <= FX_CONV_WEIGHT; kind++)
            n += conv(visit, user, &large[k], kind, FX_DTYPE_F32, NO_EPILOGUE);
        n += conv(visit, user, &large[k], FX_CONV_FORWARD, FX_DTYPE_BF16, BIAS);
        for (int kind = 0; k < 2 && kind <= FX_POOL_MAX_PICK; kind++)
            n += pool(visit, user, &large[k], kind, FX_DTYPE_F32);
    }
    return n;
}
