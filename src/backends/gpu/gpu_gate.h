/* gpu_gate.h: at exit, waits for running calls of a driver and refuses new ones. Internal.
 *
 * A driver has threads that compile and compute. When the process ends by exit, the driver's own
 * destructors free memory that those threads still use, and the process crashes. So a backend
 * counts the threads that are in a call of the driver. It registers a handler that refuses new
 * calls, waits for those that run, and then calls `quiesce`, which waits for the devices. After
 * _exit, quick_exit and signals no destructors run, and nothing needs to be done.
 *
 * The handler must run before the driver's destructors. exit first runs the thread-local
 * destructors of the thread that calls it, then the handlers in the opposite order of registration.
 * Drivers register some destructors when they are loaded, and others when they first compile, in
 * the thread that compiles: those of static variables in functions of LLVM, a dozen in the life of
 * a process. So the handler is moved to the front (fxi_gpu_gate_renew): by a thread-local
 * destructor of every thread that has made a call, after each compilation, and every millisecond
 * during it, by a thread that does nothing else (fxi_gpu_guard). One gap remains: if a thread that
 * has made no call exits while another one compiles, a destructor that the driver registered less
 * than a millisecond ago may run first. It cannot be closed here, because nothing can run between
 * the driver's registration and an exit that follows at once.
 *
 * The child of a fork has the driver's memory but none of its threads: there all calls are refused,
 * and exit does not wait.
 */
#ifndef CFLUX_GPU_GATE_H
#define CFLUX_GPU_GATE_H

#include "thread.h"

#include <stdbool.h>

/* Must be called before the driver's first call. False: no memory for the handler. */
bool fxi_gpu_gate_open(void (*quiesce)(void));
/* Makes the handler the first one that exit runs. */
void fxi_gpu_gate_renew(void);
/* fxi_gpu_guard_begin and fxi_gpu_guard_end are called before and after each compilation and the
 * opening of the devices, between fxi_gpu_enter and fxi_gpu_leave. They keep the handler first. At
 * exit the process waits longer for a compilation than for other calls, because a compiler cannot
 * be interrupted. */
typedef struct fxi_gpu_guard {
    fxi_thread thread;
    bool runs;
    int ended; /* atomic */
} fxi_gpu_guard;
void fxi_gpu_guard_begin(fxi_gpu_guard *g);
void fxi_gpu_guard_end(fxi_gpu_guard *g);
/* Begins a call. NULL: the call may be made, and ends with fxi_gpu_leave. Otherwise it must not be
 * made, and the text is the rest of a message that begins with the device's name. Calls may be
 * nested. */
const char *fxi_gpu_enter(void);
void fxi_gpu_leave(void);

#endif
