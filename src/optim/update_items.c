/* update_items.c: collects the arrays of an update. */
#include "error.h"
#include "context.h"
#include "handle.h"
#include "memory.h"
#include "node.h"
#include "object_types.h"
#include "ties.h"
#include "tuples.h"
#include "update_items.h"

#include <cflux/ops.h>
#include <stdio.h>
#include <string.h>

fx_status fxi_update_no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "update", "out of memory");
}

/* A gradient must have the size of its parameter: broadcasting a smaller one would train silently
 * on wrong values. */
static fx_status check_gradient(const fx_array *x, const fx_array *g)
{
    char a[128], b[128];
    if (fxi_same_shape(x->node, g->node))
        return FX_OK;
    fx_summary((void *)(uintptr_t)g, a, sizeof a);
    fx_summary((void *)(uintptr_t)x, b, sizeof b);
    return fx_fail(FX_STATUS_SHAPE, "update", "the gradient is a %s, but its parameter is a %s", a,
                   b);
}

/* The arrays of the state must also have the size of the parameter; they do not if the program
 * replaced a layer after fx_setup. A leaf without arrays fits every size. */
static fx_status check_state(const fxi_state_leaf *l, const fx_array *x)
{
    char old[FXI_SHAPE_TEXT], now[128];
    bool same = x->node->ndim == l->ndims;
    for (int i = 0; i < l->ndims && same; i++)
        same = x->node->shape[i] == l->sizes[i];
    if (same || l->states.n == 0)
        return FX_OK;
    fx_summary((void *)(uintptr_t)x, now, sizeof now);
    return fx_fail(FX_STATUS_SHAPE, "update",
                   "the state was made for a parameter of size %s, but the parameter is a %s; make "
                   "a state for this model with fx_setup",
                   l->ndims ? fxi_shape_text(l->ndims, l->sizes, old) : "()", now);
}

/* Arrays without a device, such as those of a new state, fit every device. */
static fx_status check_device(const fxi_state_leaf *l, const fx_array *x)
{
    const fx_array *first = l->states.n > 0 ? l->states.items[0] : NULL;
    if (!fxi_array_ok(first) || !first->node->device || !x->node->device ||
        first->node->device == x->node->device)
        return FX_OK;
    return fx_fail(FX_STATUS_DEVICE, "update",
                   "the optimiser state is on %s, but the parameter is on %s; move the state with "
                   "fx_to, or move the model before fx_setup",
                   fx_device_name(first->node->device), fx_device_name(x->node->device));
}

void fxi_items_add(fxi_items *s, fxi_state_leaf *l, fx_array *x, fx_array *g)
{
    if (l->frozen || !g)
        return;
    if (!fxi_array_ok(x) || !fxi_array_ok(g)) {
        s->status = fxi_array_ok(x) ? fx_array_status(g) : fx_array_status(x);
        return;
    }
    s->status = check_gradient(x, g);
    if (s->status == FX_OK)
        s->status = check_state(l, x);
    if (s->status == FX_OK)
        s->status = check_device(l, x);
    if (s->status != FX_OK)
        return;
    if (l->item >= 0) { /* a tied array: add this gradient to the earlier one */
        fxi_item *it = &s->all[l->item];
        if (it->gradient != g)
            it->gradient = fx_add(it->gradient, g);
        return;
    }
    if (!fxi_update_grow(&s->all, &s->capacity, s->n, sizeof *s->all)) {
        s->status = fxi_update_no_memory();
        return;
    }
    l->item = s->n;
    fxi_item_begin(&s->all[s->n++], l, x, g, s->tree);
}

static void note_view(fxi_items *s, fx_array *x)
{
    if (!fxi_is_view(x))
        return;
    if (fxi_update_grow(&s->views, &s->view_capacity, s->nviews, sizeof *s->views))
        s->views[s->nviews++] = x;
    else
        s->status = fxi_update_no_memory();
}

