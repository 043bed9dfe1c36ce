/* gpu_program.c: register programs as text, one line an instruction.
 *
 * Each operation is a row: an expression for reals and one for integers; what is missing has no
 * meaning for the type. Integers compute in an unsigned type, so that overflow wraps. Float16 and
 * BFloat16 are Float32 values that are rounded to 16 bits after every instruction, as on the CPU.
 */
#include "gpu_text.h"

#include <string.h>

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
static const expression expressions[FX_OP_COUNT] = {
    [FX_OP_ADD] = {"$0 + $1", "($U)$0 + ($U)$1"},
    [FX_OP_SUB] = {"$0 - $1", "($U)$0 - ($U)$1"},
    [FX_OP_MUL] = {"$0 * $1", "($U)$0 * ($U)$1"},
    [FX_OP_DIV] = {"$0 / $1", NULL},
    [FX_OP_FLD] = {"$M(floor)($0 / $1)", "fx_fld((fx_i64)$0, (fx_i64)$1)"},
    [FX_OP_POW] = {"$M(pow)($0, $1)", "fx_ipow((fx_i64)$0, (fx_i64)$1)"},
    [FX_OP_MAX] = {"fx_max_$S($0, $1)", "$0 > $1 ? $0 : $1"},
    [FX_OP_MIN] = {"fx_min_$S($0, $1)", "$0 < $1 ? $0 : $1"},
    [FX_OP_ATAN2] = {"$M(atan2)($0, $1)", NULL},
    [FX_OP_LT] = {"$0 < $1", "$0 < $1"},
    [FX_OP_LE] = {"$0 <= $1", "$0 <= $1"},
    [FX_OP_EQ] = {"$0 == $1", "$0 == $1"},
    [FX_OP_NE] = {"$0 != $1", "$0 != $1"},
    [FX_OP_SELECT] = {"$0 ? $1 : $2", "$0 ? $1 : $2"},
    [FX_OP_NEG] = {"-$0", "0 - ($U)$0"},
    [FX_OP_POWI] = {"fx_powi_$S($0, $K)", "fx_ipow((fx_i64)$0, $K)"},
    [FX_OP_EXP] = {"$M(exp)($0)", NULL},
    [FX_OP_EXPM1] = {"$M(expm1)($0)", NULL},
    [FX_OP_LOG] = {"$M(log)($0)", NULL},
    [FX_OP_LOG1P] = {"$M(log1p)($0)", NULL},
    [FX_OP_SQRT] = {"$M(sqrt)($0)", NULL},
    [FX_OP_SIN] = {"$M(sin)($0)", NULL},
    [FX_OP_COS] = {"$M(cos)($0)", NULL},
    [FX_OP_TANH] = {"$M(tanh)($0)", NULL},
    [FX_OP_SIGMOID] = {"fx_sigmoid_$S($0)", NULL},
    [FX_OP_RELU] = {"$0 <= 0 ? 0 : $0", "$0 <= 0 ? 0 : $0"},
    [FX_OP_ERF] = {"$M(erf)($0)", NULL},
    [FX_OP_FLOOR] = {"$M(floor)($0)", "$0"},
};

/* CAST from reals and integers; $S and $M are the operand's. 16 bits are rounded to afterwards. */
static const expression casts[FX_DTYPE_COUNT] = {
    [FX_DTYPE_F32] = {"$0", "$0"},
    [FX_DTYPE_F64] = {"$0", "$0"},
    [FX_DTYPE_F16] = {"fx_odd_$S($0)", "fx_odd_i64((fx_i64)$0)"},
    [FX_DTYPE_BF16] = {"fx_odd_$S($0)", "fx_odd_i64((fx_i64)$0)"},
    [FX_DTYPE_I32] = {"fx_to_i32_$S($0)", "$0"},
    [FX_DTYPE_I64] = {"fx_to_i64_$S($0)", "$0"},
    [FX_DTYPE_U8] = {"fx_to_u8_$S($0)", "$0"},
    [FX_DTYPE_BOOL] = {"$0 != 0", "$0 != 0"},
};

/* The type whose row and names an instruction uses: of the operands where it looks at those. */
static const fxi_gpu_type *type_of(const fx_instr *ins)
{
    const bool operands = ins->op == FX_OP_CAST || (ins->op >= FX_OP_LT && ins->op <= FX_OP_NE);
    return &fxi_gpu_types[operands ? ins->from : ins->dtype];
}

static const char *expression_of(const fx_instr *ins)
{
    const expression *e = ins->op == FX_OP_CAST ? &casts[ins->dtype] : &expressions[ins->op];
    return type_of(ins)->math ? e->real : e->integer;
}

bool fxi_gpu_known(fxi_gpu_builder *b, const fx_instr *instr, int ninstr)
{
    for (int k = 0; k < ninstr; k++)
        if (instr[k].op != FX_OP_REDUCE && !expression_of(&instr[k])) {
            fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED,
                         "operation %d has no meaning for element type %s", instr[k].op,
                         type_of(&instr[k])->name);
            return false;
        }
    return true;
}

void fxi_gpu_say_marked(fxi_gpu_builder *b, const char *text, const fxi_gpu_type *type,
                        const uint8_t *src, int64_t attr)
{
    for (size_t n; *text; text += n) {
        n = strcspn(text, "$");
        fxi_gpu_say(b, "%.*s", (int)n, text);
        if (!text[n])
            return;
        const char mark = text[n + 1];
        n += 2;
        if (mark >= '0' && mark <= '2')
            fxi_gpu_say(b, "r%d", src[mark - '0']);
        else if (mark == 'K')
            fxi_gpu_say(b, "(fx_i64)0x%llxu", (unsigned long long)attr);
        else
            fxi_gpu_say(b, "%s",
                        mark == 'T'   ? type->value
                        : mark == 'U' ? type->wrapping
                        : mark == 'M' ? type->math
                                      : type->value_name);
    }
}

void fxi_gpu_say_instr(fxi_gpu_builder *b, const fx_instr *ins, int reg)
{
    const fxi_gpu_type *to = &fxi_gpu_types[ins->dtype];
    const bool rounds = ins->dtype == FX_DTYPE_F16 || ins->dtype == FX_DTYPE_BF16;
    fxi_gpu_say(b, "const %s %c%d = (%s)(", to->value, rounds ? 't' : 'r', reg, to->value);
    fxi_gpu_say_marked(b, expression_of(ins), type_of(ins), ins->src, ins->attr);
    fxi_gpu_say(b, ");\n");
    if (rounds)
        fxi_gpu_say(b, "const fx_f32 r%d = fx_round_%s(t%d);\n", reg, to->name, reg);
}
