/* elements.h: reads and copies the elements of evaluated arrays on any device. Internal.
 *
 * Host memory is read in place. From a device, the bytes between the first and the last element are
 * copied at once, so a view of a small part of a large array copies only that part. Failures are
 * recorded: those of a backend's functions by the backend, all others with `op` as the name of the
 * operation.
 */
#ifndef CFLUX_ELEMENTS_H
#define CFLUX_ELEMENTS_H

#include <cflux/backend.h>
#include "context.h"

/* A backend without `read` works in host memory. */
static inline bool fxi_on_host(const fx_array *x)
{
    return !x->node->data->buffer->device->backend->read;
}

/* The first element, in memory of x's device. */
static inline const char *fxi_elements_here(const fx_array *x)
{
    const fxi_data *d = x->node->data;
    return (const char *)d->buffer->ptr +
           d->offset * (int64_t)fx_dtype_size((fx_dtype)x->node->dtype);
}

/* The elements in host memory, with the strides of x's data. Valid until they are closed. */
typedef struct fxi_elements {
    const char *at;
    char *copy; /* NULL: x's own memory */
} fxi_elements;
fx_status fxi_elements_open(const char *op, const fx_array *x, fxi_elements *out);
void fxi_elements_close(fxi_elements *e);

/* Reads one element, `offset` elements after the first, as a number. */
fx_status fxi_element_get(const char *op, const fx_array *x, int64_t offset, double *out);
/* Copies all elements, converted to dtype, densely into host memory. */
fx_status fxi_elements_copy(const char *op, const fx_array *x, fx_dtype dtype, void *dst);
/* Receives a piece of an array's bytes; a failure ends the walk. */
typedef fx_status (*fxi_piece_fn)(const void *data, size_t bytes, void *user);
/* Passes all elements, dense, to `take` in consecutive pieces: the array's own memory if it is
 * dense on the host, otherwise copies. Stops at the first piece that `take` refuses. */
fx_status fxi_elements_pieces(const char *op, const fx_array *x, fxi_piece_fn take, void *user);
/* Copies all elements, converted to dtype, densely into a buffer of any device. */
fx_status fxi_elements_move(const char *op, const fx_array *x, fx_dtype dtype, fxi_buffer *to);

/* Copies the elements of an evaluated node into new memory of a device. NULL: failed, *status says
 * why (recorded). */
fxi_data *fxi_moved(const char *op, fxi_node *n, fx_device *device, fx_status *status);

/* May the program read single elements? On a device with its own memory this warns once, or is an
 * error (fx_allowscalar). */
bool fxi_scalar_allowed(const char *op, const fx_array *x);

#endif
