/* host_step.c: runs steps that work on host memory, whichever device the plan is for: custom
 * operations of the user, and collective operations.
 */
#include "memory.h"
#include "step.h"

#include <stdio.h>
#include <string.h>

/* One type describes inputs and results, so its data is not const. */
static fx_custom_operand operand(const fx_tensor *t, const void *data)
{
    return (fx_custom_operand){(fx_dtype)t->dtype, t->ndim, t->shape, (void *)(uintptr_t)data};
}

fx_status fxi_run_custom(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    const fx_custom_op *op = fx_step_custom(step)->op;
    fx_custom_operand *inputs = fxi_malloc(((size_t)step->nin + 1) * sizeof *inputs);
    if (!inputs)
        return FX_STATUS_MEMORY;
    for (int k = 0; k < step->nin; k++)
        inputs[k] = operand(&step->in[k], in[k]);
    const fx_custom_operand result = operand(&step->out, out);
    const fx_status status = op->forward(op, step->nin, inputs, &result);
    fxi_free(inputs);
    (void)run;
    /* The function's own error, if it recorded one, says more. */
    if (status != FX_OK && fx_error_status() == FX_OK)
        fx_fail(status, fx_op_name(step->op), "%s: its function returned %s",
                op->name ? op->name : "custom", fx_status_name(status));
    return status;
}

fx_status fxi_run_collective(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    const fx_communicator *c = fx_step_collective(step)->what.communicator;
    (void)run;
    char why[500] = "";
    return fxi_collective_ended(step, c->run(c, step, in[0], out, why, sizeof why), why);
}

fx_status fxi_collective_ended(const fx_step *step, fx_status status, const char *why)
{
    const fx_communicator *c = fx_step_collective(step)->what.communicator;
    return status == FX_OK
               ? FX_OK
               : fx_fail(status, fx_op_name(step->op), "%s, rank %d of %d: %s", c->name,
                         (int)c->rank, (int)c->size, *why ? why : fx_status_name(status));
}

/* The number of inputs that a step reads. The others of a collective step only order it after
 * earlier ones. */
static int read_by(const fx_step *step)
{
    return step->cls == FX_CLASS_COLLECTIVE ? 1 : step->nin;
}

/* Runs a step on host copies: copies[0 … n−1] are the n inputs that it reads, copies[n] is the
 * result. */
static fx_status run_on_copies(fx_device *device, const fx_step *step, const void *const *in,
                               void *out, void **copies)
{
    const int n = read_by(step);
    fx_status status = FX_OK;
    for (int k = 0; k <= n && status == FX_OK; k++) {
        const size_t bytes = fxi_tensor_bytes(k < n ? &step->in[k] : &step->out);
        copies[k] = fxi_malloc(bytes);
        if (!copies[k])
            status = FX_STATUS_MEMORY;
        else if (k < n)
            status = device->backend->read(device, copies[k], in[k], bytes);
    }
    if (status == FX_OK)
        status = (step->cls == FX_CLASS_COLLECTIVE ? fxi_run_collective : fxi_run_custom)(
            step, (const void *const *)copies, copies[n], NULL);
    if (status == FX_OK)
        status = device->backend->write(device, out, copies[n], fxi_tensor_bytes(&step->out));
    return status;
}

fx_status fxi_run_on_host(fx_device *device, const fx_step *step, const void *const *in, void *out)
{
    void **copies = fxi_calloc((size_t)step->nin + 1, sizeof *copies);
    if (!copies)
        return FX_STATUS_MEMORY;
    const fx_status status = run_on_copies(device, step, in, out, copies);
    for (int k = 0; k <= step->nin; k++)
        fxi_free(copies[k]);
    fxi_free(copies);
    return status;
}
