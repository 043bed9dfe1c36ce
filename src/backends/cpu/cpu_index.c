/* cpu_index.c: gather and scatter along one axis.
 *
 * gather:  y[…, i…, …] = x[…, idx[i…], …]    the axis is replaced by the axes of idx
 * scatter: y[…, idx[i…], …] ⊕= src[…, i…, …]  in the order of the indices, so sums are
 * deterministic Indices are read once into dense Int64 and checked there: nothing is written when
 * one is out of range. Both see their arrays as inner × axis × outer. x may have any strides; a src
 * that is not dense is copied first.
 */
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

/* The indices as dense Int64 in *out (to be freed); n is the size along the axis. */
static fx_status read_indices(const fxi_step *step, const void *in, int axis, int64_t n,
                              int64_t **out, fxi_run *run)
{
    const fxi_tensor *t = &step->in[1];
    const int64_t count = fxi_tensor_length(t);
    const bool narrow = t->dtype == FX_DTYPE_I32;
    *out = NULL;
    if (!narrow && t->dtype != FX_DTYPE_I64)
        return fxi_cpu_no_dtype(run, step, t->dtype);
    int64_t *idx = fxi_malloc((size_t)count * sizeof *idx);
    if (!idx)
        return fxi_cpu_no_memory(run, step);
    fxi_cpu_copy(t, in, idx);
    const int32_t *small = (const int32_t *)(const void *)idx;
    for (int64_t k = count; narrow && k-- > 0;) { /* backwards: in place */
        int32_t v;
        memcpy(&v, small + k, sizeof v);
        idx[k] = v;
    }
    for (int64_t k = 0; k < count; k++)
        if (idx[k] < 0 || idx[k] >= n) {
            const long long bad = idx[k];
            fxi_free(idx);
            return fxi_cpu_fail(run, FX_STATUS_ARGUMENT, step,
                                "index %lld is out of range for axis %d of size %lld", bad, axis,
                                (long long)n);
        }
    *out = idx;
    return FX_OK;
}

/* ---- gather ---------------------------------------------------------------------------------- */
/* out[k] = x[idx[k]·stride] */
#define PICK(NAME, T)                                                                              \
    static void NAME(void *out, const void *x, const int64_t *idx, int64_t n, int64_t stride)      \
    {                                                                                              \
        for (int64_t k = 0; k < n; k++)                                                            \
            ((T *)out)[k] = ((const T *)x)[idx[k] * stride];                                       \
    }
PICK(pick1, uint8_t)
PICK(pick2, uint16_t)
PICK(pick4, uint32_t)
PICK(pick8, uint64_t)

static void pick(void *out, const void *x, const int64_t *idx, int64_t n, int64_t stride,
                 size_t size)
{
    static void (*const picks[])(void *, const void *, const int64_t *, int64_t,
                                 int64_t) = {[1] = pick1, [2] = pick2, [4] = pick4, [8] = pick8};
    picks[size](out, x, idx, n, stride);
}

static void gather(const fxi_tensor *x, int axis, const void *in, const int64_t *idx, int64_t n,
                   char *out)
{
    const size_t size = fxi_cpu_size(x->dtype);
    const int64_t stride = x->stride[axis];
    fxi_walk inner, outer;
    fxi_walk_init(&inner, axis, x->shape, x->stride);
    fxi_walk_init(&outer, x->ndim - axis - 1, x->shape + axis + 1, x->stride + axis + 1);
    const int64_t run = fxi_walk_length(&inner), rows = fxi_walk_length(&outer);
    for (int64_t o = 0; o < rows && run > 0; o++, fxi_walk_next(&outer)) {
        const void *base = fxi_at(in, outer.offset, size);
        if (run == 1) {
            pick(out, base, idx, n, stride, size);
            out += n * (int64_t)size;
            continue;
        }
        for (int64_t k = 0; k < n; k++, out += run * (int64_t)size)
            fxi_walk_read(&inner, fxi_at(base, idx[k] * stride, size), size, out, run);
    }
}

