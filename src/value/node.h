/* node.h: the node of an array handle: one value, pending or evaluated.
 *
 * The meaning of a node (operation, inputs, attributes, shape) never changes. It gets `data` once,
 * when it is evaluated. Handles (fx_array) point to nodes, and operations capture nodes, so an
 * update that binds a handle to another node does not change graphs recorded before. After
 * evaluation a node keeps its inputs (its history) until the training step that made it closes.
 *
 * Threads: a pending node (no data) belongs to the thread that made it, and only that thread uses
 * its private fields (mark, id, consumers, links). Evaluated nodes may be shared; other threads use
 * only the other fields.
 */
#ifndef CFLUX_NODE_H
#define CFLUX_NODE_H

#include <cflux/backend.h>
#include <cflux/device.h>
#include <cflux/ops.h>
#include "memory.h"

typedef struct fxi_op_info {
    const char *name;
    int inputs;
    fx_class cls;
    uint8_t attr_words; /* words of fx_attr that are part of the meaning */
} fxi_op_info;
extern const fxi_op_info fxi_ops[FX_OP_COUNT];

/* Reference-counted memory of one device. */
typedef struct fxi_buffer {
    int64_t refs; /* atomic */
    void *ptr;
    size_t bytes;
    size_t held; /* size of the allocated block, which may be somewhat larger */
    fx_device *device;
    bool borrowed; /* the user's memory: never written, never reused */
    bool freed;    /* given up (freed early) while handles existed: reading them is an error */
    int64_t pins;  /* atomic; > 0: never reused in place (fx_data, snapshots) */
    fx_release_fn release; /* of borrowed memory */
    void *user;
    /* The array in the buffer, for the error that explains a failed allocation (pool.h). */
    bool named;
    uint8_t dtype, ndim;
    struct fxi_buffer *prev, *next; /* in the device's list */
    int64_t shape[FX_MAX_DIMS];
} fxi_buffer;

/* The elements of an evaluated node: element (i0, i1, …) is at buffer + (offset + Σ i_k·stride_k)
 * elements. */
typedef struct fxi_data {
    fxi_buffer *buffer;
    int64_t offset;
    int64_t stride[FX_MAX_DIMS];
    void *dense; /* a dense host copy made for fx_data when the elements are not dense; atomic, set
                    once */
} fxi_data;

/* Operations that compute part of a function whose gradient has another rule (elementwise.c). */
typedef enum fxi_grad {
    FXI_GRAD_OF_OP,
    FXI_GRAD_QUOTIENT,   /* MUL and DIV of x·(1/d): fxi_quotient */
    FXI_GRAD_TANHSHRINK, /* SUB: fxi_minus_tanh */
    FXI_GRAD_SOFTSIGN,   /* DIV: fxi_softsign_of */
} fxi_grad;

typedef struct fxi_node fxi_node;
/* What every graph reads comes first, in 128 bytes: a walk over nodes waits for their memory. */
struct fxi_node {
    int64_t refs;      /* atomic if the node has data */
    fx_device *device; /* the device it belongs to. NULL: made only of literals and generators, so
                          it may meet arrays of any device; evaluation does not change that */
    fxi_node **in;     /* inputs; points at inl when nin ≤ 3 */
    /* A new node is zero from here to `inl`. */
    fxi_data *data; /* NULL while pending */
    uint8_t op, dtype, ndim;
    bool weak;   /* has the type of a literal: does not widen the other operand */
    bool stale;  /* an update has reused its buffer for the value that replaced it */
    bool wanted; /* becomes an output of the plan that computes it, if it has a handle: a loss that
                    is read after the update which consumes it, or a collective operation */
    bool history_cut; /* its inputs were dropped when its training step closed */
    bool on_demand;   /* computed only if the program asks for it (fxi_on_demand) */
    uint8_t grad;     /* fxi_grad: the rule of its gradient */
    bool no_gradient; /* zeros of fx_gradient for an array on which the loss does not depend */
    bool used;  /* an evaluated value was computed from it: not a result that nothing consumed */
    bool tied;  /* a view that follows its parent array: keeps its history (ties.c) */
    bool ghost; /* belongs to the tape of a recorded training step (tape.h) */
    int32_t nin;
    uint32_t owner;        /* id of the thread that made it */
    uint32_t mark, id;     /* number of the planner's latest walk, and of the node in it */
    int32_t handles;       /* live handles; atomic if the node has data */
    int32_t consumers;     /* how many inputs of pending nodes refer to it (owner thread) */
    fxi_node *prev, *next; /* the thread's list of pending results that nothing consumed (sinks) */
    fxi_node *inl[3];
    int64_t shape[FX_MAX_DIMS];
    uint64_t seq; /* order of creation within the thread: inputs before consumers */
    /* A new node is zero from here to `attr`. */
    int32_t tape; /* its entry on the tape of its training step, from 1; 0: none; or
                     FXI_TAPE_COPY */
    int32_t leaf; /* its number among the leaves of the thread's tape, if that leaf is this node */
    uint32_t sweep, sweep_id; /* number of the latest reverse sweep, and of the node in it */
    uint32_t calm; /* equal to the context's: reads nothing that updates replace (sinks.c) */
    /* The handle in which an update replaced this value, else NULL; atomic. */
    const fx_array *rebound;
    /* Only the words that the operation uses are defined. Without attributes the first one is 0,
     * which POW, FLOOR and TRANSFER read. */
    fx_attr attr;
};
_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(fxi_node) > 256 && sizeof(fxi_node) <= FXI_SPARE_BYTES),
               "a block of FXI_SPARE_BYTES");
