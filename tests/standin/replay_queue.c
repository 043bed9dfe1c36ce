/* replay_queue.c: the work queues of the stand-in Replay: see replay_queue.h. */
#include "replay_queue.h"

#include <string.h>

enum { MOST_JOBS = 4096 };

/* Waiting work, the oldest first. */
typedef struct queue {
    replay_job *first, **end;
    int n;
} queue;

typedef struct lanes {
    queue queue[REPLAY_LANES];
    replay_lane last; /* lane of the latest job */
} lanes;

struct replay_mark {
    queue *queue;
    int refs;
    bool reached;
};

/* A job that sets or waits for a mark. */
typedef struct mark_job {
    replay_job job;
    replay_mark *mark;
} mark_job;

const fx_host *replay_host;
pthread_mutex_t replay_lock = PTHREAD_MUTEX_INITIALIZER;
static lanes devices[REPLAY_DEVICES];
static int64_t marks;

void replay_queues_open(const fx_host *host)
{
    replay_host = host;
    for (int i = 0; i < REPLAY_DEVICES; i++)
        for (int k = 0; k < REPLAY_LANES; k++)
            devices[i].queue[k].end = &devices[i].queue[k].first;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void drop_nothing(replay_job *job)
{
    (void)job;
}

void *replay_job_new(fx_device *device, size_t bytes, void (*act)(replay_job *job))
{
    replay_job *job = replay_host->alloc(bytes);
    if (!job)
        return NULL;
    memset(job, 0, bytes);
    *job = (replay_job){.device = device, .act = act, .drop = drop_nothing};
    return job;
}

static void do_first(queue *q)
{
    replay_job *job = q->first;
    q->first = job->next;
    if (!q->first)
        q->end = &q->first;
    q->n--;
    job->act(job);
    job->drop(job);
    replay_host->free(job);
}

static void append(queue *q, replay_job *job)
{
    *q->end = job;
    q->end = &job->next;
    q->n++;
}

/* Draining the queue of the latest job is enough: a mark in it waits for the other queue's work. */
void replay_drain(const fx_device *device)
{
    lanes *l = &devices[device->id];
    while (l->queue[l->last].first)
        do_first(&l->queue[l->last]);
}

void replay_enter(replay_lane lane, replay_job *job)
{
    lanes *l = &devices[job->device->id];
    if (lane != l->last && l->queue[l->last].first) {
        replay_mark *before = replay_mark_new(job->device);
        l->last = lane;
        if (!before || !replay_follow(job->device, before)) {
            l->last = (replay_lane)!lane;
            replay_drain(job->device);
        }
        if (before)
            replay_mark_drop(before);
    }
    l->last = lane;
    append(&l->queue[lane], job);
    if (l->queue[lane].n > MOST_JOBS)
        replay_drain(job->device);
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void reach(replay_job *job)
{
    ((mark_job *)job)->mark->reached = true;
}

static void wait_for(replay_job *job)
{
    const replay_mark *m = ((mark_job *)job)->mark;
    while (!m->reached)
        do_first(m->queue);
}

static void drop_mark(replay_job *job)
{
    replay_mark_drop(((mark_job *)job)->mark);
}

void replay_mark_drop(replay_mark *mark)
{
    if (--mark->refs > 0)
        return;
    marks--;
    replay_host->free(mark);
}

int64_t replay_marks(void)
{
    return marks;
}

/* Adds the mark to the queue with the latest job. */
static bool enter_mark(fx_device *device, replay_mark *mark, void (*act)(replay_job *job))
{
    lanes *l = &devices[device->id];
    mark_job *job = replay_job_new(device, sizeof *job, act);
    if (!job)
        return false;
    job->job.drop = drop_mark;
    job->mark = mark;
    mark->refs++;
    append(&l->queue[l->last], &job->job);
    return true;
}

replay_mark *replay_mark_new(fx_device *device)
{
    lanes *l = &devices[device->id];
    replay_mark *mark = replay_host->alloc(sizeof *mark);
    if (!mark)
        return NULL;
    *mark = (replay_mark){.queue = &l->queue[l->last], .refs = 1};
    marks++;
    if (enter_mark(device, mark, reach))
        return mark;
    replay_mark_drop(mark);
    return NULL;
}

bool replay_follow(fx_device *device, replay_mark *mark)
{
    return mark->reached || enter_mark(device, mark, wait_for);
}
