/* ahead.c: threads make items in advance and hand them out in order: see ahead.h.
 *
 * Threads claim item numbers in order. Item k uses entry k mod nentries, and may be claimed when
 * item k − nentries has been taken. So an entry holds one item at a time, and the thread that
 * claimed it works without the lock. There are one mutex and two conditions: `ready` wakes the
 * taker, `space` wakes the threads. Error records belong to threads, so an entry keeps the error
 * recorded while its item was made, and the call that takes the item records it again. After a
 * failure no further item is begun.
 */
#include "ahead.h"
#include "error.h"
#include "memory.h"
#include "thread.h"

#include <string.h>

typedef struct entry {
    bool ready;
    void *item;
    fx_error error;
} entry;

struct fxi_ahead {
    fxi_ahead_spec spec;
    entry *entries;
    int64_t nentries;
    fxi_thread *threads;
    int nthreads;
    fxi_mutex lock; /* guards the members below, and entry.ready */
    fxi_cond ready, space;
    int64_t claimed, taken;
    bool stop;
};

static void *run(void *argument)
{
    fxi_ahead *a = argument;
    fxi_mutex_lock(&a->lock);
    while (!a->stop && a->claimed < a->spec.count) {
        if (a->claimed >= a->taken + a->nentries) {
            fxi_cond_wait(&a->space, &a->lock);
            continue;
        }
        const int64_t k = a->claimed++;
        entry *s = &a->entries[k % a->nentries];
        fxi_mutex_unlock(&a->lock);
        s->item = a->spec.make(a->spec.user, k);
        s->error = fx_error_take();
        fxi_mutex_lock(&a->lock);
        s->ready = true;
        a->stop = a->stop || !s->item;
        fxi_cond_wake_one(&a->ready);
    }
    fxi_mutex_unlock(&a->lock);
    return NULL;
}

static int start_threads(fxi_ahead *a, int n)
{
    int failed = 0;
    while (a->nthreads < n && !failed) {
        failed = fxi_thread_start(&a->threads[a->nthreads], run, a);
        a->nthreads += !failed;
    }
    return failed;
}

/* If fewer threads than requested can be started, the queue is only slower; if none can, it is an
 * error.
 */
static fx_status start(fxi_ahead *a)
{
    const int64_t count = a->spec.count;
    const int n = count < a->spec.threads ? (int)count : a->spec.threads;
    if (n == 0)
        return FX_OK;
    a->nentries = 2 * (int64_t)n;
    a->threads = fxi_calloc((size_t)n, sizeof *a->threads);
    a->entries = fxi_calloc((size_t)a->nentries, sizeof *a->entries);
    if (!a->threads || !a->entries)
        return fx_fail(FX_STATUS_MEMORY, "dataloader", "out of memory for %d workers", n);
    const int failed = start_threads(a, n);
    return a->nthreads ? FX_OK
                       : fx_fail(FX_STATUS_MEMORY, "dataloader", "no worker could be started: %s",
                                 strerror(failed));
}

fxi_ahead *fxi_ahead_start(const fxi_ahead_spec *spec)
{
    fxi_ahead *a = fxi_calloc(1, sizeof *a);
    if (!a) {
        fx_fail(FX_STATUS_MEMORY, "dataloader", "out of memory");
        return NULL;
    }
    a->spec = *spec;
    fxi_mutex_init(&a->lock);
    fxi_cond_init(&a->ready);
    fxi_cond_init(&a->space);
    if (start(a) == FX_OK)
        return a;
    fxi_ahead_stop(a);
    return NULL;
}

/* Takes item number `taken` if a thread made it; waits while a thread may still make it. */
static bool take_prepared(fxi_ahead *a, entry *out)
{
    if (!a->entries)
        return false;
    fxi_mutex_lock(&a->lock);
    entry *s = &a->entries[a->taken % a->nentries];
    while (!s->ready && a->nthreads > 0)
        fxi_cond_wait(&a->ready, &a->lock);
    const bool ready = s->ready;
    if (ready) {
        *out = *s;
        s->item = NULL;
        s->ready = false;
        a->taken++;
        fxi_cond_wake_one(&a->space);
    }
    fxi_mutex_unlock(&a->lock);
    return ready;
}

void *fxi_ahead_take(fxi_ahead *a)
{
    entry s;
    if (!take_prepared(a, &s))
        return a->spec.make(a->spec.user, a->taken++);
    fxi_error_carry(&s.error);
    return s.item;
}

void fxi_ahead_stop(fxi_ahead *a)
{
    if (!a)
        return;
    fxi_mutex_lock(&a->lock);
    a->stop = true;
    fxi_cond_wake_all(&a->space);
    fxi_mutex_unlock(&a->lock);
    for (int i = 0; i < a->nthreads; i++)
        fxi_thread_join(a->threads[i]);
    for (int64_t i = 0; a->entries && i < a->nentries; i++)
        if (a->entries[i].ready && a->entries[i].item)
            a->spec.drop(a->entries[i].item);
    fxi_cond_destroy(&a->space);
    fxi_cond_destroy(&a->ready);
    fxi_mutex_destroy(&a->lock);
    fxi_free(a->entries);
    fxi_free(a->threads);
    fxi_free(a);
}

/* ---- forks ----------------------------------------------------------------------------------- */

void fxi_ahead_freeze(fxi_ahead *a)
{
    fxi_mutex_lock(&a->lock);
}

void fxi_ahead_thaw(fxi_ahead *a)
{
    fxi_mutex_unlock(&a->lock);
}

/* In the child of a fork: the threads are gone. Items that they were making are made again by
 * fxi_ahead_take. */
void fxi_ahead_alone(fxi_ahead *a)
{
    a->nthreads = 0;
    fxi_cond_init(&a->ready);
    fxi_cond_init(&a->space);
    fxi_mutex_unlock(&a->lock);
}
