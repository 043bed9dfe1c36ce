/* plugin.h: what the CPU backend and a kernel library behind it agree on.
 *
 * A plugin is a shared object that computes some steps (step.h) with a vendor's library. It is
 * opened while the program runs, by cpu_plugin.c; it shares no symbols with the library, which may
 * be linked statically, and calls back through the host table only. Because both sides read the
 * same structs, a plugin is taken only when the ABI number and the size of every shared struct are
 * the library's own.
 */
#ifndef CFLUX_PLUGIN_H
#define CFLUX_PLUGIN_H

#include "step.h"

enum { FXI_PLUGIN_ABI = 1, FXI_PLUGIN_SIZES = 5 };

/* What the library does for a plugin. */
typedef struct fxi_plugin_host {
    void *(*alloc)(size_t alignment, size_t bytes); /* NULL when memory is out */
    void (*free)(void *ptr);
    /* Calls part(user, k, scratch) for all k < n, on several threads when there are, each with
     * `bytes` of memory; returns when all are done. FX_STATUS_MEMORY before any, or FX_OK. Parts
     * take no memory themselves. */
    fx_status (*parallel)(int64_t n, size_t bytes,
                          void (*part)(void *user, int64_t k, void *scratch), void *user);
} fxi_plugin_host;

/* Exported under the name FXI_PLUGIN_SYMBOL. The first two members keep their place for ever. */
struct fxi_plugin_ready;
typedef struct fxi_plugin {
    uint32_t abi;
    uint32_t sizes[FXI_PLUGIN_SIZES];
    const char *name; /* "oneDNN" */
    /* Called once, before anything else; what goes wrong comes back as text, else NULL. */
    const char *(*open)(const fxi_plugin_host *host);
    /* Makes what computes the step, for any number of threads at a time. FX_STATUS_UNSUPPORTED:
     * not like this, or not faster than the library itself. */
    fx_status (*prepare)(const fx_step *step, struct fxi_plugin_ready **out_ready);
    void (*release)(struct fxi_plugin_ready *ready);
    fx_status (*run)(const struct fxi_plugin_ready *ready, const fx_step *step,
                     const void *const *in, void *out, fx_run *run);
} fxi_plugin;

/* What `prepare` makes begins with this, so that it finds its way back. */
typedef struct fxi_plugin_ready {
    const fxi_plugin *plugin;
} fxi_plugin_ready;

#define FXI_PLUGIN_SYMBOL "fxi_plugin_table"
/* The sizes a plugin and the library compare. */
#define FXI_PLUGIN_SIZES_HERE                                                                      \
    {                                                                                              \
        sizeof(fxi_plugin), sizeof(fxi_plugin_host), sizeof(fx_step), sizeof(fx_tensor),           \
            sizeof(fx_run)                                                                         \
    }

#endif
