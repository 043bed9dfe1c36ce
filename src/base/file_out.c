/* file_out.c: writes a file completely or not at all.
 *
 * The order survives a loss of power on every journalling file system: write, fsync of the file,
 * rename, fsync of the folder. Without the first fsync the new name may refer to an empty file
 * after a crash. Close can fail too (remote file systems report a full disk there), so it is called
 * before the rename.
 *
 * There are few names for temporary files, and each writer locks its own. A file that a killed
 * process left behind has no lock, and the next writer uses it, so such files do not pile up. The
 * lock must be held until the file has its final name, but the file is closed before that; so a
 * second descriptor holds the lock. A signal may interrupt any call, and a short write is
 * continued.
 *
 * Large files are written in pieces, and the disk is told to write each piece at once. It then
 * works while the next piece is copied, instead of doing everything in fsync. The system can write
 * a piece early only if the piece has blocks on the disk, which are otherwise assigned late; so
 * they are reserved first. Both calls are only requests: a file system that ignores them takes
 * longer.
 */
#include "file_out.h"
#include "files.h"
#include "memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { MOST_WRITERS = 64 }; /* writers of one file at the same time, at most */
enum { PIECE = 4 << 20 };   /* bytes; fits in the caches of the processor */

/* ---- system calls that tests can make fail --------------------------------------------------- */

static int64_t fault_at = -1, fault_seen;
static int fault_error;

void fxi_file_fault_set(int64_t nth, int error)
{
    __atomic_store_n(&fault_seen, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fault_error, error, __ATOMIC_RELAXED);
    __atomic_store_n(&fault_at, nth, __ATOMIC_RELAXED);
}

int64_t fxi_file_fault_seen(void)
{
    return __atomic_load_n(&fault_seen, __ATOMIC_RELAXED);
}

/* Is this the call that a test wants to fail? Then errno is set. FXI_FILE_SHORT: the call succeeds,
 * and *io_n, the number of bytes to transfer, is halved. */
static bool fault(size_t *io_n)
{
    const int64_t number = __atomic_fetch_add(&fault_seen, 1, __ATOMIC_RELAXED);
    if (number != __atomic_load_n(&fault_at, __ATOMIC_RELAXED))
        return false;
    const int error = __atomic_load_n(&fault_error, __ATOMIC_RELAXED);
    if (error != FXI_FILE_SHORT) {
        errno = error;
        return true;
    }
    if (io_n && *io_n > 1)
        *io_n /= 2;
    return false;
}

int fxi_file_open(const char *path, int mode)
{
    return fault(NULL) ? -1 : fxi_os_open(path, mode);
}

int64_t fxi_file_read(int fd, void *dst, size_t n)
{
    return fault(&n) ? -1 : fxi_os_read(fd, dst, n);
}

int fxi_file_rename(const char *from, const char *to)
{
    return fault(NULL) ? -1 : fxi_os_rename(from, to);
}

int fxi_file_link(const char *from, const char *to)
{
    return fault(NULL) ? -1 : fxi_os_link(from, to);
}

static int64_t write_some(int fd, const void *data, size_t n)
{
    return fault(&n) ? -1 : fxi_os_write(fd, data, n);
}

static int sync_file(int fd)
{
    int r;
    do
        r = fault(NULL) ? -1 : fxi_os_sync(fd);
    while (r != 0 && errno == EINTR);
    return r;
}

/* Closes the descriptor; it is invalid afterwards even if close fails. */
static int close_file(int fd)
{
    const bool failed = fault(NULL);
    const int error = errno;
    const int r = fxi_os_close(fd);
    if (!failed)
        return r != 0 && errno == EINTR ? 0 : r;
    errno = error;
    return error == EINTR ? 0 : -1;
}

const char *fxi_tilde_note(const char *path)
{
    return path[0] == '~' ? "; only a shell expands ~ to the home folder: give the full path" : "";
}

/* ---- the writer ------------------------------------------------------------------------------ */

