/* notation_forms.c: what the notation says of each layer, rule and function. See notation_forms.h.
 *
 * A form is a row: name, parameters with their kinds, constructor. A value is written to its place
 * in the constructor's argument struct, where zero is the default, so defaults stand in the
 * constructors only. A new layer is a row here.
 *
 * Integers are checked against the range of their parameter, and sizes are multiplied with a bound
 * before anything is made.
 */
#include "notation_forms.h"

#include "memory.h"

#include <string.h>

static const int64_t MAX_SIZE = INT32_MAX, MAX_PARAMETERS = (int64_t)1 << 40;
#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* ---- functions ------------------------------------------------------------------------------- */

typedef struct named_function {
    const char *name; /* besides the one that is printed */
    fx_function *function;
} named_function;
#define ROW(NAME, name) {#name, &fxi_function_##name},
static const named_function FUNCTIONS[] = {FXI_FUNCTIONS(ROW)
                                           /* what Flux puts in their places, and an older name */
                                           {"tanh_fast", &fxi_function_tanh},
                                           {"sigmoid_fast", &fxi_function_sigmoid},
                                           {"thresholdrelu", &fxi_function_trelu}};
#undef ROW

fx_function *fxi_form_function(fxi_reader *r, fxi_span name)
{
    char list[360] = "";
    for (int i = 0; i < COUNT(FUNCTIONS); i++) {
        if (fxi_span_is(name, FUNCTIONS[i].name) || fxi_span_is(name, FUNCTIONS[i].function->name))
            return FUNCTIONS[i].function;
        fxi_add_word(list, sizeof list, FUNCTIONS[i].name);
    }
    fxi_reader_fail(r, name.from, "there is no function %.*s; there are %s", fxi_span_width(name),
                    name.from, list);
    return NULL;
}

/* ---- parameters of layers and rules ---------------------------------------------------------- */

typedef enum kind {
    PAIR,     /* two int64_t: in => out, older in, out */
    KERNEL,   /* fx_dims of sizes that multiply: (5, 5) */
    SIZES,    /* fx_dims of sizes that multiply: 4, 5 or (4, 5) */
    SIZE,     /* int64_t that counts parameters */
    INTEGER,  /* int64_t */
    REAL,     /* double; zero is FX_ZERO */
    REALS,    /* two of them: (0.9, 0.999) */
    NUMBERS,  /* fx_dims: 2 or (2, 2) */
    PADDING,  /* the same, or SamePad() */
    AXES,     /* the same from 1, or : for all */
    FUNCTION, /* fx_function * */
    NEGATED,  /* bool that says no: bias=false is .no_bias = true */
    ACTIVE,   /* fx_active: true, false, nothing */
    INIT      /* fx_init_fn */
} kind;

typedef struct parameter {
    const char *names; /* as a keyword, older ones too; NULL: has its place only */
    const char *place; /* what the text of errors calls it at its place; NULL: a keyword only */
    kind kind;
    size_t offset;
    int64_t least; /* of integers */
    bool required;
} parameter;

struct fxi_form {
    const char *name;
    const parameter *parameters;
    int count;
    size_t size; /* of the argument struct, which begins with fxi_size */
    void *(*make)(const void *arguments);
};

#define AT(T, field) .offset = offsetof(T, field)
#define ARGUMENT(T, f, k, ...)                                                                     \
    {                                                                                              \
        .kind = (k), AT(T, f), __VA_ARGS__                                                         \
    }

