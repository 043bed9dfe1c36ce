/* recompute.c: results that keep only their inputs for the gradient.
 *
 * For n equal layers in √n parts this needs memory for about 2√n layers instead of n, and one more
 * forward pass (Griewank, 1992; Chen et al., "Training Deep Nets with Sublinear Memory Cost",
 * 2016).
 *
 * The operations of a result are recorded as usual. An OWN_GRADIENT node over the result and the
 * values that these operations start from (the boundary) replaces their gradients: its rule records
 * copies of the operations, and the sweep runs over the copies. The original results are then
 * needed only by the forward pass, so a plan reuses their memory. Copies of RANDOM nodes have the
 * same counter, so they make the same numbers; nothing is staged again, because no layer is called.
 *
 * A plan computes nodes in the order in which its outputs need them, so the order is part of the
 * graph (fxi_after):
 *   - copies start from the boundary after gy. Otherwise the copies of all parts could be computed
 *     at the start of the backward pass, and all be in memory at once.
 *   - gradients that continue to earlier parts come after all gradients of this part. Otherwise the
 *     copies would be kept until the plan needs the gradients of this part's parameters.
 */
#include "recompute.h"
#include "identity_map.h"
#include "own_gradient.h"
#include "primitives.h"
#include "tape.h"

static fx_status no_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "checkpointed", "no memory for the list of operations");
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* A walk from a result to the nodes of its boundary, inputs before consumers. `seen` maps a node to
 * its stand-in: its copy in a walk that copies, and itself in a walk that collects. */
typedef struct walk {
    fxi_identity_map seen;
    struct frame {
        fxi_node *node;
        int32_t next;
    } * stack;
    int32_t depth, capacity;
    fxi_node **list; /* boundary nodes, or references to copies */
    int32_t n, list_capacity;
    uint64_t since;
    fx_array *gy; /* copies of generators come after it; NULL: in any order */
} walk;

static void walk_free(walk *w)
{
    fxi_identity_free(&w->seen);
    fxi_free(w->stack);
    fxi_free(w->list);
}

static bool append(walk *w, fxi_node *n)
{
    if (!fxi_grow(&w->list, &w->list_capacity, w->n + 1, sizeof *w->list))
        return false;
    w->list[w->n++] = n;
    return true;
}

static fxi_node *stand_in(const walk *w, const fxi_node *n)
{
    void *found = NULL;
    fxi_identity_get(&w->seen, n, &found);
    return found;
}

typedef bool (*walk_fn)(walk *w, fxi_node *n);

/* Visits every node that root depends on and that has no stand-in. `enters`: does the walk continue
 * to the inputs of n? `leave` must give n a stand-in. */
static bool walk_from(walk *w, fxi_node *root, walk_fn enters, walk_fn leave)
{
    fxi_node *n = stand_in(w, root) ? NULL : root;
    for (;;) {
        if (n) {
            if (!fxi_grow(&w->stack, &w->capacity, w->depth + 1, sizeof *w->stack))
                return false;
            w->stack[w->depth++] = (struct frame){n, enters(w, n) ? 0 : n->nin};
        }
        if (w->depth == 0)
            return true;
        struct frame *f = &w->stack[w->depth - 1];
        for (n = NULL; f->next < f->node->nin && !n; f->next++)
            n = stand_in(w, f->node->in[f->next]) ? NULL : f->node->in[f->next];
        if (n)
            continue;
        if (!stand_in(w, f->node) && !leave(w, f->node))
            return false;
        w->depth--;
    }
}

/* ---- recording ------------------------------------------------------------------------------- */

/* A collective operation runs once: its result is part of the boundary, and so is a value that
 * another thread made. */
static bool is_inside(walk *w, fxi_node *n)
{
    return n->seq >= w->since && n->owner == fxi_here()->id && n->op != FX_OP_COLLECTIVE;
}

static bool note_boundary(walk *w, fxi_node *n)
{
    const bool constant = n->op == FX_OP_CONST && !n->data;
    return fxi_identity_put(&w->seen, n, n) && (is_inside(w, n) || constant || append(w, n));
}

static void recompute_gradient(const fx_custom_op *op, const fxi_own_call *call, const bool *need,
                               int n, fx_array *const *in, fx_array *gy, fx_array **gx);
static const fxi_own_gradient_op recompute = {
    .op = {.fxi_size = sizeof(fx_custom_op), .name = "checkpointed"},
    .gradient = recompute_gradient};

static fx_array *over_boundary(const walk *w, fx_array *y)
{
    fx_array **in = fxi_malloc(((size_t)w->n + 1) * sizeof *in);
    if (!in)
        return fx_error_array(no_memory());
    for (int32_t i = 0; i < w->n; i++)
        in[i] = fxi_array_of(w->list[i]);
    in[w->n] = y;
    y = fxi_own_gradient(&recompute, NULL, w->n + 1, in);
    fxi_free(in);
    return y;
}

