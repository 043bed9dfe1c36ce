/* cflux/backend.h: the interface of backends. Only authors of backends need this header.
 *
 * A backend provides devices of one kind. It is a table of functions (fx_backend, at the end) in a
 * shared library libcflux-NAME.so that fx_use loads. docs/guide/adding-a-backend.md develops a
 * complete one. The library turns graphs of operations into plans, decides where every value is in
 * memory, and calls the backend once per step.
 *
 * cflux and the backend share structs, so cflux accepts a backend only if the head of its table
 * (cflux/plugin.h) states the library's own ABI number and struct sizes: compile a backend against
 * the headers of the library that loads it. */
#ifndef CFLUX_BACKEND_H
#define CFLUX_BACKEND_H

#include <cflux/device.h>
#include <cflux/ops.h>
#include <cflux/plugin.h>

FXI_BEGIN_C

/* ---- operations ------------------------------------------------------------------------------ */

/* FX_OP_ADD, …: the primitive operations, one row each in op.def. */
typedef enum fx_op {
#define OP(NAME, name, inputs, cls, words, gradient) FX_OP_##NAME,
#include <cflux/op.def>
    FX_OP_COUNT
} fx_op;

/* How the planner treats an operation, and which kind of step it becomes. */
typedef enum fx_class {
    FX_CLASS_LEAF,        /* values and literals: no step */
    FX_CLASS_ELEMENTWISE, /* one result per element; may fuse several operations */
    FX_CLASS_GENERATOR,   /* IOTA, RANDOM: values without inputs */
    FX_CLASS_MOVEMENT,    /* the same elements in another order or shape; often a view, no step */
    FX_CLASS_TRANSFER,    /* moves between devices: no step */
    FX_CLASS_COPY,        /* PAD, CONCAT */
    FX_CLASS_REDUCE,      /* sums, maxima, … along axes */
    FX_CLASS_ROW,         /* fuses several operations; no single opcode describes it (plan/row.c) */
    FX_CLASS_SCAN,        /* CUMSUM */
    FX_CLASS_GATHER,      /* slices at indices */
    FX_CLASS_SCATTER,     /* combines slices with equal indices */
    FX_CLASS_MATMUL,      /* matrix products */
    FX_CLASS_CONV,        /* convolutions and their gradients */
    FX_CLASS_POOL,        /* pooling and its gradients */
    FX_CLASS_ATTENTION,   /* attention and its gradients, for devices that have a kernel for it */
    FX_CLASS_CUSTOM,      /* fx_custom */
    FX_CLASS_COLLECTIVE,  /* exchanges between processes or devices */
    FX_CLASS_FOREACH /* steps only: one elementwise program, or reduction, on several tensors */
} fx_class;

/* The result of a collective step, from the operands x of all members of a communicator. */
typedef enum fx_collective_kind {
    FX_COLLECTIVE_ALL_REDUCE, /* every member gets the reduction of all x */
    FX_COLLECTIVE_REDUCE,     /* member `root` gets the reduction of all x, the others zeros */
    FX_COLLECTIVE_BROADCAST   /* every member gets the x of member `root` */
} fx_collective_kind;
/* Which of the three products of a convolution a step computes. */
typedef enum fx_conv_kind {
    FX_CONV_FORWARD, /* inputs x, w */
    FX_CONV_DATA,    /* inputs gy, w: gradient with respect to x; also a transposed convolution */
    FX_CONV_WEIGHT   /* inputs x, gy: gradient with respect to w */
} fx_conv_kind;
/* Kinds of pooling steps: inputs → outputs. */
typedef enum fx_pool_kind {
    FX_POOL_MAX,       /* x → y, the largest element of each window */
    FX_POOL_MEAN,      /* x → y, Σ / window size */
    FX_POOL_MAX_GRAD,  /* gy, x → gx: the first largest element of a window gets its gradient */
    FX_POOL_MEAN_GRAD, /* gy → gx */
    FX_POOL_MAX_PICK /* v, x → the elements of v at the first largest element of each window of x */
} fx_pool_kind;

/* Kinds of attention steps: inputs → outputs (fx_attention_step). */
typedef enum fx_attention_kind {
    FX_ATTENTION_FORWARD,            /* q, k, v → y; each kind may have a mask as last input */
    FX_ATTENTION_LOGSUMEXP,          /* q, k → lse */
    FX_ATTENTION_GRADIENT_QUERY,     /* q, k, v, gy, lse, delta → dq */
    FX_ATTENTION_GRADIENT_KEY_VALUE, /* q, k, v, gy, lse, delta → dk and dv */
    FX_ATTENTION_GRADIENTS           /* q, k, v, gy, lse, delta → dk and dv; dq */
} fx_attention_kind;

/* Attributes of convolutions and pooling. x is spatial…×channels×batch, w kernel…×(in/groups)×out.
 * For every kind, the attributes are those of the operation from x to y; gx has the shape of x, and
 * gy that of y. `before` and `after`: padding of x along each spatial axis. Positions of a window
 * outside of x contribute nothing, even if gy is not finite for this window. Exception: a weight
 * that is not finite may give NaN where it meets such a position. `flipped`, as in NNlib: true for
 * a cross-correlation, where the kernel's index increases with x's; false for a convolution, as
 * Flux's Conv, where it decreases. */
typedef struct fx_conv_attr {
    int32_t kind, flipped, groups, spatial;
    int32_t stride[3], before[3], after[3], dilation[3];
} fx_conv_attr;
typedef struct fx_pool_attr {
    int32_t kind, spatial;
    int32_t window[3], stride[3], before[3], after[3], dilation[3];
} fx_pool_attr;

/* Attributes of attention, described at fx_attention_step. */
typedef struct fx_attention_attr {
    int64_t kind, heads, causal;
    double scale;
} fx_attention_attr;

typedef struct fx_communicator fx_communicator;
/* Attributes of a collective operation. */
typedef struct fx_collective {
    const fx_communicator *communicator;
    int64_t kind;    /* fx_collective_kind */
    int64_t fold;    /* fx_reduce: combines the members' elements; not for BROADCAST */
    int64_t root;    /* REDUCE, BROADCAST: a member */
    int64_t inexact; /* ALL_REDUCE: this many of the first elements may be rounded to BFloat16 when
                        they are sent; 0: none */
} fx_collective;

/* Attributes of a node, one member per kind of operation. A step has them in the struct of its
 * class. */
