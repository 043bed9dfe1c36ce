/* cpu_row_fuse.c: finds calls of a row step that one loop computes (cpu_isa_fused.h).
 *
 * A call loads its operands from tiles and stores its result there, for one or two operations. In a
 * layer norm with its gradients, these loads and stores and the calls themselves were half of the
 * instructions. The sequences below are the elements of norms and of their gradients, the
 * exponentials of softmax and cross-entropy, and any sum or product whose result is then stored
 * past the caches. They are found in the finished list of calls and not in the program, because
 * that list knows which values are numbers and which results are stored. The calls stay in the
 * list: a loop that cannot compute a tile leaves it to them.
 *
 * Rejected: one loop that reads its operations from a list, for any sequence. It would need a jump
 * for each operation and a few vectors, and would keep few of them in registers. A layer norm and
 * its gradient are common enough for loops of their own, and other sequences still run as calls.
 * Also rejected: one loop for the whole pass of a gradient. The passes of a training step differ:
 * the forward step stores z, and the gradient reads it.
 */
#include "cpu_row.h"

enum { NOWHERE = -1 };

/* A search in one pass. Sequences end with the pass, because the next one needs complete rows. */
typedef struct finder {
    fxi_row_plan *p;
    const fxi_simd *simd;
    int32_t last; /* end of the pass */
} finder;

static const fxi_row_call *call_at(const finder *f, int32_t k)
{
    return &f->p->calls[k];
}

/* A call with a choice of two numbers (fxi_row_call.sparse) joins no sequence: it computes one of
 * its operands itself. */
static bool is_loop(const finder *f, int32_t k, fxi_tile_fn loop)
{
    return k < f->last && call_at(f, k)->loop == loop && !call_at(f, k)->sparse;
}

/* Is call k the sum of these elements, and nothing else? A Float64 result has other loops than a
 * Float32 result only at the end of a row, so the loop over elements is compared. */
static bool is_sum(const finder *f, int32_t k, int16_t of, bool across)
{
    const fxi_row_call *c = call_at(f, k);
    return k < f->last && !c->loop && !c->terms && !c->also && c->src[0] == of &&
           (c->across != 0) == across &&
           c->reducer->row == f->simd->reduce[FX_REDUCE_SUM][FXI_C_F32].row;
}

/* Of a call's two operands, the one that is not `known`; NOWHERE if both are, or neither is. */
static int16_t other(const fxi_row_call *c, int16_t known)
{
    if ((c->src[0] == known) == (c->src[1] == known))
        return NOWHERE;
    return c->src[c->src[0] == known];
}

/* Is it a tile whose elements no call from number k on reads? Unused operands name location 0, an
 * operand of the step. */
static bool is_dead(const finder *f, int32_t k, int16_t at)
{
    if (at < f->p->nin + f->p->nout)
        return false;
    for (int i = 0; i < f->p->nmovers; i++)
        if (f->p->movers[i].to == at)
            return false;
    for (; k < f->last; k++) {
        const fxi_row_call *c = call_at(f, k);
        for (int i = 0; i < 3; i++)
            if (c->src[i] == at || ((c->terms || c->sparse) && c->operands[i] == at))
                return false;
        if (c->loop && c->to == at)
            return true;
    }
    return true;
}

/* Does call k store the result of call k − 1 past the caches, and is that its only use? */
static bool is_streamed(const finder *f, int32_t k)
{
    const int16_t from = call_at(f, k - 1)->to;
    return is_loop(f, k, fxi_row_stream) && call_at(f, k)->src[0] == from &&
           is_dead(f, k + 1, from);
}

/* Ends a sequence with call k − 1. If call k stores the result past the caches, the sequence
 * includes call k: its loop stores the result itself, without a tile. */
static void end_with(const finder *f, int32_t first, int32_t k, fxi_row_fused *out)
{
    out->streams = is_streamed(f, k);
    out->calls = k + out->streams - first;
    out->at[0] = call_at(f, k - 1 + out->streams)->to;
}

