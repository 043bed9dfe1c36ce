/* node.c: creates, shares and frees value nodes and their buffers.
 *
 * The reference count of a pending node is used only by its own thread and is not atomic. A node
 * with data may be shared, so its count is atomic. A shared node may keep pending inputs of its
 * thread as history, and a tape of its thread may name it; the thread that releases the last
 * reference therefore returns the node to its own thread. Freeing is iterative: a chain of a
 * million nodes must not overflow the stack.
 *
 * A pending node with a live handle and no consumer is a sink. Each thread keeps all its sinks in a
 * list, so that an update finds results which the program may still read later.
 */
#include "context.h"
#include <cflux/backend.h>
#include "counters.h"
#include "error.h"
#include "node_parts.h"
#include "pool.h"
#include "tape.h"

#include <string.h>

const fxi_op_info fxi_ops[FX_OP_COUNT] = {
#define OP(NAME, name, inputs, cls, words, gradient) {name, inputs, FX_CLASS_##cls, words},
#include <cflux/op.def>
};

/* ---- buffers --------------------------------------------------------------------------------- */

fxi_buffer *fxi_buffer_new(fx_device *device, size_t bytes)
{
    fxi_buffer *b = fxi_malloc(sizeof *b);
    if (!b)
        return NULL;
    memset(b, 0, offsetof(fxi_buffer, shape));
    b->ptr = fxi_pool_take(device, bytes, &b->held);
    if (!b->ptr) {
        fxi_free(b);
        return NULL;
    }
    b->refs = 1;
    b->bytes = bytes;
    b->device = device;
    fxi_count_live((int64_t)b->bytes);
    return b;
}

/* Counts memory of arrays that the program makes while results are pending. Beyond the bound,
 * recording the next node evaluates the results. */
static void count_brought(fxi_context *c, size_t bytes)
{
    c->brought += (int64_t)bytes;
    if (__builtin_expect(c->brought > c->most_brought && c->created > 0, 0))
        c->created = c->most_created + 1;
}

fx_status fxi_buffer_need(const char *op, fx_device *device, size_t bytes, fxi_buffer **out)
{
    fxi_context *c = fxi_here();
    if (!c->busy)
        count_brought(c, bytes);
    *out = fxi_buffer_new(device, bytes);
    if (*out)
        return FX_OK;
    /* A request that can never be met does not cost the program its caches. */
    const fx_status status =
        fxi_device_can_hold(device, (int64_t)bytes) ? fxi_the_evaluator.reclaim(device) : FX_OK;
    if (status == FX_OK)
        *out = fxi_buffer_new(device, bytes);
    return *out || status != FX_OK ? status : fxi_no_memory(op, device, (int64_t)bytes, "");
}

void fxi_buffer_retain(fxi_buffer *b)
{
    __atomic_fetch_add(&b->refs, 1, __ATOMIC_RELAXED);
}

void fxi_buffer_give_up(fxi_buffer *b)
{
    if (b->freed)
        return;
    if (!b->borrowed) {
        fxi_count_live(-(int64_t)b->bytes);
        fxi_pool_unname(b);
        fxi_pool_give(b->device, b->ptr, b->held);
    } else if (b->release) {
        b->release(b->ptr, b->user);
    }
    b->freed = true;
}

bool fxi_node_report_given_up(const char *op)
{
    fx_fail(FX_STATUS_STATE, op, "the array was freed when its iterator moved to the next batch");
    return true;
}

