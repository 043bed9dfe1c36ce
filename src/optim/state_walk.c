/* state_walk.c: visits the leaves of an optimiser state, to change or to list their numbers. */
#include "context.h"
#include "error.h"
#include "evaluate.h"
#include "memory.h"
#include "option_struct.h"
#include "update_items.h"

#include <math.h>
#include <string.h>

/* ---- adjusting a state ----------------------------------------------------------------------- */

typedef void (*leaf_fn)(fxi_state_leaf *l, void *user);
typedef struct leaves {
    leaf_fn f;
    void *user;
    bool every_path; /* visit a leaf once for every path to it */
    int64_t most, n; /* maximum number of leaves (0: no limit), and the number so far */
    bool other;      /* the state contains objects other than leaves and tuples */
} leaves;

static fx_walk meet_leaf(const fx_spot *at, void *user)
{
    leaves *all = user;
    void *x = at->objects[0];
    if (fxi_is_leaf(x) && !fx_is_error(x)) {
        if (all->n++ == all->most && all->most)
            return FX_WALK_STOP;
        all->f(x, all->user);
        return FX_WALK_TAKE;
    }
    all->other |= x && (fx_is_error(x) || !(fx_type_of(x)->flags & FX_TYPE_TUPLE));
    return fx_has_children(x) ? FX_WALK_ENTER : FX_WALK_PASS;
}

/* Calls f for the leaves of a state. False (not recorded) if the object did not come from fx_setup.
 * A state without leaves belongs to a model without parameters and consists of tuples only. */
static bool walk_leaves(leaves *all, void *state, fx_status *out)
{
    const fx_tree_walker how = {
        .op = "update", .meet = meet_leaf, .every_path = all->every_path, .user = all};
    *out = state ? fx_tree_walk(&how, &state) : FX_OK;
    return state && (all->n > 0 || !all->other);
}

/* Calls f once for every leaf, even if several paths lead to it. */
static fx_status each_leaf(const char *op, void *state, leaf_fn f, void *user)
{
    leaves all = {.f = f, .user = user};
    fx_status status;
    if (!state)
        return fx_fail(FX_STATUS_ARGUMENT, op, "the optimiser state is NULL");
    if (walk_leaves(&all, state, &status) || status != FX_OK)
        return status;
    return fx_fail(FX_STATUS_ARGUMENT, op,
                   "`%s` must not be applied to a model, only to the state tree from fx_setup", op);
}

/* Checks that the rule of a leaf has all given numbers. */
static void check_given(fxi_state_leaf *l, void *user)
{
    const fx_adjust_args **given = user;
    const char *lacks = *given ? fxi_rule_lacks(l->rule, *given) : NULL;
    char rule[512];
    if (!lacks)
        return;
    fx_summary(l->rule, rule, sizeof rule);
    fx_fail(FX_STATUS_ARGUMENT, "adjust", "%s has no %s", rule, lacks);
    *given = NULL;
}

typedef struct adjustment {
    const fx_adjust_args *given;
    fx_rule *old, *new; /* the rule replaced most recently: leaves of one setup share their rule */
    fx_status status;
} adjustment;

static void adjust(fxi_state_leaf *l, void *user)
{
    adjustment *a = user;
    if (a->status != FX_OK)
        return;
    if (l->rule != a->old) {
        a->old = l->rule;
        a->new = fxi_rule_with(l->rule, a->given);
        if (fx_is_error(a->new)) {
            a->status = fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_MEMORY;
            return;
        }
    }
    fx_rule *rule = fx_retain(a->new);
    fx_release(l->rule);
    l->rule = rule;
}

fx_status fxi_adjust(void *state, const fx_adjust_args *given)
{
    FXI_SCOPE;
    FXI_TAKE_OPTIONS(fx_adjust_args, FXI_ADJUST_ARGS, numbers, "adjust", given);
    if (!numbers_ok)
        return FX_STATUS_ARGUMENT;
    const fx_adjust_args *checked = &numbers;
    fx_status status = each_leaf("adjust", state, check_given, &checked);
    if (status != FX_OK || !checked)
        return checked ? status : FX_STATUS_ARGUMENT;
    adjustment a = {.given = &numbers, .status = FX_OK};
    status = each_leaf("adjust", state, adjust, &a);
    return a.status == FX_OK ? status : a.status;
}

fx_status fx_adjust_eta(void *state, double eta)
{
    if (isnan(eta)) /* FX_UNCHANGED of fx_adjust */
        return fx_fail(FX_STATUS_ARGUMENT, "adjust_eta", "the learning rate is NaN");
    return fx_adjust(state, .eta = eta);
}

static void take_eta(fxi_state_leaf *l, void *user)
{
    double *eta = user;
    *eta = isnan(*eta) ? fxi_rule_eta(l->rule) : *eta;
}

double fx_eta(void *state)
{
    double eta = NAN;
    fx_status unused;
    leaves all = {.f = take_eta, .user = &eta, .most = 1};
    walk_leaves(&all, state, &unused);
    return isnan(eta) ? 0 : eta;
}

