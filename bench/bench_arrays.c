/* bench_arrays.c: measures array operations: an elementwise chain, row operations (softmax,
 * cross-entropy, layer norm), reductions and the transpose of a large matrix, matrix products.
 *
 * Rows "…-gradient" compute the value and the gradient in one plan and request both, as the peer
 * does. A transpose is a view, so its row requests the elements of the view as one dense vector.
 */
#include "bench.h"
#include "cpu_parallel.h"
#include "cpu_simd.h"

#include <string.h>

/* size: that of x. */
static void open_array(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_set(&s->x, fxi_randn(FX_DTYPE_F32, n[1] ? 2 : 1, n));
    fx_set(&s->g, fxi_full(FX_DTYPE_F32, 1, n[1] ? 2 : 1, n));
    fx_eval(fx_tuple(s->x, s->g));
}

static void value(bench_state *s)
{
    FX_TEST;
    fx_eval(s->which->op(s));
}

/* The result, and its vector-Jacobian product with g. */
static void with_gradient(bench_state *s)
{
    FX_SCOPE;
    fx_array *y = s->which->op(s), *gx;
    fx_pullback(y, s->g, &s->x, 1, &gx);
    fx_eval(fx_tuple(y, gx));
}

static void open_double(bench_state *s)
{
    fx_set(&s->x, fxi_randn(FX_DTYPE_F64, 1, s->which->size));
    fx_eval(s->x);
}

static fx_array *chain(bench_state *s)
{
    fx_array *x = s->x;
    return fx_add(fx_mul(fx_tanh(fx_add(fx_mul(1.3, x), 0.2)), fx_sigmoid(x)),
                  fx_exp(fx_neg(fx_mul(x, x))));
}

static fx_array *normal(bench_state *s)
{
    return fx_randn(s->which->size[0]);
}

static fx_array *uniform(bench_state *s)
{
    return fx_rand(s->which->size[0]);
}

/* ---- what memory allows (limits.py): a copy, shared among the threads ------------------------ */
static void open_copy(bench_state *s)
{
    fx_set(&s->x, fx_randn(s->which->size[0]));
    fx_set(&s->y, fx_zeros(s->which->size[0]));
    fx_eval(fx_tuple(s->x, s->y));
}

/* Arrays that exceed the caches are written past them, which was faster than memcpy. */
static void copy_part(void *user, int64_t part)
{
    const bench_state *s = user;
    float *y = (float *)(uintptr_t)fx_data(s->y); /* no other array reads it */
    const float *x = fx_data(s->x);
    int64_t from, to;
    fxi_cpu_range(s->which->size[0], fx_num_threads(), part, &from, &to);
    const size_t bytes = sizeof *x * (size_t)(to - from);
    if (s->which->flag) {
        fxi_cpu_simd()->stream(y + from, x + from, bytes);
        fxi_cpu_simd()->stream_end();
    } else {
        memcpy(y + from, x + from, bytes);
    }
}

static void copy(bench_state *s)
{
    fxi_cpu_parallel(fx_num_threads(), copy_part, s);
}

/* ---- rows ------------------------------------------------------------------------------------ */
static fx_array *softmax(bench_state *s)
{
    return fx_softmax(s->x);
}

static fx_array *logsumexp(bench_state *s)
{
    return fx_logsumexp(s->x, .dims = FX_AXES(0));
}

static fx_array *crossentropy(bench_state *s)
{
    return fx_logitcrossentropy(s->x, s->y);
}

/* size: classes, batch. */
static void open_labels(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_array *pick = fx_floor(fx_mul(fx_rand(n[1]), n[0]));
    fx_set(&s->x, fx_randn(n[0], n[1]));
    fx_set(&s->y, fx_onehotbatch(fx_cast(pick, FX_DTYPE_I64), n[0]));
    fx_set(&s->g, fx_ones());
    fx_eval(fx_tuple(s->x, s->y, s->g));
}

static void open_layernorm(bench_state *s)
{
    open_array(s);
    fx_set(&s->model, (void *)fx_layernorm(FX_DIMS(s->which->size[0])));
    fx_eval(s->model);
}

