/* ahead.h: things made ahead of use by threads, and handed out in order. Internal to src/data.
 *
 * With n threads at most 2n things are ready or in the making; with one thread that is a double
 * buffer. What a thing is depends on its number alone, so neither the number of threads nor their
 * timing shows in what is handed out.
 */
#ifndef CFLUX_AHEAD_H
#define CFLUX_AHEAD_H

#include <cflux/base.h>

typedef struct fxi_ahead_spec {
    /* Thing k. NULL: it could not be made, for the reason that is recorded. */
    void *(*make)(void *user, int64_t k);
    void (*drop)(void *thing); /* what nobody took */
    void *user;                /* outlives the queue */
    int64_t count;
    int threads; /* 0: everything is made when it is taken */
} fxi_ahead_spec;

typedef struct fxi_ahead fxi_ahead;

/* NULL, recorded, when memory or threads are out. */
fxi_ahead *fxi_ahead_start(const fxi_ahead_spec *spec);
/* The next thing, now the caller's; waits for the thread that has it. What was recorded while it
 * was made is recorded in the calling thread; NULL: that is why there is no thing. */
void *fxi_ahead_take(fxi_ahead *ahead);
/* Stops and joins the threads and drops what nobody took. NULL is allowed. */
void fxi_ahead_stop(fxi_ahead *ahead);

/* Around a fork: before it; after it in the parent; after it in the child, whose threads are gone
 * and who makes what is missing itself. */
void fxi_ahead_freeze(fxi_ahead *ahead);
void fxi_ahead_thaw(fxi_ahead *ahead);
void fxi_ahead_alone(fxi_ahead *ahead);

#endif
