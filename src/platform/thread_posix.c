/* thread_posix.c: threads on POSIX systems; see thread.h. */
#include "thread.h"

#include <sched.h>
#include <signal.h>

int fxi_thread_start(fxi_thread *out, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits the mask */
    const int error = pthread_create(out, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void fxi_thread_join(fxi_thread thread)
{
    pthread_join(thread, NULL);
}

void fxi_thread_yield(void)
{
    sched_yield();
}

bool fxi_thread_value_init(fxi_thread_value *v, void (*end)(void *))
{
    return pthread_key_create(v, end) == 0;
}
