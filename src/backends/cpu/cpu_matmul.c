/* cpu_matmul.c: matrix products of all types, in batches: floats through cpu_gemm.c, integers in
 * plain loops.
 */
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

/* ---- integers -------------------------------------------------------------------------------- */
/* Unsigned arithmetic: overflow wraps; C is dense there. */
#define INTEGER_GEMM(NAME, U)                                                                      \
    static void NAME(const fxi_gemm *g)                                                            \
    {                                                                                              \
        memset(g->c, 0, (size_t)(g->m * g->n) * sizeof(U));                                        \
        for (int64_t j = 0; j < g->n; j++)                                                         \
            for (int64_t p = 0; p < g->k; p++) {                                                   \
                const U *a = (const U *)g->a + p * g->csa;                                         \
                const U b = ((const U *)g->b)[p * g->rsb + j * g->csb];                            \
                U *c = (U *)g->c + j * g->m;                                                       \
                for (int64_t i = 0; i < g->m; i++)                                                 \
                    c[i] = (U)(c[i] + a[i * g->rsa] * b);                                          \
            }                                                                                      \
    }
INTEGER_GEMM(gemm_i32, uint32_t)
INTEGER_GEMM(gemm_i64, uint64_t)
INTEGER_GEMM(gemm_u8, uint8_t)

static fx_status gemm_any(int dtype, const fxi_gemm *g)
{
    static void (*const integer[FX_DTYPE_COUNT])(const fxi_gemm *) = {
        [FX_DTYPE_I32] = gemm_i32, [FX_DTYPE_I64] = gemm_i64, [FX_DTYPE_U8] = gemm_u8};
    if (dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64)
        return fxi_cpu_gemm(dtype, g);
    if (g->m > 0 && g->n > 0)
        integer[dtype](g);
    return FX_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */
/* The walk of an operand over the output's batch axes; an axis of size 1 is repeated. */
static fxi_walk batch_walk(const fxi_tensor *out, const fxi_tensor *t)
{
    int64_t stride[FX_MAX_DIMS] = {0};
    for (int d = 2; d < out->ndim; d++)
        stride[d] = d < t->ndim && t->shape[d] != 1 ? t->stride[d] : 0;
    fxi_walk w;
    fxi_walk_init(&w, out->ndim > 2 ? out->ndim - 2 : 0, out->shape + 2, stride + 2);
    return w;
}

static fxi_gemm product_of(const fxi_step *step)
{
    const fxi_tensor *a = &step->in[0], *b = &step->in[1];
    const int ta = step->attr.i[0] != 0, tb = step->attr.i[1] != 0;
    return (fxi_gemm){.m = step->out.shape[0],
                      .n = step->out.shape[1],
                      .k = a->shape[!ta],
                      .rsa = a->stride[ta],
                      .csa = a->stride[!ta],
                      .rsb = b->stride[tb],
                      .csb = b->stride[!tb],
                      .csc = step->out.shape[0]};
}

fx_status fxi_cpu_matmul(const fxi_step *step, const void *const *in, void *out, fxi_run *run)
{
    const int dtype = step->out.dtype;
    if (dtype > FX_DTYPE_U8)
        return fxi_cpu_no_dtype(run, step, dtype);
    const size_t size = fxi_cpu_size(dtype);
    fxi_gemm g = product_of(step);
    fxi_walk wa = batch_walk(&step->out, &step->in[0]), wb = batch_walk(&step->out, &step->in[1]);
    const int64_t batch = fxi_length(step->out.ndim - 2, step->out.shape + 2);
    for (int64_t k = 0; k < batch; k++) {
        g.a = fxi_at(in[0], wa.offset, size);
        g.b = fxi_at(in[1], wb.offset, size);
        g.c = fxi_at_out(out, k * g.m * g.n, size);
        if (gemm_any(dtype, &g))
            return fxi_cpu_no_memory(run, step);
        fxi_walk_next(&wa);
        fxi_walk_next(&wb);
    }
    return FX_OK;
}
