/* update.c: optimiser states and the update of parameters.
 *
 * The state mirrors the model: named tuples where the model has children, one leaf per distinct
 * trainable array; the leaf of a tied array appears everywhere the array does. The update walks
 * state, model and gradient side by side, lets the rule build the new values as lazy nodes, and
 * passes everything to fxi_commit, which computes it in one plan and rebinds the handles, or
 * changes nothing. A view of a parameter has no state; it becomes the same view of the new value.
 */
#include "error.h"
#include "evaluate.h"
#include "julia_number.h"
#include "memory.h"
#include "option_struct.h"
#include "rules.h"
#include "state_parts.h"
#include "tape.h"
#include "ties.h"
#include "tuples.h"

#include <cflux/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The optimiser's state for one array. */
typedef struct leaf {
    fx_object base;
    fx_rule *rule;
    fx_list states; /* the arrays of the state */
    double numbers[FXI_RULE_NUMBERS];
    bool frozen;
    int64_t item; /* index in the update in progress; −1 between updates */
} leaf;

static const fx_field leaf_fields[] = {
    {"rule", offsetof(leaf, rule), FX_FIELD_SHARED, false},
    {"states", offsetof(leaf, states), FX_FIELD_LIST, false},
    {"frozen", offsetof(leaf, frozen), FX_FIELD_FLAG, false},
};
static leaf leaf_error;

static void add_summary(fx_text *text, void *object)
{
    char one[256];
    fx_summary(object, one, sizeof one);
    fx_text_add(text, "%s", one);
}

/* The position in a state while it is printed. */
typedef struct cursor {
    void *const *states;
    const double *numbers;
} cursor;

static void add_part(fx_text *text, char kind, cursor *at)
{
    char a[FXI_NUMBER_TEXT], b[FXI_NUMBER_TEXT];
    if (kind == 'b') {
        fx_text_add(text, "(%s, %s)", fxi_float64_text(at->numbers[0], a),
                    fxi_float64_text(at->numbers[1], b));
        at->numbers += 2;
    } else if (kind == 't')
        fx_text_add(text, "%.0f", *at->numbers++);
    else if (kind == 'f')
        fx_text_add(text, "false");
    else
        add_summary(text, *at->states++);
}

/* Prints the state of a rule as Optimisers.jl does, with sizes instead of arrays. */
static void add_state(fx_text *text, const fx_rule *r, bool copy, cursor *at)
{
    const fx_list *inner = fxi_rule_parts(r);
    const char *parts = fxi_rule_state(r);
    fx_dtype type;
    if (inner && fxi_rule_is_mixed(r, &type)) {
        if (copy) {
            fx_text_add(text, "(");
            add_summary(text, *at->states++);
            fx_text_add(text, ", ");
        }
        add_state(text, inner->items[0], false, at);
        fx_text_add(text, copy ? ")" : "");
        return;
    }
    const int64_t n = inner ? inner->n : (int64_t)strlen(parts);
    const bool tuple = inner || n > 1;
    fx_text_add(text, n == 0 && !inner ? "nothing" : tuple ? "(" : "");
    for (int64_t i = 0; i < n; i++) {
        fx_text_add(text, i ? ", " : "");
        if (inner)
            add_state(text, inner->items[i], false, at);
        else
            add_part(text, parts[i], at);
    }
    fx_text_add(text, !tuple ? "" : inner && n == 1 ? ",)" : ")");
}

/* Leaf(Adam(…), (3×2 Matrix{Float32}, 3×2 Matrix{Float32}, (0.9, 0.999))) */
static void leaf_describe(const void *self, fx_text *text)
{
    const leaf *l = self;
    fx_text_add(text, "Leaf(");
    if (!fxi_is_rule(l->rule))
        add_summary(text, l->rule);
    else {
        fx_type_of(l->rule)->describe(l->rule, text); /* a chain may be longer than a summary */
        /* the type of the parameter is not known here: a copy is one array more */
        const bool copy = l->states.n > fxi_rule_nstates(l->rule, fxi_rule_state_type(l->rule, 0));
        fx_text_add(text, ", ");
        add_state(text, l->rule, copy, &(cursor){l->states.items, l->numbers});
    }
    fx_text_add(text, l->frozen ? ", frozen = true)" : ")");
}

