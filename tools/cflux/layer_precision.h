/* layer_precision.h: --precision of cflux train. With bf16 or f16 the layers compute in this type,
 * with copies of the parameters. The parameters, the loss and the optimiser stay Float32, so the
 * saved model is an ordinary one. P. Micikevicius et al., Mixed precision training, 2018. */
#ifndef CFLUX_TOOL_LAYER_PRECISION_H
#define CFLUX_TOOL_LAYER_PRECISION_H

#include <cflux.h>

#define PRECISION_CHOICES "f32|bf16|f16"

/* The outputs of the model in Float32, computed in the precision of this name. `input` is an array,
 * or bags of tokens. The derivative passes through the conversions. */
fx_array *precision_outputs(const char *name, void *model, void *input);
/* The rule for this precision. Float16 has few small numbers: the loss is multiplied by a factor,
 * and the rule divides the gradients by it. An error object if it cannot contain `rule`. */
fx_rule *precision_rule(const char *name, fx_rule *rule);

#endif
