/* replay_queue.h: the queues of the stand-in Replay (replay.h). Internal to the plugin. Everything
 * here is called under replay_lock. */
#ifndef CFLUX_TEST_REPLAY_QUEUE_H
#define CFLUX_TEST_REPLAY_QUEUE_H

#include <cflux/backend.h>
#include <pthread.h>

enum { REPLAY_DEVICES = 8 };
typedef enum replay_lane { REPLAY_WORK, REPLAY_TRANSFERS, REPLAY_LANES } replay_lane;

/* A piece of work. `act` does it; it is called once, and then `drop`. Neither may be NULL. */
typedef struct replay_job replay_job;
struct replay_job {
    replay_job *next;
    fx_device *device;
    void (*act)(replay_job *job);
    void (*drop)(replay_job *job);
};

typedef struct replay_mark replay_mark;

extern const fx_host *replay_host;
extern pthread_mutex_t replay_lock;

void replay_queues_open(const fx_host *host);
/* `bytes` of memory with a job at its beginning; NULL when memory is out. */
void *replay_job_new(fx_device *device, size_t bytes, void (*act)(replay_job *job));
/* Enters a job behind all that the device has been given. */
void replay_enter(replay_lane lane, replay_job *job);
/* Does all that the device has been given. */
void replay_drain(const fx_device *device);

/* Behind all that the device has been given; NULL when memory is out. */
replay_mark *replay_mark_new(fx_device *device);
/* What the device is given from now on comes after the mark. False: memory is out. */
bool replay_follow(fx_device *device, replay_mark *mark);
void replay_mark_drop(replay_mark *mark);
/* Marks that live, those of the queues' own among them. */
int64_t replay_marks(void);

#endif
