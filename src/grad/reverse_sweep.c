/* reverse_sweep.c: computes gradients by reverse-mode differentiation over the history of a result.
 *
 * For a loss L and a node y = f(x₁, …), the sweep knows ȳ = ∂L/∂y and adds (∂f/∂xᵢ)ᵀ·ȳ to x̄ᵢ for
 * each input. These products are what the rules record; no Jacobian is ever stored. One sweep costs
 * a small multiple of the forward pass, whatever the number of parameters (Griewank, Walther,
 * "Evaluating Derivatives", 2008, chapters 3 and 4). The contributions are nodes like any others,
 * so the gradient of a gradient needs no code of its own.
 *
 * Evaluated values keep their inputs until their training step closes. A walk from the result
 * collects the nodes that lead to a wanted value, inputs before consumers. The sweep visits them in
 * the reverse order, and the rule of each node adds lazy contributions to the gradients of its
 * inputs. The walk and the sweep are iterative, because a graph can be deeper than the stack. The
 * handles that rules make are freed a few rules later. Contributions of slices and products are
 * held until the gradient is needed, because many of them cost less together (docs/design/0069).
 *
 * If an update has replaced the value of a handle whose gradient is wanted, that is an error: the
 * result would be the gradient of another value, or silently zero.
 */
#include "gradient_rules.h"
#include "handle.h"
#include "launcher.h"
#include "primitives.h"
#include "recompute.h"
#include "tape.h"

#include <cflux/grad.h>
#include <stdlib.h>
#include <string.h>

/* A node on the way from the result to a wanted value. */
typedef struct entry {
    fxi_node *node;
    fx_array *gradient; /* retained; NULL: no contribution yet */
    bool leads;         /* it is a wanted value, or leads to one */
    bool start;         /* fxi_pullback_to: a wanted value, whose history the walk does not enter */
    bool walked;        /* the walk has visited it; wanted values get entries before the walk */
    bool passes;        /* gradients may pass through the node to its inputs */
    bool from_product;  /* the first contribution in `gradient` is one of the rule of products */
    /* Retained; contributions that are added together when the gradient is needed: all of them pads
     * of one axis, or all products. */
    fx_array **held;
    int32_t nheld, held_capacity;
} entry;

typedef struct sweep {
    fxi_context *c;
    entry *entries;
    int32_t n, capacity;
    int32_t *order; /* entries in the order in which the walk finished them */
    int32_t norder, order_capacity;
    struct walk_frame {
        int32_t entry;
        int32_t next;
    } * stack;
    int32_t stack_capacity;
    struct foreign_entry {
        const fxi_node *node;
        int32_t entry;
    } * foreign; /* entries of nodes of other threads: wanted values and the result */
    int32_t nforeign, foreign_capacity;
    fx_array **joined; /* retained; the concatenations of pads along the last axis */
    int32_t njoined, joined_capacity;
    fx_array *one; /* see fxi_rule_args */
    bool holds;    /* some value has held contributions */
    uint32_t mark;
    fxi_scope *scope; /* of the handles that rules make; NULL: it is not open, or has no memory */
    bool inner;       /* called by fxi_pullback_to */
    fx_status status;
} sweep;

static fx_status out_of_memory(void)
{
    return fx_fail(FX_STATUS_MEMORY, "gradient", "no memory for the sweep");
}

static bool mine(const sweep *s, const fxi_node *n)
{
    return n->owner == s->c->id;
}

/* The number of n's entry; −1 if it has none. Nodes of other threads cannot store numbers; few have
 * an entry, so a search in `foreign` finds them. */
static int32_t number_of(const sweep *s, const fxi_node *n)
{
    if (mine(s, n))
        return n->sweep == s->mark ? (int32_t)n->sweep_id : -1;
    for (int32_t i = 0; i < s->nforeign; i++)
        if (s->foreign[i].node == n)
            return s->foreign[i].entry;
    return -1;
}

/* May gradients pass through n to its inputs? */
static inline bool passes(const sweep *s, const fxi_node *n)
{
    return mine(s, n) && fxi_is_float(n->dtype) && n->nin > 0 && fxi_gradient_rules[n->op];
}

static int32_t enter(sweep *s, fxi_node *n)
{
    if (s->n == s->capacity && !fxi_grow(&s->entries, &s->capacity, s->n + 1, sizeof *s->entries))
        return -1;
    if (!mine(s, n)) {
        if (!fxi_grow(&s->foreign, &s->foreign_capacity, s->nforeign + 1, sizeof *s->foreign))
            return -1;
        s->foreign[s->nforeign].node = n;
        s->foreign[s->nforeign++].entry = s->n;
    } else {
        n->sweep = s->mark;
        n->sweep_id = (uint32_t)s->n;
    }
    s->entries[s->n] = (entry){.node = n, .passes = passes(s, n)};
    return s->n++;
}

