/* notation_closure.c: reads small anonymous functions in the notation, x -> reshape(x, :, 4).
 *
 * These are the functions that bson_closure.c recognises in files, written as Julia's source. An
 * array is the argument, a call of an array, or arithmetic of an array and one number:
 *     reshape(a, 7, :)  reshape(x, :, size(x, 4))  maxpool(a, (2, 2))  softmax(a)  tanh.(a)
 *     2 .* a  2x  a ./ 255  a.^2  2 .* (a .+ 1)
 * Each call and each arithmetic operation is a layer; several layers are a chain. Operators have
 * Julia's precedence. The argument of an activation is a number: its operators and calls need no
 * dot, x -> x^2.
 */
#include "notation_closure.h"
#include "bson_julia.h"
#include "closure_layer.h"
#include "notation_forms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 8 };

typedef struct body {
    fxi_reader *r;
    fxi_span argument;
    bool of_number; /* the argument is a number */
    void *layers[MAX_LAYERS];
    int n, depth;
} body;

/* A number, or the result of the layers so far. */
typedef struct term {
    bool is_number;
    fxi_number number;
} term;

static bool sum(body *b, term *out);

static bool unexpected(body *b, const char *at)
{
    static const char *const forms[] = {
        "x, reshape(x, …), maxpool(x, (2, 2)), meanpool(x, (2, 2)), softmax(x), f.(x) or 2 .* x",
        "x, f(x), 2x or x^2 as an activation"};
    char got[FXI_EXCERPT_BYTES];
    b->r->at = at;
    return fxi_reader_fail(b->r, at, "an anonymous function can be %s, got %s", forms[b->of_number],
                           fxi_reader_got(b->r, at, got));
}

static bool add(body *b, void *layer, const char *at)
{
    if (fx_is_error(layer))
        return fxi_reader_passed_on(b->r, at);
    if (b->n == MAX_LAYERS)
        return fxi_reader_fail(b->r, at, "an anonymous function can have at most %d operations",
                               MAX_LAYERS);
    b->layers[b->n++] = layer;
    return true;
}

static bool is_argument(const body *b, fxi_span name)
{
    const size_t n = (size_t)(name.to - name.from);
    return n == (size_t)(b->argument.to - b->argument.from) &&
           memcmp(name.from, b->argument.from, n) == 0;
}

