/* bench_overheads.c: measures costs other than arithmetic: recording a graph and finding its plan,
 * allocations in the steady state, two threads while other programs use the cores, the start of a
 * program, the size of the library.
 *
 * The graph rows use internal functions, in order to leave out running the plan. The graph is a
 * training step of four dense layers, with the optimiser's nodes (fx_updated). The memory of the
 * started program is the peak that the child reads from /proc/self/status, because ru_maxrss, which
 * the parent could read, starts at the parent's own peak.
 */
#include "bench.h"
#include "graph.h"
#include "planning.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
const char *bench_program;

/* ---- the graph ------------------------------------------------------------------------------- */
enum { MAX_ROOTS = 128 };
typedef struct root_list {
    fxi_root at[MAX_ROOTS];
    int n;
} root_list;

static fxi_graph graph; /* its arrays are reused between steps, as in the evaluator */

static void open_graph(bench_state *s)
{
    fx_set(&s->x, fx_randn(2, 64));
    fx_set(&s->y, fx_randn(2, 64));
    fx_set(&s->model, (void *)fx_chain(fx_dense(2, 16, FX_TANH), fx_dense(16, 16, FX_TANH),
                                       fx_dense(16, 16, FX_TANH), fx_dense(16, 2)));
    fx_set(&s->opt, fx_setup(fx_adam(), s->model));
    fx_eval(fx_tuple(s->x, s->y, s->model));
}

static void *record(bench_state *s)
{
    fx_array *loss = fx_mse(fx_call(s->model, s->x), s->y);
    fxi_here()->created = 0; /* nothing is run, so the limit of pending nodes must not be reached */
    return fx_updated(s->opt, s->model, fx_gradient(loss, s->model));
}

static void only_record(bench_state *s)
{
    FX_SCOPE;
    record(s);
}

static void add_root(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    root_list *l = user;
    if (!x->node->data && l->n < MAX_ROOTS)
        l->at[l->n++] = (fxi_root){x->node, NULL};
}

static void record_and_find(bench_state *s)
{
    FX_SCOPE;
    root_list roots = {.n = 0};
    fx_visit(record(s), add_root, &roots);
    if (fxi_graph_of(fxi_here(), &graph, roots.n, roots.at) != FX_OK)
        return;
    fxi_plan *plan;
    if (fxi_plan_of(&graph, &plan) == FX_OK)
        fxi_plan_release(plan);
}

/* flag: also find the plan. The row is nanoseconds per recorded node. */
static bool measure_graph(const bench_case *c, bench_row *out)
{
    bench_state s;
    void (*const step)(bench_state *) = c->flag ? record_and_find : only_record;
    bench_open(c, &s);
    step(&s);
    const fx_counters before = fx_stats();
    step(&s);
    const fx_counters after = fx_stats();
    const double scale = 1e3 / (double)(after.nodes - before.nodes);
    const bool found = !c->flag || after.plan_hits == before.plan_hits + 1;
    bench_sample(step, &s, out);
    out->unit = "ns/node";
    out->median *= scale, out->min *= scale, out->max *= scale;
    bench_close(&s);
    fxi_graph_free(&graph);
    return found || (fx_fail(FX_STATUS_INTERNAL, c->name, "the plan was not found again"), false);
}

/* ---- allocations ----------------------------------------------------------------------------- */
/* Counts calls of the system allocator over `flag` steps of a network, after the same number of
 * warm-up steps. */
static bool measure_allocations(const bench_case *c, bench_row *out)
{
    const bench_case *net = bench_network(strchr(c->name, '/') + 1);
    bench_state s;
    double each[7];
    bench_open(net, &s);
    for (int64_t i = 0; i < c->flag; i++)
        net->step(&s);
    for (int k = 0; k < 7; k++) {
        const uint64_t before = fx_stats().allocations;
        for (int64_t i = 0; i < c->flag; i++)
            net->step(&s);
        each[k] = (double)(fx_stats().allocations - before) / (double)c->flag;
    }
    bench_close(&s);
    bench_row_of(each, 7, "allocations", out);
    return true;
}

