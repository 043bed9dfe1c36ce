/* temp_file.h: small files for tests, in a folder of their own under TMPDIR.
 *
 * Paths stay valid, and the files in place, until the program ends: it then removes the folder with
 * whatever files are in it, which a child of a fork leaves alone. Failures to write end the test
 * program with a message: a test without its input has no result.
 */
#ifndef CFLUX_TEST_TEMP_FILE_H
#define CFLUX_TEST_TEMP_FILE_H

#include <stddef.h>

const char *temp_file(const char *name, const void *data, size_t n);
const char *temp_text(const char *name, const char *text);
/* As temp_file, compressed with gzip. */
const char *temp_gzip(const char *name, const void *data, size_t n);
/* "FOLDER/rest" in the recorded data, or NULL without CFLUX_DATA or when it is not there. */
const char *recorded_path(const char *rest);

#endif
