/* gpu_text.h: functions that the kinds of steps share to turn programs and shapes into text.
 * Internal.
 */
#ifndef CFLUX_GPU_TEXT_H
#define CFLUX_GPU_TEXT_H

#include "strided.h"
#include "gpu_build.h"
#include "gpu_kernels.h"

/* ---- element types (gpu_program.c) ----------------------------------------------------------- */
typedef struct fxi_gpu_type {
    const char *name;       /* "f16": FX_LOAD_f16 */
    const char *stored;     /* "fx_u16": the type in memory */
    const char *value;      /* "fx_f32": the type in registers */
    const char *value_name; /* "f32" */
    const char *wrapping;   /* "fx_u32": a type that computes modulo the width; NULL: a real */
    const char *low, *high; /* the least and the greatest value; −∞ and ∞ for reals */
    const char *math;       /* "FX_F32"; NULL: an integer */
    uint8_t size;
} fxi_gpu_type;
extern const fxi_gpu_type fxi_gpu_types[FX_DTYPE_COUNT];

static inline size_t fxi_gpu_size(int dtype)
{
    return fxi_gpu_types[dtype].size;
}

/* Is the result of the instruction rounded to 16 bits? */
bool fxi_gpu_rounds(const fx_instr *ins);
/* Appends "const fx_f32 r7 = …;" for an instruction that writes to this register. If its result is
 * rounded to 16 bits, t7 is the result before the rounding. */
void fxi_gpu_say_instr(fxi_gpu_builder *b, const fx_instr *ins, int reg);
/* Appends all instructions of the step's program, which write to the registers from `first` on.
 * Returns the last register; 0, the first operand or the product, if there are no instructions. */
int fxi_gpu_say_program(fxi_gpu_builder *b, int first);
/* Does every instruction of the step have a meaning for its type? If not, records an error. */
bool fxi_gpu_known(fxi_gpu_builder *b);

/* ---- several elements of a work-item (gpu_pack.c) -------------------------------------------- */
/* Elements of one operand that a work-item loads or stores together. */
typedef struct fxi_gpu_pack {
    const char *name;
    const fxi_gpu_type *type;
    int elements;
} fxi_gpu_pack;
/* The number of elements of a work-item for a program whose narrowest operand has elements of that
 * many bytes, and which needs that many 32-bit registers for each element. A power of two. */
int fxi_gpu_pack_elements(const fxi_gpu_builder *b, int narrowest, int words);
/* The bytes of a vector of the pack, to which its address must be aligned. */
int fxi_gpu_pack_bytes(const fxi_gpu_pack *p);
/* Appends the declaration of the pack <name>: its elements are <name>.e[…]. */
void fxi_gpu_say_pack(fxi_gpu_builder *b, const fxi_gpu_pack *p);
/* Appends the loading or storing of the whole pack as vectors, at the address `at`. */
void fxi_gpu_say_pack_moved(fxi_gpu_builder *b, const fxi_gpu_pack *p, bool stores, const char *at);

/* ---- spaces of indices (gpu_walk.c) ---------------------------------------------------------- */
/* A space of indices, and the strides over it of several tensors. Tensors with equal strides share
 * a pattern, which saves parameters. */
enum { FXI_GPU_PATTERNS = 40, FXI_GPU_AXES = FX_MAX_DIMS + 1 };
typedef struct fxi_gpu_layout {
    int nd, npatterns;
    int64_t shape[FXI_GPU_AXES];
    int64_t stride[FXI_GPU_PATTERNS][FXI_GPU_AXES];
} fxi_gpu_layout;

/* Returns the number of the pattern with these strides. Strides along axes of size 1 are
 * ignored. */
int fxi_gpu_layout_add(fxi_gpu_layout *l, const int64_t *strides);

/* A walk over some of the axes in column-major order. Neighbouring axes are merged if every pattern
 * allows it. The text depends on their number, rounded up to 1, 2, 3, 4 or 8, so that few texts
 * serve all shapes. */
typedef struct fxi_gpu_layout fxi_gpu_walk;
fxi_gpu_walk fxi_gpu_walk_over(const fxi_gpu_layout *l, uint32_t axes);
int64_t fxi_gpu_walk_length(const fxi_gpu_walk *w);
/* fxi_gpu_walk_params returns the number of parameters of a walk, fxi_gpu_walk_fill sets their
 * values from `first` on. */
