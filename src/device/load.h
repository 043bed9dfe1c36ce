/* load.h: backends in shared objects. Internal. */
#ifndef CFLUX_LOAD_H
#define CFLUX_LOAD_H

#include "registry.h"

/* Finds, checks and opens the backend's shared object, and registers it. Says why not in the
 * registry when it cannot; nothing is recorded as an error. */
void fxi_backend_load(const char *name);
void fxi_backend_load_all(void);

#endif
