/* cpu_task.c: divides programs into tasks, and chooses their loops. The tile interpreter
 * (cpu_program.c) and row steps (cpu_row_plan.c) call these loops.
 *
 * An addition of two tiles reads two vectors and writes one for a single operation, so a loop of
 * two instructions saves a third of their reads and writes, and a call. Loops of three instructions
 * would be ten times as many.
 */
#include "cpu_task.h"
#include <string.h>

enum { NONE = -1 };

/* The number of this instruction's loops in fxi_pair_loops; NONE if there are none. Float32 only:
 * the loops take 35 KB for each instruction set, and Float64 spends its time in functions. */
static int pair_kind(const fx_instr *ins)
{
    return ins->dtype != FX_DTYPE_F32 ? NONE
           : ins->op == FX_OP_ADD     ? FXI_PAIR_SUM
           : ins->op == FX_OP_SUB     ? FXI_PAIR_DIFFERENCE
           : ins->op == FX_OP_MUL     ? FXI_PAIR_PRODUCT
           : ins->op == FX_OP_NEG     ? FXI_PAIR_NEGATED
                                      : NONE;
}

/* A negation is never the first: c + (−a) would be the usual case, and derivatives are built as c −
 * a instead. It is often the second, as in exp(−x²). */
static bool can_be_first(const fx_instr *ins)
{
    return pair_kind(ins) >= 0 && pair_kind(ins) < FXI_PAIR_FIRSTS;
}

/* In row steps, the elements of a pass and values of rows are computed at different times. */
static bool run_together(const fx_instr *a, const fx_instr *b)
{
    return a->pass == b->pass && a->row == b->row;
}

/* May the call of sum b read what instruction a reads, instead of its result? For sums of the
 * elements that a mask chooses, and for the number of these (cpu_masked_sum.c). */
static bool is_masked_sum(const fx_instr *a, const fx_instr *b)
{
    const bool of_mask = (a->op == FX_OP_CAST && a->from == FX_DTYPE_BOOL) || a->op == FX_OP_SELECT;
    return b->op == FX_OP_REDUCE && b->attr == FX_REDUCE_SUM && b->row && of_mask &&
           a->dtype == FX_DTYPE_F32 && !a->row && a->pass == b->pass;
}

/* The instruction whose result instruction k alone reads, and that may be computed in the same
 * loop; NONE if there is none. If there are two, the later one, because its operands are then kept
 * for a shorter time. */
static int first_of_pair(const fx_instr *instr, int nin, int k, const uint8_t *uses,
                         const bool *is_second)
{
    int first = NONE;
    const bool can_be_second = pair_kind(&instr[k]) != NONE;
    for (int i = 0; i < instr[k].nsrc; i++) {
        const int r = instr[k].src[i], j = r - nin;
        if (j <= first || uses[r] != 1 || is_second[j])
            continue;
        if (is_masked_sum(&instr[j], &instr[k]) ||
            (can_be_second && can_be_first(&instr[j]) && run_together(&instr[j], &instr[k])))
            first = j;
    }
    return first;
}

static fxi_cpu_task make_task(const fx_instr *instr, int nin, int k, int first)
{
    fxi_cpu_task t = {.ins = &instr[k], .nreads = instr[k].nsrc, .result = (uint8_t)(nin + k)};
    if (first == NONE) {
        memcpy(t.reads, instr[k].src, sizeof t.reads);
        return t;
    }
    t.first = &instr[first];
    if (t.ins->op == FX_OP_REDUCE) {
        t.nreads = t.first->nsrc;
        memcpy(t.reads, t.first->src, sizeof t.reads);
        return t;
    }
    t.from = instr[k].nsrc == 2 && instr[k].src[1] == nin + first;
    memcpy(t.reads, t.first->src, 2);
    /* A negation has no other operand. Its loop reads a value at s[2] all the same, and does not
     * use it. */
    t.reads[2] = instr[k].nsrc == 2 ? instr[k].src[!t.from] : t.reads[0];
    t.nreads = 3;
    return t;
}

/* The first instruction of a pair runs where the second did: its operands are kept until then, and
 * nothing else reads its result, so no other instruction sees the change of order. */
