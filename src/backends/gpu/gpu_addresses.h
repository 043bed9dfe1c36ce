/* gpu_addresses.h: addresses for buffers of interfaces that have objects and no addresses, OpenCL's
 * and Metal's. Internal.
 */
#ifndef CFLUX_GPU_ADDRESSES_H
#define CFLUX_GPU_ADDRESSES_H

#include <cflux/backend.h>

/* A buffer must have fewer bytes: 1 TiB. */
#define FXI_GPU_ADDRESS_BYTES (UINT64_C(1) << 40)

/* Returns a fresh address for an object; NULL if host memory or the table is full. */
void *fxi_gpu_address_new(const fx_host *host, void *object);
/* Returns the object of an address, to which an offset in the buffer may have been added, and that
 * offset; NULL if the address does not belong to an existing buffer. Takes no lock. */
void *fxi_gpu_address_find(const void *address, size_t *out_offset);
/* Ends the address and returns its object; NULL if it has ended already. */
void *fxi_gpu_address_end(const void *address);

#endif
