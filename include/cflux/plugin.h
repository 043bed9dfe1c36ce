/* cflux/plugin.h: the head of every plugin. For those who write one; programs do not need it.
 *
 * A plugin is a shared object that the library opens while a program runs. There are two kinds.
 * A backend, libcflux-NAME.so, makes devices usable (cflux/backend.h). A kernel library,
 * libcflux-SERVES-NAME.so, computes some steps for the backend SERVES with a vendor's library. Both
 * names are in lower case, and the names of backends contain no hyphen: a file's name alone says
 * which kind it is.
 *
 * Every plugin exports one object, `fx_plugin`, which begins with an fx_plugin_head; the table of
 * functions of its kind follows. Both sides read the same structs, so the library takes a plugin
 * only if the ABI number and the size of every shared struct are its own.
 */
#ifndef CFLUX_PLUGIN_H
#define CFLUX_PLUGIN_H

#include <cflux/base.h>

FXI_BEGIN_C

/* What follows the head of a plugin. */
typedef enum fx_plugin_kind {
    FX_PLUGIN_BACKEND = 1,       /* an fx_backend */
    FX_PLUGIN_KERNEL_LIBRARY = 2 /* a table that its backend defines */
} fx_plugin_kind;

/* The number of the interface of plugins, and how many sizes of structs a plugin states. */
enum { FX_PLUGIN_ABI = 4, FX_PLUGIN_SIZES = 31 };

/* What the library reads of a plugin before it calls anything. */
typedef struct fx_plugin_head {
    /* These two keep their places in every version. */
    uint32_t abi;  /* FX_PLUGIN_ABI */
    uint32_t kind; /* fx_plugin_kind */
    uint32_t sizes[FX_PLUGIN_SIZES];
    const char *version; /* of the cflux that it was compiled with, FX_VERSION_STRING */
    const char *name;    /* "CUDA", "oneDNN" */
    const char *serves;  /* the backend that calls a kernel library, "CPU"; NULL for a backend */
} fx_plugin_head;

/* Declares and begins the object that a plugin exports: FX_PLUGIN_EXPORT(fx_backend) = {…}; */
#define FX_PLUGIN_EXPORT(type)                                                                     \
    extern FX_API const type fx_plugin;                                                            \
    FX_API const type fx_plugin

FXI_END_C
#endif
