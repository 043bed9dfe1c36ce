/* custom_step.c: a user's operation as a step; the same for every backend whose memory is the
 * host's. */
#include "memory.h"
#include "step.h"

#include <stdio.h>

static fx_custom_operand operand(const fx_tensor *t, const void *data)
{
    return (fx_custom_operand){(fx_dtype)t->dtype, t->ndim, t->shape, (void *)(uintptr_t)data};
}

fx_status fxi_run_custom(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    const fx_custom_op *op = step->attr.custom;
    fx_custom_operand *inputs = fxi_malloc(((size_t)step->nin + 1) * sizeof *inputs);
    if (!inputs)
        return FX_STATUS_MEMORY;
    for (int k = 0; k < step->nin; k++)
        inputs[k] = operand(&step->in[k], in[k]);
    const fx_custom_operand result = operand(&step->out, out);
    const fx_status status = op->forward(op, step->nin, inputs, &result);
    fxi_free(inputs);
    if (status != FX_OK)
        snprintf(run->error, sizeof run->error, "%s: its function returned %s", op->name,
                 fx_status_name(status));
    return status;
}
