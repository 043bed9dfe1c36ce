/* gpu_row.c: row steps: several passes over a row, whose elements are divided between some lanes of
 * a group.
 *
 * Each pass computes what it needs of the elements again from the operands, which the first pass
 * left in the device's caches: rows are short enough for that (planner rule 3). Only the
 * reductions' results are kept between passes. Every lane computes the values of the row.
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
        int kind, dtype, result;
    } folds[FOLDS]; /* the different kinds of reductions */
    bool wide;
} rows;

static bool reduces(const fx_instr *i)
{
    return i->op == FX_OP_REDUCE;
}

/* The number of an instruction's kind of accumulator, added to the list if it is new. Reductions of
 * one kind share a text and local memory. */
static int fold_of(rows *r, const fx_instr *ins)
{
    const int kind = (int)ins->attr, dtype = ins->from, result = ins->dtype;
    int k = 0;
    while (k < r->nfolds &&
           (r->folds[k].kind != kind || r->folds[k].dtype != dtype || r->folds[k].result != result))
        k++;
    /* A full list is noticed by list_folds. */
    if (k == r->nfolds && k < FOLDS) {
        r->folds[k].kind = kind;
        r->folds[k].dtype = dtype;
        r->folds[k].result = result;
        r->nfolds++;
    }
    return k;
}

static int outputs_of(const fx_step *s)
{
    return 1 + fx_step_row(s)->more.n;
}
static int output_reg(const fx_step *s, int k)
{
    return k == 0 ? fx_step_row(s)->out_reg : fx_step_row(s)->more.reg[k - 1];
}

/* ---- text ------------------------------------------------------------------------------------ */
/* Appends the load of operand k at `<at><pattern>`. */
static void say_load(fxi_gpu_builder *b, const rows *r, int k, const char *at)
{
    const fxi_gpu_type *t = &fxi_gpu_types[r->step->in[k].dtype];
    fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(x%d, ", t->value, k, t->name, k);
    if (r->pattern[k] < 0)
        fxi_gpu_say(b, "0);\n");
    else
        fxi_gpu_say(b, "%s%d);\n", at, r->pattern[k]);
}

/* Appends the instructions on values of the row that precede a pass. */
static void say_row_values(fxi_gpu_builder *b, const rows *r, int pass)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    for (int k = 0; k < p->n; k++)
        /* Every lane computes them, so they need no exchange between lanes. */
        if (p->instr[k].row && !reduces(&p->instr[k]) && p->instr[k].pass == pass)
            fxi_gpu_say_instr(b, &p->instr[k], s->nin + k);
}

/* Marks the registers that a pass needs of the elements: for its reductions and for the outputs
 * that it completes. */
static bool mark_needed(const rows *r, int pass, bool *needed)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    bool any = false;
    memset(needed, 0, REGISTERS * sizeof *needed);
    for (int k = 0; k < p->n; k++)
        if (reduces(&p->instr[k]) && p->instr[k].pass == pass)
            any = needed[p->instr[k].src[0]] = true;
    for (int k = 0; k < outputs_of(s); k++) {
        const fx_instr *ins = &p->instr[output_reg(s, k) - s->nin];
        if (!ins->row && ins->pass == pass)
            /* An output is stored in the pass in which its instruction is computed. */
            any = needed[output_reg(s, k)] = true;
    }
    /* Backwards, because users come after the instructions that they need. */
    for (int k = p->n - 1; k >= 0; k--)
        for (int i = 0; i < p->instr[k].nsrc && needed[s->nin + k] && !p->instr[k].row; i++)
            needed[p->instr[k].src[i]] = true;
    return any;
}

static void say_elements(fxi_gpu_builder *b, rows *r, int pass, const bool *needed)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_rows_elements, "walk");
    fxi_gpu_walk_say(b, &r->inner, WALKS + fxi_gpu_walk_params(&r->outer), "i", "o", "k");
    text = fxi_gpu_say_until(b, text, "program");
    for (int k = 0; k < s->nin; k++)
        /* Values of the row were loaded once, before the passes. */
        if (needed[k] && !r->of_row[k])
            say_load(b, r, k, "o");
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        if (reduces(ins) && ins->pass == pass)
            fxi_gpu_say(b, "a%d = fx_take%d(a%d, r%d, i);\n", s->nin + k, fold_of(r, ins),
                        s->nin + k, ins->src[0]);
        else if (needed[s->nin + k] && !ins->row)
            fxi_gpu_say_instr(b, ins, s->nin + k);
    }
    for (int k = 0; k < outputs_of(s); k++) {
        const int reg = output_reg(s, k);
        const fx_instr *ins = &p->instr[reg - s->nin];
        /* Outputs are dense, one row after the other. */
        if (!ins->row && ins->pass == pass)
            fxi_gpu_say(b, "FX_STORE_%s(y%d, row * P(%d) + i, r%d);\n",
                        fxi_gpu_types[ins->dtype].name, k, COUNT, reg);
    }
    fxi_gpu_say_part(b, text);
}

