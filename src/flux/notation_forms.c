/* notation_forms.c: parameters of layers, rules and functions in the notation: see
 * notation_forms.h.
 *
 * A form is a name, a table of parameters and a constructor. Layers define their own tables
 * (cflux/layer.h); those of rules are in this file. A parsed value is written into a copy of the
 * constructor's option struct, which begins with the defaults.
 *
 * Integers are checked against the range of their parameter. The product of sizes is limited before
 * anything is made, so that a short text cannot allocate a huge layer.
 */
#include "notation_forms.h"
#include "notation_closure.h"

#include "memory.h"

#include <math.h>
#include <string.h>

static const int64_t MAX_SIZE = INT32_MAX, MAX_PARAMETERS = (int64_t)1 << 40;
#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* ---- functions ------------------------------------------------------------------------------- */

typedef struct named_function {
    const char *name; /* alternative to the printed name */
    fx_function *function;
} named_function;
enum { OTHER_NAMES = 3 };
#define ROW(NAME, name) {#name, &fxi_function_##name},
static const named_function FUNCTIONS[] = {FXI_FUNCTIONS(ROW)
                                           /* OTHER_NAMES: Flux's faster versions of two of them,
                                            * and an older name */
                                           {"tanh_fast", &fxi_function_tanh},
                                           {"sigmoid_fast", &fxi_function_sigmoid},
                                           {"thresholdrelu", &fxi_function_trelu}};
#undef ROW
#define ROW(NAME, name) &fxi_function_##name,
static fx_function *const CONNECTIONS[] = {FXI_CONNECTIONS(ROW)};
#undef ROW

fx_function *fxi_form_operator(fxi_reader *r)
{
    fxi_reader_peek(r);
    for (int i = 0; i < COUNT(CONNECTIONS); i++) {
        const char *name = CONNECTIONS[i]->name;
        const size_t n = strlen(name);
        if (!strchr("+-*.", *name) || strncmp(r->at, name, n) != 0)
            continue;
        r->at += n;
        return CONNECTIONS[i];
    }
    return NULL;
}

/* cat(dims=3) */
static fx_function *take_cat(fxi_reader *r, fxi_span name)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_span keyword;
    fxi_number axis = {.integer = false};
    if (fxi_reader_take(r, '(')) {
        fxi_reader_take(r, ';');
        if (fxi_reader_keyword(r, &keyword) && fxi_span_is(keyword, "dims") &&
            fxi_reader_number(r, &axis) && axis.integer && axis.whole >= 1 &&
            axis.whole <= FX_MAX_DIMS && fxi_reader_take(r, ')'))
            return fx_cat_function((int)axis.whole - 1);
    }
    fxi_reader_fail(r, name.from, "cat takes an axis from 1 to %d, as in cat(dims=3), got %s",
                    FX_MAX_DIMS, fxi_reader_got(r, name.from, buf));
    return NULL;
}

static fx_function *connection_named(fxi_span name)
{
    for (int i = 0; i < COUNT(CONNECTIONS); i++)
        if (fxi_span_is(name, CONNECTIONS[i]->name))
            return CONNECTIONS[i];
    return NULL;
}

fx_function *fxi_form_function(fxi_reader *r, fxi_span name)
{
    char list[400] = "";
    if (fxi_span_is(name, "cat"))
        return take_cat(r, name);
    fx_function *connection = connection_named(name);
    if (connection)
        return connection;
    for (int i = 0; i < COUNT(FUNCTIONS); i++) {
        if (fxi_span_is(name, FUNCTIONS[i].name) || fxi_span_is(name, FUNCTIONS[i].function->name))
            return FUNCTIONS[i].function;
        if (i < COUNT(FUNCTIONS) - OTHER_NAMES)
            fxi_add_word(list, sizeof list, FUNCTIONS[i].name);
    }
    fxi_reader_fail(r, name.from, "unknown function %.*s; known are %s", fxi_span_width(name),
                    name.from, list);
    return NULL;
}

/* ---- parameters of rules --------------------------------------------------------------------- */

#define RULE(T, f, k, ...)                                                                         \
    {                                                                                              \
        .name = #f, .option = offsetof(T, f), .kind = FX_OPTION_##k, .names = __VA_ARGS__          \
    }