/* ---- starting -------------------------------------------------------------------------------- */
static double peak_kib(void)
{
    double kib = 0;
    char line[200];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lf", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

int bench_first_prediction(void)
{
    fx_device *device = bench_device ? fx_device_find(bench_device) : fx_cpu_device();
    fx_allowscalar(true);
    fx_chain_layer *model =
        fx_to(device, fx_chain(fx_dense(784, 64, FX_RELU), fx_dense(64, 10), FX_SOFTMAX));
    const double p = fx_at(fx_call(model, fx_to(device, fx_ones(784, 1))), 0);
    return bench_print_start(p);
}

int bench_print_start(double value)
{
    printf("%.9f %.0f %g\n", bench_now(), peak_kib(), value);
    return fx_error_print(stderr);
}

bool bench_start_child(const char *option, double *seconds, double *mib)
{
    int ends[2], status = 1;
    pid_t child;
    char *argv[] = {(char *)bench_program, (char *)option, (char *)bench_device, NULL};
    char text[200] = "";
    posix_spawn_file_actions_t actions;
    if (pipe(ends) != 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    const double start = bench_now();
    const bool started = posix_spawn(&child, argv[0], &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    ssize_t got = 0, n = 0;
    while (started && (n = read(ends[0], text + got, sizeof text - 1 - (size_t)got)) > 0)
        got += n;
    close(ends[0]);
    if (!started || waitpid(child, &status, 0) != child || status != 0 ||
        sscanf(text, "%lf %lf", seconds, mib) != 2)
        return false;
    *seconds -= start;
    *mib /= 1024;
    return true;
}

/* flag: measure memory instead of time. */
static bool measure_start(const bench_case *c, bench_row *out)
{
    enum { RUNS = 15 };
    double value[RUNS], seconds, mib;
    for (int i = 0; i < RUNS; i++) {
        if (!bench_start_child("--first-prediction", &seconds, &mib))
            return fx_fail(FX_STATUS_IO, c->name, "the child did not answer"), false;
        value[i] = c->flag ? mib : 1e6 * seconds;
    }
    bench_row_of(value, RUNS, c->flag ? "MiB" : "us", out);
    return true;
}

/* ---- contention ------------------------------------------------------------------------------ */
enum { MAX_SPINNERS = 64 };

/* Starts a process for each core, which only spins, and ends when this program ends. Returns how
 * many were started. */
static int start_spinners(pid_t *spinners)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    for (; n < MAX_SPINNERS && n < cores; n++) {
        spinners[n] = fork();
        if (spinners[n] < 0)
            break;
        for (volatile uint64_t k = 0; spinners[n] == 0; k = k + 1)
            if (getppid() == 1)
                _exit(0);
    }
    return n;
}

/* The time of a step on two threads divided by the time on one, while others spin on all cores. */
static bool measure_contention(const bench_case *c, bench_row *out)
{
    enum { ROUNDS = 15, STEPS = 40 };
    double ratios[ROUNDS];
    pid_t spinners[MAX_SPINNERS];
    const int before = fx_num_threads();
    bench_state s;
    const bench_case *net = bench_network(strchr(c->name, '/') + 1);
    bench_open(net, &s);
    for (int k = 0; k < 3; k++)
        net->step(&s);
    const int n = start_spinners(spinners);
    for (int round = 0; round < ROUNDS; round++) {
        double took[2];
        for (int threads = 1; threads <= 2; threads++) {
            fx_set_num_threads(threads);
            const double began = bench_now();
            for (int k = 0; k < STEPS; k++)
                net->step(&s);
            took[threads - 1] = bench_now() - began;
        }
        ratios[round] = took[1] / took[0];
    }
    for (int k = 0; k < n; k++) {
        kill(spinners[k], SIGKILL);
        waitpid(spinners[k], NULL, 0);
    }
    bench_close(&s);
    fx_set_num_threads(before);
    bench_row_of(ratios, ROUNDS, "times", out);
    return n > 0;
}

static bool measure_size(const bench_case *c, bench_row *out)
{
    char path[] = P_tmpdir "/cflux-stripped-XXXXXX";
    const int file = mkstemp(path);
    char *argv[] = {"strip", "-o", path, CFLUX_LIBRARY_FILE, NULL};
    pid_t child;
    int status = 1;
    struct stat info;
    if (file < 0)
        return fx_fail(FX_STATUS_IO, c->name, "no temporary file"), false;
    close(file);
    const bool done = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ) == 0 &&
                      waitpid(child, &status, 0) == child && status == 0 && stat(path, &info) == 0;
    unlink(path);
    if (!done)
        return fx_fail(FX_STATUS_IO, c->name, "strip failed on " CFLUX_LIBRARY_FILE), false;
    double bytes = (double)info.st_size;
    bench_row_of(&bytes, 1, "bytes", out);
    return true;
}

const bench_case bench_overheads[] = {
    {.name = "graph/record",
     .setup = open_graph,
     .step = only_record,
     .measure = measure_graph,
     .flag = 0},
    {.name = "graph/record-key-lookup",
     .setup = open_graph,
     .step = record_and_find,
     .measure = measure_graph,
     .flag = 1},
    {.name = "allocations/train/xor-2-3-bn-2-b64", .measure = measure_allocations, .flag = 200},
    {.name = "allocations/train/mlp-784-256-10-b64", .measure = measure_allocations, .flag = 20},
    {.name = "allocations/train/lenet-b64", .measure = measure_allocations, .flag = 5},
    {.name = "contention/train/lenet-b64", .measure = measure_contention},
    {.name = "start/first-prediction", .measure = measure_start, .flag = 0},
    {.name = "start/resident", .measure = measure_start, .flag = 1},
    {.name = "size/libcflux-stripped", .measure = measure_size},
    {.name = NULL},
};
