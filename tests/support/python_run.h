/* python_run.h: finds Python interpreters and runs the scripts of tests/support that need the
 * package bson. The package may be installed only for the system's Python while another python3 is
 * first in PATH. */
#ifndef CFLUX_TEST_PYTHON_RUN_H
#define CFLUX_TEST_PYTHON_RUN_H

#include <stddef.h>

/* The first python3 in PATH, or else the system's, that succeeds with these arguments; NULL if
 * neither does. */
const char *python_that(const char *arguments);
/* Ends the test if this is NULL: as failed, or on Windows as skipped, because Wine has no Python.
 * scripts/windows counts the tests that are skipped. */
void need_python(const char *python);
/* Runs tests/support/SCRIPT with these arguments ("" or NULL: no more) and returns the first line
 * of its output in `line`. A script that fails ends the test. */
void python_bson(const char *script, const char *a, const char *b, const char *c, char *line,
                 size_t capacity);
/* The path of a file made by make_bson.py. The first call makes all of them. */
const char *made_bson(const char *name);

#endif
