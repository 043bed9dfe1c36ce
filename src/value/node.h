/* node.h: the value node behind an array handle.
 *
 * A node is immutable in what it means (op, inputs, attributes, shape) and gains `data` once, when
 * it is evaluated. Handles (fx_array) point to nodes; operations capture nodes, so a handle that is
 * rebound by an update does not change graphs built before. A node keeps its inputs after
 * evaluation (history) until the step that made it closes.
 *
 * Threads: a pending node (no data) belongs to the thread that made it, and only that thread
 * touches its private fields (mark, id, consumers, links). Evaluated nodes may be shared; other
 * threads use only op, shape, dtype, device, data and the atomic reference count.
 */
#ifndef CFLUX_NODE_H
#define CFLUX_NODE_H

#include <cflux/backend.h>
#include <cflux/ops.h>

typedef struct fxi_op_info {
    const char *name;
    int inputs;
    fx_class cls;
    uint8_t attr_words; /* of fx_attr that tell operations apart */
} fxi_op_info;
extern const fxi_op_info fxi_ops[FX_OP_COUNT];

/* Reference-counted memory of one device. */
typedef struct fxi_buffer {
    int64_t refs; /* atomic */
    void *ptr;
    size_t bytes;
    size_t held; /* of the block it lies in, which may be somewhat larger */
    fx_device *device;
    bool borrowed;         /* the user's: never written, never reused */
    bool freed;            /* given up while handles were left: they may not be read any more */
    int64_t pins;          /* atomic; > 0: never reused in place (fx_data, snapshots) */
    fx_release_fn release; /* borrowed memory's */
    void *user;
    /* What it holds, where memory that is out would be explained by it (pool.h). */
    bool named;
    uint8_t dtype, ndim;
    struct fxi_buffer *prev, *next; /* in the device's list */
    int64_t shape[FX_MAX_DIMS];
} fxi_buffer;

/* Where an evaluated node's elements are: element (i0, i1, …) is at buffer + (offset + Σ
 * i_k·stride_k) elements. */
typedef struct fxi_data {
    fxi_buffer *buffer;
    int64_t offset;
    int64_t stride[FX_MAX_DIMS];
    void *dense; /* a dense host copy made for fx_data when the elements are not dense; atomic, set
                    once */
} fxi_data;

typedef struct fxi_node fxi_node;
struct fxi_node {
    int64_t refs;      /* atomic */
    uint64_t seq;      /* order of creation within the thread: inputs before consumers */
    fx_device *device; /* where it belongs. NULL: made of literals and generators alone, so it may
                          meet arrays of any device; this stays so when it is evaluated */
    fxi_node **in;     /* inputs; points at inl when nin ≤ 3 */
    /* From here to `inl` a new node is zero. */
    uint8_t op, dtype, ndim;
    bool weak;   /* a literal's type: does not widen what it meets */
    bool stale;  /* an update has reused its buffer for the value that replaced it */
    bool wanted; /* kept when it is computed, as long as there is a handle: a loss, whose value is
                    asked for after the update that consumes it, or a collective operation */
    bool history_cut; /* inputs dropped when its step closed */
    bool used;        /* something evaluated was computed from it: not a result nobody took */
    bool tied;        /* a view that follows the array it is made of: keeps its history (ties.c) */
    int32_t nin;
    uint32_t owner;           /* id of the thread that made it */
    uint32_t mark, id;        /* of the newest walk of the planner */
    uint32_t sweep, sweep_id; /* of the newest reverse sweep */
    uint32_t calm;            /* == the context's: reads nothing that updates replace (sinks.c) */
    int32_t handles;          /* live handles (owner thread) */
    int32_t consumers;        /* pending nodes that take it as an input (owner thread) */
    fxi_data *data;           /* NULL while pending */
    const fx_array
        *rebound; /* the handle in which an update replaced this value, else NULL; atomic */
    fxi_node *prev, *next; /* the thread's list of pending results that nothing consumed (sinks) */
    fxi_node *inl[3];
    int64_t shape[FX_MAX_DIMS];
    fx_attr attr;
};

struct fx_array {
    fx_object base;
    fxi_node *node; /* NULL only in error arrays */
    fx_status status;
};

static inline bool fxi_is_float(int dtype)
{
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
           dtype == FX_DTYPE_BF16;
}

/* "3×4", "scalar"; for messages. Returns buf. */
enum { FXI_SHAPE_TEXT = 96 };
const char *fxi_shape_text(int ndim, const int64_t *shape, char buf[FXI_SHAPE_TEXT]);

#define FXI_AXIS_IN(mask, axis) (((mask) >> (axis)) & 1)
#define FXI_AXIS_BIT(axis)      (1u << (unsigned)(axis))

/* Number of elements; 1 for 0-d. Builders have checked that it fits. */
static inline int64_t fxi_length(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

#endif
