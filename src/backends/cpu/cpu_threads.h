/* cpu_threads.h: how many threads the CPU's kernels may use (fx_num_threads). Internal. */
#ifndef CFLUX_CPU_THREADS_H
#define CFLUX_CPU_THREADS_H

#include <cflux/base.h>

enum { FXI_THREADS_MOST = 255 };

#endif
