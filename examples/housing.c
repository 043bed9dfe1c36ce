/* housing.c: predicts prices of houses from 13 numbers about their neighbourhood, by linear
 * regression and by a small network.
 *
 *   housing FILE [EPOCHS]
 *
 * FILE is a table with the price in its last column, such as boston_house_prices.csv of
 * scikit-learn: one line of other contents, the names of the columns, and 506 rows. A fifth of the
 * rows, drawn at random, is for the test. The program prints the root of the mean squared error of
 * the test, in thousands of dollars, beside that of always predicting the mean price: 8.89 for the
 * mean, 4.84 for the linear model and 3.38 for the network, after less than 0.1 s. Source of the
 * data: D. Harrison, D. Rubinfeld, Hedonic prices and the demand for clean air, 1978. One of its
 * columns is a statistic about race; do not use the data for anything but a test of methods.
 */
#include <cflux.h>
#include <math.h>
#include <stdlib.h>

typedef struct scale {
    fx_array *mean, *std;
} scale;

static scale scale_of(fx_array *x)
{
    return (scale){fx_mean(x, .dims = FX_AXES(1)), fx_std(x, .dims = FX_AXES(1))};
}

static fx_array *scaled(const scale *s, fx_array *x)
{
    return fx_div(fx_sub(x, s->mean), s->std);
}

static fx_array *loss(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), b->y);
}

/* Trains the model and returns the root mean squared error of the test, in the unit of the prices.
 */
static double error_after(void *model, int epochs, void *train, void *test, const scale *price)
{
    void *opt = fx_setup(fx_adam(.eta = 0.01), model);
    fx_loader *loader = fx_dataloader(train, .batchsize = 32, .shuffle = true);
    fx_show(model);
    fx_train(loss, model, loader, opt, .epochs = epochs);
    fx_array *forecast = fx_call(model, fx_child(test, 0));
    return sqrt(fx_item(fx_mse(forecast, fx_child(test, 1)))) * fx_item(price->std);
}

int main(int argc, char **argv)
{
    const int epochs = argc > 2 ? atoi(argv[2]) : 60;
    if (argc < 2 || argc > 3 || epochs < 1) {
        fprintf(stderr, "usage: %s FILE [EPOCHS]\n", argv[0]);
        return 2;
    }
    fx_seed(1);
    fx_array *table = fx_child_named(fx_read_table(argv[1], .skip = 1), "values");
    const int64_t features = fx_size(table, 0) - 1;
    void *parts = fx_splitobs(table, FX_FRACTIONS(0.8), .shuffle = true, .seed = 1);
    void *sets[2];
    scale input = {0}, price = {0};
    for (int i = 0; i < 2; i++) { /* the scale of the training rows is also that of the test rows */
        fx_array *rows = fx_getobs(fx_child(parts, i));
        fx_array *x = fx_slice(rows, 0, 0, features);
        fx_array *y = fx_slice(rows, 0, features, features + 1);
        if (i == 0) {
            input = scale_of(x);
            price = scale_of(y);
        }
        sets[i] = fx_tuple(scaled(&input, x), scaled(&price, y));
    }
    fx_array *deviation = fx_square(fx_child(sets[1], 1)); /* from the mean of the training rows */
    const double constant = sqrt(fx_item(fx_mean(deviation))) * fx_item(price.std);
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    const double linear = error_after(fx_dense(features, 1), epochs, sets[0], sets[1], &price);
    void *network = fx_chain(fx_dense(features, 32, FX_RELU), fx_dense(32, 1));
    const double curved = error_after(network, epochs, sets[0], sets[1], &price);
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    printf("test error: mean price %.2f, linear %.2f, network %.2f\n", constant, linear, curved);
    return 0;
}
