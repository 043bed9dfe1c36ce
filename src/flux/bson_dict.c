/* bson_dict.c: reads the dictionaries of a BSON document: see bson_objects.h.
 *
 * BSON.jl writes a Dict or IdDict as two lists, keys and values. Either list is a bare array, or,
 * if all items are numbers of one type, an array of that type with packed bytes. Only a Dict whose
 * keys are symbols is a plain document.
 */
#include "bson_objects.h"
#include "error.h"
#include "file_dict.h"
#include "file_node.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

/* A list of keys or values: a bare array, or an array of numbers with its type. */
typedef struct series {
    fxi_bson bare;             /* kind NOTHING if the numbers are packed */
    const fxi_file_type *type; /* type of the packed numbers */
    fxi_bson bytes;
    int64_t n;
} series;

static bool series_of(const fxi_julia *j, fxi_bson v, series *out)
{
    fx_dims size;
    v = fxi_julia_value(j, v);
    *out = (series){.bare = v};
    if (v.kind == FXI_BSON_ARRAY) {
        out->n = fxi_bson_count(v);
        return true;
    }
    out->bare = (fxi_bson){FXI_BSON_NOTHING, 0, {0}};
    if (!fxi_julia_tagged(v, "array") || !fxi_julia_dims(j, fxi_bson_get(v, "size"), &size) ||
        size.n != 1)
        return false;
    out->type = fxi_julia_elements(j, fxi_bson_get(v, "type"));
    out->bytes = fxi_julia_get(j, v, "data");
    out->n = size.v[0];
    return out->type && out->type->parts == 1 && out->bytes.kind == FXI_BSON_BINARY &&
           out->n >= 0 && out->bytes.size == (uint64_t)out->n * (uint64_t)out->type->size;
}

/* Number i of a packed list, as a 0-d array. */
static void *packed(fxi_julia *j, const series *s, int64_t i)
{
    fxi_bson part = s->bytes;
    part.u.bytes += i * s->type->size;
    part.size = (uint32_t)s->type->size;
    return fxi_bson_elements(j, s->type, part, &(const fx_dims){.n = 0});
}

/* Keys as names of tuple items, and the original kind of the keys. Names built for integer keys are
 * stored in `made`. */
typedef struct key_names {
    fxi_dict_keys kind;
    char (*made)[24]; /* for integer keys */
} key_names;

static bool integer_names(fxi_julia *j, const series *keys, key_names *out, fxi_bson_list *list)
{
    FXI_SCOPE;
    out->kind = FXI_KEYS_INT;
    out->made = fxi_calloc((size_t)keys->n + 1, sizeof *out->made);
    if (!out->made) {
        j->b->status = fx_fail(FX_STATUS_MEMORY, j->b->op, "%s: no memory for %lld keys",
                               j->b->path, (long long)keys->n);
        return false;
    }
    fxi_bson_items items = fxi_bson_items_of(keys->bare);
    fxi_bson v;
    for (int64_t i = 0; i < keys->n && j->b->status == FX_OK; i++) {
        int64_t key = 0;
        bool good = keys->type
                        ? keys->type->dtype == FX_DTYPE_I64 || keys->type->dtype == FX_DTYPE_I32
                        : fxi_bson_next(&items, &v) && fxi_julia_integer(j, v, &key);
        if (good && keys->type) {
            fx_array *x = packed(j, keys, i);
            good = x && fx_read_as(x, FX_DTYPE_I64, &key, 1) == FX_OK;
        }
        if (!good)
            return false;
        snprintf(out->made[i], sizeof out->made[i], "%lld", (long long)key);
        fxi_bson_list_push(j, list, out->made[i], NULL);
    }
    return j->b->status == FX_OK;
}