int fxi_cpu_tasks(const fx_program *program, int nin, const bool *kept, fxi_cpu_task *tasks)
{
    const fx_instr *instr = program->instr;
    uint8_t uses[FXI_TASK_REGISTERS] = {0};
    bool is_first[FXI_TASK_REGISTERS] = {false}, is_second[FXI_TASK_REGISTERS] = {false};
    int16_t first[FXI_TASK_REGISTERS];
    int n = 0;
    for (int k = 0; k < program->n; k++)
        for (int i = 0; i < instr[k].nsrc; i++)
            /* Two readers, or one that reads it twice: the result must be stored, and cannot stay
             * in the registers of a pair. So must a result that is `kept`. */
            uses[instr[k].src[i]] = uses[instr[k].src[i]] ? 2 : 1;
    for (int r = 0; r < nin + program->n; r++)
        uses[r] = kept[r] ? 2 : uses[r];
    for (int k = 0; k < program->n; k++) {
        first[k] = (int16_t)first_of_pair(instr, nin, k, uses, is_second);
        if (first[k] != NONE)
            is_first[first[k]] = is_second[k] = true;
    }
    for (int k = 0; k < program->n; k++)
        if (!is_first[k])
            tasks[n++] = make_task(instr, nin, k, first[k]);
    return n;
}

/* The type in which an instruction computes. A comparison computes in the type of its operands and
 * gives Bool. */
static int type_of(const fx_instr *ins)
{
    const bool compares =
        ins->op == FX_OP_LT || ins->op == FX_OP_LE || ins->op == FX_OP_EQ || ins->op == FX_OP_NE;
    return fxi_compute_type(compares ? ins->from : ins->dtype);
}

/* A cast to 16 bits is rounded to odd first (half.h); the rounding to 16 bits is a call of
 * its own, as after every instruction. */
static fxi_tile_fn vector_loop(const fxi_simd *simd, const fx_instr *ins)
{
    const int from = fxi_compute_type(ins->from);
    if (ins->op == FX_OP_CAST)
        return fxi_cpu_is_half(ins->dtype) ? simd->cast_odd[from] : simd->cast[from][type_of(ins)];
    return simd->ops[ins->op][type_of(ins)];
}

/* The loop that takes one of the last two operands, or both, as single numbers: those that are
 * scalars. NULL if there are none, or the operation has no such loop. */
static fxi_tile_fn mixed_loop(const fxi_simd *simd, const fx_instr *ins, unsigned scalars,
                              unsigned *out_ones)
{
    const int type = type_of(ins);
    if (ins->nsrc < 2 || type > FXI_C_F64)
        return NULL;
    const unsigned last = scalars >> (ins->nsrc - 1) & 1, other = scalars >> (ins->nsrc - 2) & 1;
    *out_ones = last << (ins->nsrc - 1) | other << (ins->nsrc - 2);
    return *out_ones ? simd->mixed[ins->op][type][last + 2 * other - 1] : NULL;
}

/* The loop of two instructions. If both operands of the first are scalars, they are read as
 * vectors. That is rare, because the planner computes numbers from numbers in steps of their own,
 * so there are no loops for it. */
static fxi_tile_fn pair_loop(const fxi_simd *simd, const fxi_cpu_task *t, unsigned scalars,
                             unsigned *out_ones)
{
    enum { FIRST = 1, SECOND = 2, LAST = 4 };
    const unsigned of_first = scalars & (FIRST | SECOND);
    const int form = of_first == FIRST    ? FXI_PAIR_FIRST_ONE
                     : of_first == SECOND ? FXI_PAIR_SECOND_ONE
                                          : FXI_PAIR_VECTORS;
    const int second =
        pair_kind(t->ins) == FXI_PAIR_DIFFERENCE && t->from ? FXI_PAIR_FROM : pair_kind(t->ins);
    *out_ones = (form == FXI_PAIR_VECTORS ? 0 : of_first) | (scalars & LAST);
    return simd->pairs[pair_kind(t->first)][second][form][(scalars & LAST) != 0];
}

fxi_tile_fn fxi_cpu_task_loop(const fxi_simd *simd, const fxi_cpu_task *t, unsigned scalars,
                              unsigned *out_ones)
{
    if (t->first)
        return pair_loop(simd, t, scalars, out_ones);
    const fxi_tile_fn mixed = mixed_loop(simd, t->ins, scalars, out_ones);
    *out_ones = mixed ? *out_ones : 0;
    return mixed ? mixed : vector_loop(simd, t->ins);
}
