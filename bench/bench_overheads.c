/* bench_overheads.c: measures costs other than arithmetic: recording a graph and finding its plan,
 * allocations in the steady state, two threads while other programs use the cores, the start of a
 * program, the size of the library.
 *
 * The graph rows use internal functions, in order to leave out running the plan. The graph is a
 * training step of four dense layers, with the optimiser's nodes. graph/record… uses fx_updated,
 * which also makes a new model and a new state, and record-key-lookup finds the results as fx_eval
 * does. graph/update… records what fx_update records. The memory of the started program is the peak
 * that the child reads from /proc/self/status, because ru_maxrss, which the parent could read,
 * starts at the parent's own peak.
 */
#include "bench.h"
#include "graph.h"
#include "memory.h"
#include "planning.h"
#include "update_items.h"
#include "walk.h"

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
enum { MAX_ROOTS = 512 };
typedef struct root_list {
    fxi_root at[MAX_ROOTS];
    int n;
} root_list;

static fxi_graph graph; /* its arrays are reused between calls, as in the evaluator */

static void open_graph(bench_state *s)
{
    fx_set(&s->x, fx_randn(2, 64));
    fx_set(&s->y, fx_randn(2, 64));
    fx_set(&s->model, (void *)fx_chain(fx_dense(2, 16, FX_TANH), fx_dense(16, 16, FX_TANH),
                                       fx_dense(16, 16, FX_TANH), fx_dense(16, 2)));
    fx_set(&s->opt, fx_setup(fx_adam(), s->model));
    fx_eval(fx_tuple(s->x, s->y, s->model));
}

static void add_root(fx_array *x, fx_array *of, bool trainable, void *user)
{
    (void)of, (void)trainable;
    root_list *l = user;
    if (!x->node->data && l->n < MAX_ROOTS)
        l->at[l->n++] = (fxi_root){x->node, NULL};
}

/* open_graph with values instead of pending zeros as the state, as after the first update. */
static void open_update(bench_state *s)
{
    open_graph(s);
    fx_eval(s->opt);
}

static void find_plan_of(const root_list *roots)
{
    fxi_plan *plan;
    if (fxi_graph_of(fxi_here(), &graph, roots->n, roots->at) == FX_OK &&
        fxi_plan_of(&graph, &plan) == FX_OK)
        fxi_plan_release(plan);
}

static void find_plan(void *results)
{
    root_list roots; /* not zeroed: it is large */
    roots.n = 0;
    fxi_visit_tied(results, add_root, &roots);
    find_plan_of(&roots);
}

static void *record_gradient(const bench_state *s)
{
    fx_array *loss = fx_mse(fx_call(s->model, s->x), s->y);
    fxi_here()->created = 0; /* nothing is run, so the limit of pending nodes must not be reached */
    return fx_gradient(loss, s->model);
}

static void *record(bench_state *s)
{
    return fx_updated(s->opt, s->model, record_gradient(s));
}

static void only_record(bench_state *s)
{
    FX_SCOPE;
    record(s);
}

static void record_and_find(bench_state *s)
{
    FX_SCOPE;
    find_plan(record(s));
}

/* The new arrays of the model and of the state. */
static void list_values(const fxi_items *items, root_list *out)
{
    for (int64_t i = 0; i < items->n; i++)
        for (int64_t k = 0; k <= items->all[i].leaf->states.n; k++) {
            const fxi_item *it = &items->all[i];
            fxi_node *value = it->values[k] ? it->values[k]->node : it->nodes[k];
            if (value && out->n < MAX_ROOTS)
                out->at[out->n++] =
                    (fxi_root){value, fxi_item_operand(it, k ? (int)k + 1 : 0)->node};
        }
}