static bool rebound_in(const fxi_node *n, fx_array *const *x, int nx)
{
    const fx_array *handle = __atomic_load_n(&n->rebound, __ATOMIC_RELAXED);
    for (int i = 0; handle && i < nx; i++)
        if (handle == x[i])
            return true;
    return false;
}

static fx_status built_before(void)
{
    return fx_fail(FX_STATUS_STATE, "gradient",
                   "the loss was built before its parameters were updated; build it again from the "
                   "updated model");
}

static bool finish(sweep *s, int32_t e)
{
    if (s->norder == s->order_capacity &&
        !fxi_grow(&s->order, &s->order_capacity, s->norder + 1, sizeof *s->order))
        return false;
    s->order[s->norder++] = e;
    return true;
}

/* Collects all nodes between root and the wanted values. Others through which no gradient passes
 * (literals, data, what another thread made) get no entry. */
static fx_status collect(sweep *s, fxi_node *root, fx_array *const *x, int nx)
{
    int32_t depth = 0;
    int32_t first = number_of(s, root);
    first = first < 0 ? enter(s, root) : first;
    if (first < 0 || !fxi_grow(&s->stack, &s->stack_capacity, 1, sizeof *s->stack))
        return out_of_memory();
    s->stack[depth++] = (struct walk_frame){first, 0};
    s->entries[first].walked = true;
    while (depth > 0) {
        struct walk_frame *f = &s->stack[depth - 1];
        entry *at = &s->entries[f->entry];
        fxi_node *n = at->node;
        if (f->next == 0 && rebound_in(n, x, nx))
            return built_before();
        if (!at->passes || f->next >= n->nin || at->start) {
            const bool leads = at->leads;
            if (!finish(s, f->entry))
                return out_of_memory();
            if (--depth > 0)
                s->entries[s->stack[depth - 1].entry].leads |= leads;
            continue;
        }
        fxi_node *in = n->in[f->next++];
        const int32_t known = number_of(s, in);
        if (known >= 0 && s->entries[known].walked) {
            at->leads |= s->entries[known].leads;
            continue;
        }
        if (known < 0 && !passes(s, in)) { /* not wanted, and no way to a wanted value */
            if (rebound_in(in, x, nx))
                return built_before();
            continue;
        }
        const int32_t e = known >= 0 ? known : enter(s, in);
        if (e < 0 || (depth == s->stack_capacity &&
                      !fxi_grow(&s->stack, &s->stack_capacity, depth + 1, sizeof *s->stack)))
            return out_of_memory();
        s->entries[e].walked = true;
        s->stack[depth++] = (struct walk_frame){e, 0};
    }
    return FX_OK;
}

/* The entry of an input; NULL if its gradient is not wanted. */
static entry *entry_of(sweep *s, const fxi_node *n)
{
    const int32_t i = number_of(s, n);
    return i >= 0 && s->entries[i].leads ? &s->entries[i] : NULL;
}

/* Converts a contribution to the shape and type of the value whose gradient it is. If a number was
 * broadcast to an array, its gradient is the sum over that array: broadcasting is linear, and its
 * transpose is the sum. */
static fx_array *fitted(const fxi_context *c, fx_array *g, const fxi_node *n)
{
    /* Most contributions fit. */
    if (fxi_array_ok(g) && g->node->dtype == n->dtype && (n->ndim > 0 || g->node->ndim == 0) &&
        fxi_node_usable(c, g->node))
        return g;
    if (fx_is_error(g))
        return g;
    if (n->ndim == 0 && g->node->ndim > 0)
        g = fxi_reshape(fxi_reduce(FX_REDUCE_SUM, g, (1u << g->node->ndim) - 1, "sum"), 0, NULL);
    return fx_cast(g, (fx_dtype)n->dtype);
}

/* x̄ ← x̄ + g: the gradient of a value with several readers is the sum of their contributions (the
 * chain rule of several variables). */
static void add(const sweep *s, entry *e, fx_array *g)
{
    fx_array *old = e->gradient, *sum = old ? fx_add(old, g) : g;
    e->gradient = fxi_scope_take(s->scope, sum);
    if (old)
        fxi_scope_give(s->scope, old); /* the rule may have contributed it to another value too */
}

