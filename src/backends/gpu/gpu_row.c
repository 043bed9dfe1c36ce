/* gpu_row.c: row steps: several passes over a row, whose elements are divided between some lanes of
 * a group.
 *
 * A row that is short enough is kept in registers: every lane loads its elements once, before the
 * first pass, and what a later pass needs from an earlier one (the exponentials of a softmax) is
 * computed once. For a longer row, each pass loads the operands and computes what it needs again;
 * the operands are then usually in the device's caches, because a row has at most 4 MiB (planner
 * rule 3). Only the reductions' results are kept between its passes. Every lane computes the values
 * of the row. Rows that are cut into pieces have a launch for each pass: gpu_row_cut.c.
 *
 * The number of instructions for each element limits the speed as soon as memory is accessed
 * without gaps: in the time in which a device with 3 TB/s loads and stores 32 Float32 elements, it
 * executes about 100 instructions of a warp, and half as many for 16-bit elements. Therefore
 * elements have no branches, divisions by a value of the row use its reciprocal, and what is the
 * same for several elements is computed once for them.
 */
#include "gpu_row.h"

#include <stdio.h>
#include <string.h>

int fxi_gpu_row_fold(fxi_gpu_rows *r, const fx_instr *ins)
{
    const int kind = (int)ins->attr, dtype = ins->from, result = ins->dtype;
    int k = 0;
    while (k < r->nfolds &&
           (r->folds[k].kind != kind || r->folds[k].dtype != dtype || r->folds[k].result != result))
        k++;
    /* A full list is noticed by list_folds. */
    if (k == r->nfolds && k < FXI_GPU_ROW_FOLDS) {
        r->folds[k].kind = kind;
        r->folds[k].dtype = dtype;
        r->folds[k].result = result;
        r->nfolds++;
    }
    return k;
}

static int output_register(const fx_step *s, int k)
{
    return k == 0 ? fx_step_row(s)->out_reg : fx_step_row(s)->more.reg[k - 1];
}

/* ---- text ------------------------------------------------------------------------------------ */
/* Appends the load of operand k, which is the same for all elements of a row. */
static void say_load(fxi_gpu_builder *b, const fxi_gpu_rows *r, int k)
{
    const fxi_gpu_type *t = &fxi_gpu_types[r->step->in[k].dtype];
    fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(x%d, ", t->value, k, t->name, k);
    if (r->pattern[k] < 0)
        fxi_gpu_say(b, "0);\n");
    else
        fxi_gpu_say(b, "k%d);\n", r->pattern[k]);
}

void fxi_gpu_say_row_values(fxi_gpu_builder *b, const fxi_gpu_rows *r, int pass)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    for (int k = 0; k < p->n; k++)
        /* Every lane computes them, so they need no exchange between lanes. */
        if (p->instr[k].row && !fxi_gpu_reduces(&p->instr[k]) && p->instr[k].pass == pass)
            fxi_gpu_say_instr(b, &p->instr[k], s->nin + k);
}

/* Does the instruction convert a 16-bit operand? Converting again is cheaper than a register that
 * keeps the result. */
static bool is_cheap(const fxi_gpu_rows *r, const fx_instr *ins)
{
    return ins->op == FX_OP_CAST && ins->src[0] < r->step->nin && fxi_gpu_size(ins->from) == 2;
}

/* Does a pass compute instruction k for the elements? Not if an earlier pass has computed it and
 * its result is kept. */
static bool computes(const fxi_gpu_rows *r, int pass, const bool *needed, int k)
{
    const int reg = r->step->nin + k, first = r->first_pass[reg];
    return needed[reg] && !fx_step_row(r->step)->program.instr[k].row &&
           (!(r->keeps && first > 0 && first <= pass) ||
            is_cheap(r, &fx_step_row(r->step)->program.instr[k]));
}

/* Marks the registers that a pass needs of the elements: for its reductions and for the outputs
 * that it completes. */