int fxi_gpu_walk_params(const fxi_gpu_walk *w);
void fxi_gpu_walk_fill(const fxi_gpu_walk *w, fxi_gpu_call *c, int first);
/* Appends fx_ints <name>0 …, the patterns' offsets at index `index` of the space, plus those called
 * <base>0 … unless that is NULL. */
void fxi_gpu_walk_say(fxi_gpu_builder *b, const fxi_gpu_walk *w, int first, const char *index,
                      const char *name, const char *base);
/* Sets three parameters for a size by which the text divides: FX_DIV(n, first). */
void fxi_gpu_divisor(fxi_gpu_call *c, int first, int64_t size);

/* Must indices have 64 bits, for n elements or offsets? The limit is below 2³¹, because indices
 * that the last group skips must fit too. */
static inline bool fxi_gpu_wide(int64_t n)
{
    return n >= ((int64_t)1 << 31) - ((int64_t)1 << 20);
}
bool fxi_gpu_layout_wide(const fxi_gpu_layout *l);
bool fxi_gpu_is_scalar(const fx_tensor *t); /* one value for all elements */
/* The stride along an axis; 0 along an axis of size 1, whose stride may be any number. */
static inline int64_t fxi_gpu_stride(const fx_tensor *t, int axis)
{
    return t->shape[axis] == 1 ? 0 : t->stride[axis];
}
/* Does a product store its axes in another order than a dense array? */
static inline bool fxi_gpu_is_ordered(const fx_tensor *out)
{
    return !fxi_is_dense(out->ndim, out->shape, out->stride);
}
/* The distance between the first and the last element of a tensor in memory, whatever the strides'
 * signs. */
int64_t fxi_gpu_reach(int nd, const int64_t *shape, const int64_t *stride);

/* ---- copies (gpu_copy.c) --------------------------------------------------------------------- */
/* One side of a copy: a buffer, and strides over the space that is copied. */
typedef struct fxi_gpu_side {
    fxi_gpu_buffer_ref buffer;
    const int64_t *stride;
    int64_t offset; /* in elements */
} fxi_gpu_side;

/* Adds a copy of elements of `size` bytes over a space of nd axes. */
void fxi_gpu_copy(fxi_gpu_builder *b, int nd, const int64_t *shape, size_t size,
                  const fxi_gpu_side *from, const fxi_gpu_side *to);
/* A matrix in memory: columns of `rows` elements, `ld` elements apart. */
typedef struct fxi_gpu_matrix {
    fxi_gpu_buffer_ref buffer;
    int64_t rows, columns, ld;
} fxi_gpu_matrix;
/* Adds a copy of a matrix, with elements of `size` bytes, to a larger or smaller matrix. The
 * additional elements of a larger target become 0; its to->ld must equal to->rows. */
void fxi_gpu_copy_matrix(fxi_gpu_builder *b, size_t size, const fxi_gpu_matrix *from,
                         const fxi_gpu_matrix *to);
/* Adds a dense copy of operand k to work space; returns its offset. */
int64_t fxi_gpu_densify(fxi_gpu_builder *b, int k);

/* ---- indices (gpu_gather.c) ------------------------------------------------------------------ */
/* Adds a launch that checks the indices (operand 1) for an axis of that size. */
void fxi_gpu_check_indices(fxi_gpu_builder *b, int axis, int64_t size);
/* Makes a layout over x's axes with `axis` replaced by those of idx; over the axes of idx only, if
 * it has an index for each element. Pattern 0: x without the axis; 1: idx. `shape` has the sizes of
 * this space. */
void fxi_gpu_index_layout(fxi_gpu_layout *l, const fx_tensor *shape, const fx_tensor *idx,
                          const fx_tensor *x, int axis);
/* The number of the indices' pattern in the layout of fxi_gpu_index_layout. */
enum { FXI_GPU_INDEX_PATTERN = 1 };
/* Returns the number of elements of a vector if a gather or scatter can move its rows as vectors:
 * the first axis, which the indices do not replace, is dense in every operand, and all other
 * distances are multiples of a vector. Otherwise returns 1. The kernel tests whether the addresses
 * are aligned. If the result is above 1, the layout and the stride along the indices' axis are
 * changed to count vectors; the pattern of the indices stays. */