#define DENSE(f, k, ...) ARGUMENT(fx_dense_args, f, k, __VA_ARGS__)
static const parameter DENSE_PARAMETERS[] = {
    DENSE(in, PAIR, .place = "in => out", .least = 1, .required = true),
    DENSE(act, FUNCTION, .place = "a function"),
    DENSE(no_bias, NEGATED, .names = "bias"),
    DENSE(init, INIT, .names = "init initW"),
};
#define CONV(f, k, ...) ARGUMENT(fx_conv_layer_args, f, k, __VA_ARGS__)
static const parameter CONV_PARAMETERS[] = {
    CONV(kernel, KERNEL, .place = "a kernel such as (5, 5)", .least = 1, .required = true),
    CONV(in, PAIR, .place = "in => out", .least = 1, .required = true),
    CONV(act, FUNCTION, .place = "a function"),
    CONV(stride, NUMBERS, .names = "stride", .least = 1),
    CONV(pad, PADDING, .names = "pad"),
    CONV(dilation, NUMBERS, .names = "dilation", .least = 1),
    CONV(groups, INTEGER, .names = "groups", .least = 1),
    CONV(no_bias, NEGATED, .names = "bias"),
    CONV(init, INIT, .names = "init"),
};
#define POOL(f, k, ...) ARGUMENT(fx_pool_layer_args, f, k, __VA_ARGS__)
static const parameter POOL_PARAMETERS[] = {
    POOL(window, KERNEL, .place = "a window such as (2, 2)", .least = 1, .required = true),
    POOL(pad, PADDING, .names = "pad"),
    POOL(stride, NUMBERS, .names = "stride", .least = 1),
};
#define BATCHNORM(f, k, ...) ARGUMENT(fx_batchnorm_args, f, k, __VA_ARGS__)
static const parameter BATCHNORM_PARAMETERS[] = {
    BATCHNORM(channels, SIZE, .place = "a number of channels", .least = 1, .required = true),
    BATCHNORM(act, FUNCTION, .place = "a function"),
    BATCHNORM(no_affine, NEGATED, .names = "affine"),
    BATCHNORM(no_track, NEGATED, .names = "track_stats"),
    BATCHNORM(epsilon, REAL, .names = "eps ϵ epsilon"),
    BATCHNORM(momentum, REAL, .names = "momentum"),
    BATCHNORM(active, ACTIVE, .names = "active"),
};
#define LAYERNORM(f, k, ...) ARGUMENT(fx_layernorm_args, f, k, __VA_ARGS__)
static const parameter LAYERNORM_PARAMETERS[] = {
    LAYERNORM(size, SIZES, .place = "sizes", .least = 1, .required = true),
    LAYERNORM(act, FUNCTION, .place = "a function"),
    LAYERNORM(no_affine, NEGATED, .names = "affine"),
    LAYERNORM(epsilon, REAL, .names = "eps ϵ epsilon"),
};
#define DROPOUT(f, k, ...) ARGUMENT(fx_dropout_args, f, k, __VA_ARGS__)
static const parameter DROPOUT_PARAMETERS[] = {
    DROPOUT(p, REAL, .names = "p", .place = "a probability", .required = true),
    DROPOUT(dims, AXES, .names = "dims", .least = 1),
    DROPOUT(active, ACTIVE, .names = "active"),
};
#define RULE(f, k, ...) ARGUMENT(fx_rule_args, f, k, .names = __VA_ARGS__)
static const parameter MOMENTUM_PARAMETERS[] = {
    RULE(eta, REAL, "eta η", .place = "a learning rate"),
    RULE(rho, REAL, "rho ρ", .place = "rho"),
};
static const parameter ADAM_PARAMETERS[] = {
    RULE(eta, REAL, "eta η", .place = "a learning rate"),
    RULE(beta1, REALS, "beta β", .place = "beta such as (0.9, 0.999)"),
    RULE(epsilon, REAL, "epsilon ϵ eps", .place = "epsilon"),
};
static const parameter ADAMW_PARAMETERS[] = {
    RULE(eta, REAL, "eta η", .place = "a learning rate"),
    RULE(beta1, REALS, "beta β", .place = "beta such as (0.9, 0.999)"),
    RULE(lambda, REAL, "lambda λ decay", .place = "lambda"),
    RULE(epsilon, REAL, "epsilon ϵ eps", .place = "epsilon"),
    RULE(no_couple, NEGATED, "couple"),
};

#define MAKER(name, T)                                                                             \
    static void *make_##name(const void *arguments)                                                \
    {                                                                                              \
        return fxi_##name((const T *)arguments);                                                   \
    }
