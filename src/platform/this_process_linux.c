/* this_process_linux.c: the environment and the end of a process on Linux; see this_process.h.
 * fxi_process_on_exit uses two functions of the C++ ABI: __cxa_atexit registers a handler, and
 * __cxa_finalize removes it by its handle. Removing a handler calls it; `moving` makes it do
 * nothing then. A handler that is moved is registered again before it is removed, so it is never
 * unregistered.
 */
#include "this_process.h"

#include <stdlib.h>

/* The third function is glibc's and may be missing elsewhere, so it is weak. */
int __cxa_atexit(void (*function)(void *), void *argument, void *handle);
void __cxa_finalize(void *handle);
int __cxa_thread_atexit_impl(void (*function)(void *), void *argument, void *library)
    __attribute__((weak));

static _Thread_local const fxi_exit_handler *moving;

const char *fxi_trusted_variable(const char *name)
{
    return secure_getenv(name);
}

static void at_exit(void *handler)
{
    const fxi_exit_handler *h = handler;
    if (moving != h)
        h->run();
}

bool fxi_process_on_exit(fxi_exit_handler *handler)
{
    char *older = &handler->handles[handler->newest], *newer = &handler->handles[!handler->newest];
    if (__cxa_atexit(at_exit, handler, newer) != 0)
        return false;
    moving = handler;
    __cxa_finalize(older);
    moving = NULL;
    handler->newest = !handler->newest;
    return true;
}

static void at_thread_end(void *handler)
{
    ((const fxi_exit_handler *)handler)->run();
}

void fxi_process_on_thread_end(fxi_exit_handler *handler)
{
    if (__cxa_thread_atexit_impl)
        __cxa_thread_atexit_impl(at_thread_end, handler, handler);
}
