/* host.h: reads, writes and converts elements in host memory, for literals, and for reads and
 * moves of arrays. Kernels do not use it.
 */
#ifndef CFLUX_HOST_H
#define CFLUX_HOST_H

#include <cflux/array.h>

double fxi_host_double(int dtype, const void *element);

void fxi_host_put_double(int dtype, void *element, double v);
void fxi_host_put_integer(int dtype, void *element, int64_t v);

/* Copies a strided tensor to dense memory and converts it by the rules of fx_cast. Strides are in
 * elements. */
void fxi_host_copy(int ndim, const int64_t *shape, int from, const void *src,
                   const int64_t *strides, int to, void *dst);

#endif
