/* context.h: the state of a thread: its open scopes, its pending results and its promises.
 *
 * Opening a scope cannot fail. The first 32 scopes are part of the context; further ones are
 * allocated. If that allocation fails, the scope is virtual: its objects belong to the nearest real
 * scope.
 */
#ifndef CFLUX_CONTEXT_H
#define CFLUX_CONTEXT_H

#include "object.h"
#include "strided.h"

typedef struct fxi_tape fxi_tape;
typedef struct fxi_scope fxi_scope;
struct fxi_scope {
    fx_object *first; /* its objects, the latest first */
    fx_object *below; /* the parent's latest object when this scope was opened */
    fxi_scope *parent;
    int depth; /* from 0, the root */
    int mode;  /* FXI_SCOPE_… */
    bool training;
    uint64_t seq; /* nodes made in this scope have this number or a larger one */
    bool inside;  /* opened by the library: file and line are those of the program's scope around it
                   */
    const char *file;
    int line;
    int64_t objects; /* number of objects in its list */
    int64_t most;    /* the largest number at any evaluation so far */
    int64_t grown;   /* evaluations that found more objects than any before (fxi_scope_watch) */
    int64_t weight;  /* the sum of their weights */
    int64_t bytes;   /* of live arrays at the first of these evaluations */
};

/* Work promised to the next update or to the end of the training step (fx_want, fx_set, fx_stage).
 */
typedef enum fxi_promise_kind {
    FXI_PROMISE_WANT,
    FXI_PROMISE_SET,
    FXI_PROMISE_STAGE
} fxi_promise_kind;
typedef struct fxi_promise {
    fxi_promise_kind kind;
    int depth;        /* depth of the scope at whose end it is due */
    fx_array *target; /* STAGE: the state handle, retained */
    fx_array *value;  /* retained */
} fxi_promise;

enum { FXI_INLINE_SCOPES = 32 };

typedef struct fxi_context fxi_context;
struct fxi_context {
    uint32_t id;    /* number of the thread, from 1; 0: not initialised */
    uint32_t mark;  /* number of the latest walk */
    uint32_t sweep; /* number of the latest reverse sweep */
    uint64_t seq;   /* of the next node */
    int depth;      /* number of open scopes, virtual ones included */
    int virtual_scopes;
    uint64_t virtual_training; /* training mode of the first 64 virtual scopes, a bit each */
    bool is_reserve;           /* static storage, not allocated */
    bool busy;                 /* inside an evaluation: no implicit one may start */
    int unwatched;             /* > 0: evaluations do not count for fxi_scope_watch */
    int new_pending;           /* > 0: fxi_evaluate_new does nothing */
    int unstaged;              /* > 0: fx_stage does nothing */
    uint8_t grad;              /* fxi_grad: of the nodes that are made now */
    fxi_scope *scope;
    fxi_scope scopes[FXI_INLINE_SCOPES];
    fxi_node sinks;          /* head of the list of pending results that nothing consumed */
    fxi_node resting;        /* sinks older than everything that the latest update replaced */
    uint64_t resting_newest; /* the largest `seq` of a resting sink */
    uint32_t calm;       /* nodes with this number are calm: they read nothing that updates replace
                            (sinks.c) */
    uint64_t calm_below; /* calm nodes have a smaller `seq` */
    uint64_t
        visited; /* number of sinks, and of nodes that they depend on, that updates have visited */
    int64_t created;                    /* nodes made since the last evaluation */
    int64_t brought;                    /* bytes of arrays that the program made since then */
    int64_t most_created, most_brought; /* above these, pending results are evaluated; from the
                                           memory of the machine */
    /* The latest collective operation while it is pending (a reference), else NULL. The next one
     * must run after it (ops/collective.c). */
    fxi_node *collective;
    fxi_promise *promises;
    int npromises, promise_capacity;
    struct fxi_tape *tapes;      /* recorded training steps, the latest first (tape.h) */
    struct fxi_tape *tape;       /* the one of the open FX_RECORD; NULL: none */
    struct fxi_scratch *scratch; /* the evaluator's arrays, kept between runs (scratch.c) */
    fxi_node *returned; /* dead nodes that other threads returned, with their history (atomic) */
    struct fxi_context *next_thread; /* list of the threads that are alive */
};

