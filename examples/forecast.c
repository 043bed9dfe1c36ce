/* forecast.c: forecasts a time series with a recurrent network.
 *
 *   forecast [EPOCHS]
 *
 * The series is an autoregressive process, x(t) = 1.6·x(t−1) − 0.8·x(t−2) + e(t), with normal noise
 * e of standard deviation 0.5. No forecast of the next value can have a smaller mean squared error
 * than the noise's variance, 0.25. The program prints this number, the error of the network, and
 * the error of forecasting that the next value equals the present one. The network does not know
 * the formula: it sees 200 series of 60 values. After 40 epochs, in 0.3 s of one core of an x86-64
 * processor, its error is 0.254; that of the present value is 0.754.
 */
#include <cflux.h>
#include <stdlib.h>

enum { LENGTH = 61, TRAIN = 200, TEST = 100, START = 10 };
#define NOISE 0.5

/* Returns n series of LENGTH values, 1×LENGTH×n. Leaves out the first 100 values of each series,
 * which depend on its start. */
static fx_array *simulate(int64_t n)
{
    float *x = malloc(sizeof(float) * (size_t)(LENGTH * n));
    fx_array *noise = fx_mul(NOISE, fx_randn(LENGTH + 100, n));
    fx_array *result = NULL;
    for (int64_t series = 0; x && series < n; series++) {
        FX_SCOPE;
        float e[LENGTH + 100];
        double previous = 0, earlier = 0;
        if (fx_read_as(fx_slice(noise, 1, series, series + 1), FX_DTYPE_F32, e, LENGTH + 100) !=
            FX_OK)
            break;
        for (int t = 0; t < LENGTH + 100; t++) {
            const double next = 1.6 * previous - 0.8 * earlier + (double)e[t];
            earlier = previous;
            previous = next;
            if (t >= 100)
                x[series * LENGTH + t - 100] = (float)next;
        }
    }
    if (x)
        result = fx_from(FX_DTYPE_F32, x, 1, LENGTH, n);
    free(x);
    return result;
}

/* The mean squared error. forecast: 1×60×n, the forecasts of the values 1, 2, … of each series. The
 * first START forecasts do not count. */
static fx_array *error_of(fx_array *forecast, fx_array *x)
{
    fx_array *truth = fx_slice(x, 1, 1 + START, LENGTH);
    return fx_mse(fx_slice(forecast, 1, START, LENGTH - 1), truth);
}

static fx_array *loss(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return error_of(fx_call(model, fx_slice(b->x, 1, 0, LENGTH - 1)), b->x);
}

int main(int argc, char **argv)
{
    const int epochs = argc > 1 ? atoi(argv[1]) : 40;
    if (argc > 2 || epochs < 1) {
        fprintf(stderr, "usage: %s [EPOCHS]\n", argv[0]);
        return 2;
    }
    fx_seed(1);
    fx_array *train = simulate(TRAIN), *test = simulate(TEST);
    void *model = fx_chain(fx_gru(1, 16), fx_dense(16, 1));
    fx_show(model);
    void *opt = fx_setup(fx_adam(.eta = 1e-2), model);
    fx_loader *loader = fx_dataloader(train, .batchsize = 20, .shuffle = true);
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    fx_train(loss, model, loader, opt, .epochs = epochs, .progress = true, .progress_to = stdout);

    fx_array *past = fx_slice(test, 1, 0, LENGTH - 1);
    const double network = fx_item(error_of(fx_call(model, past), test));
    const double unchanged = fx_item(error_of(past, test));
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    printf("mean squared error if the next value equals the present one: %.3f\n", unchanged);
    printf("mean squared error of the network: %.3f (the noise alone: %.3f)\n", network,
           NOISE * NOISE);
    return 0;
}