/* The reduction for the mean and the variance of a row. In tiles of more than FXI_TILE_MOST
 * elements, the reducer fetches the elements of the same row. */
static bool find_deviations(const finder *f, int32_t k, fxi_row_fused *out)
{
    const fxi_row_call *c = call_at(f, k);
    if (c->loop || c->terms || c->across || f->p->tile > FXI_TILE_MOST ||
        c->reducer->row != f->simd->reduce[FX_REDUCE_SQDEV][FXI_C_F32].row)
        return false;
    *out = (fxi_row_fused){.kind = FXI_ROW_DEVIATIONS, .calls = 1, .at = {0, c->src[0], NOWHERE}};
    return true;
}

/* z = ((x − m) − e)·r, y = z·g + b. If another call reads z, as gradients do, z is an operand of
 * the sum and is stored. Otherwise the planner has made pairs that never store it. */
static bool find_norm(const finder *f, int32_t k, fxi_row_fused *out)
{
    const fxi_pair_loops *pairs = f->simd->pairs;
    if (!is_loop(f, k, pairs[FXI_PAIR_DIFFERENCE][FXI_PAIR_DIFFERENCE][FXI_PAIR_SECOND_ONE][1]))
        return false;
    const fxi_row_call *a = call_at(f, k), *b = a + 1, *c = a + 2;
    int16_t scale, shift, kept = NOWHERE;
    if (is_loop(f, k + 1, pairs[FXI_PAIR_PRODUCT][FXI_PAIR_PRODUCT][FXI_PAIR_SECOND_ONE][0]) &&
        is_loop(f, k + 2, f->simd->ops[FX_OP_ADD][FXI_C_F32])) {
        scale = b->src[2];
        shift = other(c, b->to);
    } else if (is_loop(f, k + 1, f->simd->mixed[FX_OP_MUL][FXI_C_F32][0]) &&
               is_loop(f, k + 2, pairs[FXI_PAIR_PRODUCT][FXI_PAIR_SUM][FXI_PAIR_VECTORS][0])) {
        scale = other(c, b->to);
        shift = c->src[2];
        kept = c->to == b->to || is_dead(f, k + 3, b->to) ? NOWHERE : b->to;
    } else {
        return false;
    }
    if (b->src[0] != a->to || scale == NOWHERE || shift == NOWHERE || scale == a->to ||
        shift == a->to || shift == b->to)
        return false;
    if (a->to != b->to && a->to != c->to && !is_dead(f, k + 3, a->to))
        return false;
    if (kept == NOWHERE && b->to != c->to && !is_dead(f, k + 3, b->to))
        return false;
    *out =
        (fxi_row_fused){.kind = FXI_ROW_NORM,
                        .at = {0, a->src[0], a->src[1], a->src[2], b->src[1], scale, shift, kept}};
    end_with(f, k, k + 3, out);
    return true;
}

/* y = ((x − c)·k + v) + s: the last pass of the gradient of a norm. */
static bool find_shift(const finder *f, int32_t k, fxi_row_fused *out)
{
    const fxi_pair_loops *pairs = f->simd->pairs;
    if (!is_loop(f, k, pairs[FXI_PAIR_DIFFERENCE][FXI_PAIR_PRODUCT][FXI_PAIR_SECOND_ONE][1]) ||
        !is_loop(f, k + 1, pairs[FXI_PAIR_SUM][FXI_PAIR_SUM][FXI_PAIR_VECTORS][1]))
        return false;
    const fxi_row_call *a = call_at(f, k), *b = a + 1;
    const int16_t v = other(b, a->to);
    if (v == NOWHERE || (a->to != b->to && !is_dead(f, k + 2, a->to)))
        return false;
    *out = (fxi_row_fused){.kind = FXI_ROW_SHIFT,
                           .at = {0, a->src[0], a->src[1], a->src[2], b->src[2], v}};
    end_with(f, k, k + 2, out);
    return true;
}

