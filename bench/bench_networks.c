/* bench_networks.c: measures training steps and forward passes of whole networks.
 *
 * A training step does what a program would write: forward pass, loss, gradient, one update with
 * Adam. It also requests the value of the loss. Forward rows run under FX_TEST. Batches are fixed
 * random arrays already in memory, so loading data is not measured.
 */
#include "../examples/gpt_model.h"
#include "../tests/support/networks.h"
#include "bench.h"

#include <string.h>

static fx_chain_layer *xor_net(void)
{
    return fx_chain(fx_dense(2, 3, FX_TANH), fx_batchnorm(3), fx_dense(3, 2));
}

static fx_chain_layer *lstm_net(void)
{
    return fx_chain(fx_lstm(64, 128));
}

static fx_chain_layer *gru_net(void)
{
    return fx_chain(fx_gru(64, 128));
}

static fx_chain_layer *transformer_block(void)
{
    return fx_chain(block(&(sizes){.width = 256, .heads = 4}));
}

enum { VOCABULARY = 50257 }; /* of GPT-2 */

/* The GPT-2 of 124 M parameters. */
static fx_chain_layer *gpt2(void)
{
    return (fx_chain_layer *)gpt(&(sizes){VOCABULARY, 1024, 768, 12, 12});
}

static fx_chain_layer *gpt2_of_4_blocks(void)
{
    return (fx_chain_layer *)gpt(&(sizes){VOCABULARY, 1024, 256, 4, 4});
}

/* Kinds of networks that are neither classifiers nor regressions, as flag. */
enum { SQUARES = -1, TOKENS = -2 };

/* Texts of size[0] tokens, and the token after each. */
static void open_tokens(bench_state *s)
{
    const int64_t *n = s->which->size;
    fx_array *pick = fx_floor(fx_mul(fx_rand(n[0] + 1, n[1]), VOCABULARY - 1.0));
    fx_set(&s->y, fx_cast(pick, FX_DTYPE_I64));
    fx_set(&s->x, fx_slice(s->y, 0, 0, n[0]));
}

/* size: that of the input; unused sizes are 0. flag: number of classes, 0 for a regression, SQUARES
 * for the mean of the squares of the output, TOKENS for predictions of the next token. */
static void open_network(bench_state *s)
{
    const bench_case *c = s->which;
    int n = 0;
    while (n < 4 && c->size[n] > 0)
        n++;
    const int64_t batch = c->size[n - 1];
    if (c->flag == TOKENS)
        open_tokens(s);
    else
        fx_set(&s->x, fxi_randn(FX_DTYPE_F32, n, c->size));
    fx_set(&s->model, (void *)c->model());
    fx_rule *adam = fx_adam(.eta = 1e-4);
    const bool joined = bench_group && !bench_each_array;
    fx_set(&s->opt, fx_setup(joined ? fx_dist_optimiser(bench_group, adam) : adam, s->model));
    if (c->flag == 0) {
        fx_set(&s->y, fx_square(s->x));
    } else if (c->flag > 0) {
        fx_array *pick = fx_floor(fx_mul(fx_rand(batch), c->flag));
        fx_set(&s->y, fx_onehotbatch(fx_cast(pick, FX_DTYPE_I64), c->flag));
    }
    fx_eval(s->y ? fx_tuple(s->x, s->y, s->model) : fx_tuple(s->x, s->model));
}

static fx_array *loss_of_step(bench_state *s)
{
    const int64_t kind = s->which->flag;
    if (kind == TOKENS)
        return loss_of(s->model, s->y, VOCABULARY);
    fx_array *out = fx_call(s->model, s->x);
    return kind == SQUARES ? fx_mean(fx_square(out))
           : kind > 0      ? fx_logitcrossentropy(out, s->y)
                           : fx_mse(out, s->y);
}

static fx_array *average(fx_array *gradient, void *user)
{
    (void)user;
    return fx_dist_allreduce(bench_group, gradient, FX_REDUCE_MEAN);
}

