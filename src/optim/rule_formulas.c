/* rule_formulas.c: the formulas of Optimisers.jl: see optim.h and rules.h.
 *
 * The operations are in the order of Optimisers.jl's expressions, so that rounding agrees. The
 * powers β₁ᵗ, β₂ᵗ are doubles on the host: as in Optimisers.jl they start at β and are multiplied
 * after use, but they are not rounded to the parameter's type. A formula that opens a scope keeps
 * its results. The formulas of composed rules open no scope, so the results of their rules reach
 * the update's scope.
 */
#include "rules.h"

#include "memory.h"
#include "recorded_part.h"

#include <cflux/ops.h>

#include <math.h>
#include <string.h>

/* ---- literals -------------------------------------------------------------------------------- */

bool fxi_literals_kept(const fxi_literals *l, const fx_rule *r, fx_dtype type,
                       const double *numbers)
{
    return l->rule == r && l->type == type && memcmp(l->numbers, numbers, sizeof l->numbers) == 0;
}

void fxi_literals_begin(fxi_literals *l, const fx_rule *r, fx_dtype type, const double *numbers)
{
    l->next = 0;
    if (fxi_literals_kept(l, r, type, numbers))
        return;
    l->rule = r;
    l->type = type;
    l->n = l->skipped = 0;
    memcpy(l->numbers, numbers, sizeof l->numbers);
}

fx_array *fxi_literal(fxi_literals *l, double value)
{
    if (l->next == FXI_RULE_LITERALS)
        return fx_scalar(value);
    if (l->next == l->n)
        l->at[l->n++] = NULL;
    fx_array **at = &l->at[l->next];
    if (!*at && l->next < l->skipped)
        *at = fxi_part_literal(l->part, l->next);
    if (!*at)
        *at = fx_scalar(value);
    l->next++;
    return *at;
}

/* The first n literals have been made by a part that was skipped. */
static void skip_literals(fxi_literals *l, int32_t part, int n)
{
    memset(l->at, 0, (size_t)n * sizeof *l->at);
    l->n = l->next = l->skipped = n;
    l->part = part;
}

/* Literals are made outside of the formula's scope, because later parameters use them too. */
#define L(value) fxi_literal(s->literals, (value))

/* ---- shared parts ---------------------------------------------------------------------------- */

/* Raises ε in Float16, which rounds 1e-8 to 0 (Optimisers.jl's _eps). */
static double epsilon_of(const fxi_application *s)
{
    const double e = s->rule->epsilon;
    return e > 0 && fx_eltype(s->x) == FX_DTYPE_F16 ? fmax(e, 1e-7) : e;
}

typedef struct betas {
    fx_array *beta1, *rest1, *beta2, *rest2;
} betas;

static betas betas_of(fxi_application *s)
{
    const fx_rule *r = s->rule;
    betas b;
    b.beta1 = L(r->beta1);
    b.rest1 = L(1 - r->beta1);
    b.beta2 = L(r->beta2);
    b.rest2 = L(1 - r->beta2);
    return b;
}

/* 1 − β₁ᵗ and 1 − β₂ᵗ. corrections_of also computes the next powers. */
typedef struct corrections {
    fx_array *first, *second;
} corrections;

static void next_powers(fxi_application *s)
{
    s->numbers[0] *= s->rule->beta1;
    s->numbers[1] *= s->rule->beta2;
}

static corrections corrections_of(fxi_application *s)
{
    corrections c;
    c.first = L(1 - s->numbers[0]);
    c.second = L(1 - s->numbers[1]);
    next_powers(s);
    return c;
}

/* β·old + (1−β)·value */
static fx_array *average(fx_array *beta, fx_array *rest, fx_array *old, fx_array *value)
{
    return fx_add(fx_mul(beta, old), fx_mul(rest, value));
}

