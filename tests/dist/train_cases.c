/* train_cases.c: training by several processes, for check_training.py.
 *
 *   train_cases TYPE KIND [CHECKPOINT FAULT [COMMAND]]
 *
 * TYPE: f32 or f64. KIND is even (all ranks have equally many observations of each batch), uneven
 * (they do not, and some have none), randomSEED (each update divides the batch at random), sums
 * (even, and one update for every four gradients), or half (even, and gradients are sent as
 * BFloat16), divided or shards (even, and each rank keeps a part of the optimiser's state). Each
 * rank prints the bits of its parameters after 100 updates. With CHECKPOINT, rank 0 saves the state
 * in that file after every tenth update, and training resumes from it. It is the whole state,
 * except with shards: then each rank saves its part. FAULT is NAME or NAME:UPDATE:RANK:NUMBER, in
 * the first of several starts; without numbers, rank 1 fails at the start of update 57. After
 * NUMBER microseconds in the update, the rank kills itself (kill), stops itself (stop) or sleeps
 * for a second (delay), or before the update it calls another operation than the others (mismatch),
 * or runs COMMAND (command).
 * With rename, the rank kills itself before the call of rename() with this NUMBER (from 0) after
 * the start of the update. CFLUX_TIME_LIMIT: the seconds that a rank waits for another one. With
 * CFLUX_EACH_UPDATE=1, each rank also prints a hash of its parameters after all updates.
 */
#include <cflux.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { STEPS = 100, OBSERVATIONS = 24, EVERY = 10 };

static fx_dtype type;
static fx_dist *dist;
static const char *kind = "even";

static void data_of(fx_array **x, fx_array **y)
{
    double xs[2 * OBSERVATIONS], ys[OBSERVATIONS];
    for (int i = 0; i < 2 * OBSERVATIONS; i++)
        xs[i] = (i * 7 % 48) / 24.0 - 1;
    for (int i = 0; i < OBSERVATIONS; i++)
        ys[i] = xs[2 * i] * xs[2 * i + 1];
    *x = fx_cast(fx_from(FX_DTYPE_F64, xs, 2, OBSERVATIONS), type);
    *y = fx_cast(fx_from(FX_DTYPE_F64, ys, 1, OBSERVATIONS), type);
}

enum { MOST_RANKS = 16 };

/* Divides the batch of update k at random: rank r has the columns ends[r] … ends[r + 1] − 1. */
static void divide_at_random(unsigned seed, int64_t k, int n, int ends[MOST_RANKS + 1])
{
    unsigned draw = seed * 1000003u + (unsigned)k;
    ends[0] = 0;
    for (int i = 1; i < n; i++) {
        draw = draw * 1664525u + 1013904223u;
        const int end = (int)((draw >> 16) % (OBSERVATIONS + 1));
        int at = i;
        for (; ends[at - 1] > end; at--)
            ends[at] = ends[at - 1];
        ends[at] = end;
    }
    ends[n] = OBSERVATIONS;
}

/* This rank's columns first … end − 1 in update k. Uneven: 5 for rank 0, 19 for the last one, none
 * in between. Returns whether the ranks have different numbers of columns. */
static bool part(int64_t k, int *first, int *end)
{
    const int n = fx_dist_total_workers(dist), r = fx_dist_rank(dist);
    int ends[MOST_RANKS + 1];
    unsigned seed;
    const bool random = sscanf(kind, "random%u", &seed) == 1,
               uneven = strcmp(kind, "uneven") == 0 && n > 1;
    *first = OBSERVATIONS * r / n;
    *end = OBSERVATIONS * (r + 1) / n;
    if (uneven) {
        *first = r == 0 ? 0 : 5;
        *end = r == 0 ? 5 : r == n - 1 ? OBSERVATIONS : 5;
    }
    if (random) {
        divide_at_random(seed, k, n, ends);
        *first = ends[r];
        *end = ends[r + 1];
    }
    return uneven || random;
}