static const fx_type leaf_type = {.fxi_size = sizeof(fx_type),
                                  .name = "Leaf",
                                  .size = sizeof(leaf),
                                  .fields = leaf_fields,
                                  .nfields = (int)(sizeof leaf_fields / sizeof leaf_fields[0]),
                                  .describe = leaf_describe,
                                  .error = &leaf_error};

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "update", "no memory");
}

/* Grows *array by doubling so that it can hold n + 1 items. */
static bool room(void *array, int64_t *capacity, int64_t n, size_t size)
{
    if (n < *capacity)
        return true;
    const int64_t grown = *capacity ? 2 * *capacity : 32;
    void **at = array, *p = fxi_realloc(*at, (size_t)grown * size);
    if (!p)
        return false;
    *at = p;
    *capacity = grown;
    return true;
}

/* ---- setup ----------------------------------------------------------------------------------- */

typedef struct pair {
    const fx_array *array;
    leaf *leaf;
} pair;

typedef struct setup {
    fxi_leaf_fn leaf_of; /* fills in the leaf of an array */
    void *user;
    pair *pairs; /* the trained arrays; sorted by address once all are known */
    int64_t n, capacity;
    fx_status status;
} setup;

static leaf *make_leaf(const fxi_leaf *parts)
{
    leaf init = {.rule = parts->rule,
                 .states = {parts->nstates, (void **)(uintptr_t)parts->states, NULL},
                 .frozen = parts->frozen,
                 .item = -1};
    memcpy(init.numbers, parts->numbers, sizeof init.numbers);
    return fxi_new(&leaf_type, &init);
}

bool fxi_leaf_of(const void *object, fxi_leaf *out)
{
    if (!fx_is(object, &leaf_type) || object == &leaf_error)
        return false;
    const leaf *l = object;
    *out = (fxi_leaf){.rule = l->rule, .nstates = (int)l->states.n, .frozen = l->frozen};
    memcpy(out->numbers, l->numbers, sizeof out->numbers);
    for (int i = 0; i < out->nstates; i++)
        out->states[i] = l->states.items[i];
    return true;
}

/* The initial state of a rule. */
static fx_status fresh_leaf(fx_array *x, fxi_leaf *out, void *rule)
{
    *out = (fxi_leaf){.rule = rule, .nstates = fxi_rule_nstates(rule, fx_eltype(x))};
    fxi_rule_init(rule, x, out->states, out->numbers);
    return FX_OK;
}

static bool like(const fx_array *x, const fx_array *state, fx_dtype type)
{
    bool same = fx_eltype(state) == type && fx_ndims(x) == fx_ndims(state);
    for (int i = 0; i < fx_ndims(x) && same; i++)
        same = fx_size(x, i) == fx_size(state, i);
    return same;
}

static fx_status check_leaf(const fx_array *x, const fxi_leaf *parts)
{
    bool good =
        fxi_is_rule(parts->rule) && parts->nstates == fxi_rule_nstates(parts->rule, fx_eltype(x));
    const fx_dtype type = good ? fxi_rule_state_type(parts->rule, fx_eltype(x)) : FX_DTYPE_F32;
    for (int i = 0; i < parts->nstates && good; i++) {
        if (fx_is_error(parts->states[i]))
            return fx_array_status(parts->states[i]);
        good = like(x, parts->states[i], type);
    }
    return good ? FX_OK
                : fx_fail(FX_STATUS_ARGUMENT, "setup", "the state does not match its parameter");
}

static void note_array(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    setup *s = user;
    fxi_leaf parts = {.rule = NULL};
    if (!trainable || s->status != FX_OK)
        return;
    s->status = fx_is_error(x) ? fx_array_status(x) : s->leaf_of(x, &parts, s->user);
    if (s->status == FX_OK)
        s->status = check_leaf(x, &parts);
    if (s->status != FX_OK)
        return;
    leaf *l = make_leaf(&parts);
    if (fx_is_error(l) || !room(&s->pairs, &s->capacity, s->n, sizeof *s->pairs))
        s->status = no_memory();
    else
        s->pairs[s->n++] = (pair){x, l};
}

