/* gpu_row.c: row steps: several passes over a row, whose elements some lanes of a group take in
 * turn.
 *
 * What a pass needs of the elements is computed anew from the operands, which the first pass left
 * in the device's caches: rows are short enough for that (planner rule 3), and nothing is kept
 * between passes but the reductions' results. Values of the row are computed by every lane.
 */
#include "gpu_text.h"

#include <string.h>

enum {
    OPERANDS = 32,
    REGISTERS = 256,
    FOLDS = 8,
    ROWS = 0,
    COUNT,
    LANES,
    WALKS = LANES + FXI_GPU_LANE_PARAMS
};

typedef struct rows {
    const fx_step *step;
    int pattern[OPERANDS]; /* −1: a single value */
    bool of_row[OPERANDS]; /* the same for all elements of a row */
    fxi_gpu_layout layout;
    fxi_gpu_walk outer, inner;
    int64_t count, elements;
    int npasses, nfolds;
    struct {
        int kind, dtype;
    } folds[FOLDS]; /* that occur */
    bool wide;
} rows;

static bool reduces(const fx_instr *i)
{
    return i->op == FX_OP_REDUCE;
}

/* The number of an instruction's accumulator among those that occur, which it may join. */
static int fold_of(rows *r, const fx_instr *ins)
{
    const int kind = (int)ins->attr, dtype = ins->from;
    int k = 0;
    while (k < r->nfolds && (r->folds[k].kind != kind || r->folds[k].dtype != dtype))
        k++;
    if (k == r->nfolds && k < FOLDS) {
        r->folds[k].kind = kind;
        r->folds[k].dtype = dtype;
        r->nfolds++;
    }
    return k;
}

static int outputs_of(const fx_step *s)
{
    return 1 + s->nmore;
}
static int output_reg(const fx_step *s, int k)
{
    return k == 0 ? s->out_reg : s->more_reg[k - 1];
}

