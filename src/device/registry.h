/* registry.h: the backends of this process and their devices. Internal. */
#ifndef CFLUX_REGISTRY_H
#define CFLUX_REGISTRY_H

#include "plugin_file.h"

#include <cflux/backend.h>

enum { FXI_BACKENDS_MOST = 32, FXI_DEVICES_MOST = 64 };

typedef struct fxi_registered {
    const char *name;          /* "CUDA" */
    const fx_backend *backend; /* NULL: not loaded */
    fx_device *const *devices; /* `count` of them; none: loaded, but not functional */
    int count;
    char why[FXI_PLUGIN_WHY]; /* why it is not loaded or not functional; "" if it works */
    bool plugin;              /* its devices cannot be used in the child of a fork (forked.h) */
    bool tried; /* fx_use asked for it, and it could not be loaded, as `why` says; atomic */
} fxi_registered;

/* The backends that users may prefer, in the order in which they are tried; NULL at the end. */
extern const char *const fxi_backend_order[];
/* "("CUDA", "AMDGPU", …)", for messages. */
const char *fxi_backend_list(void);

/* By name, of whatever case. NULL: nobody knows it. An entry stays where it is. */
fxi_registered *fxi_registered_find(const char *name);
static inline bool fxi_loaded(const fxi_registered *r)
{
    return r && __atomic_load_n(&r->backend, __ATOMIC_ACQUIRE);
}
static inline bool fxi_works(const fxi_registered *r)
{
    return fxi_loaded(r) && r->count > 0;
}

/* The GPU that fx_gpu moves to; NULL: there is none, and why is recorded in the name of op. */
fx_device *fxi_gpu_required(const char *op);

/* The first CUDA device; NULL if none works, and the first time a message says why. */
fx_device *fxi_cuda_or_none(void);

/* Keeps why a backend could not be loaded; does nothing if it is loaded. add: keeps the reason also
 * for a name that is not known yet. */
void fxi_registered_why(const char *name, const char *why, bool add);

/* From now on the devices of a backend that is loaded refuse in the child of a fork. */
void fxi_registered_plugin(const char *name);

/* Makes a backend known with so many devices (0: it is there but does not work, for the reason
 * `why`). A backend of that name that is loaded already stays. Its name and table stay where they
 * are. Exported for tests. */
FX_API fx_status fxi_backend_register(const fx_backend *backend, int devices, const char *why);

#endif