/* Makes a value the i-th new state, in the scope outside of the formula's. */
static fx_array *next_state(fxi_application *s, int i, fx_array *value)
{
    return s->new_states[i] = fx_keep(value);
}

/* Returns `change`, but computed after a new state that it does not need (where the state is NaN,
 * the change is NaN too). The planner then puts both into one group, and the update of a whole
 * model is one step of the plan. */
static fx_array *after(fx_array *state, fx_array *change)
{
    return fx_where(fx_ne(state, state), state, change);
}

/* m ← β₁m + (1−β₁)dx, v ← β₂v + (1−β₂)dx² */
static void moments(fxi_application *s, const betas *b, fx_array **out_m, fx_array **out_v)
{
    *out_m = next_state(s, 0, average(b->beta1, b->rest1, s->states[0], s->dx));
    *out_v = next_state(s, 1, average(b->beta2, b->rest2, s->states[1], fx_square(s->dx)));
}

/* m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε) */
static fx_array *direction(const corrections *c, fx_array *m, fx_array *v, fx_array *epsilon)
{
    return fx_div(fx_div(m, c->first), fx_add(fx_sqrt(fx_div(v, c->second)), epsilon));
}

/* ---- descent and momentum -------------------------------------------------------------------- */

/* dx′ = η·dx: gradient descent. */
fx_array *fxi_apply_descent(fxi_application *s)
{
    return fx_mul(s->dx, L(s->rule->eta));
}

/* v ← ρv + η·dx; dx′ = v. η is inside v, as in Sutskever et al., 2013, so another rate affects only
 * later gradients. */
fx_array *fxi_apply_momentum(fxi_application *s)
{
    fx_array *rho = L(s->rule->rho), *eta = L(s->rule->eta);
    FXI_SCOPE;
    return next_state(s, 0, fx_add(fx_mul(rho, s->states[0]), fx_mul(eta, s->dx)));
}

/* dx′ = −ρ²v + (1+ρ)η·dx; v ← ρv − η·dx. The stored parameter is ahead by the velocity, x + ρv, so
 * the gradient is evaluated where Nesterov's method needs it (Bengio et al., 2013). */
fx_array *fxi_apply_nesterov(fxi_application *s)
{
    const fx_rule *r = s->rule;
    fx_array *back = L(-(r->rho * r->rho)), *ahead = L((1 + r->rho) * r->eta);
    fx_array *rho = L(r->rho), *eta = L(r->eta);
    FXI_SCOPE;
    fx_array *change = fx_add(fx_mul(back, s->states[0]), fx_mul(ahead, s->dx));
    fx_array *v = next_state(s, 0, fx_sub(fx_mul(rho, s->states[0]), fx_mul(eta, s->dx)));
    return fx_keep(after(v, change));
}

/* ---- changes from signs ---------------------------------------------------------------------- */

/* value·sign(of), with fewer literals than fx_mul(value, fx_sign(of)), so that the update stays one
 * step. */
static fx_array *with_sign(fx_array *of, fx_array *value, fx_array *negated, fx_array *zero)
{
    fx_array *below = fx_where(fx_lt(of, zero), negated, of);
    return fx_where(fx_gt(of, zero), value, below);
}

/* The length of a change depends on signs alone: it grows by ℓ₂ while dx keeps its sign, and
 * shrinks by ℓ₁ when the sign changes, because the previous change was then too long. g is 0 after
 * that, so the element does not move and the next update does not shrink it again (Riedmiller,
 * Braun, 1993, in the variant iRprop− of Igel, Hüsken, 2003). */
