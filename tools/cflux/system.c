/* system.c: operating system functions on POSIX systems: see system.h. */
#include "system.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(FILE_PATH_BYTES >= PATH_MAX, "realpath writes up to PATH_MAX bytes");

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

long process_number(void)
{
    return (long)getpid();
}

bool same_letters(const char *a, const char *b, size_t n)
{
    return strncasecmp(a, b, n) == 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;
static struct sigaction before[2];
static const int signals[2] = {SIGINT, SIGTERM};

/* Both signals may have arrived before this handler runs for one of them. */
static void note(int number)
{
    const bool second = caught != 0;
    caught = number;
    for (int i = 0; i < 2; i++) /* from now on each signal ends the program */
        signal(signals[i], SIG_DFL);
    if (second)
        raise(number);
}

void interrupt_begin(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) /* keep signals ignored, as under nohup */
            sigaction(signals[i], &action, NULL);
    }
}

int interrupt_caught(void)
{
    return caught;
}

void interrupt_end(void)
{
    for (int i = 0; i < 2; i++)
        sigaction(signals[i], &before[i], NULL);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static path_kind kind_of(const struct stat *s)
{
    return S_ISREG(s->st_mode)                          ? PATH_FILE
           : S_ISDIR(s->st_mode)                        ? PATH_FOLDER
           : S_ISCHR(s->st_mode) || S_ISBLK(s->st_mode) ? PATH_DEVICE
                                                        : PATH_OTHER;
}

path_kind kind_of_path(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 ? kind_of(&s) : PATH_ABSENT;
}

path_kind kind_without_links(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 ? kind_of(&s) : PATH_ABSENT;
}

bool is_own_terminal(const char *path)
{
    struct stat s, in;
    return isatty(STDIN_FILENO) && fstat(STDIN_FILENO, &in) == 0 && stat(path, &s) == 0 &&
           in.st_rdev == s.st_rdev;
}

bool may_write(const char *path)
{
    return access(path, W_OK) == 0;
}

bool may_make_files_in(const char *folder)
{
    return access(folder, W_OK | X_OK) == 0;
}

bool real_path(const char *path, char out[FILE_PATH_BYTES])
{
    return realpath(path, out) != NULL;
}

void each_file(const char *folder, void (*visit)(const char *name, void *user), void *user)
{
    DIR *all = opendir(folder);
    for (struct dirent *e = all ? readdir(all) : NULL; e; e = readdir(all))
        visit(e->d_name, user);
    if (all)
        closedir(all);
}

/* ---- the disk -------------------------------------------------------------------------------- */

bool sync_stream(FILE *f)
{
    return fsync(fileno(f)) == 0;
}

/* Some file systems do not support this and return EINVAL. */
bool sync_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    const int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return done;
}
