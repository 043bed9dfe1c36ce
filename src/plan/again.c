/* again.c: planner rule 8: on a device, a step computes a cheap value again from what is in memory
 * anyway, instead of reading it from memory.
 *
 * A pure function of the list of steps. In a network of 16-bit floats, norms compute in Float32:
 * their forward step would store the converted input, and the Float32 output, only for the backward
 * step. The backward step can read the 16-bit input instead. The output is a few operations on that
 * input and on values of the row. So the forward step need not store either.
 *
 * A value V of full size qualifies if all its readers are programs over the same elements, and if
 * its expression has few instructions, all of them cheap. The leaves of the expression are operands
 * of V's step, other values that this step stores, and its values of the row (which are stored if
 * they are not yet). The readers must read less memory than before, and the leaves that are kept
 * for longer may not be larger than V.
 *
 * Before that, a value that equals an earlier output of its step, such as an activation that two
 * layers convert, is replaced by that output.
 *
 * Only on devices with memory of their own: a CPU would need as long for the instructions as for
 * the loads. Each instruction rounds as before, so the bits stay the same.
 */
#include "build.h"
#include "uses.h"

#include <string.h>

enum {
    REGISTERS = 256,
    EXPRESSION = 8, /* the most instructions of an expression */
    LEAVES = 8,     /* and of its leaves */
    READERS = 8,    /* a value with more readers is stored */
    MOST_OPERANDS = FXI_ROW_INPUTS,
    MOST_INSTRUCTIONS = FXI_GROUP_INSTRUCTIONS
};

/* An operand of the expression, in the shape of the elements. */
typedef struct leaf {
    uint8_t reg; /* in V's step */
    fx_tensor tensor;
    int32_t value; /* −1: the value of the row is not stored yet */
    int64_t offset;
} leaf;

typedef struct again {
    const fxi_planner *how;
    fxi_plan *p;
    fxi_uses uses;
    int32_t nvalues; /* that uses lists */
    bool *dead;      /* per step: nothing reads its output any more */
    bool *shared;    /* per value: it has readers that uses does not list */
    /* The expression that is examined: register `root` of step `made`, which is value v. */
    int32_t made, v;
    int root, ninstr, nleaves;
    bool wanted[REGISTERS]; /* instructions of the expression */
    leaf leaves[LEAVES];
} again;

/* ---- programs -------------------------------------------------------------------------------- */

static bool has_program(const fx_step *s)
{
    return !s->in_memory_order && (s->cls == FX_CLASS_ELEMENTWISE || s->cls == FX_CLASS_ROW ||
                                   (s->cls == FX_CLASS_REDUCE && s->as.reduce.program.n > 0));
}

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

/* The shape of the elements that the program computes. */
static const fx_tensor *space_of(const fx_step *s)
{
    return s->cls == FX_CLASS_ELEMENTWISE ? &s->out
           : s->cls == FX_CLASS_ROW       ? &s->as.row.space
                                          : &s->as.reduce.space;
}

static int main_register(const fx_step *s)
{
    return s->cls == FX_CLASS_ROW ? s->as.row.out_reg : s->nin + fx_step_program(s).n - 1;
}

static int output_register(const fx_step *s, int32_t k)
{
    return k == 0 ? main_register(s) : fx_step_more(s)->reg[k - 1];
}

/* The output of step s that stores register r; −1: none. */
static int32_t output_of(const fx_step *s, int r)
{
    for (int32_t k = 0; k < fx_step_outputs(s); k++)
        if (output_register(s, k) == r)
            return k;
    return -1;
}

