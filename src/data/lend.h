/* lend.h: memory of ours that becomes an array without a copy. Internal to src/data.
 *
 * Readers and the loader fill fresh blocks and hand them over for good: the array borrows the block
 * and frees it when the last value that reads it is gone, on whatever thread that happens.
 */
#ifndef CFLUX_LEND_H
#define CFLUX_LEND_H

#include <cflux/array.h>

#include "memory.h"

static inline void fxi_lend_release(void *block, void *user)
{
    (void)user;
    fxi_free(block);
}

/* `block` comes from memory.h, holds Π sizes elements, and is the array's from now on, even on
 * error. */
static inline fx_array *fxi_lend(fx_dtype dtype, void *block, int ndims, const int64_t *sizes)
{
    return fxi_borrow(dtype, block, fxi_lend_release, NULL, ndims, sizes);
}

/* A block of at least one byte, aligned for vector instructions; NULL when memory is out. */
static inline void *fxi_lend_alloc(size_t bytes)
{
    return fxi_aligned(64, bytes ? bytes : 1);
}

#endif
