/* gradient_rules.c: gradient rules, one a primitive, written with operations of the public API: so
 * gradients have gradients. Where the derivative can be had from the output (exp, tanh, sigmoid,
 * sqrt, division) the rule uses it: the input is then dead after the forward pass.
 */
#include "gradient_rules.h"
#include "primitives.h"

#include <string.h>

#define RULE(name) static void gradient_##name(const fxi_rule_args *a)
#define X          fxi_rule_in(a, 0)
#define Y          fxi_rule_in(a, 1)
#define G          a->gy
#define Z          fxi_rule_out(a)

/* Views y as having x's sizes. */
static fx_array *like(fx_array *y, const fx_array *x)
{
    return fx_is_error(x) ? y : fxi_reshape(y, x->node->ndim, x->node->shape);
}
static fx_array *expand_like(fx_array *y, const fx_array *x)
{
    return fx_is_error(x) ? y : fxi_expand(y, x->node->ndim, x->node->shape);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

RULE(add)
{
    a->gx[0] = a->gx[1] = G;
}
RULE(sub)
{
    a->gx[0] = G;
    if (a->need[1])
        a->gx[1] = fx_neg(G);
}
RULE(mul)
{
    if (a->need[0])
        a->gx[0] = fx_mul(G, Y);
    if (a->need[1])
        a->gx[1] = fx_mul(G, X);
}
RULE(div)
{
    fx_array *q = fx_div(G, Y);
    a->gx[0] = q;
    if (a->need[1])
        a->gx[1] = fx_neg(fx_mul(q, Z));
}
/* d/dx x^y = y·x^(y−1), 0 where y is 0; d/dy = x^y·log x, 0 where x is 0 (as PyTorch has it). */
RULE(pow)
{
    if (a->need[0])
        a->gx[0] = fx_mul(G, fx_where(fx_eq(Y, 0), 0, fx_mul(Y, fx_pow(X, fx_sub(Y, 1)))));
    if (a->need[1])
        a->gx[1] = fx_mul(G, fx_where(fx_eq(X, 0), 0, fx_mul(Z, fx_log(X))));
}
static void share(const fxi_rule_args *a, fx_array *first_wins)
{
    fx_array *weight = fx_where(first_wins, 1, fx_where(fx_eq(X, Y), 0.5, 0));
    fx_array *g = fx_mul(G, weight);
    a->gx[0] = g;
    if (a->need[1])
        a->gx[1] = fx_sub(G, g);
}
RULE(max)
{
    share(a, fx_lt(Y, X));
}
RULE(min)
{
    share(a, fx_lt(X, Y));
}
RULE(atan2)
{
    fx_array *q = fx_div(G, fx_add(fx_mul(X, X), fx_mul(Y, Y)));
    a->gx[0] = fx_mul(q, Y);
    a->gx[1] = fx_neg(fx_mul(q, X));
}
RULE(select)
{
    if (a->need[1])
        a->gx[1] = fx_where(X, G, 0);
    if (a->need[2])
        a->gx[2] = fx_where(X, 0, G);
}
RULE(neg)
{
    a->gx[0] = fx_neg(G);
}
RULE(powi)
{
    const int64_t n = a->node->attr.i[0];
    if (n == 1)
        a->gx[0] = G;
    else if (n == 2)
        a->gx[0] = fx_mul(G, fx_mul(2, X));
    else if (n != 0)
        a->gx[0] = fx_mul(G, fx_mul(n, fx_pow(X, n - 1)));
}
RULE(exp)
{
    a->gx[0] = fx_mul(G, Z);
}
RULE(expm1)
{
    a->gx[0] = fx_mul(G, fx_add(Z, 1));
}
RULE(log)
{
    a->gx[0] = fx_div(G, X);
}
RULE(log1p)
{
    a->gx[0] = fx_div(G, fx_add(X, 1));
}
RULE(sqrt)
{
    a->gx[0] = fx_div(fx_mul(0.5, G), Z);
}
RULE(sin)
{
    a->gx[0] = fx_mul(G, fx_cos(X));
}
RULE(cos)
{
    a->gx[0] = fx_neg(fx_mul(G, fx_sin(X)));
}
RULE(tanh)
{
    a->gx[0] = fx_mul(G, fx_sub(1, fx_mul(Z, Z)));
}
RULE(sigmoid)
{
    a->gx[0] = fx_mul(G, fx_mul(Z, fx_sub(1, Z)));
}
RULE(relu)
{
    a->gx[0] = fx_where(fx_le(Z, 0), 0, G); /* Z ≤ 0 where X ≤ 0 */
}
/* 2/√π·e^(−x²) */
RULE(erf)
{
    a->gx[0] = fx_mul(G, fx_mul(1.1283791670955126, fx_exp(fx_neg(fx_mul(X, X)))));
}
RULE(cast)
{
    if (fxi_is_float(a->node->in[0]->dtype))
        a->gx[0] = fx_cast(G, (fx_dtype)a->node->in[0]->dtype);
}

/* ---- movement -------------------------------------------------------------------------------- */

RULE(reshape)
{
    a->gx[0] = like(G, X);
}
RULE(permute)
{
    int64_t inverse[FX_MAX_DIMS];
    for (int i = 0; i < a->node->ndim; i++)
        inverse[a->node->attr.i[i]] = i;
    a->gx[0] = fxi_permute(G, a->node->ndim, inverse);
}
/* Σ g over the axes of mask. A negation is left to the sums, which are fewer: the same numbers. */
static fx_array *summed(fx_array *g, unsigned mask)
{
    if (fx_is_error(g) || g->node->data || g->node->op != FX_OP_NEG)
        return fxi_reduce(FX_FOLD_SUM, g, mask, "sum");
    return fx_neg(fxi_reduce(FX_FOLD_SUM, fxi_array_of(g->node->in[0]), mask, "sum"));
}
RULE(expand)
{
    unsigned mask = 0;
    for (int i = 0; i < a->node->ndim; i++)
        if (a->node->in[0]->shape[i] != a->node->shape[i])
            mask |= FX_AXIS(i);
    a->gx[0] = summed(G, mask);
}
/* Puts the elements back where they came from, zeros between them: axis as (inner, n, outer); a
 * step of k is n → k×n with zeros in the new axis. */
RULE(slice)
{
    const fxi_node *x = a->node->in[0];
    const int axis = (int)a->node->attr.i[0];
    int64_t start = a->node->attr.i[1], step = a->node->attr.i[2], inner = 1, outer = 1;
    const int64_t n = a->node->shape[axis], size = x->shape[axis];
    if (step == 1) {
        a->gx[0] = fx_pad(G, axis, start, size - start - n, 0);
        return;
    }
    for (int i = 0; i < x->ndim; i++)
        *(i < axis ? &inner : &outer) *= i == axis ? 1 : x->shape[i];
    fx_array *g = G;
    if (step <= 0 &&
        n > 0) { /* a step of 0 repeats one element; builders allow it for n of one only */
        g = fx_slice_step(g, axis, n - 1, -1, n);
        start += step * (n - 1);
        step = -step;
    }
    g = fx_pad(fx_reshape(g, inner, 1, n, outer), 1, 0, step - 1, 0);
    g = fx_pad(fx_reshape(g, inner, step * n, outer), 1, start, size - start - step * n, 0);
    a->gx[0] = like(g, X);
}
RULE(pad)
{
    const int axis = (int)a->node->attr.i[0];
    const int64_t before = a->node->attr.i[1];
    a->gx[0] = fx_slice(G, axis, before, before + a->node->in[0]->shape[axis]);
}
RULE(concat)
{
    const int axis = (int)a->node->attr.i[0];
    int64_t at = 0;
    for (int i = 0; i < a->node->nin; i++) {
        const int64_t n = a->node->in[i]->shape[axis];
        if (a->need[i])
            a->gx[i] = fx_slice(G, axis, at, at + n);
        at += n;
    }
}

/* ---- reductions and indexing ----------------------------------------------------------------- */

/* The product of the others: with one zero among the factors only that one has a gradient. */
static fx_array *product_gradient(const fxi_rule_args *a, unsigned mask)
{
    fx_array *zero = fx_eq(X, 0), *ones = fx_where(zero, 1, X);
    fx_array *zeros =
        fxi_reduce(FX_FOLD_SUM, fx_cast(zero, (fx_dtype)a->node->in[0]->dtype), mask, "sum");
    fx_array *others = fxi_reduce(FX_FOLD_PROD, ones, mask, "prod");
    fx_array *d = fx_where(zero, fx_where(fx_eq(zeros, 1), others, 0),
                           fx_where(fx_eq(zeros, 0), fx_div(others, ones), 0));
    return fx_mul(expand_like(G, X), d);
}
RULE(reduce)
{
    const fx_fold kind = (fx_fold)a->node->attr.i[0];
    const unsigned mask = (unsigned)a->node->attr.i[1];
    if (kind == FX_FOLD_SUM) {
        a->gx[0] = expand_like(G, X);
    } else if (kind == FX_FOLD_PROD) {
        a->gx[0] = product_gradient(a, mask);
    } else if (kind == FX_FOLD_SQDEV) { /* 2·(x − mean): what the mean adds sums to 0 */
        fx_array *sum = fxi_reduce(FX_FOLD_SUM, X, mask, "sum");
        const int64_t nx = fx_length(X), n = fx_length(sum) ? nx / fx_length(sum) : 0;
        fx_array *mean = fx_div(sum, (double)n);
        a->gx[0] = fx_mul(expand_like(fx_mul(2, G), X), fx_sub(X, expand_like(mean, X)));
    } else { /* equal extremes share the gradient evenly */
        fx_array *hit = fx_cast(fx_eq(X, expand_like(Z, X)), (fx_dtype)a->node->in[0]->dtype);
        fx_array *each = fx_div(G, fxi_reduce(FX_FOLD_SUM, hit, mask, "sum"));
        a->gx[0] = fx_mul(hit, expand_like(each, X));
    }
}
RULE(cumsum)
{
    const int axis = (int)a->node->attr.i[0];
    a->gx[0] = a->node->attr.i[1] ? fx_cumsum(G, axis) : fx_cumsum_reverse(G, axis);
}
RULE(gather)
{
    const int axis = (int)a->node->attr.i[0];
    a->gx[0] = fxi_scatter_primitive(FX_FOLD_SUM, G, Y, axis, a->node->in[0]->shape[axis]);
}
RULE(scatter)
{
    const fx_fold kind = (fx_fold)a->node->attr.i[0];
    const int axis = (int)a->node->attr.i[1];
    fx_array *g = fx_gather(G, Y, axis);
    if (kind == FX_FOLD_SUM) {
        a->gx[0] = g;
        return;
    }
    fx_array *z = fx_gather(Z, Y, axis);
    if (kind == FX_FOLD_PROD) {
        a->gx[0] = fx_div(fx_mul(g, z), X);
        return;
    }
    fx_array *hit = fx_cast(fx_eq(X, z), (fx_dtype)a->node->in[0]->dtype);
    fx_array *count = fxi_scatter_primitive(FX_FOLD_SUM, hit, Y, axis, a->node->shape[axis]);
    a->gx[0] = fx_div(fx_mul(g, hit), fx_max(fx_gather(count, Y, axis), 1));
}

/* ---- contractions ---------------------------------------------------------------------------- */

/* Sums g over the batch axes along which x was broadcast. */
static fx_array *unbroadcast(fx_array *g, const fx_array *x)
{
    if (fx_is_error(g))
        return g;
    unsigned mask = 0;
    for (int i = 2; i < fx_ndims(g); i++)
        if (fx_size(g, i) != fx_size(x, i))
            mask |= FX_AXIS(i);
    return like(fxi_reduce(FX_FOLD_SUM, g, mask, "sum"), x);
}
RULE(matmul)
{
    const bool ta = a->node->attr.i[0], tb = a->node->attr.i[1];
    if (a->need[0])
        a->gx[0] = unbroadcast(ta ? fxi_matmul_node(tb, true, Y, G, "matmul")
                                  : fxi_matmul_node(false, !tb, G, Y, "matmul"),
                               X);
    if (a->need[1])
        a->gx[1] = unbroadcast(tb ? fxi_matmul_node(true, ta, G, X, "matmul")
                                  : fxi_matmul_node(!ta, false, X, G, "matmul"),
                               Y);
}

/* The three kinds are each other's gradients. p and q in the order of the node's inputs. */
static fx_array *conv_kind(const fxi_rule_args *a, fx_conv_kind kind, fx_array *p, fx_array *q,
                           const fxi_node *shape)
{
    fx_conv_attr attr = a->node->attr.conv;
    attr.kind = (int32_t)kind;
    return fxi_conv_node(&attr, p, q, shape->ndim, shape->shape);
}
RULE(conv)
{
    static const struct {
        int8_t kind, p, q; /* operands: 0 and 1 inputs, 2 the upstream gradient */
    } rules[3][2] = {
        [FX_CONV_FORWARD] = {{FX_CONV_DATA, 2, 1}, {FX_CONV_WEIGHT, 0, 2}},
        [FX_CONV_DATA] = {{FX_CONV_FORWARD, 2, 1}, {FX_CONV_WEIGHT, 2, 0}},
        [FX_CONV_WEIGHT] = {{FX_CONV_DATA, 1, 2}, {FX_CONV_FORWARD, 0, 2}},
    };
    fx_array *const from[] = {X, Y, G};
    for (int i = 0; i < 2; i++)
        if (a->need[i])
            a->gx[i] = conv_kind(a, (fx_conv_kind)rules[a->node->attr.conv.kind][i].kind,
                                 from[rules[a->node->attr.conv.kind][i].p],
                                 from[rules[a->node->attr.conv.kind][i].q], a->node->in[i]);
}
RULE(pool)
{
    static const fx_pool_kind adjoint[] = {[FX_POOL_MAX] = FX_POOL_MAX_GRAD,
                                           [FX_POOL_MEAN] = FX_POOL_MEAN_GRAD,
                                           [FX_POOL_MAX_GRAD] = FX_POOL_MAX_PICK,
                                           [FX_POOL_MEAN_GRAD] = FX_POOL_MEAN,
                                           [FX_POOL_MAX_PICK] = FX_POOL_MAX_GRAD};
    const fx_pool_kind kind = (fx_pool_kind)a->node->attr.pool.kind;
    fx_pool_attr attr = a->node->attr.pool;
    attr.kind = (int32_t)adjoint[kind];
    const bool selects = kind != FX_POOL_MEAN && kind != FX_POOL_MEAN_GRAD;
    fx_array *const in[] = {G, !selects ? NULL : kind == FX_POOL_MAX ? X : Y};
    a->gx[0] =
        fxi_pool_node(&attr, selects ? 2 : 1, in, a->node->in[0]->ndim, a->node->in[0]->shape);
}
/* What is on no device yet is computed wherever it is used. */
RULE(transfer)
{
    const bool anywhere = fx_is_error(G) || !G->node->device;
    a->gx[0] = anywhere ? G : fx_array_to(a->node->in[0]->device, G);
}
RULE(custom)
{
    const fx_custom_op *op = a->node->attr.custom;
    fx_array *out = Z;
    bool ok = op->gradient && !fx_is_error(out);
    for (int i = 0; i < a->node->nin && ok; i++)
        ok = !fx_is_error(fxi_rule_in(a, i));
    if (ok)
        op->gradient(op, a->node->nin, a->in, out, a->gy, a->gx);
}

/* Comparisons, FLD, FLOOR, IOTA, RANDOM and STOP pass nothing on. */
const fxi_gradient_rule fxi_gradient_rules[FX_OP_COUNT] = {
    [FX_OP_ADD] = gradient_add,         [FX_OP_SUB] = gradient_sub,
    [FX_OP_MUL] = gradient_mul,         [FX_OP_DIV] = gradient_div,
    [FX_OP_POW] = gradient_pow,         [FX_OP_MAX] = gradient_max,
    [FX_OP_MIN] = gradient_min,         [FX_OP_ATAN2] = gradient_atan2,
    [FX_OP_SELECT] = gradient_select,   [FX_OP_NEG] = gradient_neg,
    [FX_OP_POWI] = gradient_powi,       [FX_OP_EXP] = gradient_exp,
    [FX_OP_EXPM1] = gradient_expm1,     [FX_OP_LOG] = gradient_log,
    [FX_OP_LOG1P] = gradient_log1p,     [FX_OP_SQRT] = gradient_sqrt,
    [FX_OP_SIN] = gradient_sin,         [FX_OP_COS] = gradient_cos,
    [FX_OP_TANH] = gradient_tanh,       [FX_OP_SIGMOID] = gradient_sigmoid,
    [FX_OP_RELU] = gradient_relu,       [FX_OP_ERF] = gradient_erf,
    [FX_OP_CAST] = gradient_cast,       [FX_OP_RESHAPE] = gradient_reshape,
    [FX_OP_PERMUTE] = gradient_permute, [FX_OP_EXPAND] = gradient_expand,
    [FX_OP_SLICE] = gradient_slice,     [FX_OP_PAD] = gradient_pad,
    [FX_OP_CONCAT] = gradient_concat,   [FX_OP_REDUCE] = gradient_reduce,
    [FX_OP_CUMSUM] = gradient_cumsum,   [FX_OP_GATHER] = gradient_gather,
    [FX_OP_SCATTER] = gradient_scatter, [FX_OP_MATMUL] = gradient_matmul,
    [FX_OP_CONV] = gradient_conv,       [FX_OP_POOL] = gradient_pool,
    [FX_OP_CUSTOM] = gradient_custom,   [FX_OP_TRANSFER] = gradient_transfer,
};
