/* away.h: a test backend whose memory the host cannot address: its addresses are host pointers
 * moved to unmapped addresses, so that any access by the host crashes. It computes with the CPU's
 * kernels, so its results are bit for bit those of the CPU. */
#ifndef CFLUX_TEST_AWAY_H
#define CFLUX_TEST_AWAY_H

#include <cflux/backend.h>

/* Counters of requests; atomic. */
typedef struct away_counts {
    int64_t allocs, live; /* live: allocations not yet freed */
    int64_t writes, reads, copies, bytes_written, bytes_read;
    int64_t runs;
} away_counts;
extern away_counts away;

/* The n-th allocation (copy to or from the device, step) from now fails; 0: none fails. */
extern int64_t away_alloc_fails, away_copy_fails, away_run_fails;

/* Registers the backend under a name with this number of devices; returns the first device. */
fx_device *away_register(const char *name, int devices);

#endif
