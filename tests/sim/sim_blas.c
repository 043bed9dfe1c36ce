/* sim_blas.c: see sim_blas.h. */
#include "sim_blas.h"

#include "half.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t sim_type_size(sim_type t)
{
    return t == SIM_F64 ? 8 : t == SIM_F32 ? 4 : 2;
}

double sim_load(const char *bytes, sim_type t, int64_t i)
{
    uint16_t half;
    float f;
    double d;
    const char *at = bytes + i * (int64_t)sim_type_size(t);
    if (t == SIM_F64)
        return memcpy(&d, at, sizeof d), d;
    if (t == SIM_F32)
        return memcpy(&f, at, sizeof f), f;
    memcpy(&half, at, sizeof half);
    return t == SIM_F16 ? fxi_f16_to_f32(half) : fxi_bf16_to_f32(half);
}

void sim_store(char *bytes, sim_type t, int64_t i, double v)
{
    char *at = bytes + i * (int64_t)sim_type_size(t);
    const float f = (float)v;
    const uint16_t half = t == SIM_F16 ? fxi_f32_to_f16(f) : fxi_f32_to_bf16(f);
    if (t == SIM_F64)
        memcpy(at, &v, sizeof v);
    else if (t == SIM_F32)
        memcpy(at, &f, sizeof f);
    else
        memcpy(at, &half, sizeof half);
}

/* Rounds to 11 significant bits, to nearest. */
double sim_to_tf32(double v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    float rounded;
    memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

/* The index in memory of an element of op(X). */
static int64_t index_of(const sim_matrix *x, int64_t batch, int64_t row, int64_t column)
{
    const int64_t i = x->transposed ? column : row, j = x->transposed ? row : column;
    return batch * x->batch_stride + i + j * x->ld;
}

static size_t bytes_of(const sim_product *p, const sim_matrix *x)
{
    return (size_t)((p->batches - 1) * x->batch_stride + (x->columns - 1) * x->ld + x->rows) *
           sim_type_size(p->type);
}

/* The elements of a factor as doubles, converted once for all terms. NULL: no memory. */
static double *widen(const sim_product *p, const sim_matrix *x, const char *bytes)
{
    const size_t n = bytes_of(p, x) / sim_type_size(p->type);
    double *wide = malloc(n * sizeof *wide);
    for (size_t i = 0; wide && i < n; i++) {
        const double v = sim_load(bytes, p->type, (int64_t)i);
        wide[i] = p->tf32 ? sim_to_tf32(v) : v;
    }
    return wide;
}

typedef struct factors {
    const double *a, *b;
} factors;

/* The sum of terms from `from` to `to`, in Float32 or Float64. */
static double sum(const sim_product *p, const factors *f, int64_t r, int64_t from, int64_t to)
{
    const int64_t z = r / p->m / p->n, i = r % p->m, j = r / p->m % p->n;
    const int64_t a = index_of(&p->a, z, i, 0), b = index_of(&p->b, z, 0, j),
                  next_a = index_of(&p->a, z, i, 1) - a, next_b = index_of(&p->b, z, 1, j) - b;
    double wide = 0;
    float s = 0;
    for (int64_t l = from; l < to; l++) {
        const double term = f->a[a + l * next_a] * f->b[b + l * next_b];
        wide += term;
        s += (float)term;
    }
    return p->type == SIM_F64 ? wide : (double)s;
}

/* With work space, the second half of the terms is summed there first, as a library that splits
 * sums does. */
static void compute(const sim_product *p, const factors *f)
{
    const sim_call *c = &p->call;
    const int64_t half = p->work ? p->k / 2 : p->k;
    const sim_type wide = p->type == SIM_F64 ? SIM_F64 : SIM_F32;
    for (int64_t r = 0; p->work && r < p->m * p->n * p->batches; r++)
        sim_store(c->at[4], wide, r, sum(p, f, r, half, p->k));
    for (int64_t r = 0; r < p->m * p->n * p->batches; r++) {
        const int64_t z = r / p->m / p->n, i = r % p->m, j = r / p->m % p->n;
        double v = sum(p, f, r, 0, half);
        if (p->work)
            v = wide == SIM_F32 ? (double)((float)v + (float)sim_load(c->at[4], wide, r))
                                : v + sim_load(c->at[4], wide, r);
        v *= p->alpha;
        if (p->bias)
            v += sim_load(c->at[3], p->type, i);
        sim_store(c->at[2], p->type, z * p->c.batch_stride + i + j * p->c.ld, v);
    }
}

static void run(sim_call *c)
{
    const sim_product *p = (const sim_product *)(const void *)c;
    double *a = widen(p, &p->a, c->at[0]), *b = widen(p, &p->b, c->at[1]);
    if (a && b)
        compute(p, &(factors){a, b});
    else
        fprintf(stderr, "simulated driver: no memory for a product\n");
    free(a);
    free(b);
}

size_t sim_product_work(sim_type type, int64_t m, int64_t n, int64_t k, int64_t batches)
{
    return k >= 16 * m * n * batches || k > 300
               ? (size_t)(m * n * batches) * (type == SIM_F64 ? 8 : 4)
               : 0;
}

/* Finds a function of the simulated driver, which is loaded but not visible to libraries that were
 * opened later. The second name is that of the driver that exports only needed functions. */
static void *of_driver(const char *driver, const char *name)
{
    void *library = dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        library = dlopen("libcuda-least.so", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

int sim_product_device(const char *driver)
{
    int (*device)(void);
    *(void **)&device = of_driver(driver, "sim_current_device");
    return device ? device() : -1;
}

bool sim_stream_captured(const char *driver, const void *stream)
{
    int (*captured)(const void *);
    *(void **)&captured = of_driver(driver, "sim_is_capturing");
    return captured && captured(stream);
}

int sim_call_queue(const char *driver, sim_call *call, void *stream)
{
    int (*queue)(void *, sim_call *);
    *(void **)&queue = of_driver(driver, "sim_queue_call");
    if (queue)
        return queue(stream, call);
    free(call);
    return -1;
}

int sim_product_queue(const char *driver, const char *name, const sim_product *p, const void *bias,
                      void *work, void *stream)
{
    sim_product *copy = malloc(sizeof *copy);
    if (!copy)
        return -1;
    *copy = *p;
    const struct {
        const void *address;
        size_t bytes;
    } uses[SIM_USES] = {{p->a.address, bytes_of(p, &p->a)},
                        {p->b.address, bytes_of(p, &p->b)},
                        {p->c.address, bytes_of(p, &p->c)},
                        {p->bias ? bias : NULL, (size_t)p->m * sim_type_size(p->type)},
                        {p->work ? work : NULL, p->work}};
    copy->call.name = name;
    copy->call.run = run;
    for (int k = 0; k < SIM_USES; k++) {
        copy->call.uses[k].address = uses[k].address;
        copy->call.uses[k].bytes = uses[k].bytes;
    }
    return sim_call_queue(driver, &copy->call, stream);
}
