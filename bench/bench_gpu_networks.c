/* bench_gpu_networks.c: training steps of networks on a GPU, and the start of a program there
 * (bench_gpu.c says how they are measured). 16-bit cases have parameters, inputs and optimiser
 * states of BFloat16, as the peer's.
 */
#include "../examples/gpt_model.h"
#include "../tests/support/networks.h"
#include "bench.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fx_device *device(void)
{
    return fx_device_find(bench_device);
}

/* ---- networks -------------------------------------------------------------------------------- */

static void *conv_norm(int64_t in, int64_t out, int64_t size, int64_t stride, fx_function *act)
{
    const int64_t pad = size / 2;
    return fx_chain(fx_conv(FX_DIMS(size, size), in, out, .pad = FX_DIMS(pad, pad),
                            .stride = FX_DIMS(stride, stride), .bias = false),
                    fx_batchnorm(out, act));
}

/* Channels; a tiny network has a sixteenth of them. */
static int64_t wide(int64_t channels)
{
    return bench_tiny ? channels / 16 : channels;
}

static void *vgg_no_bias_block(int64_t in, int64_t out)
{
    return fx_chain(conv_norm(in, out, 3, 1, FX_RELU), conv_norm(out, out, 3, 1, FX_RELU),
                    fx_maxpool(FX_DIMS(2, 2)));
}

/* vgg() of networks.h, without the biases that batch normalisation makes useless. */
static fx_chain_layer *vgg_no_bias(void)
{
    return fx_chain(vgg_no_bias_block(3, wide(32)), vgg_no_bias_block(wide(32), wide(64)),
                    vgg_no_bias_block(wide(64), wide(128)), FX_FLATTEN,
                    fx_dense(wide(128) * (bench_tiny ? 4 : 16), 256, FX_RELU), fx_dense(256, 10));
}

/* Two convolutions beside the identity, or beside a 1×1 convolution where the sizes change. */
static void *residual(int64_t in, int64_t out, int64_t stride)
{
    void *body =
        fx_chain(conv_norm(in, out, 3, stride, FX_RELU), conv_norm(out, out, 3, 1, FX_IDENTITY));
    void *beside = in == out ? NULL : conv_norm(in, out, 1, stride, FX_IDENTITY);
    void *sum = beside ? (void *)fx_parallel(FX_ADD, body, beside)
                       : (void *)fx_skipconnection(body, FX_ADD);
    return fx_chain(sum, FX_RELU);
}

/* Two blocks of one stage. */
static void *stage(int64_t in, int64_t out, int64_t stride)
{
    return fx_chain(residual(wide(in), wide(out), stride), residual(wide(out), wide(out), 1));
}

/* ResNet-18: He et al., 2015. */
static fx_chain_layer *resnet(void)
{
    void *stem = fx_chain(conv_norm(3, wide(64), 7, 2, FX_RELU),
                          fx_maxpool(FX_DIMS(3, 3), .pad = FX_DIMS(1, 1), .stride = FX_DIMS(2, 2)));
    return fx_chain(stem, stage(64, 64, 1), stage(64, 128, 2), stage(128, 256, 2),
                    stage(256, 512, 2), fx_globalmeanpool(), FX_FLATTEN, fx_dense(wide(512), 1000));
}

static sizes gpt_sizes(void)
{
    return bench_tiny ? (sizes){50, 16, 16, 2, 1} : (sizes){50257, 1024, 768, 12, 12};
}

static fx_chain_layer *gpt2(void)
{
    const sizes s = gpt_sizes();
    return (fx_chain_layer *)gpt(&s);
}

static fx_chain_layer *one_block(void)
{
    const sizes s = {0, 0, bench_tiny ? 16 : 1024, bench_tiny ? 2 : 16, 0};
    return (fx_chain_layer *)block(&s);
}

/* ---- a training step ------------------------------------------------------------------------- */

/* The kind of a case: its number of classes; 0: a regression; TOKENS: the next token; BLOCK: the
 * mean of the squares. BF16 is added to it. */
enum { BF16 = 10000, TOKENS = 5000, BLOCK = 6000 };

static int64_t classes(const bench_case *c)
{
    return c->flag % BF16;
}
static bool is_16_bit(const bench_case *c)
{
    return c->flag >= BF16;
}

static fx_array *tokens(int64_t batch)
{
    const sizes s = gpt_sizes();
    fx_array *pick = fx_floor(fx_mul(fx_rand(s.context, batch), (double)s.vocabulary));
    return fx_cast(fx_clamp(pick, 0, (double)s.vocabulary - 1), FX_DTYPE_I64);
}

/* A tiny input has two observations of at most 16×16 pixels or 8 positions of 16 features; the
 * Dense layers of LeNet keep it at 28×28. */
static fx_array *input(const bench_case *c)
{
    int64_t size[4];
    int n = 0;
    for (; n < 4 && c->size[n] > 0; n++)
        size[n] = c->size[n];
    if (bench_tiny)
        size[n - 1] = 2;
    if (bench_tiny && n == 4 && size[0] != 28)
        size[0] = size[1] = 16;
    if (bench_tiny && n == 3)
        size[0] = 16, size[1] = 8;
    if (classes(c) == TOKENS)
        return tokens(size[1]);
    fx_array *x = fxi_randn(FX_DTYPE_F32, n, size);
    return is_16_bit(c) ? fx_cast(x, FX_DTYPE_BF16) : x;
}

