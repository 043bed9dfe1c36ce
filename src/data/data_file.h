/* data_file.h: a data file, plain or gzip, read from front to back. Internal to src/data.
 *
 * zlib's gzread passes bytes that are not gzip through unchanged, so both kinds of file use the
 * same code. Failures are recorded with the file's name and the offset in the decompressed stream.
 * A short read is not a failure, because only the caller knows the expected size; `cut` then says
 * whether a gzip stream was truncated.
 */
#ifndef CFLUX_DATA_FILE_H
#define CFLUX_DATA_FILE_H

#include <cflux/base.h>

typedef struct fxi_data_file {
    void *gz;
    const char *op, *path; /* for messages: "read_idx: train.idx: …" */
    int64_t offset;        /* decompressed bytes read so far */
    bool cut;              /* the gzip stream is truncated */
    fx_status status;      /* status of the recorded failure, FX_OK if none */
} fxi_data_file;

/* Opens the file; FX_STATUS_IO (recorded) if that fails. */
fx_status fxi_data_file_open(fxi_data_file *file, const char *op, const char *path);
/* Reads up to n bytes; fewer only at the end of the file. −1 on a failure, which is recorded and
 * kept in file->status: FX_STATUS_IO for a system error, FX_STATUS_FORMAT for a corrupt gzip
 * stream. */
int64_t fxi_data_file_read(fxi_data_file *file, void *dst, size_t n);
/* Checks that `bytes` more can be allocated for the contents of the file. FX_STATUS_MEMORY
 * (recorded) if they exceed what is left of the CPU's limit (fx_set_memory_limit). Without a limit,
 * more than 64 MiB are compared with the free memory. Needed because a small gzip file may
 * decompress to any size, and Linux kills processes that use more memory than exists. */
fx_status fxi_data_file_check_memory(const fxi_data_file *file, size_t bytes);
void fxi_data_file_close(fxi_data_file *file);
/* " (the gzip stream is truncated)" or "", for messages about short files. */
const char *fxi_data_file_cut_note(const fxi_data_file *file);

#endif
