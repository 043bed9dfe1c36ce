/* cflux/backend.h: what a backend is made of. For those who write one; programs do not need it.
 *
 * A backend makes devices of one kind usable: it is one table of functions (fx_backend, at the end)
 * in a shared object libcflux-<name>.so that fx_use opens. docs/guide/adding-a-backend.md walks
 * through a complete one. The library plans the work: it turns graphs of operations into steps,
 * decides where every value lives, and hands the steps to the backend, one call each.
 *
 * Both sides read the same structs, so a backend is taken only when FX_BACKEND_ABI and the size of
 * every shared struct are the library's own: compile it against the headers of the library that
 * opens it.
 */
#ifndef CFLUX_BACKEND_H
#define CFLUX_BACKEND_H

#include <cflux/device.h>
#include <cflux/ops.h>

FXI_BEGIN_C

/* ---- operations ------------------------------------------------------------------------------ */

/* Every primitive has a row in op.def. */
typedef enum fx_op {
#define OP(NAME, name, inputs, cls) FX_OP_##NAME,
#include <cflux/op.def>
    FX_OP_COUNT
} fx_op;

/* How the planner treats an operation, and what kind of step it becomes. */
typedef enum fx_op_class {
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
    FX_CLASS_FOREACH /* of steps only: elementwise programs over several tensors (planner rule 5)
                      */
} fx_op_class;

