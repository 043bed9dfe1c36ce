/* counters.h: the counters of the process (fx_stats), updated with relaxed atomics. Internal. */
#ifndef CFLUX_COUNTERS_H
#define CFLUX_COUNTERS_H

#include <cflux/base.h>

extern fx_counters fxi_counters;

static inline void fxi_count(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* Nodes that the calling thread has made and that `nodes` does not include yet: an atomic operation
 * for each node would cost more than the node. They are added at each evaluation and at the end of
 * the thread; fx_stats adds those of its caller. */
extern _Thread_local uint64_t fxi_nodes_here;
void fxi_count_nodes_here(void);

/* Adds n to live_bytes (n may be negative) and updates the peak. */
void fxi_count_live(int64_t n);

#endif
