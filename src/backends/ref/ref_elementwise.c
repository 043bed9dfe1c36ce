/* ref_elementwise.c: register programs, one element at a time.
 *
 * Each instruction is a row of op.def, which has one form for reals and one for integers; a missing
 * form is an error, never a guess. Results of reals are computed in double by libm and rounded to
 * the instruction's type. So a Float64 program is as exact as libm, and a Float32 program is
 * correctly rounded nearly everywhere. Comparisons and CAST depend on the operands' type, all
 * others on the result's.
 */
#include <math.h>

#include "ref_kernels.h"

/* ---- the functions that op.def names --------------------------------------------------------- */

/* NaN in either wins: with a NaN in b the comparisons are false, which selects b. −0 is below 0. */
static double real_max(double a, double b)
{
    return isnan(a) || a > b || (a == b && !signbit(a)) ? a : b;
}
static double real_min(double a, double b)
{
    return isnan(a) || a < b || (a == b && signbit(a)) ? a : b;
}
static double real_quotient(double a, double b)
{
    return a / b;
}
static double real_powi(double a, int64_t n)
{
    /* As a double, a large odd exponent may become even, so the sign is computed separately. */
    const double y = pow(fabs(a), (double)n);
    return signbit(a) && n % 2 ? -y : y;
}
/* The exponential overflows in neither branch. */
static double real_sigmoid(double a)
{
    return a >= 0 ? 1 / (1 + exp(-a)) : exp(a) / (1 + exp(a));
}
static int64_t whole_fld(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1) /* the only quotient that overflows, INT64_MIN / −1, wraps */
        return (int64_t)(0 - (uint64_t)a);
    const int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
/* INT64_MIN % −1 overflows in C, although the result is 0. */
static int64_t whole_rem(int64_t a, int64_t b)
{
    return b == 0 ? a : b == -1 ? 0 : a % b;
}
static int64_t whole_ipow(int64_t a, int64_t n)
{
    if (n < 0)
        return a == 1 ? 1 : a == -1 ? (n % 2 ? -1 : 1) : 0;
    /* Unsigned, because signed overflow is undefined: the product wraps. */
    uint64_t y = 1, power = (uint64_t)a;
    for (; n > 0; n /= 2) {
        if (n % 2)
            y *= power;
        power *= power;
    }
    return (int64_t)y;
}

/* ---- one function for each row and kind of number -------------------------------------------- */

/* Arithmetic of integers is modulo 2⁶⁴; the caller wraps it to the type's width. */
typedef uint64_t W;
typedef int64_t I64;
#define M(f)       f
#define F(f)       real_##f
#define I(f)       whole_##f
#define WHOLE_NONE 0

#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    static double real_of_##NAME(double a, double b, int64_t K)                                    \
    {                                                                                              \
        (void)a, (void)b, (void)K;                                                                 \
        return real;                                                                               \
    }                                                                                              \
    static int64_t whole_of_##NAME(int64_t a, int64_t b, int64_t K)                                \
    {                                                                                              \
        (void)a, (void)b, (void)K;                                                                 \
        return (int64_t)(whole);                                                                   \
    }
#include <cflux/op.def>

enum { REAL, COUNT, KEEP, COMPARE };
typedef struct row {
    double (*real)(double a, double b, int64_t k);
    int64_t (*whole)(int64_t a, int64_t b, int64_t k);
    int rule;
} row;
static const row table[FX_OP_COUNT] = {
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    [FX_OP_##NAME] = {real_of_##NAME, whole_of_##NAME, rule},
#include <cflux/op.def>
};

static fxi_ref_value calculate(const fx_instr *k, fxi_ref_value a, fxi_ref_value b)
{
    const row *r = &table[k->op];
    const bool compares = r->rule == COMPARE;
    const bool real = fxi_ref_is_real(compares ? k->from : k->dtype);
    if (compares)
        return (fxi_ref_value){.integer = real ? r->real(a.real, b.real, 0) != 0
                                               : r->whole(a.integer, b.integer, 0)};
    if (real)
        return (fxi_ref_value){.real = fxi_ref_round(k->dtype, r->real(a.real, b.real, k->attr))};
    const int64_t whole = r->whole(a.integer, b.integer, k->attr);
    return (fxi_ref_value){.integer = fxi_ref_wrap(k->dtype, whole)};
}

static fxi_ref_value execute(const fx_instr *k, const fxi_ref_value *reg)
{
    const fxi_ref_value a = reg[k->src[0]];
    const fxi_ref_value b = k->nsrc > 1 ? reg[k->src[1]] : (fxi_ref_value){0};
    if (k->op == FX_OP_SELECT)
        return a.integer ? b : reg[k->src[2]];
    return k->op == FX_OP_CAST ? fxi_ref_convert(k->dtype, k->from, a) : calculate(k, a, b);
}

/* Operations of rule REAL have no form for integers: a CAST to Float32 comes before them. */
static bool known(const fx_instr *k)
{
    if (k->op == FX_OP_SELECT || k->op == FX_OP_CAST)
        return true;
    const row *r = &table[k->op];
    return r->real && (r->rule != REAL || fxi_ref_is_real(k->dtype));
}

static fx_status check_program(const fx_step *s, const fx_program *p)
{
    if (p->n < 1 || s->nin + p->n > UINT8_MAX + 1) {
        return fx_fail(FX_STATUS_INTERNAL, "elementwise",
                       "%d instructions and %d inputs; a program has 1 to %d registers", (int)p->n,
                       (int)s->nin, UINT8_MAX + 1);
    }
    for (int k = 0; k < p->n; k++)
        if (!known(&p->instr[k])) {
            return fx_fail(FX_STATUS_UNSUPPORTED, fxi_ops[p->instr[k].op].name,
                           "element type %s does not support this operation",
                           fx_dtype_name((fx_dtype)p->instr[k].dtype));
        }
    return FX_OK;
}

fx_status fxi_ref_elementwise(const fx_step *s, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    fxi_ref_value reg[UINT8_MAX + 1]; /* as many registers as src[] can name */
    int64_t index[FX_MAX_DIMS];
    const fx_program *p = &fx_step_elementwise(s)->program;
    const fx_status status = check_program(s, p);
    if (status != FX_OK)
        return status;
    const int64_t n = fxi_ref_length(&s->out);
    for (int64_t i = 0; i < n; i++) {
        fxi_ref_unravel(i, s->out.ndim, s->out.shape, index);
        for (int k = 0; k < s->nin; k++)
            reg[k] = fxi_ref_get(s->in[k].dtype, in[k], fxi_ref_offset(&s->in[k], index));
        for (int k = 0; k < p->n; k++)
            reg[s->nin + k] = execute(&p->instr[k], reg);
        fxi_ref_put(s->out.dtype, out, fxi_ref_offset(&s->out, index), reg[s->nin + p->n - 1]);
    }
    return FX_OK;
}