/* What a reduction does with the elements it meets. */
typedef enum fx_fold {
    FX_FOLD_SUM,
    FX_FOLD_MAX,
    FX_FOLD_MIN,
    FX_FOLD_PROD,
    FX_FOLD_SQDEV,  /* Σ(x − mean x)², of floats */
    FX_FOLD_ARGMAX, /* of one axis: the index of its first NaN, else of its first largest; Int64 */
    FX_FOLD_ARGMIN,
    FX_FOLDS /* how many there are */
} fx_fold;
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
 * that falls outside x contributes nothing. flipped: index of the kernel runs with x
 * (cross-correlation); else against it (true convolution, Flux's Conv). */
typedef struct fx_conv_attr {
    int32_t kind, flipped, groups, spatial;
    int32_t stride[3], before[3], after[3], dilation[3];
} fx_conv_attr;
typedef struct fx_pool_attr {
    int32_t kind, spatial;
    int32_t window[3], stride[3], before[3], after[3], dilation[3];
} fx_pool_attr;

/* What an operation has besides its inputs; op.def says which member, and what i[…] mean. */
typedef union fx_attr {
    int64_t i[8];
    double number;      /* CONST */
    uint64_t stream[2]; /* RANDOM: seed, counter */
    fx_conv_attr conv;
    fx_pool_attr pool;
    const fx_custom_op *custom;
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
 * a program, row or foreach step. Custom steps (a user's function on host memory) come only to
 * backends whose memory is the host's; for the others the library runs them itself.
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

/* A register program: what an elementwise step computes for each element. Registers 0 … nin−1 are
 * the step's inputs; instruction k writes register nin + k; the last one is the output. */
typedef struct fx_instr {
    uint8_t op;    /* an elementwise fx_op */
    uint8_t dtype; /* of the result */
    uint8_t from;  /* type of the operands (comparisons, CAST) */
    uint8_t nsrc;
    uint8_t src[3];
    bool row;     /* in a row step: one value a row */
    uint8_t pass; /* in a row step */
    int64_t attr; /* POWI's exponent; a reduction's kind */
} fx_instr;

/* A row step (cls FX_CLASS_ROW, op REDUCE) computes over the rows of `space`: the elements along
 * its first `row_axes` axes, which are contiguous. Its instructions come in the order of execution.
 * An instruction with `row` false has a value for every element; one with `row` true has one value
 * a row, which instructions on elements see at every element of the row. A REDUCE turns the first
 * kind into the second: its result is known when pass `pass` over the row is complete. Instructions
 * on values of the row have the number of the pass before which they are to be computed, the last
 * ones that of the pass after the last. Outputs have the shape of space, or that with rows reduced
 * to 1. */

/* The most further outputs that a step can have. */
enum { FX_MORE_OUTPUTS = 7 };

/* One of the tensors that a foreach step's program runs over. */
typedef struct fx_segment {
    int64_t length;
    int32_t value[1 + FX_MORE_OUTPUTS]; /* of its outputs, as of a step's */
} fx_segment;

/* One kernel call: what to compute, on tensors of which sizes. */
typedef struct fx_step {
    uint8_t op;  /* fx_op; an elementwise step has its last instruction's */
    uint8_t cls; /* fx_op_class */
    int32_t nin;
    fx_attr attr;
    fx_tensor out;
    fx_tensor *in;     /* nin of them */
    int32_t out_value; /* indices into the plan's values */
    int32_t *in_value;
    int64_t *in_offset; /* view offsets, in elements */
    /* What an elementwise step computes; of a reduce step: what it reduces, over `space` (none:
     * in[0]). Of a matmul or a forward conv step: its epilogue, what becomes of each element of the
     * product before it is stored: register 0 is the product, 1 … nin−2 are the inputs from in[2]
     * on, in the output's shape (stride 0: broadcast). Each instruction takes the result of the one
     * before; it is ADD of an input, RELU, TANH or SIGMOID. */
    fx_instr *program;
    int32_t ninstr;
    fx_tensor
        space; /* of a reduce step with a program, of a row step: the sizes that are reduced */
    int32_t row_axes; /* of a row step */
    uint8_t out_reg;  /* of a row step: the register that is the output */
    /* Further outputs of an elementwise step, of the output's shape, or of a row step: the
     * registers they are. */
    int32_t nmore;
    uint8_t more_reg[FX_MORE_OUTPUTS];
    int32_t more_value[FX_MORE_OUTPUTS];
    /* Of a conv or pool step: activations lie channels last, W×H×C×N with C fastest; weights are
     * dense. Of other steps: their axes are in that order, so that the output is dense. */
    bool channels_last;
    /* Of a foreach step: an elementwise step's program over each segment. Segment s has the inputs
     * from s·nin/nsegments on: dense and as long as the segment, or single values, alike in all
     * segments. `out` is that of the newest one. NULL: no foreach step. */
    fx_segment *segments;
    int32_t nsegments;
    int32_t slot;   /* RANDOM: index of its (seed, counter) pair among the run's streams */
    void *ready;    /* what the backend's prepare made of it */
    bool by_plugin; /* the backend's own: whose `ready` it is */
} fx_step;

/* All outputs of a step, counted through its segments; values by number. */
static inline int32_t fx_step_outputs(const fx_step *s)
{
    return (s->segments ? s->nsegments : 1) * (1 + s->nmore);
}
static inline int32_t fx_step_output(const fx_step *s, int32_t k)
{
    if (s->segments)
        return s->segments[k / (1 + s->nmore)].value[k % (1 + s->nmore)];
    return k == 0 ? s->out_value : s->more_value[k - 1];
}

/* Does a product or convolution go on with a program before it stores a result? */
static inline bool fx_step_has_epilogue(const fx_step *s)
{
    return s->ninstr > 0 && (s->cls == FX_CLASS_MATMUL || s->cls == FX_CLASS_CONV);
}

/* One run of a plan, as a kernel sees it. */
typedef struct fx_run {
    void *more[FX_MORE_OUTPUTS];  /* where a step's further outputs go */
    void *const *outputs;         /* of a foreach step: all of them, segment by segment */
    const uint64_t (*streams)[2]; /* RANDOM: seed and counter by slot; host memory */
    char error[200]; /* a kernel that fails writes the sentence here and returns a status */
} fx_run;

/* ---- devices --------------------------------------------------------------------------------- */

/* What a backend says of one of its devices. */
typedef struct fx_device_info {
    char name[128];  /* "NVIDIA H100 80GB HBM3" */
    char driver[64]; /* its driver, with version; "" when nobody knows */
    int64_t memory;  /* bytes in all; 0: unknown */
    bool no_f64;     /* has no Float64: arrays of it do not move there */
    bool on_cpu;     /* computes on the host's processors, as PoCL does: a backend whose first
                        device is such is used only where it is asked for by name */
} fx_device_info;

/* The table of functions below. */
typedef struct fx_backend fx_backend;
struct fxi_pool;
/* A device as a backend sees it. */
struct fx_device {
    fx_object base;
    const fx_backend *backend;
    int id;           /* from 0 */
    const char *name; /* "CPU", "ref", "CUDA:0" */
    fx_device_info info;
    void *data; /* the backend's own */
    /* The library's own, atomic: */
    int64_t live;          /* bytes of its buffers */
    int64_t limit;         /* the most of them; 0: as many as there are */
    struct fxi_pool *pool; /* freed memory that is kept for the next allocation */
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
    /* The CPU. Its prepare, release and run take any step whose operands are in host memory, and
     * ignore which device they are given. */
    const fx_backend *cpu;
} fx_host;

/* ---- the table ------------------------------------------------------------------------------- */

/* The number of this interface, and how many sizes of structs a plugin states. */
enum { FX_BACKEND_ABI = 1, FX_BACKEND_SIZES = 11 };

/* Every function may be called by several threads at the same time. The calls for one device take
 * effect in the order in which they were made, as if the device did one after the other; `run`,
 * `fill` and `copy` may return before the work is done, and then its failure is reported by a later
 * call. Except where it says otherwise a function that fails records the reason (fx_host.fail) and
 * returns its status. NULL entries mean what their comments say; those without a word about it must
 * be there. */
struct fx_backend {
    /* These two keep their place for ever: FX_BACKEND_ABI and FX_BACKEND_SIZES_HERE. */
    uint32_t abi;
    uint32_t sizes[FX_BACKEND_SIZES];
    const char *name; /* "CUDA" */
    bool views;       /* kernels take strided operands: reshapes, slices, broadcasts cost nothing */
    bool fuses;       /* kernels take elementwise steps of several instructions and outputs */

    /* -- life -- */
    /* Called once, before anything else. Opens what the backend needs and gives the number of its
     * devices; 0 with the reason in `why` (a sentence without a full stop): it is there but does
     * not work. Records nothing. There is no `close`: backends stay until the process ends. NULL:
     * one device, always. */
    int (*open)(const fx_host *host, char *why, size_t size);
    /* Fills in device->info, and device->data where the backend wants it; called once for each
     * device, before its first use. NULL: nothing to say. */
    fx_status (*info)(fx_device *device);
    /* A library that the backend uses where it finds it ("cuDNN"): "" when it works, else why not;
     * NULL when the backend knows no such part. NULL: it has no parts. */
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
    /* Bytes from one device of the backend to another or the same one; the work queued on both
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
    /* Makes a step of a new plan ready: what can be decided once (kernels, tiles, a library's
     * primitive) goes to step->ready, which several threads may use at the same time and `release`
     * frees. FX_STATUS_UNSUPPORTED, which is not recorded: not with this epilogue; the planner asks
     * again with less of it. NULL: there is nothing to make ready. */
    fx_status (*prepare)(fx_device *device, fx_step *step);
    /* Frees step->ready. NULL only with `prepare`. */
    void (*release)(fx_device *device, fx_step *step);
    /* Runs one step. in[k] and out are addresses of first elements; literals of the program are
     * operands like others. The lists and `run` last as long as the call, the step until
     * `release`. On failure run->error holds the sentence, and nothing is recorded. */
    fx_status (*run)(fx_device *device, const fx_step *step, const void *const *in, void *out,
                     fx_run *run);
    /* The steps of one plan have been queued: hands them to the device, without waiting. NULL: they
     * run by themselves. */
    void (*submit)(fx_device *device);
    /* Waits until everything queued is done; reports what failed since the last report. NULL: `run`
     * never returns early. */
    fx_status (*sync)(fx_device *device);

    /* -- more -- */
    /* A further function or object of the backend by name, for programs that know what they ask
     * for; NULL when there is none. NULL: there are none. */
    void *(*proc)(const char *name);
};

/* The sizes that a backend and the library compare. */
#define FX_BACKEND_SIZES_HERE                                                                      \
    {                                                                                              \
        sizeof(fx_backend), sizeof(fx_host), sizeof(fx_device), sizeof(fx_device_info),            \
            sizeof(fx_step), sizeof(fx_tensor), sizeof(fx_instr), sizeof(fx_segment),              \
            sizeof(fx_attr), sizeof(fx_run), sizeof(fx_type)                                       \
    }
/* What a shared object exports: `FX_BACKEND_PLUGIN = {.abi = …};`. */
#define FX_BACKEND_PLUGIN                                                                          \
    extern const fx_backend fx_backend_plugin;                                                     \
    __attribute__((visibility("default"))) const fx_backend fx_backend_plugin

FXI_END_C
#endif
