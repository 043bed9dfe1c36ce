/* cpu_gemm.c: the product of two matrices of Float32 or Float64.
 *
 * The scheme is Goto's ("Anatomy of high-performance matrix multiplication", 2008): for a block of
 * the sum over k, a block of B is packed into panels, then block after block of A, and a register
 * tile (cpu_isa_gemm.h) runs over them; the block of A stays in the second-level cache, a panel of
 * B in the first. An operand that lies well, or is used too rarely for a copy to pay, is read where
 * it is. Panels are packed when their first tile wants them, while others of the block are used.
 *
 * Each element is a sum over k in order, in blocks whose size depends on k alone, whatever the path
 * and the sizes of the rest: results do not depend on how a batch or C is divided.
 */
#include "cpu_simd.h"
#include "memory.h"
#include "strided.h"
#include <string.h>

#ifndef DEPTH
#define DEPTH   384
#define A_BYTES (384 << 10)
#define B_BYTES (4 << 20)
#endif
enum {
    STACK_BYTES = 16384,
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Cᵀ = Bᵀ·Aᵀ, for a C of one row or column. */
static void turn_round(fxi_gemm *g)
{
    const fxi_gemm t = *g;
    g->m = t.n, g->n = t.m;
    g->a = t.b, g->rsa = t.csb, g->csa = t.rsb;
    g->b = t.a, g->rsb = t.csa, g->csb = t.rsa;
    g->csc = 1;
}

typedef struct blocks {
    const fxi_gemm *g;
    const fxi_gemm_core *core;
    size_t size;
    int64_t mr, mc, nc, kc;
    bool pack_a, pack_b;
    char *a, *b;
} blocks;

/* One block of the loops: rows i … of A, columns j … of B, terms l … of the sum. */
typedef struct range {
    int64_t i, j, l, m, n, k;
} range;

/* Columns j … of the block as the tile's B. */
static int64_t take_columns(const blocks *p, const range *r, int64_t j, fxi_gemm_tile *t)
{
    const fxi_gemm *g = p->g;
    t->n = (int)min64(p->core->nr, r->n - j);
    const int width = (int)round_up(t->n, p->core->step);
    t->b = fxi_at(g->b, r->l * g->rsb + (r->j + j) * g->csb, p->size);
    t->brs = g->rsb;
    t->bcs = g->csb;
    t->columns = g->csb != 1 || t->n < width;
    if (p->pack_b) {
        char *panel = p->b + j * r->k * (int64_t)p->size;
        if (r->i == 0)
            p->core->pack(width, t->b, g->csb, g->rsb, t->n, r->k, panel);
        t->b = panel;
        t->brs = width;
        t->columns = false;
    }
    return width;
}

static void take_rows(const blocks *p, const range *r, int64_t i, bool first, fxi_gemm_tile *t)
{
    const fxi_gemm *g = p->g;
    t->m = (int)min64(p->mr, r->m - i);
    t->a = fxi_at(g->a, (r->i + i) * g->rsa + r->l * g->csa, p->size);
    t->acs = g->csa;
    if (p->pack_a) {
        char *panel = p->a + i * r->k * (int64_t)p->size;
        if (first)
            p->core->pack((int)p->mr, t->a, g->rsa, g->csa, t->m, r->k, panel);
        t->a = panel;
        t->acs = p->mr;
    }
}

static void run_block(const blocks *p, const range *r)
{
    const fxi_gemm *g = p->g;
    fxi_gemm_tile t = {.k = r->k, .ccs = g->csc, .accumulate = r->l > 0 || g->accumulate};
    for (int64_t j = 0; j < r->n; j += p->core->nr) {
        const int64_t width = take_columns(p, r, j, &t);
        const fxi_gemm_tile_fn *tiles = p->core->tile[width / p->core->step - 1];
        for (int64_t i = 0; i < r->m; i += p->mr) {
            take_rows(p, r, i, j == 0, &t);
            t.c = fxi_at_out(g->c, r->i + i + (r->j + j) * g->csc, p->size);
            tiles[t.m == p->mr ? 2 : t.m > p->core->lanes](&t);
        }
    }
}

static void run_blocks(const blocks *p)
{
    const fxi_gemm *g = p->g;
    range r;
    for (r.j = 0; r.j < g->n; r.j += p->nc) {
        r.n = min64(p->nc, g->n - r.j);
        for (r.l = 0; r.l < g->k; r.l += p->kc) {
            r.k = min64(p->kc, g->k - r.l);
            for (r.i = 0; r.i < g->m; r.i += p->mc) {
                r.m = min64(p->mc, g->m - r.i);
                run_block(p, &r);
            }
        }
    }
}

/* ---- what is packed -------------------------------------------------------------------------- */

/* Lines this far apart meet in one set of the first-level cache. */
static bool collides(int64_t stride, size_t size)
{
    return stride * (int64_t)size % 1024 == 0;
}

static void choose(blocks *p)
{
    const fxi_gemm *g = p->g;
    const int64_t size = (int64_t)p->size;
    p->mr = 2 * p->core->lanes;
    const int64_t cuts = (g->k + DEPTH - 1) / DEPTH;
    p->kc = (g->k + cuts - 1) / cuts;
    p->mc = A_BYTES / (p->kc * size) / p->mr * p->mr;
    p->nc = B_BYTES / (p->kc * size) / p->core->nr * p->core->nr;
    p->pack_a = g->rsa != 1 || (g->n > 4 * p->core->nr && g->csa > 2 * p->mr);
    p->pack_b = g->csb == 1 ? g->m > 2 * p->mr : g->m > (collides(g->csb, p->size) ? 1 : 4) * p->mr;
}

fx_status fxi_cpu_gemm(int dtype, const fxi_gemm *given)
{
    _Alignas(64) char stack[STACK_BYTES];
    fxi_gemm g = *given;
    blocks p = {
        .g = &g, .core = &fxi_cpu_simd()->gemm[dtype == FX_DTYPE_F64], .size = fxi_cpu_size(dtype)};
    if (g.m == 0 || g.n == 0)
        return FX_OK;
    if (g.k == 0 && !g.accumulate)
        for (int64_t j = 0; j < g.n; j++)
            memset(fxi_at_out(g.c, j * g.csc, p.size), 0, (size_t)g.m * p.size);
    if (g.k == 0)
        return FX_OK;
    if ((g.m == 1 && g.csb == 1 && g.csc == 1) || (g.n == 1 && g.csa == 1))
        turn_round(&g);
    choose(&p);
    const int64_t a_bytes =
        p.pack_a ? round_up(round_up(min64(p.mc, g.m), p.mr) * p.kc * (int64_t)p.size, 64) : 0;
    const int64_t b_bytes =
        p.pack_b ? round_up(min64(p.nc, g.n), p.core->step) * p.kc * (int64_t)p.size : 0;
    char *heap = NULL;
    if (a_bytes + b_bytes > STACK_BYTES && !(heap = fxi_aligned(64, (size_t)(a_bytes + b_bytes))))
        return FX_STATUS_MEMORY;
    p.a = heap ? heap : stack;
    p.b = p.a + a_bytes;
    run_blocks(&p);
    fxi_free(heap);
    return FX_OK;
}
