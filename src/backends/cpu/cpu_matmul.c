/* cpu_matmul.c: matrix products of all types, in batches. Floats are computed by cpu_gemm.c,
 * integers in plain loops.
 */
#include "cpu_kernels.h"
#include "cpu_parallel.h"
#include "cpu_program.h"
#include "cpu_walk.h"
#include "memory.h"
#include <string.h>

/* ---- integers -------------------------------------------------------------------------------- */
/* Integer products are rare (counts, indices), so they have neither tiles nor threads within one
 * product. Unsigned arithmetic, so that overflow wraps instead of being undefined. The inner loop
 * runs down a column of A and of C, whose elements are usually neighbours in memory. */
#define INTEGER_GEMM(NAME, U)                                                                      \
    static void NAME(const fxi_gemm *g)                                                            \
    {                                                                                              \
        for (int64_t j = 0; j < g->n; j++) {                                                       \
            memset((U *)g->c + j * g->csc, 0, (size_t)g->m * sizeof(U));                           \
            for (int64_t p = 0; p < g->k; p++) {                                                   \
                const U *a = (const U *)g->a + p * g->csa;                                         \
                const U b = ((const U *)g->b)[p * g->rsb + j * g->csb];                            \
                U *c = (U *)g->c + j * g->csc;                                                     \
                for (int64_t i = 0; i < g->m; i++)                                                 \
                    c[i] = (U)(c[i] + a[i * g->rsa] * b);                                          \
            }                                                                                      \
        }                                                                                          \
    }
INTEGER_GEMM(gemm_i32, uint32_t)
INTEGER_GEMM(gemm_i64, uint64_t)
INTEGER_GEMM(gemm_u8, uint8_t)

static void (*const integer_gemm[FX_DTYPE_COUNT])(const fxi_gemm *) = {
    [FX_DTYPE_I32] = gemm_i32, [FX_DTYPE_I64] = gemm_i64, [FX_DTYPE_U8] = gemm_u8};

/* ---- preparing ------------------------------------------------------------------------------- */
/* The step's `ready`. A product is planned once: sizes of blocks, panels and the division between
 * threads depend only on the step. All products of a batch share a plan. */
typedef struct prepared {
    void *epilogue;         /* a program; NULL: none */
    fxi_gemm_plan *product; /* NULL: integers, or an empty product */
    int addend; /* the input that the product adds (fxi_gemm.d), so that the epilogue begins with
                   its second instruction; 0: none */
} prepared;

/* ---- the step -------------------------------------------------------------------------------- */
/* The walk of an operand over the output's batch axes. An axis of size 1 is repeated: stride 0. */
static fxi_walk batch_walk(const fx_tensor *out, const fx_tensor *t)
{
    int64_t stride[FX_MAX_DIMS] = {0};
    /* Axes 0 and 1 are the matrix; an operand with fewer axes is repeated. */
    for (int d = 2; d < out->ndim; d++)
        stride[d] = d < t->ndim && t->shape[d] != 1 ? t->stride[d] : 0;
    fxi_walk w;
    fxi_walk_init(&w, out->ndim > 2 ? out->ndim - 2 : 0, out->shape + 2, stride + 2);
    return w;
}

/* A transposed operand only exchanges its strides; the product packs it or reads it in place. If
 * the elements of a row of C, not those of a column, are neighbours in memory, Cᵀ = Bᵀ·Aᵀ is
 * computed, which has the same bits. */
static fxi_gemm product_of(const fx_step *step)
{
    const fx_tensor *a = &step->in[0], *b = &step->in[1];
    const int ta = fx_step_matmul(step)->transpose_a, tb = fx_step_matmul(step)->transpose_b;
    const int64_t *c = step->out.stride;
    const fxi_gemm g = {.m = step->out.shape[0],
                        .n = step->out.shape[1],
                        .k = a->shape[!ta],
                        .rsa = a->stride[ta],
                        .csa = a->stride[!ta],
                        .rsb = b->stride[tb],
                        .csb = b->stride[!tb],
                        .csc = c[1]};
    return c[0] == 1 ? g
                     : (fxi_gemm){.m = g.n,
                                  .n = g.m,
                                  .k = g.k,
                                  .rsa = g.csb,
                                  .csa = g.rsb,
                                  .rsb = g.csa,
                                  .csb = g.rsa,
                                  .csc = c[0]};
}

/* The products of a batch, which threads share. */
typedef struct batch {
    fxi_gemm g;                /* the first product */
    const fxi_gemm_plan *plan; /* NULL: none */
    int dtype;
    int64_t n, parts;
    fxi_walk a, b, c;
} batch;

/* The walks give each product's operands, so an operand that the batch repeats is never copied. */
static void run_range(const batch *p, int64_t from, int64_t to, void *memory)
{
    const size_t size = fxi_cpu_size(p->dtype);
    fxi_walk a = p->a, b = p->b, c = p->c;
    /* A thread's range may begin anywhere in the batch. */
    fxi_walk_seek(&a, from);
    fxi_walk_seek(&b, from);
    fxi_walk_seek(&c, from);
    for (int64_t k = from; k < to; k++) {
        fxi_gemm g = p->g;
        g.a = fxi_at(g.a, a.offset, size);
        g.b = fxi_at(g.b, b.offset, size);
        g.c = fxi_at_out(g.c, c.offset, size);
        if (p->plan)
            fxi_cpu_gemm_run_alone(p->plan, g.a, g.b, g.c, memory);
        else if (integer_gemm[p->dtype])
            integer_gemm[p->dtype](&g);
        else
            fxi_cpu_gemm_alone(p->dtype, &g, memory);
        fxi_walk_next(&a);
        fxi_walk_next(&b);
        fxi_walk_next(&c);
    }
}

