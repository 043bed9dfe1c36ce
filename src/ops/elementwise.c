/* elementwise.c: elementwise operations. Their kernels, expressions and type rules are rows of
 * op.def. This file has the functions that record them (shared by the rows, or written out where
 * they differ) and the gradient rules.
 */
#include "operands.h"
#include "own_gradient.h"

/* Records an elementwise node over resolved operands. Operands from `first` on are converted to
 * `type`; the result has type `result`. Releases the operands. */
static fx_array *finish(fx_op op, const char *name, fxi_operand *o, int first, int n, fx_dtype type,
                        fx_dtype result)
{
    int ndim = 0;
    int64_t mixed[FX_MAX_DIMS];
    fx_device *device = NULL;
    fxi_node *in[3];
    const fxi_node *alike = fxi_all_alike(o, n);
    const int64_t *shape = alike ? alike->shape : mixed;
    fx_status s = FX_OK;
    if (alike)
        ndim = alike->ndim;
    else
        s = fxi_common_shape(name, o, n, &ndim, mixed);
    if (s == FX_OK)
        s = fxi_common_device(name, o, n, &device);
    bool ok = s == FX_OK;
    for (int i = 0; i < n && ok; i++) {
        const fx_dtype want = i < first ? FX_DTYPE_BOOL : type;
        ok = fxi_operand_convert(&o[i], want) && (alike || fxi_operand_stretch(&o[i], ndim, shape));
        in[i] = o[i].node;
    }
    fxi_node *node =
        ok ? fxi_node_new(fxi_here(), op, result, ndim, shape, device, NULL, n, in) : NULL;
    fxi_operands_release(o, n);
    return s == FX_OK ? fxi_array_take(node) : fx_error_array(s);
}

static fx_array *give_up(fxi_operand *o, int n, fx_status s)
{
    fxi_operands_release(o, n);
    return fx_error_array(s);
}

/* ---- elementwise, two arguments -------------------------------------------------------------- */

enum type_rule { KEEP, COUNT, REAL, COMPARE };

/* The node of an argument; NULL if it is a number. False if the calling thread may not use it. */
static inline bool node_of(const fxi_context *c, const fxi_arg *a, fxi_node **out)
{
    *out = NULL;
    if (a->kind != FXI_ARG_ARRAY)
        return true;
    if (!fxi_usable(c, a->u.array))
        return false;
    *out = a->u.array->node;
    return true;
}

/* Can both operands be used unchanged: without a conversion or a move, and broadcasting only 0-d
 * values? */
static inline bool meets(const fxi_node *main, const fxi_node *other)
{
    return other->dtype == main->dtype &&
           (other->device == main->device || !other->device || !main->device) &&
           (other->ndim == 0 || fxi_same_shape(other, main));
}

/* Can `other` be expanded to the shape of `main`, as the bias of a layer, without a conversion or a
 * move? */
static bool widens(const fxi_node *main, const fxi_node *other)
{
    bool fits = other->dtype == main->dtype && other->ndim == main->ndim && !other->weak &&
                (other->device == main->device || !other->device || !main->device);
    for (int i = 0; i < main->ndim && fits; i++)
        fits = other->shape[i] == main->shape[i] || other->shape[i] == 1;
    return fits;
}

/* The usual case, without the general rules: floating-point operands of one type and device, one of
 * which has the shape of the result, or one of them a number. NULL: not the usual case. */
static fx_array *plain_binary(fx_op op, enum type_rule rule, const fxi_arg *a, const fxi_arg *b)
{
    fxi_context *c = fxi_begin();
    fxi_node *in[2];
    if (!node_of(c, a, &in[0]) || !node_of(c, b, &in[1]))
        return NULL;
    const int first = in[0] && (in[0]->ndim > 0 || !in[1]) ? 0 : 1;
    const fxi_node *main = in[first], *other = in[1 - first];
    if (!main || main->weak || !fxi_is_float(main->dtype))
        return NULL;
    const bool met = other && meets(main, other);
    if (other && !met && !widens(main, other))
        return NULL;
    const fx_dtype type = (fx_dtype)main->dtype;
    if (!other)
        in[1 - first] = fxi_literal_node(first == 0 ? b : a, type);
    else if (!met)
        in[1 - first] = fxi_node_new(c, FX_OP_EXPAND, type, main->ndim, main->shape, other->device,
                                     NULL, 1, &in[1 - first]);
    if (!in[1 - first])
        return fx_error_array(FX_STATUS_MEMORY);
    fx_device *device = main->device || !other ? main->device : other->device;
    fxi_node *node = fxi_node_new(c, op, rule == COMPARE ? FX_DTYPE_BOOL : type, main->ndim,
                                  main->shape, device, NULL, 2, in);
    if (!met)
        fxi_node_release(in[1 - first]);
    return fxi_array_take(node);
}

