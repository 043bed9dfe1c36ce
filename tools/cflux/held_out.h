/* held_out.h: which observations are kept from training. */
#ifndef CFLUX_TOOL_HELD_OUT_H
#define CFLUX_TOOL_HELD_OUT_H

#include "problem.h"

/* The numbers 0 … n−1 (Int64) in an order drawn from the thread's stream, those kept from training
 * (so many) first. y: the class of each observation, as problem_targets gives it: each class has
 * the same share on both sides, as near as whole numbers come to it. Where the target is numbers,
 * all are one class. An error array without memory. */
fx_array *held_out_first(const problem *p, fx_array *y, int64_t n, int64_t kept);

#endif
