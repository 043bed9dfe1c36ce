/* mpi_cases.c: what may go wrong between processes; started by check_mpi.py, and by
 * check_train_command.py beside cflux, with the name of a case. Each line that a process prints
 * begins with its rank. */
#include "failure.h"
#include "members.h"

#include <cflux.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rank;

static void say(const char *what, const char *text)
{
    printf("%d %s: %s\n", rank, what, text);
    fflush(stdout);
}

static void say_error(const char *what)
{
    const fx_error e = fx_error_take();
    say(what, e.status == FX_OK ? "ok" : e.message);
}

static void local_rank(fx_dist *d)
{
    char text[20];
    snprintf(text, sizeof text, "%d", fx_dist_local_rank(d));
    say("local rank", text);
}

/* Rank 0 is busy for longer than the others wait in any operation. */
static void busy_at_end(fx_dist *d)
{
    fx_dist_barrier(d);
    if (rank == 0)
        sleep(11);
    say_error("saved");
}

static void one_ends(fx_dist *d)
{
    if (rank == 1)
        return;
    fx_dist_barrier(d);
    say_error("barrier");
}

/* Only rank 0 waits for all operands. Rank 1 ends when it has sent its own. */
static void one_ends_after(fx_dist *d)
{
    fx_array *sum = fx_dist_reduce(d, fx_vector(rank + 1), FX_REDUCE_SUM, 0);
    fx_eval(sum);
    if (rank != 1)
        say(fx_item(sum) == (rank == 0 ? 6 : 0) ? "sum" : "wrong sum", fx_error_take().message);
}

static void fork_one(fx_dist *d)
{
    fx_dist_barrier(d);
    const pid_t child = rank == 0 ? fork() : 1;
    if (child == 0) {
        fx_dist_barrier(d);
        say_error("child");
        exit(0);
    }
    if (rank == 0)
        waitpid(child, NULL, 0);
    fx_dist_barrier(d);
    say_error("after");
}

/* A fold gives NaN, whichever member has it. */
static void folds_of_nan(fx_dist *d)
{
    static const fx_reduce folds[] = {FX_REDUCE_MAX, FX_REDUCE_MIN, FX_REDUCE_SUM};
    const double nan = strtod("nan", NULL);
    for (int who = 0; who < 2; who++)
        for (int wide = 0; wide < 2; wide++)
            for (int k = 0; k < 3; k++) {
                FX_SCOPE;
                fx_array *x = fx_cast(fx_full(rank == who ? nan : 1.0, 2),
                                      wide ? FX_DTYPE_F64 : FX_DTYPE_F32);
                const double y = fx_item(fx_sum(fx_dist_allreduce(d, x, folds[k])));
                say("fold", y != y ? "NaN" : "a number");
            }
}

/* The program finalises MPI, whose library the plugin has opened. */
static void finalise_first(fx_dist *d)
{
    fx_dist_barrier(d);
    void *library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD);
    library = library ? library : dlopen("libmpich.so.12", RTLD_NOW | RTLD_NOLOAD);
    int (*finalise)(void) = NULL;
    void *symbol = library ? dlsym(library, "MPI_Finalize") : NULL;
    memcpy(&finalise, &symbol, sizeof finalise);
    if (!finalise) {
        say("barrier", "no MPI_Finalize");
        return;
    }
    finalise();
    fx_dist_barrier(d);
    say_error("barrier");
}

/* The program gives the communicator that MPI_Comm_split returns to processes it leaves out. */
static int no_member(void)
{
    void *open_mpi = dlopen("libmpi.so.40", RTLD_NOW);
    void *null = open_mpi ? dlsym(open_mpi, "ompi_mpi_comm_null") : NULL;
    const int null_of_mpich = 0x04000000;
    const bool is_open_mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
    fx_dist_init(FX_MPI, .library = is_open_mpi ? "openmpi" : "mpich",
                 .communicator = is_open_mpi ? (const void *)&null : &null_of_mpich);
    say_error("init");
    return 0;
}

static void (*after_first_update)(void);

/* Three updates, on a device, of a model whose gradients fill three buckets; the parameters, to be
 * freed. */
