/* onnx_elementwise.c: ONNX operators that work element by element, as cflux expressions.
 *
 * Most are one row of the table: the cflux function itself. Broadcasting is the library's. Before
 * opset 7, Add and similar operators named the axis at which the second argument starts; such an
 * argument gets axes of size 1 appended (in NumPy's order) and then broadcasts as usual.
 */
#include "onnx_case.h"

#include <string.h>

/* ---- two arguments --------------------------------------------------------------------------- */
static void legacy_axis(onnx_node *n)
{
    int64_t sizes[FX_MAX_DIMS];
    onnx_ignore(n, "broadcast"); /* 0 if the sizes are equal, else 1 */
    if (!onnx_has(n, "axis") || n->nin < 2)
        return;
    const int rank = fx_ndims(n->in[1]), start = (int)onnx_int(n, "axis", 0),
              total = fx_ndims(n->in[0]) - start;
    np_shape(n->in[1], sizes);
    for (int i = rank; i < total && i < FX_MAX_DIMS; i++)
        sizes[i] = 1;
    if (total > rank)
        n->in[1] = np_reshape(n->in[1], total, sizes);
}

#define LEGACY(name)                                                                               \
    static void op_##name(onnx_node *n)                                                            \
    {                                                                                              \
        legacy_axis(n);                                                                            \
        n->out[0] = fx_##name(n->in[0], n->in[1]);                                                 \
    }
LEGACY(add)
LEGACY(sub)
LEGACY(mul)

/* Integers divide towards zero: (a − a rem b) / b is exact. */
static void op_div(onnx_node *n)
{
    legacy_axis(n);
    fx_array *a = n->in[0], *b = n->in[1];
    n->out[0] = np_is_integer(a) ? fx_fld(fx_sub(a, fx_rem(a, b)), b) : fx_div(a, b);
}

static void op_mod(onnx_node *n)
{
    n->out[0] = onnx_int(n, "fmod", 0) ? fx_rem(n->in[0], n->in[1]) : fx_mod(n->in[0], n->in[1]);
}

/* The result has the base's type, whatever the exponent's. */
static void op_pow(onnx_node *n)
{
    n->out[0] = fx_cast(fx_pow(n->in[0], n->in[1]), fx_eltype(n->in[0]));
}

/* ---- any number of arguments ----------------------------------------------------------------- */
static fx_array *fold(const onnx_node *n, fx_array *(*f)(fxi_arg, fxi_arg))
{
    fx_array *y = n->in[0];
    for (int i = 1; i < n->nin; i++)
        y = f(fxi_arg_array(y), fxi_arg_array(n->in[i]));
    return y;
}
static void op_max(onnx_node *n)
{
    n->out[0] = fold(n, fxi_max);
}
static void op_min(onnx_node *n)
{
    n->out[0] = fold(n, fxi_min);
}
static void op_sum(onnx_node *n)
{
    n->out[0] = fold(n, fxi_add);
}
static void op_mean(onnx_node *n)
{
    n->out[0] = fx_div(fold(n, fxi_add), n->nin);
}

/* ---- with parameters ------------------------------------------------------------------------- */
static void op_clip(onnx_node *n)
{
    fx_array *y = n->in[0];
    if (onnx_has(n, "min"))
        y = fx_max(y, onnx_real(n, "min", 0));
    if (onnx_has(n, "max"))
        y = fx_min(y, onnx_real(n, "max", 0));
    if (n->nin > 1 && n->in[1] && n->nin > 2 && n->in[2]) {
        y = fx_clamp(y, n->in[1], n->in[2]);
    } else {
        y = n->nin > 1 && n->in[1] ? fx_max(y, n->in[1]) : y;
        y = n->nin > 2 && n->in[2] ? fx_min(y, n->in[2]) : y;
    }
    n->out[0] = y;
}

static void op_elu(onnx_node *n)
{
    n->out[0] = fx_elu_alpha(n->in[0], onnx_real(n, "alpha", 1));
}
static void op_celu(onnx_node *n)
{
    n->out[0] = fx_celu_alpha(n->in[0], onnx_real(n, "alpha", 1));
}
static void op_leakyrelu(onnx_node *n)
{
    n->out[0] = fx_leakyrelu_slope(n->in[0], onnx_real(n, "alpha", 0.01));
}
static void op_trelu(onnx_node *n)
{
    n->out[0] = fx_trelu_theta(n->in[0], onnx_real(n, "alpha", 1));
}

static void op_selu(onnx_node *n)
{
    fx_array *x = n->in[0];
    if (!onnx_has(n, "alpha") && !onnx_has(n, "gamma")) {
        n->out[0] = fx_selu(x);
        return;
    }
    const double alpha = onnx_real(n, "alpha", 1.67326319217681884765625);
    n->out[0] = fx_mul(onnx_real(n, "gamma", 1.05070102214813232421875), fx_elu_alpha(x, alpha));
}

static void op_hardsigmoid(onnx_node *n)
{
    const double alpha = onnx_real(n, "alpha", 0.2), beta = onnx_real(n, "beta", 0.5);
    n->out[0] = fx_clamp(fx_add(fx_mul(alpha, n->in[0]), beta), 0, 1);
}

static void op_prelu(onnx_node *n)
{
    fx_array *x = n->in[0], *slope = n->in[1];
    if (n->opset < 7 && fx_length(slope) > 1)
        slope = np_channels(slope, x);
    n->out[0] = fx_where(fx_lt(x, 0), fx_mul(slope, x), x);
}

static void op_shrink(onnx_node *n)
{
    fx_array *x = n->in[0];
    const double lambda = onnx_real(n, "lambd", 0.5), bias = onnx_real(n, "bias", 0);
    fx_array *high = fx_where(fx_gt(x, lambda), fx_sub(x, bias), 0);
    n->out[0] = fx_where(fx_lt(x, -lambda), fx_add(x, bias), high);
}

