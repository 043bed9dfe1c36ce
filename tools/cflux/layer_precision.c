/* layer_precision.c: see layer_precision.h. */
#include "layer_precision.h"
#include <string.h>

enum { GROWTH = 2000 }; /* updates after which the factor is doubled, as in PyTorch's GradScaler */

static fx_dtype type_named(const char *name)
{
    return strcmp(name, "bf16") == 0  ? FX_DTYPE_BF16
           : strcmp(name, "f16") == 0 ? FX_DTYPE_F16
                                      : FX_DTYPE_F32;
}

fx_array *precision_outputs(const char *name, void *model, void *input)
{
    const fx_dtype type = type_named(name);
    if (type == FX_DTYPE_F32)
        return fx_call(model, input);
    const bool numbers = fx_is_array(input) && fx_eltype(input) == FX_DTYPE_F32;
    void *narrow = numbers ? fx_cast(input, type) : input;
    return fx_cast(fx_call(fxi_in_precision(type, model), narrow), FX_DTYPE_F32);
}

fx_rule *precision_rule(const char *name, fx_rule *rule)
{
    return type_named(name) == FX_DTYPE_F16 ? fx_mixed_precision(rule, .growth = GROWTH) : rule;
}
