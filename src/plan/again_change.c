/* again_change.c: replaces a value by the expression that again.c has chosen: in the programs of
 * its readers, and among the outputs of its step.
 *
 * The instructions of the expression are inserted into the program of each reader, with new numbers
 * of registers. An instruction that the program has already is not repeated, unless the step stores
 * its result: two outputs may not name one register.
 */
#include "again.h"

#include <string.h>

/* ---- programs -------------------------------------------------------------------------------- */

static fx_program *program_of(fx_step *s)
{
    return s->cls == FX_CLASS_ELEMENTWISE ? &s->as.elementwise.program
           : s->cls == FX_CLASS_ROW       ? &s->as.row.program
                                          : &s->as.reduce.program;
}

static fx_more_outputs *more_of(fx_step *s)
{
    return s->cls == FX_CLASS_ELEMENTWISE ? &s->as.elementwise.more : &s->as.row.more;
}

static int main_register(const fx_step *s)
{
    return s->cls == FX_CLASS_ROW ? s->as.row.out_reg : s->nin + fx_step_program(s).n - 1;
}

int fxi_again_register(const fx_step *s, int32_t k)
{
    return k == 0 ? main_register(s) : fx_step_more(s)->reg[k - 1];
}

int32_t fxi_again_output(const fx_step *s, int r)
{
    for (int32_t k = 0; k < fx_step_outputs(s); k++)
        if (fxi_again_register(s, k) == r)
            return k;
    return -1;
}