static bool same_shape(const fx_tensor *a, const fx_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* Is the tensor one element after the other, in the shape of the elements of s? */
static bool is_whole(const fx_step *s, const fx_tensor *t, int64_t offset)
{
    return offset == 0 && same_shape(t, space_of(s)) && fxi_is_dense(t->ndim, t->shape, t->stride);
}

/* The bytes that a kernel reads of an operand: a number, or a value for each row, has few. */
static int64_t bytes_of(const fx_tensor *t)
{
    int64_t n = fx_tensor_element_bytes(t);
    for (int d = 0; d < t->ndim; d++)
        n *= t->stride[d] ? t->shape[d] : 1;
    return n;
}

static bool same_operand(const fx_step *s, int k, const leaf *l)
{
    return s->in_value[k] == l->value && s->in_offset[k] == l->offset &&
           s->in[k].dtype == l->tensor.dtype && same_shape(&s->in[k], &l->tensor) &&
           memcmp(s->in[k].stride, l->tensor.stride,
                  (size_t)l->tensor.ndim * sizeof *l->tensor.stride) == 0;
}

static bool same_instruction(const fx_instr *x, const fx_instr *y)
{
    return x->op == y->op && x->dtype == y->dtype && x->from == y->from && x->row == y->row &&
           x->attr == y->attr && x->nsrc == y->nsrc && memcmp(x->src, y->src, x->nsrc) == 0;
}

/* Instructions that take less time than a load, on a device with much more arithmetic than memory.
 * Exponentials of a softmax are not among them: the text of a row step would have two for each
 * element. */
static bool is_cheap(const fx_instr *ins)
{
    enum { POWER = 4 }; /* the largest exponent */
    switch (ins->op) {
    case FX_OP_POWI:
        return ins->attr >= 0 && ins->attr <= POWER;
    case FX_OP_SIGMOID:
    case FX_OP_TANH:
    case FX_OP_DIV:
    case FX_OP_ADD:
    case FX_OP_SUB:
    case FX_OP_MUL:
    case FX_OP_NEG:
    case FX_OP_RELU:
    case FX_OP_CAST:
    case FX_OP_SELECT:
    case FX_OP_LT:
    case FX_OP_LE:
    case FX_OP_EQ:
    case FX_OP_NE:
        return true;
    default:
        return false;
    }
}

/* ---- the expression -------------------------------------------------------------------------- */

/* Repeats a tensor with one element for each row along the axes of the row. */
static fx_tensor repeated(fx_tensor t, const fx_tensor *space)
{
    for (int d = 0; d < t.ndim && t.ndim == space->ndim; d++)
        if (t.shape[d] == 1 && space->shape[d] != 1) {
            t.shape[d] = space->shape[d];
            t.stride[d] = 0;
        }
    return t;
}

static bool add_leaf(again *a, int r)
{
    const fx_step *s = &a->p->steps[a->made];
    if (a->nleaves == LEAVES)
        return false;
    leaf *l = &a->leaves[a->nleaves++];
    *l = (leaf){.reg = (uint8_t)r, .value = -1};
    if (r < s->nin) {
        l->value = s->in_value[r];
        l->offset = s->in_offset[r];
        l->tensor = repeated(s->in[r], space_of(s));
        return true;
    }
    const int32_t k = output_of(s, r);
    if (k >= 0) {
        l->value = fx_step_output(s, k);
        l->tensor = fxi_step_output_tensor(s, k);
        fxi_dense_strides(l->tensor.ndim, l->tensor.shape, l->tensor.stride);
        l->tensor = repeated(l->tensor, space_of(s));
    }
    return true;
}

/* Finds the instructions and leaves of the expression: against the order of the program, so that an
 * instruction is visited after its readers. `deep`: stored values of full size are computed again
 * too; else they are leaves. */
static bool find_expression(again *a, bool deep)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_program program = fx_step_program(s);
    bool read[REGISTERS] = {false};
    a->ninstr = a->nleaves = 0;
    memset(a->wanted, 0, sizeof a->wanted);
    read[a->root] = true;
    for (int r = a->root; r >= 0; r--) {
        const fx_instr *ins = r >= s->nin ? &program.instr[r - s->nin] : NULL;
        if (!read[r])
            continue;
        if (!ins || ins->row || (r != a->root && !deep && output_of(s, r) >= 0)) {
            if (!add_leaf(a, r))
                return false;
            continue;
        }
        if (!is_cheap(ins) || ++a->ninstr > EXPRESSION)
            return false;
        a->wanted[r] = true;
        for (int k = 0; k < ins->nsrc; k++)
            read[ins->src[k]] = true;
    }
    return true;
}

/* Values of the row that are not stored yet need an output each. */
static int32_t unstored_leaves(const again *a)
{
    int32_t n = 0;
    for (int k = 0; k < a->nleaves; k++)
        n += a->leaves[k].value < 0;
    return n;
}

/* ---- does it pay? ---------------------------------------------------------------------------- */

