/* file_out.h: a file written whole or not at all. Internal.
 *
 * Bytes go to a temporary file in the folder of the one they will replace; only when all of them
 * are on the disk does it take the other's name, in one step. Whatever fails before that, the old
 * file is as it was and the temporary one is gone; a process that is killed may leave a temporary
 * file behind ("NAME.tmp0"), which the next writer uses, never half of the real one.
 */
#ifndef CFLUX_FILE_OUT_H
#define CFLUX_FILE_OUT_H

#include <cflux/base.h>

typedef struct fxi_file_out {
    const char *op, *path; /* for messages: "save: m.npz: …"; must outlive the writing */
    char *real;            /* the file behind links, and the temporary one beside it */
    char *fresh;
    int fd, lock;
    int64_t offset; /* bytes written so far */
    int64_t reserved,
        begun;    /* up to where they have room on the disk, and are on their way there */
    uint32_t crc; /* of them, as in zlib; only when `sum` is set */
    bool sum;
    bool there, named; /* there was a file of that name; the new one has taken it */
    fx_status status;  /* the first failure, which is recorded; later calls do nothing */
} fxi_file_out;

/* The calls return the status so far: FX_STATUS_IO with operation, path, offset, the system's
 * reason, and which file is in place: the old one, unchanged, or the new one. An opened file is
 * always ended by fxi_file_out_close. */
fx_status fxi_file_out_open(fxi_file_out *f, const char *op, const char *path);
fx_status fxi_file_out_write(fxi_file_out *f, const void *data, size_t n);
/* Brings everything to the disk; the name is not taken yet. Close does it too. */
fx_status fxi_file_out_sync(fxi_file_out *f);
/* Takes the name, unless `status` (a failure of the caller's that is recorded already) or an
 * earlier failure forbids it: then the temporary file is removed. If only the folder could not be
 * brought to the disk, the new file has its name, and the error says so. */
fx_status fxi_file_out_close(fxi_file_out *f, fx_status status);

/* All of it: gives `path` these bytes in one step. */
fx_status fxi_file_write(const char *op, const char *path, const void *data, size_t n);

/* Functions of files.h by which files are read and written, and through which tests make the n-th
 * one fail. */
enum { FXI_FILE_SHORT = -1 };
/* The call number `nth` from now (0 the next; −1: none) fails with this errno; FXI_FILE_SHORT: a
 * read or write does half of its work, other calls do theirs. */
void fxi_file_fault_set(int64_t nth, int error);
int64_t fxi_file_fault_seen(void); /* calls counted since */
int fxi_file_open(const char *path, int mode);
int64_t fxi_file_read(int fd, void *dst, size_t n);
int fxi_file_rename(const char *from, const char *to);
int fxi_file_link(const char *from, const char *to);

/* What a message adds about a path that begins with ~; "" for any other. */
const char *fxi_tilde_note(const char *path);

#endif