int fxi_again_operand(const fx_step *s, const fxi_leaf *l)
{
    for (int k = 0; k < s->nin; k++)
        if (s->in_value[k] == l->value && s->in_offset[k] == l->offset &&
            fxi_same_view(&s->in[k], &l->tensor))
            return k;
    return -1;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* If the tensor has one element for each row, expands it (stride 0) along the axes of the row. */
static fx_tensor repeated(fx_tensor t, const fx_tensor *space)
{
    for (int d = 0; d < t.ndim && t.ndim == space->ndim; d++)
        if (t.shape[d] == 1 && space->shape[d] != 1) {
            t.shape[d] = space->shape[d];
            t.stride[d] = 0;
        }
    return t;
}

void fxi_again_leaf_of_operand(const fxi_again *a, fxi_leaf *l, int k)
{
    const fx_step *s = &a->p->steps[a->made];
    l->value = s->in_value[k];
    l->offset = s->in_offset[k];
    l->tensor = repeated(s->in[k], fxi_again_space(s));
}

void fxi_again_leaf_of_output(const fxi_again *a, fxi_leaf *l, int32_t k)
{
    const fx_step *s = &a->p->steps[a->made];
    l->value = fx_step_output(s, k);
    l->offset = 0;
    l->tensor = repeated(fxi_step_output_tensor(s, k), fxi_again_space(s));
}

/* ---- readers --------------------------------------------------------------------------------- */

/* A program that is being written. */
typedef struct writing {
    fx_step *to;
    fx_instr *instr;
    int n;
    /* The new numbers of the registers of the reader, and of V's step. */
    uint8_t reader_map[FXI_AGAIN_REGISTERS], source_map[FXI_AGAIN_REGISTERS];
} writing;

/* Appends an instruction whose operands are numbered by `map`; returns its register. An equal
 * instruction is not repeated, unless the result is `stored`. */
static uint8_t append(writing *w, const fx_instr *ins, const uint8_t *map, bool stored)
{
    fx_instr next = *ins;
    for (int k = 0; k < ins->nsrc; k++)
        next.src[k] = map[ins->src[k]];
    for (int k = 0; k < w->n && !stored && ins->op != FX_OP_REDUCE; k++)
        if (fxi_same_instruction(&w->instr[k], &next))
            return (uint8_t)(w->to->nin + k);
    w->instr[w->n] = next;
    return (uint8_t)(w->to->nin + w->n++);
}

/* The pass in which step s first reads V. */
static uint8_t first_pass(const fxi_again *a, const fx_step *s)
{
    const fx_program program = fx_step_program(s);
    uint8_t pass = UINT8_MAX;
    for (int i = 0; i < program.n; i++)
        for (int j = 0; j < program.instr[i].nsrc; j++) {
            const uint8_t r = program.instr[i].src[j];
            if (r < s->nin && s->in_value[r] == a->v && program.instr[i].pass < pass)
                pass = program.instr[i].pass;
        }
    return pass == UINT8_MAX ? 0 : pass;
}

/* The first instruction of a row step that computes elements in this pass or in a later one. */
static int first_of_elements(const fx_step *s, uint8_t pass)
{
    const fx_program program = fx_step_program(s);
    int at = 0;
    while (at < program.n && (program.instr[at].pass < pass ||
                              (program.instr[at].pass == pass && program.instr[at].row &&
                               program.instr[at].op != FX_OP_REDUCE)))
        at++;
    return at;
}

/* Gives `to`, a copy of `reader`, the operands of the reader without V, and the leaves. */
static void set_operands(const fxi_again *a, const fx_step *reader, writing *w)
{
    fx_step *to = w->to;
    to->nin = 0;
    for (int k = 0; k < reader->nin; k++) {
        if (reader->in_value[k] == a->v)
            continue;
        to->in[to->nin] = reader->in[k];
        to->in_value[to->nin] = reader->in_value[k];
        to->in_offset[to->nin] = reader->in_offset[k];
        w->reader_map[k] = (uint8_t)to->nin++;
    }
    for (int i = 0; i < a->nleaves; i++) {
        const fxi_leaf *l = &a->leaves[i];
        int k = fxi_again_operand(to, l);
        if (k < 0) {
            k = to->nin++;
            to->in[k] = l->tensor;
            to->in_value[k] = l->value;
            to->in_offset[k] = l->offset;
        }
        w->source_map[l->reg] = (uint8_t)k;
    }
}

/* Writes the program of the reader, and inserts the expression before the first instruction that
 * computes elements in the pass that reads V. */
static void write_program(const fxi_again *a, const fx_step *reader, writing *w)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_program old = fx_step_program(reader), from = fx_step_program(s);
    const bool rows = reader->cls == FX_CLASS_ROW;
    const int first = reader->nin; /* the register of the reader's first instruction */
    const uint8_t pass = rows ? first_pass(a, reader) : 0;
    const int at = rows ? first_of_elements(reader, pass) : 0;
    for (int k = 0; k < at; k++)
        w->reader_map[first + k] =
            append(w, &old.instr[k], w->reader_map, fxi_again_output(reader, first + k) >= 0);
    for (int k = 0; k < from.n; k++) {
        fx_instr ins = from.instr[k];
        ins.pass = pass;
        if (a->wanted[s->nin + k])
            w->source_map[s->nin + k] = append(w, &ins, w->source_map, false);
    }
    for (int k = 0; k < reader->nin; k++)
        if (reader->in_value[k] == a->v)
            w->reader_map[k] = w->source_map[a->root];
    for (int k = at; k < old.n; k++)
        w->reader_map[first + k] =
            append(w, &old.instr[k], w->reader_map, fxi_again_output(reader, first + k) >= 0);
}

