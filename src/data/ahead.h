/* ahead.h: threads make items in advance and hand them out in order. Internal to src/data.
 *
 * With n threads at most 2n items are ready or in progress; one thread gives a double buffer. An
 * item depends only on its number, so the output does not depend on the number of threads or on
 * their timing.
 */
#ifndef CFLUX_AHEAD_H
#define CFLUX_AHEAD_H

#include <cflux/base.h>

typedef struct fxi_ahead_spec {
    /* Makes item k; NULL on failure (recorded). */
    void *(*make)(void *user, int64_t k);
    void (*drop)(void *item); /* frees an item that was never taken */
    void *user;               /* must outlive the queue */
    int64_t count;
    int threads; /* 0: each item is made when it is taken */
} fxi_ahead_spec;

typedef struct fxi_ahead fxi_ahead;

/* NULL if out of memory or threads (recorded). */
fxi_ahead *fxi_ahead_start(const fxi_ahead_spec *spec);
/* Returns the next item, which the caller then owns; waits for the thread that makes it. An error
 * recorded while the item was made is recorded in the calling thread; then the result is NULL. Must
 * not be called again after NULL or `count` items: it would wait forever. */
void *fxi_ahead_take(fxi_ahead *ahead);
/* Stops and joins the threads and frees the items that were never taken. NULL is allowed. */
void fxi_ahead_stop(fxi_ahead *ahead);

/* Handlers for a fork: freeze before it, thaw after it in the parent, alone after it in the child.
 * The child has no threads, so there fxi_ahead_take makes the missing items itself. */
void fxi_ahead_freeze(fxi_ahead *ahead);
void fxi_ahead_thaw(fxi_ahead *ahead);
void fxi_ahead_alone(fxi_ahead *ahead);

#endif
