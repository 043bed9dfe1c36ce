/* graph.c: see graph.h. The walk is iterative, and marks only nodes of the calling thread;
 * evaluated nodes that belong to others are numbered through a small hash table, so that several
 * threads may read one model at the same time.
 */
#include "plan.h"
#include <cflux/backend.h>
#include "counters.h"

#include <string.h>

typedef fxi_frame frame;

typedef struct fxi_foreign {
    const fxi_node *node;
    uint32_t id;
} foreign;

void fxi_graph_free(fxi_graph *g)
{
    void *const all[] = {g->nodes,   g->slot,   g->uses, g->output, g->record,
                         g->outputs, g->donors, g->key,  g->stack,  g->foreign};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fxi_free(all[i]);
    memset(g, 0, sizeof *g);
}

/* ---- numbering ------------------------------------------------------------------------------- */

static size_t foreign_at(const fxi_graph *g, const fxi_node *n)
{
    const size_t mask = (size_t)g->foreign_capacity - 1;
    size_t i = (size_t)(((uintptr_t)n >> 4) * 0x9E3779B97F4A7C15ull >> 20) & mask;
    while (g->foreign[i].node && g->foreign[i].node != n)
        i = (i + 1) & mask;
    return i;
}

static bool foreign_grow(fxi_graph *g)
{
    fxi_graph old = *g;
    g->foreign_capacity = old.foreign_capacity ? 2 * old.foreign_capacity : 64;
    g->foreign = fxi_calloc((size_t)g->foreign_capacity, sizeof *g->foreign);
    if (!g->foreign) {
        g->foreign = old.foreign;
        g->foreign_capacity = old.foreign_capacity;
        return false;
    }
    for (int32_t i = 0; i < old.foreign_capacity; i++)
        if (old.foreign[i].node)
            g->foreign[foreign_at(g, old.foreign[i].node)] = old.foreign[i];
    fxi_free(old.foreign);
    return true;
}

/* The number of a node that the walk has finished; −1 when it has not been seen. */
static int64_t foreign_number(const fxi_graph *g, const fxi_node *n)
{
    if (g->foreign_capacity == 0)
        return -1;
    const foreign *f = &g->foreign[foreign_at(g, n)];
    return f->node ? (int64_t)f->id : -1;
}

static inline int64_t number_of(const fxi_context *c, const fxi_graph *g, const fxi_node *n)
{
    if (__builtin_expect(n->owner != c->id, 0))
        return foreign_number(g, n);
    return n->mark == c->mark ? (int64_t)n->id : -1;
}

static bool give_number(fxi_context *c, fxi_graph *g, fxi_node *n, uint32_t id)
{
    if (n->owner == c->id) {
        n->mark = c->mark;
        n->id = id;
        return true;
    }
    if (2 * (g->nforeign + 1) > g->foreign_capacity && !foreign_grow(g))
        return false;
    g->foreign[foreign_at(g, n)] = (foreign){n, id};
    g->nforeign++;
    return true;
}

/* ---- records --------------------------------------------------------------------------------- */

static bool key_room(fxi_graph *g, uint32_t words)
{
    int32_t capacity = (int32_t)g->key_capacity;
    if (__builtin_expect(g->nkey + words <= g->key_capacity, 1))
        return true;
    if (!fxi_grow(&g->key, &capacity, (int32_t)(g->nkey + words), sizeof *g->key))
        return false;
    g->key_capacity = (uint32_t)capacity;
    return true;
}

static uint64_t leaf_flags(const fxi_node *n)
{
    const fxi_data *d = n->data;
    const size_t size = fx_dtype_size((fx_dtype)n->dtype);
    const uintptr_t at = (uintptr_t)d->buffer->ptr + (uintptr_t)d->offset * size;
    return (fxi_is_dense(n->ndim, n->shape, d->stride) ? 0 : FXI_LEAF_STRIDED) |
           (d->buffer->borrowed ? FXI_LEAF_BORROWED : 0) | (at % 64 ? FXI_LEAF_UNALIGNED : 0);
}

static inline uint64_t *write_words(uint64_t *w, const int64_t *from, int n)
{
    for (int i = 0; i < n; i++)
        *w++ = (uint64_t)from[i];
    return w;
}

