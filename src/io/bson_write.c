/* bson_write.c: objects as the BSON that Flux reads.
 *
 * Every struct carries its exact type, parameters included, because BSON.jl makes an empty one of
 * that type and converts the fields to the types that it says. The order of keys is that of the
 * files Flux wrote: tag, type, size, data; tag, params, name. An array, or the Leaf of an
 * optimiser, that is reached twice stands in _backrefs, as there, so that shared weights are shared
 * again after loading; nothing else needs to.
 *
 * libbson makes its buffer larger by itself, with realloc, whoever gave it the buffer, and stops
 * the program when it finds no memory. So it never gets to: every append is counted before it is
 * made, and the document is made twice, first without the elements of the arrays, which says how
 * long it will be, then in a buffer of that size. What does not fit into the 32 bits that BSON
 * counts in, and a text that is not UTF-8, which no reader takes, are refused before anything is
 * written.
 */
#include "bson_write.h"
#include "bson_julia.h"
#include "bson_shapes.h"
#include "error.h"
#include "file_node.h"
#include "flux_optimiser.h"
#include "memory.h"
#include "utf8.h"

#include <cflux/optim.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = INT32_MAX - 1, SPARE = 4096 }; /* libbson wants a byte more for each level */

/* An array or a Leaf, and when the walk came by it. */
typedef struct shared {
    const void *object;
    int32_t order;
} shared;

typedef struct writer {
    const char *op;
    const char *entry; /* of the file, whose object is being written */
    fx_status status;
    shared *shared; /* every array and Leaf reached; then those that are reached twice */
    int32_t nshared, capacity;
    int32_t nties;
    bool backrefs;      /* the list of ties is being written */
    size_t used, limit; /* bytes of the document so far, and of its buffer */
    bool full;          /* the buffer was too small */
    bool measuring;     /* the elements of arrays are left out, */
    int64_t left_out;   /* so many bytes */
} writer;

static void put_value(writer *w, bson_t *doc, const char *key, fxi_item item, int depth);
static void put_type(writer *w, bson_t *doc, const char *key, fxi_item item, int depth);

static fxi_item of_object(const void *object)
{
    return (fxi_item){.kind = FXI_ITEM_OBJECT, .object = object};
}

/* ---- pieces of documents --------------------------------------------------------------------- */

static void check(writer *w, bool appended)
{
    w->full = w->full || !appended;
}

static void check_utf8(writer *w, const char *key, const char *text)
{
    size_t at;
    if (fxi_is_utf8((const unsigned char *)text, strlen(text), &at) || w->status != FX_OK)
        return;
    w->status = fx_fail(FX_STATUS_ARGUMENT, w->op,
                        "%s \"%s\" in the entry \"%s\" is not UTF-8 at its byte %zu",
                        text == key ? "the name" : "the text at", key, w->entry, at + 1);
}

/* Is there room for so many bytes behind a key? They are counted as used. */
static bool room(writer *w, const char *key, size_t bytes)
{
    check_utf8(w, key, key);
    const size_t more = 1 + strlen(key) + 1 + bytes;
    w->full = w->full || more > w->limit - w->used;
    w->used += w->full ? 0 : more;
    return !w->full;
}

/* What was begun must be ended, whatever happens between: libbson stops the program otherwise. */
static bool begin(writer *w, bson_t *doc, const char *key, bson_t *child, bool array)
{
    const bool begun = room(w, key, 5) && (array ? bson_append_array_begin(doc, key, -1, child)
                                                 : bson_append_document_begin(doc, key, -1, child));
    check(w, begun);
    return begun;
}

static void end(writer *w, bson_t *doc, bson_t *child, bool array)
{
    check(w, array ? bson_append_array_end(doc, child) : bson_append_document_end(doc, child));
}

static void put_text(writer *w, bson_t *doc, const char *key, const char *text)
{
    check_utf8(w, key, text);
    if (room(w, key, 4 + strlen(text) + 1))
        check(w, bson_append_utf8(doc, key, -1, text, -1));
}

static void put_int(writer *w, bson_t *doc, const char *key, int64_t v)
{
    if (room(w, key, sizeof v))
        check(w, bson_append_int64(doc, key, -1, v));
}

static void put_bool(writer *w, bson_t *doc, const char *key, bool v)
{
    if (room(w, key, 1))
        check(w, bson_append_bool(doc, key, -1, v));
}

