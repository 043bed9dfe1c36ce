/* gpu_scatter.c: scatter, as a reduction or with atomics.
 *
 * y[…, idx[i…], …] ⊕= src[…, i…, …]. Where the output and the indices are few, each element of the
 * output looks through the indices (gpu_reduce.c): the same bits at every run. Else every element
 * of src goes where it belongs with compare and swap, in whatever order they come; sums of reals
 * then differ in their last bits from run to run. Elements of 8 and 16 bits are folded as 32-bit
 * ones in scratch memory and rounded once. Devices without 64-bit atomics always look through.
 */
#include "gpu_text.h"

enum { EACH = 4 };
static const int64_t LOOKS = (int64_t)1 << 22; /* of all elements of the output together */

/* What a scatter is folded in: for 8 and 16 bits another type. */
static int folded_type(int dtype)
{
    const bool half = dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_BF16;
    return half ? FX_DTYPE_F32 : dtype == FX_DTYPE_U8 ? FX_DTYPE_I32 : dtype;
}

static void say_element(fxi_gpu_builder *b)
{
    fxi_gpu_say(b,
                "for (fx_int each = 0; each < %d; each++) {\n"
                "const fx_int i = (FX_GROUP_X * %d + each) * FX_GROUP + FX_ITEM;\n"
                "if (i >= P(0)) return;\n",
                EACH, EACH);
}

static fxi_gpu_call *add_elements(fxi_gpu_builder *b, int64_t n)
{
    fxi_gpu_call *c = fxi_gpu_add(b);
    fxi_gpu_param(c, 0, n);
    c->groups[0] = fxi_gpu_groups(n, (int64_t)EACH * FXI_GPU_GROUP);
    return c;
}

/* Where it is folded: the output itself, or scratch memory. */
typedef struct target {
    int dtype; /* folded */
    fxi_gpu_buffer_ref buffer;
    int64_t length;
    bool wide;
} target;

static void clear(fxi_gpu_builder *b, const target *t)
{
    const int kind = (int)b->step->attr.i[0];
    const fxi_gpu_type *type = &fxi_gpu_types[t->dtype];
    fxi_gpu_begin(b, t->wide);
    fxi_gpu_say_fold(b, 0, kind, b->step->out.dtype);
    fxi_gpu_kernel(b, "fx_clear", 1, 1);
    fxi_gpu_say(b, "FX_USE(0, %s, y)\n", type->stored);
    say_element(b);
    fxi_gpu_say(b, "FX_STORE_%s(y, i, fx_done0(fx_none0()));\n}\n", type->name);
    fxi_gpu_end(b);
    fxi_gpu_buffer(add_elements(b, t->length), 0, (fxi_gpu_place)t->buffer.place, t->buffer.k);
}

/* The fold of two values p and q. */
static const char *const merges[4][2] = {
    [FX_FOLD_SUM] = {"p + q", "(T)((U)p + (U)q)"},
    [FX_FOLD_MAX] = {"q > p || q != q ? q : p", "q > p ? q : p"},
    [FX_FOLD_MIN] = {"q < p || q != q ? q : p", "q < p ? q : p"},
    [FX_FOLD_PROD] = {"p * q", "(T)((U)p * (U)q)"},
};

static void say_atomic(fxi_gpu_builder *b, int dtype)
{
    const fxi_gpu_type *t = &fxi_gpu_types[dtype];
    const int bits = 8 * t->size;
    const bool wide = bits == 64;
    const char *in = t->math ? wide ? "fx_double" : "fx_float" : wide ? "(fx_i64)" : "(fx_i32)";
    const char *out = t->math ? wide ? "fx_bits64" : "fx_bits" : wide ? "(fx_u64)" : "(fx_u32)";
    fxi_gpu_say(b, "#define T %s\n#define U %s\n", t->value, t->wrapping ? t->wrapping : t->value);
    fxi_gpu_say(b, "FX_FN void fx_fold(FX_GLOBAL fx_u%d *at, T q) {\n", bits);
    fxi_gpu_say(b, "    fx_u%d was = *at;\n    for (;;) {\n        const T p = %s(was);\n", bits,
                in);
    fxi_gpu_say(b, "        const fx_u%d now = %s((T)(%s));\n", bits, out,
                merges[b->step->attr.i[0]][!t->math]);
    fxi_gpu_say(b, "        const fx_u%d seen = now == was ? was : fx_cas%d(at, was, now);\n", bits,
                bits);
    fxi_gpu_say(b,
                "        if (seen == was) return;\n        was = seen; } }\n#undef T\n#undef U\n");
}

