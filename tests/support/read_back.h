/* read_back.h: what a test wrote, read back. A file that is not there fails the test. */
#ifndef CFLUX_TEST_READ_BACK_H
#define CFLUX_TEST_READ_BACK_H

#include <stddef.h>

/* The bytes of the file and a 0 after them; NULL for out_n: the number is not asked for. Freed by
 * the caller. */
char *file_bytes(const char *path, size_t *out_n);
/* The file holds this text and nothing else. */
void assert_file_is(const char *path, const char *text);
/* Nothing of a file that was not written to its end is left beside it. */
void assert_alone(const char *path);

#endif