static bool mark_needed(const fxi_gpu_rows *r, int pass, bool *needed)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    bool any = false;
    memset(needed, 0, FXI_GPU_ROW_REGISTERS * sizeof *needed);
    for (int k = 0; k < p->n; k++)
        if (fxi_gpu_reduces(&p->instr[k]) && p->instr[k].pass == pass)
            any = needed[p->instr[k].src[0]] = true;
    for (int k = 0; k < fxi_gpu_row_outputs(s); k++) {
        const fx_instr *ins = &p->instr[output_register(s, k) - s->nin];
        if (!ins->row && ins->pass == pass)
            any = needed[output_register(s, k)] = true;
    }
    /* Backwards, because users come after the instructions that they need. */
    for (int k = p->n - 1; k >= 0; k--)
        for (int i = 0; i < p->instr[k].nsrc && computes(r, pass, needed, k); i++)
            needed[p->instr[k].src[i]] = true;
    return any;
}

/* Finds the pass that computes each value, and the values that later passes need. */
static void plan_kept(fxi_gpu_rows *r)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    bool needed[FXI_GPU_ROW_REGISTERS];
    r->keeps = true;
    for (int pass = 0; pass < r->npasses; pass++) {
        mark_needed(r, pass, needed);
        for (int k = 0; k < p->n; k++) {
            const int reg = r->step->nin + k;
            if (!needed[reg] || p->instr[k].row)
                continue;
            r->kept[reg] |= r->first_pass[reg] > 0 && !is_cheap(r, &p->instr[k]);
            if (r->first_pass[reg] == 0)
                r->first_pass[reg] = (uint8_t)(1 + pass);
        }
    }
}

/* ---- divisions ------------------------------------------------------------------------------- */
/* Is it a division of elements by a value of the row? On a CPU divisions are not slow. */
static bool by_row(const fxi_gpu_builder *b, const fxi_gpu_rows *r, const fx_instr *ins)
{
    const int by = ins->src[1], nin = r->step->nin;
    return ins->op == FX_OP_DIV && !ins->row && !b->limits->serial &&
           strcmp(fxi_gpu_types[ins->dtype].value, "fx_f32") == 0 &&
           (by < nin ? r->loaded[by] < 0 && !r->counts[by]
                     : fx_step_row(r->step)->program.instr[by - nin].row);
}

/* Appends the divisors that a pass needs and that no earlier pass has defined. */
static void say_divisors(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass, const bool *needed)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    for (int k = 0; k < p->n; k++) {
        const int by = p->instr[k].src[1];
        if (!computes(r, pass, needed, k) || !by_row(b, r, &p->instr[k]) || r->divides[by])
            continue;
        r->divides[by] = true;
        fxi_gpu_say(b, "const fx_divisor d%d = fx_divide_by(r%d);\n", by, by);
    }
}

/* Appends the functions of divisions if any pass needs them. */
static void say_division(fxi_gpu_builder *b, const fxi_gpu_rows *r)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    bool any = false;
    for (int k = 0; k < p->n; k++)
        any |= by_row(b, r, &p->instr[k]);
    if (any)
        fxi_gpu_say_part(b, fxi_gpu_text_rows_division);
}

static void say_instr(fxi_gpu_builder *b, const fxi_gpu_rows *r, const fx_instr *ins, int reg)
{
    const bool half = ins->dtype != FX_DTYPE_F32;
    if (by_row(b, r, ins))
        fxi_gpu_say(b, "const fx_f32 r%d = %s%s(fx_over(r%d, d%d));\n", reg,
                    half ? "fx_round_" : "", half ? fxi_gpu_types[ins->dtype].name : "",
                    ins->src[0], ins->src[1]);
    else
        fxi_gpu_say_instr(b, ins, reg);
}

/* ---- packs ----------------------------------------------------------------------------------- */
/* Is operand k loaded for each element? */
static bool has_pack(const fxi_gpu_rows *r, int k)
{
    return r->loaded[k] >= 0;
}