static void op_gelu(onnx_node *n)
{
    const bool tanh_form = !strcmp(onnx_text(n, "approximate", "none"), "tanh");
    n->out[0] = tanh_form ? fx_gelu(n->in[0]) : fx_gelu_erf(n->in[0]);
}

static void op_isinf(onnx_node *n)
{
    fx_array *x = n->in[0], *y = fx_isinf(x);
    if (!onnx_int(n, "detect_negative", 1))
        y = fx_and(y, fx_gt(x, 0));
    if (!onnx_int(n, "detect_positive", 1))
        y = fx_and(y, fx_lt(x, 0));
    n->out[0] = y;
}

static void op_cast(onnx_node *n)
{
    const fx_dtype to = onnx_dtype(onnx_int(n, "to", 0));
    if (to == FX_DTYPE_COUNT)
        n->variant = "strings";
    else
        n->out[0] = fx_cast(n->in[0], to);
}
static void op_castlike(onnx_node *n)
{
    n->out[0] = fx_cast(n->in[0], fx_eltype(n->in[1]));
}
static void op_where(onnx_node *n)
{
    n->out[0] = fx_where(n->in[0], n->in[1], n->in[2]);
}

/* Inference keeps x and a mask of ones. The training mask is NumPy's random numbers unless nothing
 * is dropped. */
static void op_dropout(onnx_node *n)
{
    fx_array *x = n->in[0];
    onnx_ignore(n, "seed"); /* inference draws no random numbers */
    onnx_ignore(n, "is_test");
    const bool training = n->nin > 2 && n->in[2] && fx_item(n->in[2]) != 0;
    const double ratio = n->nin > 1 && n->in[1] ? fx_item(n->in[1]) : onnx_real(n, "ratio", 0.5);
    if (training && ratio != 0) {
        n->variant = "training";
        return;
    }
    n->out[0] = training ? fx_dropout_apply(x, ratio) : fx_identity(x);
    n->out[1] = n->opset < 10 ? fx_cast(fx_eq(x, x), fx_eltype(x)) : fx_eq(x, x);
}

#define UNARY(Name, f)                                                                             \
    {                                                                                              \
        Name, GOLD_POINTWISE, NULL, f, NULL                                                        \
    }
#define BINARY(Name, f)                                                                            \
    {                                                                                              \
        Name, GOLD_POINTWISE, NULL, NULL, f                                                        \
    }
#define RUN(Name, f)                                                                               \
    {                                                                                              \
        Name, GOLD_POINTWISE, f, NULL, NULL                                                        \
    }
const onnx_op onnx_elementwise_ops[] = {
    UNARY("Abs", fx_abs),
    UNARY("Acos", fx_acos),
    UNARY("Acosh", fx_acosh),
    UNARY("Asin", fx_asin),
    UNARY("Asinh", fx_asinh),
    UNARY("Atan", fx_atan),
    UNARY("Atanh", fx_atanh),
    UNARY("Ceil", fx_ceil),
    UNARY("Cos", fx_cos),
    UNARY("Cosh", fx_cosh),
    UNARY("Erf", fx_erf),
    UNARY("Exp", fx_exp),
    UNARY("Floor", fx_floor),
    UNARY("HardSwish", fx_hardswish),
    UNARY("Identity", fx_identity),
    UNARY("IsNaN", fx_isnan),
    UNARY("Log", fx_log),
    UNARY("Mish", fx_mish),
    UNARY("Neg", fx_neg),
    UNARY("Not", fx_not),
    UNARY("Reciprocal", fx_reciprocal),
    UNARY("Relu", fx_relu),
    UNARY("Round", fx_round),
    UNARY("Sigmoid", fx_sigmoid),
    UNARY("Sign", fx_sign),
    UNARY("Sin", fx_sin),
    UNARY("Sinh", fx_sinh),
    UNARY("Softplus", fx_softplus),
    UNARY("Softsign", fx_softsign),
    UNARY("Sqrt", fx_sqrt),
    UNARY("Swish", fx_swish),
    UNARY("Tan", fx_tan),
    UNARY("Tanh", fx_tanh),
    BINARY("And", fxi_and),
    BINARY("Equal", fxi_eq),
    BINARY("Greater", fxi_gt),
    BINARY("GreaterOrEqual", fxi_ge),
    BINARY("Less", fxi_lt),
    BINARY("LessOrEqual", fxi_le),
    BINARY("Or", fxi_or),
    BINARY("Xor", fxi_xor),
    RUN("Add", op_add),
    RUN("Cast", op_cast),
    RUN("CastLike", op_castlike),
    RUN("Celu", op_celu),
    RUN("Clip", op_clip),
    RUN("Div", op_div),
    RUN("Dropout", op_dropout),
    RUN("Elu", op_elu),
    RUN("Gelu", op_gelu),
    RUN("HardSigmoid", op_hardsigmoid),
    RUN("IsInf", op_isinf),
    RUN("LeakyRelu", op_leakyrelu),
    RUN("Max", op_max),
    RUN("Mean", op_mean),
    RUN("Min", op_min),
    RUN("Mod", op_mod),
    RUN("Mul", op_mul),
    RUN("PRelu", op_prelu),
    RUN("Pow", op_pow),
    RUN("Selu", op_selu),
    RUN("Shrink", op_shrink),
    RUN("Sub", op_sub),
    RUN("Sum", op_sum),
    RUN("ThresholdedRelu", op_trelu),
    RUN("Where", op_where),
    {NULL, GOLD_POINTWISE, NULL, NULL, NULL},
};
