/* gpu_text.h: from programs and shapes to the text of kernels: what the kinds of steps share. */
#ifndef CFLUX_GPU_TEXT_H
#define CFLUX_GPU_TEXT_H

#include "strided.h"
#include "gpu_build.h"
#include "gpu_kernels.h"

/* ---- element types (gpu_program.c) ----------------------------------------------------------- */
typedef struct fxi_gpu_type {
    const char *name;       /* "f16": FX_LOAD_f16 */
    const char *stored;     /* "fx_u16": in memory */
    const char *value;      /* "fx_f32": in registers */
    const char *value_name; /* "f32" */
    const char *wrapping;   /* "fx_u32": computes modulo the width; NULL: a real */
    const char *low, *high; /* the least and the greatest value, −∞ and ∞ of reals */
    const char *math;       /* "FX_F32"; NULL: an integer */
    uint8_t size;
} fxi_gpu_type;
extern const fxi_gpu_type fxi_gpu_types[FX_DTYPE_COUNT];

static inline size_t fxi_gpu_size(int dtype)
{
    return fxi_gpu_types[dtype].size;
}

/* "const fx_f32 r7 = …;": what instruction k of a program writes to register nin + k. */
void fxi_gpu_say_instr(fxi_gpu_builder *b, const fx_instr *ins, int reg);
/* All instructions of the step's program, which write to the registers from `first` on. Returns the
 * last of them; 0, the first operand or the product, if there are none. */
int fxi_gpu_say_program(fxi_gpu_builder *b, int first);
/* False, after recording it, when an instruction of the step has no meaning for its type. */
bool fxi_gpu_known(fxi_gpu_builder *b);

/* ---- spaces of indices (gpu_walk.c) ---------------------------------------------------------- */
/* A space, and the strides over it of several tensors; tensors alike share a pattern. */
enum { FXI_GPU_PATTERNS = 40, FXI_GPU_AXES = FX_MAX_DIMS + 1 };
typedef struct fxi_gpu_layout {
    int nd, npatterns;
    int64_t shape[FXI_GPU_AXES];
    int64_t stride[FXI_GPU_PATTERNS][FXI_GPU_AXES];
} fxi_gpu_layout;

/* The number of the pattern of these strides. What they are along axes of size 1 does not matter.
 */
int fxi_gpu_layout_add(fxi_gpu_layout *l, const int64_t *strides);

/* Some of its axes, counted in column-major order: neighbouring ones are merged where every pattern
 * allows it. The text knows how many there are, rounded up to 1, 2, 3, 4 or 8. */
typedef struct fxi_gpu_layout fxi_gpu_walk;
fxi_gpu_walk fxi_gpu_walk_over(const fxi_gpu_layout *l, uint32_t axes);
int64_t fxi_gpu_walk_length(const fxi_gpu_walk *w);
/* Parameters that it takes, and their values from `first` on. */
int fxi_gpu_walk_params(const fxi_gpu_walk *w);
void fxi_gpu_walk_fill(const fxi_gpu_walk *w, fxi_gpu_call *c, int first);
/* Declares fx_ints <name>0 …, the patterns' offsets at index `index` of the space, plus those
 * called <base>0 … unless NULL. */
void fxi_gpu_walk_say(fxi_gpu_builder *b, const fxi_gpu_walk *w, int first, const char *index,
                      const char *name, const char *base);
/* A size that the text divides by: FX_DIV(n, first), in three parameters. */
void fxi_gpu_divisor(fxi_gpu_call *c, int first, int64_t size);

/* Must indices be 64 bits wide, for so many elements, or for all offsets? Some room is left for
 * those that the last group skips. */
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
/* How far from its first element a tensor reaches, forwards and back together. */
int64_t fxi_gpu_reach(int nd, const int64_t *shape, const int64_t *stride);