_Static_assert(sizeof(void *) > 8 || offsetof(fxi_node, shape) + 2 * sizeof(int64_t) <= 128,
               "what every graph reads, with two sizes");

struct fx_array {
    fx_object base;
    fxi_node *node; /* NULL only in error arrays */
    fx_status status;
};

/* The device that computes a value which belongs to no device is the CPU. */
static inline const fx_device *fxi_home_of(const fx_device *device)
{
    return device ? device : fx_cpu_device();
}

/* True for the result of fx_gradient for an array on which the loss does not depend. An update
 * leaves the array unchanged, as Optimisers.jl does if its gradient is `nothing`. Zeros that a
 * program makes are a gradient like others. */
static inline bool fxi_is_no_gradient(const fx_array *g)
{
    return g->node && g->node->no_gradient;
}

/* fx_dtype_size without a call: every new node and every leaf of a graph needs it. */
extern const uint8_t fxi_dtype_sizes[FX_DTYPE_COUNT];
static inline size_t fxi_dtype_size(int dtype)
{
    return (unsigned)dtype < FX_DTYPE_COUNT ? fxi_dtype_sizes[dtype] : 0;
}

static inline bool fxi_is_float(int dtype)
{
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
           dtype == FX_DTYPE_BF16;
}

/* Is an array of these sizes (≥ 0) less than 2^59 bytes, so that sums and differences of its
 * offsets do not overflow? An axis of size 0 counts as 1, because strides are products of sizes
 * too. */
static inline bool fxi_sizes_fit(fx_dtype dtype, int ndim, const int64_t *sizes)
{
    /* Nearly all arrays have at most two axes, each shorter than 2^18: at most 2^36 elements. */
    if (__builtin_expect(ndim == 0 || (ndim <= 2 && (sizes[0] | sizes[ndim - 1]) >> 18 == 0), 1))
        return true;
    int64_t bytes = (int64_t)fxi_dtype_size((int)dtype);
    bool fit = true;
    for (int i = 0; i < ndim; i++)
        fit &= !__builtin_mul_overflow(bytes, sizes[i] + !sizes[i], &bytes);
    return fit & (bytes <= INT64_MAX / 16);
}
/* Reports sizes that do not fit. */
fx_status fxi_fail_sizes(const char *op, fx_dtype dtype, int ndim, const int64_t *sizes);

/* Writes the shape as "3×4" or "scalar", for messages. Returns buf. */
enum { FXI_SHAPE_TEXT = 96 };
const char *fxi_shape_text(int ndim, const int64_t *shape, char buf[FXI_SHAPE_TEXT]);

#define FXI_AXIS_IN(mask, axis) (((mask) >> (axis)) & 1)
#define FXI_AXIS_BIT(axis)      (1u << (unsigned)(axis))

/* The number of elements; 1 for 0-d. The functions that record operations have checked that it
 * fits. */
static inline int64_t fxi_length(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

#endif
