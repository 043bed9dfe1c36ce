/* own_child.c: runs the test program again as a child: see own_child.h. */
#include "own_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A cross-compiled test program runs in an emulator, and so must its child: the system's kernel
 * cannot run the program itself. */
#ifndef CFLUX_EMULATOR
#define CFLUX_EMULATOR ""
#endif

int own_child(const char *environment, const char *argument, char *out, size_t capacity)
{
    char path[1024] = "", command[2048];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    snprintf(command, sizeof command,
             "unset FX_HANDLES; %s exec " CFLUX_EMULATOR " '%.*s' '%s' 2>&1", environment,
             n > 0 ? (int)n : 0, path, argument);
    out[0] = 0;
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return -1;
    const size_t got = fread(out, 1, capacity - 1, pipe);
    out[got] = 0;
    while (fgetc(pipe) != EOF)
        ;
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
