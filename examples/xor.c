/* xor.c: Flux's quickstart: a network of two layers, with batch normalisation between them, learns
 * to classify 1000 random points of the unit square. The class of a point (x, y) is
 * xor(x > 0.5, y > 0.5). In Julia:
 *
 *   noisy = rand(Float32, 2, 1000)
 *   truth = [xor(col[1]>0.5, col[2]>0.5) for col in eachcol(noisy)]
 *   model = Chain(Dense(2 => 3, tanh), BatchNorm(3), Dense(3 => 2))
 *
 * The training loop is written out; a call of fx_train would do the same.
 */
#include <cflux.h>

enum { POINTS = 1000, EPOCHS = 400 };

static double accuracy(void *model, fx_array *points, fx_array *truth)
{
    FX_TEST; /* batch norm uses its running statistics */
    fx_array *guess = fx_onecold(fx_call(model, points));
    return fx_item(fx_mean(fx_eq(guess, truth)));
}

int main(void)
{
    fx_seed(1);
    fx_array *noisy = fx_rand(2, POINTS);
    fx_array *high = fx_gt(noisy, 0.5);
    fx_array *truth = fx_vec(fx_xor(fx_slice(high, 0, 0, 1), fx_slice(high, 0, 1, 2)));
    fx_array *target = fx_onehotbatch(fx_cast(truth, FX_DTYPE_I64), 2);

    fx_chain_layer *model = fx_chain(fx_dense(2, 3, FX_TANH), fx_batchnorm(3), fx_dense(3, 2));
    fx_show(model);
    printf("accuracy before: %.1f %%\n", 100 * accuracy(model, noisy, truth));

    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    fx_loader *loader = fx_dataloader(fx_tuple(noisy, target), .batchsize = 64, .shuffle = true);
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        if (epoch == EPOCHS * 3 / 4) /* a lower rate at the end makes the result stable */
            fx_adjust_eta(opt, 1e-3);
        for (fx_batch b = {0}; fx_next(loader, &b);) {
            FX_RECORD; /* a training step; repeats the recorded one if it makes the same calls */
            fx_array *loss = fx_logitcrossentropy(fx_call(model, b.x), b.y);
            fx_update(opt, model, fx_gradient(loss, model));
        }
    }

    printf("accuracy: %.1f %%\n", 100 * accuracy(model, noisy, truth));
    return fx_error_print(stderr);
}