static void put_tag(writer *w, bson_t *doc, const char *tag)
{
    put_text(w, doc, "tag", tag);
}

static const char *index_key(int64_t i, char text[16])
{
    snprintf(text, 16, "%u", (unsigned)i);
    return text;
}

static void put_bytes(writer *w, bson_t *doc, const char *key, const void *data, size_t n)
{
    static const uint8_t none[1];
    const uint32_t size = data ? (uint32_t)n : 0;
    if (room(w, key, 5 + (size_t)size))
        check(w, bson_append_binary(doc, key, -1, BSON_SUBTYPE_BINARY, data ? data : none, size));
    w->left_out += data ? 0 : (int64_t)n;
}

static void put_path(writer *w, bson_t *doc, const char *const *path)
{
    bson_t names;
    char key[16];
    if (!begin(w, doc, "name", &names, true))
        return;
    for (int i = 0; path[i]; i++)
        put_text(w, &names, index_key(i, key), path[i]);
    end(w, doc, &names, true);
}

/* {tag: datatype, params: […], name: path}; the parameters come between. */
static bool begin_type(writer *w, bson_t *doc, const char *key, bson_t *type, bson_t *params)
{
    if (!begin(w, doc, key, type, false))
        return false;
    put_tag(w, type, "datatype");
    if (begin(w, type, "params", params, true))
        return true;
    end(w, doc, type, false);
    return false;
}

static void end_type(writer *w, bson_t *doc, bson_t *type, bson_t *params, const char *const *path)
{
    end(w, type, params, true);
    put_path(w, type, path);
    end(w, doc, type, false);
}

static void put_plain_type(writer *w, bson_t *doc, const char *key, const char *const *path)
{
    bson_t type, params;
    if (begin_type(w, doc, key, &type, &params))
        end_type(w, doc, &type, &params, path);
}

static void put_core_type(writer *w, bson_t *doc, const char *key, const char *name)
{
    put_plain_type(w, doc, key, (const char *const[]){"Core", name, NULL});
}

static void put_sizes(writer *w, bson_t *doc, int n, const int64_t *sizes)
{
    bson_t list;
    char key[16];
    if (!begin(w, doc, "size", &list, true))
        return;
    for (int i = 0; i < n; i++)
        put_int(w, &list, index_key(i, key), sizes[i]);
    end(w, doc, &list, true);
}

/* ---- what is shared -------------------------------------------------------------------------- */

static int by_object(const void *a, const void *b)
{
    const shared *x = a, *y = b;
    const uintptr_t p = (uintptr_t)x->object, q = (uintptr_t)y->object;
    return p != q ? (p > q) - (p < q) : x->order - y->order;
}

static int by_order(const void *a, const void *b)
{
    return ((const shared *)a)->order - ((const shared *)b)->order;
}

static void note(writer *w, const void *object)
{
    if (!fxi_grow(&w->shared, &w->capacity, w->nshared + 1, sizeof *w->shared))
        w->status = fx_fail(FX_STATUS_MEMORY, w->op, "no memory for a list of arrays");
    else
        w->shared[w->nshared] = (shared){object, w->nshared};
    w->nshared += w->status == FX_OK;
}

/* Every array that has axes, and every Leaf: what is in one of these is its own. */
static void collect(writer *w, const void *object, int depth)
{
    fxi_leaf leaf;
    if (!object || w->status != FX_OK)
        return;
    if (fx_is_error(object) || depth > FXI_IO_MAX_DEPTH) {
        w->status = fx_is_error(object)
                        ? fx_array_status(object)
                        : fx_fail(FX_STATUS_ARGUMENT, w->op, "objects nested deeper than %d",
                                  FXI_IO_MAX_DEPTH);
        return;
    }
    if (fx_is_array(object) ? fx_ndims(object) > 0 : fxi_leaf_of(object, &leaf)) {
        note(w, object);
        return;
    }
    for (int64_t i = 0; !fx_is_array(object) && i < fx_count(object); i++)
        collect(w, fx_child(object, i), depth + 1);
}

/* Leaves those that stand there more than once, each once, in the order of the walk: the same
 * objects make the same file. */
