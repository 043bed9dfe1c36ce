/* bson_layers.c: makes layers from the structs that Flux 0.6 to 0.16 wrote.
 *
 * A struct in a file is a list of fields without names. Type and field count identify the fields,
 * because every version that changed a layer also changed the count (or kept the positions). The
 * table of a layer (cflux/layer.h) lists these forms. The field values become options for the
 * layer's own constructor; children that no option sets then replace those of the new layer. Layers
 * that the library does not have become file nodes (file_node.h).
 */
#include "bson_callable.h"
#include "bson_objects.h"
#include "bson_version.h"
#include "flux_rows.h"
#include "memory.h"
#include "object_types.h"

#include <cflux/nn.h>
#include <string.h>

/* A struct being read as one form of a layer. */
typedef struct fields {
    fxi_julia *j;
    fxi_bson v[FXI_JULIA_FIELDS];
    int n;
    int depth;
    fxi_bson whole; /* the struct */
    const fx_type *type;
    const fx_layer *layer;
    const fx_flux_form *form;
    char *options, *self; /* the option struct, and a struct of the layer's type */
    uint64_t read;        /* rows that the form has, one bit each */
} fields;

/* ---- values of fields ------------------------------------------------------------------------ */

static bool is_array_of(const void *object, int ndims)
{
    return object && fx_is_array(object) && (ndims < 0 || fx_ndims(object) == ndims);
}

/* The array in a field; NULL for other values and for another number of axes (−1: any). */
static fx_array *array_at(fields *f, int i, int ndims)
{
    void *object = i < f->n ? fxi_bson_object(f->j, f->v[i], f->depth + 1) : NULL;
    return is_array_of(object, ndims) ? object : NULL;
}

static bool is_nothing(fields *f, int i)
{
    char type[FXI_JULIA_NAME];
    const fxi_bson v = fxi_julia_value(f->j, f->v[i]);
    fxi_julia_struct_name(f->j, v, type);
    return v.kind == FXI_BSON_NULL || (v.kind == FXI_BSON_BOOL && !v.u.integer) ||
           strcmp(type, "Flux.Zeros") == 0;
}

static bool bool_at(fields *f, int i, bool *out)
{
    const fxi_bson v = fxi_julia_value(f->j, f->v[i]);
    *out = v.kind == FXI_BSON_BOOL && v.u.integer;
    return v.kind == FXI_BSON_BOOL;
}

/* Reads whether a layer is in training mode. Before Flux 0.10 the field was a Bool, initially true,
 * that meant "unless testmode! says otherwise"; this is now the automatic mode. Later versions with
 * the same field count store `nothing` until the user sets a mode. */
static void active_at(fields *f, int i, fx_active *out)
{
    bool active;
    if (bool_at(f, i, &active))
        *out = !active                                   ? FX_ACTIVE_OFF
               : f->form->until && f->form->since < 1000 ? FX_ACTIVE_AUTO
                                                         : FX_ACTIVE_ON;
}

