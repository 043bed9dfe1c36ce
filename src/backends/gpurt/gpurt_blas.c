/* gpurt_blas.c: gives products to the vendor's library, with wider copies of the matrices if they
 * pay; see gpurt_blas.h.
 */
#include "gpurt_blas.h"

#include <stdio.h>

/* ---- wider matrices -------------------------------------------------------------------------- */

/* The fast kernels for 16-bit floats load and store 16 bytes at once: leading dimensions must be
 * multiples of 8 elements, and so must the sizes along which elements are neighbours. Copying a
 * matrix costs at least as much as PAID operations on each of its elements, and launches cost more
 * than small products save. */
enum { UNIT = 8, PAID = 256, LEAST_PADDED = 1 << 24 };

/* A matrix in memory: its leading dimension, and the sizes of the product that are its numbers of
 * rows and columns. The elements of a column are neighbours. */
typedef struct extent {
    int64_t *ld, *rows, *columns;
} extent;

static extent extent_of(fxi_gpu_product *p, int which)
{
    switch (which) {
    case FXI_GPU_A:
        return (extent){&p->lda, p->transpose_a ? &p->k : &p->m, p->transpose_a ? &p->m : &p->k};
    case FXI_GPU_B:
        return (extent){&p->ldb, p->transpose_b ? &p->n : &p->k, p->transpose_b ? &p->k : &p->n};
    default:
        return (extent){&p->ldc, &p->m, &p->n};
    }
}

static int64_t widened(int64_t size)
{
    return fxi_gpu_divide_up(size, UNIT) * UNIT;
}

static bool is_unaligned(const extent *e)
{
    return *e->ld % UNIT != 0 && *e->columns > 1;
}

/* Widens the columns of unaligned matrices. If that makes a size of the product grow, the other
 * matrix with this size is copied too. All copies have zeros in the added elements, which change no
 * sum. Returns the elements of all copies. */
static int64_t widen_matrices(fxi_gpu_product *p)
{
    fxi_gpu_product was = *p;
    int64_t copied = 0;
    for (int k = 0; k < FXI_GPU_MATRICES; k++) {
        const extent e = extent_of(p, k);
        if (is_unaligned(&e))
            *e.rows = widened(*e.rows);
    }
    for (int k = 0; k < FXI_GPU_MATRICES; k++) {
        const extent e = extent_of(p, k), old = extent_of(&was, k);
        if (!is_unaligned(&old) && *e.rows == *old.rows && *e.columns == *old.columns)
            continue;
        p->narrow[k] = (fxi_gpu_matrix){p->at[k], *old.rows, *old.columns, *old.ld};
        *e.ld = widened(*e.rows);
        copied += *e.ld * *e.columns;
    }
    return copied;
}

/* False if no matrix is copied, or if it does not pay. The copies take at most a sixteenth of the
 * device's memory. */
static bool widen(const fxi_rt_device *d, fxi_gpu_product *p)
{
    const double operations = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    const int64_t copied = widen_matrices(p);
    return copied > 0 && (p->dtype == FX_DTYPE_F16 || p->dtype == FX_DTYPE_BF16) && p->calls == 1 &&
           p->batch.n == 1 && operations >= LEAST_PADDED && operations >= PAID * (double)copied &&
           copied * 2 <= d->memory / 16;
}

/* The part of a wide copy that is written or read: all of a factor, with zeros in the added
 * elements, but only the step's own elements of the result. */
static fxi_gpu_matrix wide_of(fxi_gpu_product *p, int which)
{
    const extent e = extent_of(p, which);
    const fxi_gpu_matrix *narrow = &p->narrow[which];
    return which == FXI_GPU_C ? (fxi_gpu_matrix){p->at[which], narrow->rows, narrow->columns, *e.ld}
                              : (fxi_gpu_matrix){p->at[which], *e.ld, *e.columns, *e.ld};
}