fx_array *fxi_apply_rprop(fxi_application *s)
{
    const fx_rule *r = s->rule;
    fx_array *less = L(r->ell1), *more = L(r->ell2), *least = L(r->gamma1), *most = L(r->gamma2);
    fx_array *zero = L(0);
    FXI_SCOPE;
    fx_array *agreement = fx_mul(s->states[0], s->dx), *change = s->states[1];
    fx_array *longer = fx_min(fx_mul(change, more), most);
    fx_array *shorter = fx_max(fx_mul(change, less), least);
    fx_array *back = fx_lt(agreement, zero);
    fx_array *g = next_state(s, 0, fx_where(back, zero, s->dx));
    change =
        next_state(s, 1, fx_where(fx_gt(agreement, zero), longer, fx_where(back, shorter, change)));
    return fx_keep(with_sign(g, change, fx_neg(change), zero));
}

/* dx′ = η·sign(β₁m + (1−β₁)dx), with the m of the previous update; then m ← β₂m + (1−β₂)dx. Two
 * factors, because the sign should react faster than m forgets (Chen et al., 2023). */
fx_array *fxi_apply_lion(fxi_application *s)
{
    const betas b = betas_of(s);
    fx_array *eta = L(s->rule->eta), *back = L(-s->rule->eta), *zero = L(0);
    FXI_SCOPE;
    fx_array *d = average(b.beta1, b.rest1, s->states[0], s->dx);
    fx_array *change = with_sign(d, eta, back, zero);
    fx_array *m = next_state(s, 0, average(b.beta2, b.rest2, s->states[0], s->dx));
    return fx_keep(after(m, change));
}

/* ---- rates from squared gradients ------------------------------------------------------------ */

/* q ← ρq + (1−ρ)dx²; dx′ = η·dx/(√q + ε). Centred: l ← ρl + (1−ρ)dx, and q − l² is the variance
 * instead of the second moment (Graves, 2013). For equal gradients, rounding can make it negative,
 * so it is raised to 0 (Julia throws). */
fx_array *fxi_apply_rmsprop(fxi_application *s)
{
    const fx_rule *r = s->rule;
    fx_array *rho = L(r->rho), *rest = L(1 - r->rho), *eta = L(r->eta), *epsilon = L(epsilon_of(s));
    fx_array *zero = r->centred ? L(0) : NULL;
    FXI_SCOPE;
    fx_array *q = next_state(s, 0, average(rho, rest, s->states[0], fx_square(s->dx)));
    if (r->centred) {
        fx_array *mean = next_state(s, 1, average(rho, rest, s->states[1], s->dx));
        q = fx_max(fx_sub(q, fx_square(mean)), zero);
    }
    return fx_keep(fx_div(fx_mul(s->dx, eta), fx_add(fx_sqrt(q), epsilon)));
}

/* s ← s + dx²; dx′ = η·dx/(√s + ε): rare features keep a large rate (Duchi, Hazan, Singer, 2011).
 */
fx_array *fxi_apply_adagrad(fxi_application *s)
{
    fx_array *eta = L(s->rule->eta), *epsilon = L(epsilon_of(s));
    FXI_SCOPE;
    fx_array *sum = next_state(s, 0, fx_add(s->states[0], fx_square(s->dx)));
    return fx_keep(fx_div(fx_mul(s->dx, eta), fx_add(fx_sqrt(sum), epsilon)));
}

/* s ← ρs + (1−ρ)dx²; dx′ = dx·√(d + ε)/√(s + ε); d ← ρd + (1−ρ)dx′². √d has the unit of the
 * parameter, so there is no rate (Zeiler, 2012). */
fx_array *fxi_apply_adadelta(fxi_application *s)
{
    const fx_rule *r = s->rule;
    fx_array *rho = L(r->rho), *rest = L(1 - r->rho), *epsilon = L(epsilon_of(s));
    FXI_SCOPE;
    fx_array *sum = next_state(s, 0, average(rho, rest, s->states[0], fx_square(s->dx)));
    fx_array *change = fx_div(fx_mul(s->dx, fx_sqrt(fx_add(s->states[1], epsilon))),
                              fx_sqrt(fx_add(sum, epsilon)));
    fx_array *d = next_state(s, 1, average(rho, rest, s->states[1], fx_square(change)));
    return fx_keep(after(d, change));
}