static void train_in_scope(bench_state *s)
{
    fx_array *loss = fx_want(loss_of_step(s));
    void *gradient = fx_gradient(loss, s->model);
    if (bench_group && bench_each_array)
        gradient = fx_fmap_with(average, NULL, gradient);
    fx_update(s->opt, s->model, gradient);
}

static void train(bench_state *s)
{
    FX_STEP;
    train_in_scope(s);
}

static void record(bench_state *s)
{
    FX_RECORD;
    train_in_scope(s);
}

/* Two models that one update changes; layers of the first one are frozen. */
static void open_pair(bench_state *s)
{
    const bench_case *c = s->which;
    fx_set(&s->x, fxi_randn(FX_DTYPE_F32, 2, c->size));
    fx_set(&s->y, fx_square(s->x));
    fx_set(&s->model, (void *)fx_tuple(c->model(), fx_dense(2, 2)));
    void *first = fx_setup(fx_adam(.eta = 1e-4), fx_child(s->model, 0));
    fx_freeze(fx_child(fx_child(first, 0), 0));
    fx_set(&s->opt, (void *)fx_tuple(first, fx_setup(fx_adam(.eta = 1e-4), fx_child(s->model, 1))));
    fx_eval(fx_tuple(s->x, s->y, s->model));
}

static void record_pair(bench_state *s)
{
    FX_RECORD;
    void *const states[] = {fx_child(s->opt, 0), fx_child(s->opt, 1)};
    void *const models[] = {fx_child(s->model, 0), fx_child(s->model, 1)};
    fx_array *loss = fx_want(fx_mse(fx_call(models[1], fx_call(models[0], s->x)), s->y));
    void *const gradients[] = {fx_gradient(loss, models[0]), fx_gradient(loss, models[1])};
    fx_update_all(2, states, models, gradients);
}

static void forward(bench_state *s)
{
    FX_TEST;
    fx_eval(fx_call(s->model, s->x));
}

#define NETWORK(net, label, classes, ...)                                                          \
    {.name = "train/" label,                                                                       \
     .setup = open_network,                                                                        \
     .body = train,                                                                                \
     .model = net,                                                                                 \
     .flag = classes,                                                                              \
     .size = {__VA_ARGS__}},                                                                       \
        {.name = "record/" label,                                                                  \
         .setup = open_network,                                                                    \
         .body = record,                                                                           \
         .model = net,                                                                             \
         .flag = classes,                                                                          \
         .size = {__VA_ARGS__}},                                                                   \
    {                                                                                              \
        .name = "forward/" label, .setup = open_network, .body = forward, .model = net,            \
        .flag = classes, .size = {                                                                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

const bench_case bench_networks[] = {
    NETWORK(xor_net, "xor-2-3-bn-2-b64", 2, 2, 64),
    NETWORK(curve_net, "mlp-1-256-1-b16", 0, 1, 16),
    NETWORK(digit_net, "mlp-784-256-10-b64", 10, 784, 64),
    NETWORK(digit_net, "mlp-784-256-10-b1024", 10, 784, 1024),
    NETWORK(lenet, "lenet-b64", 10, 28, 28, 1, 64),
    NETWORK(vgg, "vgg-bn-b64", 10, 32, 32, 3, 64),
    NETWORK(lstm_net, "lstm-64-128-seq50-b32", SQUARES, 64, 50, 32),
    NETWORK(gru_net, "gru-64-128-seq50-b32", SQUARES, 64, 50, 32),
    NETWORK(transformer_block, "block-256-h4-seq128-b8", SQUARES, 256, 128, 8),
    NETWORK(gpt2_of_4_blocks, "gpt2-4x256-seq64-b4", TOKENS, 64, 4),
    NETWORK(gpt2, "gpt2-124m-seq64-b4", TOKENS, 64, 4),
    {.name = "record/two-models-b16",
     .setup = open_pair,
     .body = record_pair,
     .model = xor_net,
     .size = {2, 16}},
    {.name = NULL},
};

const bench_case *bench_network(const char *name)
{
    const bench_case *c = bench_networks;
    while (c->name && strcmp(c->name, name) != 0)
        c++;
    return c;
}
