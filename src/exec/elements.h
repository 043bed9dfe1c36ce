/* elements.h: the elements of evaluated arrays, wherever they are. Internal.
 *
 * Host memory is read where it lies. From a device the bytes that the elements span come in one
 * piece, so a view of little of a large array costs what it shows. Failures are recorded in the
 * name of `op`.
 */
#ifndef CFLUX_ELEMENTS_H
#define CFLUX_ELEMENTS_H

#include <cflux/backend.h>
#include "context.h"

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

/* The elements in host memory, in the strides of x's data, until they are closed. */
typedef struct fxi_elements {
    const char *at;
    char *copy; /* NULL: x's own memory */
} fxi_elements;
fx_status fxi_elements_open(const char *op, const fx_array *x, fxi_elements *out);
void fxi_elements_close(fxi_elements *e);

/* One element, `offset` elements after the first, as a number. */
fx_status fxi_element_get(const char *op, const fx_array *x, int64_t offset, double *out);
/* All elements, converted, densely into host memory. */
fx_status fxi_elements_copy(const char *op, const fx_array *x, fx_dtype dtype, void *dst);
/* Takes some of an array's bytes. */
typedef fx_status (*fxi_piece_fn)(const void *data, size_t bytes, void *user);
/* All elements, densely, in pieces that follow each other: the array's own memory where it is dense
 * on the host, else copies. Stops at the first piece that is refused. */
fx_status fxi_elements_pieces(const char *op, const fx_array *x, fxi_piece_fn take, void *user);
/* All elements, converted, densely into a buffer of any device. */
fx_status fxi_elements_move(const char *op, const fx_array *x, fx_dtype dtype, fxi_buffer *to);

/* The elements of an evaluated node in new memory of a device; NULL: *status says why (recorded).
 */
fxi_data *fxi_moved(const char *op, fxi_node *n, fx_device *device, fx_status *status);

/* May single elements be read one by one? Warns once, or is an error, on a device
 * (fx_allowscalar). */
bool fxi_scalar_allowed(const char *op, const fx_array *x);

#endif