static void open_network(bench_state *s)
{
    const bench_case *c = s->which;
    fx_array *x = input(c);
    fx_eval(x);
    fx_set(&s->x, fx_to(device(), x));
    void *model = is_16_bit(c) ? (void *)fx_bf16(c->model()) : (void *)c->model();
    fx_set(&s->model, fx_to(device(), model));
    fx_set(&s->opt, fx_setup(fx_adam(.eta = 1e-4), s->model));
    const int64_t batch = fx_size(s->x, fx_ndims(s->x) - 1);
    if (classes(c) > 0 && classes(c) < TOKENS) {
        fx_array *pick = fx_floor(fx_mul(fx_rand(batch), (double)classes(c)));
        fx_array *label = fx_cast(fx_clamp(pick, 0, (double)classes(c) - 1), FX_DTYPE_I64);
        fx_set(&s->y, fx_to(device(), label));
    } else if (classes(c) == 0) {
        fx_set(&s->y, fx_square(s->x));
    }
    fx_eval(s->y ? fx_tuple(s->x, s->y, s->model) : fx_tuple(s->x, s->model));
}

static fx_array *loss(bench_state *s)
{
    const int64_t n = classes(s->which);
    if (n == TOKENS)
        return loss_of(s->model, s->x, gpt_sizes().vocabulary);
    fx_array *out = fx_call(s->model, s->x);
    return n == BLOCK ? fx_mean(fx_square(out))
           : n        ? fx_logitcrossentropy(out, fx_onehot(s->y, n))
                      : fx_mse(out, s->y);
}

static void train(bench_state *s)
{
    FX_RECORD;
    fx_array *value = fx_want(loss(s));
    fx_update(s->opt, s->model, fx_gradient(value, s->model));
}

/* ---- the start ------------------------------------------------------------------------------- */

/* The digit demo (examples/digits.c): one update with its batch size. */
int bench_first_step(void)
{
    FX_SCOPE;
    fx_allowscalar(true);
    void *model =
        fx_chain(fx_conv(FX_DIMS(3, 3), 1, 16, FX_RELU, .pad = FX_SAME), fx_maxpool(FX_DIMS(2, 2)),
                 fx_conv(FX_DIMS(3, 3), 16, 32, FX_RELU, .pad = FX_SAME), fx_maxpool(FX_DIMS(2, 2)),
                 FX_FLATTEN, fx_dense(128, 10));
    model = fx_to(device(), model);
    void *opt = fx_setup(fx_adam(.eta = 0.003), model);
    fx_array *x = fx_to(device(), fx_randn(8, 8, 1, 32)), *y = fx_to(device(), fx_zeros(32));
    FX_STEP;
    fx_array *loss =
        fx_want(fx_logitcrossentropy(fx_call(model, x), fx_onehot(fx_cast(y, FX_DTYPE_I64), 10)));
    fx_update(opt, model, fx_gradient(loss, model));
    return bench_print_start(fx_item(loss));
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

/* Starts a child whose cache of kernels is a new, empty folder. */
static bool start_cold(double *out_seconds, double *out_mib)
{
    char folder[4096], earlier[4096];
    const char *base = getenv("TMPDIR"), *now = getenv("XDG_CACHE_HOME");
    snprintf(folder, sizeof folder, "%.4000s/cflux-bench-XXXXXX", base && *base ? base : P_tmpdir);
    snprintf(earlier, sizeof earlier, "%s", now ? now : "");
    if (!mkdtemp(folder))
        return false;
    setenv("XDG_CACHE_HOME", folder, 1);
    const bool ok = bench_start_child("--first-step", out_seconds, out_mib);
    if (now)
        setenv("XDG_CACHE_HOME", earlier, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return ok;
}

/* The time of a new process to the end of its first training step. flag: with an empty cache of
 * kernels. */
static bool measure_start(const bench_case *c, bench_row *out)
{
    enum { RUNS = 5 };
    double value[RUNS], seconds, mib;
    const int runs = bench_tiny ? 1 : RUNS;
    bool ok = c->flag || bench_start_child("--first-step", &seconds, &mib); /* fills the cache */
    for (int i = 0; ok && i < runs; i++) {
        ok = c->flag ? start_cold(&seconds, &mib)
                     : bench_start_child("--first-step", &seconds, &mib);
        value[i] = 1e6 * seconds;
    }
    if (!ok)
        return fx_fail(FX_STATUS_IO, c->name, "the child did not answer"), false;
    bench_row_of(value, runs, "us", out);
    return true;
}

#define TRAIN(label, net, kind, ...)                                                               \
    {                                                                                              \
        .name = "gpu/train-" label, .setup = open_network, .body = train,                          \
        .measure = bench_measure_queued, .model = (net), .flag = (kind), .size = {                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

const bench_case bench_gpu_networks[] = {
    TRAIN("mlp-1-256-1-b16", curve_net, 0, 1, 16),
    TRAIN("mlp-784-256-10-b64", digit_net, 10, 784, 64),
    TRAIN("lenet-b128", lenet, 10, 28, 28, 1, 128),
    TRAIN("vgg-b256-f32", vgg_no_bias, 10, 32, 32, 3, 256),
    TRAIN("vgg-b256-bf16", vgg_no_bias, 10 + BF16, 32, 32, 3, 256),
    TRAIN("resnet18-b64-f32", resnet, 1000, 224, 224, 3, 64),
    TRAIN("resnet18-b64-bf16", resnet, 1000 + BF16, 224, 224, 3, 64),
    TRAIN("gpt2-b8-bf16", gpt2, TOKENS + BF16, 1025, 8), /* 1,024 are predicted */
    TRAIN("block-b16-bf16", one_block, BLOCK + BF16, 1024, 1024, 16),
    {.name = "gpu/first-step-cold", .measure = measure_start, .flag = 1},
    {.name = "gpu/first-step-warm", .measure = measure_start},
    {.name = NULL},
};
