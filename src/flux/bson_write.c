/* bson_write.c: writes objects as BSON that Flux can read.
 *
 * Every struct is written with its exact type, parameters included, because BSON.jl allocates a
 * struct of that type and converts the fields to the types that it declares. The order of keys is
 * that of files written by Flux: tag, type, size, data; tag, params, name. An object that is
 * reached twice (an array, the Leaf of an optimiser, a layer) is written once, in _backrefs. It is
 * shared again after loading, and the file size stays proportional to the number of objects.
 *
 * The document is produced twice: first its bytes are counted, which needs no memory and reads no
 * array, then they are written into a buffer of that size (bson_out.h). A document too large for
 * BSON's 32-bit lengths, and a text that is not UTF-8, which no reader accepts, are refused before
 * anything is written.
 */
#include "bson_write.h"
#include "bson_callable.h"
#include "bson_julia.h"
#include "bson_put.h"
#include "bson_shapes.h"
#include "error.h"
#include "file_dict.h"
#include "file_node.h"
#include "flux_optimiser.h"
#include "flux_rows.h"
#include "identity_map.h"
#include "julia_types.h"
#include "memory.h"
#include "state_parts.h"
#include "tuples.h"

#include <cflux/optim.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = INT32_MAX - 1 };

/* An object that the walk reached, and its position in the order of the walk. */
typedef struct shared {
    const void *object;
    int32_t order;
} shared;

typedef struct writer {
    fxi_bson_writer base; /* first member, so that functions of bson_put.h accept it */
    const char *path;     /* of the file, for messages */
    shared *shared;       /* every object reached; find_ties keeps only those reached twice */
    int32_t nshared, capacity;
    int32_t nties;
    fxi_identity_map seen; /* objects that the first walk entered */
    fxi_identity_map ties; /* object → its number in _backrefs */
    const void *defining;  /* the object in _backrefs whose definition is being written; reset when
                              it is met */
    bool types;            /* some type is written as a reference */
} writer;

static void put_value(writer *w, const char *key, fxi_item item, int depth);
static void put_type(writer *w, const char *key, fxi_item item, int depth);

static fxi_item of_object(const void *object)
{
    return (fxi_item){.kind = FXI_ITEM_OBJECT, .object = object};
}

/* ---- shared objects -------------------------------------------------------------------------- */

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
        w->base.status = fx_fail(FX_STATUS_MEMORY, w->base.op, "no memory for a list of arrays");
    else
        w->shared[w->nshared] = (shared){object, w->nshared};
    w->nshared += w->base.status == FX_OK;
}

/* Collects every array with axes, every Leaf, and every other object with children. An object is
 * entered only the first time. */
static void collect(writer *w, const void *object, int depth)
{
    fxi_leaf leaf;
    void *unused;
    if (!object || w->base.status != FX_OK)
        return;
    if (fx_is_error(object) || depth > FXI_IO_MAX_DEPTH) {
        w->base.status = fx_is_error(object)
                             ? fx_array_status(object)
                             : fx_fail(FX_STATUS_ARGUMENT, w->base.op,
                                       "objects nested deeper than %d", FXI_IO_MAX_DEPTH);
        return;
    }
    const bool array = fx_is_array(object), whole = array || fxi_leaf_of(object, &leaf);
    const int64_t n = whole ? 0 : fx_count(object);
    if (array ? fx_ndims(object) > 0 : whole || n > 0)
        note(w, object);
    if (n == 0 || fxi_identity_get(&w->seen, object, &unused))
        return;
    if (!fxi_identity_put(&w->seen, object, NULL))
        w->base.status = fx_fail(FX_STATUS_MEMORY, w->base.op, "no memory for a list of objects");
    for (int64_t i = 0; i < n; i++)
        collect(w, fx_child(object, i), depth + 1);
}

/* Keeps one entry for each object that was collected more than once, in the order of the walk, so
 * that the same objects always give the same file. */
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
    for (int32_t i = 0; i < w->nties && w->base.status == FX_OK; i++)
        if (!fxi_identity_put(&w->ties, s[i].object, (void *)(intptr_t)(i + 1)))
            w->base.status =
                fx_fail(FX_STATUS_MEMORY, w->base.op, "no memory for a list of objects");
}