int fxi_leaf_sum(const fxi_state_leaf *l)
{
    /* A MixedPrecision has a copy of the parameter first, unless it needs none. */
    const bool copy = l->states.n > fxi_rule_nstates(l->rule, fxi_rule_state_type(l->rule, 0));
    return fxi_rule_accumulates(l->rule) ? copy : -1;
}

const fx_communicator *fxi_items_among(const fxi_items *s, const fxi_state_leaf *l)
{
    return s->among ? s->among : fxi_rule_among(l->rule);
}

/* ---- positions --------------------------------------------------------------------------------
 */

enum { PATH_DEPTH = 32 };

/* The path of a position in the model, which is the second tree: "layers.0.weight". */
static void path_in_model(const fx_spot *at, char *path, size_t capacity)
{
    fx_spot spots[PATH_DEPTH];
    int n = 0;
    for (; at && n < PATH_DEPTH; at = at->parent, n++) {
        spots[n] = *at;
        spots[n].objects = at->objects + 1;
        spots[n].parent = at->parent && n + 1 < PATH_DEPTH ? &spots[n + 1] : NULL;
    }
    fx_spot_path(spots, NULL, path, capacity);
}

/* "2 children", "an array", or the name of the object's type. */
static const char *part_text(const void *object, bool counted, char dst[60])
{
    const int64_t n = counted ? fx_count(object) : 0;
    if (counted)
        snprintf(dst, 60, "%lld %s", (long long)n, n == 1 ? "child" : "children");
    else
        snprintf(dst, 60, "%s", fxi_is_array(object) ? "an array" : fxi_type_of(object)->name);
    return dst;
}

/* A position where the state (tree 0) or the gradient (tree 2) differs from the model. */
static fx_status mismatch(const fx_spot *at, int tree)
{
    char path[120], where[130] = "", got[60], want[60];
    const void *x = at->objects[1], *other = at->objects[tree];
    const bool counted = !fxi_is_array(x) && !fxi_is_array(other) && fx_count(x) != fx_count(other);
    path_in_model(at, path, sizeof path);
    if (*path)
        snprintf(where, sizeof where, " at \"%s\"", path);
    return fx_fail(FX_STATUS_ARGUMENT, "update",
                   "the %s does not have the model's structure%s: %s instead of %s",
                   tree ? "gradient" : "state", where, part_text(other, counted, got),
                   part_text(x, counted, want));
}

/* ---- parameters that the loss does not use ----------------------------------------------------
 */

/* Without this message a layer that the forward pass forgets would silently never learn. */
static void note_unused(fxi_items *s, const fx_spot *at, const fx_communicator *among)
{
    fxi_state_leaf *l = at->objects[0];
    if (!l->named && s->nunused++ == 0)
        path_in_model(at, s->unused, sizeof s->unused);
    l->named = true;
    s->rank = among->rank;
}

static bool is_unused(const void *gradient)
{
    return !gradient || (fxi_is_array(gradient) && fxi_is_no_gradient(gradient));
}

static void name_unused(const fxi_items *s)
{
    char more[60] = "";
    if (s->nunused == 0)
        return;
    if (s->nunused > 1)
        snprintf(more, sizeof more, " and %lld more parameter%s", (long long)s->nunused - 1,
                 s->nunused == 2 ? "" : "s");
    fx_message(
        1, "update: the loss of rank %d does not depend on %s%s: zeros are used as the gradient",
        s->rank, s->unused, more);
}

static fx_walk find_unused(const fx_spot *at, void *user)
{
    fxi_items *s = user;
    void *state = at->objects[0], *x = at->objects[1];
    if (!state || !x)
        return FX_WALK_PASS;
    if (!fxi_is_leaf(state))
        return fxi_is_array(state) || fxi_is_array(x) ? FX_WALK_PASS : FX_WALK_ENTER;
    if (!((fxi_state_leaf *)state)->frozen && fxi_is_array(x) && is_unused(at->objects[2]))
        note_unused(s, at, s->among);
    return FX_WALK_PASS;
}

