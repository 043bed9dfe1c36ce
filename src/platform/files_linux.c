/* files_linux.c: the requests to the disk of Linux; see files.h. */
#include "files.h"
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Network file systems and Linux before 3.11 do not support O_TMPFILE. */
int fxi_os_open_nameless(const char *beside)
{
    char folder[FXI_PATH_MOST];
    const char *slash = strrchr(beside, '/');
    const int n = snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - beside) + 1 : 1,
                           slash ? beside : ".");
    if (n >= (int)sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    const bool unsupported = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL;
    return fd < 0 && unsupported ? fxi_posix_open_unlinked(beside) : fd;
}

int fxi_os_sync(int fd)
{
    return fsync(fd);
}

void fxi_os_reserve(int fd, int64_t offset, int64_t bytes)
{
    (void)fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

void fxi_os_begin_writing(int fd, int64_t offset, int64_t bytes)
{
    (void)sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}