fx_status fxi_cpu_gather(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    const fxi_tensor *x = &step->in[0];
    const int axis = (int)step->attr.i[0];
    int64_t *idx;
    const fx_status status = read_indices(step, in[1], axis, x->shape[axis], &idx, run);
    if (status)
        return status;
    gather(x, axis, in[0], idx, fxi_tensor_length(&step->in[1]), out);
    fxi_free(idx);
    return FX_OK;
}

/* ---- scatter --------------------------------------------------------------------------------- */
/* out[i] = out[i] ⊕ src[i] over one run of the inner axes; U: the type to compute in. */
#define MERGE(NAME, T, U, EXPR)                                                                    \
    static void NAME(void *out, const void *src, int64_t n)                                        \
    {                                                                                              \
        T *a = out;                                                                                \
        const T *b = src;                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const U p = (U)a[i], q = (U)b[i];                                                      \
            a[i] = (T)(EXPR);                                                                      \
        }                                                                                          \
    }
#define MERGES(S, T, U)                                                                            \
    MERGE(sum_##S, T, U, p + q)                                                                    \
    MERGE(prod_##S, T, U, p *q)                                                                    \
    MERGE(max_##S, T, T, q > p || q != q ? q : p)                                                  \
    MERGE(min_##S, T, T, q < p || q != q ? q : p)
MERGES(f32, float, float)
MERGES(f64, double, double)
MERGES(i32, int32_t, uint32_t)
MERGES(i64, int64_t, uint64_t)
MERGES(u8, uint8_t, uint8_t)

typedef void (*merge_fn)(void *, const void *, int64_t);
#define ROW(n)                                                                                     \
    {                                                                                              \
        n##_f32, n##_f64, n##_i32, n##_i64, n##_u8, NULL                                           \
    }
static const merge_fn merges[4][FXI_C_COUNT] = {
    [FXI_SUM] = ROW(sum), [FXI_MAX] = ROW(max), [FXI_MIN] = ROW(min), [FXI_PROD] = ROW(prod)};

/* The neutral element everywhere: what an empty reduction of the kind and type gives. */
static void fill_neutral(int kind, const fxi_tensor *t, char *out)
{
    const fxi_reducer *r = &fxi_cpu_simd()->reduce[kind][t->dtype];
    const size_t size = fxi_cpu_size(t->dtype);
    double acc;
    char value[8];
    r->init(&acc, 1);
    r->done(&acc, 1, value);
    fxi_copy_strided(out, value, fxi_tensor_length(t), 0, size);
}

static void scatter(const fxi_step *step, const char *src, const int64_t *idx, int64_t n, char *out)
{
    const fxi_tensor *t = &step->out;
    const int axis = (int)step->attr.i[1];
    const int64_t size = (int64_t)fxi_cpu_size(t->dtype);
    const int64_t inner = fxi_length(axis, t->shape);
    const int64_t outer = fxi_length(t->ndim - axis - 1, t->shape + axis + 1);
    const merge_fn merge = merges[step->attr.i[0]][t->dtype];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < n; k++, src += inner * size)
            merge(out + (o * t->shape[axis] + idx[k]) * inner * size, src, inner);
}

fx_status fxi_cpu_scatter(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    const fxi_tensor *src = &step->in[0];
    const int axis = (int)step->attr.i[1];
    int64_t *idx;
    void *copy = NULL;
    if (src->dtype != step->out.dtype || src->dtype >= FX_DTYPE_BOOL)
        return fxi_cpu_no_dtype(run, step, src->dtype);
    fx_status status = read_indices(step, in[1], axis, step->out.shape[axis], &idx, run);
    if (status)
        return status;
    if (!fxi_cpu_is_dense(src)) {
        copy = fxi_aligned(64, (size_t)fxi_tensor_length(src) * fxi_cpu_size(src->dtype));
        status = copy ? fxi_cpu_copy(src, in[0], copy) : fxi_cpu_no_memory(run, step);
    }
    if (!status) {
        fill_neutral((int)step->attr.i[0], &step->out, out);
        scatter(step, copy ? copy : in[0], idx, fxi_tensor_length(&step->in[1]), out);
    }
    fxi_free(copy);
    fxi_free(idx);
    return status;
}