#define ETA(T)      RULE(T, eta, REAL, "eta η", .positional = "a learning rate")
#define BETA(T)     RULE(T, beta1, REALS, "beta β", .positional = "beta such as (0.9, 0.999)")
#define EPSILON(T)  RULE(T, epsilon, REAL, "epsilon ϵ eps", .positional = "epsilon")
#define RHO(T)      RULE(T, rho, REAL, "rho ρ", .positional = "rho")
#define LAMBDA(T)   RULE(T, lambda, REAL, "lambda λ decay", .positional = "lambda")
#define ADAM_ROW(T) ETA(T), BETA(T), EPSILON(T)
/* X(name, "Name", members of the option struct, rows of the parameters) */
#define RULE_FORMS(X)                                                                              \
    X(descent, "Descent", FXI_DESCENT_ARGS, ETA(fx_descent_args))                                  \
    X(momentum, "Momentum", FXI_MOMENTUM_ARGS, ETA(fx_momentum_args), RHO(fx_momentum_args))       \
    X(nesterov, "Nesterov", FXI_NESTEROV_ARGS, ETA(fx_nesterov_args), RHO(fx_nesterov_args))       \
    X(rprop, "Rprop", FXI_RPROP_ARGS, ETA(fx_rprop_args),                                          \
      RULE(fx_rprop_args, ell1, REALS, "ell ℓ", .positional = "ell such as (0.5, 1.2)"),           \
      RULE(fx_rprop_args, gamma1, REALS, "gamma Γ", .positional = "gamma such as (1e-6, 50)"))     \
    X(rmsprop, "RMSProp", FXI_RMSPROP_ARGS, ETA(fx_rmsprop_args), RHO(fx_rmsprop_args),            \
      EPSILON(fx_rmsprop_args), RULE(fx_rmsprop_args, centred, FLAG, "centred centered"))          \
    X(adam, "Adam", FXI_ADAM_ARGS, ADAM_ROW(fx_adam_args))                                         \
    X(adamw, "AdamW", FXI_ADAMW_ARGS, ETA(fx_adamw_args), BETA(fx_adamw_args),                     \
      LAMBDA(fx_adamw_args), EPSILON(fx_adamw_args), RULE(fx_adamw_args, couple, FLAG, "couple"))  \
    X(adamax, "AdaMax", FXI_ADAM_ARGS, ADAM_ROW(fx_adamax_args))                                   \
    X(nadam, "NAdam", FXI_ADAM_ARGS, ADAM_ROW(fx_nadam_args))                                      \
    X(radam, "RAdam", FXI_ADAM_ARGS, ADAM_ROW(fx_radam_args))                                      \
    X(amsgrad, "AMSGrad", FXI_ADAM_ARGS, ADAM_ROW(fx_amsgrad_args))                                \
    X(oadam, "OAdam", FXI_OADAM_ARGS, ADAM_ROW(fx_oadam_args))                                     \
    X(adabelief, "AdaBelief", FXI_ADABELIEF_ARGS, ADAM_ROW(fx_adabelief_args))                     \
    X(adagrad, "AdaGrad", FXI_ADAGRAD_ARGS, ETA(fx_adagrad_args), EPSILON(fx_adagrad_args))        \
    X(adadelta, "AdaDelta", FXI_ADADELTA_ARGS, RHO(fx_adadelta_args), EPSILON(fx_adadelta_args))   \
    X(lion, "Lion", FXI_LION_ARGS, ETA(fx_lion_args), BETA(fx_lion_args))                          \
    X(weight_decay, "WeightDecay", FXI_WEIGHT_DECAY_ARGS, LAMBDA(fx_weight_decay_args))            \
    X(sign_decay, "SignDecay", FXI_SIGN_DECAY_ARGS, LAMBDA(fx_sign_decay_args))                    \
    X(clip_grad, "ClipGrad", FXI_CLIP_GRAD_ARGS,                                                   \
      RULE(fx_clip_grad_args, delta, REAL, "delta δ", .positional = "delta"))                      \
    X(clip_norm, "ClipNorm", FXI_CLIP_NORM_ARGS,                                                   \
      RULE(fx_clip_norm_args, omega, REAL, "omega ω", .positional = "omega"),                      \
      RULE(fx_clip_norm_args, p, REAL, "p", .positional = "p"),                                    \
      RULE(fx_clip_norm_args, throws, FLAG, "throw throws"))                                       \
    X(accum_grad, "AccumGrad", FXI_ACCUM_GRAD_ARGS,                                                \
      RULE(fx_accum_grad_args, n, INTEGER, "n", .positional = "a number of gradients", .least = 1, \
           .required = true))

