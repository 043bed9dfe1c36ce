/* files.h: files and folders of the operating system. Internal. A file is the number of a
 * descriptor; −1: none. Unless a comment says otherwise, functions return 0, a descriptor or a
 * number of bytes, or −1 with the reason in errno. No call is repeated after a signal. Programs
 * that the process starts do not inherit the descriptors.
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
    /* combined with any of these: */
    FXI_OS_CREATE = 4,   /* creates a missing file with the permissions of the user's umask */
    FXI_OS_NEW = 128,    /* with CREATE: fails if the file exists */
    FXI_OS_EMPTY = 8,    /* its content is deleted */
    FXI_OS_APPEND = 16,  /* every write is at the end */
    FXI_OS_NO_LINK = 32, /* fails if the path is a symbolic link */
    FXI_OS_FOLDER = 64,  /* fails unless it is a folder */
} fxi_os_mode;

int fxi_os_open(const char *path, int mode);
/* Creates a file without a name for reading and appending; it is deleted when it is closed. */
int fxi_os_open_temporary(void);
/* Creates a file without a name on the disk of the file `beside`, for reading and writing. Nothing
 * is left of it when it is closed or the process is killed; only where the system cannot create a
 * file without a name (macOS, some file systems), a kill during this call leaves an empty file. */
int fxi_os_open_nameless(const char *beside);
int fxi_os_duplicate(int fd);
/* Closes the descriptor, also if the result is a failure. */
int fxi_os_close(int fd);
/* fopen: the path is UTF-8 on every system, and no byte is changed (Windows would write "\r\n"). */
FILE *fxi_os_open_stream(const char *path, const char *mode);
/* A stream that owns the descriptor. NULL: failed, and the descriptor is still open. */
FILE *fxi_os_stream(int fd, const char *mode);

/* ---- reading and writing --------------------------------------------------------------------- */

int64_t fxi_os_read(int fd, void *dst, size_t n);
int64_t fxi_os_read_at(int fd, void *dst, size_t n, int64_t offset);
int64_t fxi_os_write(int fd, const void *data, size_t n);
int fxi_os_resize(int fd, int64_t bytes);
/* The next read is at the beginning. */
int fxi_os_rewind(int fd);
/* Writes the file, or the names in a folder, to the disk. */
int fxi_os_sync(int fd);
/* Two requests for a large file, which may be ignored: reserve blocks on the disk for the next
 * bytes, and start to write them. */
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
 * lock. A file system without locks always succeeds. */
bool fxi_os_lock(int fd);
/* Does this name still refer to the open file? */
bool fxi_os_is_named(int fd, const char *path);
bool fxi_os_stream_is_named(FILE *f, const char *path);
/* Gives the open file the permissions of another file, if that exists. No effect on Windows, where
 * a file has the rights of its folder. */
int fxi_os_copy_rights(int fd, const char *from);

/* ---- names ----------------------------------------------------------------------------------- */

bool fxi_file_exists(const char *path);
/* The absolute path without links and dots. */
int fxi_os_real_path(const char *path, char out[FXI_PATH_MOST]);
/* Renames a file atomically, and replaces a file that has the name. */
int fxi_os_rename(const char *from, const char *to);
/* Gives the file a second name, or renames it if the file system has no hard links. Fails if a file
 * already has that name. */
int fxi_os_link(const char *from, const char *to);
int fxi_os_remove(const char *path);

/* Calls visit with the name of each entry of the folder, including subfolders, "." and "..", until
 * it returns true. Returns whether a visit did; an unreadable folder counts as empty. */
bool fxi_folder_each(const char *folder, bool (*visit)(const char *file, void *user), void *user);

#endif