/* Can step `reader` compute the expression? Adds the bytes that it reads for it. */
static bool suits(const again *a, const fx_step *reader, int64_t *io_bytes)
{
    const fx_step *s = &a->p->steps[a->made];
    int32_t operands = reader->nin, instructions = fx_step_program(reader).n + a->ninstr;
    if (!has_program(reader) || !same_shape(space_of(reader), space_of(s)))
        return false;
    for (int k = 0; k < reader->nin; k++)
        if (reader->in_value[k] == a->v && !is_whole(s, &reader->in[k], reader->in_offset[k]))
            return false;
    for (int i = 0; i < a->nleaves; i++) {
        bool has = false;
        for (int k = 0; k < reader->nin; k++)
            has |= same_operand(reader, k, &a->leaves[i]);
        operands += !has;
        *io_bytes += has || a->leaves[i].value < 0 ? 0 : bytes_of(&a->leaves[i].tensor);
    }
    return operands <= MOST_OPERANDS && instructions <= MOST_INSTRUCTIONS &&
           operands + fx_step_outputs(reader) <= a->how->buffers - 1;
}

/* The last step that reads value v. */
static int32_t last_reader(const again *a, int32_t v)
{
    int32_t last = -1;
    for (int32_t r = a->uses.first[v]; r < a->uses.first[v + 1]; r++)
        last = a->uses.reader[r] > last ? a->uses.reader[r] : last;
    return last;
}

/* The bytes of leaves in the arena that must be kept for longer. */
static int64_t kept_longer(const again *a)
{
    const int32_t end = last_reader(a, a->v);
    int64_t bytes = 0;
    for (int k = 0; k < a->nleaves; k++) {
        const int32_t value = a->leaves[k].value;
        if (value >= 0 && value < a->nvalues && a->p->values[value].kind == FXI_VALUE_ARENA &&
            last_reader(a, value) < end)
            bytes += a->p->values[value].bytes;
    }
    return bytes;
}

/* Half of the traffic must be saved at least: longer programs cost something too. */
static bool pays(const again *a)
{
    const int64_t size = a->p->values[a->v].bytes;
    const int32_t from = a->uses.first[a->v], to = a->uses.first[a->v + 1];
    int64_t bytes = 0, before = size;
    int32_t latest = -1;
    if (from == to || to - from > READERS)
        return false;
    for (int32_t r = from; r < to; r++) {
        /* A step that reads it as two operands is listed twice, one after the other. */
        if (a->uses.reader[r] == latest)
            continue;
        latest = a->uses.reader[r];
        before += size;
        if (!suits(a, &a->p->steps[latest], &bytes))
            return false;
    }
    return 2 * bytes <= before && kept_longer(a) <= size;
}

/* Can V's step do without this output? The last value of an elementwise program is always stored.
 */
static bool can_drop(const again *a, int32_t k)
{
    const fx_step *s = &a->p->steps[a->made];
    return k > 0 || fx_step_outputs(s) == 1 || s->cls == FX_CLASS_ROW;
}

/* ---- the change ------------------------------------------------------------------------------ */

/* A program that is being written. */
typedef struct writing {
    fx_step *to;
    fx_instr *instr;
    int n;
    uint8_t of_reader[REGISTERS], of_maker[REGISTERS]; /* the new numbers of registers */
} writing;

/* Appends an instruction whose operands are numbered by `map`; returns its register. An equal
 * instruction is not repeated, unless `always`. */
static uint8_t append(writing *w, const fx_instr *ins, const uint8_t *map, bool always)
{
    fx_instr next = *ins;
    for (int k = 0; k < ins->nsrc; k++)
        next.src[k] = map[ins->src[k]];
    for (int k = 0; k < w->n && !always && ins->op != FX_OP_REDUCE; k++)
        if (same_instruction(&w->instr[k], &next))
            return (uint8_t)(w->to->nin + k);
    w->instr[w->n] = next;
    return (uint8_t)(w->to->nin + w->n++);
}

/* The pass in which step s first reads V. */
static uint8_t first_pass(const again *a, const fx_step *s)
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

