/* files_darwin.c: the requests to the disk of macOS; see files.h. */
#include "files.h"
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int fxi_os_open_nameless(const char *beside)
{
    return fxi_posix_open_unlinked(beside);
}

/* On macOS fsync only hands the data to the drive. F_FULLFSYNC waits until the drive has written
 * it; some file systems do not support it. */
int fxi_os_sync(int fd)
{
    if (fcntl(fd, F_FULLFSYNC) == 0)
        return 0;
    return errno == EINTR ? -1 : fsync(fd);
}

/* macOS can only reserve from the end of a file, and starts to write by itself. */
void fxi_os_reserve(int fd, int64_t offset, int64_t bytes)
{
    (void)fd, (void)offset, (void)bytes;
}

void fxi_os_begin_writing(int fd, int64_t offset, int64_t bytes)
{
    (void)fd, (void)offset, (void)bytes;
}
