/* cflux/backend.h: what a backend is made of. For those who write one; programs do not need it.
 *
 * A backend makes devices of one kind usable: it is one table of functions (fx_backend, at the end)
 * in a shared object libcflux-<name>.so that fx_use opens. docs/guide/adding-a-backend.md walks
 * through a complete one. The library plans the work: it turns graphs of operations into steps,
 * decides where every value lives, and hands the steps to the backend, one call each.
 *
 * Both sides read the same structs, so the library takes a backend only if the head of its table
 * (cflux/plugin.h) states the library's own ABI number and sizes of structs: compile a backend
 * against the headers of the library that opens it.
 */
#ifndef CFLUX_BACKEND_H
#define CFLUX_BACKEND_H

#include <cflux/device.h>
#include <cflux/ops.h>
#include <cflux/plugin.h>

FXI_BEGIN_C

/* ---- operations ------------------------------------------------------------------------------ */

/* Every primitive has a row in op.def. */
typedef enum fx_op {
#define OP(NAME, name, inputs, cls, words, gradient) FX_OP_##NAME,
#include <cflux/op.def>
    FX_OP_COUNT
} fx_op;

/* How the planner treats an operation, and what kind of step it becomes. */
typedef enum fx_class {
    FX_CLASS_LEAF,
    FX_CLASS_ELEMENTWISE,
    FX_CLASS_GENERATOR,
    FX_CLASS_MOVEMENT,
    FX_CLASS_TRANSFER, /* never a step */
    FX_CLASS_COPY,
    FX_CLASS_REDUCE,
    FX_CLASS_ROW, /* a step of several operations, of no single one (plan/row.c) */
    FX_CLASS_SCAN,
    FX_CLASS_GATHER,
    FX_CLASS_SCATTER,
    FX_CLASS_MATMUL,
    FX_CLASS_CONV,
    FX_CLASS_POOL,
    FX_CLASS_CUSTOM,
    FX_CLASS_COLLECTIVE,
    FX_CLASS_FOREACH /* of steps only: elementwise programs over several tensors (planner rule 5)
                      */
} fx_class;

/* What a collective step does with the x of all members of a communicator. */
typedef enum fx_collective_kind {
    FX_COLLECTIVE_ALL_REDUCE, /* every member gets the fold of all x */
    FX_COLLECTIVE_REDUCE,     /* member `root` gets the fold of all x, the others zeros */
    FX_COLLECTIVE_BROADCAST   /* every member gets the x of member `root` */
} fx_collective_kind;
/* Which of the three products of a convolution a step computes. */
typedef enum fx_conv_kind {
    FX_CONV_FORWARD, /* inputs x, w */
    FX_CONV_DATA,    /* inputs gy, w: the gradient by x; the forward of a transposed convolution */
    FX_CONV_WEIGHT   /* inputs x, gy: the gradient by w */
} fx_conv_kind;
/* What a pooling step computes. */
typedef enum fx_pool_kind {
    FX_POOL_MAX,       /* x → y */
    FX_POOL_MEAN,      /* x → y, divides by the whole window */
    FX_POOL_MAX_GRAD,  /* gy, x → gx: to the first largest element of the window */
    FX_POOL_MEAN_GRAD, /* gy → gx */
    FX_POOL_MAX_PICK   /* v, x → the elements of v where x has its window's first largest */
} fx_pool_kind;

/* Spatial axes first; x is spatial…×channels×batch, w kernel…×(in/groups)×out. In every kind the
 * sizes of the "x side" are those of x or gx, of the "y side" those of y or gy. A window position
 * that falls outside x contributes nothing, also when gy is not finite there; weights that are not
 * finite may give NaN there. flipped: index of the kernel runs with x
 * (cross-correlation); else against it (true convolution, Flux's Conv). */
typedef struct fx_conv_attr {
    int32_t kind, flipped, groups, spatial;
    int32_t stride[3], before[3], after[3], dilation[3];
} fx_conv_attr;
typedef struct fx_pool_attr {
    int32_t kind, spatial;
    int32_t window[3], stride[3], before[3], after[3], dilation[3];
} fx_pool_attr;

typedef struct fx_communicator fx_communicator;
/* A collective operation. */
typedef struct fx_collective {
    const fx_communicator *communicator;
    int64_t kind; /* fx_collective_kind */
    int64_t fold; /* fx_reduce: how members' elements become one; not of BROADCAST */
    int64_t root; /* a member; not of ALL_REDUCE */
} fx_collective;

