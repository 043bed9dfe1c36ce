/* private_folder.h: a folder whose files only this user can change. Internal.
 *
 * A user who can write to a folder of compiled kernels, or to a file in it, chooses the code that a
 * process runs. So the folder and its files must belong to the user, be writable by no other user,
 * and not be links. Files are named relative to the open folder, so later changes of its path have
 * no effect. On Windows only the owner and links are checked, and files are named by path
 * (private_folder_windows.c). A folder is a number; −1: none. `why` is the reason why a folder or
 * file that exists must not be used. It is "" if it does not exist, or if the system refused to
 * open it.
 */
#ifndef CFLUX_PRIVATE_FOLDER_H
#define CFLUX_PRIVATE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { FXI_PRIVATE_WHY = 160, FXI_PRIVATE_NAME = 128 };

/* The folder for files that programs of this user can create again: $XDG_CACHE_HOME, else ~/.cache
 * (macOS: ~/Library/Caches, Windows: %LOCALAPPDATA%). False: unknown, or longer than `size`. */
bool fxi_cache_folder(char *path, size_t size);

/* Opens the folder; `make`: creates it, for this user alone, with the folders above it. */
int fxi_private_folder_open(const char *path, bool make, char why[FXI_PRIVATE_WHY]);
void fxi_private_folder_close(int folder);

/* Opens a file of the folder for reading; NULL if there is none that may be used. */
FILE *fxi_private_file_read(int folder, const char *name, char why[FXI_PRIVATE_WHY]);
/* Creates a file that only this user may read; NULL if one of this name exists. */
FILE *fxi_private_file_new(int folder, const char *name);
/* Sets the time of the file's latest use to now (not on Windows). */
void fxi_private_file_used(FILE *f);
bool fxi_private_file_rename(int folder, const char *from, const char *to);
void fxi_private_file_remove(int folder, const char *name);

typedef struct fxi_private_file {
    char name[FXI_PRIVATE_NAME];
    int64_t bytes;
    int64_t used; /* nanoseconds since a fixed moment */
} fxi_private_file;

/* Calls visit for each regular file of the folder, in no order, until it returns false; names that
 * do not fit in `name` are left out. visit neither creates nor removes files. */
void fxi_private_folder_each(int folder, bool (*visit)(const fxi_private_file *file, void *user),
                             void *user);

#endif
