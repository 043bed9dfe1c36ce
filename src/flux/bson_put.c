/* bson_put.c: writes the building blocks of BSON.jl's documents: see bson_put.h.
 *
 * The order of keys is that of files written by Flux: tag, type, size, data; tag, params, name.
 */
#include "bson_put.h"
#include "bson_julia.h"
#include "utf8.h"

#include <stdio.h>
#include <string.h>

static void check_utf8(fxi_bson_writer *w, const char *key, const char *text)
{
    size_t at;
    if (fxi_is_utf8((const unsigned char *)text, strlen(text), &at) || w->status != FX_OK)
        return;
    w->status = fx_fail(FX_STATUS_ARGUMENT, w->op,
                        "%s \"%s\" in the entry \"%s\" is not UTF-8 at its byte %zu",
                        text == key ? "the name" : "the text at", key, w->entry, at + 1);
}

const char *fxi_index_key(int64_t i, char text[FXI_INDEX_KEY])
{
    snprintf(text, FXI_INDEX_KEY, "%u", (unsigned)i);
    return text;
}

int64_t fxi_put_begin(fxi_bson_writer *w, const char *key, bool array)
{
    check_utf8(w, key, key);
    return fxi_bson_begin(&w->out, key, array);
}

void fxi_put_end(fxi_bson_writer *w, int64_t begun)
{
    fxi_bson_end(&w->out, begun);
}

void fxi_put_null(fxi_bson_writer *w, const char *key)
{
    check_utf8(w, key, key);
    fxi_bson_null(&w->out, key);
}

void fxi_put_bool(fxi_bson_writer *w, const char *key, bool v)
{
    check_utf8(w, key, key);
    fxi_bson_bool(&w->out, key, v);
}

void fxi_put_int(fxi_bson_writer *w, const char *key, int64_t v)
{
    check_utf8(w, key, key);
    fxi_bson_int64(&w->out, key, v);
}

void fxi_put_text(fxi_bson_writer *w, const char *key, const char *text)
{
    check_utf8(w, key, key);
    check_utf8(w, key, text);
    fxi_bson_text(&w->out, key, text);
}

int64_t fxi_put_tagged(fxi_bson_writer *w, const char *key, const char *tag)
{
    const int64_t begun = fxi_put_begin(w, key, false);
    fxi_put_text(w, "tag", tag);
    return begun;
}

void fxi_put_symbol(fxi_bson_writer *w, const char *key, const char *name)
{
    const int64_t symbol = fxi_put_tagged(w, key, "symbol");
    fxi_put_text(w, "name", name);
    fxi_put_end(w, symbol);
}

void fxi_put_sizes(fxi_bson_writer *w, int n, const int64_t *sizes)
{
    char key[FXI_INDEX_KEY];
    const int64_t list = fxi_put_begin(w, "size", true);
    for (int i = 0; i < n; i++)
        fxi_put_int(w, fxi_index_key(i, key), sizes[i]);
    fxi_put_end(w, list);
}

/* ---- types ----------------------------------------------------------------------------------- */

void fxi_put_path(fxi_bson_writer *w, const char *const *path)
{
    char key[FXI_INDEX_KEY];
    const int64_t names = fxi_put_begin(w, "name", true);
    for (int i = 0; path[i]; i++)
        fxi_put_text(w, fxi_index_key(i, key), path[i]);
    fxi_put_end(w, names);
}

fxi_bson_type fxi_put_type_begin(fxi_bson_writer *w, const char *key)
{
    fxi_bson_type t;
    t.type = fxi_put_tagged(w, key, "datatype");
    t.params = fxi_put_begin(w, "params", true);
    return t;
}

void fxi_put_type_end(fxi_bson_writer *w, fxi_bson_type t, const char *const *path)
{
    fxi_put_end(w, t.params);
    fxi_put_path(w, path);
    fxi_put_end(w, t.type);
}

void fxi_put_plain_type(fxi_bson_writer *w, const char *key, const char *const *path)
{
    fxi_put_type_end(w, fxi_put_type_begin(w, key), path);
}

void fxi_put_core_type(fxi_bson_writer *w, const char *key, const char *name)
{
    fxi_put_plain_type(w, key, (const char *const[]){"Core", name, NULL});
}

void fxi_put_single(fxi_bson_writer *w, const char *key, const char *const *path)
{
    const int64_t value = fxi_put_tagged(w, key, "struct");
    fxi_put_plain_type(w, "type", path);
    fxi_put_end(w, fxi_put_begin(w, "data", true));
    fxi_put_end(w, value);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Reads the elements directly into the document. While bytes are only counted, the elements are not
 * read.
 */
static void put_elements(fxi_bson_writer *w, const char *key, fx_array *x)
{
    const size_t n = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    void *to = fxi_bson_binary(&w->out, key, (int64_t)n);
    if (to && n && w->status == FX_OK)
        w->status = fx_read_into(x, to, n);
}

/* Writes a 0-d array as a BSON number; false if BSON has no number of its type. */
static bool put_number(fxi_bson_writer *w, const char *key, fx_array *x)
{
    union {
        bool truth;
        int32_t i32;
        int64_t i64;
        double f64;
    } v = {.i64 = 0};
    const fx_dtype type = fx_eltype(x);
    if (fx_ndims(x) > 0 || (type != FX_DTYPE_BOOL && type != FX_DTYPE_I32 && type != FX_DTYPE_I64 &&
                            type != FX_DTYPE_F64))
        return false;
    if (w->out.bytes && w->status == FX_OK)
        w->status = fx_read_into(x, &v, fx_dtype_size(type));
    if (type == FX_DTYPE_BOOL)
        fxi_put_bool(w, key, v.truth);
    else if (type == FX_DTYPE_I32)
        fxi_bson_int32(&w->out, key, v.i32);
    else if (type == FX_DTYPE_I64)
        fxi_put_int(w, key, v.i64);
    else
        fxi_bson_double(&w->out, key, v.f64);
    return true;
}

void fxi_put_array(fxi_bson_writer *w, const char *key, fx_array *x)
{
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(x);
    check_utf8(w, key, key);
    if (put_number(w, key, x))
        return;
    if (n == 1 && fx_eltype(x) == FX_DTYPE_U8) { /* Vector{UInt8} is BSON's own binary */
        put_elements(w, key, x);
        return;
    }
    for (int i = 0; i < n; i++)
        sizes[i] = fx_size(x, i);
    const int64_t array = fxi_put_tagged(w, key, n ? "array" : "struct");
    fxi_put_core_type(w, "type", fxi_julia_dtype_name(fx_eltype(x)));
    if (n)
        fxi_put_sizes(w, n, sizes);
    put_elements(w, "data", x);
    fxi_put_end(w, array);
}

void fxi_put_array_type(fxi_bson_writer *w, const char *key, const fx_array *x)
{
    const char *element = fxi_julia_dtype_name(fx_eltype(x));
    if (fx_ndims(x) == 0) {
        fxi_put_core_type(w, key, element);
        return;
    }
    const fxi_bson_type t = fxi_put_type_begin(w, key);
    fxi_put_core_type(w, "0", element);
    fxi_put_int(w, "1", fx_ndims(x));
    fxi_put_type_end(w, t, (const char *const[]){"Core", "Array", NULL});
}
