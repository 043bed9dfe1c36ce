/* gpu_product.c: describes matmul steps as products that a vendor's library computes; see
 * gpu_product.h.
 */
#include "gpu_product.h"

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

/* ---- batches --------------------------------------------------------------------------------- */

/* A call costs a few microseconds, in which cflux's own kernels compute LEAST_OPERATIONS. */
enum { MOST_CALLS = 64, LEAST_OPERATIONS = 1 << 26 };

/* The stride along an axis of the batch; 0 where the operand is repeated. */
static int64_t batch_stride(const fx_tensor *t, int axis)
{
    return axis < t->ndim ? fxi_gpu_stride(t, axis) : 0;
}

/* Does axis `y` continue axis `x`, so that both are one axis? */
static bool continues(const fxi_gpu_batches *x, const fxi_gpu_batches *y)
{
    bool all = true;
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        all = all && y->stride[k] == x->stride[k] * x->n;
    return all;
}

/* Joins the axes of batches into as few axes as possible; returns their number. */
static int join_batches(const fx_step *s, const fxi_gpu_product *p, fxi_gpu_batches *axes)
{
    int n = 0;
    for (int d = 2; d < s->out.ndim; d++) {
        fxi_gpu_batches axis = {.n = s->out.shape[d]};
        for (int k = 0; k < FXI_GPU_MATRICES; k++)
            axis.stride[k] = p->at[k].role == FXI_GPU_OUT ? s->out.stride[d]
                                                          : batch_stride(&s->in[p->at[k].k], d);
        if (axis.n == 1)
            continue;
        if (n > 0 && continues(&axes[n - 1], &axis))
            axes[n - 1].n *= axis.n;
        else
            axes[n++] = axis;
    }
    return n;
}

/* Batches that have the same first factor, and whose columns follow each other, are one product
 * with more columns. */
static bool takes_columns(fxi_gpu_product *p, const fxi_gpu_batches *axis)
{
    const bool fits = axis->stride[FXI_GPU_A] == 0 && !p->transpose_b &&
                      axis->stride[FXI_GPU_B] == p->ldb * p->n &&
                      axis->stride[FXI_GPU_C] == p->ldc * p->n;
    p->n *= fits ? axis->n : 1;
    return fits;
}

/* The libraries have one axis of batches: the longest. Each combination of indices of the other
 * axes is a call of its own. */
static bool read_batches(const fx_step *s, fxi_gpu_product *p)
{
    fxi_gpu_batches axes[FX_MAX_DIMS];
    const int n = join_batches(s, p, axes), first = n > 0 && takes_columns(p, &axes[0]);
    int longest = first;
    for (int k = first + 1; k < n; k++)
        longest = axes[k].n > axes[longest].n ? k : longest;
    p->batch = longest < n ? axes[longest] : (fxi_gpu_batches){.n = 1};
    p->calls = 1;
    for (int k = first; k < n; k++)
        if (k != longest) {
            p->more[p->nmore++] = axes[k];
            p->calls *= axes[k].n;
        }
    const double operations = 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch.n;
    return p->batch.stride[FXI_GPU_A] >= 0 && p->batch.stride[FXI_GPU_B] >= 0 &&
           (p->calls == 1 || (p->calls <= MOST_CALLS && operations >= LEAST_OPERATIONS));
}

void fxi_gpu_product_addresses(const fxi_gpu_product *p, int64_t call, void *const *buffers,
                               char *out[FXI_GPU_MATRICES])
{
    const int64_t size = (int64_t)fxi_gpu_size(p->dtype);
    for (int k = 0; k < FXI_GPU_MATRICES; k++)
        out[k] = buffers[k];
    for (int d = 0; d < p->nmore; call /= p->more[d++].n)
        for (int k = 0; k < FXI_GPU_MATRICES; k++)
            out[k] += call % p->more[d].n * p->more[d].stride[k] * size;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Reads the factors and the result. A result whose rows are dense, not its columns, is computed as
 * its transpose: Cᵀ = Bᵀ·Aᵀ. */
static bool read_matrices(const fx_step *s, fxi_gpu_product *p)
{
    const fx_matmul_step *what = fx_step_matmul(s);
    const bool transposed_of[] = {what->transpose_a, what->transpose_b};
    bool swap;
    if (!read_factor(&s->out, false, &swap, &p->ldc))
        return false;
    p->m = s->out.shape[swap];
    p->n = s->out.shape[!swap];
    p->k = s->in[0].shape[!what->transpose_a];
    p->at[FXI_GPU_A] = (fxi_gpu_buffer_ref){swap, FXI_GPU_IN};
    p->at[FXI_GPU_B] = (fxi_gpu_buffer_ref){!swap, FXI_GPU_IN};
    p->at[FXI_GPU_C] = (fxi_gpu_buffer_ref){0, FXI_GPU_OUT};
    return p->k > 0 && fx_tensor_length(&s->out) > 0 &&
           read_factor(&s->in[swap], transposed_of[swap] != swap, &p->transpose_a, &p->lda) &&
           read_factor(&s->in[!swap], transposed_of[!swap] != swap, &p->transpose_b, &p->ldb);
}

bool fxi_gpu_product_read(const fx_step *s, fxi_gpu_product *p)
{
    const int dtype = s->out.dtype;
    *p = (fxi_gpu_product){.dtype = dtype,
                           .may_tf32 = fx_step_matmul(s)->precision != FX_PRECISION_HIGHEST};
    return (dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64 || dtype == FX_DTYPE_F16 ||
            dtype == FX_DTYPE_BF16) &&
           read_matrices(s, p) && read_batches(s, p);
}