/* ---- text ------------------------------------------------------------------------------------ */
/* Operand k at `<at><pattern>`. */
static void say_load(fxi_gpu_builder *b, const rows *r, int k, const char *at)
{
    const fxi_gpu_type *t = &fxi_gpu_types[r->step->in[k].dtype];
    fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(x%d, ", t->value, k, t->name, k);
    if (r->pattern[k] < 0)
        fxi_gpu_say(b, "0);\n");
    else
        fxi_gpu_say(b, "%s%d);\n", at, r->pattern[k]);
}

/* Instructions on values of the row that come before a pass. */
static void say_row_values(fxi_gpu_builder *b, const rows *r, int pass)
{
    const fx_step *s = r->step;
    for (int k = 0; k < s->ninstr; k++)
        if (s->program[k].row && !reduces(&s->program[k]) && s->program[k].pass == pass)
            fxi_gpu_say_instr(b, &s->program[k], s->nin + k);
}

/* Marks the registers that the elements of a pass need: of its reductions and of the outputs that
 * it completes. */
static bool mark_needed(const rows *r, int pass, bool *needed)
{
    const fx_step *s = r->step;
    bool any = false;
    memset(needed, 0, REGISTERS * sizeof *needed);
    for (int k = 0; k < s->ninstr; k++)
        if (reduces(&s->program[k]) && s->program[k].pass == pass)
            any = needed[s->program[k].src[0]] = true;
    for (int k = 0; k < outputs_of(s); k++) {
        const fx_instr *ins = &s->program[output_reg(s, k) - s->nin];
        if (!ins->row && ins->pass == pass)
            any = needed[output_reg(s, k)] = true;
    }
    for (int k = s->ninstr - 1; k >= 0; k--)
        for (int i = 0; i < s->program[k].nsrc && needed[s->nin + k] && !s->program[k].row; i++)
            needed[s->program[k].src[i]] = true;
    return any;
}

static void say_elements(fxi_gpu_builder *b, rows *r, int pass, const bool *needed)
{
    const fx_step *s = r->step;
    fxi_gpu_say(b, "for (fx_int i = lane; i < count; i += lanes) {\n");
    fxi_gpu_walk_say(b, &r->inner, WALKS + fxi_gpu_walk_params(&r->outer), "i", "o", "k");
    for (int k = 0; k < s->nin; k++)
        if (needed[k] && !r->of_row[k])
            say_load(b, r, k, "o");
    for (int k = 0; k < s->ninstr; k++) {
        const fx_instr *ins = &s->program[k];
        if (reduces(ins) && ins->pass == pass)
            fxi_gpu_say(b, "a%d = fx_take%d(a%d, r%d, i);\n", s->nin + k, fold_of(r, ins),
                        s->nin + k, ins->src[0]);
        else if (needed[s->nin + k] && !ins->row)
            fxi_gpu_say_instr(b, ins, s->nin + k);
    }
    for (int k = 0; k < outputs_of(s); k++) {
        const int reg = output_reg(s, k);
        const fx_instr *ins = &s->program[reg - s->nin];
        if (!ins->row && ins->pass == pass)
            fxi_gpu_say(b, "FX_STORE_%s(y%d, row * P(%d) + i, r%d);\n",
                        fxi_gpu_types[ins->dtype].name, k, COUNT, reg);
    }
    fxi_gpu_say(b, "}\n");
}

/* Reductions share the local memory of their kind, one after the other. */
static void say_pass(fxi_gpu_builder *b, rows *r, int pass)
{
    const fx_step *s = r->step;
    bool needed[REGISTERS];
    const bool any = mark_needed(r, pass, needed);
    say_row_values(b, r, pass);
    for (int k = 0; k < s->ninstr; k++)
        if (reduces(&s->program[k]) && s->program[k].pass == pass)
            fxi_gpu_say(b, "fx_acc%d a%d = fx_none%d();\n", fold_of(r, &s->program[k]), s->nin + k,
                        fold_of(r, &s->program[k]));
    if (any)
        say_elements(b, r, pass, needed);
    for (int k = 0; k < s->ninstr; k++) {
        const fx_instr *ins = &s->program[k];
        if (!reduces(ins) || ins->pass != pass)
            continue;
        const int fold = fold_of(r, ins), reg = s->nin + k;
        fxi_gpu_say_tree(b, fold, reg);
        fxi_gpu_say(b, "const %s r%d = fx_done%d(s%d[slot]);\nFX_BARRIER;\n",
                    fxi_gpu_types[ins->dtype].value, reg, fold, fold);
    }
}

static void say_rows(fxi_gpu_builder *b, rows *r)
{
    const fx_step *s = r->step;
    const int nout = outputs_of(s), outer = fxi_gpu_walk_params(&r->outer);
    fxi_gpu_begin(b, r->wide);
    for (int k = 0; k < r->nfolds; k++)
        fxi_gpu_say_fold(b, k, r->folds[k].kind, r->folds[k].dtype);
    fxi_gpu_kernel(b, "fx_rows", s->nin + nout, WALKS + outer + fxi_gpu_walk_params(&r->inner));
    for (int k = 0; k < s->nin; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, x%d)\n", k, fxi_gpu_types[s->in[k].dtype].stored, k);
    for (int k = 0; k < nout; k++)
        fxi_gpu_say(b, "FX_USE(%d, %s, y%d)\n", s->nin + k,
                    fxi_gpu_types[s->program[output_reg(s, k) - s->nin].dtype].stored, k);
    for (int k = 0; k < r->nfolds; k++)
        fxi_gpu_say(b, "FX_LOCAL(fx_acc%d, s%d, FX_GROUP);\n", k, k);
    fxi_gpu_say_lanes(b, LANES);
    fxi_gpu_say(b, "const fx_int line = FX_GROUP_X * slots + slot, row = line < P(0) ? line : 0;\n"
                   "const fx_int count = line < P(0) ? P(1) : 0;\n");
    fxi_gpu_walk_say(b, &r->outer, WALKS, "row", "k", NULL);
    for (int k = 0; k < s->nin; k++)
        if (r->of_row[k])
            say_load(b, r, k, "k");
    for (int pass = 0; pass < r->npasses; pass++)
        say_pass(b, r, pass);
    for (int k = 0; k < nout; k++) {
        const int reg = output_reg(s, k);
        const fx_instr *ins = &s->program[reg - s->nin];
        if (ins->row)
            fxi_gpu_say(b, "if (lane == 0 && count > 0) FX_STORE_%s(y%d, row, r%d);\n",
                        fxi_gpu_types[ins->dtype].name, k, reg);
    }
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */
static void place_operands(rows *r)
{
    const fx_step *s = r->step;
    const uint32_t inner = (1u << s->row_axes) - 1;
    r->layout.nd = s->space.ndim;
    for (int d = 0; d < s->space.ndim; d++)
        r->layout.shape[d] = s->space.shape[d];
    for (int k = 0; k < s->nin; k++) {
        int64_t strides[FX_MAX_DIMS] = {0};
        const fx_tensor *t = &s->in[k];
        r->of_row[k] = true;
        for (int d = 0; d < t->ndim; d++) {
            strides[d] = t->shape[d] == 1 ? 0 : t->stride[d];
            r->of_row[k] &= !(inner >> d & 1) || strides[d] == 0;
        }
        r->pattern[k] = fxi_gpu_is_scalar(t) ? -1 : fxi_gpu_layout_add(&r->layout, strides);
    }
    r->outer = fxi_gpu_walk_over(&r->layout, ~inner);
    r->inner = fxi_gpu_walk_over(&r->layout, inner);
    r->count = fxi_gpu_walk_length(&r->outer);
    r->elements = fxi_gpu_walk_length(&r->inner);
    r->wide = fxi_gpu_layout_wide(&r->layout);
}

static bool list_folds(fxi_gpu_builder *b, rows *r)
{
    const fx_step *s = r->step;
    for (int k = 0; k < s->ninstr; k++) {
        const fx_instr *ins = &s->program[k];
        r->npasses = ins->pass >= r->npasses ? ins->pass + 1 : r->npasses;
        if (!reduces(ins))
            continue;
        if (!fxi_gpu_has_fold(b, (int)ins->attr, ins->from))
            return false;
        fold_of(r, ins);
    }
    return fxi_gpu_known(b, s->program, s->ninstr);
}

void fxi_gpu_row(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    rows r = {.step = s};
    if (s->nin > OPERANDS || s->nin + s->ninstr > REGISTERS) {
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "%d operands, %d instructions", (int)s->nin,
                     (int)s->ninstr);
        return;
    }
    place_operands(&r);
    if (r.count == 0 || r.elements == 0 || !list_folds(b, &r))
        return;
    say_rows(b, &r);
    const fxi_gpu_lanes lanes = {.lanes = fxi_gpu_power((r.elements + 3) / 4)};
    fxi_gpu_call *c = fxi_gpu_add(b);
    for (int k = 0; k < s->nin; k++)
        fxi_gpu_buffer(c, k, FXI_GPU_IN, k);
    for (int k = 0; k < outputs_of(s); k++)
        fxi_gpu_buffer(c, s->nin + k, FXI_GPU_OUT, k);
    fxi_gpu_param(c, ROWS, r.count);
    fxi_gpu_param(c, COUNT, r.elements);
    fxi_gpu_lanes_fill(lanes, c, LANES);
    fxi_gpu_walk_fill(&r.outer, c, WALKS);
    fxi_gpu_walk_fill(&r.inner, c, WALKS + fxi_gpu_walk_params(&r.outer));
    c->groups[0] = fxi_gpu_groups(r.count, FXI_GPU_GROUP / lanes.lanes);
}
