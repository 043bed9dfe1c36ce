/* replay_queue.h: the queues of the stand-in Replay (replay.h). Internal to the plugin. All
 * functions require replay_lock. */
#ifndef CFLUX_TEST_REPLAY_QUEUE_H
#define CFLUX_TEST_REPLAY_QUEUE_H

#include <cflux/backend.h>
#include <pthread.h>

enum { REPLAY_DEVICES = 8 };
typedef enum replay_lane { REPLAY_WORK, REPLAY_TRANSFERS, REPLAY_LANES } replay_lane;

/* A piece of work. `act` does it and is called once; then `drop` is called. Neither may be NULL. */
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
/* Allocates `bytes` that begin with a job; NULL if out of memory. */
void *replay_job_new(fx_device *device, size_t bytes, void (*act)(replay_job *job));
/* Adds a job after all earlier work of the device. */
void replay_enter(replay_lane lane, replay_job *job);
/* Does all queued work of the device. */
void replay_drain(const fx_device *device);

/* A mark after all earlier work of the device; NULL if out of memory. */
replay_mark *replay_mark_new(fx_device *device);
/* Orders all later work of the device after the mark. False if out of memory. */
bool replay_follow(fx_device *device, replay_mark *mark);
void replay_mark_drop(replay_mark *mark);
/* Number of live marks, including those of the queues. */
int64_t replay_marks(void);

#endif