static int by_address(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return (uintptr_t)x->array < (uintptr_t)y->array ? -1
                                                     : (uintptr_t)x->array > (uintptr_t)y->array;
}

/* Maps a trained array to its leaf, and everything else without children to the empty tuple. */
static void *leaf_or_nothing(void *x, void *user)
{
    const setup *s = user;
    const pair key = {x, NULL};
    const pair *p =
        x && s->n ? bsearch(&key, s->pairs, (size_t)s->n, sizeof key, by_address) : NULL;
    return p ? (void *)p->leaf : fxi_tuple(0, NULL);
}

void *fxi_setup_with(void *model, fxi_leaf_fn leaf_of, void *user)
{
    setup s = {.leaf_of = leaf_of, .user = user};
    if (fx_is_error(model))
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "setup", "the model is an error object"));
    void *state = NULL;
    {
        FXI_SCOPE;
        const fx_error earlier = fxi_error_begin();
        fx_visit(model, note_array, &s);
        const fx_status status = fxi_error_end(&earlier); /* of walks that failed */
        if (s.status == FX_OK)
            s.status = status;
        if (s.status == FX_OK && s.n > 0)
            qsort(s.pairs, (size_t)s.n, sizeof *s.pairs, by_address);
        if (s.status == FX_OK && s.n == 0)
            fx_message(1, "setup found no trainable parameters in this model");
        if (s.status == FX_OK)
            state = fx_keep(fxi_mirror("setup", model, leaf_or_nothing, &s));
    }
    fxi_free(s.pairs);
    return s.status == FX_OK ? state : fx_error_array(s.status);
}

void *fx_setup(fx_rule *rule, void *model)
{
    if (fxi_rule_info_of(rule))
        return fxi_setup_with(model, fresh_leaf, rule);
    return fx_error_array(
        fx_is_error(rule) && fx_error_status() != FX_OK
            ? fx_error_status()
            : fx_fail(FX_STATUS_ARGUMENT, "setup", "the first argument is not an optimiser rule"));
}

/* ---- collecting what an update works on ------------------------------------------------------ */

typedef struct item {
    leaf *leaf;
    fx_array *x, *gradient;
    /* the new array and its new states; NULL: unchanged */
    fx_array *values[1 + FXI_RULE_STATES];
    double numbers[FXI_RULE_NUMBERS];
} item;

typedef struct items {
    item *all;
    int64_t n, capacity;
    fx_array **views; /* arrays that may be views of updated arrays */
    int64_t nviews, view_capacity;
    fx_status status;
} items;

/* A gradient must have the size of its parameter: broadcasting a smaller one would train silently
 * on wrong values. */
static fx_status check_gradient(const fx_array *x, const fx_array *g)
{
    char a[128], b[128];
    bool same = fx_ndims(x) == fx_ndims(g);
    for (int i = 0; i < fx_ndims(x) && same; i++)
        same = fx_size(x, i) == fx_size(g, i);
    if (same)
        return FX_OK;
    fx_summary((void *)(uintptr_t)g, a, sizeof a);
    fx_summary((void *)(uintptr_t)x, b, sizeof b);
    return fx_fail(FX_STATUS_SHAPE, "update", "the gradient is a %s, but its parameter is a %s", a,
                   b);
}

static void add_item(items *s, leaf *l, fx_array *x, fx_array *g)
{
    if (l->frozen || !g)
        return;
    if (fx_is_error(x) || fx_is_error(g)) {
        s->status = fx_is_error(x) ? fx_array_status(x) : fx_array_status(g);
        return;
    }
    s->status = check_gradient(x, g);
    if (s->status != FX_OK)
        return;
    if (l->item >= 0) { /* a tied array: add this gradient to the earlier one */
        item *it = &s->all[l->item];
        if (it->gradient != g)
            it->gradient = fx_add(it->gradient, g);
        return;
    }
    if (!room(&s->all, &s->capacity, s->n, sizeof *s->all)) {
        s->status = no_memory();
        return;
    }
    l->item = s->n;
    s->all[s->n++] = (item){.leaf = l, .x = x, .gradient = g};
}

static fx_status mismatch(const char *what)
{
    return fx_fail(FX_STATUS_ARGUMENT, "update", "the %s does not have the model's structure",
                   what);
}

