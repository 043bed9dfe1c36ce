/* own_mpi.c: a program that initialises and finalises MPI itself, and gives cflux a communicator of
 * some of its processes. check_mpi.py compiles it for each MPI and starts 3 processes.
 *
 *   own_mpi LIBRARY LEVEL     LIBRARY: openmpi or mpich; LEVEL: single or serialized
 *
 * Each line begins with the rank in MPI_COMM_WORLD. Ranks 0 and 2 are a group, in which rank 2
 * comes first, and rank 1 is alone. */
#include <cflux.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int world;
static fx_dist *dist;

static void say_sum(const char *what)
{
    FX_SCOPE;
    fx_array *y = fx_dist_allreduce(dist, fx_vector(world + 1), FX_REDUCE_SUM);
    float sum = 0;
    if (fx_read_as(y, FX_DTYPE_F32, &sum, 1) == FX_OK)
        printf("%d %s: %g\n", world, what, (double)sum);
    else
        printf("%d %s: %s\n", world, what, fx_error_take().message);
    fflush(stdout);
}

/* The loss of a member is w times its rank in the world, so the mean gradient is that of the ranks.
 */
static void train(void)
{
    FX_SCOPE;
    fx_dense_layer *one = fx_dense(0, 0, .weight_array = fx_zeros(1, 1), .bias = false);
    void *opt = fx_setup(fx_dist_optimiser(dist, fx_descent(1)), one);
    fx_array *loss = fx_sum(fx_mul(one->weight, world));
    const fx_status status = fx_update(opt, one, fx_gradient(loss, one));
    printf("%d weight: %g\n", world, status == FX_OK ? fx_item(one->weight) : 99.0);
}

static void *other_thread(void *unused)
{
    (void)unused;
    say_sum("thread");
    return NULL;
}

int main(int argc, char **argv)
{
    FX_SCOPE;
    int level, ours = 0;
    MPI_Comm comm;
    pthread_t thread;
    if (argc != 3)
        return 2;
    MPI_Init_thread(&argc, &argv,
                    strcmp(argv[2], "single") == 0 ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED,
                    &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_split(MPI_COMM_WORLD, world == 1, -world, &comm);
    if (fx_dist_init(FX_MPI, .library = argv[1], .communicator = &comm, .time_limit = 10) !=
        FX_OK) {
        printf("%d init: %s\n", world, fx_error_take().message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    dist = fx_dist_backend(FX_MPI);
    printf("%d group: rank %d of %d\n", world, fx_dist_rank(dist), fx_dist_total_workers(dist));
    say_sum("sum");
    train();
    if (pthread_create(&thread, NULL, other_thread, NULL) == 0)
        pthread_join(thread, NULL);
    MPI_Allreduce(&world, &ours, 1, MPI_INT, MPI_SUM, comm); /* the communicator is as before */
    printf("%d own sum: %d\n", world, ours);
    const int code = MPI_Finalize();
    printf("%d finalised: %d\n", world, code);
    return 0;
}
