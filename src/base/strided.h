/* strided.h: walks over strided memory in the order of its shape (first axis fastest), and copies
 * it densely.
 *
 * A walk is a multi-index over collapsed axes: axes of size 1 are dropped, and neighbouring axes
 * that one stride can describe are merged, so most tensors have one or two axes. After the last
 * element a walk is at the first again. Walks and copies do not know element types: offsets and
 * strides count elements of 1, 2, 4 or 8 bytes.
 */
#ifndef CFLUX_STRIDED_H
#define CFLUX_STRIDED_H

#include <cflux/base.h>

/* Fills in the strides of a dense tensor: 1, shape[0], shape[0]·shape[1], … */
static inline void fxi_dense_strides(int ndim, const int64_t *shape, int64_t *strides)
{
    int64_t s = 1;
    for (int i = 0; i < ndim; i++) {
        strides[i] = s;
        s *= shape[i];
    }
}
/* True if these are the strides of a dense tensor. Axes of size 1 may have any stride, and so may
 * all axes from the first axis of size 0 on. */
static inline bool fxi_is_dense(int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t s = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0)
            return true;
        if (shape[i] != 1 && strides[i] != s)
            return false;
        s *= shape[i];
    }
    return true;
}

/* Do all indices name one element, because every axis has size 1 or is repeated? */
static inline bool fxi_is_single(int ndim, const int64_t *shape, const int64_t *strides)
{
    for (int i = 0; i < ndim; i++)
        if (shape[i] != 1 && strides[i] != 0)
            return false;
    return true;
}

typedef struct fxi_walk {
    int nd;
    int64_t offset; /* of the current element, in elements */
    int64_t shape[FX_MAX_DIMS], stride[FX_MAX_DIMS], idx[FX_MAX_DIMS];
} fxi_walk;

void fxi_walk_init(fxi_walk *w, int ndim, const int64_t *shape, const int64_t *stride);
/* Adds a slower axis. */
void fxi_walk_push(fxi_walk *w, int64_t n, int64_t stride);
/* Removes the first axis from the walk and returns its size and stride (1 and 1 if there is none).
 */
void fxi_walk_pop(fxi_walk *w, int64_t *out_n, int64_t *out_stride);
/* Moves the walk to the element with this number. */
void fxi_walk_seek(fxi_walk *w, int64_t element);
int64_t fxi_walk_length(const fxi_walk *w);
/* Copies the next n elements to dst, densely. */
void fxi_walk_read(fxi_walk *w, const void *base, size_t size, void *dst, int64_t n);
/* If the next n elements are neighbours in memory, returns their address and moves past them;
 * otherwise returns NULL. */
const void *fxi_walk_take(fxi_walk *w, const void *base, size_t size, int64_t n);
/* Like fxi_walk_read, but writes long runs past the cache: for parts of an output of at least
 * FXI_STREAM_BYTES. */
void fxi_walk_stream(fxi_walk *w, const void *base, size_t size, void *dst, int64_t n);

/* dst[i] = src[i·stride], i < n; stride 0 and negative included. */
void fxi_copy_strided(void *dst, const void *src, int64_t n, int64_t stride, size_t size);

/* dst[i + j·dj] = src[i·si + j], i < ni, j < nj. */
void fxi_transpose(void *dst, const void *src, int64_t ni, int64_t nj, int64_t si, int64_t dj,
                   size_t size);

/* dst[i + j·dj] = src[i·si + j], i < ni, j < nj, where ni and nj are multiples of the elements of a
 * cache line. `past`: writes past the cache; dst and dj are multiples of a cache line. */
typedef void (*fxi_block_fn)(void *dst, const void *src, int64_t ni, int64_t nj, int64_t si,
                             int64_t dj, bool past);

/* A dense copy of a strided tensor, divided into `parts` that do not overlap, for several threads.
 * The division depends only on shape and strides. */
typedef struct fxi_copy {
    size_t size;    /* of an element */
    int64_t length; /* in elements */
    fxi_walk walk;
    int axis;           /* > 0: paired with axis 0 in square blocks, a transpose */
    int64_t tile[2];    /* of a transpose: elements along axis 0 and along `axis` */
    bool stream;        /* a transpose that is written past the cache, if dst is aligned */
    fxi_block_fn block; /* of a transpose: a faster loop, which the caller may set; NULL: none */
    int64_t parts;
} fxi_copy;
void fxi_copy_init(fxi_copy *c, int ndim, const int64_t *shape, const int64_t *stride, size_t size);
void fxi_copy_parts(const fxi_copy *c, const void *src, void *dst, int64_t first, int64_t last);
/* Copies the whole tensor in the calling thread. */
void fxi_copy_elements(int ndim, const int64_t *shape, const int64_t *stride, size_t size,
                       const void *src, void *dst);

/* Outputs of at least this many bytes are written past the cache. */
enum { FXI_STREAM_BYTES = 8 << 20 };

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
