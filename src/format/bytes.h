/* bytes.h: a file in memory, and a checked reader of it. Internal.
 *
 * Every format reads through this: what a file says about itself is compared with the bytes that
 * are there before anything is allocated or touched, and the first thing that does not fit is
 * recorded with format, path and offset. After that every read gives zeros, so that a reader may
 * look at `status` once in a while instead of after every call.
 */
#ifndef CFLUX_BYTES_H
#define CFLUX_BYTES_H

#include <cflux/array.h>

enum { FXI_IO_MAX_DEPTH = 64, FXI_IO_MAX_ARRAYS = 1000000 };

/* A whole file, mapped, or read where it cannot be mapped. Arrays that lie in it each hold a
 * reference. */
typedef struct fxi_file fxi_file;
/* A failure is recorded under op: FX_STATUS_IO or FX_STATUS_MEMORY, and *out_file is NULL. */
fx_status fxi_file_map(const char *op, const char *path, fxi_file **out_file);
/* `size` bytes of memory to be filled in by the caller, as a file, *out_data its first byte. With
 * what else is unpacked and live they must fit the limit of the CPU device (fx_set_memory_limit);
 * without a limit they must be free. NULL: FX_STATUS_MEMORY is recorded under op. */
fxi_file *fxi_file_in_memory(const char *op, const char *path, size_t size,
                             unsigned char **out_data);
void fxi_file_release(fxi_file *file); /* NULL is allowed */

typedef struct fxi_bytes {
    const unsigned char *data;
    size_t size, at;
    size_t origin; /* where data begins in the file */
    fxi_file *file;
    const char *op, *format, *path; /* for messages: "load: m.npz: npz: offset 12: …" */
    fx_status status;
    bool quiet; /* what does not fit is not recorded, only `status` says it */
} fxi_bytes;

fxi_bytes fxi_file_bytes(fxi_file *file, const char *op, const char *path);

/* Records FX_STATUS_FORMAT at an offset of these bytes, the first time; returns the status. */
fx_status fxi_bytes_fail(fxi_bytes *b, size_t at, const char *format, ...) FXI_PRINTF(3, 4);
static inline size_t fxi_bytes_left(const fxi_bytes *b)
{
    return b->size - b->at;
}
/* The next n bytes, which lie in the file; NULL, recorded, when there are fewer. `what` names them.
 */
const unsigned char *fxi_bytes_take(fxi_bytes *b, size_t n, const char *what);
/* A little-endian number of 1 to 8 bytes; 0 when they are not there. */
uint64_t fxi_bytes_number(fxi_bytes *b, int n, const char *what);
/* The bytes from `at` on, `size` of them, as bytes of their own; empty, recorded, when they are not
 * all there. */
fxi_bytes fxi_bytes_part(fxi_bytes *b, size_t at, size_t size, const char *what);

/* An array of the elements at `data`, which are dense, in this machine's order and lie in the file:
 * used where they are if they are aligned, else copied. */
fx_array *fxi_file_array(fxi_file *file, fx_dtype dtype, const void *data, int ndims,
                         const int64_t *sizes);

#endif