/* What a node's operation has besides its inputs: one member for each kind of operation. A step has
 * it in the struct of its class. */
typedef union fx_attr {
    int64_t words[9]; /* all of it, for comparisons */
    struct {
        double number;
        int64_t integer; /* the number, if it was written as an integer */
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
        int64_t fold, mask; /* fx_reduce but MEAN; the axes that are reduced, a bit each */
    } reduce;
    struct {
        int64_t axis, reverse; /* reverse: from the end */
    } scan;                    /* CUMSUM */
    struct {
        int64_t fold, axis; /* FX_REDUCE_SUM to PROD */
    } scatter;
    struct {
        int64_t transpose_a, transpose_b;
    } matmul;
    struct {
        int64_t unasked; /* added by the evaluation, not by the program */
    } transfer;          /* TRANSFER */
    fx_conv_attr conv;
    fx_pool_attr pool;
    const fx_custom_op *custom;
    fx_collective collective;
} fx_attr;

/* ---- steps ----------------------------------------------------------------------------------- */

/* A step is one kernel call. Operands are tensors: element type, sizes and element strides; the
 * addresses a kernel gets already include view offsets. The output is always dense (column-major),
 * except that of a conv or pool step which the backend takes channels last.
 * Inputs of elementwise, reduce, scan, gather, scatter, matmul, concat and pad steps may have any
 * strides, 0 and negative included; inputs of conv, pool and custom steps are dense. Only the
 * elementwise family may have its output in the memory of an input, and then with the same strides.
 * A backend without `views` gets movement operations as steps of their own, and dense operands; one
 * without `fuses` gets elementwise steps of one instruction and one output, and no reduce step with
 * a program, row or foreach step.
 * Custom steps (a user's function) and collective steps work on host memory. They come to backends
 * whose memory is the host's, which may hand them to fx_host.cpu; for the others the library runs
 * them itself, on copies, but for collective steps that the backend takes (fx_backend.collective).
 */
typedef struct fx_tensor {
    uint8_t dtype, ndim;
    int64_t shape[FX_MAX_DIMS];
    int64_t stride[FX_MAX_DIMS]; /* in elements */
} fx_tensor;

