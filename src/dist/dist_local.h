/* dist_local.h: means over the GPUs of one process by NCCL or RCCL. Internal to dist. */
#ifndef CFLUX_DIST_LOCAL_H
#define CFLUX_DIST_LOCAL_H

#include <cflux/array.h>

enum { FXI_LOCAL_MOST = 8 };

/* Stores the mean of n vectors of floats, equally long, evaluated and each on its own device, in
 * out[k] on the device of vectors[k]. All devices get the same bits. Returns
 * FX_STATUS_UNSUPPORTED, without an error record, if the library cannot serve these devices; after
 * a failure of the operation any other status. */
fx_status fxi_local_mean(int n, fx_array *const *vectors, fx_array **out);

#endif