static fx_status step(void *opt, void *model, fx_array *x, fx_array *y, int64_t k)
{
    FX_STEP;
    int first, end;
    const bool uneven = part(k, &first, &end);
    if (first == end)
        return fx_update(opt, model, NULL, .observations = 0);
    fx_array *loss = fx_mse(fx_call(model, fx_slice(x, 1, first, end)), fx_slice(y, 1, first, end));
    void *g = fx_gradient(loss, model);
    return uneven ? fx_update(opt, model, g, .observations = end - first)
                  : fx_update(opt, model, g);
}

typedef struct fault {
    char name[20];
    int update, rank, number;
    const char *command;
} fault;

static fault fault_of(const char *text)
{
    fault f = {"", 57, 1, 0, ""};
    if (text)
        sscanf(text, "%19[a-z]:%d:%d:%d", f.name, &f.update, &f.rank, &f.number);
    return f;
}

static void kill_now(int number)
{
    (void)number;
    raise(SIGKILL);
}

static void stop_now(int number)
{
    (void)number;
    raise(SIGSTOP);
}

static void sleep_now(int number)
{
    (void)number;
    const struct timespec second = {.tv_sec = 1};
    nanosleep(&second, NULL);
}

static int renames_left = -1; /* before this process kills itself; −1: it does not */

/* Replaces the function of the C library, which the library cflux calls too. */
__attribute__((visibility("default"))) int rename(const char *from, const char *to)
{
    if (renames_left == 0)
        raise(SIGKILL);
    renames_left -= renames_left > 0;
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static bool is(const fault *f, const char *name)
{
    return strcmp(f->name, name) == 0;
}

/* Update k begins: this rank fails in it, now or later. */
static fx_status fail_in(const fault *f, int64_t k)
{
    const char *again = getenv("CFLUX_RESTART");
    if (k != f->update || fx_dist_rank(dist) != f->rank || (again && strcmp(again, "0") != 0))
        return FX_OK;
    if (is(f, "mismatch"))
        return fx_eval(fx_dist_allreduce(dist, fx_zeros(2), FX_REDUCE_MAX));
    if (is(f, "command"))
        return system(f->command) == 0 ? FX_OK : FX_STATUS_IO;
    if (is(f, "rename")) {
        renames_left = f->number;
        return FX_OK;
    }
    signal(SIGALRM, is(f, "kill") ? kill_now : is(f, "stop") ? stop_now : sleep_now);
    const struct itimerval when = {.it_value.tv_usec = f->number};
    if (f->number == 0)
        raise(SIGALRM);
    else
        setitimer(ITIMER_REAL, &when, NULL);
    return FX_OK;
}

/* FNV-1a of the bits of the parameters after each update. */
static uint64_t hash = 14695981039346656037u;
static int hashed; /* updates */

static void add_to_hash(void *model)
{
    FX_SCOPE;
    double all[64];
    fx_array *p = fx_destructure(model);
    const size_t bytes = (size_t)fx_length(p) * sizeof *all;
    if (bytes > sizeof all || fx_read_as(p, FX_DTYPE_F64, all, fx_length(p)) != FX_OK)
        return;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((unsigned char *)all)[i]) * 1099511628211u;
    hashed++;
}

