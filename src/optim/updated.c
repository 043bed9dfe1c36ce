/* updated.c: the update of parameters out of place. */
#include "evaluate.h"
#include "memory.h"
#include "node.h"
#include "update_items.h"

#include <cflux/ops.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_handle(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return x < y ? -1 : x > y;
}

typedef struct renewal {
    fx_array *(*pairs)[2]; /* old handle and new value, sorted by old handle */
    size_t n;
} renewal;

/* An array that does not change gets another handle too, because both trees may be updated later.
 * x·1 keeps −0.0, which x + 0 would not. */
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
    const fxi_state_leaf *l = object;
    fxi_leaf parts;
    if (!fx_is(object, &fxi_leaf_type) || l->states.n > 0 || !fxi_leaf_of(object, &parts))
        return NULL;
    return fxi_leaf_new(&parts);
}

/* Copies the new numbers into the leaves of a state; each old leaf is beside its new one. */
static fx_walk renew_numbers(const fx_spot *at, void *user)
{
    const fxi_items *s = user;
    fxi_state_leaf *old = at->objects[0], *new = at->objects[1];
    if (!fx_is(old, &fxi_leaf_type) || !fx_is(new, &fxi_leaf_type))
        return fx_has_children(old) && new ? FX_WALK_ENTER : FX_WALK_PASS;
    if (old->item < 0 || old == new)
        return FX_WALK_PASS;
    memcpy(new->numbers, s->all[old->item].numbers, sizeof new->numbers);
    new->item = -1;
    return FX_WALK_PASS;
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

static void *renew_both(fxi_items *s, void *state, void *model)
{
    renewal r = {.pairs = fxi_malloc(((size_t)fxi_items_handles(s) + 1) * sizeof *r.pairs)};
    if (!r.pairs)
        return fx_error_array(fxi_update_no_memory());
    for (int64_t i = 0; i < s->n; i++) {
        fxi_item *it = &s->all[i];
        for (int64_t k = 0; k <= it->leaf->states.n; k++, r.n++) {
            fx_array *value = fxi_item_value(it, k);
            r.pairs[r.n][0] = k ? it->leaf->states.items[k - 1] : it->x;
            r.pairs[r.n][1] = value ? value : another_handle(r.pairs[r.n][0]);
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
    fxi_items s = {0};
    fxi_items_gather(&s, state, model, gradient);
    fx_array *no_guard = NULL;
    if (s.status == FX_OK)
        s.status = fxi_items_average(&s, &no_guard, -1);
    fxi_literals c = {0};
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
