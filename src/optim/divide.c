/* divide.c: optimiser states that are divided among the members of a communicator (ZeRO-1).
 *
 * Each parameter is one vector, cut into a part for each member. A member keeps the state of its
 * parts only. In an update it gets the mean of the whole gradient, applies the rule to its part of
 * the gradient, the parameter and the state, and the members then exchange the new parts. So every
 * member has the bits that an undivided rule computes, if the rule treats each element by itself.
 *
 * A part has no alignment and no least size: the parts of an array differ by at most one element,
 * so all members need about the same memory, even if one array is as large as all others together.
 */
#include "update_items.h"

#include "error.h"
#include "evaluate.h"
#include "memory.h"
#include "primitives.h"

#include <cflux/ops.h>
#include <string.h>

/* Bytes of parameters whose new parts are sent together. */
enum { SENT_BYTES = 25 << 20 };

/* ---- parts ----------------------------------------------------------------------------------- */

/* The first element of a member's part of n elements; n if `rank` is the number of members. */
static int64_t begin_of(const fx_communicator *among, int64_t n, int32_t rank)
{
    const int64_t more = n % among->size;
    return n / among->size * rank + (rank < more ? rank : more);
}

static int64_t length_of(const fx_communicator *among, int64_t n, int32_t rank)
{
    return begin_of(among, n, rank + 1) - begin_of(among, n, rank);
}

static fx_array *part_of(const fx_communicator *among, fx_array *x, int32_t rank)
{
    const int64_t n = fx_length(x);
    return fx_slice(fx_vec(x), 0, begin_of(among, n, rank), begin_of(among, n, rank + 1));
}

fx_array *fxi_own_part(const fx_rule *r, fx_array *x)
{
    const fx_communicator *among = fxi_rule_divides(r);
    return among && !fx_is_error(x) ? part_of(among, x, among->rank) : x;
}

/* The part that member `rank` sends to all. `own` is on the device of the operation. A part that
 * was made only of literals or random numbers has no device, and gets this one, because only the
 * collective operations of one device are run in order. */
static fx_array *sent_by(const fx_communicator *among, int32_t rank, fx_array *x,
                         const fx_array *own)
{
    if (!fx_is_error(x) && !fx_is_error(own) && !x->node->data && !x->node->device)
        x->node->device = own->node->device;
    return fxi_collective(&(const fx_collective){.communicator = among,
                                                 .kind = FX_COLLECTIVE_BROADCAST,
                                                 .root = rank},
                          x);
}

/* ---- the new parameters ---------------------------------------------------------------------- */

/* Items whose new parts are sent together: of one type, on one device. */
typedef struct sending {
    const fx_communicator *among;
    fx_device *device;
    fx_dtype type;
    int64_t bytes, n;
    fxi_item **items;
    const fx_array *own; /* a new part of this member */
    fx_array **parts,
        **sent; /* space for the parts of one member, and for one vector of each member */
} sending;

/* The vector of a member's new parts. The other members know only its length; they pass old
 * values. */
static fx_array *parts_of(const sending *s, int32_t rank)
{
    for (int64_t i = 0; i < s->n; i++)
        s->parts[i] = rank == s->among->rank ? s->items[i]->values[0]
                                             : part_of(s->among, s->items[i]->x, rank);
    return fxi_concat(0, (int)s->n, s->parts);
}

/* Replaces the new part of each item by the whole new array, and empties the list. */
static fx_status exchange(sending *s)
{
    const int32_t size = s->among->size;
    for (int32_t r = 0; r < size; r++)
        s->sent[r] = sent_by(s->among, r, parts_of(s, r), s->own);
    fx_array **pieces = fxi_calloc((size_t)size, sizeof *pieces);
    int64_t *at = fxi_calloc((size_t)size, sizeof *at);
    fx_status status = pieces && at ? FX_OK : fxi_update_no_memory();
    for (int64_t i = 0; i < s->n && status == FX_OK; i++) {
        fxi_item *it = s->items[i];
        const int64_t n = fx_length(it->x);
        int64_t sizes[FX_MAX_DIMS];
        for (int32_t r = 0; r < size; r++) {
            const int64_t from = at[r];
            at[r] += length_of(s->among, n, r);
            pieces[r] = fx_slice(s->sent[r], 0, from, at[r]);
        }
        for (int k = 0; k < fx_ndims(it->x); k++)
            sizes[k] = fx_size(it->x, k);
        it->values[0] = fxi_reshape(fxi_concat(0, size, pieces), fx_ndims(it->x), sizes);
        status = fx_is_error(it->values[0]) ? fx_array_status(it->values[0]) : FX_OK;
    }
    fxi_free(pieces);
    fxi_free(at);
    s->n = s->bytes = 0;
    return status;
}

