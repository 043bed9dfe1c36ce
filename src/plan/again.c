/* again.c: planner rule 8: on a device with its own memory (a GPU), a step computes a cheap value
 * again from values that it reads anyway, instead of reading that value from memory.
 *
 * A pure function of the list of steps. In a network of 16-bit floats, norms compute in Float32:
 * their forward step would store the converted input, and the Float32 output, only for the backward
 * step. The backward step can read the 16-bit input instead. The output is a few operations on that
 * input and on values of the row. So the forward step need not store either.
 *
 * A value V qualifies if it has one element for each element of its step, if all its readers are
 * programs over the same elements, and if its expression has few instructions, all of them cheap.
 * The leaves of the expression are operands of V's step, other values that this step stores, and
 * its values of the row (which are stored if they are not yet). What the readers load instead of V
 * may be at most half of the bytes that the store and the loads of V took. The leaves that must be
 * kept for longer may not be larger than V.
 *
 * First, a value that equals another output of its step is replaced by that output. Example: an
 * activation that two layers convert to Float32.
 *
 * The rule is not applied on the CPU, which would need as long for the instructions as for the
 * loads. Each instruction rounds as before, so the bits stay the same.
 */
#include "again.h"

#include <string.h>

enum {
    EXPRESSION = 8, /* the most instructions of an expression */
    READERS = 8,    /* a value with more readers is stored */
    MOST_OPERANDS = FXI_ROW_INPUTS,
    MOST_INSTRUCTIONS = FXI_GROUP_INSTRUCTIONS
};

/* ---- programs -------------------------------------------------------------------------------- */

static bool has_program(const fx_step *s)
{
    return !s->in_memory_order && (s->cls == FX_CLASS_ELEMENTWISE || s->cls == FX_CLASS_ROW ||
                                   (s->cls == FX_CLASS_REDUCE && s->as.reduce.program.n > 0));
}