/* Starts to count pending work again, after an evaluation. */
static inline void fxi_pending_counted(fxi_context *c)
{
    c->created = c->brought = 0;
}

/* The context of the calling thread; NULL before its first use. */
extern _Thread_local fxi_context *fxi_own_context;
fxi_context *fxi_context_new(void);
static inline fxi_context *fxi_here(void)
{
    return __builtin_expect(fxi_own_context != NULL, 1) ? fxi_own_context : fxi_context_new();
}

/* Frees the objects of the scope that fxi_scope_open opened at this depth with FXI_SCOPE_QUIET. A
 * loop whose rounds make objects calls it after each round, which takes less time than a scope in
 * each. */
void fxi_scope_empty(int depth);

/* If the scope `from` owns the object, takes over the scope's reference; else (also if `from` is
 * NULL) adds one. fxi_scope_give returns a reference to a scope, or releases it. An object of the
 * calling thread that is taken and given needs no atomic operation. */
void *fxi_scope_take(fxi_scope *from, void *object);
void fxi_scope_give(fxi_scope *to, void *object);

/* Call this after an evaluation; it counts as `weight` evaluations. Sends one warning in the life
 * of the process if many evaluations in one scope have each left more objects there than any
 * before: probably a loop whose body opens no scope. */
void fxi_scope_watch(fxi_context *c, int weight);

/* Adds a promise, which replaces an earlier one for the same target. FX_STATUS_MEMORY is recorded.
 */
fx_status fxi_promise_add(fxi_context *c, fxi_promise_kind kind, fx_array *target, fx_array *value);
void fxi_promise_drop(fxi_context *c, int i);

/* ---- nodes ----------------------------------------------------------------------------------- */
/* A new node with one reference; retains its inputs. NULL (recorded) if the allocation fails, if
 * the product of the ndim sizes overflows, or if the device does not have the type Float64. The
 * sizes are at least 0 and may be capped (fxi_mul_sizes), so recording functions need no check of
 * their own. */
fxi_node *fxi_node_new(fxi_context *c, fx_op op, fx_dtype dtype, int ndim, const int64_t *shape,
                       fx_device *device, const fx_attr *attr, int nin, fxi_node *const *in);
static inline void fxi_node_retain(fxi_node *n)
{
    if (n->data)
        __atomic_fetch_add(&n->refs, 1, __ATOMIC_RELAXED);
    else
        n->refs++;
}
void fxi_node_release(fxi_node *n);
/* Gives a pending node its value, so it is no longer pending. Takes over `data`. */
void fxi_node_settle(fxi_node *n, fxi_data *data);
/* Drops the inputs of an evaluated node, unless the node is a view that follows them (`tied`). */
void fxi_node_cut(fxi_node *n);
/* Makes a ghost with a value pending again. Returns the block of its data, which has no buffer now.
 */
fxi_data *fxi_node_unsettle(fxi_node *n);
/* Lists n as a sink if it is one. */
void fxi_sink_check(fxi_context *c, fxi_node *n);
/* Sets aside a sink that is older than every value that the update replaces. It cannot read any of
 * them, so later updates need not visit it. fxi_sinks_wake puts the resting sinks back if one of
 * them may read a value made at `oldest` or later. */
void fxi_sink_rest(fxi_context *c, fxi_node *n);
void fxi_sinks_wake(fxi_context *c, uint64_t oldest);
/* May the calling thread use n as an operand? */
static inline bool fxi_node_usable(const fxi_context *c, const fxi_node *n)
{
    return n->data || n->owner == c->id;
}
/* The device that holds the value, or must compute it; NULL: any. */
static inline fx_device *fxi_node_device(const fxi_node *n)
{
    return n->data ? n->data->buffer->device : n->device;
}
/* Frees the nodes that other threads returned. */
void fxi_take_back(fxi_context *c);
/* Returns a dead node to its thread, which may still use the node's inputs. If that thread has
 * ended: returns false with the list of threads locked; the caller frees the node and calls
 * fxi_threads_unlock. */