/* Number of elements; 1 for 0-d. */
static inline int64_t fx_tensor_length(const fx_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

/* Bytes of an element. */
static inline int64_t fx_tensor_element_bytes(const fx_tensor *t)
{
    static const uint8_t bytes[FX_DTYPE_COUNT] = {4, 8, 4, 8,
                                                  1, 1, 2, 2}; /* as fx_dtype has them */
    return bytes[t->dtype];
}

/* One instruction of a register program (fx_program). */
typedef struct fx_instr {
    uint8_t op;    /* an elementwise fx_op; in a row step also REDUCE */
    uint8_t dtype; /* of the result */
    uint8_t from;  /* type of the operands (comparisons, CAST) */
    uint8_t nsrc;
    uint8_t src[3];
    bool row;     /* in a row step: one value a row */
    uint8_t pass; /* in a row step */
    int64_t attr; /* POWI's exponent; a reduction's kind */
} fx_instr;

/* A register program. Registers 0 … nin−1 are the step's inputs; instruction k writes register
 * nin + k. Where the step's struct does not say otherwise the last register is the output. */
typedef struct fx_program {
    fx_instr *instr; /* n of them; NULL if n is 0 */
    int32_t n;
} fx_program;

/* The most further outputs that a step can have. */
enum { FX_MORE_OUTPUTS = 7 };

/* The outputs of a step besides `out`: registers of its program that are stored too. */
typedef struct fx_more_outputs {
    int32_t n;
    uint8_t reg[FX_MORE_OUTPUTS];   /* the register that is stored */
    int32_t value[FX_MORE_OUTPUTS]; /* index into the plan's values */
} fx_more_outputs;

/* An elementwise program over tensors of the output's shape. Further outputs have that shape. */
typedef struct fx_elementwise_step {
    fx_program program;
    fx_more_outputs more;
} fx_elementwise_step;

/* One of the tensors that a foreach step's program runs over. */
typedef struct fx_segment {
    int64_t length;
    int32_t value[1 + FX_MORE_OUTPUTS]; /* of its outputs, as of a step's */
} fx_segment;

/* An elementwise step's program over each segment. Segment s has the inputs from s·nin/nsegments
 * on: dense and as long as the segment, or single values, alike in all segments. The step's `out`
 * and further outputs are those of the newest segment. */
typedef struct fx_foreach_step {
    fx_program program;
    fx_more_outputs more;
    fx_segment *segments;
    int32_t nsegments;
} fx_foreach_step;

/* IOTA and RANDOM: values from nothing. */
typedef struct fx_generator_step {
    int32_t axis;   /* IOTA: the index along this axis */
    int32_t stream; /* RANDOM: the place of its seed and counter in fx_run.streams */
} fx_generator_step;

/* RESHAPE, EXPAND and STOP have no attributes. */
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

/* A reduction of in[0], or of what a program computes from the inputs. */
typedef struct fx_reduce_step {
    int32_t fold;  /* fx_reduce */
    uint32_t mask; /* the axes that are reduced, a bit each */
    fx_program program;
    fx_tensor space; /* with a program: the sizes that it runs over */
} fx_reduce_step;

/* A row step (op REDUCE) computes over the rows of `space`: the elements along its first `row_axes`
 * axes, which are contiguous. Its instructions come in the order of execution. An instruction with
 * `row` false has a value for every element; one with `row` true has one value a row, which
 * instructions on elements see at every element of the row. A REDUCE turns the first kind into the
 * second: its result is known when pass `pass` over the row is complete. Instructions on values of
 * the row have the number of the pass before which they are to be computed, the last ones that of
 * the pass after the last. Outputs have the shape of space, or that with rows reduced to 1. */
typedef struct fx_row_step {
    fx_program program;
    fx_more_outputs more;
    fx_tensor space;
    int32_t row_axes;
    uint8_t out_reg; /* the register that is the output */
} fx_row_step;

/* CUMSUM. */
typedef struct fx_scan_step {
    int32_t axis;
    bool reverse; /* from the end */
} fx_scan_step;

/* in[0] by the indices in[1] along an axis. */
typedef struct fx_gather_step {
    int32_t axis;
} fx_gather_step;

/* in[0] to the indices in[1] along an axis of the output. */
typedef struct fx_scatter_step {
    int32_t fold; /* fx_reduce: what happens where indices are equal */
    int32_t axis;
} fx_scatter_step;

/* The matrix product of in[0] and in[1]. Its epilogue is what becomes of each element of the
 * product before it is stored: register 0 is the product, 1 … nin−2 are the inputs from in[2] on,
 * in the output's shape (stride 0: broadcast). Each instruction takes the result of the one before;
 * it is ADD of an input, RELU, TANH or SIGMOID. */
typedef struct fx_matmul_step {
    bool transpose_a, transpose_b; /* the first two axes are exchanged */
    uint8_t precision;             /* fx_precision: what is allowed for products of Float32 */
    fx_program epilogue;
} fx_matmul_step;

/* A convolution. FX_CONV_FORWARD may have an epilogue, as a matrix product has. */
typedef struct fx_conv_step {
    fx_conv_attr attr;
    bool channels_last; /* activations lie W×H×C×N with C fastest; weights are dense */
    uint8_t precision;  /* fx_precision: what is allowed for products of Float32 */
    fx_program epilogue;
} fx_conv_step;

/* Pooling. */
typedef struct fx_pool_step {
    fx_pool_attr attr;
    bool channels_last; /* all operands lie W×H×C×N with C fastest */
} fx_pool_step;

/* A user's function on host memory. */
typedef struct fx_custom_step {
    const fx_custom_op *op;
} fx_custom_step;

/* Exchanges in[0], dense, with the other members of a communicator. Where there is an in[1] it is
 * the output of the collective step that must come before, and is not read. */
typedef struct fx_collective_step {
    fx_collective what;
    bool by_backend; /* its `run` takes the step */
} fx_collective_step;

/* One kernel call: what to compute, on tensors of which sizes. First what every step has, then what
 * the steps of its class have. */
typedef struct fx_step {
    uint8_t op;  /* fx_op; an elementwise or foreach step has its last instruction's */
    uint8_t cls; /* fx_class: which member of `as` */
    bool turned; /* its axes are in the order of channels-last memory, C×W×H×N, so that the output
                    is dense; not of conv and pool steps */
    bool by_plugin; /* the backend's own: whose `ready` it is */
    int32_t nin;
    int32_t out_value;  /* the output's index into the plan's values */
    int32_t work_value; /* that of its work space; no meaning where work_bytes is 0 */
    int64_t work_bytes; /* memory of the device that `run` needs besides operands: set by `prepare`,
                           before which it is 0 */
    fx_tensor out;
    fx_tensor *in;      /* nin of them */
    int32_t *in_value;  /* indices into the plan's values */
    int64_t *in_offset; /* view offsets, in elements */
    void *ready;        /* what the backend's prepare made of it */
    /* The member of the step's class; the others have no meaning. fx_step_conv(s) and the like read
     * it. The largest comes first, so that a step that is set to {0} is zero to its end. */
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
        fx_custom_step custom;
        fx_collective_step collective;
        fx_foreach_step foreach;
    } as;
} fx_step;

