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

#include <cflux/ops.h>

typedef enum fxi_op {
#define OP(NAME, name, inputs, cls) FXI_OP_##NAME,
#include "op.def"
    FXI_OP_COUNT
} fxi_op;

typedef enum fxi_class {
    FXI_CLASS_LEAF,
    FXI_CLASS_ELEMENTWISE,
    FXI_CLASS_GENERATOR,
    FXI_CLASS_MOVEMENT,
    FXI_CLASS_COPY,
    FXI_CLASS_REDUCE,
    FXI_CLASS_ROW, /* a step of several operations, of no single one (plan/row.c) */
    FXI_CLASS_SCAN,
    FXI_CLASS_GATHER,
    FXI_CLASS_SCATTER,
    FXI_CLASS_MATMUL,
    FXI_CLASS_CONV,
    FXI_CLASS_POOL,
    FXI_CLASS_CUSTOM,
    FXI_CLASS_FOREACH /* of steps only: elementwise programs over several tensors (planner rule 5)
                       */
} fxi_class;

typedef struct fxi_op_info {
    const char *name;
    int inputs;
    fxi_class cls;
} fxi_op_info;
extern const fxi_op_info fxi_ops[FXI_OP_COUNT];

typedef enum fxi_reduce_kind {
    FXI_SUM,
    FXI_MAX,
    FXI_MIN,
    FXI_PROD,
    FXI_SQDEV,  /* Σ(x − mean x)², of floats */
    FXI_ARGMAX, /* of one axis: the index of its first NaN, else of its first largest; Int64 */
    FXI_ARGMIN,
    FXI_REDUCE_KINDS
} fxi_reduce_kind;
typedef enum fxi_conv_kind {
    FXI_CONV_FORWARD, /* inputs x, w */
    FXI_CONV_DATA,    /* inputs gy, w: the gradient by x; the forward of a transposed convolution */
    FXI_CONV_WEIGHT   /* inputs x, gy: the gradient by w */
} fxi_conv_kind;
typedef enum fxi_pool_kind {
    FXI_POOL_MAX,       /* x → y */
    FXI_POOL_MEAN,      /* x → y, divides by the whole window */
    FXI_POOL_MAX_GRAD,  /* gy, x → gx: to the first largest element of the window */
    FXI_POOL_MEAN_GRAD, /* gy → gx */
    FXI_POOL_MAX_PICK   /* v, x → the elements of v where x has its window's first largest */
} fxi_pool_kind;

/* Spatial axes first; x is spatial…×channels×batch, w kernel…×(in/groups)×out. In every kind the
 * sizes of the "x side" are those of x or gx, of the "y side" those of y or gy. A window position
 * that falls outside x contributes nothing. flipped: index of the kernel runs with x
 * (cross-correlation); else against it (true convolution, Flux's Conv). */
typedef struct fxi_conv_attr {
    int32_t kind, flipped, groups, spatial;
    int32_t stride[3], before[3], after[3], dilation[3];
} fxi_conv_attr;
typedef struct fxi_pool_attr {
    int32_t kind, spatial;
    int32_t window[3], stride[3], before[3], after[3], dilation[3];
} fxi_pool_attr;

typedef union fxi_attr {
    int64_t i[8];
    double number;      /* CONST */
    uint64_t stream[2]; /* RANDOM: seed, counter */
    fxi_conv_attr conv;
    fxi_pool_attr pool;
    const fx_custom_op *custom;
} fxi_attr;

/* Reference-counted memory of one device. */
typedef struct fxi_buffer {
    int64_t refs; /* atomic */
    void *ptr;
    size_t bytes;
    fx_device *device;
    bool borrowed;         /* the user's: never written, never reused */
    bool freed;            /* given up while handles were left: they may not be read any more */
    int64_t pins;          /* atomic; > 0: never reused in place (fx_data, snapshots) */
    fx_release_fn release; /* borrowed memory's */
    void *user;
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
    int64_t refs; /* atomic */
    uint8_t op, dtype, ndim;
    bool weak;        /* a literal's type: does not widen what it meets */
    bool stale;       /* an update has reused its buffer for the value that replaced it */
    bool wanted;      /* a loss: its value is asked for after the update that consumes it */
    bool history_cut; /* inputs dropped when its step closed */
    bool used;        /* something evaluated was computed from it: not a result nobody took */
    int32_t nin;
    uint32_t owner;           /* id of the thread that made it */
    uint32_t mark, id;        /* of the newest walk of the planner */
    uint32_t sweep, sweep_id; /* of the newest reverse sweep */
    int32_t handles;          /* live handles (owner thread) */
    int32_t consumers;        /* pending nodes that take it as an input (owner thread) */
    uint64_t seq;             /* order of creation within the thread: inputs before consumers */
    fx_device *device;
    fxi_data *data; /* NULL while pending */
    const fx_array
        *rebound;  /* the handle in which an update replaced this value, else NULL; atomic */
    fxi_node **in; /* inputs; points at inl when nin ≤ 3 */
    fxi_node *inl[3];
    fxi_node *prev, *next; /* the thread's list of pending results that nothing consumed (sinks) */
    int64_t shape[FX_MAX_DIMS];
    fxi_attr attr;
};

struct fx_array {
    fx_object base;
    fxi_node *node; /* NULL only in error arrays */
    fx_status status;
};

#define FXI_AXIS_IN(mask, axis) (((mask) >> (axis)) & 1)

/* Number of elements; 1 for 0-d. Builders have checked that it fits. */
static inline int64_t fxi_length(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

#endif