int fxi_gpu_index_vectors(const fxi_gpu_builder *b, fxi_gpu_layout *l, int dtype, int axis,
                          int64_t *stride);

/* ---- operands of lanes (gpu_packs.c) --------------------------------------------------------- */
/* The operands x0, x1, … of a kernel whose lanes load several elements before they use the first:
 * reductions and rows. Operand k is loaded as the pack v<k>. */
typedef struct fxi_gpu_packs {
    const fx_tensor *in;
    int n;
    const int *pattern; /* of each operand; below 0: it is not loaded for each element */
    int elements;       /* that a lane loads at a time */
    bool neighbours;    /* they may be neighbours in memory, and so be loaded as vectors */
    /* Row steps, and reductions by columns: the number of packs v<k>[c] that a lane loads, from the
     * offsets o0, o1, … on. Other reductions: 0. */
    int several;
    uint32_t shared; /* bit p: a pack of pattern p is one element, the same for all elements */
} fxi_gpu_packs;
/* Sets elements and neighbours for a walk over the elements of a lane. `words`: 32-bit registers
 * for each element beside the operands' own. Returns the registers of the operands. */
int fxi_gpu_packs_divide(const fxi_gpu_builder *b, fxi_gpu_packs *p, const fxi_gpu_walk *elements,
                         int words);
/* Append, in this order: the declarations of the operands; those of the packs; loads of the packs
 * as vectors, from the element `base` on; loads of element e of each pack, from the offsets o0, o1,
 * …; the test whether the element `from` is aligned in all operands. `needed`: which operands;
 * NULL: all. */
void fxi_gpu_say_operands(fxi_gpu_builder *b, const fx_tensor *in, int n);
void fxi_gpu_say_packs(fxi_gpu_builder *b, const fxi_gpu_packs *p, const bool *needed);
void fxi_gpu_say_vector_loads(fxi_gpu_builder *b, const fxi_gpu_packs *p, const bool *needed);
void fxi_gpu_say_element_loads(fxi_gpu_builder *b, const fxi_gpu_packs *p, const bool *needed);
void fxi_gpu_say_near(fxi_gpu_builder *b, const fxi_gpu_packs *p, const char *from);

/* ---- accumulators (gpu_fold.c) --------------------------------------------------------------- */
/* Is there a fold of this kind and type? If not, records an error. */
bool fxi_gpu_has_fold(fxi_gpu_builder *b, int kind, int dtype);
/* Appends the type fx_acc<n> and the functions fx_none<n>() (of no elements), fx_take<n>(a, x, i),
 * fx_join<n>(a, b) and fx_done<n>(a) for a fold of elements of dtype; i is the element's index, for
 * ARGMAX. Returns an upper bound of the bytes of an accumulator. */
int fxi_gpu_say_fold(fxi_gpu_builder *b, int n, int kind, int dtype, int result);

/* The division of a group's work-items into teams: the `lanes` of a team, a power of two, compute
 * one result. Neighbouring work-items are lanes of one team or, by columns, of different teams. */
typedef struct fxi_gpu_lanes {
    int32_t lanes;
    bool columns;
} fxi_gpu_lanes;
enum { FXI_GPU_LANE_PARAMS = 3 };
/* The least power of two that is not below n, at most a whole group. */
int32_t fxi_gpu_power(int64_t n);
void fxi_gpu_lanes_fill(fxi_gpu_lanes l, fxi_gpu_call *c, int first);
/* Appends the fx_ints lanes, teams (results of a group), lane, team and own (team + lane·teams). */
void fxi_gpu_say_lanes(fxi_gpu_builder *b, int first);
/* Appends the joining of the lanes' accumulators a<acc>, of type fx_acc<n>: afterwards a<acc> of
 * each lane is the accumulator of all lanes. All work-items of the group take part. s<n> is local
 * memory of FX_GROUP accumulators. `columns`: the lanes of a result may be work-items that are not
 * neighbours; `again`: the tree before it in the kernel used the same s<n>. */
void fxi_gpu_say_tree(fxi_gpu_builder *b, int n, int acc, bool columns, bool again);