static fxi_gpu_packs packs_of(const fxi_gpu_rows *r)
{
    return (fxi_gpu_packs){.in = r->step->in,
                           .n = r->step->nin,
                           .pattern = r->loaded,
                           .elements = r->elements,
                           .neighbours = r->whole,
                           .several = r->packs};
}

static void say_walk(fxi_gpu_builder *b, const fxi_gpu_rows *r)
{
    fxi_gpu_walk_say(b, &r->inner, FXI_GPU_ROW_WALKS + fxi_gpu_walk_params(&r->outer), "i", "o",
                     "k");
}

/* Appends the packs and their loading, of the operands that are needed. */
static void say_loads(fxi_gpu_builder *b, const fxi_gpu_rows *r, const bool *needed)
{
    const fxi_gpu_packs packs = packs_of(r);
    fxi_gpu_say_packs(b, &packs, needed);
    const char *text = r->whole ? fxi_gpu_text_rows_loads_whole : fxi_gpu_text_rows_loads;
    text = fxi_gpu_say_until(b, text, "walk");
    say_walk(b, r);
    if (r->whole) {
        text = fxi_gpu_say_until(b, text, "vector_loads");
        fxi_gpu_say_vector_loads(b, &packs, needed);
    }
    text = fxi_gpu_say_until(b, text, "loads");
    fxi_gpu_say_element_loads(b, &packs, needed);
    fxi_gpu_say_part(b, text);
}

/* Is output k stored in this pass, for each element? An output is stored in the pass in which its
 * instruction is computed. */
static bool stores(const fxi_gpu_rows *r, int pass, int k)
{
    const fx_instr *ins =
        &fx_step_row(r->step)->program.instr[output_register(r->step, k) - r->step->nin];
    return !ins->row && ins->pass == pass;
}

static const fxi_gpu_type *output_type(const fxi_gpu_rows *r, int k)
{
    const fx_step *s = r->step;
    return &fxi_gpu_types[fx_step_row(s)->program.instr[output_register(s, k) - s->nin].dtype];
}

/* The pack of output k: its elements are stored together after the last one is computed. */
static fxi_gpu_pack pack_out(const fxi_gpu_rows *r, int k, char name[16])
{
    snprintf(name, 16, "z%d", k);
    return (fxi_gpu_pack){.name = name, .type = output_type(r, k), .elements = r->elements};
}

/* The text of the address of element i of output k. With outer or column axes it is in the pattern
 * of the outputs, which the caller walks. */
static void name_out(const fxi_gpu_rows *r, int k, char at[48])
{
    if (r->out_pattern >= 0)
        snprintf(at, 48, "y%d + o%d", k, r->out_pattern);
    else
        snprintf(at, 48, "y%d + row * P(%d) + i", k, FXI_GPU_ROW_LENGTH);
}

/* Appends the test whether the first elements of all operands and outputs are aligned: the
 * addresses are joined by |, so a low bit that is set in any of them stays set. */
static void say_near(fxi_gpu_builder *b, const fxi_gpu_rows *r)
{
    const fx_step *s = r->step;
    int longest = 1;
    for (int k = 0; k < s->nin + fxi_gpu_row_outputs(s) && r->whole; k++) {
        const bool in = k < s->nin;
        const fxi_gpu_pack pack = {.type = in ? &fxi_gpu_types[s->in[k].dtype]
                                              : output_type(r, k - s->nin),
                                   .elements = r->elements};
        if (in && !has_pack(r, k))
            continue;
        fxi_gpu_say(b, "%sFX_ADDRESS(%c%d)", longest > 1 ? " | " : "((", in ? 'x' : 'y',
                    in ? k : k - s->nin);
        longest = fxi_gpu_pack_bytes(&pack) > longest ? fxi_gpu_pack_bytes(&pack) : longest;
    }
    if (longest > 1)
        fxi_gpu_say(b, ") & %du) == 0", longest - 1);
    else
        fxi_gpu_say(b, "0");
}

