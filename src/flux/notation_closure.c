/* notation_closure.c: reads small anonymous functions in the notation, x -> reshape(x, :, 4).
 *
 * These are the functions that bson_closure.c recognises in files, written as Julia's source. An
 * array is the argument, a call of an array, or arithmetic of an array and one number:
 *     reshape(a, 7, :)  reshape(x, :, size(x, 4))  maxpool(a, (2, 2))  softmax(a)  tanh.(a)
 *     2 .* a  2x  a ./ 255
 * Each call and each arithmetic operation is a layer; several layers are a chain.
 */
#include "notation_closure.h"
#include "bson_julia.h"
#include "closure_layer.h"
#include "notation_forms.h"

#include <math.h>
#include <string.h>

enum { MAX_LAYERS = 8 };
static const char *const FORMS = "x, reshape(x, …), maxpool(x, (2, 2)), meanpool(x, (2, 2)), "
                                 "softmax(x), f.(x) or 2 .* x";

typedef struct body {
    fxi_reader *r;
    fxi_span argument;
    void *layers[MAX_LAYERS];
    int n, depth;
    bool sum; /* the latest operation is + or - without parentheses around it */
} body;

static bool array(body *b);

static bool unexpected(body *b, const char *at)
{
    char got[FXI_EXCERPT_BYTES];
    b->r->at = at;
    return fxi_reader_fail(b->r, at, "an anonymous function can be %s, got %s", FORMS,
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

/* softmax(a), and tanh.(a) with `each` */
static bool call_function(body *b, fxi_span name, bool each)
{
    fx_function *f = fxi_form_function(b->r, name);
    if (!f)
        return false;
    if (fxi_julia_is_connection(f) || (each == fxi_takes_whole_array(f) && f != FX_IDENTITY))
        return unexpected(b, name.from);
    return array(b) && (fxi_reader_take(b->r, ')') || unexpected(b, name.from)) &&
           add(b, f, name.from);
}

static bool call(body *b, fxi_span name)
{
    const bool each = fxi_reader_take(b->r, '.');
    if (!fxi_reader_take(b->r, '('))
        return unexpected(b, name.from);
    const bool max = fxi_span_is(name, "maxpool"), pool = max || fxi_span_is(name, "meanpool");
    const bool good = !each && fxi_span_is(name, "reshape") ? call_reshape(b, name.from)
                      : !each && pool                       ? call_pool(b, max, name.from)
                                                            : call_function(b, name, each);
    b->sum = false;
    return good;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Reads .*, .+, .-, ./, or as in Julia also * and, after an array, /. 0 if there is none. */
static char operation(body *b, bool after_array)
{
    fxi_reader_peek(b->r);
    const char *at = b->r->at;
    const bool each = *at == '.';
    const char op = at[each];
    if (!op || !strchr(each ? "*+-/" : after_array ? "*/" : "*", op))
        return 0;
    b->r->at = at + each + 1;
    return op;
}

static fxi_closure_layer with_number(char op, bool first, const fxi_number *number)
{
    const fxi_span s = number->span;
    const bool narrow = memchr(s.from, 'f', (size_t)(s.to - s.from)) != NULL;
    const bool exact = number->integer && fabs(number->value) < 9e15; /* a double has all digits */
    const fx_dtype literal = exact ? FX_DTYPE_I64 : narrow ? FX_DTYPE_F32 : FX_DTYPE_F64;
    return (fxi_closure_layer){.op = op,
                               .number_first = first,
                               .number = narrow ? (double)(float)number->value : number->value,
                               .literal = (int64_t)literal};
}

static bool add_arithmetic(body *b, char op, bool first, const fxi_number *number, const char *at)
{
    const fxi_closure_layer l = with_number(op, first, number);
    b->sum = op == '+' || op == '-';
    return add(b, fxi_closure_new(&l), at);
}

/* a .* 2, any number of times; true if no operation follows. The operations are applied from the
 * left, so a product after a sum is refused. */
static bool operations_after(body *b)
{
    for (;;) {
        fxi_number number;
        fxi_reader_peek(b->r);
        const char *at = b->r->at;
        const char op = operation(b, true);
        if (!op)
            return true;
        if ((b->sum && (op == '*' || op == '/')) || !fxi_reader_number(b->r, &number))
            return b->r->status == FX_OK && unexpected(b, at);
        if (!add_arithmetic(b, op, false, &number, at))
            return false;
    }
}

/* The argument, or a call. */
static bool named(body *b, fxi_span name)
{
    return (is_argument(b, name) && fxi_reader_peek(b->r) != '(') || call(b, name);
}

static bool operand(body *b)
{
    fxi_span name;
    fxi_number number;
    fxi_reader_peek(b->r);
    const char *at = b->r->at;
    if (fxi_reader_name(b->r, &name))
        return named(b, name);
    if (!fxi_reader_number(b->r, &number))
        return b->r->status == FX_OK && unexpected(b, at);
    char op = operation(b, false);
    if (!op && b->r->at == number.span.to)
        op = '*'; /* 2x */
    if (!op || !fxi_reader_name(b->r, &name))
        return unexpected(b, at);
    return named(b, name) && add_arithmetic(b, op, true, &number, at);
}

static bool array(body *b)
{
    if (++b->depth > MAX_LAYERS)
        return unexpected(b, b->r->at);
    return operand(b) && operations_after(b);
}

void *fxi_notation_closure(fxi_reader *r, fxi_span argument)
{
    body b = {.r = r, .argument = argument};
    void *made = array(&b) ? fxi_closure_whole(b.n, b.layers) : NULL;
    return !made || !fx_is_error(made) || fxi_reader_passed_on(r, argument.from) ? made : NULL;
}
