/* rules.c: Descent, Momentum, Nesterov, Adam, AdamW: the formulas of Optimisers.jl, one table.
 *
 * A row holds the rule's type (name, fields), how it applies, and its default learning rate;
 * making, printing and checking rules are loops over rows and fields, so a new rule is an apply
 * function and a row. Hyperparameters enter as real literals, which are weak: the element type of
 * the parameter stays, and changing them needs no new plan. The powers β₁ᵗ, β₂ᵗ are doubles on the
 * host: they start at β and are multiplied after use, as in Optimisers.jl, but are not rounded to
 * the parameter's type. The operations stand in the order of Optimisers.jl's expressions, so that
 * rounding agrees.
 */
#include "rules.h"

#include <cflux/ops.h>

#include "julia_number.h"

#include <math.h>
#include <string.h>

/* ---- states ----------------------------------------------------------------------------- */

static fx_array *zeros_like(const fx_array *x)
{
    int64_t dims[FX_MAX_DIMS];
    for (int i = 0; i < fx_ndims(x); i++)
        dims[i] = fx_size(x, i);
    return fx_is_error(x) ? fx_error_array(fx_array_status(x))
                          : fxi_full(fx_eltype(x), 0, fx_ndims(x), dims);
}

static void init_none(const fx_rule *r, fx_array *x, fx_array **states, double *numbers)
{
    (void)r, (void)x, (void)states, (void)numbers;
}

static void init_velocity(const fx_rule *r, fx_array *x, fx_array **states, double *numbers)
{
    (void)r, (void)numbers;
    states[0] = zeros_like(x);
}

static void init_moments(const fx_rule *r, fx_array *x, fx_array **states, double *numbers)
{
    states[0] = zeros_like(x);
    states[1] = zeros_like(x);
    numbers[0] = r->beta1;
    numbers[1] = r->beta2;
}

/* ---- steps ------------------------------------------------------------------------------ */

/* dx′ = η·dx */
static fx_array *descent(const fx_rule *r, fx_array *x, fx_array *dx, fx_array *const *states,
                         const double *numbers, fx_array **new_states, double *new_numbers)
{
    (void)x, (void)states, (void)numbers, (void)new_states, (void)new_numbers;
    return fx_mul(dx, r->eta);
}

/* v ← ρv + η·dx; dx′ = v */
static fx_array *momentum(const fx_rule *r, fx_array *x, fx_array *dx, fx_array *const *states,
                          const double *numbers, fx_array **new_states, double *new_numbers)
{
    (void)x, (void)numbers, (void)new_numbers;
    FXI_SCOPE;
    new_states[0] = fx_keep(fx_add(fx_mul(r->rho, states[0]), fx_mul(r->eta, dx)));
    return new_states[0];
}

/* dx′ = −ρ²v + (1+ρ)η·dx; v ← ρv − η·dx */
static fx_array *nesterov(const fx_rule *r, fx_array *x, fx_array *dx, fx_array *const *states,
                          const double *numbers, fx_array **new_states, double *new_numbers)
{
    (void)x, (void)numbers, (void)new_numbers;
    FXI_SCOPE;
    fx_array *step =
        fx_add(fx_mul(-(r->rho * r->rho), states[0]), fx_mul((1 + r->rho) * r->eta, dx));
    new_states[0] = fx_keep(fx_sub(fx_mul(r->rho, states[0]), fx_mul(r->eta, dx)));
    return fx_keep(step);
}

/* Float16 rounds 1e-8 to 0 (Optimisers.jl's _eps). */
static double epsilon_for(const fx_rule *r, const fx_array *x)
{
    return r->epsilon > 0 && fx_eltype(x) == FX_DTYPE_F16 ? fmax(r->epsilon, 1e-7) : r->epsilon;
}

/* β·old + (1−β)·value */
static fx_array *average(double beta, fx_array *old, fx_array *value)
{
    return fx_add(fx_mul(beta, old), fx_mul(1 - beta, value));
}

/* m ← β₁m + (1−β₁)dx, v ← β₂v + (1−β₂)dx²; m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε). Keeps the states one
 * scope up. */
static fx_array *adam_direction(const fx_rule *r, const fx_array *x, fx_array *dx,
                                fx_array *const *states, const double *numbers,
                                fx_array **new_states, double *new_numbers)
{
    const double power1 = numbers[0], power2 = numbers[1];
    fx_array *m = new_states[0] = fx_keep(average(r->beta1, states[0], dx));
    fx_array *v = new_states[1] = fx_keep(average(r->beta2, states[1], fx_square(dx)));
    new_numbers[0] = power1 * r->beta1;
    new_numbers[1] = power2 * r->beta2;
    fx_array *root = fx_sqrt(fx_div(v, 1 - power2));
    return fx_div(fx_div(m, 1 - power1), fx_add(root, epsilon_for(r, x)));
}

