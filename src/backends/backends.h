/* backends.h: the backends that are part of the library. */
#ifndef CFLUX_BACKENDS_H
#define CFLUX_BACKENDS_H

#include <cflux/backend.h>

extern const fx_backend fxi_cpu_backend, fxi_ref_backend;

/* "check:NAME": a backend that computes with another one, which has these devices, and looks at
 * what is done to its memory (backends/check). Never freed; NULL: no memory for it. */
const fx_backend *fxi_check_backend(const fx_backend *inner, fx_device *const *devices, int count);
/* Bytes behind the work space of each step on its devices, which it keeps for a guard; 0: the
 * backend is not such a one. */
int64_t fxi_check_work_guard(const fx_backend *backend);
/* Verifies and gives back the released memory that such a device's backend holds. For tests. */
void fxi_check_drain(fx_device *device);

#endif