/* ---- contributions of slices ----------------------------------------------------------------- */
/* Is the pad g one with zeros, the gradient of a slice? Pads of one axis are held until the
 * gradient is needed. Pads that do not overlap are then joined by one concatenation, so n slices of
 * an array cost one pass over it, not n. */

static bool zero_pad(const fx_array *g, const entry *e)
{
    const fxi_node *n = g->node, *first = e->nheld ? e->held[0]->node : n;
    return !n->data && n->in[1]->attr.literal.number == 0 && first->op == FX_OP_PAD &&
           first->attr.pad.axis == n->attr.pad.axis;
}

static int by_start(const void *a, const void *b)
{
    const int64_t i = (*(fx_array *const *)a)->node->attr.pad.before,
                  j = (*(fx_array *const *)b)->node->attr.pad.before;
    return (i > j) - (i < j);
}

/* Zeros with the shape of e, except for the size of `axis`. */
static fx_array *gap(const entry *e, int axis, int64_t size)
{
    int64_t shape[FX_MAX_DIMS];
    memcpy(shape, e->node->shape, sizeof shape);
    shape[axis] = size;
    return fxi_full((fx_dtype)e->node->dtype, 0, e->node->ndim, shape);
}

/* Notes a concatenation along the last axis, for products of its parts. Without memory for the
 * note, products copy the parts. */
static void note_joined(sweep *s, int axis, fx_array *whole)
{
    if (!fxi_array_ok(whole) || axis != whole->node->ndim - 1 ||
        !fxi_grow(&s->joined, &s->joined_capacity, s->njoined + 1, sizeof *s->joined))
        return;
    s->joined[s->njoined++] = fxi_retain(whole);
}

/* Removes pads that do not overlap from the sorted list, and returns the array that they form
 * together. */
static fx_array *join_pads(sweep *s, entry *e, fx_array **pieces)
{
    const int axis = (int)e->held[0]->node->attr.pad.axis;
    int32_t left = 0, n = 0, taken = 0;
    int64_t at = 0;
    fx_array *last = NULL;
    for (int32_t i = 0; i < e->nheld; i++) {
        const fxi_node *pad = e->held[i]->node;
        if (pad->attr.pad.before < at) {
            e->held[left++] = e->held[i];
            continue;
        }
        if (pad->attr.pad.before > at)
            pieces[n++] = gap(e, axis, pad->attr.pad.before - at);
        pieces[n++] = fxi_array_of(pad->in[0]);
        at = pad->attr.pad.before + pad->in[0]->shape[axis];
        last = fxi_array_of(e->held[i]->node);
        fx_release(e->held[i]);
        taken++;
    }
    if (at < e->node->shape[axis])
        pieces[n++] = gap(e, axis, e->node->shape[axis] - at);
    e->nheld = left;
    if (taken == 1)
        return last;
    fx_array *whole = fxi_concat(axis, n, pieces);
    note_joined(s, axis, whole);
    return whole;
}

static void add_pads(sweep *s, entry *e, fx_array **pieces)
{
    qsort(e->held, (size_t)e->nheld, sizeof *e->held, by_start);
    while (e->nheld > 0)
        add(s, e, join_pads(s, e, pieces));
}

/* ---- contributions of products --------------------------------------------------------------- */
/* A weight that several products share, such as that of a recurrent layer, gets a contribution
 * A·Bᵀ from each. Their sum is one product [A₁ A₂ …]·[B₁ B₂ …]ᵀ, which reads and writes the
 * gradient once, not n times, and sums more terms at a time. Only contributions of the rule of
 * products are held: others may be read elsewhere, and would then be computed twice. */

/* Fewer products are added one by one. */
enum { JOINED_PRODUCTS = 4 };

/* Is g such a product? */
static bool plain_product(const fx_array *g)
{
    const fxi_node *n = g->node;
    return n->op == FX_OP_MATMUL && !n->data && n->ndim == 2 && n->nin == 2 &&
           !n->attr.matmul.transpose_a && n->attr.matmul.transpose_b;
}

/* Can g be held with those that are held, or with the one that is the gradient so far? */
static bool can_hold_product(const fx_array *g, const entry *e)
{
    const fx_array *first = e->nheld ? e->held[0] : e->from_product ? e->gradient : NULL;
    return first && plain_product(g) && plain_product(first);
}

/* Operand i of product k. */
static fxi_node *factor(const entry *e, int32_t k, int i)
{
    return e->held[k]->node->in[i];
}

