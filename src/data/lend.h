/* lend.h: turns a block of memory into an array without a copy. Internal to src/data.
 *
 * Readers and the loader fill a new block and give it to an array. The array frees the block when
 * the final value that uses it is released, on whichever thread that happens.
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

/* `block` comes from memory.h and holds Π sizes elements. The array owns it from now on, even after
 * an error. */
static inline fx_array *fxi_lend(fx_dtype dtype, void *block, int ndims, const int64_t *sizes)
{
    return fxi_borrow(dtype, block, fxi_lend_release, NULL, ndims, sizes);
}

/* A block of at least one byte, aligned for vector instructions; NULL if out of memory. */
static inline void *fxi_lend_alloc(size_t bytes)
{
    return fxi_aligned(64, bytes ? bytes : 1);
}

#endif
