/* files_linux.c: the requests to the disk of Linux; see files.h. */
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

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
