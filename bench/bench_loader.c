/* bench_loader.c: measures a loader that is as slow as the training step, without and with a
 * worker.
 *
 * A function of mapobs augments batches of images: it mirrors them at random, blurs them, adds
 * noise and normalises. The number of blurs is chosen so that a batch costs as much as a training
 * step of the network, which is measured first. Rows are the time per training step of the whole
 * loop, serial and with one worker (.parallel), and the share of the loader's time that the worker
 * hides. If a training step takes s alone, t in the serial loop and u with the worker, this share
 * is (t − u) / (t − s). The row by-step is the cost of a batch, (t − s) / s, and should be about 1.
 *
 * Two threads need two cores. Other programs use them too, and would dominate differences of
 * medians. So s, t and u are minima over short, alternating passes; the clock starts when the first
 * batch of a pass is ready. If two cores are never free at once, even minima say little. Therefore
 * the row taken-over is the same share measured in processor time of the calling thread. Other
 * programs do not affect it, but it does not include the time spent waiting for the worker.
 */
#include "bench.h"

#include <math.h>
#include <time.h>

enum { BATCH = 64, BATCHES = 9, LEAST_ROUNDS = 11, MOST_BLURS = 1000 };

typedef enum kind { STEP, SERIAL, AHEAD, KINDS } kind;

/* Seconds per training step or batch: elapsed time, and processor time of this thread. */
typedef struct seconds {
    double clock, processor;
} seconds;

typedef struct loop {
    bench_state net;
    fx_maxpool_layer *blur;
    int blurs; /* amount of work per batch */
    fx_loader *loaders[KINDS];
} loop;

/* Augments the images of a pair: 28×28×1×N, Float32. */
static void *augment(void *pair, void *user)
{
    const loop *l = user;
    fx_array *x = fx_child(pair, 0);
    const int64_t n = fx_size(x, 3);
    x = fx_where(fx_lt(fx_rand(1, 1, 1, n), 0.5), fx_flip(x, FX_AXES(0)), x);
    for (int k = 0; k < l->blurs; k++)
        x = fx_call(l->blur, x);
    x = fx_add(x, fx_mul(0.05, fx_randn(28, 28, 1, n)));
    return fx_tuple(fx_normalise(x, FX_AXES(0, 1), 1e-5), fx_child(pair, 1));
}

static void train(bench_state *s, fx_array *x, fx_array *y)
{
    FX_STEP;
    fx_array *loss = fx_logitcrossentropy(fx_call(s->model, x), y);
    fx_want(loss);
    fx_update(s->opt, s->model, fx_gradient(loss, s->model));
}

static seconds now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (seconds){bench_now(), (double)t.tv_sec + 1e-9 * (double)t.tv_nsec};
}

/* Seconds per batch of a pass, from its first batch on: for training steps, for the loader alone,
 * or for both. */
static seconds pass(loop *l, kind k, bool with_step)
{
    seconds began = now();
    for (int i = 0; k == STEP && i < BATCHES; i++)
        train(&l->net, l->net.x, l->net.y);
    for (fx_batch b = {0}; k != STEP && fx_next(l->loaders[k], &b);) {
        began = b.index == 0 ? now() : began;
        if (with_step)
            train(&l->net, b.x, b.y);
    }
    const seconds end = now();
    return (seconds){(end.clock - began.clock) / BATCHES,
                     (end.processor - began.processor) / BATCHES};
}

static seconds least(seconds a, seconds b)
{
    return (seconds){fmin(a.clock, b.clock), fmin(a.processor, b.processor)};
}

static double least_of(loop *l, kind k, bool with_step)
{
    seconds t = pass(l, k, with_step);
    for (int i = 0; i < 4; i++)
        t = least(t, pass(l, k, with_step));
    return t.processor;
}

/* Chooses the number of blurs for which a batch takes as long as a training step. */
static void calibrate(loop *l)
{
    enum { SOME = 16 };
    const double step = least_of(l, STEP, true), none = least_of(l, SERIAL, false);
    l->blurs = SOME;
    const double each = (least_of(l, SERIAL, false) - none) / SOME;
    const double blurs = each > 0 && step > none ? (step - none) / each + 0.5 : 0;
    l->blurs = (int)fmin(blurs, MOST_BLURS);
}

static void open_loop(loop *l)
{
    FX_SCOPE;
    bench_open(bench_network("train/lenet-b64"), &l->net);
    fx_array *images = fx_rand(28, 28, 1, BATCH * BATCHES);
    fx_array *pick = fx_cast(fx_floor(fx_mul(fx_rand(BATCH * BATCHES), 10)), FX_DTYPE_I64);
    void *data = fx_mapobs_with(augment, l, fx_tuple(images, fx_onehotbatch(pick, 10)));
    fx_set(&l->blur, fx_meanpool(FX_DIMS(3, 3), .stride = FX_DIMS(1, 1), .pad = FX_DIMS(1, 1)));
    for (kind k = SERIAL; k < KINDS; k++)
        fx_set(&l->loaders[k], fx_dataloader(data, .batchsize = BATCH, .shuffle = true, .seed = 1,
                                             .parallel = k == AHEAD));
}

static void close_loop(loop *l)
{
    for (kind k = SERIAL; k < KINDS; k++)
        fx_set(&l->loaders[k], NULL);
    fx_set(&l->blur, NULL);
    bench_close(&l->net);
}

typedef enum figure { HIDDEN, TAKEN_OVER, SERIAL_STEP, AHEAD_STEP, LOADER_BY_STEP } figure;
static const char *const units[] = {"percent", "percent", "us", "us", "times"};

static double figure_of(int64_t which, const seconds *t)
{
    const double loader = t[SERIAL].clock - t[STEP].clock;
    switch (which) {
    case HIDDEN:
        return 100 * (t[SERIAL].clock - t[AHEAD].clock) / loader;
    case TAKEN_OVER:
        return 100 * (t[SERIAL].processor - t[AHEAD].processor) /
               (t[SERIAL].processor - t[STEP].processor);
    case LOADER_BY_STEP:
        return loader / t[STEP].clock;
    default:
        return 1e6 * t[which == SERIAL_STEP ? SERIAL : AHEAD].clock;
    }
}

/* flag: which quantity. */
static bool measure(const bench_case *c, bench_row *out)
{
    loop l = {.blurs = 0};
    seconds t[KINDS];
    int rounds = 0;
    open_loop(&l);
    calibrate(&l);
    const double end = bench_now() + 8 * bench_seconds;
    for (; rounds < LEAST_ROUNDS || bench_now() < end; rounds++)
        for (kind k = STEP; k < KINDS; k++) {
            const seconds once = pass(&l, k, true);
            t[k] = rounds ? least(t[k], once) : once;
        }
    close_loop(&l);
    double value = figure_of(c->flag, t);
    bench_row_of(&value, 1, units[c->flag], out);
    out->samples = out->taken = rounds;
    return true;
}

const bench_case bench_loaders[] = {
    {.name = "loader/lenet-b64-serial", .measure = measure, .flag = SERIAL_STEP},
    {.name = "loader/lenet-b64-ahead", .measure = measure, .flag = AHEAD_STEP},
    {.name = "loader/lenet-b64-hidden", .measure = measure, .flag = HIDDEN},
    {.name = "loader/lenet-b64-taken-over", .measure = measure, .flag = TAKEN_OVER},
    {.name = "loader/lenet-b64-by-step", .measure = measure, .flag = LOADER_BY_STEP},
    {.name = NULL},
};
