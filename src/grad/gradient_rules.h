/* gradient_rules.h: the gradient rule of every primitive. */
#ifndef CFLUX_GRAD_RULES_H
#define CFLUX_GRAD_RULES_H

#include "context.h"

/* What a rule works with. gx[i] starts as NULL (no gradient) and is set to the upstream gradient's
 * contribution to input i, of its shape or, for 0-d inputs of elementwise operations, of the
 * output's (the sweep sums it). Rules only fill inputs whose `need` is set; filling others is
 * harmless. */
typedef struct fxi_rule_args {
    const fxi_node *node;
    fx_array *const *in;
    fx_array *out;
    fx_array *gy;
    const bool *need;
    fx_array **gx;
} fxi_rule_args;

typedef void (*fxi_gradient_rule)(const fxi_rule_args *a);

/* NULL: the operation passes no gradient on. */
extern const fxi_gradient_rule fxi_gradient_rules[FXI_OP_COUNT];

#endif
