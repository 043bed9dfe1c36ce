/* gradient_rules.h: the gradient rule of every primitive. */
#ifndef CFLUX_GRAD_RULES_H
#define CFLUX_GRAD_RULES_H

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

typedef void (*fxi_gradient_rule)(const fxi_rule_args *a);

/* NULL: the operation passes no gradient on. */
extern const fxi_gradient_rule fxi_gradient_rules[FX_OP_COUNT];

#endif
