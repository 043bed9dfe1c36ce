/* failing_calloc.c: loaded before a program by LD_PRELOAD. Call number FAIL_AT of the function
 * FAIL_CALL (calloc, malloc or realloc; default: calloc) by the file FAIL_IN itself (calls by
 * libraries do not count) prints "#failed" and returns NULL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* glibc's own, for programs that replace them */
void *__libc_calloc(size_t n, size_t size);
void *__libc_malloc(size_t n);
void *__libc_realloc(void *old, size_t n);

static int fails(const char *call, const void *return_address)
{
    static int calls;
    static _Thread_local int inside; /* looking up a caller may allocate */
    const char *at = getenv("FAIL_AT"), *program = getenv("FAIL_IN"), *name = getenv("FAIL_CALL");
    Dl_info caller = {0};
    if (inside || !at || !program || strcmp(name ? name : "calloc", call) != 0)
        return 0;
    inside = 1;
    const int known = dladdr(return_address, &caller);
    inside = 0;
    if (!known || !caller.dli_fname || strcmp(caller.dli_fname, program) != 0 ||
        ++calls != atoi(at))
        return 0;
    static const char text[] = "#failed\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(3);
    errno = ENOMEM;
    return 1;
}

void *calloc(size_t n, size_t size)
{
    return fails("calloc", __builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *malloc(size_t n)
{
    return fails("malloc", __builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *realloc(void *old, size_t n)
{
    return fails("realloc", __builtin_return_address(0)) ? NULL : __libc_realloc(old, n);
}
