/* gradient.h: the notation for gradient rules of operations.
 *
 * A rule is written as RULE(NAME) { … } next to the function that records the operation. It uses
 * operations of the public API, so gradients have gradients. If the derivative can be computed from
 * the output (exp, tanh, sigmoid, sqrt, division), the rule uses the output: the input is then not
 * needed after the forward pass. op.def lists the operations that have a rule.
 */
#ifndef CFLUX_GRADIENT_H
#define CFLUX_GRADIENT_H

#include "context.h"

#include <cflux/array.h>

/* The arguments of a rule. gx[i] starts as NULL (no gradient). The rule sets it to the contribution
 * to the gradient of input i, with the shape of that input; for a 0-d input of an elementwise
 * operation the shape of the output is allowed, and the sweep sums it. Only inputs whose `need` is
 * set need a contribution. */
typedef struct fxi_rule_args {
    fxi_node *node;
    fx_array **in, **out; /* handles, created on first use */
    fx_array *gy;
    const bool *need;
    fx_array **gx;
    /* The number 1, which all rules of a sweep share; retained. NULL: not made yet. */
    fx_array **one;
} fxi_rule_args;

/* Handles of the node's inputs and of the node itself. The scope that is open at the first use owns
 * them. Error arrays if an allocation fails. */
static inline fx_array *fxi_rule_in(const fxi_rule_args *a, int i)
{
    return a->in[i] ? a->in[i] : (a->in[i] = fxi_array_of(a->node->in[i]));
}
static inline fx_array *fxi_rule_out(const fxi_rule_args *a)
{
    return *a->out ? *a->out : (*a->out = fxi_array_of(a->node));
}

/* A shared literal is one operand of a step, where each rule's own would be another one: the
 * planner merges steps that read the same operands. */
static inline fx_array *fxi_rule_one(const fxi_rule_args *a)
{
    return *a->one ? *a->one : (*a->one = fxi_retain(fx_scalar(1)));
}

/* y reshaped to the sizes of x; y itself if x is an error array. */
fx_array *fxi_reshaped_like(fx_array *y, const fx_array *x);

#define RULE(NAME) void fxi_gradient_##NAME(const fxi_rule_args *a)
#define X          fxi_rule_in(a, 0)
#define Y          fxi_rule_in(a, 1)
#define G          a->gy
#define Z          fxi_rule_out(a)
#define ONE        fxi_rule_one(a)

/* Every rule of op.def. */
#define FXI_RULE_NONE(NAME)
#define FXI_RULE_SMOOTH(NAME)                        RULE(NAME);
#define OP(NAME, name, inputs, cls, words, gradient) FXI_RULE_##gradient(NAME)
#include <cflux/op.def>

#endif
