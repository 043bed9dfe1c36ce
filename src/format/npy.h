/* npy.h: one array as NumPy keeps it: alone in a file, or as a member of an .npz. Internal. */
#ifndef CFLUX_NPY_H
#define CFLUX_NPY_H

#include "bytes.h"

#define FXI_NPY_MAGIC "\x93NUMPY"
enum { FXI_NPY_MAGIC_BYTES = 6, FXI_NPY_HEADER = 512 };

/* The array that these bytes are, all of them; an error array when they are none. */
fx_array *fxi_npy_read(fxi_bytes *b);
/* Writes what comes before the elements; its length, a multiple of 64; 0, recorded: NumPy has no
 * such element type. */
size_t fxi_npy_header(const char *op, const fx_array *x, char out[FXI_NPY_HEADER]);

#endif
