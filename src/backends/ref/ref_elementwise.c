/* ref_elementwise.c: register programs, one element at a time.
 *
 * Each instruction is a row of a table with its real and its integer form; a missing form is an
 * error, never a guess. Results of reals are computed in double by libm and rounded to the
 * instruction's type, so a Float64 program is libm's and a Float32 program is the correctly rounded
 * one nearly everywhere. Comparisons and CAST look at the operands' type, all others at the
 * result's.
 */
#include <math.h>

#include "ref_kernels.h"

typedef double (*real2)(double a, double b);
typedef int64_t (*integer2)(int64_t a, int64_t b);

/* Reals. Functions of one argument ignore the second. */
static double add(double a, double b)
{
    return a + b;
}
static double sub(double a, double b)
{
    return a - b;
}
static double mul(double a, double b)
{
    return a * b;
}
static double divide(double a, double b)
{
    return a / b;
}
static double fld(double a, double b)
{
    return floor(a / b);
}
static double max(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}
static double min(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}
static double neg(double a, double b)
{
    return (void)b, -a;
}
static double exp1(double a, double b)
{
    return (void)b, exp(a);
}
static double expm1_1(double a, double b)
{
    return (void)b, expm1(a);
}
static double log_1(double a, double b)
{
    return (void)b, log(a);
}
static double log1p_1(double a, double b)
{
    return (void)b, log1p(a);
}
static double sqrt1(double a, double b)
{
    return (void)b, sqrt(a);
}
static double sin1(double a, double b)
{
    return (void)b, sin(a);
}
static double cos1(double a, double b)
{
    return (void)b, cos(a);
}
static double tanh1(double a, double b)
{
    return (void)b, tanh(a);
}
static double erf1(double a, double b)
{
    return (void)b, erf(a);
}
static double floor1(double a, double b)
{
    return (void)b, floor(a);
}
static double relu1(double a, double b)
{
    return (void)b, a <= 0 ? 0 : a;
}
/* Neither branch's exponential overflows. */
static double sigmoid(double a, double b)
{
    (void)b;
    return a >= 0 ? 1 / (1 + exp(-a)) : exp(a) / (1 + exp(a));
}

