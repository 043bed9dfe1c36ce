/* counters.h: the process's counters (fx_stats), updated with relaxed atomics. */
#ifndef CFLUX_COUNTERS_H
#define CFLUX_COUNTERS_H

#include <cflux/base.h>

extern fx_counters fxi_counters;

static inline void fxi_count(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* Adds to live_bytes (n may be negative) and keeps the peak. */
void fxi_count_live(int64_t n);

#endif
