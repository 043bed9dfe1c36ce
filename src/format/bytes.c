/* bytes.c: maps or reads a file into memory, or uses bytes of the program, and reads with checks.
 *
 * A mapped file takes no memory of its own, and no time until its pages are touched. It must
 * not be truncated while arrays use it, because the system would then kill the process. cflux
 * itself replaces files and never changes them, so an open file stays valid. A file that cannot be
 * mapped (a pipe, some remote file systems) is read.
 */
#include "bytes.h"
#include "c_text.h"
#include "file_out.h"
#include "files.h"
#include "memory.h"

#include <cflux/device.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct fxi_file {
    int64_t refs;
    void *data;
    size_t size;
    bool mapped;
    bool counted;          /* included in `decompressed` */
    bool lent;             /* `data` belongs to the program */
    fx_release_fn release; /* of lent data; NULL: none */
    void *user;
};

static int64_t decompressed; /* bytes of all files decompressed into memory (atomic) */

/* ---- the file -------------------------------------------------------------------------------- */

static fx_status cannot_open(const char *op, const char *path)
{
    return fx_fail(FX_STATUS_IO, op, "%s: cannot open the file: %s%s", path, strerror(errno),
                   fxi_tilde_note(path));
}

static fx_status cannot_read(const char *op, const char *path, int64_t offset)
{
    const int error = errno;
    return fx_fail(error == ENOMEM ? FX_STATUS_MEMORY : FX_STATUS_IO, op,
                   "%s: offset %lld: cannot read: %s", path, (long long)offset, strerror(error));
}

/* Reads to the end of the file into growing memory. The size is known in advance only for regular
 * files, not for pipes. */
