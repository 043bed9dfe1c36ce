/* temp_file.h: small files for tests, in their own folder under TMPDIR.
 *
 * Paths and files stay valid until the program ends; it then removes the folder with all files in
 * it. A child of a fork does not remove it. A failure to write ends the test program with a
 * message, because a test without its input has no result.
 */
#ifndef CFLUX_TEST_TEMP_FILE_H
#define CFLUX_TEST_TEMP_FILE_H

#include <stddef.h>

const char *temp_file(const char *name, const void *data, size_t n);
const char *temp_text(const char *name, const char *text);
/* The same, compressed with gzip. */
const char *temp_gzip(const char *name, const void *data, size_t n);
/* "FOLDER/rest" in the recorded data; NULL without CFLUX_DATA, or if the file does not exist. */
const char *recorded_path(const char *rest);

#endif
