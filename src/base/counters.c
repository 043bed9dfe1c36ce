/* counters.c: the counters of the process, which fx_stats returns. */
#include "counters.h"
#include "memory.h"

#include <stddef.h>

fx_counters fxi_counters;
_Thread_local fx_counters *fxi_own_counters;
_Thread_local uint64_t fxi_nodes_here;

void fxi_count_nodes_here(void)
{
    fxi_count(&fxi_counters.nodes, fxi_nodes_here);
    fxi_nodes_here = 0;
}

void fxi_count_live(int64_t n)
{
    const int64_t now = __atomic_add_fetch(&fxi_counters.live_bytes, n, __ATOMIC_RELAXED);
    int64_t peak = __atomic_load_n(&fxi_counters.peak_bytes, __ATOMIC_RELAXED);
    while (now > peak && !__atomic_compare_exchange_n(&fxi_counters.peak_bytes, &peak, now, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* All members are 64 bits wide. The last two, bytes of memory, are not added up here. */
enum { COUNTS = offsetof(fx_counters, live_bytes) / sizeof(uint64_t) };
_Static_assert(sizeof(fx_counters) == (COUNTS + 2) * sizeof(uint64_t), "a count after live_bytes");

void fxi_counters_add(fx_counters *sum, const fx_counters *counts)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)counts;
    for (size_t i = 0; i < COUNTS; i++)
        __atomic_fetch_add(&to[i], __atomic_load_n(&from[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

fx_counters fx_stats(void)
{
    fx_counters c = {0};
    fxi_count_nodes_here();
    fxi_memory_counters(&c);
    c.live_bytes = __atomic_load_n(&fxi_counters.live_bytes, __ATOMIC_RELAXED);
    c.peak_bytes = __atomic_load_n(&fxi_counters.peak_bytes, __ATOMIC_RELAXED);
    return c;
}

const char *fx_version(void)
{
    return FX_VERSION_STRING;
}
