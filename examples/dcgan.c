/* dcgan.c: trains a convolutional generative adversarial network on MNIST's digits, and draws 100
 * digits that the generator makes from random numbers.
 *
 *   dcgan FOLDER [EPOCHS [IMAGES [PICTURE]]]
 *
 * FOLDER holds train-images-idx3-ubyte, with or without .gz (http://yann.lecun.com/exdb/mnist).
 * With IMAGES the program trains on the first IMAGES of the 60,000. It writes the picture to
 * PICTURE, by default dcgan.pgm. After 20 epochs of all 60,000 images (about 12 minutes of one core
 * of an x86-64 processor) most digits of the picture can be read; the losses are 0.719 of the
 * generator and 1.365 of the discriminator, near log 2 and 2·log 2, the losses if the
 * discriminator only guesses. Source: A. Radford, L. Metz, S. Chintala, Unsupervised representation
 * learning with deep convolutional generative adversarial networks, 2016; layers are those of
 * Flux's model zoo, with a fourth of its channels.
 */
#include "mnist_files.h"

#include <stdlib.h>

enum { LATENT = 100, WIDTH = 64, BATCH = 128, GRID = 10 };

static fx_array *leaky(fx_array *x)
{
    return fx_leakyrelu_slope(x, 0.2);
}

static fx_array *as_image(fx_array *x) /* 7·7·WIDTH×N to 7×7×WIDTH×N */
{
    return fx_reshape(x, 7, 7, WIDTH, fx_size(x, 1));
}

static void *make_generator(void)
{
    fx_init_fn init = fx_glorot_normal;
    return fx_chain(
        fx_dense(LATENT, 7 * 7 * WIDTH, .bias = false), fx_batchnorm(7 * 7 * WIDTH, FX_RELU),
        fx_function_new("as_image", as_image),
        fx_convtranspose(FX_DIMS(5, 5), WIDTH, WIDTH / 2, .pad = FX_DIMS(2), .init = init),
        fx_batchnorm(WIDTH / 2, FX_RELU),
        fx_convtranspose(FX_DIMS(4, 4), WIDTH / 2, WIDTH / 4, .stride = FX_DIMS(2),
                         .pad = FX_DIMS(1), .init = init),
        fx_batchnorm(WIDTH / 4, FX_RELU),
        fx_convtranspose(FX_DIMS(4, 4), WIDTH / 4, 1, FX_TANH, .stride = FX_DIMS(2),
                         .pad = FX_DIMS(1), .init = init));
}

static void *make_discriminator(void)
{
    fx_function *act = fx_function_new("leaky", leaky);
    return fx_chain(
        fx_conv(FX_DIMS(4, 4), 1, WIDTH / 4, act, .stride = FX_DIMS(2), .pad = FX_DIMS(1)),
        fx_dropout(0.25),
        fx_conv(FX_DIMS(4, 4), WIDTH / 4, WIDTH / 2, act, .stride = FX_DIMS(2), .pad = FX_DIMS(1)),
        fx_dropout(0.25), FX_FLATTEN, fx_dense(7 * 7 * WIDTH / 2, 1));
}

static fx_array *cross_entropy(fx_array *logits, double truth)
{
    return fx_logitbinarycrossentropy(logits, fx_full(truth, 1, fx_size(logits, 1)));
}

/* One training step of both networks. The discriminator learns that `real` images are real and
 * generated ones are not; the generator learns to make images that the discriminator predicts as
 * real. */
static void train_both(void *const models[2], void *const states[2], fx_array *real,
                       double losses[2])
{
    FX_RECORD;
    void *generator = models[0], *discriminator = models[1];
    fx_array *made = fx_call(generator, fx_randn(LATENT, fx_size(real, 3)));
    fx_array *verdict = fx_call(discriminator, made);
    fx_array *d_loss = fx_add(cross_entropy(fx_call(discriminator, real), 1),
                              cross_entropy(fx_call(discriminator, fx_stop_gradient(made)), 0));
    fx_array *g_loss = cross_entropy(verdict, 1);
    fx_want(g_loss);
    fx_want(d_loss);
    void *gradients[] = {fx_gradient(g_loss, generator), fx_gradient(d_loss, discriminator)};
    fx_update_all(2, states, models, gradients);
    losses[0] += fx_item(g_loss);
    losses[1] += fx_item(d_loss);
}

int main(int argc, char **argv)
{
    const int epochs = argc > 2 ? atoi(argv[2]) : 20;
    const int64_t most = argc > 3 ? atoll(argv[3]) : 60000;
    const char *picture = argc > 4 ? argv[4] : "dcgan.pgm";
    if (argc < 2 || argc > 5 || epochs < 1 || most < BATCH) {
        fprintf(stderr, "usage: %s FOLDER [EPOCHS [IMAGES [PICTURE]]]\n", argv[0]);
        return 2;
    }
    fx_seed(1);
    fx_array *images = read_mnist(argv[1], "train", "images-idx3");
    if (most < fx_size(images, 2))
        images = fx_slice(images, 2, 0, most);
    images = fx_reshape(images, MNIST_SIDE, MNIST_SIDE, 1, fx_size(images, 2));

    void *models[] = {make_generator(), make_discriminator()}, *states[2];
    for (int i = 0; i < 2; i++) {
        fx_show(models[i]);
        states[i] = fx_setup(fx_adam(.eta = 2e-4, .beta1 = 0.5), models[i]);
    }
    fx_array *noise = fx_randn(LATENT, GRID * GRID); /* the picture shows these */
    fx_loader *loader =
        fx_dataloader(images, .batchsize = BATCH, .shuffle = true, .partial = false, .workers = 1);
    for (int epoch = 1; epoch <= epochs && fx_error_status() == FX_OK; epoch++) {
        double losses[2] = {0, 0};
        for (fx_batch b = {0}; fx_next(loader, &b);)
            train_both(models, states, fx_sub(fx_div(b.x, 127.5), 1), losses);
        const double n = (double)fx_loader_length(loader);
        printf("epoch %d: loss of the generator %.3f, of the discriminator %.3f\n", epoch,
               losses[0] / n, losses[1] / n);
        fflush(stdout);
    }
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    FX_TEST;
    fx_array *digits = fx_add(fx_mul(0.5, fx_call(models[0], noise)), 0.5); /* from 0 to 1 */
    printf("brightness of generated digits %.3f, of real ones %.3f; picture: %s\n",
           fx_item(fx_mean(digits)), fx_item(fx_mean(images)) / 255, picture);
    if (write_digits(digits, GRID, picture) != 0) {
        fprintf(stderr, "%s: cannot write %s\n", argv[0], picture);
        return 1;
    }
    return fx_error_print(stderr);
}
