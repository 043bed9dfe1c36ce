/* npy.h: one array in NumPy's format, alone in a file or as a member of an .npz. Internal. */
#ifndef CFLUX_NPY_H
#define CFLUX_NPY_H

#include "bytes.h"

#define FXI_NPY_MAGIC "\x93NUMPY"
enum { FXI_NPY_MAGIC_BYTES = 6, FXI_NPY_HEADER = 512 };

/* The array that all of these bytes encode; an error array if they encode none. */
fx_array *fxi_npy_read(fxi_bytes *b);
/* Writes the bytes before the elements. Returns their number, a multiple of 64; 0 if NumPy has no
 * such element type (recorded). */
size_t fxi_npy_header(const char *op, const fx_array *x, char out[FXI_NPY_HEADER]);

#endif
