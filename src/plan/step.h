/* step.h: what a plan is made of, as backends see it.
 *
 * A step is one kernel call. Operands are tensors: element type, sizes and element strides; the
 * pointers a kernel gets already include view offsets. The output is always dense (column-major),
 * except that of a conv or pool step which the backend takes channels last (backend.h).
 * Inputs of elementwise, reduce, scan, gather, scatter, matmul, concat and pad steps may have any
 * strides, 0 and negative included; inputs of conv, pool and custom steps are dense. Only the
 * elementwise family may have its output in the memory of an input, and then with the same strides.
 */
#ifndef CFLUX_STEP_H
#define CFLUX_STEP_H

#include "node.h"

typedef struct fxi_tensor {
    uint8_t dtype, ndim;
    int64_t shape[FX_MAX_DIMS];
    int64_t stride[FX_MAX_DIMS]; /* in elements */
} fxi_tensor;

/* A register program: what an elementwise step computes for each element. Registers 0 … nin−1 are
 * the step's inputs; instruction k writes register nin + k; the last one is the output. */
typedef struct fxi_instr {
    uint8_t op;    /* an elementwise fxi_op */
    uint8_t dtype; /* of the result */
    uint8_t from;  /* type of the operands (comparisons, CAST) */
    uint8_t nsrc;
    uint8_t src[3];
    bool row;     /* in a row step: one value a row */
    uint8_t pass; /* in a row step */
    int64_t attr; /* POWI's exponent; a reduction's kind */
} fxi_instr;

/* A row step (cls FXI_CLASS_ROW, op REDUCE) computes over the rows of `space`: the elements along
 * its first `row_axes` axes, which are contiguous. Its instructions come in the order of execution.
 * An instruction with `row` false has a value for every element; one with `row` true has one value
 * a row, which instructions on elements see at every element of the row. A REDUCE turns the first
 * kind into the second: its result is known when pass `pass` over the row is complete. Instructions
 * on values of the row have the number of the pass before which they are to be computed, the last
 * ones that of the pass after the last. Outputs have the shape of space, or that with rows reduced
 * to 1. */

enum { FXI_MORE_OUTPUTS = 7 };

/* One of the tensors that a foreach step's program runs over. */
typedef struct fxi_segment {
    int64_t length;
    int32_t value[1 + FXI_MORE_OUTPUTS]; /* of its outputs, as of a step's */
} fxi_segment;

typedef struct fxi_step {
    uint8_t op;  /* fxi_op; an elementwise step has its last instruction's */
    uint8_t cls; /* fxi_class */
    int32_t nin;
    fxi_attr attr;
    fxi_tensor out;
    fxi_tensor *in;    /* nin of them */
    int32_t out_value; /* indices into the plan's values */
    int32_t *in_value;
    int64_t *in_offset; /* view offsets, in elements */
    /* What an elementwise step computes; of a reduce step: what it reduces, over `space` (none:
     * in[0]). Of a matmul or a forward conv step: its epilogue, what becomes of each element of the
     * product before it is stored: register 0 is the product, 1 … nin−2 are the inputs from in[2]
     * on, in the output's shape (stride 0: broadcast). Each instruction takes the result of the one
     * before; it is ADD of an input, RELU, TANH or SIGMOID. */
    fxi_instr *program;
    int32_t ninstr;
    fxi_tensor
        space; /* of a reduce step with a program, of a row step: the sizes that are reduced */
    int32_t row_axes; /* of a row step */
    uint8_t out_reg;  /* of a row step: the register that is the output */
    /* Further outputs of an elementwise step, of the output's shape, or of a row step: the
     * registers they are. */
    int32_t nmore;
    uint8_t more_reg[FXI_MORE_OUTPUTS];
    int32_t more_value[FXI_MORE_OUTPUTS];
    /* Of a conv or pool step: activations lie channels last, W×H×C×N with C fastest; weights are
     * dense. Of other steps: their axes are in that order, so that the output is dense. */
    bool channels_last;
    /* Of a foreach step: an elementwise step's program over each segment. Segment s has the inputs
     * from s·nin/nsegments on: dense and as long as the segment, or single values, alike in all
     * segments. `out` is that of the newest one. NULL: no foreach step. */
    fxi_segment *segments;
    int32_t nsegments;
    int32_t slot;   /* RANDOM: index of its (seed, counter) pair among the run's streams */
    void *ready;    /* what the backend's prepare made of it */
    bool by_plugin; /* …or a plugin of the backend */
} fxi_step;

/* All outputs of a step, counted through its segments; values by number. */
static inline int32_t fxi_step_outputs(const fxi_step *s)
{
    return (s->segments ? s->nsegments : 1) * (1 + s->nmore);
}
static inline int32_t fxi_step_output(const fxi_step *s, int32_t k)
{
    if (s->segments)
        return s->segments[k / (1 + s->nmore)].value[k % (1 + s->nmore)];
    return k == 0 ? s->out_value : s->more_value[k - 1];
}

static inline bool fxi_has_epilogue(const fxi_step *s)
{
    return s->ninstr > 0 && (s->cls == FXI_CLASS_MATMUL || s->cls == FXI_CLASS_CONV);
}

/* One run of a plan, as a kernel sees it. */
typedef struct fxi_run {
    void *more[FXI_MORE_OUTPUTS]; /* where a step's further outputs go */
    void *const *outputs;         /* of a foreach step: all of them, segment by segment */
    const uint64_t (*streams)[2]; /* RANDOM: seed and counter by slot */
    char error[200]; /* a kernel that fails writes the sentence here and returns a status */
} fxi_run;

/* Runs one step. in[k] and out point at the first element (view offsets applied). */
typedef fx_status (*fxi_kernel)(const fxi_step *step, const void *const *in, void *out,
                                fxi_run *run);

/* Runs a custom step: the user's function on operands in host memory. */
fx_status fxi_run_custom(const fxi_step *step, const void *const *in, void *out, fxi_run *run);

#endif