bool fxi_send_home(fxi_node *n);
void fxi_threads_lock(void);
void fxi_threads_unlock(void);

/* A handle owned by the innermost scope; takes its own reference. fx_error_array if the allocation
 * fails. */
fx_array *fxi_array_of(fxi_node *n);
/* Binds a handle to another value. */
void fxi_array_rebind(fx_array *x, fxi_node *n);
/* Like fxi_array_of, but takes over the caller's reference. n may be NULL after a failed
 * allocation. */
fx_array *fxi_array_take(fxi_node *n);

/* ---- memory ---------------------------------------------------------------------------------- */
/* A new buffer with one reference; NULL if the allocation fails (not recorded). */
fxi_buffer *fxi_buffer_new(fx_device *device, size_t bytes);
/* Allocates a buffer; if that fails, frees caches and tries once more. Failures are recorded under
 * the name `op`. */
fx_status fxi_buffer_need(const char *op, fx_device *device, size_t bytes, fxi_buffer **out);
void fxi_buffer_retain(fxi_buffer *b);
void fxi_buffer_release(fxi_buffer *b);
/* Frees the memory although others may still hold the buffer. Reading it from then on is an error.
 */
void fxi_buffer_give_up(fxi_buffer *b);
bool fxi_node_report_given_up(const char *op);
/* Was the memory of the node given up? If so, records it under the name `op`. */
static inline bool fxi_node_given_up(const char *op, const fxi_node *n)
{
    return n->data && n->data->buffer->freed && fxi_node_report_given_up(op);
}

/* Marks a node as stale: an update has reused its buffer, and the value is lost. */
void fxi_node_spoil(fxi_node *n);

/* Counts nodes that the caller has made stale, or no longer stale (`more` < 0). */
void fxi_stale_count(int64_t more);
/* The stale node n has a value again: that of the node g, which is in the same memory. The caller
 * counts it. */
static inline void fxi_node_revive(fxi_node *n, const fxi_node *g)
{
    n->stale = n->used = n->wanted = false;
    n->history_cut = g->history_cut || g->nin > 0;
    n->rebound = NULL;
}

/* Is any node of the process stale? */
bool fxi_any_stale(void);

/* Can this device hold Float64? An array that belongs to no device yet may meet any open device, so
 * it can be Float64 only if all of them can hold it (fxi_note_no_f64). */
bool fxi_has_f64(const fx_device *device);
void fxi_note_no_f64(void);
/* New data over a buffer; takes over the reference to the buffer. strides NULL: dense. NULL if the
 * allocation fails; the buffer is then released. */
fxi_data *fxi_data_new(fxi_buffer *b, int64_t offset, int ndim, const int64_t *shape,
                       const int64_t *strides);
void fxi_data_free(fxi_data *d);

static inline bool fxi_same_shape(const fxi_node *a, const fxi_node *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

/* ---- the evaluator --------------------------------------------------------------------------- */
/* The functions of the evaluator (src/exec) that this folder and src/ops call. They are the only
 * calls in the library to a folder that comes later in the table of CONTRIBUTING.md. */
typedef struct fxi_evaluator {
    /* Too much is pending: evaluates all sinks but lost ones and those computed on demand. */
    void (*flush)(fxi_context *c);
    /* Evaluates and commits the promises made at this depth or deeper; drops them on error. */
    void (*promises_due)(fxi_context *c, int depth);
    /* Called after a failed allocation: frees caches, waits for the device (memory may be in use
     * until then), and drops plans that no run uses. Returns an error that the device reports about
     * earlier work. */
    fx_status (*reclaim)(fx_device *device);
    /* Frees the memory that the evaluator keeps for a thread. */
    void (*thread_ends)(fxi_context *c);
} fxi_evaluator;
extern const fxi_evaluator fxi_the_evaluator;

#endif