/* ---- Adam and its family --------------------------------------------------------------------- */

static fx_array *adam_change(fxi_application *s)
{
    const betas b = betas_of(s);
    const corrections c = corrections_of(s);
    fx_array *epsilon = L(epsilon_of(s)), *eta = L(s->rule->eta);
    FXI_SCOPE;
    fx_array *m, *v;
    moments(s, &b, &m, &v);
    return fx_keep(fx_mul(direction(&c, m, v, epsilon), eta));
}

fx_array *fxi_apply_adam(fxi_application *s)
{
    const fx_rule *r = s->rule;
    /* In the order in which adam_change makes them. */
    const double literals[] = {r->beta1,          1 - r->beta1,      r->beta2,      1 - r->beta2,
                               1 - s->numbers[0], 1 - s->numbers[1], epsilon_of(s), r->eta};
    fxi_part p = {.what = "adam",
                  .in = {s->dx, s->states[0], s->states[1]},
                  .literals = literals,
                  .nliterals = (int)(sizeof literals / sizeof *literals)};
    /* Further parameters share the literals and are repeated by recorded_rule.c. */
    if (s->literals->n > 0)
        return adam_change(s);
    if (!fxi_part_repeat(&p)) {
        p.out[0] = adam_change(s);
        p.out[1] = s->new_states[0];
        p.out[2] = s->new_states[1];
        fxi_part_note(&p);
        return p.out[0];
    }
    skip_literals(s->literals, p.first, p.nliterals);
    next_powers(s);
    s->new_states[0] = p.out[1];
    s->new_states[1] = p.out[2];
    return p.out[0];
}

/* η(d + λx), or η·d + λx if `couple` is false */
fx_array *fxi_apply_adamw(fxi_application *s)
{
    const fx_rule *r = s->rule;
    const betas b = betas_of(s);
    const corrections c = corrections_of(s);
    fx_array *epsilon = L(epsilon_of(s)), *eta = L(r->eta), *lambda = L(r->lambda), *m, *v;
    FXI_SCOPE;
    moments(s, &b, &m, &v);
    fx_array *d = direction(&c, m, v, epsilon), *decay = fx_mul(lambda, s->x);
    return fx_keep(r->couple ? fx_mul(eta, fx_add(d, decay)) : fx_add(fx_mul(eta, d), decay));
}

/* u ← max(β₂u, |dx|); dx′ = η·m̂/(u + ε): the limit p → ∞ of Adam with the p-norm of the gradients,
 * which needs no correction of u (Kingma, Ba, 2015, section 7). */
fx_array *fxi_apply_adamax(fxi_application *s)
{
    const betas b = betas_of(s);
    fx_array *rate = L(s->rule->eta / (1 - s->numbers[0])), *epsilon = L(epsilon_of(s));
    s->numbers[0] *= s->rule->beta1;
    s->numbers[1] *= s->rule->beta2;
    FXI_SCOPE;
    fx_array *m = next_state(s, 0, average(b.beta1, b.rest1, s->states[0], s->dx));
    fx_array *u = next_state(s, 1, fx_max(fx_mul(b.beta2, s->states[1]), fx_abs(s->dx)));
    return fx_keep(fx_div(fx_mul(rate, m), fx_add(u, epsilon)));
}

/* dx′ = η(β₁m/(1−β₁·β₁ᵗ) + (1−β₁)dx/(1−β₁ᵗ))/(√(β₂v/(1−β₂ᵗ)) + ε): Adam whose momentum is already
 * that of the next update, as in Nesterov's method (Dozat, 2016). */
