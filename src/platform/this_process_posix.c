/* this_process_posix.c: the number and the forks of a process on POSIX systems; see this_process.h.
 */
#include "this_process.h"

#include <pthread.h>
#include <unistd.h>

long fxi_process_id(void)
{
    return (long)getpid();
}

bool fxi_process_on_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    return pthread_atfork(before, in_parent, in_child) == 0;
}
