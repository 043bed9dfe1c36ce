/* pool.c: keeps freed device memory for later allocations; see pool.h.
 *
 * Kept blocks are an array sorted by size. A request gets the smallest block that holds it, if that
 * is at most an eighth larger; small requests need an exact match. Among equal blocks the one freed
 * last is used, because it is most likely still in the device's cache. If the kept blocks exceed
 * the bound, those freed longest ago are returned to the device. Otherwise blocks of sizes that are
 * no longer used would fill the pool. A block may be handed out while the device still works in it:
 * calls for one device take effect in order (backend.h).
 */
#include "pool.h"
#include "context.h"
#include "memory.h"
#include "system_memory.h"

#include <string.h>

enum { EXACT = 4096, NAMED = 4096 };
static const int64_t LEAST_BOUND = (int64_t)64 << 20, RESERVE = (int64_t)16 << 20;

static fxi_mutex pools_lock = FXI_MUTEX_INIT;
static fxi_pool *pools; /* of all devices in use */

static int64_t load(const int64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static fxi_pool *set_up(fx_device *d)
{
    fxi_pool *p = fxi_device_pool(d);
    int64_t limit, cache;
    fxi_pool_settings(d, &limit, &cache); /* may call a message hook, so no lock is held */
    fxi_mutex_lock(&pools_lock);
    if (!p->device) {
        p->most = cache;
        __atomic_store_n(&p->limit, limit, __ATOMIC_RELAXED);
        p->next = pools;
        pools = p;
        __atomic_store_n(&p->device, d, __ATOMIC_RELEASE);
    }
    fxi_mutex_unlock(&pools_lock);
    return p;
}

fxi_pool *fxi_pool_of(fx_device *d)
{
    fxi_pool *p = fxi_device_pool(d);
    return __builtin_expect(__atomic_load_n(&p->device, __ATOMIC_ACQUIRE) != NULL, 1) ? p
                                                                                      : set_up(d);
}

void fxi_pool_keep(fx_device *device, int64_t bytes)
{
    __atomic_store_n(&fxi_pool_of(device)->most, bytes < 0 ? -1 : bytes, __ATOMIC_RELAXED);
}

/* Half of the peak, as for the cache of host memory. With a quarter, a program that repeatedly
 * computes one large array from another would allocate new memory each time. */
int64_t fxi_pool_bound(const fxi_pool *p)
{
    const int64_t most = load(&p->most), half = load(&p->peak) / 2;
    return most >= 0 ? most : half > LEAST_BOUND ? half : LEAST_BOUND;
}

/* ---- live bytes ------------------------------------------------------------------------------ */

/* Linux lets a process allocate more memory than it can hold, and kills the process when it writes
 * to that memory. Other memory of the process counts too, cached blocks included: the resident
 * bytes minus the live ones. Live bytes that are not yet written make this difference too small.
 * The system is asked again when half of what was left has been allocated, because asking takes
 * longer than an allocation, and before anything is refused, because limits can be raised. The
 * reserve is for page tables, stacks, and the pages of programs that must stay in memory. */
static bool system_grants(fxi_pool *p, int64_t live, int64_t bytes)
{
    if (live <= load(&p->granted) || !fxi_device_on_host(p->device))
        return true;
    int64_t held;
    const int64_t most = fxi_system_memory_most(&held);
    if (most < 0) {
        __atomic_store_n(&p->granted, INT64_MAX, __ATOMIC_RELAXED);
        return true;
    }
    const int64_t besides = held - (live - bytes),
                  reserve = most / 16 < RESERVE ? most / 16 : RESERVE,
                  left = most - reserve - live - (besides > 0 ? besides : 0);
    __atomic_store_n(&p->granted, left > 0 ? live + left / 2 : 0, __ATOMIC_RELAXED);
    return left >= 0;
}

/* Counts live bytes. False if they would exceed the limit; then they are not counted. */
static bool count_live(fxi_pool *p, size_t bytes)
{
    const int64_t n = (int64_t)bytes, limit = load(&p->limit),
                  live = __atomic_add_fetch(&p->live, n, __ATOMIC_RELAXED);
    if ((limit > 0 && live > limit) || !system_grants(p, live, n)) {
        __atomic_sub_fetch(&p->live, n, __ATOMIC_RELAXED);
        return false;
    }
    int64_t peak = load(&p->peak);
    while (live > peak && !__atomic_compare_exchange_n(&p->peak, &peak, live, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return true;
}

/* ---- kept blocks; the lock is held ----------------------------------------------------------- */

/* The position of the smallest block of at least `bytes` bytes. */
static int32_t first_of(const fxi_pool *p, size_t bytes)
{
    int32_t lo = 0, hi = p->n;
    while (lo < hi) {
        const int32_t mid = (lo + hi) / 2;
        if (p->blocks[mid].bytes < bytes)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void add_cached(fxi_pool *p, int64_t bytes)
{
    __atomic_store_n(&p->cached, p->cached + bytes, __ATOMIC_RELAXED);
}

static fxi_block remove_block(fxi_pool *p, int32_t i)
{
    const fxi_block b = p->blocks[i];
    memmove(&p->blocks[i], &p->blocks[i + 1], (size_t)(p->n - i - 1) * sizeof b);
    p->n--;
    add_cached(p, -(int64_t)b.bytes);
    return b;
}

static bool insert_block(fxi_pool *p, void *ptr, size_t bytes)
{
    if (!fxi_grow(&p->blocks, &p->capacity, p->n + 1, sizeof *p->blocks))
        return false;
    const int32_t i = first_of(p, bytes);
    memmove(&p->blocks[i + 1], &p->blocks[i], (size_t)(p->n - i) * sizeof *p->blocks);
    p->blocks[i] = (fxi_block){ptr, bytes, p->frees++};
    p->n++;
    add_cached(p, (int64_t)bytes);
    return true;
}

/* Returns the blocks freed longest ago to the device until at most `most` bytes are kept. */
static void shrink(fxi_pool *p, int64_t most)
{
    while (p->n > 0 && p->cached > most) {
        int32_t oldest = 0;
        for (int32_t i = 1; i < p->n; i++)
            if (p->blocks[i].freed < p->blocks[oldest].freed)
                oldest = i;
        p->device->backend->free(p->device, remove_block(p, oldest).ptr);
    }
}

/* ---- taking and giving ----------------------------------------------------------------------- */

static fxi_block take_kept(fxi_pool *p, size_t bytes)
{
    fxi_block b = {.bytes = bytes};
    fxi_mutex_lock(&p->lock);
    const int32_t i = first_of(p, bytes);
    if (i < p->n && p->blocks[i].bytes - bytes <= (bytes > EXACT ? bytes / 8 : 0))
        b = remove_block(p, i);
    fxi_mutex_unlock(&p->lock);
    return b;
}

/* Allocates a new block. The limit covers live and kept memory together, so kept blocks are freed
 * first if the new block would exceed it. */
static void *take_fresh(fx_device *d, fxi_pool *p, size_t bytes)
{
    const int64_t limit = load(&p->limit);
    if (limit > 0 && load(&p->live) + load(&p->cached) > limit) {
        const int64_t available = limit - load(&p->live);
        fxi_mutex_lock(&p->lock);
        shrink(p, available > 0 ? available : 0);
        fxi_mutex_unlock(&p->lock);
    }
    return d->backend->alloc(d, bytes);
}

static bool keep(fxi_pool *p, void *ptr, size_t bytes)
{
    const int64_t bound = fxi_pool_bound(p) - (int64_t)bytes;
    if (bound < 0 || bytes == 0)
        return false;
    fxi_mutex_lock(&p->lock);
    shrink(p, bound);
    const bool kept = insert_block(p, ptr, bytes);
    fxi_mutex_unlock(&p->lock);
    return kept;
}

void *fxi_pool_take(fx_device *d, size_t bytes, size_t *out_bytes)
{
    fxi_pool *p = fxi_pool_of(d);
    fxi_block b = {.bytes = bytes};
    if (load(&p->cached) > 0)
        b = take_kept(p, bytes);
    if (!count_live(p, b.bytes)) {
        if (b.ptr && !keep(p, b.ptr, b.bytes))
            d->backend->free(d, b.ptr);
        return NULL;
    }
    if (!b.ptr)
        b.ptr = take_fresh(d, p, bytes);
    if (!b.ptr)
        __atomic_sub_fetch(&p->live, (int64_t)bytes, __ATOMIC_RELAXED);
    *out_bytes = b.bytes;
    return b.ptr;
}

void fxi_pool_give(fx_device *d, void *ptr, size_t bytes)
{
    fxi_pool *p = fxi_device_pool(d);
    __atomic_sub_fetch(&p->live, (int64_t)bytes, __ATOMIC_RELAXED);
    if (fxi_device_on_host(d) || !keep(p, ptr, bytes))
        d->backend->free(d, ptr);
}

void fxi_pool_reclaim(fx_device *d)
{
    fxi_pool *p = fxi_pool_of(d);
    fxi_mutex_lock(&p->lock);
    shrink(p, 0);
    fxi_free(p->blocks);
    p->blocks = NULL;
    p->capacity = 0;
    fxi_mutex_unlock(&p->lock);
}

void fxi_pools_reclaim(void)
{
    fxi_mutex_lock(&pools_lock);
    for (fxi_pool *p = pools; p; p = p->next)
        fxi_pool_reclaim(p->device);
    fxi_mutex_unlock(&pools_lock);
}

/* ---- names of arrays ------------------------------------------------------------------------- */

void fxi_pool_name(fxi_buffer *b, fx_dtype dtype, int ndim, const int64_t *shape)
{
    if (b->bytes < NAMED || b->borrowed || b->named)
        return;
    fxi_pool *p = fxi_device_pool(b->device);
    b->named = true;
    b->dtype = (uint8_t)dtype;
    b->ndim = (uint8_t)ndim;
    memcpy(b->shape, shape, (size_t)ndim * sizeof *shape);
    fxi_mutex_lock(&p->lock);
    b->prev = NULL;
    b->next = p->arrays;
    if (b->next)
        b->next->prev = b;
    p->arrays = b;
    fxi_mutex_unlock(&p->lock);
}

void fxi_pool_unname(fxi_buffer *b)
{
    if (!b->named)
        return;
    fxi_pool *p = fxi_device_pool(b->device);
    fxi_mutex_lock(&p->lock);
    *(b->prev ? &b->prev->next : &p->arrays) = b->next;
    if (b->next)
        b->next->prev = b->prev;
    fxi_mutex_unlock(&p->lock);
    b->named = false;
}