/* An expression that depends on the argument. */
static bool array(body *b)
{
    term t;
    fxi_reader_peek(b->r);
    const char *at = b->r->at;
    if (++b->depth > MAX_LAYERS)
        return unexpected(b, at);
    if (!sum(b, &t))
        return false;
    b->depth--;
    return !t.is_number || unexpected(b, at);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* An integer of at least `least`. */
static bool integer(body *b, int64_t least, int64_t *out)
{
    const char *at = b->r->at;
    fxi_number number;
    if (b->r->status != FX_OK || !fxi_reader_number(b->r, &number))
        return b->r->status == FX_OK && unexpected(b, at);
    *out = number.whole;
    return (number.integer && number.whole >= least && number.whole <= INT32_MAX) ||
           unexpected(b, at);
}

/* :, a number, or size(x, 4) if `of_argument` */
static bool size(body *b, bool of_argument, int64_t *out)
{
    fxi_span name;
    fxi_reader_peek(b->r);
    const char *at = b->r->at;
    *out = -1;
    if (fxi_reader_take(b->r, ':'))
        return true;
    if (!fxi_reader_name(b->r, &name))
        return integer(b, 0, out);
    int64_t axis;
    if (!of_argument || !fxi_span_is(name, "size") || !fxi_reader_take(b->r, '(') ||
        !fxi_reader_name(b->r, &name) || !is_argument(b, name) || !fxi_reader_take(b->r, ','))
        return unexpected(b, at);
    if (!integer(b, 1, &axis))
        return false;
    *out = -1 - axis;
    return (axis <= FX_MAX_DIMS && fxi_reader_take(b->r, ')')) || unexpected(b, at);
}

/* The sizes of reshape(x, 7, :) or maxpool(x, (2, 2)), up to the parenthesis that ends the call. */
static bool sizes(body *b, bool of_argument, bool pool, const char *start, fx_dims *out)
{
    int left = 0;
    if (!fxi_reader_take(b->r, ','))
        return unexpected(b, start);
    const bool tuple = fxi_reader_take(b->r, '(');
    if (pool && !tuple)
        return unexpected(b, start);
    *out = (fx_dims){.n = 0};
    for (bool first = true; fxi_reader_next_item(b->r, first, ')'); first = false) {
        if (out->n == FX_MAX_DIMS)
            return unexpected(b, start);
        if (!size(b, of_argument, &out->v[out->n]))
            return false;
        left += out->v[out->n++] == -1;
    }
    if (b->r->status != FX_OK)
        return false;
    return (left <= 1 && out->n > 0 && (!tuple || fxi_reader_take(b->r, ')'))) ||
           unexpected(b, start);
}

static bool call_reshape(body *b, const char *start)
{
    fxi_closure_layer l = {.op = 'r'};
    return array(b) && sizes(b, b->n == 0, false, start, &l.dims) &&
           add(b, fxi_closure_new(&l), start);
}

static bool call_pool(body *b, bool max, const char *start)
{
    fx_dims window;
    return array(b) && sizes(b, false, true, start, &window) &&
           add(b, fxi_closure_pool(max, &window), start);
}

static fxi_closure_layer with_number(char op, bool first, const fxi_number *number);

/* leakyrelu.(a, 0.2f0), from the comma on. */
static bool parameter(body *b, fxi_span name)
{
    char text[16];
    fxi_number number;
    snprintf(text, sizeof text, "%.*s", fxi_span_width(name), name.from);
    const char op = fxi_closure_op_named(text);
    if (!op || !fxi_reader_take(b->r, ',') || !fxi_reader_number(b->r, &number) ||
        !fxi_reader_take(b->r, ')'))
        return b->r->status == FX_OK && unexpected(b, name.from);
    const fxi_closure_layer l = with_number(op, false, &number);
    return add(b, fxi_closure_new(&l), name.from);
}

/* softmax(a), and tanh.(a) with `each`. A function of numbers needs no dot if it gets a number. */
static bool call_function(body *b, fxi_span name, bool each)
{
    fx_function *f = fxi_form_function(b->r, name);
    if (!f)
        return false;
    const bool whole = fxi_takes_whole_array(f);
    const bool fits = f == FX_IDENTITY || (b->of_number ? !whole : each != whole);
    if (fxi_julia_is_connection(f) || !fits)
        return unexpected(b, name.from);
    if (!array(b))
        return false;
    return fxi_reader_take(b->r, ')') ? add(b, f, name.from) : parameter(b, name);
}

static bool call(body *b, fxi_span name)
{
    const bool each = fxi_reader_take(b->r, '.');
    if (!fxi_reader_take(b->r, '('))
        return unexpected(b, name.from);
    const bool max = fxi_span_is(name, "maxpool"), pool = max || fxi_span_is(name, "meanpool");
    const bool whole = !each && !b->of_number;
    return whole && fxi_span_is(name, "reshape") ? call_reshape(b, name.from)
           : whole && pool                       ? call_pool(b, max, name.from)
                                                 : call_function(b, name, each);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Reads one of the operators, with a dot. As in Julia, * and, after an array, / need no dot. 0 if
 * there is none. */
static char operation(body *b, const char *operators, bool after_array)
{
    fxi_reader_peek(b->r);
    const char *at = b->r->at;
    const bool each = *at == '.';
    const char op = at[each];
    if (!op || !strchr(operators, op) ||
        !(each || b->of_number || op == '*' || (op == '/' && after_array)))
        return 0;
    b->r->at = at + each + 1;
    return op;
}

static fxi_closure_layer with_number(char op, bool first, const fxi_number *number)
{
    const bool exact = number->integer && fabs(number->value) < 9e15; /* a double has all digits */
    const fx_dtype literal = exact ? FX_DTYPE_I64 : number->narrow ? FX_DTYPE_F32 : FX_DTYPE_F64;
    return (fxi_closure_layer){.op = op,
                               .number_first = first,
                               .number =
                                   number->narrow ? (double)(float)number->value : number->value,
                               .literal = (int64_t)literal};
}

/* One of the terms must be a number; the other depends on the argument. */
static bool combine(body *b, char op, term *left, const term *right, const char *at)
{
    if (left->is_number == right->is_number)
        return unexpected(b, at);
    const term *number = left->is_number ? left : right;
    const fxi_closure_layer l = with_number(op, left->is_number, &number->number);
    left->is_number = false;
    return add(b, fxi_closure_new(&l), at);
}

/* A number, the argument, a call, or an expression in parentheses. */
static bool primary(body *b, term *out)
{
    fxi_span name;
    fxi_reader_peek(b->r);
    const char *at = b->r->at;
    *out = (term){.is_number = false};
    if (fxi_reader_take(b->r, '('))
        return array(b) && (fxi_reader_take(b->r, ')') || unexpected(b, b->r->at));
    if (fxi_reader_name(b->r, &name))
        return (is_argument(b, name) && fxi_reader_peek(b->r) != '(') || call(b, name);
    out->is_number = fxi_reader_number(b->r, &out->number);
    return out->is_number || (b->r->status == FX_OK && unexpected(b, at));
}

/* .^ binds closest. Refuses a second .^, which Julia would apply first, and a negative number
 * as the base: in Julia, -2 .^ x is -(2 .^ x). */
static bool power(body *b, term *left)
{
    term right;
    if (!operation(b, "^", true))
        return true;
    if (left->is_number && *left->number.span.from == '-')
        return unexpected(b, left->number.span.from);
    fxi_reader_peek(b->r);
    const char *at = b->r->at;
    if (!primary(b, &right) || !combine(b, '^', left, &right, at))
        return false;
    fxi_reader_peek(b->r);
    at = b->r->at;
    return !operation(b, "^", true) || unexpected(b, at);
}

/* True between the 2 and the x of 2x. */
static bool is_juxtaposed(const body *b, const term *left)
{
    fxi_span name;
    fxi_reader ahead = *b->r;
    const bool close = left->is_number && fxi_reader_peek(&ahead) && ahead.at == b->r->at;
    return close && (*ahead.at == '(' || fxi_reader_name(&ahead, &name));
}

/* 2x is a product that binds closer than * and /, but not closer than .^ */
static bool factor(body *b, term *left)
{
    term right;
    if (!primary(b, left))
        return false;
    if (!is_juxtaposed(b, left))
        return power(b, left);
    const char *at = b->r->at;
    return primary(b, &right) && power(b, &right) && combine(b, '*', left, &right, at);
}

static bool product(body *b, term *left)
{
    if (!factor(b, left))
        return false;
    for (;;) {
        term right;
        const char op = operation(b, "*/", !left->is_number);
        fxi_reader_peek(b->r);
        const char *at = b->r->at;
        if (!op || !factor(b, &right) || !combine(b, op, left, &right, at))
            return b->r->status == FX_OK;
    }
}

static bool sum(body *b, term *left)
{
    if (!product(b, left))
        return false;
    for (;;) {
        term right;
        const char op = operation(b, "+-", !left->is_number);
        fxi_reader_peek(b->r);
        const char *at = b->r->at;
        if (!op || !product(b, &right) || !combine(b, op, left, &right, at))
            return b->r->status == FX_OK;
    }
}

void *fxi_notation_closure(fxi_reader *r, fxi_span argument)
{
    body b = {.r = r, .argument = argument};
    void *made = array(&b) ? fxi_closure_whole(b.n, b.layers) : NULL;
    return !made || !fx_is_error(made) || fxi_reader_passed_on(r, argument.from) ? made : NULL;
}

fx_function *fxi_notation_activation(fxi_reader *r, fxi_span argument)
{
    body b = {.r = r, .argument = argument, .of_number = true};
    fx_function *made = array(&b) ? fxi_closure_activation(b.n, b.layers) : NULL;
    return !made || !fx_is_error(made) || fxi_reader_passed_on(r, argument.from) ? made : NULL;
}
