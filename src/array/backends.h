/* backends.h: the backends that are part of the library. */
#ifndef CFLUX_BACKENDS_H
#define CFLUX_BACKENDS_H

#include <cflux/backend.h>

extern const fx_backend fxi_cpu_backend, fxi_ref_backend;

#endif
