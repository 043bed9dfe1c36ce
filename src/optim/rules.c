/* rules.c: Descent, Momentum, Nesterov, Adam, AdamW: the formulas of Optimisers.jl in one table.
 *
 * A row of the table holds the rule's type (name, fields), its apply function, and its default
 * learning rate. Making, printing and checking rules are loops over rows and fields, so a new rule
 * needs an apply function and a row. Hyperparameters enter the graph as real literals, which are
 * weak: the parameter's element type is kept, and changing a value needs no new plan. The powers
 * β₁ᵗ, β₂ᵗ are doubles on the host: as in Optimisers.jl they start at β and are multiplied after
 * use, but they are not rounded to the parameter's type. The operations are in the order of
 * Optimisers.jl's expressions, so that rounding agrees.
 */
#include "rules.h"

#include <cflux/ops.h>

#include "julia_number.h"
#include "option_struct.h"
#include "state_parts.h"

#include <math.h>
#include <string.h>

/* ---- states ----------------------------------------------------------------------------- */

static void init_none(const fx_rule *r, fx_array *x, fx_array **states, double *numbers)
{
    (void)r, (void)x, (void)states, (void)numbers;
}

static void init_velocity(const fx_rule *r, fx_array *x, fx_array **states, double *numbers)
{
    (void)r, (void)numbers;
    states[0] = fx_zeros_like(x);
}

static void init_moments(const fx_rule *r, fx_array *x, fx_array **states, double *numbers)
{
    states[0] = fx_zeros_like(x);
    states[1] = fx_zeros_like(x);
    numbers[0] = r->beta1;
    numbers[1] = r->beta2;
}

/* ---- steps ------------------------------------------------------------------------------ */

/* dx′ = η·dx */
static int descent_literals(const fx_rule *r, fx_dtype type, const double *numbers, double *out,
                            double *new_numbers)
{
    (void)type, (void)numbers, (void)new_numbers;
    out[0] = r->eta;
    return 1;
}
static fx_array *descent(const fx_rule *r, fx_array *const *c, fx_array *x, fx_array *dx,
                         fx_array *const *states, fx_array **new_states)
{
    (void)r, (void)x, (void)states, (void)new_states;
    return fx_mul(dx, c[0]);
}

/* v ← ρv + η·dx; dx′ = v */
static int momentum_literals(const fx_rule *r, fx_dtype type, const double *numbers, double *out,
                             double *new_numbers)
{
    (void)type, (void)numbers, (void)new_numbers;
    out[0] = r->rho;
    out[1] = r->eta;
    return 2;
}
static fx_array *momentum(const fx_rule *r, fx_array *const *c, fx_array *x, fx_array *dx,
                          fx_array *const *states, fx_array **new_states)
{
    (void)r, (void)x;
    FXI_SCOPE;
    new_states[0] = fx_keep(fx_add(fx_mul(c[0], states[0]), fx_mul(c[1], dx)));
    return new_states[0];
}

/* dx′ = −ρ²v + (1+ρ)η·dx; v ← ρv − η·dx */
static int nesterov_literals(const fx_rule *r, fx_dtype type, const double *numbers, double *out,
                             double *new_numbers)
{
    (void)type, (void)numbers, (void)new_numbers;
    out[0] = -(r->rho * r->rho);
    out[1] = (1 + r->rho) * r->eta;
    out[2] = r->rho;
    out[3] = r->eta;
    return 4;
}
static fx_array *nesterov(const fx_rule *r, fx_array *const *c, fx_array *x, fx_array *dx,
                          fx_array *const *states, fx_array **new_states)
{
    (void)r, (void)x;
    FXI_SCOPE;
    fx_array *step = fx_add(fx_mul(c[0], states[0]), fx_mul(c[1], dx));
    new_states[0] = fx_keep(fx_sub(fx_mul(c[2], states[0]), fx_mul(c[3], dx)));
    return fx_keep(step);
}

/* Raises ε in Float16, which rounds 1e-8 to 0 (Optimisers.jl's _eps). */
static double epsilon_for(const fx_rule *r, fx_dtype type)
{
    return r->epsilon > 0 && type == FX_DTYPE_F16 ? fmax(r->epsilon, 1e-7) : r->epsilon;
}

enum { BETA1, REST1, BETA2, REST2, CORRECTION1, CORRECTION2, EPSILON, ETA };
static int adam_literals(const fx_rule *r, fx_dtype type, const double *numbers, double *out,
                         double *new_numbers)
{
    out[BETA1] = r->beta1;
    out[REST1] = 1 - r->beta1;
    out[BETA2] = r->beta2;
    out[REST2] = 1 - r->beta2;
    out[CORRECTION1] = 1 - numbers[0];
    out[CORRECTION2] = 1 - numbers[1];
    out[EPSILON] = epsilon_for(r, type);
    out[ETA] = r->eta;
    new_numbers[0] = numbers[0] * r->beta1;
    new_numbers[1] = numbers[1] * r->beta2;
    return ETA + 1;
}

