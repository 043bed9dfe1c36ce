/* graph.c: walks the pending nodes that the roots depend on, numbers them and writes their records.
 * See graph.h for the format.
 *
 * The walk is iterative, because a graph can be deeper than the stack of a thread. It stores
 * numbers only in nodes of the calling thread. Evaluated nodes of other threads are numbered
 * through a small hash table, so that several threads may read one model at the same time.
 */
#include "plan.h"
#include <cflux/backend.h>
#include "counters.h"

#include <string.h>

typedef fxi_frame frame;

/* For functions that the walk runs for every node: a call would take a third of their time. */
#define INLINE static inline __attribute__((always_inline))

/* What the walk needs to know about an operation, in two bytes: a row of fxi_ops has 24. */
typedef enum kind { ORDINARY, LITERAL, STREAM, PRODUCT } kind;
#define IS_PRODUCT(cls) (FX_CLASS_##cls == FX_CLASS_MATMUL || FX_CLASS_##cls == FX_CLASS_CONV)
static const struct {
    uint8_t words; /* of attributes in the record */
    uint8_t kind;
} brief[FX_OP_COUNT] = {
#define OP(NAME, name, inputs, cls, words, gradient)                                               \
    {words, FX_OP_##NAME == FX_OP_CONST    ? LITERAL                                               \
            : FX_OP_##NAME == FX_OP_RANDOM ? STREAM                                                \
            : IS_PRODUCT(cls)              ? PRODUCT                                               \
                                           : ORDINARY},
#include <cflux/op.def>
};

/* An evaluated node of another thread and its number in this graph. */
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

/* The entry of n, or the free entry where it belongs. The capacity is a power of two and at most
 * half is used, so the search ends. */
static size_t foreign_at(const fxi_graph *g, const fxi_node *n)
{
    const size_t mask = (size_t)g->foreign_capacity - 1;
    /* Nodes are allocated in multiples of 16 bytes, so the low bits carry nothing. The
     * multiplication spreads the rest (Fibonacci hashing), and the shift takes its well mixed
     * middle bits. */
    size_t i = (size_t)(((uintptr_t)n >> 4) * 0x9E3779B97F4A7C15ull >> 20) & mask;
    while (g->foreign[i].node && g->foreign[i].node != n)
        i = (i + 1) & mask;
    return i;
}

/* Doubles the table. On failure the old table stays valid. */
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
    /* Positions depend on the capacity, so every entry is placed again. */
    for (int32_t i = 0; i < old.foreign_capacity; i++)
        if (old.foreign[i].node)
            g->foreign[foreign_at(g, old.foreign[i].node)] = old.foreign[i];
    fxi_free(old.foreign);
    return true;
}

/* The number of a node of another thread; −1 if the walk has not finished it. */
static int64_t foreign_number(const fxi_graph *g, const fxi_node *n)
{
    /* Most graphs read no value of another thread and have no table. */
    if (g->foreign_capacity == 0)
        return -1;
    const foreign *f = &g->foreign[foreign_at(g, n)];
    return f->node ? (int64_t)f->id : -1;
}

/* The number of n, or −1. A node of this thread carries the mark of the walk, so starting a walk
 * needs no pass that clears old numbers: c->mark changes. */
static inline int64_t number_of(const fxi_context *c, const fxi_graph *g, const fxi_node *n)
{
    if (__builtin_expect(n->owner != c->id, 0))
        return foreign_number(g, n);
    return n->mark == c->mark ? (int64_t)n->id : -1;
}

static __attribute__((noinline)) bool give_foreign_number(fxi_graph *g, const fxi_node *n,
                                                          uint32_t id)
{
    if (2 * (g->nforeign + 1) > g->foreign_capacity && !foreign_grow(g))
        return false;
    g->foreign[foreign_at(g, n)] = (foreign){n, id};
    g->nforeign++;
    return true;
}

INLINE bool give_number(const fxi_context *c, fxi_graph *g, fxi_node *n, uint32_t id)
{
    /* A node of this thread stores its number itself, which is faster than the table. */
    if (n->owner != c->id)
        return give_foreign_number(g, n, id);
    n->mark = c->mark;
    n->id = id;
    return true;
}

/* ---- records --------------------------------------------------------------------------------- */

static __attribute__((noinline)) bool more_key(fxi_graph *g, uint32_t words)
{
    int32_t capacity = (int32_t)g->key_capacity;
    if (!fxi_grow(&g->key, &capacity, (int32_t)(g->nkey + words), sizeof *g->key))
        return false;
    g->key_capacity = (uint32_t)capacity;
    return true;
}

