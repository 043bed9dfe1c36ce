/* file_types.h: the element types of files and the types that the library uses for them. Internal.
 */
#ifndef CFLUX_FILE_TYPES_H
#define CFLUX_FILE_TYPES_H

#include "bytes.h"

/* How an element type of a file is read. A type that cflux does not have is widened to one that can
 * hold its values. Complex numbers get an additional first axis of size 2: real and imaginary part.
 */
typedef struct fxi_file_type {
    const char *safetensors; /* "F32"; NULL: not a type of this format */
    const char *npy;         /* "f4", without the byte order letter; NULL: not in this format */
    int size;                /* bytes per element */
    int parts;               /* numbers per element: 2 for complex types */
    fx_dtype dtype;
    bool same; /* true: the bytes are those of dtype, nothing is converted */
    /* Converts one number, given by its bits v, to dtype and writes it to *dst. */
    void (*widen)(uint64_t v, void *dst);
} fxi_file_type;

/* NULL if there is no type of that name. */
const fxi_file_type *fxi_file_type_safetensors(const char *name);
const fxi_file_type *fxi_file_type_npy(const char *name);
/* The type in which a dtype is written; its npy name is NULL for BFloat16. */
const fxi_file_type *fxi_file_type_of(fx_dtype dtype);

/* Reads an array at the current position of b and advances past it. Sizes are those in the file, in
 * C order: the last axis is first in memory. `big`: numbers are big-endian. NULL (recorded in b) if
 * bytes are missing or there are too many axes; an error array if out of memory. Requires sizes of
 * at most 2^63 − 1 and at most FXI_FILE_DIMS of them. */
enum { FXI_FILE_DIMS = 64 };
fx_array *fxi_file_type_array(fxi_bytes *b, const fxi_file_type *type, bool big, int ndims,
                              const uint64_t *sizes);
/* The number of bytes of an array of these sizes in the file. False if the array would be too large
 * for the library; an axis of size 0 counts as 1 for that, as it does in NumPy. */
#define FXI_FILE_TOO_LARGE "the product of the sizes, in which 0 counts as 1, is 2^59 bytes or more"
bool fxi_file_type_bytes(const fxi_file_type *type, int ndims, const uint64_t *sizes,
                         size_t *out_bytes);

#endif
