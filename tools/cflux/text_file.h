/* text_file.h: a file of text that is there whole or not at all: written beside its place, and
 * moved there when all of it is on the disk. */
#ifndef CFLUX_TOOL_TEXT_FILE_H
#define CFLUX_TOOL_TEXT_FILE_H

#include <stdio.h>

typedef struct text_file {
    FILE *to;
    const char *path;
    char beside[4096]; /* "": `to` is stdout, or no regular file */
} text_file;

/* path NULL: stdout. Returns EXIT_FINE, or the exit status of what was printed. */
int text_file_open(text_file *f, const char *path);
/* status: of those who wrote; anything but EXIT_FINE leaves what was there before. */
int text_file_close(text_file *f, int status);

#endif