/* ---- the end of products (gpu_slices.c) ------------------------------------------------------ */
/* The epilogue, whose operands are walked over the output. */
typedef struct fxi_gpu_finish {
    fxi_gpu_walk walk;
    int operands, pattern[FXI_GPU_PATTERNS];
    int out; /* pattern of the output; −1: it is dense */
} fxi_gpu_finish;
fxi_gpu_finish fxi_gpu_finish_of(const fx_step *s);
/* Appends the declarations e0 … of its operands, which are buffers from `first` on. */
void fxi_gpu_finish_use(fxi_gpu_builder *b, const fxi_gpu_finish *f, int first);
/* Sets its buffers and its parameters, which are those of the walk. */
void fxi_gpu_finish_set(const fxi_gpu_finish *f, fxi_gpu_call *call, int first_buffer,
                        int first_param);
/* Appends the store of element i of the output y, whose sum is complete. */
void fxi_gpu_finish_say(fxi_gpu_builder *b, const fxi_gpu_finish *f, const char *sum,
                        int first_param);

/* n partial sums for each of `length` elements, of the type `sum`: the sum of slice s for element i
 * has the index s·length + i. */
typedef struct fxi_gpu_slices {
    const char *sum;
    int64_t n, length;
    bool wide;
} fxi_gpu_slices;
/* Reserves work space for the partial sums; returns its offset. */
int64_t fxi_gpu_slices_work(fxi_gpu_builder *b, const fxi_gpu_slices *s);
/* Adds the kernel that sums the slices of each element into the output. */
void fxi_gpu_slices_add(fxi_gpu_builder *b, const fxi_gpu_slices *s, const fxi_gpu_finish *f,
                        int64_t work);

/* ---- after the padding was multiplied (gpu_repair.c) ----------------------------------------- */
/* For a gradient of weights that was computed with the padding: adds, after its launches, kernels
 * that compute it again if gy (operand 1) has an infinite number or NaN. */
void fxi_gpu_repair(fxi_gpu_builder *b);
bool fxi_gpu_can_repair(const fx_step *s); /* false if gy has gaps */
/* Is the step the gradient of a padded convolution's weights? If such a step multiplies the
 * padding, it must be repaired. */
bool fxi_gpu_repairs(const fx_step *s);

/* ---- around a library (gpu_reverse.c) -------------------------------------------------------- */
/* Adds a kernel that writes each window of the weights in the opposite order: of `length` elements
 * of the output's type. */
void fxi_gpu_reverse(fxi_gpu_builder *b, fxi_gpu_buffer_ref from, fxi_gpu_buffer_ref to,
                     int64_t length, int64_t window);

/* ---- segments (gpu_foreach.c) ---------------------------------------------------------------- */
/* Appends the choice of the segment g on which a group works, out of `batch`: "g == 0 ? name0 : …".
 * `format` takes the number first + g · each. */
void fxi_gpu_say_choice(fxi_gpu_builder *b, int batch, const char *format, int first, int each);

/* ---- kinds of steps -------------------------------------------------------------------------- */
void fxi_gpu_elementwise(fxi_gpu_builder *b);
void fxi_gpu_foreach(fxi_gpu_builder *b);
void fxi_gpu_generate(fxi_gpu_builder *b);
void fxi_gpu_move(fxi_gpu_builder *b);
void fxi_gpu_join(fxi_gpu_builder *b);
void fxi_gpu_gather(fxi_gpu_builder *b);
void fxi_gpu_scatter(fxi_gpu_builder *b);
/* The scatter as a reduction: an element of the output searches all indices. */
void fxi_gpu_scatter_by_output(fxi_gpu_builder *b);
void fxi_gpu_reduce(fxi_gpu_builder *b);
/* A foreach step whose segments are reductions. */
void fxi_gpu_reductions(fxi_gpu_builder *b);
void fxi_gpu_scan(fxi_gpu_builder *b);
void fxi_gpu_row(fxi_gpu_builder *b);
void fxi_gpu_matmul(fxi_gpu_builder *b);
void fxi_gpu_conv(fxi_gpu_builder *b);
void fxi_gpu_pool(fxi_gpu_builder *b);
void fxi_gpu_attention(fxi_gpu_builder *b);

#endif
