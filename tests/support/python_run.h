/* python_run.h: interpreters of Python, and the scripts of tests/support that need its bson. A
 * package may be that of the system, and the first python3 another one. */
#ifndef CFLUX_TEST_PYTHON_RUN_H
#define CFLUX_TEST_PYTHON_RUN_H

#include <stddef.h>

/* The first python3, else the system's, that ends well with these arguments; NULL: neither. */
const char *python_that(const char *arguments);
/* Runs tests/support/SCRIPT with these arguments ("" or NULL: none more); its first line of output.
 * A script that fails ends the test. */
void python_bson(const char *script, const char *a, const char *b, const char *c, char *line,
                 size_t capacity);
/* The path of a file that make_bson.py makes, all of which are made at the first call. */
const char *made_bson(const char *name);

#endif
