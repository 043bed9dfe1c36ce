/* layer_text.c: prints layers as Flux does, Dense(2 => 3, tanh; bias=false), from their tables.
 *
 * fx_layer_options recovers the options of a layer, and those that differ from their defaults are
 * printed: positional options in order, the others with their keywords. All layers share the
 * functions below, so that their text agrees with Flux byte for byte.
 */
#include "nn_layer.h"

#include "julia_number.h"

#include <inttypes.h>
#include <string.h>

typedef struct printing {
    const fx_layer *layer;
    const void *options, *defaults;
    fx_text *text;
    bool first, first_keyword; /* nothing printed so far; no keyword printed so far */
} printing;

/* "(3, 3)", "(5,)" */
static void put_tuple(fx_text *text, const fx_dims *d)
{
    fx_text_add(text, "(");
    for (int64_t i = 0; i < d->n; i++)
        fx_text_add(text, "%s%" PRId64, i ? ", " : "", d->v[i]);
    fx_text_add(text, d->n == 1 ? ",)" : ")");
}

static bool all_equal(const fx_dims *d)
{
    for (int64_t i = 1; i < d->n; i++)
        if (d->v[i] != d->v[0])
            return false;
    return true;
}

/* Prints one number if all are equal, otherwise the tuple. */
static void put_numbers(fx_text *text, const fx_dims *d)
{
    if (all_equal(d) && d->n)
        fx_text_add(text, "%" PRId64, d->v[0]);
    else
        put_tuple(text, d);
}

/* "(2, 3) => 4", "2 => 4" */
static void put_two(fx_text *text, const fx_dims *in)
{
    const int64_t out = *(const int64_t *)(const void *)(in + 1);
    put_numbers(text, in);
    fx_text_add(text, " => %" PRId64, out);
}

/* Prints axes counted from 1, as in Julia. */
static void put_axes(fx_text *text, fx_axes axes)
{
    fx_dims d = {.n = 0};
    for (int i = 0; i < FX_MAX_DIMS; i++)
        if (axes.bits >> i & 1)
            d.v[d.n++] = i + 1;
    if (d.n == 1)
        fx_text_add(text, "%" PRId64, d.v[0]);
    else
        put_tuple(text, &d);
}

static void put_sizes(fx_text *text, const fx_dims *d)
{
    for (int64_t i = 0; i < d->n; i++)
        fx_text_add(text, "%s%" PRId64, i ? ", " : "", d->v[i]);
}

/* Prints the summary of a layer; cuts it if it does not fit in `own`. */
static void put_layer(fx_text *text, void *layer)
{
    char own[1000];
    fx_summary(layer, own, sizeof own);
    fx_text_add(text, "%s", own);
}

/* Prints one number, or several as a tuple. */
static void put_factors(fx_text *text, const fx_dims *d)
{
    if (d->n == 1)
        fx_text_add(text, "%" PRId64, d->v[0]);
    else
        put_tuple(text, d);
}

static void put_word(fx_text *text, const char *words, int i)
{
    for (; i > 0 && *words; i--)
        words += strcspn(words, " ") + 1;
    fx_text_add(text, ":%.*s", (int)strcspn(words, " "), words);
}

/* 64, 64 => 32 => 16, (8, 8, 4) => (16, 12) => 8 */
static void put_attention(fx_text *text, const fx_dims *d)
{
    const fx_dims in = {.n = 3, .v = {d->v[0], d->v[1], d->v[2]}},
                  mid = {.n = 2, .v = {d->v[3], d->v[4]}};
    const bool plain = all_equal(&in) && all_equal(&mid);
    if (plain && d->v[0] == d->v[3] && d->v[0] == d->v[5]) {
        fx_text_add(text, "%" PRId64, d->v[0]);
        return;
    }
    (plain ? put_numbers : put_tuple)(text, &in);
    fx_text_add(text, " => ");
    (plain ? put_numbers : put_tuple)(text, &mid);
    fx_text_add(text, " => %" PRId64, d->v[5]);
}