static inline uint64_t *write_inputs(const fxi_context *c, fxi_graph *g, const fxi_node *n,
                                     uint64_t *w)
{
    int32_t *uses = g->uses;
    for (int i = 0; i < n->nin; i++) {
        const uint64_t id = (uint64_t)number_of(c, g, n->in[i]);
        uses[id]++;
        if (i % 2 == 0)
            *w++ = id;
        else
            w[-1] |= id << 32;
    }
    return w;
}

static bool write_record(const fxi_context *c, fxi_graph *g, const fxi_node *n)
{
    const bool leaf = n->data != NULL;
    const int nin = leaf ? 0 : n->nin, attrs = leaf ? 0 : fxi_ops[n->op].attr_words;
    if (!key_room(g, (uint32_t)(1 + (nin + 1) / 2 + 2 * FX_MAX_DIMS + attrs)))
        return false;
    uint64_t *w = g->key + g->nkey;
    const uint64_t flags = leaf ? leaf_flags(n) : 0;
    *w++ = (uint64_t)(leaf ? FX_OP_LEAF : n->op) | (uint64_t)n->dtype << 8 |
           (uint64_t)n->ndim << 16 | flags << 24 | (uint64_t)nin << 32;
    if (!leaf)
        w = write_inputs(c, g, n, w);
    w = write_words(w, n->shape, n->ndim);
    w = write_words(w, n->attr.words, attrs);
    if (flags & FXI_LEAF_STRIDED)
        w = write_words(w, n->data->stride, n->ndim);
    g->nkey = (uint32_t)(w - g->key);
    return true;
}

static bool node_room(fxi_graph *g)
{
    const int32_t need = g->n + 1;
    if (need <= g->node_capacity)
        return true;
    int32_t a = g->node_capacity, b = a, d = a, e = a, f = a;
    const bool ok = fxi_grow(&g->nodes, &a, need, sizeof *g->nodes) &&
                    fxi_grow(&g->slot, &b, need, sizeof *g->slot) &&
                    fxi_grow(&g->uses, &d, need, sizeof *g->uses) &&
                    fxi_grow(&g->output, &f, need, sizeof *g->output) &&
                    fxi_grow(&g->record, &e, need, sizeof *g->record);
    if (ok)
        g->node_capacity = a;
    return ok;
}

/* All inputs have numbers: n gets the next one and its record. */
static fx_status finish_node(fxi_context *c, fxi_graph *g, fxi_node *n)
{
    if (!node_room(g) || !give_number(c, g, n, (uint32_t)g->n))
        return FX_STATUS_MEMORY;
    const int32_t id = g->n++;
    g->nodes[id] = n;
    g->uses[id] = 0;
    g->output[id] = -1;
    g->record[id] = g->nkey;
    g->multiplies |= !n->data && fxi_multiplies(n->op);
    g->slot[id] = n->data                 ? g->nleaves++
                  : n->op == FX_OP_CONST  ? g->nconsts++
                  : n->op == FX_OP_RANDOM ? g->nstreams++
                                          : -1;
    return write_record(c, g, n) ? FX_OK : FX_STATUS_MEMORY;
}

/* What must not be read: a value whose buffer an update has reused, or another thread's pending
 * one. */
static fx_status check_node(const fxi_context *c, const fxi_node *n)
{
    if (fxi_node_given_up("eval", n))
        return FX_STATUS_STATE;
    if (n->stale)
        return fx_fail(FX_STATUS_STATE, "eval",
                       "a value was computed from parameters that fx_update has replaced since; "
                       "call fx_want before the update, or compute it again");
    if (!fxi_node_usable(c, n))
        return fx_fail(FX_STATUS_STATE, "eval",
                       "a value is still pending in another thread; fx_eval it there first");
    return FX_OK;
}

static bool is_transfer(const fxi_node *n)
{
    return n->op == FX_OP_TRANSFER && !n->data;
}