void fxi_update_name_unused(const fx_communicator *among, const fx_update_args *a)
{
    fxi_items s = {.among = among};
    void *const trees[] = {a->state, a->model, a->gradient};
    if (fx_is_error(a->gradient) || fxi_type_of(a->gradient) != fxi_type_of(a->model))
        return; /* the update reports it */
    const fx_tree_walker how = {.op = "update", .trees = 3, .meet = find_unused, .user = &s};
    fx_tree_walk(&how, trees);
    name_unused(&s);
}

/* ---- a loss without parameters -------------------------------------------------------------- */

typedef struct dependence {
    fxi_state_leaf *first; /* of the leaves that the loss does not use */
    bool used;             /* the loss uses a leaf, or a message has named it */
} dependence;

/* Stops at the first leaf that the loss uses, so that a usual update visits one leaf. */
static fx_walk find_used(const fx_spot *at, void *user)
{
    dependence *d = user;
    void *state = at->objects[0], *x = at->objects[1], *g = at->objects[2];
    if (!state || !x)
        return FX_WALK_PASS;
    if (!fxi_is_leaf(state))
        return fxi_is_array(state) || fxi_is_array(x) ? FX_WALK_PASS : FX_WALK_ENTER;
    fxi_state_leaf *l = state;
    if (l->frozen || !g)
        return FX_WALK_PASS;
    d->used = l->named || !is_unused(g);
    d->first = d->first ? d->first : l;
    return d->used ? FX_WALK_STOP : FX_WALK_PASS;
}

void fxi_update_note_constant(void *state, void *model, void *gradient)
{
    dependence d = {0};
    void *const trees[] = {state, model, gradient};
    if (!state || !model || !gradient || fx_is_error(state) || fx_is_error(model) ||
        fx_is_error(gradient) || fxi_type_of(gradient) != fxi_type_of(model))
        return; /* the update reports it */
    const fx_tree_walker how = {.op = "update", .trees = 3, .meet = find_used, .user = &d};
    if (fx_tree_walk(&how, trees) != FX_OK || !d.first || d.used)
        return;
    d.first->named = true;
    fx_message(1,
               "update: the loss does not depend on any parameter of the model, so all gradients "
               "are 0: compute the loss from fx_call(model, …)");
}

/* ---- the arrays -------------------------------------------------------------------------------
 */

/* Adds a leaf of the state with its array and gradient. An array without a gradient is not updated.
 * Nor is one that the loss does not use, whose gradient is `nothing` in Flux: neither weight decay
 * nor an earlier momentum changes it. */
static void take_leaf(fxi_items *s, const fx_spot *at)
{
    fxi_state_leaf *l = at->objects[0];
    void *x = at->objects[1], *g = at->objects[2];
    /* All members must average the same arrays, so one that this member did not use gets zeros. */
    const fx_communicator *among =
        l->frozen || l->item >= 0 || !fxi_is_array(x) ? NULL : fxi_items_among(s, l);
    if (among && is_unused(g)) {
        note_unused(s, at, among);
        g = fx_zeros_like(x);
    }
    if (!g)
        return;
    if (!fxi_is_array(x) || !fxi_is_array(g))
        s->status = mismatch(at, fxi_is_array(x) ? 2 : 0);
    else if (!among && !fx_is_error(x) && fxi_is_no_gradient(g))
        s->status = check_gradient(x, g);
    else
        fxi_items_add(s, l, x, g);
}

