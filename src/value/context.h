/* context.h: what a thread knows: its open scopes and its pending results.
 *
 * Scopes cannot fail to open: the first 32 are part of the context, further ones are allocated, and
 * when memory is out for them the scope is virtual: its objects go to the nearest real one.
 */
#ifndef CFLUX_CONTEXT_H
#define CFLUX_CONTEXT_H

#include "object.h"
#include "strided.h"

typedef struct fxi_scope fxi_scope;
struct fxi_scope {
    fx_object *first; /* newest object first */
    fx_object *below; /* the parent's newest object when this scope was opened */
    fxi_scope *parent;
    int depth; /* from 0, the root */
    int mode;  /* FXI_SCOPE_… */
    bool training;
    uint64_t seq; /* nodes made in this scope have this or more */
    const char *file;
    int line;
    int64_t objects; /* in its list */
    int64_t most;    /* of them at any evaluation so far */
    int64_t grown;   /* evaluations that found more of them than any before (fxi_scope_watch) */
    int64_t bytes;   /* of live arrays at the first of these evaluations */
};

/* Work promised to the next update or step close (fx_want, fx_set, fx_stage). */
typedef enum fxi_promise_kind {
    FXI_PROMISE_WANT,
    FXI_PROMISE_SET,
    FXI_PROMISE_STAGE
} fxi_promise_kind;
typedef struct fxi_promise {
    fxi_promise_kind kind;
    int depth;       /* of the scope that must have closed before it is due */
    fx_array *slot;  /* STAGE: the state handle, retained */
    fx_array *value; /* retained */
} fxi_promise;

enum { FXI_INLINE_SCOPES = 32 };

typedef struct fxi_context {
    uint32_t id;    /* of the thread, from 1; 0: not initialised */
    uint32_t mark;  /* of the newest walk */
    uint32_t sweep; /* of the newest reverse sweep */
    uint64_t seq;
    int depth; /* of scopes opened, virtual ones included */
    int virtual_scopes;
    uint64_t virtual_training; /* the modes of the first 64 of them, a bit each */
    bool is_reserve;           /* thread-local storage, not allocated */
    bool busy;                 /* inside an evaluation: no implicit one may start */
    int unwatched;             /* > 0: evaluations do not count for fxi_scope_watch */
    int new_pending;           /* > 0: fxi_evaluate_new does nothing */
    fxi_scope *scope;
    fxi_scope scopes[FXI_INLINE_SCOPES];
    fxi_node sinks;          /* head of the list of pending results that nothing consumed */
    fxi_node resting;        /* sinks that are older than everything the last update replaced */
    uint64_t resting_newest; /* the largest seq that a resting sink may have */
    uint32_t calm;           /* changes when nodes that were calm may be so no more (sinks.c) */
    uint64_t calm_below;     /* calm nodes are older */
    uint64_t visited;        /* sinks and nodes behind them that updates have looked at */
    int64_t created;         /* nodes made since the last evaluation */
    /* The newest collective operation while it is pending, a reference to it, else NULL: it comes
     * before the next one (ops/collective.c). */
    fxi_node *collective;
    fxi_promise *promises;
    int npromises, promise_capacity;
    struct fxi_scratch *scratch; /* the evaluator's arrays, kept between runs (scratch.c) */
    fxi_node *returned; /* dead nodes that other threads gave back, with their history (atomic) */
    struct fxi_context *next_thread; /* list of the threads that are alive */
} fxi_context;

/* The calling thread's context once it has one. */
extern _Thread_local fxi_context *fxi_own_context;
fxi_context *fxi_context_new(void);
static inline fxi_context *fxi_here(void)
{
    return __builtin_expect(fxi_own_context != NULL, 1) ? fxi_own_context : fxi_context_new();
}

/* An evaluation of `weight` has ended. Sends one warning in the life of the process when many
 * evaluations in one scope have each left more objects there than the one before: the sign of a
 * loop whose body opens no scope. */
void fxi_scope_watch(fxi_context *c, int weight);

/* Adds a promise; replaces an earlier one for the same slot. FX_STATUS_MEMORY is recorded. */
fx_status fxi_promise_add(fxi_context *c, fxi_promise_kind kind, fx_array *slot, fx_array *value);
void fxi_promise_drop(fxi_context *c, int i);

