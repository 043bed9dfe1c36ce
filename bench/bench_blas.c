/* bench_blas.c: measures the products of a BLAS library as a peer: bench_runner --blas LIBRARY runs
 * the cases matmul/… as calls of its cblas_sgemm on the same operands. Only cflux's own rows
 * include recording the graph and finding its plan.
 */
#include "bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_FIRST = 102, AS_IT_IS = 111, TRANSPOSED = 112, MOST = 64 };

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);
static sgemm_fn sgemm;

static void open_operands(bench_state *s)
{
    bench_products[0].setup(s); /* the same operands as in cflux's case */
    fx_set(&s->y, fx_zeros(s->which->size[0], s->which->size[1]));
    fx_eval(s->y);
}

static void product(bench_state *s)
{
    const int m = (int)s->which->size[0], n = (int)s->which->size[1], k = (int)s->which->size[2];
    const int transposed = s->which->flag != 0;
    float *c = (float *)(uintptr_t)fx_data(s->y); /* no other array reads it */
    sgemm(COLUMNS_FIRST, transposed ? TRANSPOSED : AS_IT_IS, AS_IT_IS, m, n, k, 1, fx_data(s->w),
          transposed ? k : m, fx_data(s->x), k, 0, c, m);
}

const bench_case *bench_blas_open(const char *library)
{
    static bench_case cases[MOST];
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *found = handle ? dlsym(handle, "cblas_sgemm") : NULL;
    if (!found)
        return NULL;
    memcpy(&sgemm, &found, sizeof sgemm);
    for (int i = 0; bench_products[i].name && i < MOST - 1; i++) {
        cases[i] = bench_products[i];
        cases[i].setup = open_operands;
        cases[i].body = product;
    }
    return cases;
}
