/* this_process_darwin.c: the environment and the end of a process on macOS; see this_process.h.
 * macOS removes exit handlers by the address of the function and not by a handle, so a handler
 * cannot be moved as on Linux: it stays where it was first registered.
 */
#include "this_process.h"

#include <stdlib.h>
#include <unistd.h>

/* C++ registers the destructors of a thread's variables with this function of libSystem. */
void _tlv_atexit(void (*function)(void *), void *argument);

const char *fxi_trusted_variable(const char *name)
{
    return issetugid() ? NULL : getenv(name);
}

int __cxa_atexit(void (*function)(void *), void *argument, void *handle);

static void call(void *handler)
{
    ((const fxi_exit_handler *)handler)->run();
}

bool fxi_process_on_exit(fxi_exit_handler *handler)
{
    if (handler->newest)
        return true;
    handler->newest = __cxa_atexit(call, handler, NULL) == 0;
    return handler->newest;
}

void fxi_process_on_thread_end(fxi_exit_handler *handler)
{
    _tlv_atexit(call, handler);
}
