/* backends.h: the backends that are part of the library. Internal. */
#ifndef CFLUX_BACKENDS_H
#define CFLUX_BACKENDS_H

#include <cflux/backend.h>

extern const fx_backend fxi_cpu_backend, fxi_ref_backend;

/* Makes the backend "check:NAME", which computes with `inner` on these devices and verifies how
 * memory is used (backends/check). It is never freed. NULL if there is no memory for it. */
const fx_backend *fxi_check_backend(const fx_backend *inner, fx_device *const *devices, int count);
/* The bytes that the planner adds after the work space of each step, as a guard; 0 if the backend
 * is not a checking one. */
int64_t fxi_check_work_guard(const fx_backend *backend);
/* Verifies and frees the released memory that the device's checking backend holds, for all of its
 * devices. For tests. */
void fxi_check_reclaim(fx_device *device);

#endif