static void note_view(items *s, fx_array *x)
{
    if (!fxi_is_view(x))
        return;
    if (room(&s->views, &s->view_capacity, s->nviews, sizeof *s->views))
        s->views[s->nviews++] = x;
    else
        s->status = no_memory();
}

/* Adds a leaf of the state with its array and gradient. An array without a gradient is only checked
 * for being a view. */
static void take_leaf(items *s, leaf *l, void *x, void *g)
{
    if (!g)
        return;
    if (!fx_is_array(x) || !fx_is_array(g))
        s->status = mismatch(fx_is_array(x) ? "gradient" : "state");
    else
        add_item(s, l, x, g);
}

/* Visits corresponding positions of state, model and gradient. */
static fx_walk collect(const fx_spot *at, void *user)
{
    items *s = user;
    void *state = at->objects[0], *x = at->objects[1], *g = at->objects[2];
    if (!state || !x)
        return FX_WALK_PASS;
    const int64_t n = fx_is_array(state) ? 0 : fx_count(state);
    const bool is_leaf = fx_is(state, &leaf_type);
    if (is_leaf)
        take_leaf(s, state, x, g);
    else if (fx_is_array(state))
        s->status = mismatch("state");
    else if (n > 0 && (fx_count(x) != n || (g && fx_count(g) != n)))
        s->status = mismatch(fx_count(x) != n ? "state" : "gradient");
    else if (fx_is_array(x))
        note_view(s, x);
    if (s->status != FX_OK)
        return FX_WALK_STOP;
    return is_leaf || fx_is_array(x) ? FX_WALK_PASS : FX_WALK_ENTER;
}

static void gather_items(items *s, void *state, void *model, void *gradient)
{
    if (fxi_rule_info_of(state)) {
        s->status = fx_fail(FX_STATUS_ARGUMENT, "update",
                            "Invalid input to `update`. fx_update(state, model, gradient) needs "
                            "state = fx_setup(rule, model)");
        return;
    }
    void *const all[] = {state, model, gradient};
    static const char *const names[] = {"state", "model", "gradient"};
    for (int i = 0; i < 3; i++) {
        if (!all[i])
            s->status = fx_fail(FX_STATUS_ARGUMENT, "update", "the %s is NULL", names[i]);
        else if (fx_is_error(all[i]) && fx_is_array(all[i]))
            s->status = fx_array_status(all[i]);
        else if (fx_is_error(all[i]))
            s->status = fx_error_status() != FX_OK ? fx_error_status()
                                                   : fx_fail(FX_STATUS_ARGUMENT, "update",
                                                             "the %s is an error object", names[i]);
        if (s->status != FX_OK)
            return;
    }
    if (fx_type_of(gradient) != fx_type_of(model)) {
        s->status = mismatch("gradient");
        return;
    }
    const fx_tree_walker how = {.op = "update", .trees = 3, .meet = collect, .user = s};
    const fx_status status = fx_tree_walk(&how, all);
    if (s->status == FX_OK)
        s->status = status;
}

