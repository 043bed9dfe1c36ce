/* cpu_plugin.h: gives steps of the CPU backend to a kernel library, if one is installed. Internal.
 */
#ifndef CFLUX_CPU_PLUGIN_H
#define CFLUX_CPU_PLUGIN_H

#include "kernel_library.h"

/* Asks the plugin to prepare the step. Returns FX_STATUS_UNSUPPORTED if there is no plugin, if the
 * step is too small to open one for, or if the plugin declines. */
fx_status fxi_cpu_plugin_prepare(const fx_step *step, fxi_kernel_ready **out_ready);
void fxi_cpu_plugin_release(fxi_kernel_ready *ready);
fx_status fxi_cpu_plugin_run(const fxi_kernel_ready *ready, const fx_step *step,
                             const void *const *in, void *out, fx_run *run);

/* The name of the plugin in use ("oneDNN"), or NULL if there is none. open: opens the plugin first
 * if it is installed. */
const char *fxi_cpu_plugin_name(bool open);
/* Why the plugin of that name cannot be used; "" if it can. Opens it to find out. NULL: no plugin
 * has that name. */
const char *fxi_cpu_plugin_why(const char *name);
/* For tests: the next use searches for the plugin again, as in a new process. Opened
 * plugins stay open. */
void fxi_cpu_plugin_reset(void);

#endif
