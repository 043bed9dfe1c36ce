/* gpu_row.h: shared by the files that make row steps: gpu_row.c, gpu_row_divide.c and, for rows
 * that are cut into pieces, gpu_row_cut.c. Internal.
 */
#ifndef CFLUX_GPU_ROW_H
#define CFLUX_GPU_ROW_H

#include "gpu_text.h"

enum { FXI_GPU_ROW_OPERANDS = 32, FXI_GPU_ROW_REGISTERS = 256, FXI_GPU_ROW_FOLDS = 8 };
/* The numbers of parameters; those of the walks follow, then those of pieces. */
enum {
    FXI_GPU_ROW_COUNT = 0, /* rows */
    FXI_GPU_ROW_LENGTH,    /* elements of a row */
    FXI_GPU_ROW_LANES,
    FXI_GPU_ROW_WALKS = FXI_GPU_ROW_LANES + FXI_GPU_LANE_PARAMS
};

typedef struct fxi_gpu_rows {
    const fx_step *step;
    int pattern[FXI_GPU_ROW_OPERANDS]; /* −1: a single value */
    bool of_row[FXI_GPU_ROW_OPERANDS]; /* the same for all elements of a row */
    int loaded[FXI_GPU_ROW_OPERANDS]; /* the pattern, if it is loaded for each element; else −1 */
    bool counts[FXI_GPU_ROW_OPERANDS]; /* an element is its own index in the row */
    int out_pattern; /* of outputs with a value for each element; −1: one row after the other */
    fxi_gpu_layout layout;
    fxi_gpu_walk outer, inner;
    int64_t count, elements_of_row;
    int npasses, nfolds;
    struct {
        int kind, dtype, result;
    } folds[FXI_GPU_ROW_FOLDS];          /* the different kinds of reductions */
    bool divides[FXI_GPU_ROW_REGISTERS]; /* the kernel has the divisor of this value of the row */
    int previous_fold; /* of the tree that was appended before; −1: none in this kernel */
    bool wide;
    /* A lane loads `packs` packs of `elements` elements at a time; all its elements if it keeps
     * them. whole: the elements of a pack are neighbours in every operand and output. */
    int elements, packs;
    bool whole, keeps;
    bool kept[FXI_GPU_ROW_REGISTERS];          /* computed in one pass and needed in a later one */
    uint8_t first_pass[FXI_GPU_ROW_REGISTERS]; /* 1 + the pass that computes a value of the
                                                  elements */
    fxi_gpu_lanes lanes;
    /* For rows that are cut: the pieces of a row (0: rows are whole), the elements of a piece, and
     * for the register of each reduction the offset of its accumulators in work space. */
    int64_t pieces, piece, work[FXI_GPU_ROW_REGISTERS];
} fxi_gpu_rows;

static inline bool fxi_gpu_reduces(const fx_instr *i)
{
    return i->op == FX_OP_REDUCE;
}
static inline int fxi_gpu_row_outputs(const fx_step *s)
{
    return 1 + fx_step_row(s)->more.n;
}

/* The number of an instruction's kind of accumulator, added to the list if it is new. Reductions of
 * one kind share a text and local memory. */
int fxi_gpu_row_fold(fxi_gpu_rows *r, const fx_instr *ins);
/* Appends the instructions on values of the row that precede a pass. */
void fxi_gpu_say_row_values(fxi_gpu_builder *b, const fxi_gpu_rows *r, int pass);
/* Appends the result of the complete accumulator of instruction k. */
void fxi_gpu_say_row_result(fxi_gpu_builder *b, fxi_gpu_rows *r, int k);

/* ---- the elements of lanes (gpu_row_divide.c) ------------------------------------------------ */
/* Sets the elements of a pack, whether packs are whole, whether lanes keep their elements, the
 * packs and the lanes. The caller has set r->kept. */
void fxi_gpu_row_divide(const fxi_gpu_builder *b, fxi_gpu_rows *r);

/* ---- rows that are cut (gpu_row_cut.c) ------------------------------------------------------- */
/* Decides whether and how rows are cut, and reserves work space for the accumulators. */
void fxi_gpu_row_cut(fxi_gpu_builder *b, fxi_gpu_rows *r);
/* The numbers of buffers of work space and of parameters that the launch of a pass adds; 0 for
 * whole rows. */
int fxi_gpu_row_cut_buffers(const fxi_gpu_rows *r, int pass);
int fxi_gpu_row_cut_params(const fxi_gpu_rows *r);
/* Appends the definitions of these buffers, which come after the operands and outputs. */
void fxi_gpu_row_cut_uses(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass);
/* Appends first and count, the range of a group's elements. */
void fxi_gpu_row_cut_range(fxi_gpu_builder *b, const fxi_gpu_rows *r);
/* Appends the values that the launch of a pass needs from earlier passes: the results of their
 * reductions, joined from all pieces, and the values of the row so far. */
void fxi_gpu_row_cut_found(fxi_gpu_builder *b, fxi_gpu_rows *r, int pass);
/* Appends the store of the accumulator of instruction k, of one piece. */
void fxi_gpu_row_cut_leave(fxi_gpu_builder *b, const fxi_gpu_rows *r, int k);
/* Sets the buffers, parameters and groups of the launch of a pass. */
void fxi_gpu_row_cut_fill(const fxi_gpu_rows *r, fxi_gpu_call *c, int pass);

#endif