/* size: width, height, channels, images; flag: groups. */
static void open_groupnorm(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_set(&s->x, fx_randn(n[0], n[1], n[2], n[3]));
    fx_set(&s->g, fx_ones(n[0], n[1], n[2], n[3]));
    fx_set(&s->model, (void *)fx_groupnorm(n[2], s->which->flag));
    fx_eval(fx_tuple(s->x, s->g, s->model));
}

static fx_array *normalised(bench_state *s)
{
    return fx_call(s->model, s->x);
}

/* The gradients of x, scale and bias. */
static void layernorm_gradient(bench_state *s)
{
    FX_SCOPE;
    const fx_layernorm_layer *l = s->model;
    fx_array *y = normalised(s), *g[3];
    fx_pullback(y, s->g, (fx_array *[]){s->x, l->scale, l->bias}, 3, g);
    fx_eval(fx_tuple(y, g[0], g[1], g[2]));
}

static void groupnorm_gradient(bench_state *s)
{
    FX_SCOPE;
    const fx_groupnorm_layer *l = s->model;
    fx_array *y = normalised(s), *g[3];
    fx_pullback(y, s->g, (fx_array *[]){s->x, l->gamma, l->beta}, 3, g);
    fx_eval(fx_tuple(y, g[0], g[1], g[2]));
}

static void open_batchnorm(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_set(&s->x, fx_randn(n[0], n[1], n[2], n[3]));
    fx_set(&s->g, fx_ones(n[0], n[1], n[2], n[3]));
    fx_set(&s->model, (void *)fx_batchnorm(n[2]));
    fx_eval(fx_tuple(s->x, s->g, s->model));
}

static void batchnorm_gradient(bench_state *s)
{
    FX_STEP;
    const fx_batchnorm_layer *l = s->model;
    fx_array *y = normalised(s), *g[3];
    fx_pullback(y, s->g, (fx_array *[]){s->x, l->gamma, l->beta}, 3, g);
    fx_eval(fx_tuple(y, g[0], g[1], g[2]));
}

/* ---- attention: size is features, length, heads, batch --------------------------------------- */
static void open_attention(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_array **const all[] = {&s->x, &s->w, &s->b};
    for (int i = 0; i < 3; i++)
        fx_set(all[i], fx_randn(n[0], n[1], n[3]));
    fx_set(&s->g, fx_ones(n[0], n[1], n[3]));
    fx_eval(fx_tuple(s->x, s->w, s->b, s->g));
}

static fx_array *attention(bench_state *s)
{
    return fx_child(
        fx_dot_product_attention(s->x, s->w, s->b, .nheads = s->which->size[2], .causal = true), 0);
}

static void attention_gradient(bench_state *s)
{
    FX_SCOPE;
    fx_array *y = attention(s), *g[3];
    fx_pullback(y, s->g, (fx_array *[]){s->x, s->w, s->b}, 3, g);
    fx_eval(fx_tuple(y, g[0], g[1], g[2]));
}

/* ---- a large matrix: flag is the axis -------------------------------------------------------- */
static fx_array *sum(bench_state *s)
{
    return fx_sum(s->x, .dims = FX_AXES(s->which->flag));
}

static fx_array *maximum(bench_state *s)
{
    return fx_maximum(s->x, .dims = FX_AXES(s->which->flag));
}

static fx_array *variance(bench_state *s)
{
    return fx_var(s->x, .dims = FX_AXES(s->which->flag));
}

static fx_array *argmax(bench_state *s)
{
    return fx_argmax(s->x, .dims = FX_AXES(s->which->flag));
}

static fx_array *cumsum(bench_state *s)
{
    return fx_cumsum(s->x, (int)s->which->flag);
}

static fx_array *pad(bench_state *s)
{
    return fx_pad(fx_pad(s->x, 0, 1, 1, 0), 1, 1, 1, 0);
}

static void open_bias(bench_state *s)
{
    open_array(s);
    fx_set(&s->b, fx_randn(s->which->size[0]));
    fx_eval(s->b);
}

static fx_array *add_bias(bench_state *s)
{
    return fx_add(s->x, s->b);
}