fx_array *fxi_recomputed(fx_array *y, uint64_t since)
{
    walk w = {.since = since};
    if (fxi_tape_repeats(fxi_here()))
        fxi_tape_number(fxi_here()->tape);
    if (fx_is_error(y) || !fxi_is_float(y->node->dtype) || !is_inside(&w, y->node))
        return y;
    FXI_SCOPE;
    fx_array *result = walk_from(&w, y->node, is_inside, note_boundary)
                           ? over_boundary(&w, y)
                           : fx_error_array(no_memory());
    walk_free(&w);
    return fx_keep(result);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

static bool always(walk *w, fxi_node *n)
{
    (void)w, (void)n;
    return true;
}

/* Constants have no memory of their own to save, and evaluated values without history have no
 * operation to repeat. */
static bool copy(walk *w, fxi_node *n)
{
    if (n->op == FX_OP_CONST || (n->data && n->nin == 0))
        return fxi_identity_put(&w->seen, n, n);
    fxi_node *few[3], **in = n->nin > 3 ? fxi_malloc((size_t)n->nin * sizeof *in) : few;
    for (int32_t i = 0; in && i < n->nin; i++)
        in[i] = stand_in(w, n->in[i]);
    fxi_context *c = fxi_here();
    const uint8_t before = c->grad;
    c->grad = n->grad;
    fxi_node *made = in ? fxi_node_new(c, (fx_op)n->op, (fx_dtype)n->dtype, n->ndim, n->shape,
                                       n->device, &n->attr, n->nin, in)
                        : NULL;
    c->grad = before;
    if (in != few)
        fxi_free(in);
    if (!made)
        return false;
    made->weak = n->weak;
    if (append(w, made))
        return fxi_identity_put(&w->seen, n, made);
    fxi_node_release(made);
    return false;
}

/* Generators have no inputs that would make them wait for gy. */
static bool copy_after(walk *w, fxi_node *n)
{
    const bool generates = n->nin == 0 && n->op != FX_OP_CONST && !n->data;
    if (!copy(w, n) || !generates || !w->gy)
        return stand_in(w, n) != NULL;
    fx_array *late = fxi_after(1, &w->gy, fxi_array_of(stand_in(w, n)));
    return !fx_is_error(late) && fxi_identity_put(&w->seen, n, late->node);
}

/* A plan runs on one device, so values of several devices have no common order. */
static bool one_device(int n, fx_array *const *in, const fx_array *gy)
{
    bool one = true;
    for (int i = 0; i < n; i++) {
        const fx_device *d = in[i]->node->device;
        one &= !d || d == gy->node->device;
    }
    return one;
}

/* The result of a copy of all operations, which starts from late[i] instead of in[i]. `gy` as in
 * walk. */
static fx_array *copied(int n, fx_array *const *in, fx_array **late, fx_array *gy)
{
    walk w = {.gy = gy};
    bool ok = true;
    for (int i = 0; i < n - 1 && ok; i++) {
        late[i] = fxi_after(gy != NULL, &gy, in[i]);
        ok = !fx_is_error(late[i]) && fxi_identity_put(&w.seen, in[i]->node, late[i]->node);
    }
    ok = ok && walk_from(&w, in[n - 1]->node, always, copy_after);
    fx_array *y = ok ? fxi_array_of(stand_in(&w, in[n - 1]->node)) : fx_error_array(no_memory());
    for (int32_t i = 0; i < w.n; i++)
        fxi_node_release(w.list[i]);
    walk_free(&w);
    return y;
}

/* Gradients of values that have a history come after all others. `some` has n entries. */
static void order_gradients(int n, fx_array *const *wanted, fx_array **some, fx_array **g,
                            fx_array *gy)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (g[i])
            some[k++] = g[i];
    fx_array *all = fxi_after(k, some, gy);
    for (int i = 0; i < n; i++)
        if (g[i] && wanted[i]->node->nin > 0)
            g[i] = fxi_after(1, &all, g[i]);
}

/* Sets g to the gradients of the inputs that `need` names, in their order. `lists` has 3·n entries.
 */
static fx_status swept(const bool *need, int n, fx_array *const *in, fx_array *gy, fx_array **lists,
                       fx_array **g)
{
    fx_array **late = lists, **starts = lists + n, **wanted = lists + 2 * n;
    const bool ordered = one_device(n, in, gy);
    fx_array *y = copied(n, in, late, ordered ? gy : NULL);
    int k = 0;
    if (fx_is_error(y))
        return fx_array_status(y);
    for (int i = 0; i < n - 1; i++)
        if (need[i]) {
            starts[k] = late[i];
            wanted[k++] = in[i];
        }
    const fx_status s = k > 0 ? fxi_pullback_to(y, gy, starts, k, g) : FX_OK;
    if (s == FX_OK && ordered && k > 0)
        order_gradients(k, wanted, starts, g, gy);
    return s;
}

static void recompute_gradient(const fx_custom_op *op, const fxi_own_call *call, const bool *need,
                               int n, fx_array *const *in, fx_array *gy, fx_array **gx)
{
    (void)op, (void)call;
    fx_array **lists = fxi_calloc(4 * (size_t)n, sizeof *lists);
    fx_array **g = lists ? lists + 3 * (size_t)n : NULL;
    const fx_status s = lists ? swept(need, n, in, gy, lists, g) : no_memory();
    for (int i = 0, at = 0; i < n - 1; i++)
        if (need[i])
            gx[i] = s == FX_OK ? g[at++] : fx_error_array(s);
    fxi_free(lists);
}