/* The terms of all products together. */
static int64_t terms_of(const entry *e)
{
    int64_t terms = 0;
    for (int32_t k = 0; k < e->nheld; k++)
        terms += factor(e, k, 0)->shape[1];
    return terms;
}

/* Copying the operands must cost less than what is saved: reading and writing the gradient for each
 * product. */
static bool worth_joining(const entry *e)
{
    const int64_t rows = e->node->shape[0], columns = e->node->shape[1];
    return e->nheld >= JOINED_PRODUCTS &&
           (rows + columns) * (terms_of(e) / e->nheld) <= rows * columns;
}

/* Is a part of a concatenation the matrix x, perhaps with other sizes? */
static bool is_part(const fxi_node *part, const fxi_node *x)
{
    return part == x || (part->op == FX_OP_RESHAPE && part->in[0] == x && part->ndim >= 2 &&
                         part->shape[0] == x->shape[0]);
}

/* The place of x among the parts; −1: it is none of them. */
static int32_t part_of(const fxi_node *whole, const fxi_node *x)
{
    for (int32_t i = 0; i < whole->nin; i++)
        if (is_part(whole->in[i], x))
            return i;
    return -1;
}

/* The part of `whole` that has the first factors of all products in their order or the reverse one,
 * as a matrix; NULL: there is none. Puts the products in the order of the parts. */
static fx_array *factors_in(entry *e, fx_array *whole)
{
    const fxi_node *n = whole->node;
    const int axis = n->ndim - 1;
    int32_t first = part_of(n, factor(e, 0, 0));
    const int32_t second = first < 0 ? -1 : part_of(n, factor(e, 1, 0)), way = second - first;
    if (second < 0 || (way != 1 && way != -1))
        return NULL;
    for (int32_t k = 2; k < e->nheld; k++) {
        const int32_t at = first + k * way;
        if (at < 0 || at >= n->nin || !is_part(n->in[at], factor(e, k, 0)))
            return NULL;
    }
    for (int32_t i = 0, k = e->nheld - 1; way < 0 && i < k; i++, k--) {
        fx_array *swapped = e->held[i];
        e->held[i] = e->held[k];
        e->held[k] = swapped;
    }
    first = way < 0 ? first - e->nheld + 1 : first;
    int64_t start = 0, size = 0;
    for (int32_t i = 0; i < first + e->nheld; i++)
        *(i < first ? &start : &size) += n->in[i]->shape[axis];
    return fx_reshape(fx_slice(whole, axis, start, start + size), n->shape[0], terms_of(e));
}

static fx_array *concat_factors(const entry *e, int i, fx_array **pieces)
{
    for (int32_t k = 0; k < e->nheld; k++)
        pieces[k] = fxi_array_of(factor(e, k, i));
    return fxi_concat(1, e->nheld, pieces);
}

static fx_array *join_products(const sweep *s, entry *e, fx_array **pieces)
{
    fx_array *a = NULL;
    for (int32_t i = 0; i < s->njoined && !a; i++)
        a = factors_in(e, s->joined[i]);
    a = a ? a : concat_factors(e, 0, pieces);
    return fxi_matmul_node(false, true, a, concat_factors(e, 1, pieces), "matmul");
}

