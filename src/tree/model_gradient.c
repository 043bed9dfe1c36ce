/* model_gradient.c: gradients of whole models. Collects the arrays of a model, computes all their
 * gradients in one sweep, and returns them in the structure of the model.
 *
 * A tied array is visited once, so its gradient is the sum over its uses and stays shared. Arrays
 * that an optimiser does not see (frozen fields, integers) get NULL. The gradient of a view is
 * added to the gradient of the array that it views: the sweep continues from the view to that
 * array. If another thread made the view, the sweep does not enter its history, and pass_on adds
 * the gradient afterwards.
 */
#include "context.h"
#include "identity_map.h"
#include "object_types.h"
#include "recorded_map.h"
#include "ties.h"
#include "walk.h"

#include <cflux/grad.h>

/* An array whose gradient was requested. */
typedef struct target {
    fx_array *array;
    fx_array *of; /* the array that this one is a view of, which receives its gradient; NULL if it
                     is not a view */
} target;

typedef struct wanted {
    target *targets;
    fx_array **arrays, **gradients;
    int32_t n, capacity;
    fxi_identity_map map; /* array → gradient */
    fx_status status;
} wanted;

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "gradient", "no memory for the list of parameters");
}

static void want(fx_array *x, fx_array *of, bool trainable, void *user)
{
    wanted *w = user;
    const bool foreign = of && x->node->owner != fxi_here()->id;
    if ((!trainable && !foreign) || w->status != FX_OK)
        return;
    if (fxi_grow(&w->targets, &w->capacity, w->n + 1, sizeof *w->targets))
        w->targets[w->n++] = (target){x, foreign ? of : NULL};
    else
        w->status = no_memory();
}

/* Adds the gradient of a view to the gradient of the array that it views. */
static void pass_on(wanted *w, const target *t, fx_array *gradient)
{
    void *sum;
    fx_array *more;
    if (!t->of || w->status != FX_OK || !fxi_identity_get(&w->map, t->of, &sum))
        return;
    fx_array *const of[] = {t->of};
    w->status = fx_pullback(fxi_view_again(t->array, t->of, t->of), gradient, of, 1, &more);
    if (w->status == FX_OK && !fxi_identity_put(&w->map, t->of, fx_add(sum, more)))
        w->status = no_memory();
}

static void sweep(wanted *w, fx_array *loss)
{
    w->arrays = fxi_calloc((size_t)w->n + 1, sizeof(void *));
    w->gradients = fxi_calloc((size_t)w->n + 1, sizeof(void *));
    if (!w->arrays || !w->gradients) {
        w->status = no_memory();
        return;
    }
    for (int32_t i = 0; i < w->n; i++)
        w->arrays[i] = w->targets[i].array;
    w->status = fx_gradient_of(loss, w->arrays, w->n, w->gradients);
    for (int32_t i = 0; i < w->n && w->status == FX_OK; i++)
        if (!w->targets[i].of && !fxi_identity_put(&w->map, w->arrays[i], w->gradients[i]))
            w->status = no_memory();
    for (int32_t i = 0; i < w->n; i++)
        pass_on(w, &w->targets[i], w->gradients[i]);
}

static fx_array *gradient_or_none(fx_array *x, void *user)
{
    const wanted *w = user;
    void *g;
    if (w->status != FX_OK)
        return fx_error_array(w->status);
    return fxi_identity_get(&w->map, x, &g) ? g : NULL;
}

static void *mapped(wanted *w, fx_array *loss, void *model)
{
    const fx_status walked = fxi_visit_tied(model, want, w);
    if (w->status == FX_OK)
        w->status = walked;
    if (w->status == FX_OK)
        sweep(w, loss);
    return fx_fmap_with(gradient_or_none, w, model);
}

static void *gradient(fx_array *loss, void *model, bool evaluate)
{
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "gradient", "the model is NULL"));
    fxi_context *c = fxi_here();
    const fxi_recorded_map *known = fxi_map_event(c, model);
    const int32_t first = c->tape ? fxi_tape_at(c->tape) : 0;
    wanted w = {0};
    void *g = known ? fxi_map_again(known, loss, &w.status) : mapped(&w, loss, model);
    if (!g)
        g = fx_fmap_with(gradient_or_none, &w, model);
    if (!known && w.status == FX_OK && fxi_tape_notes(c))
        fxi_note_map(c, first, model, &(fxi_map_result){w.n, w.arrays, w.gradients, g});
    if (evaluate && w.status == FX_OK) {
        void *both = fx_tuple(loss, g);
        if (fx_eval(both) != FX_OK)
            g = fx_error_object(fxi_type_of(model));
    }
    fxi_free(w.targets);
    fxi_free(w.arrays);
    fxi_free(w.gradients);
    fxi_identity_free(&w.map);
    return g;
}

void *fxi_gradient(fx_array *loss, void *model)
{
    return gradient(loss, model, false);
}

void *fx_withgradient(fx_array *loss, void *model, double *out_value)
{
    void *g = gradient(loss, model, true);
    const double value = fx_item(loss);
    if (out_value)
        *out_value = value;
    return g;
}
