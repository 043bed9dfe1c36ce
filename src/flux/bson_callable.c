/* bson_callable.c: writes small functions as structs of Julia's Base and of Flux, and reads them.
 *
 * An anonymous function of Julia is code, and no file can store code that every version of Julia
 * can load. So the function is written as an equivalent value of public types:
 *     x -> reshape(x, 7, :)               Fix2(reshape, (7, :))
 *     x -> reshape(x, :, size(x, 4))      Flux.Parallel(reshape, (identity, Returns(:),
 *                                                                 Fix2(size, 4)))
 *     x -> x .* 2                         Fix1(broadcast, Fix2(*, 2))
 *     x -> 1 .- x                         Fix1(broadcast, Fix1(-, 1))
 *     x -> x .^ 2                         Fix1(broadcast, Fix2(^, 2))
 *     x -> leakyrelu.(x, 0.2f0)           Fix1(broadcast, Fix2(leakyrelu, 0.2f0))
 *     tanh in a chain                     Fix1(broadcast, tanh)
 *     x -> tanh(x)^2 as an activation     ComposedFunction(Fix2(^, 2), tanh)
 *     .*                                  Broadcast.BroadcastFunction(*)
 * Type parameter i of these types is the type of field i. Parallel calls each of its functions with
 * x and passes the results to reshape. Flux.flatten would be shorter, but it is equal only for
 * input with 4 axes.
 */
#include "bson_callable.h"
#include "closure_layer.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SIZE = 1000000000, MAX_PARTS = 8 };

/* ---- structs of Julia as objects ------------------------------------------------------------- */

typedef struct julia_object {
    fx_object base;
    const char *const *path; /* static lifetime */
    fx_list fields;
} julia_object;

static const fx_field julia_fields[] = {
    {"fields", offsetof(julia_object, fields), FX_FIELD_LIST, false}};
static julia_object julia_error;
static const fx_type julia_type = {.fxi_size = sizeof(fx_type),
                                   .name = "JuliaStruct",
                                   .size = sizeof(julia_object),
                                   .fields = julia_fields,
                                   .nfields = 1,
                                   .error = &julia_error,
                                   .flags = FX_TYPE_INTERNAL};

static const char *const fix1[] = {"Main", "Base", "Fix1", NULL};
static const char *const fix2[] = {"Main", "Base", "Fix2", NULL};
static const char *const returns[] = {"Main", "Base", "Returns", NULL};
static const char *const colon[] = {"Main", "Base", "Colon", NULL};
static const char *const reshape[] = {"Main", "Base", "#reshape", NULL};
static const char *const size_of[] = {"Main", "Base", "#size", NULL};
static const char *const broadcast[] = {"Main", "Base", "Broadcast", "#broadcast", NULL};
static const char *const elementwise[] = {"Main", "Base", "Broadcast", "BroadcastFunction", NULL};
static const char *const parallel[] = {"Flux", "Parallel", NULL};
static const char *const composed[] = {"Main", "Base", "ComposedFunction", NULL};
static const char *const named[][4] = {
    {"Main", "Base", "#*", NULL}, {"Main", "Base", "#+", NULL}, {"Main", "Base", "#-", NULL},
    {"Main", "Base", "#/", NULL}, {"Main", "Base", "#^", NULL}, {"NNlib", "#leakyrelu", NULL},
    {"NNlib", "#elu", NULL},      {"NNlib", "#celu", NULL},     {"NNlib", "#softshrink", NULL},
    {"NNlib", "#trelu", NULL},
};
enum { NFUNCTIONS = sizeof named / sizeof named[0] };

/* The op of a closure layer that computes function i. */
static char op_of(int i)
{
    const bool base = named[i][2] != NULL;
    return base ? named[i][2][1] : fxi_closure_op_named(named[i][1] + 1);
}

static void *make(const char *const *path, int n, void *const *fields)
{
    return fxi_new(&julia_type,
                   &(const julia_object){.path = path,
                                         .fields = {.n = n, .items = (void **)(uintptr_t)fields}});
}

static void *single(const char *const *path)
{
    return make(path, 0, NULL);
}

static void *pair(const char *const *path, void *f, void *x)
{
    return make(path, 2, (void *[]){f, x});
}

bool fxi_callable_shape(const void *object, fxi_shape *out)
{
    if (!fx_is(object, &julia_type))
        return false;
    const julia_object *o = object;
    *out = (fxi_shape){.path = o->path, .nitems = (int)o->fields.n, .nparams = (int)o->fields.n};
    for (int i = 0; i < out->nitems; i++) {
        out->items[i] = (fxi_item){.kind = FXI_ITEM_OBJECT, .object = o->fields.items[i]};
        out->params[i] = (fxi_param){.field = i};
    }
    return true;
}