/* What fx_update does before it runs the plan and binds the handles. */
static void update(bench_state *s, bool find)
{
    FX_SCOPE;
    fxi_items items = {0};
    fxi_checks norms = {0};
    fxi_literals literals;
    fxi_copied_rule copied;
    literals.rule = NULL;
    copied.from = NULL;
    fxi_items_gather(&items, s->opt, s->model, record_gradient(s));
    for (int64_t i = 0; i < items.n && items.status == FX_OK; i++)
        items.status = fxi_item_apply(&items.all[i], &literals, &norms, &copied);
    root_list roots;
    roots.n = 0;
    if (find)
        list_values(&items, &roots);
    if (find)
        find_plan_of(&roots);
    fxi_free(norms.all);
    fxi_items_done(&items);
}

static void update_only(bench_state *s)
{
    update(s, false);
}

static void update_and_find(bench_state *s)
{
    update(s, true);
}

/* flag: the body also finds the plan. The row is nanoseconds per recorded node. */
static bool measure_graph(const bench_case *c, bench_row *out)
{
    bench_state s;
    void (*const body)(bench_state *) = c->body;
    bench_open(c, &s);
    body(&s);
    const fx_counters before = fx_stats();
    body(&s);
    const fx_counters after = fx_stats();
    const double scale = 1e3 / (double)(after.nodes - before.nodes);
    const bool found = !c->flag || after.plan_hits == before.plan_hits + 1;
    bench_sample(body, &s, out);
    out->unit = "ns/node";
    out->median *= scale, out->min *= scale, out->max *= scale;
    bench_close(&s);
    fxi_graph_free(&graph);
    return found || (fx_fail(FX_STATUS_INTERNAL, c->name, "the plan was not found again"), false);
}

/* ---- families of graphs ---------------------------------------------------------------------- */
/* Graphs of n = size[0] equal parts: instructions are counted at two sizes (check_instructions.py).
 */

/* A training step of n layers. */
static void open_dense(bench_state *s)
{
    void *layers[64];
    const int n = (int)s->which->size[0];
    for (int i = 0; i < n; i++)
        layers[i] = fx_dense(4, 4, FX_RELU);
    fx_set(&s->x, fx_randn(4, 2));
    fx_set(&s->y, fx_randn(4, 2));
    fx_set(&s->model, (void *)fxi_chain(n, layers));
    fx_set(&s->opt, fx_setup(fx_adam(), s->model));
    fx_eval(fx_tuple(s->x, s->y, s->model, s->opt));
}

static void open_square(bench_state *s)
{
    fx_set(&s->x, fx_randn(8, 8));
    fx_eval(s->x);
}

static fx_array *gradient_of(fx_array *y, const bench_state *s)
{
    return fx_gradient(fx_sum(y), s->x);
}

static fx_array *elementwise(bench_state *s)
{
    fx_array *y = s->x;
    for (int64_t i = 0; i < s->which->size[0]; i++)
        y = fx_tanh(fx_add(y, s->x));
    return gradient_of(y, s);
}

static fx_array *softmax(bench_state *s)
{
    fx_array *y = s->x;
    for (int64_t i = 0; i < s->which->size[0]; i++)
        y = fx_add(fx_softmax(y), s->x);
    return gradient_of(y, s);
}

static fx_array *norms(bench_state *s)
{
    fx_array *y = s->x;
    for (int64_t i = 0; i < s->which->size[0]; i++)
        y = fx_tanh(fx_normalise(y, FX_AXES(0), 1e-5));
    return gradient_of(y, s);
}

static fx_array *products(bench_state *s)
{
    fx_array *y = s->x;
    for (int64_t i = 0; i < s->which->size[0]; i++)
        y = fx_tanh(fx_matmul(y, s->x));
    return gradient_of(y, s);
}

/* Reductions and numbers, without a gradient. */
static fx_array *sums(bench_state *s)
{
    fx_array *y = fx_sum(s->x);
    for (int64_t i = 0; i < s->which->size[0]; i++)
        y = fx_add(y, fx_sum(fx_mul(s->x, fx_add(s->x, i))));
    return y;
}