/* What the steps of a class have. Code compiled with CFLUX_DEBUG_CHECKS stops at a step of another
 * class. */
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
FXI_STEP_OF_CLASS(CUSTOM, custom)
FXI_STEP_OF_CLASS(COLLECTIVE, collective)
FXI_STEP_OF_CLASS(FOREACH, foreach)

/* ---- what several classes have ---- */

/* The instructions of a step, its epilogue's included; n is 0 where there are none. */
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

/* The further outputs of a step, of a foreach step those of the newest segment. Never NULL. */
static inline const fx_more_outputs *fx_step_more(const fx_step *s)
{
    static const fx_more_outputs none = {0, {0}, {0}};
    return s->cls == FX_CLASS_ELEMENTWISE ? &s->as.elementwise.more
           : s->cls == FX_CLASS_FOREACH   ? &s->as.foreach.more
           : s->cls == FX_CLASS_ROW       ? &s->as.row.more
                                          : &none;
}

/* The number of segments: 1 unless the step is a foreach step. */
static inline int32_t fx_step_segments(const fx_step *s)
{
    return s->cls == FX_CLASS_FOREACH ? s->as.foreach.nsegments : 1;
}

/* All outputs of a step, counted through its segments; values by number. */
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

/* The number of buffers that a kernel of the step may need at once: inputs, literals among them,
 * and outputs; work space, which `prepare` may ask for; and the table of streams for RANDOM. A
 * foreach step counts as one of its segments and CONCAT with one of its inputs, which separate
 * kernels can take. 0 for custom steps, whose function runs on the host. */
static inline int32_t fx_step_buffers(const fx_step *s)
{
    const int32_t nin = s->op == FX_OP_CONCAT ? 1 : s->nin / fx_step_segments(s);
    return s->cls == FX_CLASS_CUSTOM ? 0
                                     : nin + 1 + fx_step_more(s)->n + (s->op == FX_OP_RANDOM) + 1;
}
/* Does a step compute several operations, which other steps could compute one by one? */
static inline bool fx_step_is_fused(const fx_step *s)
{
    return s->cls == FX_CLASS_ROW || s->cls == FX_CLASS_FOREACH ||
           fx_step_program(s).n > (s->cls == FX_CLASS_ELEMENTWISE);
}

/* The least number that a device may state (fx_device_info.buffers): SELECT of three inputs. */
enum { FX_LEAST_BUFFERS = 5 };

/* Where input k of a step begins in a run of its plan: values[v] is where value v does. */
static inline const void *fx_step_input_at(const fx_step *s, int32_t k, void *const *values)
{
    return (const char *)values[s->in_value[k]] +
           s->in_offset[k] * fx_tensor_element_bytes(&s->in[k]);
}

/* Does a product or convolution go on with a program before it stores a result? */
static inline bool fx_step_has_epilogue(const fx_step *s)
{
    return (s->cls == FX_CLASS_MATMUL || s->cls == FX_CLASS_CONV) && fx_step_program(s).n > 0;
}

/* One run of a plan, as a kernel sees it. */
typedef struct fx_run {
    void *more[FX_MORE_OUTPUTS]; /* where a step's further outputs go */
    void *const *outputs;        /* of a foreach step: all of them, segment by segment */
    /* A step's work space: work_bytes of the device, aligned to 64, of any content, which no other
     * step of the run uses at the same time; NULL where work_bytes is 0. */
    void *work;
    /* RANDOM: seed and counter by slot, UInt64 each, in the device's memory, as literals are. NULL
     * where the plan has none. */
    const uint64_t (*streams)[2];
    char error[200]; /* a kernel that fails writes the sentence here and returns a status */
} fx_run;

