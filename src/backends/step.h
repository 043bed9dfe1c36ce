/* step.h: additions to <cflux/backend.h> for the backends that are part of the library. Internal.
 */
#ifndef CFLUX_STEP_H
#define CFLUX_STEP_H

#include "node.h"

/* Runs one step. in[k] and out point at the first element, with offsets of views applied. */
typedef fx_status (*fxi_kernel)(const fx_step *step, const void *const *in, void *out, fx_run *run);

/* Sets the step's attributes from those of a node with the same operation. */
void fxi_step_set_attr(fx_step *step, const fx_attr *attr);
/* The axis of a PAD step that pads several axes. Its `before` is the number of elements of the
 * output before the input's first one; fxi_pad_before computes from it the `before` of each axis.
 * Only the CPU gets such a step (planner.h), so the plugin interface does not describe it. */
enum { FXI_PAD_AXES = -1 };
/* How many elements a PAD step, of one axis or of several, adds before each axis of its input. */
void fxi_pad_before(const fx_step *step, int64_t before[FX_MAX_DIMS]);
/* Sets the sizes of an attention step from its operands. */
void fxi_step_set_attention_sizes(fx_step *step);
/* Returns the type and sizes of output k, counted as by fx_step_output. It is dense, whatever the
 * strides of step->out. */
fx_tensor fxi_step_output_tensor(const fx_step *step, int32_t k);

/* Runs a custom step: the user's function on operands in host memory. */
fx_status fxi_run_custom(const fx_step *step, const void *const *in, void *out, fx_run *run);
/* Runs a collective step on operands in host memory. */
fx_status fxi_run_collective(const fx_step *step, const void *const *in, void *out, fx_run *run);
/* Records an error if a collective step failed. Returns `status`. */
fx_status fxi_collective_ended(const fx_step *step, fx_status status, const char *why);
/* Bytes of the elements of a tensor, if they are dense. */
static inline size_t fxi_tensor_bytes(const fx_tensor *t)
{
    return (size_t)fx_tensor_length(t) * fx_dtype_size((fx_dtype)t->dtype);
}

/* May instruction k of a row step read elements of an operand? A sum across rows of a result does
 * not: it reads the tile of the result. */
static inline bool fxi_row_reads(const fx_step *step, int k)
{
    const fx_instr *ins = &fx_step_row(step)->program.instr[k];
    if (ins->op != FX_OP_REDUCE)
        return !ins->row;
    return ins->row || ins->src[0] < step->nin;
}

/* Must the library run the step itself? It must if the step works on host memory and the device has
 * memory of its own: the operands are then copied to the host, and the result back. */
static inline bool fxi_runs_on_host(const fx_device *device, const fx_step *step)
{
    return device->backend->write &&
           (step->cls == FX_CLASS_CUSTOM ||
            (step->cls == FX_CLASS_COLLECTIVE && !step->as.collective.by_backend));
}
fx_status fxi_run_on_host(fx_device *device, const fx_step *step, const void *const *in, void *out);

#endif
