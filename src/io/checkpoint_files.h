/* checkpoint_files.h: the files of checkpoints, one by one and in sets. Internal to io. */
#ifndef CFLUX_CHECKPOINT_FILES_H
#define CFLUX_CHECKPOINT_FILES_H

#include <cflux/io.h>

enum { FXI_CHECKPOINT_PATH = 4096 };

/* The set, the member and the training step of a checkpoint file. */
typedef struct fxi_checkpoint_part {
    int64_t set;         /* equal in the files that the members of a group saved together */
    int64_t rank, ranks; /* of the member; number of members (0: saved without .dist) */
    int64_t step;        /* set when a file is opened; ignored when one is written */
} fxi_checkpoint_part;

/* ---- one file (checkpoint.c) ----------------------------------------------------------------- */

/* The path of file number i, 0 the newest; false if the path is too long. */
bool fxi_checkpoint_numbered(char out[FXI_CHECKPOINT_PATH], const char *path, int i);
/* Writes a file and keeps `keep` − 1 older ones. */
fx_status fxi_checkpoint_write(const char *op, const char *path, const fx_checkpoint_args *c,
                               const fxi_checkpoint_part *part, int keep);
/* Renames `from` to `path`, and keeps `keep` − 1 older files. */
fx_status fxi_checkpoint_commit(const char *op, const char *from, const char *path, int keep);
/* Opens a file and checks its CRC-32; the scope owns *out. */
fx_status fxi_checkpoint_open(const char *op, const char *path, void **out,
                              fxi_checkpoint_part *out_part);
/* Restores what an open file contains; the scope around the caller's scope owns the metrics. On
 * failure nothing is changed. */
fx_status fxi_checkpoint_take(const char *op, const char *path, void *file, fx_checkpoint_args *io);

/* ---- a file of each member (checkpoint_set.c) ------------------------------------------------ */

/* fx_checkpoint_save and fx_checkpoint_load with .dist. `checked` is the status of this member's
 * arguments: a failure is reported on all members. */
fx_status fxi_checkpoint_set_save(const char *op, const char *path, const fx_checkpoint_args *c,
                                  fx_status checked);
fx_status fxi_checkpoint_set_load(const char *op, const char *path, fx_checkpoint_args *io,
                                  fx_status checked);

#endif
