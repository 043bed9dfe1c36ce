/* cpu_matmul.c: matrix products: the blocked product for floats, plain loops for integers, batches.
 *
 * The scheme is Goto's ("Anatomy of high-performance matrix multiplication", 2008): a block of B
 * and a block of A are packed into panels that fit the caches, and a register tile of mr×nr
 * (cpu_isa_gemm.h) runs over them. Any strides are absorbed by packing. When the product's shape
 * suits the tile better turned round, Cᵀ = Bᵀ·Aᵀ is computed instead. Each element is a sum over k
 * in order, in blocks of KC terms, whatever the path: results do not depend on how a batch or C is
 * divided.
 */
#include "cpu_simd.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

enum {
    KC = 256,
    MC = 128, /* a multiple of every mr */
    NC = 504, /* a multiple of every nr */
    STACK_BYTES = 16384,
    SMALL_PRODUCT = 4096 /* multiplications below which packing does not pay */
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static void turn_round(fxi_gemm *g)
{
    *g = (fxi_gemm){.m = g->n,
                    .n = g->m,
                    .k = g->k,
                    .a = g->b,
                    .b = g->a,
                    .c = g->c,
                    .rsa = g->csb,
                    .csa = g->rsb,
                    .rsb = g->csa,
                    .csb = g->rsa,
                    .rsc = g->csc,
                    .csc = g->rsc,
                    .accumulate = g->accumulate};
}

/* Work of the register tiles that cover m×n. A tile that cannot be written as whole columns costs
 * more. */
static double cover(const fxi_gemm_core *core, int64_t m, int64_t n, int64_t rsc)
{
    const double area = (double)round_up(m, core->mr) * (double)round_up(n, core->nr);
    return rsc == 1 ? area : area * 1.25;
}

typedef struct blocks {
    const fxi_gemm_core *core;
    size_t size;
    char *a, *b;
} blocks;

static void run_block(const fxi_gemm *g, const blocks *p, int64_t m, int64_t n, int64_t k, char *c,
                      bool accumulate)
{
    const int mr = p->core->mr, nr = p->core->nr;
    for (int64_t j = 0; j < n; j += nr)
        for (int64_t i = 0; i < m; i += mr)
            p->core->tile(k, fxi_at(p->a, i * k, p->size), fxi_at(p->b, j * k, p->size),
                          fxi_at_out(c, i * g->rsc + j * g->csc, p->size), g->rsc, g->csc,
                          (int)min64(mr, m - i), (int)min64(nr, n - j), accumulate);
}

static void run_blocks(const fxi_gemm *g, const blocks *p)
{
    for (int64_t j = 0; j < g->n; j += NC)
        for (int64_t l = 0; l < g->k; l += KC) {
            const int64_t n = min64(NC, g->n - j), k = min64(KC, g->k - l);
            p->core->pack(p->core->nr, fxi_at(g->b, l * g->rsb + j * g->csb, p->size), g->csb,
                          g->rsb, n, k, p->b);
            for (int64_t i = 0; i < g->m; i += MC) {
                const int64_t m = min64(MC, g->m - i);
                p->core->pack(p->core->mr, fxi_at(g->a, i * g->rsa + l * g->csa, p->size), g->rsa,
                              g->csa, m, k, p->a);
                run_block(g, p, m, n, k, fxi_at_out(g->c, i * g->rsc + j * g->csc, p->size),
                          l > 0 || g->accumulate);
            }
        }
}

static fx_status gemm_packed(const fxi_gemm *g, const fxi_gemm_core *core, size_t size)
{
    _Alignas(64) char stack[STACK_BYTES];
    const int64_t k = min64(KC, g->k);
    const int64_t rows = round_up(min64(MC, g->m), core->mr);
    const int64_t columns = round_up(min64(NC, g->n), core->nr);
    const size_t a_bytes = (size_t)round_up(rows * k * (int64_t)size, 64);
    const size_t bytes = a_bytes + (size_t)(columns * k) * size;
    char *heap = NULL;
    if (bytes > sizeof stack && !(heap = fxi_aligned(64, bytes)))
        return FX_STATUS_MEMORY;
    blocks p = {.core = core, .size = size, .a = heap ? heap : stack};
    p.b = p.a + a_bytes;
    run_blocks(g, &p);
    fxi_free(heap);
    return FX_OK;
}

static bool small_product(const fxi_gemm *g)
{
    if (g->k > KC)
        return false;
    return g->m * g->n <= SMALL_PRODUCT / (g->k ? g->k : 1) || (g->n <= 2 && g->rsa == 1) ||
           g->k == 0;
}

fx_status fxi_cpu_gemm(int dtype, const fxi_gemm *given)
{
    const fxi_gemm_core *core = &fxi_cpu_simd()->gemm[dtype == FX_DTYPE_F64];
    const size_t size = fxi_cpu_size(dtype);
    fxi_gemm g = *given;
    if (g.m == 0 || g.n == 0)
        return FX_OK;
    if (g.k > 0 && cover(core, g.n, g.m, g.csc) < cover(core, g.m, g.n, g.rsc))
        turn_round(&g);
    if (small_product(&g)) {
        core->small(&g);
        return FX_OK;
    }
    return gemm_packed(&g, core, size);
}

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
                      .rsc = 1,
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