MAKER(dense, fx_dense_args)
MAKER(conv, fx_conv_layer_args)
MAKER(maxpool, fx_pool_layer_args)
MAKER(meanpool, fx_pool_layer_args)
MAKER(batchnorm, fx_batchnorm_args)
MAKER(layernorm, fx_layernorm_args)
MAKER(dropout, fx_dropout_args)
MAKER(descent, fx_rule_args)
MAKER(momentum, fx_rule_args)
MAKER(nesterov, fx_rule_args)
MAKER(adam, fx_rule_args)
MAKER(adamw, fx_rule_args)

#define FORM(text, list, T, name)                                                                  \
    {                                                                                              \
        (text), (list), COUNT(list), sizeof(T), make_##name                                        \
    }
static const fxi_form LAYERS[] = {
    FORM("Dense", DENSE_PARAMETERS, fx_dense_args, dense),
    FORM("Conv", CONV_PARAMETERS, fx_conv_layer_args, conv),
    FORM("MaxPool", POOL_PARAMETERS, fx_pool_layer_args, maxpool),
    FORM("MeanPool", POOL_PARAMETERS, fx_pool_layer_args, meanpool),
    FORM("BatchNorm", BATCHNORM_PARAMETERS, fx_batchnorm_args, batchnorm),
    FORM("LayerNorm", LAYERNORM_PARAMETERS, fx_layernorm_args, layernorm),
    FORM("Dropout", DROPOUT_PARAMETERS, fx_dropout_args, dropout),
    {.name = "Chain"}, /* holds layers: notation.c reads it */
};
static const fxi_form RULES[] = {
    {"Descent", MOMENTUM_PARAMETERS, 1, sizeof(fx_rule_args), make_descent},
    FORM("Momentum", MOMENTUM_PARAMETERS, fx_rule_args, momentum),
    FORM("Nesterov", MOMENTUM_PARAMETERS, fx_rule_args, nesterov),
    FORM("Adam", ADAM_PARAMETERS, fx_rule_args, adam),
    FORM("AdamW", ADAMW_PARAMETERS, fx_rule_args, adamw),
};

/* The argument struct of a form that is being filled in. */
typedef struct call {
    const fxi_form *form;
    const char *start;        /* of the argument being read */
    const parameter *current; /* its parameter */
    bool keyword;
    uint32_t given; /* parameters, a bit each */
    int64_t volume; /* product of its sizes */
    union {
        size_t fxi_size;
        fx_dense_args dense;
        fx_conv_layer_args conv;
        fx_pool_layer_args pool;
        fx_batchnorm_args batchnorm;
        fx_layernorm_args layernorm;
        fx_dropout_args dropout;
        fx_rule_args rule;
    } arguments;
} call;

static void *target(call *c)
{
    return (char *)&c->arguments + c->current->offset;
}

static const char *expected(const parameter *p, bool keyword)
{
    static const char *const texts[] = {
        [PAIR] = "in => out",
        [KERNEL] = "sizes such as (5, 5)",
        [SIZES] = "sizes",
        [SIZE] = "a number",
        [INTEGER] = "a number",
        [REAL] = "a number",
        [REALS] = "two numbers such as (0.9, 0.999)",
        [NUMBERS] = "a number or several such as (2, 2)",
        [PADDING] = "a number, several such as (1, 1), or SamePad()",
        [AXES] = "an axis, several such as (1, 2), or :",
        [FUNCTION] = "a function",
        [NEGATED] = "true or false",
        [ACTIVE] = "true, false or nothing",
        [INIT] = "an initialiser",
    };
    return p->place && !keyword ? p->place : texts[p->kind];
}

/* The length of the first name, for %.*s. */
static int first_width(const char *names)
{
    return (int)strcspn(names, " ");
}