/* ---- rows of a table, as in an embedding: size is row length, rows, rows read ---------------- */
static void open_table(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_set(&s->w, fx_randn(n[0], n[1]));
    fx_set(&s->x, fx_cast(fx_floor(fx_mul(fx_rand(n[2]), n[1])), FX_DTYPE_I64));
    fx_set(&s->g, fx_ones(n[0], n[2]));
    fx_eval(fx_tuple(s->w, s->x, s->g));
}

static fx_array *embedding(bench_state *s)
{
    return fx_gather(s->w, s->x, 1);
}

static void embedding_gradient(bench_state *s)
{
    FX_SCOPE;
    fx_array *y = embedding(s), *gw;
    fx_pullback(y, s->g, &s->w, 1, &gw);
    fx_eval(fx_tuple(y, gw));
}

/* An index along the first axis for each element of x. */
static void open_indices(bench_state *s)
{
    const int64_t *n = s->which->size;
    open_array(s);
    fx_set(&s->y, fx_cast(fx_floor(fx_mul(fx_rand(n[0], n[1]), n[0])), FX_DTYPE_I64));
    fx_eval(s->y);
}

static fx_array *gather_elements(bench_state *s)
{
    return fx_gather_elements(s->x, s->y, 0);
}

/* A dense vector cannot be a view of a transposed view, so the elements are copied. */
static fx_array *transpose(bench_state *s)
{
    return fx_vec(fx_transpose(s->x));
}

/* ---- many small products: size is m, n, k, batch --------------------------------------------- */
static void open_batched(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_set(&s->w, fx_randn(n[0], n[2], n[3]));
    fx_set(&s->x, fx_randn(n[2], n[1], n[3]));
    fx_eval(fx_tuple(s->w, s->x));
}

static fx_array *batched(bench_state *s)
{
    return fx_batched_mul(s->w, s->x);
}

#define VALUE(label, open, f, ...)                                                                 \
    {                                                                                              \
        .name = label, .setup = open, .body = value, .op = f, .size = { __VA_ARGS__ }              \
    }