/* Those who take part in a collective operation: processes, or devices. Each member calls the same
 * operations in the same order, on arrays of the same element type and sizes. It must outlive the
 * plans that name it, so it is best static. */
struct fx_communicator {
    size_t fxi_size;    /* sizeof(fx_communicator) */
    const char *name;   /* "MPI" */
    int32_t rank, size; /* this member, from 0, and how many there are */
    const void *user;   /* for whoever made it */
    /* Runs a collective step (fx_collective_step) on operands in host memory: the elements of
     * step->out from `in`, in number and type, to `out`. Returns when they are there. On failure
     * run->error holds the sentence. */
    fx_status (*run)(const fx_communicator *self, const fx_step *step, const void *in, void *out,
                     fx_run *run);
};

/* The steps of a plan in their order, for backends that run them in one call. */
typedef struct fx_plan {
    const fx_step *steps;
    int32_t nsteps;
    int32_t nvalues;  /* how many addresses a run brings along */
    int32_t nstreams; /* how many seeds and counters */
    void *ready;      /* what plan_prepare made of it */
} fx_plan;

/* ---- devices --------------------------------------------------------------------------------- */

/* What a backend says of one of its devices. */
typedef struct fx_device_info {
    char name[128];  /* "NVIDIA H100 80GB HBM3" */
    char driver[64]; /* its driver, with version; "" when nobody knows */
    int64_t memory;  /* bytes in all; 0: unknown */
    bool no_f64;     /* has no Float64: arrays of it do not move there */
    bool on_cpu;     /* computes on the host's processors, as PoCL does: a backend whose first
                        device is such is used only where it is asked for by name */
    int32_t buffers; /* the most buffers of a kernel: no step has more (fx_step_buffers), so at
                        least FX_LEAST_BUFFERS; 0: no limit */
} fx_device_info;

/* The table of functions below. */
typedef struct fx_backend fx_backend;
/* A device as a backend sees it. The library makes it. */
struct fx_device {
    fx_object base;
    const fx_backend *backend;
    int id;           /* from 0 */
    const char *name; /* "CPU", "ref", "CUDA:0" */
    fx_device_info info;
    void *data; /* the backend's own */
};

/* ---- what the library does for a backend ----------------------------------------------------- */

/* What the library hands to `open`; it stays valid. */
typedef struct fx_host {
    const char *version;          /* of the library */
    void *(*alloc)(size_t bytes); /* host memory; NULL when it is out */
    void (*free)(void *ptr);
    /* Records an error and returns its status. */
    fx_status (*fail)(fx_status status, const char *operation, const char *text);
    void (*message)(int level, const char *text); /* to the log: 0 information, 1 warning */
    /* The CPU. Its prepare, release and run take any step whose operands, work space and streams
     * are in host memory, and ignore which device they are given. */
    const fx_backend *cpu;
    /* Finds, checks and opens the kernel library `name` that serves the backend `serves`. `sizes`
     * are those that its head must state. Returns its head, which stays valid and which its table
     * begins with; NULL with the reason in `why` if no file of it can be used. Every call searches:
     * a backend keeps the answer. */
    const fx_plugin_head *(*kernel_library)(const char *serves, const char *name,
                                            const uint32_t sizes[FX_PLUGIN_SIZES], char *why,
                                            size_t size);
} fx_host;

/* ---- the table ------------------------------------------------------------------------------- */

/* Every function may be called by several threads at the same time. The calls for one device take
 * effect in the order in which they were made, as if the device did one after the other; `run`,
 * `fill` and `copy` may return before the work is done, and then its failure is reported by a later
 * call. Except where it says otherwise a function that fails records the reason (fx_host.fail) and
 * returns its status. NULL entries mean what their comments say; those without a word about it must
 * be there. */
struct fx_backend {
    fx_plugin_head head; /* FX_BACKEND_HEAD("CUDA") */
    bool views; /* kernels take strided operands: reshapes, slices, broadcasts cost nothing */
    bool fuses; /* kernels take elementwise steps of several instructions and outputs */

