/* this_process_windows.c: the process on Windows; see this_process.h. Windows has no forks, and no
 * programs with more rights than their user. */
#include "this_process.h"
#include "thread.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

long fxi_process_id(void)
{
    return (long)GetCurrentProcessId();
}

const char *fxi_trusted_variable(const char *name)
{
    return getenv(name);
}

bool fxi_process_on_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
    (void)before, (void)in_parent, (void)in_child;
    return true;
}

/* ---- the end of the process -------------------------------------------------------------------
 */

/* A handler that a DLL registers with atexit runs when the DLL is unloaded. At the end of a
 * process, Windows first ends all other threads, wherever they are, and then unloads the DLLs. A
 * handler that waits for a thread, or takes a lock, would therefore hang. So the handlers are
 * registered with the C library of the program, which calls them before the threads end. A program
 * uses one of two C libraries, so registration is tried with both. Handlers cannot be moved: each
 * stays where it was first registered.
 */
enum { HANDLERS = 16 };
static fxi_exit_handler *handlers[HANDLERS];
static int nhandlers;

static int run_handlers(void)
{
    while (nhandlers > 0)
        handlers[--nhandlers]->run();
    return 0;
}

/* The function is _crt_atexit, which returns a number other than 0 on failure, or _onexit, which
 * returns NULL. The result is not tested. */
static void register_with(const wchar_t *library, const char *function)
{
    typedef intptr_t (*add)(int (*handler)(void));
    const HMODULE module = GetModuleHandleW(library);
    const FARPROC found = module ? GetProcAddress(module, function) : NULL;
    add f;
    memcpy(&f, &found, sizeof f);
    if (f)
        f(run_handlers);
}

bool fxi_process_on_exit(fxi_exit_handler *handler)
{
    if (handler->newest)
        return true;
    if (nhandlers == HANDLERS)
        return false;
    if (nhandlers == 0) {
        register_with(L"ucrtbase.dll", "_crt_atexit");
        register_with(L"msvcrt.dll", "_onexit");
    }
    handlers[nhandlers++] = handler;
    handler->newest = 1;
    return true;
}

/* ---- the end of a thread --------------------------------------------------------------------- */

static fxi_once once = FXI_ONCE_INIT;
static fxi_thread_value at_end;
static bool has_value;

static void end_thread(void *handler)
{
    ((const fxi_exit_handler *)handler)->run();
}

static void make_value(void)
{
    has_value = fxi_thread_value_init(&at_end, end_thread);
}

void fxi_process_on_thread_end(fxi_exit_handler *handler)
{
    fxi_call_once(&once, make_value);
    if (has_value)
        fxi_thread_value_set(at_end, handler);
}
