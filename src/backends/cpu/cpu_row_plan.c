/* cpu_row_plan.c: prepares row steps: decides once, with the plan, which loops run and where values
 * are kept.
 *
 * An operand is read directly in its memory if it is dense, or one dense row for all rows, or one
 * value a row, or one number; others are gathered for one block at a time. The result of an
 * instruction on elements is computed in its output's memory if it has one, else in scratch: one
 * tile if a single pass uses it, a whole block if later passes need it. Scratch is reused after the
 * last read of its value. Memory of a block is reused only for elements of the same size: with
 * another size, one tile would overwrite elements of other tiles that are still needed. A value of
 * the row that elements need is read as one number if tiles are parts of rows and the operation has
 * a loop for that; else it is spread over a tile.
 */
#include "cpu_parallel.h"
#include "cpu_row.h"
#include "cpu_row_divide.h"
#include "cpu_task.h"
#include "memory.h"
#include <string.h>

enum {
    NOWHERE = -1,
    MAX_REGISTERS = 128,
};

/* Where a register's value is: as elements, as values of a block's rows or of stretches, or as one
 * number. */
typedef struct register_location {
    int16_t elements, values, stretches, one;
    int16_t spread, spread_pass; /* a row's value repeated as elements, filled in this pass */
    int16_t last_use, last_pass;
    int16_t chosen; /* the task of a choice that is computed by its only reader */
    uint8_t dtype;
    bool row; /* one value a row */
} register_location;

typedef struct builder {
    const fx_step *step;
    const fx_row_step *row; /* of the step */
    const fxi_simd *simd;
    fxi_row_plan *p;
    int nregs, ntasks, pass, nspreads, nfills;
    fxi_cpu_task tasks[MAX_REGISTERS];
    register_location regs[MAX_REGISTERS];
    fxi_row_scratch scratch;
    uint8_t size[FXI_ROW_LOCATIONS]; /* of a block's elements, else 0 */
    bool busy[FXI_ROW_LOCATIONS];
    fx_status status;
} builder;

static bool half(int dtype)
{
    return fxi_cpu_is_half(dtype);
}

/* ---- locations and calls --------------------------------------------------------------------- */

/* Returns a free location of scratch of the same use and size, or a new one. */
static int16_t take_sized(builder *m, fxi_scratch_use kind, size_t size)
{
    /* The first locations are the operands and outputs. */
    int k = m->step->nin + m->p->nout;
    while (k < m->p->nlocations && (m->busy[k] || m->scratch.use[k] != kind || m->size[k] != size))
        k++;
    /* More locations than the table of a run has. The limits of the planner keep row steps below
     * it. */
    if (k == FXI_ROW_LOCATIONS) {
        m->status = FX_STATUS_INTERNAL;
        return 0;
    }
    m->scratch.use[k] = (uint8_t)kind;
    m->size[k] = (uint8_t)size;
    m->busy[k] = true;
    return (int16_t)k;
}

static int16_t take(builder *m, fxi_scratch_use kind)
{
    const int16_t k = take_sized(m, kind, 0);
    m->p->nlocations = k >= m->p->nlocations ? k + 1 : m->p->nlocations;
    return k;
}

/* Elements that are kept for a whole block: their location advances with the tiles. */
static int16_t take_block(builder *m, int dtype)
{
    const uint8_t size = (uint8_t)fxi_cpu_register_size(dtype);
    const int16_t k = take_sized(m, FXI_SCRATCH_BLOCK, size);
    if (k < m->p->nlocations)
        return k;
    m->p->nlocations = k + 1;
    /* A location that is used again is in the list already (above). */
    m->p->movers[m->p->nmovers++] = (fxi_row_link){k, k, size};
    return k;
}

static fxi_row_call *add_call(builder *m, fxi_tile_fn loop, int to, int from)
{
    fxi_row_call *c = &m->p->calls[m->p->ncalls++];
    *c = (fxi_row_call){.loop = loop, .to = (int16_t)to, .src = {(int16_t)from, 0, 0}};
    return c;
}

/* The output's location if register r is an output, else NOWHERE. */
static int location_of_output(const builder *m, int r)
{
    if (m->row->out_reg == r)
        return m->step->nin;
    for (int k = 0; k < m->row->more.n; k++)
        if (m->row->more.reg[k] == r)
            return m->step->nin + 1 + k;
    return NOWHERE;
}

/* Notes the size of a register of elements; the widest one decides how long tiles may be. */
static void widen(builder *m, int dtype)
{
    m->scratch.width = fxi_cpu_register_size(dtype) > m->scratch.width
                           ? fxi_cpu_register_size(dtype)
                           : m->scratch.width;
}

