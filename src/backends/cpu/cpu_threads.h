/* cpu_threads.h: how many threads the CPU's kernels may use (fx_num_threads). Internal. */
#ifndef CFLUX_CPU_THREADS_H
#define CFLUX_CPU_THREADS_H

#include <cflux/base.h>

enum { FXI_THREADS_MOST = 255 };

/* The processors that a cgroup grants, from the text of its cpu.max ("max 100000", "150000
 * 100000"), rounded up; 0: no bound. */
int fxi_cgroup_cores(const char *text);

#endif