static __attribute__((noinline)) fx_array *any_binary(fx_op op, enum type_rule rule, fxi_arg a,
                                                      fxi_arg b)
{
    const char *name = fxi_ops[op].name;
    fxi_operand o[2];
    const fx_status s = fxi_resolve(name, (fxi_arg[]){a, b}, 2, o);
    if (s != FX_OK)
        return give_up(o, 2, s);
    fx_dtype type = fxi_common_type(o, 0, 2);
    if (rule == COMPARE && fxi_any_beyond(o, 0, 2, type))
        type = FX_DTYPE_I64; /* 2 must not become a Bool: every Bool is below 2 */
    else if (rule != COMPARE && type == FX_DTYPE_BOOL && (rule == COUNT || fxi_any_literal(o, 2)))
        type = FX_DTYPE_I64; /* Julia: true + true == true * 2 == 2 */
    if (rule == REAL && !fxi_is_float((int)type))
        type = FX_DTYPE_F32;
    return finish(op, name, o, 0, 2, type, rule == COMPARE ? FX_DTYPE_BOOL : type);
}

static fx_array *binary(fx_op op, enum type_rule rule, fxi_arg a, fxi_arg b)
{
    fx_array *plain = plain_binary(op, rule, &a, &b);
    return plain ? plain : any_binary(op, rule, a, b);
}

/* x^n for an integer literal n: the exponent is an attribute, so that powers of integers stay
 * integers and need no logarithm. */
static fx_array *integer_power(fx_array *x, int64_t exponent)
{
    const fx_status s = fxi_check_array("pow", x);
    if (s != FX_OK)
        return fx_error_array(s);
    fxi_context *c = fxi_begin();
    if (x->node->dtype == FX_DTYPE_BOOL && exponent >= 0) /* Julia: true^2 === true */
        return exponent > 0 ? x : fxi_eq(fxi_arg_array(x), fxi_arg_array(x));
    if (exponent < 0 && !fxi_is_float(x->node->dtype))
        x = fx_cast(x, FX_DTYPE_F32);
    if (fx_is_error(x))
        return x;
    const fx_attr a = {.exponent = exponent};
    const fxi_node *n = x->node;
    return fxi_array_take(fxi_node_new(c, FX_OP_POWI, (fx_dtype)n->dtype, n->ndim, n->shape,
                                       n->device, &a, 1, &x->node));
}

fx_array *fxi_pow(fxi_arg a, fxi_arg b)
{
    if (a.kind == FXI_ARG_ARRAY && b.kind == FXI_ARG_INT)
        return integer_power(a.u.array, b.u.integer);
    return binary(FX_OP_POW, COUNT, a, b);
}

fx_array *fxi_where(fxi_arg c, fxi_arg a, fxi_arg b)
{
    fxi_operand o[3];
    const fx_status s = fxi_resolve("where", (fxi_arg[]){c, a, b}, 3, o);
    if (s != FX_OK)
        return give_up(o, 3, s);
    fx_dtype type = fxi_common_type(o, 1, 3);
    if (type == FX_DTYPE_BOOL && fxi_any_beyond(o, 1, 3, type))
        type = FX_DTYPE_I64;
    return finish(FX_OP_SELECT, "where", o, 1, 3, type, type);
}

/* ---- elementwise, one argument --------------------------------------------------------------- */

static fx_array *unary(fx_op op, enum type_rule rule, fx_array *x)
{
    /* The usual case: every rule keeps the type of a floating-point array. */
    if (fxi_usable(fxi_begin(), x) && !x->node->weak && fxi_is_float(x->node->dtype))
        return fxi_node_over(op, x, (fx_dtype)x->node->dtype, x->node->ndim, x->node->shape, NULL);
    const char *name = fxi_ops[op].name;
    fxi_operand o[1];
    const fx_status s = fxi_resolve(name, (fxi_arg[]){fxi_arg_array(x)}, 1, o);
    if (s != FX_OK)
        return give_up(o, 1, s);
    fx_dtype type = fxi_common_type(o, 0, 1);
    if (rule == COUNT && type == FX_DTYPE_BOOL)
        type = FX_DTYPE_I64;
    if (rule == REAL && !fxi_is_float((int)type))
        type = FX_DTYPE_F32;
    return finish(op, name, o, 0, 1, type, type);
}

