/* system_linux.c: operating system functions that only Linux has: see system.h. */
#include "system.h"
#include "system_posix.h"
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

bool own_path(char out[FILE_PATH_BYTES])
{
    const ssize_t n = readlink("/proc/self/exe", out, FILE_PATH_BYTES - 1);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

void path_of_descriptor(int fd, char *out, size_t size)
{
    snprintf(out, size, "/proc/%ld/fd/%d", process_number(), fd);
}

void end_with_parent(bool killed)
{
    prctl(PR_SET_PDEATHSIG, killed ? SIGKILL : SIGTERM);
}
