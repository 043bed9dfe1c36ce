/* system_darwin.c: operating system functions that only macOS has: see system.h. */
#include "system.h"
#include "system_posix.h"
#include <mach-o/dyld.h>
#include <stdint.h>

bool own_path(char out[FILE_PATH_BYTES])
{
    uint32_t size = FILE_PATH_BYTES;
    const bool found = _NSGetExecutablePath(out, &size) == 0;
    if (!found)
        out[0] = 0;
    return found;
}

/* The paths of /dev/fd are different files in another process. */
void path_of_descriptor(int fd, char *out, size_t size)
{
    (void)fd;
    snprintf(out, size, "%s", "");
}

/* macOS sends no signal when a parent ends. */
void end_with_parent(bool killed)
{
    (void)killed;
}