/* d = x − m, e = exp(d): softmax, cross-entropy. Other calls may read d. */
static bool find_exponentials(const finder *f, int32_t k, fxi_row_fused *out)
{
    if (!f->simd->fused->exponentials || !is_loop(f, k, f->simd->mixed[FX_OP_SUB][FXI_C_F32][0]) ||
        !is_loop(f, k + 1, f->simd->ops[FX_OP_EXP][FXI_C_F32]))
        return false;
    const fxi_row_call *a = call_at(f, k), *b = a + 1;
    if (b->src[0] != a->to)
        return false;
    const bool reads_d = a->to != b->to && !is_dead(f, k + 2, a->to);
    *out =
        (fxi_row_fused){.kind = FXI_ROW_EXPONENTIALS,
                        .calls = 2,
                        .at = {b->to, a->src[0], a->src[1], reads_d ? a->to : NOWHERE, a->src[0]}};
    return true;
}

/* u = x·g, Σ u·z, v = u·r, Σ v: the two sums that the gradient of a norm needs of each row. u is
 * not stored, and v is, because the next pass reads it. */
static bool find_dots(const finder *f, int32_t k, fxi_row_fused *out)
{
    const fxi_tile_fn product = f->simd->ops[FX_OP_MUL][FXI_C_F32];
    if (!is_loop(f, k, product) || !is_loop(f, k + 1, product) ||
        !is_loop(f, k + 3, f->simd->mixed[FX_OP_MUL][FXI_C_F32][0]))
        return false;
    const fxi_row_call *a = call_at(f, k), *b = a + 1, *c = a + 2, *d = a + 3, *e = a + 4;
    const int16_t z = other(b, a->to);
    if (z == NOWHERE || b->to == a->to || d->src[0] != a->to || !is_sum(f, k + 2, b->to, false) ||
        !is_sum(f, k + 4, d->to, false) || (d->to != a->to && !is_dead(f, k + 5, a->to)) ||
        (d->to != b->to && !is_dead(f, k + 5, b->to)))
        return false;
    *out =
        (fxi_row_fused){.kind = FXI_ROW_DOTS,
                        .calls = 5,
                        .at = {d->to, a->src[0], a->src[1], z, d->src[1], c->to, e->to, a->src[0]}};
    return true;
}

/* Σ x·z across rows, the gradient of a scale. */
static bool find_products(const finder *f, int32_t k, fxi_row_fused *out)
{
    const fxi_row_call *a = call_at(f, k);
    if (!is_loop(f, k, f->simd->ops[FX_OP_MUL][FXI_C_F32]) || !is_sum(f, k + 1, a->to, true) ||
        !is_dead(f, k + 2, a->to))
        return false;
    *out = (fxi_row_fused){.kind = FXI_ROW_PRODUCTS, .calls = 2, .at = {0, a->src[0], a->src[1]}};
    return true;
}

/* One call whose result is stored past the caches, for a loop that stores it itself. */
static bool find_streamed(const finder *f, int32_t k, fxi_row_fused *out)
{
    const fxi_row_call *a = call_at(f, k);
    const fxi_tile_fn loop = a->loop && !a->sparse ? fxi_cpu_streamed(a->loop) : NULL;
    if (!loop || !is_streamed(f, k + 1))
        return false;
    *out = (fxi_row_fused){.kind = FXI_ROW_STREAMED, .loop = loop};
    end_with(f, k, k + 1, out);
    return true;
}

/* Removes array k from those that run_ahead fetches. */
static int16_t take_ahead(fxi_row_plan *p, int k)
{
    const int16_t at = p->ahead[k].to;
    p->ahead[k] = p->ahead[--p->nahead];
    return at;
}

