/* text_bytes.h: reads whole text files, plain or gzip. */
#ifndef CFLUX_TOOL_TEXT_BYTES_H
#define CFLUX_TOOL_TEXT_BYTES_H

#include "dataset.h"

typedef struct text_bytes {
    char *bytes; /* ends with 0; the caller frees it, also after a failure */
    size_t size;
    char *text; /* in `bytes`: after a byte order mark */
} text_bytes;

/* Functions return EXIT_FINE, or the exit status of a failure (printed). */

/* Reads a file, which must not be empty. out: zeroed. */
int read_text_bytes(const char *path, text_bytes *out);
/* Fails if the n bytes of a line are not UTF-8, or contain a zero. */
int check_utf8(const char *path, int64_t line, const char *text, size_t n);
/* Fails if the request has options for other data; `what` says what the text has. */
int check_text_options(const data_request *r, const char *what);
/* Fails because memory ran out. */
int no_text_memory(const char *path);

#endif
