/* exit_cases.c: rank 1 ends while its gradients are exchanged. For check_exits.py.
 *
 *   exit_cases CASE MICROSECONDS [WORD]
 *
 * Rank 1 ends with status 3:
 *
 *   in_pass   in the backward pass of the second update, when two of three buckets have begun. The
 *             other ranks begin this update so many microseconds later.
 *   beside    by exit in another thread, so many microseconds after the first update
 *   returns   main returns as late, while another thread trains
 *
 * The other ranks print their error and end with status 1, or with 0 if they have made all updates.
 * With EXIT_GPU in the environment, NCCL exchanges gradients on simulated GPUs. WORD is ignored: it
 * identifies the processes of one run.
 */
#include "gate.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIDE = 600, LAYERS = 3, UPDATES = 40, GPU_UPDATES = 6, STATUS = 3 };

static int rank;
static bool gpu;
static const char *what;
static useconds_t late;
static int update; /* of this rank */
static int gates;  /* in this update */
static pthread_t thread;

static fx_status ends(const fx_custom_op *op, int n, const fx_custom_operand *in,
                      const fx_custom_operand *out)
{
    (void)op, (void)n;
    if (++gates == LAYERS - 1 && update == 1 && rank == 1 && strcmp(what, "in_pass") == 0)
        exit(STATUS);
    return gate_copies(in, out);
}

GATE(gate, ends);

static void *exit_later(void *unused)
{
    (void)unused;
    usleep(late);
    exit(STATUS);
}

static fx_status step(void *opt, void *model, fx_array *x)
{
    FX_STEP;
    gates = 0;
    for (int i = 0; i < LAYERS; i++)
        x = fx_call(fx_child(model, i), i > 0 ? gate_pass(&gate, x) : x);
    return fx_update(opt, model, fx_gradient(fx_mean(fx_square(x)), model));
}

/* Trains, and returns the status of the rank's process. */
static int train(fx_dist *d)
{
    FX_SCOPE;
    fx_device *device =
        gpu ? fx_device_get("CUDA", fx_dist_local_rank(d)) : fx_device_get("CPU", 0);
    fx_seed(2);
    void *model =
        fx_to(device, fx_chain(fx_dense(SIDE, SIDE), fx_dense(SIDE, SIDE), fx_dense(SIDE, SIDE)));
    void *opt = fx_setup(fx_dist_optimiser(d, fx_descent(0.01)), model);
    fx_array *x = fx_to(device, fx_rand(SIDE, 3));
    for (update = 0; update < (gpu ? GPU_UPDATES : UPDATES); update++) {
        if (update == 1 && rank != 1 && strcmp(what, "in_pass") == 0)
            usleep(late);
        if (step(opt, model, x) != FX_OK) {
            printf("%d update: %s\n", rank, fx_error_take().message);
            fflush(stdout);
            return 1;
        }
        if (update == 0 && rank == 1 && strcmp(what, "beside") == 0)
            pthread_create(&thread, NULL, exit_later, NULL);
    }
    return 0;
}

static void *train_in_thread(void *d)
{
    train(d);
    return NULL;
}

int main(int argc, char **argv)
{
    what = argc > 1 ? argv[1] : "";
    late = argc > 2 ? (useconds_t)atoi(argv[2]) : 0;
    gpu = getenv("EXIT_GPU") != NULL;
    if (gpu)
        fx_use("CUDA");
    if (fx_dist_init(gpu ? FX_NCCL : FX_MPI, .time_limit = gpu ? 10 : 6) != FX_OK)
        return fx_error_print(stdout);
    fx_dist *d = fx_dist_backend(FX_MPI);
    rank = fx_dist_rank(d);
    if (rank == 1 && strcmp(what, "returns") == 0) {
        pthread_create(&thread, NULL, train_in_thread, d);
        usleep(late);
        return STATUS;
    }
    const int status = train(d);
    while (rank == 1 && strcmp(what, "beside") == 0) /* the other thread ends the process */
        pause();
    return status;
}
