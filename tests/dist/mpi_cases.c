/* mpi_cases.c: what may go wrong between processes; started by check_mpi.py with the name of a
 * case. Each line that a process prints begins with its rank. */
#include <cflux.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* A fold has NaN, whichever member has it. */
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

static const struct {
    const char *name;
    void (*run)(fx_dist *d);
} cases[] = {{"busy_at_end", busy_at_end},
             {"one_ends", one_ends},
             {"fork_one", fork_one},
             {"folds_of_nan", folds_of_nan},
             {"finalise_first", finalise_first}};

int main(int argc, char **argv)
{
    FX_SCOPE;
    if (fx_dist_init(FX_MPI, .time_limit = 3) != FX_OK) {
        say_error("init");
        return 1;
    }
    fx_dist *d = fx_dist_backend(FX_MPI);
    rank = fx_dist_rank(d);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (argc > 1 && strcmp(argv[1], cases[k].name) == 0)
            cases[k].run(d);
    return 0;
}
