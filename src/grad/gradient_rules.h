/* gradient_rules.h: the gradient rule of every primitive. */
#ifndef CFLUX_GRAD_RULES_H
#define CFLUX_GRAD_RULES_H

#include "gradient.h"

typedef void (*fxi_gradient_rule)(const fxi_rule_args *a);

/* The rule of each operation; NULL: the operation has no gradient. */
extern const fxi_gradient_rule fxi_gradient_rules[FX_OP_COUNT];

#endif
