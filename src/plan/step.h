/* step.h: what backends that are part of the library add to <cflux/backend.h>. */
#ifndef CFLUX_STEP_H
#define CFLUX_STEP_H

#include "node.h"

/* Runs one step. in[k] and out point at the first element (view offsets applied). */
typedef fx_status (*fxi_kernel)(const fx_step *step, const void *const *in, void *out, fx_run *run);

/* Runs a custom step: the user's function on operands in host memory. */
fx_status fxi_run_custom(const fx_step *step, const void *const *in, void *out, fx_run *run);

#endif
