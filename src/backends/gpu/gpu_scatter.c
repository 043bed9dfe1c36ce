/* gpu_scatter.c: scatter, as a reduction or with atomics: y[…, idx[i…], …] ⊕= src[…, i…, …].
 *
 * If output and indices are few, each element of the output searches the indices for its own
 * (gpu_reduce.c): the same bits in every run. Otherwise every element of src is folded into its
 * target, in whatever order the elements arrive: sums by the device's atomic addition, where it has
 * one for the type, anything else with compare and swap. Sums of reals then differ in their last
 * bits from run to run. Elements of 8 and 16 bits are folded as 32-bit ones in work space and
 * rounded once. If the type has 64 bits and the device has no 64-bit atomics, each element of the
 * output always searches the indices.
 */
#include "gpu_text.h"

static const int64_t LOOKS =
    (int64_t)1 << 22; /* the most comparisons, of all elements of the output together */

/* The type in which a scatter is folded: 8 and 16 bits use a type of 32. */
static int folded_type(int dtype)
{
    const bool half = dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_BF16;
    return half ? FX_DTYPE_F32 : dtype == FX_DTYPE_U8 ? FX_DTYPE_I32 : dtype;
}

/* The array into which elements are folded: the output itself, or work space. */
typedef struct target {
    int dtype; /* folded */
    fxi_gpu_buffer_ref buffer;
    int64_t length;
    bool wide;
} target;

/* The output begins with the neutral element, because elements are then folded into it in any
 * order. */
static void clear(fxi_gpu_builder *b, const target *t)
{
    const int kind = fx_step_scatter(b->step)->fold;
    const fxi_gpu_type *type = &fxi_gpu_types[t->dtype];
    fxi_gpu_begin(b, t->wide);
    fxi_gpu_say_fold(b, 0, kind, b->step->out.dtype, b->step->out.dtype);
    fxi_gpu_kernel(b, "fx_clear", 1, 1);
    fxi_gpu_set(b, "stored", type->stored);
    fxi_gpu_set(b, "name", type->name);
    fxi_gpu_say_part(b, fxi_gpu_text_scatter_clear);
    fxi_gpu_end(b);
    fxi_gpu_buffer(fxi_gpu_add_each(b, t->length), 0, (fxi_gpu_role)t->buffer.role, t->buffer.k);
}

/* The fold of two values p and q, for reals and for integers. */
static const char *const merges[4][2] = {
    [FX_REDUCE_SUM] = {"p + q", "(T)((U)p + (U)q)"},
    [FX_REDUCE_MAX] = {"q > p || q != q ? q : p", "q > p ? q : p"},
    [FX_REDUCE_MIN] = {"q < p || q != q ? q : p", "q < p ? q : p"},
    [FX_REDUCE_PROD] = {"p * q", "(T)((U)p * (U)q)"},
};

/* Appends the function fx_fold, which changes an element atomically. */
static void say_atomic(fxi_gpu_builder *b, int dtype)
{
    const fxi_gpu_type *t = &fxi_gpu_types[dtype];
    /* Compare and swap works on integers, so reals are exchanged as their bits. */
    const int bits = 8 * t->size;
    const bool wide = bits == 64;
    const char *in = t->math ? wide ? "fx_double" : "fx_float" : wide ? "(fx_i64)" : "(fx_i32)";
    const char *out = t->math ? wide ? "fx_bits64" : "fx_bits" : wide ? "(fx_u64)" : "(fx_u32)";
    fxi_gpu_set(b, "value", t->value);
    fxi_gpu_set(b, "wrapping", t->wrapping ? t->wrapping : t->value);
    fxi_gpu_set_number(b, "bits", bits);
    fxi_gpu_set_number(b, "sums", fx_step_scatter(b->step)->fold == FX_REDUCE_SUM);
    fxi_gpu_set(b, "added", t->math ? t->value_name : wide ? "u64" : "u32");
    fxi_gpu_set(b, "from_bits", in);
    fxi_gpu_set(b, "to_bits", out);
    fxi_gpu_set(b, "merged", merges[fx_step_scatter(b->step)->fold][!t->math]);
    fxi_gpu_say_part(b, fxi_gpu_text_scatter_fold);
}

/* Parameters: elements of src, size of the axis, the output's stride along it, the walk; elements
 * and strides are counted in vectors if src is read as vectors. */