/* Makes space for `words` more words. */
INLINE bool reserve_key(fxi_graph *g, uint32_t words)
{
    return __builtin_expect(g->nkey + words <= g->key_capacity, 1) || more_key(g, words);
}

/* A leaf is aligned if its address is a multiple of 64 bytes, the width of a cache line and of an
 * AVX-512 register. */
static uint64_t leaf_flags(const fxi_node *n)
{
    const fxi_data *d = n->data;
    const size_t size = fxi_dtype_size(n->dtype);
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

/* Two words are always copied, without a loop, because most arrays have at most two axes. The key
 * has space for both (RECORD_WORDS). If an array has fewer axes, the words that follow overwrite
 * the rest. */
static inline uint64_t *write_sizes(uint64_t *w, const fxi_node *n)
{
    memcpy(w, n->shape, 2 * sizeof *w);
    for (int i = 2; i < n->ndim; i++)
        w[i] = (uint64_t)n->shape[i];
    return w + n->ndim;
}

/* Returns the number of an input and counts the use. All inputs have numbers by now, so the mark of
 * the walk is not compared again. */
static inline uint64_t use(const fxi_graph *g, uint32_t owner, const fxi_node *in)
{
    const uint64_t id = in->owner == owner ? in->id : (uint64_t)foreign_number(g, in);
    /* Compared with the consumers of the node later, to find readers outside the graph. */
    g->uses[id]++;
    return id;
}

/* Two input numbers share a word: the key is hashed and compared in every evaluation, so a shorter
 * key saves time. */
static __attribute__((noinline)) uint64_t *
write_any_inputs(const fxi_context *c, const fxi_graph *g, const fxi_node *n, uint64_t *w)
{
    fxi_node *const *in = n->in, *const *end = in + n->nin;
    for (; end - in >= 2; in += 2) {
        const uint64_t first = use(g, c->id, in[0]);
        *w++ = first | use(g, c->id, in[1]) << 32;
    }
    if (in < end)
        *w++ = use(g, c->id, *in);
    return w;
}

/* Nearly all nodes have at most two inputs, which belong to the calling thread. */
INLINE uint64_t *write_inputs(const fxi_context *c, const fxi_graph *g, const fxi_node *n,
                              uint64_t *w)
{
    const int32_t nin = n->nin;
    if (nin == 0)
        return w;
    const fxi_node *first = n->in[0], *last = n->in[nin - 1];
    if (__builtin_expect(nin > 2 || first->owner != c->id || last->owner != c->id, 0))
        return write_any_inputs(c, g, n, w);
    uint64_t word = first->id;
    g->uses[first->id]++;
    if (nin == 2) {
        word |= (uint64_t)last->id << 32;
        g->uses[last->id]++;
    }
    *w = word;
    return w + 1;
}

/* The most words of a record without inputs: sizes, and attributes or the strides of a leaf. */
enum { RECORD_WORDS = 1 + 2 * FX_MAX_DIMS + (int)(sizeof(fx_attr) / sizeof(uint64_t)) };

/* An evaluated node is a leaf, whatever operation made it. */
INLINE bool write_record(const fxi_context *c, fxi_graph *g, const fxi_node *n, const bool leaf)
{
    const int nin = leaf ? 0 : n->nin, attrs = leaf ? 0 : brief[n->op].words;
    if (!reserve_key(g, (uint32_t)(RECORD_WORDS + nin)))
        return false;
    uint64_t *w = g->key + g->nkey;
    const uint64_t flags = leaf ? leaf_flags(n) : 0;
    *w++ = (uint64_t)(leaf ? FX_OP_LEAF : n->op) | (uint64_t)n->dtype << 8 |
           (uint64_t)n->ndim << 16 | flags << 24 | (uint64_t)nin << 32;
    if (!leaf)
        w = write_inputs(c, g, n, w);
    w = write_sizes(w, n);
    w = write_words(w, n->attr.words, attrs);
    /* Dense strides follow from the sizes, so they would only lengthen the key. */
    if (flags & FXI_LEAF_STRIDED)
        w = write_words(w, n->data->stride, n->ndim);
    g->nkey = (uint32_t)(w - g->key);
    return true;
}

static __attribute__((noinline)) bool more_nodes(fxi_graph *g)
{
    const int32_t need = g->n + 1;
    /* All lists have one capacity. It is raised only if all of them grew; a list that grew alone is
     * merely larger. */
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

INLINE bool reserve_node(fxi_graph *g)
{
    return __builtin_expect(g->n < g->node_capacity, 1) || more_nodes(g);
}

/* The slot of a pending node of a kind that is not ORDINARY. Leaves, constants and streams are
 * counted apart: a run binds each kind from a list of its own. */
static int32_t special_slot(fxi_graph *g, const fxi_node *n)
{
    const kind k = (kind)brief[n->op].kind;
    /* Precision matters only to products. Without them a change of precision must not miss the
     * cache. */
    if (k == PRODUCT)
        g->multiplies = true;
    return k == LITERAL ? g->nconsts++ : k == STREAM ? g->nstreams++ : -1;
}

/* Gives n, whose inputs all have numbers, the next number and writes its record. */
INLINE fx_status finish_node(fxi_context *c, fxi_graph *g, fxi_node *n, const bool leaf)
{
    if (!reserve_node(g) || !give_number(c, g, n, (uint32_t)g->n))
        return FX_STATUS_MEMORY;
    const int32_t id = g->n++;
    g->nodes[id] = n;
    g->uses[id] = 0;
    g->output[id] = -1;
    g->record[id] = g->nkey;
    g->slot[id] = leaf ? g->nleaves++ : brief[n->op].kind == ORDINARY ? -1 : special_slot(g, n);
    return write_record(c, g, n, leaf) ? FX_OK : FX_STATUS_MEMORY;
}

/* A function of its own, so that the walk, which contains finish_pending, has no branches for
 * leaves. */
static __attribute__((noinline)) fx_status finish_leaf(fxi_context *c, fxi_graph *g, fxi_node *n)
{
    return finish_node(c, g, n, true);
}

INLINE fx_status finish_pending(fxi_context *c, fxi_graph *g, fxi_node *n)
{
    return finish_node(c, g, n, false);
}

/* Refuses values that must not be read: they were freed, overwritten by an update, or are pending
 * in another thread. */
static fx_status check_node(const fxi_context *c, const fxi_node *n)
{
    if (fxi_node_given_up("eval", n))
        return FX_STATUS_STATE;
    if (n->stale)
        return fx_fail(FX_STATUS_STATE, "eval",
                       "a value was computed from parameters that fx_update has replaced since; "
                       "call fx_want before the update, or compute it again");
    if (!fxi_node_usable(c, n))
        return fx_fail(
            FX_STATUS_STATE, "eval",
            "a value is still pending in another thread; call fx_eval in that thread first");
    return FX_OK;
}

/* An evaluated TRANSFER is a leaf like any other. */
static bool is_transfer(const fxi_node *n)
{
    return n->op == FX_OP_TRANSFER && !n->data;
}

/* The first input of n, from *next on, that has no number yet; NULL if all have. *next remembers
 * the position, so a node with many inputs is not searched from its start after each of them. */
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

/* Moves an input to the device of its consumer. A value made only of literals and generators
 * belongs to the device that needed it first; a consumer on another device gets a TRANSFER node as
 * its input instead. The graph is then built again, after that move. */
static fx_status bring(fxi_context *c, fxi_graph *g, const frame *consumer, fx_device *device)
{
    fxi_node **in = &consumer->node->in[consumer->next - 1], *n = *in;
    const fx_attr added = {
        .transfer = {.unasked = true}}; /* gradients and the program ignore this move */
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

/* Is the value of the top frame on another device than its consumer? If neither root nor consumer
 * names a device, the first value decides. Inputs of another thread's node cannot be replaced, so
 * they are not tested. */
static bool is_elsewhere(const fxi_context *c, fxi_graph *g, const frame *top)
{
    const fxi_node *n = top->node;
    /* Pending values are made where they are needed, and a root has no consumer. */
    if (!n->data || top == g->stack)
        return false;
    fx_device *buffer_device = n->data->buffer->device;
    if (!top->device && !g->device)
        g->device = buffer_device;
    return buffer_device != (top->device ? top->device : g->device) && top[-1].node->owner == c->id;
}

/* A TRANSFER reads its input on the device where the input is. Any other input is needed on the
 * device of its consumer. */
static frame frame_of(const frame *consumer, fxi_node *n)
{
    const fxi_node *to = consumer->node;
    fx_device *device = to->op == FX_OP_TRANSFER ? fxi_node_device(n)
                        : to->device             ? to->device
                                                 : consumer->device;
    return (frame){n, device, 0};
}

/* Finishes the node of the top frame, whose inputs all have numbers. */
static inline fx_status finish_top(fxi_context *c, fxi_graph *g, const frame *top)
{
    fxi_node *n = top->node;
    /* Most nodes are pending nodes of this thread. Unless they are stale or transfers, they need
     * none of the checks below. */
    if (!n->data && n->owner == c->id && !n->stale && !is_transfer(n))
        return finish_pending(c, g, n);
    const fx_status s = check_node(c, n);
    if (s != FX_OK)
        return s;
    if (is_elsewhere(c, g, top))
        return bring(c, g, top - 1, top->device ? top->device : g->device);
    if (is_transfer(n)) {
        g->blocked = n;
        return FX_STATUS_UNSUPPORTED;
    }
    return finish_leaf(c, g, n);
}

/* Grows the full stack. Returns its next frame and the new end; NULL if the allocation fails. */
static frame *more_frames(fxi_graph *g, frame **out_end)
{
    const int32_t depth = g->stack_capacity;
    const bool grown = fxi_grow(&g->stack, &g->stack_capacity, depth + 1, sizeof *g->stack);
    *out_end = g->stack + g->stack_capacity;
    return grown ? &g->stack[depth] : NULL;
}

/* Numbers root and all nodes that it depends on. The stack is a path of an acyclic graph, so it
 * holds no node twice and needs no marks of its own. */
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
            /* The list may move when it grows, so f and end are set again. */
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

/* Appends an output. The list is part of the key, since plans with other outputs store other
 * values. */
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

/* A result may take over the buffer of n only if no other handle, view, pin or borrower can see the
 * old contents. */
const char *fxi_not_donatable(const fxi_node *n, int64_t id)
{
    const fxi_buffer *b = n->data ? n->data->buffer : NULL;
    if (!b)
        return "the old value is pending too";
    /* The program that lent the memory may read it at any time. */
    if (b->borrowed)
        return "the old value is borrowed memory";
    if (__atomic_load_n(&b->pins, __ATOMIC_RELAXED) > 0)
        return "the old value is pinned by fx_data or a snapshot";
    if (n->handles != 1)
        return "another handle holds the old value";
    /* Rows or parts of a larger array: the rest of the array must keep its values. */
    if (n->data->offset != 0 || !fxi_is_dense(n->ndim, n->shape, n->data->stride))
        return "the old value is a view";
    if (b->refs != 1)
        return "a view shares the memory of the old value";
    return id < 0 ? "the new value is not computed from the old one" : NULL;
}

/* The node whose buffer a root may take over. −1 if there is none; a refusal is counted and traced,
 * because the update then needs memory for both values. */
static int64_t donor_of(fxi_context *c, const fxi_graph *g, const fxi_root *root)
{
    if (!root->donor)
        return -1;
    const int64_t id = number_of(c, g, root->donor);
    const char *why = fxi_not_donatable(root->donor, id);
    if (!why)
        return id;
    fxi_count(&fxi_counters.donation_misses, 1);
    if (g->denied)
        g->denied(root->donor, why);
    return -1;
}

/* Does the graph read a pending value that a root replaces? The caller computes it first and builds
 * the graph again (old_values.c), with that value as a leaf. */
static bool must_wait(const fxi_context *c, const fxi_graph *g, int n, const fxi_root *roots)
{
    for (int i = 0; i < n && g->patient; i++)
        if (roots[i].donor && !roots[i].donor->data && number_of(c, g, roots[i].donor) >= 0)
            return true;
    return false;
}

/* Outputs are the roots, and nodes that are still needed outside the graph, by a pending consumer
 * or by a handle with fx_want: these would otherwise be computed again later. */
static bool collect_outputs(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots)
{
    for (int i = 0; i < n; i++) {
        const int64_t id = number_of(c, g, roots[i].node);
        const int64_t donor = donor_of(c, g, &roots[i]);
        /* A node can be asked for twice, as a new value and by fx_want. It is one output. */
        if (!roots[i].node->data && g->output[id] < 0 &&
            !add_output(g, (int32_t)id, (int32_t)donor))
            return false;
    }
    fxi_node *const *nodes = g->nodes;
    const int32_t *uses = g->uses, count = g->n;
    for (int32_t i = 0; i < count; i++) {
        const fxi_node *x = nodes[i];
        /* The next collective operation must see that the latest one has run. */
        const bool needed =
            x->consumers > uses[i] || (x->wanted && (x->handles > 0 || x == c->collective));
        if (!x->data && x->op != FX_OP_CONST && needed && g->output[i] < 0 && !add_output(g, i, -1))
            return false;
    }
    return true;
}

static inline uint64_t mix(uint64_t h, uint64_t word)
{
    return ((h << 5 | h >> 59) ^ word) * 0xFF51AFD7ED558CCDull;
}

/* One multiplication and one rotation for each word, in four independent chains: a single chain
 * would wait for each multiplication. The hash only finds the bucket; the cache compares whole
 * keys, so collisions cost time and are never wrong. */
uint64_t fxi_graph_hash(const fxi_graph *g)
{
    uint64_t a = 0x9E3779B97F4A7C15ull ^ g->nkey, b = 1, c = 2, d = 3;
    const uint64_t *w = g->key, *end = w + g->nkey;
    for (; end - w >= 4; w += 4) {
        a = mix(a, w[0]);
        b = mix(b, w[1]);
        c = mix(c, w[2]);
        d = mix(d, w[3]);
    }
    for (; w < end; w++)
        a = mix(a, *w);
    a = mix(mix(mix(a, b), c), d);
    return a ^ a >> 32;
}

fx_status fxi_graph_build(fxi_context *c, fxi_graph *g, int n, const fxi_root *roots)
{
    /* A new mark makes the numbers of all earlier walks invalid. */
    c->mark++;
    g->n = g->nleaves = g->nconsts = g->nstreams = g->noutputs = 0;
    g->nkey = 0;
    g->multiplies = g->waits = false;
    g->device = NULL;
    g->blocked = NULL;
    /* Cleared only if it was used: most evaluations read no foreign value. */
    if (g->nforeign) {
        memset(g->foreign, 0, (size_t)g->foreign_capacity * sizeof *g->foreign);
        g->nforeign = 0;
    }
    fx_status s = FX_OK;
    /* The first root with a device names the device of values that name none. */
    for (int i = 0; i < n && !g->device; i++)
        g->device = roots[i].node->device;
    for (int i = 0; i < n && s == FX_OK; i++)
        s = walk(c, g, roots[i].node);
    if (s == FX_OK && must_wait(c, g, n, roots)) {
        g->waits = true;
        g->device = g->device ? g->device : fx_cpu_device();
        s = FX_STATUS_UNSUPPORTED;
    }
    if (s == FX_OK &&
        !(collect_outputs(c, g, n, roots) && reserve_key(g, (uint32_t)g->noutputs + 1)))
        s = FX_STATUS_MEMORY;
    /* The other failures have been recorded where they were found. */
    if (s == FX_STATUS_MEMORY)
        return fx_fail(s, "eval", "no memory for a graph of %d nodes", (int)g->n);
    if (s != FX_OK)
        return s;
    /* Only literals and generators: no value names a device. */
    g->device = g->device ? g->device : fx_cpu_device();
    for (int32_t i = 0; i < g->noutputs; i++)
        g->key[g->nkey++] = (uint64_t)(uint32_t)g->outputs[i] | (uint64_t)(uint32_t)g->donors[i]
                                                                    << 32;
    const uint64_t precision = g->multiplies ? g->precision : 0;
    /* The address of a device is a multiple of 8, so its low 3 bits can hold eager mode and the
     * precision. The precision is 0 without products: such a plan serves every precision. */
    g->key[g->nkey++] = (uint64_t)(uintptr_t)g->device | g->eager | precision << 1;
    return FX_OK;
}

/* ---- consumers ------------------------------------------------------------------------------- */

/* Counts the consumers of each node, turns the counts into start positions, then fills in the list.
 * Counts are stored two entries further on, because filling advances each start to its end. */
bool fxi_graph_consumers(const fxi_graph *g, fxi_consumers *out)
{
    int64_t edges = 0;
    for (int32_t i = 0; i < g->n; i++)
        edges += fxi_graph_inputs(g, i);
    *out = (fxi_consumers){.first = fxi_calloc((size_t)g->n + 2, sizeof *out->first),
                           .list = fxi_malloc(((size_t)edges + 1) * sizeof *out->list)};
    if (!out->first || !out->list)
        return false;
    for (int32_t i = 0; i < g->n; i++)
        for (int k = 0; k < fxi_graph_inputs(g, i); k++)
            out->first[fxi_graph_input(g, i, k) + 2]++;
    for (int32_t i = 2; i < g->n + 2; i++)
        out->first[i] += out->first[i - 1];
    for (int32_t i = 0; i < g->n; i++)
        for (int k = 0; k < fxi_graph_inputs(g, i); k++)
            out->list[out->first[fxi_graph_input(g, i, k) + 1]++] = i;
    return true;
}

void fxi_consumers_free(fxi_consumers *c)
{
    fxi_free(c->first);
    fxi_free(c->list);
}
