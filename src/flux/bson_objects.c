/* bson_objects.c: makes objects from the values of a BSON document that Julia wrote.
 *
 * Tags and types are a fixed list. A layer of Flux becomes the library's layer, if there is one,
 * and a container becomes a tuple. Every other struct becomes a file node (file_node.h) that keeps
 * its name and its children, so that its arrays stay reachable. No name in a file is looked up or
 * executed. A value that a file references twice becomes one object, so shared weights stay shared.
 * A value that contains itself (a record of a Tracker-era optimiser) becomes NULL at the inner
 * position.
 */
#include "bson_objects.h"
#include "bson_callable.h"
#include "c_text.h"
#include "error.h"
#include "file_node.h"
#include "flux_optimiser.h"
#include "julia_types.h"
#include "memory.h"
#include "tuples.h"

#include <stdlib.h>
#include <string.h>

size_t fxi_bson_offset(const fxi_julia *j, fxi_bson v)
{
    const bool in_file = v.kind == FXI_BSON_DOCUMENT || v.kind == FXI_BSON_ARRAY ||
                         v.kind == FXI_BSON_STRING || v.kind == FXI_BSON_BINARY;
    return in_file ? (size_t)(v.u.bytes - j->b->data) : 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

bool fxi_bson_list_push(fxi_julia *j, fxi_bson_list *list, const char *name, void *object)
{
    const int32_t need = list->n + 1;
    if (!fxi_grow(&list->items, &list->items_capacity, need, sizeof *list->items) ||
        !fxi_grow(&list->names, &list->names_capacity, need, sizeof *list->names)) {
        j->b->status = fx_fail(FX_STATUS_MEMORY, j->b->op, "%s: no memory for a list of %d objects",
                               j->b->path, need);
        return false;
    }
    list->items[list->n] = object;
    list->names[list->n++] = name;
    return true;
}

void fxi_bson_list_fill(fxi_julia *j, fxi_bson_list *list, fxi_bson container, int depth)
{
    fxi_bson_items items = fxi_bson_items_of(container);
    fxi_bson v;
    while (j->b->status == FX_OK && fxi_bson_next(&items, &v))
        if (strcmp(items.key, "_backrefs") != 0 || container.u.bytes != j->root.u.bytes)
            fxi_bson_list_push(j, list, items.key, fxi_bson_object(j, v, depth + 1));
}

void fxi_bson_list_free(fxi_bson_list *list)
{
    fxi_free(list->items);
    fxi_free(list->names);
    *list = (fxi_bson_list){0};
}

bool fxi_bson_list_unique(const fxi_bson_list *list, int32_t *out_twice)
{
    const char *const **sorted = fxi_calloc((size_t)list->n + 1, sizeof *sorted);
    *out_twice = -1;
    if (!sorted)
        return false;
    for (int32_t i = 0; i < list->n; i++)
        sorted[i] = (const char *const *)&list->names[i];
    qsort((void *)sorted, (size_t)list->n, sizeof *sorted, fxi_by_name);
    for (int32_t i = 1; i < list->n && *out_twice < 0; i++)
        if (strcmp(*sorted[i - 1], *sorted[i]) == 0)
            *out_twice = (int32_t)(sorted[i] - (const char *const *)list->names);
    fxi_free((void *)sorted);
    return true;
}

/* Makes a named tuple if the names allow it, otherwise a node of this type. Frees the list. */
static void *named(fxi_julia *j, const char *type, fxi_bson_list *list)
{
    int32_t twice = -1;
    if (j->b->status == FX_OK && !fxi_bson_list_unique(list, &twice))
        j->b->status =
            fx_fail(FX_STATUS_MEMORY, j->b->op, "%s: no memory for %d names", j->b->path, list->n);
    bool good = twice < 0;
    for (int32_t i = 0; i < list->n && good; i++)
        good = list->names[i][0] != 0;
    void *object = NULL;
    if (j->b->status == FX_OK)
        object = good ? fx_named_tuple_from(list->n, list->names, list->items)
                      : fxi_file_node(type, list->n, list->names, list->items);
    fxi_bson_list_free(list);
    return object;
}

static void *tuple_of(fxi_julia *j, fxi_bson container, int depth)
{
    fxi_bson_list list = {0};
    fxi_bson_list_fill(j, &list, container, depth);
    void *object = j->b->status == FX_OK ? fxi_tuple(list.n, list.items) : NULL;
    fxi_bson_list_free(&list);
    return object;
}

static void *node_of(fxi_julia *j, const char *type, fxi_bson container, int depth)
{
    char words[200];
    fxi_bson_list list = {0};
    fxi_bson_list_fill(j, &list, container, depth);
    const char *known = fxi_bson_field_names(type, list.n);
    if (known) {
        snprintf(words, sizeof words, "%s", known);
        char *rest = words;
        for (int32_t i = 0; i < list.n; i++)
            list.names[i] = fxi_cut_word(" ", &rest);
    }
    void *object = j->b->status == FX_OK
                       ? fxi_file_node(type, list.n, known ? list.names : NULL, list.items)
                       : NULL;
    fxi_bson_list_free(&list);
    return object;
}

/* ---- arrays and numbers ---------------------------------------------------------------------- */

void *fxi_bson_elements(fxi_julia *j, const fxi_file_type *type, fxi_bson data, const fx_dims *size)
{
    uint64_t sizes[2 * FX_MAX_DIMS];
    for (int64_t i = 0; i < size->n; i++) /* the table of types expects the slowest axis first */
        sizes[i] = (uint64_t)size->v[size->n - 1 - i];
    fxi_bytes part =
        fxi_bytes_part(j->b, fxi_bson_offset(j, data), data.size, "the elements of an array");
    size_t bytes = 0;
    if (!fxi_file_type_bytes(type, (int)size->n, sizes, &bytes) || bytes != data.size) {
        fxi_bytes_fail(j->b, fxi_bson_offset(j, data),
                       "an array whose size does not match its %u bytes", (unsigned)data.size);
        return NULL;
    }
    fx_array *x = fxi_file_type_array(&part, type, false, (int)size->n, sizes);
    if (part.status != FX_OK)
        j->b->status = part.status;
    return x;
}

/* An array of an unsupported element type keeps its raw bytes. */
static void *other_elements(fxi_julia *j, fxi_bson v, fxi_bson data, int depth)
{
    char element[FXI_JULIA_NAME], name[FXI_JULIA_NAME + 8];
    fxi_julia_type_name(j, fxi_bson_get(v, "type"), element);
    snprintf(name, sizeof name, "Array{%s}", element);
    if (data.kind != FXI_BSON_BINARY)
        return node_of(j, name, data, depth);
    void *bytes = fxi_bson_object(j, data, depth + 1);
    return fxi_file_node(name, 1, NULL, &bytes);
}

static void *array(fxi_julia *j, fxi_bson v, int depth)
{
    fx_dims size;
    const fxi_bson data = fxi_julia_get(j, v, "data");
    bool good = fxi_julia_dims(j, fxi_bson_get(v, "size"), &size) && size.n <= FX_MAX_DIMS;
    for (int64_t i = 0; i < size.n; i++)
        good = good && size.v[i] >= 0;
    if (!good || (data.kind != FXI_BSON_BINARY && data.kind != FXI_BSON_ARRAY)) {
        fxi_bytes_fail(j->b, fxi_bson_offset(j, v), "an array without valid size or data");
        return NULL;
    }
    const fxi_file_type *type = fxi_julia_elements(j, fxi_bson_get(v, "type"));
    return type && data.kind == FXI_BSON_BINARY ? fxi_bson_elements(j, type, data, &size)
                                                : other_elements(j, v, data, depth);
}

static void *binary(fxi_julia *j, fxi_bson v)
{
    const fx_dims size = {.n = 1, .v = {v.size}};
    return fxi_bson_elements(j, fxi_file_type_npy("u1"), v, &size);
}

static void *scalar(fx_dtype dtype, double x)
{
    return fxi_full(dtype, x, 0, NULL);
}

/* ---- structs --------------------------------------------------------------------------------- */

typedef void *(*struct_fn)(fxi_julia *j, fxi_bson v, int depth);

static void *missing(fxi_julia *j, fxi_bson v, int depth)
{
    (void)j;
    (void)v;
    (void)depth;
    return NULL;
}

const char *fxi_bson_key_text(const fxi_julia *j, fxi_bson v)
{
    v = fxi_julia_value(j, v);
    if (fxi_julia_tagged(v, "symbol"))
        v = fxi_bson_get(v, "name");
    return v.kind == FXI_BSON_STRING ? v.u.text : NULL;
}

/* ---- named tuples ---------------------------------------------------------------------------- */

/* Takes names from one container and values from another. */
static void *pairs(fxi_julia *j, const char *type, fxi_bson keys, fxi_bson values, int depth)
{
    fxi_bson_list list = {0};
    fxi_bson_items ks = fxi_bson_items_of(keys), vs = fxi_bson_items_of(values);
    fxi_bson k, v;
    while (j->b->status == FX_OK && fxi_bson_next(&ks, &k)) {
        const char *name = fxi_bson_key_text(j, k);
        if (!name || !fxi_bson_next(&vs, &v))
            fxi_bytes_fail(j->b, fxi_bson_offset(j, keys),
                           name ? "%s has more names than values" : "an invalid name in a %s",
                           type);
        else
            fxi_bson_list_push(j, &list, name, fxi_bson_object(j, v, depth + 1));
    }
    return named(j, type, &list);
}

static void *named_tuple(fxi_julia *j, fxi_bson v, int depth)
{
    const fxi_bson params = fxi_julia_get(j, fxi_julia_get(j, v, "type"), "params");
    const fxi_bson names = fxi_julia_value(j, fxi_bson_at(params, 0));
    return pairs(j, "NamedTuple", fxi_julia_get(j, names, "data"), fxi_julia_get(j, v, "data"),
                 depth);
}

/* Tracker-era arrays, whose fields are tracker, data and gradient. */
static void *tracked_array(fxi_julia *j, fxi_bson v, int depth)
{
    return fxi_bson_object(j, fxi_bson_at(fxi_julia_get(j, v, "data"), 1), depth + 1);
}

/* Flux.params(m): a list of arrays; since Zygote 0.4 inside a buffer. */
static void *parameters(fxi_julia *j, fxi_bson v, int depth)
{
    char name[FXI_JULIA_NAME];
    fxi_bson list = fxi_julia_value(j, fxi_bson_at(fxi_julia_get(j, v, "data"), 0));
    fxi_julia_struct_name(j, list, name);
    if (strcmp(name, "Zygote.Buffer") == 0)
        list = fxi_julia_value(j, fxi_bson_at(fxi_julia_get(j, list, "data"), 0));
    if (list.kind == FXI_BSON_ARRAY)
        return tuple_of(j, list, depth);
    fxi_bytes_fail(j->b, fxi_bson_offset(j, v), "a list of parameters that contains no list");
    return NULL;
}

static const struct {
    const char *type;
    struct_fn make;
} structs[] = {
    {"NamedTuple", named_tuple},
    {"Dict", fxi_bson_dictionary},
    {"IdDict", fxi_bson_dictionary},
    {"OrderedCollections.OrderedDict", fxi_bson_dictionary},
    {"Missing", missing},
    {"Tracker.TrackedArray", tracked_array},
    {"Flux.Tracker.TrackedArray", tracked_array},
    {"Zygote.Params", parameters},
    {"Tracker.Params", parameters},
    {"Flux.Tracker.Params", parameters},
};

/* True for arrays of a GPU, whose elements are not in the file. */
static bool on_a_gpu(fxi_julia *j, fxi_bson v, const char *type)
{
    static const char *const names[] = {"CuArray", "ROCArray", "MtlArray", "oneArray"};
    const char *dot = strrchr(type, '.');
    for (size_t i = 0; dot && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(dot + 1, names[i]) == 0)
            return fxi_bytes_fail(
                       j->b, fxi_bson_offset(j, v),
                       "saved from a GPU: a %s holds a pointer into the memory of that "
                       "device, the weights are not in the file; save cpu(model) in Julia",
                       type) != FX_OK;
    return false;
}

static void *structure(fxi_julia *j, fxi_bson v, int depth)
{
    char type[FXI_JULIA_NAME];
    fxi_julia_struct_name(j, v, type);
    const fxi_bson data = fxi_julia_get(j, v, "data");
    if (!type[0] || data.kind == FXI_BSON_NOTHING) {
        fxi_bytes_fail(j->b, fxi_bson_offset(j, v), "a struct without a type or without data");
        return NULL;
    }
    if (on_a_gpu(j, v, type))
        return NULL;
    for (size_t i = 0; i < sizeof structs / sizeof structs[0]; i++)
        if (strcmp(structs[i].type, type) == 0)
            return structs[i].make(j, v, depth);
    const fxi_file_type *number = fxi_julia_elements(j, fxi_bson_get(v, "type"));
    if (number && data.kind == FXI_BSON_BINARY)
        return fxi_bson_elements(j, number, data, &(const fx_dims){.n = 0});
    void *known = fxi_julia_function(j, v);
    if (!known && fxi_julia_tagged(fxi_julia_get(j, v, "type"), "jl_anonymous"))
        known = fxi_bson_closure(j, v);
    if (!known)
        known = fxi_bson_callable(j, type, v);
    if (!known && j->b->status == FX_OK)
        known = fxi_bson_layer(j, type, v, depth);
    if (!known && j->b->status == FX_OK)
        known = fxi_own_struct(j, type, v, depth);
    return known || j->b->status != FX_OK ? known : node_of(j, type, data, depth);
}

/* ---- every value ----------------------------------------------------------------------------- */

static void *tuple(fxi_julia *j, fxi_bson v, int depth)
{
    return tuple_of(j, fxi_julia_get(j, v, "data"), depth);
}

static void *symbol(fxi_julia *j, fxi_bson v, int depth)
{
    const char *text = fxi_bson_key_text(j, v);
    (void)depth;
    return fxi_file_text(text ? text : "", text ? strlen(text) : 0);
}

/* Types and modules used as values become their names. */
static void *type_name(fxi_julia *j, fxi_bson v, int depth)
{
    char name[FXI_JULIA_NAME];
    (void)depth;
    fxi_julia_type_name(j, v, name);
    return fxi_file_text(name, strlen(name));
}

static const struct {
    const char *tag;
    struct_fn make;
} tags[] = {{"array", array},           {"tuple", tuple},   {"struct", structure},
            {"symbol", symbol},         {"svec", tuple},    {"datatype", type_name},
            {"unionall", type_name},    {"ref", type_name}, {"jl_bottom_type", type_name},
            {"jl_anonymous", type_name}};

static void *document(fxi_julia *j, fxi_bson v, int depth)
{
    const fxi_bson tag = fxi_bson_tag(v);
    if (tag.kind == FXI_BSON_NOTHING) {
        fxi_bson_list list = {0};
        fxi_bson_list_fill(j, &list, v, depth);
        return v.u.bytes == j->root.u.bytes ? named(j, "Dict", &list) : fxi_bson_symbols(j, &list);
    }
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (fxi_bson_is(tag, tags[i].tag))
            return tags[i].make(j, v, depth);
    fxi_bytes_fail(j->b, fxi_bson_offset(j, v), "BSON.jl has no tag \"%.40s\"",
                   tag.kind == FXI_BSON_STRING ? tag.u.text : "");
    return NULL;
}

static void *value(fxi_julia *j, fxi_bson v, int depth)
{
    switch (v.kind) {
    case FXI_BSON_BOOL:
        return scalar(FX_DTYPE_BOOL, (double)v.u.integer);
    case FXI_BSON_INT:
        return v.size == sizeof(int32_t) ? scalar(FX_DTYPE_I32, (double)v.u.integer)
                                         : fxi_from(FX_DTYPE_I64, &v.u.integer, 0, NULL);
    case FXI_BSON_DOUBLE:
        return scalar(FX_DTYPE_F64, v.u.number);
    case FXI_BSON_STRING:
        return fxi_file_text(v.u.text, v.size);
    case FXI_BSON_BINARY:
        return binary(j, v);
    case FXI_BSON_ARRAY:
        return tuple_of(j, v, depth);
    case FXI_BSON_DOCUMENT:
        return document(j, v, depth);
    default:
        return NULL;
    }
}

static char being_made;

static void *referenced(fxi_julia *j, int32_t k, int depth)
{
    if (!j->made[k]) {
        const bool again = fxi_julia_reference(j, j->refs[k]) >=
                           0; /* only a reference to a reference adds a level */
        j->made[k] = &being_made;
        j->made[k] = fxi_bson_object(j, j->refs[k], depth + again);
    }
    return j->made[k] == &being_made ? NULL : j->made[k];
}

void *fxi_bson_object(fxi_julia *j, fxi_bson v, int depth)
{
    const int32_t k = j->b->status == FX_OK ? fxi_julia_reference(j, v) : -1;
    if (j->b->status != FX_OK)
        return NULL;
    if (depth > FXI_IO_MAX_DEPTH)
        fxi_bytes_fail(j->b, fxi_bson_offset(j, v), "objects nested deeper than %d",
                       FXI_IO_MAX_DEPTH);
    else if (k < 0 && ++j->objects > j->max_objects)
        fxi_bytes_fail(j->b, fxi_bson_offset(j, v),
                       "more than %lld objects, too many for %zu bytes", (long long)j->max_objects,
                       j->b->size);
    if (j->b->status != FX_OK)
        return NULL;
    void *object = k >= 0 ? referenced(j, k, depth) : value(j, v, depth);
    if (object && fx_is_error(object) && j->b->status == FX_OK)
        j->b->status = fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_MEMORY;
    return j->b->status == FX_OK ? object : NULL;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void *load(fxi_bytes *b)
{
    fxi_julia j;
    void *object = NULL;
    const fxi_bson root = fxi_bson_open(b);
    if (root.kind == FXI_BSON_NOTHING)
        return NULL;
    if (fxi_julia_open(&j, b, root))
        object = fxi_bson_object(&j, root, 0);
    fxi_julia_close(&j);
    if (object && b->status == FX_OK)
        b->status = fxi_flux_optimisers_in(object);
    return object;
}

/* The caller's scope owns all objects, because the caller may keep any one of them. Any failure on
 * the way makes the result an error, whichever function noticed it. */
void *fxi_bson_load(fxi_bytes *b)
{
    const fx_error earlier = fxi_error_begin();
    void *object = load(b);
    if (b->status == FX_OK && !object)
        fxi_bytes_fail(b, 0, "the file is empty");
    const fx_status status = fxi_error_end(&earlier);
    if (b->status == FX_OK)
        b->status = status;
    return b->status == FX_OK ? object : fx_error_array(b->status);
}
