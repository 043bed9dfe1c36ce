/* failing_calloc.c: loaded before a program by LD_PRELOAD. Call number FAIL_AT of calloc by the
 * file FAIL_IN itself (calls by libraries do not count) prints "#failed" and returns NULL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_calloc(size_t n, size_t size); /* glibc's own, for programs that replace calloc */

void *calloc(size_t n, size_t size)
{
    static int calls;
    static _Thread_local int inside; /* looking up a caller may allocate */
    const char *at = getenv("FAIL_AT"), *program = getenv("FAIL_IN");
    Dl_info caller = {0};
    if (inside || !at || !program)
        return __libc_calloc(n, size);
    inside = 1;
    const int known = dladdr(__builtin_return_address(0), &caller);
    inside = 0;
    if (!known || !caller.dli_fname || strcmp(caller.dli_fname, program) != 0 ||
        ++calls != atoi(at))
        return __libc_calloc(n, size);
    static const char text[] = "#failed\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(3);
    errno = ENOMEM;
    return NULL;
}
