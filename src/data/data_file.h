/* data_file.h: a data file, plain or gzip, read from front to back. Internal to src/data.
 *
 * zlib's gzread hands through bytes that are not gzip, so both forms take the same path. Failures
 * are recorded here with the file's name and the offset in the decompressed stream; a short read is
 * not a failure (the caller knows what it expected), but `cut` then says whether a gzip stream
 * broke off.
 */
#ifndef CFLUX_DATA_FILE_H
#define CFLUX_DATA_FILE_H

#include <cflux/base.h>

typedef struct fxi_data_file {
    void *gz;
    const char *op, *path; /* for messages: "read_idx: train.idx: …" */
    int64_t offset;        /* decompressed bytes read so far */
    bool cut;              /* the gzip stream ended in the middle */
    fx_status status;      /* of the failure that was recorded, FX_OK before */
} fxi_data_file;

/* FX_STATUS_IO, recorded, when the file cannot be opened. */
fx_status fxi_data_file_open(fxi_data_file *file, const char *op, const char *path);
/* Reads up to n bytes; fewer only at the end. −1 on a failure, recorded and kept in file->status:
 * FX_STATUS_IO for the system's, FX_STATUS_FORMAT for a gzip stream that does not decode. */
int64_t fxi_data_file_read(fxi_data_file *file, void *dst, size_t n);
/* May `bytes` bytes be allocated for what the file holds? FX_STATUS_MEMORY, recorded, if they
 * exceed the limit of fx_set_memory_limit for the CPU device, or without a limit the memory that is
 * free: a small gzip file may unpack to any size, and Linux ends processes that use more than there
 * is. */
fx_status fxi_data_file_room(const fxi_data_file *file, size_t bytes);
void fxi_data_file_close(fxi_data_file *file);
/* " (the gzip stream breaks off)" or "", for messages about short files. */
const char *fxi_data_file_cut_note(const fxi_data_file *file);

#endif