/* ---- written --------------------------------------------------------------------------------- */

static void *integer(int64_t n)
{
    return fxi_from(FX_DTYPE_I64, &n, 0, NULL);
}

static void *number_of(const fxi_closure_layer *l)
{
    return l->literal == FX_DTYPE_I64 ? integer((int64_t)l->number)
                                      : (void *)fxi_full((fx_dtype)l->literal, l->number, 0, NULL);
}

/* Makes the function of a number that a closure layer applies to each element. */
static void *arithmetic(const fxi_closure_layer *l)
{
    for (int i = 0; i < NFUNCTIONS; i++)
        if (op_of(i) == (char)l->op)
            return pair(l->number_first ? fix1 : fix2, single(named[i]), number_of(l));
    return NULL;
}

static void *composition(const fx_list *parts)
{
    void *whole = NULL;
    for (int64_t i = 0; i < parts->n; i++) {
        const fxi_closure_layer *l = fxi_closure_of(parts->items[i]);
        void *part = l ? arithmetic(l) : parts->items[i];
        whole = whole ? pair(composed, part, whole) : part;
    }
    return whole;
}

/* Makes the struct for x -> reshape(x, (sizes…)). */
static void *fixed_sizes(const fx_dims *dims)
{
    void *items[2 * FX_MAX_DIMS];
    for (int64_t i = 0; i < dims->n; i++)
        items[i] = dims->v[i] < 0 ? single(colon) : integer(dims->v[i]);
    return pair(fix2, single(reshape), fxi_tuple((int)dims->n, items));
}

/* Makes the struct for x -> reshape(x, sizes…), in which each size is a function of x. */
static void *sizes_of_input(const fx_dims *dims)
{
    void *items[2 * FX_MAX_DIMS + 1] = {FX_IDENTITY};
    for (int64_t i = 0; i < dims->n; i++) {
        const int64_t d = dims->v[i];
        void *value = d == -1 ? single(colon) : integer(d < 0 ? -1 - d : d);
        items[i + 1] =
            d < -1 ? pair(fix2, single(size_of), value) : make(returns, 1, (void *[]){value});
    }
    return pair(parallel, single(reshape), fxi_tuple((int)dims->n + 1, items));
}

/* True for functions that Julia defines for numbers: there, tanh(x) of a matrix is the matrix
 * function, so an array needs a broadcast. */
static bool is_of_numbers(const void *object)
{
    const fx_function *f = object;
    return object && !fx_is_array(object) && (fx_type_of(object)->flags & FX_TYPE_FUNCTION) &&
           !fxi_julia_is_connection(f) && fxi_julia_function_named(f->name) == f &&
           !fxi_takes_whole_array(f);
}

void *fxi_callable_for(const void *object, bool in_chain)
{
    const fxi_closure_layer *l = fxi_closure_of(object);
    const fx_list *parts = fxi_closure_parts(object);
    if (object == FX_MUL)
        return make(elementwise, 1, (void *[]){single(named[0])});
    if (in_chain && is_of_numbers(object))
        return pair(fix1, single(broadcast), (void *)(uintptr_t)object);
    if (parts)
        return in_chain ? pair(fix1, single(broadcast), composition(parts)) : composition(parts);
    if (!l)
        return NULL;
    if (l->op != 'r')
        return pair(fix1, single(broadcast), arithmetic(l));
    bool fixed = true;
    for (int64_t i = 0; i < l->dims.n; i++)
        fixed = fixed && l->dims.v[i] >= -1;
    return fixed ? fixed_sizes(&l->dims) : sizes_of_input(&l->dims);
}

/* ---- read ------------------------------------------------------------------------------------ */

/* Reads the two fields of a struct of this type. */
static bool two_fields(fxi_julia *j, fxi_bson v, const char *type, fxi_bson out[FXI_JULIA_FIELDS])
{
    char name[FXI_JULIA_NAME];
    fxi_julia_struct_name(j, v, name);
    return strcmp(name, type) == 0 && fxi_julia_fields(j, v, out) == 2;
}

static bool is_named(fxi_julia *j, fxi_bson v, const char *name)
{
    char text[FXI_JULIA_NAME];
    fxi_julia_struct_name(j, v, text);
    return strcmp(text, name) == 0;
}

static bool add_size(fxi_julia *j, fx_dims *dims, fxi_bson v, bool axis)
{
    int64_t d = -1;
    if (axis || !is_named(j, v, "Colon")) {
        if (!fxi_julia_integer(j, v, &d) || d < axis || d > (axis ? FX_MAX_DIMS : MOST_SIZE))
            return false;
        d = axis ? -1 - d : d;
    }
    for (int64_t i = 0; i < dims->n; i++)
        if (d == -1 && dims->v[i] == -1)
            return false;
    if (dims->n == FX_MAX_DIMS)
        return false;
    dims->v[dims->n++] = d;
    return true;
}