/* Unlike in the interpreter, outputs need no last use: one that is not computed in its own memory
 * is stored directly after its instruction (add_element_call). */
static void find_last_uses(builder *m)
{
    for (int k = 0; k < m->ntasks; k++) {
        const fxi_cpu_task *t = &m->tasks[k];
        for (int i = 0; i < t->nreads; i++) {
            m->regs[t->reads[i]].last_use = (int16_t)k;
            m->regs[t->reads[i]].last_pass = t->ins->pass;
        }
        /* Values of rows and sums across rows are not elements: they need no tile. A value that is
         * spread over elements is counted in elements_of. */
        if (!t->ins->row && t->ins->op != FX_OP_REDUCE)
            widen(m, t->ins->dtype);
    }
}

/* ---- operands -------------------------------------------------------------------------------- */

/* t with the axes of a row moved to before the kept ones. */
static fx_tensor rows_first(const builder *m, const fx_tensor *t)
{
    fx_tensor by_rows = *t;
    int n = 0;
    for (int rows = 1; rows >= 0; rows--)
        for (int a = 0; a < t->ndim; a++)
            if (fx_row_has_axis(m->row, a) == rows) {
                by_rows.shape[n] = t->shape[a];
                by_rows.stride[n++] = t->stride[a];
            }
    return by_rows;
}

/* The tensor of axes first … first+n−1 alone. */
static fx_tensor axes_of(const fx_tensor *t, int first, int n)
{
    fx_tensor part = {.dtype = t->dtype, .ndim = (uint8_t)n};
    memcpy(part.shape, t->shape + first, (size_t)n * sizeof *part.shape);
    memcpy(part.stride, t->stride + first, (size_t)n * sizeof *part.stride);
    return part;
}

static int16_t load_operand(builder *m, int k, const fx_tensor *t, fxi_row_extent extent)
{
    fxi_row_load *l = &m->p->loads[m->p->nloads++];
    *l = (fxi_row_load){.in = (int16_t)k, .dtype = t->dtype, .extent = (uint8_t)extent};
    fxi_walk_init(&l->walk, t->ndim, t->shape, t->stride);
    /* Elements are gathered for the whole block, because each pass reads them again. */
    l->to = extent == FXI_ROW_ELEMENTS    ? take_block(m, t->dtype)
            : extent == FXI_ROW_STRETCHES ? take(m, FXI_SCRATCH_STRETCHES)
                                          : take(m, FXI_SCRATCH_ROWS);
    return l->to;
}

/* An operand with one value for each stretch of a row, such as the scale of a channel in a group
 * norm: its value is repeated in one tile, which all tiles of the stretch read. All these operands
 * of a step have stretches of the same length. Returns false for other operands. */
static bool assign_stretches(builder *m, int k, const fx_tensor *by_rows)
{
    fxi_row_plan *p = m->p;
    int axis = 0;
    int64_t length = 1;
    for (; axis < by_rows->ndim && (by_rows->stride[axis] == 0 || by_rows->shape[axis] == 1);
         axis++)
        length *= by_rows->shape[axis];
    if (p->columns || p->piece < p->inner || length < FXI_TILE || length >= p->inner ||
        (p->stretch < p->piece && p->stretch != length))
        return false;
    p->stretch = length;
    const fx_tensor values = axes_of(by_rows, axis, by_rows->ndim - axis);
    m->regs[k].stretches = load_operand(m, k, &values, FXI_ROW_STRETCHES);
    return true;
}

static void assign_row_operand(builder *m, int k, const fx_tensor *outer)
{
    m->regs[k].row = true;
    /* Dense values of rows are read in their own memory, one element for each row. */
    if (half(outer->dtype) || !fxi_is_dense(outer->ndim, outer->shape, outer->stride)) {
        m->regs[k].values = load_operand(m, k, outer, FXI_ROW_VALUES);
        return;
    }
    /* The operand is its own location. */
    m->regs[k].values = (int16_t)k;
    m->p->offset[k] = (int64_t)fxi_cpu_size(outer->dtype);
}

/* One dense row for all rows, such as the scale of a layer norm. Where a tile holds several rows,
 * the row is laid out once for each of them. */
static void assign_repeated_operand(builder *m, int k, uint8_t size)
{
    fxi_row_plan *p = m->p;
    if (p->tile_rows) {
        const int16_t to = take(m, FXI_SCRATCH_FILLED);
        p->laid[p->nlaid++] = (fxi_row_link){(int16_t)k, to, size};
        m->regs[k].elements = to;
        return;
    }
    const int16_t to = take(m, FXI_SCRATCH_NONE);
    p->repeated[p->nrepeated++] = (fxi_row_link){(int16_t)k, to, size};
    m->regs[k].elements = to;
}

