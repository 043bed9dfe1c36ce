/* conform_elementwise.c: rows of operations that work element by element, with broadcasting.
 *
 * Domains avoid values for which correct results in Float32 and Float64 differ (a quotient next to
 * an integer in fld), and points without a derivative. The special variant has NaN and Inf.
 */
#include "conform.h"

#define UNARY(name)                                                                                \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        (void)p;                                                                                   \
        return fx_##name(x[0]);                                                                    \
    }
#define BINARY(name)                                                                               \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        (void)p;                                                                                   \
        return fx_##name(x[0], x[1]);                                                              \
    }
#define TERNARY(name)                                                                              \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        (void)p;                                                                                   \
        return fx_##name(x[0], x[1], x[2]);                                                        \
    }
/* An activation with a parameter, in hundredths. */
#define TUNED(name)                                                                                \
    static fx_array *b_##name(fx_array *const *x, const int64_t *p)                                \
    {                                                                                              \
        return fx_##name(x[0], (double)p[0] / 100);                                                \
    }

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(fld)
BINARY(mod)
BINARY(rem)
BINARY(pow)
BINARY(max)
BINARY(min)
BINARY(atan2)
BINARY(lt)
BINARY(le)
BINARY(gt)
BINARY(ge)
BINARY(eq)
BINARY(ne)
BINARY(and)
BINARY(or)
BINARY(xor)
BINARY(xlogy)
TERNARY(where)
TERNARY(clamp)
UNARY(neg)
UNARY(abs)
UNARY(sign)
UNARY(square)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(reciprocal)
UNARY(exp)
UNARY(expm1)
UNARY(log)
UNARY(log1p)
UNARY(sin)
UNARY(cos)
UNARY(tan)
UNARY(asin)
UNARY(acos)
UNARY(atan)
UNARY(sinh)
UNARY(cosh)
UNARY(asinh)
UNARY(acosh)
UNARY(atanh)
UNARY(erf)
UNARY(floor)
UNARY(ceil)
UNARY(round)
UNARY(trunc)
UNARY(isnan)
UNARY(isinf)
UNARY(isfinite)
UNARY(not )
UNARY(stop_gradient)
UNARY(identity)
UNARY(sigmoid)
UNARY(hardsigmoid)
UNARY(logsigmoid)
UNARY(tanh)
UNARY(hardtanh)
UNARY(relu)
UNARY(relu6)
UNARY(leakyrelu)
UNARY(rrelu)
UNARY(elu)
UNARY(celu)
UNARY(selu)
UNARY(gelu)
UNARY(gelu_sigmoid)
UNARY(gelu_erf)
UNARY(swish)
UNARY(hardswish)
UNARY(lisht)
UNARY(softplus)
UNARY(softsign)
UNARY(logcosh)
UNARY(mish)
UNARY(tanhshrink)
UNARY(softshrink)
UNARY(trelu)
TUNED(leakyrelu_slope)
TUNED(elu_alpha)
TUNED(celu_alpha)
TUNED(softshrink_lambda)
TUNED(trelu_theta)

/* Tests literals: weak types, literals of the plan, integer exponents. */
static fx_array *b_literals(fx_array *const *x, const int64_t *p)
{
    (void)p;
    return fx_sub(3, fx_add(fx_mul(2, x[0]), 1));
}
static fx_array *b_real_literals(fx_array *const *x, const int64_t *p)
{
    (void)p;
    return fx_div(fx_add(fx_mul(0.5, x[0]), 0.25), 1.5);
}
static fx_array *b_powi(fx_array *const *x, const int64_t *p)
{
    return fx_pow(x[0], p[0]);
}
static fx_array *b_pow_real(fx_array *const *x, const int64_t *p)
{
    return fx_pow(x[0], (double)p[0] / 100);
}
static fx_array *b_pow_base(fx_array *const *x, const int64_t *p)
{
    return fx_pow((double)p[0] / 100, x[0]);
}
static fx_array *b_where_literal(fx_array *const *x, const int64_t *p)
{
    (void)p;
    return fx_where(fx_gt(x[0], 0), x[0], 0);
}
static fx_array *b_clamp_literal(fx_array *const *x, const int64_t *p)
{
    (void)p;
    return fx_clamp(x[0], -1, 1);
}
static fx_array *b_cast(fx_array *const *x, const int64_t *p)
{
    return fx_cast(x[0], (fx_dtype)p[0]);
}
/* In training the slopes are random: the same numbers on every device. */
static fx_array *b_rrelu_training(fx_array *const *x, const int64_t *p)
{
    (void)p;
    FX_STEP;
    return fx_keep(fx_rrelu(x[0]));
}
/* Uses x many times, and through views of itself. */
static fx_array *b_shared(fx_array *const *x, const int64_t *p)
{
    (void)p;
    fx_array *t = fx_tanh(x[0]);
    return fx_add(fx_mul(t, x[0]), fx_sub(fx_mul(x[0], x[0]), fx_flip(t, FX_AXES(0))));
}

