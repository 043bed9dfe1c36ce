/* replay_plan.h: the plans of the stand-in Replay (replay.h). Internal to the plugin. Called under
 * replay_lock. */
#ifndef CFLUX_TEST_REPLAY_PLAN_H
#define CFLUX_TEST_REPLAY_PLAN_H

#include "replay.h"
#include "replay_queue.h"

/* The counters of replay.h, indexed by replay_count. */
extern int64_t replay_counts[REPLAY_COUNTS];
extern unsigned replay_stale;

/* Queues a step. Copies the lists of addresses, which are only valid during the call. */
fx_status replay_launch(fx_device *device, const fx_step *step, const void *const *in, void *out,
                        const fx_run *run);

fx_status replay_plan_prepare(fx_plan *plan);
/* Queues the first n steps. */
fx_status replay_plan_launch(fx_device *device, const fx_plan *plan, void *const *values,
                             const fx_run *run, int32_t n);
void replay_plan_release(fx_plan *plan);
/* Counts the release if the step belongs to a live plan. */
void replay_step_released(const fx_step *step);

/* Returns the error of a queued step of the device, once. False if there is none. */
bool replay_take_error(const fx_device *device, char why[200]);

#endif
