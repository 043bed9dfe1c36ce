/* layer_table.c: code driven by the tables of layers: makes a layer from options, recovers the
 * options from a layer, and lists the known layer types.
 *
 * <cflux/layer.h> describes the tables.
 */
#include "nn_layer.h"
#include "thread.h"

#include "memory.h"

#include <string.h>

static const void *at(const void *base, size_t offset)
{
    return (const char *)base + offset;
}
static void *into(void *base, size_t offset)
{
    return (char *)base + offset;
}

/* ---- construction ------------------------------------------------------------------------ */

/* Converts the axes to a list, empty for all axes; false if one is not a valid axis. */
static bool axes_listed(fx_axes axes, fx_dims *out)
{
    *out = (fx_dims){.n = 0};
    if (axes.bits == FXI_BIT_ALL)
        return true;
    for (int i = 0; i < FX_MAX_DIMS; i++)
        if (axes.bits >> i & 1)
            out->v[out->n++] = i;
    return axes.bits != 0 && axes.bits >> FX_MAX_DIMS == 0;
}

static size_t value_size(fx_option_kind kind)
{
    switch (kind) {
    case FX_OPTION_KERNEL:
    case FX_OPTION_SIZES:
    case FX_OPTION_NUMBERS:
    case FX_OPTION_PADDING:
    case FX_OPTION_TUPLE:
    case FX_OPTION_FACTORS:
    case FX_OPTION_ATTENTION:
        return sizeof(fx_dims);
    case FX_OPTION_TWO_PAIR:
        return sizeof(fx_dims) + sizeof(int64_t);
    case FX_OPTION_PAIR:
    case FX_OPTION_REALS:
        return 2 * sizeof(double);
    case FX_OPTION_BIAS:
        return sizeof(int);
    case FX_OPTION_FLAG:
        return sizeof(bool);
    default:
        return sizeof(int64_t); /* integers, reals and pointers have 8 bytes */
    }
}

static bool is_array_option(fx_option_kind kind)
{
    return kind == FX_OPTION_VECTOR || kind == FX_OPTION_MATRIX || kind == FX_OPTION_ARRAY;
}

/* Copies an option's value into its member; false on failure (recorded). */
static bool to_member(const fx_type *type, const fx_layer_row *row, const void *options, void *self)
{
    const void *from = at(options, row->option);
    void *to = into(self, row->member);
    if (row->kind == FX_OPTION_ACTIVE)
        *(int64_t *)to = (int64_t) * (const fx_active *)from;
    else if (row->kind == FX_OPTION_WORD)
        *(int64_t *)to = *(const int *)from;
    else if (row->kind == FX_OPTION_AXES)
        return axes_listed(*(const fx_axes *)from, to) ||
               fxi_layer_fail(type, "%s must be one or more axes from 0 to %d", row->name,
                              FX_MAX_DIMS - 1);
    else
        memcpy(to, from, value_size(row->kind));
    fx_function **function = to;
    if (row->kind == FX_OPTION_FUNCTION && !*function)
        *function = FX_IDENTITY;
    const bool object = is_array_option(row->kind) || row->kind == FX_OPTION_LAYER;
    return !object || !*(void **)to || !fx_is_error(*(void **)to);
}

static bool built(const fx_type *type, const void *options, void *self)
{
    const fx_layer *layer = fx_layer_of(type);
    for (int i = 0; i < layer->nrows; i++) {
        const fx_layer_row *row = fxi_layer_row(layer, i);
        if (row->member && row->option && !to_member(type, row, options, self))
            return false;
    }
    return !layer->build || layer->build(type, options, self);
}

/* ---- parameters of a new layer ----------------------------------------------------------- */

/* True if x is the value of an option, so that the caller owns it. */
static bool was_given(const fx_layer *layer, const void *options, const void *x)
{
    for (int i = 0; i < layer->nrows; i++) {
        const fx_layer_row *row = fxi_layer_row(layer, i);
        if (row->option && is_array_option(row->kind) &&
            *(void *const *)at(options, row->option) == x)
            return true;
    }
    return false;
}

typedef struct new_parameters {
    const fx_layer *layer;
    const void *options;
} new_parameters;

static bool is_new(const fx_array *x, void *user)
{
    const new_parameters *p = user;
    return !was_given(p->layer, p->options, x);
}

static bool makes_another(const fx_layer *layer)
{
    return layer->fxi_size > offsetof(fx_layer, make) && layer->make;
}

/* The new layer from complete options; `self` is a struct of its type. NULL after a failure. */
static void *make(const fx_type *type, const void *options, void *self)
{
    if (makes_another(fx_layer_of(type)))
        return fx_layer_of(type)->make(type, options);
    return built(type, options, self) ? fxi_new(type, self) : NULL;
}

