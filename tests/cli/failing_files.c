/* failing_files.c: loaded before a program by LD_PRELOAD. Call number FAIL_AT of the function
 * FAIL_CALL (open, write, fsync, close, rename, link) for the folder FAIL_IN or a file in it prints
 * "#failed" and fails with the error number FAIL_AS. If that is 0, a write writes half of its
 * bytes; if it is "kill", the process gets SIGKILL. FAIL_CALL=read means reads of pipes, which are
 * in no folder.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_here(const char *path)
{
    char real[PATH_MAX], parent[PATH_MAX];
    const char *folder = getenv("FAIL_IN");
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash)
        *slash = 0;
    const char *known = realpath(path, real) || realpath(slash ? parent : ".", real) ? real : "";
    return folder && strncmp(known, folder, strlen(folder)) == 0;
}

static int fd_is_here(int fd)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return fd > 2 && readlink(link, path, sizeof path - 1) > 0 && is_here(path);
}

/* Does this call fail? Then errno is set, 0 for half of the work. */
static int fails(const char *call, int here)
{
    static int calls;
    const char *name = getenv("FAIL_CALL"), *at = getenv("FAIL_AT"), *as = getenv("FAIL_AS");
    if (!name || !at || !as || strcmp(name, call) != 0 || !here || ++calls != atoi(at))
        return 0;
    static const char text[] = "#failed\n";
    ssize_t (*real)(int, const void *, size_t);
    *(void **)&real = dlsym(RTLD_NEXT, "write");
    if (real(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(3);
    if (strcmp(as, "kill") == 0)
        kill(getpid(), SIGKILL);
    errno = atoi(as);
    return 1;
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...);
    mode_t mode = 0;
    *(void **)&real = dlsym(RTLD_NEXT, "open");
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list list;
        va_start(list, flags);
        mode = va_arg(list, mode_t);
        va_end(list);
    }
    return fails("open", (flags & (O_CREAT | O_DIRECTORY)) && is_here(path))
               ? -1
               : real(path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t n)
{
    ssize_t (*real)(int, const void *, size_t);
    *(void **)&real = dlsym(RTLD_NEXT, "write");
    if (!fails("write", fd_is_here(fd)))
        return real(fd, data, n);
    return errno ? -1 : real(fd, data, n > 1 ? n / 2 : n);
}

ssize_t read(int fd, void *data, size_t n)
{
    ssize_t (*real)(int, void *, size_t);
    struct stat is;
    *(void **)&real = dlsym(RTLD_NEXT, "read");
    const int failed = fails("read", fstat(fd, &is) == 0 && S_ISFIFO(is.st_mode));
    return failed ? -1 : real(fd, data, n);
}

int fsync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return fails("fsync", fd_is_here(fd)) ? -1 : real(fd);
}

int close(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "close");
    const int failed = fails("close", fd_is_here(fd)), why = errno;
    const int result = real(fd);
    if (failed)
        errno = why;
    return failed ? -1 : result;
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "rename");
    return fails("rename", is_here(to)) ? -1 : real(from, to);
}

int link(const char *from, const char *to)
{
    int (*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "link");
    return fails("link", is_here(to)) ? -1 : real(from, to);
}
