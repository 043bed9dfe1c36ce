/* bench_gpu.c: the operations of a large GPU's table (bench_runner --device cuda:0 gpu/), which
 * scripts/gpu-check runs: products, elementwise chains, rows, sums, copies, gathers, Adam.
 *
 * A row is the time of one evaluation in microseconds. Evaluations are queued one after the other,
 * and the clock is read when the device has finished all of them, so the host's work does not count
 * where it is shorter than the device's. The host's time is measured by itself: if it is the longer
 * one, the device waits for the host. bench/gpu_cases.py has the bytes and operations of each
 * case, from which scripts/gpu-check computes rates, and bench/peer_torch_gpu.py the same cases for
 * PyTorch. With --tiny the sizes are those of a test on a simulated device.
 */
#include "bench.h"

#include <stdlib.h>

bool bench_tiny;

enum { LEAST_SAMPLES = 7, MOST_SAMPLES = 200, MOST_QUEUED = 1000 };
static const double QUEUE_SECONDS = 20e-3;

static double queued(const bench_case *c, bench_state *s, int64_t n)
{
    fx_device *device = fx_device_find(bench_device);
    const double start = bench_now();
    for (int64_t i = 0; i < n; i++)
        c->body(s);
    fx_synchronize(device);
    return bench_now() - start;
}

/* Microseconds of the host for one evaluation. Only a few are queued on an idle device: with a full
 * queue the driver would make the host wait. */
static double host_part(const bench_case *c, bench_state *s)
{
    enum { SAMPLES = 15, QUEUED = 4 };
    double value[SAMPLES];
    bench_row row;
    const int n = bench_tiny ? 1 : SAMPLES;
    for (int k = 0; k < n; k++) {
        const double start = bench_now();
        for (int i = 0; i < QUEUED; i++)
            c->body(s);
        value[k] = 1e6 * (bench_now() - start) / QUEUED;
        fx_synchronize(fx_device_find(bench_device));
    }
    bench_row_of(value, n, "us", &row);
    return row.median;
}

