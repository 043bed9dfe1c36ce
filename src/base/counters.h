/* counters.h: the process's counters (fx_stats), updated with relaxed atomics. */
#ifndef CFLUX_COUNTERS_H
#define CFLUX_COUNTERS_H

#include <cflux/base.h>

extern fx_counters fxi_counters;

static inline void fxi_count(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* Nodes the calling thread has made that `nodes` does not hold yet: an atomic a node would cost
 * more than the node. Evaluations and the thread's end add them up; fx_stats adds the caller's own.
 */
extern _Thread_local uint64_t fxi_nodes_here;
void fxi_count_nodes_here(void);

/* Adds to live_bytes (n may be negative) and keeps the peak. */
void fxi_count_live(int64_t n);

#endif
