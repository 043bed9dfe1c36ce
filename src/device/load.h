/* load.h: backends in shared objects. Internal. */
#ifndef CFLUX_LOAD_H
#define CFLUX_LOAD_H

#include "registry.h"

/* Finds, checks and opens the backend's shared object, and registers it. Says why not in the
 * registry when it cannot; nothing is recorded as an error. "check:NAME" loads NAME and registers
 * the wrapper around it. */
void fxi_backend_load(const char *name);
/* "check:CUDA" → "CUDA", the backend that a wrapper is around; NULL: not a wrapper's name. */
const char *fxi_checked_name(const char *name);
void fxi_backend_load_all(void);

#endif
