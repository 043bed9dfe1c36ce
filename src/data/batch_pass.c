/* batch_pass.c: prefetching.
 *
 * 2·workers slots bound what is prepared ahead. Workers claim batch numbers in order; batch k lives
 * in slot k mod nslots and may be claimed once batch k − nslots was taken, so a slot has one batch
 * at a time and whoever claimed the batch writes it without the lock. One mutex, two conditions:
 * `ready` wakes the taker, `space` the workers. A worker records no error (records belong to
 * threads): it leaves its status in the slot for the call that waits. All signals are blocked in
 * workers, so that a program's handlers run on its own threads.
 */
#include "batch_pass.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "lend.h"

typedef struct slot {
    bool ready;
    fx_status status;
    void **blocks; /* nsources of them */
} slot;

struct fxi_pass {
    fxi_pass_spec spec;
    slot *slots;
    int64_t nslots;
    void **all_blocks; /* the slots' block lists, in one allocation */
    pthread_t *threads;
    int nthreads;
    pthread_mutex_t lock; /* guards what follows, and slot.ready */
    pthread_cond_t ready, space;
    int64_t claimed, taken; /* batches */
    bool stop;
};

int64_t fxi_pass_batch_size(const fxi_pass *pass, int64_t k)
{
    const int64_t left = pass->spec.n - k * pass->spec.batchsize;
    return left < pass->spec.batchsize ? left : pass->spec.batchsize;
}

static void free_blocks(void **blocks, int n)
{
    for (int i = 0; i < n; i++) {
        fxi_free(blocks[i]);
        blocks[i] = NULL;
    }
}

static void gather_source(const fxi_source *src, const int64_t *order, int64_t start, int64_t count,
                          unsigned char *dst)
{
    if (!order) {
        memcpy(dst, src->bytes + (size_t)start * src->obs_bytes, (size_t)count * src->obs_bytes);
        return;
    }
    for (int64_t i = 0; i < count; i++, dst += src->obs_bytes)
        memcpy(dst, src->bytes + (size_t)order[start + i] * src->obs_bytes, src->obs_bytes);
}

static fx_status make_batch(const fxi_pass *pass, int64_t k, void **blocks)
{
    const fxi_pass_spec *spec = &pass->spec;
    const int64_t count = fxi_pass_batch_size(pass, k);
    memset(blocks, 0, (size_t)spec->nsources * sizeof *blocks);
    for (int i = 0; i < spec->nsources; i++) {
        const fxi_source *src = &spec->sources[i];
        blocks[i] = fxi_lend_alloc((size_t)count * src->obs_bytes);
        if (!blocks[i]) {
            free_blocks(blocks, i);
            return FX_STATUS_MEMORY;
        }
        if (src->obs_bytes)
            gather_source(src, spec->order, k * spec->batchsize, count, blocks[i]);
    }
    return FX_OK;
}

static void *worker(void *argument)
{
    fxi_pass *pass = argument;
    pthread_mutex_lock(&pass->lock);
    while (!pass->stop && pass->claimed < pass->spec.nbatches) {
        if (pass->claimed >= pass->taken + pass->nslots) {
            pthread_cond_wait(&pass->space, &pass->lock);
            continue;
        }
        const int64_t k = pass->claimed++;
        slot *s = &pass->slots[k % pass->nslots];
        pthread_mutex_unlock(&pass->lock);
        const fx_status status = make_batch(pass, k, s->blocks);
        pthread_mutex_lock(&pass->lock);
        s->status = status;
        s->ready = true;
        pthread_cond_signal(&pass->ready);
    }
    pthread_mutex_unlock(&pass->lock);
    return NULL;
}

static int start_threads(fxi_pass *pass, int n)
{
    sigset_t all, old;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (pass->nthreads < n && !failed) {
        failed = pthread_create(&pass->threads[pass->nthreads], NULL, worker, pass);
        pass->nthreads += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

/* Fewer threads than asked for change nothing but the speed; none at all is an error. */
static fx_status start_workers(fxi_pass *pass)
{
    const fxi_pass_spec *spec = &pass->spec;
    const int n = spec->nbatches < spec->workers ? (int)spec->nbatches : spec->workers;
    pass->nslots = 2 * (int64_t)n;
    pass->threads = fxi_calloc((size_t)n, sizeof *pass->threads);
    pass->slots = fxi_calloc((size_t)pass->nslots, sizeof *pass->slots);
    pass->all_blocks =
        fxi_calloc((size_t)pass->nslots, (size_t)spec->nsources * sizeof *pass->all_blocks);
    if (!pass->threads || !pass->slots || !pass->all_blocks)
        return fx_fail(FX_STATUS_MEMORY, "dataloader", "out of memory for %d workers", n);
    for (int64_t i = 0; i < pass->nslots; i++)
        pass->slots[i].blocks = pass->all_blocks + i * spec->nsources;
    const int failed = start_threads(pass, n);
    return pass->nthreads ? FX_OK
                          : fx_fail(FX_STATUS_MEMORY, "dataloader",
                                    "no worker could be started: %s", strerror(failed));
}

fxi_pass *fxi_pass_start(const fxi_pass_spec *spec)
{
    fxi_pass *pass = fxi_calloc(1, sizeof *pass);
    if (!pass) {
        fx_fail(FX_STATUS_MEMORY, "dataloader", "out of memory");
        return NULL;
    }
    pass->spec = *spec;
    pthread_mutex_init(&pass->lock, NULL);
    pthread_cond_init(&pass->ready, NULL);
    pthread_cond_init(&pass->space, NULL);
    if (spec->workers > 0 && spec->nbatches > 0 && start_workers(pass) != FX_OK) {
        fxi_pass_stop(pass);
        return NULL;
    }
    return pass;
}

static fx_status take_prepared(fxi_pass *pass, void **blocks)
{
    pthread_mutex_lock(&pass->lock);
    slot *s = &pass->slots[pass->taken % pass->nslots];
    while (!s->ready)
        pthread_cond_wait(&pass->ready, &pass->lock);
    const fx_status status = s->status;
    const size_t bytes = (size_t)pass->spec.nsources * sizeof *blocks;
    memcpy(blocks, s->blocks, bytes);
    memset(s->blocks, 0, bytes);
    s->ready = false;
    pass->taken++;
    pthread_cond_signal(&pass->space);
    pthread_mutex_unlock(&pass->lock);
    return status;
}

fx_status fxi_pass_take(fxi_pass *pass, void **blocks)
{
    return pass->nthreads ? take_prepared(pass, blocks) : make_batch(pass, pass->taken++, blocks);
}

void fxi_pass_stop(fxi_pass *pass)
{
    if (!pass)
        return;
    pthread_mutex_lock(&pass->lock);
    pass->stop = true;
    pthread_cond_broadcast(&pass->space);
    pthread_mutex_unlock(&pass->lock);
    for (int i = 0; i < pass->nthreads; i++)
        pthread_join(pass->threads[i], NULL);
    for (int64_t i = 0; pass->all_blocks && i < pass->nslots; i++)
        free_blocks(pass->all_blocks + i * pass->spec.nsources, pass->spec.nsources);
    pthread_cond_destroy(&pass->space);
    pthread_cond_destroy(&pass->ready);
    pthread_mutex_destroy(&pass->lock);
    fxi_free(pass->all_blocks);
    fxi_free(pass->slots);
    fxi_free(pass->threads);
    fxi_free(pass);
}
