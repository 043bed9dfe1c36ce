/* attention_loop.h: attention steps of 16-bit floats as plain loops in double, for the stand-in
 * devices: see fx_attention_step in <cflux/backend.h>. */
#ifndef CFLUX_TEST_ATTENTION_LOOP_H
#define CFLUX_TEST_ATTENTION_LOOP_H

#include <cflux/backend.h>

/* fx_backend.attention of the stand-ins: true for 16-bit floats of any sizes. */
bool attention_loop_takes(fx_device *device, const fx_step *step);
/* The host for the example backend: its CPU also computes attention steps. */
const fx_host *attention_loop_host(const fx_host *host);

#endif
