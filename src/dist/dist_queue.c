/* dist_queue.c: operations that run beside the steps of a plan, in a thread of the group.
 *
 * MPI makes progress only inside its functions, so a nonblocking operation alone would not continue
 * until a function of MPI is called. In device memory, a host must wait for the operation, which
 * only another thread can do while the plan continues. The thread runs one operation after the
 * other, exactly as fxi_dist_run and fxi_dist_run_on do: the order, the bits, the messages and the
 * time limit are the same.
 *
 * All members must run the same operations. If one fails, it fails on all members, but some may
 * have begun more of the plan's operations than others. Therefore those begun after it fail with
 * the same message, without being run, until the plan finishes the operation that failed and learns
 * of the failure. A process that ends refuses the operations that wait (dist_leave.c).
 */
#include "dist_group.h"

#include "clock.h"
#include "memory.h"
#include "this_process.h"
#include "timeline.h"

#include <stdio.h>

typedef struct fxi_dist_ticket {
    const fx_step *step;
    const void *in;
    void *out;
    bool on_device; /* in device memory */
    fx_device_queue queue;
    fx_status status;
    bool ended, failed_first;
    char why[FXI_DIST_WHY];
    struct fxi_dist_ticket *next; /* the operation begun after it; not read after this one has begun
                                     to run */
} ticket;

/* Ends an operation without running it, because an earlier one has failed. */
static void drop(const fxi_dist_queue *q, ticket *t)
{
    if (t->on_device)
        t->queue.forget(&t->queue);
    t->status = q->failed;
    snprintf(t->why, sizeof t->why, "%s", q->why);
    t->ended = true;
}

static void count_unfinished(fxi_dist_queue *q, int more)
{
    __atomic_add_fetch(&q->unfinished, more, __ATOMIC_SEQ_CST);
}

/* Notes that t has run, with the lock held. */
static void ended(fxi_dist_queue *q, ticket *t)
{
    int n = 1;
    t->ended = true;
    __atomic_store_n(&q->running, false, __ATOMIC_RELAXED);
    if (t->status != FX_OK) {
        t->failed_first = true;
        q->failed = t->status;
        snprintf(q->why, sizeof q->why, "%s", t->why);
        for (; q->head; q->head = q->head->next, n++)
            drop(q, q->head);
    }
    count_unfinished(q, -n);
    fxi_cond_wake_all(&q->changed);
}

/* After a failure, work that was queued may still use the memory, which the plan will free: waits
 * for it, but not for ever. */
static void wait_after_failure(const fx_dist *d, const fx_device_queue *queue)
{
    char unused[FXI_DIST_REASON];
    const double begin = fxi_clock();
    while (queue->pending(queue, unused, sizeof unused) == 1 && fxi_clock() - begin < d->limit)
        fxi_sleep_milliseconds(1);
}

/* Takes part in the operation only to tell the other members that it fails here. */
static void refuse(const fx_dist *d, ticket *t, fx_status status, const char *reason)
{
    const fxi_dist_move how = {
        .queue = t->on_device ? &t->queue : NULL, .refuses = status, .reason = reason};
    t->status = fxi_dist_step(&d->communicator, t->step, how, t->why, sizeof t->why);
}

/* The plan reads the result in another queue, so copies of the result must have ended before. */
static void run_on_device(const fx_dist *d, ticket *t)
{
    const fx_device_queue *queue = &t->queue;
    char reason[FXI_DIST_REASON] = "";
    if (queue->enter(queue, reason, sizeof reason) != 0) {
        refuse(d, t, FX_STATUS_DEVICE, reason);
        return;
    }
    t->status =
        fxi_dist_run_on_now(&d->communicator, queue, t->step, t->in, t->out, t->why, sizeof t->why);
    if (t->status == FX_OK)
        t->status = fxi_dist_wait_for_own_work(queue, t->why, sizeof t->why);
    else
        wait_after_failure(d, queue);
    queue->leave(queue);
}

static void run_in_host_memory(const fx_dist *d, ticket *t)
{
    t->status = fxi_dist_run_now(&d->communicator, t->step, t->in, t->out, t->why, sizeof t->why);
}

/* The process ends before the plan has read the result. */
static void refuse_at_exit(const fx_dist *d, ticket *t)
{
    if (t->on_device)
        t->queue.forget(&t->queue);
    refuse(d, t, FX_STATUS_STATE, "its program ended during an evaluation");
}

