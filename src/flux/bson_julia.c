/* bson_julia.c: decodes what BSON.jl writes for Julia values: references, type names, tuples of
 * numbers.
 */
#include "bson_julia.h"
#include "memory.h"

#include <string.h>

/* Limits against hostile files. Flux's files have a handful of references per array; no model has
 * MAX_REFERENCES. A file may make FREE_OBJECTS objects, and one more for each BYTES_PER_OBJECT
 * bytes: each number of a list, such as the losses of a training run, takes only about 15 bytes and
 * becomes an array. */
enum { MAX_REFERENCES = 300000, FREE_OBJECTS = 200000, BYTES_PER_OBJECT = 150 };

static const fxi_bson nothing = {FXI_BSON_NOTHING, 0, {0}};

/* ---- references ------------------------------------------------------------------------------ */

/* Does the document contain an object of Julia? */
static bool has_objects(fxi_bson document)
{
    fxi_bson_items items = fxi_bson_items_of(document);
    fxi_bson v;
    bool found = false;
    while (!found && fxi_bson_next(&items, &v))
        found = fxi_bson_tag(v).kind == FXI_BSON_STRING;
    return found;
}

/* Refuses a model of Keras (recorded): a document that has one of these keys and no object of
 * Julia. (A program may save a text under such a name beside a model of Flux.) */