/* "Dense takes in => out, got 3 => )"; "Conv takes true or false for bias, got 7". */
static bool mismatch(fxi_reader *r, const call *c)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_reader_peek(r);
    const parameter *p = c->current;
    const char *at = r->at, *shown = fxi_reader_got(r, c->start, buf);
    if (!c->keyword)
        return fxi_reader_fail(r, at, "%s takes %s, got %s", c->form->name, expected(p, false),
                               shown);
    return fxi_reader_fail(r, at, "%s takes %s for %.*s, got %s", c->form->name, expected(p, true),
                           first_width(p->names), p->names, shown);
}

static bool expect(fxi_reader *r, const call *c, char next)
{
    return fxi_reader_take(r, next) || mismatch(r, c);
}

static bool take_integer(fxi_reader *r, const call *c, int64_t *out)
{
    fxi_number n;
    if (!fxi_reader_number(r, &n) || !n.integer) {
        r->at = n.span.from;
        return mismatch(r, c);
    }
    *out = n.whole;
    if (n.whole >= c->current->least && n.whole <= MAX_SIZE)
        return true;
    return fxi_reader_fail(r, n.span.from, "%s takes numbers from %d to %d here, got %.*s",
                           c->form->name, (int)c->current->least, (int)MAX_SIZE,
                           (int)(n.span.to - n.span.from), n.span.from);
}

static bool take_real(fxi_reader *r, const call *c, double *out)
{
    fxi_number n;
    if (!fxi_reader_number(r, &n))
        return mismatch(r, c);
    *out = n.value == 0 ? FX_ZERO : n.value;
    return true;
}

/* One number, or several in parentheses. */
static bool take_numbers(fxi_reader *r, call *c, fx_dims *out)
{
    out->n = 0;
    if (!fxi_reader_take(r, '('))
        return take_integer(r, c, &out->v[out->n++]);
    for (bool first = true; fxi_reader_next_item(r, first, ')'); first = false) {
        if (out->n == 2 * FX_MAX_DIMS)
            return fxi_reader_fail(r, r->at, "%s takes at most %d numbers here", c->form->name,
                                   2 * FX_MAX_DIMS);
        if (!take_integer(r, c, &out->v[out->n++]))
            return false;
    }
    return r->status == FX_OK && (out->n > 0 || mismatch(r, c));
}

/* 4, 5: as long as numbers follow. */
static bool take_sizes(fxi_reader *r, call *c, fx_dims *out)
{
    if (!take_numbers(r, c, out))
        return false;
    for (;;) {
        const char *before = r->at;
        if (!fxi_reader_take(r, ',') || !strchr("0123456789", fxi_reader_peek(r)) || !*r->at) {
            r->at = before;
            return true;
        }
        if (out->n == FX_MAX_DIMS)
            return fxi_reader_fail(r, r->at, "%s takes at most %d sizes", c->form->name,
                                   FX_MAX_DIMS);
        if (!take_integer(r, c, &out->v[out->n++]))
            return false;
    }
}

static bool take_pair(fxi_reader *r, call *c, int64_t *out)
{
    if (!take_integer(r, c, &out[0]))
        return false;
    if (fxi_reader_take(r, '=')) {
        if (*r->at != '>')
            return mismatch(r, c);
        r->at++;
    } else if (!fxi_reader_take(r, ','))
        return mismatch(r, c);
    return take_integer(r, c, &out[1]);
}

static bool take_padding(fxi_reader *r, call *c, fx_dims *out)
{
    fxi_span name;
    if (!fxi_reader_name(r, &name))
        return take_numbers(r, c, out);
    if (!fxi_span_is(name, "SamePad") || !fxi_reader_take(r, '(') || !fxi_reader_take(r, ')')) {
        r->at = name.from;
        return mismatch(r, c);
    }
    *out = FX_SAME;
    return true;
}

static bool take_axes(fxi_reader *r, call *c, fx_dims *out)
{
    if (fxi_reader_take(r, ':'))
        return true;
    if (!take_numbers(r, c, out))
        return false;
    for (int64_t i = 0; i < out->n; i++)
        out->v[i]--;
    return true;
}

