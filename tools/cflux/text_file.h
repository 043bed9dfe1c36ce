/* text_file.h: a text file that exists completely or not at all: it is written to a temporary file
 * beside its path and renamed when it is complete on the disk. */
#ifndef CFLUX_TOOL_TEXT_FILE_H
#define CFLUX_TOOL_TEXT_FILE_H

#include <stdio.h>

typedef struct text_file {
    FILE *to;
    const char *path;
    char beside[4096]; /* path of the temporary file; "": `to` is stdout, or not a regular file */
} text_file;

/* path NULL: stdout. Returns EXIT_FINE, or the exit status of a failure (printed). */
int text_file_open(text_file *f, const char *path);
/* `status`: result of the writers; unless EXIT_FINE, the earlier file stays. */
int text_file_close(text_file *f, int status);

#endif
