/* updated.c: the update of parameters out of place. */
#include "evaluate.h"
#include "identity_map.h"
#include "memory.h"
#include "node.h"
#include "object_types.h"
#include "update_items.h"

#include <cflux/ops.h>
#include <math.h>
#include <string.h>

typedef struct renewal {
    fxi_items *items;
    fxi_identity_map values; /* old array → new array */
    fxi_item *item;          /* whose leaf is copied */
    int64_t next;            /* the state whose new value is next */
    bool failed;
} renewal;

/* A float array that does not change gets another handle too, because both trees may be updated
 * later. x·1 keeps −0.0, which x + 0 would not. */
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
    void *value;
    return fxi_identity_get(&r->values, x, &value) ? value : another_handle(x);
}

static void *next_state(void *user, void *old)
{
    renewal *r = user;
    (void)old;
    return r->item->values[r->next++];
}

/* The leaf of an updated array, with its new states and numbers. */
static void *updated_leaf(renewal *r, const fxi_state_leaf *old)
{
    r->item = &r->items->all[old->item];
    r->next = 1;
    fxi_state_leaf *l = fxi_object_copy(&fxi_leaf_type, old, next_state, r);
    if (!l) {
        r->failed = true;
        return fx_error_object(&fxi_leaf_type);
    }
    memcpy(l->numbers, r->item->numbers, sizeof l->numbers);
    l->item = -1;
    return l;
}

/* Replaces the leaves of updated arrays, and leaves without arrays, which fx_fmap would share:
 * freezing one tree must not freeze the other. */
static void *renewed_leaf(void *object, void *user)
{
    const fxi_state_leaf *l = object;
    fxi_leaf parts;
    if (!fxi_is_leaf(object))
        return NULL;
    if (l->item >= 0)
        return updated_leaf(user, l);
    return l->states.n == 0 && fxi_leaf_of(object, &parts) ? fxi_leaf_new(&parts) : NULL;
}

/* New values have the types and sizes of the old ones, as in fx_update. */
static fx_status check_values(const fxi_items *s)
{
    fx_status status = FX_OK;
    for (int64_t i = 0; i < s->n; i++) {
        const fxi_item *it = &s->all[i];
        for (int64_t k = 0; k <= it->leaf->states.n && status == FX_OK; k++) {
            const fx_array *old = k ? it->leaf->states.items[k - 1] : it->x;
            const fxi_node *now = it->values[k] ? it->values[k]->node : it->nodes[k];
            if (now)
                status = fxi_check_value(old, now);
        }
    }
    return status;
}

/* Makes handles of all new values, and lists those of the model by the old handles. */
static bool list_values(renewal *r)
{
    for (int64_t i = 0; i < r->items->n; i++) {
        fxi_item *it = &r->items->all[i];
        for (int64_t k = 0; k <= it->leaf->states.n; k++)
            if (!fxi_item_value(it, k))
                it->values[k] = another_handle(k ? it->leaf->states.items[k - 1] : it->x);
        if (!fxi_identity_put(&r->values, it->x, it->values[0]))
            return false;
    }
    return true;
}

static void *renew_both(fxi_items *s, void *state, void *model)
{
    renewal r = {.items = s};
    void *both;
    if (list_values(&r)) {
        void *new_state = fx_fmap_objects(renewed, renewed_leaf, &r, state);
        void *new_model = fx_fmap_with(renewed, &r, model);
        both = fx_tuple(r.failed ? fx_error_object(fx_type_of(state)) : new_state, new_model);
    } else {
        both = fx_error_array(fxi_update_no_memory());
    }
    fxi_identity_free(&r.values);
    return both;
}

void *fx_updated(void *state, void *model, void *gradient)
{
    FXI_SCOPE;
    fxi_items s = {0};
    fxi_items_gather(&s, state, model, gradient);
    fx_array *no_guard = NULL;
    if (s.status == FX_OK)
        s.status = fxi_items_average(&s, &no_guard, -1);
    fxi_literals c; /* not zeroed: it is large */
    c.rule = NULL;
    fxi_checks norms = {0};
    fxi_copied_rule copied;
    copied.from = NULL;
    for (int64_t i = 0; i < s.n && s.status == FX_OK; i++)
        s.status = fxi_item_apply(&s.all[i], &c, &norms, &copied);
    if (s.status == FX_OK)
        s.status = fxi_items_join(&s);
    if (s.status == FX_OK)
        s.status = check_values(&s);
    for (int64_t i = 0; i < norms.n && s.status == FX_OK; i++)
        if (!isfinite(fx_item(norms.all[i].norm)))
            s.status = FX_STATUS_NONFINITE;
    if (s.status == FX_STATUS_NONFINITE)
        fxi_blame_norm(NULL, &norms);
    fxi_free(norms.all);
    void *both = s.status == FX_OK ? renew_both(&s, state, model)
                                   : fx_tuple(fx_error_array(s.status), fx_error_array(s.status));
    fxi_items_done(&s);
    return fx_keep(both);
}
