/* bson_closure.c: recognises small anonymous Julia functions in a BSON file and makes layers of
 * them.
 *
 * A file stores x -> softmax(x) as the lowered form of its method: a list of calls whose operands
 * are the argument, the results of earlier calls, names, or numbers. The few patterns that occur in
 * real chains (reshape, flatten, pooling, softmax, a broadcast function, arithmetic with a number)
 * become layers; everything else stays a file node (file_node.h). The argument of an activation is
 * a number, so that its calls and operators are not broadcast. The calls are only parsed, never
 * executed.
 */
#include "bson_objects.h"
#include "closure_layer.h"

#include <string.h>

enum { MAX_LAYERS = 8, MAX_VALUES = 40, MAX_ARGS = 10, MAX_VISITS = 4000, MAX_DEPTH = 40 };

/* ---- values of the lowered form -------------------------------------------------------------- */

/* VAL_TYPE is Julia's Val{number}, VAL its value: the exponent of x^2. */
typedef enum value_kind {
    UNKNOWN = 0,
    ARRAY,
    NUMBER,
    COLON,
    DIMS,
    AXIS_SIZE,
    NAME,
    VAL_TYPE,
    VAL
} value_kind;

typedef struct value {
    value_kind kind;
    int layers; /* ARRAY: number of layers that produced it; AXIS_SIZE: `layers` of the array with
                 * this size
                 */
    double number;
    fx_dtype literal; /* NUMBER: I64, F64 or F32 */
    fx_dims dims; /* DIMS: as in fxi_closure_layer; AXIS_SIZE: v[0], the axis, from 1 as in Julia */
    const char *name;
} value;

typedef struct lowered {
    fxi_julia *j;
    value values[MAX_VALUES];
    void *layers[MAX_LAYERS];
    int nvalues, nlayers;
    bool returned;
    bool of_number; /* the argument is a number: calls and operators need no broadcast */
} lowered;

static value call(lowered *l, fxi_bson args, int depth);

static bool is_struct(lowered *l, fxi_bson v, const char *type, fxi_bson *out_data)
{
    char name[FXI_JULIA_NAME];
    fxi_julia_struct_name(l->j, v, name);
    *out_data = fxi_julia_get(l->j, fxi_julia_value(l->j, v), "data");
    return strcmp(name, type) == 0;
}

static value named(const char *name)
{
    return (value){.kind = strcmp(name, ":") == 0 ? COLON : NAME, .name = name};
}

static const char *symbol(lowered *l, fxi_bson v)
{
    v = fxi_julia_value(l->j, v);
    const fxi_bson name = fxi_bson_get(v, "name");
    return fxi_julia_tagged(v, "symbol") && name.kind == FXI_BSON_STRING ? name.u.text : "";
}

static value tuple_value(lowered *l, fxi_bson v)
{
    value t = {.kind = DIMS};
    fxi_bson_items items = fxi_bson_items_of(fxi_julia_get(l->j, v, "data"));
    fxi_bson item, data;
    while (fxi_bson_next(&items, &item)) {
        const bool colon = is_struct(l, item, "Colon", &data);
        if (t.dims.n == FX_MAX_DIMS ||
            (!colon &&
             (!fxi_julia_integer(l->j, item, &t.dims.v[t.dims.n]) || t.dims.v[t.dims.n] < 0)))
            return (value){.kind = UNKNOWN};
        if (colon)
            t.dims.v[t.dims.n] = -1;
        t.dims.n++;
    }
    return t;
}

/* Julia's SlotNumber 2 is the argument of the function, 1 the function itself. */
static value argument(lowered *l, fxi_bson data)
{
    int64_t k;
    return fxi_julia_integer(l->j, fxi_bson_at(data, 0), &k) && k == 2 ? (value){.kind = ARRAY}
                                                                       : (value){.kind = UNKNOWN};
}

static value earlier(lowered *l, fxi_bson data)
{
    int64_t k;
    return fxi_julia_integer(l->j, fxi_bson_at(data, 0), &k) && k >= 1 && k <= l->nvalues
               ? l->values[k - 1]
               : (value){.kind = UNKNOWN};
}