/* The first input of n from *next on that has no number yet; NULL when all have. */
static fxi_node *unnumbered(const fxi_context *c, const fxi_graph *g, const fxi_node *n,
                            int32_t *next)
{
    for (int32_t i = *next; i < n->nin; i++)
        if (number_of(c, g, n->in[i]) < 0) {
            *next = i + 1;
            return n->in[i];
        }
    return NULL;
}

/* A value made of literals and generators lies where it was first needed, which may be another
 * device than its other consumers are on: such a consumer gets a move of it instead. */
static fx_status bring(fxi_context *c, fxi_graph *g, const frame *consumer, fx_device *device)
{
    fxi_node **in = &consumer->node->in[consumer->next - 1], *n = *in;
    const fx_attr added = {
        .transfer = {.unasked = true}}; /* by the evaluation; see the gradient of moves */
    fxi_node *move = fxi_node_new(c, FX_OP_TRANSFER, (fx_dtype)n->dtype, n->ndim, n->shape, device,
                                  &added, 1, in);
    if (!move)
        return FX_STATUS_MEMORY;
    move->consumers = 1;
    *in = move;
    fxi_node_release(n);
    g->blocked = move;
    return FX_STATUS_UNSUPPORTED;
}

/* Is the value of the top frame on another device than its consumer? The first value decides where
 * nothing else does. */
static bool is_elsewhere(const fxi_context *c, fxi_graph *g, const frame *top)
{
    const fxi_node *n = top->node;
    if (!n->data || top == g->stack)
        return false;
    fx_device *place = n->data->buffer->device;
    if (!top->device && !g->device)
        g->device = place;
    return place != (top->device ? top->device : g->device) && top[-1].node->owner == c->id;
}

static frame frame_of(const frame *consumer, fxi_node *n)
{
    const fxi_node *to = consumer->node;
    fx_device *device = to->op == FX_OP_TRANSFER ? fxi_node_place(n)
                        : to->device             ? to->device
                                                 : consumer->device;
    return (frame){n, device, 0};
}

/* The node of the top frame, all of whose inputs have numbers. */
static inline fx_status finish_top(fxi_context *c, fxi_graph *g, const frame *top)
{
    fxi_node *n = top->node;
    const fx_status s = check_node(c, n);
    if (s != FX_OK)
        return s;
    if (is_elsewhere(c, g, top))
        return bring(c, g, top - 1, top->device ? top->device : g->device);
    if (is_transfer(n)) {
        g->blocked = n;
        return FX_STATUS_UNSUPPORTED;
    }
    return finish_node(c, g, n);
}

/* The stack is full. Returns its next frame and the new end; NULL when memory is out. */
static frame *more_frames(fxi_graph *g, frame **out_end)
{
    const int32_t depth = g->stack_capacity;
    const bool grown = fxi_grow(&g->stack, &g->stack_capacity, depth + 1, sizeof *g->stack);
    *out_end = g->stack + g->stack_capacity;
    return grown ? &g->stack[depth] : NULL;
}

/* The stack is a path of the graph, so it has no node twice. */
static fx_status walk(fxi_context *c, fxi_graph *g, fxi_node *root)
{
    if (number_of(c, g, root) >= 0)
        return FX_OK;
    if (!fxi_grow(&g->stack, &g->stack_capacity, 1, sizeof *g->stack))
        return FX_STATUS_MEMORY;
    frame *f = g->stack, *end = f + g->stack_capacity;
    *f = (frame){root, root->device, 0};
    for (;;) {
        fxi_node *n = f->node, *in = n->data ? NULL : unnumbered(c, g, n, &f->next);
        if (in) {
            if (++f == end && !(f = more_frames(g, &end)))
                return FX_STATUS_MEMORY;
            *f = frame_of(f - 1, in);
            continue;
        }
        const fx_status s = finish_top(c, g, f);
        if (s != FX_OK || f == g->stack)
            return s;
        f--;
    }
}

static bool add_output(fxi_graph *g, int32_t id, int32_t donor)
{
    const int32_t need = g->noutputs + 1;
    int32_t a = g->output_capacity, b = a;
    if (need > a && !(fxi_grow(&g->outputs, &a, need, sizeof *g->outputs) &&
                      fxi_grow(&g->donors, &b, need, sizeof *g->donors)))
        return false;
    g->output_capacity = a;
    g->outputs[g->noutputs] = id;
    g->output[id] = g->noutputs;
    g->donors[g->noutputs++] = donor;
    return true;
}

