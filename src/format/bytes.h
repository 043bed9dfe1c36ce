/* bytes.h: a file in memory, and a checked reader of it. Internal.
 *
 * Every file format reads through these functions. Sizes stated in a file are compared with the
 * available bytes before anything is allocated or touched. The first mismatch is recorded with
 * format, path and offset; after it every read returns zeros, so a reader may check `status`
 * occasionally instead of after every call.
 */
#ifndef CFLUX_BYTES_H
#define CFLUX_BYTES_H

#include <cflux/array.h>

enum { FXI_IO_MAX_DEPTH = 64, FXI_IO_MAX_ARRAYS = 1000000 };

/* A whole file, mapped, or read if it cannot be mapped. Each array whose elements are in it holds a
 * reference. */
typedef struct fxi_file fxi_file;
/* Opens a file. A failure is recorded under op (FX_STATUS_IO or FX_STATUS_MEMORY) and sets
 * *out_file to NULL. */
fx_status fxi_file_map(const char *op, const char *path, fxi_file **out_file);
/* The same for an open file, from its current position if it cannot be mapped. `path` is for
 * messages. */
fx_status fxi_file_of_descriptor(const char *op, const char *path, int fd, fxi_file **out_file);
/* A file object of `size` bytes that the caller fills in, starting at *out_data. Together with all
 * other decompressed files and live arrays it must fit in the limit of the CPU device
 * (fx_set_memory_limit), or without a limit in the free memory. NULL if it does not fit:
 * FX_STATUS_MEMORY is recorded under op.
 */
fxi_file *fxi_file_in_memory(const char *op, const char *path, size_t size,
                             unsigned char **out_data);
/* A file object of bytes of the program. The last release of the file calls release(bytes, user);
 * `release` may be NULL. A failure calls it too, is recorded under op, and returns NULL. */
fxi_file *fxi_file_of_bytes(const char *op, const void *bytes, size_t size, fx_release_fn release,
                            void *user);
void fxi_file_release(fxi_file *file); /* NULL is allowed */

typedef struct fxi_bytes {
    const unsigned char *data;
    size_t size, at;
    size_t origin; /* offset of `data` in the file */
    fxi_file *file;
    const char *op, *format,
        *path; /* for messages: "load: m.npz: npz: offset 12: …"; format may be "" */
    fx_status status;
    bool quiet; /* true: failures set only `status` and are not recorded */
} fxi_bytes;

fxi_bytes fxi_file_bytes(fxi_file *file, const char *op, const char *path);

/* Records FX_STATUS_FORMAT at an offset of these bytes, the first time only; returns the status. */
fx_status fxi_bytes_fail(fxi_bytes *b, size_t at, const char *format, ...) FXI_PRINTF(3, 4);
static inline size_t fxi_bytes_left(const fxi_bytes *b)
{
    return b->size - b->at;
}
/* Returns the next n bytes, without a copy, and advances past them; NULL (recorded) if fewer are
 * left. `what` names them in messages.
 */
const unsigned char *fxi_bytes_take(fxi_bytes *b, size_t n, const char *what);
/* Reads a little-endian number of 1 to 8 bytes; 0 if they are missing. */
uint64_t fxi_bytes_number(fxi_bytes *b, int n, const char *what);
/* The `size` bytes from `at` on, as a separate reader; empty (recorded) if some are missing. */
fxi_bytes fxi_bytes_part(fxi_bytes *b, size_t at, size_t size, const char *what);

/* An array of the elements at `data`, which are dense, inside the file, and in this machine's byte
 * order. Aligned elements are used in place, others are copied. */
fx_array *fxi_file_array(fxi_file *file, fx_dtype dtype, const void *data, int ndims,
                         const int64_t *sizes);

#endif
