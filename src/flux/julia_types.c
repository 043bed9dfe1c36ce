/* julia_types.c: structs of the program that have a name in Julia.
 *
 * BSON.jl writes a struct as the name of its type and the values of its fields in declared order. A
 * descriptor lists the same for a C struct, but not the types to which its object pointers point.
 * So fx_julia_name records the types of the children of an example object, and a file with a child
 * of another type is refused: the program would use it as the wrong struct.
 */
#include "julia_types.h"
#include "c_text.h"
#include "error.h"
#include "file_node.h"
#include "memory.h"
#include "nn_layer.h"
#include "object_types.h"
#include "state_parts.h"
#include "thread.h"

#include <cflux/io.h>
#include <cflux/optim.h>
#include <limits.h>
#include <string.h>

enum { MOST_TEXT = 4096 };

typedef struct own_type {
    const fx_type *type;
    /* By field; NULL: the examples had NULL in this field. */
    const fx_type *children[FXI_SHAPE_FIELDS];
    char name[FXI_JULIA_NAME]; /* with its modules; without modules: matches every module */
    struct own_type *next;
} own_type;

/* A text that a field of a struct points to; kept until the process ends. */
typedef struct kept_text {
    struct kept_text *next;
    char text[];
} kept_text;

static fxi_mutex lock = FXI_MUTEX_INIT;
static own_type *types;
static kept_text *texts;

/* ---- names ----------------------------------------------------------------------------------- */

/* True for a struct of the program. Also true for a layer of the library: callers test for those
 * (fxi_shape_of, fxi_is_library_layer). */
static bool is_own(const void *object)
{
    const fx_type *type = fx_type_of(object);
    return type && !fx_is_array(object) && !fx_is_error(object) && !fxi_is_rule(object) &&
           !fxi_file_text_of(object) &&
           !(type->flags & (FX_TYPE_FUNCTION | FX_TYPE_TUPLE | FX_TYPE_INTERNAL));
}

/* The row of a type, by descriptor. Requires the lock. */
static own_type *row_of(const void *object)
{
    for (own_type *t = types; t; t = t->next)
        if (fx_is(object, t->type))
            return t;
    return NULL;
}

static bool good_name(const char *name)
{
    static const char *const reserved[] = {"Base.", "Core.", "Main.Base.", "Main.Core."};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (strncmp(name, reserved[i], strlen(reserved[i])) == 0)
            return false;
    int dots = 0;
    for (const char *c = name; *c; c++)
        dots += *c == '.';
    return n > 0 && n < FXI_JULIA_NAME && name[0] != '.' && name[n - 1] != '.' &&
           !strstr(name, "..") && !strpbrk(name, " #{}(),\"") && dots < FXI_SHAPE_PATH - 1;
}

static void note_children(own_type *t, const void *object)
{
    for (int i = 0; i < t->type->nfields; i++) {
        const fx_field *f = &t->type->fields[i];
        const void *child = NULL;
        if (f->kind == FX_FIELD_CHILD || f->kind == FX_FIELD_SHARED)
            memcpy(&child, (const char *)object + f->offset, sizeof child);
        if (child)
            t->children[i] = fx_type_of(child);
    }
}

/* Requires the lock. */
static fx_status name_type(const void *object, const char *name)
{
    own_type *t = row_of(object);
    for (own_type *other = types; other; other = other->next)
        if (other != t && strcmp(other->name, name) == 0)
            return fx_fail(FX_STATUS_ARGUMENT, "julia_name", "%s is the name of another type, %s",
                           name, other->type->name);
    if (!t) {
        t = fxi_calloc(1, sizeof *t);
        if (!t)
            return fx_fail(FX_STATUS_MEMORY, "julia_name", "no memory for the name of a type");
        t->type = fx_type_of(object);
        t->next = types;
        types = t;
    }
    snprintf(t->name, sizeof t->name, "%s", name);
    note_children(t, object);
    return FX_OK;
}

fx_status fx_julia_name(const void *object, const char *name)
{
    fxi_shape layer;
    if (!object || !is_own(object) || fxi_shape_of(object, &layer))
        return fx_fail(FX_STATUS_ARGUMENT, "julia_name",
                       "expects a struct of the program (FX_FUNCTOR, FX_LAYER, FX_STRUCT), got %s",
                       fxi_type_name(object));
    const fx_type *type = fx_type_of(object);
    name = name ? name : type->name;
    if (type->nfields > FXI_SHAPE_FIELDS)
        return fx_fail(FX_STATUS_UNSUPPORTED, "julia_name", "%s has %d fields; the maximum is %d",
                       type->name, type->nfields, FXI_SHAPE_FIELDS);
    if (!good_name(name))
        return fx_fail(FX_STATUS_ARGUMENT, "julia_name",
                       "\"%s\" is not a type name such as MyModels.Encoder", name);
    fxi_mutex_lock(&lock);
    const fx_status status = name_type(object, name);
    fxi_mutex_unlock(&lock);
    return status;
}

