/* held_out.h: selects the observations that are held out for validation. */
#ifndef CFLUX_TOOL_HELD_OUT_H
#define CFLUX_TOOL_HELD_OUT_H

#include "problem.h"

/* The numbers 0 … n−1 (Int64) in an order drawn from the thread's random stream, the `kept`
 * validation observations first. y: the class of each observation, from problem_targets. Each class
 * has the same share in both parts, up to rounding. Numeric targets count as one class. An error
 * array if out of memory. */
fx_array *held_out_first(const problem *p, fx_array *y, int64_t n, int64_t kept);

#endif
