/* gpu_program.c: appends register programs to a kernel, one line for each instruction.
 *
 * Each operation is a row of op.def, with an expression for reals and one for integers; NULL means
 * that the type does not support the operation. Integers compute in an unsigned type, so that
 * overflow wraps. Float16 and BFloat16 are Float32 values that are rounded to 16 bits after every
 * instruction, as on the CPU.
 */
#include "gpu_text.h"

#include <stdio.h>
#include <string.h>

/* The characters of names and numbers. */
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

const fxi_gpu_type fxi_gpu_types[FX_DTYPE_COUNT] = {
#define REAL(n, stored, value, value_name, math, size)                                             \
    {                                                                                              \
        n, stored, value, value_name, NULL, "-FX_INF", "FX_INF", math, size                        \
    }
#define WHOLE(n, T, U, low, high, size)                                                            \
    {                                                                                              \
        n, T, T, n, U, low, high, NULL, size                                                       \
    }
    [FX_DTYPE_F32] = REAL("f32", "fx_f32", "fx_f32", "f32", "FX_F32", 4),
    [FX_DTYPE_F64] = REAL("f64", "fx_f64", "fx_f64", "f64", "FX_F64", 8),
    [FX_DTYPE_F16] = REAL("f16", "fx_u16", "fx_f32", "f32", "FX_F32", 2),
    [FX_DTYPE_BF16] = REAL("bf16", "fx_u16", "fx_f32", "f32", "FX_F32", 2),
    [FX_DTYPE_I32] = WHOLE("i32", "fx_i32", "fx_u32", "(-0x7fffffff - 1)", "0x7fffffff", 4),
    [FX_DTYPE_I64] = WHOLE("i64", "fx_i64", "fx_u64", "(-FX_I64_LAST - 1)", "FX_I64_LAST", 8),
    [FX_DTYPE_U8] = WHOLE("u8", "fx_u8", "fx_u32", "0", "255", 1),
    [FX_DTYPE_BOOL] = WHOLE("bool", "fx_u8", "fx_u32", "0", "1", 1),
};

typedef struct expression {
    const char *real, *integer;
} expression;
/* Operations that are defined for reals only have no integer expression. */
#define WHOLE_REAL(text)    NULL
#define WHOLE_COUNT(text)   text
#define WHOLE_KEEP(text)    text
#define WHOLE_COMPARE(text) text
static const expression expressions[FX_OP_COUNT] = {
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    [FX_OP_##NAME] = {#real, WHOLE_##rule(#whole)},
#include <cflux/op.def>
    [FX_OP_SELECT] = {"a ? b : c", "a ? b : c"},
};

/* CAST to each type, from reals and from integers; the functions' names are those of the operand's
 * type. 16-bit results are rounded afterwards. */
static const expression casts[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = {"a", "a"},
    [FX_DTYPE_F64] = {"a", "a"},
    [FX_DTYPE_F16] = {"F(odd)(a)", "I(odd_i64)((I64)a)"},
    [FX_DTYPE_BF16] = {"F(odd)(a)", "I(odd_i64)((I64)a)"},
    [FX_DTYPE_I32] = {"F(to_i32)(a)", "a"},
    [FX_DTYPE_I64] = {"F(to_i64)(a)", "a"},
    [FX_DTYPE_U8] = {"F(to_u8)(a)", "a"},
    [FX_DTYPE_BOOL] = {"a != 0", "a != 0"},
};

/* Every value of these types is a 16-bit number too (BFloat16 has 8 significant bits), so a cast of
 * them rounds nothing. */
static bool is_small(int dtype)
{
    return dtype == FX_DTYPE_BOOL || dtype == FX_DTYPE_U8;
}

/* The type whose expression and names an instruction uses: the operands' type for comparisons and
 * CAST. */
static const fxi_gpu_type *type_of(const fx_instr *ins)
{
    const bool operands = ins->op == FX_OP_CAST || (ins->op >= FX_OP_LT && ins->op <= FX_OP_NE);
    return &fxi_gpu_types[operands ? ins->from : ins->dtype];
}

static const char *expression_of(const fx_instr *ins)
{
    const bool small = ins->op == FX_OP_CAST && is_small(ins->from) && !is_small(ins->dtype);
    const expression *e = small                   ? &casts[FX_DTYPE_F32]
                          : ins->op == FX_OP_CAST ? &casts[ins->dtype]
                                                  : &expressions[ins->op];
    return type_of(ins)->math ? e->real : e->integer;
}

/* Tested before any text is built: an operation without an expression for the type has no text. */
bool fxi_gpu_known(fxi_gpu_builder *b)
{
    const fx_program p = fx_step_program(b->step);
    for (int k = 0; k < p.n; k++)
        if (p.instr[k].op != FX_OP_REDUCE && !expression_of(&p.instr[k])) {
            fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "%s does not support element type %s",
                         fx_op_name(p.instr[k].op), type_of(&p.instr[k])->name);
            return false;
        }
    return true;
}