/* β·old + (1−β)·value */
static fx_array *average(fx_array *beta, fx_array *rest, fx_array *old, fx_array *value)
{
    return fx_add(fx_mul(beta, old), fx_mul(rest, value));
}

/* m ← β₁m + (1−β₁)dx, v ← β₂v + (1−β₂)dx²; m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε). Moves the new states to
 * the enclosing scope, so that they outlive this function. */
static fx_array *adam_direction(fx_array *const *c, fx_array *dx, fx_array *const *states,
                                fx_array **new_states)
{
    fx_array *m = new_states[0] = fx_keep(average(c[BETA1], c[REST1], states[0], dx));
    fx_array *v = new_states[1] = fx_keep(average(c[BETA2], c[REST2], states[1], fx_square(dx)));
    fx_array *root = fx_sqrt(fx_div(v, c[CORRECTION2]));
    return fx_div(fx_div(m, c[CORRECTION1]), fx_add(root, c[EPSILON]));
}

static fx_array *adam(const fx_rule *r, fx_array *const *c, fx_array *x, fx_array *dx,
                      fx_array *const *states, fx_array **new_states)
{
    (void)r, (void)x;
    FXI_SCOPE;
    return fx_keep(fx_mul(adam_direction(c, dx, states, new_states), c[ETA]));
}

/* η(d + λx), or η·d + λx if `couple` is false */
static fx_array *adamw(const fx_rule *r, fx_array *const *c, fx_array *x, fx_array *dx,
                       fx_array *const *states, fx_array **new_states)
{
    FXI_SCOPE;
    fx_array *d = adam_direction(c, dx, states, new_states);
    fx_array *decay = fx_mul(r->lambda, x);
    return fx_keep(r->couple ? fx_mul(c[ETA], fx_add(d, decay)) : fx_add(fx_mul(c[ETA], d), decay));
}

/* ---- the table -------------------------------------------------------------------------- */

#define NUMBER(f)                                                                                  \
    {                                                                                              \
        .name = #f, .offset = offsetof(fx_rule, f), .kind = FX_FIELD_NUMBER                        \
    }
#define FLAG(f)                                                                                    \
    {                                                                                              \
        .name = #f, .offset = offsetof(fx_rule, f), .kind = FX_FIELD_FLAG                          \
    }
/* The fields are in Optimisers.jl's order. */
static const fx_field descent_fields[] = {NUMBER(eta)};
static const fx_field momentum_fields[] = {NUMBER(eta), NUMBER(rho)};
static const fx_field adam_fields[] = {NUMBER(eta), NUMBER(beta1), NUMBER(beta2), NUMBER(epsilon)};
static const fx_field adamw_fields[] = {NUMBER(eta),    NUMBER(beta1),   NUMBER(beta2),
                                        NUMBER(lambda), NUMBER(epsilon), FLAG(couple)};

enum { DESCENT, MOMENTUM, NESTEROV, ADAM, ADAMW, RULES };
typedef struct row {
    fx_type type;
    fxi_rule_info info;
    fx_rule defaults;
} row;

static void describe(const void *self, fx_text *text);
static fx_rule errors[RULES];
#define ROW(nth, text, list, nstates, nnumbers, init, literals, apply, MEMBERS)                    \
    [nth] = {{.fxi_size = sizeof(fx_type),                                                         \
              .name = (text),                                                                      \
              .size = sizeof(fx_rule),                                                             \
              .fields = (list),                                                                    \
              .nfields = (int)(sizeof(list) / sizeof((list)[0])),                                  \
              .describe = describe,                                                                \
              .error = &errors[nth],                                                               \
              .flags = FX_TYPE_LEAF},                                                              \
             {(text), (nstates), (nnumbers), (init), (literals), (apply)},                         \
             {MEMBERS(FXI_DEFAULT)}}
static const row rows[RULES] = {
    ROW(DESCENT, "Descent", descent_fields, 0, 0, init_none, descent_literals, descent,
        FXI_DESCENT_ARGS),
    ROW(MOMENTUM, "Momentum", momentum_fields, 1, 0, init_velocity, momentum_literals, momentum,
        FXI_MOMENTUM_ARGS),
    ROW(NESTEROV, "Nesterov", momentum_fields, 1, 0, init_velocity, nesterov_literals, nesterov,
        FXI_NESTEROV_ARGS),
    ROW(ADAM, "Adam", adam_fields, 2, 2, init_moments, adam_literals, adam, FXI_ADAM_ARGS),
    ROW(ADAMW, "AdamW", adamw_fields, 2, 2, init_moments, adam_literals, adamw, FXI_ADAMW_ARGS),
};

