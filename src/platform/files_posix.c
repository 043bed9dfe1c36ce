/* files_posix.c: files and folders on POSIX systems; see files.h. */
#include "files.h"
#include "posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(FXI_PATH_MOST >= PATH_MAX, "realpath writes up to PATH_MAX bytes");

/* ---- opening --------------------------------------------------------------------------------- */

int fxi_os_open(const char *path, int mode)
{
    static const struct {
        int mode, flag;
    } flags[] = {{FXI_OS_WRITE, O_WRONLY},     {FXI_OS_READ_WRITE, O_RDWR},
                 {FXI_OS_CREATE, O_CREAT},     {FXI_OS_EMPTY, O_TRUNC},
                 {FXI_OS_APPEND, O_APPEND},    {FXI_OS_NO_LINK, O_NOFOLLOW},
                 {FXI_OS_FOLDER, O_DIRECTORY}, {FXI_OS_NEW, O_EXCL}};
    int flag = O_CLOEXEC;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        flag |= mode & flags[i].mode ? flags[i].flag : 0;
    return open(path, flag, 0666);
}

int fxi_os_open_temporary(void)
{
    char name[512];
    const char *folder = getenv("TMPDIR");
    snprintf(name, sizeof name, "%s/cflux-XXXXXX", folder && *folder ? folder : P_tmpdir);
    const int fd = mkostemp(name, O_APPEND | O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

int fxi_posix_open_unlinked(const char *beside)
{
    char name[FXI_PATH_MOST];
    if (snprintf(name, sizeof name, "%s.XXXXXX", beside) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    return fd;
}

int fxi_os_duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int fxi_os_close(int fd)
{
    return close(fd);
}

FILE *fxi_os_open_stream(const char *path, const char *mode)
{
    char own[8];
    snprintf(own, sizeof own, "%.4se", mode); /* closed in programs that the process starts */
    return fopen(path, own);
}

FILE *fxi_os_stream(int fd, const char *mode)
{
    return fdopen(fd, mode);
}

/* ---- reading and writing --------------------------------------------------------------------- */

int64_t fxi_os_read(int fd, void *dst, size_t n)
{
    return (int64_t)read(fd, dst, n);
}

int64_t fxi_os_read_at(int fd, void *dst, size_t n, int64_t offset)
{
    return (int64_t)pread(fd, dst, n, (off_t)offset);
}

int64_t fxi_os_write(int fd, const void *data, size_t n)
{
    return (int64_t)write(fd, data, n);
}

int fxi_os_resize(int fd, int64_t bytes)
{
    return ftruncate(fd, (off_t)bytes);
}

int fxi_os_rewind(int fd)
{
    return lseek(fd, 0, SEEK_SET) == 0 ? 0 : -1;
}

void *fxi_os_map(int fd, size_t bytes)
{
    void *data = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    return data == MAP_FAILED ? NULL : data;
}

void fxi_os_unmap(void *data, size_t bytes)
{
    munmap(data, bytes);
}

/* ---- facts ----------------------------------------------------------------------------------- */

int fxi_os_facts_of(int fd, fxi_os_facts *out)
{
    struct stat st;
    *out = (fxi_os_facts){.bytes = 0};
    if (fstat(fd, &st) != 0)
        return -1;
    *out = (fxi_os_facts){S_ISREG(st.st_mode), S_ISDIR(st.st_mode), (int64_t)st.st_size};
    return 0;
}

int fxi_os_facts_of_stream(FILE *f, fxi_os_facts *out)
{
    return fxi_os_facts_of(fileno(f), out);
}

bool fxi_os_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool fxi_os_is_named(int fd, const char *path)
{
    struct stat open_one, named;
    return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 &&
           open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

bool fxi_os_stream_is_named(FILE *f, const char *path)
{
    return fxi_os_is_named(fileno(f), path);
}

int fxi_os_copy_rights(int fd, const char *from)
{
    struct stat st;
    return stat(from, &st) != 0 ? 0 : fchmod(fd, st.st_mode & 0777);
}

/* ---- names ----------------------------------------------------------------------------------- */

bool fxi_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int fxi_os_real_path(const char *path, char out[FXI_PATH_MOST])
{
    return realpath(path, out) ? 0 : -1;
}

int fxi_os_rename(const char *from, const char *to)
{
    return rename(from, to);
}

int fxi_os_link(const char *from, const char *to)
{
    if (link(from, to) == 0)
        return 0;
    const int reserved =
        errno == EPERM || errno == EOPNOTSUPP ? fxi_os_open(to, FXI_OS_CREATE | FXI_OS_NEW) : -1;
    if (reserved < 0)
        return -1;
    close(reserved);
    if (rename(from, to) == 0)
        return 0;
    const int why = errno;
    unlink(to);
    errno = why;
    return -1;
}

int fxi_os_remove(const char *path)
{
    return unlink(path);
}

bool fxi_folder_each(const char *folder, bool (*visit)(const char *file, void *user), void *user)
{
    DIR *dir = opendir(folder);
    bool done = false;
    for (struct dirent *e; dir && !done && (e = readdir(dir)) != NULL;)
        done = visit(e->d_name, user);
    if (dir)
        closedir(dir);
    return done;
}