typedef union fx_attr {
    int64_t words[9]; /* all members, for comparisons */
    struct {
        double number;
        int64_t integer; /* the number, if written as an integer */
        int64_t is_integer;
    } literal;                        /* CONST */
    uint64_t stream[2];               /* RANDOM: seed, counter */
    int64_t exponent;                 /* POWI */
    int64_t axis;                     /* IOTA, CONCAT, GATHER */
    int64_t permutation[FX_MAX_DIMS]; /* PERMUTE: the input axis of each output axis */
    struct {
        int64_t axis, start, step;
    } slice;
    struct {
        int64_t axis, before, after; /* elements added, ≥ 0 */
    } pad;
    struct {
        int64_t fold, mask; /* fx_reduce except MEAN; bit i: axis i is reduced */
    } reduce;
    struct {
        int64_t axis, reverse; /* reverse: sums from the end */
    } scan;                    /* CUMSUM */
    struct {
        int64_t fold, axis; /* FX_REDUCE_SUM to PROD */
    } scatter;
    struct {
        int64_t transpose_a, transpose_b;
    } matmul;
    struct {
        int64_t unasked; /* true: added by the evaluation, not by the program */
    } transfer;          /* TRANSFER */
    fx_conv_attr conv;
    fx_pool_attr pool;
    fx_attention_attr attention;
    const fx_custom_op *custom; /* CUSTOM, OWN_GRADIENT */
    struct {
        const fx_custom_op *custom;
        double number; /* for the gradient */
        uint64_t stream[2];
    } own; /* OWN_GRADIENT */
    fx_collective collective;
} fx_attr;

/* ---- steps ----------------------------------------------------------------------------------- */

/* A step is one kernel call of a plan. Operands are tensors: element type, sizes and strides in
 * elements; the addresses that a kernel receives include view offsets. The output is always dense
 * (column-major), except for conv and pool steps with channels_last and for matmul steps of a batch
 * (fx_matmul_step). Inputs of elementwise, reduce, scan, gather, scatter, matmul, concat and pad
 * steps may have any strides, including 0 and negative ones; inputs of conv, pool and custom steps
 * are dense; those of attention steps have the strides that fx_attention_step describes. Only
 * elementwise, foreach and row steps may have an output in the memory of an input,
 * which then has the same strides.
 *
 * A backend without `views` receives movement operations as steps, and dense operands. A backend
 * without `fuses` receives elementwise steps with one instruction and one output, and no reduce
 * step with a program, row step or foreach step.
 *
 * Custom steps (fx_custom) and collective steps work on host memory. Backends whose memory is the
 * host's receive them, and may pass them to fx_host.cpu; for other backends the library runs them
 * on copies, except collective steps that the backend accepts (fx_backend.collective). */
typedef struct fx_tensor {
    uint8_t dtype, ndim;
    int64_t shape[FX_MAX_DIMS];
    int64_t stride[FX_MAX_DIMS]; /* in elements */
} fx_tensor;

