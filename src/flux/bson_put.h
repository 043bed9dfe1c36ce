/* bson_put.h: writes the building blocks of BSON.jl's documents: tags, paths, types. Internal. */
#ifndef CFLUX_BSON_PUT_H
#define CFLUX_BSON_PUT_H

#include "bson_out.h"

#include <cflux/array.h>

typedef struct fxi_bson_writer {
    const char *op;
    const char *entry; /* name of the file's entry being written */
    fx_status status;
    fxi_bson_out out;
} fxi_bson_writer;

enum { FXI_INDEX_KEY = 16 };
/* The key of item i of an array: "0", "1", … */
const char *fxi_index_key(int64_t i, char text[FXI_INDEX_KEY]);

/* These call fxi_bson_begin and the other functions of bson_out.h, and refuse a key or text that is
 * not UTF-8. */
int64_t fxi_put_begin(fxi_bson_writer *w, const char *key, bool array);
void fxi_put_end(fxi_bson_writer *w, int64_t begun);
void fxi_put_null(fxi_bson_writer *w, const char *key);
void fxi_put_bool(fxi_bson_writer *w, const char *key, bool v);
void fxi_put_int(fxi_bson_writer *w, const char *key, int64_t v);
void fxi_put_text(fxi_bson_writer *w, const char *key, const char *text);

/* Begins a document whose first element is its tag. */
int64_t fxi_put_tagged(fxi_bson_writer *w, const char *key, const char *tag);
void fxi_put_symbol(fxi_bson_writer *w, const char *key, const char *name);
/* size: […] */
void fxi_put_sizes(fxi_bson_writer *w, int n, const int64_t *sizes);

/* {tag: datatype, params: […], name: path}. The parameters are put between the two calls. A path
 * ends with NULL: {"Flux", "Dense", NULL}. */
typedef struct fxi_bson_type {
    int64_t type, params;
} fxi_bson_type;
fxi_bson_type fxi_put_type_begin(fxi_bson_writer *w, const char *key);
void fxi_put_type_end(fxi_bson_writer *w, fxi_bson_type t, const char *const *path);
void fxi_put_path(fxi_bson_writer *w, const char *const *path);
/* Puts a type without parameters. */
void fxi_put_plain_type(fxi_bson_writer *w, const char *key, const char *const *path);
void fxi_put_core_type(fxi_bson_writer *w, const char *key, const char *name);
/* Puts the only value of a singleton type. */
void fxi_put_single(fxi_bson_writer *w, const char *key, const char *const *path);

/* Puts an array: as a number or binary of BSON if there is one for it, otherwise as its type and
 * bytes. */
void fxi_put_array(fxi_bson_writer *w, const char *key, fx_array *x);
void fxi_put_array_type(fxi_bson_writer *w, const char *key, const fx_array *x);

#endif
