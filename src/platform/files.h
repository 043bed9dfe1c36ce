/* files.h: files and folders as the system at hand has them. Internal.
 *
 * A file is the number of a descriptor, −1 is none. Unless a comment says something else, functions
 * return 0 or −1 as the system's do, and errno says why; no call is repeated after a signal.
 * Descriptors are not handed on to programs that the process starts.
 */
#ifndef CFLUX_FILES_H
#define CFLUX_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { FXI_PATH_MOST = 4096 }; /* bytes of a path, with its final 0 */

/* ---- opening --------------------------------------------------------------------------------- */

typedef enum fxi_os_mode {
    FXI_OS_READ = 0,
    FXI_OS_WRITE = 1,
    FXI_OS_READ_WRITE = 2,
    /* and any of these: */
    FXI_OS_CREATE = 4,   /* if there is none; others may read it as the user's settings say */
    FXI_OS_EMPTY = 8,    /* what it holds is lost */
    FXI_OS_APPEND = 16,  /* every write is at the end */
    FXI_OS_NO_LINK = 32, /* fails if the path is a symbolic link */
    FXI_OS_FOLDER = 64,  /* fails unless it is a folder */
} fxi_os_mode;

int fxi_os_open(const char *path, int mode);
/* A new file that has no name and is gone when it is closed, for reading and appending. */
int fxi_os_open_temporary(void);
int fxi_os_duplicate(int fd);
/* The descriptor is closed whatever the result is. */
int fxi_os_close(int fd);
/* A stream that owns the descriptor; NULL if that fails, and the descriptor is still open. */
FILE *fxi_os_stream(int fd, const char *mode);

/* ---- reading and writing --------------------------------------------------------------------- */

int64_t fxi_os_read(int fd, void *dst, size_t n);
int64_t fxi_os_read_at(int fd, void *dst, size_t n, int64_t offset);
int64_t fxi_os_write(int fd, const void *data, size_t n);
int fxi_os_resize(int fd, int64_t bytes);
/* Brings the file, or the names in a folder, to the disk. */
int fxi_os_sync(int fd);
/* Two requests about the next bytes of a large file, which may be ignored: room for them on the
 * disk, and to begin with writing them there. */
void fxi_os_reserve(int fd, int64_t offset, int64_t bytes);
void fxi_os_begin_writing(int fd, int64_t offset, int64_t bytes);

/* The file's bytes in memory, read-only; NULL if it cannot be mapped. */
void *fxi_os_map(int fd, size_t bytes);
void fxi_os_unmap(void *data, size_t bytes);

/* ---- facts ----------------------------------------------------------------------------------- */

typedef struct fxi_os_facts {
    bool regular, folder; /* neither: a pipe, a device, … */
    int64_t bytes;
} fxi_os_facts;

int fxi_os_facts_of(int fd, fxi_os_facts *out);
int fxi_os_facts_of_stream(FILE *f, fxi_os_facts *out);
/* Locks the file until its last descriptor is closed. False: another process or descriptor has the
 * lock. A file system without locks gives it to everybody. */
bool fxi_os_lock(int fd);
/* Is this the file that has the name now? */
bool fxi_os_is_named(int fd, const char *path);
bool fxi_os_stream_is_named(FILE *f, const char *path);
/* Gives the open file the rights of another one, if that exists. */
int fxi_os_copy_rights(int fd, const char *from);

/* ---- names ----------------------------------------------------------------------------------- */

bool fxi_file_exists(const char *path);
/* The path without links and dots. */
int fxi_os_real_path(const char *path, char out[FXI_PATH_MOST]);
/* The file gets the name in one step, also if another file has it. */
int fxi_os_rename(const char *from, const char *to);
/* A second name for the file; where the file system has no such thing, it is renamed. */
int fxi_os_link(const char *from, const char *to);
int fxi_os_remove(const char *path);

/* Calls visit for the name of every file in the folder until it returns true. Returns true if a
 * visit did; a folder that cannot be read has no files. */
bool fxi_folder_each(const char *folder, bool (*visit)(const char *file, void *user), void *user);

#endif