/* ---- copies (gpu_copy.c) --------------------------------------------------------------------- */
/* One side of a copy: a buffer, and strides over the space that is copied. */
typedef struct fxi_gpu_side {
    fxi_gpu_buffer_ref buffer;
    const int64_t *stride;
    int64_t offset; /* in elements */
} fxi_gpu_side;

/* Elements of so many bytes over a space of nd axes. */
void fxi_gpu_copy(fxi_gpu_builder *b, int nd, const int64_t *shape, size_t size,
                  const fxi_gpu_side *from, const fxi_gpu_side *to);
/* Copies operand k to work space, densely; returns where. */
int64_t fxi_gpu_densify(fxi_gpu_builder *b, int k);

/* ---- indices (gpu_map.c) --------------------------------------------------------------------- */
/* A launch that looks for indices (operand 1) outside an axis of that size. */
void fxi_gpu_check_indices(fxi_gpu_builder *b, int axis, int64_t size);
/* A layout over x's axes with `axis` replaced by those of idx. Pattern 0: x without the axis, 1:
 * idx. `shape`: the sizes of all that. */
void fxi_gpu_index_layout(fxi_gpu_layout *l, const fx_tensor *shape, const fx_tensor *idx,
                          const fx_tensor *x, int axis);

/* ---- accumulators (gpu_fold.c) --------------------------------------------------------------- */
/* False, after recording it: there is no such fold. */
bool fxi_gpu_has_fold(fxi_gpu_builder *b, int kind, int dtype);
/* Declares type fx_acc<n> and functions fx_none<n>() (of nothing), fx_take<n>(a, x, i), fx_join<n>(
 * a, b) and fx_done<n>(a) for a fold of elements of dtype; i: the element's number, for ARGMAX.
 * Returns the bytes of an accumulator, at most. */
int fxi_gpu_say_fold(fxi_gpu_builder *b, int n, int kind, int dtype, int result);

/* How a group's work-items are divided: `lanes` of them, a power of two, make one result. Next to
 * each other are a result's lanes or, by columns, the results. */
typedef struct fxi_gpu_lanes {
    int32_t lanes;
    bool columns;
} fxi_gpu_lanes;
enum { FXI_GPU_LANE_PARAMS = 3 };
/* The least power of two that is not below n, up to a whole group. */
int32_t fxi_gpu_power(int64_t n);
void fxi_gpu_lanes_fill(fxi_gpu_lanes l, fxi_gpu_call *c, int first);
/* Declares fx_ints lanes, slots (results of a group), lane, slot, own (slot + lane·slots). */
void fxi_gpu_say_lanes(fxi_gpu_builder *b, int first);
/* Joins the lanes' accumulators a<acc>, fx_acc<n>s: afterwards s<n>[slot] holds the whole, for all
 * of them. s<n> is local memory of FX_GROUP accumulators. */
void fxi_gpu_say_tree(fxi_gpu_builder *b, int n, int acc);

/* ---- kinds of steps -------------------------------------------------------------------------- */
void fxi_gpu_elementwise(fxi_gpu_builder *b);
void fxi_gpu_foreach(fxi_gpu_builder *b);
void fxi_gpu_generate(fxi_gpu_builder *b);
void fxi_gpu_move(fxi_gpu_builder *b);
void fxi_gpu_join(fxi_gpu_builder *b);
void fxi_gpu_gather(fxi_gpu_builder *b);
void fxi_gpu_scatter(fxi_gpu_builder *b);
/* The scatter as a reduction: an output's element looks through all indices. */
void fxi_gpu_scatter_by_output(fxi_gpu_builder *b);
void fxi_gpu_reduce(fxi_gpu_builder *b);
void fxi_gpu_scan(fxi_gpu_builder *b);
void fxi_gpu_row(fxi_gpu_builder *b);
void fxi_gpu_matmul(fxi_gpu_builder *b);
void fxi_gpu_conv(fxi_gpu_builder *b);
void fxi_gpu_pool(fxi_gpu_builder *b);

#endif