static void put_value(fx_text *text, const fx_layer_row *row, const void *value)
{
    char number[FXI_NUMBER_TEXT];
    const int64_t *integers = value;
    switch (row->kind) {
    case FX_OPTION_LAYER:
        put_layer(text, *(void *const *)value);
        return;
    case FX_OPTION_ATTENTION:
        put_attention(text, value);
        return;
    case FX_OPTION_PAIR:
        fx_text_add(text, "%" PRId64 " => %" PRId64, integers[0], integers[1]);
        return;
    case FX_OPTION_TWO_PAIR:
        put_two(text, value);
        return;
    case FX_OPTION_KERNEL:
    case FX_OPTION_TUPLE:
        put_tuple(text, value);
        return;
    case FX_OPTION_FACTORS:
        put_factors(text, value);
        return;
    case FX_OPTION_WORD:
        put_word(text, row->words, *(const int *)value);
        return;
    case FX_OPTION_SIZES:
        put_sizes(text, value);
        return;
    case FX_OPTION_SIZE:
    case FX_OPTION_INTEGER:
        fx_text_add(text, "%" PRId64, integers[0]);
        return;
    case FX_OPTION_INDEX:
        fx_text_add(text, "%" PRId64, integers[0] + 1);
        return;
    case FX_OPTION_REAL:
    case FX_OPTION_REAL32:
        fx_text_add(text, "%s", fxi_float64_text(*(const double *)value, number));
        return;
    case FX_OPTION_NUMBERS:
    case FX_OPTION_PADDING:
        put_numbers(text, value);
        return;
    case FX_OPTION_AXES:
        put_axes(text, *(const fx_axes *)value);
        return;
    case FX_OPTION_FUNCTION:
        fx_text_add(text, "%s", (*(fx_function *const *)value)->name);
        return;
    case FX_OPTION_SYMBOL:
        fx_text_add(text, ":%s", *(const char *const *)value);
        return;
    case FX_OPTION_BIAS:
        fx_text_add(text, *(const int *)value ? "true" : "false");
        return;
    case FX_OPTION_FLAG:
        fx_text_add(text, *(const bool *)value ? "true" : "false");
        return;
    default: /* ACTIVE; other kinds are never printed */
        fx_text_add(text, *(const fx_active *)value == FX_ACTIVE_ON ? "true" : "false");
    }
}

/* True if the option has its default value, or has no notation. */
static bool is_default(const fx_layer_row *row, const void *value, const void *usual)
{
    const fx_dims *d = value, *u = usual;
    fx_function *const *function = value, *const *usual_function = usual;
    switch (row->kind) {
    case FX_OPTION_NUMBERS:
    case FX_OPTION_PADDING:
    case FX_OPTION_TUPLE:
        return d->n == 0 || (u->n > 0 && all_equal(d) && d->v[0] == u->v[0]);
    case FX_OPTION_FACTORS:
        return d->n == 0;
    case FX_OPTION_WORD:
        return *(const int *)value == *(const int *)usual;
    case FX_OPTION_FUNCTION:
        return (*function ? *function : FX_IDENTITY) ==
               (*usual_function ? *usual_function : FX_IDENTITY);
    case FX_OPTION_SIZE:
    case FX_OPTION_INTEGER:
    case FX_OPTION_INDEX:
    case FX_OPTION_REAL:
    case FX_OPTION_REAL32:
        return memcmp(value, usual, sizeof(int64_t)) == 0;
    case FX_OPTION_AXES:
        return ((const fx_axes *)value)->bits == ((const fx_axes *)usual)->bits;
    case FX_OPTION_SYMBOL:
        return false;
    case FX_OPTION_BIAS:
        return !*(const int *)value == !*(const int *)usual;
    case FX_OPTION_FLAG:
        return *(const bool *)value == *(const bool *)usual;
    case FX_OPTION_ACTIVE:
        return *(const fx_active *)value == *(const fx_active *)usual;
    default:
        return true;
    }
}

static void put_option(printing *p, const fx_layer_row *row)
{
    const void *value = (const char *)p->options + row->option;
    const bool spaced = row->kind == FX_OPTION_FACTORS; /* as Flux prints Upsample */
    const bool keyword = !row->positional || spaced;
    if (row->silent || !row->option || (!row->names && !row->positional))
        return;
    if (!row->required && !row->shown &&
        is_default(row, value, (const char *)p->defaults + row->option))
        return;
    if (!p->first)
        fx_text_add(p->text, "%s ", p->layer->semicolon && keyword && p->first_keyword ? ";" : ",");
    if (keyword)
        fx_text_add(p->text, spaced ? "%.*s = " : "%.*s=", (int)strcspn(row->names, " "),
                    row->names);
    put_value(p->text, row, value);
    p->first = false;
    p->first_keyword = p->first_keyword && !keyword;
}

void fx_layer_describe(const void *self, fx_text *text)
{
    const fx_type *type = fx_type_of(self);
    const fx_layer *layer = fx_layer_of(type);
    const size_t size = layer ? fxi_options_size(layer) : 0;
    _Alignas(16) char options[FXI_LARGEST_OPTIONS];
    fx_text_add(text, "%s(", type->name);
    if (size > 0 && size <= sizeof options) {
        memcpy(options, layer->defaults, size);
        printing p = {layer, options, layer->defaults, text, true, true};
        const bool whole = fx_layer_options(self, options);
        for (int i = 0; whole && i < layer->nrows; i++)
            put_option(&p, fxi_layer_row(layer, i));
    }
    fx_text_add(text, ")");
}