static bool take_function(fxi_reader *r, call *c, fx_function **out)
{
    fxi_span name;
    if (!fxi_reader_name(r, &name))
        return mismatch(r, c);
    *out = fxi_form_function(r, name);
    return *out != NULL;
}

/* The position of the name among the words; −1 (recorded) when it is none. */
static int take_word(fxi_reader *r, call *c, const char *const *words, int n)
{
    fxi_span name;
    if (fxi_reader_name(r, &name)) {
        for (int i = 0; i < n; i++)
            if (fxi_span_is(name, words[i]))
                return i;
        r->at = name.from;
    }
    mismatch(r, c);
    return -1;
}

static bool take_init(fxi_reader *r, fx_init_fn *out)
{
    static const struct {
        const char *name;
        fx_init_fn init;
    } inits[] = {
        {"glorot_uniform", fx_glorot_uniform},
        {"glorot_normal", fx_glorot_normal},
        {"kaiming_uniform", fx_kaiming_uniform},
        {"kaiming_normal", fx_kaiming_normal},
        {"lecun_normal", fx_lecun_normal},
        {"truncated_normal", fx_truncated_normal},
        {"zeros32", fx_zeros_init},
        {"ones32", fx_ones_init},
    };
    fxi_span name;
    char list[200] = "", buf[FXI_EXCERPT_BYTES];
    const bool named = fxi_reader_name(r, &name);
    for (int i = 0; i < COUNT(inits); i++) {
        fxi_add_word(list, sizeof list, inits[i].name);
        if (named && fxi_span_is(name, inits[i].name)) {
            *out = inits[i].init;
            return true;
        }
    }
    if (named)
        r->at = name.from;
    return fxi_reader_fail(r, r->at, "there is no initialiser %s; there are %s",
                           fxi_reader_got(r, r->at, buf), list);
}

static bool take_value(fxi_reader *r, call *c)
{
    static const char *const words[] = {"nothing", "true", "false"};
    void *at = target(c);
    int word;
    switch (c->current->kind) {
    case PAIR:
        return take_pair(r, c, at);
    case KERNEL:
    case NUMBERS:
        return take_numbers(r, c, at);
    case SIZES:
        return take_sizes(r, c, at);
    case SIZE:
    case INTEGER:
        return take_integer(r, c, at);
    case REAL:
        return take_real(r, c, at);
    case REALS:
        return expect(r, c, '(') && take_real(r, c, at) && expect(r, c, ',') &&
               take_real(r, c, (double *)at + 1) && expect(r, c, ')');
    case PADDING:
        return take_padding(r, c, at);
    case AXES:
        return take_axes(r, c, at);
    case FUNCTION:
        return take_function(r, c, at);
    case NEGATED:
        word = take_word(r, c, words + 1, 2);
        *(bool *)at = word == 1;
        return word >= 0;
    case ACTIVE:
        word = take_word(r, c, words, 3);
        *(fx_active *)at = (fx_active)(word < 0 ? 0 : word); /* nothing is FX_ACTIVE_AUTO */
        return word >= 0;
    case INIT:
        return take_init(r, at);
    }
    return false;
}

/* How many parameters it asks for, at most, is the product of its sizes. */
static bool count_sizes(fxi_reader *r, call *c)
{
    const kind k = c->current->kind;
    const int64_t *v = target(c);
    int64_t n = 1;
    if (k == PAIR)
        n = 2;
    else if (k == KERNEL || k == SIZES) {
        n = ((const fx_dims *)target(c))->n;
        v = ((const fx_dims *)target(c))->v;
    } else if (k != SIZE)
        return true;
    for (int64_t i = 0; i < n; i++)
        if (!fxi_mul_i64(c->volume, v[i], &c->volume) || c->volume > MAX_PARAMETERS)
            return fxi_reader_fail(r, c->start,
                                   "%s of that size would have more than %lld parameters",
                                   c->form->name, (long long)MAX_PARAMETERS);
    return true;
}

