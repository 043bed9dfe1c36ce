/* rules.c: the rules of Optimisers.jl in one table: making, checking, printing, adjusting.
 *
 * A row of the table holds the rule's type (name, fields), its state, its formula
 * (rule_formulas.c) and its defaults. Everything in this file is a loop over rows and fields, so a
 * new rule needs a formula, a row and an option struct. OptimiserChain and MixedPrecision contain
 * rules; functions that walk a rule descend into `rules`.
 */
#include "rules.h"

#include "context.h"
#include "error.h"
#include "julia_number.h"
#include "object_types.h"
#include "option_struct.h"

#include <cflux/ops.h>

#include <math.h>
#include <string.h>

/* ---- the table -------------------------------------------------------------------------- */

#define FIELD(f, k)                                                                                \
    {                                                                                              \
        .name = #f, .offset = offsetof(fx_rule, f), .kind = FX_FIELD_##k                           \
    }
#define NUMBER(f) FIELD(f, NUMBER)
#define BETA      NUMBER(beta1), NUMBER(beta2)
/* The fields are in Optimisers.jl's order. */
static const fx_field descent_fields[] = {NUMBER(eta)};
static const fx_field momentum_fields[] = {NUMBER(eta), NUMBER(rho)};
static const fx_field rprop_fields[] = {NUMBER(eta), NUMBER(ell1), NUMBER(ell2), NUMBER(gamma1),
                                        NUMBER(gamma2)};
static const fx_field rmsprop_fields[] = {NUMBER(eta), NUMBER(rho), NUMBER(epsilon),
                                          FIELD(centred, FLAG)};
static const fx_field adam_fields[] = {NUMBER(eta), BETA, NUMBER(epsilon)};
static const fx_field adamw_fields[] = {NUMBER(eta), BETA, NUMBER(lambda), NUMBER(epsilon),
                                        FIELD(couple, FLAG)};
static const fx_field adagrad_fields[] = {NUMBER(eta), NUMBER(epsilon)};
static const fx_field adadelta_fields[] = {NUMBER(rho), NUMBER(epsilon)};
static const fx_field lion_fields[] = {NUMBER(eta), BETA};
static const fx_field decay_fields[] = {NUMBER(lambda)};
static const fx_field clip_grad_fields[] = {NUMBER(delta)};
static const fx_field clip_norm_fields[] = {NUMBER(omega), NUMBER(p), FIELD(throws, FLAG)};
static const fx_field accum_grad_fields[] = {FIELD(n, INTEGER)};
static const fx_field chain_fields[] = {FIELD(rules, LIST)};
/* The last two belong to .growth; a checkpoint with a fixed factor lacks them. */
static const fx_field mixed_fields[] = {FIELD(rules, LIST), NUMBER(scale), FIELD(growth, INTEGER),
                                        FIELD(good, INTEGER)};

