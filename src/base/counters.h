/* counters.h: the counters of the process (fx_stats). Internal.
 *
 * Each thread counts in counters of its own, which no other thread writes: an atomic addition takes
 * 5 ns, and an evaluation counts nine numbers. fx_stats adds up the counters of all threads. A
 * thread's counters are part of its memory cache (memory.c); when the thread ends they are added to
 * `fxi_counters`.
 */
#ifndef CFLUX_COUNTERS_H
#define CFLUX_COUNTERS_H

#include <cflux/base.h>

/* The counts of threads that have ended, and of threads without a memory cache. The current and the
 * largest number of live bytes are those of all threads. All members are atomic. */
extern fx_counters fxi_counters;
/* The counts of the calling thread, which other threads read; NULL: it has no memory cache. */
extern _Thread_local fx_counters *fxi_own_counters;

/* Adds n to a member of fxi_counters. */
static inline void fxi_count(uint64_t *counter, uint64_t n)
{
    fx_counters *own = fxi_own_counters;
    if (__builtin_expect(own == NULL, 0)) {
        __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
        return;
    }
    /* The same member of the thread's counters. */
    uint64_t *mine = (uint64_t *)own + (counter - (uint64_t *)&fxi_counters);
    __atomic_store_n(mine, *mine + n, __ATOMIC_RELAXED);
}

/* Adds all counts to those of *sum, atomically. live_bytes and peak_bytes are not added. */
void fxi_counters_add(fx_counters *sum, const fx_counters *counts);

/* Nodes that the calling thread has made and that `nodes` does not include yet. They are added at
 * each evaluation and at the end of the thread; fx_stats adds those of its caller. */
extern _Thread_local uint64_t fxi_nodes_here;
void fxi_count_nodes_here(void);

/* Adds n to live_bytes (n may be negative) and updates the peak. */
void fxi_count_live(int64_t n);

#endif