    /* -- life -- */
    /* Called once, before anything else. Opens what the backend needs and gives the number of its
     * devices; 0 with the reason in `why` (a sentence without a full stop): it is there but does
     * not work. Records nothing. There is no `close`: backends stay until the process ends. NULL:
     * one device, always. */
    int (*open)(const fx_host *host, char *why, size_t size);
    /* Fills in device->info, and device->data where the backend wants it; called once for each
     * device, before its first use. NULL: nothing to say. */
    fx_status (*info)(fx_device *device);
    /* Says whether the backend can use a kernel library ("cuDNN", in any case): returns "" if it
     * can, else why not; NULL if the backend knows no library of that name. NULL: it knows none. */
    const char *(*part)(const char *name);

    /* -- memory -- */
    /* Memory of the device, aligned to 64 bytes; NULL when it is out, which is no error yet: the
     * library gives back what it can and asks again. A device that fails otherwise (it is lost)
     * records that before it returns NULL. Addresses are the backend's own: the library
     * adds offsets to them and follows none, unless `read` and `write` are NULL. bytes may be 0. */
    void *(*alloc)(fx_device *device, size_t bytes);
    /* Work that uses it may still be queued: the backend keeps it until then. */
    void (*free)(fx_device *device, void *ptr);
    /* Bytes from host memory to the device; when it returns, the host's may be reused. NULL, and
     * `read` as well: the memory is the host's. */
    fx_status (*write)(fx_device *device, void *to, const void *from, size_t bytes);
    /* Bytes of the device to host memory; returns when they are there. */
    fx_status (*read)(fx_device *device, void *to, const void *from, size_t bytes);
    /* Bytes from one device of the backend to another or the same one, queued on `to_device`. With
     * `mark` and its kin the library orders the two queues: it lets `to_device` wait for
     * `from_device` before, and the other way round behind. Without them the work queued on both
     * before is done first. NULL: by way of the host. */
    fx_status (*copy)(fx_device *to_device, void *to, fx_device *from_device, const void *from,
                      size_t bytes);
    /* Sets bytes to a value. NULL: the library writes them. */
    fx_status (*fill)(fx_device *device, void *to, uint8_t value, size_t bytes);
    /* Bytes that are free on the device now, for all programs; −1 when nobody knows. NULL: −1. */
    int64_t (*available)(fx_device *device);

    /* -- work -- */
    /* Does it take a conv or pool step channels last (W×H×C×N with C fastest), and rather than
     * dense? Asked before the step is made, with the sizes filled in. NULL: never. */
    bool (*channels_last)(fx_device *device, const fx_step *step);
    /* Does `run` take this collective step, whose communicator it knows, on memory of the device?
     * Asked before the step is made ready. A backend that runs it in another queue than the steps
     * before and behind it orders the queues itself. NULL: never. */
    bool (*collective)(fx_device *device, const fx_step *step);
    /* Makes a step of a new plan ready: what can be decided once (kernels, tiles, a library's
     * primitive) goes to step->ready, which several threads may use at the same time and `release`
     * frees; what `run` needs besides operands goes to step->work_bytes. FX_STATUS_UNSUPPORTED of a
     * step of several operations (fx_step_is_fused), which is not recorded: not all of them in one
     * step; the planner asks again with less of an epilogue, or with other steps. Any other failure
     * is recorded and fails the plan before a step has run. NULL: there is nothing to make ready.
     */
    fx_status (*prepare)(fx_device *device, fx_step *step);
    /* Completes what `prepare` has left for later, for all steps of a new plan together, so that a
     * backend can compile their kernels at the same time. Called once, when `prepare` has made all
     * of them ready and before one runs. Steps that the library runs itself are among them: their
     * `ready` is NULL. On failure *out_step is the first step that fails, and the status means what
     * it does for `prepare`. NULL: `prepare` leaves nothing for later. */
    fx_status (*compile)(fx_device *device, fx_step *steps, int32_t n, int32_t *out_step);
    /* Frees step->ready. NULL only with `prepare`. */
    void (*release)(fx_device *device, fx_step *step);
    /* Runs one step. in[k] and out are addresses of first elements; literals of the program are
     * operands like others. The lists and `run` last as long as the call, the step until
     * `release`. On failure run->error holds the sentence, and nothing is recorded. */
    fx_status (*run)(fx_device *device, const fx_step *step, const void *const *in, void *out,
                     fx_run *run);
    /* -- a plan as a whole; NULL, all three: step by step, as above -- */
    /* Makes a new plan ready whose steps `prepare` has made ready, in plan->ready; called once,
     * before its first run. FX_STATUS_UNSUPPORTED, which is not recorded: it runs step by step.
     * Any other failure fails the evaluation. The library does not call it for a plan with steps
     * that it runs itself, nor with FX_EAGER. */
    fx_status (*plan_prepare)(fx_device *device, fx_plan *plan);
    /* Runs all steps. values[v] is where value v begins in this run, work space included, and
     * fx_step_input_at where an input of a step does; run->streams is as for `run`. Addresses may
     * differ from run to run; so do literals, and seeds and counters, in the places they are in.
     * The plan may be run by several threads at the same time. On failure run->error holds the
     * sentence, nothing is recorded, and *out_step is the step that failed: values that steps up to
     * it replace in place are lost, those of later ones are not. -1: no step has begun. Left alone:
     * every step may have begun. */
    fx_status (*plan_run)(fx_device *device, const fx_plan *plan, void *const *values, fx_run *run,
                          int32_t *out_step);
    /* Frees plan->ready, before the steps are released. Not called after a `plan_prepare` that
     * failed. */
    void (*plan_release)(fx_device *device, fx_plan *plan);