void *fx_layer_make(const fx_type *type, const void *given)
{
    const fx_layer *layer = fx_layer_of(type);
    if (!layer || layer->build_list) {
        fx_fail(FX_STATUS_ARGUMENT, "layer_make",
                "layers of type %s cannot be made from an option struct",
                type ? type->name : "NULL");
        return fx_error_object(type);
    }
    FXI_SCOPE;
    const size_t size = fxi_options_size(layer);
    char *options = fxi_calloc(1, size + type->size);
    void *made = NULL;
    if (!options)
        fx_fail(FX_STATUS_MEMORY, type->name, "no memory for options");
    else {
        memcpy(options, layer->defaults, size);
        if (fxi_take_options(type->name, options, size, given))
            made = make(type, options, options + size);
        new_parameters p = {layer, options};
        if (made && !fx_is_error(made) && fxi_evaluate_new(made, is_new, &p) != FX_OK)
            made = NULL;
    }
    fxi_free(options);
    return made ? fx_keep(made) : fx_error_object(type);
}

/* ---- options of a layer ------------------------------------------------------------------ */

static void from_member(const fx_layer_row *row, const void *self, void *options)
{
    const void *from = at(self, row->member);
    void *to = into(options, row->option);
    const fx_dims *axes = from;
    if (row->kind == FX_OPTION_ACTIVE)
        *(fx_active *)to = (fx_active) * (const int64_t *)from;
    else if (row->kind == FX_OPTION_WORD)
        *(int *)to = (int)*(const int64_t *)from;
    else if (row->kind == FX_OPTION_AXES && axes->n)
        *(fx_axes *)to = fx_axes_of((int)axes->n, axes->v);
    else if (row->kind != FX_OPTION_AXES)
        memcpy(to, from, value_size(row->kind));
}

static void from_presence(const fx_layer_row *row, const void *self, void *options)
{
    const bool there = *(void *const *)at(self, row->present) != NULL;
    if (row->kind == FX_OPTION_BIAS)
        *(int *)into(options, row->option) = there;
    else
        *(bool *)into(options, row->option) = there;
}

static bool recovered(const fx_layer *layer, const void *self, void *options)
{
    for (int i = 0; i < layer->nrows; i++) {
        const fx_layer_row *row = fxi_layer_row(layer, i);
        if (row->option && row->member)
            from_member(row, self, options);
        else if (row->option && row->present)
            from_presence(row, self, options);
    }
    return !layer->recover || layer->recover(self, options);
}

bool fx_layer_options(const void *self, void *options)
{
    const fx_layer *layer = fx_layer_of(fx_type_of(self));
    if (!layer || layer->build_list || self == fx_type_of(self)->error)
        return false;
    const size_t size = fxi_options_size(layer);
    _Alignas(16) char
        all[FXI_LARGEST_OPTIONS]; /* on the stack, because printing must work without free memory */
    if (size > sizeof all)
        return false;
    memcpy(all, layer->defaults, size);
    const bool whole = recovered(layer, self, all);
    fxi_give_options(options, all, size);
    return whole;
}

/* ---- the types that are known ------------------------------------------------------------ */

static fxi_mutex lock = FXI_MUTEX_INIT;
static const fx_type **registered;
static int32_t nregistered, capacity;

#define LAYER(id) fxi_##id##_type,
static const fx_type *(*const library[])(void) = {
#include "layers.def"
};
#undef LAYER
enum { NLIBRARY = sizeof library / sizeof library[0] };

bool fxi_is_library_layer(const fx_type *type)
{
    for (int i = 0; i < NLIBRARY; i++)
        if (library[i]() == type)
            return true;
    return false;
}

const fx_type *fx_layer_type(int64_t i)
{
    const fx_type *type = NULL;
    if (i >= 0 && i < NLIBRARY)
        return library[i]();
    fxi_mutex_lock(&lock);
    if (i >= NLIBRARY && i < NLIBRARY + nregistered)
        type = registered[i - NLIBRARY];
    fxi_mutex_unlock(&lock);
    return type;
}

static bool same_file_name(const fx_layer *a, const fx_layer *b)
{
    return a->flux && b->flux && strcmp(a->flux, b->flux) == 0;
}

fx_status fx_register_layer(const fx_type *type)
{
    const fx_layer *layer = fx_layer_of(type);
    if (!layer)
        return fx_fail(FX_STATUS_ARGUMENT, "register_layer",
                       "%s has no table of fields (use FX_LAYER_TYPE)", type ? type->name : "NULL");
    const fx_type *other;
    for (int64_t i = 0; (other = fx_layer_type(i)); i++) {
        if (other == type || (strcmp(other->name, type->name) == 0 && i >= NLIBRARY &&
                              other->size == type->size && other->nfields == type->nfields))
            return FX_OK;
        if (strcmp(other->name, type->name) == 0)
            return fx_fail(FX_STATUS_ARGUMENT, "register_layer",
                           "there is already another type named %s", type->name);
        if (same_file_name(fx_layer_of(other), layer))
            return fx_fail(FX_STATUS_ARGUMENT, "register_layer",
                           "%s and the registered type %s have the same name in files, %s",
                           type->name, other->name, layer->flux);
    }
    fxi_mutex_lock(&lock);
    const bool grown = fxi_grow(&registered, &capacity, nregistered + 1, sizeof *registered);
    if (grown)
        registered[nregistered++] = type;
    fxi_mutex_unlock(&lock);
    return grown ? FX_OK
                 : fx_fail(FX_STATUS_MEMORY, "register_layer", "no memory for the name of a type");
}