/* May the first pass read this location? */
static bool is_read_first(const fxi_row_plan *p, int16_t at)
{
    bool is = false;
    for (int32_t k = p->passes[0].elements; k < p->passes[0].last; k++) {
        const fxi_row_call *c = &p->calls[k];
        for (int i = 0; i < 3; i++)
            is |= (c->src[i] == at && (c->loop || i == 0)) ||
                  ((c->terms || c->sparse) && c->operands[i] == at);
    }
    return is;
}

/* A reduction only reads, so it has the most time to fetch an array: one that a later pass reads
 * or, if there is none, one of the next block. */
static void fetch_in_reduction(fxi_row_plan *p, fxi_row_fused *out)
{
    const int64_t block = p->block * p->inner;
    int best = NOWHERE;
    for (int k = 0; k < p->nahead; k++) {
        const bool later = !is_read_first(p, p->ahead[k].to),
                   fits = block * p->ahead[k].size <= FXI_ROW_AHEAD_BYTES;
        if (p->ahead[k].size != sizeof(float) || (later ? !fits : p->ahead_pass < 0))
            continue;
        if (best == NOWHERE || (later && out->ahead > 0)) {
            best = k;
            out->ahead = later ? 0 : block;
        }
    }
    if (best != NOWHERE)
        out->at[2] = take_ahead(p, best);
}

/* Lets the loop fetch an array of the next block, instead of run_ahead. FXI_ROW_DOTS fetches any
 * array, other loops their operand x. Exponentials take long enough to fetch another array of
 * Float32 too. Sums of products fetch nothing, nor do loops that store past the caches: both stores
 * and fetches wait for the memory. */
static void fetch_ahead(fxi_row_plan *p, fxi_row_fused *out)
{
    const bool any = out->kind == FXI_ROW_DOTS;
    for (int k = 0; k < p->nahead && out->kind != FXI_ROW_PRODUCTS && !out->streams; k++)
        if (any ? p->ahead[k].size == sizeof(float) : out->at[1] == p->ahead[k].to) {
            out->ahead = p->block * p->inner;
            out->at[any ? 7 : 1] = take_ahead(p, k);
            break;
        }
    for (int k = 0; k < p->nahead && out->kind == FXI_ROW_EXPONENTIALS && out->ahead; k++)
        if (p->ahead[k].size == sizeof(float)) {
            out->at[4] = take_ahead(p, k);
            break;
        }
}

/* Which arrays the loop of a sequence in this pass fetches. */
static void fetch(fxi_row_plan *p, int pass, fxi_row_fused *out)
{
    const bool reduces = out->kind == FXI_ROW_DEVIATIONS;
    if (pass == 0 && reduces)
        fetch_in_reduction(p, out);
    else if (!reduces && p->ahead_pass >= 0 && (pass == p->ahead_pass || out->kind == FXI_ROW_DOTS))
        fetch_ahead(p, out);
}

void fxi_row_fuse(fxi_row_plan *p)
{
    static bool (*const find[])(const finder *, int32_t, fxi_row_fused *) = {
        find_deviations, find_norm,     find_shift,   find_exponentials,
        find_dots,       find_products, find_streamed};
    enum { KINDS = sizeof find / sizeof *find };
    /* The loops compute one row. */
    for (int pass = 0; pass < p->npasses && !p->tile_rows && !p->columns; pass++) {
        const finder f = {p, fxi_cpu_simd(), p->passes[pass].last};
        for (int32_t k = p->passes[pass].elements; k < f.last; k++)
            for (int i = 0; i < KINDS && p->nfused < FXI_ROW_FUSED_MOST; i++) {
                fxi_row_fused *out = &p->fused[p->nfused];
                if (!find[i](&f, k, out))
                    continue;
                fetch(p, pass, out);
                /* The reducer's own loop is faster where there is nothing to fetch. */
                if (out->kind == FXI_ROW_DEVIATIONS && out->at[2] == NOWHERE)
                    break;
                p->calls[k].fused = (uint8_t)++p->nfused;
                k += out->calls - 1;
                break;
            }
    }
}