static fx_status add(sending *s, fxi_item *it)
{
    const fx_communicator *among = fxi_rule_divides(it->leaf->rule);
    fx_status status = FX_OK;
    if (s->n > 0 && (s->bytes >= SENT_BYTES || s->among != among || s->type != fx_eltype(it->x) ||
                     s->device != fx_array_device(it->x)))
        status = exchange(s);
    if (status != FX_OK)
        return status;
    fx_array **sent =
        s->among == among ? s->sent : fxi_realloc(s->sent, (size_t)among->size * sizeof *sent);
    if (!sent)
        return fxi_update_no_memory();
    s->sent = sent;
    s->among = among;
    s->type = fx_eltype(it->x);
    s->device = fx_array_device(it->x);
    s->bytes += fx_length(it->x) * (int64_t)fx_dtype_size(s->type);
    s->own = it->values[0];
    s->items[s->n++] = it;
    return FX_OK;
}

fx_status fxi_items_join(fxi_items *all)
{
    bool any = false;
    for (int64_t i = 0; i < all->n && !any; i++)
        any = fxi_rule_divides(all->all[i].leaf->rule) && fxi_item_value(&all->all[i], 0);
    if (!any)
        return FX_OK;
    const size_t n = (size_t)all->n;
    sending s = {.items = fxi_malloc(n * sizeof *s.items),
                 .parts = fxi_malloc(n * sizeof *s.parts)};
    fx_status status = s.items && s.parts ? FX_OK : fxi_update_no_memory();
    for (int64_t i = 0; i < all->n && status == FX_OK; i++)
        if (fxi_rule_divides(all->all[i].leaf->rule) && all->all[i].values[0])
            status = add(&s, &all->all[i]);
    if (status == FX_OK && s.n > 0)
        status = exchange(&s);
    fxi_free(s.items);
    fxi_free(s.parts);
    fxi_free(s.sent);
    return status;
}

/* ---- whole states ---------------------------------------------------------------------------- */

/* A change of the leaves of a state. Leaves of one setup share their rule, so the rule of
 * the previous leaf is kept here. */
typedef struct change {
    const fx_rule *old;
    fx_rule *new;
    fx_status status;
} change;

/* The whole array of which each member has a part. */
static fx_array *joined(const fxi_state_leaf *l, fx_array *mine)
{
    const fx_communicator *among = fxi_rule_divides(l->rule);
    const int64_t n = fxi_length(l->ndims, l->sizes);
    fx_array **pieces = fxi_malloc((size_t)among->size * sizeof *pieces);
    if (!pieces)
        return fx_error_array(fxi_update_no_memory());
    for (int32_t r = 0; r < among->size; r++) {
        const int64_t length = length_of(among, n, r);
        fx_array *part = r == among->rank ? mine : fxi_full(fx_eltype(mine), 0, 1, &length);
        pieces[r] = sent_by(among, r, part, mine);
    }
    fx_array *whole = fxi_reshape(fxi_concat(0, among->size, pieces), l->ndims, l->sizes);
    fxi_free(pieces);
    return whole;
}

/* A new leaf with whole arrays, and with a rule that divides none. Arrays that are whole already
 * are copied. */
