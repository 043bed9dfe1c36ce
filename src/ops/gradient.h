/* gradient.h: how the gradient rules of operations are written.
 *
 * A rule stands beside its operation's builder as RULE(NAME) { … } and is written with operations
 * of the public API, so that gradients have gradients. Where the derivative can be computed from
 * the output (exp, tanh, sigmoid, sqrt, division) the rule uses the output: the input is then no
 * longer needed after the forward pass. op.def says which operations have a rule.
 */
#ifndef CFLUX_GRADIENT_H
#define CFLUX_GRADIENT_H

#include "context.h"

/* What a rule works with. gx[i] starts as NULL (no gradient) and is set to the upstream gradient's
 * contribution to input i, of its shape or, for 0-d inputs of elementwise operations, of the
 * output's (the sweep sums it). Rules only fill inputs whose `need` is set; filling others is
 * harmless. */
typedef struct fxi_rule_args {
    fxi_node *node;
    fx_array **in, **out; /* handles, made when they are asked for */
    fx_array *gy;
    const bool *need;
    fx_array **gx;
} fxi_rule_args;

/* Handles of the node's inputs and of itself, owned by the scope that is open when they are first
 * asked for; error arrays when memory is out. */
static inline fx_array *fxi_rule_in(const fxi_rule_args *a, int i)
{
    return a->in[i] ? a->in[i] : (a->in[i] = fxi_array_of(a->node->in[i]));
}
static inline fx_array *fxi_rule_out(const fxi_rule_args *a)
{
    return *a->out ? *a->out : (*a->out = fxi_array_of(a->node));
}

#define RULE(NAME) void fxi_gradient_##NAME(const fxi_rule_args *a)
#define X          fxi_rule_in(a, 0)
#define Y          fxi_rule_in(a, 1)
#define G          a->gy
#define Z          fxi_rule_out(a)

/* Every rule of op.def. */
#define FXI_RULE_NONE(NAME)
#define FXI_RULE_SMOOTH(NAME)                        RULE(NAME);
#define OP(NAME, name, inputs, cls, words, gradient) FXI_RULE_##gradient(NAME)
#include <cflux/op.def>

#endif
