/* recorded_items.c: the arrays of an update in a recorded training step (value/tape.h). If the
 * states, the models and their gradients are unchanged, the arrays are the recorded ones, and none
 * of the trees is walked.
 */
#include "handle.h"
#include "memory.h"
#include "recorded_map.h"
#include "same_tree.h"
#include "update_items.h"

typedef struct known_item {
    fxi_state_leaf *leaf;
    fx_array *x;
    int32_t gradient; /* its number in the recorded gradient of the model */
    int tree;         /* number of the model in the update */
} known_item;

typedef struct known_tree {
    fxi_tree_record state;
    void *root;
    fxi_map_result map; /* the gradient, while it is repeated */
} known_tree;

/* A frozen leaf has no item. The flag is compared here, because fxi_tree_same compares only types
 * and children. */
typedef struct known_leaf {
    fxi_state_leaf *leaf;
    bool frozen;
} known_leaf;

typedef struct recorded_items {
    fxi_event event;
    int ntrees;
    known_tree *trees;
    known_leaf *leaves;
    int32_t nleaves, leaf_capacity;
    int64_t n;
    known_item all[];
} recorded_items;

static void recorded_free(fxi_event *e)
{
    recorded_items *r = (recorded_items *)e;
    for (int i = 0; r->trees && i < r->ntrees; i++)
        fxi_tree_record_free(&r->trees[i].state);
    fxi_free(r->trees);
    fxi_free(r->leaves);
    fxi_free(r);
}

static const fxi_event_kind items_kind = {recorded_free, false, NULL};

/* Lists the leaves of a state. False: the allocation failed. */
static bool note_leaves(recorded_items *r, const fxi_tree_record *state)
{
    for (int32_t i = 0; i < state->nobjects; i++) {
        fxi_state_leaf *l = state->objects[i];
        if (!fxi_is_leaf(l))
            continue;
        if (!fxi_grow(&r->leaves, &r->leaf_capacity, r->nleaves + 1, sizeof *r->leaves))
            return false;
        r->leaves[r->nleaves++] = (known_leaf){l, l->frozen};
    }
    return true;
}

/* True if only frozen leaves have no item. Otherwise the update is not noted. */
static bool every_leaf_is_item(const recorded_items *r)
{
    int64_t active = 0;
    for (int32_t i = 0; i < r->nleaves; i++)
        active += !r->leaves[i].frozen;
    return active == r->n;
}

static bool note_trees(recorded_items *r, const fxi_update_trees *trees)
{
    r->trees = fxi_calloc((size_t)trees->n + 1, sizeof *r->trees);
    r->ntrees = trees->n;
    for (int i = 0; r->trees && i < trees->n; i++) {
        known_tree *k = &r->trees[i];
        k->root = trees->states[i];
        if (!fxi_tree_note(&k->state, k->root) || !note_leaves(r, &k->state))
            return false;
    }
    return r->trees && every_leaf_is_item(r);
}

void fxi_note_items(fxi_context *c, int32_t first, const fxi_items *s,
                    const fxi_update_trees *trees)
{
    if (first == c->tape->n || s->nviews > 0)
        return;
    recorded_items *r = fxi_calloc(1, sizeof *r + (size_t)s->n * sizeof *r->all);
    if (!r)
        return;
    r->event.kind = &items_kind;
    r->n = s->n;
    bool ok = note_trees(r, trees);
    for (int64_t i = 0; i < s->n && ok; i++) {
        const fxi_item *it = &s->all[i];
        const int32_t gradient = fxi_map_find(c, trees->models[it->tree],
                                              trees->gradients[it->tree], it->x, it->gradient);
        r->all[i] = (known_item){it->leaf, it->x, gradient, it->tree};
        ok = gradient >= 0;
    }
    if (ok)
        fxi_tape_add(c, &r->event, first);
    else
        recorded_free(&r->event);
}

/* Are the states, models and gradients those of the recorded update, all of them unchanged? */
static bool same_trees(const fxi_context *c, recorded_items *r, const fxi_update_trees *trees)
{
    if (r->ntrees != trees->n)
        return false;
    for (int i = 0; i < r->ntrees; i++) {
        known_tree *k = &r->trees[i];
        if (k->root != trees->states[i] || !fxi_tree_same(&k->state) ||
            !fxi_map_read(c, trees->models[i], trees->gradients[i], &k->map))
            return false;
    }
    for (int32_t i = 0; i < r->nleaves; i++)
        if (r->leaves[i].leaf->frozen != r->leaves[i].frozen)
            return false;
    /* x may have been freed since: it exists only if the map lists it. */
    for (int64_t i = 0; i < r->n; i++) {
        const known_item *k = &r->all[i];
        const fxi_map_result *m = &r->trees[k->tree].map;
        if (k->gradient >= m->n || m->trained[k->gradient] != k->x)
            return false;
    }
    return true;
}

bool fxi_repeat_items(const fxi_context *c, fxi_items *s, const fxi_update_trees *trees)
{
    recorded_items *r =
        fxi_tape_repeats(c) ? (recorded_items *)fxi_tape_event(c, &items_kind) : NULL;
    if (!r || !same_trees(c, r, trees))
        return false;
    s->all = fxi_malloc(((size_t)r->n + 1) * sizeof *s->all);
    if (!s->all)
        return false;
    s->capacity = r->n + 1;
    /* The gradients have the sizes of the arrays, as in the recorded training step. */
    for (s->n = 0; s->n < r->n; s->n++) {
        const known_item *k = &r->all[s->n];
        fx_array *g = r->trees[k->tree].map.gradients[k->gradient];
        fxi_item_begin(&s->all[s->n], k->leaf, k->x, g, k->tree);
        k->leaf->item = s->n;
        if (!fxi_array_ok(g))
            s->status = fx_array_status(g);
    }
    return true;
}
