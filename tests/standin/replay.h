/* replay.h: the stand-in device that uses all of the interface: plans as a whole, and marks.
 *
 * libcflux-replay.so lies in STANDIN_FOLDER (standin.h, whose script and counters it has too). Its
 * devices do nothing when they are told, and as little as possible later: a device has two queues,
 * one of transfers and one of the rest, whose work is done when something is read, waited for or
 * freed in great number, and of another device only what stands before a mark that is waited for.
 * So an order that no mark makes is broken at once, not one time in a thousand.
 *
 * A plan is captured when it first runs: the addresses of all operands of all steps. Later runs
 * replay them. A run whose addresses differ captures anew. Fresh and freed memory is full of NaN.
 * STANDIN_STALE=N in the environment, or `stale`, makes it forget what N says, so that tests can
 * show that they would notice.
 */
#ifndef CFLUX_TEST_REPLAY_H
#define CFLUX_TEST_REPLAY_H

#include "standin.h"

typedef enum replay_count {
    REPLAY_PLANS,    /* plans that live */
    REPLAY_CAPTURES, /* since the beginning */
    REPLAY_REPLAYS,  /* runs without a capture, since the beginning */
    REPLAY_STEPS,    /* steps that ran by themselves, since the beginning */
    REPLAY_MARKS,    /* marks that live */
    REPLAY_EARLY,    /* steps that were released before their plan */
    REPLAY_COUNTS
} replay_count;

enum {
    REPLAY_STALE_ADDRESSES = 1, /* runs have the addresses of the first one */
    REPLAY_STALE_STREAMS = 2,   /* runs have the random streams of the first one */
    REPLAY_STALE_MARKS = 4      /* nothing waits for a mark of another device */
};

/* What proc("replay") gives. */
typedef struct replay {
    void (*stale)(unsigned which);
    /* What plan_prepare answers from now on. */
    void (*answer)(fx_status status);
    int64_t (*count)(replay_count which);
} replay;

static inline const replay *replay_of(const fx_device *device)
{
    return device->backend->proc ? device->backend->proc("replay") : NULL;
}

#endif