#define FXI_NO_ARGS(F) .base = {0},
/* RULE(NAME, function, "Name", fields, state, members of the option struct) */
#define RULES_OF_OPTIONS(RULE)                                                                     \
    RULE(DESCENT, descent, "Descent", descent_fields, "", FXI_DESCENT_ARGS)                        \
    RULE(MOMENTUM, momentum, "Momentum", momentum_fields, "z", FXI_MOMENTUM_ARGS)                  \
    RULE(NESTEROV, nesterov, "Nesterov", momentum_fields, "z", FXI_NESTEROV_ARGS)                  \
    RULE(RPROP, rprop, "Rprop", rprop_fields, "zl", FXI_RPROP_ARGS)                                \
    RULE(RMSPROP, rmsprop, "RMSProp", rmsprop_fields, "zc", FXI_RMSPROP_ARGS)                      \
    RULE(ADAM, adam, "Adam", adam_fields, "zzb", FXI_ADAM_ARGS)                                    \
    RULE(ADAMW, adamw, "AdamW", adamw_fields, "zzb", FXI_ADAMW_ARGS)                               \
    RULE(ADAMAX, adamax, "AdaMax", adam_fields, "zzb", FXI_ADAM_ARGS)                              \
    RULE(NADAM, nadam, "NAdam", adam_fields, "zzb", FXI_ADAM_ARGS)                                 \
    RULE(RADAM, radam, "RAdam", adam_fields, "zzbt", FXI_ADAM_ARGS)                                \
    RULE(AMSGRAD, amsgrad, "AMSGrad", adam_fields, "eee", FXI_ADAM_ARGS)                           \
    RULE(OADAM, oadam, "OAdam", adam_fields, "zzbz", FXI_OADAM_ARGS)                               \
    RULE(ADABELIEF, adabelief, "AdaBelief", adam_fields, "zzb", FXI_ADABELIEF_ARGS)                \
    RULE(ADAGRAD, adagrad, "AdaGrad", adagrad_fields, "e", FXI_ADAGRAD_ARGS)                       \
    RULE(ADADELTA, adadelta, "AdaDelta", adadelta_fields, "zz", FXI_ADADELTA_ARGS)                 \
    RULE(LION, lion, "Lion", lion_fields, "z", FXI_LION_ARGS)                                      \
    RULE(WEIGHT_DECAY, weight_decay, "WeightDecay", decay_fields, "", FXI_WEIGHT_DECAY_ARGS)       \
    RULE(SIGN_DECAY, sign_decay, "SignDecay", decay_fields, "", FXI_SIGN_DECAY_ARGS)               \
    RULE(CLIP_GRAD, clip_grad, "ClipGrad", clip_grad_fields, "", FXI_CLIP_GRAD_ARGS)               \
    RULE(CLIP_NORM, clip_norm, "ClipNorm", clip_norm_fields, "", FXI_CLIP_NORM_ARGS)               \
    RULE(ACCUM_GRAD, accum_grad, "AccumGrad", accum_grad_fields, "zt", FXI_ACCUM_GRAD_ARGS)
#define ALL_RULES(RULE)                                                                            \
    RULES_OF_OPTIONS(RULE)                                                                         \
    RULE(CHAIN, optimiser_chain, "OptimiserChain", chain_fields, "", FXI_NO_ARGS)                  \
    RULE(MIXED, mixed_precision, "MixedPrecision", mixed_fields, "", FXI_NO_ARGS)                  \
    RULE(DISTRIBUTED, optimiser_chain, "DistributedOptimizer", chain_fields, "", FXI_NO_ARGS)

#define NAMED(NAME, function, text, fields, state, MEMBERS) NAME,
enum { ALL_RULES(NAMED) RULES };
#undef NAMED
typedef struct row {
    fx_type type;
    fxi_rule_info info;
    fx_rule defaults;
} row;

