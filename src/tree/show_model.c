/* show_model.c: models in Flux's notation and columns, and the entry points of printing.
 *
 * The rules are those of Flux 0.16 (src/layers/show.jl): a container goes over several lines when
 * one of its children is more than arrays, numbers and functions; a comment begins at column 20 at
 * the top and at column 40 inside; the total is written when there are more than two trainable
 * arrays. Sizes in bytes are those that Julia's summarysize gives for the same model on a CPU, from
 * the header and the elements of every array and the layout of every struct; on another device they
 * are the bytes of the arrays there, which is what one wants to know.
 *
 * Where Flux counts a tied array twice among the non-trainable ones, this counts it once.
 */
#include "julia_number.h"
#include "elements.h"
#include "host.h"
#include "object_types.h"
#include "show_array.h"
#include "walk.h"

#include <cflux/device.h>
#include <math.h>
#include <string.h>

enum { TOP_COLUMN = 20, NESTED_COLUMN = 39, INDENT = 2 };

/* ---- the parts of an object ------------------------------------------------------------------ */

/* One thing that is printed: a child, an item of a list, or a plain field. */
typedef struct part {
    const fx_field *field;
    const void *at;   /* the field's value, for numbers */
    void *object;     /* children, items, shared objects */
    const char *name; /* of an item; NULL */
    bool is_object;
} part;

typedef struct parts {
    const void *object;
    int field;
    int64_t item;
    bool frozen; /* frozen fields too */
} parts;

static const fx_list *tuple_list(const void *object)
{
    const fx_type *type = fx_type_of(object);
    return type && (type->flags & FX_TYPE_TUPLE) ? fxi_field_at(object, &type->fields[0]) : NULL;
}

/* A list as such, and a tuple that is a field: their items are printed in the object's own list. */
static const fx_list *list_of(const void *object, const fx_field *f)
{
    if (f->kind == FX_FIELD_LIST)
        return fxi_field_at(object, f);
    return f->kind == FX_FIELD_CHILD ? tuple_list(fxi_field_child(object, f)) : NULL;
}

static bool next_part(parts *p, part *out)
{
    const fx_type *type = fx_type_of(p->object);
    for (; type && p->field < type->nfields; p->field++, p->item = 0) {
        const fx_field *f = &type->fields[p->field];
        const fx_list *list = list_of(p->object, f);
        if ((!p->frozen && fxi_field_frozen(type, f)) || (list && p->item >= list->n))
            continue;
        *out = (part){.field = f, .at = fxi_field_at(p->object, f)};
        out->is_object = list || f->kind == FX_FIELD_CHILD || f->kind == FX_FIELD_SHARED;
        if (list) {
            out->name = list->names ? list->names[p->item] : NULL;
            out->object = list->items[p->item++];
            return true;
        }
        out->object = out->is_object ? fxi_field_child(p->object, f) : NULL;
        p->field++;
        return true;
    }
    return false;
}

static bool is_leaf(const void *object)
{
    return !object || fx_is_array(object) ||
           (fx_type_of(object)->flags & (FX_TYPE_FUNCTION | FX_TYPE_LEAF));
}

/* Flux's _show_leaflike: what does not force its container over several lines. */
static bool leaf_like(const part *p)
{
    if (!p->is_object || p->field->kind == FX_FIELD_SHARED || is_leaf(p->object))
        return true;
    const fx_list *list = tuple_list(p->object);
    for (int64_t i = 0; list && i < list->n; i++)
        if (!is_leaf(list->items[i]))
            return false;
    return list != NULL;
}

static bool expands(const void *object)
{
    if (is_leaf(object) || fx_is_error(object) || (fx_type_of(object)->flags & FX_TYPE_ONE_LINE))
        return false;
    parts it = {.object = object};
    for (part p; next_part(&it, &p);)
        if (!leaf_like(&p))
            return true;
    return false;
}

/* ---- one line -------------------------------------------------------------------------------- */

static void put_object(fx_text *text, const void *object, int depth);

static void put_dims(fx_text *text, const fx_dims *d)
{
    fxi_text_put(text, "(");
    for (int64_t i = 0; i < d->n && i < 2 * FX_MAX_DIMS; i++)
        fx_text_add(text, i ? ", %lld" : "%lld", (long long)d->v[i]);
    fxi_text_put(text, d->n == 1 ? ",)" : ")");
}

