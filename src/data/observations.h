/* observations.h: data sets as lists of arrays that agree on their last axis. Internal to src/data.
 *
 * A data set is an array, a tuple or a named tuple of arrays; nothing deeper, as batches hand out
 * the same structure. Functions of mapobs may lie around it. What is here is all that knows this.
 */
#ifndef CFLUX_OBSERVATIONS_H
#define CFLUX_OBSERVATIONS_H

#include <cflux/tree.h>

/* Checks the structure and that all arrays have equally many observations. Records what is wrong
 * under `op` (an error array only passes its status on). *out_n and *out_arrays are 0 on failure.
 */
fx_status fxi_obs_check(const char *op, void *data, int64_t *out_n, int *out_arrays);
/* What lies under the functions of mapobs: an array, a tuple or a named tuple. */
void *fxi_obs_plain(void *data);
/* Applies those functions to observations of it. */
void *fxi_obs_apply(void *data, void *observations);
/* The i-th array; data has passed the check. */
fx_array *fxi_obs_array(void *data, int i);
/* The same structure, with the same names, over other arrays; data is plain. */
void *fxi_obs_rebuild(void *data, int n, fx_array *const *arrays);

#endif