fx_dtype fxi_closure_literal(fxi_bson v, double number)
{
    const bool exact = number > -9e15 && number < 9e15;
    if (v.kind == FXI_BSON_INT && exact)
        return FX_DTYPE_I64;
    return v.kind == FXI_BSON_DOUBLE || (double)(float)number != number ? FX_DTYPE_F64
                                                                        : FX_DTYPE_F32;
}

static value evaluate(lowered *l, fxi_bson v, int depth)
{
    fxi_bson data;
    value x = {.kind = UNKNOWN};
    v = fxi_julia_value(l->j, v);
    if (fxi_julia_number(l->j, v, &x.number)) {
        x.kind = NUMBER;
        x.literal = fxi_closure_literal(v, x.number);
        return x;
    }
    if (fxi_julia_tagged(v, "tuple"))
        return tuple_value(l, v);
    if (fxi_julia_tagged(v, "symbol"))
        return named(symbol(l, v));
    if (is_struct(l, v, "SlotNumber", &data) || is_struct(l, v, "Argument", &data))
        return argument(l, data);
    if (is_struct(l, v, "SSAValue", &data))
        return earlier(l, data);
    if (is_struct(l, v, "GlobalRef", &data))
        return named(symbol(l, fxi_bson_at(data, 1)));
    if (is_struct(l, v, "QuoteNode", &data))
        return named(symbol(l, fxi_bson_at(data, 0)));
    if (is_struct(l, v, "Colon", &data))
        return named(":");
    if (is_struct(l, v, "Expr", &data) && depth < MAX_LAYERS &&
        strcmp(symbol(l, fxi_bson_at(data, 0)), "call") == 0)
        return call(l, fxi_julia_value(l->j, fxi_bson_at(data, 1)), depth + 1);
    const fx_function *f = fxi_julia_function(l->j, v);
    return f ? named(f->name) : x;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* True if the value is the output of the latest layer, which must be the input of the next one. */
static bool is_latest(const lowered *l, const value *v)
{
    return v->kind == ARRAY && v->layers == l->nlayers;
}

static value add_layer(lowered *l, void *layer)
{
    if (!layer || fx_is_error(layer) || l->nlayers == MAX_LAYERS)
        return (value){.kind = UNKNOWN};
    l->layers[l->nlayers++] = layer;
    return (value){.kind = ARRAY, .layers = l->nlayers};
}

static value add_closure(lowered *l, const fxi_closure_layer *init)
{
    return add_layer(l, fxi_closure_new(init));
}

/* Adds a value to sizes; false if it is not a size. */
static bool add_size(const lowered *l, fx_dims *dims, const value *v)
{
    int64_t d;
    if (v->kind == NUMBER && v->number >= 0 && v->number < 1e9)
        d = (int64_t)v->number;
    else if (v->kind == COLON)
        d = -1;
    else if (v->kind == AXIS_SIZE && v->layers == l->nlayers)
        d = -1 - v->dims.v[0];
    else
        return false;
    if (dims->n == FX_MAX_DIMS)
        return false;
    dims->v[dims->n++] = d;
    return true;
}

static value sizes(const lowered *l, const value *a, int n)
{
    value t = {.kind = DIMS};
    for (int i = 0; i < n; i++)
        if (!add_size(l, &t.dims, &a[i]))
            return (value){.kind = UNKNOWN};
    return t;
}

static value call_reshape(lowered *l, const value *a, int n)
{
    const value t = n == 2 && a[1].kind == DIMS ? a[1] : sizes(l, a + 1, n - 1);
    int left = 0;
    for (int64_t i = 0; i < t.dims.n; i++)
        left += t.dims.v[i] == -1;
    if (n < 2 || !is_latest(l, &a[0]) || t.kind != DIMS || left > 1 || t.dims.n > FX_MAX_DIMS)
        return (value){.kind = UNKNOWN};
    return add_closure(l, &(const fxi_closure_layer){.op = 'r', .dims = t.dims});
}

static value call_pool(lowered *l, const value *a, int n, bool max)
{
    if (n != 2 || !is_latest(l, &a[0]) || a[1].kind != DIMS)
        return (value){.kind = UNKNOWN};
    return add_layer(l, fxi_closure_pool(max, &a[1].dims));
}

/* A number and the array, in either order. */
static value call_arithmetic(lowered *l, const char *op, const value *a, int n)
{
    const bool first = n == 2 && a[0].kind == NUMBER && is_latest(l, &a[1]);
    if (!first && !(n == 2 && a[1].kind == NUMBER && is_latest(l, &a[0])))
        return (value){.kind = UNKNOWN};
    return add_closure(l, &(const fxi_closure_layer){.op = op[0],
                                                     .number_first = first,
                                                     .number = a[first ? 0 : 1].number,
                                                     .literal = (int64_t)a[first ? 0 : 1].literal});
}

static bool is_arithmetic(const char *f)
{
    return f[0] && !f[1] && strchr("*+-/^", f[0]);
}

/* literal_pow(^, x, Val(2)), which is x^2. */
static value call_power(lowered *l, const value *a, int n)
{
    if (n != 3 || a[0].kind != NAME || strcmp(a[0].name, "^") != 0 || a[2].kind != VAL)
        return (value){.kind = UNKNOWN};
    const value operands[] = {a[1],
                              {.kind = NUMBER, .number = a[2].number, .literal = a[2].literal}};
    return call_arithmetic(l, "^", operands, 2);
}

/* A function of the library whose argument is a number, or an element of the array. */
static value call_elementwise(lowered *l, const char *f, const value *a, int n)
{
    if (strcmp(f, "literal_pow") == 0)
        return call_power(l, a, n);
    if (is_arithmetic(f))
        return call_arithmetic(l, f, a, n);
    if (n == 2 && fxi_closure_op_named(f) && a[1].kind == NUMBER && is_latest(l, &a[0]))
        return add_closure(l, &(const fxi_closure_layer){.op = fxi_closure_op_named(f),
                                                         .number = a[1].number,
                                                         .literal = (int64_t)a[1].literal});
    return n == 1 && is_latest(l, &a[0]) ? add_layer(l, fxi_julia_function_named(f))
                                         : (value){.kind = UNKNOWN};
}

static value call_broadcast(lowered *l, const value *a, int n)
{
    if (n < 2 || a[0].kind != NAME)
        return (value){.kind = UNKNOWN};
    return call_elementwise(l, a[0].name, a + 1, n - 1);
}

static value call_named(lowered *l, const char *f, const value *a, int n)
{
    if (strcmp(f, "broadcasted") == 0)
        return call_broadcast(l, a, n);
    if ((strcmp(f, "materialize") == 0 || strcmp(f, "param") == 0) && n == 1)
        return a[0];
    if (strcmp(f, "apply_type") == 0 && n == 2 && a[0].kind == NAME &&
        strcmp(a[0].name, "Val") == 0 && a[1].kind == NUMBER)
        return (value){.kind = VAL_TYPE, .number = a[1].number, .literal = a[1].literal};
    if (strcmp(f, "getproperty") == 0 && n == 2 && a[1].kind == NAME)
        return a[1];
    if (l->of_number)
        return call_elementwise(l, f, a, n);
    if (strcmp(f, "tuple") == 0)
        return sizes(l, a, n);
    if (strcmp(f, "size") == 0 && n == 2 && is_latest(l, &a[0]) && a[1].kind == NUMBER &&
        a[1].number >= 1 && a[1].number <= FX_MAX_DIMS)
        return (value){.kind = AXIS_SIZE,
                       .layers = a[0].layers,
                       .dims = {.n = 1, .v = {(int64_t)a[1].number}}};
    if (strcmp(f, "reshape") == 0)
        return call_reshape(l, a, n);
    if (strcmp(f, "maxpool") == 0 || strcmp(f, "meanpool") == 0)
        return call_pool(l, a, n, f[1] == 'a');
    if (strcmp(f, "*") == 0 || strcmp(f, "/") == 0)
        return call_arithmetic(l, f, a, n);
    fx_function *function = fxi_julia_function_named(f);
    return fxi_takes_whole_array(function) && n == 1 && is_latest(l, &a[0])
               ? add_layer(l, function)
               : (value){.kind = UNKNOWN};
}

static value call(lowered *l, fxi_bson args, int depth)
{
    value a[MAX_ARGS];
    int n = 0;
    fxi_bson_items items = fxi_bson_items_of(args);
    fxi_bson v;
    while (n < MAX_ARGS && fxi_bson_next(&items, &v))
        a[n++] = evaluate(l, v, depth);
    if (n == 1 && a[0].kind == VAL_TYPE)
        return (value){.kind = VAL, .number = a[0].number, .literal = a[0].literal};
    return n >= 1 && n < MAX_ARGS && a[0].kind == NAME ? call_named(l, a[0].name, a + 1, n - 1)
                                                       : (value){.kind = UNKNOWN};
}

/* ---- the method ------------------------------------------------------------------------------ */

/* Finds the lowered code below a value: a struct CodeInfo. */
static bool find_code(fxi_julia *j, fxi_bson v, int depth, int *visits, fxi_bson *out)
{
    char name[FXI_JULIA_NAME];
    v = fxi_julia_value(j, v);
    fxi_julia_struct_name(j, v, name);
    if (strcmp(name, "CodeInfo") == 0) {
        *out = fxi_julia_value(j, fxi_bson_at(fxi_julia_get(j, v, "data"), 0));
        return out->kind == FXI_BSON_ARRAY;
    }
    if (name[0])
        v = fxi_julia_get(j, v, "data");
    fxi_bson_items items = fxi_bson_items_of(v);
    fxi_bson item;
    while (v.kind == FXI_BSON_ARRAY && depth < MAX_DEPTH && ++*visits < MAX_VISITS &&
           fxi_bson_next(&items, &item))
        if (find_code(j, item, depth + 1, visits, out))
            return true;
    return false;
}

static void statement(lowered *l, fxi_bson v)
{
    fxi_bson data;
    value x = {.kind = UNKNOWN};
    v = fxi_julia_value(l->j, v);
    const bool expression = is_struct(l, v, "Expr", &data);
    if (expression && strcmp(symbol(l, fxi_bson_at(data, 0)), "return") == 0) {
        x = evaluate(l, fxi_bson_at(fxi_julia_value(l->j, fxi_bson_at(data, 1)), 0), 0);
        l->returned = is_latest(l, &x);
    } else if (is_struct(l, v, "ReturnNode", &data)) {
        x = evaluate(l, fxi_bson_at(data, 0), 0);
        l->returned = is_latest(l, &x);
    } else {
        x = evaluate(l, v, 0);
    }
    l->values[l->nvalues++] = x;
}

/* Reads the statements until one returns the result of the latest layer. */
static bool read_layers(lowered *l, fxi_bson v)
{
    int visits = 0;
    fxi_bson code, item;
    const fxi_bson type = fxi_julia_get(l->j, v, "type");
    if (!find_code(l->j, fxi_bson_get(type, "typename"), 0, &visits, &code))
        return false;
    fxi_bson_items items = fxi_bson_items_of(code);
    while (!l->returned && l->nvalues < MAX_VALUES && fxi_bson_next(&items, &item))
        statement(l, item);
    return l->returned;
}

void *fxi_bson_closure(fxi_julia *j, fxi_bson v)
{
    lowered l = {.j = j};
    return read_layers(&l, v) ? fxi_closure_whole(l.nlayers, l.layers) : NULL;
}

fx_function *fxi_bson_closure_of_number(fxi_julia *j, fxi_bson v)
{
    lowered l = {.j = j, .of_number = true};
    bool good = read_layers(&l, v);
    for (int i = 0; i < l.nlayers; i++) {
        const bool whole = !fxi_closure_of(l.layers[i]) && fxi_takes_whole_array(l.layers[i]);
        good =
            good && (!whole || l.layers[i] == FX_IDENTITY) && !fxi_julia_is_connection(l.layers[i]);
    }
    return good ? fxi_closure_activation(l.nlayers, l.layers) : NULL;
}