/* ---- passes ---------------------------------------------------------------------------------- */
/* Does a lane add all of its elements to the accumulator together? Added one by one, each element
 * would need a division. */
static bool takes_all(const fxi_gpu_rows *r, const fx_instr *ins)
{
    return r->elements > 1 && ins->attr == FX_REDUCE_SQDEV;
}

/* Appends, for the reductions of a pass, the texts that add all elements of a lane together
 * (takes_all). */
static void say_takes(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        if (!fxi_gpu_reduces(ins) || ins->pass != pass || !takes_all(r, ins))
            continue;
        fxi_gpu_set_number(b, "n", fxi_gpu_row_fold(r, ins));
        fxi_gpu_set_number(b, "reg", r->step->nin + k);
        fxi_gpu_set(b, "value", fxi_gpu_types[ins->from].value);
        fxi_gpu_say_part(b, fxi_gpu_text_rows_take_deviations);
    }
}

/* Appends the arrays in which a lane collects its elements for these reductions (takes_all). */
static void say_collected(fxi_gpu_builder *b, const fxi_gpu_rows *r, int pass)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    for (int k = 0; k < p->n; k++)
        if (fxi_gpu_reduces(&p->instr[k]) && p->instr[k].pass == pass && takes_all(r, &p->instr[k]))
            fxi_gpu_say(b, "%s q%d[%d];\n", fxi_gpu_types[p->instr[k].from].value, r->step->nin + k,
                        r->packs * r->elements);
}

/* Appends the values of element e of pack c that a pass begins with: operands, and values
 * that earlier passes kept. */
static void say_begin(fxi_gpu_builder *b, const fxi_gpu_rows *r, int pass, const bool *needed)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    for (int k = 0; k < s->nin; k++) {
        const fxi_gpu_type *t = &fxi_gpu_types[s->in[k].dtype];
        if (needed[k] && r->counts[k])
            fxi_gpu_say(b, "const %s r%d = (%s)%si;\n", t->value, k, t->value,
                        r->wide ? "" : "(fx_u32)");
        else if (needed[k] && has_pack(r, k))
            fxi_gpu_say(b, "const %s r%d = FX_LOAD_%s(v%d[c].e, e);\n", t->value, k, t->name, k);
    }
    for (int k = 0; k < p->n; k++) {
        const int reg = s->nin + k;
        if (needed[reg] && r->kept[reg] && !computes(r, pass, needed, k))
            fxi_gpu_say(b, "const %s r%d = h%d[c * %d + e];\n",
                        fxi_gpu_types[p->instr[k].dtype].value, reg, reg, r->elements);
    }
}

/* Appends the program of a pass for element e of pack c, number i of the row. It is also computed
 * for an element that does not exist (not `in`), whose result is not used: a condition around the
 * program would make the compiler compute one element after the other. */
static void say_program(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass, const bool *needed)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    say_begin(b, r, pass, needed);
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        const int reg = s->nin + k;
        if (fxi_gpu_reduces(ins) && ins->pass == pass && takes_all(r, ins))
            fxi_gpu_say(b, "q%d[c * %d + e] = r%d;\n", reg, r->elements, ins->src[0]);
        else if (fxi_gpu_reduces(ins) && ins->pass == pass)
            fxi_gpu_say(b, "if (in) a%d = fx_take%d(a%d, r%d, i);\n", reg, fxi_gpu_row_fold(r, ins),
                        reg, ins->src[0]);
        else if (computes(r, pass, needed, k)) {
            say_instr(b, r, ins, reg);
            if (r->kept[reg])
                fxi_gpu_say(b, "h%d[c * %d + e] = r%d;\n", reg, r->elements, reg);
        }
    }
    for (int k = 0; k < fxi_gpu_row_outputs(s); k++)
        if (stores(r, pass, k))
            fxi_gpu_say(b, "FX_STORE_%s(z%d.e, e, r%d);\n", output_type(r, k)->name, k,
                        output_register(s, k));
}