static void scatter(fxi_gpu_builder *b, const target *t)
{
    const fx_step *s = b->step;
    const fx_tensor *src = &s->in[0], *idx = &s->in[1], *out = &s->out;
    const int axis = fx_step_scatter(s)->axis;
    const int64_t n = fx_tensor_length(src);
    const fxi_gpu_type *type = &fxi_gpu_types[src->dtype];
    int64_t dense[FX_MAX_DIMS];
    fx_tensor y = *out;
    fxi_gpu_layout l;
    fxi_dense_strides(out->ndim, out->shape, dense);
    for (int d = 0; d < out->ndim; d++)
        y.stride[d] = dense[d];
    fxi_gpu_index_layout(&l, src, idx, &y, axis);
    /* src is walked too: it may have any strides. */
    const int from = fxi_gpu_layout_add(&l, src->stride);
    const bool wide = t->wide || fxi_gpu_layout_wide(&l);
    int64_t stride = dense[axis];
    if (n == 0)
        return;
    /* If src has the strides of the indices, it repeats along axis 0: then each element is read
     * alone. */
    const int vector =
        from == FXI_GPU_INDEX_PATTERN ? 1 : fxi_gpu_index_vectors(b, &l, src->dtype, axis, &stride);
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, UINT32_MAX);
    fxi_gpu_begin(b, wide);
    say_atomic(b, t->dtype);
    fxi_gpu_kernel(b, "fx_scatter", 3, 3 + fxi_gpu_walk_params(&w));
    fxi_gpu_set(b, "stored", type->stored);
    fxi_gpu_set(b, "name", type->name);
    fxi_gpu_set(b, "index", fxi_gpu_types[idx->dtype].stored);
    fxi_gpu_set_number(b, "from", from);
    fxi_gpu_set_number(b, "elements", vector);
    const char *text = fxi_gpu_say_until(
        b, vector > 1 ? fxi_gpu_text_scatter_vectors : fxi_gpu_text_scatter, "walk");
    fxi_gpu_walk_say(b, &w, 3, "i", "o", NULL);
    fxi_gpu_say_part(b, text);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, n / vector);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, (fxi_gpu_role)t->buffer.role, t->buffer.k);
    fxi_gpu_param(c, 1, out->shape[axis]);
    fxi_gpu_param(c, 2, stride);
    fxi_gpu_walk_fill(&w, c, 3);
}

/* Rounds the folded elements from work space to the output. */
static void narrow(fxi_gpu_builder *b, const target *t)
{
    const fxi_gpu_type *from = &fxi_gpu_types[t->dtype], *to = &fxi_gpu_types[b->step->out.dtype];
    fxi_gpu_begin(b, t->wide);
    fxi_gpu_kernel(b, "fx_narrow", 2, 1);
    fxi_gpu_set(b, "from", from->stored);
    fxi_gpu_set(b, "stored", to->stored);
    fxi_gpu_set(b, "name", to->name);
    fxi_gpu_set(b, "value", to->value);
    fxi_gpu_say_part(b, fxi_gpu_text_scatter_narrow);
    fxi_gpu_end(b);
    fxi_gpu_call *c = fxi_gpu_add_each(b, t->length);
    fxi_gpu_buffer(c, 0, (fxi_gpu_role)t->buffer.role, t->buffer.k);
    fxi_gpu_buffer(c, 1, FXI_GPU_OUT, 0);
}

void fxi_gpu_scatter(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const int axis = fx_step_scatter(s)->axis, dtype = s->out.dtype;
    const fx_tensor *idx = &s->in[1];
    const int64_t length = fx_tensor_length(&s->out),
                  indices = fx_step_by_element(s) ? idx->shape[axis] : fx_tensor_length(idx);
    target t = {.dtype = folded_type(dtype), .length = length, .wide = fxi_gpu_wide(length)};
    fxi_gpu_check_indices(b, axis, s->out.shape[axis]);
    if (dtype == FX_DTYPE_BOOL || fx_step_scatter(s)->fold > FX_REDUCE_PROD) {
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "no scatter of this kind for element type %s",
                     fxi_gpu_types[dtype].name);
        return;
    }
    /* Only now: indices are checked even if the output is empty. */
    if (length == 0)
        return;
    if (indices * length <= LOOKS || (fxi_gpu_size(t.dtype) == 8 && !b->limits->atomic64)) {
        fxi_gpu_scatter_by_output(b);
        return;
    }
    t.buffer = (fxi_gpu_buffer_ref){0, FXI_GPU_OUT};
    /* Atomics exist for 32 and 64 bits only. */
    if (t.dtype != dtype)
        t.buffer = (fxi_gpu_buffer_ref){fxi_gpu_work(b, 4 * length), FXI_GPU_WORK};
    clear(b, &t);
    scatter(b, &t);
    if (t.dtype != dtype)
        narrow(b, &t);
}
