/* this_process.h: the process: its number, its environment, its forks and its end. Internal. */
#ifndef CFLUX_THIS_PROCESS_H
#define CFLUX_THIS_PROCESS_H

#include <stdbool.h>

long fxi_process_id(void);

/* The value of an environment variable; NULL if it is not set, or if the program runs with raised
 * privileges (more rights than its user has). */
const char *fxi_trusted_variable(const char *name);

/* Registers functions to call around every fork: `before` in the process that forks, then the
 * others. Each may be NULL. False: no memory. A system without fork calls none. */
bool fxi_process_on_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));

/* A handler for the end of the process by exit, which calls handlers in the reverse order of
 * registration. The struct must stay valid until then. */
typedef struct fxi_exit_handler {
    void (*run)(void);
    char handles[2]; /* handles of the two registrations that exist while it is moved */
    int newest;
} fxi_exit_handler;

/* Registers or moves the handler, so that exit calls it next. A system on which handlers cannot be
 * moved only registers it. False: no memory. Only one thread at a time may call this for a handler.
 */
bool fxi_process_on_exit(fxi_exit_handler *handler);

/* FXI_STOPS_THREADS(f): f() is called at the end of the process, or when the library is unloaded,
 * while all threads still run. Destructors of a DLL are called when Windows has ended the threads
 * already, wherever they were. */
#ifdef _WIN32
#define FXI_STOPS_THREADS(f)                                                                       \
    static fxi_exit_handler f##_handler = {.run = (f)};                                            \
    __attribute__((constructor)) static void f##_register(void)                                    \
    {                                                                                              \
        (void)fxi_process_on_exit(&f##_handler);                                                   \
    }                                                                                              \
    _Static_assert(1, "")
#else
#define FXI_STOPS_THREADS(f)                                                                       \
    __attribute__((destructor)) static void f##_at_end(void)                                       \
    {                                                                                              \
        (f)();                                                                                     \
    }                                                                                              \
    _Static_assert(1, "")
#endif

/* Calls the handler when the calling thread ends. If the thread calls exit, the handler runs before
 * all exit handlers (not on Windows). A system without handlers for threads never calls it. */
void fxi_process_on_thread_end(fxi_exit_handler *handler);

#endif
