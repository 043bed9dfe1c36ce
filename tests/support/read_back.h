/* read_back.h: reads back files that a test wrote. A missing file fails the test. */
#ifndef CFLUX_TEST_READ_BACK_H
#define CFLUX_TEST_READ_BACK_H

#include <stddef.h>

/* The bytes of the file, followed by a 0; the caller frees them. out_n may be NULL. */
char *file_bytes(const char *path, size_t *out_n);
/* Checks that the file holds exactly this text. */
void assert_file_is(const char *path, const char *text);
/* Checks that no partly written file is left in the same folder. */
void assert_alone(const char *path);

#endif