static bool unknown_keyword(fxi_reader *r, const call *c, fxi_span name)
{
    char list[200] = "", word[FXI_NAME_SHOWN];
    for (int i = 0; i < c->form->count; i++) {
        const char *names = c->form->parameters[i].names;
        if (!names)
            continue;
        snprintf(word, sizeof word, "%.*s", first_width(names), names);
        fxi_add_word(list, sizeof list, word);
    }
    return fxi_reader_fail(r, name.from, "%s has no option %.*s; it has %s", c->form->name,
                           fxi_span_width(name), name.from, list);
}

/* The parameter of a keyword, or the next one that has a place; −1 when there is none. */
static int parameter_of(const call *c, fxi_span name)
{
    for (int i = 0; i < c->form->count; i++) {
        const parameter *p = &c->form->parameters[i];
        if (c->keyword ? fxi_span_one_of(name, p->names) : p->place && !(c->given >> i & 1))
            return i;
    }
    return -1;
}

/* Which parameter comes next; its value begins there. */
static bool find_parameter(fxi_reader *r, call *c)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_span name;
    c->keyword = fxi_reader_keyword(r, &name);
    fxi_reader_peek(r);
    c->start = r->at;
    const int i = parameter_of(c, name);
    if (i < 0 && c->keyword)
        return unknown_keyword(r, c, name);
    if (i < 0)
        return fxi_reader_fail(r, r->at, "%s takes no argument here, got %s", c->form->name,
                               fxi_reader_got(r, r->at, buf));
    c->current = &c->form->parameters[i];
    if (c->given >> i & 1)
        return fxi_reader_fail(r, name.from, "%.*s was given twice", first_width(c->current->names),
                               c->current->names);
    c->given |= 1u << i;
    return true;
}

/* All that must be there was given. */
static bool complete(fxi_reader *r, const call *c)
{
    char buf[FXI_EXCERPT_BYTES];
    for (int i = 0; i < c->form->count; i++) {
        const parameter *p = &c->form->parameters[i];
        if (!p->required || c->given >> i & 1)
            continue;
        r->at--; /* the parenthesis came too early */
        return fxi_reader_fail(r, r->at, "%s takes %s, got %s", c->form->name, expected(p, false),
                               fxi_reader_got(r, r->at, buf));
    }
    return true;
}

void *fxi_form_call(fxi_reader *r, const fxi_form *form, const char *start)
{
    call c = {.form = form, .volume = 1};
    c.arguments.fxi_size = form->size;
    if (!fxi_reader_take(r, '('))
        return NULL;
    for (bool first = true; fxi_reader_next_item(r, first, ')'); first = false)
        if (!find_parameter(r, &c) || !take_value(r, &c) || !count_sizes(r, &c))
            return NULL;
    if (r->status != FX_OK || !complete(r, &c))
        return NULL;
    r->parameters += c.volume;
    if (r->parameters > MAX_PARAMETERS) {
        fxi_reader_fail(r, start, "the model would have more than %lld parameters",
                        (long long)MAX_PARAMETERS);
        return NULL;
    }
    void *made = form->make(&c.arguments);
    return !fx_is_error(made) || fxi_reader_passed_on(r, start) ? made : NULL;
}

static const fxi_form *form_named(fxi_reader *r, fxi_span name, const fxi_form *forms, int n,
                                  const char *what)
{
    char known[200] = "";
    for (int i = 0; i < n; i++) {
        if (fxi_span_is(name, forms[i].name))
            return &forms[i];
        fxi_add_word(known, sizeof known, forms[i].name);
    }
    fxi_reader_fail(r, name.from, "there is no %s %.*s; there are %s", what, fxi_span_width(name),
                    name.from, known);
    return NULL;
}

const fxi_form *fxi_form_layer(fxi_reader *r, fxi_span name)
{
    return form_named(r, name, LAYERS, COUNT(LAYERS), "layer");
}

const fxi_form *fxi_form_rule(fxi_reader *r, fxi_span name)
{
    return form_named(r, name, RULES, COUNT(RULES), "optimiser");
}