    /* -- queues -- */
    /* The steps of one plan have been queued: hands them to the device, without waiting. NULL: they
     * run by themselves. */
    void (*submit)(fx_device *device);
    /* Waits until everything queued is done; reports what failed since the last report. NULL: `run`
     * never returns early. */
    fx_status (*sync)(fx_device *device);
    /* A point in the device's queue, behind all that is queued now; NULL, recorded, on failure. It
     * is reached without `submit`. NULL, all three: `copy` orders the two queues itself. */
    void *(*mark)(fx_device *device);
    /* What is queued on the device from now on begins when the mark, of any device of the backend,
     * has been reached; the host goes on. FX_STATUS_UNSUPPORTED, which is not recorded: this device
     * cannot wait for that one; bytes go between them by way of the host. */
    fx_status (*wait)(fx_device *device, void *mark);
    /* Frees a mark, reached or not. */
    void (*unmark)(fx_device *device, void *mark);

    /* -- more -- */
    /* A further function or object of the backend by name, for programs that know what they ask
     * for; NULL when there is none. NULL: there are none. */
    void *(*proc)(const char *name);
};

/* The sizes that a plugin and the library compare: of the table of its kind, of the struct by which
 * the library serves it, and of what all kinds share. */
#define FX_PLUGIN_SIZES_HERE(table, host)                                                          \
    {                                                                                              \
        sizeof(fx_plugin_head), sizeof(table), sizeof(host), sizeof(fx_device),                    \
            sizeof(fx_device_info), sizeof(fx_step), sizeof(fx_tensor), sizeof(fx_instr),          \
            sizeof(fx_segment), sizeof(fx_attr), sizeof(fx_run), sizeof(fx_type),                  \
            sizeof(fx_program), sizeof(fx_more_outputs), sizeof(fx_elementwise_step),              \
            sizeof(fx_generator_step), sizeof(fx_movement_step), sizeof(fx_copy_step),             \
            sizeof(fx_reduce_step), sizeof(fx_row_step), sizeof(fx_scan_step),                     \
            sizeof(fx_gather_step), sizeof(fx_scatter_step), sizeof(fx_matmul_step),               \
            sizeof(fx_conv_step), sizeof(fx_pool_step), sizeof(fx_custom_step),                    \
            sizeof(fx_collective_step), sizeof(fx_communicator), sizeof(fx_foreach_step),          \
            sizeof(fx_plan)                                                                        \
    }
/* The head of a backend: `.head = FX_BACKEND_HEAD("CUDA")`. */
#define FX_BACKEND_HEAD(backend_name)                                                              \
    {                                                                                              \
        .abi = FX_PLUGIN_ABI, .kind = FX_PLUGIN_BACKEND,                                           \
        .sizes = FX_PLUGIN_SIZES_HERE(fx_backend, fx_host), .version = FX_VERSION_STRING,          \
        .name = (backend_name)                                                                     \
    }
/* What the shared object of a backend exports: `FX_BACKEND_PLUGIN = {.head = …};`. */
#define FX_BACKEND_PLUGIN FX_PLUGIN_EXPORT(fx_backend)

FXI_END_C
#endif