/* Why a result may not take over this value's buffer; NULL when it may, because nothing else can
 * see it. */
static const char *not_donatable(const fxi_node *n, int64_t id)
{
    const fxi_buffer *b = n->data ? n->data->buffer : NULL;
    if (!b)
        return "the old value is pending too";
    if (b->borrowed)
        return "the old value is borrowed memory";
    if (__atomic_load_n(&b->pins, __ATOMIC_RELAXED) > 0)
        return "the old value is pinned by fx_data or a snapshot";
    if (n->handles != 1)
        return "another handle holds the old value";
    if (n->data->offset != 0 || !fxi_is_dense(n->ndim, n->shape, n->data->stride))
        return "the old value is a view";
    if (b->refs != 1)
        return "a view shares the memory of the old value";
    return id < 0 ? "the new value is not computed from the old one" : NULL;
}

/* The node whose buffer a root may take over; −1, counted and traced, when there is none. */
static int64_t donor_of(fxi_context *c, const fxi_graph *g, const fxi_root *root)
{
    if (!root->donor)
        return -1;
    const int64_t id = number_of(c, g, root->donor);
    const char *why = not_donatable(root->donor, id);
    if (!why)
        return id;
    fxi_count(&fxi_counters.donation_misses, 1);
    if (g->denied)
        g->denied(root->donor, why);
    return -1;
}

static bool collect_outputs(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots)
{
    for (int i = 0; i < n; i++) {
        const int64_t id = number_of(c, g, roots[i].node);
        const int64_t donor = donor_of(c, g, &roots[i]);
        if (!roots[i].node->data && g->output[id] < 0 &&
            !add_output(g, (int32_t)id, (int32_t)donor))
            return false;
    }
    for (int32_t i = 0; i < g->n; i++) {
        const fxi_node *x = g->nodes[i];
        const bool needed = x->consumers > g->uses[i] || (x->wanted && x->handles > 0);
        if (!x->data && x->op != FX_OP_CONST && needed && g->output[i] < 0 && !add_output(g, i, -1))
            return false;
    }
    return true;
}

static uint64_t hash_words(const uint64_t *w, uint32_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15ull ^ n;
    for (uint32_t i = 0; i < n; i++)
        h = ((h << 5 | h >> 59) ^ w[i]) * 0xFF51AFD7ED558CCDull;
    return h ^ h >> 32;
}

fx_status fxi_graph_build(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots)
{
    c->mark++;
    g->n = g->nleaves = g->nconsts = g->nstreams = g->noutputs = 0;
    g->nkey = 0;
    g->multiplies = false;
    g->device = NULL;
    g->blocked = NULL;
    if (g->nforeign) {
        memset(g->foreign, 0, (size_t)g->foreign_capacity * sizeof *g->foreign);
        g->nforeign = 0;
    }
    fx_status s = FX_OK;
    for (int i = 0; i < n && !g->device; i++)
        g->device = roots[i].node->device;
    for (int i = 0; i < n && s == FX_OK; i++)
        s = walk(c, g, roots[i].node);
    if (s == FX_OK && !(collect_outputs(c, g, n, roots) && key_room(g, (uint32_t)g->noutputs + 1)))
        s = FX_STATUS_MEMORY;
    if (s == FX_STATUS_MEMORY)
        return fx_fail(s, "eval", "no memory for a graph of %d nodes", (int)g->n);
    if (s != FX_OK)
        return s;
    g->device = g->device ? g->device : fx_cpu_device();
    for (int32_t i = 0; i < g->noutputs; i++)
        g->key[g->nkey++] = (uint64_t)(uint32_t)g->outputs[i] | (uint64_t)(uint32_t)g->donors[i]
                                                                    << 32;
    const uint64_t precision = g->multiplies ? g->precision : 0;
    /* Addresses are multiples of 8. */
    g->key[g->nkey++] = (uint64_t)(uintptr_t)g->device | g->eager | precision << 1;
    g->hash = hash_words(g->key, g->nkey);
    return FX_OK;
}
