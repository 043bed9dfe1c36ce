/* gpurt_blas.c: describes steps as products that the vendor's library computes; see gpurt_blas.h.
 */
#include "gpurt_blas.h"

#include "gpu_text.h"

/* One factor, op(X), of rows×columns: its columns or its rows must be dense. */
static bool read_factor(const fx_tensor *t, bool transposed, bool *out_transpose, int64_t *out_ld)
{
    const int64_t rows = t->shape[transposed], columns = t->shape[!transposed],
                  row = t->stride[transposed], column = t->stride[!transposed];
    if ((rows == 1 || row == 1) && (columns == 1 || column >= rows)) {
        *out_transpose = false;
        *out_ld = columns == 1 ? rows : column;
        return true;
    }
    *out_transpose = true;
    *out_ld = rows == 1 ? columns : row;
    return (columns == 1 || column == 1) && (rows == 1 || row >= columns);
}

/* The stride along an axis of the batch; 0 where the operand is repeated. */
static int64_t batch_stride(const fx_tensor *t, int axis)
{
    return axis < t->ndim ? fxi_gpu_stride(t, axis) : 0;
}

/* Libraries have one axis of batches: the batches of the step must follow each other at a constant
 * distance. */
static bool read_batches(const fx_step *s, fxi_rt_product *p)
{
    p->batches = 1;
    p->stride_c = p->m * p->n;
    for (int d = 2; d < s->out.ndim; d++) {
        const int64_t a = batch_stride(&s->in[0], d), b = batch_stride(&s->in[1], d);
        if (s->out.shape[d] == 1)
            continue;
        if (p->batches == 1) {
            p->stride_a = a;
            p->stride_b = b;
        } else if (a != p->stride_a * p->batches || b != p->stride_b * p->batches)
            return false;
        p->batches *= s->out.shape[d];
    }
    if (p->batches > 1 && p->stride_a == 0 && !p->transpose_b && p->stride_b == p->ldb * p->n) {
        /* All batches have the same first factor, so they are one product with more columns. */
        p->n *= p->batches;
        p->batches = 1;
        p->stride_b = 0;
    }
    return p->stride_a >= 0 && p->stride_b >= 0;
}

/* A bias is the only epilogue that a library computes with the same bits as we do. cuBLASLt's ReLU
 * makes 0 of NaN, and both libraries round a 16-bit product once, after the bias, while separate
 * steps round it twice. */
static bool read_end(const fx_step *s, fxi_rt_product *p)
{
    const fx_program end = fx_step_program(s);
    p->bias = end.n > 0;
    if (!p->bias)
        return true;
    bool vector = end.n == 1 && end.instr[0].op == FX_OP_ADD && s->nin == 3 &&
                  (p->dtype == FX_DTYPE_F32 || p->dtype == FX_DTYPE_F64);
    for (int d = 0; vector && d < s->in[2].ndim; d++)
        vector = s->in[2].stride[d] == (d == 0) || fxi_gpu_stride(&s->in[2], d) == 0;
    return vector && (p->m == 1 || s->in[2].stride[0] == 1);
}

static bool read_product(const fx_step *s, fxi_rt_product *p)
{
    const fx_matmul_step *what = fx_step_matmul(s);
    const int dtype = s->out.dtype;
    *p = (fxi_rt_product){.dtype = dtype,
                          .may_tf32 = what->precision != FX_PRECISION_HIGHEST,
                          .m = s->out.shape[0],
                          .n = s->out.shape[1],
                          .k = s->in[0].shape[!what->transpose_a]};
    return (dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
            dtype == FX_DTYPE_BF16) &&
           p->k > 0 && fx_tensor_length(&s->out) > 0 && !fxi_gpu_is_ordered(&s->out) &&
           read_factor(&s->in[0], what->transpose_a, &p->transpose_a, &p->lda) &&
           read_factor(&s->in[1], what->transpose_b, &p->transpose_b, &p->ldb) &&
           read_batches(s, p);
}

bool fxi_rt_blas_step(fxi_gpu_builder *b)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    fxi_rt_product p;
    if (!read_product(b->step, &p) || !fxi_rt_library_has(&fxi_rt_blas, d, &d->blas))
        return false;
    if (read_end(b->step, &p))
        return fxi_rt_blas_product(b, &p);
    /* The planner then makes the epilogue a step of its own: the library's product saves more time
     * than the second launch costs. */
    fxi_gpu_too_much(b, "an epilogue that %s does not compute", fxi_rt_blas.names[0]);
    return true;
}
