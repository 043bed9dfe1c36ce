/* pool.h: the memory of a device: freed blocks that are kept for the next allocation, limits and
 * figures. Internal.
 *
 * Allocating and freeing memory of a GPU takes its driver microseconds to milliseconds. So freed
 * blocks stay in the pool, up to a bound, and serve requests of about their size. Host memory is
 * not kept here, because each thread already caches it (base/memory.c). Every device has a pool: it
 * also counts the peak of live bytes, holds the limits, and lists the arrays that are large enough
 * to be named in an error.
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
    uint64_t freed; /* counts up: the larger number was freed later */
} fxi_block;

typedef struct fxi_pool {
    fxi_mutex lock;    /* protects all fields below that are not atomic, except `next` */
    fx_device *device; /* atomic; NULL: the environment has not been read yet */
    fxi_block *blocks; /* kept blocks, by size; of equal sizes, the one freed last comes first */
    int32_t n, capacity;
    uint64_t frees;
    int64_t cached;        /* bytes of the kept blocks (atomic; written under the lock) */
    int64_t most;          /* the most bytes to keep (atomic), set by the user; −1: see
                              fxi_pool_bound */
    int64_t peak;          /* the most live bytes so far (atomic) */
    int64_t live;          /* bytes of the device's buffers (atomic) */
    int64_t limit;         /* the most live bytes allowed; 0: no limit (atomic) */
    int64_t granted;       /* host memory: the system is asked only above this many live bytes
                              (atomic) */
    int64_t plans;         /* host memory of the cached plans for the device (atomic) */
    fxi_buffer *arrays;    /* buffers with a name */
    struct fxi_pool *next; /* the pool of another device; the list has a lock of its own */
} fxi_pool;

/* `granted`: programs with less live memory than this never ask the system. */
#define FXI_POOL_EMPTY                                                                             \
    {                                                                                              \
        .lock = FXI_MUTEX_INIT, .most = -1, .granted = 16 << 20                                    \
    }

static inline bool fxi_device_on_host(const fx_device *device)
{
    return !device->backend->read;
}

/* A device with fields that only the library uses. Every fx_device that backends get is the head of
 * one. */
typedef struct fxi_device {
    fx_device device;
    fxi_pool pool;
} fxi_device;

/* The pool of a device, whose settings may not have been read yet. */
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

/* The limits that the environment sets for a device; read once (device_memory.c). */
void fxi_pool_settings(fx_device *device, int64_t *out_limit, int64_t *out_cache);
/* The pool of a device, with its settings. */
fxi_pool *fxi_pool_of(fx_device *device);
/* Sets the most bytes of freed memory that the pool keeps; −1: see fxi_pool_bound. */
void fxi_pool_keep(fx_device *device, int64_t bytes);
/* The most bytes that the pool keeps. */
int64_t fxi_pool_bound(const fxi_pool *p);

/* Allocates at least `bytes` bytes and counts them as live; *out_bytes: the size of the block. NULL
 * if the allocation fails or exceeds the limit (not recorded). */
void *fxi_pool_take(fx_device *device, size_t bytes, size_t *out_bytes);
/* Returns a block to the pool; `bytes`: its size from fxi_pool_take. */
void fxi_pool_give(fx_device *device, void *ptr, size_t bytes);
/* Frees all kept blocks of the device. */
void fxi_pool_reclaim(fx_device *device);
void fxi_pools_reclaim(void); /* of all devices */

/* Names the array in a buffer, for fxi_no_memory. Does nothing for small or borrowed buffers. */
void fxi_pool_name(fxi_buffer *b, fx_dtype dtype, int ndim, const int64_t *shape);
void fxi_pool_unname(fxi_buffer *b);

/* ---- figures for users (device_memory.c) ---------------------------------------------------- */

/* Bytes free on the device; −1 if unknown. */
int64_t fxi_device_free(fx_device *device);
/* Does the device have a limit, or memory of its own? The size of host memory is not known in
 * advance. */
static inline bool fxi_device_is_bounded(const fx_device *device)
{
    return !fxi_device_on_host(device) || fxi_device_limit(device) > 0;
}
/* Could the device hold `bytes` bytes if all its memory were free? Unknown counts as yes. */
bool fxi_device_can_hold(fx_device *device, int64_t bytes);
/* The figures of a device's memory. */
void fxi_memory_figures(fx_device *device, fx_memory *out);
/* Can `bytes` bytes be allocated, if kept blocks and `idle` further bytes are freed? The device is
 * asked only if the kept blocks are not enough. Unknown counts as yes. */
bool fxi_device_fits(fx_device *device, int64_t bytes, int64_t idle);
/* Records that an allocation of `bytes` bytes failed, with the figures of the device, `more` (the
 * rest of a sentence, or "") and the largest arrays. */
fx_status fxi_no_memory(const char *op, fx_device *device, int64_t bytes, const char *more);

#endif