/* Integers: arithmetic modulo 2⁶⁴, wrapped to the type's width by the caller. */
static int64_t iadd(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static int64_t isub(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
static int64_t imul(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
static int64_t ineg(int64_t a, int64_t b)
{
    return (void)b, isub(0, a);
}
static int64_t imax(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t imin(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t ifloor(int64_t a, int64_t b)
{
    return (void)b, a;
}
static int64_t irelu(int64_t a, int64_t b)
{
    return (void)b, a <= 0 ? 0 : a;
}
static int64_t ifld(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1) /* the one quotient that overflows, INT64_MIN / −1, wraps */
        return isub(0, a);
    const int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
static int64_t ipow(int64_t a, int64_t n)
{
    if (n < 0)
        return a == 1 ? 1 : a == -1 ? (n % 2 ? -1 : 1) : 0;
    int64_t y = 1;
    for (; n > 0; n /= 2) {
        if (n % 2)
            y = imul(y, a);
        a = imul(a, a);
    }
    return y;
}

typedef struct arithmetic {
    real2 real;
    integer2 integer;
} arithmetic;
static const arithmetic table[FX_OP_COUNT] = {
    [FX_OP_ADD] = {add, iadd},         [FX_OP_SUB] = {sub, isub},
    [FX_OP_MUL] = {mul, imul},         [FX_OP_DIV] = {divide, NULL},
    [FX_OP_FLD] = {fld, ifld},         [FX_OP_POW] = {pow, ipow},
    [FX_OP_MAX] = {max, imax},         [FX_OP_MIN] = {min, imin},
    [FX_OP_ATAN2] = {atan2, NULL},     [FX_OP_NEG] = {neg, ineg},
    [FX_OP_EXP] = {exp1, NULL},        [FX_OP_EXPM1] = {expm1_1, NULL},
    [FX_OP_LOG] = {log_1, NULL},       [FX_OP_LOG1P] = {log1p_1, NULL},
    [FX_OP_SQRT] = {sqrt1, NULL},      [FX_OP_SIN] = {sin1, NULL},
    [FX_OP_COS] = {cos1, NULL},        [FX_OP_TANH] = {tanh1, NULL},
    [FX_OP_SIGMOID] = {sigmoid, NULL}, [FX_OP_ERF] = {erf1, NULL},
    [FX_OP_RELU] = {relu1, irelu},     [FX_OP_FLOOR] = {floor1, ifloor},
    [FX_OP_POWI] = {pow, ipow},
};

static bool less(int dtype, fxi_ref_value a, fxi_ref_value b)
{
    return fxi_ref_is_real(dtype) ? a.real < b.real : a.integer < b.integer;
}

static bool equal(int dtype, fxi_ref_value a, fxi_ref_value b)
{
    return fxi_ref_is_real(dtype) ? a.real == b.real : a.integer == b.integer;
}

static bool is_comparison(int op)
{
    return op == FX_OP_LT || op == FX_OP_LE || op == FX_OP_EQ || op == FX_OP_NE;
}

static bool compare(const fx_instr *k, fxi_ref_value a, fxi_ref_value b)
{
    switch (k->op) {
    case FX_OP_LT:
        return less(k->from, a, b);
    case FX_OP_LE:
        return less(k->from, a, b) || equal(k->from, a, b);
    case FX_OP_EQ:
        return equal(k->from, a, b);
    default:
        return !equal(k->from, a, b);
    }
}

static fxi_ref_value calculate(const fx_instr *k, fxi_ref_value a, fxi_ref_value b)
{
    const arithmetic *f = &table[k->op];
    if (!fxi_ref_is_real(k->dtype)) {
        const int64_t second = k->op == FX_OP_POWI ? k->attr : b.integer;
        return (fxi_ref_value){.integer = fxi_ref_wrap(k->dtype, f->integer(a.integer, second))};
    }
    const double second = k->op == FX_OP_POWI ? (double)k->attr : b.real;
    return (fxi_ref_value){.real = fxi_ref_round(k->dtype, f->real(a.real, second))};
}

static fxi_ref_value execute(const fx_instr *k, const fxi_ref_value *reg)
{
    const fxi_ref_value a = reg[k->src[0]];
    const fxi_ref_value b = k->nsrc > 1 ? reg[k->src[1]] : (fxi_ref_value){0};
    if (is_comparison(k->op))
        return (fxi_ref_value){.integer = compare(k, a, b)};
    if (k->op == FX_OP_SELECT)
        return a.integer ? b : reg[k->src[2]];
    if (k->op == FX_OP_CAST)
        return fxi_ref_convert(k->dtype, k->from, a);
    return calculate(k, a, b);
}

static bool known(const fx_instr *k)
{
    if (is_comparison(k->op) || k->op == FX_OP_SELECT || k->op == FX_OP_CAST)
        return true;
    return fxi_ref_is_real(k->dtype) ? table[k->op].real != NULL : table[k->op].integer != NULL;
}

static fx_status check_program(const fx_step *s, fx_run *run)
{
    if (s->ninstr < 1 || s->nin + s->ninstr > UINT8_MAX + 1) {
        snprintf(run->error, sizeof run->error, "elementwise: a program of %d instructions",
                 (int)s->ninstr);
        return FX_STATUS_INTERNAL;
    }
    for (int k = 0; k < s->ninstr; k++)
        if (!known(&s->program[k])) {
            snprintf(run->error, sizeof run->error, "%s: element type %s has no such operation",
                     fxi_ops[s->program[k].op].name, fx_dtype_name((fx_dtype)s->program[k].dtype));
            return FX_STATUS_UNSUPPORTED;
        }
    return FX_OK;
}

fx_status fxi_ref_elementwise(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    fxi_ref_value reg[UINT8_MAX + 1]; /* as many as src[] can name */
    int64_t index[FX_MAX_DIMS];
    const fx_status status = check_program(s, run);
    if (status != FX_OK)
        return status;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        for (int k = 0; k < s->nin; k++)
            reg[k] = fxi_ref_get(s->in[k].dtype, in[k], fxi_ref_offset(&s->in[k], index));
        for (int k = 0; k < s->ninstr; k++)
            reg[s->nin + k] = execute(&s->program[k], reg);
        fxi_ref_put(s->out.dtype, out, fxi_ref_offset(&s->out, index), reg[s->nin + s->ninstr - 1]);
    }
    return FX_OK;
}