static void run_part(void *user, int64_t part, void *memory)
{
    const batch *p = user;
    int64_t from, to;
    fxi_cpu_range(p->n, p->parts, part, &from, &to);
    run_range(p, from, to, memory);
}

/* A single product is divided between the threads. In a batch one thread computes a whole product,
 * so that threads need not wait for each other inside one. */
static fx_status run_batch(const fx_step *step, const fxi_gemm *g, int64_t n,
                           const fxi_gemm_plan *plan)
{
    const int dtype = step->out.dtype;
    /* If product_of computes Cᵀ = Bᵀ·Aᵀ, the step's second operand is the first factor. */
    const bool is_float = !integer_gemm[dtype], swapped = step->out.stride[0] != 1;
    if (is_float && n == 1)
        return fxi_cpu_gemm(dtype, g);
    const double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)n;
    batch p = {.g = *g,
               .plan = plan,
               .dtype = dtype,
               .n = n,
               .parts = fxi_cpu_parts(n, fxi_cpu_cost(0, flops)),
               .a = batch_walk(&step->out, &step->in[swapped]),
               .b = batch_walk(&step->out, &step->in[!swapped]),
               .c = batch_walk(&step->out, &step->out)};
    /* Computed once: all products of a batch have the same sizes. */
    const size_t bytes = plan       ? fxi_cpu_gemm_plan_bytes(plan)
                         : is_float ? fxi_cpu_gemm_bytes(dtype, g)
                                    : 0;
    return fxi_cpu_parallel_scratch(p.parts, bytes, run_part, &p);
}

/* The number of the input that the epilogue adds first, if it is a matrix or one column (a bias)
 * whose rows are neighbours in memory, as those of the product are; else 0. Only of a single
 * product: a batch may repeat an operand. */
static int addend_of(const fx_step *step)
{
    const fx_program e = fx_step_program(step);
    const int64_t products = fxi_length(step->out.ndim - 2, step->out.shape + 2);
    if (e.n == 0 || e.instr[0].op != FX_OP_ADD || products != 1 || step->out.stride[0] != 1)
        return 0;
    /* Register 0 is the product, and register r the input r + 1. */
    const int input = 1 + (e.instr[0].src[0] ? e.instr[0].src[0] : e.instr[0].src[1]);
    return step->in[input].stride[0] == 1 ? input : 0;
}

/* Plans the product. False if the allocation fails. */
static bool plan_product(const fx_step *step, prepared *p)
{
    fxi_gemm g = product_of(step);
    const int addend = addend_of(step), dtype = step->out.dtype;
    g.csd = addend ? step->in[addend].stride[1] : 0;
    if (dtype == FX_DTYPE_BOOL || integer_gemm[dtype] || g.m == 0 || g.n == 0 || g.k == 0)
        return true;
    p->product = fxi_cpu_gemm_prepare(dtype, &g);
    p->addend = p->product && fxi_cpu_gemm_adds(p->product) ? addend : 0;
    return p->product != NULL;
}

/* fxi_cpu_epilogue_prepare_rest stores its program in step->ready. The program then moves to
 * `prepared`, and step->ready becomes `prepared`. */
fx_status fxi_cpu_matmul_prepare(fx_step *step)
{
    prepared *p = fxi_calloc(1, sizeof *p);
    if (!p || !plan_product(step, p)) {
        fxi_free(p);
        return fxi_cpu_no_memory(step);
    }
    const fx_status status = fxi_cpu_epilogue_prepare_rest(step, p->addend);
    p->epilogue = step->ready;
    step->ready = p;
    if (status) {
        fxi_cpu_matmul_release(step);
        step->ready = NULL;
    }
    return status;
}

void fxi_cpu_matmul_release(fx_step *step)
{
    prepared *p = step->ready;
    fxi_program_free(p->epilogue);
    fxi_free(p->product);
    fxi_free(p);
}

const void *fxi_cpu_matmul_epilogue(const fx_step *step)
{
    return ((const prepared *)step->ready)->epilogue;
}

static fx_status multiply(const fx_step *step, const void *const *in, void *c)
{
    const prepared *p = step->ready;
    const int64_t n = fxi_length(step->out.ndim - 2, step->out.shape + 2);
    /* The order of the factors in product_of. */
    const bool swapped = step->out.stride[0] != 1;
    const void *a = in[swapped], *b = in[!swapped];
    if (p && p->product && n == 1)
        return fxi_cpu_gemm_run(p->product, a, b, p->addend ? in[p->addend] : NULL, c);
    fxi_gemm g = product_of(step);
    g.a = a;
    g.b = b;
    g.c = c;
    /* An empty C. A product without terms (k = 0) still writes zeros. */
    return n == 0 || g.m == 0 || g.n == 0 ? FX_OK : run_batch(step, &g, n, p ? p->product : NULL);
}

fx_status fxi_cpu_matmul(const fx_step *step, const void *const *in, void *out, fx_run *run)
{
    (void)run;
    const int dtype = step->out.dtype;
    if (dtype == FX_DTYPE_BOOL)
        return fxi_cpu_no_dtype(step, dtype);
    if (multiply(step, in, out))
        return fxi_cpu_no_memory(step);
    /* A pass of its own over C: within a part of the product, columns of C are so short that the
     * interpreter's calls would take longer than the pass (docs/design/0005). Only an addition is
     * part of the product (addend_of). */
    if (fx_step_has_epilogue(step) && fxi_cpu_matmul_epilogue(step))
        fxi_cpu_finish(&(fxi_finish){step, in, out});
    return FX_OK;
}