/* ---- nodes ----------------------------------------------------------------------------------- */
/* A node with one reference; inputs are retained. NULL when memory is out (recorded). shape has
 * ndim sizes. */
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
/* Gives a pending node its value: it stops being pending. Takes over data. */
void fxi_node_settle(fxi_node *n, fxi_data *data);
/* Drops the inputs of an evaluated node, unless it is tied to them. */
void fxi_node_cut(fxi_node *n);
/* A sink that is older than every value an update replaces cannot read one of them: it rests, so
 * that later updates need not look at it. fxi_sinks_wake takes the resting ones back to the list if
 * one of them may read a value made at `oldest` or later. */
void fxi_sink_rest(fxi_context *c, fxi_node *n);
void fxi_sinks_wake(fxi_context *c, uint64_t oldest);
/* True when the calling thread may use n as an operand. */
static inline bool fxi_node_usable(const fxi_context *c, const fxi_node *n)
{
    return n->data || n->owner == c->id;
}
/* Where a value is, or has to be computed; NULL: anywhere. */
static inline fx_device *fxi_node_place(const fxi_node *n)
{
    return n->data ? n->data->buffer->device : n->device;
}
/* Frees what other threads gave back. */
void fxi_take_back(fxi_context *c);
/* Leaves a dead node of another thread to that thread, which may still use what it was made of. If
 * that thread is gone: false, and fxi_threads_unlock is the caller's to call when it has freed the
 * node. */
bool fxi_send_home(fxi_node *n);
void fxi_threads_lock(void);
void fxi_threads_unlock(void);

/* A handle owned by the innermost scope; takes its own reference. fx_error_array when memory is
 * out. */
fx_array *fxi_array_of(fxi_node *n);
/* Makes a handle hold another value. */
void fxi_array_rebind(fx_array *x, fxi_node *n);
/* As fxi_array_of, and gives up the caller's reference; n may be NULL (memory was out). */
fx_array *fxi_array_take(fxi_node *n);

/* ---- memory ---------------------------------------------------------------------------------- */
/* A buffer with one reference; NULL when memory is out (not recorded). */
fxi_buffer *fxi_buffer_new(fx_device *device, size_t bytes);
/* The same; when memory is out, room is made and one more try. What fails is recorded in the name
 * of op. */
fx_status fxi_buffer_need(const char *op, fx_device *device, size_t bytes, fxi_buffer **out);
void fxi_buffer_retain(fxi_buffer *b);
void fxi_buffer_release(fxi_buffer *b);
/* Frees the memory while others may still hold the buffer: what reads it from now on is an error.
 */
void fxi_buffer_give_up(fxi_buffer *b);
bool fxi_node_report_given_up(const char *op);
/* Does the node's value lie in memory that was given up? Records it in the name of op. */
static inline bool fxi_node_given_up(const char *op, const fxi_node *n)
{
    return n->data && n->data->buffer->freed && fxi_node_report_given_up(op);
}

/* Marks a node as stale: an update has reused its buffer, and its value is lost. */
void fxi_node_spoil(fxi_node *n);

/* Is any node of the process stale? */
bool fxi_any_stale(void);

/* May a value of x's device have Float64? An array that belongs to no device yet may meet any of
 * the devices that are open, so one of them without Float64 (fxi_note_no_f64) answers for it. */
bool fxi_has_f64(const fx_device *device);
void fxi_note_no_f64(void);
/* Data over a buffer, whose reference it takes; strides NULL: dense. NULL when memory is out
 * (buffer released). */
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

/* ---- what is above this room ----------------------------------------------------------------- */
/* The functions of the evaluator (src/exec) that this room and src/ops call: the only calls upward
 * in the library. */
typedef struct fxi_evaluator {
    /* Evaluates all sinks, because too many nodes are pending. */
    void (*flush)(fxi_context *c);
    /* Evaluates and commits the promises made at this depth or deeper; drops them on error. */
    void (*promises_due)(fxi_context *c, int depth);
    /* Memory is out: frees caches, waits for the device (memory may be in use until then), and
     * drops plans that no run uses. Returns an error that the device reports of earlier work. */
    fx_status (*make_room)(fx_device *device);
    /* Frees what the evaluator keeps for a thread. */
    void (*thread_ends)(fxi_context *c);
} fxi_evaluator;
extern const fxi_evaluator fxi_the_evaluator;

/* The number of nodes made without an evaluation after which pending results are evaluated unasked.
 */
enum { FXI_PENDING_LIMIT = 20000 };

#endif
