/* bench_scaling.c: training by several processes with and without an exchange of gradients, and
 * exchanges alone. Only for --processes. bench/scaling.py compares the times with its predictions,
 * and has copies of WIDTH and LAYERS.
 *
 * In the cases "waiting", the backward pass of each layer sleeps for WAIT milliseconds instead of
 * computing a large batch. So the cores are free for the exchange, as they are when a GPU computes.
 */
#include "bench.h"
#include "clock.h"

#include <string.h>

enum { WIDTH = 512, LAYERS = 12, PARAMETERS = LAYERS * (WIDTH * WIDTH + WIDTH), WAIT = 20 };

/* out = in[0] */
static fx_status copy(const fx_custom_op *op, int n, const fx_custom_operand *in,
                      const fx_custom_operand *out)
{
    (void)op, (void)n;
    memcpy(out->data, in[0].data, (size_t)(out->sizes[0] * out->sizes[1]) * sizeof(float));
    return FX_OK;
}

static fx_status sleep_and_copy(const fx_custom_op *op, int n, const fx_custom_operand *in,
                                const fx_custom_operand *out)
{
    fxi_sleep_milliseconds(WAIT);
    return copy(op, n, in, out);
}

static fx_array *apply(const fx_custom_op *op, fx_array *x)
{
    return fx_custom(op, 1, &x, FX_DTYPE_F32, FX_DIMS(fx_size(x, 0), fx_size(x, 1)));
}

static void wait_backward(const fx_custom_op *op, int n, fx_array *const *in, fx_array *out,
                          fx_array *gy, fx_array **gx)
{
    static const fx_custom_op sleeping = {sizeof sleeping, "wait", sleep_and_copy, NULL, NULL};
    (void)op, (void)n, (void)in, (void)out;
    gx[0] = apply(&sleeping, gy);
}

/* y = x, whose gradient takes WAIT milliseconds. */
static const fx_custom_op waiting = {sizeof waiting, "waits backward", copy, wait_backward, NULL};

/* size[0]: the batch; size[1]: does the backward pass wait? flag: are gradients exchanged? */
static void open_training(bench_state *s)
{
    const int64_t batch = s->which->size[0];
    void *layers[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        layers[i] = fx_dense(WIDTH, WIDTH, FX_RELU);
    fx_set(&s->model, fxi_tuple(LAYERS, layers));
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
    fx_array *y = s->x;
    for (int i = 0; i < LAYERS; i++) {
        y = fx_call(fx_child(s->model, i), y);
        if (s->which->size[1])
            y = apply(&waiting, y);
    }
    fx_array *loss = fx_mse(y, s->y);
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

#define TRAINING(name_, batch, waits)                                                              \
    {.name = "scaling/alone-" name_,                                                               \
     .setup = open_training,                                                                       \
     .body = train,                                                                                \
     .size = {batch, waits}},                                                                      \
    {                                                                                              \
        .name = "scaling/train-" name_, .setup = open_training, .body = train,                     \
        .size = {batch, waits}, .flag = 1                                                          \
    }

const bench_case bench_scaling[] = {
    {.name = "scaling/exchange-4", .setup = open_exchange, .body = exchange, .size = {1}},
    {.name = "scaling/exchange-12m",
     .setup = open_exchange,
     .body = exchange,
     .size = {PARAMETERS}},
    {.name = "scaling/exchange-1m",
     .setup = open_exchange,
     .body = exchange,
     .size = {PARAMETERS / LAYERS}},
    TRAINING("b320", 320, 0),
    TRAINING("b640", 640, 0),
    TRAINING("b1280", 1280, 0),
    TRAINING("waiting", 8, 1),
    {.name = NULL},
};