static void *whole_leaf(void *object, void *user)
{
    change *c = user;
    fxi_leaf parts;
    if (!fxi_is_leaf(object) || !fxi_leaf_of(object, &parts))
        return NULL;
    const fxi_state_leaf *l = object;
    const bool divided = fxi_rule_divides(l->rule);
    if (divided && c->old != l->rule) {
        c->old = l->rule;
        c->new = fxi_rule_undivided(l->rule);
    }
    if (divided)
        parts.rule = c->new;
    for (int i = 0; i < parts.nstates; i++) {
        parts.states[i] =
            divided ? joined(l, parts.states[i]) : fx_mul(parts.states[i], 1); /* a copy */
        if (fx_is_error(parts.states[i]))
            c->status = fx_array_status(parts.states[i]);
    }
    return fx_is_error(parts.rule) ? (c->status = FX_STATUS_MEMORY, object) : fxi_leaf_new(&parts);
}

/* For arrays outside of leaves; a state has none. */
static fx_array *same(fx_array *x, void *user)
{
    (void)user;
    return x;
}

void *fxi_states_whole(void *state)
{
    FXI_SCOPE;
    change c = {.status = FX_OK};
    void *whole = fx_fmap_objects(same, whole_leaf, &c, state);
    if (c.status == FX_OK && !fx_is_error(whole))
        c.status = fx_eval(whole);
    return c.status == FX_OK ? fx_keep(whole) : fx_error_array(c.status);
}

/* The arrays of a state and the values that they get. */
typedef struct taking {
    fx_array **handles, **values;
    int64_t n, handle_capacity, value_capacity;
    fx_status status;
} taking;

static fx_status not_its_whole(void)
{
    return fx_fail(FX_STATUS_ARGUMENT, "dist_divide",
                   "the second state was not made by fx_dist_whole from the first one");
}

static void take_leaf(taking *t, const fxi_state_leaf *l, const fxi_state_leaf *whole)
{
    if (l->states.n != whole->states.n)
        t->status = not_its_whole();
    for (int64_t i = 0; i < l->states.n && t->status == FX_OK; i++, t->n++) {
        if (!fxi_update_grow(&t->handles, &t->handle_capacity, t->n, sizeof *t->handles) ||
            !fxi_update_grow(&t->values, &t->value_capacity, t->n, sizeof *t->values)) {
            t->status = fxi_update_no_memory();
            return;
        }
        t->handles[t->n] = l->states.items[i];
        /* A copy, because a part would keep the whole array in memory. */
        t->values[t->n] = fx_mul(fxi_own_part(l->rule, whole->states.items[i]), 1);
    }
}

static fx_walk meet_leaves(const fx_spot *at, void *user)
{
    taking *t = user;
    const void *l = at->objects[0], *whole = at->objects[1];
    const bool is_leaf = fxi_is_leaf(l);
    if (is_leaf && !fxi_is_leaf(whole))
        t->status = not_its_whole();
    else if (is_leaf)
        take_leaf(t, l, whole);
    if (t->status != FX_OK)
        return FX_WALK_STOP;
    return !is_leaf && fx_has_children(l) && whole ? FX_WALK_ENTER : FX_WALK_PASS;
}

fx_status fxi_states_divide(void *state, void *whole)
{
    FXI_SCOPE;
    taking t = {.status = FX_OK};
    void *const both[] = {state, whole};
    const fx_tree_walker how = {.op = "dist_divide", .trees = 2, .meet = meet_leaves, .user = &t};
    const fx_status walked = fx_tree_walk(&how, both);
    t.status = t.status == FX_OK ? walked : t.status;
    const int64_t n = fxi_state_numbers(whole, NULL, 0);
    double *numbers = fxi_malloc((size_t)(n > 0 ? n : 0) * sizeof *numbers + 1);
    if (t.status == FX_OK && !numbers)
        t.status = fxi_update_no_memory();
    if (t.status == FX_OK && t.n > 0)
        t.status = fxi_commit((int)t.n, t.handles, t.values, NULL, false);
    if (t.status == FX_OK && n > 0) {
        fxi_state_numbers(whole, numbers, n);
        t.status = fxi_state_numbers_set(state, numbers, n, false);
    }
    fxi_free(numbers);
    fxi_free(t.handles);
    fxi_free(t.values);
    return t.status;
}