static void add_products(sweep *s, entry *e, fx_array **pieces)
{
    if (worth_joining(e))
        add(s, e, join_products(s, e, pieces));
    else
        for (int32_t k = 0; k < e->nheld; k++)
            add(s, e, fxi_array_of(e->held[k]->node));
    for (int32_t k = 0; k < e->nheld; k++)
        fx_release(e->held[k]);
    e->nheld = 0;
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Adds the contributions that are held. */
static fx_status add_held(sweep *s, entry *e)
{
    if (e->nheld == 0)
        return FX_OK;
    FXI_SCOPE;
    fx_array **pieces = fxi_malloc((2 * (size_t)e->nheld + 1) * sizeof *pieces);
    if (!pieces)
        return out_of_memory();
    if (e->held[0]->node->op == FX_OP_PAD)
        add_pads(s, e, pieces);
    else
        add_products(s, e, pieces);
    fxi_free(pieces);
    return fx_array_status(e->gradient);
}

static void hold(sweep *s, entry *e, fx_array *g)
{
    if (!fxi_grow(&e->held, &e->held_capacity, e->nheld + 1, sizeof *e->held)) {
        s->status = out_of_memory();
        return;
    }
    e->held[e->nheld++] = fxi_retain(g);
    s->holds = true;
}

/* Holds a product, and with the second one the first, which was the gradient so far. */
static void hold_product(sweep *s, entry *e, fx_array *g)
{
    const bool second = e->nheld == 0;
    if (second)
        hold(s, e, e->gradient);
    if (s->status == FX_OK)
        hold(s, e, g);
    if (second && s->status == FX_OK) {
        fxi_scope_give(s->scope, e->gradient);
        e->gradient = NULL;
        e->from_product = false;
    }
}

/* Adds g to the gradient of e. */
static inline void add_now(sweep *s, entry *e, fx_array *g)
{
    add(s, e, g);
    if (!fxi_array_ok(e->gradient))
        s->status = fx_array_status(e->gradient);
}

static void contribute_product(sweep *s, entry *e, fx_array *g)
{
    if (can_hold_product(g, e)) {
        hold_product(s, e, g);
        return;
    }
    e->from_product = !e->gradient;
    add_now(s, e, g);
}

/* Adds g, a contribution of the rule of an operation, to the gradient of e, or holds it. The order
 * of contributions is that of the sweep, so sums have the same bits in every run. */
static void contribute(sweep *s, entry *e, fx_array *g, int op)
{
    g = fitted(s->c, g, e->node);
    if (!fxi_array_ok(g))
        s->status = s->status == FX_OK ? fx_array_status(g) : s->status;
    else if (g->node->op == FX_OP_PAD && zero_pad(g, e))
        hold(s, e, g);
    else if (op == FX_OP_MATMUL)
        contribute_product(s, e, g);
    else
        add_now(s, e, g);
}

/* Numbers the entries again: a sweep inside a custom rule has overwritten the numbers in the nodes.
 */
static void renumber(sweep *s)
{
    s->mark = ++s->c->sweep;
    s->nforeign = 0;
    for (int32_t i = 0; i < s->n; i++) {
        fxi_node *n = s->entries[i].node;
        if (mine(s, n)) {
            n->sweep = s->mark;
            n->sweep_id = (uint32_t)i;
        } else {
            s->foreign[s->nforeign].node = n;
            s->foreign[s->nforeign++].entry = i;
        }
    }
}

enum { INLINE_INPUTS = 8 };

/* NULL: the rule did not ask for the handle. fx_is_error records why a handle is none: a gradient
 * function may have released it. */
static inline bool is_made(const fx_array *x)
{
    return !x || fxi_array_ok(x) || !fx_is_error(x);
}

/* Calls the rule of a node and passes its results on. The rule may leave out a gradient that `need`
 * does not request: that of an input which leads to no wanted value. Few operations have more than
 * INLINE_INPUTS inputs, so their lists need no allocation. */
static void apply_rule(sweep *s, entry *e)
{
    fxi_node *n = e->node;
    fx_array *in_small[INLINE_INPUTS], *gx_small[INLINE_INPUTS];
    entry *to_small[INLINE_INPUTS];
    bool need_small[INLINE_INPUTS];
    const int nin = n->nin;
    const bool small = nin <= INLINE_INPUTS;
    fx_array **in = small ? in_small : fxi_malloc((size_t)nin * sizeof *in);
    fx_array **gx = small ? gx_small : fxi_malloc((size_t)nin * sizeof *gx);
    entry **to = small ? to_small : fxi_malloc((size_t)nin * sizeof *to);
    bool *need = small ? need_small : fxi_malloc((size_t)nin * sizeof *need);
    if (in && gx && to && need) {
        fx_array *out = NULL;
        for (int i = 0; i < nin; i++) {
            in[i] = gx[i] = NULL;
            to[i] = entry_of(s, n->in[i]);
            need[i] = to[i] != NULL;
        }
        fxi_gradient_rules[n->op](&(fxi_rule_args){n, in, &out, e->gradient, need, gx, &s->one});
        if (s->c->sweep != s->mark)
            renumber(s);
        s->status = is_made(out) ? s->status : FX_STATUS_MEMORY;
        for (int i = 0; i < nin; i++)
            if (!is_made(in[i]))
                s->status = FX_STATUS_MEMORY;
            else if (to[i] && gx[i] && s->status == FX_OK)
                contribute(s, to[i], gx[i], n->op);
    } else {
        s->status = out_of_memory();
    }
    if (!small) {
        fxi_free(in);
        fxi_free(gx);
        fxi_free(to);
        fxi_free(need);
    }
}

/* The gradient of a wanted value: the sum of its contributions; if there are none, zeros, or NULL
 * for fxi_pullback_to; no gradient for integers. */
static fx_array *result_of(sweep *s, fx_array *x)
{
    entry *e = entry_of(s, x->node);
    if (!fxi_is_float(x->node->dtype))
        return NULL;
    if (!e) /* each wanted value had an entry */
        return fx_error_array(fx_fail(FX_STATUS_STATE, "gradient",
                                      "a gradient function has updated an array whose gradient is "
                                      "wanted"));
    if (e->gradient)
        return fxi_array_of(e->gradient->node);
    if (s->inner)
        return NULL;
    fx_array *zeros = fxi_full((fx_dtype)x->node->dtype, 0, x->node->ndim, x->node->shape);
    if (!fx_is_error(zeros))
        zeros->node->no_gradient = true;
    return zeros;
}

/* Adds what the wanted values hold: first the pads, so that products find the concatenations. */
static fx_status add_to_wanted(sweep *s, fx_array *const *x, int n)
{
    for (int products = 0; products < 2; products++)
        for (int i = 0; i < n && s->status == FX_OK; i++) {
            entry *e = entry_of(s, x[i]->node);
            if (e && e->nheld > 0 && plain_product(e->held[0]) == products)
                s->status = add_held(s, e);
        }
    return s->status;
}

static fx_status enter_wanted(sweep *s, fx_array *const *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (!fxi_is_float(x[i]->node->dtype))
            continue;
        const int32_t known = number_of(s, x[i]->node),
                      e = known < 0 ? enter(s, x[i]->node) : known;
        if (e < 0)
            return out_of_memory();
        s->entries[e].leads = true;
        s->entries[e].start = s->inner;
    }
    return FX_OK;
}

