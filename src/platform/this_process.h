/* this_process.h: the process: its number and environment, its forks and its end. Internal.
 */
#ifndef CFLUX_THIS_PROCESS_H
#define CFLUX_THIS_PROCESS_H

#include <stdbool.h>

long fxi_process_id(void);

/* The value of an environment variable; NULL if it is not set, or if the program has more rights
 * than the user who started it. */
const char *fxi_trusted_variable(const char *name);

/* Calls the functions around every fork: `before` in the process that forks, then the others. Each
 * may be NULL. False: no memory. A system without fork calls none. */
bool fxi_process_on_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));

/* A handler for the end of the process by exit, which calls handlers in the opposite order of their
 * registration. Such a struct must last until then. */
typedef struct fxi_exit_handler {
    void (*run)(void);
    char handles[2]; /* of the two registrations that there are while it is moved */
    int newest;
} fxi_exit_handler;

/* Registers the handler, or moves it, so that it is the next one that exit calls. False: no memory.
 * One thread at a time may call it for a handler. */
bool fxi_process_on_exit(fxi_exit_handler *handler);

/* Calls the handler when the calling thread ends, also when it ends by exit; then before all
 * handlers of exit. A system without such handlers does not call it. */
void fxi_process_on_thread_end(fxi_exit_handler *handler);

#endif