static const char *const one[] = {"5x7",  "s",          "1",     "17",     "0",
                                  "0x5",  "3x1x4",      "+257",  "+4x0x3", "+2x3x4x5",
                                  "+1x1", "+2x1x3x2x2", "+8x64", NULL};
static const char *const two[] = {
    "5x7 5x7", "5x7 5",        "5x1 1x7",          "s 5x7",    "3x4x5 1x4", "0x3 1x3",
    "1 6",     "+5x7 1x1x2",   "+2x1x3x1 1x4x1x2", "+17 17",   "+257 257",  "+s s",
    "+0 1",    "+4x0x3 4x1x3", "+5x7 s",           "+1x1 5x7", NULL};
static const char *const three[] = {"5x7 5x7 5x7", "5x7 5 1x7",        "5 s 5x7", "0x3 1x3 s",
                                    "+17 17 17",   "+3x1x5 3x4x5 1x4", NULL};
static const char *const hundredths[] = {"5x7:20",  "17:50",      "s:150", "0:20",
                                         "+257:75", "+3x4x5:120", NULL};
static const char *const exponents[] = {
    "cube=5x7:3",   "square=17:2", "inverse=17:-2", "zero=5:0",      "one=5:1",
    "large=5x2:13", "empty=0:3",   "+p5=257:5",     "+pm1=3x4x5:-1", NULL};
static const char *const shared_shapes[] = {"5x7", "17", "0x5", "+3x4x5", NULL};
static const char *const targets[] = {"f32=5x7:0",   "f64=5x7:1", "i32=5x7:2", "i64=5x7:3",
                                      "u8=5x7:4",    "bool=17:5", "f16=5x7:6", "bf16=5x7:7",
                                      "empty=0x3:2", NULL};

#define P1 "1024x1024"
#define P2 "1024x1024 1024x1024"
#define ROW1(name, domain, types, tolerance, flags)                                                \
    {                                                                                              \
#name, NULL, b_##name, one, P1, 1, {domain }, types, tolerance, flags                      \
    }
#define ROW2(name, d0, d1, types, tolerance, flags)                                                \
    {                                                                                              \
#name, NULL, b_##name, two, P2, 2, {d0, d1 }, types, tolerance, flags                      \
    }
#define TUNE(name)                                                                                 \
    {                                                                                              \
#name, NULL, b_##name, hundredths, P1 ":50", 1, {CF_ANY }, CF_REAL, CF_POINT, CF_NO_SECOND \
    }