static fx_status check(fx_array *y, fx_array *gy, fx_array *const *x, int n)
{
    char a[FXI_SHAPE_TEXT], b[FXI_SHAPE_TEXT];
    if (fx_is_error(y))
        return y ? fx_array_status(y) : fx_fail(FX_STATUS_ARGUMENT, "gradient", "the loss is NULL");
    if (fx_is_error(gy))
        return gy ? fx_array_status(gy)
                  : fx_fail(FX_STATUS_ARGUMENT, "gradient", "the upstream gradient is NULL");
    if (!fxi_same_shape(y->node, gy->node))
        return fx_fail(FX_STATUS_SHAPE, "gradient",
                       "the size of the upstream gradient is %s, but that of the result is %s",
                       fxi_shape_text(gy->node->ndim, gy->node->shape, a),
                       fxi_shape_text(y->node->ndim, y->node->shape, b));
    if (!fxi_is_float(y->node->dtype))
        return fx_fail(FX_STATUS_DTYPE, "gradient", "takes a floating-point result, got %s",
                       fx_dtype_name(fx_eltype(y)));
    const fxi_context *c = fxi_here();
    bool ours = fxi_node_usable(c, y->node) && fxi_node_usable(c, gy->node);
    for (int i = 0; i < n; i++) {
        if (fx_is_error(x[i]))
            return x[i] ? fx_array_status(x[i])
                        : fx_fail(FX_STATUS_ARGUMENT, "gradient", "x[%d] is NULL", i);
        if (!fx_is_array(x[i]))
            return fx_fail(FX_STATUS_ARGUMENT, "gradient", "x[%d] is not an array", i);
        ours &= fxi_node_usable(c, x[i]->node);
    }
    return ours ? FX_OK
                : fx_fail(FX_STATUS_STATE, "gradient",
                          "an argument is still pending in another thread; call fx_eval in that "
                          "thread first");
}

/* The gradient with respect to y itself needs no history; integers have none. */
static bool needs_history(const fx_array *y, fx_array *const *x, int n)
{
    bool itself = false, other = false;
    for (int i = 0; i < n; i++)
        if (x[i]->node == y->node)
            itself = true;
        else
            other |= fxi_is_float(x[i]->node->dtype);
    return other || !itself;
}

/* The handles that rules have made are freed when there are this many. */
enum { MANY_HANDLES = 32 };