void fxi_rt_blas_before(fxi_gpu_builder *b, fxi_gpu_product *p)
{
    for (int k = 0; k < FXI_GPU_MATRICES; k++) {
        const extent e = extent_of(p, k);
        if (p->narrow[k].ld == 0)
            continue;
        const int64_t bytes = *e.ld * *e.columns * (int64_t)fxi_gpu_size(p->dtype);
        p->at[k] = (fxi_gpu_buffer_ref){fxi_gpu_work(b, bytes), FXI_GPU_WORK};
        const fxi_gpu_matrix wide = wide_of(p, k);
        if (k != FXI_GPU_C)
            fxi_gpu_copy_matrix(b, fxi_gpu_size(p->dtype), &p->narrow[k], &wide);
    }
}

void fxi_rt_blas_after(fxi_gpu_builder *b, fxi_gpu_product *p)
{
    const fxi_gpu_matrix wide = wide_of(p, FXI_GPU_C);
    if (p->narrow[FXI_GPU_C].ld > 0)
        fxi_gpu_copy_matrix(b, fxi_gpu_size(p->dtype), &wide, &p->narrow[FXI_GPU_C]);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* A bias is the only epilogue that a library computes with the same bits as cflux's kernels.
 * cuBLASLt's ReLU makes 0 of NaN, and both libraries round a 16-bit product once, after the bias,
 * while separate steps round it twice. */
static bool read_end(const fx_step *s, fxi_gpu_product *p)
{
    const fx_program end = fx_step_program(s);
    p->bias = end.n > 0;
    if (!p->bias)
        return true;
    bool vector = end.n == 1 && end.instr[0].op == FX_OP_ADD && s->nin == 3 &&
                  (p->dtype == FX_DTYPE_F32 || p->dtype == FX_DTYPE_F64);
    for (int d = 0; vector && d < s->in[2].ndim; d++)
        vector = s->in[2].stride[d] == (d == 0) || fxi_gpu_stride(&s->in[2], d) == 0;
    return vector && p->at[FXI_GPU_A].k == 0 && (p->m == 1 || s->in[2].stride[0] == 1);
}

/* The names of the ways to compute a step (fxi_gpu_compare). */
enum { UNCHANGED, WIDENED };

static void write_key(const fxi_rt_device *d, const fxi_gpu_product *p, char *key)
{
    snprintf(key, FXI_RT_KEY_BYTES,
             "wider product, %s, driver %s, %s %lld, type %d, %lldx%lldx%lld", d->gpu.name,
             d->driver, fxi_rt_blas.names[0], (long long)fxi_rt_blas_version(), p->dtype,
             (long long)p->m, (long long)p->n, (long long)p->k);
    fxi_rt_append(key, ", transposed %d %d, ld %lld %lld %lld, bias %d", p->transpose_a,
                  p->transpose_b, (long long)p->lda, (long long)p->ldb, (long long)p->ldc, p->bias);
}

/* Adds the product with the step's own matrices, or with copies that have wider leading
 * dimensions. */
static bool add_product(fxi_gpu_builder *b, const fxi_gpu_product *p)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    fxi_gpu_product wide = *p;
    char key[FXI_RT_KEY_BYTES];
    int32_t way = UNCHANGED;
    const bool compares = widen(d, &wide) && fxi_rt_measures(d);
    if (compares)
        write_key(d, p, key);
    const bool known = compares && fxi_gpu_way_known(fxi_rt_host, key, &way);
    if (known && way == WIDENED && fxi_rt_blas_product(b, &wide)) {
        fxi_gpu_follow(b, key, UNCHANGED);
        return true;
    }
    if (!fxi_rt_blas_product(b, p))
        return false;
    if (compares && !known) {
        fxi_gpu_compare(b, &fxi_rt_trial, key, UNCHANGED);
        fxi_gpu_other_way(b, WIDENED);
        /* If the library refuses the product, the way is empty and is left out. */
        (void)fxi_rt_blas_product(b, &wide);
    }
    return true;
}

bool fxi_rt_blas_step(fxi_gpu_builder *b)
{
    fxi_rt_device *d = fxi_rt_of(b->device);
    fxi_gpu_product p;
    if (!fxi_gpu_product_read(b->step, &p) || !fxi_rt_library_has(&fxi_rt_blas, d, &d->blas))
        return false;
    if (read_end(b->step, &p))
        return add_product(b, &p);
    /* The planner then makes the epilogue a step of its own: the library's product saves more time
     * than the second launch costs. */
    fxi_gpu_too_much(b, "an epilogue that %s does not compute", fxi_rt_blas.names[0]);
    return true;
}
