/* cpu_plugin.h: steps that a kernel library computes in the CPU's place. Internal. */
#ifndef CFLUX_CPU_PLUGIN_H
#define CFLUX_CPU_PLUGIN_H

#include "kernel_library.h"

/* Asks the plugin for the step. FX_STATUS_UNSUPPORTED when there is no plugin, or the step is too
 * small to open one for, or the plugin declines. */
fx_status fxi_cpu_plugin_prepare(const fx_step *step, fxi_kernel_ready **out_ready);
void fxi_cpu_plugin_release(fxi_kernel_ready *ready);
fx_status fxi_cpu_plugin_run(const fxi_kernel_ready *ready, const fx_step *step,
                             const void *const *in, void *out, fx_run *run);

/* The plugin in use ("oneDNN"), or NULL; open: opens it now if it is there. */
const char *fxi_cpu_plugin_name(bool open);
/* Why the plugin of that name cannot be used, "" when it can: it is opened to find out. NULL: there
 * is none of that name. */
const char *fxi_cpu_plugin_why(const char *name);
/* For tests: the first use begins anew, as in a new process (what was opened stays open). */
void fxi_cpu_plugin_reset(void);

#endif