static bool same_shape(const fx_tensor *a, const fx_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* Is the tensor one element after the other, in the shape of the elements of s? */
static bool is_whole(const fx_step *s, const fx_tensor *t, int64_t offset)
{
    return offset == 0 && same_shape(t, fxi_again_space(s)) &&
           fxi_is_dense(t->ndim, t->shape, t->stride);
}

/* Instructions that take less time than a load on a GPU, whose arithmetic is much faster than its
 * memory. FX_OP_EXP is not among them, so the exponentials of a softmax stay stored: otherwise the
 * kernel text of a row step would have two exponentials for each element. */
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

static bool add_leaf(fxi_again *a, int r)
{
    const fx_step *s = &a->p->steps[a->made];
    if (a->nleaves == FXI_AGAIN_LEAVES)
        return false;
    fxi_leaf *l = &a->leaves[a->nleaves++];
    *l = (fxi_leaf){.reg = (uint8_t)r, .value = -1};
    const int32_t k = r < s->nin ? -1 : fxi_again_output(s, r);
    if (r < s->nin)
        fxi_again_leaf_of_operand(a, l, r);
    else if (k >= 0)
        fxi_again_leaf_of_output(a, l, k);
    return true;
}

/* Finds the instructions and leaves of the expression, from the last instruction to the first, so
 * that an instruction is visited after its readers. `deep`: stored values of full size are computed
 * again too; else they are leaves. */
static bool find_expression(fxi_again *a, bool deep)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_program program = fx_step_program(s);
    bool read[FXI_AGAIN_REGISTERS] = {false};
    a->ninstr = a->nleaves = 0;
    memset(a->wanted, 0, sizeof a->wanted);
    read[a->root] = true;
    for (int r = a->root; r >= 0; r--) {
        const fx_instr *ins = r >= s->nin ? &program.instr[r - s->nin] : NULL;
        if (!read[r])
            continue;
        if (!ins || ins->row || (r != a->root && !deep && fxi_again_output(s, r) >= 0)) {
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
static int32_t unstored_leaves(const fxi_again *a)
{
    int32_t n = 0;
    for (int k = 0; k < a->nleaves; k++)
        n += a->leaves[k].value < 0;
    return n;
}

/* ---- does it pay? ---------------------------------------------------------------------------- */

/* Can step `reader` compute the expression? Adds to *io_bytes what it must read in addition. */
static bool suits(const fxi_again *a, const fx_step *reader, int64_t *io_bytes)
{
    const fx_step *s = &a->p->steps[a->made];
    int32_t operands = reader->nin, instructions = fx_step_program(reader).n + a->ninstr;
    if (!has_program(reader) || !same_shape(fxi_again_space(reader), fxi_again_space(s)))
        return false;
    for (int k = 0; k < reader->nin; k++)
        if (reader->in_value[k] == a->v && !is_whole(s, &reader->in[k], reader->in_offset[k]))
            return false;
    for (int i = 0; i < a->nleaves; i++) {
        const bool has = fxi_again_operand(reader, &a->leaves[i]) >= 0;
        operands += !has;
        *io_bytes += has || a->leaves[i].value < 0 ? 0 : fxi_stored_bytes(&a->leaves[i].tensor);
    }
    /* One buffer of a step is its work space (fx_step_buffers). */
    return operands <= MOST_OPERANDS && instructions <= MOST_INSTRUCTIONS &&
           operands + fx_step_outputs(reader) <= a->how->buffers - 1;
}

/* The last step that reads value v. */
static int32_t last_reader(const fxi_again *a, int32_t v)
{
    int32_t last = -1;
    for (int32_t r = a->uses.first[v]; r < a->uses.first[v + 1]; r++)
        last = a->uses.reader[r] > last ? a->uses.reader[r] : last;
    return last;
}

/* The bytes of leaves in the arena that must be kept for longer. */
static int64_t kept_longer(const fxi_again *a)
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

/* At least half of the traffic must be saved: longer programs cost something too. */
static bool pays(const fxi_again *a)
{
    const int64_t size = a->p->values[a->v].bytes;
    const int32_t from = a->uses.first[a->v], to = a->uses.first[a->v + 1];
    int64_t bytes = 0, before = size;
    int32_t latest = -1;
    if (from == to || to - from > READERS)
        return false;
    for (int32_t r = from; r < to; r++) {
        /* A step that reads V as two operands is listed twice, one after the other. */
        if (a->uses.reader[r] == latest)
            continue;
        latest = a->uses.reader[r];
        before += size;
        if (!suits(a, &a->p->steps[latest], &bytes))
            return false;
    }
    return 2 * bytes <= before && kept_longer(a) <= size;
}

/* Can V's step do without output k? The main output of an elementwise step is the last value of its
 * program, so it is removed only with the whole step. */
static bool can_drop(const fxi_again *a, int32_t k)
{
    const fx_step *s = &a->p->steps[a->made];
    return k > 0 || fx_step_outputs(s) == 1 || s->cls == FX_CLASS_ROW;
}

/* ---- all values ------------------------------------------------------------------------------ */

/* The output of V's step that equals output k; −1: none. */
static int32_t equal_output(const fxi_again *a, int32_t k)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_instr *instr = fx_step_program(s).instr,
                   *x = &instr[fxi_again_register(s, k) - s->nin];
    for (int32_t i = 0; i < fx_step_outputs(s); i++)
        if (i != k && fxi_same_instruction(x, &instr[fxi_again_register(s, i) - s->nin]))
            return i;
    return -1;
}

/* Is there an expression that pays, and may V's step have the further outputs that it needs? The
 * expression that stops at stored values is tried first, because it has fewer instructions. */
static bool has_expression(fxi_again *a)
{
    const fx_step *s = &a->p->steps[a->made];
    for (int deep = 0; deep < 2; deep++)
        if (find_expression(a, deep) && pays(a) &&
            fx_step_outputs(s) + unstored_leaves(a) <= FXI_ROW_OUTPUTS &&
            s->nin + fx_step_outputs(s) + unstored_leaves(a) <= a->how->buffers - 1)
            return true;
    return false;
}

/* Drops output k, which is V, if its readers can compute V or read an equal value. False if an
 * allocation fails. */
static bool try_output(fxi_again *a, int32_t k)
{
    const fx_step *s = &a->p->steps[a->made];
    const fx_instr *ins = &fx_step_program(s).instr[fxi_again_register(s, k) - s->nin];
    const fxi_value *v = &a->p->values[fx_step_output(s, k)];
    a->v = fx_step_output(s, k);
    a->root = fxi_again_register(s, k);
    if (v->kind != FXI_VALUE_ARENA || v->channels_last || a->v >= a->nvalues || a->shared[a->v] ||
        ins->row || ins->op == FX_OP_REDUCE || !can_drop(a, k))
        return true;
    const int32_t equal = equal_output(a, k);
    if (equal >= 0 && fx_step_output(s, equal) < a->nvalues)
        fxi_again_read_instead(a, fx_step_output(s, equal));
    else if (!has_expression(a))
        return true;
    else if (!fxi_again_in_readers(a))
        return false;
    fxi_again_drop_output(a, k);
    return true;
}

/* In the order of the registers: the leaves of an expression have smaller registers, so it is
 * already decided which of them stay stored. */
static bool try_step(fxi_again *a, int32_t which)
{
    a->made = which;
    const fx_step *s = &a->p->steps[which];
    if (s->in_memory_order || (s->cls != FX_CLASS_ELEMENTWISE && s->cls != FX_CLASS_ROW))
        return true;
    const int end = s->nin + fx_step_program(s).n;
    bool ok = true;
    for (int r = s->nin; r < end && ok && !a->dead[which]; r++) {
        const int32_t k = fxi_again_output(&a->p->steps[which], r);
        ok = k < 0 || try_output(a, k);
    }
    return ok;
}

bool fxi_compute_again(const fxi_planner *how, fxi_plan *p)
{
    fxi_again a = {.how = how, .p = p, .nvalues = p->nvalues};
    a.dead = fxi_calloc((size_t)p->nsteps + 1, sizeof *a.dead);
    a.shared = fxi_calloc((size_t)p->nvalues + 1, sizeof *a.shared);
    bool ok = fxi_uses_list(p, &a.uses) && a.dead && a.shared;
    for (int32_t i = 0; i < p->nsteps && ok; i++)
        ok = try_step(&a, i);
    if (a.dead)
        fxi_again_remove_dead(&a);
    fxi_free(a.dead);
    fxi_free(a.shared);
    fxi_uses_free(&a.uses);
    return ok;
}