const cf_row cf_elementwise_rows[] = {
    ROW2(add, CF_ANY, CF_ANY, CF_ALL, CF_POINT, 0),
    ROW2(sub, CF_ANY, CF_ANY, CF_ALL, CF_POINT, 0),
    ROW2(mul, CF_ANY, CF_ANY, CF_ALL, CF_POINT, 0),
    ROW2(div, CF_ANY, CF_NONZERO, CF_HALF | CF_INT, CF_POINT, 0),
    ROW2(fld, CF_WIDE, CF_NONZERO, CF_NUM, CF_POINT, CF_NO_GRAD),
    ROW2(mod, CF_WIDE, CF_NONZERO, CF_HALF | CF_INT, CF_POINT, CF_NO_SECOND),
    ROW2(rem, CF_WIDE, CF_NONZERO, CF_HALF | CF_INT, CF_EXACT, CF_NO_SECOND),
    ROW2(pow, CF_POS, CF_ANY, CF_REAL, CF_POINT, 0),
    ROW2(max, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_SECOND),
    ROW2(min, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_SECOND),
    /* At a tie the central difference is the mean of both slopes: an evenly shared gradient. */
    {"max.ties",
     "fx_max",
     b_max,
     two,
     NULL,
     2,
     {CF_TIES, CF_TIES},
     CF_REAL,
     CF_EXACT,
     CF_NO_SECOND},
    {"min.ties",
     "fx_min",
     b_min,
     two,
     NULL,
     2,
     {CF_TIES, CF_TIES},
     CF_REAL,
     CF_EXACT,
     CF_NO_SECOND},
    ROW2(atan2, CF_NONZERO, CF_NONZERO, CF_REAL, CF_POINT, 0),
    ROW2(lt, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_GRAD),
    ROW2(le, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_GRAD),
    ROW2(gt, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_GRAD),
    ROW2(ge, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_GRAD),
    ROW2(eq, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_GRAD),
    ROW2(ne, CF_ANY, CF_ANY, CF_ALL, CF_EXACT, CF_NO_GRAD),
    ROW2(and, CF_BOOL, CF_BOOL, CF_T(BOOL), CF_EXACT, CF_NO_GRAD),
    ROW2(or, CF_BOOL, CF_BOOL, CF_T(BOOL), CF_EXACT, CF_NO_GRAD),
    ROW2(xor, CF_BOOL, CF_BOOL, CF_T(BOOL), CF_EXACT, CF_NO_GRAD),
    ROW2(xlogy, CF_ANY, CF_POS, CF_REAL, CF_POINT, 0),
    {"where",
     NULL,
     b_where,
     three,
     "1024x1024 1024x1024 1024x1024",
     3,
     {CF_BOOL, CF_ANY, CF_ANY},
     CF_ALL,
     CF_EXACT,
     CF_NO_SECOND},
    {"clamp",
     NULL,
     b_clamp,
     three,
     NULL,
     3,
     {CF_WIDE, CF_ANY, CF_POS},
     CF_NUM,
     CF_EXACT,
     CF_NO_SECOND},
    {"where.literal",
     "fx_where",
     b_where_literal,
     one,
     P1,
     1,
     {CF_ANY},
     CF_NUM,
     CF_EXACT,
     CF_NO_SECOND},
    {"clamp.literal",
     "fx_clamp",
     b_clamp_literal,
     one,
     P1,
     1,
     {CF_ANY},
     CF_REAL | CF_T(I32) | CF_T(I64),
     CF_EXACT,
     CF_NO_SECOND},
    {"literals", "fx_add", b_literals, one, P1, 1, {CF_ANY}, CF_NUM, CF_POINT, 0},
    {"literals.real", "fx_add", b_real_literals, one, P1, 1, {CF_ANY}, CF_MIXED, CF_POINT, 0},
    {"pow.integer", "fx_pow", b_powi, exponents, P1 ":3", 1, {CF_NONZERO}, CF_NUM, CF_POINT, 0},
    {"pow.real", "fx_pow", b_pow_real, hundredths, P1 ":150", 1, {CF_POS}, CF_REAL, CF_POINT, 0},
    {"pow.base", "fx_pow", b_pow_base, hundredths, P1 ":150", 1, {CF_ANY}, CF_REAL, CF_POINT, 0},
    {"shared", "fx_add", b_shared, shared_shapes, P1, 1, {CF_ANY}, CF_REAL, CF_POINT, 0},
    ROW1(neg, CF_ANY, CF_HALF | CF_INT, CF_EXACT, 0),
    ROW1(abs, CF_ANY, CF_HALF | CF_INT, CF_EXACT, CF_NO_SECOND),
    ROW1(sign, CF_ANY, CF_REAL | CF_T(I32) | CF_T(I64), CF_EXACT, CF_NO_SECOND),
    ROW1(square, CF_ANY, CF_HALF | CF_INT, CF_POINT, 0),
    ROW1(sqrt, CF_POS, CF_HALF | CF_INT, CF_POINT, 0),
    ROW1(rsqrt, CF_POS, CF_REAL, CF_POINT, 0),
    ROW1(reciprocal, CF_NONZERO, CF_REAL, CF_POINT, 0),
    ROW1(exp, CF_ANY, CF_HALF | CF_INT, CF_POINT, 0),
    ROW1(expm1, CF_UNIT, CF_HALF, CF_POINT, 0),
    ROW1(log, CF_POS, CF_HALF | CF_INT, CF_POINT, 0),
    ROW1(log1p, CF_UNIT, CF_HALF, CF_POINT, 0),
    ROW1(sin, CF_WIDE, CF_HALF, CF_POINT, 0),
    ROW1(cos, CF_WIDE, CF_HALF, CF_POINT, 0),
    ROW1(tan, CF_UNIT, CF_REAL, CF_POINT, 0),
    ROW1(asin, CF_UNIT, CF_REAL, CF_POINT, 0),
    ROW1(acos, CF_UNIT, CF_REAL, CF_POINT, 0),
    ROW1(atan, CF_ANY, CF_REAL, CF_POINT, 0),
    ROW1(sinh, CF_ANY, CF_REAL, CF_POINT, 0),
    ROW1(cosh, CF_ANY, CF_REAL, CF_POINT, 0),
    ROW1(asinh, CF_ANY, CF_REAL, CF_POINT, 0),
    ROW1(acosh, CF_ABOVE1, CF_REAL, CF_POINT, 0),
    ROW1(atanh, CF_UNIT, CF_REAL, CF_POINT, 0),
    ROW1(erf, CF_ANY, CF_HALF, CF_POINT, 0),
    ROW1(floor, CF_WIDE, CF_HALF | CF_INT, CF_EXACT, CF_NO_SECOND),
    ROW1(ceil, CF_WIDE, CF_REAL, CF_EXACT, CF_NO_SECOND),
    ROW1(round, CF_WIDE, CF_REAL, CF_EXACT, CF_NO_SECOND),
    ROW1(trunc, CF_WIDE, CF_REAL, CF_EXACT, CF_NO_SECOND),
    ROW1(isnan, CF_ANY, CF_HALF | CF_INT, CF_EXACT, CF_NO_GRAD),
    ROW1(isinf, CF_ANY, CF_HALF | CF_INT, CF_EXACT, CF_NO_GRAD),
    ROW1(isfinite, CF_ANY, CF_HALF | CF_INT, CF_EXACT, CF_NO_GRAD),
    ROW1(not, CF_BOOL, CF_T(BOOL), CF_EXACT, CF_NO_GRAD),
    {"cast",
     NULL,
     b_cast,
     targets,
     P1 ":1",
     1,
     {CF_ANY},
     CF_ALL,
     CF_EXACT,
     CF_SAME_TYPE | CF_NO_GRAD},
    {"cast.saturating",
     "fx_cast",
     b_cast,
     targets,
     NULL,
     1,
     {CF_HUGE},
     CF_NUM,
     CF_EXACT,
     CF_SAME_TYPE | CF_NO_GRAD},
    ROW1(stop_gradient, CF_ANY, CF_ALL, CF_EXACT, CF_NO_GRAD),
    ROW1(identity, CF_ANY, CF_ALL, CF_EXACT, CF_NO_SECOND),
    ROW1(sigmoid, CF_WIDE, CF_HALF, CF_POINT, 0),
    ROW1(hardsigmoid, CF_WIDE, CF_REAL, CF_POINT, CF_NO_SECOND),
    ROW1(logsigmoid, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(tanh, CF_ANY, CF_HALF, CF_POINT, 0),
    ROW1(hardtanh, CF_ANY, CF_REAL, CF_EXACT, CF_NO_SECOND),
    ROW1(relu, CF_ANY, CF_HALF | CF_INT, CF_EXACT, CF_NO_SECOND),
    ROW1(relu6, CF_WIDE, CF_REAL, CF_EXACT, CF_NO_SECOND),
    ROW1(leakyrelu, CF_ANY, CF_REAL, CF_POINT, CF_NO_SECOND),
    ROW1(rrelu, CF_ANY, CF_REAL, CF_POINT, CF_NO_SECOND),
    {"rrelu.training",
     "fx_rrelu",
     b_rrelu_training,
     one,
     P1,
     1,
     {CF_ANY},
     CF_REAL,
     CF_POINT,
     CF_SAME_TYPE | CF_NO_GRAD},
    ROW1(elu, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(celu, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(selu, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(gelu, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(gelu_sigmoid, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(gelu_erf, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(swish, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(hardswish, CF_WIDE, CF_REAL, CF_POINT, CF_NO_SECOND),
    ROW1(lisht, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(softplus, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(softsign, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(logcosh, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(mish, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(tanhshrink, CF_WIDE, CF_REAL, CF_POINT, 0),
    ROW1(softshrink, CF_WIDE, CF_REAL, CF_POINT, CF_NO_SECOND),
    ROW1(trelu, CF_WIDE, CF_REAL, CF_EXACT, CF_NO_SECOND),
    TUNE(leakyrelu_slope),
    TUNE(elu_alpha),
    TUNE(celu_alpha),
    TUNE(softshrink_lambda),
    TUNE(trelu_theta),
    {0},
};