static void put_string(fx_text *text, const char *s)
{
    if (!s) {
        fxi_text_put(text, "nothing");
        return;
    }
    fxi_text_put(text, "\"");
    for (; *s; s++)
        fx_text_add(text, *s == '"' || *s == '\\' || *s == '$' ? "\\%c" : "%c", *s);
    fxi_text_put(text, "\"");
}

static void put_field(fx_text *text, const part *p)
{
    char buf[FXI_NUMBER_TEXT];
    switch (p->field->kind) {
    case FX_FIELD_NUMBER:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_F64, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_INTEGER:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_I64, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_FLAG:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_BOOL, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_DIMS:
        put_dims(text, p->at);
        break;
    case FX_FIELD_INT:
        fx_text_add(text, "%d", *(const int *)p->at);
        break;
    case FX_FIELD_FLOAT:
        fxi_text_put(text, fxi_number_text(FX_DTYPE_F32, p->at, FXI_NUMBER_ALONE, buf));
        break;
    case FX_FIELD_STRING:
        put_string(text, *(const char *const *)p->at);
        break;
    default:
        break;
    }
}

/* name = value */
static void put_part(fx_text *text, const part *p, int depth)
{
    if (p->name)
        fx_text_add(text, "%s = ", p->name);
    if (p->is_object)
        put_object(text, p->object, depth);
    else
        put_field(text, p);
}

/* Name(a, b), or (a, b) and (x = a,) for tuples. */
static void put_parts(fx_text *text, const void *object, int depth)
{
    const bool tuple = tuple_list(object);
    parts it = {.object = object, .frozen = true};
    int n = 0;
    fx_text_add(text, "%s(", tuple ? "" : fx_type_of(object)->name);
    for (part p; next_part(&it, &p); n++) {
        fxi_text_put(text, n ? ", " : "");
        put_part(text, &p, depth + 1);
    }
    fxi_text_put(text, tuple && n == 1 ? ",)" : ")");
}

static void put_object(fx_text *text, const void *object, int depth)
{
    const fx_type *type = fx_type_of(object);
    if (!type)
        fxi_text_put(text, "nothing");
    else if (fx_is_array(object))
        fxi_array_summary(text, object, true);
    else if (fx_is_error(object))
        fx_text_add(text, "error %s (%s)", type->name, fx_status_name(fxi_object_status(object)));
    else if (depth > FXI_MAX_DEPTH)
        fxi_text_put(text, "…");
    else if (type->describe && !(type->flags & FX_TYPE_SEQUENCE))
        type->describe(object, text);
    else if (type->flags & FX_TYPE_FUNCTION)
        fxi_text_put(text, ((const fx_function *)object)->name);
    else
        put_parts(text, object, depth);
}

/* ---- counting -------------------------------------------------------------------------------- */

typedef struct tally {
    int64_t arrays, parameters; /* trainable */
    int64_t other_arrays, other_parameters;
    int64_t bytes, bytes_julia; /* of the elements; with Julia's headers */
    bool nonzero, nan, inf;     /* of the trainable ones */
    bool scan;                  /* look at the values? */
    fx_device *device;          /* of all arrays; NULL when they differ */
} tally;

/* Works for any strides; `x` has been evaluated. */
static void scan_values(const fx_array *x, tally *t)
{
    const fxi_node *n = x->node;
    const int64_t size = (int64_t)fx_dtype_size(fx_eltype(x)), count = fx_length(x);
    int64_t index[FX_MAX_DIMS] = {0};
    fxi_elements e;
    if (fxi_elements_open("show", x, &e) != FX_OK)
        return;
    const char *p = e.at;
    for (int64_t i = 0; i < count; i++) {
        const double v = fxi_host_double(n->dtype, p);
        t->nonzero |= v != 0;
        t->nan |= isnan(v);
        t->inf |= isinf(v);
        for (int k = 0; k < n->ndim; k++) {
            p += n->data->stride[k] * size;
            if (++index[k] < n->shape[k])
                break;
            p -= n->shape[k] * n->data->stride[k] * size;
            index[k] = 0;
        }
    }
    fxi_elements_close(&e);
}

