/* evaluate.h: evaluation of pending values, and commits of new ones. Internal. */
#ifndef CFLUX_EVALUATE_H
#define CFLUX_EVALUATE_H

#include "context.h"

/* Evaluates nodes of this thread in one plan. */
fx_status fxi_evaluate(fxi_context *c, int n, fxi_node *const *nodes);
/* The same through a handle. */
fx_status fxi_evaluate_array(fx_array *x);
/* Replaces the values of n handles: evaluates the new values, promises (fx_want, fx_set, fx_stage),
 * the guard and, if sinks, pending results that read what is replaced, in one plan; then each
 * handle holds its new value. A guard (0-d Bool) that turns out false gives FX_STATUS_NONFINITE:
 * the caller's values must then be the old ones. On error nothing changes and staged state is
 * dropped. */
fx_status fxi_commit(int n, fx_array *const *handles, fx_array *const *values, fx_array *guard,
                     bool sinks);
/* Memory is out: see fxi_evaluator. */
fx_status fxi_make_room(fx_device *device);
/* Frees what a thread's evaluator keeps. */
void fxi_scratch_free(fxi_context *c);
/* Frees everything that is kept for speed: the calling thread's scratch and cached memory, all
 * cached plans. For tests that count allocations. */
void fxi_drain(void);

#endif
