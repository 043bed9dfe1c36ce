/* read_back.c: reads back files that a test wrote: see read_back.h. */
#include "read_back.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *file_bytes(const char *path, size_t *out_n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: the file cannot be opened", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const size_t n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, n, f), n);
    fclose(f);
    bytes[n] = 0;
    if (out_n)
        *out_n = n;
    return bytes;
}

void assert_file_is(const char *path, const char *text)
{
    size_t n;
    char *bytes = file_bytes(path, &n);
    assert_string_equal(bytes, text);
    assert_int_equal(n, strlen(text));
    free(bytes);
}

void assert_alone(const char *path)
{
    char name[1200];
    snprintf(name, sizeof name, "%s.tmp0", path);
    assert_int_not_equal(access(name, F_OK), 0);
}