static void count_array(fx_array *x, fx_array *of, const char *path, bool trainable, void *user)
{
    (void)path;
    tally *t = user;
    if (fx_is_error(x) || of) /* a view of another is counted there */
        return;
    const int64_t n = fx_length(x), bytes = n * (int64_t)fx_dtype_size(fx_eltype(x));
    *(trainable ? &t->arrays : &t->other_arrays) += 1;
    *(trainable ? &t->parameters : &t->other_parameters) += n;
    t->bytes += bytes;
    t->bytes_julia += bytes + 32 + 8 * fx_ndims(x);
    if (t->arrays + t->other_arrays == 1)
        t->device = fx_array_device(x);
    else if (t->device != fx_array_device(x))
        t->device = NULL;
    if (trainable && t->scan && fx_is_evaluated(x) && !x->node->data->buffer->freed)
        scan_values(x, t);
    else
        t->nonzero = true;
}

static tally count_all(void *object, bool scan)
{
    tally t = {.scan = scan};
    fxi_visit_tied(object, count_array, &t);
    return t;
}

/* Julia's size of a struct as it lies inside another: immutable ones in place, mutable ones behind
 * a pointer. A descriptor without a layout is a struct of untyped fields: a pointer for each. */
static int64_t struct_bytes(const void *object, bool inlined, int depth)
{
    const fx_type *type = fx_type_of(object);
    if (is_leaf(object) || fx_is_error(object) || depth > FXI_MAX_DEPTH)
        return 0;
    const bool plain = !type->layout_bytes && !(type->flags & (FX_TYPE_SEQUENCE | FX_TYPE_TUPLE));
    int64_t bytes = type->layout_bytes + (inlined && (type->flags & FX_TYPE_MUTABLE) ? 8 : 0);
    parts it = {.object = object, .frozen = true};
    for (part p; next_part(&it, &p);) {
        if (plain)
            bytes += p.field->kind == FX_FIELD_DIMS ? 8 * ((const fx_dims *)p.at)->n : 8;
        if (p.is_object && p.field->kind != FX_FIELD_SHARED)
            bytes += struct_bytes(p.object, !plain, depth + 1);
        if (p.object && fx_is_array(p.object) && (type->flags & (FX_TYPE_SEQUENCE | FX_TYPE_TUPLE)))
            bytes += 8;
    }
    return bytes;
}

/* ---- comments -------------------------------------------------------------------------------- */

/* 51018 → 51_018 */
static void put_count(fx_text *text, int64_t n)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < length; i++)
        fx_text_add(text, "%s%c", i && (length - i) % 3 == 0 ? "_" : "", digits[i]);
}

static void put_state(fx_text *text, const tally *t)
{
    if (!t->nonzero)
        fxi_text_put(text, "  (all zero)");
    else if (t->nan)
        fxi_text_put(text, "  (some NaN)");
    else if (t->inf)
        fxi_text_put(text, "  (some Inf)");
}

/* What has a one-line form of its own and cannot be called (a data loader) has no parameters,
 * whatever arrays it holds. */
static bool has_parameters(const void *object)
{
    const fx_type *type = fx_type_of(object);
    return type && !fx_is_error(object) && (type->forward || !type->describe);
}

/* "# 9 parameters, plus 4 non-trainable  (all zero)" after a line of `width` characters. */
static void put_comment(fx_text *text, void *object, int64_t indent, int64_t width)
{
    if (!has_parameters(object))
        return;
    const tally t = count_all(object, true);
    if (t.arrays == 0)
        return;
    const int64_t pad = (indent ? NESTED_COLUMN : TOP_COLUMN) - indent - width;
    fxi_text_pad(text, pad > 2 ? pad : 2);
    fxi_text_put(text, "# ");
    put_count(text, t.parameters);
    fxi_text_put(text, " parameters");
    if (t.other_parameters > 0) {
        fxi_text_put(text, ", plus ");
        put_count(text, t.other_parameters);
        fxi_text_put(text, indent ? "" : " non-trainable");
    }
    put_state(text, &t);
}

static void put_total_bytes(fx_text *text, const tally *t, const void *object)
{
    const bool elsewhere = t->device != fx_cpu_device();
    fxi_text_bytes(text, elsewhere ? t->bytes : t->bytes_julia + struct_bytes(object, false, 0));
    if (elsewhere)
        fx_text_add(text, " on %s", t->device ? fx_device_name(t->device) : "several devices");
    fxi_text_put(text, ".");
}