static void describe(const void *self, fx_text *text);
static fx_rule errors[RULES];
#define ROW(NAME, function, text, list, state, MEMBERS)                                            \
    [NAME] = {{.fxi_size = sizeof(fx_type),                                                        \
               .name = (text),                                                                     \
               .size = sizeof(fx_rule),                                                            \
               .fields = (list),                                                                   \
               .nfields = (int)(sizeof(list) / sizeof((list)[0])),                                 \
               .describe = describe,                                                               \
               .error = &errors[NAME],                                                             \
               .flags = FX_TYPE_LEAF},                                                             \
              {(text), (state), fxi_apply_##function},                                             \
              {MEMBERS(FXI_DEFAULT)}},
static const row rows[RULES] = {ALL_RULES(ROW)};

static const row *row_of(const fx_rule *r)
{
    const fx_type *type = r ? fx_type_of(r) : NULL;
    for (int i = 0; i < RULES; i++)
        if (type == &rows[i].type)
            return &rows[i];
    return NULL;
}

static const row *row_named(const char *name)
{
    for (int i = 0; i < RULES; i++)
        if (strcmp(rows[i].type.name, name) == 0)
            return &rows[i];
    return NULL;
}

const fxi_rule_info *fxi_rule_info_of(const fx_rule *r)
{
    const row *found = row_of(r);
    return found && r != found->type.error ? &found->info : NULL;
}

bool fxi_is_rule(const void *object)
{
    return fxi_rule_info_of(object) != NULL;
}

bool fxi_rule_exists(const char *name)
{
    return row_named(name) != NULL;
}

bool fxi_rule_is_mixed(const fx_rule *r, fx_dtype *out_type)
{
    if (!r || fx_type_of(r) != &rows[MIXED].type)
        return false;
    *out_type = r->type;
    return true;
}

static bool contains_rules(const row *w)
{
    return w == &rows[CHAIN] || w == &rows[MIXED] || w == &rows[DISTRIBUTED];
}

const fx_list *fxi_rule_parts(const fx_rule *r)
{
    return contains_rules(row_of(r)) ? &r->rules : NULL;
}

/* ---- fields ------------------------------------------------------------------------------- */

static double get_field(const fx_rule *r, const fx_field *f)
{
    const void *at = (const char *)r + f->offset;
    return f->kind == FX_FIELD_FLAG      ? *(const bool *)at
           : f->kind == FX_FIELD_INTEGER ? (double)*(const int64_t *)at
                                         : *(const double *)at;
}

/* False (not recorded) if the field cannot hold the value: 0.5 in an integer, 2 in a flag. */
static bool set_field(fx_rule *r, const fx_field *f, double value)
{
    void *at = (char *)r + f->offset;
    const bool fits = f->kind == FX_FIELD_FLAG      ? value == 0 || value == 1
                      : f->kind == FX_FIELD_INTEGER ? fabs(value) < 0x1p53 && value == trunc(value)
                                                    : true;
    if (f->kind == FX_FIELD_FLAG)
        *(bool *)at = fits && value != 0;
    else if (f->kind == FX_FIELD_INTEGER)
        *(int64_t *)at = fits ? (int64_t)value : 0;
    else
        *(double *)at = value;
    return fits;
}

static const fx_field *field_named(const fx_type *type, const char *name)
{
    for (int i = 0; i < type->nfields; i++)
        if (type->fields[i].kind != FX_FIELD_LIST && strcmp(type->fields[i].name, name) == 0)
            return &type->fields[i];
    return NULL;
}

static bool has_field(const fx_rule *r, const char *name)
{
    bool has = field_named(fx_type_of(r), name) != NULL;
    for (int64_t i = 0; i < r->rules.n && !has; i++)
        has = has_field(r->rules.items[i], name);
    return has;
}

/* ---- states ------------------------------------------------------------------------------- */

const char *fxi_rule_state(const fx_rule *r)
{
    const row *w = row_of(r);
    return w == &rows[RMSPROP] && !r->centred ? "zf" : w->info.state;
}

int fxi_rule_nstates(const fx_rule *r, fx_dtype type)
{
    fx_dtype own;
    int n = fxi_rule_is_mixed(r, &own) && own != type;
    for (const char *c = fxi_rule_state(r); *c; c++)
        n += strchr("zelc", *c) != NULL;
    for (int64_t i = 0; i < r->rules.n; i++)
        n += fxi_rule_nstates(r->rules.items[i], type);
    return n;
}

int fxi_rule_nnumbers(const fx_rule *r)
{
    int n = 0;
    for (const char *c = fxi_rule_state(r); *c; c++)
        n += *c == 'b' ? 2 : *c == 't';
    for (int64_t i = 0; i < r->rules.n; i++)
        n += fxi_rule_nnumbers(r->rules.items[i]);
    return n;
}

fx_dtype fxi_rule_state_type(const fx_rule *r, fx_dtype type)
{
    fx_dtype own;
    return fxi_rule_is_mixed(r, &own) ? own : type;
}

static void first_numbers(const fx_rule *r, double *out)
{
    for (const char *c = fxi_rule_state(r); *c; c++) {
        if (*c == 't')
            *out++ = 1;
        if (*c == 'b') {
            *out++ = r->beta1;
            *out++ = r->beta2;
        }
    }
    for (int64_t i = 0; i < r->rules.n; i++) {
        first_numbers(r->rules.items[i], out);
        out += fxi_rule_nnumbers(r->rules.items[i]);
    }
}

static fx_array *filled(const fx_array *x, double value)
{
    if (fx_is_error(x))
        return fx_error_array(fx_array_status(x));
    fx_array *y = fxi_full(fx_eltype(x), value, x->node->ndim, x->node->shape);
    if (y->node) /* on the device of x, as fx_zeros_like */
        y->node->device = x->node->device;
    return y;
}

static fx_array **init_arrays(const fx_rule *r, fx_array *x, fx_array **states)
{
    fx_dtype own;
    if (fxi_rule_is_mixed(r, &own) && own != fx_eltype(x))
        x = *states++ = fx_cast(x, own);
    for (const char *c = fxi_rule_state(r); *c; c++)
        if (strchr("zelc", *c))
            *states++ = filled(x, *c == 'e' ? r->epsilon : *c == 'l' ? r->eta : 0);
    for (int64_t i = 0; i < r->rules.n; i++)
        states = init_arrays(r->rules.items[i], x, states);
    return states;
}

void fxi_rule_init(const fx_rule *r, fx_array *x, fx_array **states, double *numbers)
{
    init_arrays(r, x, states);
    first_numbers(r, numbers);
}

fx_array *fxi_rule_apply(fxi_application *s)
{
    return fxi_rule_info_of(s->rule)->apply(s);
}

/* ---- printing --------------------------------------------------------------------------- */

static void describe_value(const fx_rule *r, const fx_field *f, fx_text *text)
{
    char number[FXI_NUMBER_TEXT];
    const double v = get_field(r, f);
    if (f->kind == FX_FIELD_FLAG)
        fx_text_add(text, "%s", v != 0 ? "true" : "false");
    else if (f->kind == FX_FIELD_INTEGER)
        fx_text_add(text, "%lld", (long long)v);
    else
        fx_text_add(text, "%s", fxi_float64_text(v, number));
}

/* beta1 and beta2 are the tuple beta in Optimisers.jl, as are ell and gamma. */
static void describe_field(const fx_rule *r, const fx_field *f, fx_text *text)
{
    const size_t n = strlen(f->name);
    const bool first = f->name[n - 1] == '1', second = f->name[n - 1] == '2';
    if (second) {
        describe_value(r, f, text);
        fx_text_add(text, ")");
        return;
    }
    if (strcmp(f->name, "throws") == 0)
        fx_text_add(text, "throw=");
    else
        fx_text_add(text, first ? "%.*s=(" : "%.*s=", (int)(first ? n - 1 : n), f->name);
    describe_value(r, f, text);
}

static void describe_rules(const fx_rule *r, fx_text *text)
{
    for (int64_t i = 0; i < r->rules.n; i++) {
        fx_text_add(text, i ? ", " : "");
        describe(r->rules.items[i], text);
    }
}

static void describe_fields(const fx_rule *r, fx_text *text)
{
    const fx_type *type = fx_type_of(r);
    if (row_of(r) == &rows[DESCENT] || row_of(r) == &rows[ACCUM_GRAD]) {
        describe_value(r, type->fields, text);
        return;
    }
    for (int i = 0; i < type->nfields; i++) {
        fx_text_add(text, i ? ", " : "");
        describe_field(r, &type->fields[i], text);
    }
}

/* "Descent(0.1)"; "Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)";
 * "OptimiserChain(ClipGrad(delta=1.0), Descent(0.1))"; "MixedPrecision{Float32}(Descent(0.1))".
 * Optimisers.jl 0.4.8 prints the same, except that it prints the numbers of ClipNorm, AccumGrad and
 * MixedPrecision with their types, and RMSProp without the closing parenthesis. */
static void describe(const void *self, fx_text *text)
{
    const fx_rule *r = self;
    const row *w = row_of(r);
    fx_text_add(text, "%s", w->type.name);
    if (w == &rows[MIXED])
        fx_text_add(text, "{%s}", fx_dtype_name(r->type));
    fx_text_add(text, "(");
    if (fxi_rule_parts(r))
        describe_rules(r, text);
    else
        describe_fields(r, text);
    if (w == &rows[MIXED] && (r->scale != 1 || r->growth)) {
        fx_text_add(text, "; scale=");
        describe_value(r, &mixed_fields[1], text);
        if (r->growth)
            fx_text_add(text, ", growth=%lld", (long long)r->growth);
    }
    fx_text_add(text, ")");
}

/* ---- making ----------------------------------------------------------------------------- */

static fx_rule *refused(const row *w, const char *why, double value)
{
    char number[FXI_NUMBER_TEXT];
    fx_fail(FX_STATUS_ARGUMENT, w->type.name, "%s = %s", why, fxi_float64_text(value, number));
    return fx_error_object(&w->type);
}

static fx_rule *refused_count(const row *w, const char *what, int64_t least, int64_t value)
{
    fx_fail(FX_STATUS_ARGUMENT, w->type.name, "%s must be at least %lld, got %lld", what,
            (long long)least, (long long)value);
    return fx_error_object(&w->type);
}

/* β₁ and β₂: Adam divides by 1 − βᵗ. */
static bool is_decay(const fx_field *f)
{
    return f->offset == offsetof(fx_rule, beta1) || f->offset == offsetof(fx_rule, beta2);
}

/* The first number that the rule cannot have; NULL if there is none. The exponent of a norm and the
 * factor of a loss have checks of their own. */
static const fx_field *unusable(const row *w, const fx_rule *init)
{
    for (int i = 0; i < w->type.nfields; i++) {
        const fx_field *f = &w->type.fields[i];
        const bool own = f->offset == offsetof(fx_rule, p) || f->offset == offsetof(fx_rule, scale);
        if (f->kind == FX_FIELD_NUMBER && !own &&
            !(get_field(init, f) >= 0 && (!is_decay(f) || get_field(init, f) < 1)))
            return f;
    }
    return NULL;
}

static fx_rule *make(const row *w, const fx_rule *init)
{
    const fx_field *f = unusable(w, init);
    if (f) {
        char why[100];
        snprintf(why, sizeof why, "%s must be at least 0%s, got %s",
                 f->offset == offsetof(fx_rule, eta) ? "the learning rate"
                 : is_decay(f)                       ? "the decay"
                                                     : "the number",
                 is_decay(f) ? " and less than 1" : "", f->name);
        return refused(w, why, get_field(init, f));
    }
    if (w == &rows[ACCUM_GRAD] && init->n < 1)
        return refused_count(w, "the number of gradients n", 1, init->n);
    if (w == &rows[MIXED] && !(init->scale > 0 && isfinite(init->scale)))
        return refused(w, "the factor of the loss must be positive, got scale", init->scale);
    if (w == &rows[CLIP_NORM] && isnan(init->p))
        return refused(w, "the exponent of the norm must be a number, got p", init->p);
    if (w == &rows[MIXED] && init->growth < 0)
        return refused_count(w, "the number of updates growth", 0, init->growth);
    return fxi_new(&w->type, init);
}

#define FROM_OPTIONS(T, name, value) .name = a.name,
#define MAKER(NAME, function, text, fields, state, MEMBERS)                                        \
    fx_rule *fxi_##function(const fx_##function##_args *given)                                     \
    {                                                                                              \
        FXI_TAKE_OPTIONS(fx_##function##_args, MEMBERS, a, (text), given);                         \
        const fx_rule init = {MEMBERS(FROM_OPTIONS)};                                              \
        return a_ok ? make(&rows[NAME], &init) : fx_error_object(&rows[NAME].type);                \
    }
RULES_OF_OPTIONS(MAKER)

/* Checks a rule that another one is to contain. */
static bool fits_inside(const row *w, const fx_rule *inner)
{
    fx_dtype type;
    if (!fxi_rule_info_of(inner)) {
        if (!inner || !fx_is_error(inner) || fx_error_status() == FX_OK)
            fx_fail(FX_STATUS_ARGUMENT, w->type.name, "expects optimiser rules, got %s",
                    fxi_type_name(inner));
        return false;
    }
    const bool distributed = row_of(inner) == &rows[DISTRIBUTED] && w != &rows[MIXED];
    if (distributed || fxi_rule_is_mixed(inner, &type))
        fx_fail(FX_STATUS_ARGUMENT, w->type.name,
                "%s cannot be inside another rule: it must be the outermost rule",
                row_of(inner)->type.name);
    return !distributed && !fxi_rule_is_mixed(inner, &type);
}

/* The number of rules, those inside of others included. A chain limits it (MOST_RULES), so that a
 * rule which contains another one many times takes little time. */
static int64_t count_rules(const fx_rule *r)
{
    int64_t n = 1;
    for (int64_t i = 0; i < r->rules.n; i++)
        n += count_rules(r->rules.items[i]);
    return n;
}

enum { MOST_RULES = 32 };
fx_rule *fxi_optimiser_chain(int n, void *const *rules)
{
    const row *w = &rows[CHAIN];
    int states = 0, numbers = 0;
    int64_t all = 0;
    bool ok = fxi_check_list(w->type.name, "rules", n, rules) == FX_OK;
    for (int i = 0; i < n && ok; i++) {
        ok = fits_inside(w, rules[i]);
        all += ok ? count_rules(rules[i]) : 0;
        states += ok ? fxi_rule_nstates(rules[i], FX_DTYPE_F32) : 0;
        numbers += ok ? fxi_rule_nnumbers(rules[i]) : 0;
    }
    /* one more array for a MixedPrecision around the chain */
    if (ok && (all > MOST_RULES || states >= FXI_RULE_STATES || numbers > FXI_RULE_NUMBERS)) {
        fx_fail(FX_STATUS_ARGUMENT, w->type.name,
                "holds at most %d rules, which keep at most %d arrays and %d numbers for each "
                "parameter; got %lld rules, %d arrays, %d numbers",
                MOST_RULES, FXI_RULE_STATES - 1, FXI_RULE_NUMBERS, (long long)all, states, numbers);
        ok = false;
    }
    const fx_rule init = {.rules = {n, (void **)(uintptr_t)rules, NULL}};
    return ok ? make(w, &init) : fx_error_object(&w->type);
}

fx_rule *fxi_mixed_precision(const fx_mixed_precision_args *given)
{
    const row *w = &rows[MIXED];
    FXI_TAKE_OPTIONS(fx_mixed_precision_args, FXI_MIXED_PRECISION_ARGS, a, w->type.name, given);
    if (!a_ok || !fits_inside(w, a.rule))
        return fx_error_object(&w->type);
    if (a.type != FX_DTYPE_F32 && a.type != FX_DTYPE_F64) {
        fx_fail(FX_STATUS_ARGUMENT, w->type.name, "computes in Float32 or Float64, not in %s",
                fx_dtype_name(a.type));
        return fx_error_object(&w->type);
    }
    const fx_rule init = {.rules = {1, (void *[]){a.rule}, NULL},
                          .type = a.type,
                          .scale = a.growth > 0 && a.scale == 1 ? 65536 : a.scale,
                          .growth = a.growth};
    return make(w, &init);
}

/* The first rule, r or one inside of it, whose state cannot be divided: it needs more than one
 * element of a gradient, or each member needs its whole state. NULL: none. */
static const fx_rule *indivisible(const fx_rule *r)
{
    const row *w = row_of(r);
    const fx_rule *found =
        w == &rows[CLIP_NORM] || w == &rows[ACCUM_GRAD] || w == &rows[MIXED] ? r : NULL;
    for (int64_t i = 0; i < r->rules.n && !found; i++)
        found = indivisible(r->rules.items[i]);
    return found;
}

fx_rule *fxi_rule_distributed(const fx_communicator *among, fx_rule *rule, bool shard)
{
    const row *w = &rows[DISTRIBUTED];
    fx_dtype type;
    const bool mixed = fxi_rule_info_of(rule) && fxi_rule_is_mixed(rule, &type);
    fx_rule *inner = mixed ? rule->rules.items[0] : rule;
    if (!among || !fits_inside(w, inner))
        return fx_error_object(&w->type);
    const fx_rule *whole = shard ? indivisible(rule) : NULL;
    if (whole) {
        fx_fail(FX_STATUS_UNSUPPORTED, w->type.name,
                "the state of %s cannot be divided among processes (.shard)",
                row_of(whole)->type.name);
        return fx_error_object(&w->type);
    }
    const fx_rule init = {.rules = {1, (void *[]){inner}, NULL}, .among = among, .shard = shard};
    fx_rule *made = make(w, &init);
    if (!mixed || fx_is_error(made))
        return made;
    fx_rule around = *rule;
    around.rules = (fx_list){1, (void *[]){made}, NULL};
    return make(&rows[MIXED], &around);
}

const fx_communicator *fxi_rule_among(const fx_rule *r)
{
    if (!r->among && r->rules.n == 0) /* most rules */
        return NULL;
    if (row_of(r) == &rows[MIXED])
        r = r->rules.items[0];
    return row_of(r) == &rows[DISTRIBUTED] && r->among->size > 1 ? r->among : NULL;
}

const fx_communicator *fxi_rule_divides(const fx_rule *r)
{
    return r->shard ? fxi_rule_among(r) : NULL;
}

fx_rule *fxi_rule_undivided(const fx_rule *r)
{
    fx_rule init = *r;
    init.shard = false;
    return make(row_of(r), &init);
}

const fx_rule *fxi_rule_accumulates(const fx_rule *r)
{
    if (row_of(r) == &rows[MIXED] && (r->scale != 1 || r->growth))
        return NULL;
    while (r->rules.n > 0)
        r = r->rules.items[0];
    return row_of(r) == &rows[ACCUM_GRAD] ? r : NULL;
}

fx_rule *fxi_rule_rescaled(const fx_rule *r, bool finite)
{
    if (row_of(r) != &rows[MIXED] || r->growth == 0)
        return NULL;
    fx_rule init = *r;
    init.good = finite ? r->good + 1 : 0;
    if (!finite && r->scale / 2 > 0)
        init.scale = r->scale / 2;
    else if (finite && init.good >= r->growth) {
        init.scale = fmin(2 * r->scale, ldexp(1, 126)); /* the loss is at least Float32 */
        init.good = 0;
    }
    return make(&rows[MIXED], &init);
}

/* ---- adjusting ---------------------------------------------------------------------------- */

typedef struct given_number {
    const char *name;
    double value;
} given_number;
#define GIVEN(T, name, value) {#name, given->name},

const char *fxi_rule_lacks(const fx_rule *r, const fx_adjust_args *given)
{
    const given_number all[] = {FXI_ADJUST_ARGS(GIVEN)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!isnan(all[i].value) && !has_field(r, all[i].name))
            return all[i].name;
    return NULL;
}

/* Changes the fields that the rule has, and the rules inside of it. `change` returns false
 * (recorded) if a field cannot hold its value. */
typedef bool (*change_fn)(fx_rule *r, const fx_type *type, void *user);
static fx_rule *changed(const fx_rule *r, change_fn change, void *user)
{
    const row *w = row_of(r);
    fx_rule init = *r;
    void *parts[MOST_RULES];
    if (!change(&init, &w->type, user))
        return fx_error_object(&w->type);
    for (int64_t i = 0; i < r->rules.n; i++) {
        parts[i] = changed(r->rules.items[i], change, user);
        if (fx_is_error(parts[i]))
            return fx_error_object(&w->type);
    }
    if (fxi_rule_parts(r))
        init.rules = (fx_list){r->rules.n, parts, NULL};
    return make(w, &init);
}

static bool take_given(fx_rule *r, const fx_type *type, void *user)
{
    const fx_adjust_args *given = user;
    const given_number all[] = {FXI_ADJUST_ARGS(GIVEN)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char number[FXI_NUMBER_TEXT];
        const fx_field *f = field_named(type, all[i].name);
        if (!f || isnan(all[i].value) || set_field(r, f, all[i].value))
            continue;
        fx_fail(FX_STATUS_ARGUMENT, type->name, "%s must be %s, got %s", f->name,
                f->kind == FX_FIELD_FLAG ? "0 or 1" : "a whole number",
                fxi_float64_text(all[i].value, number));
        return false;
    }
    return true;
}

fx_rule *fxi_rule_with(const fx_rule *r, const fx_adjust_args *given)
{
    if (fxi_is_rule(r))
        return changed(r, take_given, (void *)(uintptr_t)given);
    fx_fail(FX_STATUS_ARGUMENT, "adjust", "expects an optimiser rule, got %s", fxi_type_name(r));
    return fx_error_object(&rows[DESCENT].type);
}

fx_rule *fxi_rule_named(const char *name, const fx_adjust_args *given, bool centred)
{
    const row *w = row_named(name);
    if (!w || contains_rules(w)) {
        fx_fail(FX_STATUS_ARGUMENT, "rule", "unknown rule %s", name);
        return fx_error_object(&rows[DESCENT].type);
    }
    fx_rule defaults = w->defaults;
    defaults.centred = centred && w == &rows[RMSPROP];
    const bool taken = take_given(&defaults, &w->type, (void *)(uintptr_t)given);
    return taken ? make(w, &defaults) : fx_error_object(&w->type);
}

double fxi_rule_eta(const fx_rule *r)
{
    double eta = field_named(fx_type_of(r), "eta") ? r->eta : (double)NAN;
    for (int64_t i = 0; i < r->rules.n && isnan(eta); i++)
        eta = fxi_rule_eta(r->rules.items[i]);
    return eta;
}

/* ---- numbers of checkpoints --------------------------------------------------------------- */

/* Every rule has its kind and these numbers in a checkpoint, 0 where the rule has none; then come
 * the numbers that only some rules have. */
static const fx_field common[] = {NUMBER(eta),        NUMBER(rho),     NUMBER(beta1),
                                  NUMBER(beta2),      NUMBER(epsilon), NUMBER(lambda),
                                  FIELD(couple, FLAG)};
enum { COMMON = sizeof common / sizeof common[0] };

/* True if f is not one of the numbers that only some rules have: f is common, holds the rules, or
 * belongs to .growth while r does not use it. */
static bool is_common(const fx_rule *r, const fx_field *f)
{
    const size_t at = f->offset;
    bool is =
        f->kind == FX_FIELD_LIST ||
        (r->growth == 0 && (at == offsetof(fx_rule, growth) || at == offsetof(fx_rule, good)));
    for (int i = 0; i < COMMON; i++)
        is |= common[i].offset == f->offset;
    return is;
}

/* FNV-1a, 32 bits, which a double holds exactly. */
static double kind_of(const fx_rule *r)
{
    uint32_t h = 2166136261u;
    for (const char *c = row_of(r)->info.name; *c; c++)
        h = (h ^ (unsigned char)*c) * 16777619u;
    return h;
}

int64_t fxi_rule_numbers_out(const fx_rule *r, double *out, int64_t capacity)
{
    const fx_type *type = fx_type_of(r);
    int64_t n = 0;
#define PUT(value) (n < capacity ? (void)(out[n] = (value)) : (void)0, n++)
    PUT(kind_of(r));
    for (int i = 0; i < COMMON; i++)
        PUT(get_field(r, &common[i]));
    for (int i = 0; i < type->nfields; i++)
        if (!is_common(r, &type->fields[i]))
            PUT(get_field(r, &type->fields[i]));
#undef PUT
    for (int64_t i = 0; i < r->rules.n; i++)
        n += fxi_rule_numbers_out(r->rules.items[i], out + (n < capacity ? n : 0),
                                  n < capacity ? capacity - n : 0);
    return n;
}

/* Reads numbers in the order in which fxi_rule_numbers_out writes them. */
typedef struct reading {
    const double *at;
    bool other; /* the numbers belong to another rule */
} reading;

static bool take_saved(fx_rule *r, const fx_type *type, void *user)
{
    reading *in = user;
    const double *at = in->at;
    in->other |= *at++ != kind_of(r);
    for (int i = 0; i < COMMON; i++, at++)
        if (field_named(type, common[i].name)) {
            in->other |= common[i].kind == FX_FIELD_FLAG && *at != get_field(r, &common[i]);
            in->other |= !set_field(r, &common[i], *at);
        }
    for (int i = 0; i < type->nfields; i++)
        if (!is_common(r, &type->fields[i])) {
            in->other |=
                type->fields[i].kind == FX_FIELD_FLAG && *at != get_field(r, &type->fields[i]);
            in->other |= !set_field(r, &type->fields[i], *at++);
        }
    in->at = at;
    return true;
}

fx_rule *fxi_rule_numbers_in(const fx_rule *r, const double *numbers)
{
    reading in = {.at = numbers};
    fx_rule *made = changed(r, take_saved, &in);
    return in.other ? NULL : made;
}