/* ---- written --------------------------------------------------------------------------------- */

static void fill_path(const void *object, fxi_shape *s)
{
    fxi_mutex_lock(&lock);
    const own_type *t = row_of(object);
    snprintf(s->own_name, sizeof s->own_name, "%s", t ? t->name : fx_type_of(object)->name);
    fxi_mutex_unlock(&lock);
    fxi_shape_split_name(s);
}

static fxi_item list_item(const fx_list *list)
{
    bool named = list->names != NULL;
    for (int64_t i = 0; named && i < list->n; i++)
        named = list->names[i] != NULL;
    void *tuple =
        named ? fx_named_tuple_from((int)list->n, (const char *const *)list->names, list->items)
              : fxi_tuple((int)list->n, list->items);
    return (fxi_item){.kind = FXI_ITEM_OBJECT, .object = tuple};
}

static fxi_item text_item(const char *text)
{
    return (fxi_item){.kind = FXI_ITEM_OBJECT,
                      .object = text ? fxi_file_text(text, strlen(text)) : NULL};
}

static fxi_item item_of(const fx_field *f, const void *at)
{
    switch (f->kind) {
    case FX_FIELD_LIST:
        return list_item(at);
    case FX_FIELD_NUMBER:
        return (fxi_item){.kind = FXI_ITEM_FLOAT64, .number = *(const double *)at};
    case FX_FIELD_FLOAT:
        return (fxi_item){.kind = FXI_ITEM_FLOAT32, .number = (double)*(const float *)at};
    case FX_FIELD_INTEGER:
        return (fxi_item){.kind = FXI_ITEM_INT, .integer = *(const int64_t *)at};
    case FX_FIELD_INT:
        return (fxi_item){.kind = FXI_ITEM_INT, .integer = *(const int *)at};
    case FX_FIELD_FLAG:
        return (fxi_item){.kind = FXI_ITEM_BOOL, .integer = *(const bool *)at};
    case FX_FIELD_DIMS:
        return (fxi_item){.kind = FXI_ITEM_DIMS, .object = at};
    case FX_FIELD_STRING:
        return text_item(*(const char *const *)at);
    default:
        return (fxi_item){.kind = FXI_ITEM_OBJECT, .object = *(void *const *)at};
    }
}

bool fxi_own_shape(const void *object, fxi_shape *out)
{
    if (!object || !is_own(object))
        return false;
    const fx_type *type = fx_type_of(object);
    *out = (fxi_shape){.nitems = type->nfields};
    fill_path(object, out);
    if (type->nfields > FXI_SHAPE_FIELDS) {
        out->lost = "a struct of more than 32 fields";
        out->nitems = 0;
    }
    if (fxi_is_library_layer(type)) { /* fxi_shape_of has described those of Flux */
        out->lost = "Flux has no such layer; .safetensors can store its arrays";
        out->nitems = 0;
    }
    for (int i = 0; i < out->nitems; i++)
        out->items[i] = item_of(&type->fields[i], (const char *)object + type->fields[i].offset);
    return true;
}

/* ---- read ------------------------------------------------------------------------------------ */

/* A copy that lives as long as the process, shared by equal texts. Requires the lock. */
static const char *kept(const char *text)
{
    for (kept_text *t = texts; t; t = t->next)
        if (strcmp(t->text, text) == 0)
            return t->text;
    const size_t n = strlen(text) + 1;
    kept_text *t = fxi_malloc(sizeof *t + n);
    if (!t)
        return NULL;
    memcpy(t->text, text, n);
    t->next = texts;
    texts = t;
    return t->text;
}

static bool read_text(fxi_julia *j, fxi_bson v, const char **out)
{
    const char *text = fxi_bson_key_text(j, v);
    *out = NULL;
    if (fxi_julia_value(j, v).kind == FXI_BSON_NULL)
        return true;
    if (!text || strlen(text) > MOST_TEXT)
        return false;
    fxi_mutex_lock(&lock);
    *out = kept(text);
    fxi_mutex_unlock(&lock);
    if (!*out)
        j->b->status = fx_fail(FX_STATUS_MEMORY, j->b->op, "%s: no memory for a text", j->b->path);
    return *out != NULL;
}