static void family_and_find(bench_state *s)
{
    FX_SCOPE;
    fx_array *result = s->which->op(s);
    fxi_here()->created = 0;
    find_plan(result);
}

/* ---- allocations ----------------------------------------------------------------------------- */
/* A thread keeps freed handles for some time before it uses them again, so the first training steps
 * allocate: of 784-256-10, the last one that does is number 86. */
enum { WARM_UP = 200 };

/* Counts calls of the system allocator over `flag` training steps of a network, after the first
 * ones. */
static bool measure_allocations(const bench_case *c, bench_row *out)
{
    const bench_case *net = bench_network(strchr(c->name, '/') + 1);
    bench_state s;
    double each[7];
    bench_open(net, &s);
    for (int i = 0; i < WARM_UP; i++)
        net->body(&s);
    for (int k = 0; k < 7; k++) {
        const uint64_t before = fx_stats().allocations;
        for (int64_t i = 0; i < c->flag; i++)
            net->body(&s);
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

/* The time of a training step on two threads divided by the time on one, while others spin on all
 * cores. */
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
        net->body(&s);
    const int n = start_spinners(spinners);
    for (int round = 0; round < ROUNDS; round++) {
        double took[2];
        for (int threads = 1; threads <= 2; threads++) {
            fx_set_num_threads(threads);
            const double began = bench_now();
            for (int k = 0; k < STEPS; k++)
                net->body(&s);
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
     .body = only_record,
     .measure = measure_graph,
     .flag = 0},
    {.name = "graph/record-key-lookup",
     .setup = open_graph,
     .body = record_and_find,
     .measure = measure_graph,
     .flag = 1},
    {.name = "graph/update",
     .setup = open_update,
     .body = update_only,
     .measure = measure_graph,
     .flag = 0},
    {.name = "graph/update-key-lookup",
     .setup = open_update,
     .body = update_and_find,
     .measure = measure_graph,
     .flag = 1},
#define FAMILY(NAME, OPEN, BODY, OP, N)                                                            \
    {.name = "graph/" NAME,                                                                        \
     .setup = OPEN,                                                                                \
     .body = BODY,                                                                                 \
     .measure = measure_graph,                                                                     \
     .op = OP,                                                                                     \
     .size = {N},                                                                                  \
     .flag = 1},
    FAMILY("dense-4", open_dense, update_and_find, NULL,
           4) FAMILY("dense-40", open_dense, update_and_find, NULL,
                     40) FAMILY("elementwise-20", open_square, family_and_find, elementwise, 20)
        FAMILY("elementwise-200", open_square, family_and_find, elementwise, 200)
            FAMILY("softmax-10", open_square, family_and_find, softmax, 10)
                FAMILY("softmax-100", open_square, family_and_find, softmax, 100)
                    FAMILY("norms-10", open_square, family_and_find, norms, 10)
                        FAMILY("norms-100", open_square, family_and_find, norms, 100)
                            FAMILY("products-20", open_square, family_and_find, products, 20)
                                FAMILY("products-200", open_square, family_and_find, products, 200)
                                    FAMILY("sums-20", open_square, family_and_find, sums, 20)
                                        FAMILY("sums-200", open_square, family_and_find, sums, 200)
#undef FAMILY
                                            {.name = "allocations/train/xor-2-3-bn-2-b64",
                                             .measure = measure_allocations,
                                             .flag = 200},
    {.name = "allocations/train/mlp-784-256-10-b64", .measure = measure_allocations, .flag = 20},
    {.name = "allocations/train/lenet-b64", .measure = measure_allocations, .flag = 5},
    {.name = "contention/train/lenet-b64", .measure = measure_contention},
    {.name = "start/first-prediction", .measure = measure_start, .flag = 0},
    {.name = "start/resident", .measure = measure_start, .flag = 1},
    {.name = "size/libcflux-stripped", .measure = measure_size},
    {.name = NULL},
};
