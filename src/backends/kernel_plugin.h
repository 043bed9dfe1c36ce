/* kernel_plugin.h: a kernel library that a built-in backend opens when it first needs it. Internal.
 */
#ifndef CFLUX_KERNEL_PLUGIN_H
#define CFLUX_KERNEL_PLUGIN_H

#include "plugin_file.h"
#include "thread.h"

/* One kernel library: the first members describe it, the rest belongs to the functions below. A
 * static object, initialised with FXI_KERNEL_PLUGIN(…). */
typedef struct fxi_kernel_plugin {
    const char *name, *serves; /* "oneDNN", "CPU" */
    const char *variable;      /* an environment variable; "0" switches the library off */
    const char *off;           /* the reason to report then: "FX_ONEDNN is 0" */
    const uint32_t *sizes;     /* sizes of structs to compare, FX_PLUGIN_SIZES of them */
    /* Opens the library. Returns NULL on success, else why it cannot be used. */
    const char *(*open)(const fx_plugin_head *plugin);

    fxi_mutex lock; /* protects the members below */
    bool searched;  /* atomic: the library was searched for, with or without success */
    const fx_plugin_head *plugin;
    char why[FXI_PLUGIN_WHY];
} fxi_kernel_plugin;
#define FXI_KERNEL_PLUGIN(...)                                                                     \
    {                                                                                              \
        __VA_ARGS__, .lock = FXI_MUTEX_INIT                                                        \
    }

/* Is the library switched off by its variable? */
bool fxi_kernel_plugin_off(const fxi_kernel_plugin *k);
/* The library, searched for and opened by the first call; NULL if none can be used. A library that
 * is not installed is not reported; one that is rejected is logged once. */
const fx_plugin_head *fxi_kernel_plugin_get(fxi_kernel_plugin *k);
/* The library if it was opened before, else NULL. */
const fx_plugin_head *fxi_kernel_plugin_opened(const fxi_kernel_plugin *k);
/* Why the library cannot be used; "" if it can. Opens it to find out. */
const char *fxi_kernel_plugin_why(fxi_kernel_plugin *k);
/* For tests: the next use searches again, as in a new process. An opened library stays open. */
void fxi_kernel_plugin_reset(fxi_kernel_plugin *k);

#endif
