/* gpu_progress.h: says that kernels are compiled for the first time, which may take minutes.
 *
 * Nothing is said before SECONDS_FIRST seconds of compiling, and then a line every few seconds, at
 * growing distances. Only the time counts in which some thread compiles. What comes from the cache
 * is not counted.
 */
#ifndef CFLUX_GPU_PROGRESS_H
#define CFLUX_GPU_PROGRESS_H

#include "thread.h"
#include <cflux/backend.h>

/* Of one device. */
typedef struct fxi_gpu_progress {
    fxi_mutex lock;
    int active, count;  /* threads that compile now; programs compiled */
    double since, busy; /* when the first of `active` began; seconds before that */
    double next;        /* seconds of compiling at which the next line is due */
} fxi_gpu_progress;

void fxi_gpu_progress_init(fxi_gpu_progress *p);
/* Around everything that compiles; compiled: how many programs that were. */
void fxi_gpu_compile_begin(fxi_gpu_progress *p);
void fxi_gpu_compile_end(fxi_gpu_progress *p, int compiled);
/* Says a line if one is due. The user's hook may do anything: call it without locks. */
void fxi_gpu_progress_say(fxi_gpu_progress *p, const fx_host *host, const char *device);

#endif