/* Adds the size that Returns(n), Returns(:) or Fix2(size, k) computes. */
static bool add_function(fxi_julia *j, fx_dims *dims, fxi_bson v)
{
    fxi_bson f[FXI_JULIA_FIELDS];
    if (two_fields(j, v, "Fix2", f))
        return is_named(j, f[0], "#size") && add_size(j, dims, f[1], true);
    return is_named(j, v, "Returns") && fxi_julia_fields(j, v, f) == 1 &&
           add_size(j, dims, f[0], false);
}

/* A reshape whose sizes are the items of a tuple: numbers, or functions after an identity. */
static void *reshape_of(fxi_julia *j, fxi_bson tuple, bool functions)
{
    fxi_closure_layer l = {.op = 'r'};
    const fxi_bson value = fxi_julia_value(j, tuple);
    fxi_bson_items items = fxi_bson_items_of(fxi_julia_get(j, value, "data"));
    fxi_bson v;
    bool good = fxi_julia_tagged(value, "tuple");
    if (functions)
        good = good && fxi_bson_next(&items, &v) && fxi_julia_function(j, v) == FX_IDENTITY;
    while (good && fxi_bson_next(&items, &v))
        good = functions ? add_function(j, &l.dims, v) : add_size(j, &l.dims, v, false);
    return good ? fxi_closure_new(&l) : NULL;
}

static bool is_function(fxi_julia *j, fxi_bson v, int i)
{
    char name[FXI_JULIA_NAME];
    const bool base = named[i][2] != NULL;
    snprintf(name, sizeof name, "%s%s", base ? "" : "NNlib.", named[i][base ? 2 : 1]);
    return is_named(j, v, name);
}

/* The functions and closure layers of a composition, in the order in which they are applied. */
typedef struct parts {
    void *items[MAX_PARTS];
    int n;
} parts;

/* Adds the parts of Fix1(op, number), Fix2(op, number), ComposedFunction(f, g) or a function of the
 * library. */
static bool add_parts(fxi_julia *j, fxi_bson v, parts *p, int depth)
{
    fxi_bson f[FXI_JULIA_FIELDS];
    void *function = fxi_julia_function(j, v);
    if (p->n == MAX_PARTS || depth > MAX_PARTS)
        return false;
    if (function) { /* a composition is a function of a number */
        const bool whole = fxi_takes_whole_array(function) && function != FX_IDENTITY;
        if (depth > 0 && (whole || fxi_julia_is_connection(function)))
            return false;
        p->items[p->n++] = function;
        return true;
    }
    if (two_fields(j, v, "ComposedFunction", f))
        return add_parts(j, f[1], p, depth + 1) && add_parts(j, f[0], p, depth + 1);
    fxi_closure_layer l = {.number_first = two_fields(j, v, "Fix1", f)};
    if ((!l.number_first && !two_fields(j, v, "Fix2", f)) || !fxi_julia_number(j, f[1], &l.number))
        return false;
    l.literal = (int64_t)fxi_closure_literal(fxi_julia_value(j, f[1]), l.number);
    for (int i = 0; i < NFUNCTIONS && !l.op; i++)
        l.op = is_function(j, f[0], i) ? op_of(i) : 0;
    if (l.op)
        p->items[p->n++] = fxi_closure_new(&l);
    return l.op != 0;
}

fx_function *fxi_bson_activation(fxi_julia *j, fxi_bson v)
{
    parts p = {.n = 0};
    if (fxi_julia_tagged(fxi_julia_get(j, v, "type"), "jl_anonymous"))
        return fxi_bson_closure_of_number(j, v);
    return add_parts(j, v, &p, 0) ? fxi_closure_activation(p.n, p.items) : NULL;
}

void *fxi_bson_callable(fxi_julia *j, const char *type, fxi_bson v)
{
    fxi_bson f[FXI_JULIA_FIELDS];
    if (two_fields(j, v, "Fix2", f) && is_named(j, f[0], "#reshape"))
        return reshape_of(j, f[1], false);
    if (strcmp(type, "Flux.Parallel") == 0 && two_fields(j, v, type, f) &&
        is_named(j, f[0], "#reshape"))
        return reshape_of(j, f[1], true);
    if (is_named(j, v, "Broadcast.BroadcastFunction") && fxi_julia_fields(j, v, f) == 1 &&
        is_named(j, f[0], named[0][2]))
        return FX_MUL;
    parts p = {.n = 0};
    if (two_fields(j, v, "Fix1", f) && is_named(j, f[0], "Broadcast.#broadcast") &&
        add_parts(j, f[1], &p, 0))
        return fxi_closure_whole(p.n, p.items);
    return NULL;
}
