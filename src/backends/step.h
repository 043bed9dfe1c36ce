/* step.h: what backends that are part of the library add to <cflux/backend.h>. */
#ifndef CFLUX_STEP_H
#define CFLUX_STEP_H

#include "node.h"

/* Runs one step. in[k] and out point at the first element (view offsets applied). */
typedef fx_status (*fxi_kernel)(const fx_step *step, const void *const *in, void *out, fx_run *run);

/* The attributes of a node of the step's operation as those of the step. */
void fxi_step_set_attr(fx_step *step, const fx_attr *attr);
/* Type and sizes of output k, counted as by fx_step_output. Dense, whatever the strides of
 * step->out. */
fx_tensor fxi_step_output_tensor(const fx_step *step, int32_t k);

/* Runs a custom step: the user's function on operands in host memory. */
fx_status fxi_run_custom(const fx_step *step, const void *const *in, void *out, fx_run *run);
/* Runs a collective step on operands in host memory. */
fx_status fxi_run_collective(const fx_step *step, const void *const *in, void *out, fx_run *run);
/* Is a step the library's business, because it works on host memory and the device has memory of
 * its own? Then the operands come to the host, and the result goes back. */
static inline bool fxi_runs_away(const fx_device *device, const fx_step *step)
{
    return device->backend->write &&
           (step->cls == FX_CLASS_CUSTOM ||
            (step->cls == FX_CLASS_COLLECTIVE && !step->as.collective.by_backend));
}
fx_status fxi_run_away(fx_device *device, const fx_step *step, const void *const *in, void *out);

#endif