/* A layer, or a tuple with one: an optimiser's state has no total. */
static bool holds_layer(const void *object, int depth)
{
    const fx_list *list = tuple_list(object);
    if (!list || depth > FXI_MAX_DEPTH)
        return !list && object && !fx_is_array(object) && has_parameters(object);
    for (int64_t i = 0; i < list->n; i++)
        if (holds_layer(list->items[i], depth + 1))
            return true;
    return false;
}

static void put_total(fx_text *text, void *object)
{
    const tally t = count_all(object, false);
    if (t.arrays <= 2 || !holds_layer(object, 0))
        return;
    const bool others = t.other_arrays > 0;
    fxi_text_pad(text, others ? 8 : 18);
    fx_text_add(text, "# Total: %lld %sarrays, ", (long long)t.arrays, others ? "trainable " : "");
    put_count(text, t.parameters);
    fxi_text_put(text, " parameters,");
    if (others) {
        fxi_text_put(text, "\n");
        fxi_text_pad(text, 10);
        fx_text_add(text, "# plus %lld non-trainable, ", (long long)t.other_arrays);
        put_count(text, t.other_parameters);
        fxi_text_put(text, " parameters, summarysize");
    }
    fxi_text_put(text, " ");
    put_total_bytes(text, &t, object);
}

/* ---- several lines --------------------------------------------------------------------------- */

static void put_tree(fx_text *text, const part *p, int64_t indent);

/* "Chain(", "(" for a tuple, "(;" for a named one. */
static void put_opening(fx_text *text, const part *p)
{
    const fx_list *list = tuple_list(p->object);
    if (p->name)
        fx_text_add(text, "%s = ", p->name);
    fx_text_add(text, "%s(%s\n", list ? "" : fx_type_of(p->object)->name,
                list && list->names ? ";" : "");
}

static void put_container(fx_text *text, const part *p, int64_t indent)
{
    put_opening(text, p);
    parts it = {.object = p->object};
    for (part child; next_part(&it, &child);)
        put_tree(text, &child, indent + INDENT);
    fxi_text_pad(text, indent);
    if (indent) {
        fxi_text_put(text, "),\n");
        return;
    }
    fxi_text_put(text, ") ");
    put_total(text, p->object);
}

static void put_tree(fx_text *text, const part *p, int64_t indent)
{
    fxi_text_pad(text, indent);
    if (p->is_object && indent <= INDENT * FXI_MAX_DEPTH && expands(p->object)) {
        put_container(text, p, indent);
        return;
    }
    const size_t start = text->length;
    put_part(text, p, 0);
    const int64_t width = fxi_text_width(text, start);
    fxi_text_put(text, indent ? "," : "");
    const bool values = indent == 0 && tuple_list(p->object); /* a plain tuple is no layer */
    if (p->is_object && p->field->kind != FX_FIELD_SHARED && !values)
        put_comment(text, p->object, indent, width);
    fxi_text_put(text, indent ? "\n" : "");
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* All values in one plan; what cannot be computed is shown as such. */
static void write_text(fx_text *text, void *object)
{
    if (fx_is_array(object)) {
        fxi_array_show(text, object);
        return;
    }
    static const fx_field top = {.kind = FX_FIELD_CHILD};
    const part p = {.field = &top, .object = object, .is_object = true};
    if (object && !fx_is_error(object))
        fx_eval(object);
    put_tree(text, &p, 0);
}

size_t fx_show_text(void *object, char *dst, size_t capacity)
{
    fx_text text = {0};
    write_text(&text, object);
    return fxi_text_hand_over(&text, dst, capacity);
}

size_t fx_summary(void *object, char *dst, size_t capacity)
{
    fx_text text = {0};
    if (fx_is_array(object))
        fxi_array_summary(&text, object, false);
    else
        put_object(&text, object, 0);
    return fxi_text_hand_over(&text, dst, capacity);
}

void fx_show_to(FILE *out, void *object)
{
    fx_text text = {0};
    write_text(&text, object);
    fxi_text_print(&text, out);
}

void fx_show(void *object)
{
    fx_show_to(stdout, object);
}