/* Visits corresponding positions of state, model and gradient. */
static fx_walk collect(const fx_spot *at, void *user)
{
    fxi_items *s = user;
    void *state = at->objects[0], *x = at->objects[1], *g = at->objects[2];
    if (!state || !x)
        return FX_WALK_PASS;
    if (fxi_is_leaf(state)) {
        take_leaf(s, at);
        return s->status == FX_OK ? FX_WALK_PASS : FX_WALK_STOP;
    }
    const int64_t n = fxi_is_array(state) ? 0 : fx_count(state);
    if (fxi_is_array(state))
        s->status = mismatch(at, 0);
    else if (n > 0 && (fx_count(x) != n || (g && fx_count(g) != n)))
        s->status = mismatch(at, fx_count(x) != n ? 0 : 2);
    else if (fxi_is_array(x))
        note_view(s, x);
    if (s->status != FX_OK)
        return FX_WALK_STOP;
    return fxi_is_array(x) ? FX_WALK_PASS : FX_WALK_ENTER;
}

/* fx_setup returns a leaf for an array and a tuple for an object. */
static bool is_state(const void *state)
{
    return !fxi_is_array(state) &&
           (fxi_is_leaf(state) || (fxi_type_of(state)->flags & FX_TYPE_TUPLE));
}

/* FX_OK unless the object is an error. Only error arrays hold their status. The thread's error
 * record may have another cause, so it is not used. */
static fx_status status_of(const char *name, const void *object)
{
    if (!object)
        return fx_fail(FX_STATUS_ARGUMENT, "update", "the %s is NULL", name);
    if (!fx_is_error(object))
        return FX_OK;
    if (fxi_is_array(object))
        return fx_array_status(object);
    return fxi_handle_freed(object)
               ? FX_STATUS_STATE /* fx_is_error has recorded it */
               : fx_fail(FX_STATUS_ARGUMENT, "update", "the %s is an error object", name);
}

void fxi_items_gather(fxi_items *s, void *state, void *model, void *gradient)
{
    if (state && !fx_is_error(state) && !is_state(state)) {
        char got[100];
        fx_summary(state, got, sizeof got);
        s->status = fx_fail(FX_STATUS_ARGUMENT, "update",
                            "Invalid input to `update`. fx_update(state, model, gradient) needs "
                            "state = fx_setup(rule, model), got %s",
                            got);
        return;
    }
    void *const all[] = {state, model, gradient};
    static const char *const names[] = {"state", "model", "gradient"};
    for (int i = 0; i < 3; i++) {
        s->status = status_of(names[i], all[i]);
        if (s->status != FX_OK)
            return;
    }
    if (fxi_is_array(gradient) && !fxi_is_array(model)) {
        char got[100];
        fx_summary(gradient, got, sizeof got);
        s->status = fx_fail(FX_STATUS_ARGUMENT, "update",
                            "needs the gradient fx_gradient(loss, model), got %s", got);
        return;
    }
    if (fxi_type_of(gradient) != fxi_type_of(model)) {
        s->status = mismatch(&(const fx_spot){.objects = all}, 2);
        return;
    }
    const fx_tree_walker how = {.op = "update", .trees = 3, .meet = collect, .user = s};
    const fx_status status = fx_tree_walk(&how, all);
    if (s->status == FX_OK)
        s->status = status;
    name_unused(s);
}

fx_array *fxi_item_value(fxi_item *it, int64_t k)
{
    if (it->nodes[k])
        it->values[k] = fxi_array_take(it->nodes[k]);
    it->nodes[k] = NULL;
    return it->values[k];
}

void fxi_items_done(fxi_items *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        fxi_item *it = &s->all[i];
        it->leaf->item = -1;
        for (int64_t k = 0; k <= it->leaf->states.n; k++)
            if (it->nodes[k])
                fxi_node_release(it->nodes[k]);
    }
    fxi_free(s->all);
    fxi_free(s->views);
}

int fxi_items_handles(const fxi_items *s)
{
    int n = (int)s->nviews;
    for (int64_t i = 0; i < s->n; i++)
        n += 1 + (int)s->all[i].leaf->states.n;
    return n;
}
