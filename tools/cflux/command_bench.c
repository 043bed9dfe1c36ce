/* command_bench.c: cflux bench: measures how fast this machine computes with this library.
 *
 * A row is timed in SAMPLES samples of many runs, each at least --seconds / (2·SAMPLES) long. The
 * median of the samples is printed, so that one disturbance has no effect. Work that is done only
 * once (plans, kernels of a device) is done before the timing.
 */
#include "array_stats.h"
#include "bench_allreduce.h"
#include "failure.h"
#include <cflux/json_out.h>
#include "options.h"
#include "system.h"
#include "text_parts.h"
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLES = 11,
    RUNS_AT_MOST = 1 << 24,
    PRODUCT = 1024,
    COPIED = 1 << 24,
    CLASSES_AT_LEAST = 2
};

static bool as_json;
static const char *device_name = "", *notation, *input_text;
static int64_t batchsize = 64;
static double seconds = 0.5;
static option_row options[] = {
    {"device", 'd', OPTION_TEXT, &device_name, "DEVICE",
     "The device to compute on, such as cpu or opencl:0; cflux devices lists them (default: the "
     "preferred device)",
     0, 0},
    {"model", 'm', OPTION_TEXT, &notation, "NOTATION",
     "Time this model instead of the standard networks; needs --input", 0, 0},
    {"input", 'i', OPTION_TEXT, &input_text, "SIZES",
     "The sizes of one observation: 784 or 28x28x1", 0, 0},
    {"batchsize", 'b', OPTION_INTEGER, &batchsize, "N", "Observations in a batch (default: 64)", 1,
     1e9},
    {"seconds", 's', OPTION_NUMBER, &seconds, "S",
     "Seconds to spend on each measurement (default: 0.5)", 0.001, 3600},
    OPTION_JSON(&as_json),
    OPTIONS_END,
};

typedef struct bench {
    fx_device *device;
    void *model, *state;
    fx_array *x, *y;
    bool regression;
} bench;

/* ---- timed functions ------------------------------------------------------------------------- */

static void run_copy(bench *b)
{
    FX_SCOPE;
    fx_eval(fx_add(b->x, 1));
}

static void run_product(bench *b)
{
    FX_SCOPE;
    fx_eval(fx_matmul(b->x, b->y));
}

static void run_forward(bench *b)
{
    FX_TEST;
    fx_eval(fx_call(b->model, b->x));
}

static void run_step(bench *b)
{
    FX_STEP;
    fx_array *out = fx_call(b->model, b->x);
    fx_array *loss = b->regression ? fx_mse(out, b->y) : fx_logitcrossentropy(out, b->y);
    fx_want(loss);
    fx_update(b->state, b->model, fx_gradient(loss, b->model));
}

/* ---- timing ---------------------------------------------------------------------------------- */

static double time_runs(bench *b, void (*run)(bench *b), int64_t runs)
{
    fx_synchronize(b->device);
    const double start = seconds_now();
    for (int64_t i = 0; i < runs && fx_error_status() == FX_OK; i++)
        run(b);
    fx_synchronize(b->device);
    return seconds_now() - start;
}

/* Seconds per run. */
static double time_of(bench *b, void (*run)(bench *b))
{
    double samples[SAMPLES];
    int64_t runs = 1;
    time_runs(b, run, 3);
    while (time_runs(b, run, runs) < seconds / SAMPLES / 2 && runs < RUNS_AT_MOST &&
           fx_error_status() == FX_OK)
        runs *= 2;
    for (int i = 0; i < SAMPLES; i++)
        samples[i] = time_runs(b, run, runs) / (double)runs;
    qsort(samples, SAMPLES, sizeof *samples, compare_numbers);
    return samples[SAMPLES / 2];
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Called before the first row, after all input is checked, so that bad input prints no table. */
static void print_head(fx_json *j, const fx_device *device)
{
    if (!as_json) {
        printf("%s, %d threads, batches of %d\n\n", fx_device_name(device), fx_num_threads(),
               (int)batchsize);
        return;
    }
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "device", fx_device_name(device));
    fx_json_integer(j, "threads", fx_num_threads());
    fx_json_integer(j, "batchsize", batchsize);
    fx_json_open(j, "rows", '[');
}

/* `work`: work of one run, in `unit`. A row that failed midway has no time. */
static void print_row(fx_json *j, const char *name, double each, double work, const char *unit)
{
    char scaled[32];
    if (fx_error_status() != FX_OK)
        return;
    snprintf(scaled, sizeof scaled, each < 1e-3 ? "%.1f µs" : "%.2f ms",
             each < 1e-3 ? 1e6 * each : 1e3 * each);
    if (!as_json) {
        printf("%-44s %12s %14.4g %s\n", name, scaled, work / each, unit);
        fflush(stdout);
        return;
    }
    fx_json_open(j, NULL, '{');
    fx_json_text(j, "name", name);
    fx_json_number(j, "seconds", each);
    fx_json_number(j, "rate", work / each);
    fx_json_text(j, "unit", unit);
    fx_json_close(j);
}

static fx_array *on_device(const bench *b, fx_array *x)
{
    x = fx_to(b->device, x);
    fx_eval(x);
    return x;
}