/* The functions with one and two arguments that op.def lists. */
#define BUILDER_1(NAME, name, rule)                                                                \
    fx_array *fx_##name(fx_array *x)                                                               \
    {                                                                                              \
        return unary(FX_OP_##NAME, rule, x);                                                       \
    }
#define BUILDER_2(NAME, name, rule)                                                                \
    fx_array *fxi_##name(fxi_arg a, fxi_arg b)                                                     \
    {                                                                                              \
        return binary(FX_OP_##NAME, rule, a, b);                                                   \
    }
#define ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)                               \
    BUILDER_##inputs(NAME, name, rule)
#define OWN_ELEMENTWISE(NAME, name, inputs, rule, gradient, real, whole)
#include <cflux/op.def>

/* f(a, b), whose node gets the gradient `grad`. It is stored in the context before the node is
 * made, because a recorded training step compares it. */
static fx_array *with_gradient(fxi_grad grad, fx_array *(*f)(fxi_arg a, fxi_arg b), fxi_arg a,
                               fxi_arg b)
{
    /* Called before c->grad is set, because it may evaluate pending results and so run functions of
     * the program. */
    fxi_context *c = fxi_begin();
    const uint8_t before = c->grad;
    c->grad = (uint8_t)grad;
    fx_array *y = f(a, b);
    c->grad = before;
    return y;
}

/* x·y as part of a quotient. */
static fx_array *of_quotient(fx_array *x, fx_array *y)
{
    return with_gradient(FXI_GRAD_QUOTIENT, fxi_mul, fxi_arg_array(x), fxi_arg_array(y));
}

fx_array *fxi_quotient(fx_array *x, fx_array *d)
{
    return of_quotient(x,
                       with_gradient(FXI_GRAD_QUOTIENT, fxi_div, fxi_arg_int(1), fxi_arg_array(d)));
}

fx_array *fxi_minus_tanh(fx_array *x, fx_array *t)
{
    return with_gradient(FXI_GRAD_TANHSHRINK, fxi_sub, fxi_arg_array(x), fxi_arg_array(t));
}

fx_array *fxi_softsign_of(fx_array *x, fx_array *d)
{
    return with_gradient(FXI_GRAD_SOFTSIGN, fxi_div, fxi_arg_array(x), fxi_arg_array(d));
}

fx_array *fx_floor(fx_array *x)
{
    if (!fx_is_error(x) && fx_is_array(x) && !fxi_is_float(x->node->dtype))
        return x;
    return unary(FX_OP_FLOOR, REAL, x);
}

fx_array *fx_cast(fx_array *x, fx_dtype dtype)
{
    const fx_status s = fxi_check_array("cast", x);
    if (s != FX_OK)
        return fx_error_array(s);
    if ((unsigned)dtype >= FX_DTYPE_COUNT) {
        fx_fail(FX_STATUS_ARGUMENT, "cast", "%d is not an element type", (int)dtype);
        return fx_error_array(FX_STATUS_ARGUMENT);
    }
    fxi_node *n = x->node;
    if (n->dtype == dtype)
        return x;
    return fxi_array_take(
        fxi_node_new(fxi_begin(), FX_OP_CAST, dtype, n->ndim, n->shape, n->device, NULL, 1, &n));
}

/* ---- gradients ------------------------------------------------------------------------------- */

RULE(ADD)
{
    a->gx[0] = a->gx[1] = G;
}

RULE(SUB)
{
    if (a->node->grad == FXI_GRAD_TANHSHRINK) { /* z − z: 0, or NaN at ±Inf */
        a->gx[0] = fx_mul(G, fx_mul(Y, fx_add(Y, fx_sub(Z, Z))));
        return;
    }
    a->gx[0] = G;
    if (a->need[1])
        a->gx[1] = fx_neg(G);
}

/* Factor i; the difference from a broadcast value (x − μ of a norm) is computed again. x is often
 * in memory for another gradient, so the forward pass need not store the difference as well. */
static fx_array *factor(const fxi_rule_args *a, int i)
{
    const fxi_node *n = a->node->in[i];
    if (n->data || n->op != FX_OP_SUB || n->in[0]->op == FX_OP_EXPAND ||
        n->in[1]->op != FX_OP_EXPAND)
        return fxi_rule_in(a, i);
    return fx_sub(fxi_array_of(n->in[0]), fxi_array_of(n->in[1]));
}

/* z = x·r with r = 1/d (fxi_quotient): ∂L/∂d = −r·Σ g·z. The rule of r multiplies by −r, and gets
 * g·z here instead of g·x = g·z·d. So every product that reads r is made by of_quotient, also in
 * gradients. */
static void quotient_gradient(const fxi_rule_args *a)
{
    if (a->need[0])
        a->gx[0] = of_quotient(G, Y);
    if (a->need[1])
        a->gx[1] = fx_mul(G, Z);
}

RULE(MUL)
{
    if (a->node->grad == FXI_GRAD_QUOTIENT) {
        quotient_gradient(a);
        return;
    }
    if (a->need[0])
        a->gx[0] = fx_mul(G, factor(a, 1));
    if (a->need[1])
        a->gx[1] = fx_mul(G, factor(a, 0));
}

RULE(DIV)
{
    if (a->node->grad == FXI_GRAD_QUOTIENT) {
        a->gx[1] = of_quotient(fx_neg(G), Z);
        return;
    }
    fx_array *q = fx_div(G, Y);
    if (a->node->grad == FXI_GRAD_SOFTSIGN) {
        a->gx[0] = fx_div(q, Y); /* d² overflows in Float16 from 256 on */
        return;
    }
    a->gx[0] = q;
    if (a->need[1])
        a->gx[1] = fx_neg(fx_mul(q, Z));
}

/* rem(x, y) = x − y·q for the whole number q = (x − rem)/y. q is rounded, because a quotient of
 * floats is not whole. */
RULE(REM)
{
    a->gx[0] = G;
    if (a->need[1])
        a->gx[1] = fx_neg(fx_mul(G, fx_round(fx_div(fx_sub(X, Z), Y))));
}

/* d/dx x^y = y·x^(y−1), 0 where y is 0; d/dy = x^y·log x, 0 where x is 0 and y ≥ 0 (like PyTorch).
 */
RULE(POW)
{
    if (a->need[0])
        a->gx[0] = fx_mul(G, fx_where(fx_eq(Y, 0), 0, fx_mul(Y, fx_pow(X, fx_sub(Y, ONE)))));
    if (a->need[1])
        a->gx[1] = fx_mul(G, fx_where(fx_and(fx_eq(X, 0), fx_ge(Y, 0)), 0, fx_mul(Z, fx_log(X))));
}

/* Max and min: the selected operand gets the gradient; equal operands get half of it each. The
 * other operand gets 0, also if the gradient is infinite, as in PyTorch. */
static void share(const fxi_rule_args *a, fx_array *first_wins)
{
    fx_array *tie = fx_eq(X, Y), *half = fx_mul(0.5, G);
    if (a->need[0])
        a->gx[0] = fx_where(first_wins, G, fx_where(tie, half, 0));
    if (a->need[1])
        a->gx[1] = fx_where(first_wins, 0, fx_where(tie, half, G));
}

RULE(MAX)
{
    share(a, fx_lt(Y, X));
}

RULE(MIN)
{
    share(a, fx_lt(X, Y));
}

RULE(ATAN2)
{
    fx_array *q = fx_div(G, fx_add(fx_mul(X, X), fx_mul(Y, Y)));
    a->gx[0] = fx_mul(q, Y);
    a->gx[1] = fx_neg(fx_mul(q, X));
}

RULE(SELECT)
{
    if (a->need[1])
        a->gx[1] = fx_where(X, G, 0);
    if (a->need[2])
        a->gx[2] = fx_where(X, 0, G);
}

RULE(NEG)
{
    a->gx[0] = fx_neg(G);
}

RULE(POWI)
{
    const int64_t n = a->node->attr.exponent;
    if (n == 1)
        a->gx[0] = G;
    else if (n == 2)
        a->gx[0] = fx_mul(G, fx_mul(2, X));
    else if (n != 0)
        a->gx[0] = fx_mul(G, fx_mul(n, n > INT64_MIN ? fx_pow(X, n - 1) : fx_div(Z, X)));
}

RULE(EXP)
{
    a->gx[0] = fx_mul(G, Z);
}

RULE(EXPM1)
{
    a->gx[0] = fx_mul(G, fx_add(Z, ONE));
}

RULE(LOG)
{
    a->gx[0] = fx_div(G, X);
}

RULE(LOG1P)
{
    a->gx[0] = fx_div(G, fx_add(X, ONE));
}

RULE(SQRT)
{
    a->gx[0] = fx_div(fx_mul(0.5, G), Z);
}

RULE(SIN)
{
    a->gx[0] = fx_mul(G, fx_cos(X));
}

RULE(COS)
{
    a->gx[0] = fx_neg(fx_mul(G, fx_sin(X)));
}

RULE(TANH)
{
    a->gx[0] = fx_mul(G, fx_sub(ONE, fx_mul(Z, Z)));
}

RULE(SIGMOID)
{
    a->gx[0] = fx_mul(G, fx_mul(Z, fx_sub(ONE, Z)));
}

RULE(RELU)
{
    a->gx[0] = fx_where(fx_gt(Z, 0), G, 0); /* as NNlib: 0 at 0, and where Z is NaN */
}

/* 2/√π·e^(−x²) */
RULE(ERF)
{
    a->gx[0] = fx_mul(G, fx_mul(1.1283791670955126, fx_exp(fx_neg(fx_mul(X, X)))));
}

RULE(CAST)
{
    if (fxi_is_float(a->node->in[0]->dtype))
        a->gx[0] = fx_cast(G, (fx_dtype)a->node->in[0]->dtype);
}