/* Appends the stores of the outputs of pack c that a pass completes. Memory is written in sectors
 * of 32 bytes. If the lanes stored their elements one after the other, they would write every
 * sector several times, because the elements of neighbouring lanes are a pack apart. */
static void say_stores(fxi_gpu_builder *b, const fxi_gpu_rows *r, int pass)
{
    char name[16], at[48];
    const int nout = fxi_gpu_row_outputs(r->step);
    const char *text = r->whole ? fxi_gpu_text_rows_stores_whole : fxi_gpu_text_rows_stores;
    text = fxi_gpu_say_until(b, text, "walk");
    if (r->out_pattern >= 0)
        say_walk(b, r);
    if (r->whole)
        text = fxi_gpu_say_until(b, text, "vector_stores");
    for (int k = 0; k < nout && r->whole; k++) {
        const fxi_gpu_pack pack = pack_out(r, k, name);
        name_out(r, k, at);
        if (stores(r, pass, k))
            fxi_gpu_say_pack_moved(b, &pack, true, at);
    }
    text = fxi_gpu_say_until(b, text, "stores");
    for (int k = 0; k < nout; k++) {
        name_out(r, k, at);
        if (stores(r, pass, k))
            fxi_gpu_say(b, "(%s)[%s] = z%d.e[e];\n", at, r->whole ? "e" : "0", k);
    }
    fxi_gpu_say_part(b, text);
}

static void say_elements(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass, const bool *needed)
{
    char name[16];
    bool any = false;
    if (!r->keeps)
        fxi_gpu_say(b, "for (fx_int base = start; base < count; base += lanes * %d) {\n",
                    r->packs * r->elements);
    if (!r->keeps)
        say_loads(b, r, needed);
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_rows_program, "collected");
    say_collected(b, r, pass);
    text = fxi_gpu_say_until(b, text, "packs_out");
    for (int k = 0; k < fxi_gpu_row_outputs(r->step); k++) {
        const fxi_gpu_pack pack = pack_out(r, k, name);
        if (stores(r, pass, k))
            fxi_gpu_say_pack(b, &pack);
        any |= stores(r, pass, k);
    }
    text = fxi_gpu_say_until(b, text, "program");
    say_program(b, r, pass, needed);
    text = fxi_gpu_say_until(b, text, "stores");
    if (any)
        say_stores(b, r, pass);
    text = fxi_gpu_say_until(b, text, "takes");
    say_takes(b, r, pass);
    fxi_gpu_say_part(b, text);
    if (!r->keeps)
        fxi_gpu_say(b, "}\n");
}

void fxi_gpu_say_row_result(fxi_gpu_builder *b, fxi_gpu_rows *r, int k)
{
    const fx_instr *ins = &fx_step_row(r->step)->program.instr[k];
    const int reg = r->step->nin + k, fold = fxi_gpu_row_fold(r, ins);
    const char *name = fxi_gpu_types[ins->dtype].name, *value = fxi_gpu_types[ins->dtype].value;
    /* Rounded as after every instruction (fxi_gpu_say_instr): fused and separate steps then give
     * the same bits. */
    if (ins->dtype == FX_DTYPE_F16 || ins->dtype == FX_DTYPE_BF16)
        fxi_gpu_say(b, "const fx_f32 r%d = fx_round_%s(fx_done%d(a%d));\n", reg, name, fold, reg);
    else
        fxi_gpu_say(b, "const %s r%d = fx_done%d(a%d);\n", value, reg, fold, reg);
}