/* Reads axes, which Julia counts from 1. Colon is the default: all axes. */
static bool axes_at(fields *f, int i, fx_axes *out)
{
    fx_dims dims;
    char type[FXI_JULIA_NAME];
    fxi_julia_struct_name(f->j, f->v[i], type);
    if (strcmp(type, "Colon") == 0)
        return true;
    if (!fxi_julia_dims(f->j, f->v[i], &dims)) {
        dims.n = 1;
        if (!fxi_julia_integer(f->j, f->v[i], &dims.v[0]))
            return false;
    }
    for (int64_t k = 0; k < dims.n; k++)
        dims.v[k]--;
    *out = fx_axes_of((int)dims.n, dims.v);
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Sets the option that states whether a child exists. `there`: the file has the child. */
static void note_presence(fields *f, size_t member, bool there)
{
    for (int i = 0; i < f->layer->nrows; i++) {
        const fx_layer_row *row = fxi_row(f->layer, i);
        if (!row->present || row->present != member || !row->option)
            continue;
        if (row->kind == FX_OPTION_BIAS)
            *(int *)(void *)(f->options + row->option) = there;
        else
            *(bool *)(f->options + row->option) = there;
    }
}

/* Reads an array field into an option or a member; `nothing` and false mean no array. */
static bool take_array(fields *f, int i, const fx_layer_row *row)
{
    const int ndims = row->kind == FX_OPTION_VECTOR ? 1 : row->kind == FX_OPTION_MATRIX ? 2 : -1;
    fx_array *x = is_nothing(f, i) ? NULL : array_at(f, i, ndims);
    void *to = row->option ? f->options + row->option : f->self + row->member;
    memcpy(to, &x, sizeof x);
    note_presence(f, row->member, x != NULL);
    return x || is_nothing(f, i);
}

/* Reads a Flux.Scale (Flux.Diagonal until 0.12) into the members scale and bias; both stay NULL for
 * other values. */
static bool take_scale(fields *f, int i)
{
    char type[FXI_JULIA_NAME];
    fields part = {.j = f->j, .depth = f->depth + 1};
    const int rows[2] = {fxi_row_named(f->layer, "scale"), fxi_row_named(f->layer, "bias")};
    fxi_julia_struct_name(f->j, f->v[i], type);
    const bool there = strcmp(type, "Flux.Scale") == 0 || strcmp(type, "Flux.Diagonal") == 0;
    part.n = there ? fxi_julia_fields(f->j, f->v[i], part.v) : 0;
    for (int k = 0; k < 2; k++) {
        if (rows[k] < 0)
            return false;
        const fx_layer_row *row = fxi_row(f->layer, rows[k]);
        fx_array *x = there ? array_at(&part, k, -1) : NULL;
        *fxi_child_address(row, f->self) = x;
        note_presence(f, row->member, x != NULL);
        f->read |= (uint64_t)1 << rows[k];
        if (there && !x)
            return false;
    }
    return true;
}

static bool callable(const void *object)
{
    const fx_type *type = object ? fx_type_of(object) : NULL;
    return type && (type->forward || (type->flags & FX_TYPE_FUNCTION));
}

/* Reads an initial state, an array or a tuple of two, into the options of the members h0 and c0. */
static bool take_states(fields *f, int i)
{
    void *all = fxi_bson_object(f->j, f->v[i], f->depth + 1);
    const bool two = all && !fx_is_array(all) && (fx_type_of(all)->flags & FX_TYPE_TUPLE);
    const char *const names[2] = {"h0", "c0"};
    for (int k = 0; k < 1 + two; k++) {
        void *x = two ? fx_child(all, k) : all;
        const int row = fxi_row_named(f->layer, names[k]);
        if (row < 0 || !is_array_of(x, -1) || (two && fx_count(all) != 2))
            return false;
        fx_array *vector = fx_vec(x);
        memcpy(f->options + fxi_row(f->layer, row)->option, &vector, sizeof vector);
    }
    return true;
}

/* Reads a member that is not an option. */
static bool take_member(fields *f, int i, const fx_layer_row *row)
{
    const fx_field *field = fxi_field_of_row(f->type, row);
    void *to = f->self + row->member;
    switch (field ? field->kind : FX_FIELD_STRING) {
    case FX_FIELD_CHILD:
        return take_array(f, i, row);
    case FX_FIELD_NUMBER:
        return fxi_julia_number(f->j, f->v[i], to);
    case FX_FIELD_INTEGER:
        return fxi_julia_integer(f->j, f->v[i], to);
    case FX_FIELD_FLAG:
        return bool_at(f, i, to);
    case FX_FIELD_DIMS:
        return fxi_julia_dims(f->j, f->v[i], to);
    default:
        return false;
    }
}

/* The text is valid while the file is open; constructors copy it, or point to an equal constant. */
static bool take_symbol(fields *f, int i, void *to)
{
    const char *text = fxi_bson_key_text(f->j, f->v[i]);
    memcpy(to, &text, sizeof text);
    return text != NULL;
}

/* Reads an index, which Julia counts from 1, as one from 0; `nothing` becomes −1. */
static bool take_index(fields *f, int i, void *to)
{
    int64_t index = 0;
    if (!is_nothing(f, i) && (!fxi_julia_integer(f->j, f->v[i], &index) || index < 1))
        return false;
    index--;
    memcpy(to, &index, sizeof index);
    return true;
}

static bool take_callable(fields *f, int i, void *to)
{
    void *object = fxi_bson_object(f->j, f->v[i], f->depth + 1);
    memcpy(to, &object, sizeof object);
    return callable(object);
}

/* Reads `nothing`, an integer, or a tuple of integers. */
static bool take_factors(fields *f, int i, fx_dims *out)
{
    out->n = is_nothing(f, i) ? 0 : 1;
    return out->n == 0 || fxi_julia_integer(f->j, f->v[i], &out->v[0]) ||
           fxi_julia_dims(f->j, f->v[i], out);
}

/* Reads the value of field i. Flags that describe children are checked later (flag_fits), when all
 * children are known. */
static bool take_value(fields *f, int i, const fx_layer_row *row)
{
    void *to = f->options + row->option;
    fx_function *function;
    switch (row->kind) {
    case FX_OPTION_NONE:
        return take_member(f, i, row);
    case FX_OPTION_VECTOR:
    case FX_OPTION_MATRIX:
    case FX_OPTION_ARRAY:
        return take_array(f, i, row);
    case FX_OPTION_FACTORS:
        return take_factors(f, i, to);
    case FX_OPTION_FUNCTION:
        function = fxi_bson_activation(f->j, fxi_julia_value(f->j, f->v[i]));
        memcpy(to, &function, sizeof function);
        return function != NULL;
    case FX_OPTION_KERNEL:
    case FX_OPTION_SIZES:
    case FX_OPTION_NUMBERS:
    case FX_OPTION_PADDING:
    case FX_OPTION_TUPLE:
        return fxi_julia_dims(f->j, f->v[i], to);
    case FX_OPTION_SIZE:
    case FX_OPTION_INTEGER:
        return fxi_julia_integer(f->j, f->v[i], to);
    case FX_OPTION_SYMBOL:
        return take_symbol(f, i, to);
    case FX_OPTION_INDEX:
        return take_index(f, i, to);
    case FX_OPTION_REAL:
    case FX_OPTION_REAL32:
        return fxi_julia_number(f->j, f->v[i], to);
    case FX_OPTION_AXES:
        return axes_at(f, i, to);
    case FX_OPTION_ACTIVE:
        active_at(f, i, to);
        return true;
    case FX_OPTION_LAYER:
    case FX_OPTION_CONNECTION:
        return take_callable(f, i, to);
    case FX_OPTION_SCALE:
        return take_scale(f, i);
    case FX_OPTION_FLAG:
        return row->present ? true : bool_at(f, i, to);
    case FX_OPTION_STATES:
        return take_states(f, i);
    case FX_OPTION_NOTHING:
    case FX_OPTION_RNG:
        return true;
    default:
        return false;
    }
}

/* Reads a type parameter into an option. Older versions of Flux had types where a flag is now. */
static bool take_param(fields *f, const fx_layer_row *row, fxi_bson v)
{
    void *to = f->options + row->option;
    if (row->kind == FX_OPTION_WORD) {
        const char *text = fxi_bson_key_text(f->j, v);
        const int i =
            text ? fxi_word_position(row->words, (fxi_word){text, (int)strlen(text)}) : -1;
        *(int *)to = i;
        return i >= 0;
    }
    if (v.kind == FXI_BSON_BOOL)
        *(bool *)to = v.u.integer;
    return true;
}

/* Reads the flags and symbols that are type parameters. */
static bool take_params(fields *f)
{
    const fxi_bson params = fxi_julia_get(f->j, fxi_julia_get(f->j, f->whole, "type"), "params");
    const char *at = f->form->params;
    fxi_word w;
    bool ok = true;
    for (int i = 0; fxi_next_word(&at, &w); i++) {
        if ((*w.from != '=' && *w.from != ':') || params.kind != FXI_BSON_ARRAY)
            continue;
        const fxi_bson v = fxi_julia_value(f->j, fxi_bson_at(params, i));
        for (int k = 0; k < f->layer->nrows; k++) {
            const fx_layer_row *row = fxi_row(f->layer, k);
            if (row->option && fxi_word_position(row->name, (fxi_word){w.from + 1, w.n - 1}) == 0)
                ok = ok && take_param(f, row, v);
        }
    }
    return ok;
}

/* A flag that describes a child must agree with that child. */
static bool flag_fits(fields *f, int i, const fx_layer_row *row)
{
    bool flag;
    return row->kind != FX_OPTION_FLAG || !row->present ||
           (bool_at(f, i, &flag) && flag == *(const bool *)(f->options + row->option));
}

/* Reads the values of all fields; false if they do not match this form. */
static bool take_form(fields *f)
{
    const char *at = f->form->fields;
    fxi_word name;
    for (int i = 0; fxi_next_word(&at, &name); i++) {
        const int k = fxi_row_of_flux(f->layer, name);
        if (k < 0 || !take_value(f, i, fxi_row(f->layer, k)))
            return false;
        f->read |= (uint64_t)1 << k;
    }
    at = f->form->fields;
    for (int i = 0; fxi_next_word(&at, &name); i++)
        if (!flag_fits(f, i, fxi_row(f->layer, fxi_row_of_flux(f->layer, name))))
            return false;
    return take_params(f);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* The layers of a container, in the order of its rows. */
typedef struct parts {
    void **items;
    const char **names;
    int32_t n, items_capacity, names_capacity;
    bool named;
} parts;

static bool add_part(fields *f, parts *p, const char *name, void *object)
{
    if (!callable(object))
        return false;
    if (!fxi_grow(&p->items, &p->items_capacity, p->n + 1, sizeof *p->items) ||
        !fxi_grow(&p->names, &p->names_capacity, p->n + 1, sizeof *p->names)) {
        f->j->b->status = fx_fail(FX_STATUS_MEMORY, f->j->b->op, "no memory for a list of layers");
        return false;
    }
    p->items[p->n] = object;
    p->names[p->n++] = name;
    p->named |= name != NULL;
    return true;
}

/* Adds the layers of a field: a tuple or a named tuple; in Flux 0.6, and for long chains, a list.
 */
static bool add_list(fields *f, parts *p, int i)
{
    const bool in_list = fxi_julia_value(f->j, f->v[i]).kind == FXI_BSON_ARRAY;
    f->j->lists += in_list;
    void *all = fxi_bson_object(f->j, f->v[i], f->depth + 1);
    f->j->lists -= in_list;
    if (!all || !fx_type_of(all) || !(fx_type_of(all)->flags & FX_TYPE_TUPLE))
        return false;
    const fx_list *list = &((const fx_tuple_object *)all)->items;
    for (int64_t k = 0; k < list->n; k++)
        if (!add_part(f, p, list->names ? list->names[k] : NULL, list->items[k]))
            return false;
    return true;
}

/* The field of the struct that the row describes; −1 if the form has none. */
static int field_of_row(const fx_flux_form *form, const fx_layer_row *row)
{
    const char *at = row->flux;
    int i = -1;
    for (fxi_word w; i < 0 && fxi_next_word(&at, &w);)
        i = fxi_word_position(form->fields, w);
    return i;
}

/* Makes a container: the fields are its rows, single layers and one list. */
static void *container(fields *f)
{
    parts p = {0};
    bool good = f->layer->forms && fxi_count_words(f->layer->forms->fields) == f->n;
    for (int k = 0; good && k < f->layer->nrows; k++) {
        const fx_layer_row *row = fxi_row(f->layer, k);
        const int i = field_of_row(f->layer->forms, row);
        good =
            i >= 0 && (row->kind == FX_OPTION_LAYERS
                           ? add_list(f, &p, i)
                           : add_part(f, &p, NULL, fxi_bson_object(f->j, f->v[i], f->depth + 1)));
    }
    void *made = good ? f->layer->build_list(p.n, p.named ? p.names : NULL, p.items) : NULL;
    fxi_free(p.items);
    fxi_free((void *)p.names);
    return made;
}

/* Replaces a child that the constructor made by the child from the file; false if only one of the
 * two exists, or if their sizes differ. */
static bool put_child(const fx_layer_row *row, fields *f, void *made)
{
    void *child = *fxi_child_address(row, f->self), **old = fxi_child_address(row, made);
    if (!child || !*old)
        return !child == !*old;
    if (!fxi_same_sizes(child, *old))
        return false;
    fxi_set(old, child);
    return true;
}

static size_t plain_size(fx_field_kind kind)
{
    return kind == FX_FIELD_DIMS   ? sizeof(fx_dims)
           : kind == FX_FIELD_FLAG ? sizeof(bool)
                                   : sizeof(double);
}

/* Moves the members that are not options from the file into the new layer. Returns `made`, an error
 * array found among the children, or NULL if something does not fit. */
static void *completed(fields *f, void *made)
{
    for (int i = 0; i < f->layer->nrows; i++) {
        const fx_layer_row *row = fxi_row(f->layer, i);
        const fx_field *field = fxi_field_of_row(f->type, row);
        if (!(f->read >> i & 1) || row->option || !field)
            continue;
        void *child = field->kind == FX_FIELD_CHILD ? *fxi_child_address(row, f->self) : NULL;
        if (child && fx_is_error(child))
            return child;
        if (field->kind != FX_FIELD_CHILD)
            memcpy((char *)made + row->member, f->self + row->member, plain_size(field->kind));
        else if (!put_child(row, f, made))
            return NULL;
    }
    return made;
}

/* The newest version of Flux that may have written the file, computed once. */
static int newest(fxi_julia *j)
{
    if (j->newest == 0) {
        const fxi_flux_range range = fxi_bson_flux_range(j);
        j->newest = range.since > range.until ? FXI_FLUX_LAST : range.until;
    }
    return j->newest;
}

static void *read_as(fields *f)
{
    if (!take_form(f))
        return NULL;
    if (f->layer->from_flux) {
        const fx_flux_source source = {sizeof source, f->n, f->j->lists > 0, newest(f->j)};
        if (!f->layer->from_flux(&source, f->options, f->self))
            return NULL;
    }
    void *made = fx_layer_make(f->type, f->options);
    return fx_is_error(made) ? made : completed(f, made);
}

/* Tries the layer's forms with this field count; NULL if the values fit none. */
static void *layer_of(fields *f)
{
    const size_t size = *(const size_t *)f->layer->defaults;
    void *made = NULL;
    if (f->layer->build_list)
        return container(f);
    f->options = fxi_malloc(size + f->type->size);
    if (!f->options) {
        f->j->b->status = fx_fail(FX_STATUS_MEMORY, f->j->b->op, "no memory for a layer");
        return NULL;
    }
    f->self = f->options + size;
    for (f->form = f->layer->forms; f->form->fields && !made && f->j->b->status == FX_OK;
         f->form++) {
        if (fxi_count_words(f->form->fields) != f->n)
            continue;
        memcpy(f->options, f->layer->defaults, size);
        memset(f->self, 0, f->type->size);
        f->read = 0;
        made = read_as(f);
    }
    fxi_free(f->options);
    return made;
}

/* Reads the struct as one of the library's types; NULL if it does not fit. */
static void *layer_as(fields *f, const char *name)
{
    f->layer = fx_layer_of(f->type);
    const bool clean = fx_error_status() == FX_OK;
    void *layer = layer_of(f);
    if (layer && fx_is_error(layer) && fx_error_status() == FX_STATUS_MEMORY) {
        f->j->b->status = FX_STATUS_MEMORY;
        return NULL;
    }
    if (layer && fx_is_error(layer) && f->j->b->status == FX_OK) {
        const fx_error e = clean ? fx_error_take() : (fx_error){.message = "is not consistent"};
        fxi_bytes_fail(f->j->b, (size_t)(f->whole.u.bytes - f->j->b->data), "a %s: %s", name,
                       e.message);
        return NULL;
    }
    return layer;
}

void *fxi_bson_layer(fxi_julia *j, const char *type, fxi_bson v, int depth)
{
    fields f = {.j = j, .depth = depth, .whole = v};
    void *layer = NULL;
    f.n = -1;
    for (int64_t i = 0; !layer && j->b->status == FX_OK; i++) {
        f.type = fxi_next_type_of_flux(type, &i);
        if (!f.type)
            return NULL;
        if (f.n < 0)
            f.n = fxi_julia_fields(j, v, f.v);
        layer = layer_as(&f, type);
    }
    return layer;
}