/* The first instruction of a row step that computes elements in a pass, or a later one. */
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
static void set_operands(const again *a, const fx_step *reader, writing *w)
{
    fx_step *to = w->to;
    to->nin = 0;
    for (int k = 0; k < reader->nin; k++) {
        if (reader->in_value[k] == a->v)
            continue;
        to->in[to->nin] = reader->in[k];
        to->in_value[to->nin] = reader->in_value[k];
        to->in_offset[to->nin] = reader->in_offset[k];
        w->of_reader[k] = (uint8_t)to->nin++;
    }
    for (int i = 0; i < a->nleaves; i++) {
        const leaf *l = &a->leaves[i];
        int k = 0;
        while (k < to->nin && !same_operand(to, k, l))
            k++;
        if (k == to->nin) {
            to->in[k] = l->tensor;
            to->in_value[k] = l->value;
            to->in_offset[k] = l->offset;
            to->nin++;
        }
        w->of_maker[l->reg] = (uint8_t)k;
    }
}

/* Writes the program of the reader with the expression before the first instruction that computes
 * elements in the pass that reads V. */
static void write_program(const again *a, const fx_step *reader, writing *w)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_program old = fx_step_program(reader), from = fx_step_program(s);
    const bool rows = reader->cls == FX_CLASS_ROW;
    const uint8_t pass = rows ? first_pass(a, reader) : 0;
    const int at = rows ? first_of_elements(reader, pass) : 0;
    for (int k = 0; k < at; k++)
        w->of_reader[reader->nin + k] = append(w, &old.instr[k], w->of_reader, false);
    for (int k = 0; k < from.n; k++) {
        fx_instr ins = from.instr[k];
        ins.pass = pass;
        if (a->wanted[s->nin + k])
            w->of_maker[s->nin + k] = append(w, &ins, w->of_maker, false);
    }
    for (int k = 0; k < reader->nin; k++)
        if (reader->in_value[k] == a->v)
            w->of_reader[k] = w->of_maker[a->root];
    /* The last instruction of other steps is their result. */
    for (int k = at; k < old.n; k++)
        w->of_reader[reader->nin + k] =
            append(w, &old.instr[k], w->of_reader, k == old.n - 1 && !rows);
}

/* fx_row_step.counted with the new numbers of the operands. */
static uint32_t counted_of(const again *a, const fx_step *reader, const writing *w)
{
    uint32_t counted = 0;
    for (int k = 0; k < reader->nin; k++)
        if (reader->in_value[k] != a->v && reader->as.row.counted >> k & 1)
            counted |= UINT32_C(1) << w->of_reader[k];
    return counted;
}

/* Replaces V by its expression in step number `which`. */
static bool compute_in(again *a, int32_t which)
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
    if (to.cls == FX_CLASS_ROW) {
        to.as.row.out_reg = w.of_reader[reader->as.row.out_reg];
        to.as.row.counted = counted_of(a, reader, &w);
    }
    for (int k = 0; to.cls != FX_CLASS_REDUCE && k < more_of(&to)->n; k++)
        more_of(&to)->reg[k] = w.of_reader[more_of(&to)->reg[k]];
    *program_of(&to) = (fx_program){w.instr, w.n};
    fxi_step_free(reader);
    *reader = to;
    return true;
}

/* Stores the leaves that are values of the row without a place in memory. */
static bool store_leaves(again *a)
{
    for (int i = 0; i < a->nleaves; i++) {
        leaf *l = &a->leaves[i];
        fx_step *s = &a->p->steps[a->made];
        if (l->value >= 0)
            continue;
        fx_more_outputs *more = more_of(s);
        more->reg[more->n++] = l->reg;
        fx_tensor t = fxi_step_output_tensor(s, more->n);
        fxi_dense_strides(t.ndim, t.shape, t.stride);
        l->value = fxi_add_value(a->p, FXI_VALUE_ARENA, 0,
                                 fx_tensor_length(&t) * fx_tensor_element_bytes(&t));
        more->value[more->n - 1] = l->value;
        l->tensor = repeated(t, space_of(s));
        if (l->value < 0)
            return false;
    }
    return true;
}

/* Removes output k of V's step. Another output becomes the main one: the last of full size, which
 * may take over the memory of an operand, or the last of all. */
static void drop_output(again *a, int32_t k)
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
        fxi_dense_strides(s->out.ndim, s->out.shape, s->out.stride);
        s->out_value = more->value[k - 1];
        s->as.row.out_reg = more->reg[k - 1];
    }
    more->n--;
    for (int32_t i = k - 1; i < more->n; i++) {
        more->reg[i] = more->reg[i + 1];
        more->value[i] = more->value[i + 1];
    }
}