static const row *row_of(const fx_rule *r)
{
    const fx_type *type = r ? fx_type_of(r) : NULL;
    for (int i = 0; i < RULES; i++)
        if (type == &rows[i].type)
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

/* ---- printing --------------------------------------------------------------------------- */

static void describe_field(const fx_rule *r, const fx_field *f, fx_text *text)
{
    char number[FXI_NUMBER_TEXT];
    const char *at = (const char *)r + f->offset;
    double v;
    if (f->kind == FX_FIELD_FLAG) {
        fx_text_add(text, "%s=%s", f->name, *(const bool *)at ? "true" : "false");
        return;
    }
    memcpy(&v, at, sizeof v);
    fxi_float64_text(v, number);
    if (strcmp(f->name, "beta1") == 0)
        fx_text_add(text, "beta=(%s", number);
    else if (strcmp(f->name, "beta2") == 0)
        fx_text_add(text, "%s)", number);
    else
        fx_text_add(text, "%s=%s", f->name, number);
}

/* "Descent(0.1)"; "Adam(eta=0.001, beta=(0.9, 0.999), epsilon=1.0e-8)". */
static void describe(const void *self, fx_text *text)
{
    const fx_rule *r = self;
    const fx_type *type = fx_type_of(r);
    char number[FXI_NUMBER_TEXT];
    fx_text_add(text, "%s(", type->name);
    if (type->nfields == 1)
        fx_text_add(text, "%s", fxi_float64_text(r->eta, number));
    for (int i = 0; i < type->nfields && type->nfields > 1; i++) {
        if (i)
            fx_text_add(text, ", ");
        describe_field(r, &type->fields[i], text);
    }
    fx_text_add(text, ")");
}

/* ---- making ----------------------------------------------------------------------------- */

static fx_rule *make(const row *w, const fx_rule *init)
{
    if (init->eta >= 0)
        return fxi_new(&w->type, init);
    char number[FXI_NUMBER_TEXT];
    fx_fail(FX_STATUS_ARGUMENT, w->type.name, "the learning rate cannot be negative: eta = %s",
            fxi_float64_text(init->eta, number));
    return fx_error_object(&w->type);
}

static bool has_field(const fx_type *type, const char *name)
{
    for (int i = 0; i < type->nfields; i++)
        if (strcmp(type->fields[i].name, name) == 0)
            return true;
    return false;
}

fx_rule *fxi_rule_with(const fx_rule *r, const fx_adjust_args *given)
{
    const row *w = row_of(r);
    if (!w || r == w->type.error) {
        fx_fail(FX_STATUS_ARGUMENT, "adjust", "expects an optimiser rule");
        return fx_error_object(&rows[DESCENT].type);
    }
    fx_rule init = *r;
#define TAKE(T, name, value)                                                                       \
    if (!isnan(given->name) && has_field(&w->type, #name))                                         \
        init.name = given->name;
    FXI_ADJUST_ARGS(TAKE)
#undef TAKE
    return make(w, &init);
}

fx_rule *fxi_rule_named(const char *name, const fx_adjust_args *given, bool couple)
{
    for (int i = 0; i < RULES; i++) {
        if (strcmp(rows[i].type.name, name) != 0)
            continue;
        fx_rule defaults = rows[i].defaults;
        defaults.couple = couple;
        fx_rule *rule = make(&rows[i], &defaults);
        return fx_is_error(rule) ? rule : fxi_rule_with(rule, given);
    }
    fx_fail(FX_STATUS_ARGUMENT, "rule", "there is no rule %s", name);
    return fx_error_object(&rows[DESCENT].type);
}

void fxi_rule_numbers(const fx_rule *r, fx_adjust_args *out)
{
#define COPY(T, name, value) .name = r->name,
    *out = (fx_adjust_args){.fxi_size = sizeof(fx_adjust_args), FXI_ADJUST_ARGS(COPY)};
#undef COPY
}

#define FROM_OPTIONS(T, name, value) .name = a.name,
#define RULE(nth, f, T, MEMBERS)                                                                   \
    fx_rule *f(const T *given)                                                                     \
    {                                                                                              \
        FXI_TAKE_OPTIONS(T, MEMBERS, a, rows[nth].type.name, given);                               \
        const fx_rule init = {MEMBERS(FROM_OPTIONS)};                                              \
        return a_ok ? make(&rows[nth], &init) : fx_error_object(&rows[nth].type);                  \
    }
RULE(DESCENT, fxi_descent, fx_descent_args, FXI_DESCENT_ARGS)
RULE(MOMENTUM, fxi_momentum, fx_momentum_args, FXI_MOMENTUM_ARGS)
RULE(NESTEROV, fxi_nesterov, fx_nesterov_args, FXI_NESTEROV_ARGS)
RULE(ADAM, fxi_adam, fx_adam_args, FXI_ADAM_ARGS)
RULE(ADAMW, fxi_adamw, fx_adamw_args, FXI_ADAMW_ARGS)