static void *run_operations(void *group)
{
    fx_dist *d = group;
    fxi_dist_queue *q = &d->queue;
    fxi_mutex_lock(&q->lock);
    for (;;) {
        while (!q->head && !q->ends)
            fxi_cond_wait(&q->changed, &q->lock);
        ticket *t = q->head;
        if (!t)
            break;
        q->head = t->next;
        __atomic_store_n(&q->running, true, __ATOMIC_RELAXED);
        fxi_mutex_unlock(&q->lock);
        if (fxi_dist_refuses(d))
            refuse_at_exit(d, t);
        else if (t->on_device)
            run_on_device(d, t);
        else
            run_in_host_memory(d, t);
        fxi_mutex_lock(&q->lock);
        ended(q, t);
    }
    fxi_mutex_unlock(&q->lock);
    return NULL;
}

/* Starts the thread, once. False: it cannot be started, or this process is a child (fork) of the
 * one that started it. */
static bool started(fx_dist *d)
{
    fxi_dist_queue *q = &d->queue;
    const long process = fxi_process_id();
    if (q->process == 0 && fxi_thread_start(&q->thread, run_operations, d) == 0)
        q->process = process;
    return q->process == process;
}

static void *begin(fx_dist *d, const ticket *what)
{
    fxi_dist_queue *q = &d->queue;
    ticket *t = fxi_malloc(sizeof *t);
    if (!t)
        return NULL;
    *t = *what;
    fxi_mutex_lock(&q->lock);
    const bool ok = !fxi_dist_refuses(d) && started(d);
    if (ok && q->failed != FX_OK) {
        drop(q, t);
    } else if (ok) {
        count_unfinished(q, 1);
        *(q->head ? &q->tail->next : &q->head) = t;
        q->tail = t;
        fxi_cond_wake_all(&q->changed);
    }
    fxi_mutex_unlock(&q->lock);
    if (!ok)
        fxi_free(t);
    return ok ? t : NULL;
}

void *fxi_dist_operation_begin(const fx_communicator *self, const fx_step *step, const void *in,
                               void *out)
{
    return begin((fx_dist *)(uintptr_t)self->user, &(ticket){.step = step, .in = in, .out = out});
}

void *fxi_dist_operation_begin_on(const fx_communicator *self, const fx_device_queue *queue,
                                  const fx_step *step, const void *in, void *out)
{
    fx_dist *d = (fx_dist *)(uintptr_t)self->user;
    const ticket what = {.step = step, .in = in, .out = out, .on_device = true, .queue = *queue};
    return fxi_dist_begins_on(d, queue, step) ? begin(d, &what) : NULL;
}

fx_status fxi_dist_operation_finish(const fx_communicator *self, void *begun, char *why,
                                    size_t size)
{
    fxi_dist_queue *q = &((fx_dist *)(uintptr_t)self->user)->queue;
    ticket *t = begun;
    fxi_mutex_lock(&q->lock);
    const int64_t began = t->ended ? 0 : fxi_timeline_now();
    while (!t->ended)
        fxi_cond_wait(&q->changed, &q->lock);
    if (t->failed_first)
        q->failed = FX_OK;
    fxi_mutex_unlock(&q->lock);
    fxi_timeline_event(FXI_ROW_THREAD, "waiting", "wait for communication", began);
    const fx_status status = t->status;
    snprintf(why, size, "%s", t->why);
    fxi_free(t);
    return status;
}

fx_status fxi_dist_queue_empty(fx_dist *d, char *why, size_t size)
{
    fxi_dist_queue *q = &d->queue;
    fxi_mutex_lock(&q->lock);
    while ((q->head || q->running) && q->process == fxi_process_id())
        fxi_cond_wait(&q->changed, &q->lock);
    const fx_status failed = q->failed;
    if (failed != FX_OK)
        snprintf(why, size, "%s", q->why);
    fxi_mutex_unlock(&q->lock);
    return failed;
}

fx_status fxi_dist_run(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                       char *why, size_t size)
{
    const fx_status failed = fxi_dist_queue_empty((fx_dist *)(uintptr_t)self->user, why, size);
    return failed == FX_OK ? fxi_dist_run_now(self, step, in, out, why, size) : failed;
}

bool fxi_dist_queue_init(fx_dist *d)
{
    fxi_mutex_init(&d->queue.lock);
    return fxi_cond_init(&d->queue.changed);
}

void fxi_dist_queue_end(fx_dist *d)
{
    fxi_dist_queue *q = &d->queue;
    fxi_mutex_lock(&q->lock);
    q->ends = true;
    fxi_cond_wake_all(&q->changed);
    fxi_mutex_unlock(&q->lock);
    if (q->process != 0)
        fxi_thread_join(q->thread);
    fxi_cond_destroy(&q->changed);
    fxi_mutex_destroy(&q->lock);
}
