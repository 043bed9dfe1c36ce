/* python_bson.h: the scripts of tests/support that need Python's bson, which is Debian's and
 * perhaps not the package of the first python3. */
#ifndef CFLUX_TEST_PYTHON_BSON_H
#define CFLUX_TEST_PYTHON_BSON_H

#include <stddef.h>

/* Runs tests/support/SCRIPT with these arguments ("" or NULL: none more); its first line of output.
 * A script that fails ends the test. */
void python_bson(const char *script, const char *a, const char *b, const char *c, char *line,
                 size_t capacity);
/* The path of a file that make_bson.py makes, all of which are made at the first call; until
 * temp_files_remove. */
const char *made_bson(const char *name);

#endif
