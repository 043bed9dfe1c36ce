/* recorded_items.c: the arrays of an update in a recorded training step (value/tape.h). If the
 * state, the model and its gradient are unchanged, the arrays are the recorded ones, and none of
 * the three trees is walked.
 */
#include "memory.h"
#include "recorded_map.h"
#include "same_tree.h"
#include "update_items.h"

typedef struct known_item {
    fxi_state_leaf *leaf;
    fx_array *x;
    int32_t gradient; /* its number in the recorded gradient of the model */
} known_item;

typedef struct recorded_items {
    fxi_event event;
    fxi_tree_record state;
    void *root;
    int64_t n;
    known_item all[];
} recorded_items;

static void recorded_free(fxi_event *e)
{
    fxi_tree_record_free(&((recorded_items *)e)->state);
    fxi_free(e);
}

static const fxi_event_kind items_kind = {recorded_free, false};

/* A frozen leaf has no item, and a walk has to see when it is thawed. */
static bool every_leaf_is_item(const recorded_items *r)
{
    int64_t leaves = 0;
    for (int32_t i = 0; i < r->state.nobjects; i++)
        leaves += fx_is(r->state.objects[i], &fxi_leaf_type);
    return leaves == r->n;
}

void fxi_note_items(fxi_context *c, int32_t first, const fxi_items *s, void *state, void *model,
                    void *gradient)
{
    if (first == c->tape->n || s->nviews > 0)
        return;
    recorded_items *r = fxi_calloc(1, sizeof *r + (size_t)s->n * sizeof *r->all);
    if (!r)
        return;
    r->event.kind = &items_kind;
    r->root = state;
    r->n = s->n;
    bool ok = fxi_tree_note(&r->state, state) && every_leaf_is_item(r);
    for (int64_t i = 0; i < s->n && ok; i++) {
        const fxi_item *it = &s->all[i];
        r->all[i] =
            (known_item){it->leaf, it->x, fxi_map_find(c, model, gradient, it->x, it->gradient)};
        ok = r->all[i].gradient >= 0;
    }
    if (ok)
        fxi_tape_add(c, &r->event, first);
    else
        recorded_free(&r->event);
}

bool fxi_repeat_items(const fxi_context *c, fxi_items *s, void *state, void *model, void *gradient)
{
    const recorded_items *r =
        fxi_tape_repeats(c) ? (recorded_items *)fxi_tape_event(c, &items_kind) : NULL;
    if (!r || r->root != state || !fxi_tree_same(&r->state))
        return false;
    fxi_map_result m;
    if (!fxi_map_read(c, model, gradient, &m))
        return false;
    /* Only after the comparison with m is it known that x exists. */
    for (int64_t i = 0; i < r->n; i++)
        if (r->all[i].gradient >= m.n || m.trained[r->all[i].gradient] != r->all[i].x)
            return false;
    for (int64_t i = 0; i < r->n && s->status == FX_OK; i++)
        fxi_items_add(s, r->all[i].leaf, r->all[i].x, m.gradients[r->all[i].gradient]);
    return true;
}