void fxi_buffer_release(fxi_buffer *b)
{
    /* If this is the last reference, no other thread can add one. */
    if (__atomic_load_n(&b->refs, __ATOMIC_ACQUIRE) != 1 &&
        __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    fxi_buffer_give_up(b);
    fxi_free(b);
}

fxi_data *fxi_data_new(fxi_buffer *b, int64_t offset, int ndim, const int64_t *shape,
                       const int64_t *strides)
{
    fxi_data *d = fxi_calloc(1, sizeof *d);
    if (!d) {
        fxi_buffer_release(b);
        return NULL;
    }
    d->buffer = b;
    d->offset = offset;
    if (strides)
        memcpy(d->stride, strides, (size_t)ndim * sizeof *strides);
    else
        fxi_dense_strides(ndim, shape, d->stride);
    return d;
}

void fxi_data_free(fxi_data *d)
{
    if (!d)
        return;
    if (d->buffer)
        fxi_buffer_release(d->buffer);
    fxi_free(d->dense);
    fxi_free(d);
}

/* ---- sinks ----------------------------------------------------------------------------------- */

void fxi_sink_rest(fxi_context *c, fxi_node *n)
{
    fxi_sink_remove(n);
    n->prev = c->resting.prev;
    n->next = &c->resting;
    n->prev->next = n;
    c->resting.prev = n;
    if (n->seq > c->resting_newest)
        c->resting_newest = n->seq;
}

void fxi_sinks_wake(fxi_context *c, uint64_t oldest)
{
    fxi_node *first = c->resting.next, *last = c->resting.prev;
    if (first == &c->resting || oldest > c->resting_newest)
        return;
    first->prev = c->sinks.prev;
    first->prev->next = first;
    last->next = &c->sinks;
    c->sinks.prev = last;
    c->resting.next = c->resting.prev = &c->resting;
    c->resting_newest = 0;
}

void fxi_sink_check(fxi_context *c, fxi_node *n)
{
    if (!n->data && n->handles > 0 && n->consumers == 0 && !n->used && !n->next)
        fxi_sink_add(c, n);
}

/* The pending input `in` has lost a pending consumer. If it has no other, it is a sink again. */
static inline void consumer_gone(fxi_context *c, fxi_node *in)
{
    if (in->owner == c->id && --in->consumers == 0 && in->handles > 0 && !in->next && !in->used)
        fxi_sink_add(c, in);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool some_lack_f64; /* atomic */

void fxi_note_no_f64(void)
{
    __atomic_store_n(&some_lack_f64, true, __ATOMIC_RELAXED);
}

bool fxi_has_f64(const fx_device *device)
{
    return device ? !device->info.no_f64 : !__atomic_load_n(&some_lack_f64, __ATOMIC_RELAXED);
}

/* The number of stale nodes in the process; atomic. */
static int64_t stale_nodes;

void fxi_stale_count(int64_t more)
{
    if (more != 0)
        __atomic_fetch_add(&stale_nodes, more, __ATOMIC_RELAXED);
}

void fxi_node_spoil(fxi_node *n)
{
    fxi_stale_count(!n->stale);
    n->stale = true;
}

bool fxi_any_stale(void)
{
    return __atomic_load_n(&stale_nodes, __ATOMIC_RELAXED) > 0;
}

static void node_free(fxi_node *n)
{
    if (n->stale)
        __atomic_fetch_sub(&stale_nodes, 1, __ATOMIC_RELAXED);
    if (n->in != n->inl)
        fxi_free(n->in);
    if (n->data)
        fxi_data_free(n->data);
    fxi_spare_free(n);
}

fx_status fxi_fail_sizes(const char *op, fx_dtype dtype, int ndim, const int64_t *sizes)
{
    char t[FXI_SHAPE_TEXT];
    return fx_fail(FX_STATUS_ARGUMENT, op, "the product of the sizes overflows: %s of %s",
                   fxi_shape_text(ndim, sizes, t), fx_dtype_name(dtype));
}

fxi_node *fxi_node_new(fxi_context *c, fx_op op, fx_dtype dtype, int ndim, const int64_t *shape,
                       fx_device *device, const fx_attr *attr, int nin, fxi_node *const *in)
{
    if (__builtin_expect(__atomic_load_n(&c->returned, __ATOMIC_RELAXED) != NULL, 0))
        fxi_take_back(c);
    /* A recorded call has already passed the checks below. */
    if (__builtin_expect(c->tape != NULL, 0)) {
        fxi_node *again = fxi_tape_next(c, op, dtype, ndim, shape, device, attr, nin, in);
        if (again)
            return again;
    }
    if (__builtin_expect(dtype == FX_DTYPE_F64 && device && device->info.no_f64, 0)) {
        fx_fail(FX_STATUS_UNSUPPORTED, fxi_ops[op].name,
                "%s has no Float64: convert with fx_f32 or fx_cast, or move with fx_gpu, which "
                "makes it Float32",
                device->name);
        return NULL;
    }
    if (__builtin_expect(!fxi_sizes_fit(dtype, ndim, shape), 0)) {
        fxi_fail_sizes(fxi_ops[op].name, dtype, ndim, shape);
        return NULL;
    }
    fxi_node *n = fxi_spare_malloc(sizeof *n);
    fxi_node **list = nin > 3 ? fxi_malloc((size_t)nin * sizeof *list) : NULL;
    if (!n || (nin > 3 && !list)) {
        fxi_free(n);
        fxi_free(list);
        fx_fail(FX_STATUS_MEMORY, fxi_ops[op].name, "no memory for a node");
        return NULL;
    }
    fxi_node **const inputs = list ? list : n->inl;
    fxi_node_begin(c, n, c->seq, op, dtype, ndim, device, nin, inputs);
    fxi_nodes_made(c, 1);
    if (ndim > 0) /* most arrays have at most two axes, which are copied without a loop */
        n->shape[0] = shape[0];
    if (ndim > 1)
        n->shape[1] = shape[1];
    for (int i = 2; i < ndim; i++)
        n->shape[i] = shape[i];
    if (attr)
        n->attr = *attr;
    else
        n->attr.words[0] = 0;
    n->grad = c->grad;
    for (int i = 0; i < nin; i++)
        fxi_node_capture(in[i], &inputs[i]);
    if (__builtin_expect(c->tape != NULL, 0))
        fxi_tape_note(c, n);
    return n;
}

/* Releases a reference. Returns whether it was the last one. */
static inline bool drop_ref(fxi_node *n)
{
    if (!n->data)
        return --n->refs == 0;
    return __atomic_load_n(&n->refs, __ATOMIC_ACQUIRE) == 1 ||
           __atomic_sub_fetch(&n->refs, 1, __ATOMIC_ACQ_REL) == 0;
}

/* Releases the inputs of n. Those that lost their last reference are added to the list `dying`.
 * They have no handles, so they are not in a list of sinks. */
static inline void drop_inputs(fxi_context *c, fxi_node *n, fxi_node **dying)
{
    const bool pending = !n->data;
    fxi_node *const *at = n->in, *const *end = at + n->nin, *list = *dying;
    for (; at < end; at++) {
        fxi_node *in = *at;
        /* Read before the reference is dropped: another thread may then free an input that has
         * data. */
        const bool waited = pending && !in->data;
        if (drop_ref(in)) {
            in->next = list;
            list = in;
        } else if (waited) {
            consumer_gone(c, in);
        }
    }
    *dying = list;
}

/* Returns a dead node of another thread to that thread. If it has ended, drops the inputs of the
 * node, and returns false. */
static __attribute__((noinline)) bool return_node(fxi_context *c, fxi_node *n, fxi_node **dying)
{
    if (n->nin == 0) { /* only the node must be returned; its data is freed here */
        fxi_data_free(n->data);
        n->data = NULL;
    }
    if (fxi_send_home(n))
        return true;
    drop_inputs(c, n, dying);
    fxi_threads_unlock();
    return false;
}

/* Frees a list of nodes without references, and the nodes that lose their last reference by this. A
 * node of another thread is returned to that thread if it has inputs or a tape may name it. */
static void free_nodes(fxi_context *c, fxi_node *dying)
{
    while (dying) {
        fxi_node *n = dying;
        dying = n->next;
        if (__builtin_expect(n->owner == c->id, 1))
            drop_inputs(c, n, &dying);
        else if ((n->nin > 0 || n->tape > 0) && return_node(c, n, &dying))
            continue;
        if (__builtin_expect(c->tape != NULL, 0))
            fxi_tape_forget(c, n);
        node_free(n);
    }
}

void fxi_take_back(fxi_context *c)
{
    if (!__atomic_load_n(&c->returned, __ATOMIC_RELAXED))
        return;
    fxi_threads_lock();
    fxi_node *dying = c->returned;
    __atomic_store_n(&c->returned, NULL, __ATOMIC_RELAXED);
    fxi_threads_unlock();
    free_nodes(c, dying);
}

void fxi_node_release(fxi_node *n)
{
    if (!drop_ref(n))
        return;
    n->next = NULL;
    free_nodes(fxi_here(), n);
}

void fxi_node_settle(fxi_node *n, fxi_data *data)
{
    fxi_context *c = fxi_here();
    fxi_sink_remove(n);
    for (int i = 0; i < n->nin; i++)
        if (!n->in[i]->data && n->in[i]->owner == c->id) {
            n->in[i]->consumers--;
            n->in[i]->used = true;
        }
    __atomic_store_n(&n->data, data, __ATOMIC_RELEASE);
}

void fxi_node_cut(fxi_node *n)
{
    if (n->tied)
        return;
    if (n->ghost) { /* it holds no references to its inputs */
        n->nin = 0;
        return;
    }
    fxi_node *dying = NULL;
    drop_inputs(fxi_here(), n, &dying);
    n->nin = 0;
    free_nodes(fxi_here(), dying);
}

fxi_data *fxi_node_unsettle(fxi_node *n)
{
    fxi_data *d = n->data;
    if (n->stale)
        __atomic_fetch_sub(&stale_nodes, 1, __ATOMIC_RELAXED);
    n->stale = n->used = n->wanted = n->history_cut = n->on_demand = false;
    n->rebound = NULL;
    n->data = NULL;
    fxi_buffer_release(d->buffer);
    d->buffer = NULL;
    if (d->dense) {
        fxi_free(d->dense);
        d->dense = NULL;
    }
    return d;
}

/* ---- handles --------------------------------------------------------------------------------- */

static fx_array error_arrays[] = {
#define ERR(s)                                                                                     \
    {                                                                                              \
        .base = {.type = &fxi_array_type, .refs = FXI_IMMORTAL}, .status = s                       \
    }
    ERR(FX_OK),
    ERR(FX_STATUS_MEMORY),
    ERR(FX_STATUS_SHAPE),
    ERR(FX_STATUS_DTYPE),
    ERR(FX_STATUS_DEVICE),
    ERR(FX_STATUS_ARGUMENT),
    ERR(FX_STATUS_STATE),
    ERR(FX_STATUS_IO),
    ERR(FX_STATUS_FORMAT),
    ERR(FX_STATUS_NONFINITE),
    ERR(FX_STATUS_UNSUPPORTED),
    ERR(FX_STATUS_INTERNAL),
#undef ERR
};

fx_array *fx_error_array(fx_status status)
{
    const size_t i = (size_t)status;
    return &error_arrays[i > 0 && i < sizeof error_arrays / sizeof error_arrays[0]
                             ? i
                             : (size_t)FX_STATUS_INTERNAL];
}

void fxi_array_rebind(fx_array *x, fxi_node *n)
{
    fxi_node *old = x->node;
    fxi_node_retain(n);
    fxi_array_hold(fxi_here(), x, n);
    /* An earlier value of x, which a copy of the model kept, is current again. */
    if (__atomic_load_n(&n->rebound, __ATOMIC_RELAXED) == x)
        __atomic_store_n(&n->rebound, NULL, __ATOMIC_RELAXED);
    if (__atomic_sub_fetch(&old->handles, 1, __ATOMIC_ACQ_REL) == 0 && !old->data)
        fxi_sink_remove(old);
    fxi_node_release(old);
}