static void print_bits(void *model)
{
    double all[64];
    fx_array *p = fx_destructure(model);
    const int64_t n = fx_length(p);
    if (fx_read_as(p, FX_DTYPE_F64, all, n) != FX_OK)
        return;
    /* The line is printed in one call, because launchers forward the output of the ranks in
     * pieces. */
    char text[64 * 30 + 60];
    int at = snprintf(text, sizeof text, "%d:", fx_dist_rank(dist));
    for (int64_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %a", all[i]);
    if (hashed > 0)
        snprintf(text + at, sizeof text - (size_t)at, "\n%d: %d updates have %016llx",
                 fx_dist_rank(dist), hashed, (unsigned long long)hash);
    for (int r = 0; r < fx_dist_rank(dist); r++)
        fx_dist_barrier(dist);
    printf("%s\n", text);
    fflush(stdout);
    for (int r = fx_dist_rank(dist); r < fx_dist_total_workers(dist); r++)
        fx_dist_barrier(dist);
}

static bool kind_is(const char *name)
{
    return strcmp(kind, name) == 0;
}

/* The group of which each member saves its part. */
static fx_dist *parts_of(void)
{
    return kind_is("shards") ? dist : NULL;
}

static fx_status load(const char *checkpoint, void *model, void *opt, int64_t *out_step)
{
    void *state = kind_is("divided") ? fx_dist_whole(dist, opt) : opt;
    fx_checkpoint_args saved = {.model = model, .state = state, .dist = parts_of()};
    fx_status status = fx_checkpoint_load(checkpoint, &saved);
    if (status == FX_OK && state != opt)
        status = fx_dist_divide(dist, opt, state);
    *out_step = saved.step;
    if (status == FX_OK && fx_dist_rank(dist) == 0)
        printf("from training step %lld\n", (long long)saved.step);
    return status;
}

static fx_status save(const char *checkpoint, void *model, void *opt, int64_t step)
{
    FX_SCOPE;
    void *state = kind_is("divided") ? fx_dist_whole(dist, opt) : opt;
    if (fx_dist_rank(dist) != 0 && !parts_of())
        return FX_OK;
    return fx_checkpoint_save(checkpoint, model, .state = state, .step = step, .dist = parts_of());
}

static fx_status train(const char *checkpoint, const fault *f)
{
    FX_SCOPE;
    fx_array *x, *y;
    int64_t first = 0;
    fx_seed(7);
    data_of(&x, &y);
    void *model = fx_chain(fx_dense(2, 5, FX_TANH), fx_dense(5, 1));
    model = type == FX_DTYPE_F64 ? fx_f64(model) : model;
    fx_rule *rule =
        kind_is("sums") ? fx_optimiser_chain(fx_accum_grad(4), fx_adam(0.01)) : fx_adam(0.01);
    const bool divides = kind_is("divided") || kind_is("shards");
    void *opt = fx_setup(fx_dist_optimiser(dist, rule, .shard = divides), model);
    if (checkpoint && fx_dist_checkpoint_exists(parts_of(), checkpoint) &&
        load(checkpoint, model, opt, &first) != FX_OK)
        return FX_STATUS_IO;
    model = fx_dist_synchronize(dist, model, 0);
    opt = fx_dist_synchronize(dist, opt, 0);
    for (int64_t k = first; k < STEPS; k++) {
        fx_status status = *f->name ? fail_in(f, k) : FX_OK;
        if (status == FX_OK)
            status = step(opt, model, x, y, k);
        if (status != FX_OK)
            return status;
        if (getenv("CFLUX_EACH_UPDATE"))
            add_to_hash(model);
        if (checkpoint && (k + 1) % EVERY == 0 && save(checkpoint, model, opt, k + 1) != FX_OK)
            return FX_STATUS_IO;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL); /* a rank fails in its updates only */
    print_bits(model);
    return FX_OK;
}

int main(int argc, char **argv)
{
    type = argc > 1 && strcmp(argv[1], "f64") == 0 ? FX_DTYPE_F64 : FX_DTYPE_F32;
    kind = argc > 2 ? argv[2] : kind;
    const char *limit = getenv("CFLUX_TIME_LIMIT");
    fx_status status = fx_dist_init(FX_MPI, .time_limit = limit ? atof(limit) : 3,
                                    .wire = kind_is("half") ? FX_DTYPE_BF16 : FX_DTYPE_F32);
    dist = status == FX_OK ? fx_dist_backend(FX_MPI) : NULL;
    fault f = fault_of(argc > 4 ? argv[4] : NULL);
    f.command = argc > 5 ? argv[5] : "";
    if (dist)
        status = train(argc > 3 ? argv[3] : NULL, &f);
    const fx_error e = fx_error_take();
    if (status != FX_OK)
        printf("%d: %s\n", fx_dist_rank(dist), e.message);
    return status != FX_OK;
}