static fx_array *adam(const fx_rule *r, fx_array *x, fx_array *dx, fx_array *const *states,
                      const double *numbers, fx_array **new_states, double *new_numbers)
{
    FXI_SCOPE;
    return fx_keep(
        fx_mul(adam_direction(r, x, dx, states, numbers, new_states, new_numbers), r->eta));
}

/* η(d + λx), or η·d + λx with .no_couple */
static fx_array *adamw(const fx_rule *r, fx_array *x, fx_array *dx, fx_array *const *states,
                       const double *numbers, fx_array **new_states, double *new_numbers)
{
    FXI_SCOPE;
    fx_array *d = adam_direction(r, x, dx, states, numbers, new_states, new_numbers);
    fx_array *decay = fx_mul(r->lambda, x);
    return fx_keep(r->couple ? fx_mul(r->eta, fx_add(d, decay)) : fx_add(fx_mul(r->eta, d), decay));
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
/* Optimisers.jl's order. */
static const fx_field descent_fields[] = {NUMBER(eta)};
static const fx_field momentum_fields[] = {NUMBER(eta), NUMBER(rho)};
static const fx_field adam_fields[] = {NUMBER(eta), NUMBER(beta1), NUMBER(beta2), NUMBER(epsilon)};
static const fx_field adamw_fields[] = {NUMBER(eta),    NUMBER(beta1),   NUMBER(beta2),
                                        NUMBER(lambda), NUMBER(epsilon), FLAG(couple)};

enum { DESCENT, MOMENTUM, NESTEROV, ADAM, ADAMW, RULES };
typedef struct row {
    fx_type type;
    fxi_rule_info info;
    double eta; /* default */
} row;

static void describe(const void *self, fx_text *text);
static fx_rule errors[RULES];
#define ROW(nth, text, list, nstates, nnumbers, init, apply, eta)                                  \
    [nth] = {{.fxi_size = sizeof(fx_type),                                                         \
              .name = (text),                                                                      \
              .size = sizeof(fx_rule),                                                             \
              .fields = (list),                                                                    \
              .nfields = (int)(sizeof(list) / sizeof((list)[0])),                                  \
              .describe = describe,                                                                \
              .error = &errors[nth],                                                               \
              .flags = FX_TYPE_LEAF},                                                              \
             {(text), (nstates), (nnumbers), (init), (apply)},                                     \
             (eta)}
static const row rows[RULES] = {
    ROW(DESCENT, "Descent", descent_fields, 0, 0, init_none, descent, 0.1),
    ROW(MOMENTUM, "Momentum", momentum_fields, 1, 0, init_velocity, momentum, 0.01),
    ROW(NESTEROV, "Nesterov", momentum_fields, 1, 0, init_velocity, nesterov, 0.001),
    ROW(ADAM, "Adam", adam_fields, 2, 2, init_moments, adam, 0.001),
    ROW(ADAMW, "AdamW", adamw_fields, 2, 2, init_moments, adamw, 0.001),
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
    return fxi_error_object(&w->type);
}

/* 0 means the default, FX_ZERO zero. */
static double or_default(double v, double otherwise)
{
    return v != 0 ? v : signbit(v) ? 0.0 : otherwise;
}

static fx_rule *rule(const row *w, const fx_rule_args *a)
{
    const fx_rule init = {.eta = or_default(a->eta, w->eta),
                          .rho = or_default(a->rho, 0.9),
                          .beta1 = or_default(a->beta1, 0.9),
                          .beta2 = or_default(a->beta2, 0.999),
                          .epsilon = or_default(a->epsilon, 1e-8),
                          .lambda = or_default(a->lambda, 0),
                          .couple = !a->no_couple};
    return make(w, &init);
}

fx_rule *fxi_rule_with_eta(const fx_rule *r, double eta)
{
    const row *w = row_of(r);
    if (!w || r == w->type.error) {
        fx_fail(FX_STATUS_ARGUMENT, "adjust", "expects an optimiser rule");
        return fxi_error_object(&rows[DESCENT].type);
    }
    fx_rule init = *r;
    init.eta = eta;
    return make(w, &init);
}

fx_rule *fxi_descent(const fx_rule_args *a)
{
    return rule(&rows[DESCENT], a);
}
fx_rule *fxi_momentum(const fx_rule_args *a)
{
    return rule(&rows[MOMENTUM], a);
}
fx_rule *fxi_nesterov(const fx_rule_args *a)
{
    return rule(&rows[NESTEROV], a);
}
fx_rule *fxi_adam(const fx_rule_args *a)
{
    return rule(&rows[ADAM], a);
}
fx_rule *fxi_adamw(const fx_rule_args *a)
{
    return rule(&rows[ADAMW], a);
}
