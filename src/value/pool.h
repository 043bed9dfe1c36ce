/* pool.h: the memory of a device: freed blocks kept for the next allocation, and the figures.
 * Internal.
 *
 * Memory that only the device can address is dear to get and to give back, so blocks that are freed
 * stay here, up to a bound, and come back for requests of about their size. Host memory has a cache
 * by thread already (base/memory.c) and passes through. Every device has a pool: it counts the most
 * that was ever live, holds the bounds, and lists the arrays that are large enough to be named when
 * memory is out.
 */
#ifndef CFLUX_POOL_H
#define CFLUX_POOL_H

#include <cflux/backend.h>
#include <cflux/device.h>
#include "node.h"
#include "thread.h"

typedef struct fxi_block {
    void *ptr;
    size_t bytes;
    uint64_t freed; /* the larger, the later */
} fxi_block;

typedef struct fxi_pool {
    fxi_mutex lock;    /* of what follows, except where it says atomic */
    fx_device *device; /* NULL: the environment was not asked yet (atomic) */
    fxi_block *blocks; /* kept: the smallest first, of equal ones the newest first */
    int32_t n, capacity;
    uint64_t frees;
    int64_t cached;        /* their bytes (atomic; written under the lock) */
    int64_t most;          /* of cached, as the user wants it; −1: as fxi_pool_bound says */
    int64_t peak;          /* of the device's live bytes (atomic) */
    int64_t live;          /* bytes of the device's buffers (atomic) */
    int64_t limit;         /* the most of them; 0: no limit (atomic) */
    fxi_buffer *arrays;    /* those that are named */
    struct fxi_pool *next; /* of another device */
} fxi_pool;

#define FXI_POOL_EMPTY                                                                             \
    {                                                                                              \
        .lock = FXI_MUTEX_INIT, .most = -1                                                         \
    }

static inline bool fxi_device_on_host(const fx_device *device)
{
    return !device->backend->read;
}

/* A device with what only the library sees of it: every fx_device that backends get is the head of
 * one. */
typedef struct fxi_device {
    fx_device device;
    fxi_pool pool;
} fxi_device;

/* The pool of a device, before its settings are made. */
static inline fxi_pool *fxi_device_pool(const fx_device *device)
{
    return &((fxi_device *)(uintptr_t)device)->pool;
}
static inline int64_t fxi_device_live(const fx_device *device)
{
    return __atomic_load_n(&fxi_device_pool(device)->live, __ATOMIC_RELAXED);
}
static inline int64_t fxi_device_limit(const fx_device *device)
{
    return __atomic_load_n(&fxi_device_pool(device)->limit, __ATOMIC_RELAXED);
}

/* What the environment says of a device's memory, asked once (device_memory.c). */
void fxi_pool_settings(fx_device *device, int64_t *out_limit, int64_t *out_cache);
/* The device's pool, with its settings made. */
fxi_pool *fxi_pool_of(fx_device *device);
/* Sets how many bytes of freed memory the device's pool keeps at most; −1: as fxi_pool_bound says.
 */
void fxi_pool_keep(fx_device *device, int64_t bytes);
/* The most bytes that are kept. */
int64_t fxi_pool_bound(const fxi_pool *p);

/* Memory of at least `bytes` bytes, which are counted as live; out_bytes: how many it has. NULL
 * when memory is out or beyond the limit (not recorded). */
void *fxi_pool_take(fx_device *device, size_t bytes, size_t *out_bytes);
/* Takes it back; bytes as fxi_pool_take said. */
void fxi_pool_give(fx_device *device, void *ptr, size_t bytes);
/* Gives what is kept back to the device. */
void fxi_pool_reclaim(fx_device *device);
void fxi_pools_reclaim(void); /* of every device */

/* Says what a buffer holds, for fxi_no_memory; of a small or borrowed one nothing. */
void fxi_pool_name(fxi_buffer *b, fx_dtype dtype, int ndim, const int64_t *shape);
void fxi_pool_unname(fxi_buffer *b);

/* ---- what users see of it (device_memory.c) -------------------------------------------------- */

/* Bytes that are free on the device; −1: nobody knows. */
int64_t fxi_device_free(fx_device *device);
/* Has it a limit, or memory of its own? Host memory has no end that is known before. */
static inline bool fxi_device_is_bounded(const fx_device *device)
{
    return !fxi_device_on_host(device) || fxi_device_limit(device) > 0;
}
/* The figures of a device's memory. */
void fxi_memory_figures(fx_device *device, fx_memory *out);
/* Could `bytes` bytes be had, with what is kept given back and `idle` bytes freed? The device is
 * asked only when that is more than what is kept; where nobody knows, they could. */
bool fxi_device_has_room(fx_device *device, int64_t bytes, int64_t idle);
/* Records that `bytes` bytes could not be had, with the figures of the device, `more` (the rest of
 * a sentence, or "") and the largest arrays. */
fx_status fxi_no_memory(const char *op, fx_device *device, int64_t bytes, const char *more);

#endif