static void find_ties(writer *w)
{
    shared *s = w->shared;
    if (w->nshared > 1)
        qsort(s, (size_t)w->nshared, sizeof *s, by_object);
    for (int32_t i = 1; i < w->nshared; i++)
        if (s[i].object == s[i - 1].object && (i == 1 || s[i].object != s[i - 2].object))
            s[w->nties++] = s[i - 1];
    if (w->nties > 1)
        qsort(s, (size_t)w->nties, sizeof *s, by_order);
}

/* The number of a tied object from 1; 0: it is none, or the list itself is being written. */
static int64_t tie_of(const writer *w, const fxi_item *item)
{
    for (int32_t i = 0; item->kind == FXI_ITEM_OBJECT && i < w->nties && !w->backrefs; i++)
        if (w->shared[i].object == item->object)
            return i + 1;
    return 0;
}

static void put_reference(writer *w, bson_t *doc, const char *key, int64_t k)
{
    bson_t child;
    if (!begin(w, doc, key, &child, false))
        return;
    put_tag(w, &child, "backref");
    put_int(w, &child, "ref", k);
    end(w, doc, &child, false);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static void put_elements(writer *w, bson_t *doc, const char *key, fx_array *x, const void *data,
                         size_t bytes)
{
    bson_t child;
    int64_t sizes[FX_MAX_DIMS];
    const int n = fx_ndims(x);
    for (int i = 0; i < n; i++)
        sizes[i] = fx_size(x, i);
    if (n == 1 && fx_eltype(x) == FX_DTYPE_U8) { /* Vector{UInt8} is BSON's own */
        put_bytes(w, doc, key, data, bytes);
        return;
    }
    if (!begin(w, doc, key, &child, false))
        return;
    put_tag(w, &child, n ? "array" : "struct");
    put_core_type(w, &child, "type", fxi_julia_dtype_name(fx_eltype(x)));
    if (n)
        put_sizes(w, &child, n, sizes);
    put_bytes(w, &child, "data", data, bytes);
    end(w, doc, &child, false);
}

/* Numbers that BSON has: false when it has none like this array of no axes. */
static bool put_number(writer *w, bson_t *doc, const char *key, fx_array *x)
{
    int64_t v;
    if (fx_ndims(x) > 0)
        return false;
    switch (fx_eltype(x)) {
    case FX_DTYPE_BOOL:
        put_bool(w, doc, key, fx_item(x) != 0);
        return true;
    case FX_DTYPE_I32:
        if (room(w, key, sizeof(int32_t)))
            check(w, bson_append_int32(doc, key, -1, (int32_t)fx_item(x)));
        return true;
    case FX_DTYPE_I64:
        w->status = fx_read_into(x, &v, sizeof v);
        if (w->status == FX_OK)
            put_int(w, doc, key, v);
        return true;
    case FX_DTYPE_F64:
        if (room(w, key, sizeof(double)))
            check(w, bson_append_double(doc, key, -1, fx_item(x)));
        return true;
    default:
        return false;
    }
}

static void put_array(writer *w, bson_t *doc, const char *key, const void *object)
{
    fx_array *x = (fx_array *)(uintptr_t)object;
    const size_t bytes = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    if (put_number(w, doc, key, x))
        return;
    void *data = w->measuring ? NULL : fxi_malloc(bytes + 1);
    if (!w->measuring)
        w->status = data ? fx_read_into(x, data, bytes)
                         : fx_fail(FX_STATUS_MEMORY, w->op, "no memory for %zu bytes", bytes);
    if (w->status == FX_OK)
        put_elements(w, doc, key, x, data, bytes);
    fxi_free(data);
}

static void put_array_type(writer *w, bson_t *doc, const char *key, const fx_array *x)
{
    bson_t type, params;
    const char *element = fxi_julia_dtype_name(fx_eltype(x));
    if (fx_ndims(x) == 0) {
        put_core_type(w, doc, key, element);
        return;
    }
    if (!begin_type(w, doc, key, &type, &params))
        return;
    put_core_type(w, &params, "0", element);
    put_int(w, &params, "1", fx_ndims(x));
    end_type(w, doc, &type, &params, (const char *const[]){"Core", "Array", NULL});
}

/* ---- functions ------------------------------------------------------------------------------- */

static const fx_function *function_of(const void *object)
{
    return object && !fx_is_array(object) && (fx_type_of(object)->flags & FX_TYPE_FUNCTION) ? object
                                                                                            : NULL;
}

/* Where Julia has the function, and its type's name there: NNlib.#relu. */
static void function_path(writer *w, const fx_function *f, char name[80], const char *path[4])
{
    int n = 0;
    if (f == FX_IDENTITY || f == FX_TANH || f == FX_EXP) {
        path[n++] = "Main";
        path[n++] = "Base";
    } else {
        path[n++] = f == FX_FLATTEN ? "Flux" : "NNlib";
    }
    snprintf(name, 80, "#%s", f == FX_FLATTEN ? "flatten" : f->name);
    path[n++] = name;
    path[n] = NULL;
    if (fxi_julia_function_named(f->name) != f && w->status == FX_OK)
        w->status = fx_fail(FX_STATUS_UNSUPPORTED, w->op,
                            "the function %s is the program's own: BSON names functions of Julia's",
                            f->name);
}

/* ---- containers ------------------------------------------------------------------------------ */

static const fx_list *list_of(const fxi_item *item)
{
    if (item->kind == FXI_ITEM_LIST)
        return item->object;
    const bool tuple = item->kind == FXI_ITEM_OBJECT && item->object &&
                       !fx_is_array(item->object) &&
                       (fx_type_of(item->object)->flags & FX_TYPE_TUPLE);
    return tuple ? &((const fx_tuple_object *)item->object)->items : NULL;
}

/* A chain may name some of its layers only; Julia's has all names or none. */
static bool is_named(const fx_list *list)
{
    for (int64_t i = 0; list->names && i < list->n; i++)
        if (!list->names[i])
            return false;
    return list->names != NULL;
}

/* A tuple, or a list of values. */
static void put_items(writer *w, bson_t *doc, const char *key, const fx_list *list, int depth)
{
    bson_t items;
    char text[16];
    if (!begin(w, doc, key, &items, true))
        return;
    for (int64_t i = 0; i < list->n && w->status == FX_OK; i++)
        put_value(w, &items, index_key(i, text), of_object(list->items[i]), depth + 1);
    end(w, doc, &items, true);
}

static void put_tuple_type(writer *w, bson_t *doc, const char *key, const fx_list *list, int depth)
{
    bson_t type, params;
    char text[16];
    if (!begin_type(w, doc, key, &type, &params))
        return;
    for (int64_t i = 0; i < list->n && w->status == FX_OK; i++)
        put_type(w, &params, index_key(i, text), of_object(list->items[i]), depth + 1);
    end_type(w, doc, &type, &params, (const char *const[]){"Core", "Tuple", NULL});
}

static void put_names(writer *w, bson_t *doc, const char *key, const fx_list *list)
{
    bson_t tuple, data, symbol;
    char text[16];
    if (!begin(w, doc, key, &tuple, false))
        return;
    put_tag(w, &tuple, "tuple");
    const bool begun = begin(w, &tuple, "data", &data, true);
    for (int64_t i = 0; i < list->n && begun; i++)
        if (begin(w, &data, index_key(i, text), &symbol, false)) {
            put_tag(w, &symbol, "symbol");
            put_text(w, &symbol, "name", list->names[i]);
            end(w, &data, &symbol, false);
        }
    if (begun)
        end(w, &tuple, &data, true);
    end(w, doc, &tuple, false);
}

static void put_list_type(writer *w, bson_t *doc, const char *key, const fx_list *list, int depth)
{
    bson_t type, params;
    if (!is_named(list)) {
        put_tuple_type(w, doc, key, list, depth);
        return;
    }
    if (!begin_type(w, doc, key, &type, &params))
        return;
    put_names(w, &params, "0", list);
    put_tuple_type(w, &params, "1", list, depth);
    end_type(w, doc, &type, &params, (const char *const[]){"Core", "NamedTuple", NULL});
}

static void put_list(writer *w, bson_t *doc, const char *key, const fx_list *list, int depth)
{
    bson_t child;
    if (!begin(w, doc, key, &child, false))
        return;
    put_tag(w, &child, is_named(list) ? "struct" : "tuple");
    if (is_named(list))
        put_list_type(w, &child, "type", list, depth);
    put_items(w, &child, "data", list, depth);
    end(w, doc, &child, false);
}

/* Tuples of integers; Julia counts the axes of a Dropout from 1. */
static void put_dims(writer *w, bson_t *doc, const char *key, const fxi_item *item)
{
    const fx_dims *d = item->object;
    bson_t child, data;
    char text[16];
    if (!begin(w, doc, key, &child, false))
        return;
    put_tag(w, &child, "tuple");
    if (begin(w, &child, "data", &data, true)) {
        for (int64_t i = 0; i < d->n; i++)
            put_int(w, &data, index_key(i, text), d->v[i] + item->integer);
        end(w, &child, &data, true);
    }
    end(w, doc, &child, false);
}

static void put_dims_type(writer *w, bson_t *doc, const char *key, const fx_dims *d)
{
    bson_t type, params;
    char text[16];
    if (!begin_type(w, doc, key, &type, &params))
        return;
    for (int64_t i = 0; i < d->n; i++)
        put_core_type(w, &params, index_key(i, text), "Int64");
    end_type(w, doc, &type, &params, (const char *const[]){"Core", "Tuple", NULL});
}

/* ---- structs --------------------------------------------------------------------------------- */

static bool all_numbers(const fxi_shape *s)
{
    for (int i = 0; i < s->nparams; i++)
        if (s->params[i].field >= 0)
            return false;
    return s->nparams > 0;
}

/* MaxPool{2,4}: Julia makes an array of parameters that are all integers, and writes it as one. */
static void put_number_params(writer *w, bson_t *type, const fxi_shape *s)
{
    bson_t params;
    int64_t v[FXI_SHAPE_PARAMS];
    for (int i = 0; i < s->nparams; i++)
        v[i] = s->params[i].number;
    if (!begin(w, type, "params", &params, false))
        return;
    put_tag(w, &params, "array");
    put_core_type(w, &params, "type", "Int64");
    put_sizes(w, &params, 1, &(const int64_t){s->nparams});
    put_bytes(w, &params, "data", v, (size_t)s->nparams * sizeof *v);
    end(w, type, &params, false);
}

static void put_params(writer *w, bson_t *type, const fxi_shape *s, int depth)
{
    bson_t params;
    char text[16];
    if (!begin(w, type, "params", &params, true))
        return;
    for (int i = 0; i < s->nparams; i++) {
        const fxi_param *p = &s->params[i];
        if (p->field < 0)
            put_int(w, &params, index_key(i, text), p->number);
        else
            put_type(w, &params, index_key(i, text), s->items[p->field], depth + 1);
    }
    end(w, type, &params, true);
}

static void put_shape_type(writer *w, bson_t *doc, const char *key, const fxi_shape *s, int depth)
{
    bson_t type;
    if (!begin(w, doc, key, &type, false))
        return;
    put_tag(w, &type, "datatype");
    if (all_numbers(s))
        put_number_params(w, &type, s);
    else
        put_params(w, &type, s, depth);
    put_path(w, &type, s->path);
    end(w, doc, &type, false);
}

static void put_shape(writer *w, bson_t *doc, const char *key, const fxi_shape *s, int depth)
{
    bson_t child, data;
    char text[16];
    if (!begin(w, doc, key, &child, false))
        return;
    put_tag(w, &child, "struct");
    put_shape_type(w, &child, "type", s, depth);
    const bool begun = begin(w, &child, "data", &data, true);
    for (int i = 0; i < s->nitems && begun && w->status == FX_OK; i++)
        put_value(w, &data, index_key(i, text), s->items[i], depth + 1);
    if (begun)
        end(w, &child, &data, true);
    end(w, doc, &child, false);
}

/* The only value of a type. */
static void put_single(writer *w, bson_t *doc, const char *key, const char *const *path)
{
    bson_t child, data;
    if (!begin(w, doc, key, &child, false))
        return;
    put_tag(w, &child, "struct");
    put_plain_type(w, &child, "type", path);
    if (begin(w, &child, "data", &data, true))
        end(w, &child, &data, true);
    end(w, doc, &child, false);
}

/* ---- any value ------------------------------------------------------------------------------- */

static void unknown(writer *w, const void *object)
{
    char text[200];
    fx_summary((void *)(uintptr_t)object, text, sizeof text);
    if (w->status == FX_OK)
        w->status =
            fx_fail(FX_STATUS_UNSUPPORTED, w->op,
                    "%s is no type of Flux: BSON needs one; .safetensors keeps its arrays", text);
}

/* The value (or the type) of an object that is neither a struct nor a list. */
static void put_object(writer *w, bson_t *doc, const char *key, const void *object, bool type)
{
    const fx_function *f = function_of(object);
    const char *text = fxi_file_text_of(object);
    char name[80];
    const char *path[4];
    if (!object && type)
        put_core_type(w, doc, key, "Nothing");
    else if (!object)
        check(w, room(w, key, 0) && bson_append_null(doc, key, -1));
    else if (text && type)
        put_core_type(w, doc, key, "String");
    else if (text)
        put_text(w, doc, key, text);
    else if (fx_is_array(object) && type)
        put_array_type(w, doc, key, object);
    else if (fx_is_array(object))
        put_array(w, doc, key, object);
    else if (!f)
        unknown(w, object);
    else {
        function_path(w, f, name, path);
        (type ? put_plain_type : put_single)(w, doc, key, path);
    }
}

static fxi_item scalar_item(fxi_item item)
{
    const double x = item.number;
    return of_object(item.kind == FXI_ITEM_FLOAT32 ? fxi_full(FX_DTYPE_F32, x, 0, NULL)
                                                   : fxi_full(FX_DTYPE_F64, x, 0, NULL));
}

static bool stopped(writer *w, const fxi_item *item, int depth)
{
    const bool error = item->kind == FXI_ITEM_OBJECT && item->object && fx_is_error(item->object);
    if (depth > FXI_IO_MAX_DEPTH && w->status == FX_OK)
        w->status =
            fx_fail(FX_STATUS_ARGUMENT, w->op, "objects nested deeper than %d", FXI_IO_MAX_DEPTH);
    else if (error && w->status == FX_OK) /* made for writing: there was no memory */
        w->status = fx_is_array(item->object) ? fx_array_status(item->object) : FX_STATUS_MEMORY;
    return w->status != FX_OK;
}

static void put_value(writer *w, bson_t *doc, const char *key, fxi_item item, int depth)
{
    FXI_SCOPE;
    fxi_shape shape;
    if (item.kind == FXI_ITEM_FLOAT32 || item.kind == FXI_ITEM_FLOAT64)
        item = scalar_item(item);
    if (stopped(w, &item, depth))
        return;
    const fx_list *list = list_of(&item);
    const int64_t tie = tie_of(w, &item);
    if (tie)
        put_reference(w, doc, key, tie);
    else if (item.kind == FXI_ITEM_BOOL)
        put_bool(w, doc, key, item.integer != 0);
    else if (item.kind == FXI_ITEM_INT)
        put_int(w, doc, key, item.integer);
    else if (item.kind == FXI_ITEM_DIMS)
        put_dims(w, doc, key, &item);
    else if (item.kind == FXI_ITEM_SINGLE)
        put_single(w, doc, key, item.path);
    else if (list)
        put_list(w, doc, key, list, depth);
    else if (fxi_shape_of_item(&item, &shape))
        put_shape(w, doc, key, &shape, depth);
    else
        put_object(w, doc, key, item.object, false);
}

static void put_type(writer *w, bson_t *doc, const char *key, fxi_item item, int depth)
{
    FXI_SCOPE;
    fxi_shape shape;
    if (item.kind == FXI_ITEM_FLOAT32 || item.kind == FXI_ITEM_FLOAT64)
        item = scalar_item(item);
    if (stopped(w, &item, depth))
        return;
    const fx_list *list = list_of(&item);
    if (item.kind == FXI_ITEM_BOOL || item.kind == FXI_ITEM_INT)
        put_core_type(w, doc, key, item.kind == FXI_ITEM_BOOL ? "Bool" : "Int64");
    else if (item.kind == FXI_ITEM_DIMS)
        put_dims_type(w, doc, key, item.object);
    else if (item.kind == FXI_ITEM_SINGLE)
        put_plain_type(w, doc, key, item.path);
    else if (list)
        put_list_type(w, doc, key, list, depth);
    else if (fxi_shape_of_item(&item, &shape))
        put_shape_type(w, doc, key, &shape, depth);
    else
        put_object(w, doc, key, item.object, true);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_backrefs(writer *w, bson_t *doc)
{
    bson_t list;
    char key[16];
    if (w->nties == 0 || w->status != FX_OK || !begin(w, doc, "_backrefs", &list, true))
        return;
    w->backrefs = true;
    for (int32_t i = 0; i < w->nties && w->status == FX_OK; i++)
        put_value(w, &list, index_key(i, key), of_object(w->shared[i].object), 0);
    end(w, doc, &list, true);
}

/* The document in a buffer of this capacity; its length, 0 when it is too small or something
 * failed. */
static size_t write_into(writer *w, uint8_t *buffer, size_t capacity, const fxi_saving *what)
{
    const uint8_t empty[] = {5, 0, 0, 0, 0};
    memcpy(buffer, empty, sizeof empty);
    size_t all = capacity + SPARE;
    bson_t *doc = bson_new_from_buffer(&buffer, &all, NULL, NULL);
    w->used = sizeof empty;
    w->limit = capacity;
    w->full = !doc;
    w->backrefs = false;
    w->left_out = 0;
    for (int i = 0; i < what->n && w->status == FX_OK && !w->full; i++) {
        w->entry = what->names[i];
        put_value(w, doc, what->names[i], of_object(what->objects[i]), 0);
    }
    w->entry = "_backrefs";
    if (!w->full)
        put_backrefs(w, doc);
    const size_t length = w->full || w->status != FX_OK ? 0 : doc->len;
    if (doc)
        bson_destroy(doc);
    return length;
}

static uint8_t *new_buffer(writer *w, size_t capacity)
{
    uint8_t *buffer = w->status == FX_OK ? fxi_malloc(capacity + SPARE) : NULL;
    if (!buffer && w->status == FX_OK)
        w->status =
            fx_fail(FX_STATUS_MEMORY, w->op, "no memory for a document of %zu bytes", capacity);
    return buffer;
}

/* The exact size of the document: it is made without the elements of the arrays. */
static int64_t measure(writer *w, const fxi_saving *what)
{
    size_t length = 0;
    w->measuring = true;
    for (size_t capacity = 1 << 16; length == 0 && capacity < MOST_BYTES; capacity *= 2) {
        uint8_t *buffer = new_buffer(w, capacity);
        length = buffer ? write_into(w, buffer, capacity, what) : 0;
        fxi_free(buffer);
        if (w->status != FX_OK)
            return 0;
    }
    w->measuring = false;
    return (int64_t)length + w->left_out;
}

static void write_document(writer *w, fxi_file_out *out, const fxi_saving *what)
{
    const int64_t size = measure(w, what);
    if (w->status == FX_OK && size > MOST_BYTES)
        w->status = fx_fail(FX_STATUS_UNSUPPORTED, w->op,
                            "%s: %lld bytes: BSON counts in 32 bits and ends at 2 GiB; use "
                            ".safetensors or a checkpoint",
                            out->path, (long long)size);
    uint8_t *buffer = new_buffer(w, (size_t)size);
    const size_t length = buffer ? write_into(w, buffer, (size_t)size, what) : 0;
    if (w->status == FX_OK)
        w->status = length ? fxi_file_out_write(out, buffer, length)
                           : fx_fail(FX_STATUS_INTERNAL, w->op, "the document grew while written");
    fxi_free(buffer);
}

static fx_status save(fxi_file_out *out, const fxi_saving *what)
{
    writer w = {.op = what->op};
    for (int i = 0; i < what->n && w.status == FX_OK; i++) {
        collect(&w, what->objects[i], 0);
        if (strcmp(what->names[i], "_backrefs") == 0)
            w.status = fx_fail(FX_STATUS_ARGUMENT, w.op, "the name _backrefs is BSON.jl's own");
    }
    find_ties(&w);
    if (w.status == FX_OK)
        write_document(&w, out, what);
    fxi_free(w.shared);
    return w.status;
}

fx_status fxi_bson_save(fxi_file_out *out, const fxi_saving *what)
{
    fxi_saving flux = *what;
    if (what->metadata)
        return fx_fail(FX_STATUS_UNSUPPORTED, what->op, "BSON has no place for metadata");
    void **objects = fxi_calloc((size_t)what->n + 1, sizeof *objects);
    if (!objects)
        return fx_fail(FX_STATUS_MEMORY, what->op, "no memory for %d objects", what->n);
    const fx_error earlier = fxi_error_aside();
    fx_status status = fxi_flux_optimisers_out(what, objects);
    flux.objects = objects;
    if (status == FX_OK)
        status = save(out, &flux);
    fxi_free(objects);
    const fx_status recorded = fxi_error_back(&earlier); /* while objects were made for writing */
    return status == FX_OK ? recorded : status;
}