static void set_frozen(fxi_state_leaf *l, void *user)
{
    l->frozen = *(const bool *)user;
}

fx_status fx_freeze(void *state)
{
    bool frozen = true;
    return each_leaf("freeze", state, set_frozen, &frozen);
}

fx_status fx_thaw(void *state)
{
    bool frozen = false;
    return each_leaf("thaw", state, set_frozen, &frozen);
}

/* ---- the factor of the loss ------------------------------------------------------------------ */

typedef struct rescaling {
    bool finite;
    fx_rule *old, *new; /* the rule replaced most recently: leaves of one setup share their rule */
    fx_status status;
} rescaling;

static void rescale(fxi_state_leaf *l, void *user)
{
    rescaling *r = user;
    if (l->rule != r->old) {
        r->old = l->rule;
        r->new = fxi_rule_rescaled(l->rule, r->finite);
        if (r->new &&fx_is_error(r->new)) {
            r->status = FX_STATUS_MEMORY;
            r->new = NULL;
        }
    }
    if (!r->new)
        return;
    fx_rule *rule = fx_retain(r->new);
    fx_release(l->rule);
    l->rule = rule;
}

fx_status fxi_states_rescale(int n, void *const *states, bool finite)
{
    FXI_SCOPE;
    rescaling r = {.finite = finite, .status = FX_OK};
    for (int i = 0; i < n && r.status == FX_OK; i++) {
        const fx_status status = each_leaf("update", states[i], rescale, &r);
        r.status = r.status == FX_OK ? status : r.status;
    }
    return r.status;
}

static void take_loss_scale(fxi_state_leaf *l, void *user)
{
    double *scale = user;
    *scale = l->rule->growth > 0 ? l->rule->scale : *scale;
}

double fx_loss_scale(void *state)
{
    double scale = 0;
    fx_status unused;
    leaves all = {.f = take_loss_scale, .user = &scale, .most = 1};
    walk_leaves(&all, state, &unused);
    return scale;
}

/* ---- members that wait ----------------------------------------------------------------------- */

static void find_among(fxi_state_leaf *l, void *user)
{
    const fx_communicator **among = user;
    *among = *among ? *among : fxi_rule_among(l->rule);
}

void fxi_states_refuse(int n, void *const *states, fx_status status)
{
    const fx_communicator *among = NULL;
    /* The walk records an error if an argument is not a state; that error is dropped. */
    const fx_error own = fxi_error_begin();
    for (int i = 0; i < n && !among; i++)
        each_leaf("update", states[i], find_among, &among);
    fxi_error_end(&own);
    if (!among)
        return;
    if (among->refuse)
        among->refuse(among, status, own.message);
    /* The pending collective operation has failed on all members, so the next one need not run
     * after it. */
    fxi_context *here = fxi_here();
    if (here->collective)
        fxi_node_release(here->collective);
    here->collective = NULL;
}

/* The unfinished sums of AccumGrads. */
typedef struct sums {
    fx_array **handles;
    int64_t n, capacity;
    bool no_memory;
} sums;

static void take_sum(fxi_state_leaf *l, void *user)
{
    sums *s = user;
    const int at = fxi_leaf_sum(l);
    if (at < 0 || l->numbers[0] <= 1 || s->no_memory)
        return;
    s->no_memory = !fxi_update_grow(&s->handles, &s->capacity, s->n, sizeof *s->handles);
    if (!s->no_memory)
        s->handles[s->n++] = l->states.items[at];
}

fx_status fxi_states_settle(const fx_communicator *among, void *state)
{
    FXI_SCOPE;
    sums s = {.n = 0};
    fx_status status = each_leaf("update", state, take_sum, &s);
    fx_array **means = fxi_malloc(((size_t)s.n + 1) * sizeof *means);
    if (status == FX_OK && (!means || s.no_memory))
        status = fxi_update_no_memory();
    for (int64_t i = 0; i < s.n && status == FX_OK; i++)
        means[i] = s.handles[i];
    if (status == FX_OK && s.n > 0)
        status = fxi_average_arrays(among, s.n, means);
    if (status == FX_OK && s.n > 0)
        status = fxi_commit((int)s.n, s.handles, means, NULL, false);
    fxi_free(means);
    fxi_free(s.handles);
    return status;
}

/* ---- a state's numbers ----------------------------------------------------------------------- */

/* A leaf's numbers are those of its rule (fxi_rule_numbers_out), those of its state (at least two,
 * 0 where the rule has fewer, as older files have them), and whether it is frozen. */
static int state_numbers(const fxi_state_leaf *l)
{
    const int n = fxi_rule_nnumbers(l->rule);
    return n > 2 ? n : 2;
}

static int64_t leaf_size(const fxi_state_leaf *l)
{
    return fxi_rule_numbers_out(l->rule, NULL, 0) + state_numbers(l) + 1;
}

