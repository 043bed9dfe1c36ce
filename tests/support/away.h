/* away.h: a backend whose memory the host cannot address, for tests: its addresses are host
 * pointers moved to where nothing is mapped, so that whoever follows one crashes. It computes with
 * the CPU's kernels, so its results are the CPU's bit for bit. */
#ifndef CFLUX_TEST_AWAY_H
#define CFLUX_TEST_AWAY_H

#include <cflux/backend.h>

/* What it was asked for; atomic. */
typedef struct away_counts {
    int64_t allocs, live; /* live: allocations not yet freed */
    int64_t writes, reads, copies, bytes_written, bytes_read;
    int64_t runs;
} away_counts;
extern away_counts away;

/* The n-th allocation (copy to or from the device, step) from now fails; 0: none does. */
extern int64_t away_alloc_fails, away_copy_fails, away_run_fails;

/* Registers it under a name with so many devices; returns the first. */
fx_device *away_register(const char *name, int devices);

#endif