static float *large(fx_rule *rule, fx_device *device, int64_t *out_n)
{
    FX_SCOPE;
    fx_seed(2);
    void *model = fx_to(device, fx_chain(fx_dense(600, 600, FX_TANH), fx_dense(600, 600, FX_TANH),
                                         fx_dense(600, 600))),
         *opt = fx_setup(rule, model);
    fx_array *x = fx_to(device, fx_rand(600, 3));
    for (int k = 0; k < 3; k++) {
        FX_STEP;
        if (fx_update(opt, model, fx_gradient(fx_mean(fx_square(fx_call(model, x))), model)) !=
            FX_OK)
            say_error("update");
        if (k == 0 && after_first_update)
            after_first_update();
    }
    fx_array *p = fx_destructure(model);
    *out_n = fx_length(p);
    float *values = malloc((size_t)*out_n * sizeof *values);
    fx_read_into(p, values, (size_t)*out_n * sizeof *values);
    return values;
}

/* Buckets that are sent during the backward pass. Two ranks with the same data have the mean of
 * equal gradients, and so the same bits as in one process. */
static void overlaps_on(fx_dist *d, fx_device *device)
{
    int64_t n, m;
    float *alone = large(fx_adam(), device, &n),
          *both = large(fx_dist_optimiser(d, fx_adam()), device, &m);
    const bool same =
        n == m && n == 3 * 601 * 600 && !memcmp(alone, both, (size_t)n * sizeof *both);
    say("overlap", same ? "same bits" : "other bits");
    free(alone);
    free(both);
}

static void overlaps(fx_dist *d)
{
    overlaps_on(d, fx_device_get("CPU", 0));
}

/* Element i on a rank: in sums of Float32 the order matters, those of integers wrap around. */
static fx_array *operand(fx_dtype type, int64_t n, int r)
{
    double *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = type == FX_DTYPE_I32   ? (double)((i * 7919 + r) * 65537 % 2147483647)
               : type == FX_DTYPE_I64 ? (double)(i * 1000003 - r)
               : type == FX_DTYPE_U8  ? (double)((i * 37 + r * 101) % 256)
                                      : 1 + sin((double)(i * 3 + r * 1000));
    fx_array *y = fx_cast(fx_from(FX_DTYPE_F64, x, n), type);
    free(x);
    return y;
}

/* FNV-1a of the bytes of an array. */
static uint64_t hash_of(fx_array *x)
{
    const size_t bytes = (size_t)fx_length(x) * fx_dtype_size(fx_eltype(x));
    unsigned char *all = malloc(bytes + 1);
    uint64_t h = 14695981039346656037u;
    if (fx_read_into(x, all, bytes) != FX_OK)
        say_error("read");
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ all[i]) * 1099511628211u;
    free(all);
    return h;
}

/* Whole numbers, whose sums are exact: the sum over the ranks r of i % 1000 + r. */
static void check_sum(fx_dist *d, int64_t n)
{
    FX_SCOPE;
    const int size = fx_dist_total_workers(d);
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i % 1000 + rank);
    fx_array *y = fx_dist_allreduce(d, fx_from(FX_DTYPE_F32, x, n), FX_REDUCE_SUM);
    fx_read_into(y, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        if (x[i] != (float)(size * (i % 1000) + size * (size - 1) / 2))
            say("sum", "wrong");
    free(x);
}

/* Writes a line to this rank's file, because launchers divide long outputs in the middle of lines.
 */
static void note_hash(int a, int b, int c, fx_array *x)
{
    static FILE *file;
    const char *folder = getenv("CFLUX_HASHES");
    char path[1000];
    if (!file && folder) {
        snprintf(path, sizeof path, "%s/hashes.%d", folder, rank);
        file = fopen(path, "w");
    }
    if (!file)
        return;
    fprintf(file, "%d %d %d %016llx\n", a, b, c, (unsigned long long)hash_of(x));
    fflush(file);
}

/* Updates, and sums of other arrays between them, which use the same shared memory.
 * Each rank has other data, and the next update begins when some ranks are slow. */
static void updates_and_sums(fx_dist *d)
{
    enum { SIDE = 300, BATCH = 8 };
    FX_SCOPE;
    fx_seed(2);
    void *model = fx_chain(fx_dense(SIDE, SIDE, FX_TANH), fx_dense(SIDE, 1)),
         *opt = fx_setup(fx_dist_optimiser(d, fx_adam()), model);
    fx_array *data = operand(FX_DTYPE_F32, SIDE * BATCH, rank);
    for (int k = 0; k < 4; k++) {
        FX_STEP;
        fx_array *x = fx_reshape(data, SIDE, BATCH), *loss = fx_mean(fx_square(fx_call(model, x)));
        if (fx_update(opt, model, fx_gradient(loss, model)) != FX_OK)
            say_error("update");
        if (k == rank)
            nanosleep(&(const struct timespec){.tv_nsec = 20000000}, NULL);
        note_hash(9, k, 0, fx_destructure(model));
        if (k % 2 == 0)
            note_hash(9, k, 1,
                      fx_dist_allreduce(d, operand(FX_DTYPE_F32, 70001, rank), FX_REDUCE_SUM));
    }
}

