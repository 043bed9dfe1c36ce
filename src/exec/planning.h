/* planning.h: plans for the devices of this process, their cache, and the modes that the
 * environment sets. Internal.
 */
#ifndef CFLUX_PLANNING_H
#define CFLUX_PLANNING_H

#include "plan.h"

/* fxi_graph_build in the mode that is set: eager or not, and the precision of products. */
fx_status fxi_graph_of(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots);
/* Builds a new plan of a graph, for the backend of its device. */
fx_status fxi_plan_new(const fxi_graph *g, fxi_plan **out_plan);
/* Returns the plan of a graph from the cache; builds it if the cache has none. The caller owns one
 * reference. */
fx_status fxi_plan_of(const fxi_graph *g, fxi_plan **out_plan);
/* The same, faster if *plan is the plan already. *plan: the caller's reference to a plan, or NULL.
 * It is replaced by a reference to the plan of g; after a failure it is NULL. */
fx_status fxi_plan_again(const fxi_graph *g, fxi_plan **plan);

/* Bytes of host memory that cached plans keep. */
int64_t fxi_plans_bytes(void);
/* fxi_plans_reclaim drops all cached plans. fxi_plans_reclaim_idle drops those that no run uses and
 * no thread keeps, and counts them as evicted. */
void fxi_plans_reclaim(void);
void fxi_plans_reclaim_idle(void);

/* FX_EAGER=1: every node is a step of its own, for tests and to find the operation that a wrong
 * number comes from. A test can set it for the plans of all threads. The mode is part of a plan's
 * key. */
bool fxi_eager(void);
void fxi_eager_set(bool wanted);
/* Are new plans checked (fxi_plan_check)? Default: only in builds with CFLUX_DEBUG_CHECKS. */
bool fxi_plans_checked(void);
void fxi_plans_checked_set(bool wanted);
/* Is `what` among the words of the environment variable FX_TRACE? */
bool fxi_traced(const char *what);

#endif
