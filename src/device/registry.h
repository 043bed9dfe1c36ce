/* registry.h: the list of backends of this process and their devices. Internal. */
#ifndef CFLUX_REGISTRY_H
#define CFLUX_REGISTRY_H

#include "plugin_file.h"

#include <cflux/backend.h>

enum { FXI_BACKENDS_MOST = 32, FXI_DEVICES_MOST = 64 };

typedef struct fxi_registered {
    const char *name;          /* "CUDA" */
    const fx_backend *backend; /* NULL: not loaded */
    fx_device *const *devices; /* `count` devices; not functional if 0, or if there is a `why` */
    int count;
    char why[FXI_PLUGIN_WHY]; /* why it is not loaded or not functional; "" if it works */
    bool plugin;              /* its devices cannot be used in the child of a fork (forked.h) */
    bool tried;               /* atomic; fx_use tried to load it and failed, see `why` */
} fxi_registered;

/* The backends that users may prefer, in the order in which they are tried; NULL at the end. */
extern const char *const fxi_backend_order[];
/* "("CUDA", "AMDGPU", …)", for messages. */
const char *fxi_backend_list(void);
/* Is `name` one of them? */
bool fxi_is_preferable(const char *name);

/* The entry of a name, ignoring case; NULL: unknown. Entries never move. */
fxi_registered *fxi_registered_find(const char *name);
static inline bool fxi_loaded(const fxi_registered *r)
{
    return r && __atomic_load_n(&r->backend, __ATOMIC_ACQUIRE);
}
static inline bool fxi_works(const fxi_registered *r)
{
    return fxi_loaded(r) && r->count > 0 && !*r->why;
}

/* Does any backend that is not built in have devices? */
bool fxi_has_more_devices(void);

/* The GPU that fx_gpu moves to. NULL: there is none; the reason is recorded under the name `op`. */
fx_device *fxi_gpu_required(const char *op);

/* The first CUDA device; NULL if none works. The first call that returns NULL sends a message with
 * the reason. */
fx_device *fxi_cuda_or_none(void);

/* Stores the reason why a backend could not be loaded; does nothing if it is loaded. With `add`, an
 * unknown name is added to the list; otherwise it is ignored. */
void fxi_registered_why(const char *name, const char *why, bool add);

/* Marks a loaded backend: its devices refuse work in the child of a fork. */
void fxi_registered_plugin(const char *name);

/* Registers a backend with its devices. With a reason `why` it is loaded but does not work: its
 * devices, if there are any, are only listed. A loaded backend of the same name is kept. Name and
 * table must stay valid. Exported for tests. */
FX_API fx_status fxi_backend_register(const fx_backend *backend, int devices, const char *why);

#endif
