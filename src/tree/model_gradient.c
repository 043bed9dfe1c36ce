/* model_gradient.c: gradients of whole models: the arrays of the model, their gradients in one
 * sweep, and the model's own structure filled with them. A tied array is visited once, so its
 * gradient is the sum over its uses and stays shared; what an optimiser does not see (frozen
 * fields, integers) gets NULL.
 */
#include "identity_map.h"
#include "object.h"

#include <cflux/grad.h>

typedef struct wanted {
    fx_array **arrays, **gradients;
    int n, capacity;
    fxi_identity_map map; /* array → gradient */
    fx_status status;
} wanted;

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "gradient", "no memory for the list of parameters");
}

static void want(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path;
    wanted *w = user;
    if (!trainable || w->status != FX_OK)
        return;
    if (w->n == w->capacity) {
        const int capacity = w->capacity ? 2 * w->capacity : 32;
        fx_array **grown = fxi_realloc(w->arrays, (size_t)capacity * sizeof(void *));
        if (!grown) {
            w->status = no_memory();
            return;
        }
        w->arrays = grown;
        w->capacity = capacity;
    }
    w->arrays[w->n++] = x;
}

static void sweep(wanted *w, fx_array *loss)
{
    w->gradients = fxi_calloc((size_t)w->n + 1, sizeof(void *));
    if (!w->gradients) {
        w->status = no_memory();
        return;
    }
    w->status = fx_gradient_of(loss, w->arrays, w->n, w->gradients);
    for (int i = 0; i < w->n && w->status == FX_OK; i++)
        if (!fxi_identity_put(&w->map, w->arrays[i], w->gradients[i]))
            w->status = no_memory();
}

static fx_array *gradient_or_none(fx_array *x, void *user)
{
    const wanted *w = user;
    void *g;
    if (w->status != FX_OK)
        return fx_error_array(w->status);
    return fxi_identity_get(&w->map, x, &g) ? g : NULL;
}

static void *gradient(fx_array *loss, void *model, bool evaluate)
{
    if (!model)
        return fx_error_array(fx_fail(FX_STATUS_ARGUMENT, "gradient", "there is no model"));
    wanted w = {0};
    fx_visit(model, want, &w);
    if (w.status == FX_OK)
        sweep(&w, loss);
    void *g = fx_fmap_with(gradient_or_none, &w, model);
    if (evaluate && w.status == FX_OK) {
        void *both = fx_tuple(loss, g);
        if (fx_eval(both) != FX_OK)
            g = fxi_error_object(fx_type_of(model));
    }
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