/* Appends a pass. Reductions of one kind use the same local memory, one after the other. */
static void say_pass(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    bool needed[FXI_GPU_ROW_REGISTERS];
    const bool any = mark_needed(r, pass, needed);
    fxi_gpu_say_row_values(b, r, pass);
    for (int k = 0; k < p->n; k++)
        if (fxi_gpu_reduces(&p->instr[k]) && p->instr[k].pass == pass)
            fxi_gpu_say(b, "fx_acc%d a%d = fx_none%d();\n", fxi_gpu_row_fold(r, &p->instr[k]),
                        s->nin + k, fxi_gpu_row_fold(r, &p->instr[k]));
    say_divisors(b, r, pass, needed);
    if (any)
        say_elements(b, r, pass, needed);
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        if (!fxi_gpu_reduces(ins) || ins->pass != pass)
            continue;
        const int fold = fxi_gpu_row_fold(r, ins);
        fxi_gpu_say_tree(b, fold, s->nin + k, r->lanes.columns, fold == r->previous_fold);
        r->previous_fold = fold;
        if (r->pieces > 0)
            fxi_gpu_row_cut_leave(b, r, k);
        else
            fxi_gpu_say_row_result(b, r, k);
    }
}

/* Appends the registers of a kept row: operands, which are loaded before the first pass, and
 * values.
 */
static void say_kept(fxi_gpu_builder *b, const fxi_gpu_rows *r)
{
    const fx_program *p = &fx_step_row(r->step)->program;
    bool all[FXI_GPU_ROW_REGISTERS];
    if (!r->keeps)
        return;
    memset(all, true, sizeof all);
    fxi_gpu_say(b, "const fx_int base = start;\n");
    say_loads(b, r, all);
    for (int k = 0; k < p->n; k++)
        if (r->kept[r->step->nin + k])
            fxi_gpu_say(b, "%s h%d[%d];\n", fxi_gpu_types[p->instr[k].dtype].value,
                        r->step->nin + k, r->packs * r->elements);
}

/* Appends the values of the row that are outputs. */
static void say_outputs_of_row(fxi_gpu_builder *b, const fxi_gpu_rows *r)
{
    const fx_step *s = r->step;
    for (int k = 0; k < fxi_gpu_row_outputs(s); k++) {
        const int reg = output_register(s, k);
        const fx_instr *ins = &fx_step_row(s)->program.instr[reg - s->nin];
        if (ins->row)
            fxi_gpu_say(b, "if (lane == 0 && count > 0%s) FX_STORE_%s(y%d, row, r%d);\n",
                        r->pieces > 0 ? " && FX_GROUP_Y == 0" : "", fxi_gpu_types[ins->dtype].name,
                        k, reg);
    }
}

