/* data_file.c: reads plain and gzip files through zlib: see data_file.h.
 *
 * For a truncated stream gzread returns the bytes that it could decode, and only gzerror reports
 * the problem (Z_BUF_ERROR); for a corrupt stream gzread returns −1. This file distinguishes the
 * two, so that callers can report "expected 1568 bytes, found 784" for a truncated stream. Reads
 * are split into pieces of at most 1 GiB because gzread counts in unsigned int.
 */
#include "data_file.h"
#include "files.h"

#include <cflux/device.h>
#include <errno.h>
#include <string.h>
#include <zlib.h>

enum { LARGEST_READ = 1 << 30 };

fx_status fxi_data_file_open(fxi_data_file *file, const char *op, const char *path)
{
    *file = (fxi_data_file){.op = op, .path = path};
    if (!path)
        return file->status = fx_fail(FX_STATUS_ARGUMENT, op, "the path is NULL");
    errno = 0;
    const int fd = fxi_os_open(path, FXI_OS_READ);
    file->gz = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    if (file->gz)
        return FX_OK;
    if (fd >= 0) {
        fxi_os_close(fd);
        errno = ENOMEM;
    }
    if (errno == 0 || errno == ENOMEM)
        return file->status =
                   fx_fail(FX_STATUS_MEMORY, op, "%s: out of memory opening the file", path);
    return file->status = fx_fail(FX_STATUS_IO, op, "%s: %s", path, strerror(errno));
}

/* Must be called directly after the failing gzread, while errno still holds a system error. */
static int64_t record_failure(fxi_data_file *file)
{
    const int system_error = errno ? errno : EIO;
    const long long offset = (long long)file->offset;
    int code = Z_OK;
    const char *reason = gzerror((gzFile)file->gz, &code);
    if (code == Z_ERRNO)
        file->status = fx_fail(FX_STATUS_IO, file->op, "%s: offset %lld: %s", file->path, offset,
                               strerror(system_error));
    else if (code == Z_MEM_ERROR)
        file->status =
            fx_fail(FX_STATUS_MEMORY, file->op, "%s: out of memory decompressing", file->path);
    else
        file->status =
            fx_fail(FX_STATUS_FORMAT, file->op, "%s: offset %lld: the gzip stream is damaged (%s)",
                    file->path, offset, reason ? reason : "unknown");
    return -1;
}

int64_t fxi_data_file_read(fxi_data_file *file, void *dst, size_t n)
{
    size_t done = 0;
    while (done < n && !file->cut) {
        const size_t piece = n - done < LARGEST_READ ? n - done : LARGEST_READ;
        errno = 0;
        const int got = gzread((gzFile)file->gz, (char *)dst + done, (unsigned)piece);
        if (got < 0)
            return record_failure(file);
        done += (size_t)got;
        file->offset += got;
        if ((size_t)got == piece)
            continue;
        int code = Z_OK;
        gzerror((gzFile)file->gz, &code);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return record_failure(file);
        file->cut = code == Z_BUF_ERROR;
        break;
    }
    return (int64_t)done;
}

fx_status fxi_data_file_check_memory(const fxi_data_file *file, size_t bytes)
{
    enum {
        FEW = 1 << 16,
        MANY = 64 << 20
    }; /* asking for the free memory takes longer than filling
          FEW bytes */
    if (bytes <= FEW)
        return FX_OK;
    const fx_memory m = fx_memory_status(NULL);
    if (m.limit > 0 && (int64_t)bytes > m.limit - m.live)
        return fx_fail(FX_STATUS_MEMORY, file->op,
                       "%s: no memory for %zu bytes after %lld bytes of the decompressed file "
                       "(%lld bytes live on CPU, of at most %lld)",
                       file->path, bytes, (long long)file->offset, (long long)m.live,
                       (long long)m.limit);
    if (m.limit <= 0 && bytes > MANY && m.free >= 0 && (int64_t)bytes > m.free)
        return fx_fail(
            FX_STATUS_MEMORY, file->op,
            "%s: no memory for %zu bytes after %lld bytes of the decompressed file, %lld are "
            "free",
            file->path, bytes, (long long)file->offset, (long long)m.free);
    return FX_OK;
}

void fxi_data_file_close(fxi_data_file *file)
{
    if (file->gz)
        gzclose((gzFile)file->gz);
    file->gz = NULL;
}

const char *fxi_data_file_cut_note(const fxi_data_file *file)
{
    return file->cut ? " (the gzip stream is truncated)" : "";
}