fx_array *fxi_apply_nadam(fxi_application *s)
{
    const fx_rule *r = s->rule;
    const betas b = betas_of(s);
    fx_array *ahead = L(1 - r->beta1 * s->numbers[0]);
    const corrections c = corrections_of(s);
    fx_array *epsilon = L(epsilon_of(s)), *eta = L(r->eta), *m, *v;
    FXI_SCOPE;
    moments(s, &b, &m, &v);
    fx_array *mean =
        fx_add(fx_div(fx_mul(b.beta1, m), ahead), fx_div(fx_mul(b.rest1, s->dx), c.first));
    fx_array *root = fx_sqrt(fx_div(fx_mul(v, b.beta2), c.second));
    return fx_keep(fx_mul(fx_div(mean, fx_add(root, epsilon)), eta));
}

/* The factor r; 0 where the variance of the rate is not bounded yet (ρ ≤ 4). ρ is the effective
 * number of gradients in β₂'s average, and ρ∞ its limit: Liu et al., 2020, section 3. */
static double rectification(const fx_rule *r, double power2, double t)
{
    const double most = 2 / (1 - r->beta2) - 1, rho = most - 2 * t * power2 / (1 - power2);
    return rho > 4 ? sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) : 0;
}

/* The largest Float16, or the largest power of 2 of the other types. BFloat16 has the range of
 * Float32. */
static double largest_of(fx_dtype type)
{
    return type == FX_DTYPE_F16 ? 65504 : type == FX_DTYPE_F64 ? 0x1p1023 : 0x1p127;
}

/* η·m̂ / ((√v̂ + ε)/r), or η·m̂ / 1 without r: one formula for both, so that the plan stays the same
 * and the update one step. The root is bounded because Inf·0 would be NaN. */
fx_array *fxi_apply_radam(fxi_application *s)
{
    const betas b = betas_of(s);
    const double factor = rectification(s->rule, s->numbers[1], s->numbers[2]);
    const corrections c = corrections_of(s);
    fx_array *epsilon = L(epsilon_of(s)), *eta = L(s->rule->eta), *m, *v;
    fx_array *part = L(factor > 0 ? 1 / factor : 0), *rest = L(factor > 0 ? 0 : 1);
    fx_array *most = L(largest_of(fx_eltype(s->x)));
    s->numbers[2]++;
    FXI_SCOPE;
    moments(s, &b, &m, &v);
    fx_array *root = fx_add(fx_sqrt(fx_div(v, c.second)), epsilon);
    fx_array *below = fx_add(fx_mul(fx_min(root, most), part), rest);
    return fx_keep(fx_mul(fx_div(fx_div(m, c.first), below), eta));
}

/* v̄ ← max(v̄, v); dx′ = η·m/(√v̄ + ε): the rate of an element never grows, which the proof of
 * convergence needs (Reddi, Kale, Kumar, 2018). */
fx_array *fxi_apply_amsgrad(fxi_application *s)
{
    const betas b = betas_of(s);
    fx_array *epsilon = L(epsilon_of(s)), *eta = L(s->rule->eta), *m, *v;
    FXI_SCOPE;
    moments(s, &b, &m, &v);
    fx_array *most = next_state(s, 2, fx_max(s->states[2], v));
    return fx_keep(fx_div(fx_mul(eta, m), fx_add(fx_sqrt(most), epsilon)));
}

/* d ← η·m̂/(√v̂ + ε), the change of Adam; dx′ = 2d − previous d. Optimistic: the difference of two
 * changes predicts the next one, which damps the rotation of two players, as in a GAN (Daskalakis
 * et al., 2018). */
fx_array *fxi_apply_oadam(fxi_application *s)
{
    const betas b = betas_of(s);
    const corrections c = corrections_of(s);
    fx_array *epsilon = L(epsilon_of(s)), *eta = L(s->rule->eta), *m, *v;
    FXI_SCOPE;
    moments(s, &b, &m, &v);
    fx_array *term = next_state(s, 2, fx_mul(eta, direction(&c, m, v, epsilon)));
    return fx_keep(fx_sub(fx_mul(2, term), s->states[2]));
}

