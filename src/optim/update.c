/* update.c: the update of parameters.
 *
 * The update walks state, model and gradient side by side, lets the rule build the new values as
 * lazy nodes, and passes everything to fxi_commit, which computes it in one plan and rebinds the
 * handles, or changes nothing. A view of a parameter has no state; it becomes the same view of the
 * new value.
 */
#include "error.h"
#include "evaluate.h"
#include "julia_number.h"
#include "memory.h"
#include "option_struct.h"
#include "tape.h"
#include "ties.h"
#include "update_items.h"

#include <cflux/ops.h>
#include <math.h>
#include <string.h>

fx_status fxi_item_apply(fxi_item *it, fxi_literals *literals, fxi_checks *norms,
                         fxi_copied_rule *copied)
{
    const fxi_state_leaf *l = it->leaf;
    const int64_t nnorms = norms->n;
    fx_status status;
    if (fxi_copy_rule(copied, it, literals, &status))
        return status;
    if (!copied->from || !fxi_literals_kept(literals, l->rule, fx_eltype(it->x), l->numbers))
        fxi_copy_begin(copied, it);
    memcpy(it->numbers, l->numbers, sizeof it->numbers);
    fxi_literals_begin(literals, l->rule, fx_eltype(it->x), l->numbers);
    fx_array *x = fxi_own_part(l->rule, it->x);
    fxi_application s = {.rule = l->rule,
                         .x = x,
                         .dx = fxi_own_part(l->rule, it->gradient),
                         .total = it->total,
                         .states = (fx_array *const *)l->states.items,
                         .new_states = it->values + 1,
                         .numbers = it->numbers,
                         .literals = literals,
                         .norms = norms};
    fx_array *change = fxi_rule_apply(&s);
    if (change)
        it->values[0] = s.new_x ? s.new_x : fx_sub(x, change);
    for (int i = 0; i <= l->states.n; i++)
        if (it->values[i] && fx_is_error(it->values[i]))
            return fx_array_status(it->values[i]);
    /* A copied application would not add its norms. */
    if (norms->n > nnorms)
        copied->from = NULL;
    return norms->no_memory ? fxi_update_no_memory() : FX_OK;
}

/* Makes the calls of item i, or copies the nodes of an earlier item. */
static fx_status apply(fxi_items *s, int64_t i, fxi_literals *literals, fxi_checks *norms,
                       fxi_copied_rule *copied, fxi_rule_run *run)
{
    fxi_item *it = &s->all[i];
    const fxi_state_leaf *l = it->leaf;
    fxi_context *c = fxi_here();
    const bool shared = i > 0 && fxi_literals_kept(literals, l->rule, fx_eltype(it->x), l->numbers);
    if (!shared)
        fxi_note_rules(c, run, s);
    const int32_t first = fxi_tape_notes(c) ? c->tape->n : -1;
    const int64_t nnorms = norms->n;
    const fx_status status = fxi_item_apply(it, literals, norms, copied);
    if (first >= 0 && status == FX_OK && fxi_tape_notes(c) && norms->n == nnorms)
        fxi_note_rule(c, run, s, i, first, shared);
    else
        run->n = 0;
    return status;
}

/* In a recorded training step, the parameters with the same literals as the first one repeat their
 * part of the tape without making the calls (recorded_rule.c). */
static void apply_all(fxi_items *s, fxi_checks *norms)
{
    fxi_context *c = fxi_here();
    fxi_literals literals; /* about 700 bytes, of which the lists are filled in later */
    literals.rule = NULL;
    fxi_copied_rule copied; /* about 5 KB, of which few entries are used */
    copied.from = NULL;
    fxi_rule_run run = {.n = 0};
    for (int64_t i = 0, again; i < s->n && s->status == FX_OK; i += again ? again : 1) {
        again = fxi_repeat_rules(c, s, i, &literals);
        if (again == 0)
            s->status = apply(s, i, &literals, norms, &copied, &run);
    }
    if (s->status == FX_OK)
        fxi_note_rules(c, &run, s);
}

