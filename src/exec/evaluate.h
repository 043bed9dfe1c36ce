/* evaluate.h: evaluation of pending values, and commits of new ones. Internal. */
#ifndef CFLUX_EVALUATE_H
#define CFLUX_EVALUATE_H

#include "context.h"

/* Evaluates nodes of this thread in one plan, or one for each device. */
fx_status fxi_evaluate(fxi_context *c, int n, fxi_node *const *nodes);
/* Evaluates the value of a handle; FX_OK if it is evaluated already and not lost. */
fx_status fxi_evaluate_array(fx_array *x);
/* Runs the latest collective operation of this thread now if it is pending on another device than
 * x. The next operation is recorded on the device of x, so the latest one cannot be its input, but
 * must run before it (ops/collective.c). */
fx_status fxi_run_previous_collective(const fx_array *x);
/* FX_STATUS_SHAPE, recorded, if a new value of the handle has another element type or other sizes;
 * the status of a handle that is an error. */
fx_status fxi_check_value(const fx_array *handle, const fxi_node *value);
/* Replaces the values of n handles. One plan evaluates the new values, the promises (fx_want,
 * fx_set, fx_stage), the guard and, if `sinks`, pending results that read what is replaced; then
 * each handle gets its new value. If the guard (0-d Bool) is false, the status is
 * FX_STATUS_NONFINITE, and the handles still get the values: the caller must have made them so that
 * a false guard selects the old values. After an error before the new values are bound, every
 * handle keeps its old value, which is lost if a step was replacing it in place. Staged state is
 * dropped then; if the evaluation itself failed, all promises are. */
fx_status fxi_commit(int n, fx_array *const *handles, fx_array *const *values, fx_array *guard,
                     bool sinks);
/* fxi_commit for values that need no handles; the caller holds references to their nodes. `made`: a
 * handle of each value, or NULL. */
fx_status fxi_commit_nodes(int n, fx_array *const *handles, fxi_node *const *values,
                           fx_array *const *made, fx_array *guard, bool sinks);
/* Frees caches after an allocation on `device` has failed: see fxi_evaluator. */
fx_status fxi_reclaim_for(fx_device *device);
/* Frees the memory that the evaluator of a thread keeps. */
void fxi_scratch_free(fxi_context *c);
/* Frees all caches: the tapes, the scratch and the cached memory of the calling thread, all plans,
 * and the pools of all devices. For tests that count allocations. */
void fxi_reclaim_all(void);

#endif
