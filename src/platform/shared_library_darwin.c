/* shared_library_darwin.c: which files of Mach-O must not be given to dlopen; see shared_library.h.
 * dyld itself compares the segments of a file with its size, and macOS has no static programs. */
#include "posix.h"

const char *fxi_posix_library_refused(const char *path)
{
    (void)path;
    return NULL;
}
