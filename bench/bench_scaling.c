/* bench_scaling.c: training by several processes with and without an exchange of gradients, and
 * exchanges alone. Only for --processes. bench/scaling.py compares the times with its predictions,
 * and has copies of WIDTH and LAYERS.
 */
#include "bench.h"

enum { WIDTH = 512, LAYERS = 12, PARAMETERS = LAYERS * (WIDTH * WIDTH + WIDTH) };

/* size[0]: the batch; flag: are gradients exchanged? */
static void open_training(bench_state *s)
{
    const int64_t batch = s->which->size[0];
    void *layers[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        layers[i] = fx_dense(WIDTH, WIDTH, FX_RELU);
    fx_set(&s->model, (void *)fxi_chain(LAYERS, layers));
    fx_rule *rule = fx_descent(1e-3);
    fx_set(&s->opt,
           fx_setup(s->which->flag ? fx_dist_optimiser(bench_group, rule) : rule, s->model));
    fx_set(&s->x, fx_randn(WIDTH, batch));
    fx_set(&s->y, fx_randn(WIDTH, batch));
    fx_eval(fx_tuple(s->x, s->y, s->model));
}

static void train(bench_state *s)
{
    FX_STEP;
    fx_array *loss = fx_mse(fx_call(s->model, s->x), s->y);
    fx_update(s->opt, s->model, fx_gradient(loss, s->model));
}

/* size[0]: the number of elements */
static void open_exchange(bench_state *s)
{
    fx_set(&s->x, fx_ones(s->which->size[0]));
    fx_eval(s->x);
}

static void exchange(bench_state *s)
{
    FX_STEP;
    fx_eval(fx_dist_allreduce(bench_group, s->x, FX_REDUCE_SUM));
}

#define TRAINING(batch)                                                                            \
    {.name = "scaling/alone-b" #batch, .setup = open_training, .body = train, .size = {batch}},    \
    {                                                                                              \
        .name = "scaling/train-b" #batch, .setup = open_training, .body = train, .size = {batch},  \
        .flag = 1                                                                                  \
    }

const bench_case bench_scaling[] = {
    {.name = "scaling/exchange-4", .setup = open_exchange, .body = exchange, .size = {1}},
    {.name = "scaling/exchange-12m",
     .setup = open_exchange,
     .body = exchange,
     .size = {PARAMETERS}},
    TRAINING(320),
    TRAINING(640),
    TRAINING(1280),
    {.name = NULL},
};