/* ---- all values ------------------------------------------------------------------------------ */

/* The output of V's step that equals output k; −1: none. */
static int32_t equal_output(const again *a, int32_t k)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_instr *instr = fx_step_program(s).instr, *x = &instr[output_register(s, k) - s->nin];
    for (int32_t i = 0; i < fx_step_outputs(s); i++)
        if (i != k && same_instruction(x, &instr[output_register(s, i) - s->nin]))
            return i;
    return -1;
}

/* Lets the readers of V read value `other`. */
static void read_instead(again *a, int32_t other)
{
    for (int32_t r = a->uses.first[a->v]; r < a->uses.first[a->v + 1]; r++) {
        fx_step *reader = &a->p->steps[a->uses.reader[r]];
        for (int k = 0; k < reader->nin; k++)
            if (reader->in_value[k] == a->v)
                reader->in_value[k] = other;
    }
    a->shared[other] = true;
}

/* Is there an expression that pays, and space for what V's step must store for it? */
static bool has_expression(again *a)
{
    const fx_step *s = &a->p->steps[a->made];
    for (int deep = 0; deep < 2; deep++)
        if (find_expression(a, deep) && pays(a) &&
            fx_step_outputs(s) + unstored_leaves(a) <= FXI_ROW_OUTPUTS &&
            s->nin + fx_step_outputs(s) + unstored_leaves(a) <= a->how->buffers - 1)
            return true;
    return false;
}

static bool compute_in_readers(again *a)
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

/* Drops output k, which is V, if its readers can do without it. False if an allocation fails. */
static bool try_output(again *a, int32_t k)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_instr *ins = &fx_step_program(s).instr[output_register(s, k) - s->nin];
    const fxi_value *v = &a->p->values[fx_step_output(s, k)];
    a->v = fx_step_output(s, k);
    a->root = output_register(s, k);
    if (v->kind != FXI_VALUE_ARENA || v->channels_last || a->v >= a->nvalues || a->shared[a->v] ||
        ins->row || ins->op == FX_OP_REDUCE || !can_drop(a, k))
        return true;
    const int32_t equal = equal_output(a, k);
    if (equal >= 0 && fx_step_output(s, equal) < a->nvalues)
        read_instead(a, fx_step_output(s, equal));
    else if (!has_expression(a))
        return true;
    else if (!compute_in_readers(a))
        return false;
    drop_output(a, k);
    return true;
}

/* In the order of the registers: an expression then stops at stored values that are settled. */
static bool try_step(again *a, int32_t which)
{
    a->made = which;
    const fx_step *s = &a->p->steps[which];
    if (s->in_memory_order || (s->cls != FX_CLASS_ELEMENTWISE && s->cls != FX_CLASS_ROW))
        return true;
    const int end = s->nin + fx_step_program(s).n;
    bool ok = true;
    for (int r = s->nin; r < end && ok && !a->dead[which]; r++) {
        const int32_t k = output_of(&a->p->steps[which], r);
        ok = k < 0 || try_output(a, k);
    }
    return ok;
}

static void remove_dead(again *a)
{
    int32_t n = 0;
    for (int32_t i = 0; i < a->p->nsteps; i++)
        if (a->dead[i])
            fxi_step_free(&a->p->steps[i]);
        else
            a->p->steps[n++] = a->p->steps[i];
    a->p->nsteps = n;
}

bool fxi_compute_again(const fxi_planner *how, fxi_plan *p)
{
    again a = {.how = how, .p = p, .nvalues = p->nvalues};
    a.dead = fxi_calloc((size_t)p->nsteps + 1, sizeof *a.dead);
    a.shared = fxi_calloc((size_t)p->nvalues + 1, sizeof *a.shared);
    bool ok = fxi_uses_list(p, &a.uses) && a.dead && a.shared;
    for (int32_t i = 0; i < p->nsteps && ok; i++)
        ok = try_step(&a, i);
    if (a.dead)
        remove_dead(&a);
    fxi_free(a.dead);
    fxi_free(a.shared);
    fxi_uses_free(&a.uses);
    return ok;
}
