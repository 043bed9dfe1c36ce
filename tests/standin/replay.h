/* replay.h: a stand-in device that uses the whole backend interface, with whole plans and marks.
 *
 * libcflux-replay.so is in STANDIN_FOLDER (see standin.h, whose script and counters it also has).
 * Its devices delay all work as long as possible: a device has two queues, one for transfers and
 * one for the rest. Their work is done when something is read, waited for, or freed in large
 * numbers. Work of another device is done only if it is before a mark that something waits for. So
 * a missing mark fails in every run, not in one of a thousand.
 *
 * A plan is captured at its first run: the addresses of all operands of all steps. Later runs
 * replay the capture; a run with other addresses captures again. New and freed memory is filled
 * with NaN. STANDIN_STALE=N in the environment, or `stale`, switches off the checks that N selects,
 * so that tests can show that they would notice the fault.
 */
#ifndef CFLUX_TEST_REPLAY_H
#define CFLUX_TEST_REPLAY_H

#include "standin.h"

typedef enum replay_count {
    REPLAY_PLANS,    /* live plans */
    REPLAY_CAPTURES, /* captures since the start */
    REPLAY_REPLAYS,  /* runs without a capture, since the start */
    REPLAY_STEPS,    /* steps that ran outside a plan, since the start */
    REPLAY_MARKS,    /* live marks */
    REPLAY_EARLY,    /* number of steps that were released before their plan */
    REPLAY_COUNTS
} replay_count;

enum {
    REPLAY_STALE_ADDRESSES = 1, /* runs use the addresses of the first run */
    REPLAY_STALE_STREAMS = 2,   /* runs use the random streams of the first run */
    REPLAY_STALE_MARKS = 4      /* nothing waits for marks of other devices */
};

/* The result of proc("replay"). */
typedef struct replay {
    void (*stale)(unsigned which);
    /* Sets the result of plan_prepare from now on. */
    void (*answer)(fx_status status);
    int64_t (*count)(replay_count which);
} replay;

static inline const replay *replay_of(const fx_device *device)
{
    return device->backend->proc ? device->backend->proc("replay") : NULL;
}

#endif