/* s ← β₂s + (1−β₂)(dx−m)² + ε: the distance of the gradient from its mean replaces its square, so
 * an expected gradient gets a large change (Zhuang et al., 2020). */
fx_array *fxi_apply_adabelief(fxi_application *s)
{
    const betas b = betas_of(s);
    const corrections c = corrections_of(s);
    fx_array *epsilon = L(epsilon_of(s)), *eta = L(s->rule->eta);
    FXI_SCOPE;
    fx_array *m = next_state(s, 0, average(b.beta1, b.rest1, s->states[0], s->dx));
    fx_array *away = fx_square(fx_sub(s->dx, m));
    fx_array *v = next_state(s, 1, fx_add(average(b.beta2, b.rest2, s->states[1], away), epsilon));
    return fx_keep(fx_mul(direction(&c, m, v, epsilon), eta));
}

/* ---- rules that change a gradient ------------------------------------------------------------ */

/* dx′ = dx + λx, the gradient of ½λ‖x‖². */
fx_array *fxi_apply_weight_decay(fxi_application *s)
{
    fx_array *lambda = L(s->rule->lambda);
    FXI_SCOPE;
    return fx_keep(fx_add(s->dx, fx_mul(lambda, s->x)));
}

/* dx′ = dx + λ·sign(x), the gradient of λ·Σ|x|. */
fx_array *fxi_apply_sign_decay(fxi_application *s)
{
    fx_array *lambda = L(s->rule->lambda), *back = L(-s->rule->lambda), *zero = L(0);
    FXI_SCOPE;
    return fx_keep(fx_add(s->dx, with_sign(s->x, lambda, back, zero)));
}

fx_array *fxi_apply_clip_grad(fxi_application *s)
{
    fx_array *least = L(-s->rule->delta), *most = L(s->rule->delta);
    return fx_clamp(s->dx, least, most);
}

/* Adds a number that must be finite. */
static void must_be_finite(fxi_application *s, const fx_rule *rule, fx_array *norm)
{
    fxi_checks *all = s->norms;
    if (all->n == all->capacity) {
        const int64_t grown = all->capacity ? 2 * all->capacity : 32;
        fxi_checked *p = fxi_realloc(all->all, (size_t)grown * sizeof *p);
        all->no_memory |= !p;
        if (!p)
            return;
        all->all = p;
        all->capacity = grown;
    }
    all->all[all->n++] = (fxi_checked){norm, rule, s->x};
}

/* Powers of numbers beyond 2⁴⁰ or below 2⁻⁴⁰, and their sums, can leave the range of Float32. Other
 * numbers are divided by 1, which changes no bit: the norm is then that of Optimisers.jl. */
fx_array *fxi_norm_scale(fx_array *largest)
{
    fx_array *huge = fx_and(fx_gt(largest, 0x1p40), fx_isfinite(largest)),
             *tiny = fx_and(fx_lt(largest, 0x1p-40), fx_gt(largest, 0));
    return fx_where(fx_or(huge, tiny), largest, 1);
}

/* (Σ|x|ᵖ)^(1/p) as a 0-d array, Julia's norm(x, p): p = 0 counts the elements that are not 0. A
 * norm of 16-bit numbers is computed in Float32, whose range it needs. */
static fx_array *norm_of(fx_array *x, double p)
{
    const bool narrow = fx_eltype(x) == FX_DTYPE_F16 || fx_eltype(x) == FX_DTYPE_BF16;
    x = narrow ? fx_cast(x, FX_DTYPE_F32) : x;
    fx_array *size = fx_abs(x);
    if (p == 0)
        return fx_sum(fx_cast(fx_ne(x, 0), fx_eltype(x)));
    if (p == 1)
        return fx_sum(size);
    fx_array *largest = fx_maximum(size);
    if (isinf(p))
        return p > 0 ? largest : fx_minimum(size);
    fx_array *scale = fxi_norm_scale(largest);
    size = fx_div(size, scale);
    return fx_mul(scale, p == 2 ? fx_norm(size) : fx_pow(fx_sum(fx_pow(size, p)), 1 / p));
}

