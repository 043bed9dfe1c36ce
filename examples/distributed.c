/* distributed.c: data-parallel training, the example of Flux's page on GPUs.
 *
 *   mpirun -n 4 build/examples/distributed [epochs]
 *
 * Each process trains on its part of the data, and the gradients are averaged in every update, so
 * all processes have the same model. Without mpirun, one process trains on all data. Rank 0 prints.
 */
#include <cflux.h>
#include <stdlib.h>

enum { OBSERVATIONS = 1000 };

/* The function to learn. */
static fx_array *target(fx_array *x)
{
    return fx_add(fx_mul(fx_square(x), 0.5), fx_sin(fx_mul(x, 3)));
}

static void train(fx_dist *dist, int epochs)
{
    FX_SCOPE;
    fx_seed(42); /* the same data everywhere; each process keeps its part */
    fx_array *x = fx_randn(1, OBSERVATIONS);
    void *data = fx_dist_data(dist, fx_tuple(x, target(x)));
    void *part = fx_getobs(data);
    fx_array *X = fx_child(part, 0), *Y = fx_child(part, 1);

    void *model = fx_chain(fx_dense(1, 256, FX_TANH), fx_dense(256, 1));
    model = fx_dist_synchronize(dist, fx_dist_model(model), 0);
    void *opt = fx_setup(fx_dist_optimiser(dist, fx_adam(.eta = 1e-3)), model);
    opt = fx_dist_synchronize(dist, opt, 0);

    for (int epoch = 1; epoch <= epochs; epoch++) {
        FX_STEP;
        fx_array *loss = fx_mse(fx_call(model, X), Y);
        if (fx_update(opt, model, fx_gradient(loss, model)) != FX_OK)
            return;
        fx_array *mean = epoch % 10 == 0 ? fx_dist_allreduce(dist, loss, FX_REDUCE_MEAN) : NULL;
        if (mean && fx_dist_rank(dist) == 0)
            printf("epoch %d: loss %.6f\n", epoch, fx_item(mean));
        else if (mean)
            fx_eval(mean);
    }
}

int main(int argc, char **argv)
{
    if (fx_dist_init(FX_MPI) == FX_OK)
        train(fx_dist_backend(FX_MPI), argc > 1 ? atoi(argv[1]) : 100);
    const fx_error e = fx_error_take();
    if (e.status != FX_OK)
        fprintf(stderr, "%s\n", e.message);
    return e.status != FX_OK;
}
