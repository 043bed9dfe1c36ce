/* gpu_row_divide.c: divides the elements of rows between the lanes of a group.
 *
 * A lane has packs of neighbouring elements, and the lanes of a team have neighbouring packs: pack
 * c of lane k is number c·lanes + k of the row. So the lanes of a warp load and store memory
 * without gaps, each 16 bytes at once. A row that is short enough is kept in registers, by as few
 * lanes as possible, because lanes of one warp exchange values without a barrier and the exchange
 * is shared by more elements; but by more lanes if the device would be idle.
 */
#include "gpu_row.h"

#include <string.h>

/* Half of the registers that a work-item may have are left to the program and to accumulators. The
 * text has a copy of the program for every element, so more than MOST of them would leave the
 * caches of instructions, and take long to compile. */
enum {
    KEPT = 96,    /* registers for all elements of a lane that keeps them, at most */
    LONG = 40,    /* the same for Float64, whose functions need more registers */
    USUAL = 16,   /* elements of a lane that keeps them, if a row has the lanes of several warps */
    MOST = 32,    /* the same if a row has lanes of one warp */
    OF_WARP = 80, /* registers for all elements, in that case */
    LOOP = 32     /* registers for the elements that a lane loads at a time in a loop */
};

static int words(int dtype)
{
    return dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_I64 ? 2 : 1;
}

/* Are all of these strides (of one pattern) multiples of a pack, and is the first one 1? Then every
 * pack is aligned if the first element of the tensor is. */
static bool is_aligned(const fxi_gpu_walk *w, int pattern, bool dense, int pack)
{
    bool good = !dense || (w->nd > 0 && w->stride[pattern][0] == 1);
    for (int d = dense; d < w->nd; d++)
        good &= w->stride[pattern][d] % pack == 0;
    return good;
}

/* Are packs of that many elements neighbours in memory, at a multiple of the pack from the first
 * element of every operand and output? */
static bool is_whole(const fxi_gpu_rows *r, int pack)
{
    bool good = r->inner.nd > 0 && r->inner.shape[0] % pack == 0 && r->piece % pack == 0;
    for (int k = 0; k < r->step->nin; k++)
        if (r->loaded[k] >= 0)
            good &= is_aligned(&r->inner, r->loaded[k], true, pack) &&
                    is_aligned(&r->outer, r->loaded[k], false, pack);
    if (r->out_pattern >= 0)
        good &= is_aligned(&r->inner, r->out_pattern, true, pack) &&
                is_aligned(&r->outer, r->out_pattern, false, pack);
    return good;
}

/* Chooses the elements of a pack: as many as a vector has of the narrowest operand, or half of them
 * if only those divide the rows. */
static void choose_pack(const fxi_gpu_builder *b, fxi_gpu_rows *r)
{
    fxi_gpu_packs packs = {.in = r->step->in, .n = r->step->nin, .pattern = r->loaded};
    fxi_gpu_packs_divide(b, &packs, &r->inner, 0);
    r->elements = packs.elements;
    r->packs = 1;
    for (int half = 1; half <= 2 && !r->whole; half++)
        if (packs.elements / half > 1 && is_whole(r, packs.elements / half)) {
            r->whole = true;
            r->elements = packs.elements / half;
        }
}

/* The half registers that an element needs: in packs, 16-bit operands share a register. */
static int halves(const fxi_gpu_rows *r)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    int n = 0;
    for (int k = 0; k < r->step->nin; k++)
        if (r->loaded[k] >= 0)
            n += r->whole && fxi_gpu_types[r->step->in[k].dtype].size <= 2
                     ? 1
                     : 2 * words(r->step->in[k].dtype);
    for (int k = 0; k < p->n; k++)
        if (r->kept[r->step->nin + k])
            n += 2 * words(p->instr[k].dtype);
    return n;
}

/* A power of two, because a tree of lanes needs one: some lanes may have no elements. */
static int32_t lanes_for(int64_t elements, int64_t each)
{
    return fxi_gpu_power((elements + each - 1) / each);
}

/* The lanes of a row that is kept: those of one warp if its elements fit there, otherwise so many
 * that each lane has about USUAL elements. A device with few rows is not busy, so the row gets more
 * lanes. Their number depends on the number of rows only roughly, which keeps the number of texts
 * small. */
static int32_t choose_lanes(const fxi_gpu_builder *b, const fxi_gpu_rows *r, int each)
{
    const int warp = fxi_gpu_warp(b) > 0 ? fxi_gpu_warp(b) : 32;
    const int64_t length = r->elements_of_row, busy = (int64_t)b->limits->units * 1024;
    const int in_warp = 2 * OF_WARP / each < MOST ? 2 * OF_WARP / each : MOST;
    int32_t lanes = INT32_MAX; /* not even one pack fits */
    if (in_warp >= r->elements)
        lanes = lanes_for(length, in_warp / r->elements * r->elements);
    if (lanes > warp)
        lanes = lanes_for(length, r->elements > USUAL ? r->elements : USUAL);
    while (lanes < FXI_GPU_GROUP && lanes * (int64_t)r->elements < length &&
           2 * r->count * lanes <= busy)
        lanes *= 2;
    return lanes;
}

void fxi_gpu_row_divide(const fxi_gpu_builder *b, fxi_gpu_rows *r)
{
    const fx_row_step *own = fx_step_row(r->step);
    choose_pack(b, r);
    const int each = halves(r);
    /* Neighbouring work-items read neighbouring columns, 32 of them if there are as many. */
    int64_t columns = 1;
    for (int d = 0; d < own->column_axes; d++)
        columns *= own->space.shape[d];
    const int32_t most = FXI_GPU_GROUP / fxi_gpu_power(columns < 32 ? columns : 32);
    r->lanes.columns = own->column_axes > 0;
    r->lanes.lanes = lanes_for(r->elements_of_row, r->elements);
    if (!r->lanes.columns && !b->limits->serial && each > 0)
        r->lanes.lanes = choose_lanes(b, r, each);
    r->lanes.lanes = r->lanes.lanes < most ? r->lanes.lanes : most;
    const int64_t at_once = (int64_t)r->lanes.lanes * r->elements,
                  packs = (r->elements_of_row + at_once - 1) / at_once;
    /* If elements need no registers (each is 0), the limit of registers would allow all packs of a
     * long row in the text. */
    const int most_kept = r->step->out.dtype == FX_DTYPE_F64 ? LONG : KEPT;
    r->keeps = r->pieces == 0 && !b->limits->serial && each > 0 &&
               packs * r->elements * each <= 2 * most_kept;
    if (r->keeps) {
        r->packs = (int)packs;
        return;
    }
    /* Later passes load again, usually from a cache, and compute again. */
    memset(r->kept, 0, sizeof r->kept);
    /* At least four elements for each lane. */
    r->lanes.lanes =
        lanes_for(r->pieces > 0 ? r->piece : r->elements_of_row, r->elements > 4 ? r->elements : 4);
    r->lanes.lanes = r->lanes.lanes < most ? r->lanes.lanes : most;
    /* Two packs have more loads in flight and share what is computed once for all elements. */
    if (r->whole && 2 * r->elements * each <= 2 * LOOP &&
        (r->pieces > 0 ? r->piece : r->elements_of_row) >= 2 * at_once)
        r->packs = 2;
}