static fx_status run(sweep *s, fx_array *y, fx_array *gy, fx_array *const *x, int n)
{
    s->mark = ++s->c->sweep;
    s->status = enter_wanted(s, x, n);
    if (s->status == FX_OK)
        s->status = collect(s, y->node, x, n);
    if (s->status == FX_OK && y->node->history_cut && needs_history(y, x, n))
        s->status =
            fx_fail(FX_STATUS_STATE, "gradient",
                    "the result was built in a training step that has ended; it is now a constant");
    if (s->status != FX_OK)
        return s->status;
    entry *root = entry_of(s, y->node);
    if (root)
        contribute(s, root, gy, FX_OP_LEAF);
    const int scope = fxi_scope_open(FXI_SCOPE_QUIET, NULL, 0);
    s->scope = s->c->virtual_scopes ? NULL : s->c->scope;
    for (int32_t i = s->norder - 1; i >= 0 && s->status == FX_OK; i--) {
        entry *e = &s->entries[s->order[i]];
        if (!e->leads || e->start || !e->passes) /* of a wanted value: see add_to_wanted */
            continue;
        s->status = add_held(s, e);
        if (s->status != FX_OK || !e->gradient)
            continue;
        if (e->node->nin > 0)
            apply_rule(s, e);
        else
            s->status = fx_fail(FX_STATUS_STATE, "gradient",
                                "a gradient function ended the history of a value that the "
                                "gradient needs: it kept the value by fx_set, or ran an update");
        if (s->c->scope != s->scope || s->scope->objects >= MANY_HANDLES)
            fxi_scope_empty(scope);
    }
    s->scope = NULL;
    fxi_scope_close(scope);
    return s->status;
}

static fx_status pullback(fx_array *y, fx_array *gy, fx_array *const *x, int n, bool inner,
                          fx_array **out_gradients)
{
    sweep s = {.c = fxi_here(), .inner = inner};
    fxi_tape_catch_up(s.c); /* so that values which an update has replaced are known */
    fx_status status = check(y, gy, x, n);
    if (status == FX_OK)
        status = run(&s, y, gy, x, n);
    if (status == FX_OK && s.holds)
        status = add_to_wanted(&s, x, n);
    for (int i = 0; i < n; i++) {
        out_gradients[i] = status == FX_OK ? result_of(&s, x[i]) : fx_error_array(status);
        if (status == FX_OK && out_gradients[i] && fx_is_error(out_gradients[i]))
            status = fx_array_status(out_gradients[i]);
    }
    for (int32_t i = 0; i < s.n; i++) {
        const entry *e = &s.entries[i];
        if (e->gradient)
            fx_release(e->gradient);
        for (int32_t k = 0; k < e->nheld; k++)
            fx_release(e->held[k]);
        if (e->held)
            fxi_free(e->held);
    }
    for (int32_t i = 0; i < s.njoined; i++)
        fx_release(s.joined[i]);
    fxi_free(s.joined);
    fx_release(s.one);
    fxi_free(s.entries);
    fxi_free(s.order);
    fxi_free(s.foreign);
    fxi_free(s.stack);
    return status;
}

static fx_status check_lists(fx_array *const *x, int n, fx_array **out_gradients)
{
    if (n == 0 || (n > 0 && x && out_gradients))
        return FX_OK;
    for (int i = 0; i < n && out_gradients; i++)
        out_gradients[i] = fx_error_array(FX_STATUS_ARGUMENT);
    return n < 0 ? fx_fail(FX_STATUS_ARGUMENT, "gradient", "the number of arrays is %d", n)
                 : fx_fail(FX_STATUS_ARGUMENT, "gradient", "the list of %d %s is NULL", n,
                           x ? "gradients" : "arrays");
}

fx_status fx_pullback(fx_array *y, fx_array *gy, fx_array *const *x, int n,
                      fx_array **out_gradients)
{
    const fx_status status = check_lists(x, n, out_gradients);
    return status != FX_OK ? status : pullback(y, gy, x, n, false, out_gradients);
}

fx_status fxi_pullback_to(fx_array *y, fx_array *gy, fx_array *const *x, int n,
                          fx_array **out_gradients)
{
    return pullback(y, gy, x, n, true, out_gradients);
}

/* ---- gradients of a recorded training step --------------------------------------------------- */
/* If a recorded training step is repeated, a sweep creates no nodes, because the same loss leads to
 * the same operations. But the sweep runs again if a literal has changed, which a rule may have
 * read, or if the program has gradient rules of its own, which must be called. */

typedef struct recorded_gradient {
    fxi_event event;
    int32_t evaluations; /* before it */
    int32_t loss, n;
    int32_t *of, *result; /* per array: its number on the tape, and the entry of its gradient */
} recorded_gradient;

static void recorded_free(fxi_event *e)
{
    recorded_gradient *r = (recorded_gradient *)e;
    fxi_free(r->of);
    fxi_free(r);
}

static const fxi_event_kind recorded_kind = {recorded_free, true, NULL};

/* Notes a sweep that began at entry `first`. If an allocation fails, the next training step sweeps
 * again. */