bool bench_measure_queued(const bench_case *c, bench_row *out)
{
    double value[MOST_SAMPLES];
    bench_state s;
    int n = 0;
    bench_open(c, &s);
    queued(c, &s, bench_tiny ? 1 : 5); /* compiles, chooses algorithms, captures */
    const double once = queued(c, &s, bench_tiny ? 1 : 3) / (bench_tiny ? 1 : 3);
    int64_t each = once > 0 && !bench_tiny ? (int64_t)(QUEUE_SECONDS / once) : 1;
    each = each < 1 ? 1 : each > MOST_QUEUED ? MOST_QUEUED : each;
    const double start = bench_now();
    while (fx_error_status() == FX_OK && n < MOST_SAMPLES &&
           (n < (bench_tiny ? 1 : LEAST_SAMPLES) || bench_now() - start < bench_seconds))
        value[n++] = 1e6 * queued(c, &s, each) / (double)each;
    const double host = host_part(c, &s);
    bench_close(&s);
    if (fx_error_status() != FX_OK)
        return false;
    bench_row_of(value, n, "us", out);
    out->host = host;
    return true;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Random numbers made on the device: 2²⁸ of them would take seconds to copy. */
static fx_array *filled(fx_dtype type, int n, const int64_t *sizes)
{
    fx_array *zero = fx_to(fx_device_find(bench_device), fx_zeros(1));
    fx_array *x = fx_cast(fx_add(fxi_randn(FX_DTYPE_F32, n, sizes), zero), type);
    fx_eval(x);
    return x;
}

/* Random indices from 0 to n − 1. */
static fx_array *indices(int64_t count, int64_t n)
{
    fx_array *pick = fx_floor(fx_mul(fx_rand(count), (double)n));
    return fx_to(fx_device_find(bench_device),
                 fx_cast(fx_clamp(pick, 0, (double)n - 1), FX_DTYPE_I64));
}

/* In tiny runs a size of 100 or more becomes one of 4 to 36. */
int64_t bench_size(int64_t n)
{
    return bench_tiny && n >= 100 ? 4 + n % 33 : n;
}

/* The type that the name of a case ends with: …-bf16, or Float32. */
static fx_dtype type_of(const bench_state *s)
{
    return s->which->flag ? FX_DTYPE_BF16 : FX_DTYPE_F32;
}

static void open_x(bench_state *s)
{
    int64_t sizes[2] = {bench_size(s->which->size[0]), bench_size(s->which->size[1])};
    fx_set(&s->x, filled(type_of(s), sizes[1] ? 2 : 1, sizes));
}

static void evaluate(bench_state *s)
{
    FX_TEST;
    fx_eval(s->which->op(s));
}

/* ---- elementwise, sums, copies --------------------------------------------------------------- */

static fx_array *copy(bench_state *s)
{
    return fx_neg(s->x); /* reads one number and writes one */
}

static fx_array *unary(bench_state *s)
{
    return fx_relu(s->x);
}

static fx_array *chain(bench_state *s)
{
    fx_array *y = fx_add(fx_mul(s->x, 1.5), 0.25); /* 2 operations */
    y = fx_mul(fx_tanh(y), fx_sigmoid(s->x));      /* 5 */
    return fx_add(fx_square(y), fx_neg(s->x));     /* 8 */
}

static fx_array *sum_all(bench_state *s)
{
    return fx_sum(s->x);
}

static fx_array *sum_first(bench_state *s)
{
    return fx_sum(s->x, .dims = FX_AXES(0));
}

static fx_array *sum_last(bench_state *s)
{
    return fx_sum(s->x, .dims = FX_AXES(1));
}

/* The multiplication makes the transposed view a copy. */
static fx_array *transposed(bench_state *s)
{
    return fx_mul(fx_transpose(s->x), 2);
}

/* ---- products -------------------------------------------------------------------------------- */

static void open_product(bench_state *s)
{
    int64_t sizes[2] = {bench_size(s->which->size[0]), bench_size(s->which->size[0])};
    fx_set(&s->x, filled(type_of(s), 2, sizes));
    fx_set(&s->w, filled(type_of(s), 2, sizes));
}

static fx_array *product(bench_state *s)
{
    return fx_matmul(s->x, s->w);
}

/* size[1]: 1 allows TensorFloat-32. */
static bool measure_product(const bench_case *c, bench_row *out)
{
    const fx_precision before = fx_matmul_precision();
    fx_set_matmul_precision(c->size[1] ? FX_PRECISION_HIGH : FX_PRECISION_HIGHEST);
    const bool ok = bench_measure_queued(c, out);
    fx_set_matmul_precision(before);
    return ok;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void open_rows(bench_state *s)
{
    open_x(s);
    const int64_t classes = fx_size(s->x, 0), rows = fx_size(s->x, 1);
    fx_set(&s->model, fx_layernorm(FX_DIMS(classes)));
    fx_set(&s->model, fx_to(fx_array_device(s->x), s->model));
    if (s->which->flag)
        fx_set(&s->model, fx_bf16(s->model));
    fx_set(&s->y, indices(rows, classes));
    fx_set(&s->g, filled(type_of(s), 2, (const int64_t[]){classes, rows}));
    fx_eval(fx_tuple(s->y, s->model));
}

static fx_array *softmax(bench_state *s)
{
    return fx_softmax(s->x);
}

static fx_array *layernorm(bench_state *s)
{
    return fx_call(s->model, s->x);
}

static fx_array *crossentropy(bench_state *s)
{
    return fx_logitcrossentropy(s->x, fx_onehot(s->y, fx_size(s->x, 0)));
}

/* Value and gradient of the input, and for layer norm of scale and bias. */
static void rows_gradient(bench_state *s)
{
    FX_STEP;
    const fx_layernorm_layer *l = s->model;
    const int n = s->which->op == layernorm ? 3 : 1;
    fx_array *y = s->which->op(s), *g[3] = {NULL}, *x[] = {s->x, l->scale, l->bias};
    if (fx_length(y) == 1)
        fx_gradient_of(y, x, n, g);
    else
        fx_pullback(y, s->g, x, n, g);
    fx_eval(n == 3 ? fx_tuple(y, g[0], g[1], g[2]) : fx_tuple(y, g[0]));
}

/* ---- rows by index --------------------------------------------------------------------------- */

static void open_indexed(bench_state *s)
{
    const int64_t sizes[2] = {bench_size(s->which->size[0]), bench_size(s->which->size[1])};
    fx_set(&s->x, filled(FX_DTYPE_F32, 2, sizes));
    fx_set(&s->y, indices(sizes[1], sizes[1]));
    fx_eval(s->y);
}

static fx_array *gather(bench_state *s)
{
    return fx_gather(s->x, s->y, 1);
}

static fx_array *scatter_add(bench_state *s)
{
    return fx_scatter(FX_REDUCE_SUM, s->x, s->y, 1, fx_size(s->x, 1));
}

/* ---- Adam ------------------------------------------------------------------------------------ */

/* size: elements of an array, number of arrays. */
static void open_adam(bench_state *s)
{
    enum { MOST = 200 };
    void *arrays[MOST], *gradients[MOST];
    const int64_t n[] = {bench_size(s->which->size[0])};
    const int count = bench_tiny ? 5 : (int)s->which->size[1];
    for (int i = 0; i < count; i++) {
        arrays[i] = filled(FX_DTYPE_F32, 1, n);
        gradients[i] = filled(FX_DTYPE_F32, 1, n);
    }
    void *both[] = {fxi_tuple(count, arrays), fxi_tuple(count, gradients)};
    fx_set(&s->model, fxi_tuple(2, both));
    fx_set(&s->opt, fx_setup(fx_adam(.eta = 1e-4), both[0]));
}

static void adam(bench_state *s)
{
    FX_STEP;
    fx_update(s->opt, fx_child(s->model, 0), fx_child(s->model, 1));
}

/* ---- the table ------------------------------------------------------------------------------- */
#define OP(label, open, f, n, m, bf16)                                                             \
    {                                                                                              \
        .name = "gpu/" label, .setup = (open), .body = evaluate, .measure = bench_measure_queued,  \
        .op = (f), .size = {n, m}, .flag = (bf16)                                                  \
    }
#define BOTH(label, open, f, n, m)                                                                 \
    OP(label "-f32", open, f, n, m, 0), OP(label "-bf16", open, f, n, m, 1)
#define GRADIENT(label, f, bf16)                                                                   \
    {                                                                                              \
        .name = "gpu/" label, .setup = open_rows, .body = rows_gradient,                           \
        .measure = bench_measure_queued, .op = (f), .size = {4096, 8192}, .flag = (bf16)           \
    }
#define ROWS(label, f)                                                                             \
    BOTH(label, open_rows, f, 4096, 8192), GRADIENT(label "-gradient-f32", f, 0),                  \
        GRADIENT(label "-gradient-bf16", f, 1)
#define PRODUCT(label, n, tf32, bf16)                                                              \
    {                                                                                              \
        .name = "gpu/" label, .setup = open_product, .body = evaluate, .measure = measure_product, \
        .op = product, .size = {n, tf32}, .flag = (bf16)                                           \
    }

const bench_case bench_gpu[] = {
    PRODUCT("matmul-8192-bf16", 8192, 0, 1),
    PRODUCT("matmul-4096-tf32", 4096, 1, 0),
    PRODUCT("matmul-4096-f32", 4096, 0, 0),
    OP("copy", open_x, copy, 1 << 28, 0, 0),
    BOTH("unary", open_x, unary, 1 << 28, 0),
    BOTH("chain", open_x, chain, 1 << 28, 0),
    ROWS("softmax", softmax),
    ROWS("layernorm", layernorm),
    ROWS("crossentropy", crossentropy),
    OP("sum-all", open_x, sum_all, 16384, 16384, 0),
    OP("sum-first", open_x, sum_first, 16384, 16384, 0),
    OP("sum-last", open_x, sum_last, 16384, 16384, 0),
    OP("transpose", open_x, transposed, 16384, 16384, 0),
    OP("gather", open_indexed, gather, 1024, 16384, 0),
    OP("scatter-add", open_indexed, scatter_add, 1024, 16384, 0),
    {.name = "gpu/adam",
     .setup = open_adam,
     .body = adam,
     .measure = bench_measure_queued,
     .size = {500000, 200}},
    {.name = NULL},
};
