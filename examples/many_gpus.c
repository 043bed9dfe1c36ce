/* many_gpus.c: data-parallel training on several GPUs of one process.
 *
 *   many_gpus [EPOCHS [DEVICE …]]        many_gpus 20 cuda:0 cuda:1 cuda:2
 *
 * Each device has a copy of the model and trains it on its part of every batch. fx_average gives
 * all copies the mean of their gradients, so they stay equal, and the result is the same as on one
 * device with whole batches. Default devices: all GPUs of NVIDIA; if there are none, all of AMD;
 * otherwise the CPU. At most 8 are used.
 */
#include <cflux.h>
#include <stdlib.h>

enum { MOST = 8, BATCH = 840, OBSERVATIONS = 3360 }; /* 1 to 8 divide 840: all parts are equal */

static fx_device *devices[MOST];
static void *models[MOST], *states[MOST];
static int count;

/* The function to learn. */
static fx_array *target(fx_array *x)
{
    return fx_add(fx_mul(fx_square(x), 0.5), fx_sin(fx_mul(x, 3)));
}

static void choose(int n, char **names)
{
    static const char *const backends[] = {"CUDA", "AMDGPU", NULL};
    for (count = 0; count < n && count < MOST; count++)
        devices[count] = fx_device_find(names[count]);
    for (const char *const *b = backends; *b && n <= 0 && count == 0; b++)
        for (; fx_functional(*b) && count < fx_device_count(*b) && count < MOST; count++)
            devices[count] = fx_device_get(*b, count);
    if (count == 0)
        devices[count++] = fx_cpu_device();
}

/* Part k of a batch on device k: the mean over equal parts is the mean over the batch. */
static fx_array *part(fx_array *batch, int k)
{
    const int64_t each = fx_size(batch, 1) / count;
    return fx_to(devices[k], fx_slice(batch, 1, k * each, (k + 1) * each));
}

/* One training step of all copies; returns the loss of the whole batch. */
static double train(fx_array *x, fx_array *y)
{
    FX_STEP;
    void *both[MOST]; /* (loss, gradient) of each device */
    for (int k = 0; k < count; k++) {
        fx_array *loss = fx_mse(fx_call(models[k], part(x, k)), part(y, k));
        both[k] = fx_tuple(loss, fx_gradient(loss, models[k]));
    }
    fx_average(count, both);
    for (int k = 0; k < count; k++)
        fx_update(states[k], models[k], fx_child(both[k], 1));
    return fx_item(fx_child(both[0], 0));
}

int main(int argc, char **argv)
{
    FX_SCOPE;
    const int epochs = argc > 1 ? atoi(argv[1]) : 20;
    fx_use_all();
    choose(argc - 2, argv + 2);
    fx_seed(42);
    fx_array *x = fx_randn(1, OBSERVATIONS), *y = target(x);
    fx_eval(fx_tuple(x, y));

    void *model = fx_chain(fx_dense(1, 64, FX_TANH), fx_dense(64, 1));
    for (int k = 0; k < count; k++) {
        models[k] = fx_to(devices[k], fx_snapshot(model)); /* fx_to copies only to other devices */
        states[k] = fx_setup(fx_adam(.eta = 1e-2), models[k]);
        printf("device: %s\n", fx_device_name(devices[k]));
    }
    for (int epoch = 1; epoch <= epochs && fx_error_status() == FX_OK; epoch++) {
        double loss = 0;
        for (int64_t at = 0; at < OBSERVATIONS; at += BATCH)
            loss += train(fx_slice(x, 1, at, at + BATCH), fx_slice(y, 1, at, at + BATCH));
        printf("epoch %d: loss %.8f\n", epoch, loss * BATCH / OBSERVATIONS);
    }
    return fx_error_print(stderr);
}