/* Appends the kernel of all passes, or of pass `only` if rows are cut. */
static void say_rows(fxi_gpu_builder *b, fxi_gpu_rows *r, int only)
{
    const fx_step *s = r->step;
    const int nout = fxi_gpu_row_outputs(s), outer = fxi_gpu_walk_params(&r->outer),
              inner = fxi_gpu_walk_params(&r->inner);
    fxi_gpu_begin(b, r->wide);
    int64_t bytes = 0;
    for (int k = 0; k < r->nfolds; k++)
        bytes += fxi_gpu_say_fold(b, k, r->folds[k].kind, r->folds[k].dtype, r->folds[k].result);
    say_division(b, r);
    /* Each kind of reduction has local memory of its own, one accumulator a lane. */
    if (b->limits->group_memory > 0 && FXI_GPU_GROUP * bytes > b->limits->group_memory)
        fxi_gpu_too_much(b, "a group needs %lld bytes of local memory; %s has %lld",
                         (long long)(FXI_GPU_GROUP * bytes), b->device->name,
                         (long long)b->limits->group_memory);
    fxi_gpu_kernel(b, "fx_rows", s->nin + nout + fxi_gpu_row_cut_buffers(r, only),
                   FXI_GPU_ROW_WALKS + outer + inner + fxi_gpu_row_cut_params(r));
    const char *text = fxi_gpu_say_until(b, fxi_gpu_text_rows, "operands");
    fxi_gpu_say_operands(b, s->in, s->nin);
    for (int k = 0; k < nout; k++)
        fxi_gpu_say(b, "FX_USE(%d, %s, y%d)\n", s->nin + k, output_type(r, k)->stored, k);
    fxi_gpu_row_cut_uses(b, r, only);
    text = fxi_gpu_say_until(b, text, "local");
    for (int k = 0; k < r->nfolds; k++)
        fxi_gpu_say(b, "FX_LOCAL(fx_acc%d, s%d, FX_GROUP);\n", k, k);
    text = fxi_gpu_say_until(b, text, "lanes");
    fxi_gpu_say_lanes(b, FXI_GPU_ROW_LANES);
    text = fxi_gpu_say_until(b, text, "range");
    fxi_gpu_row_cut_range(b, r);
    text = fxi_gpu_say_until(b, text, "walk");
    fxi_gpu_walk_say(b, &r->outer, FXI_GPU_ROW_WALKS, "row", "k", NULL);
    text = fxi_gpu_say_until(b, text, "values_of_row");
    for (int k = 0; k < s->nin; k++)
        if (!has_pack(r, k) && !r->counts[k])
            say_load(b, r, k);
    fxi_gpu_set_number(b, "elements", r->elements);
    fxi_gpu_set_number(b, "packs", r->packs);
    fxi_gpu_set(b, "gap", r->whole ? "1" : "lanes");
    fxi_gpu_set(b, "in", r->whole ? "at" : "i");
    fxi_gpu_set_number(b, "own_elements", r->whole ? r->elements : 1);
    text = fxi_gpu_say_until(b, text, "near");
    say_near(b, r);
    text = fxi_gpu_say_until(b, text, "kept");
    say_kept(b, r);
    text = fxi_gpu_say_until(b, text, "passes");
    r->previous_fold = -1;
    memset(r->divides, 0, sizeof r->divides);
    if (r->pieces > 0) {
        fxi_gpu_row_cut_found(b, r, only);
        say_pass(b, r, only);
    }
    for (int pass = 0; pass < r->npasses && r->pieces == 0; pass++)
        say_pass(b, r, pass);
    text = fxi_gpu_say_until(b, text, "outputs_of_row");
    /* Only the launch of the final pass has all values of the row. */
    if (r->pieces == 0 || only == r->npasses - 1)
        say_outputs_of_row(b, r);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
}

/* ---- the step -------------------------------------------------------------------------------- */
/* Are the elements of operand k their own indices in the row, integers that need not be loaded? */
static bool counts_elements(const fxi_gpu_rows *r, int k)
{
    const int dtype = r->step->in[k].dtype, p = r->loaded[k];
    bool counts = (fx_step_row(r->step)->counted >> k & 1) && p >= 0 &&
                  (dtype == FX_DTYPE_I32 || dtype == FX_DTYPE_I64) && r->inner.nd == 1 &&
                  r->inner.stride[p][0] == 1;
    /* The offset within a row is the whole offset only if all rows begin at the first number. */
    for (int d = 0; d < r->outer.nd; d++)
        counts = counts && r->outer.stride[p][d] == 0;
    return counts;
}

static void set_patterns(fxi_gpu_rows *r)
{
    const fx_step *s = r->step;
    const fx_row_step *own = fx_step_row(s);
    uint32_t inner = 0;
    for (int d = 0; d < own->space.ndim; d++)
        inner |= (uint32_t)fx_row_has_axis(own, d) << d;
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
        r->loaded[k] = r->of_row[k] ? -1 : r->pattern[k];
    }
    /* Outputs are dense; if the rows are contiguous, one row after the other. */
    r->out_pattern = own->outer_axes || own->column_axes
                         ? fxi_gpu_layout_add(&r->layout, own->space.stride)
                         : -1;
    r->outer = fxi_gpu_walk_over(&r->layout, ~inner);
    r->inner = fxi_gpu_walk_over(&r->layout, inner);
    for (int k = 0; k < s->nin; k++)
        if ((r->counts[k] = counts_elements(r, k)))
            r->loaded[k] = -1;
    r->count = fxi_gpu_walk_length(&r->outer);
    r->elements_of_row = fxi_gpu_walk_length(&r->inner);
    r->wide = fxi_gpu_layout_wide(&r->layout);
}

