/* slow_fork.c: to be loaded before a program (LD_PRELOAD): its second forked process creates the
 * file that FORKED names, then waits 0.3 s before it continues. The first one is the guard of cflux
 * launch --each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

pid_t fork(void)
{
    pid_t (*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "fork");
    const pid_t child = next();
    const char *path = getenv("FORKED");
    static int forks;
    if (++forks == 2 && child == 0 && path) {
        const int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (file >= 0)
            close(file);
        usleep(300000);
    }
    return child;
}
