/* bson_julia.h: what Julia wrote into a BSON document: references, names of types, tuples of
 * numbers. Internal.
 *
 * BSON.jl lowers every value to a document with a `tag`; what occurs more than once stands in the
 * list `_backrefs` and is pointed to. Nothing here runs, builds or looks up what a file names:
 * names are compared with the few that are known.
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
    void **made;    /* and the objects made of them so far */
    int32_t nrefs;
    int64_t objects, max_objects; /* made so far, and the bound that keeps memory in proportion */
    int lists;                    /* chains around the value whose layers are a list */
    int newest;                   /* version of Flux that may have written it; 0: not known yet */
} fxi_julia;

/* Opens the references of a document; false: recorded. fxi_julia_close in either case. */
bool fxi_julia_open(fxi_julia *j, fxi_bytes *b, fxi_bson root);
void fxi_julia_close(fxi_julia *j);

/* The number (from 0) of the reference that the value is, or −1. */
int32_t fxi_julia_reference(const fxi_julia *j, fxi_bson v);
/* The value itself, behind any references; kind NOTHING when they go round in a circle. */
fxi_bson fxi_julia_value(const fxi_julia *j, fxi_bson v);
/* Entry `key` of a tagged document, behind references. */
fxi_bson fxi_julia_get(const fxi_julia *j, fxi_bson document, const char *key);
bool fxi_julia_tagged(fxi_bson document, const char *tag);

/* The name of a type, without Main, Base and Core before it: "Flux.Dense", "Float32", "NamedTuple";
 * "" when it is no type. */
void fxi_julia_type_name(const fxi_julia *j, fxi_bson type, char name[FXI_JULIA_NAME]);
/* The name of the type of a struct, "" when the value is none. */
void fxi_julia_struct_name(const fxi_julia *j, fxi_bson v, char name[FXI_JULIA_NAME]);

/* The fields of a struct, behind references; their number, −1 when it has no fields. */
int fxi_julia_fields(const fxi_julia *j, fxi_bson v, fxi_bson fields[FXI_JULIA_FIELDS]);

/* Numbers: an integer, a float of any kind, a tuple of integers. */
bool fxi_julia_integer(const fxi_julia *j, fxi_bson v, int64_t *out);
bool fxi_julia_number(const fxi_julia *j, fxi_bson v, double *out);
bool fxi_julia_dims(const fxi_julia *j, fxi_bson v, fx_dims *out);

/* What elements of a Julia type become; NULL when the library has nothing like it. */
const fxi_file_type *fxi_julia_elements(const fxi_julia *j, fxi_bson type);
/* The name in Julia's Core of an element type: "Float32". */
const char *fxi_julia_dtype_name(fx_dtype dtype);

/* The function of the library that the value names, a singleton like NNlib.#relu; NULL: none. */
fx_function *fxi_julia_function(const fxi_julia *j, fxi_bson v);
fx_function *fxi_julia_function_named(const char *name);

#endif