static fx_status failed(fxi_file_out *f, const char *what)
{
    const int error = errno;
    const char *state = f->named ? "; the new file is in place but may not survive a power failure"
                        : f->there ? "; the old file is unchanged"
                                   : fxi_tilde_note(f->path);
    char at[40] = "";
    if (f->lock >= 0) /* the file is open */
        snprintf(at, sizeof at, "offset %lld: ", (long long)f->offset);
    if (f->status == FX_OK)
        f->status = fx_fail(error == ENOMEM ? FX_STATUS_MEMORY : FX_STATUS_IO, f->op,
                            "%s: %scannot %s: %s%s", f->path, at, what, strerror(error), state);
    return f->status;
}

static bool is_folder(const char *path)
{
    const int fd = fxi_os_open(path, FXI_OS_FOLDER);
    if (fd >= 0)
        fxi_os_close(fd);
    return fd >= 0;
}

/* The path of the file to which symbolic links lead, so that the links stay; a copy of `path` if
 * there is no file yet. NULL on failure, with the reason in errno. A folder fails here: renaming to
 * it would fail after all bytes are written. */
static char *real_path(const char *path, bool *out_there)
{
    char found[FXI_PATH_MOST];
    const bool there = *out_there = fxi_os_real_path(path, found) == 0;
    if (!there && errno != ENOENT)
        return NULL;
    if (there && is_folder(found)) {
        *out_there = false;
        errno = EISDIR;
        return NULL;
    }
    char *copy = fxi_strdup(there ? found : path);
    if (!copy)
        errno = ENOMEM;
    return copy;
}

/* Opens and locks this temporary file; 0 if another writer has the lock. The lock may be granted
 * after the other writer has renamed the file; then the file no longer has this name, and is not
 * used. */
static int open_locked(const char *name, int *out_fd)
{
    const int fd = *out_fd = fxi_file_open(name, FXI_OS_WRITE | FXI_OS_CREATE | FXI_OS_NO_LINK);
    if (fd < 0)
        return errno == EINTR ? 0 : -1;
    if (fxi_os_lock(fd) && fxi_os_is_named(fd, name))
        return 1;
    fxi_os_close(fd);
    return 0;
}

static fx_status open_temporary(fxi_file_out *f)
{
    const size_t n = strlen(f->real) + 16;
    f->fresh = fxi_malloc(n);
    int opened = f->fresh ? 0 : -1;
    if (!f->fresh)
        errno = ENOMEM;
    for (int i = 0; i < MOST_WRITERS && opened == 0; i++) {
        snprintf(f->fresh, n, "%s.tmp%d", f->real, i);
        opened = open_locked(f->fresh, &f->fd);
    }
    if (opened == 1)
        return FX_OK;
    errno = opened == 0 ? EBUSY : errno;
    const fx_status status = failed(f, "create a file in that folder");
    fxi_free(f->fresh); /* another writer owns it: do not remove it */
    f->fresh = NULL;
    f->fd = -1;
    return status;
}

fx_status fxi_file_out_open(fxi_file_out *f, const char *op, const char *path)
{
    *f = (fxi_file_out){.op = op, .path = path, .fd = -1, .lock = -1};
    if (!path || !*path)
        return f->status = fx_fail(FX_STATUS_ARGUMENT, op, "the path is NULL or empty");
    f->real = real_path(path, &f->there);
    if (!f->real)
        return failed(f, "write there");
    if (open_temporary(f) != FX_OK)
        return f->status;
    f->lock = fxi_os_duplicate(f->fd);
    if (f->lock < 0 || fxi_os_resize(f->fd, 0) != 0 || fxi_os_copy_rights(f->fd, f->real) != 0)
        return failed(f, "prepare the new file");
    return FX_OK;
}

fx_status fxi_file_out_try(fxi_file_out *f, const char *op, const char *path)
{
    *f = (fxi_file_out){.op = op, .path = path, .fd = -1, .lock = -1, .nameless = true};
    if (!path || !*path)
        return f->status = fx_fail(FX_STATUS_ARGUMENT, op, "the path is NULL or empty");
    f->real = real_path(path, &f->there);
    if (!f->real)
        return failed(f, "write there");
    do
        f->fd = fault(NULL) ? -1 : fxi_os_open_nameless(f->real);
    while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0)
        return failed(f, "create a file in that folder");
    f->lock = fxi_os_duplicate(f->fd);
    return f->lock < 0 ? failed(f, "prepare the new file") : FX_OK;
}