/* The number in _backrefs, from 1, of a tied object, or of its type (types follow all objects); 0
 * if it has none, or if this is its own definition. */
static int64_t tie_of(writer *w, const fxi_item *item, bool type)
{
    void *number = NULL;
    if (item->kind != FXI_ITEM_OBJECT || !item->object ||
        !fxi_identity_get(&w->ties, item->object, &number))
        return 0;
    if (w->defining == item->object) {
        w->defining = NULL;
        return 0;
    }
    return (int64_t)(intptr_t)number + (type ? w->nties : 0);
}

static void put_reference(writer *w, const char *key, int64_t k)
{
    const int64_t child = fxi_put_tagged(&w->base, key, "backref");
    fxi_put_int(&w->base, "ref", k);
    fxi_put_end(&w->base, child);
}

/* ---- functions ------------------------------------------------------------------------------- */

static const fx_function *function_of(const void *object)
{
    return object && !fx_is_array(object) && (fx_type_of(object)->flags & FX_TYPE_FUNCTION) ? object
                                                                                            : NULL;
}

static bool is_of_base(const fx_function *f)
{
#define ROW(NAME, name) &fxi_function_##name,
    static const fx_function *const all[] = {FXI_BASE_FUNCTIONS(ROW) FX_IDENTITY, FX_TANH, FX_ONLY};
#undef ROW
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == f)
            return true;
    return fxi_julia_is_connection(f);
}

