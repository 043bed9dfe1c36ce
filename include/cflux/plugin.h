/* cflux/plugin.h: the head of every plugin. Only authors of plugins need this header.
 *
 * A plugin is a shared library that cflux loads while a program runs. There are three kinds. A
 * backend, libcflux-NAME.so, provides devices (cflux/backend.h). A kernel library,
 * libcflux-SERVES-NAME.so, computes some steps for the backend SERVES with a vendor's library. A
 * transport, libcflux-mpi-NAME.so, libcflux-nccl.so or libcflux-rccl.so, moves data between
 * processes (cflux/dist.h). File names are in lower case; on macOS they end with .dylib, on Windows
 * with .dll. A backend's name contains no hyphen and is not NCCL or RCCL, so the file name alone
 * determines the kind.
 *
 * Every plugin exports one object, `fx_plugin`. It begins with an fx_plugin_head; the table of
 * functions for its kind of plugin follows. cflux and the plugin share structs, so cflux accepts a
 * plugin only if the ABI number and the sizes of all shared structs are equal to its own. */
#ifndef CFLUX_PLUGIN_H
#define CFLUX_PLUGIN_H

#include <cflux/base.h>

FXI_BEGIN_C

/* Kind of a plugin: the type of the table after the head. */
typedef enum fx_plugin_kind {
    FX_PLUGIN_BACKEND = 1,        /* an fx_backend */
    FX_PLUGIN_KERNEL_LIBRARY = 2, /* a table that the backend defines */
    FX_PLUGIN_TRANSPORT = 3       /* a table that src/dist defines */
} fx_plugin_kind;

/* Version of the plugin interface, and number of entries of fx_plugin_head.sizes. */
enum { FX_PLUGIN_ABI = 14, FX_PLUGIN_SIZES = 34 };

/* Read by cflux before it calls any function of the plugin. */
typedef struct fx_plugin_head {
    /* These two members have the same offsets in all versions. */
    uint32_t abi;                    /* FX_PLUGIN_ABI */
    uint32_t kind;                   /* fx_plugin_kind */
    uint32_t sizes[FX_PLUGIN_SIZES]; /* sizes of the shared structs in bytes */
    const char *version; /* version of cflux that it was compiled with, FX_VERSION_STRING */
    const char *name;    /* name: "CUDA", "oneDNN" */
    const char *serves;  /* kernel library: its backend, "CPU"; for MPI: "MPI"; others: NULL */
} fx_plugin_head;

/* Defines the object that a plugin exports: FX_PLUGIN_EXPORT(fx_backend) = {…}; */
#define FX_PLUGIN_EXPORT(type)                                                                     \
    extern FX_API const type fx_plugin;                                                            \
    FX_API const type fx_plugin

FXI_END_C
#endif