int fxi_file_out_reread(fxi_file_out *f)
{
    if (fxi_file_out_sync(f) == FX_OK && fxi_os_rewind(f->lock) != 0)
        failed(f, "read the file");
    return f->status == FX_OK ? f->lock : -1;
}

static void add_to_sum(fxi_file_out *f, const unsigned char *at, size_t n)
{
    if (f->sum)
        f->crc = (uint32_t)crc32_z(f->crc, at, n);
}

/* Reserves blocks on the disk for the bytes up to `end`. Not for files smaller than a piece. */
static void reserve(fxi_file_out *f, int64_t end)
{
    if (end <= f->reserved || end < PIECE)
        return;
    f->reserved = f->offset + PIECE;
    fxi_os_reserve(f->fd, f->offset, f->reserved - f->offset);
}

static void begin_pieces(fxi_file_out *f)
{
    if (f->offset - f->begun < PIECE)
        return;
    fxi_os_begin_writing(f->fd, f->begun, f->offset - f->begun);
    f->begun = f->offset;
}

fx_status fxi_file_out_write(fxi_file_out *f, const void *data, size_t n)
{
    const unsigned char *at = data;
    while (n > 0 && f->status == FX_OK) {
        const size_t some = n < PIECE ? n : PIECE;
        reserve(f, f->offset + (int64_t)some);
        const int64_t done = write_some(f->fd, at, some);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return failed(f, "write");
        add_to_sum(f, at, (size_t)done);
        at += done;
        n -= (size_t)done;
        f->offset += done;
        begin_pieces(f);
    }
    return f->status;
}

fx_status fxi_file_out_sync(fxi_file_out *f)
{
    if (f->status != FX_OK || f->fd < 0)
        return f->status;
    const int fd = f->fd;
    if (f->reserved > f->offset && fxi_os_resize(fd, f->offset) != 0)
        return failed(f, "release unused disk space");
    if (sync_file(fd) != 0)
        return failed(f, "write the file to the disk");
    f->fd = -1;
    return close_file(fd) == 0 ? FX_OK : failed(f, "close the file");
}

/* Writes the folder to the disk, so that the new name survives a loss of power. Some file systems
 * cannot do this and return EINVAL. Cuts the path at its folder, because a copy would need memory,
 * and this must not fail for lack of it. */
static bool sync_folder(char *real)
{
    char *slash = strrchr(real, '/');
    if (slash)
        slash[slash == real] = 0;
    const int fd = fxi_file_open(slash ? real : ".", FXI_OS_FOLDER);
    const bool done = fd >= 0 && (sync_file(fd) == 0 || errno == EINVAL);
    const int error = errno;
    if (fd >= 0)
        fxi_os_close(fd);
    errno = error;
    return done;
}

fx_status fxi_file_out_close(fxi_file_out *f, fx_status status)
{
    if (f->status == FX_OK && status != FX_OK)
        f->status = status;
    fxi_file_out_sync(f);
    if (f->status == FX_OK && !f->nameless) {
        f->named = fxi_file_rename(f->fresh, f->real) == 0;
        if (!f->named)
            failed(f, "rename the new file");
        else if (!sync_folder(f->real))
            failed(f, "write the folder to the disk");
    }
    if (!f->named && f->fresh)
        fxi_os_remove(f->fresh);
    if (f->fd >= 0)
        fxi_os_close(f->fd);
    if (f->lock >= 0)
        fxi_os_close(f->lock);
    fxi_free(f->real);
    fxi_free(f->fresh);
    f->real = f->fresh = NULL;
    f->fd = f->lock = -1;
    return f->status;
}

fx_status fxi_file_write(const char *op, const char *path, const void *data, size_t n)
{
    fxi_file_out f;
    fxi_file_out_open(&f, op, path);
    fxi_file_out_write(&f, data, n);
    return fxi_file_out_close(&f, FX_OK);
}