/* Collects names if all keys are strings, or all are symbols. */
static bool text_names(fxi_julia *j, const series *keys, key_names *out, fxi_bson_list *list)
{
    fxi_bson_items items = fxi_bson_items_of(keys->bare);
    fxi_bson v;
    bool good = !keys->type;
    for (int i = 0; good && j->b->status == FX_OK && fxi_bson_next(&items, &v); i++) {
        const bool text = fxi_julia_value(j, v).kind == FXI_BSON_STRING;
        const char *name = fxi_bson_key_text(j, v);
        good = name && (i == 0 || text == (out->kind == FXI_KEYS_STRING));
        out->kind = text ? FXI_KEYS_STRING : FXI_KEYS_SYMBOL;
        if (good)
            fxi_bson_list_push(j, list, name, NULL);
    }
    return good && j->b->status == FX_OK;
}

/* Refuses duplicate keys: readers differ in which value they take. */
static bool unique(fxi_julia *j, const fxi_bson_list *list, fxi_bson where)
{
    int32_t twice;
    if (!fxi_bson_list_unique(list, &twice)) {
        j->b->status =
            fx_fail(FX_STATUS_MEMORY, j->b->op, "%s: no memory for %d keys", j->b->path, list->n);
        return false;
    }
    if (twice >= 0)
        fxi_bytes_fail(j->b, fxi_bson_offset(j, where),
                       "a dictionary contains the key \"%.60s\" twice", list->names[twice]);
    return twice < 0;
}

/* For keys of other kinds: keeps both lists unchanged. */
static void *keys_and_values(fxi_julia *j, const char *type, fxi_bson keys, fxi_bson values,
                             int depth)
{
    void *both[] = {fxi_bson_object(j, keys, depth + 1), fxi_bson_object(j, values, depth + 1)};
    return j->b->status == FX_OK
               ? fxi_file_node(type, 2, (const char *const[]){"keys", "values"}, both)
               : NULL;
}

void *fxi_bson_dictionary(fxi_julia *j, fxi_bson v, int depth)
{
    char type[FXI_JULIA_NAME];
    const fxi_bson data = fxi_julia_get(j, v, "data"), first = fxi_bson_at(data, 0),
                   second = fxi_bson_at(data, 1);
    series keys, values;
    fxi_julia_struct_name(j, v, type);
    if (!series_of(j, first, &keys) || !series_of(j, second, &values) || keys.n != values.n) {
        fxi_bytes_fail(j->b, fxi_bson_offset(j, v),
                       "a %s whose keys and values are not two lists of equal length", type);
        return NULL;
    }
    key_names names = {.kind = FXI_KEYS_STRING};
    fxi_bson_list list = {0};
    const bool texts = text_names(j, &keys, &names, &list);
    if (!texts)
        fxi_bson_list_free(&list);
    bool named_all = texts || (j->b->status == FX_OK && integer_names(j, &keys, &names, &list));
    named_all = named_all && unique(j, &list, first);
    fxi_bson_items items = fxi_bson_items_of(values.bare);
    fxi_bson value;
    for (int32_t i = 0; named_all && i < list.n && j->b->status == FX_OK; i++)
        list.items[i] = values.type                     ? packed(j, &values, i)
                        : fxi_bson_next(&items, &value) ? fxi_bson_object(j, value, depth + 1)
                                                        : NULL;
    void *object = NULL;
    if (named_all && j->b->status == FX_OK)
        object = fxi_file_dict(&(const fxi_dict_object){
            .items = {.n = list.n, .items = list.items, .names = (char **)(uintptr_t)list.names},
            .keys = names.kind,
            .by_identity = strcmp(type, "IdDict") == 0});
    fxi_bson_list_free(&list);
    fxi_free(names.made);
    if (object || j->b->status != FX_OK)
        return object;
    return keys_and_values(j, "Dict", first, second, depth);
}

/* Makes a Dict{Symbol,Any}, which is a document without a tag. Frees the list. */
void *fxi_bson_symbols(fxi_julia *j, fxi_bson_list *list)
{
    void *object = NULL;
    if (j->b->status == FX_OK)
        object = fxi_file_dict(&(const fxi_dict_object){
            .items = {.n = list->n, .items = list->items, .names = (char **)(uintptr_t)list->names},
            .keys = FXI_KEYS_SYMBOL});
    fxi_bson_list_free(list);
    return object;
}