/* Appends a pass. Reductions of one kind use the same local memory, one after the other. */
static void say_pass(fxi_gpu_builder *b, rows *r, int pass)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    bool needed[REGISTERS];
    const bool any = mark_needed(r, pass, needed);
    say_row_values(b, r, pass);
    for (int k = 0; k < p->n; k++)
        if (reduces(&p->instr[k]) && p->instr[k].pass == pass)
            fxi_gpu_say(b, "fx_acc%d a%d = fx_none%d();\n", fold_of(r, &p->instr[k]), s->nin + k,
                        fold_of(r, &p->instr[k]));
    if (any)
        say_elements(b, r, pass, needed);
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        if (!reduces(ins) || ins->pass != pass)
            continue;
        const int fold = fold_of(r, ins), reg = s->nin + k;
        const bool rounds = ins->dtype == FX_DTYPE_F16 || ins->dtype == FX_DTYPE_BF16;
        fxi_gpu_set(b, "prefix", rounds ? "t" : "r");
        fxi_gpu_set(b, "value", fxi_gpu_types[ins->dtype].value);
        const char *text = fxi_gpu_say_until(b, fxi_gpu_text_rows_reduced, "tree");
        fxi_gpu_say_tree(b, fold, reg);
        fxi_gpu_say_part(b, text);
        /* As after every instruction (fxi_gpu_say_instr): fused and separate steps then give the
         * same bits. */
        if (rounds)
            fxi_gpu_say(b, "const fx_f32 r%d = fx_round_%s(t%d);\n", reg,
                        fxi_gpu_types[ins->dtype].name, reg);
    }
}

static void say_rows(fxi_gpu_builder *b, rows *r)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    const int nout = outputs_of(s), outer = fxi_gpu_walk_params(&r->outer);
    fxi_gpu_begin(b, r->wide);
    int64_t bytes = 0;
    for (int k = 0; k < r->nfolds; k++)
        bytes += fxi_gpu_say_fold(b, k, r->folds[k].kind, r->folds[k].dtype, r->folds[k].result);
    /* Each kind of reduction has local memory of its own, one accumulator a lane. */
    if (b->limits->group_memory > 0 && FXI_GPU_GROUP * bytes > b->limits->group_memory)
        fxi_gpu_too_much(b, "%lld bytes of local memory in a group",
                         (long long)(FXI_GPU_GROUP * bytes));
    fxi_gpu_kernel(b, "fx_rows", s->nin + nout, WALKS + outer + fxi_gpu_walk_params(&r->inner));
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_rows, "operands");
    for (int k = 0; k < s->nin; k++)
        fxi_gpu_say(b, "FX_USE(%d, const %s, x%d)\n", k, fxi_gpu_types[s->in[k].dtype].stored, k);
    for (int k = 0; k < nout; k++)
        fxi_gpu_say(b, "FX_USE(%d, %s, y%d)\n", s->nin + k,
                    fxi_gpu_types[p->instr[output_reg(s, k) - s->nin].dtype].stored, k);
    text = fxi_gpu_say_until(b, text, "local");
    for (int k = 0; k < r->nfolds; k++)
        fxi_gpu_say(b, "FX_LOCAL(fx_acc%d, s%d, FX_GROUP);\n", k, k);
    text = fxi_gpu_say_until(b, text, "lanes");
    fxi_gpu_say_lanes(b, LANES);
    text = fxi_gpu_say_until(b, text, "walk");
    fxi_gpu_walk_say(b, &r->outer, WALKS, "row", "k", NULL);
    text = fxi_gpu_say_until(b, text, "values_of_row");
    for (int k = 0; k < s->nin; k++)
        if (r->of_row[k])
            say_load(b, r, k, "k");
    text = fxi_gpu_say_until(b, text, "passes");
    for (int pass = 0; pass < r->npasses; pass++)
        say_pass(b, r, pass);
    text = fxi_gpu_say_until(b, text, "outputs_of_row");
    for (int k = 0; k < nout; k++) {
        const int reg = output_reg(s, k);
        const fx_instr *ins = &p->instr[reg - s->nin];
        if (ins->row)
            fxi_gpu_say(b, "if (lane == 0 && count > 0) FX_STORE_%s(y%d, row, r%d);\n",
                        fxi_gpu_types[ins->dtype].name, k, reg);
    }
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */
static void set_patterns(rows *r)
{
    const fx_step *s = r->step;
    const fx_row_step *own = fx_step_row(s);
    const uint32_t inner = (1u << own->row_axes) - 1;
    r->layout.nd = own->space.ndim;
    for (int d = 0; d < own->space.ndim; d++)
        r->layout.shape[d] = own->space.shape[d];
    for (int k = 0; k < s->nin; k++) {
        int64_t strides[FX_MAX_DIMS] = {0};
        const fx_tensor *t = &s->in[k];
        r->of_row[k] = true;
        for (int d = 0; d < t->ndim; d++) {
            /* The stride of an axis of size 1 means nothing, and would make equal patterns differ.
             */
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

/* Before any text is built, because the types of accumulators are defined at its beginning. */
static bool list_folds(fxi_gpu_builder *b, rows *r)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        r->npasses = ins->pass >= r->npasses ? ins->pass + 1 : r->npasses;
        if (!reduces(ins))
            continue;
        if (!fxi_gpu_has_fold(b, (int)ins->attr, ins->from))
            return false;
        if (fold_of(r, ins) == FOLDS) {
            fxi_gpu_too_much(b, "more than %d kinds of reductions", (int)FOLDS);
            return false;
        }
    }
    return fxi_gpu_known(b);
}

void fxi_gpu_row(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_program *p = &fx_step_row(s)->program;
    rows r = {.step = s};
    if (s->nin > OPERANDS || s->nin + p->n > REGISTERS) {
        fxi_gpu_fail(b, FX_STATUS_INTERNAL, "%d operands, %d instructions", (int)s->nin, (int)p->n);
        return;
    }
    set_patterns(&r);
    if (r.count == 0 || r.elements == 0 || !list_folds(b, &r))
        return;
    say_rows(b, &r);
    /* About four elements for each lane; short rows share a group. */
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
