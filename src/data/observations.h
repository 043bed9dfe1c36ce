/* observations.h: data sets as lists of arrays of equal length along their final axis. Internal to
 * src/data.
 *
 * A data set is an array, or a tuple or named tuple of arrays without deeper nesting, because
 * batches have the same structure. Functions of mapobs may wrap it. Only this file and
 * observations.c depend on this structure.
 */
#ifndef CFLUX_OBSERVATIONS_H
#define CFLUX_OBSERVATIONS_H

#include <cflux/tree.h>

/* Checks the structure, and that all arrays have the same number of observations. Failures are
 * recorded under `op` (an error array only passes its status on). *out_n and *out_arrays are 0 on
 * failure.
 */
fx_status fxi_obs_check(const char *op, void *data, int64_t *out_n, int *out_arrays);
/* The data set without the functions of mapobs: an array, a tuple or a named tuple. */
void *fxi_obs_plain(void *data);
/* Applies the functions of mapobs to selected observations. */
void *fxi_obs_apply(void *data, void *observations);
/* The i-th array. Requires data that passed the check. */
fx_array *fxi_obs_array(void *data, int i);
/* The same structure and names with other arrays. Requires a data set without functions. */
void *fxi_obs_rebuild(void *data, int n, fx_array *const *arrays);

#endif