/* Keeps the old values where `ok` is false. */
static fx_status select_values(fxi_item *it, fx_array *ok)
{
    for (int i = 0; i <= it->leaf->states.n; i++) {
        fx_array *old = i ? it->leaf->states.items[i - 1] : it->x;
        if (fxi_item_value(it, i))
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

void fxi_blame_norm(fx_array *guard, const fxi_checks *norms)
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
static fx_array *view_of_new(const fxi_items *s, const fx_array *view)
{
    fx_array *y = NULL;
    for (int64_t i = 0; i < s->n && !y; i++)
        if (fxi_item_value(&s->all[i], 0))
            y = fxi_view_again(view, s->all[i].x, s->all[i].values[0]);
    return y;
}

static fx_status commit(fxi_items *s, fx_array *ok, bool sinks)
{
    const int n = fxi_items_handles(s);
    fx_array **handles = fxi_malloc(((size_t)n + 1) * sizeof *handles);
    fx_array **made = fxi_malloc(((size_t)n + 1) * sizeof *made);
    fxi_node **values = fxi_malloc(((size_t)n + 1) * sizeof *values);
    fx_status status = handles && made && values ? FX_OK : fxi_update_no_memory();
    int m = 0;
    for (int64_t i = 0; i < s->n && status == FX_OK; i++) {
        const fxi_item *it = &s->all[i];
        for (int64_t k = 0; k <= it->leaf->states.n; k++) {
            handles[m] = k ? it->leaf->states.items[k - 1] : it->x;
            made[m] = it->values[k];
            values[m] = it->values[k] ? it->values[k]->node : it->nodes[k];
            m += values[m] != NULL;
        }
    }
    for (int64_t i = 0; i < s->nviews && status == FX_OK; i++) {
        handles[m] = s->views[i];
        fx_array *view = view_of_new(s, s->views[i]);
        if (view && fx_is_error(view))
            status = fx_array_status(view);
        else if (view)
            made[m] = view, values[m++] = view->node;
    }
    if (status == FX_OK)
        status = fxi_commit_nodes(m, handles, values, made, ok, sinks);
    for (int64_t i = 0; i < s->n && status == FX_OK; i++)
        memcpy(s->all[i].leaf->numbers, s->all[i].numbers, sizeof s->all[i].numbers);
    fxi_free(handles);
    fxi_free(made);
    fxi_free(values);
    return status;
}

static bool any_growth(const fxi_items *s)
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

/* The options of an update besides its trees. */
typedef struct update_options {
    fx_array *guard;
    double observations;
    bool sinks;
    const fx_communicator *among; /* see fxi_items */
    fx_array **means;
    int nmeans;
} update_options;

static fx_status update(int n, void *const *states, void *const *models, void *const *gradients,
                        const update_options *how)
{
    FXI_SCOPE;
    fxi_items s = {.among = how->among, .means = how->means, .nmeans = how->nmeans};
    fxi_context *here = fxi_here();
    const int32_t first = here->tape ? fxi_tape_at(here->tape) : 0;
    const fxi_update_trees trees = {n, states, models, gradients};
    const double observations = how->observations;
    fx_array *guard = how->guard;
    const bool known = fxi_repeat_items(here, &s, &trees);
    if (!isfinite(observations) || (observations < 0 && observations != -1))
        s.status = fx_fail(FX_STATUS_ARGUMENT, "update",
                           ".observations is %g, expected at least 0, or -1 for equal weights",
                           observations);
    for (int i = 0; i < n && !known && s.status == FX_OK; i++) {
        s.tree = i;
        fxi_items_gather(&s, states[i], models[i], gradients[i]);
        if (s.status == FX_OK)
            fxi_update_note_constant(states[i], models[i], gradients[i]);
    }
    if (s.status == FX_OK)
        s.status = fxi_items_average(&s, &guard, observations);
    for (int i = 0; i < s.nmeans; i++)
        fx_keep(fx_want(s.means[i]));
    fxi_checks norms = {0};
    if (s.status == FX_OK)
        apply_all(&s, &norms);
    if (s.status == FX_OK)
        s.status = fxi_items_join(&s);
    if (!known && s.status == FX_OK && fxi_tape_notes(here))
        fxi_note_items(here, first, &s, &trees);
    fx_array *ok = s.status == FX_OK ? all_finite(guard, &norms) : NULL;
    for (int64_t i = 0; ok && i < s.n && s.status == FX_OK; i++)
        s.status = select_values(&s.all[i], ok);
    if (s.status == FX_OK)
        s.status = commit(&s, ok, how->sinks);
    if (s.status == FX_STATUS_NONFINITE && norms.n > 0)
        fxi_blame_norm(guard, &norms);
    if (s.status == FX_OK && any_growth(&s))
        s.status = fxi_states_rescale(n, states, true);
    else if (s.status == FX_STATUS_NONFINITE && any_growth(&s) && overflowed(&norms) &&
             fxi_states_rescale(n, states, false) != FX_OK)
        s.status = FX_STATUS_MEMORY;
    fxi_free(norms.all);
    if (s.status != FX_OK && s.status != FX_STATUS_NONFINITE) {
        fxi_states_refuse(n, states, s.status);
        fxi_commit(0, NULL, NULL, fx_error_array(s.status), false); /* drops staged state */
    }
    fxi_items_done(&s);
    return s.status;
}

fx_status fxi_update(const fx_update_args *given)
{
    FXI_TAKE_OPTIONS(fx_update_args, FXI_UPDATE_ARGS, a, "update", given);
    /* With .observations = 0 no gradient is used, so the model itself is passed as its gradient. */
    if (a_ok && a.observations == 0 && !a.gradient)
        a.gradient = a.model;
    const update_options how = {.guard = a.guard, .observations = a.observations, .sinks = a.sinks};
    return a_ok ? update(1, &a.state, &a.model, &a.gradient, &how) : FX_STATUS_ARGUMENT;
}

fx_status fxi_update_among(const fx_communicator *among, const fx_update_args *a, int n,
                           fx_array **io_means)
{
    const update_options how = {
        .observations = -1, .sinks = true, .among = among, .means = io_means, .nmeans = n};
    return update(1, &a->state, &a->model, &a->gradient, &how);
}

fx_status fx_update_all(int n, void *const *states, void *const *models, void *const *gradients)
{
    const update_options how = {.observations = -1, .sinks = true};
    const char *const op = "update_all";
    if (fxi_check_list(op, "states", n, states) != FX_OK ||
        fxi_check_list(op, "models", n, models) != FX_OK ||
        fxi_check_list(op, "gradients", n, gradients) != FX_OK)
        return FX_STATUS_ARGUMENT;
    return update(n, states, models, gradients, &how);
}
