/* held_out.h: selects the observations that are held out for validation. */
#ifndef CFLUX_TOOL_HELD_OUT_H
#define CFLUX_TOOL_HELD_OUT_H

#include "problem.h"

/* The numbers 0 … n−1 (Int64), the `kept` validation observations first. The order is drawn from
 * the thread's random stream, and each class has the same share in both parts, up to rounding;
 * numeric targets count as one class. A language model is validated on the end of its text, and
 * nothing is drawn. y: the class of each observation, from problem_targets. An error array if out
 * of memory. */
fx_array *held_out_first(const problem *p, fx_array *y, int64_t n, int64_t kept);

/* One of n parts of the data, which is used for validation while the others are trained on. */
typedef struct fold {
    int64_t n, i; /* number of parts (0: no folds); number of this part, from 0 */
} fold;

/* The indices of all n observations, those of the fold first; *out_kept counts those. The order is
 * random, every observation is in one fold, and each class is spread evenly over the folds. The
 * same random state gives the same folds. The folds of a language model are consecutive parts of
 * its text. */
fx_array *held_out_fold(const problem *p, fx_array *y, int64_t n, fold f, int64_t *out_kept);

#endif