/* Replaces V by its expression in step number `which`. */
static bool compute_in(fxi_again *a, int32_t which)
{
    fx_step *reader = &a->p->steps[which], to = *reader;
    const size_t n = (size_t)(reader->nin + a->nleaves) + 1;
    const int instructions = fx_step_program(reader).n + a->ninstr;
    writing w = {.to = &to};
    to.in = fxi_calloc(n, sizeof *to.in);
    to.in_value = fxi_calloc(n, sizeof *to.in_value);
    to.in_offset = fxi_calloc(n, sizeof *to.in_offset);
    w.instr = fxi_calloc((size_t)instructions + 1, sizeof *w.instr);
    if (!to.in || !to.in_value || !to.in_offset || !w.instr) {
        fxi_free(to.in);
        fxi_free(to.in_value);
        fxi_free(to.in_offset);
        fxi_free(w.instr);
        return false;
    }
    set_operands(a, reader, &w);
    write_program(a, reader, &w);
    if (to.cls == FX_CLASS_ROW)
        to.as.row.out_reg = w.reader_map[reader->as.row.out_reg];
    for (int k = 0; to.cls != FX_CLASS_REDUCE && k < more_of(&to)->n; k++)
        more_of(&to)->reg[k] = w.reader_map[more_of(&to)->reg[k]];
    *program_of(&to) = (fx_program){w.instr, w.n};
    fxi_step_free(reader);
    *reader = to;
    return true;
}

/* Stores the leaves that are values of the row without a place in memory. */
static bool store_leaves(fxi_again *a)
{
    for (int i = 0; i < a->nleaves; i++) {
        fxi_leaf *l = &a->leaves[i];
        fx_step *s = &a->p->steps[a->made];
        if (l->value >= 0)
            continue;
        fx_more_outputs *more = more_of(s);
        more->reg[more->n++] = l->reg;
        const fx_tensor t = fxi_step_output_tensor(s, more->n);
        more->value[more->n - 1] = fxi_add_value(
            a->p, FXI_VALUE_ARENA, 0, fx_tensor_length(&t) * fx_tensor_element_bytes(&t));
        fxi_again_leaf_of_output(a, l, more->n);
        if (l->value < 0)
            return false;
    }
    return true;
}

bool fxi_again_in_readers(fxi_again *a)
{
    if (!store_leaves(a))
        return false;
    int32_t latest = -1;
    for (int32_t r = a->uses.first[a->v]; r < a->uses.first[a->v + 1]; r++) {
        const int32_t which = a->uses.reader[r];
        if (which != latest && !compute_in(a, which))
            return false;
        latest = which;
    }
    return true;
}

/* Lets the readers of V read value `other`. */
void fxi_again_read_instead(fxi_again *a, int32_t other)
{
    for (int32_t r = a->uses.first[a->v]; r < a->uses.first[a->v + 1]; r++) {
        fx_step *reader = &a->p->steps[a->uses.reader[r]];
        for (int k = 0; k < reader->nin; k++)
            if (reader->in_value[k] == a->v)
                reader->in_value[k] = other;
    }
    a->shared[other] = true;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Removes output k of V's step. If it was the main output, the last of the largest others becomes
 * the main output: only the main output may take over the memory of an operand (place.c), which
 * must have its size. Only row steps get here with k = 0 and other outputs (can_drop in again.c).
 */
void fxi_again_drop_output(fxi_again *a, int32_t k)
{
    fx_step *s = &a->p->steps[a->made];
    if (fx_step_outputs(s) == 1) {
        a->dead[a->made] = true;
        return;
    }
    fx_more_outputs *more = more_of(s);
    if (k == 0) {
        k = more->n;
        for (int32_t i = 1; i <= more->n; i++) {
            const fx_tensor t = fxi_step_output_tensor(s, i), best = fxi_step_output_tensor(s, k);
            if (fx_tensor_length(&t) >= fx_tensor_length(&best))
                k = i;
        }
        s->out = fxi_step_output_tensor(s, k);
        s->out_value = more->value[k - 1];
        s->as.row.out_reg = more->reg[k - 1];
    }
    more->n--;
    for (int32_t i = k - 1; i < more->n; i++) {
        more->reg[i] = more->reg[i + 1];
        more->value[i] = more->value[i + 1];
    }
}

void fxi_again_remove_dead(fxi_again *a)
{
    int32_t n = 0;
    for (int32_t i = 0; i < a->p->nsteps; i++)
        if (a->dead[i])
            fxi_step_free(&a->p->steps[i]);
        else
            a->p->steps[n++] = a->p->steps[i];
    a->p->nsteps = n;
}
