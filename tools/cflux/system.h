/* system.h: what the command line asks of the operating system itself. Only system.c includes the
 * headers of one kind of system. Where a function fails, errno says why. */
#ifndef CFLUX_TOOL_SYSTEM_H
#define CFLUX_TOOL_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { FILE_PATH_BYTES = 4096 }; /* of a path, with its final 0 */

/* Seconds since some moment that stays the same while the program runs. */
double seconds_now(void);
long process_number(void);

/* SIGINT and SIGTERM as a wish to stop. The first is noted; the second ends the program as if
 * nobody had asked for it. */
void interrupt_begin(void);
/* The signal that came, 0: none. */
int interrupt_caught(void);
/* Signals act as they did before. */
void interrupt_end(void);

typedef enum path_kind { PATH_ABSENT, PATH_FILE, PATH_FOLDER, PATH_DEVICE, PATH_OTHER } path_kind;
/* What is behind the path and its links; PATH_OTHER: a pipe or a socket. */
path_kind kind_of_path(const char *path);
/* The same, of a link itself: PATH_OTHER. */
path_kind kind_without_links(const char *path);
/* Is it the terminal that standard input reads from? */
bool is_own_terminal(const char *path);
/* May a file be written, or made in a folder? */
bool may_write(const char *path);
bool may_make_files_in(const char *folder);
/* The path without links and dots. */
bool real_path(const char *path, char out[FILE_PATH_BYTES]);
/* Calls visit for the name of every file in the folder. */
void each_file(const char *folder, void (*visit)(const char *name, void *user), void *user);

/* Everything written is on the disk; the names in the folder are. A file system that cannot do this
 * for folders is no failure. */
bool sync_stream(FILE *f);
bool sync_folder(const char *folder);

/* Are the first n bytes equal, small and capital letters being the same? */
bool same_letters(const char *a, const char *b, size_t n);

#endif