static void bench_machine(fx_json *j, fx_device *device)
{
    FX_SCOPE;
    bench b = {.device = device};
    b.x = on_device(&b, fx_rand(COPIED));
    print_head(j, device);
    print_row(j, "read and write 64 MiB", time_of(&b, run_copy), 2e-9 * COPIED * sizeof(float),
              "GB/s");
    b.x = on_device(&b, fx_rand(PRODUCT, PRODUCT));
    b.y = b.x;
    print_row(j, "matrix product 1024×1024×1024", time_of(&b, run_product),
              2e-9 * PRODUCT * PRODUCT * PRODUCT, "GFLOP/s");
}

static fx_array *targets(const fx_array *out, bool regression)
{
    if (regression)
        return fx_zeros_like(out);
    const int64_t classes = fx_size(out, 0);
    fx_array *pick = fx_floor(fx_mul(fx_rand(fx_size(out, 1)), (double)classes));
    return fx_onehot(fx_cast(pick, FX_DTYPE_I64), classes);
}

/* Times forward pass and training step. If the outputs are class scores in columns, it trains
 * classes; otherwise it trains towards zeros. */
static void bench_model(fx_json *j, fx_device *device, const char *name, void *model,
                        const fx_dims *input)
{
    FX_SCOPE;
    bench b = {.device = device};
    char title[160];
    fx_dims sizes = *input;
    sizes.v[sizes.n++] = batchsize;
    b.x = on_device(&b, fxi_rand(FX_DTYPE_F32, (int)sizes.n, sizes.v));
    b.model = fx_to(device, model);
    fx_array *out = fx_call(b.model, b.x);
    b.regression = fx_ndims(out) != 2 || fx_size(out, 0) < CLASSES_AT_LEAST;
    b.y = on_device(&b, targets(out, b.regression));
    b.state = fx_setup(fx_adam(.eta = 1e-4), b.model);
    if (fx_error_status() != FX_OK)
        return;
    if (notation)
        print_head(j, device);
    snprintf(title, sizeof title, "%s, forward", name);
    print_row(j, title, time_of(&b, run_forward), (double)batchsize, "observations/s");
    snprintf(title, sizeof title, "%s, training step", name);
    print_row(j, title, time_of(&b, run_step), (double)batchsize, "observations/s");
}

static const struct {
    const char *name, *notation;
    fx_dims input;
} models[] = {
    {"2 => 3 => 2, batch norm",
     "Chain(Dense(2 => 3, tanh), BatchNorm(3), Dense(3 => 2))",
     {1, {2}}},
    {"784 => 256 => 10", "Chain(Dense(784 => 256, relu), Dense(256 => 10))", {1, {784}}},
    {"LeNet",
     "Chain(Conv((5, 5), 1 => 6, relu), MaxPool((2, 2)), Conv((5, 5), 6 => 16, relu), "
     "MaxPool((2, 2)), Flux.flatten, Dense(256 => 120, relu), Dense(120 => 84, relu), "
     "Dense(84 => 10))",
     {3, {28, 28, 1}}},
};

static int bench_all(fx_json *j, fx_device *device)
{
    fx_dims input = {.n = 0};
    if (!notation && input_text)
        return fail(EXIT_BAD_INPUT,
                    "--input needs --model: the standard networks have their own input sizes");
    if (!notation) {
        bench_machine(j, device);
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
            bench_model(j, device, models[i].name, fx_parse_model(models[i].notation),
                        &models[i].input);
        return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_FAILED);
    }
    input.n = input_text ? read_sizes(input_text, input.v) : 0;
    if (input.n == 0)
        return fail(EXIT_BAD_INPUT,
                    input_text ? "--input takes sizes such as 784 or 28x28x1, got \"%s\""
                               : "--model needs --input: the sizes of one observation%s",
                    input_text ? input_text : "");
    void *model = fx_parse_model(notation);
    if (!fx_is_error(model))
        bench_model(j, device, "model", model, &input);
    return fx_error_status() == FX_OK ? EXIT_FINE : fail_library(EXIT_BAD_INPUT);
}

static int run_bench(int n, char **operands)
{
    if (n > 0 && strcmp(operands[0], "allreduce") != 0)
        return fail(EXIT_BAD_INPUT, "unknown measurement \"%s\"; did you mean allreduce?",
                    operands[0]);
    if (n > 0)
        return bench_allreduce(seconds, as_json);
    fx_json j = {.to = stdout};
    if (!*device_name)
        fx_use_all();
    fx_device *device = *device_name ? fx_device_find(device_name) : fx_get_device();
    if (fx_error_status() != FX_OK)
        return fail_library(EXIT_BAD_INPUT);
    fx_seed(1);
    const int status = bench_all(&j, device);
    if (j.depth > 0)
        fx_json_end(&j);
    return status;
}

const command command_bench = {
    .name = "bench",
    .summary = "Measure how fast models compute on this machine",
    .operands = "[allreduce]",
    .most = 1,
    .examples = "cflux bench\n"
                "cflux bench --model 'Chain(Dense(784 => 32), Dense(32 => 10))' --input 784\n",
    .about = "Times a copy in memory, a matrix product and three networks: predictions, and "
             "training steps with Adam, with the data in memory. Each figure is the median of 11 "
             "samples. With --model it times only that model. With allreduce it times sums over "
             "the processes that cflux launch or mpirun started, by cflux and by MPI alone, and "
             "prints the bus bandwidth and the bound that the links set.",
    .options = options,
    .run = run_bench,
};
