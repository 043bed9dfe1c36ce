/* gpu_conv_tile.c: chooses the tile and the slices of a convolution (conv_tiles.cl), from an
 * estimate of the time in multiply-add operations of one unit.
 *
 * A unit adds at its full rate with FULL work-items and no faster with more, so units are idle at
 * the end if the number of groups is not a multiple of those that run at the same time. Slices of
 * the terms make more and shorter groups, but their sums are written and read. */
#include "gpu_conv.h"

#include <stdlib.h>

enum { DEPTH = FXI_GPU_CONV_TILE_DEPTH, ROWS_EACH = 8 };
typedef fxi_gpu_contraction contraction;

/* `rate`: the share of products among a tile's instructions, relative to the first tile. No tile
 * has 256 work-items: with half of a unit's registers, such a group would spill. */
static const struct {
    fxi_gpu_conv_tile tile;
    double rate;
} tiles[] = {{{16, 8, 8}, 1}, {{24, 8, 8}, 1}, {{20, 8, 8}, 0.97}, {{16, 8, 4}, 0.65}};

enum {
    FULL = 256,           /* work-items */
    START = 6,            /* rounds that a group could compute in the time in which it begins and
                             ends */
    STORED = 32,          /* operations in the time in which an element of a slice is written and
                             read */
    LAUNCH = 500000,      /* operations of a unit in the time of a launch */
    SLICE_ROUNDS = 16,    /* of a slice, at least */
    SLICES_MOST = 1 << 26 /* sums of all slices: 256 MiB of Float32 */
};
/* Work-items with rows of their own (conv.cl) are slower than the first tile by this factor: they
 * load and test an element of the source for each term. */
static const double rows_factor = 4;

static int64_t magnitude(int64_t n)
{
    return n < 0 ? -n : n;
}

/* Are all positions below the limit of the words? */
static bool positions_fit(const contraction *c)
{
    for (int d = 0; d < 3; d++) {
#define ON(param) magnitude(c->v[3 * (param) + d])
        const int64_t reach = ON(FROM) + ON(ROWS) * ON(ROW_DISTANCE) +
                              ON(TAPS) * ON(TERM_DISTANCE) + ON(SIZE) + ON(STRIDE) +
                              ON(TAPS) * ON(DILATION);
#undef ON
        if (reach >= fxi_gpu_conv_far(c->axes))
            return false;
    }
    return true;
}

static int64_t phases_of(const contraction *c)
{
    int64_t n = c->groups;
    for (int d = 0; d < 3 && c->phased; d++)
        n *= c->v[3 * PHASES + d];
    return n;
}

typedef struct choice {
    int tile;
    int64_t slices;
    double cost;
} choice;

static int64_t items_of(int tile)
{
    return (int64_t)tiles[tile].tile.tx * tiles[tile].tile.ty;
}

/* Bytes of local memory of a group (conv_tiles.cl), with 32-bit positions. */
static int64_t memory_of(int tile)
{
    enum { PARITIES = 2, PAD = 4, WORDS_OF_TERMS = 6 };
    const fxi_gpu_conv_tile *t = &tiles[tile].tile;
    const int64_t rows = t->tx * ROWS_EACH + PAD, columns = t->ty * t->rn + PAD;
    return 4 * (PARITIES * DEPTH * (rows + columns) + WORDS_OF_TERMS * items_of(tile));
}

static bool fits(int tile, const fxi_gpu_limits *limits)
{
    return items_of(tile) % limits->warp == 0 &&
           (limits->group_memory <= 0 || memory_of(tile) <= limits->group_memory);
}

static int64_t row_tiles(const contraction *c, int tile)
{
    return fxi_gpu_divide_up(c->rows, (int64_t)tiles[tile].tile.tx * ROWS_EACH);
}

static int64_t column_tiles(const contraction *c, int tile)
{
    return fxi_gpu_divide_up(c->v[COLUMNS], (int64_t)tiles[tile].tile.ty * tiles[tile].tile.rn);
}

/* The groups of one slice. */
static int64_t groups_of(const contraction *c, int tile)
{
    return row_tiles(c, tile) * column_tiles(c, tile) * phases_of(c);
}

static double cost_of(const contraction *c, int tile, int64_t slices, int64_t units)
{
    const int64_t groups = groups_of(c, tile) * slices, least = FULL / items_of(tile);
    int64_t each = fxi_gpu_divide_up(groups, units);
    each = each > least ? each : least;
    const int64_t rounds = fxi_gpu_divide_up(c->terms, slices * DEPTH);
    const double products = (double)items_of(tile) * ROWS_EACH * tiles[tile].tile.rn * DEPTH,
                 sums = (double)(rounds + START) * products / tiles[tile].rate * (double)each;
    return slices == 1 ? sums
                       : sums + LAUNCH +
                             (double)STORED * (double)slices * (double)c->length / (double)units;
}

static choice cheapest(const contraction *c, const fxi_gpu_limits *limits)
{
    const int64_t units = limits->units > 0 ? limits->units : 1;
    const int64_t longest = c->terms / (SLICE_ROUNDS * DEPTH), largest = SLICES_MOST / c->length,
                  most = longest < largest ? longest : largest;
    choice best = {.slices = 1, .cost = -1};
    for (int t = 0; t < (int)(sizeof tiles / sizeof *tiles); t++) {
        if (!fits(t, limits))
            continue;
        /* Once the device is filled several times, further slices only cost the time of their
         * sums. */
        const int64_t one = groups_of(c, t);
        for (int64_t s = 1; s == 1 || (s <= most && s * one <= 16 * units); s++) {
            const double cost = cost_of(c, t, s, units);
            if (best.cost < 0 || cost < best.cost)
                best = (choice){t, s, cost};
        }
    }
    return best;
}

void fxi_gpu_conv_choose_tile(contraction *c, const fxi_gpu_limits *limits)
{
    const fx_step *s = c->step;
    const fx_conv_attr *a = &fx_step_conv(s)->attr;
    c->axes = a->spatial;
    c->by_rows = a->kind != FX_CONV_WEIGHT;
    if (limits->serial || c->type->size == 8 || c->terms < 4 * DEPTH || !positions_fit(c) ||
        (fxi_gpu_repairs(s) && !fxi_gpu_can_repair(s)))
        return;
    const choice best = cheapest(c, limits);
    if (best.cost < 0)
        return;
    const double rows =
        (double)c->rows * (double)c->v[COLUMNS] * (double)c->terms * (double)phases_of(c);
    if (best.cost > rows_factor * rows / limits->units)
        return;
    c->tile = &tiles[best.tile].tile;
    c->items = (int)items_of(best.tile);
    c->lanes = 1;
    c->each = ROWS_EACH;
    c->width = c->tile->rn;
    c->v[ROW_TILES] = row_tiles(c, best.tile);
    c->v[COLUMN_TILES] = column_tiles(c, best.tile);
    /* Whole rounds, so only the last slice has terms that do not exist; then there may be fewer
     * slices. */
    c->v[LENGTH] = fxi_gpu_divide_up(c->terms, best.slices * DEPTH) * DEPTH;
    c->v[SLICES] = fxi_gpu_divide_up(c->terms, c->v[LENGTH]);
    c->v[OUT_SLICE] = c->length;
}