fx_array *fxi_norm_factor(fx_array *literal, double most, fx_array *norm)
{
    return fx_min(most > 0 ? fx_div(literal, norm) : fx_mul(literal, norm), 1);
}

/* dx′ = dx·min(ω/‖dx‖, 1): a long gradient keeps its direction (Pascanu, Mikolov, Bengio, 2013). */
fx_array *fxi_apply_clip_norm(fxi_application *s)
{
    const fx_rule *r = s->rule;
    fx_array *most = L(r->omega);
    FXI_SCOPE;
    if (fx_length(s->dx) == 0)
        return s->dx;
    fx_array *norm = fx_keep(norm_of(s->dx, r->p));
    if (r->throws)
        must_be_finite(s, r, norm);
    fx_array *factor = fxi_norm_factor(most, r->omega, norm);
    return fx_keep(fx_mul(s->dx, fx_cast(factor, fx_eltype(s->dx))));
}

/* sum ← sum + dx/n; the n-th call returns the mean, and the next one begins a new sum. Other calls
 * return NULL: the parameter does not change, and later rules of a chain do not run. */
fx_array *fxi_apply_accum_grad(fxi_application *s)
{
    const fx_rule *r = s->rule;
    fx_array *n = L((double)r->n);
    const bool first = s->numbers[0] <= 1, full = s->numbers[0] >= (double)r->n;
    s->numbers[0] = full ? 1 : s->numbers[0] + 1;
    FXI_SCOPE;
    fx_array *part = s->total ? s->dx : fx_div(s->dx, n);
    fx_array *sum = next_state(s, 0, first || s->total ? part : fx_add(s->states[0], part));
    return full ? sum : NULL;
}

/* ---- rules of rules -------------------------------------------------------------------------- */

/* Each rule gets the result of the previous one as its gradient, and its part of the lists of
 * states and numbers. A rule that returns NULL ends the chain. */
fx_array *fxi_apply_optimiser_chain(fxi_application *s)
{
    fx_array *dx = s->dx;
    fxi_application inner = *s;
    for (int64_t i = 0; i < s->rule->rules.n && dx; i++) {
        inner.rule = s->rule->rules.items[i];
        inner.dx = dx;
        dx = fxi_rule_apply(&inner);
        inner.total = false;
        const int n = fxi_rule_nstates(inner.rule, fx_eltype(s->x));
        inner.states += n;
        inner.new_states += n;
        inner.numbers += fxi_rule_nnumbers(inner.rule);
    }
    return dx;
}

/* The rule works on a copy of the parameter in r->type; the 16-bit parameter is the copy, rounded.
 * A change below half of the last bit of the parameter would be lost without the copy. The gradient
 * is divided by the factor of the loss only in r->type, because it could vanish in Float16
 * (Micikevicius et al., 2018). */
fx_array *fxi_apply_mixed_precision(fxi_application *s)
{
    const fx_rule *r = s->rule;
    const bool copy = fx_eltype(s->x) != r->type;
    fxi_application inner = *s;
    inner.rule = r->rules.items[0];
    inner.dx = fx_cast(s->dx, r->type);
    if (r->scale != 1 || r->growth) {
        if (fx_length(inner.dx) > 0) /* an empty array has no maximum */
            must_be_finite(s, NULL, norm_of(inner.dx, INFINITY));
        inner.dx = fx_div(inner.dx, L(r->scale));
    }
    if (!copy)
        return fxi_rule_apply(&inner);
    inner.x = s->states[0];
    inner.states++;
    inner.new_states++;
    fx_array *change = fxi_rule_apply(&inner);
    if (!change)
        return NULL;
    s->new_states[0] = fx_sub(s->states[0], change);
    s->new_x = fx_cast(s->new_states[0], fx_eltype(s->x));
    return change;
}
