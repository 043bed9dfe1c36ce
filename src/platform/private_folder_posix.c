/* private_folder_posix.c: private folders on POSIX systems; see private_folder.h. */
#include "private_folder.h"
#include "posix.h"
#include "this_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool fxi_cache_folder(char *path, size_t size)
{
    const char *base = fxi_trusted_variable("XDG_CACHE_HOME"), *below = "";
    if (!base || *base != '/') {
        base = fxi_trusted_variable("HOME");
        below = fxi_posix_caches;
    }
    if (!base || *base != '/')
        return false;
    const int n = snprintf(path, size, "%s%s", base, below);
    return n >= 0 && (size_t)n < size;
}

/* Can another user change it? Then `why` tells who. */
static bool unsafe(const struct stat *st, char why[FXI_PRIVATE_WHY])
{
    if (st->st_uid != geteuid())
        snprintf(why, FXI_PRIVATE_WHY, "it belongs to user %ld, and this process runs as user %ld",
                 (long)st->st_uid, (long)geteuid());
    else if (st->st_mode & (S_IWGRP | S_IWOTH))
        snprintf(why, FXI_PRIVATE_WHY, "other users can write to it (its mode is %03o)",
                 (unsigned)(st->st_mode & 0777));
    else
        return false;
    return true;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void make_folders(const char *path)
{
    char above[4096];
    const size_t n = strlen(path);
    if (n >= sizeof above)
        return;
    memcpy(above, path, n + 1);
    for (char *c = above + 1; (c = strchr(c, '/')) != NULL; *c++ = '/') {
        *c = '\0';
        mkdir(above, 0700);
    }
    mkdir(above, 0700);
}

/* The last part of the path may not be a link: a user who can make a link there chooses the
 * files that are written and removed. */
int fxi_private_folder_open(const char *path, bool make, char why[FXI_PRIVATE_WHY])
{
    struct stat st;
    *why = 0;
    if (make)
        make_folders(path);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || (errno == ENOTDIR && lstat(path, &st) == 0)))
        snprintf(why, FXI_PRIVATE_WHY, "it is a link or a file, not a folder");
    if (fd < 0 || (fstat(fd, &st) == 0 && !unsafe(&st, why)))
        return fd;
    close(fd);
    return -1;
}

void fxi_private_folder_close(int folder)
{
    close(folder);
}

/* ---- its files ------------------------------------------------------------------------------- */

FILE *fxi_private_file_read(int folder, const char *name, char why[FXI_PRIVATE_WHY])
{
    struct stat st;
    *why = 0;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ELOOP)
            snprintf(why, FXI_PRIVATE_WHY, "it is a link");
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        snprintf(why, FXI_PRIVATE_WHY, "it is not a regular file");
    FILE *f = !*why && !unsafe(&st, why) ? fdopen(fd, "rb") : NULL;
    if (!f)
        close(fd);
    return f;
}

FILE *fxi_private_file_new(int folder, const char *name)
{
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!f && fd >= 0)
        close(fd);
    return f;
}

void fxi_private_file_used(FILE *f)
{
    futimens(fileno(f), NULL);
}

bool fxi_private_file_rename(int folder, const char *from, const char *to)
{
    return renameat(folder, from, folder, to) == 0;
}

void fxi_private_file_remove(int folder, const char *name)
{
    unlinkat(folder, name, 0);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Opens the folder again, because reading its names moves the position of the descriptor. */
static DIR *open_again(int folder)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

void fxi_private_folder_each(int folder, bool (*visit)(const fxi_private_file *file, void *user),
                             void *user)
{
    struct stat st;
    bool more = true;
    DIR *dir = open_again(folder);
    for (struct dirent *e; dir && more && (e = readdir(dir)) != NULL;) {
        fxi_private_file f;
        if (strlen(e->d_name) >= sizeof f.name ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        strcpy(f.name, e->d_name);
        f.bytes = st.st_size;
        f.used = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        more = visit(&f, user);
    }
    if (dir)
        closedir(dir);
}
