/* load.h: finds, opens and registers backends. Internal. */
#ifndef CFLUX_LOAD_H
#define CFLUX_LOAD_H

#include "plugin_file.h"
#include "registry.h"

/* Finds, checks and opens the backend's plugin and registers it. If that fails, the registry keeps
 * the reason; no error is recorded. A name with a slash is the path of the plugin's file.
 * "check:NAME" loads NAME and registers the wrapper around it. */
void fxi_backend_load(const char *name);
/* The name of the backend in a plugin's file: "…/libcflux-cuda.so" → "cuda" (in `storage`). Any
 * other text is returned unchanged. */
const char *fxi_backend_of(const char *name, fxi_plugin_name *storage);
/* The backend that a wrapper wraps: "check:CUDA" → "CUDA". NULL if the name is not that of a
 * wrapper. */
const char *fxi_checked_name(const char *name);
/* Loads every backend that has a file in the folders of plugins. */
void fxi_backend_load_all(void);

#endif
