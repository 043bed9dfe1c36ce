/* private_folder.h: a folder whose files nobody but this user can change. Internal.
 *
 * Who can write to a folder of compiled kernels, or to a file in it, chooses the code that a
 * process runs. So the folder and its files must belong to the user and be writable by nobody else,
 * and neither may be a link. Files are named relative to the open folder: what happens to its path
 * meanwhile changes nothing.
 *
 * A folder is a number, −1 is none. Where `why` is filled, the folder or the file exists and is not
 * to be used for that reason; it is "" where there is none, or where the system refused.
 */
#ifndef CFLUX_PRIVATE_FOLDER_H
#define CFLUX_PRIVATE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { FXI_PRIVATE_WHY = 160, FXI_PRIVATE_NAME = 128 };

/* The folder in which programs of this user keep what they can make again: $XDG_CACHE_HOME, else
 * ~/.cache. False: unknown, or longer than `size`. */
bool fxi_cache_folder(char *path, size_t size);

/* The folder; `make`: it is made, for the user alone, with the folders above it. */
int fxi_private_folder_open(const char *path, bool make, char why[FXI_PRIVATE_WHY]);
void fxi_private_folder_close(int folder);

/* A file of it for reading; NULL if there is none that may be used. */
FILE *fxi_private_file_read(int folder, const char *name, char why[FXI_PRIVATE_WHY]);
/* A new file, which only this user may read; NULL if there is one of this name. */
FILE *fxi_private_file_new(int folder, const char *name);
/* The time of the file's last use is now. */
void fxi_private_file_used(FILE *f);
bool fxi_private_file_rename(int folder, const char *from, const char *to);
void fxi_private_file_remove(int folder, const char *name);

typedef struct fxi_private_file {
    char name[FXI_PRIVATE_NAME];
    int64_t bytes;
    int64_t used; /* nanoseconds since some moment */
} fxi_private_file;

/* The first `most` regular files of the folder, in no order; those with longer names are left out.
 * Returns how many. */
int fxi_private_folder_list(int folder, fxi_private_file *out, int most);

#endif