#define PARTS(name, text, MEMBERS, ...)                                                            \
    static const fx_layer_row name##_rows[] = {__VA_ARGS__};                                       \
    static const fx_##name##_args name##_defaults = {.fxi_size = sizeof(fx_##name##_args),         \
                                                     MEMBERS(FXI_DEFAULT)};                        \
    static void *make_##name(const void *arguments)                                                \
    {                                                                                              \
        return fxi_##name((const fx_##name##_args *)arguments);                                    \
    }
RULE_FORMS(PARTS)

#define FORM(id, text, MEMBERS, ...)                                                               \
    {.name = (text),                                                                               \
     .rows = id##_rows,                                                                            \
     .row_size = sizeof(fx_layer_row),                                                             \
     .count = COUNT(id##_rows),                                                                    \
     .defaults = &id##_defaults,                                                                   \
     .make = make_##id},
static const fxi_form RULES[] = {RULE_FORMS(FORM)};

/* The option struct of a form while its arguments are parsed. */
typedef struct call {
    const fxi_form *form;
    const char *start;           /* start of the argument being parsed */
    const fx_layer_row *current; /* its parameter */
    bool keyword;
    uint32_t given; /* parameters given so far, one bit each */
    int64_t volume; /* product of the sizes */
    void *options;
} call;

/* Row i of the form; NULL if the notation has no such parameter. */
static const fx_layer_row *parameter(const fxi_form *form, int i)
{
    const char *at = (const char *)form->rows + (size_t)i * form->row_size;
    const fx_layer_row *row = (const fx_layer_row *)(const void *)at;
    return row->option && (row->names || row->positional) ? row : NULL;
}

static void *target(call *c)
{
    return (char *)c->options + c->current->option;
}

static const char *expected(const fx_layer_row *p, bool keyword)
{
    static const char *const texts[] = {
        [FX_OPTION_PAIR] = "in => out",
        [FX_OPTION_TWO_PAIR] = "(in1, in2) => out",
        [FX_OPTION_KERNEL] = "sizes such as (5, 5)",
        [FX_OPTION_SIZES] = "sizes",
        [FX_OPTION_SIZE] = "a number",
        [FX_OPTION_INTEGER] = "a number",
        [FX_OPTION_INDEX] = "a number or nothing",
        [FX_OPTION_REAL] = "a number",
        [FX_OPTION_REAL32] = "a number",
        [FX_OPTION_REALS] = "two numbers such as (0.9, 0.999)",
        [FX_OPTION_NUMBERS] = "a number or several such as (2, 2)",
        [FX_OPTION_PADDING] = "a number, several such as (1, 1), or SamePad()",
        [FX_OPTION_AXES] = "an axis, several such as (1, 2), or :",
        [FX_OPTION_FUNCTION] = "a function",
        [FX_OPTION_BIAS] = "true or false",
        [FX_OPTION_FLAG] = "true or false",
        [FX_OPTION_ACTIVE] = "true, false or nothing",
        [FX_OPTION_INIT] = "an initialiser",
        [FX_OPTION_TUPLE] = "a number or several such as (2, 2)",
        [FX_OPTION_FACTORS] = "a number or several such as (2, 2)",
        [FX_OPTION_WORD] = "a symbol",
        [FX_OPTION_LAYER] = "a layer",
        [FX_OPTION_CONNECTION] = "a connection",
        [FX_OPTION_SYMBOL] = "the name of a field such as :weight",
    };
    return p->positional && !keyword ? p->positional : texts[p->kind];
}

/* The length of the first name, for %.*s. */
static int first_width(const char *names)
{
    return (int)strcspn(names, " ");
}

/* Records "Dense takes in => out, got 3 => )" or "Conv takes true or false for bias, got 7". */
static bool mismatch(fxi_reader *r, const call *c)
{
    char buf[FXI_EXCERPT_BYTES];
    fxi_reader_peek(r);
    const fx_layer_row *p = c->current;
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

/* The size that replaces an open size `_`: the first size of the layer's input for Dense and
 * similar layers, otherwise its number of channels. */
static bool open_size(fxi_reader *r, const call *c, int64_t *out)
{
    const fx_option_kind k = c->current->kind;
    const fx_array *x = r->input;
    bool first = k == FX_OPTION_PAIR || k == FX_OPTION_TWO_PAIR || k == FX_OPTION_SIZES;
    for (int i = 0; i < c->form->count; i++) {
        const fx_layer_row *row = parameter(c->form, i);
        first = first && !(row && row->kind == FX_OPTION_KERNEL);
    }
    if (!x || !fx_is_array(x) || fx_is_error(x))
        return fxi_reader_fail(r, r->at,
                               "the size _ of %s is unknown here; fx_autosize and "
                               "@autosize (sizes) state the sizes of the model's input",
                               c->form->name);
    const int ndims = fx_ndims(x);
    *out = fx_size(x, first || ndims < 2 ? 0 : ndims - 2);
    r->at++;
    return true;
}

static bool is_open(fxi_reader *r, const call *c)
{
    const fx_option_kind k = c->current->kind;
    fxi_span name;
    const char *at = r->at;
    if (fxi_reader_peek(r) != '_' || (k != FX_OPTION_PAIR && k != FX_OPTION_TWO_PAIR &&
                                      k != FX_OPTION_SIZES && k != FX_OPTION_SIZE))
        return false;
    const char *start = r->at;
    const bool open = fxi_reader_name(r, &name) && name.to - name.from == 1;
    r->at = open ? start : at;
    return open;
}

static bool take_integer(fxi_reader *r, const call *c, int64_t *out)
{
    fxi_number n;
    if (is_open(r, c))
        return open_size(r, c, out);
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

/* An index from 1, stored from 0, or `nothing`, stored as −1. */
static bool take_index(fxi_reader *r, const call *c, int64_t *out)
{
    fxi_span name;
    const char *at = r->at;
    *out = -1;
    if (fxi_reader_name(r, &name)) {
        if (fxi_span_is(name, "nothing"))
            return true;
        r->at = at;
        return mismatch(r, c);
    }
    if (!take_integer(r, c, out))
        return false;
    --*out;
    return true;
}

static bool take_real(fxi_reader *r, const call *c, double *out)
{
    fxi_number n;
    fxi_span name;
    if (fxi_reader_number(r, &n)) {
        *out = n.value;
        return true;
    }
    if (r->status == FX_OK && fxi_reader_name(r, &name)) {
        *out = (double)INFINITY;
        if (fxi_span_is(name, "Inf"))
            return true;
        r->at = name.from;
    }
    return mismatch(r, c);
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

/* 4, 5: takes numbers until another argument follows. */
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
        if (out->n >= FX_MAX_DIMS)
            return fxi_reader_fail(r, r->at, "%s takes at most %d sizes", c->form->name,
                                   FX_MAX_DIMS);
        if (!take_integer(r, c, &out->v[out->n++]))
            return false;
    }
}

static bool take_arrow(fxi_reader *r)
{
    if (!fxi_reader_take(r, '='))
        return false;
    const bool arrow = *r->at == '>';
    r->at += arrow ? 1 : 0;
    return arrow;
}

static bool take_pair(fxi_reader *r, call *c, int64_t *out)
{
    if (!take_integer(r, c, &out[0]))
        return false;
    if (fxi_reader_peek(r) == ',')
        r->at++;
    else if (!take_arrow(r))
        return mismatch(r, c);
    return take_integer(r, c, &out[1]);
}

/* (in1, in2) => out, or in => out */
static bool take_two_pair(fxi_reader *r, call *c, fx_dims *in)
{
    int64_t *out = (int64_t *)(void *)(in + 1);
    if (!take_numbers(r, c, in))
        return false;
    if (in->n > 2 || !take_arrow(r))
        return mismatch(r, c);
    return take_integer(r, c, out);
}

/* :weight */
static bool take_field_name(fxi_reader *r, call *c, const char **out)
{
    fxi_span name;
    if (!fxi_reader_take(r, ':') || !fxi_reader_name(r, &name) ||
        name.to - name.from >= (ptrdiff_t)sizeof r->symbol)
        return mismatch(r, c);
    snprintf(r->symbol, sizeof r->symbol, "%.*s", (int)(name.to - name.from), name.from);
    *out = r->symbol;
    return true;
}

/* 64, 64 => 32 => 16, (8, 8, 4) => (16, 12) => 8 */
static bool take_attention(fxi_reader *r, call *c, fx_dims *out)
{
    fx_dims in, mid;
    int64_t last;
    if (!take_numbers(r, c, &in))
        return false;
    if (!take_arrow(r)) {
        if (in.n != 1)
            return mismatch(r, c);
        *out = in;
        return true;
    }
    if (!take_numbers(r, c, &mid) || (!take_arrow(r) && !mismatch(r, c)) ||
        !take_integer(r, c, &last))
        return false;
    if ((in.n != 1 && in.n != 3) || mid.n > 2)
        return mismatch(r, c);
    *out = (fx_dims){
        .n = 6, .v = {in.v[0], in.v[in.n == 3], in.v[in.n - 1], mid.v[0], mid.v[mid.n - 1], last}};
    return true;
}

/* A layer gets the input of the layer around it; a connection gets other inputs. */
static bool take_callable(fxi_reader *r, const call *c, void **out)
{
    void *input = r->input;
    if (c->current->kind == FX_OPTION_CONNECTION)
        r->input = NULL;
    *out = fxi_notation_object(r);
    r->input = input;
    return *out != NULL;
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

static bool take_axes(fxi_reader *r, call *c, fx_axes *out)
{
    fx_dims axes;
    if (fxi_reader_take(r, ':'))
        return true;
    if (!take_numbers(r, c, &axes))
        return false;
    for (int64_t i = 0; i < axes.n; i++)
        axes.v[i]--;
    *out = fx_axes_of((int)axes.n, axes.v);
    return true;
}

/* relu, or x -> x^2 */
static bool take_function(fxi_reader *r, call *c, fx_function **out)
{
    fxi_span name;
    if (!fxi_reader_name(r, &name))
        return mismatch(r, c);
    *out = fxi_reader_arrow(r) ? fxi_notation_activation(r, name) : fxi_form_function(r, name);
    return *out != NULL;
}

/* The position of the name among the words; −1 (recorded) if it is not one of them. */
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

/* :nearest, one of the words of the parameter. */
static bool take_symbol(fxi_reader *r, call *c, int *out)
{
    fxi_span name;
    const char *at = c->current->words;
    if (fxi_reader_take(r, ':') && fxi_reader_name(r, &name)) {
        for (*out = 0; *at; ++*out) {
            const int n = first_width(at);
            if (fxi_span_width(name) == n && strncmp(name.from, at, (size_t)n) == 0)
                return true;
            at += n + (at[n] == ' ');
        }
        r->at = name.from;
    }
    return mismatch(r, c);
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
        {"rand32", fx_rand_init},
        {"randn32", fx_randn_init},
        {"orthogonal", fx_orthogonal},
        {"identity_init", fx_identity_init},
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
    return fxi_reader_fail(r, r->at, "unknown initialiser %s; known are %s",
                           fxi_reader_got(r, r->at, buf), list);
}

static bool take_value(fxi_reader *r, call *c)
{
    static const char *const words[] = {"false", "true", "nothing"}; /* indexed by fx_active */
    void *at = target(c);
    int word;
    switch (c->current->kind) {
    case FX_OPTION_PAIR:
        return take_pair(r, c, at);
    case FX_OPTION_TWO_PAIR:
        return take_two_pair(r, c, at);
    case FX_OPTION_LAYER:
    case FX_OPTION_CONNECTION:
        return take_callable(r, c, at);
    case FX_OPTION_ATTENTION:
        return take_attention(r, c, at);
    case FX_OPTION_KERNEL:
    case FX_OPTION_NUMBERS:
    case FX_OPTION_TUPLE:
    case FX_OPTION_FACTORS:
        return take_numbers(r, c, at);
    case FX_OPTION_SIZES:
        return take_sizes(r, c, at);
    case FX_OPTION_SIZE:
    case FX_OPTION_INTEGER:
        return take_integer(r, c, at);
    case FX_OPTION_SYMBOL:
        return take_field_name(r, c, at);
    case FX_OPTION_INDEX:
        return take_index(r, c, at);
    case FX_OPTION_REAL:
    case FX_OPTION_REAL32:
        return take_real(r, c, at);
    case FX_OPTION_REALS:
        return expect(r, c, '(') && take_real(r, c, at) && expect(r, c, ',') &&
               take_real(r, c, (double *)at + 1) && expect(r, c, ')');
    case FX_OPTION_PADDING:
        return take_padding(r, c, at);
    case FX_OPTION_AXES:
        return take_axes(r, c, at);
    case FX_OPTION_FUNCTION:
        return take_function(r, c, at);
    case FX_OPTION_BIAS:
        word = take_word(r, c, words, 2);
        *(int *)at = word;
        return word >= 0;
    case FX_OPTION_FLAG:
        word = take_word(r, c, words, 2);
        *(bool *)at = word == 1;
        return word >= 0;
    case FX_OPTION_ACTIVE:
        word = take_word(r, c, words, 3);
        *(fx_active *)at = word < 0 ? FX_ACTIVE_AUTO : (fx_active)word;
        return word >= 0;
    case FX_OPTION_INIT:
        return take_init(r, at);
    case FX_OPTION_WORD:
        return take_symbol(r, c, at);
    default: /* members, and rows for files only */
        return mismatch(r, c);
    }
}

static bool count_product(fxi_reader *r, call *c, int64_t n, const int64_t *sizes)
{
    for (int64_t i = 0; i < n; i++)
        if (!fxi_mul_i64(c->volume, sizes[i], &c->volume) || c->volume > MAX_PARAMETERS)
            return fxi_reader_fail(r, c->start,
                                   "%s of that size would have more than %lld parameters",
                                   c->form->name, (long long)MAX_PARAMETERS);
    return true;
}

/* Limits the product of the sizes, which bounds the number of parameters. */
static bool count_sizes(fxi_reader *r, call *c)
{
    const fx_option_kind k = c->current->kind;
    const int64_t *v = target(c);
    int64_t n = 1, largest[2] = {0, 0};
    if (k == FX_OPTION_ATTENTION) {
        const fx_dims *d = target(c);
        for (int64_t i = 0; i < d->n; i++)
            largest[0] = largest[1] = d->v[i] > largest[0] ? d->v[i] : largest[0];
        v = largest;
        n = 2;
    } else if (k == FX_OPTION_PAIR)
        n = 2;
    else if (k == FX_OPTION_TWO_PAIR) {
        const fx_dims *in = target(c);
        const int64_t sizes[] = {in->v[0], in->v[in->n - 1],
                                 *(const int64_t *)(const void *)(in + 1)};
        return count_product(r, c, 3, sizes);
    } else if (k == FX_OPTION_KERNEL || k == FX_OPTION_SIZES) {
        n = ((const fx_dims *)target(c))->n;
        v = ((const fx_dims *)target(c))->v;
    } else if (k != FX_OPTION_SIZE)
        return true;
    return count_product(r, c, n, v);
}

static bool unknown_keyword(fxi_reader *r, const call *c, fxi_span name)
{
    char list[200] = "", word[FXI_NAME_SHOWN];
    for (int i = 0; i < c->form->count; i++) {
        const fx_layer_row *p = parameter(c->form, i);
        if (!p || !p->names)
            continue;
        snprintf(word, sizeof word, "%.*s", first_width(p->names), p->names);
        fxi_add_word(list, sizeof list, word);
    }
    return fxi_reader_fail(r, name.from, "%s has no option %.*s; it has %s", c->form->name,
                           fxi_span_width(name), name.from, list);
}

/* The parameter of a keyword, or the next positional one; −1 if there is none. A positional symbol
 * is recognised by its colon: Upsample(2, :nearest) is Upsample(:nearest, scale = 2). */
static int parameter_of(const call *c, fxi_span name)
{
    for (int i = 0; i < c->form->count; i++) {
        const fx_layer_row *p = parameter(c->form, i);
        if (p && (c->keyword ? fxi_span_one_of(name, p->names)
                             : p->positional && !(c->given >> i & 1) &&
                                   (p->kind != FX_OPTION_WORD || *c->start == ':')))
            return i;
    }
    return -1;
}

/* Finds the parameter of the next argument and moves to the beginning of its value. */
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
    c->current = parameter(c->form, i);
    if (c->given >> i & 1)
        return fxi_reader_fail(r, name.from, "%.*s is given twice", first_width(c->current->names),
                               c->current->names);
    c->given |= 1u << i;
    return true;
}

/* Checks that all required parameters were given. */
static bool complete(fxi_reader *r, const call *c)
{
    char buf[FXI_EXCERPT_BYTES];
    for (int i = 0; i < c->form->count; i++) {
        const fx_layer_row *p = parameter(c->form, i);
        if (!p || !p->required || c->given >> i & 1)
            continue;
        r->at--; /* the unexpected token is the closing parenthesis */
        return fxi_reader_fail(r, r->at, "%s takes %s, got %s", c->form->name, expected(p, false),
                               fxi_reader_got(r, r->at, buf));
    }
    return true;
}

/* Reads the arguments in parentheses into the option struct. */
static bool take_arguments(fxi_reader *r, call *c)
{
    if (!fxi_reader_take(r, '('))
        return false;
    for (bool first = true; fxi_reader_next_item(r, first, ')'); first = false)
        if (!find_parameter(r, c) || !take_value(r, c) || !count_sizes(r, c))
            return false;
    return r->status == FX_OK && complete(r, c);
}

static void *made(fxi_reader *r, const call *c, const char *start)
{
    r->parameters += c->volume;
    if (r->parameters > MAX_PARAMETERS) {
        fxi_reader_fail(r, start, "the model would have more than %lld parameters",
                        (long long)MAX_PARAMETERS);
        return NULL;
    }
    const fxi_form *form = c->form;
    void *object = form->type ? fx_layer_make(form->type, c->options) : form->make(c->options);
    return !fx_is_error(object) || fxi_reader_passed_on(r, start) ? object : NULL;
}

void *fxi_form_call(fxi_reader *r, const fxi_form *form, const char *start)
{
    const size_t size = *(const size_t *)form->defaults;
    call c = {.form = form, .volume = 1, .options = fxi_malloc(size)};
    void *object = NULL;
    if (!c.options)
        fxi_reader_no_memory(r, start);
    else {
        memcpy(c.options, form->defaults, size);
        if (take_arguments(r, &c))
            object = made(r, &c, start);
    }
    fxi_free(c.options);
    return object;
}

static fx_layer_flow flow_of(const fx_layer *layer)
{
    return layer->fxi_size > offsetof(fx_layer, flow) ? layer->flow : FX_LAYER_FLOW_SHARED;
}

bool fxi_form_layer(fxi_reader *r, fxi_span name, fxi_form *out)
{
    char known[360] = "";
    const fx_type *type;
    for (int64_t i = 0; (type = fx_layer_type(i)); i++) {
        const fx_layer *layer = fx_layer_of(type);
        *out = (fxi_form){.name = type->name,
                          .rows = layer->rows,
                          .row_size = layer->row_size,
                          .count = layer->nrows,
                          .defaults = layer->defaults,
                          .build_list = layer->build_list,
                          .type = type,
                          .flow = flow_of(layer)};
        if (fxi_span_is(name, type->name))
            return true;
        fxi_add_word(known, sizeof known, type->name);
    }
    return fxi_reader_fail(r, name.from, "unknown layer %.*s; known are %s", fxi_span_width(name),
                           name.from, known);
}

const fxi_form *fxi_form_rule(fxi_reader *r, fxi_span name)
{
    char known[400] = "";
    for (int i = 0; i < COUNT(RULES); i++) {
        if (fxi_span_is(name, RULES[i].name))
            return &RULES[i];
        fxi_add_word(known, sizeof known, RULES[i].name);
    }
    fxi_add_word(known, sizeof known, "OptimiserChain");
    fxi_add_word(known, sizeof known, "MixedPrecision");
    fxi_reader_fail(r, name.from, "unknown optimiser %.*s; known are %s", fxi_span_width(name),
                    name.from, known);
    return NULL;
}