/* Notes a hash of each result, by type, operation and number of elements: less than a page, just
 * more, an array that is not divided into parts, several parts whose last one is short. */
static void sums(fx_dist *d)
{
    static const int64_t lengths[] = {1, 1023, 1025, 70001, 300001};
    static const fx_dtype types[] = {FX_DTYPE_F32, FX_DTYPE_F64,  FX_DTYPE_I32, FX_DTYPE_I64,
                                     FX_DTYPE_F16, FX_DTYPE_BF16, FX_DTYPE_U8};
    static const fx_reduce folds[] = {FX_REDUCE_SUM, FX_REDUCE_MEAN, FX_REDUCE_PROD, FX_REDUCE_MAX,
                                      FX_REDUCE_MIN};
    for (int l = 0; l < 5; l++) {
        check_sum(d, lengths[l]);
        for (int t = 0; t < 7; t++)
            for (int f = 0; f < 5; f++) {
                FX_SCOPE;
                const bool whole =
                    types[t] == FX_DTYPE_I32 || types[t] == FX_DTYPE_I64 || types[t] == FX_DTYPE_U8;
                if (whole && folds[f] == FX_REDUCE_MEAN)
                    continue;
                fx_array *x = operand(types[t], lengths[l], rank);
                note_hash(l, t, f, fx_dist_allreduce(d, x, folds[f]));
            }
    }
    updates_and_sums(d);
    check_sum(
        d,
        3000001); /* more pieces than the transport exchanges at a time; not divisible by 2 or 3 */
}

/* Rank 1 kills its parent, which is cflux launch --each. A restarted program ends at once. */
static void kills_wrapper(fx_dist *d)
{
    const char *restart = getenv("CFLUX_RESTART");
    fx_status status = fx_dist_barrier(d);
    if (restart && atoi(restart) > 0)
        return;
    if (rank == 1)
        kill(getppid(), SIGKILL);
    while (status == FX_OK)
        status = fx_dist_barrier(d);
    exit(1);
}

/* Stops this process after `delay` microseconds, for 5 s. */
static void stop_after(unsigned delay)
{
    if (fork() != 0)
        return;
    usleep(delay);
    kill(getppid(), SIGSTOP);
    sleep(5);
    kill(getppid(), SIGCONT);
    _exit(0);
}

/* Rank 1 stops in one of many sums of 4 MB. */
static void stops_in_sum(fx_dist *d)
{
    fx_array *x = fx_ones(1 << 20);
    fx_eval(x);
    fx_dist_barrier(d);
    if (rank == 1)
        stop_after(50000);
    fx_status status = FX_OK;
    while (status == FX_OK) {
        FX_STEP;
        status = fx_eval(fx_dist_allreduce(d, x, FX_REDUCE_SUM));
    }
    say_error("sum");
}

/* Rank CFLUX_STOPPED stops in one of many broadcasts, or between them. Ranks that get the data from
 * it then wait in that broadcast, and the others in the next operation. */
static void stops_in_broadcast(fx_dist *d)
{
    fx_array *x = fx_ones(5);
    const char *stopped = getenv("CFLUX_STOPPED");
    fx_eval(x);
    fx_dist_barrier(d);
    if (stopped && rank == atoi(stopped))
        stop_after(30000 + (unsigned)getpid() % 1000);
    fx_status status = FX_OK;
    while (status == FX_OK) {
        FX_STEP;
        status = fx_eval(fx_dist_bcast(d, x, 0));
    }
    say_error("broadcast");
}

