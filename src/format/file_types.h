/* file_types.h: the element types of files and what they become. Internal. */
#ifndef CFLUX_FILE_TYPES_H
#define CFLUX_FILE_TYPES_H

#include "bytes.h"

/* What an array of the file becomes. A type that cflux has not is widened to one that holds its
 * values; complex numbers get a first axis of 2, real and imaginary part. */
typedef struct fxi_file_type {
    const char *safetensors; /* "F32"; NULL: not there */
    const char *npy;         /* "f4", after the letter of the byte order; NULL: not there */
    int size;                /* bytes of an element */
    int parts;               /* numbers in it: 2 for complex ones */
    fx_dtype dtype;
    bool same; /* the bytes are those of dtype */
    /* One number, whose bits are v, to *dst of dtype; NULL when same. */
    void (*widen)(uint64_t v, void *dst);
} fxi_file_type;

/* NULL: there is none of that name. */
const fxi_file_type *fxi_file_type_safetensors(const char *name);
const fxi_file_type *fxi_file_type_npy(const char *name);
/* The type in which a dtype is written; its npy name is NULL for BFloat16. */
const fxi_file_type *fxi_file_type_of(fx_dtype dtype);

/* The array of these sizes (of the file: in C order, the last axis first in memory) at the current
 * place of b, which it takes; `big`: the bytes of a number come most significant first. NULL,
 * recorded in b, when the bytes are not there or it has too many axes; an error array when memory
 * is out. Sizes are at most 2^63 − 1 and there are at most FXI_FILE_DIMS. */
enum { FXI_FILE_DIMS = 64 };
fx_array *fxi_file_type_array(fxi_bytes *b, const fxi_file_type *type, bool big, int ndims,
                              const uint64_t *sizes);
/* Bytes of such an array; false when there are more than a size_t counts. */
bool fxi_file_type_bytes(const fxi_file_type *type, int ndims, const uint64_t *sizes,
                         size_t *out_bytes);

#endif