/* Parameters: elements of src, size of the axis, the output's stride along it, the walk. */
static void scatter(fxi_gpu_builder *b, const target *t)
{
    const fx_step *s = b->step;
    const fx_tensor *src = &s->in[0], *idx = &s->in[1], *out = &s->out;
    const int axis = (int)s->attr.i[1];
    const int64_t n = fx_tensor_length(src);
    const fxi_gpu_type *type = &fxi_gpu_types[src->dtype];
    int64_t dense[FX_MAX_DIMS];
    fx_tensor y = *out;
    fxi_gpu_layout l;
    fxi_gpu_dense_strides(out->ndim, out->shape, dense);
    for (int d = 0; d < out->ndim; d++)
        y.stride[d] = dense[d];
    fxi_gpu_index_layout(&l, src, idx, &y, axis);
    const int from = fxi_gpu_layout_add(&l, src->stride);
    const fxi_gpu_walk w = fxi_gpu_walk_over(&l, UINT32_MAX);
    const int bits = 8 * (int)fxi_gpu_size(t->dtype);
    if (n == 0)
        return;
    fxi_gpu_begin(b, t->wide || fxi_gpu_layout_wide(&l));
    say_atomic(b, t->dtype);
    fxi_gpu_kernel(b, "fx_scatter", 3, 3 + fxi_gpu_walk_params(&w));
    fxi_gpu_say(b, "FX_USE(0, const %s, x)\nFX_USE(1, const %s, idx)\nFX_USE(2, fx_u%d, y)\n",
                type->stored, fxi_gpu_types[idx->dtype].stored, bits);
    say_element(b);
    fxi_gpu_walk_say(b, &w, 3, "i", "o", NULL);
    fxi_gpu_say(b,
                "const fx_i64 v = idx[o1];\nif (v >= 0 && v < P(1))\n"
                "    fx_fold(y + o0 + (fx_int)v * P(2), (%s)FX_LOAD_%s(x, o%d));\n}\n",
                fxi_gpu_types[t->dtype].value, type->name, from);
    fxi_gpu_end(b);
    fxi_gpu_call *c = add_elements(b, n);
    fxi_gpu_buffer(c, 0, FXI_GPU_IN, 0);
    fxi_gpu_buffer(c, 1, FXI_GPU_IN, 1);
    fxi_gpu_buffer(c, 2, (fxi_gpu_place)t->buffer.place, t->buffer.k);
    fxi_gpu_param(c, 1, out->shape[axis]);
    fxi_gpu_param(c, 2, dense[axis]);
    fxi_gpu_walk_fill(&w, c, 3);
}

/* From scratch memory to the output. */
static void narrow(fxi_gpu_builder *b, const target *t)
{
    const fxi_gpu_type *from = &fxi_gpu_types[t->dtype], *to = &fxi_gpu_types[b->step->out.dtype];
    fxi_gpu_begin(b, t->wide);
    fxi_gpu_kernel(b, "fx_narrow", 2, 1);
    fxi_gpu_say(b, "FX_USE(0, const %s, x)\nFX_USE(1, %s, y)\n", from->stored, to->stored);
    say_element(b);
    fxi_gpu_say(b, "FX_STORE_%s(y, i, (%s)x[i]);\n}\n", to->name, to->value);
    fxi_gpu_end(b);
    fxi_gpu_call *c = add_elements(b, t->length);
    fxi_gpu_buffer(c, 0, (fxi_gpu_place)t->buffer.place, t->buffer.k);
    fxi_gpu_buffer(c, 1, FXI_GPU_OUT, 0);
}

void fxi_gpu_scatter(fxi_gpu_builder *b)
{
    const fx_step *s = b->step;
    const int axis = (int)s->attr.i[1], dtype = s->out.dtype;
    const int64_t length = fx_tensor_length(&s->out), indices = fx_tensor_length(&s->in[1]);
    target t = {.dtype = folded_type(dtype), .length = length, .wide = fxi_gpu_wide(length)};
    fxi_gpu_check_indices(b, axis, s->out.shape[axis]);
    if (dtype == FX_DTYPE_BOOL || s->attr.i[0] > FX_FOLD_PROD) {
        fxi_gpu_fail(b, FX_STATUS_UNSUPPORTED, "no scatter of this kind for element type %s",
                     fxi_gpu_types[dtype].name);
        return;
    }
    if (length == 0)
        return;
    if (indices * length <= LOOKS || (fxi_gpu_size(t.dtype) == 8 && !b->limits->atomic64)) {
        fxi_gpu_scatter_by_output(b);
        return;
    }
    t.buffer = (fxi_gpu_buffer_ref){0, FXI_GPU_OUT};
    if (t.dtype != dtype)
        t.buffer = (fxi_gpu_buffer_ref){fxi_gpu_scratch(b, 4 * length), FXI_GPU_SCRATCH};
    clear(b, &t);
    scatter(b, &t);
    if (t.dtype != dtype)
        narrow(b, &t);
}