typedef struct numbering {
    double *out;
    const double *in;
    int64_t n, capacity;
    const double *previous;     /* numbers of the previous leaf */
    const fx_rule *rule_before; /* its rule */
    int64_t nrules;
    fx_rule **rules;  /* new rule of each leaf; all are made before any leaf changes */
    bool keep_frozen; /* the frozen flags do not change */
    fx_status status;
} numbering;

static void note_numbers(fxi_state_leaf *l, void *user)
{
    numbering *g = user;
    const int64_t size = leaf_size(l), state = state_numbers(l);
    if (g->n + size <= g->capacity) {
        double *rest = g->out + g->n + size - state - 1;
        fxi_rule_numbers_out(l->rule, g->out + g->n, size - state - 1);
        memcpy(rest, l->numbers, (size_t)state * sizeof *rest);
        rest[state] = l->frozen;
    }
    g->n += size;
}

int64_t fxi_state_numbers(void *state, double *out, int64_t capacity)
{
    numbering g = {.out = out, .capacity = capacity};
    leaves all = {.f = note_numbers, .user = &g};
    fx_status status;
    const bool is_state = walk_leaves(&all, state, &status);
    return status != FX_OK ? -2 : is_state ? g.n : -1;
}

static fx_status fail_rule(fx_rule *rule)
{
    char text[200];
    fx_summary(rule, text, sizeof text);
    return fx_fail(FX_STATUS_ARGUMENT, "optimiser state",
                   "the other state belongs to another rule than %s", text);
}

/* Makes the new rule of a leaf. Consecutive leaves share it if they share their old rule and have
 * equal numbers. */
static void prepare_rule(fxi_state_leaf *l, void *user)
{
    numbering *g = user;
    const double *x = g->in + g->n, *before = g->previous;
    const int64_t i = g->nrules++, n = fxi_rule_numbers_out(l->rule, NULL, 0), size = leaf_size(l);
    const bool same = l->rule == g->rule_before;
    g->previous = x;
    g->rule_before = l->rule;
    g->n += size;
    if (g->status != FX_OK)
        return;
    if (same && memcmp(x, before, (size_t)n * sizeof *x) == 0) {
        g->rules[i] = g->rules[i - 1];
        return;
    }
    g->rules[i] = fxi_rule_numbers_in(l->rule, x);
    if (!g->rules[i])
        g->status = fail_rule(l->rule);
    else if (fx_is_error(g->rules[i]))
        g->status = fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_MEMORY;
}

static void take_numbers(fxi_state_leaf *l, void *user)
{
    numbering *g = user;
    const int64_t size = leaf_size(l), state = state_numbers(l);
    const double *x = g->in + g->n + size - state - 1;
    fx_rule *rule = fx_retain(g->rules[g->nrules++]);
    g->n += size;
    fx_release(l->rule);
    l->rule = rule;
    memcpy(l->numbers, x, (size_t)state * sizeof *x);
    l->frozen = g->keep_frozen ? l->frozen : x[state] != 0;
}

static void count_leaf(fxi_state_leaf *l, void *user)
{
    *(int64_t *)user += leaf_size(l);
}

enum { SMALLEST_LEAF = 11 }; /* numbers of a leaf with a simple rule */

/* True if n is the count with the numbers of each leaf repeated for every path to it, as older
 * files have them. */
static bool fits_every_path(void *state, int64_t n)
{
    int64_t has = 0;
    leaves all = {.f = count_leaf, .user = &has, .every_path = true, .most = n / SMALLEST_LEAF};
    fx_status status;
    return n > 0 && walk_leaves(&all, state, &status) && status == FX_OK && has == n &&
           all.n <= all.most; /* the walk did not end early */
}

fx_status fxi_state_numbers_set(void *state, const double *numbers, int64_t n, bool keep_frozen)
{
    FXI_SCOPE;
    const int64_t has = fxi_state_numbers(state, NULL, 0);
    const bool every_path = has >= 0 && has != n && fits_every_path(state, n);
    if (has < 0)
        return has == -2 ? fx_error_status()
                         : fx_fail(FX_STATUS_ARGUMENT, "optimiser state",
                                   "the state was not made by fx_setup");
    if (has != n && !every_path)
        return fx_fail(FX_STATUS_ARGUMENT, "optimiser state",
                       "the other state has %lld numbers, but this one %lld: their models or rules "
                       "differ",
                       (long long)n, (long long)has);
    numbering g = {.in = numbers,
                   .keep_frozen = keep_frozen,
                   .rules = fxi_calloc((size_t)n / SMALLEST_LEAF + 1, sizeof(void *))};
    if (!g.rules)
        return fxi_update_no_memory();
    leaves all = {.f = prepare_rule, .user = &g, .every_path = every_path};
    fx_status status;
    walk_leaves(&all, state, &status);
    g.status = g.status == FX_OK ? status : g.status;
    g.n = g.nrules = 0;
    all.f = take_numbers;
    if (g.status == FX_OK)
        walk_leaves(&all, state, &g.status);
    fxi_free(g.rules);
    return g.status;
}