/* Appends an expression of op.def; its operands and names are replaced by those of the kernel's
 * dialect. */
static void say_expression(fxi_gpu_builder *b, const fx_instr *ins)
{
    const fxi_gpu_type *type = type_of(ins);
    char name[32];
    int n;
    /* Names and the characters between them alternate; the meaning of a name follows from its
     * length and form. */
    for (const char *at = expression_of(ins); *at; at += n) {
        n = (int)strspn(at, NAME_CHARACTERS);
        if (n == 0)
            fxi_gpu_say(b, "%.*s", n = (int)strcspn(at, NAME_CHARACTERS), at);
        else if (n == 1 && *at >= 'a' && *at <= 'c')
            fxi_gpu_say(b, "r%d", ins->src[*at - 'a']);
        /* An integer attribute, such as the exponent of POWI, is part of the text: it is constant
         * in a plan. */
        else if (n == 1 && *at == 'K')
            fxi_gpu_say(b, "(fx_i64)0x%llxu", (unsigned long long)ins->attr);
        else if (n == 1 && *at == 'M')
            fxi_gpu_say(b, "%s", type->math);
        else if (n == 1 && *at == 'W')
            fxi_gpu_say(b, "%s", type->wrapping);
        else if (n == 3 && strncmp(at, "I64", 3) == 0)
            fxi_gpu_say(b, "fx_i64");
        else if (sscanf(at, "F(%31[a-z0-9_])%n", name, &n) == 1)
            fxi_gpu_say(b, "fx_%s_%s", name, type->value_name);
        else if (sscanf(at, "I(%31[a-z0-9_])%n", name, &n) == 1)
            fxi_gpu_say(b, "fx_%s", name);
        else
            fxi_gpu_say(b, "%.*s", n, at);
    }
}

/* Results that are an operand, its negative or its floor need no rounding, because operands have
 * been rounded. */
bool fxi_gpu_rounds(const fx_instr *ins)
{
    const int op = ins->op;
    const bool exact = op == FX_OP_NEG || op == FX_OP_RELU || op == FX_OP_MAX || op == FX_OP_MIN ||
                       op == FX_OP_SELECT || op == FX_OP_FLOOR ||
                       (op == FX_OP_CAST && is_small(ins->from));
    return !exact && (ins->dtype == FX_DTYPE_F16 || ins->dtype == FX_DTYPE_BF16);
}

void fxi_gpu_say_instr(fxi_gpu_builder *b, const fx_instr *ins, int reg)
{
    const fxi_gpu_type *to = &fxi_gpu_types[ins->dtype];
    const bool rounds = fxi_gpu_rounds(ins);
    fxi_gpu_say(b, "const %s %c%d = (%s)(", to->value, rounds ? 't' : 'r', reg, to->value);
    say_expression(b, ins);
    fxi_gpu_say(b, ");\n");
    if (rounds)
        fxi_gpu_say(b, "const fx_f32 r%d = fx_round_%s(t%d);\n", reg, to->name, reg);
}

int fxi_gpu_say_program(fxi_gpu_builder *b, int first)
{
    const fx_program p = fx_step_program(b->step);
    for (int k = 0; k < p.n; k++)
        fxi_gpu_say_instr(b, &p.instr[k], first + k);
    return p.n ? first + p.n - 1 : 0;
}