#define GRADIENT(label, open, f, ...)                                                              \
    {                                                                                              \
        .name = label "-gradient", .setup = open, .body = with_gradient, .op = f, .size = {        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define ALONG(label, f, axis)                                                                      \
    {                                                                                              \
        .name = label, .setup = open_array, .body = value, .op = f, .size = {4096, 4096},          \
        .flag = axis                                                                               \
    }

const bench_case bench_arrays[] = {
    {.name = "limit/copy-1e6", .setup = open_copy, .body = copy, .size = {1000000}},
    {.name = "limit/copy-25e6", .setup = open_copy, .body = copy, .size = {25000000}, .flag = true},
    VALUE("chain/1e4", open_array, chain, 10000),
    GRADIENT("chain/1e4", open_array, chain, 10000),
    VALUE("chain/1e6", open_array, chain, 1000000),
    GRADIENT("chain/1e6", open_array, chain, 1000000),
    VALUE("chain/25e6", open_array, chain, 25000000),
    GRADIENT("chain/25e6", open_array, chain, 25000000),
    VALUE("chain/1e6-float64", open_double, chain, 1000000),
    VALUE("random/normal-16e6", NULL, normal, 16000000),
    VALUE("random/uniform-16e6", NULL, uniform, 16000000),
    VALUE("rows/softmax-1000x1024", open_array, softmax, 1000, 1024),
    VALUE("rows/logsumexp-1000x1024", open_array, logsumexp, 1000, 1024),
    VALUE("rows/crossentropy-1000x1024", open_labels, crossentropy, 1000, 1024),
    GRADIENT("rows/crossentropy-1000x1024", open_labels, crossentropy, 1000, 1024),
    VALUE("rows/layernorm-768x8192", open_layernorm, normalised, 768, 8192),
    {.name = "rows/layernorm-768x8192-gradient",
     .setup = open_layernorm,
     .body = layernorm_gradient,
     .size = {768, 8192}},
    {.name = "rows/groupnorm-56x56x64x32-gradient",
     .setup = open_groupnorm,
     .body = groupnorm_gradient,
     .size = {56, 56, 64, 32},
     .flag = 8},
    {.name = "rows/batchnorm-56x56x64x32-gradient",
     .setup = open_batchnorm,
     .body = batchnorm_gradient,
     .size = {56, 56, 64, 32}},
    VALUE("attention/256x512-h4-b8", open_attention, attention, 256, 512, 4, 8),
    {.name = "attention/256x512-h4-b8-gradient",
     .setup = open_attention,
     .body = attention_gradient,
     .size = {256, 512, 4, 8}},
    ALONG("matrix/sum-4096-contiguous", sum, 0),
    ALONG("matrix/sum-4096-strided", sum, 1),
    ALONG("matrix/max-4096-contiguous", maximum, 0),
    ALONG("matrix/max-4096-strided", maximum, 1),
    ALONG("matrix/var-4096-contiguous", variance, 0),
    ALONG("matrix/var-4096-strided", variance, 1),
    ALONG("matrix/argmax-4096-contiguous", argmax, 0),
    ALONG("matrix/argmax-4096-strided", argmax, 1),
    ALONG("matrix/cumsum-4096-contiguous", cumsum, 0),
    ALONG("matrix/cumsum-4096-strided", cumsum, 1),
    VALUE("matrix/gather-elements-4096", open_indices, gather_elements, 4096, 4096),
    GRADIENT("matrix/gather-elements-4096", open_indices, gather_elements, 4096, 4096),
    VALUE("matrix/pad-4096", open_array, pad, 4096, 4096),
    VALUE("matrix/bias-4096", open_bias, add_bias, 4096, 4096),
    VALUE("matrix/transpose-4096", open_array, transpose, 4096, 4096),
    VALUE("embedding/128x30000-8192", open_table, embedding, 128, 30000, 8192),
    {.name = "embedding/128x30000-8192-gradient",
     .setup = open_table,
     .body = embedding_gradient,
     .size = {128, 30000, 8192}},
    VALUE("batched/16x16x16-4096", open_batched, batched, 16, 16, 16, 4096),
    {.name = NULL},
};

/* ---- products: size is m, n, k; flag: A is given transposed ---------------------------------- */
static void open_product(bench_state *s)
{
    const int64_t m = s->which->size[0], n = s->which->size[1], k = s->which->size[2];
    fx_set(&s->w, s->which->flag ? fx_randn(k, m) : fx_randn(m, k));
    fx_set(&s->x, fx_randn(k, n));
    fx_eval(fx_tuple(s->w, s->x));
}

static fx_array *product(bench_state *s)
{
    return fx_matmul(s->which->flag ? fx_transpose(s->w) : s->w, s->x);
}

#define PRODUCT(label, transposed, m, n, k)                                                        \
    {                                                                                              \
        .name = "matmul/" label, .setup = open_product, .body = value, .op = product,              \
        .size = {m, n, k}, .flag = transposed                                                      \
    }

const bench_case bench_products[] = {
    PRODUCT("2x64x3", 0, 2, 64, 3),
    PRODUCT("64x16x1", 0, 64, 16, 1),
    PRODUCT("1x256x16", 0, 1, 256, 16),
    PRODUCT("4096x1x4096", 0, 4096, 1, 4096),
    PRODUCT("4096x1x4096-tn", 1, 4096, 1, 4096),
    PRODUCT("512x1x512", 0, 512, 1, 512),
    PRODUCT("512x1x512-tn", 1, 512, 1, 512),
    PRODUCT("10x64x256", 0, 10, 64, 256),
    PRODUCT("256x64x784", 0, 256, 64, 784),
    PRODUCT("64x256x784", 0, 64, 256, 784),
    PRODUCT("784x256x64-tn", 1, 784, 256, 64),
    PRODUCT("256x1024x784", 0, 256, 1024, 784),
    PRODUCT("512x512x512", 0, 512, 512, 512),
    PRODUCT("1024x768x256", 0, 1024, 768, 256),
    PRODUCT("2048x2048x2048", 0, 2048, 2048, 2048),
    {.name = NULL},
};
