/* file_out.h: writes a file completely or not at all. Internal.
 *
 * Bytes are written to a temporary file in the same folder. When all of them are on the disk, the
 * temporary file is renamed to the final name, which replaces an old file atomically. If anything
 * fails before, the old file is unchanged and the temporary file is removed. A process that is
 * killed may leave its temporary file ("NAME.tmp0"), which the next writer uses; it never leaves
 * half of the real file.
 */
#ifndef CFLUX_FILE_OUT_H
#define CFLUX_FILE_OUT_H

#include <cflux/base.h>

typedef struct fxi_file_out {
    const char *op, *path; /* for messages: "save: m.npz: …"; must outlive the writing */
    char *real;            /* the file to which symbolic links lead */
    char *fresh;           /* the temporary file, in the same folder */
    int fd, lock;
    int64_t offset;          /* bytes written so far */
    int64_t reserved, begun; /* bytes with blocks on the disk, and bytes whose writing has begun */
    uint32_t crc;            /* CRC-32 of the bytes, as in zlib; only if `sum` is set */
    bool sum;
    bool nameless;     /* the file is only a trial */
    bool there, named; /* a file of that name existed; the new one has the name now */
    fx_status status;  /* the first failure, which is recorded; later calls do nothing */
} fxi_file_out;

/* All functions return the status so far. The message of FX_STATUS_IO names the operation, the
 * path, the offset and the system's reason, and says whether an old file is unchanged or the new
 * one is in place. Every opened file must be closed with fxi_file_out_close. */
fx_status fxi_file_out_open(fxi_file_out *f, const char *op, const char *path);
/* Opens a file without a name on the disk of `path`, to try whether the file can be written:
 * fxi_file_out_close deletes it, and a process that is killed leaves nothing behind. */
fx_status fxi_file_out_try(fxi_file_out *f, const char *op, const char *path);
/* Writes everything to the disk, and returns a descriptor with which the nameless file can be read
 * until fxi_file_out_close; −1 after a failure. */
int fxi_file_out_reread(fxi_file_out *f);
fx_status fxi_file_out_write(fxi_file_out *f, const void *data, size_t n);
/* Writes everything to the disk, without the rename; no write may follow. fxi_file_out_close does
 * it too. */
fx_status fxi_file_out_sync(fxi_file_out *f);
/* Renames the file to its final name. If `status` (a failure of the caller, already recorded) or an
 * earlier call failed, the temporary file is removed instead. If only the folder could not be
 * written to the disk, the new file has its name, and the error says so. */
fx_status fxi_file_out_close(fxi_file_out *f, fx_status status);

/* Opens, writes and closes: `path` gets all of these bytes or none. */
fx_status fxi_file_write(const char *op, const char *path, const void *data, size_t n);

/* Functions of files.h for reading and writing, in which tests can make the n-th call fail. */
enum { FXI_FILE_SHORT = -1 };
/* Makes the nth call from now (0: the next; −1: none) fail with this errno. FXI_FILE_SHORT: a read
 * or write processes half of the bytes; other calls succeed. */
void fxi_file_fault_set(int64_t nth, int error);
int64_t fxi_file_fault_seen(void); /* calls counted since */
int fxi_file_open(const char *path, int mode);
int64_t fxi_file_read(int fd, void *dst, size_t n);
int fxi_file_rename(const char *from, const char *to);
int fxi_file_link(const char *from, const char *to);

/* A note for messages about a path that begins with ~; "" for other paths. */
const char *fxi_tilde_note(const char *path);

#endif