/* The module of a function in Julia, and the name of its type there: NNlib.#relu. */
static void function_path(writer *w, const fx_function *f, char name[80], const char *path[5])
{
    int n = 0;
    if (f == FX_MEAN) {
        path[n++] = "Statistics";
    } else if (is_of_base(f)) {
        path[n++] = "Main";
        path[n++] = f == FX_TUPLE ? "Core" : "Base";
        if (f == FX_ONLY)
            path[n++] = "Iterators";
    } else {
        path[n++] = f == FX_FLATTEN ? "Flux" : "NNlib";
    }
    snprintf(name, 80, "#%s", f == FX_FLATTEN ? "flatten" : f->name);
    path[n++] = name;
    path[n] = NULL;
    if (fxi_julia_function_named(f->name) != f && w->base.status == FX_OK)
        w->base.status =
            fx_fail(FX_STATUS_UNSUPPORTED, w->base.op,
                    "the function %s belongs to the program; BSON can only name functions of Julia",
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

/* True if every layer is named. A chain here may name only some of its layers; in Julia all or none
 * have names. */
static bool is_named(const fx_list *list)
{
    for (int64_t i = 0; list->names && i < list->n; i++)
        if (!list->names[i])
            return false;
    return list->names != NULL;
}

static fxi_item item_of(const fx_list *list, int64_t i, fxi_item_kind kind)
{
    return (fxi_item){.kind = kind, .object = list->items[i]};
}

/* Puts a tuple, or a list of values. */
static void put_items(writer *w, const char *key, const fx_list *list, fxi_item_kind kind,
                      int depth)
{
    char text[FXI_INDEX_KEY];
    const int64_t items = fxi_put_begin(&w->base, key, true);
    for (int64_t i = 0; i < list->n && w->base.status == FX_OK; i++)
        put_value(w, fxi_index_key(i, text), item_of(list, i, kind), depth + 1);
    fxi_put_end(&w->base, items);
}

static void put_tuple_type(writer *w, const char *key, const fx_list *list, fxi_item_kind kind,
                           int depth)
{
    char text[FXI_INDEX_KEY];
    const fxi_bson_type t = fxi_put_type_begin(&w->base, key);
    for (int64_t i = 0; i < list->n && w->base.status == FX_OK; i++)
        put_type(w, fxi_index_key(i, text), item_of(list, i, kind), depth + 1);
    fxi_put_type_end(&w->base, t, (const char *const[]){"Core", "Tuple", NULL});
}

static void put_names(writer *w, const char *key, const fx_list *list)
{
    char text[FXI_INDEX_KEY];
    const int64_t tuple = fxi_put_tagged(&w->base, key, "tuple");
    const int64_t data = fxi_put_begin(&w->base, "data", true);
    for (int64_t i = 0; i < list->n; i++)
        fxi_put_symbol(&w->base, fxi_index_key(i, text), list->names[i]);
    fxi_put_end(&w->base, data);
    fxi_put_end(&w->base, tuple);
}

static void put_list_type(writer *w, const char *key, const fx_list *list, fxi_item_kind kind,
                          int depth)
{
    if (!is_named(list)) {
        put_tuple_type(w, key, list, kind, depth);
        return;
    }
    const fxi_bson_type t = fxi_put_type_begin(&w->base, key);
    put_names(w, "0", list);
    put_tuple_type(w, "1", list, kind, depth);
    fxi_put_type_end(&w->base, t, (const char *const[]){"Core", "NamedTuple", NULL});
}

static void put_list(writer *w, const char *key, const fx_list *list, fxi_item_kind kind, int depth)
{
    const int64_t child = fxi_put_tagged(&w->base, key, is_named(list) ? "struct" : "tuple");
    if (is_named(list))
        put_list_type(w, "type", list, kind, depth);
    put_items(w, "data", list, kind, depth);
    fxi_put_end(&w->base, child);
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

static const fxi_dict_object *dict_of(const fxi_item *item)
{
    return item->kind == FXI_ITEM_OBJECT ? fxi_file_dict_of(item->object) : NULL;
}

/* BSON.jl would not read a document with the key "tag" as a plain dictionary. */
static bool is_plain_document(const fxi_dict_object *d)
{
    for (int64_t i = 0; i < d->items.n; i++)
        if (strcmp(d->items.names[i], "tag") == 0)
            return false;
    return d->keys == FXI_KEYS_SYMBOL && !d->by_identity;
}

static void put_dict_type(writer *w, const char *key, const fxi_dict_object *d)
{
    static const char *const keys[] = {
        [FXI_KEYS_SYMBOL] = "Symbol", [FXI_KEYS_STRING] = "String", [FXI_KEYS_INT] = "Int64"};
    const fxi_bson_type t = fxi_put_type_begin(&w->base, key);
    fxi_put_core_type(&w->base, "0", keys[d->keys]);
    fxi_put_core_type(&w->base, "1", "Any");
    fxi_put_type_end(&w->base, t,
                     (const char *const[]){"Base", d->by_identity ? "IdDict" : "Dict", NULL});
}

static void put_int_keys(writer *w, const char *key, const fx_list *list)
{
    const int64_t array = fxi_put_tagged(&w->base, key, "array");
    fxi_put_core_type(&w->base, "type", "Int64");
    fxi_put_sizes(&w->base, 1, &list->n);
    char *to = fxi_bson_binary(&w->base.out, "data", list->n * (int64_t)sizeof(int64_t));
    for (int64_t i = 0; to && i < list->n; i++) {
        const int64_t v = strtoll(list->names[i], NULL, 10);
        memcpy(to + (size_t)i * sizeof v, &v, sizeof v);
    }
    fxi_put_end(&w->base, array);
}

static void put_keys(writer *w, const char *key, const fxi_dict_object *d)
{
    char text[FXI_INDEX_KEY];
    if (d->keys == FXI_KEYS_INT) {
        put_int_keys(w, key, &d->items);
        return;
    }
    const int64_t keys = fxi_put_begin(&w->base, key, true);
    for (int64_t i = 0; i < d->items.n; i++)
        (d->keys == FXI_KEYS_STRING ? fxi_put_text : fxi_put_symbol)(
            &w->base, fxi_index_key(i, text), d->items.names[i]);
    fxi_put_end(&w->base, keys);
}

static void put_dict(writer *w, const char *key, const fxi_dict_object *d, int depth)
{
    if (is_plain_document(d)) {
        const int64_t document = fxi_put_begin(&w->base, key, false);
        for (int64_t i = 0; i < d->items.n && w->base.status == FX_OK; i++)
            put_value(w, d->items.names[i], of_object(d->items.items[i]), depth + 1);
        fxi_put_end(&w->base, document);
        return;
    }
    const int64_t dict = fxi_put_tagged(&w->base, key, "struct");
    put_dict_type(w, "type", d);
    const int64_t data = fxi_put_begin(&w->base, "data", true);
    put_keys(w, "0", d);
    put_items(w, "1", &d->items, FXI_ITEM_OBJECT, depth + 1);
    fxi_put_end(&w->base, data);
    fxi_put_end(&w->base, dict);
}

/* Puts a tuple of integers. Julia counts the axes of a Dropout from 1. */
static void put_dims(writer *w, const char *key, const fxi_item *item)
{
    const fx_dims *d = item->object;
    char text[FXI_INDEX_KEY];
    const int64_t child = fxi_put_tagged(&w->base, key, "tuple");
    const int64_t data = fxi_put_begin(&w->base, "data", true);
    for (int64_t i = 0; i < d->n; i++)
        fxi_put_int(&w->base, fxi_index_key(i, text), d->v[i] + item->integer);
    fxi_put_end(&w->base, data);
    fxi_put_end(&w->base, child);
}

static void put_dims_type(writer *w, const char *key, const fx_dims *d)
{
    char text[FXI_INDEX_KEY];
    const fxi_bson_type t = fxi_put_type_begin(&w->base, key);
    for (int64_t i = 0; i < d->n; i++)
        fxi_put_core_type(&w->base, fxi_index_key(i, text), "Int64");
    fxi_put_type_end(&w->base, t, (const char *const[]){"Core", "Tuple", NULL});
}

/* ---- structs --------------------------------------------------------------------------------- */

static bool all_numbers(const fxi_shape *s)
{
    for (int i = 0; i < s->nparams; i++)
        if (s->params[i].field != FXI_PARAM_NUMBER)
            return false;
    return s->nparams > 0;
}

/* MaxPool{2,4}: if all type parameters are integers, Julia collects them into an integer array,
 * which BSON.jl writes as an array. */
static void put_number_params(writer *w, const fxi_shape *s)
{
    const int64_t params = fxi_put_tagged(&w->base, "params", "array");
    fxi_put_core_type(&w->base, "type", "Int64");
    fxi_put_sizes(&w->base, 1, &(const int64_t){s->nparams});
    char *data = fxi_bson_binary(&w->base.out, "data", s->nparams * (int64_t)sizeof(int64_t));
    for (int i = 0; data && i < s->nparams; i++)
        memcpy(data + (size_t)i * sizeof(int64_t), &s->params[i].number, sizeof(int64_t));
    fxi_put_end(&w->base, params);
}

static void put_word(writer *w, const char *key, const fxi_param *p)
{
    char symbol[80] = "";
    const char *at = p->words;
    fxi_word word;
    for (int64_t i = 0; i <= p->number && fxi_next_word(&at, &word); i++)
        snprintf(symbol, sizeof symbol, "%.*s", word.n, word.from);
    fxi_put_symbol(&w->base, key, symbol);
}

static void put_params(writer *w, const fxi_shape *s, int depth)
{
    char text[FXI_INDEX_KEY];
    const int64_t params = fxi_put_begin(&w->base, "params", true);
    for (int i = 0; i < s->nparams; i++) {
        const fxi_param *p = &s->params[i];
        if (p->field == FXI_PARAM_WORD)
            put_word(w, fxi_index_key(i, text), p);
        else if (p->field == FXI_PARAM_FLAG)
            fxi_put_bool(&w->base, fxi_index_key(i, text), p->number != 0);
        else if (p->field < 0)
            fxi_put_int(&w->base, fxi_index_key(i, text), p->number);
        else
            put_type(w, fxi_index_key(i, text), s->items[p->field], depth + 1);
    }
    fxi_put_end(&w->base, params);
}

static void put_shape_type(writer *w, const char *key, const fxi_shape *s, int depth)
{
    const int64_t type = fxi_put_tagged(&w->base, key, "datatype");
    if (all_numbers(s))
        put_number_params(w, s);
    else
        put_params(w, s, depth);
    fxi_put_path(&w->base, s->path);
    fxi_put_end(&w->base, type);
}

static void put_shape(writer *w, const char *key, const fxi_shape *s, int depth)
{
    char text[FXI_INDEX_KEY];
    if (s->lost && w->base.status == FX_OK)
        w->base.status =
            fx_fail(FX_STATUS_UNSUPPORTED, w->base.op, "the %s in the entry \"%s\": %s", s->path[1],
                    w->base.entry, s->lost);
    if (s->unknown && w->base.status == FX_OK)
        w->base.status = fx_fail(FX_STATUS_UNSUPPORTED, w->base.op,
                                 "the %s in the entry \"%s\": Flux has no field for its %s; "
                                 ".safetensors can store its arrays",
                                 s->path[1], w->base.entry, s->unknown);
    const int64_t child = fxi_put_tagged(&w->base, key, "struct");
    put_shape_type(w, "type", s, depth);
    const int64_t data = fxi_put_begin(&w->base, "data", true);
    for (int i = 0; i < s->nitems && w->base.status == FX_OK; i++)
        put_value(w, fxi_index_key(i, text), s->items[i], depth + 1);
    fxi_put_end(&w->base, data);
    fxi_put_end(&w->base, child);
}

/* ---- any value ------------------------------------------------------------------------------- */

static void unknown(writer *w, const void *object)
{
    char text[200];
    fx_summary((void *)(uintptr_t)object, text, sizeof text);
    if (w->base.status == FX_OK)
        w->base.status = fx_fail(
            FX_STATUS_UNSUPPORTED, w->base.op,
            "%s is not a type of Flux, which BSON requires; .safetensors can store its arrays",
            text);
}

/* Puts the value (or the type) of an object that is neither a struct nor a list. */
static void put_object(writer *w, const char *key, const void *object, bool type)
{
    const fx_function *f = function_of(object);
    const char *text = fxi_file_text_of(object);
    char name[80];
    const char *path[5];
    if (!object && type)
        fxi_put_core_type(&w->base, key, "Nothing");
    else if (!object)
        fxi_put_null(&w->base, key);
    else if (text && type)
        fxi_put_core_type(&w->base, key, "String");
    else if (text)
        fxi_put_text(&w->base, key, text);
    else if (fx_is_array(object) && type)
        fxi_put_array_type(&w->base, key, object);
    else if (fx_is_array(object))
        fxi_put_array(&w->base, key, (fx_array *)(uintptr_t)object);
    else if (!f)
        unknown(w, object);
    else {
        function_path(w, f, name, path);
        (type ? fxi_put_plain_type : fxi_put_single)(&w->base, key, path);
    }
}

/* Replaces numbers by 0-d arrays, and closures by objects of Julia's types. */
static fxi_item as_written(fxi_item item)
{
    if (item.kind == FXI_ITEM_FLOAT32 || item.kind == FXI_ITEM_FLOAT64)
        return of_object(fxi_full(item.kind == FXI_ITEM_FLOAT32 ? FX_DTYPE_F32 : FX_DTYPE_F64,
                                  item.number, 0, NULL));
    const bool layer = item.kind == FXI_ITEM_LAYER;
    if (item.kind != FXI_ITEM_OBJECT && !layer)
        return item;
    void *callable = fxi_callable_for(item.object, layer);
    return of_object(callable ? callable : item.object);
}

static fx_status too_long(const writer *w)
{
    return fx_fail(FX_STATUS_UNSUPPORTED, w->base.op,
                   "%s: more than 2 GiB, the limit of BSON; use .safetensors or a checkpoint",
                   w->path);
}

static bool shape_of(const fxi_item *item, fxi_shape *out)
{
    return fxi_shape_of_item(item, out) ||
           (item->kind == FXI_ITEM_OBJECT && !dict_of(item) && fxi_own_shape(item->object, out));
}

static bool stopped(writer *w, const fxi_item *item, int depth)
{
    const bool error = item->kind == FXI_ITEM_OBJECT && item->object && fx_is_error(item->object);
    if (depth > FXI_IO_MAX_DEPTH && w->base.status == FX_OK)
        w->base.status = fx_fail(FX_STATUS_ARGUMENT, w->base.op, "objects nested deeper than %d",
                                 FXI_IO_MAX_DEPTH);
    else if (w->base.out.at > MOST_BYTES && w->base.status == FX_OK)
        w->base.status = too_long(w);
    else if (error &&
             w->base.status == FX_OK) /* an object made for writing failed: out of memory */
        w->base.status =
            fx_is_array(item->object) ? fx_array_status(item->object) : FX_STATUS_MEMORY;
    return w->base.status != FX_OK;
}

static void put_value(writer *w, const char *key, fxi_item item, int depth)
{
    FXI_SCOPE;
    fxi_shape shape;
    item = as_written(item);
    if (stopped(w, &item, depth))
        return;
    const fx_list *list = list_of(&item);
    const fxi_item_kind kind = item.kind == FXI_ITEM_LIST ? FXI_ITEM_LAYER : FXI_ITEM_OBJECT;
    const int64_t tie = tie_of(w, &item, false);
    if (tie)
        put_reference(w, key, tie);
    else if (item.kind == FXI_ITEM_BOOL)
        fxi_put_bool(&w->base, key, item.integer != 0);
    else if (item.kind == FXI_ITEM_INT)
        fxi_put_int(&w->base, key, item.integer);
    else if (item.kind == FXI_ITEM_SYMBOL)
        fxi_put_symbol(&w->base, key, item.object);
    else if (item.kind == FXI_ITEM_DIMS)
        put_dims(w, key, &item);
    else if (item.kind == FXI_ITEM_SINGLE)
        fxi_put_single(&w->base, key, item.path);
    else if (dict_of(&item))
        put_dict(w, key, dict_of(&item), depth);
    else if (list)
        put_list(w, key, list, kind, depth);
    else if (shape_of(&item, &shape))
        put_shape(w, key, &shape, depth);
    else
        put_object(w, key, item.object, false);
}

static void put_type(writer *w, const char *key, fxi_item item, int depth)
{
    FXI_SCOPE;
    fxi_shape shape;
    item = as_written(item);
    if (stopped(w, &item, depth))
        return;
    const fx_list *list = list_of(&item);
    const fxi_item_kind kind = item.kind == FXI_ITEM_LIST ? FXI_ITEM_LAYER : FXI_ITEM_OBJECT;
    const int64_t tie =
        fx_is_array(item.kind == FXI_ITEM_OBJECT ? item.object : NULL) ? 0 : tie_of(w, &item, true);
    w->types |= tie > 0;
    if (tie)
        put_reference(w, key, tie);
    else if (item.kind == FXI_ITEM_BOOL || item.kind == FXI_ITEM_INT)
        fxi_put_core_type(&w->base, key, item.kind == FXI_ITEM_BOOL ? "Bool" : "Int64");
    else if (item.kind == FXI_ITEM_SYMBOL)
        fxi_put_core_type(&w->base, key, "Symbol");
    else if (item.kind == FXI_ITEM_DIMS)
        put_dims_type(w, key, item.object);
    else if (item.kind == FXI_ITEM_SINGLE)
        fxi_put_plain_type(&w->base, key, item.path);
    else if (dict_of(&item))
        put_dict_type(w, key, dict_of(&item));
    else if (list)
        put_list_type(w, key, list, kind, depth);
    else if (shape_of(&item, &shape))
        put_shape_type(w, key, &shape, depth);
    else
        put_object(w, key, item.object, true);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_backrefs(writer *w)
{
    char key[FXI_INDEX_KEY];
    if (w->nties == 0 || w->base.status != FX_OK)
        return;
    const int64_t list = fxi_put_begin(&w->base, "_backrefs", true);
    for (int32_t i = 0; i < w->nties && w->base.status == FX_OK; i++) {
        w->defining = w->shared[i].object;
        put_value(w, fxi_index_key(i, key), of_object(w->shared[i].object), 0);
    }
    for (int32_t i = 0; i < w->nties && w->types && w->base.status == FX_OK; i++) {
        w->defining = w->shared[i].object;
        put_type(w, fxi_index_key(w->nties + i, key), of_object(w->shared[i].object), 0);
    }
    w->defining = NULL;
    fxi_put_end(&w->base, list);
}

/* Writes the document into `bytes`, or only counts it (NULL). Returns its length. */
static int64_t put_document(writer *w, uint8_t *bytes, int64_t capacity, const fxi_saving *what)
{
    w->base.out = (fxi_bson_out){.bytes = bytes, .capacity = capacity};
    const int64_t begun = fxi_bson_begin(&w->base.out, NULL, false);
    for (int i = 0; i < what->n && w->base.status == FX_OK; i++) {
        w->base.entry = what->names[i];
        put_value(w, what->names[i], of_object(what->objects[i]), 0);
    }
    w->base.entry = "_backrefs";
    put_backrefs(w);
    fxi_bson_end(&w->base.out, begun);
    return w->base.out.at;
}

static void write_document(writer *w, fxi_file_out *out, const fxi_saving *what)
{
    const int64_t size = put_document(w, NULL, 0, what);
    if (w->base.status == FX_OK && size > MOST_BYTES)
        w->base.status = too_long(w);
    uint8_t *bytes = w->base.status == FX_OK ? fxi_malloc((size_t)size) : NULL;
    if (!bytes && w->base.status == FX_OK)
        w->base.status = fx_fail(FX_STATUS_MEMORY, w->base.op,
                                 "no memory for a document of %lld bytes", (long long)size);
    if (bytes && put_document(w, bytes, size, what) != size && w->base.status == FX_OK)
        w->base.status =
            fx_fail(FX_STATUS_INTERNAL, w->base.op, "the document changed while it was written");
    if (w->base.status == FX_OK)
        w->base.status = fxi_file_out_write(out, bytes, (size_t)size);
    fxi_free(bytes);
}

static fx_status save(fxi_file_out *out, const fxi_saving *what)
{
    writer w = {.base = {.op = what->op}, .path = out->path};
    for (int i = 0; i < what->n && w.base.status == FX_OK; i++) {
        const char *name = what->names[i];
        collect(&w, what->objects[i], 0);
        if (strcmp(name, "_backrefs") == 0 || strcmp(name, "tag") == 0)
            w.base.status =
                fx_fail(FX_STATUS_ARGUMENT, w.base.op, "BSON.jl reserves the name %s", name);
        else if (!*name)
            w.base.status = fx_fail(FX_STATUS_ARGUMENT, w.base.op,
                                    "an object in a BSON file needs a name that is not empty");
    }
    find_ties(&w);
    if (w.base.status == FX_OK)
        write_document(&w, out, what);
    fxi_identity_free(&w.seen);
    fxi_identity_free(&w.ties);
    fxi_free(w.shared);
    return w.base.status;
}

fx_status fxi_bson_save(fxi_file_out *out, const fxi_saving *what)
{
    fxi_saving flux = *what;
    if (what->metadata)
        return fx_fail(FX_STATUS_UNSUPPORTED, what->op, "BSON cannot store metadata");
    const int repeated = fxi_repeated_name(what->n, what->names);
    if (repeated >= 0) /* readers keep only one of the objects, or refuse the file */
        return fx_fail(FX_STATUS_ARGUMENT, what->op, "two objects would be called \"%s\"",
                       what->names[repeated]);
    void **objects = repeated == -1 ? fxi_calloc((size_t)what->n + 1, sizeof *objects) : NULL;
    if (!objects)
        return fx_fail(FX_STATUS_MEMORY, what->op, "no memory for %d objects", what->n);
    const fx_error earlier = fxi_error_begin();
    fx_status status = fxi_flux_optimisers_out(what, objects);
    flux.objects = objects;
    if (status == FX_OK)
        status = save(out, &flux);
    fxi_free(objects);
    const fx_status recorded =
        fxi_error_end(&earlier); /* failures while objects were made for writing */
    return status == FX_OK ? recorded : status;
}
