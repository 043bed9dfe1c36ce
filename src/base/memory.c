/* memory.c: host memory, counted and able to fail on demand. See memory.h. */
#include "memory.h"
#include "counters.h"

#include <stdlib.h>
#include <string.h>

static int64_t fault_at = -1, fault_seen, live;

/* True when this allocation is the one a test wants to fail. */
static bool fault(void)
{
    const int64_t n = __atomic_fetch_add(&fault_seen, 1, __ATOMIC_RELAXED);
    return n == __atomic_load_n(&fault_at, __ATOMIC_RELAXED);
}

static void *counted(void *p)
{
    if (p) {
        __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
        fxi_count(&fxi_counters.allocations, 1);
    }
    return p;
}

void *fxi_malloc(size_t bytes)
{
    return fault() ? NULL : counted(malloc(bytes ? bytes : 1));
}

void *fxi_calloc(size_t count, size_t size)
{
    return fault() ? NULL : counted(calloc(count ? count : 1, size ? size : 1));
}

void *fxi_realloc(void *p, size_t bytes)
{
    if (!p)
        return fxi_malloc(bytes);
    if (fault())
        return NULL;
    fxi_count(&fxi_counters.allocations, 1);
    return realloc(p, bytes ? bytes : 1);
}

void *fxi_aligned(size_t alignment, size_t bytes)
{
    void *p = NULL;
    if (fault() || posix_memalign(&p, alignment, bytes ? bytes : 1) != 0)
        return NULL;
    return counted(p);
}

void fxi_free(void *p)
{
    if (p)
        __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
    free(p);
}

char *fxi_strdup(const char *s)
{
    const size_t n = strlen(s) + 1;
    char *copy = fxi_malloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

void fxi_fault_set(int64_t nth)
{
    __atomic_store_n(&fault_seen, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fault_at, nth, __ATOMIC_RELAXED);
}

int64_t fxi_fault_seen(void)
{
    return __atomic_load_n(&fault_seen, __ATOMIC_RELAXED);
}
int64_t fxi_live_allocations(void)
{
    return __atomic_load_n(&live, __ATOMIC_RELAXED);
}