static bool read_child(fxi_julia *j, fxi_bson v, const fx_type *wanted, int depth, void **out)
{
    *out = fxi_bson_object(j, v, depth + 1);
    return !*out || (wanted && fx_is(*out, wanted));
}

static bool read_list(fxi_julia *j, fxi_bson v, int depth, fx_list *out)
{
    void *all = fxi_bson_object(j, v, depth + 1);
    const fx_type *type = all ? fx_type_of(all) : NULL;
    if (!type || !(type->flags & FX_TYPE_TUPLE))
        return false;
    *out = ((const fx_tuple_object *)all)->items; /* fxi_new copies it */
    return true;
}

static bool read_flag(fxi_julia *j, fxi_bson v, bool *out)
{
    v = fxi_julia_value(j, v);
    *out = v.kind == FXI_BSON_BOOL && v.u.integer;
    return v.kind == FXI_BSON_BOOL;
}

static bool read_field(fxi_julia *j, const own_type *t, int i, fxi_bson v, int depth, void *at)
{
    double number = 0;
    int64_t n = 0;
    bool good;
    switch (t->type->fields[i].kind) {
    case FX_FIELD_LIST:
        return read_list(j, v, depth, at);
    case FX_FIELD_NUMBER:
        return fxi_julia_number(j, v, at);
    case FX_FIELD_FLOAT:
        good = fxi_julia_number(j, v, &number);
        *(float *)at = (float)number;
        return good;
    case FX_FIELD_INTEGER:
        return fxi_julia_integer(j, v, at);
    case FX_FIELD_INT:
        good = fxi_julia_integer(j, v, &n) && n >= INT_MIN && n <= INT_MAX;
        *(int *)at = good ? (int)n : 0;
        return good;
    case FX_FIELD_FLAG:
        return read_flag(j, v, at);
    case FX_FIELD_DIMS:
        return fxi_julia_dims(j, v, at);
    case FX_FIELD_STRING:
        return read_text(j, v, at);
    default:
        return read_child(j, v, t->children[i], depth, at);
    }
}

static void *filled(fxi_julia *j, const own_type *t, fxi_bson v, int depth, char *init)
{
    fxi_bson_items items = fxi_bson_items_of(fxi_julia_get(j, v, "data"));
    fxi_bson field;
    for (int i = 0; i < t->type->nfields && fxi_bson_next(&items, &field); i++) {
        const fx_field *f = &t->type->fields[i];
        const bool good = read_field(j, t, i, field, depth, init + f->offset);
        if (!good && j->b->status == FX_OK)
            fxi_bytes_fail(j->b, fxi_bson_offset(j, v),
                           "the field %s of a %s has another type than in the program's %s",
                           f->name, t->name, t->type->name);
        if (j->b->status != FX_OK)
            return NULL;
    }
    void *object = fxi_new(t->type, init);
    return t->type->rebuild && !fx_is_error(object) ? t->type->rebuild(object) : object;
}

/* The row whose name equals the name in the file: with its modules, or without if the row names
 * none. */
static bool find(const char *name, own_type *out)
{
    const char *dot = strrchr(name, '.');
    bool found = false, whole = false;
    fxi_mutex_lock(&lock);
    for (const own_type *t = types; t && !whole; t = t->next) {
        whole = strcmp(t->name, name) == 0;
        if (!whole && (!dot || strcmp(t->name, dot + 1) != 0))
            continue;
        *out = *t;
        found = true;
    }
    fxi_mutex_unlock(&lock);
    return found;
}

void *fxi_own_struct(fxi_julia *j, const char *type, fxi_bson v, int depth)
{
    own_type t;
    if (!find(type, &t))
        return NULL;
    const fxi_bson data = fxi_julia_get(j, v, "data");
    const int64_t n = data.kind == FXI_BSON_ARRAY ? fxi_bson_count(data) : -1;
    if (n != t.type->nfields) {
        fxi_bytes_fail(j->b, fxi_bson_offset(j, v),
                       "a %s has %lld fields in the file, but %d in the program's %s", type,
                       (long long)n, t.type->nfields, t.type->name);
        return NULL;
    }
    char *init = fxi_calloc(1, t.type->size);
    if (!init) {
        j->b->status =
            fx_fail(FX_STATUS_MEMORY, j->b->op, "%s: no memory for a %s", j->b->path, type);
        return NULL;
    }
    void *object = filled(j, &t, v, depth, init);
    fxi_free(init);
    return object;
}