static bool read_all(fxi_file *file, int fd, size_t expected, int64_t *out_at)
{
    size_t capacity = expected + 1, n = 0;
    unsigned char *data = fxi_malloc(capacity);
    int64_t got = 1;
    while (data && got != 0) {
        if (n == capacity) {
            unsigned char *grown = fxi_realloc(data, 2 * capacity);
            if (!grown)
                break;
            data = grown;
            capacity *= 2;
        }
        got = fxi_file_read(fd, data + n, capacity - n);
        if (got < 0 && errno != EINTR)
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    *out_at = (int64_t)n;
    file->data = data;
    file->size = n;
    if (!data || got > 0)
        errno = ENOMEM;
    return data && got == 0;
}

static bool take_in(fxi_file *file, int fd, int64_t *out_at)
{
    fxi_os_facts facts;
    *out_at = 0;
    if (fxi_os_facts_of(fd, &facts) != 0)
        return false;
    if (facts.folder) {
        errno = EISDIR;
        return false;
    }
    const size_t size = facts.regular ? (size_t)facts.bytes : 0;
    void *data = fxi_os_map(fd, size);
    if (!data)
        return read_all(file, fd, size, out_at);
    file->data = data;
    file->size = size;
    file->mapped = true;
    return true;
}

fx_status fxi_file_of_descriptor(const char *op, const char *path, int fd, fxi_file **out_file)
{
    *out_file = NULL;
    fxi_file *file = fxi_calloc(1, sizeof *file);
    if (!file)
        return fx_fail(FX_STATUS_MEMORY, op, "%s: no memory to open the file", path);
    file->refs = 1;
    int64_t at = 0;
    const fx_status status = take_in(file, fd, &at) ? FX_OK : cannot_read(op, path, at);
    if (status != FX_OK)
        fxi_file_release(file);
    else
        *out_file = file;
    return status;
}

fx_status fxi_file_map(const char *op, const char *path, fxi_file **out_file)
{
    *out_file = NULL;
    if (!path || !*path)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the path is NULL or empty");
    int fd;
    do
        fd = fxi_file_open(path, FXI_OS_READ);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return cannot_open(op, path);
    const fx_status status = fxi_file_of_descriptor(op, path, fd, out_file);
    fxi_os_close(fd);
    return status;
}

static void give_back(void *data, fx_release_fn release, void *user)
{
    if (release)
        release(data, user);
}

void fxi_file_release(fxi_file *file)
{
    if (!file || __atomic_sub_fetch(&file->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (file->mapped)
        fxi_os_unmap(file->data, file->size);
    else if (file->lent)
        give_back(file->data, file->release, file->user);
    else
        fxi_free(file->data);
    if (file->counted)
        __atomic_fetch_sub(&decompressed, (int64_t)file->size, __ATOMIC_RELAXED);
    fxi_free(file);
}

/* ---- files in memory ------------------------------------------------------------------------- */

/* Checks that `bytes` more can be allocated. `all`: `decompressed`, which includes them. Linux
 * grants allocations beyond free memory and kills the process later when it writes to them, so
 * large sizes are compared with the free memory first. */
static fx_status check_memory(const char *op, const char *path, int64_t bytes, int64_t all)
{
    enum { SMALL = 64 << 20, MIB_SHIFT = 20 };
    /* Asked once for each MiB, because a query takes longer than decompressing a small array. */
    if (all >> MIB_SHIFT == (all - bytes) >> MIB_SHIFT)
        return FX_OK;
    const fx_memory m = fx_memory_status(NULL);
    if (m.limit > 0 && all > m.limit - m.live)
        return fx_fail(FX_STATUS_MEMORY, op,
                       "%s: no memory for %lld bytes on CPU (%lld bytes live, %lld decompressed "
                       "from files, of at most %lld)",
                       path, (long long)bytes, (long long)m.live, (long long)(all - bytes),
                       (long long)m.limit);
    if (m.limit <= 0 && bytes > SMALL && m.free >= 0 && bytes > m.free)
        return fx_fail(FX_STATUS_MEMORY, op, "%s: no memory for %lld bytes, %lld are free", path,
                       (long long)bytes, (long long)m.free);
    return FX_OK;
}

fxi_file *fxi_file_in_memory(const char *op, const char *path, size_t size,
                             unsigned char **out_data)
{
    fxi_file *file = fxi_calloc(1, sizeof *file);
    if (!file || size > INT64_MAX / 2) {
        fxi_free(file);
        fx_fail(FX_STATUS_MEMORY, op, "%s: out of memory", path);
        return NULL;
    }
    const int64_t all = __atomic_add_fetch(&decompressed, (int64_t)size, __ATOMIC_RELAXED);
    *file = (fxi_file){.refs = 1, .size = size, .counted = true};
    if (check_memory(op, path, (int64_t)size, all) == FX_OK) {
        file->data = *out_data = fxi_malloc(size + 1);
        if (!file->data)
            fx_fail(FX_STATUS_MEMORY, op, "%s: no memory for %zu bytes", path, size);
    }
    if (file->data)
        return file;
    fxi_file_release(file);
    return NULL;
}

fxi_file *fxi_file_of_bytes(const char *op, const void *bytes, size_t size, fx_release_fn release,
                            void *user)
{
    void *data = (void *)(uintptr_t)bytes; /* never written */
    fxi_file *file = bytes ? fxi_calloc(1, sizeof *file) : NULL;
    if (file) {
        *file = (fxi_file){
            .refs = 1, .data = data, .size = size, .lent = true, .release = release, .user = user};
        return file;
    }
    if (bytes)
        fx_fail(FX_STATUS_MEMORY, op, "no memory to read %zu bytes", size);
    else
        fx_fail(FX_STATUS_ARGUMENT, op, "the bytes are NULL");
    give_back(data, release, user);
    return NULL;
}

static void release_array(void *data, void *file)
{
    (void)data;
    fxi_file_release(file);
}

fx_array *fxi_file_array(fxi_file *file, fx_dtype dtype, const void *data, int ndims,
                         const int64_t *sizes)
{
    if ((uintptr_t)data % fx_dtype_size(dtype) != 0)
        return fxi_from(dtype, data, ndims, sizes);
    __atomic_add_fetch(&file->refs, 1, __ATOMIC_RELAXED);
    return fxi_borrow(dtype, data, release_array, file, ndims, sizes);
}

/* ---- the reader ------------------------------------------------------------------------------ */

fxi_bytes fxi_file_bytes(fxi_file *file, const char *op, const char *path)
{
    return (fxi_bytes){
        .data = file->data, .size = file->size, .file = file, .op = op, .format = "", .path = path};
}

fx_status fxi_bytes_fail(fxi_bytes *b, size_t at, const char *format, ...)
{
    if (b->status != FX_OK)
        return b->status;
    if (b->quiet)
        return b->status = FX_STATUS_FORMAT;
    char why[320];
    va_list args;
    va_start(args, format);
    fxi_vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return b->status = fx_fail(FX_STATUS_FORMAT, b->op, "%s: %s%soffset %zu: %s", b->path,
                               b->format, *b->format ? ": " : "", b->origin + at, why);
}

const unsigned char *fxi_bytes_take(fxi_bytes *b, size_t n, const char *what)
{
    if (b->status != FX_OK)
        return NULL;
    if (n > fxi_bytes_left(b)) {
        fxi_bytes_fail(b, b->at, "%s: expected %zu bytes, %zu are left", what, n,
                       fxi_bytes_left(b));
        return NULL;
    }
    const unsigned char *p = b->data + b->at;
    b->at += n;
    return p;
}

uint64_t fxi_bytes_number(fxi_bytes *b, int n, const char *what)
{
    const unsigned char *p = fxi_bytes_take(b, (size_t)n, what);
    uint64_t v = 0;
    for (int i = n - 1; p && i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

fxi_bytes fxi_bytes_part(fxi_bytes *b, size_t at, size_t size, const char *what)
{
    fxi_bytes part = *b;
    part.at = 0;
    if (b->status == FX_OK && (at > b->size || size > b->size - at))
        part.status =
            fxi_bytes_fail(b, at < b->size ? at : b->size, "%s: expected %zu bytes, %zu are left",
                           what, size, at < b->size ? b->size - at : 0);
    part.size = part.status == FX_OK ? size : 0;
    if (part.status == FX_OK) {
        part.data = b->data + at;
        part.origin += at;
    }
    return part;
}
