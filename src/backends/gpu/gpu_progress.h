/* gpu_progress.h: reports that kernels are being compiled for the first time, which may take
 * minutes. Internal.
 *
 * The first message appears after SECONDS_FIRST seconds of compiling, further ones at intervals
 * that grow from SECONDS_BETWEEN seconds on. Only time in which some thread compiles counts.
 * Programs from the cache are not counted.
 */
#ifndef CFLUX_GPU_PROGRESS_H
#define CFLUX_GPU_PROGRESS_H

#include "thread.h"
#include <cflux/backend.h>

/* The progress of one device. */
typedef struct fxi_gpu_progress {
    fxi_mutex lock;
    int active, count;  /* threads that compile now; programs compiled */
    double since, busy; /* seconds of compiling until `since`; later ones are added when a thread
                           ends a compilation */
    double next;        /* seconds of compiling at which the next message is due */
} fxi_gpu_progress;

void fxi_gpu_progress_init(fxi_gpu_progress *p);
/* Begin and end everything that compiles. compiled: the number of programs that were compiled. */
void fxi_gpu_compile_begin(fxi_gpu_progress *p);
void fxi_gpu_compile_end(fxi_gpu_progress *p, int compiled);
/* Sends a message if one is due. Must be called without locks, because the user's hook may do
 * anything. */
void fxi_gpu_progress_say(fxi_gpu_progress *p, const fx_host *host, const char *device);

#endif