static bool is_keras(fxi_julia *j)
{
    static const char *const keys[] = {"class_name", "keras_version", "model_config"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (fxi_bson_get(j->root, keys[i]).kind != FXI_BSON_NOTHING && !has_objects(j->root))
            return fxi_bytes_fail(j->b, 0, "a model of Keras (it has \"%s\"), not one of Flux",
                                  keys[i]) != FX_OK;
    return false;
}

bool fxi_julia_open(fxi_julia *j, fxi_bytes *b, fxi_bson root)
{
    *j = (fxi_julia){.b = b, .root = root};
    j->max_objects = FREE_OBJECTS + (int64_t)(b->size / BYTES_PER_OBJECT);
    if (is_keras(j))
        return false;
    const fxi_bson list = fxi_bson_get(root, "_backrefs");
    const int64_t n = fxi_bson_count(list);
    if (list.kind != FXI_BSON_ARRAY || n == 0)
        return true;
    if (n > MAX_REFERENCES)
        return fxi_bytes_fail(b, (size_t)(list.u.bytes - b->data),
                              "%lld references; at most %d are read", (long long)n,
                              MAX_REFERENCES) == FX_OK;
    j->refs = fxi_calloc((size_t)n, sizeof *j->refs);
    j->made = fxi_calloc((size_t)n, sizeof *j->made);
    if (!j->refs || !j->made) {
        b->status = fx_fail(FX_STATUS_MEMORY, b->op, "%s: no memory for %lld references", b->path,
                            (long long)n);
        return false;
    }
    fxi_bson_items items = fxi_bson_items_of(list);
    while (fxi_bson_next(&items, &j->refs[j->nrefs]))
        j->nrefs++;
    return true;
}

void fxi_julia_close(fxi_julia *j)
{
    fxi_free(j->refs);
    fxi_free(j->made);
}

bool fxi_julia_tagged(fxi_bson document, const char *tag)
{
    return fxi_bson_is(fxi_bson_tag(document), tag);
}

int32_t fxi_julia_reference(const fxi_julia *j, fxi_bson v)
{
    if (v.kind != FXI_BSON_DOCUMENT || !fxi_julia_tagged(v, "backref"))
        return -1;
    const fxi_bson k = fxi_bson_get(v, "ref");
    if (k.kind == FXI_BSON_INT && k.u.integer >= 1 && k.u.integer <= j->nrefs)
        return (int32_t)(k.u.integer - 1);
    fxi_bytes_fail(j->b, (size_t)(v.u.bytes - j->b->data),
                   "a reference to an object that is not one of the %d in _backrefs", j->nrefs);
    return -1;
}

/* BSON.jl writes no reference to a reference. A long chain of them, followed again and again, would
 * take hours. */
fxi_bson fxi_julia_value(const fxi_julia *j, fxi_bson v)
{
    for (int hops = 0; hops <= FXI_IO_MAX_DEPTH; hops++) {
        const int32_t k = fxi_julia_reference(j, v);
        if (k < 0)
            return j->b->status == FX_OK ? v : nothing;
        v = j->refs[k];
    }
    return nothing;
}

fxi_bson fxi_julia_get(const fxi_julia *j, fxi_bson document, const char *key)
{
    return fxi_julia_value(j, fxi_bson_get(document, key));
}

/* ---- types ----------------------------------------------------------------------------------- */

static void join(char name[FXI_JULIA_NAME], size_t *at, const char *part)
{
    const int n = snprintf(name + *at, FXI_JULIA_NAME - *at, *at ? ".%s" : "%s", part);
    *at += n > 0 && (size_t)n < FXI_JULIA_NAME - *at ? (size_t)n : 0;
}

/* Packages that older Julia versions put into Main. */
static bool is_package(fxi_bson part)
{
    static const char *const names[] = {"Flux", "NNlib", "Tracker", "Zygote", "Optimisers"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (fxi_bson_is(part, names[i]))
            return true;
    return false;
}

/* Joins a path with dots and drops Main where it is redundant: older Julia versions write
 * Main.Base.Dict for Base.Dict and Main.Flux.Dense for Flux.Dense. A user's own type is
 * Main.Encoder. */
static void join_path(fxi_bson path, char name[FXI_JULIA_NAME])
{
    fxi_bson_items items = fxi_bson_items_of(path);
    fxi_bson part;
    size_t at = 0;
    bool main_first = false;
    name[0] = 0;
    for (int i = 0;
         i < FXI_IO_MAX_DEPTH && fxi_bson_next(&items, &part) && part.kind == FXI_BSON_STRING;
         i++) {
        const bool base = fxi_bson_is(part, "Base") || fxi_bson_is(part, "Core");
        if (i == 0 && fxi_bson_is(part, "Main")) {
            main_first = true;
            continue;
        }
        if (at == 0 && base && i <= 1) {
            main_first = false;
            continue;
        }
        if (main_first && !is_package(part))
            join(name, &at, "Main");
        main_first = false;
        join(name, &at, part.u.text);
    }
}

void fxi_julia_type_name(const fxi_julia *j, fxi_bson type, char name[FXI_JULIA_NAME])
{
    type = fxi_julia_value(j, type);
    for (int i = 0; i < FXI_IO_MAX_DEPTH && fxi_julia_tagged(type, "unionall"); i++)
        type = fxi_julia_get(j, type, "body");
    name[0] = 0;
    if (fxi_julia_tagged(type, "datatype"))
        join_path(fxi_julia_get(j, type, "name"), name);
    else if (fxi_julia_tagged(type, "jl_anonymous"))
        snprintf(name, FXI_JULIA_NAME, "anonymous function");
}

void fxi_julia_struct_name(const fxi_julia *j, fxi_bson v, char name[FXI_JULIA_NAME])
{
    v = fxi_julia_value(j, v);
    name[0] = 0;
    if (fxi_julia_tagged(v, "struct"))
        fxi_julia_type_name(j, fxi_bson_get(v, "type"), name);
}

int fxi_julia_fields(const fxi_julia *j, fxi_bson v, fxi_bson fields[FXI_JULIA_FIELDS])
{
    const fxi_bson data = fxi_julia_get(j, fxi_julia_value(j, v), "data");
    if (data.kind != FXI_BSON_ARRAY)
        return -1;
    fxi_bson_items items = fxi_bson_items_of(data);
    fxi_bson field;
    int n = 0;
    while (n < FXI_JULIA_FIELDS && fxi_bson_next(&items, &field))
        fields[n++] = field;
    return n;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Names in Julia's Core, and in the table of element types. The writer uses the rows with `written`
 * set. */
static const struct {
    const char *julia, *file;
    fx_dtype dtype; /* the library's dtype for this name */
    bool written;
} elements[] = {
    {"Float32", "F32", FX_DTYPE_F32, true}, {"Float64", "F64", FX_DTYPE_F64, true},
    {"Float16", "F16", FX_DTYPE_F16, true}, {"BFloat16", "BF16", FX_DTYPE_BF16, true},
    {"Int32", "I32", FX_DTYPE_I32, true},   {"Int64", "I64", FX_DTYPE_I64, true},
    {"UInt8", "U8", FX_DTYPE_U8, true},     {"Bool", "BOOL", FX_DTYPE_BOOL, true},
    {"Int8", "I8", FX_DTYPE_I32, false},    {"Int16", "I16", FX_DTYPE_I32, false},
    {"UInt16", "U16", FX_DTYPE_I32, false}, {"UInt32", "U32", FX_DTYPE_I64, false},
    {"UInt64", "U64", FX_DTYPE_I64, false}, {"BFloat16s.BFloat16", "BF16", FX_DTYPE_BF16, false},
};
enum { NELEMENTS = sizeof elements / sizeof elements[0] };

const fxi_file_type *fxi_julia_elements(const fxi_julia *j, fxi_bson type)
{
    char name[FXI_JULIA_NAME];
    fxi_julia_type_name(j, type, name);
    if (strcmp(name, "Complex") == 0) {
        const fxi_bson part = fxi_bson_at(fxi_julia_get(j, fxi_julia_value(j, type), "params"), 0);
        fxi_julia_type_name(j, part, name);
        return strcmp(name, "Float32") == 0   ? fxi_file_type_npy("c8")
               : strcmp(name, "Float64") == 0 ? fxi_file_type_npy("c16")
                                              : NULL;
    }
    for (int i = 0; i < NELEMENTS; i++)
        if (strcmp(elements[i].julia, name) == 0)
            return fxi_file_type_safetensors(elements[i].file);
    return NULL;
}

const char *fxi_julia_dtype_name(fx_dtype dtype)
{
    for (int i = 0; i < NELEMENTS; i++)
        if (elements[i].written && elements[i].dtype == dtype)
            return elements[i].julia;
    return NULL;
}

bool fxi_julia_integer(const fxi_julia *j, fxi_bson v, int64_t *out)
{
    v = fxi_julia_value(j, v);
    *out = v.kind == FXI_BSON_INT ? v.u.integer : 0;
    return v.kind == FXI_BSON_INT;
}

/* Reads a number that is stored as a struct of bytes: Float32 1e-5 is ac c5 27 37. */
static bool boxed(const fxi_julia *j, fxi_bson v, double *out)
{
    const fxi_bson data = fxi_julia_get(j, v, "data");
    if (data.kind != FXI_BSON_BINARY || !fxi_julia_tagged(v, "struct"))
        return false;
    const fxi_file_type *type = fxi_julia_elements(j, fxi_bson_get(v, "type"));
    if (!type || !type->same || type->parts != 1 || data.size != (uint32_t)type->size)
        return false;
    FXI_SCOPE;
    return fx_read_as(fxi_from(type->dtype, data.u.bytes, 0, NULL), FX_DTYPE_F64, out, 1) == FX_OK;
}

bool fxi_julia_number(const fxi_julia *j, fxi_bson v, double *out)
{
    v = fxi_julia_value(j, v);
    if (v.kind == FXI_BSON_DOUBLE)
        *out = v.u.number;
    else if (v.kind == FXI_BSON_INT)
        *out = (double)v.u.integer;
    else
        return boxed(j, v, out);
    return true;
}

bool fxi_julia_dims(const fxi_julia *j, fxi_bson v, fx_dims *out)
{
    v = fxi_julia_value(j, v);
    *out = (fx_dims){.n = 0};
    if (!fxi_julia_tagged(v, "tuple") && v.kind != FXI_BSON_ARRAY)
        return false;
    fxi_bson_items items =
        fxi_bson_items_of(v.kind == FXI_BSON_ARRAY ? v : fxi_julia_get(j, v, "data"));
    fxi_bson item;
    while (fxi_bson_next(&items, &item))
        if (out->n == (int64_t)(sizeof out->v / sizeof out->v[0]) ||
            !fxi_julia_integer(j, item, &out->v[out->n++]))
            return false;
    return true;
}

/* ---- functions ------------------------------------------------------------------------------- */

#define ROW(NAME, name) {#name, &fxi_function_##name},
static const struct {
    const char *name;
    fx_function *function;
} functions[] = {FXI_FUNCTIONS(ROW)
                 /* faster versions in NNlib of the same functions; the last bits differ */
                 {"tanh_fast", &fxi_function_tanh},
                 {"sigmoid_fast", &fxi_function_sigmoid},
                 FXI_CONNECTIONS(ROW)};
#undef ROW
enum { NFUNCTIONS = sizeof functions / sizeof functions[0] };

fx_function *fxi_julia_function_named(const char *name)
{
    for (int i = 0; i < NFUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0 || strcmp(functions[i].function->name, name) == 0)
            return functions[i].function;
    return NULL;
}

bool fxi_julia_is_connection(const fx_function *f)
{
#define ROW(NAME, name) &fxi_function_##name,
    static const fx_function *const all[] = {FXI_CONNECTIONS(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == f)
            return true;
    return false;
}

fx_function *fxi_julia_function(const fxi_julia *j, fxi_bson v)
{
    static const char *const modules[] = {
        "", "NNlib.", "Flux.", "MLUtils.", "Flux.NNlib.", "Statistics.", "Iterators."};
    char name[FXI_JULIA_NAME];
    fxi_julia_struct_name(j, v, name);
    const char *mark = strchr(name, '#');
    for (size_t i = 0; mark && i < sizeof modules / sizeof modules[0]; i++)
        if (strlen(modules[i]) == (size_t)(mark - name) &&
            strncmp(name, modules[i], (size_t)(mark - name)) == 0)
            return fxi_julia_function_named(mark + 1);
    return NULL;
}
