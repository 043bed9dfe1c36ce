/* ahead.c: see ahead.h.
 *
 * Threads claim numbers in order; thing k lives in slot k mod nslots and may be claimed once thing
 * k − nslots was taken, so a slot has one thing at a time and whoever claimed it works without the
 * lock. One mutex, two conditions: `ready` wakes the taker, `space` the threads. Records of errors
 * belong to threads: a slot keeps what was recorded while its thing was made, for the call that
 * takes it. After a failure nothing more is begun. All signals are blocked in the threads, so that
 * a program's handlers run on its own.
 */
#include "ahead.h"
#include "error.h"
#include "memory.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

typedef struct slot {
    bool ready;
    void *thing;
    fx_error error;
} slot;

struct fxi_ahead {
    fxi_ahead_spec spec;
    slot *slots;
    int64_t nslots;
    pthread_t *threads;
    int nthreads;
    pthread_mutex_t lock; /* guards what follows, and slot.ready */
    pthread_cond_t ready, space;
    int64_t claimed, taken;
    bool stop;
};

static void *run(void *argument)
{
    fxi_ahead *a = argument;
    pthread_mutex_lock(&a->lock);
    while (!a->stop && a->claimed < a->spec.count) {
        if (a->claimed >= a->taken + a->nslots) {
            pthread_cond_wait(&a->space, &a->lock);
            continue;
        }
        const int64_t k = a->claimed++;
        slot *s = &a->slots[k % a->nslots];
        pthread_mutex_unlock(&a->lock);
        s->thing = a->spec.make(a->spec.user, k);
        s->error = fx_error_take();
        pthread_mutex_lock(&a->lock);
        s->ready = true;
        a->stop = a->stop || !s->thing;
        pthread_cond_signal(&a->ready);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static int start_threads(fxi_ahead *a, int n)
{
    sigset_t all, old;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (a->nthreads < n && !failed) {
        failed = pthread_create(&a->threads[a->nthreads], NULL, run, a);
        a->nthreads += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

/* Fewer threads than asked for change nothing but the speed; none at all is an error. */
static fx_status start(fxi_ahead *a)
{
    const int64_t count = a->spec.count;
    const int n = count < a->spec.threads ? (int)count : a->spec.threads;
    if (n == 0)
        return FX_OK;
    a->nslots = 2 * (int64_t)n;
    a->threads = fxi_calloc((size_t)n, sizeof *a->threads);
    a->slots = fxi_calloc((size_t)a->nslots, sizeof *a->slots);
    if (!a->threads || !a->slots)
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
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->ready, NULL);
    pthread_cond_init(&a->space, NULL);
    if (start(a) == FX_OK)
        return a;
    fxi_ahead_stop(a);
    return NULL;
}

/* Thing number `taken` if it is made or in the making. */
static bool take_prepared(fxi_ahead *a, slot *out)
{
    if (!a->slots)
        return false;
    pthread_mutex_lock(&a->lock);
    slot *s = &a->slots[a->taken % a->nslots];
    while (!s->ready && a->nthreads > 0)
        pthread_cond_wait(&a->ready, &a->lock);
    const bool ready = s->ready;
    if (ready) {
        *out = *s;
        s->thing = NULL;
        s->ready = false;
        a->taken++;
        pthread_cond_signal(&a->space);
    }
    pthread_mutex_unlock(&a->lock);
    return ready;
}

void *fxi_ahead_take(fxi_ahead *a)
{
    slot s;
    if (!take_prepared(a, &s))
        return a->spec.make(a->spec.user, a->taken++);
    fxi_error_put(&s.error);
    return s.thing;
}

void fxi_ahead_stop(fxi_ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->space);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->nthreads; i++)
        pthread_join(a->threads[i], NULL);
    for (int64_t i = 0; a->slots && i < a->nslots; i++)
        if (a->slots[i].ready && a->slots[i].thing)
            a->spec.drop(a->slots[i].thing);
    pthread_cond_destroy(&a->space);
    pthread_cond_destroy(&a->ready);
    pthread_mutex_destroy(&a->lock);
    fxi_free(a->slots);
    fxi_free(a->threads);
    fxi_free(a);
}

/* ---- forks ----------------------------------------------------------------------------------- */

void fxi_ahead_freeze(fxi_ahead *a)
{
    pthread_mutex_lock(&a->lock);
}

void fxi_ahead_thaw(fxi_ahead *a)
{
    pthread_mutex_unlock(&a->lock);
}

/* What a thread was in the middle of is lost with it, and made again when it is taken. */
void fxi_ahead_alone(fxi_ahead *a)
{
    a->nthreads = 0;
    pthread_cond_init(&a->ready, NULL);
    pthread_cond_init(&a->space, NULL);
    pthread_mutex_unlock(&a->lock);
}
