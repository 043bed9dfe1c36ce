/* bson_julia.h: decodes what BSON.jl writes for Julia values: references, type names, tuples of
 * numbers. Internal.
 *
 * BSON.jl writes a value for which BSON has no type as a document with a `tag`. A value that occurs
 * more than once is stored in the list `_backrefs` and referenced from there. No code of a file
 * runs, and no type or function is looked up by name: names are only compared with a fixed list.
 */
#ifndef CFLUX_BSON_JULIA_H
#define CFLUX_BSON_JULIA_H

#include "bson_document.h"
#include "file_types.h"

#include <cflux/tree.h>

enum { FXI_JULIA_NAME = 120, FXI_JULIA_FIELDS = 16 };

typedef struct fxi_julia {
    fxi_bytes *b;
    fxi_bson root;
    fxi_bson *refs; /* the values of _backrefs */
    void **made;    /* the object made for each of them so far; NULL if none */
    int32_t nrefs;
    int64_t objects, max_objects; /* objects made so far, and their limit, which keeps memory
                                     proportional to the file */
    int lists;                    /* number of enclosing chains whose layers are a list */
    int newest; /* newest version of Flux that may have written the file; 0: not determined yet */
} fxi_julia;

/* Opens the references of a document; false on failure (recorded). Call fxi_julia_close in either
 * case. */
bool fxi_julia_open(fxi_julia *j, fxi_bytes *b, fxi_bson root);
void fxi_julia_close(fxi_julia *j);

/* The index (from 0) of a value that is a reference, −1 if it is not one. */
int32_t fxi_julia_reference(const fxi_julia *j, fxi_bson v);
/* The value with all references resolved; kind NOTHING if more than FXI_IO_MAX_DEPTH references
 * lead to it, as in a cycle. */
fxi_bson fxi_julia_value(const fxi_julia *j, fxi_bson v);
/* Entry `key` of a tagged document, with references resolved. */
fxi_bson fxi_julia_get(const fxi_julia *j, fxi_bson document, const char *key);
bool fxi_julia_tagged(fxi_bson document, const char *tag);

/* The name of a type with its modules, but without Base, Core and a redundant Main: "Flux.Dense",
 * "Float32", "NamedTuple", and "Main.Encoder" for a type of the user; "anonymous function" for the
 * type of one; "" if the value is not a type. */
void fxi_julia_type_name(const fxi_julia *j, fxi_bson type, char name[FXI_JULIA_NAME]);
/* The type name of a struct, "" if the value is not a struct. */
void fxi_julia_struct_name(const fxi_julia *j, fxi_bson v, char name[FXI_JULIA_NAME]);

/* The fields of a struct, at most FXI_JULIA_FIELDS; references are not resolved. Returns their
 * number, −1 if the value has no list of fields. */
int fxi_julia_fields(const fxi_julia *j, fxi_bson v, fxi_bson fields[FXI_JULIA_FIELDS]);

/* Read an integer, a number of any type, and a tuple or list of integers. False for other values.
 */
bool fxi_julia_integer(const fxi_julia *j, fxi_bson v, int64_t *out);
bool fxi_julia_number(const fxi_julia *j, fxi_bson v, double *out);
bool fxi_julia_dims(const fxi_julia *j, fxi_bson v, fx_dims *out);

/* The element type that the library uses for a Julia type; NULL if it has none. */
const fxi_file_type *fxi_julia_elements(const fxi_julia *j, fxi_bson type);
/* The name of an element type in Julia's Core: "Float32". */
const char *fxi_julia_dtype_name(fx_dtype dtype);

/* The library's function for a value that is a Julia function, a singleton like NNlib.#relu; NULL
 * if there is none. */
fx_function *fxi_julia_function(const fxi_julia *j, fxi_bson v);
fx_function *fxi_julia_function_named(const char *name);
/* True for +, vcat, sum, … (FXI_CONNECTIONS), which take whole arrays. */
bool fxi_julia_is_connection(const fx_function *f);

#endif