/* The cheapest way of reading is chosen first: one number, one value a row, directly in memory, one
 * row for all rows. An operand is gathered, which copies it, only if no other way fits, or to
 * convert 16-bit elements. */
static void assign_operand(builder *m, int k)
{
    const fx_tensor *t = &m->step->in[k], by_rows = rows_first(m, t);
    const int axes = m->row->row_axes + m->row->outer_axes;
    const uint8_t size = (uint8_t)fxi_cpu_size(t->dtype);
    m->regs[k].dtype = t->dtype;
    if (fxi_cpu_is_scalar(t)) {
        m->regs[k].row = true;
        /* A 16-bit number is loaded, because it must be converted. */
        const fx_tensor one = {.dtype = t->dtype};
        m->regs[k].one = half(t->dtype) ? load_operand(m, k, &one, FXI_ROW_ONE) : (int16_t)k;
        return;
    }
    const fx_tensor inner = axes_of(&by_rows, 0, axes),
                    outer = axes_of(&by_rows, axes, t->ndim - axes);
    if (fxi_cpu_is_scalar(&inner)) {
        assign_row_operand(m, k, &outer);
        return;
    }
    widen(m, t->dtype);
    if (half(t->dtype) || !(fxi_is_dense(t->ndim, t->shape, t->stride) ||
                            (fxi_is_dense(inner.ndim, inner.shape, inner.stride) &&
                             fxi_cpu_is_scalar(&outer) && !m->p->columns))) {
        if (!assign_stretches(m, k, &by_rows))
            m->regs[k].elements =
                load_operand(m, k, m->p->columns ? t : &by_rows, FXI_ROW_ELEMENTS);
    } else if (fxi_is_dense(t->ndim, t->shape, t->stride)) {
        m->regs[k].elements = (int16_t)k;
        m->p->offset[k] = m->p->pitch * size;
        m->p->movers[m->p->nmovers++] = (fxi_row_link){(int16_t)k, (int16_t)k, size};
        m->p->ahead[m->p->nahead++] = (fxi_row_link){(int16_t)k, (int16_t)k, size};
    } else {
        assign_repeated_operand(m, k, size);
    }
}

/* ---- registers as instructions see them ------------------------------------------------------ */

/* One number in every element of a tile. The tile also serves as the values of rows, all equal. */
static int16_t splat_of(builder *m, int r)
{
    register_location *a = &m->regs[r];
    if (a->spread == NOWHERE) {
        m->scratch.splat = fxi_cpu_register_size(a->dtype) > m->scratch.splat
                               ? fxi_cpu_register_size(a->dtype)
                               : m->scratch.splat;
        a->spread = take(m, FXI_SCRATCH_SPLAT);
        m->p->splats[m->p->nsplats++] =
            (fxi_row_link){a->one, a->spread, (uint8_t)fxi_cpu_register_size(a->dtype)};
    }
    return a->spread;
}

/* Is it one number for all rows? A value of the row can have a location in `one` too (one_of). */
static bool is_one(const register_location *a)
{
    return a->values == NOWHERE && a->one != NOWHERE;
}

/* A single number serves instructions on values of rows as a tile of equal values. */
static int16_t values_of(builder *m, int r)
{
    return is_one(&m->regs[r]) ? splat_of(m, r) : m->regs[r].values;
}

/* The tile with the value of a stretch. Each pass that reads it fills it again. */
static int16_t filled_of(builder *m, register_location *a)
{
    if (a->spread == NOWHERE)
        a->spread = take(m, FXI_SCRATCH_FILLED);
    if (a->spread_pass != m->pass)
        m->p->fills[m->nfills++] =
            (fxi_row_link){a->stretches, a->spread, (uint8_t)fxi_cpu_register_size(a->dtype)};
    a->spread_pass = (int16_t)m->pass;
    return a->spread;
}