/* Returns the number of elements, 1 for 0-d. */
static inline int64_t fx_tensor_length(const fx_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

/* Returns the bytes per element. */
static inline int64_t fx_tensor_element_bytes(const fx_tensor *t)
{
    static const uint8_t bytes[FX_DTYPE_COUNT] = {4, 8, 4, 8,
                                                  1, 1, 2, 2}; /* in the order of fx_dtype */
    return bytes[t->dtype];
}

/* One instruction of a register program (fx_program). */
typedef struct fx_instr {
    uint8_t op;     /* an elementwise fx_op; in a row step also REDUCE */
    uint8_t dtype;  /* element type of the result */
    uint8_t from;   /* element type of the operands (comparisons, CAST) */
    uint8_t nsrc;   /* number of operands */
    uint8_t src[3]; /* their registers */
    bool row;       /* row steps: true: one value for each row */
    uint8_t pass;   /* row steps: number of a pass over the row, see fx_row_step */
    int64_t attr;   /* POWI: the exponent; REDUCE: an fx_reduce */
} fx_instr;

/* A register program. Registers 0 … nin−1 are the step's inputs; instruction k writes register nin
 * + k. The last register is the output, unless the step's struct says otherwise. */
typedef struct fx_program {
    fx_instr *instr; /* n instructions; NULL if n is 0 */
    int32_t n;
} fx_program;

/* Maximum number of additional outputs of a step. */
enum { FX_MORE_OUTPUTS = 15 };

/* Additional outputs of a step: registers of its program that are stored besides `out`. */
typedef struct fx_more_outputs {
    int32_t n;
    uint8_t reg[FX_MORE_OUTPUTS];   /* the register that is stored */
    int32_t value[FX_MORE_OUTPUTS]; /* index into the plan's values */
} fx_more_outputs;

/* An elementwise program over tensors of the output's shape; additional outputs also have this
 * shape. */
typedef struct fx_elementwise_step {
    fx_program program;
    fx_more_outputs more;
} fx_elementwise_step;

/* A list of tensors of one length on which a foreach step's program runs. */
typedef struct fx_segment {
    int64_t length;                     /* elements of each tensor */
    int32_t value[1 + FX_MORE_OUTPUTS]; /* its outputs: indices into the plan's values */
} fx_segment;

/* Runs an elementwise program once per segment. The inputs of segment s begin at index
 * s·nin/nsegments. Each input is either a dense tensor of the segment's length or a single value,
 * in the same way in all segments. The step's `out` and additional outputs are those of the last
 * segment.
 *
 * If `each` is not NULL, the segments are independent reductions instead (op REDUCE): each[s] is a
 * complete reduce step, whose inputs and output are those of segment s. Fold, program, element
 * types and number of inputs are the same in all segments; shapes and strides are not. Only
 * backends with device memory of their own (`write`) receive such steps. */
typedef struct fx_foreach_step {
    fx_program program; /* of all segments; that of the reductions, if there are any */
    fx_more_outputs more;
    fx_segment *segments;
    int32_t nsegments;
    struct fx_step *each; /* nsegments reduce steps; NULL: the program is elementwise */
    /* over[k] > 0: in every segment, output k is stored in the memory of input over[k] − 1 of that
     * segment, so a kernel needs one pointer for both. 0: unknown. */
    uint8_t over[1 + FX_MORE_OUTPUTS];
} fx_foreach_step;

/* IOTA and RANDOM: values without inputs. */
typedef struct fx_generator_step {
    int32_t axis;   /* IOTA: y[i] = i along this axis */
    int32_t stream; /* RANDOM: index of its seed and counter in fx_run.streams */
} fx_generator_step;

/* Movement operations. RESHAPE, EXPAND and STOP have no attributes. */
typedef union fx_movement_step {
    int64_t permutation[FX_MAX_DIMS]; /* PERMUTE: the input axis of each output axis */
    struct {
        int64_t axis, start, step;
    } slice; /* SLICE */
} fx_movement_step;

/* PAD and CONCAT: inputs one after the other along an axis. */
typedef struct fx_copy_step {
    int32_t axis;
    int64_t before, after; /* PAD: elements added, ≥ 0 */
} fx_copy_step;

/* Reduces in[0], or the result of a program on the inputs. */
typedef struct fx_reduce_step {
    int32_t fold;  /* fx_reduce */
    uint32_t mask; /* bit i: axis i is reduced */
    fx_program program;
    fx_tensor space; /* with a program: the shape on which it runs */
} fx_reduce_step;

/* A row step (op REDUCE) computes reductions along the same axes, and elementwise operations before
 * and after them, in one kernel. Example: softmax along axis 0 is a maximum, exp(x .- maximum), a
 * sum and a division; each column is a row.
 *
 * Rows: `space` is the shape of the computation. A row has the elements along the first `row_axes`
 * axes of `space`, which are contiguous, and along its last `outer_axes` axes. If `column_axes` is
 * not 0, rows are columns of memory: a row has the elements along the `row_axes` axes that follow
 * the first `column_axes` axes, and `outer_axes` is 0.
 * Instructions are in the order of execution. If fx_instr.row is false, an instruction has a value
 * for each element; if true, it has one value for each row, and instructions on elements use this
 * value for all elements of the row.
 * Passes: a kernel goes over a row several times, because a reduction needs all elements before
 * its result can be used. REDUCE computes a row value from element values and is complete after
 * pass number fx_instr.pass (from 0). Any other instruction on row values is computed before that
 * pass, or after all passes if fx_instr.pass is the number of passes.
 * Sums across rows: a REDUCE whose fx_instr.row is false is a sum along the axes `across_axes` of
 * `space` (bit i: axis i). It is an output that no instruction reads, such as the gradient of the
 * scale of a layer norm. Its rows are contiguous. Of the axes of a row, `across_axes` has none, or
 * the first ones but not all. Of the other axes it has the last ones, or all. Only backends without
 * device memory of their own (`write`) receive such steps.
 * Outputs have the shape of `space`, or this shape with rows or across_axes reduced to size 1. The
 * output of the last instruction on elements may have the memory of an operand. The instructions
 * after it are sums across rows, of results computed before: none of them reads the operand. */
typedef struct fx_row_step {
    fx_program program;
    fx_more_outputs more;
    fx_tensor space;
    int32_t row_axes, outer_axes;
    uint8_t out_reg; /* register of the output */
    uint8_t column_axes;
    uint8_t across_axes;
    uint32_t counted; /* bit k: operand k is a view of the numbers 0, 1, 2, … in memory. A kernel
                         may use the offset of an element as its value instead of loading it. */
} fx_row_step;

/* Returns true if an axis of the step's space is an axis of its rows. */
static inline bool fx_row_has_axis(const fx_row_step *row, int axis)
{
    const int first = row->column_axes;
    return (axis >= first && axis < first + row->row_axes) ||
           axis >= row->space.ndim - row->outer_axes;
}

/* CUMSUM: running sum along an axis. */
typedef struct fx_scan_step {
    int32_t axis;
    bool reverse; /* from the end */
} fx_scan_step;

/* GATHER: slices of in[0] at the indices in[1] along an axis. By element, if both inputs and the
 * output have equally many axes: out[…, k, …] = in[0][…, in[1][…, k, …], …]; then in[1] has the
 * shape of the output, and in[0] differs from it along the axis only. */
typedef struct fx_gather_step {
    int32_t axis;
} fx_gather_step;

/* SCATTER: reduces slices of in[0] into the output's slices at the indices in[1] along an axis. By
 * element, if both inputs and the output have equally many axes: in[0][…, k, …] is reduced into
 * out[…, in[1][…, k, …], …]. */
typedef struct fx_scatter_step {
    int32_t fold; /* fx_reduce: combines slices with equal indices */
    int32_t axis;
} fx_scatter_step;

/* The matrix product of in[0] and in[1]. The epilogue is a program on each element of the product
 * before it is stored: register 0 is the product, registers 1 … nin−2 are the inputs from in[2], in
 * the output's shape (stride 0: broadcast). Each instruction uses the result of the previous one
 * and is ADD of an input, MUL by an input that is one number, RELU, TANH or SIGMOID. The output of
 * a batch may have its axes in another order in memory, without gaps, with one of the matrix axes
 * first. The inputs of its epilogue then have the same strides or are numbers. */
typedef struct fx_matmul_step {
    bool transpose_a, transpose_b; /* swap the first two axes */
    uint8_t precision;             /* fx_precision: allowed for products of Float32 */
    fx_program epilogue;
} fx_matmul_step;

/* A convolution. FX_CONV_FORWARD may have an epilogue, like that of a matrix product. */
typedef struct fx_conv_step {
    fx_conv_attr attr;
    bool channels_last; /* activations in memory order C, W, H, N; weights are dense */
    uint8_t precision;  /* fx_precision: allowed for products of Float32 */
    fx_program epilogue;
} fx_conv_step;

/* Pooling. */
typedef struct fx_pool_step {
    fx_pool_attr attr;
    bool channels_last; /* all operands in memory order C, W, H, N */
} fx_pool_step;

/* The number of operands of an attention step that may be views: q, k, v and gy, the first ones.
 * The mask may be a view too. */
enum { FX_ATTENTION_VIEWS = 4 };

/* Dot-product attention with several heads, and its gradients. A backend receives such steps only
 * if `fx_backend.attention` returned true for a step of kind FX_ATTENTION_FORWARD with these sizes
 * and types.
 *     q    (features·heads) × queries × batch
 *     k    (features·heads) × keys × batch
 *     v    (value_features·heads) × keys × batch
 *     y, gy                (value_features·heads) × queries × batch
 *     lse, delta           heads × queries × batch, Float32
 *     dq                   the shape of q
 *     dk, dv               one array, ((features + value_features)·heads) × keys × batch: first
 *                          the features·heads rows of dk, then those of dv
 *     mask                 keys × queries × heads × batch, Bool; any of these sizes may be 1
 * q, k, v, y, gy and the gradients have one type. Head h has the features h·features … and the
 * value features h·value_features …. For each head and observation, with queries i and keys j:
 *     s[j, i]     = scale · Σ_f k[f, j] · q[f, i];  −∞ if `causal` and j > i, or where the mask is
 *                   false
 *     lse[i]      = log Σ_j exp(s[j, i])
 *     α[j, i]     = exp(s[j, i] − lse[i])
 *     y[f, i]     = Σ_j v[f, j] · α[j, i]
 *     delta[i]    = Σ_f gy[f, i] · y[f, i]
 *     ds[j, i]    = α[j, i] · (Σ_f v[f, j] · gy[f, i] − delta[i]);  0 where s is set to −∞
 *     dq[f, i]    = scale · Σ_j k[f, j] · ds[j, i]
 *     dk[f, j]    = scale · Σ_i q[f, i] · ds[j, i]
 *     dv[f, j]    = Σ_i gy[f, i] · α[j, i]
 * Operands q, k, v and gy are dense, or have stride 1 along the features and along the two other
 * axes strides of a multiple of 16 bytes; so a step reads slices of one array that holds q, k and
 * v. Their offsets in the plan are multiples of 16 bytes too, but the address of an existing array
 * may be any multiple of an element. lse and delta are dense. The mask has any strides; along an
 * axis of size 1 its element belongs to all positions. A step of kind FX_ATTENTION_FORWARD may have
 * lse as an additional output, and a step of kind FX_ATTENTION_GRADIENTS always has dq as an
 * additional output. There is no program, and `reg` of the additional outputs is not used. */
typedef struct fx_attention_step {
    uint8_t kind; /* fx_attention_kind */
    bool causal;
    uint8_t mask;                     /* index of the mask, which is the last input; 0: none */
    double scale;                     /* of the products of queries and keys */
    int64_t features, value_features; /* of a head; LOGSUMEXP: value_features is 0 */
    int64_t heads, queries, keys, batch;
    fx_more_outputs more;
} fx_attention_step;

/* A custom operation (fx_custom) on host memory. */
typedef struct fx_custom_step {
    const fx_custom_op *op;
} fx_custom_step;

/* Exchanges in[0], dense, with the other members of a communicator. in[1], if present, is the
 * output of the previous collective step; it orders the steps and is not read. */
typedef struct fx_collective_step {
    fx_collective what;
    bool by_backend; /* true: fx_backend.run runs the step */
    int32_t until;   /* set by the library. 0: it runs this step at once; otherwise it begins this
                        step (fx_communicator.begin or fx_backend.begin), and finishes it before it
                        runs the step with the index `until` */
} fx_collective_step;

/* One kernel call: members of all steps, then those of the step's class. */
typedef struct fx_step {
    uint8_t op;           /* fx_op; for an elementwise program (also in foreach): its last one */
    uint8_t cls;          /* fx_class: selects the member of `as` */
    bool in_memory_order; /* true: its axes are in the order of channels-last memory, C×W×H×N, so
                    that the output is dense; never for conv and pool steps */
    bool by_plugin;       /* private to the backend: true if a kernel library made `ready` */
    int32_t nin;
    int32_t out_value;  /* index of the output in the plan's values */
    int32_t work_value; /* index of its work space; undefined if work_bytes is 0 */
    int64_t work_bytes; /* bytes of device memory that `run` needs besides operands: set by
                           `prepare`, 0 before */
    fx_tensor out;
    fx_tensor *in;      /* nin inputs */
    int32_t *in_value;  /* indices into the plan's values */
    int64_t *in_offset; /* view offsets, in elements */
    void *ready;        /* set by fx_backend.prepare */
    /* Member of the step's class; the others are undefined. Read it with fx_step_conv(s), …. The
     * largest member is first, so that initialising a step with {0} sets all bytes. */
    union {
        fx_row_step row;
        fx_elementwise_step elementwise;
        fx_generator_step generator;
        fx_movement_step movement;
        fx_copy_step copy;
        fx_reduce_step reduce;
        fx_scan_step scan;
        fx_gather_step gather;
        fx_scatter_step scatter;
        fx_matmul_step matmul;
        fx_conv_step conv;
        fx_pool_step pool;
        fx_attention_step attention;
        fx_custom_step custom;
        fx_collective_step collective;
        fx_foreach_step foreach;
    } as;
} fx_step;

/* fx_step_NAME returns the members of the class NAME of a step. If the step has another class, code
 * compiled with CFLUX_DEBUG_CHECKS stops the program; otherwise the result is undefined. */
static inline const fx_elementwise_step *fx_step_elementwise(const fx_step *s);
static inline const fx_generator_step *fx_step_generator(const fx_step *s);
static inline const fx_movement_step *fx_step_movement(const fx_step *s);
static inline const fx_copy_step *fx_step_copy(const fx_step *s);
static inline const fx_reduce_step *fx_step_reduce(const fx_step *s);
static inline const fx_row_step *fx_step_row(const fx_step *s);
static inline const fx_scan_step *fx_step_scan(const fx_step *s);
static inline const fx_gather_step *fx_step_gather(const fx_step *s);
static inline const fx_scatter_step *fx_step_scatter(const fx_step *s);
static inline const fx_matmul_step *fx_step_matmul(const fx_step *s);
static inline const fx_conv_step *fx_step_conv(const fx_step *s);
static inline const fx_pool_step *fx_step_pool(const fx_step *s);
static inline const fx_attention_step *fx_step_attention(const fx_step *s);
static inline const fx_custom_step *fx_step_custom(const fx_step *s);
static inline const fx_collective_step *fx_step_collective(const fx_step *s);
static inline const fx_foreach_step *fx_step_foreach(const fx_step *s);

#ifdef CFLUX_DEBUG_CHECKS
#define FXI_EXPECT_CLASS(step, class) ((step)->cls == (class) ? (void)0 : __builtin_trap())
#else
#define FXI_EXPECT_CLASS(step, class) ((void)0)
#endif
#define FXI_STEP_OF_CLASS(CLASS, name)                                                             \
    static inline const fx_##name##_step *fx_step_##name(const fx_step *s)                         \
    {                                                                                              \
        FXI_EXPECT_CLASS(s, FX_CLASS_##CLASS);                                                     \
        return &s->as.name;                                                                        \
    }
FXI_STEP_OF_CLASS(ELEMENTWISE, elementwise)
FXI_STEP_OF_CLASS(GENERATOR, generator)
FXI_STEP_OF_CLASS(MOVEMENT, movement)
FXI_STEP_OF_CLASS(COPY, copy)
FXI_STEP_OF_CLASS(REDUCE, reduce)
FXI_STEP_OF_CLASS(ROW, row)
FXI_STEP_OF_CLASS(SCAN, scan)
FXI_STEP_OF_CLASS(GATHER, gather)
FXI_STEP_OF_CLASS(SCATTER, scatter)
FXI_STEP_OF_CLASS(MATMUL, matmul)
FXI_STEP_OF_CLASS(CONV, conv)
FXI_STEP_OF_CLASS(POOL, pool)
FXI_STEP_OF_CLASS(ATTENTION, attention)
FXI_STEP_OF_CLASS(CUSTOM, custom)
FXI_STEP_OF_CLASS(COLLECTIVE, collective)
FXI_STEP_OF_CLASS(FOREACH, foreach)

/* ---- functions for steps of several classes ---- */

/* Returns true if a gather or scatter has an index for each element. */
static inline bool fx_step_by_element(const fx_step *s)
{
    return s->out.ndim == s->in[0].ndim && s->out.ndim == s->in[1].ndim;
}

/* Returns the program or epilogue of a step; n is 0 if it has none. */
static inline fx_program fx_step_program(const fx_step *s)
{
    switch (s->cls) {
    case FX_CLASS_ELEMENTWISE:
        return s->as.elementwise.program;
    case FX_CLASS_FOREACH:
        return s->as.foreach.program;
    case FX_CLASS_ROW:
        return s->as.row.program;
    case FX_CLASS_REDUCE:
        return s->as.reduce.program;
    case FX_CLASS_MATMUL:
        return s->as.matmul.epilogue;
    case FX_CLASS_CONV:
        return s->as.conv.epilogue;
    default: {
        const fx_program none = {FXI_NULL, 0};
        return none;
    }
    }
}

/* Returns the additional outputs of a step (for a foreach step, of the last segment). Never
 * NULL. */
static inline const fx_more_outputs *fx_step_more(const fx_step *s)
{
    static const fx_more_outputs none = {0, {0}, {0}};
    return s->cls == FX_CLASS_ELEMENTWISE ? &s->as.elementwise.more
           : s->cls == FX_CLASS_FOREACH   ? &s->as.foreach.more
           : s->cls == FX_CLASS_ROW       ? &s->as.row.more
           : s->cls == FX_CLASS_ATTENTION ? &s->as.attention.more
                                          : &none;
}

/* Returns the number of segments, 1 unless it is a foreach step. */
static inline int32_t fx_step_segments(const fx_step *s)
{
    return s->cls == FX_CLASS_FOREACH ? s->as.foreach.nsegments : 1;
}

/* fx_step_outputs returns the number of outputs of a step, in all segments; fx_step_output the
 * index of output k in the plan's values. */
static inline int32_t fx_step_outputs(const fx_step *s)
{
    return fx_step_segments(s) * (1 + fx_step_more(s)->n);
}
static inline int32_t fx_step_output(const fx_step *s, int32_t k)
{
    const fx_more_outputs *more = fx_step_more(s);
    if (s->cls == FX_CLASS_FOREACH)
        return s->as.foreach.segments[k / (1 + more->n)].value[k % (1 + more->n)];
    return k == 0 ? s->out_value : more->value[k - 1];
}

/* Returns the number of buffers that a kernel of the step may need at the same time: inputs
 * (including literals), outputs, work space (which `prepare` may request), and the streams table
 * for RANDOM. A foreach step counts as one segment, and CONCAT as one input, because separate
 * kernels can compute them. 0 for custom steps, which run on the host. */
static inline int32_t fx_step_buffers(const fx_step *s)
{
    const int32_t nin = s->op == FX_OP_CONCAT ? 1 : s->nin / fx_step_segments(s);
    return s->cls == FX_CLASS_CUSTOM ? 0
                                     : nin + 1 + fx_step_more(s)->n + (s->op == FX_OP_RANDOM) + 1;
}
/* Returns true if a step computes several operations that separate steps could compute. */
static inline bool fx_step_is_fused(const fx_step *s)
{
    return s->cls == FX_CLASS_ROW || s->cls == FX_CLASS_FOREACH ||
           fx_step_program(s).n > (s->cls == FX_CLASS_ELEMENTWISE);
}

/* Smallest allowed value of fx_device_info.buffers: a SELECT needs three inputs, an output and work
 * space. */
enum { FX_LEAST_BUFFERS = 5 };

/* Returns the address of input k of a step in a run of its plan; values[v] is the address of value
 * v. */
static inline const void *fx_step_input_at(const fx_step *s, int32_t k, void *const *values)
{
    return FXI_TO(const char *, values[s->in_value[k]]) +
           s->in_offset[k] * fx_tensor_element_bytes(&s->in[k]);
}

/* Returns true if a matrix product or convolution has an epilogue. */
static inline bool fx_step_has_epilogue(const fx_step *s)
{
    return (s->cls == FX_CLASS_MATMUL || s->cls == FX_CLASS_CONV) && fx_step_program(s).n > 0;
}

/* Returns the name of a primitive operation (fx_op) as it appears in errors: "matmul". Returns
 * "step" for any other number. */
static inline const char *fx_op_name(int op)
{
    static const char *const names[FX_OP_COUNT] = {
#define OP(NAME, name, inputs, cls, words, gradient) name,
#include <cflux/op.def>
    };
    return op >= 0 && op < FX_OP_COUNT ? names[op] : "step";
}

/* Arguments of one run of a plan. */
typedef struct fx_run {
    void *more[FX_MORE_OUTPUTS]; /* addresses of a step's additional outputs */
    void *const *outputs;        /* foreach steps: addresses of all outputs, segment by segment */
    /* Work space of a step: work_bytes of device memory, aligned to 64 bytes, not initialised, used
     * by no other step of the run at the same time; NULL if work_bytes is 0. */
    void *work;
    /* RANDOM: seed and counter of each stream, UInt64, in device memory, as literals are. NULL if
     * the plan has none. */
    const uint64_t (*streams)[2];
    /* Set by fx_backend.plan_run, 0 before: the number of recordings (graphs of CUDA and HIP) that
     * the run made, replayed and freed because their addresses became invalid. */
    int32_t captured, replayed, invalidated;
} fx_run;

/* The queue of a device, for a communicator that works on device memory. */
typedef struct fx_device_queue {
    const char *backend; /* "CUDA", "AMDGPU" */
    void *stream;        /* the driver's: a CUstream or hipStream_t. The calling thread has selected
                            its device, except for begin_on */
    const void *data;    /* private to the backend */
    void *mark;          /* private to the backend */
    /* `why` of these functions: receives the reason of a failure, a sentence without a full stop;
     * nothing is recorded. pending: 0 if all queued work has ended, 1 if not, −1 on failure. */
    int (*pending)(const struct fx_device_queue *self, char *why, size_t size);
    /* Selects the queue's device for the calling thread. Returns 0, or −1 if that fails. */
    int (*select)(const struct fx_device_queue *self, char *why, size_t size);
    /* Copies bytes from the device's memory to host memory, and back. Returns when the host may
     * read or change its memory; on failure the error is recorded. */
    fx_status (*read)(const struct fx_device_queue *self, void *to, const void *from, size_t bytes);
    fx_status (*write)(const struct fx_device_queue *self, void *to, const void *from,
                       size_t bytes);
    /* Allocates memory of the device, which is never freed; NULL if it is exhausted. */
    void *(*alloc)(const struct fx_device_queue *self, size_t bytes);
    /* Queues a copy within the device's memory. */
    fx_status (*copy)(const struct fx_device_queue *self, void *to, const void *from, size_t bytes,
                      char *why, size_t size);
    /* For begin_on only. For each operation that is begun, `enter` is called in the thread that
     * runs it, or else `forget`. `enter` selects the device and makes later work wait for the
     * operand. −1: failed. 0: a process that ends waits, for a while, for `leave`. */
    int (*enter)(const struct fx_device_queue *self, char *why, size_t size);
    void (*leave)(const struct fx_device_queue *self);
    void (*forget)(const struct fx_device_queue *self);
} fx_device_queue;

/* The participants in collective operations: processes, or devices. Each member must call the same
 * operations in the same order, on arrays of the same element type and shape. A communicator must
 * outlive the plans that use it; usually it is static. */
struct fx_communicator {
    size_t fxi_size;    /* sizeof(fx_communicator) */
    const char *name;   /* "MPI" */
    int32_t rank, size; /* this member, from 0; number of members */
    const void *user;   /* private to its author */
    /* Runs a collective step (fx_collective_step) on operands in host memory: `in` and `out` hold
     * as many elements as step->out, of its type. Returns when the result is in `out`. On failure
     * it writes the reason to `why` (a sentence without a full stop, at most `size` bytes) and
     * returns a status; the library records it with name, rank and size. */
    fx_status (*run)(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                     char *why, size_t size);
    /* Tells the other members that this member failed before an operation for which they wait, and
     * why. That operation fails on all members. NULL: the other members are not told. */
    void (*refuse)(const fx_communicator *self, fx_status status, const char *why);
    /* Returns true if run_on runs this step on devices of a backend. All members must return the
     * same value. NULL: never; the library then copies operands to the host and back. */
    bool (*takes)(const fx_communicator *self, const char *backend, const fx_step *step);
    /* As `run`, for operands in device memory. Runs after all queued work, and may wait for it. */
    fx_status (*run_on)(const fx_communicator *self, const fx_device_queue *queue,
                        const fx_step *step, const void *in, void *out, char *why, size_t size);
    /* Begins a step that `run` could run, and returns without waiting, so that the plan's next
     * steps run at the same time. Steps run in the order in which they are begun. `step` and `in`
     * do not change and `out` is not read until `finish` returns. If a step fails, those begun
     * after it are not run and fail too. Returns a pointer for `finish`, or NULL if the library
     * must call `run`. If `begin` itself is NULL, no step can be begun. */
    void *(*begin)(const fx_communicator *self, const fx_step *step, const void *in, void *out);
    /* As `begin`, for a step that `run_on` could run. `queue` is not the queue in which the device
     * computes. Copies *queue; until the operation has ended, other threads may call its functions
     * except `read`, `write` and `alloc`. NULL: no such step can be begun. */
    void *(*begin_on)(const fx_communicator *self, const fx_device_queue *queue,
                      const fx_step *step, const void *in, void *out);
    /* Waits for a step that has been begun. Called once for each, in the same order. The status and
     * `why` are those of `run`. NULL only if `begin` and `begin_on` are. */
    fx_status (*finish)(const fx_communicator *self, void *begun, char *why, size_t size);
};

/* Kind of memory of a plan's value. */
typedef enum fx_plan_memory {
    FX_PLAN_MEMORY_ARENA,  /* temporary memory of the run: literals, values between steps, work
                              space */
    FX_PLAN_MEMORY_LEAF,   /* an existing array, which the plan reads. Its memory may become that of
                              a value of kind FX_PLAN_MEMORY_REPLACES */
    FX_PLAN_MEMORY_RESULT, /* a new array */
    FX_PLAN_MEMORY_REPLACES /* a new array in the memory of a leaf */
} fx_plan_memory;

/* A value of a plan. */
typedef struct fx_plan_value {
    uint8_t memory; /* fx_plan_memory */
    int64_t bytes;  /* number of bytes from its address; 0: empty, or unknown because it is a leaf
                       that is not dense */
} fx_plan_value;

/* The steps of a plan in order, for backends that run a plan in one call. If the library runs some
 * steps of a plan itself, it offers the backend each sequence of steps between them as a plan;
 * `values` are then those of the whole plan. */
typedef struct fx_plan {
    const fx_step *steps;
    int32_t nsteps;
    int32_t nvalues;             /* number of values, and of addresses per run */
    int32_t nstreams;            /* number of streams (seed and counter) */
    const fx_plan_value *values; /* nvalues of them */
    void *ready;                 /* set by fx_backend.plan_prepare */
} fx_plan;

/* ---- devices --------------------------------------------------------------------------------- */

/* Properties of a device, set by fx_backend.info. */
typedef struct fx_device_info {
    char name[128];  /* "NVIDIA H100 80GB HBM3" */
    char driver[64]; /* driver and version; "" if unknown */
    int64_t memory;  /* size of its memory in bytes; 0: unknown */
    bool no_f64;     /* true: no Float64; Float64 arrays cannot be moved to it */
    bool on_cpu; /* true: computes on the host's CPU, like PoCL; a backend whose first device has
                    this set is never chosen automatically */
    int32_t buffers; /* maximum number of buffers of a kernel, at least FX_LEAST_BUFFERS: the
                        planner makes no step that needs more (fx_step_buffers); 0: no limit */
} fx_device_info;

/* A backend: the table of functions below. */
typedef struct fx_backend fx_backend;
/* A device. The library allocates and frees it. */
struct fx_device {
    fx_object base;
    const fx_backend *backend;
    int id;           /* from 0 */
    const char *name; /* "CPU", "ref", "CUDA:0" */
    fx_device_info info;
    void *data; /* the backend's own */
};

/* ---- functions of the library for backends --------------------------------------------------- */

/* Names the compiled form of a program: everything on which the code depends besides cflux's
 * version. No text is NULL, except where fx_host.kernel_packed permits it. */
typedef struct fx_kernel_key {
    const char *backend;  /* "cuda" */
    const char *target;   /* the devices that can load the code: "sm_90"; "": it is not code, and
                             packs do not contain it */
    const char *compiler; /* "NVRTC 13.0" */
    const char *options;  /* the compiler's options besides the target */
    const char *source;
} fx_kernel_key;

/* Code from a pack of kernels (fx_kernels_add), valid until the process ends. A pack comes from
 * another machine: a backend checks whether the device can load the code. */
typedef struct fx_packed_kernel {
    const char *target, *compiler; /* fx_kernel_key */
    const void *code;              /* followed by at least one zero byte */
    size_t size;
} fx_packed_kernel;
/* Returns true to end the search. */
typedef bool (*fx_packed_fn)(const fx_packed_kernel *kernel, void *user);

/* Functions of the library for backends, passed to `open`; valid until the process ends. */
typedef struct fx_host {
    const char *version;          /* version of the library */
    void *(*alloc)(size_t bytes); /* allocates host memory; NULL if it fails */
    void (*free)(void *ptr);
    /* Records an error and returns its status. */
    fx_status (*fail)(fx_status status, const char *operation, const char *text);
    /* error_take returns the calling thread's error record and clears it (fx_error_take). error_put
     * stores an error as the calling thread's record, unless the thread has a record. For backends
     * that work in threads of their own, or recover from a failure that has been recorded. */
    fx_error (*error_take)(void);
    void (*error_put)(const fx_error *error);
    /* Sends a message (fx_message): level 0 info, 1 warning. */
    void (*message)(int level, const char *text);
    /* The CPU backend. Its prepare, release and run accept any step whose operands, work space and
     * streams are in host memory, and ignore the device argument. */
    const fx_backend *cpu;
    /* Finds, checks and loads the kernel library `name` for the backend `serves`; `sizes` are the
     * struct sizes that its head must state. Returns its head, which is the first member of its
     * table and valid until the process ends. If no file can be used, returns NULL and writes the
     * reason to `why`. Every call searches again: store the result. */
    const fx_plugin_head *(*kernel_library)(const char *serves, const char *name,
                                            const uint32_t sizes[FX_PLUGIN_SIZES], char *why,
                                            size_t size);
    /* Compiled kernels on disk. Any thread may call these functions; they record no error.
     * kernels_cached returns true if kernels are cached on disk (FX_CACHE). kernel_load returns the
     * bytes stored with this key, in memory that the caller frees with `free`; NULL if there are
     * none. kernel_store stores a copy of the bytes; a failure has no effect. */
    bool (*kernels_cached)(void);
    void *(*kernel_load)(const fx_kernel_key *key, size_t *out_size);
    void (*kernel_store)(const fx_kernel_key *key, const void *bytes, size_t size);
    /* Calls `take` for the code of this program in each pack of kernels, for any target and
     * compiler, until `take` returns true. Returns true if a call of `take` returned true.
     * key->source == NULL: for all programs of the backend. key->target and key->compiler are
     * ignored. */
    bool (*kernel_packed)(const fx_kernel_key *key, fx_packed_fn take, void *user);
} fx_host;

/* ---- the table ------------------------------------------------------------------------------- */

/* Every function may be called by several threads at the same time. Calls for one device take
 * effect in the order in which they were made. `run`, `fill` and `copy` may return before the work
 * is complete; a later call then reports its failure. Unless stated otherwise, a function that
 * fails records the error (fx_host.fail) and returns its status. A NULL entry has the meaning in
 * its comment; entries without one must not be NULL. */
struct fx_backend {
    fx_plugin_head head; /* FX_BACKEND_HEAD("CUDA") */
    bool views; /* true: kernels accept strided operands, so that reshapes, slices and broadcasts
                   need no step */
    bool fuses; /* true: kernels accept elementwise steps with several instructions and outputs */

    /* -- opening -- */
    /* Called once, first. Loads what the backend needs and returns the number of its devices. If
     * it does not work, writes the reason (a sentence without a full stop) to `why`, which is empty
     * before; if it still returns devices, they are listed but not used. Records no error. There is
     * no `close`: a backend stays loaded until the process ends. NULL: always one device. */
    int (*open)(const fx_host *host, char *why, size_t size);
    /* Sets device->info, and device->data if the backend uses it. Called once per device, before
     * its first use. NULL: no properties. */
    fx_status (*info)(fx_device *device);
    /* Returns "" if the backend can use the kernel library of this name ("cuDNN", upper or lower
     * case), the reason if it cannot, and NULL if it does not know the library. If the entry is
     * NULL, it knows no library. */
    const char *(*part)(const char *name);

    /* -- memory -- */
    /* Allocates device memory, aligned to 64 bytes; bytes may be 0. NULL when out of memory; not
     * yet an error, the library frees its caches and retries. If the device fails otherwise (it is
     * lost), records an error and returns NULL. Addresses are private to the backend: the library
     * adds offsets and does not dereference them, unless `read` and `write` are NULL. */
    void *(*alloc)(fx_device *device, size_t bytes);
    /* Frees device memory. Queued work may still use it: the backend frees it when that work is
     * complete. */
    void (*free)(fx_device *device, void *ptr);
    /* Copies bytes from host memory to the device; after the return the host memory may be reused.
     * NULL, together with `read`: device memory is host memory. */
    fx_status (*write)(fx_device *device, void *to, const void *from, size_t bytes);
    /* Copies bytes from the device to host memory; returns when they have arrived. */
    fx_status (*read)(fx_device *device, void *to, const void *from, size_t bytes);
    /* Copies bytes between devices of the backend, or within one, queued on `to_device`. If the
     * backend has `mark`, `wait` and `unmark`, the library orders the two queues: it makes
     * `to_device` wait for `from_device` before, and the reverse after. Otherwise the backend first
     * completes the work queued on both. NULL: the library copies through host memory. */
    fx_status (*copy)(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                      size_t bytes);
    /* Sets bytes to a value. NULL: the library writes them. */
    fx_status (*fill)(fx_device *device, void *to, uint8_t value, size_t bytes);
    /* Returns the bytes free on the device now, for all programs; −1 if unknown. NULL: unknown. */
    int64_t (*available)(fx_device *device);

    /* -- work -- */
    /* Returns true if the device supports this conv or pool step with channels last (memory order
     * C, W, H, N) and prefers it to dense. Called before the step is made, with sizes set. NULL:
     * never. */
    bool (*channels_last)(fx_device *device, const fx_step *step);
    /* For a step of kind FX_ATTENTION_FORWARD with dense operands: returns true if the device
     * computes attention with these sizes and types, in steps of all kinds but
     * FX_ATTENTION_GRADIENTS, and prefers these steps to products and softmax. Called when the
     * operation is recorded. For a step of kind FX_ATTENTION_GRADIENTS: returns true if the device
     * computes it and prefers it to one step for dq and one for dk and dv. Called when a plan is
     * made. Records no error. NULL: never. */
    bool (*attention)(fx_device *device, const fx_step *step);
    /* Returns true if `run` computes this collective step, whose communicator it knows, on device
     * memory. Called before `prepare`. A backend that runs it in a separate queue orders the queues
     * itself. NULL: never. */
    bool (*collective)(fx_device *device, const fx_step *step);
    /* Begins such a step by fx_communicator.begin_on, with a second queue of the device, and
     * returns what that returns. The library finishes it before it uses the result or frees the
     * memory. NULL, without an error: the library must call `run`. Entry NULL: it always does. */
    void *(*begin)(fx_device *device, const fx_step *step, const void *in, void *out);
    /* Prepares a step of a new plan: stores the bytes of work space in step->work_bytes, and
     * everything that can be decided once (kernels, tiles, primitives of a library) in step->ready.
     * Several threads may use step->ready at the same time; `release` frees it.
     * FX_STATUS_UNSUPPORTED, not recorded, for a step of several operations (fx_step_is_fused), or
     * for a matrix product whose output is not dense: the planner retries with a shorter
     * epilogue or with other steps. Any other failure is recorded, and the plan fails before a step
     * has run. NULL: nothing to prepare. */
    fx_status (*prepare)(fx_device *device, fx_step *step);
    /* Completes the preparation of all steps of a new plan together, so that a backend can compile
     * their kernels at the same time. Called once, after `prepare` of every step and before the
     * first run. Steps that the library runs itself have `ready` NULL. On failure *out_step is the
     * first step that fails, and the status has the same meaning as for `prepare`. NULL: `prepare`
     * does everything. */
    fx_status (*compile)(fx_device *device, fx_step *steps, int32_t n, int32_t *out_step);
    /* Frees step->ready. NULL only if `prepare` is NULL. */
    void (*release)(fx_device *device, fx_step *step);
    /* Runs one step. in[k] and out are addresses of first elements; literals of the program are
     * operands like others. The lists and `run` are valid during the call, the step until
     * `release`. An error's operation is fx_op_name(step->op). */
    fx_status (*run)(fx_device *device, const fx_step *step, const void *const *in, void *out,
                     fx_run *run);
    /* -- a whole plan in one call, for backends that can save time between its steps, for example
     * by recording them as a CUDA graph; all three NULL: the library calls `run` for each step --
     */
    /* Prepares a new plan, whose steps `prepare` has prepared, in plan->ready. Called once, before
     * its first run. FX_STATUS_UNSUPPORTED, not recorded: the plan runs step by step. Any other
     * failure fails the evaluation. A plan with steps that the library runs itself is offered in
     * parts of at least two steps. Not called with FX_EAGER in the environment. */
    fx_status (*plan_prepare)(fx_device *device, fx_plan *plan);
    /* Runs all steps of the plan in their order: replaces the calls of `run`. values[v] is the
     * address of value v in this run (work space is a value too), and fx_step_input_at returns the
     * address of an input of a step; run->streams is as for `run`. From run to run, addresses may
     * differ, and so may the literals, seeds and counters that are stored at them. The plan may be
     * run by several threads at the same time. On failure *out_step is the step that failed: values
     * that this step and earlier steps replace in place are lost, values that later steps replace
     * are not. −1: no step has begun. If *out_step is not set, every step may have begun. */
    fx_status (*plan_run)(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                          int32_t *out_step);
    /* Frees plan->ready, before the steps are released. Not called if `plan_prepare` failed. */
    void (*plan_release)(fx_device *device, fx_plan *plan);

    /* -- queues -- */
    /* Submits the queued steps of a plan to the device, without waiting. NULL: they start by
     * themselves. */
    void (*submit)(fx_device *device);
    /* Waits until all queued work is complete; returns and records an error that occurred since the
     * previous call. NULL: `run` never returns early. */
    fx_status (*sync)(fx_device *device);
    /* Creates a mark: a point in the device's queue, after all work queued so far. It is reached
     * without `submit`. If it fails, returns NULL and records an error. All three functions NULL:
     * `copy` orders the two queues itself. */
    void *(*mark)(fx_device *device);
    /* Makes work queued on the device from now on wait for a mark of any device of the backend;
     * does not block the host. FX_STATUS_UNSUPPORTED, not recorded: this device cannot wait for
     * that one, and the library copies through host memory. */
    fx_status (*wait)(fx_device *device, void *mark);
    /* Frees a mark, reached or not. */
    void (*unmark)(fx_device *device, void *mark);

    /* -- more -- */
    /* Returns a backend-specific function or object by name (fx_backend_proc), NULL if there is
     * none. NULL: there are none. */
    void *(*proc)(const char *name);
};

/* Struct sizes that a plugin and the library compare: the table of its kind, the struct of the
 * library's functions for it, and the structs that all kinds share. */
#define FX_PLUGIN_SIZES_HERE(table, host)                                                          \
    {                                                                                              \
        sizeof(fx_plugin_head), sizeof(table), sizeof(host), sizeof(fx_device),                    \
            sizeof(fx_device_info), sizeof(fx_step), sizeof(fx_tensor), sizeof(fx_instr),          \
            sizeof(fx_segment), sizeof(fx_attr), sizeof(fx_run), sizeof(fx_type),                  \
            sizeof(fx_program), sizeof(fx_more_outputs), sizeof(fx_elementwise_step),              \
            sizeof(fx_generator_step), sizeof(fx_movement_step), sizeof(fx_copy_step),             \
            sizeof(fx_reduce_step), sizeof(fx_row_step), sizeof(fx_scan_step),                     \
            sizeof(fx_gather_step), sizeof(fx_scatter_step), sizeof(fx_matmul_step),               \
            sizeof(fx_conv_step), sizeof(fx_pool_step), sizeof(fx_attention_step),                 \
            sizeof(fx_custom_step), sizeof(fx_collective_step), sizeof(fx_communicator),           \
            sizeof(fx_foreach_step), sizeof(fx_plan), sizeof(fx_plan_value),                       \
            sizeof(fx_device_queue)                                                                \
    }
/* The head of a backend: `.head = FX_BACKEND_HEAD("CUDA")`. */
#define FX_BACKEND_HEAD(backend_name)                                                              \
    {                                                                                              \
        .abi = FX_PLUGIN_ABI, .kind = FX_PLUGIN_BACKEND,                                           \
        .sizes = FX_PLUGIN_SIZES_HERE(fx_backend, fx_host), .version = FX_VERSION_STRING,          \
        .name = (backend_name)                                                                     \
    }
/* Defines the object that a backend exports: `FX_BACKEND_PLUGIN = {.head = …};`. */
#define FX_BACKEND_PLUGIN FX_PLUGIN_EXPORT(fx_backend)

FXI_END_C
#endif
