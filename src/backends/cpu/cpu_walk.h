/* cpu_walk.h: walking over strided memory in the order of its shape (first axis fastest).
 *
 * A walk is a multi-index over collapsed axes: axes of size 1 are dropped, and neighbours that one
 * stride describes are merged, so that most tensors walk as one or two axes. After the last element
 * it stands at the first again. Walks know nothing of element types: offsets count elements, reads
 * copy elements of 1, 2, 4 or 8 bytes.
 */
#ifndef CFLUX_CPU_WALK_H
#define CFLUX_CPU_WALK_H

#include "step.h"

typedef struct fxi_walk {
    int nd;
    int64_t offset; /* of the current element, in elements */
    int64_t shape[FX_MAX_DIMS], stride[FX_MAX_DIMS], idx[FX_MAX_DIMS];
} fxi_walk;

void fxi_walk_init(fxi_walk *w, int ndim, const int64_t *shape, const int64_t *stride);
/* The walk over the axes of t whose bit in `mask` equals `in`. */
void fxi_walk_axes(fxi_walk *w, const fxi_tensor *t, uint32_t mask, bool in);
/* Takes the first axis out of the walk: its size and stride (1 and 1 when there is none). */
void fxi_walk_pop(fxi_walk *w, int64_t *out_n, int64_t *out_stride);
int64_t fxi_walk_length(const fxi_walk *w);
/* Copies the next n elements to dst, densely. */
void fxi_walk_read(fxi_walk *w, const void *base, size_t size, void *dst, int64_t n);

/* dst[i] = src[i·stride], i < n; stride 0 and negative included. */
void fxi_copy_strided(void *dst, const void *src, int64_t n, int64_t stride, size_t size);

static inline void fxi_walk_next(fxi_walk *w)
{
    for (int d = 0; d < w->nd; d++) {
        w->offset += w->stride[d];
        if (++w->idx[d] < w->shape[d])
            return;
        w->offset -= w->stride[d] * w->shape[d];
        w->idx[d] = 0;
    }
}

static inline const void *fxi_at(const void *base, int64_t element, size_t size)
{
    return (const char *)base + element * (int64_t)size;
}

static inline void *fxi_at_out(void *base, int64_t element, size_t size)
{
    return (char *)base + element * (int64_t)size;
}

#endif