static int16_t elements_of(builder *m, int r)
{
    register_location *a = &m->regs[r];
    if (a->stretches != NOWHERE)
        return filled_of(m, a);
    /* Elements have a location already. */
    if (!a->row)
        return a->elements;
    if (is_one(a))
        return splat_of(m, r);
    /* A tile with one element of each column: the values are in the order of the elements. */
    if (m->p->columns && m->p->tile == m->p->block)
        return a->values;
    /* The tile is allocated once. Each pass that reads it fills it again: for every row or tile of
     * whole rows, and for columns once for each block. */
    if (a->spread == NOWHERE) {
        widen(m, a->dtype);
        a->spread = take(m, FXI_SCRATCH_FILLED);
    }
    /* Once for each pass, however many instructions read it. */
    if (a->spread_pass != m->pass)
        m->p->spreads[m->nspreads++] =
            (fxi_row_link){a->values, a->spread, (uint8_t)fxi_cpu_register_size(a->dtype)};
    a->spread_pass = (int16_t)m->pass;
    return a->spread;
}

/* The location of the current row's value, as a single number. Its address advances from row to row
 * (`ones`). */
static int16_t one_of(builder *m, int r)
{
    register_location *a = &m->regs[r];
    if (a->one == NOWHERE) {
        a->one = take(m, FXI_SCRATCH_NONE);
        m->p->ones[m->p->nones++] =
            (fxi_row_link){a->values, a->one, (uint8_t)fxi_cpu_register_size(a->dtype)};
    }
    return a->one;
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* As in the interpreter: 16-bit values are rounded after every instruction, fused or not. */
static void round_result(builder *m, const fx_instr *ins, int location)
{
    if (half(ins->dtype))
        add_call(m, m->simd->round[ins->dtype == FX_DTYPE_BF16], location, location);
}

/* Bits of the operands of a task that are the same for all elements of the call: a number that all
 * rows share, and, for an instruction on elements, a value of the row, unless a tile holds several
 * rows. */
static unsigned scalars_of(const builder *m, const fxi_cpu_task *t)
{
    unsigned scalars = 0;
    for (int i = 0; i < t->nreads; i++) {
        const register_location *a = &m->regs[t->reads[i]];
        scalars |= (unsigned)(a->row && (is_one(a) || !(t->ins->row || m->p->tile_rows))) << i;
    }
    return scalars;
}

/* Stores the locations that a task reads, and returns its loop. A loop takes some of the scalars as
 * single numbers (*out_ones). */
static fxi_tile_fn choose_loop(builder *m, const fxi_cpu_task *t, int16_t *out_src,
                               unsigned *out_ones)
{
    const fxi_tile_fn loop = fxi_cpu_task_loop(m->simd, t, scalars_of(m, t), out_ones);
    if (!loop)
        m->status = FX_STATUS_UNSUPPORTED;
    for (int i = 0; i < t->nreads; i++)
        out_src[i] = *out_ones >> i & 1 ? one_of(m, t->reads[i])
                     : t->ins->row      ? values_of(m, t->reads[i])
                                        : elements_of(m, t->reads[i]);
    return loop;
}

/* Adds a call on values of rows, one for the whole block. */
static void add_row_call(builder *m, int k)
{
    const fx_instr *ins = m->tasks[k].ins;
    register_location *to = &m->regs[m->tasks[k].result];
    const int out = location_of_output(m, m->tasks[k].result);
    int16_t src[3] = {0, 0, 0};
    unsigned ones;
    const fxi_tile_fn loop = choose_loop(m, &m->tasks[k], src, &ones);
    /* 16-bit values stay in Float32 while the block runs, and are rounded to memory at its end
     * (store_rows). */
    to->values = out >= 0 && !half(ins->dtype) ? (int16_t)out : take(m, FXI_SCRATCH_ROWS);
    fxi_row_call *c = add_call(m, loop, to->values, 0);
    c->attr = ins->attr;
    memcpy(c->src, src, sizeof c->src);
    round_result(m, ins, to->values);
}

/* Sums and squared deviations of the same elements, as a layer norm needs them, are read once: the
 * earlier of the two calls gives both results. Returns false if the pass has no call to join. The
 * search runs backwards, and a call that writes the tile ends it: earlier calls read other elements
 * there. */
static bool join_reduction(builder *m, const fxi_reducer *r, int16_t from, int16_t to)
{
    const fxi_reducer *sqdev = &m->simd->reduce[FX_REDUCE_SQDEV][FXI_C_F32];
    for (int32_t k = m->p->ncalls - 1; k >= m->p->passes[m->pass].elements; k--) {
        fxi_row_call *c = &m->p->calls[k];
        if (c->loop && c->to == from)
            return false;
        /* Only reductions of the same elements that have no partner yet. */
        if (c->loop || c->also || c->across || c->src[0] != from)
            continue;
        if (c->reducer == m->simd->sum_wide && r == sqdev) {
            /* The call becomes one of squared deviations, whose accumulators also give the sum. */
            c->src[2] = c->src[1];
            c->src[1] = to;
            c->size = sizeof(float);
        } else if (c->reducer == sqdev && r == m->simd->sum_wide) {
            c->src[2] = to;
        } else {
            continue;
        }
        c->reducer = sqdev;
        c->also = m->simd->sum_of_sqdev;
        c->also_size = sizeof(double);
        m->scratch.accumulator =
            sqdev->size > m->scratch.accumulator ? sqdev->size : m->scratch.accumulator;
        return true;
    }
    return false;
}

/* Reduces terms that no other instruction reads. The call computes them itself, but only where it
 * needs them. Their tile is free afterwards. */
static void add_masked_sum(builder *m, int k, int16_t to)
{
    const fx_instr *terms = m->tasks[k].first, *ins = m->tasks[k].ins;
    fxi_cpu_task of_terms = m->tasks[k];
    int16_t src[3] = {0, 0, 0};
    unsigned ones;
    of_terms.ins = terms;
    of_terms.first = NULL;
    const fxi_tile_fn loop = choose_loop(m, &of_terms, src, &ones);
    const int16_t tile = take(m, FXI_SCRATCH_TILE);
    fxi_row_call *c = add_call(m, NULL, take(m, FXI_SCRATCH_SUMS), tile);
    c->reducer = fxi_cpu_reducer(ins->attr, ins->from, ins->dtype);
    c->src[1] = to;
    c->in_size = (uint8_t)fxi_cpu_register_size(ins->from);
    c->size = (uint8_t)fxi_cpu_register_size(ins->dtype);
    c->terms = loop;
    memcpy(c->operands, src, sizeof c->operands);
    c->counts = terms->op == FX_OP_CAST;
    c->picks = terms->op == FX_OP_SELECT && loop == m->simd->mixed[FX_OP_SELECT][FXI_C_F32][0];
    m->scratch.accumulator =
        c->reducer->size > m->scratch.accumulator ? c->reducer->size : m->scratch.accumulator;
    m->busy[tile] = false;
}

/* The accumulators are scratch even if the result is an output: they are wider than the result,
 * such as Float64 sums of Float32. A 16-bit result is Float32 while the block runs, as other values
 * of rows are (add_row_call). */
static void add_reduction(builder *m, int k)
{
    const fx_instr *ins = m->tasks[k].ins;
    register_location *to = &m->regs[m->tasks[k].result];
    const int out = location_of_output(m, m->tasks[k].result);
    to->values = out >= 0 && !half(ins->dtype) ? (int16_t)out : take(m, FXI_SCRATCH_ROWS);
    if (m->tasks[k].first) {
        add_masked_sum(m, k, to->values);
        return;
    }
    const int16_t from = elements_of(m, ins->src[0]);
    const fxi_reducer *reducer = fxi_cpu_reducer(ins->attr, ins->from, ins->dtype);
    if (join_reduction(m, reducer, from, to->values))
        return;
    /* Each reduction has accumulators of its own, because they hold sums from tile to tile. */
    fxi_row_call *c = add_call(m, NULL, take(m, FXI_SCRATCH_SUMS), from);
    c->reducer = reducer;
    c->src[1] = to->values;
    c->in_size = (uint8_t)fxi_cpu_register_size(ins->from);
    c->size = (uint8_t)fxi_cpu_register_size(ins->dtype);
    m->scratch.accumulator =
        c->reducer->size > m->scratch.accumulator ? c->reducer->size : m->scratch.accumulator;
}

/* A sum across rows: its accumulators last for a part (run_part). */
static void add_sum(builder *m, int k)
{
    fxi_row_plan *p = m->p;
    const fx_instr *ins = m->tasks[k].ins;
    const int out = location_of_output(m, m->tasks[k].result);
    /* The planner makes only sums that are outputs. */
    if (out < 0 || p->nsums == FXI_ROW_SUMS_MOST) {
        m->status = FX_STATUS_INTERNAL;
        return;
    }
    fxi_row_sum *sum = &p->sums[p->nsums++];
    *sum = (fxi_row_sum){.reducer = fxi_cpu_reducer(ins->attr, ins->from, ins->dtype),
                         .at = p->sums_bytes,
                         .out = (int16_t)(out - m->step->nin),
                         .dtype = ins->dtype};
    p->sums_bytes +=
        fxi_cpu_round_up(p->groups * p->width * (int64_t)sum->reducer->size, sizeof(double) * 8);
    fxi_row_call *c = add_call(m, NULL, 0, elements_of(m, ins->src[0]));
    c->reducer = sum->reducer;
    c->across = (uint8_t)p->nsums;
    c->in_size = (uint8_t)fxi_cpu_register_size(ins->from);
}

/* Frees the tiles of operands that task k reads last and whose elements have `size` (same), or have
 * another size (not same). */
static void release_tiles(builder *m, int k, size_t size, bool same)
{
    const fxi_cpu_task *t = &m->tasks[k];
    for (int i = 0; i < t->nreads; i++) {
        const register_location *a = &m->regs[t->reads[i]];
        /* Operands of the step are read in their own memory, and values of rows are small: neither
         * is freed. */
        if (!a->row && t->reads[i] >= m->step->nin &&
            m->scratch.use[a->elements] != FXI_SCRATCH_NONE && a->last_use == k &&
            (fxi_cpu_register_size(a->dtype) == size) == same)
            m->busy[a->elements] = false;
    }
}

void fxi_row_stream(void *d, const void *const *s, int n, int64_t size)
{
    fxi_cpu_simd()->stream(d, s[0], (size_t)n * (size_t)size);
}

/* The call that stores an output which cannot be computed directly in its memory: 16-bit elements,
 * and outputs so large that they bypass the cache. NULL: no call is needed. */
static fxi_tile_fn store_of(const builder *m, int dtype)
{
    if (half(dtype))
        return m->simd->store[dtype == FX_DTYPE_BF16];
    if (m->p->columns) /* in short pieces, which may share cache lines */
        return NULL;
    const int64_t bytes = m->p->inner * m->p->rows * (int64_t)fxi_cpu_size(dtype);
    return bytes >= FXI_STREAM_BYTES ? fxi_row_stream : NULL;
}

/* Chooses where task k stores its elements. A loop may work in place if its operand's elements have
 * the result's size: those tiles are freed before the result takes one. */
static void assign_elements(builder *m, int k)
{
    const int r = m->tasks[k].result, out = location_of_output(m, r);
    register_location *to = &m->regs[r];
    const size_t size = fxi_cpu_register_size(to->dtype);
    release_tiles(m, k, size, true);
    if (out >= 0 && !store_of(m, to->dtype))
        to->elements = (int16_t)out;
    /* A later pass reads it, so it must be kept for all tiles of the block. */
    else if (to->last_pass > m->pass)
        to->elements = take_block(m, to->dtype);
    else
        to->elements = take(m, FXI_SCRATCH_TILE);
    release_tiles(m, k, size, false);
}

/* The only task that reads the result of task k; NOWHERE if there are several. */
static int only_reader(const builder *m, int k)
{
    int reader = NOWHERE;
    for (int j = k + 1; j < m->ntasks; j++)
        for (int i = 0; i < m->tasks[j].nreads; i++) {
            if (m->tasks[j].reads[i] != m->tasks[k].result)
                continue;
            if (reader != NOWHERE)
                return NOWHERE;
            reader = j;
        }
    return reader;
}

/* Is task k a choice of two numbers whose only reader may compute it (fxi_row_call.sparse)? The
 * mask must be an operand of the step: the memory of a computed mask might be reused before the
 * reader runs. All other elements that the reader reads and writes have the size of a Float32. */
static bool is_choice(const builder *m, int k)
{
    enum { NUMBERS = 2 | 4 };
    const fxi_cpu_task *t = &m->tasks[k];
    if (t->ins->op != FX_OP_SELECT || t->ins->dtype != FX_DTYPE_F32 || t->ins->row ||
        t->reads[0] >= m->step->nin || location_of_output(m, t->result) != NOWHERE)
        return false;
    const int reader = only_reader(m, k);
    const fx_instr *ins = reader == NOWHERE ? NULL : m->tasks[reader].ins;
    return ins && ins->op != FX_OP_REDUCE && ins->op != FX_OP_SELECT && !ins->row &&
           ins->pass == t->ins->pass && ins->dtype == FX_DTYPE_F32 && ins->from == FX_DTYPE_F32 &&
           (scalars_of(m, t) & NUMBERS) == NUMBERS;
}

static void add_element_call(builder *m, int k);

/* The operand of task t that is a choice which the call of t computes; NOWHERE if there is none.
 * There must be a loop that takes it as a single number, and the other operands as the loop of t
 * does. Other choices become calls of their own. */
static int find_choice(builder *m, const fxi_cpu_task *t)
{
    int choice = NOWHERE;
    for (int i = 0; i < t->nreads; i++) {
        register_location *a = &m->regs[t->reads[i]];
        const int task = a->chosen;
        unsigned ones, more;
        if (task == NOWHERE)
            continue;
        fxi_cpu_task_loop(m->simd, t, scalars_of(m, t), &ones);
        fxi_cpu_task_loop(m->simd, t, scalars_of(m, t) | 1u << i, &more);
        if (choice == NOWHERE && more == (ones | 1u << i)) {
            assign_elements(m, task);
            choice = i;
        } else {
            add_element_call(m, task);
        }
    }
    return choice;
}

/* Call c of task t computes the choice that is its operand number `choice`. */
static void add_choice(builder *m, fxi_row_call *c, const fxi_cpu_task *t, int choice)
{
    unsigned ones;
    c->choice = (uint8_t)choice;
    c->sparse = fxi_cpu_task_loop(m->simd, t, scalars_of(m, t) | 1u << choice, &ones);
    c->terms = choose_loop(m, &m->tasks[m->regs[t->reads[choice]].chosen], c->operands, &ones);
}

static void add_element_call(builder *m, int k)
{
    const fxi_cpu_task *t = &m->tasks[k];
    const fx_instr *ins = t->ins;
    const int out = location_of_output(m, t->result);
    const int choice = find_choice(m, t);
    int16_t src[3] = {0, 0, 0};
    unsigned ones;
    const fxi_tile_fn loop = choose_loop(m, t, src, &ones);
    assign_elements(m, k);
    const register_location *to = &m->regs[t->result];
    fxi_row_call *c = add_call(m, loop, to->elements, 0);
    c->attr = ins->attr;
    c->ones = (uint8_t)ones;
    memcpy(c->src, src, sizeof c->src);
    if (choice != NOWHERE)
        add_choice(m, c, t, choice);
    round_result(m, ins, to->elements);
    const fxi_tile_fn store = store_of(m, ins->dtype);
    /* Computed directly in the memory of the output, or not an output. */
    if (out < 0 || !store)
        return;
    add_call(m, store, out, to->elements)->attr = (int64_t)fxi_cpu_size(ins->dtype);
    /* The part then ends with stream_end. */
    m->p->streams |= store == fxi_row_stream;
}

/* The kind of a task decides how often it is called: once for a block (values of rows), or once for
 * each tile (elements, reductions). */
static void add_task(builder *m, int k)
{
    const fx_instr *ins = m->tasks[k].ins;
    register_location *to = &m->regs[m->tasks[k].result];
    to->dtype = ins->dtype;
    to->row = ins->row;
    if (ins->op == FX_OP_REDUCE)
        (ins->row ? add_reduction : add_sum)(m, k);
    else if (is_choice(m, k))
        to->chosen = (int16_t)k;
    else
        (ins->row ? add_row_call : add_element_call)(m, k);
}

/* Rounds the 16-bit results of the reductions of the previous pass. They are complete for all rows
 * of the block only now. Those of the last pass are rounded as they are stored (store_rows). */
static void round_reductions(builder *m)
{
    const fx_program *q = &m->row->program;
    for (int k = 0; k < q->n; k++)
        if (q->instr[k].op == FX_OP_REDUCE && q->instr[k].row && q->instr[k].pass + 1 == m->pass)
            round_result(m, &q->instr[k], m->regs[m->step->nin + k].values);
}

/* In each pass the values of rows are computed before the elements: they need only reductions of
 * earlier passes, and the elements of this pass read them. */
static void add_passes(builder *m)
{
    fxi_row_plan *p = m->p;
    for (int k = 0; k < m->ntasks; m->pass++) {
        fxi_row_pass *pass = &p->passes[m->pass];
        pass->first = p->ncalls;
        round_reductions(m);
        /* The planner has ordered the instructions by pass, values of rows first (lower_row.c). */
        for (; k < m->ntasks && m->tasks[k].ins->pass == m->pass && m->tasks[k].ins->row &&
               m->tasks[k].ins->op != FX_OP_REDUCE;
             k++)
            add_task(m, k);
        pass->elements = p->ncalls;
        for (; k < m->ntasks && m->tasks[k].ins->pass == m->pass; k++)
            add_task(m, k);
        pass->last = p->ncalls;
        pass->spreads = m->nspreads;
        pass->fills = m->nfills;
    }
    p->npasses = m->pass;
}

/* 16-bit values of rows are rounded to memory when the block is done. */
static void store_rows(builder *m)
{
    for (int r = m->step->nin; r < m->nregs; r++) {
        const register_location *a = &m->regs[r];
        const int out = location_of_output(m, r);
        /* Other values of rows are computed in the memory of their output. */
        if (out >= 0 && a->row && half(a->dtype))
            add_call(m, m->simd->store[a->dtype == FX_DTYPE_BF16], out, a->values);
    }
}

/* Outputs of elements advance with the tiles, outputs of rows with the blocks. */
static void assign_outputs(builder *m)
{
    fxi_row_plan *p = m->p;
    for (int k = 0; k < m->row->program.n; k++) {
        const fx_instr *ins = &m->row->program.instr[k];
        const int out = location_of_output(m, m->step->nin + k);
        const uint8_t size = (uint8_t)fxi_cpu_size(ins->dtype);
        /* Sums across rows are stored after all rows. */
        if (out < 0 || (ins->op == FX_OP_REDUCE && !ins->row))
            continue;
        p->offset[out] = ins->row ? size : p->pitch * size;
        if (ins->row)
            continue;
        const fxi_row_link link = {(int16_t)out, (int16_t)out, size};
        p->movers[p->nmovers++] = link;
        /* A store to memory that is not in the cache reads the rest of its line first. */
        if (!store_of(m, ins->dtype))
            p->ahead[p->nahead++] = link;
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* One allocation holds the plan and its lists. A register may be in `spreads` or `fills` once for
 * every pass, and in each of the other lists once. */
static fxi_row_plan *allocate(const fx_step *s)
{
    const fx_row_step *row = fx_step_row(s);
    const size_t links = (size_t)(s->nin + row->program.n + 1 + row->more.n);
    /* An instruction needs at most three calls: its loop, the rounding to 16 bits, and a store. */
    const size_t calls = 3 * (size_t)row->program.n + 8;
    fxi_row_plan *p =
        fxi_calloc(1, sizeof *p + FXI_ROW_LOCATIONS * sizeof *p->offset + calls * sizeof *p->calls +
                          (size_t)s->nin * sizeof *p->loads +
                          (6 + 2 * FXI_ROW_PASSES_MOST) * links * sizeof(fxi_row_link));
    if (!p)
        return NULL;
    p->offset = (int64_t *)(p + 1);
    p->calls = (fxi_row_call *)(void *)(p->offset + FXI_ROW_LOCATIONS);
    p->loads = (fxi_row_load *)(void *)(p->calls + calls);
    fxi_row_link *next = (fxi_row_link *)(void *)(p->loads + s->nin);
    fxi_row_link **const lists[] = {&p->splats,   &p->laid, &p->movers, &p->ahead,
                                    &p->repeated, &p->ones, &p->spreads};
    for (int k = 0; k < 7; k++, next += links)
        *lists[k] = next;
    p->fills = p->spreads + FXI_ROW_PASSES_MOST * links;
    p->nin = s->nin;
    p->nout = 1 + row->more.n;
    p->nlocations = p->nin + p->nout;
    return p;
}

fx_status fxi_row_plan_make(const fx_step *step, fxi_row_plan **out_plan)
{
    const fx_row_step *row = fx_step_row(step);
    builder m = {.step = step,
                 .row = row,
                 .simd = fxi_cpu_simd(),
                 .nregs = step->nin + row->program.n,
                 .scratch = {.width = 4},
                 .status = FX_OK};
    *out_plan = NULL;
    /* More than the planner makes (row.h: 24 inputs and 72 instructions). */
    if (m.nregs > MAX_REGISTERS)
        return FX_STATUS_INTERNAL;
    fxi_row_plan *p = m.p = allocate(step);
    if (!p)
        return FX_STATUS_MEMORY;
    fxi_row_set_rows(p, step);
    for (int r = 0; r < m.nregs; r++)
        m.regs[r] = (register_location){NOWHERE,
                                        NOWHERE,
                                        NOWHERE,
                                        NOWHERE,
                                        NOWHERE,
                                        NOWHERE,
                                        .last_use = NOWHERE,
                                        .last_pass = NOWHERE,
                                        .chosen = NOWHERE};
    bool kept[FXI_TASK_REGISTERS] = {false};
    for (int r = step->nin; r < m.nregs; r++)
        kept[r] = location_of_output(&m, r) >= 0;
    m.ntasks = fxi_cpu_tasks(&row->program, step->nin, kept, m.tasks);
    find_last_uses(&m);
    for (int k = 0; k < step->nin; k++)
        assign_operand(&m, k);
    assign_outputs(&m);
    add_passes(&m);
    store_rows(&m);
    if (m.status) {
        fxi_row_plan_free(p);
        return m.status;
    }
    fxi_row_divide(p, &m.scratch);
    fxi_row_fuse(p);
    *out_plan = p;
    return FX_OK;
}

void fxi_row_plan_free(fxi_row_plan *p)
{
    fxi_free(p);
}