static void note_gradient(fxi_context *c, int32_t first, fx_array *loss, fx_array *const *x, int n,
                          fx_array *const *gradients)
{
    fxi_tape *t = c->tape;
    if (t->impure || !fxi_tape_can_skip(t, first, true, 0))
        return;
    recorded_gradient *r = fxi_calloc(1, sizeof *r);
    if (!r)
        return;
    r->event.kind = &recorded_kind;
    r->evaluations = fxi_tape_evaluations(t);
    r->n = n;
    r->of = fxi_malloc((2 * (size_t)n + 1) * sizeof *r->of);
    r->result = r->of + n;
    bool ok = r->of && fxi_tape_find(t, loss->node, &r->loss) && r->loss >= 0;
    for (int i = 0; i < n && ok; i++)
        ok = gradients[i] && fxi_tape_find(t, x[i]->node, &r->of[i]) &&
             fxi_tape_find(t, gradients[i]->node, &r->result[i]) && r->result[i] >= 0;
    if (!ok) {
        recorded_free(&r->event);
        return;
    }
    fxi_tape_inside(t, first);
    for (int i = 0; i < n; i++)
        t->entries[r->result[i]].inside = false; /* the program has its handle */
    fxi_tape_add(c, &r->event, first);
}

static bool same_request(const fxi_tape *t, const recorded_gradient *r, const fx_array *loss,
                         fx_array *const *x, int n)
{
    if (r->n != n || !fxi_array_ok(loss) || loss->node != fxi_tape_node(t, r->loss))
        return false;
    for (int i = 0; i < n; i++)
        if (!fxi_array_ok(x[i]) || x[i]->node != fxi_tape_node(t, r->of[i]))
            return false;
    return true;
}

static bool repeat_gradient(fxi_context *c, fx_array *loss, fx_array *const *x, int n,
                            fx_array **out)
{
    fxi_tape *t = c->tape;
    const recorded_gradient *r = (recorded_gradient *)fxi_tape_event(c, &recorded_kind);
    if (!r)
        return false;
    if (!same_request(t, r, loss, x, n)) {
        /* This sweep may make the same calls, but the program gets handles of other entries. */
        fxi_tape_leave(c);
        return false;
    }
    if (t->changed || r->evaluations != fxi_tape_evaluations(t))
        return false;
    if (!fxi_tape_skip(c, r->event.end, 0, NULL))
        return false;
    loss->node->wanted = true;
    for (int i = 0; i < n; i++) {
        fxi_tape_show(t, r->event.first, r->result[i]);
        out[i] = fxi_array_of(t->entries[r->result[i]].node);
    }
    return true;
}

static fx_status gradient_of(fx_array *loss, fx_array *const *x, int n, fx_array **out_gradients);

fx_status fx_gradient_of(fx_array *loss, fx_array *const *x, int n, fx_array **out_gradients)
{
    fxi_context *c = fxi_here();
    const fx_status checked = check_lists(x, n, out_gradients);
    if (checked != FX_OK)
        return checked;
    if (fxi_tape_repeats(c) && repeat_gradient(c, loss, x, n, out_gradients)) {
        bool made = true;
        for (int i = 0; i < n; i++)
            made &= fxi_array_ok(out_gradients[i]);
        return made ? FX_OK : FX_STATUS_MEMORY;
    }
    const int32_t first = fxi_tape_notes(c) ? c->tape->n : -1;
    const fx_status status = gradient_of(loss, x, n, out_gradients);
    if (first >= 0 && status == FX_OK && fxi_tape_notes(c))
        note_gradient(c, first, loss, x, n, out_gradients);
    return status;
}

static fx_status gradient_of(fx_array *loss, fx_array *const *x, int n, fx_array **out_gradients)
{
    char t[FXI_SHAPE_TEXT];
    fx_array *one = NULL;
    fxi_launcher_warn("computes its gradients alone");
    if (!fx_is_error(loss) && fx_length(loss) != 1) {
        fx_fail(FX_STATUS_SHAPE, "gradient",
                "the loss must have one element, got %s; take its mean or sum",
                fxi_shape_text(loss->node->ndim, loss->node->shape, t));
        one = fx_error_array(FX_STATUS_SHAPE);
    } else if (!fx_is_error(loss)) {
        one = fxi_full(fx_eltype(loss), 1, loss->node->ndim, loss->node->shape);
        if (loss->node->owner == fxi_here()->id)
            loss->node->wanted = true;
    } else {
        one = loss;
    }
    return fx_pullback(loss, one, x, n, out_gradients);
}
