/* thread_windows.c: threads of MinGW's winpthreads; see thread.h. Windows has no signals that a
 * thread could receive. */
#include "thread.h"

#include <sched.h>

int fxi_thread_start(fxi_thread *out, void *(*run)(void *), void *user)
{
    return pthread_create(out, NULL, run, user);
}

void fxi_thread_join(fxi_thread thread)
{
    pthread_join(thread, NULL);
}

void fxi_thread_yield(void)
{
    sched_yield();
}
