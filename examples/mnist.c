/* mnist.c: trains a network with one hidden layer on the 60,000 digits of MNIST and tests it on
 * 10,000 others.
 *
 *   mnist FOLDER [EPOCHS]
 *
 * FOLDER holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the same two names
 * with t10k instead of train, with or without .gz (http://yann.lecun.com/exdb/mnist). Images stay
 * bytes until a batch needs them as numbers. 30 epochs of all 60,000 images give a test accuracy of
 * 98.20 %, in 46 s of one core of an x86-64 processor with AVX2.
 */
#include "mnist_files.h"

#include <stdlib.h>

/* (28×28×n bytes, n digits) */
static void *read_set(const char *folder, const char *set)
{
    return fx_tuple(read_mnist(folder, set, "images-idx3"), read_mnist(folder, set, "labels-idx1"));
}

static fx_array *predict(void *model, fx_array *images)
{
    return fx_call(model, fx_flatten(fx_div(images, 255.0)));
}

static fx_array *loss(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_logitcrossentropy(predict(model, b->x), fx_onehot(b->y, 10));
}

static double accuracy(void *model, void *set)
{
    double right = 0;
    FX_TEST;
    fx_loader *loader = fx_dataloader(set, .batchsize = 1000);
    for (fx_batch b = {0}; fx_next(loader, &b);) {
        FX_SCOPE;
        right += fx_item(fx_sum(fx_eq(fx_onecold(predict(model, b.x)), b.y)));
    }
    return right / (double)fx_num_obs(set);
}

int main(int argc, char **argv)
{
    const int epochs = argc > 2 ? atoi(argv[2]) : 5;
    if (argc < 2 || argc > 3 || epochs < 1) {
        fprintf(stderr,
                "usage: %s FOLDER [EPOCHS]\n"
                "FOLDER holds MNIST: {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without "
                ".gz\n",
                argv[0]);
        return 2;
    }
    fx_seed(1);
    void *train = read_set(argv[1], "train"), *test = read_set(argv[1], "t10k");
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);

    fx_chain_layer *model = fx_chain(fx_dense(784, 256, FX_RELU), fx_dense(256, 10));
    fx_show(model);
    void *opt = fx_setup(fx_adam(.eta = 1e-3), model);
    fx_loader *loader = fx_dataloader(train, .batchsize = 64, .shuffle = true, .workers = 1);
    fx_train(loss, model, loader, opt, .epochs = epochs, .progress = true, .progress_to = stdout);

    const double right = accuracy(model, test);
    if (fx_error_status() != FX_OK)
        return fx_error_print(stderr);
    printf("test accuracy: %.2f %%\n", 100 * right);
    return 0;
}