static void say_values(const char *what, fx_array *y)
{
    float got[8];
    char text[100] = "";
    if (fx_read_as(y, FX_DTYPE_F32, got, fx_length(y)) != FX_OK) {
        say_error(what);
        return;
    }
    for (int64_t i = 0; i < fx_length(y); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%g ", (double)got[i]);
    say(what, text);
}

static void say_message(int level, const char *text, void *user)
{
    (void)user;
    say(level == 1 ? "warning" : "info", text);
}

/* The loss of rank 1 uses two of four layers. The first update names the parameters of the others.
 */
static void unused(fx_dist *d)
{
    fx_message_set_hook(say_message, NULL);
    fx_dense_layer *l[4];
    for (int i = 0; i < 4; i++)
        l[i] = fx_dense(0, 0, .weight_array = fx_full(2, 1, 1), .bias_array = fx_full(0, 1));
    void *model = fx_chain(l[0], l[1], l[2], l[3]),
         *opt = fx_setup(fx_dist_optimiser(d, fx_descent(1)), model);
    for (int k = 0; k < 2; k++) {
        fx_array *x = fx_full(1, 1, 1), *loss = fx_call(l[0], x);
        loss = fx_call(l[2], loss);
        if (rank == 0)
            loss = fx_call(l[1], fx_call(l[3], loss));
        if (fx_update(opt, model, fx_gradient(fx_mul(0, fx_sum(loss)), model)) != FX_OK)
            say_error("update");
    }
    say_values("kept", l[3]->weight);
}

/* Rank 1 uses two of four layers. */
static fx_array *half_used(void *model, const fx_batch *b, void *user)
{
    (void)user;
    void *const *l = ((fx_chain_layer *)model)->layers.items;
    fx_array *y = fx_call(l[2], fx_call(l[0], b->x));
    if (rank == 0)
        y = fx_call(l[1], fx_call(l[3], y));
    return fx_mul(0, fx_mean(y));
}

/* The same in fx_train, which averages the gradients itself to limit their norm. */
static void unused_clipped(fx_dist *d)
{
    fx_message_set_hook(say_message, NULL);
    fx_dense_layer *l[4];
    for (int i = 0; i < 4; i++)
        l[i] = fx_dense(0, 0, .weight_array = fx_full(2, 1, 1), .bias_array = fx_full(0, 1));
    void *model = fx_chain(l[0], l[1], l[2], l[3]);
    fx_loader *data = fx_dataloader(fx_tuple(fx_ones(1, 8)), .batchsize = 4);
    if (fx_train(half_used, model, data, fx_setup(fx_descent(1), model), .epochs = 2,
                 .clip_norm = 1, .dist = d) != FX_OK)
        say_error("train");
    say_values("kept", l[3]->weight);
}

static fx_array *squared_error(void *model, const fx_batch *b, void *user)
{
    (void)user;
    return fx_mse(fx_call(model, b->x), b->y);
}

static fx_flow rest(const fx_progress *p)
{
    (void)p;
    if (rank == 1)
        usleep(50000); /* longer than rank 0 waits for a processor on a busy machine */
    return FX_FLOW_CONTINUE;
}

/* Rank 1 needs longer for each batch, which the progress of rank 0 says. */
static void slow(fx_dist *d)
{
    void *model = fx_dense(2, 1);
    fx_array *x = fx_rand(2, 64), *y = fx_rand(1, 64);
    fx_loader *data = fx_dataloader(fx_tuple(x, y), .batchsize = 8);
    fx_train(squared_error, model, data, fx_setup(fx_adam(), model), .epochs = 2, .progress = true,
             .progress_to = stdout, .on_batch = rest, .dist = d);
    fflush(stdout);
}

/* ---- on GPUs, by NCCL ------------------------------------------------------------------------ */

/* Joins by NCCL, and returns GPU k. */
static fx_device *join_gpu(int k)
{
    fx_use("CUDA");
    if (fx_dist_init(FX_NCCL) == FX_OK)
        return fx_device_get("CUDA", k);
    say_error("NCCL");
    exit(0);
}

static void gpu_sums(fx_dist *d)
{
    fx_array *x = fx_to(join_gpu(fx_dist_local_rank(d)), fx_vector(rank + 1, 1));
    say_values("sum", fx_dist_allreduce(d, x, FX_REDUCE_SUM));
    say_values("mean", fx_dist_allreduce(d, x, FX_REDUCE_MEAN));
    say_values("last", fx_dist_bcast(d, x, fx_dist_total_workers(d) - 1));
    say_values("most", fx_dist_allreduce(d, x, FX_REDUCE_MAX)); /* by the host */
    say_values("half", fx_dist_allreduce(d, fx_cast(x, FX_DTYPE_F16), FX_REDUCE_SUM));
}

/* If only rank 0 has a library, no rank uses it, and MPI moves the arrays. */
static void gpu_refused(fx_dist *d)
{
    if (rank == 1) {
        setenv("FX_NCCL_LIBRARY", "/nowhere.so", 1);
        setenv("FX_RCCL_LIBRARY", "/nowhere.so", 1);
    }
    fx_use("CUDA");
    fx_dist_init(FX_NCCL);
    say_error("NCCL");
    fx_device *gpu = fx_device_get("CUDA", fx_dist_local_rank(d));
    say_values("sum", fx_dist_allreduce(d, fx_to(gpu, fx_vector(rank + 1, 1)), FX_REDUCE_SUM));
}

/* Rank 1 cannot begin its connection, and that of rank 0 never comes into being. */
static void gpu_half(fx_dist *d)
{
    setenv("SIM_NCCL_ALONE", "1", 1);
    setenv(rank == 0 ? "SIM_NCCL_SLOW" : "SIM_FAIL",
           rank == 0 ? "1000000" : "ncclCommInitRankConfig@1=2", 1);
    fx_array *x = fx_to(join_gpu(fx_dist_local_rank(d)), fx_vector(1, 2));
    say_values("sum", fx_dist_allreduce(d, x, FX_REDUCE_SUM));
}

static void gpu_mixed(fx_dist *d)
{
    fx_device *gpu = join_gpu(rank);
    fx_array *x = fx_vector(1, 2);
    say_values("sum", fx_dist_allreduce(d, rank == 0 ? fx_to(gpu, x) : x, FX_REDUCE_SUM));
}

static void gpu_same(fx_dist *d)
{
    say_values("sum", fx_dist_allreduce(d, fx_to(join_gpu(0), fx_vector(1, 2)), FX_REDUCE_SUM));
}

/* Models on different GPUs have the same arrays. */
static void gpu_models(fx_dist *d)
{
    fx_dense_layer *one = fx_dense(0, 0, .weight_array = fx_full(rank + 1, 1, 2), .bias = false);
    void *model = fx_to(join_gpu(fx_dist_local_rank(d)), one);
    fx_dist_synchronize(d, model, 1);
    say_error("synchronize");
    say_values("weight", ((fx_dense_layer *)model)->weight);
}

/* Five updates on this rank's data, and the parameters. */
static fx_array *trained(fx_dist *d, fx_device *device)
{
    double weights[] = {0.5, -0.25, 0.125};
    fx_array *w = fx_from(FX_DTYPE_F64, weights, 3), *x = fx_vector(rank + 1, 0.5, 2);
    w = fx_to(device, fx_cast(w, FX_DTYPE_F32));
    x = fx_to(device, x);
    fx_dense_layer *one = fx_dense(0, 0, .weight_array = fx_reshape(w, 1, 3), .bias = false);
    void *opt = fx_setup(fx_dist_optimiser(d, fx_descent(0.125)), one);
    for (int i = 0; i < 5; i++)
        if (fx_update(opt, one, fx_gradient(fx_sum(fx_square(fx_call(one, x))), one)) != FX_OK)
            say_error("update");
    return one->weight;
}

/* Training over NCCL gives the parameters that training over MPI gives, to rounding. */
static void gpu_trains(fx_dist *d)
{
    float a[3], b[3];
    fx_device *gpu = join_gpu(fx_dist_local_rank(d));
    fx_read_as(trained(d, gpu), FX_DTYPE_F32, a, 3);
    fx_read_as(trained(d, fx_device_get("CPU", 0)), FX_DTYPE_F32, b, 3);
    say_error("trained");
    bool same = true;
    for (int i = 0; i < 3; i++)
        same = same && (a[i] - b[i]) <= 1e-4f * (b[i] < 0 ? -b[i] : b[i]) &&
               (b[i] - a[i]) <= 1e-4f * (b[i] < 0 ? -b[i] : b[i]);
    say("parameters", same ? "same" : "other");
}

/* Buckets in the memory of GPUs, by NCCL or, after a first sum that is compared, by MPI. */
static void gpu_overlaps(fx_dist *d)
{
    overlaps_on(d, join_gpu(fx_dist_local_rank(d)));
}

static void gpu_aware_overlaps(fx_dist *d)
{
    fx_use("CUDA");
    fx_device *gpu = fx_device_get("CUDA", fx_dist_local_rank(d));
    say_values("sum", fx_dist_allreduce(d, fx_to(gpu, fx_vector(rank + 1, 1)), FX_REDUCE_SUM));
    overlaps_on(d, gpu);
}

/* One update with a gradient of 1 + 2⁻¹⁰, which BFloat16 rounds to 1. */
static void say_step(const char *what, fx_dist *d, fx_device *device)
{
    fx_array *w = fx_to(device, fx_zeros(1, 2)), *g = fx_full(1 + 1.0 / 1024, 1, 2);
    fx_dense_layer *one = fx_dense(0, 0, .weight_array = w, .bias = false);
    void *opt = fx_setup(fx_dist_optimiser(d, fx_descent(1)), one);
    fx_array *loss = fx_sum(fx_mul(one->weight, fx_to(device, g)));
    if (fx_update(opt, one, fx_gradient(loss, one)) != FX_OK)
        say_error("update");
    say_values(what, one->weight);
}

/* Operations on arrays of a GPU by MPI: all that it may run on the GPU's memory, and others. */
static void gpu_aware(fx_dist *d)
{
    const char *backend = getenv("OF_BACKEND");
    backend = backend ? backend : "CUDA";
    fx_use(backend);
    fx_device *gpu = fx_device_get(backend, fx_dist_local_rank(d));
    fx_array *x = fx_to(gpu, fx_vector(rank + 1, 1)), *n = fx_cast(x, FX_DTYPE_I32);
    if (getenv("TINY_FIRST")) /* the product underflows */
        say_values("tiny", fx_dist_allreduce(d, fx_to(gpu, fx_full(1e-30, 2)), FX_REDUCE_PROD));
    /* Rank 1 records the mean before the first operation has run, and rank 0 afterwards. */
    fx_array *sum = fx_dist_allreduce(d, x, FX_REDUCE_SUM),
             *mean = rank == 1 ? fx_dist_allreduce(d, x, FX_REDUCE_MEAN) : NULL;
    say_values("sum", sum);
    say_values("mean", mean ? mean : fx_dist_allreduce(d, x, FX_REDUCE_MEAN));
    say_values("product", fx_dist_allreduce(d, x, FX_REDUCE_PROD));
    say_values("whole most", fx_dist_allreduce(d, n, FX_REDUCE_MAX));
    say_values("last", fx_dist_bcast(d, x, fx_dist_total_workers(d) - 1));
    say_values("most", fx_dist_allreduce(d, x, FX_REDUCE_MAX)); /* by the host */
    say_values("root", fx_dist_reduce(d, x, FX_REDUCE_SUM, 0)); /* by the host */
    say_values("half", fx_dist_allreduce(d, fx_cast(x, FX_DTYPE_F16), FX_REDUCE_SUM)); /* too */
    say_step("update", d, gpu);
    fx_array *large = fx_to(gpu, fx_full(rank + 1, 1100001)); /* two parts of 4 MiB at most */
    say_values("large", fx_sum(fx_dist_allreduce(d, large, FX_REDUCE_SUM)));
    float a[3], b[3];
    fx_read_as(trained(d, gpu), FX_DTYPE_F32, a, 3);
    fx_read_as(trained(d, fx_device_get("CPU", 0)), FX_DTYPE_F32, b, 3);
    bool same = true;
    for (int i = 0; i < 3; i++)
        same = same && fabsf(a[i] - b[i]) <= 1e-4f * fabsf(b[i]);
    say("parameters", same ? "same" : "other");
}

/* Rank 1 stops in MPI, in the second part of the second sum: this sum fails on both ranks at the
 * time limit, and arrays on the GPU can still be read. */
static void gpu_aware_stops(fx_dist *d)
{
    fx_use("CUDA");
    fx_device *gpu = fx_device_get("CUDA", fx_dist_local_rank(d));
    fx_array *x = fx_to(gpu, fx_vector(rank + 1, 1)), *large = fx_to(gpu, fx_full(1, 1100001));
    say_values("sum", fx_dist_allreduce(d, x, FX_REDUCE_SUM));
    say_values("stops", fx_sum(fx_dist_allreduce(d, large, FX_REDUCE_SUM)));
    say_values("later", fx_dist_allreduce(d, x, FX_REDUCE_SUM));
    say_values("kept", fx_mul(x, 2));
    sleep(1); /* the launcher ends the other rank when one has ended */
}

/* The memory of a GPU of 64 MiB is almost full, but most of it belongs to an array that is freed.
 */
static void gpu_aware_full(fx_dist *d)
{
    fx_use("CUDA");
    fx_device *gpu = fx_device_get("CUDA", fx_dist_local_rank(d));
    fx_array *x = fx_to(gpu, fx_vector(rank + 1, 1));
    {
        FX_SCOPE;
        fx_eval(fx_to(gpu, fx_zeros(60 << 18)));
        say_error("full");
    }
    say_values("sum", fx_dist_allreduce(d, x, FX_REDUCE_SUM));
}

/* Rank 1 gives up an operation in MPI, which may end later. */
static void gpu_aware_late(fx_dist *d)
{
    fx_use("CUDA");
    fx_device *gpu = fx_device_get("CUDA", fx_dist_local_rank(d));
    fx_array *late = fx_to(gpu, fx_full(rank + 1, atoi(getenv("LATE_LENGTH"))));
    say_values("sum", fx_dist_allreduce(d, fx_to(gpu, fx_vector(rank + 1, 1)), FX_REDUCE_SUM));
    say_values("late", fx_sum(fx_dist_allreduce(d, late, FX_REDUCE_SUM)));
    sleep(rank == 0 ? 3 : 2); /* rank 1 ends first */
}

static pthread_t first_thread;

static void say_thread(const fx_error *e, void *user)
{
    (void)user;
    say(pthread_equal(pthread_self(), first_thread) ? "hook" : "hook in another thread",
        e->message);
}

/* From now on, the first copy within a GPU's memory fails on rank 1. */
static void fail_copy(void)
{
    void (*script)(const char *text) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver ? dlsym(driver, "sim_set_script") : NULL;
    memcpy(&script, &symbol, sizeof script);
    if (!script)
        say("driver", "no sim_set_script");
    else if (rank == 1)
        script("cuMemcpyDtoDAsync_v2@1=1");
}

/* The thread of the group cannot copy a bucket on rank 1. The program's thread reports it. */
static void gpu_aware_hook(fx_dist *d)
{
    int64_t n;
    fx_use("CUDA");
    fx_device *gpu = fx_device_get("CUDA", fx_dist_local_rank(d));
    say_values("sum", fx_dist_allreduce(d, fx_to(gpu, fx_vector(rank + 1, 1)), FX_REDUCE_SUM));
    first_thread = pthread_self();
    fx_error_set_hook(say_thread, NULL);
    after_first_update = fail_copy;
    free(large(fx_dist_optimiser(d, fx_adam()), gpu, &n));
}

/* The library that FX_DIST_BACKEND names has been joined by main. */
static void auto_sums(fx_dist *d)
{
    say("NCCL", fx_dist_initialized(FX_NCCL) ? "yes" : "no");
    say("group", fx_dist_backend(FX_DIST_AUTO) == d ? "same" : "other");
    fx_use("CUDA");
    fx_device *gpu = fx_device_get("CUDA", fx_dist_local_rank(d));
    say_values("sum", fx_dist_allreduce(d, fx_to(gpu, fx_vector(rank + 1, 1)), FX_REDUCE_SUM));
}

static void say_plugin(const fx_plugin_info *plugin, void *user)
{
    (void)user;
    if (strcmp(plugin->name, "NCCL") == 0)
        say("plugin", plugin->why ? plugin->why : "not opened");
}

/* The list of plugins has no reason against one that works. */
static void gpu_plugins(fx_dist *d)
{
    (void)d;
    join_gpu(rank);
    fx_plugins(say_plugin, NULL);
}

/* With .wire = BFloat16, NCCL moves gradients exactly, and MPI rounds them. */
static void gpu_wire(fx_dist *d)
{
    say_step("by NCCL", d, join_gpu(fx_dist_local_rank(d)));
    say_step("by MPI", d, fx_device_get("CPU", 0));
}

/* Member 1 of cflux train: agrees that the data are read, then runs another operation than the one
 * that begins to compare the settings, and takes part in the agreement about that failure. */
static void fails_to_compare(fx_dist *d)
{
    failure_silence(!members_first());
    members_hold();
    members_agree(EXIT_FINE);
    members_hold();
    fx_dist_barrier(d);
    members_agree(fail_library(EXIT_FAILED));
}

static const struct {
    const char *name;
    void (*run)(fx_dist *d);
} cases[] = {{"busy_at_end", busy_at_end},
             {"fails_to_compare", fails_to_compare},
             {"local_rank", local_rank},
             {"one_ends", one_ends},
             {"one_ends_after", one_ends_after},
             {"fork_one", fork_one},
             {"folds_of_nan", folds_of_nan},
             {"finalise_first", finalise_first},
             {"overlaps", overlaps},
             {"sums", sums},
             {"sums_in_order", sums},
             {"stops_in_sum", stops_in_sum},
             {"stops_in_broadcast", stops_in_broadcast},
             {"kills_wrapper", kills_wrapper},
             {"unused", unused},
             {"unused_clipped", unused_clipped},
             {"slow", slow},
             {"gpu_sums", gpu_sums},
             {"gpu_refused", gpu_refused},
             {"gpu_half", gpu_half},
             {"gpu_mixed", gpu_mixed},
             {"gpu_same", gpu_same},
             {"gpu_models", gpu_models},
             {"gpu_trains", gpu_trains},
             {"gpu_overlaps", gpu_overlaps},
             {"gpu_aware_overlaps", gpu_aware_overlaps},
             {"gpu_plugins", gpu_plugins},
             {"gpu_aware", gpu_aware},
             {"gpu_aware_stops", gpu_aware_stops},
             {"gpu_aware_late", gpu_aware_late},
             {"gpu_aware_full", gpu_aware_full},
             {"gpu_aware_hook", gpu_aware_hook},
             {"auto_sums", auto_sums},
             {"gpu_wire", gpu_wire}};

/* Programs that never call fx_dist_init: they warn once, on rank 0. */
static int never_joins(void)
{
    fx_setup(fx_descent(0.1), fx_dense(1, 1));
    fx_setup(fx_descent(0.1), fx_dense(1, 1));
    return 0;
}

static int never_joins_gradient(void)
{
    fx_array *w = fx_vector(1, 2), *g;
    for (int k = 0; k < 3; k++) {
        FX_STEP;
        fx_gradient_of(fx_sum(fx_square(w)), &w, 1, &g);
        w = fx_keep(fx_sub(w, fx_mul(0.1, g)));
    }
    return fx_eval(w) == FX_OK ? 0 : 1;
}

static int never_joins_predicts(void)
{
    void *model = fx_chain(fx_dense(30, 40, FX_RELU), fx_dense(40, 3));
    return fx_eval(fx_call(model, fx_rand(30, 20))) == FX_OK ? 0 : 1;
}

static const struct {
    const char *name;
    int (*run)(void);
} alone[] = {{"never_joins", never_joins},
             {"never_joins_gradient", never_joins_gradient},
             {"never_joins_predicts", never_joins_predicts}};

int main(int argc, char **argv)
{
    FX_SCOPE;
    const char *library = argc > 2 ? argv[2] : NULL; /* instead of the launcher's */
    for (int k = 0; argc > 1 && k < 3; k++)
        if (strcmp(argv[1], alone[k].name) == 0)
            return alone[k].run();
    fx_eval(fx_sum(fx_sin(fx_rand(5)))); /* data computed before joining gives no warning */
    if (argc > 1 && strcmp(argv[1], "no_member") == 0)
        return no_member();
    const bool narrow = argc > 1 && strcmp(argv[1], "gpu_wire") == 0;
    const bool chosen = argc > 1 && strncmp(argv[1], "auto_", 5) == 0;
    if (fx_dist_init(chosen ? FX_DIST_AUTO : FX_MPI, .time_limit = 3, .library = library,
                     .fixed_order = argc > 1 && strcmp(argv[1], "sums_in_order") == 0,
                     .wire = narrow ? FX_DTYPE_BF16 : FX_DTYPE_F32) != FX_OK) {
        say_error("init");
        say("initialized", fx_dist_initialized(FX_DIST_AUTO) ? "yes" : "no");
        fx_dist_init(chosen ? FX_DIST_AUTO : FX_MPI, .library = library);
        say_error("again");
        if (library) { /* the launcher's library can still join */
            fx_dist_init(FX_MPI);
            say_error("then again");
            fx_dist_barrier(fx_dist_backend(FX_MPI));
            say_error("barrier");
            fx_dist_init(FX_MPI, .library = library);
            say_error("at last");
        }
        return 1;
    }
    fx_dist *d = fx_dist_backend(FX_MPI);
    rank = fx_dist_rank(d);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (argc > 1 && strcmp(argv[1], cases[k].name) == 0)
            cases[k].run(d);
    return 0;
}
