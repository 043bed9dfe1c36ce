/* planning.h: plans for the devices of this process, and what the environment wants of them.
 * Internal.
 */
#ifndef CFLUX_PLANNING_H
#define CFLUX_PLANNING_H

#include "plan.h"

/* fxi_graph_build, in the mode that is set. */
fx_status fxi_graph_of(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots);
/* A new plan of a graph, for the backend of its device. */
fx_status fxi_plan_new(const fxi_graph *g, fxi_plan **out_plan);
/* The same from the cache, built if it is not there; the reference is the caller's. */
fx_status fxi_plan_of(const fxi_graph *g, fxi_plan **out_plan);

/* Bytes of host memory that cached plans keep. */
int64_t fxi_plans_bytes(void);
/* Drops all cached plans; only those that no run uses, which count as evicted. */
void fxi_plans_reclaim(void);
void fxi_plans_reclaim_idle(void);

/* FX_EAGER=1: every node is a step of its own, for tests and for finding out where a number comes
 * from. A test can set it for the plans of all threads; it is part of a plan's key. */
bool fxi_eager(void);
void fxi_eager_set(bool wanted);
/* Are new plans checked (fxi_plan_check)? Default: only in builds with CFLUX_DEBUG_CHECKS. */
bool fxi_plans_checked(void);
void fxi_plans_checked_set(bool wanted);
/* Is `what` among the words of the environment variable FX_TRACE? */
bool fxi_traced(const char *what);

#endif