/* Before any text is built, because the types of accumulators are defined at its beginning. */
static bool list_folds(fxi_gpu_builder *b, fxi_gpu_rows *r)
{
    const fx_step *s = r->step;
    const fx_program *p = &fx_step_row(s)->program;
    for (int k = 0; k < p->n; k++) {
        const fx_instr *ins = &p->instr[k];
        r->npasses = ins->pass >= r->npasses ? ins->pass + 1 : r->npasses;
        if (!fxi_gpu_reduces(ins))
            continue;
        if (!fxi_gpu_has_fold(b, (int)ins->attr, ins->from))
            return false;
        if (fxi_gpu_row_fold(r, ins) == FXI_GPU_ROW_FOLDS) {
            fxi_gpu_too_much(b, "a row step has more than %d kinds of reductions",
                             (int)FXI_GPU_ROW_FOLDS);
            return false;
        }
    }
    return fxi_gpu_known(b);
}

static void launch(fxi_gpu_builder *b, const fxi_gpu_rows *r, int pass)
{
    const fx_step *s = r->step;
    fxi_gpu_call *c = fxi_gpu_add(b);
    for (int k = 0; k < s->nin; k++)
        fxi_gpu_buffer(c, k, FXI_GPU_IN, k);
    for (int k = 0; k < fxi_gpu_row_outputs(s); k++)
        fxi_gpu_buffer(c, s->nin + k, FXI_GPU_OUT, k);
    fxi_gpu_param(c, FXI_GPU_ROW_COUNT, r->count);
    fxi_gpu_param(c, FXI_GPU_ROW_LENGTH, r->elements_of_row);
    fxi_gpu_lanes_fill(r->lanes, c, FXI_GPU_ROW_LANES);
    fxi_gpu_walk_fill(&r->outer, c, FXI_GPU_ROW_WALKS);
    fxi_gpu_walk_fill(&r->inner, c, FXI_GPU_ROW_WALKS + fxi_gpu_walk_params(&r->outer));
    c->groups[0] = fxi_gpu_divide_up(r->count, FXI_GPU_GROUP / r->lanes.lanes);
    fxi_gpu_row_cut_fill(r, c, pass);
}

void fxi_gpu_row(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const fx_program *p = &fx_step_row(s)->program;
    fxi_gpu_rows r = {.step = s};
    if (s->nin > FXI_GPU_ROW_OPERANDS || s->nin + p->n > FXI_GPU_ROW_REGISTERS) {
        fxi_gpu_fail(b, FX_STATUS_INTERNAL,
                     "%d operands and %d instructions; the maximum is %d operands and %d registers",
                     (int)s->nin, (int)p->n, FXI_GPU_ROW_OPERANDS, FXI_GPU_ROW_REGISTERS);
        return;
    }
    set_patterns(&r);
    if (r.count == 0 || r.elements_of_row == 0 || !list_folds(b, &r))
        return;
    fxi_gpu_row_cut(b, &r);
    /* plan_kept supposes that rows stay in registers, and lists what they then need. From this
     * fxi_gpu_row_divide decides whether they do. */
    plan_kept(&r);
    fxi_gpu_row_divide(b, &r);
    /* A pass needs the totals of all pieces of a row, which other groups compute. Only the end of a
     * launch is sure to wait for them. */
    for (int pass = 0; pass < (r.pieces > 0 ? r.npasses : 1); pass++) {
        say_rows(b, &r, pass);
        launch(b, &r, pass);
    }
}
