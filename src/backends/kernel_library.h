/* kernel_library.h: the interface between the CPU backend and a kernel library that serves it.
 *
 * A kernel library is a plugin that computes some steps (step.h) with a vendor's library.
 * cpu_plugin.c opens it at run time. It shares no symbols with cflux, which may be linked
 * statically, and calls back through the host table only.
 */
#ifndef CFLUX_KERNEL_LIBRARY_H
#define CFLUX_KERNEL_LIBRARY_H

#include "step.h"

#include <cflux/plugin.h>

/* Functions of the CPU backend that a kernel library may call. */
typedef struct fxi_kernel_host {
    void *(*alloc)(size_t alignment, size_t bytes); /* NULL if memory is exhausted */
    void (*free)(void *ptr);
    /* Records an error of an operation and returns its status. */
    fx_status (*fail)(fx_status status, const char *operation, const char *text);
    /* Calls part(user, k, scratch) for all k < n, each with `bytes` of memory, on several threads
     * if the CPU backend has them, and returns when all are done: FX_OK, or FX_STATUS_MEMORY before
     * the first call. Parts allocate nothing themselves. */
    fx_status (*parallel)(int64_t n, size_t bytes,
                          void (*part)(void *user, int64_t k, void *scratch), void *user);
} fxi_kernel_host;

/* The table of functions. */
struct fxi_kernel_ready;
typedef struct fxi_kernel_library {
    fx_plugin_head head; /* FXI_KERNEL_HEAD("oneDNN") */
    /* Called once, before all other functions. Returns NULL on success, else the reason of the
     * failure. */
    const char *(*open)(const fxi_kernel_host *host);
    /* Prepares the step, which several threads may then run at the same time. Returns
     * FX_STATUS_UNSUPPORTED if the library cannot compute this step, or is not faster than the CPU
     * backend. */
    fx_status (*prepare)(const fx_step *step, struct fxi_kernel_ready **out_ready);
    void (*release)(struct fxi_kernel_ready *ready);
    fx_status (*run)(const struct fxi_kernel_ready *ready, const fx_step *step,
                     const void *const *in, void *out, fx_run *run);
} fxi_kernel_library;

/* Every object that `prepare` makes begins with this. */
typedef struct fxi_kernel_ready {
    const fxi_kernel_library *library;
    int64_t work_bytes;
} fxi_kernel_ready;

#define FXI_KERNEL_SIZES_HERE FX_PLUGIN_SIZES_HERE(fxi_kernel_library, fxi_kernel_host)
/* The head of a kernel library that serves the CPU backend. */
#define FXI_KERNEL_HEAD(library_name)                                                              \
    {                                                                                              \
        .abi = FX_PLUGIN_ABI, .kind = FX_PLUGIN_KERNEL_LIBRARY, .sizes = FXI_KERNEL_SIZES_HERE,    \
        .version = FX_VERSION_STRING, .name = (library_name), .serves = "CPU"                      \
    }

#endif