static void items_done(items *s)
{
    for (int64_t i = 0; i < s->n; i++)
        s->all[i].leaf->item = -1;
    fxi_free(s->all);
    fxi_free(s->views);
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Builds the new array and the new states of an item. */
static fx_status apply(item *it, fxi_literals *literals, fxi_checks *norms)
{
    const leaf *l = it->leaf;
    memcpy(it->numbers, l->numbers, sizeof it->numbers);
    fxi_literals_begin(literals, l->rule, fx_eltype(it->x), l->numbers);
    fxi_step s = {.rule = l->rule,
                  .x = it->x,
                  .dx = it->gradient,
                  .states = (fx_array *const *)l->states.items,
                  .new_states = it->values + 1,
                  .numbers = it->numbers,
                  .literals = literals,
                  .norms = norms};
    fx_array *step = fxi_rule_apply(&s);
    if (step)
        it->values[0] = s.new_x ? s.new_x : fx_sub(it->x, step);
    for (int i = 0; i <= l->states.n; i++)
        if (it->values[i] && fx_is_error(it->values[i]))
            return fx_array_status(it->values[i]);
    return norms->no_memory ? no_memory() : FX_OK;
}

/* In a recorded step, parameters with the literals of the one before them repeat their part of the
 * tape without making its calls (recorded_rule.c). */
static fx_status apply_or_repeat(items *s, int64_t i, fxi_literals *literals, fxi_checks *norms)
{
    item *it = &s->all[i];
    const leaf *l = it->leaf;
    fxi_context *c = fxi_here();
    const fxi_rule_call call = {.rule = l->rule,
                                .x = it->x,
                                .dx = it->gradient,
                                .states = (fx_array *const *)l->states.items,
                                .nstates = (int)l->states.n,
                                .values = it->values};
    const bool shared = i > 0 && fxi_literals_kept(literals, l->rule, fx_eltype(it->x), l->numbers);
    if (shared && fxi_tape_repeats(c) && fxi_repeat_rule(c, &call)) {
        memcpy(it->numbers, s->all[i - 1].numbers, sizeof it->numbers);
        for (int k = 0; k <= call.nstates; k++)
            if (it->values[k] && fx_is_error(it->values[k]))
                return fx_array_status(it->values[k]);
        return FX_OK;
    }
    const int32_t first = fxi_tape_notes(c) ? c->tape->n : -1;
    const int64_t nnorms = norms->n;
    const fx_status status = apply(it, literals, norms);
    if (first >= 0 && status == FX_OK && fxi_tape_notes(c) && norms->n == nnorms)
        fxi_note_rule(c, first, shared, &call);
    return status;
}

/* Keeps the old values where `ok` is false. */
static fx_status select_values(item *it, fx_array *ok)
{
    for (int i = 0; i <= it->leaf->states.n; i++) {
        fx_array *old = i ? it->leaf->states.items[i - 1] : it->x;
        if (it->values[i])
            it->values[i] = fx_where(ok, it->values[i], old);
        if (it->values[i] && fx_is_error(it->values[i]))
            return fx_array_status(it->values[i]);
    }
    return FX_OK;
}

/* True if the guard and all norms are finite, as a 0-d Bool; NULL if nothing is to be checked. */
static fx_array *all_finite(fx_array *guard, const fxi_checks *norms)
{
    fx_array *ok = guard ? fx_all(fx_isfinite(fx_want(guard))) : NULL;
    for (int64_t i = 0; i < norms->n; i++) {
        fx_array *finite = fx_isfinite(fx_want(norms->all[i].norm));
        ok = ok ? fx_and(ok, finite) : finite;
    }
    return ok;
}

/* Records which norm made an update fail, unless the guard did. */
static void blame_norm(fx_array *guard, const fxi_checks *norms)
{
    FXI_SCOPE;
    char number[FXI_NUMBER_TEXT], p[FXI_NUMBER_TEXT], x[128];
    if (guard && fx_item(fx_all(fx_isfinite(guard))) == 0)
        return;
    for (int64_t i = 0; i < norms->n; i++) {
        const fxi_checked *n = &norms->all[i];
        const double value = fx_item(n->norm);
        if (isfinite(value) || !n->rule)
            continue;
        fx_summary(n->x, x, sizeof x);
        fx_fail(FX_STATUS_NONFINITE, "ClipNorm", "gradient has %s-norm %s, for array %s",
                fxi_float64_text(n->rule->p, p), fxi_float64_text(value, number), x);
        return;
    }
}

/* The new value of a view of an updated array; NULL if it views none. */
static fx_array *view_of_new(const items *s, const fx_array *view)
{
    fx_array *y = NULL;
    for (int64_t i = 0; i < s->n && !y; i++)
        if (s->all[i].values[0])
            y = fxi_view_again(view, s->all[i].x, s->all[i].values[0]);
    return y;
}

static int handle_count(const items *s)
{
    int n = (int)s->nviews;
    for (int64_t i = 0; i < s->n; i++)
        n += 1 + (int)s->all[i].leaf->states.n;
    return n;
}

static fx_status commit(items *s, fx_array *ok, bool sinks)
{
    const int n = handle_count(s);
    fx_array **handles = fxi_malloc(((size_t)n + 1) * sizeof *handles);
    fx_array **values = fxi_malloc(((size_t)n + 1) * sizeof *values);
    fx_status status = handles && values ? FX_OK : no_memory();
    int m = 0;
    for (int64_t i = 0; i < s->n && status == FX_OK; i++) {
        const item *it = &s->all[i];
        for (int64_t k = 0; k <= it->leaf->states.n; k++) {
            handles[m] = k ? it->leaf->states.items[k - 1] : it->x;
            values[m] = it->values[k];
            m += values[m] != NULL;
        }
    }
    for (int64_t i = 0; i < s->nviews && status == FX_OK; i++) {
        handles[m] = s->views[i];
        values[m] = view_of_new(s, s->views[i]);
        m += values[m] != NULL;
    }
    if (status == FX_OK)
        status = fxi_commit(m, handles, values, ok, sinks);
    for (int64_t i = 0; i < s->n && status == FX_OK; i++)
        memcpy(s->all[i].leaf->numbers, s->all[i].numbers, sizeof s->all[i].numbers);
    fxi_free(handles);
    fxi_free(values);
    return status;
}

static fx_status rescale_all(int n, void *const *states, bool finite);

static bool any_growth(const items *s)
{
    bool any = false;
    for (int64_t i = 0; i < s->n; i++)
        any |= s->all[i].leaf->rule->growth > 0;
    return any;
}

/* Was a gradient of a MixedPrecision not finite? Reads the values that the update has computed. */
static bool overflowed(const fxi_checks *norms)
{
    bool finite = true;
    for (int64_t i = 0; i < norms->n && finite; i++)
        finite = norms->all[i].rule != NULL || isfinite(fx_item(norms->all[i].norm));
    return !finite;
}

static fx_status update(int n, void *const *states, void *const *models, void *const *gradients,
                        fx_array *guard, bool sinks)
{
    FXI_SCOPE;
    items s = {0};
    for (int i = 0; i < n && s.status == FX_OK; i++)
        gather_items(&s, states[i], models[i], gradients[i]);
    fxi_literals c = {0};
    fxi_checks norms = {0};
    for (int64_t i = 0; i < s.n && s.status == FX_OK; i++)
        s.status = apply_or_repeat(&s, i, &c, &norms);
    fx_array *ok = s.status == FX_OK ? all_finite(guard, &norms) : NULL;
    for (int64_t i = 0; ok && i < s.n && s.status == FX_OK; i++)
        s.status = select_values(&s.all[i], ok);
    if (s.status == FX_OK)
        s.status = commit(&s, ok, sinks);
    if (s.status == FX_STATUS_NONFINITE && norms.n > 0)
        blame_norm(guard, &norms);
    if (s.status == FX_OK && any_growth(&s))
        s.status = rescale_all(n, states, true);
    else if (s.status == FX_STATUS_NONFINITE && any_growth(&s) && overflowed(&norms) &&
             rescale_all(n, states, false) != FX_OK)
        s.status = FX_STATUS_MEMORY;
    fxi_free(norms.all);
    if (s.status != FX_OK && s.status != FX_STATUS_NONFINITE)
        fxi_commit(0, NULL, NULL, fx_error_array(s.status), false); /* drops staged state */
    items_done(&s);
    return s.status;
}

fx_status fxi_update(const fx_update_args *given)
{
    FXI_TAKE_OPTIONS(fx_update_args, FXI_UPDATE_ARGS, a, "update", given);
    return a_ok ? update(1, &a.state, &a.model, &a.gradient, a.guard, a.sinks) : FX_STATUS_ARGUMENT;
}

fx_status fx_update_all(int n, void *const *states, void *const *models, void *const *gradients)
{
    return update(n, states, models, gradients, NULL, true);
}

/* ---- out of place ---------------------------------------------------------------------------- */

static int by_handle(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return x < y ? -1 : x > y;
}

typedef struct renewal {
    fx_array *(*pairs)[2]; /* old handle and new value, sorted by old handle */
    size_t n;
} renewal;

/* An array that does not change gets another handle too, because both trees may be updated later. A
 * product keeps −0.0. */
static fx_array *another_handle(fx_array *x)
{
    const fx_dtype type = fx_eltype(x);
    const bool real = type == FX_DTYPE_F32 || type == FX_DTYPE_F64 || type == FX_DTYPE_F16 ||
                      type == FX_DTYPE_BF16;
    return real ? fx_mul(x, 1) : x;
}

static fx_array *renewed(fx_array *x, void *user)
{
    const renewal *r = user;
    fx_array *const key[2] = {x, NULL};
    fx_array *const(*p)[2] =
        r->n ? bsearch(key, r->pairs, r->n, sizeof *r->pairs, by_handle) : NULL;
    return p ? (*p)[1] : another_handle(x);
}

/* Replaces a leaf without arrays, which fx_fmap would share: freezing one tree must not freeze the
 * other. */
static void *renewed_leaf(void *object, void *user)
{
    (void)user;
    const leaf *l = object;
    fxi_leaf parts;
    if (!fx_is(object, &leaf_type) || l->states.n > 0 || !fxi_leaf_of(object, &parts))
        return NULL;
    return make_leaf(&parts);
}

/* Copies the new numbers into the leaves of a state; each old leaf is beside its new one. */
static fx_walk renew_numbers(const fx_spot *at, void *user)
{
    const items *s = user;
    leaf *old = at->objects[0], *new = at->objects[1];
    if (!fx_is(old, &leaf_type) || !fx_is(new, &leaf_type))
        return fx_has_children(old) && new ? FX_WALK_ENTER : FX_WALK_PASS;
    if (old->item < 0 || old == new)
        return FX_WALK_PASS;
    memcpy(new->numbers, s->all[old->item].numbers, sizeof new->numbers);
    new->item = -1;
    return FX_WALK_PASS;
}

static void *renew_both(items *s, void *state, void *model)
{
    renewal r = {.pairs = fxi_malloc(((size_t)handle_count(s) + 1) * sizeof *r.pairs)};
    if (!r.pairs)
        return fx_error_array(no_memory());
    for (int64_t i = 0; i < s->n; i++) {
        const item *it = &s->all[i];
        for (int64_t k = 0; k <= it->leaf->states.n; k++, r.n++) {
            r.pairs[r.n][0] = k ? it->leaf->states.items[k - 1] : it->x;
            r.pairs[r.n][1] = it->values[k] ? it->values[k] : another_handle(r.pairs[r.n][0]);
        }
    }
    qsort(r.pairs, r.n, sizeof *r.pairs, by_handle);
    void *new_state = fx_fmap_objects(renewed, renewed_leaf, &r, state),
         *new_model = fx_fmap_with(renewed, &r, model);
    fxi_free(r.pairs);
    void *const both[] = {state, new_state};
    const fx_tree_walker how = {.op = "update", .trees = 2, .meet = renew_numbers, .user = s};
    if (!fx_is_error(new_state) && !fx_is_error(new_model)) {
        const fx_status status = fx_tree_walk(&how, both);
        if (status != FX_OK)
            new_state = new_model = fx_error_array(status);
    }
    return fx_tuple(new_state, new_model);
}

void *fx_updated(void *state, void *model, void *gradient)
{
    FXI_SCOPE;
    items s = {0};
    gather_items(&s, state, model, gradient);
    fxi_literals c = {0};
    fxi_checks norms = {0};
    for (int64_t i = 0; i < s.n && s.status == FX_OK; i++)
        s.status = apply(&s.all[i], &c, &norms);
    for (int64_t i = 0; i < norms.n && s.status == FX_OK; i++)
        if (!isfinite(fx_item(norms.all[i].norm)))
            s.status = FX_STATUS_NONFINITE;
    if (s.status == FX_STATUS_NONFINITE)
        blame_norm(NULL, &norms);
    fxi_free(norms.all);
    void *both = s.status == FX_OK ? renew_both(&s, state, model)
                                   : fx_tuple(fx_error_array(s.status), fx_error_array(s.status));
    items_done(&s);
    return fx_keep(both);
}

/* ---- adjusting a state ----------------------------------------------------------------------- */

typedef void (*leaf_fn)(leaf *l, void *user);
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
    if (fx_is(x, &leaf_type) && !fx_is_error(x)) {
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

/* Calls f once for every leaf, also for a tied one. */
static fx_status each_leaf(const char *op, void *state, leaf_fn f, void *user)
{
    leaves all = {.f = f, .user = user};
    fx_status status;
    if (walk_leaves(&all, state, &status) || status != FX_OK)
        return status;
    return fx_fail(FX_STATUS_ARGUMENT, op,
                   "`%s` must not be applied to a model, only to the state tree from fx_setup", op);
}

/* Checks that the rule of a leaf has all given numbers. */
static void check_given(leaf *l, void *user)
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

static void adjust(leaf *l, void *user)
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

static void take_eta(leaf *l, void *user)
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

static void set_frozen(leaf *l, void *user)
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

static void rescale(leaf *l, void *user)
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

static fx_status rescale_all(int n, void *const *states, bool finite)
{
    FXI_SCOPE;
    rescaling r = {.finite = finite, .status = FX_OK};
    for (int i = 0; i < n && r.status == FX_OK; i++) {
        const fx_status status = each_leaf("update", states[i], rescale, &r);
        r.status = r.status == FX_OK ? status : r.status;
    }
    return r.status;
}

static void take_loss_scale(leaf *l, void *user)
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

/* ---- a state's numbers ----------------------------------------------------------------------- */

/* A leaf's numbers are those of its rule (fxi_rule_numbers_out), those of its state (at least two,
 * 0 where the rule has fewer, as older files have them), and whether it is frozen. */
static int state_numbers(const leaf *l)
{
    const int n = fxi_rule_nnumbers(l->rule);
    return n > 2 ? n : 2;
}

static int64_t leaf_size(const leaf *l)
{
    return fxi_rule_numbers_out(l->rule, NULL, 0) + state_numbers(l) + 1;
}

typedef struct numbering {
    double *out;
    const double *in;
    int64_t n, capacity;
    const double *previous; /* numbers of the leaf before */
    int64_t nrules;
    fx_rule **rules; /* new rule of each leaf; all are made before any leaf changes */
    fx_status status;
} numbering;

static void note_numbers(leaf *l, void *user)
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

/* Makes the new rule of a leaf; consecutive leaves with equal numbers share it. */
static void prepare_rule(leaf *l, void *user)
{
    numbering *g = user;
    const double *x = g->in + g->n, *before = g->previous;
    const int64_t i = g->nrules++, n = fxi_rule_numbers_out(l->rule, NULL, 0), size = leaf_size(l);
    g->previous = x;
    g->n += size;
    if (g->status != FX_OK)
        return;
    if (i > 0 && size == x - before && memcmp(x, before, (size_t)n * sizeof *x) == 0 &&
        fx_type_of(l->rule) == fx_type_of(g->rules[i - 1])) {
        g->rules[i] = g->rules[i - 1];
        return;
    }
    g->rules[i] = fxi_rule_numbers_in(l->rule, x);
    if (!g->rules[i])
        g->status =
            fx_fail(FX_STATUS_ARGUMENT, "state_numbers", "the numbers belong to another rule");
    else if (fx_is_error(g->rules[i]))
        g->status = fx_error_status() != FX_OK ? fx_error_status() : FX_STATUS_MEMORY;
}

static void take_numbers(leaf *l, void *user)
{
    numbering *g = user;
    const int64_t size = leaf_size(l), state = state_numbers(l);
    const double *x = g->in + g->n + size - state - 1;
    fx_rule *rule = fx_retain(g->rules[g->nrules++]);
    g->n += size;
    fx_release(l->rule);
    l->rule = rule;
    memcpy(l->numbers, x, (size_t)state * sizeof *x);
    l->frozen = x[state] != 0;
}

static void count_leaf(leaf *l, void *user)
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

fx_status fxi_state_numbers_set(void *state, const double *numbers, int64_t n)
{
    FXI_SCOPE;
    const int64_t has = fxi_state_numbers(state, NULL, 0);
    const bool every_path = has >= 0 && has != n && fits_every_path(state, n);
    if (has < 0)
        return has == -2 ? fx_error_status()
                         : fx_fail(FX_STATUS_ARGUMENT, "state_numbers",
                                   "the state was not made by fx_setup");
    if (has != n && !every_path)
        return fx_fail(FX_STATUS_ARGUMENT, "state_numbers", "the state has %lld numbers, got %lld",
                       (long long)has, (long long)n);
    numbering g = {.in = numbers,
                   .rules = fxi_calloc((size_t)n / SMALLEST_LEAF + 1, sizeof(void *))};
    if (!g.rules)
        return no_memory();
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
