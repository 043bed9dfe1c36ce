/* test_plan.c: the plan cache and what it counts, donation in the steady state, and graphs of a
 * million nodes. ctest: serial native timeout=300
 *
 * The trace is read in a child process, because the library reads FX_TRACE once. Addresses are
 * those of the memory after arrays; fx_data would pin it. */
#include "evaluate.h"
#include "semantics_check.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sanitizers need more memory and time a node, and their own part of the stack. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { NODES = 100000, SMALL_STACK = 1 << 20 };
#else
enum { NODES = 1000000, SMALL_STACK = 256 * 1024 };
#endif

/* x, evaluated: a leaf. */
static fx_array *leaf(fx_array *x)
{
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

static fx_chain_layer *network(void)
{
    return fx_chain(fx_dense(4, 8, FX_TANH), fx_batchnorm(8), fx_dropout(0.2), fx_dense(8, 2));
}

static void train_step(void *opt, void *model, int64_t batch, double scale)
{
    FX_STEP;
    fx_array *x = fx_mul(fx_rand(4, batch), scale);
    fx_array *loss = fx_mse(fx_call(model, x), fx_slice(x, 0, 0, 2));
    assert_int_equal(fx_update(opt, model, fx_gradient(loss, model), .guard = loss), FX_OK);
}

/* ---- hits and misses ------------------------------------------------------------------------- */

/* Data, literals, seeds, learning rates and the powers of β change at every training step: one
 * plan. */
static void numbers_and_seeds_hit(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = network();
    void *opt = fx_setup(fx_adam(.eta = 0.01), m);
    for (int k = 0; k < 3; k++)
        train_step(opt, m, 16, 1);
    const fx_counters before = fx_stats();
    for (int k = 0; k < 20; k++) {
        fx_seed((uint64_t)k);
        fx_adjust_eta(opt, 0.01 / (k + 1));
        train_step(opt, m, 16, 1 + 0.1 * k);
    }
    const fx_counters after = check_same_plans(&before, 20);
    assert_int_equal(after.plan_hits - before.plan_hits, 20);
    assert_int_equal(after.implicit_evals, before.implicit_evals);
}

static void a_short_last_batch_is_one_more_plan(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = network();
    void *opt = fx_setup(fx_adam(), m);
    for (int k = 0; k < 3; k++)
        train_step(opt, m, 16, 1);
    uint64_t built = fx_stats().plans_built;
    for (int epoch = 0; epoch < 4; epoch++) {
        for (int k = 0; k < 5; k++)
            train_step(opt, m, k < 4 ? 16 : 7, 1);
        assert_int_equal(fx_stats().plans_built, built + 1);
    }
}

/* The state of an optimiser starts as literals. They are written to memory before the first
 * training step is planned, which therefore has the plan of all others. */
static void the_first_training_step_has_the_plan_of_all_others(void **state)
{
    (void)state;
    void *rules[] = {fx_adam(),    fx_momentum(), fx_rmsprop(),
                     fx_adagrad(), fx_rprop(),    fx_adabelief()};
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        FX_SCOPE;
        fx_chain_layer *m = network();
        void *opt = fx_setup(rules[r], m);
        fx_reclaim();
        const fx_counters before = fx_stats();
        for (int k = 0; k < 3; k++) {
            train_step(opt, m, 16, 1);
            assert_int_equal(fx_stats().plans_built, before.plans_built + 1);
        }
        assert_int_equal(fx_stats().donation_misses, before.donation_misses);
    }
}

static uint64_t plans_for(fx_array *x)
{
    const uint64_t built = fx_stats().plans_built;
    assert_int_equal(fx_eval(x), FX_OK);
    return fx_stats().plans_built - built;
}

/* The key contains the structure: operation, type, sizes, layout of the data, attributes, device,
 * results. */
static void structure_misses(void **state)
{
    (void)state;
    FX_SCOPE;
    _Alignas(64) float data[12] = {0}; /* aligned like memory of our own */
    fx_array *x = leaf(fx_ones(3, 4)), *b = fx_borrow(FX_DTYPE_F32, data, NULL, NULL, 3, 4);
    fx_array *r = fx_to(fx_device_get("ref", 0), x);
    assert_int_equal(plans_for(fx_tan(fx_atan(x))), 1);
    assert_int_equal(plans_for(fx_tan(fx_atan(x))), 0);
    assert_int_equal(plans_for(fx_atan(fx_tan(x))), 1);
    assert_int_equal(plans_for(fx_tan(fx_atan(fx_reshape(x, 4, 3)))), 1);
    assert_int_equal(plans_for(fx_tan(fx_atan(fx_vec(x)))), 1);
    assert_int_equal(plans_for(fx_tan(fx_atan(b))), 1); /* borrowed memory */
    assert_int_equal(plans_for(fx_tan(fx_atan(b))), 0);
    assert_int_equal(plans_for(fx_tan(fx_atan(r))), 1); /* another device */
    assert_int_equal(plans_for(fx_sum(x, .dims = FX_AXES(0))), 1);
    assert_int_equal(plans_for(fx_sum(x, .dims = FX_AXES(1))), 1);
    assert_int_equal(plans_for(fx_sum(x, .dims = FX_AXES(0))), 0);
    fx_array *a = fx_atan(x), *both = fx_tan(a); /* the same graph with two results */
    const uint64_t built = fx_stats().plans_built;
    fx_eval(fx_tuple(a, both));
    assert_int_equal(fx_stats().plans_built, built + 1);
}

/* One graph, two results of three: which ones is in the key. */
static void the_outputs_are_in_the_key(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = leaf(fx_vector(0.25f));
    for (int which = 0; which < 2; which++) {
        fx_array *a = fx_sin(x), *b = fx_cumsum(a, 0), *c = fx_tan(b);
        const uint64_t built = fx_stats().plans_built;
        fx_eval(fx_tuple(which ? b : a, c));
        assert_int_equal(fx_stats().plans_built, built + 1);
        assert_int_equal(fx_is_evaluated(a), which == 0);
        assert_int_equal(fx_is_evaluated(b), which == 1);
        NEAR(fx_at(which ? b : a, 0), sin(0.25), 1e-6);
        NEAR(fx_at(c, 0), tan(sin(0.25)), 1e-6);
    }
}

/* One use twice is not two uses of equal values. */
static void sharing_is_structure(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_vector(1, 2), *y = fx_vector(3, 5);
    fx_eval(fx_tuple(x, y));
    SAME(fx_item(fx_sum(fx_mul(x, y))), 13);
    SAME(fx_item(fx_sum(fx_mul(x, x))), 5);
    SAME(fx_item(fx_sum(fx_mul(y, x))), 13);
    SAME(fx_item(fx_sum(fx_mul(y, y))), 34);
}

static void old_plans_are_evicted(void **state)
{
    (void)state;
    FX_SCOPE;
    fxi_reclaim_all();
    const fx_counters before = fx_stats();
    for (int64_t n = 1; n <= 600; n++) {
        FX_SCOPE;
        SAME(fx_item(fx_sum(fx_add(fx_ones(n), 1))), 2.0 * (double)n);
    }
    const fx_counters after = fx_stats();
    assert_true(after.plans_evicted > before.plans_evicted);
    assert_true(after.plans_built - before.plans_built >= 600);
    {
        FX_SCOPE; /* the newest ones remained, the oldest ones were freed */
        const uint64_t built = fx_stats().plans_built;
        fx_item(fx_sum(fx_add(fx_ones(600), 1)));
        assert_int_equal(fx_stats().plans_built, built);
        fx_item(fx_sum(fx_add(fx_ones(1), 1)));
        assert_int_equal(fx_stats().plans_built, built + 1);
    }
}

/* ---- counters -------------------------------------------------------------------------------- */

static void counters_count(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_from(FX_DTYPE_F32, (float[64]){0}, 64), *W = fx_zeros(64, 64);
    fx_eval(W);
    fx_counters before = fx_stats();
    fx_array *y = fx_matmul(W, x);
    assert_true(fx_stats().nodes > before.nodes);
    assert_int_equal(fx_stats().evals, before.evals);
    fx_eval(y);
    fx_counters after = fx_stats();
    assert_int_equal(after.evals, before.evals + 1);
    assert_true(after.steps_run - before.steps_run >= 1);
    const uint64_t least = (64 * 64 + 64 + 64) * 4; /* every operand once */
    assert_true(after.bytes_moved - before.bytes_moved >= least);
    assert_true(after.bytes_moved - before.bytes_moved <= 2 * least);
    assert_true(after.allocations > before.allocations);
    assert_true(after.live_bytes >= before.live_bytes + 64 * 4);
    assert_true(after.peak_bytes >= after.live_bytes);
    fx_eval(y);
    assert_int_equal(fx_stats().evals, after.evals); /* all values exist already */
    before = fx_stats();
    {
        FX_SCOPE;
        fx_eval(fx_add(fx_zeros(1000, 1000), 1));
        assert_true(fx_stats().live_bytes >= before.live_bytes + 4000000);
    }
    assert_true(fx_stats().live_bytes <= before.live_bytes + 8192); /* freed */
    assert_true(fx_stats().peak_bytes >= before.live_bytes + 4000000);
}

/* ---- donation -------------------------------------------------------------------------------- */

enum { MOST = 64 };
typedef struct places {
    const void *at[MOST];
    int n;
} places;

static void note_place(fx_array *x, const char *path, bool trainable, void *user)
{
    (void)path, (void)trainable;
    places *p = user;
    assert_true(p->n < MOST);
    p->at[p->n++] = address_of(x);
}

static void places_of(void *model, void *opt, places *p)
{
    p->n = 0;
    fx_visit(model, note_place, p);
    fx_visit(opt, note_place, p);
}

/* In the steady state parameters, optimiser state and running statistics stay where they are, and
 * live memory does not grow. */
static void check_addresses_stay(fx_rule *rule, int arrays)
{
    FX_SCOPE;
    fx_chain_layer *m = network();
    void *opt = fx_setup(rule, m);
    places first, now;
    for (int k = 0; k < 3; k++)
        train_step(opt, m, 16, 1);
    places_of(m, opt, &first);
    assert_int_equal(first.n, arrays);
    const fx_counters before = fx_stats();
    const int64_t live = fxi_live_allocations();
    for (int k = 0; k < 20; k++) {
        train_step(opt, m, 16, 1);
        places_of(m, opt, &now);
        for (int i = 0; i < arrays; i++)
            if (now.at[i] != first.at[i])
                fail_msg("array %d of %d has moved in step %d", i, arrays, k);
    }
    const fx_counters after = fx_stats();
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(after.donation_misses, before.donation_misses);
    assert_int_equal(after.donations - before.donations, 20 * (uint64_t)arrays);
    assert_int_equal(fxi_live_allocations(), live);
}

static void addresses_stay(void **state)
{
    (void)state;
    FX_SCOPE;
    check_addresses_stay(fx_descent(), 8); /* 2·2 + 4 of batch norm */
    check_addresses_stay(fx_momentum(), 8 + 6);
    check_addresses_stay(fx_adam(), 8 + 12);
}

/* ---- a million nodes ------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct chain {
    int64_t adds; /* x ← x + 1: two nodes each */
    double value, gradient, seconds;
    fx_status status;
} chain;

static void *run_chain(void *argument)
{
    chain *c = argument;
    const double began = seconds();
    FX_SCOPE;
    fx_array *x = fx_zeros(2), *y = x, *g = NULL;
    fx_eval(x);
    for (int64_t i = 0; i < c->adds; i++)
        y = fx_add(y, 1);
    fx_array *loss = fx_sum(y);
    fx_gradient_of(loss, &x, 1, &g);
    c->gradient = fx_item(fx_sum(g));
    c->value = fx_item(loss);
    c->status = fx_error_take().status;
    c->seconds = seconds() - began;
    return NULL;
}

/* As run_chain, but nothing is evaluated before the end. y ← y·w. */
static void *run_product(void *argument)
{
    chain *c = argument;
    const double began = seconds();
    FX_SCOPE;
    fx_array *w = fx_ones(2), *y = w, *g = NULL;
    fx_eval(w);
    for (int64_t i = 0; i < c->adds; i++)
        y = fx_mul(y, w);
    fx_array *loss = fx_sum(y);
    fx_gradient_of(loss, &w, 1, &g); /* every node has a part in it */
    c->gradient = fx_item(fx_sum(g));
    c->value = fx_item(loss);
    c->status = fx_error_take().status;
    c->seconds = seconds() - began;
    return NULL;
}

/* In a thread whose stack would not hold a recursion. */
static chain in_a_small_stack(void *(*body)(void *), int64_t adds)
{
    chain c = {.adds = adds};
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, SMALL_STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, body, &c), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    assert_int_equal(c.status, FX_OK);
    return c;
}

/* For five times the nodes. Linear work takes less than a second, and a busy machine makes one of
 * the two times a few times longer. Quadratic work of 1 ns a pair of nodes takes at least 2.5 s and
 * 62 s for these sizes: it stays above the bound. */
static void expect_linear(double little, double much)
{
    if (much > 15 * little + 10)
        fail_msg("%.3f s of the processor for 5 times what took %.3f s", much, little);
}

static void a_million_nodes(void **state)
{
    (void)state;
    const fx_counters before = fx_stats();
    const chain little = in_a_small_stack(run_chain, NODES / 10);
    SAME(little.value, 2.0 * NODES / 10);
    const chain much = in_a_small_stack(run_chain, NODES / 2);
    SAME(much.value, (double)NODES); /* exact in Float32 */
    SAME(much.gradient, 2);
    assert_true(fx_stats().nodes - before.nodes >= NODES);
    expect_linear(little.seconds, much.seconds);
}

static void a_million_nodes_with_gradients(void **state)
{
    (void)state;
    const chain little = in_a_small_stack(run_product, NODES / 20);
    SAME(little.value, 2);
    SAME(little.gradient, 2 * (NODES / 20 + 1.0));
    const chain much =
        in_a_small_stack(run_product, NODES / 4); /* the gradient has at least as many nodes */
    SAME(much.value, 2);
    SAME(much.gradient, 2 * (NODES / 4 + 1.0));
    expect_linear(little.seconds, much.seconds);
}

/* The bound evaluates, but does not cut history. */
static void the_bound_does_not_cut(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { FEW = 1000 };
    const uint64_t implicit = fx_stats().implicit_evals;
    const int64_t before = fxi_here()->most_created;
    fx_array *x = fx_full_dtype(FX_DTYPE_F64, 1, 1), *y = x;
    fxi_here()->most_created = FEW;
    for (int i = 0; i < 3 * FEW; i++)
        y = fx_mul(y, i % 2 ? 2 : 0.5);
    assert_true(fx_stats().implicit_evals > implicit);
    CHECK(gradient1(fx_sum(fx_square(y)), x), (1), 0, 2);
    fxi_here()->most_created = before;
}

/* A loop that reads nothing keeps the arrays that its results are computed from. */
static void arrays_count_too(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { ROUNDS = 12, COUNT = 1000, BYTES = 4 * COUNT };
    static const float one[COUNT] = {1};
    const uint64_t implicit = fx_stats().implicit_evals;
    const int64_t before = fxi_here()->most_brought;
    fxi_here()->most_brought = 3 * BYTES;
    fx_array *sum = fx_scalar(0);
    for (int i = 0; i < ROUNDS; i++) {
        FX_SCOPE;
        sum = fx_keep(fx_add(sum, fx_sum(fx_from(FX_DTYPE_F32, one, COUNT))));
    }
    assert_true(fx_stats().implicit_evals > implicit);
    SAME(fx_item(sum), ROUNDS);
    fxi_here()->most_brought = before;
}

/* Far more nodes than the 20,000 at which a training step was once cut into two plans. */
static void no_number_of_nodes_cuts_a_step(void **state)
{
    (void)state;
    FX_SCOPE;
    enum { MANY = 30000 };
    const fx_counters before = fx_stats();
    fx_array *x = fx_ones(1), *y = x;
    for (int i = 0; i < MANY; i++)
        y = fx_add(y, x);
    SAME(fx_at(y, 0), MANY + 1);
    const fx_counters after = fx_stats();
    assert_int_equal(after.implicit_evals, before.implicit_evals);
    assert_int_equal(after.evals, before.evals + 1);
}

/* Many results at once, too: an update of very many parameters. */
static void very_many_parameters(void **state)
{
    (void)state;
    double took[2];
    for (int big = 0; big < 2; big++) {
        FX_SCOPE;
        const int n = big ? 2000 : 400;
        void **layers = calloc((size_t)n, sizeof *layers);
        for (int i = 0; i < n; i++)
            layers[i] = fx_dense(1, 1, .init = fx_ones_init);
        fx_chain_layer *m = fxi_chain(n, layers);
        void *opt = fx_setup(fx_descent(.eta = 1e-3), m);
        fx_eval(m);
        const double began = seconds();
        for (int k = 0; k < 2; k++) {
            FX_STEP;
            fx_array *loss = fx_sum(fx_call(m, fx_ones(1)));
            assert_int_equal(fx_update(opt, m, fx_gradient(loss, m)), FX_OK);
        }
        took[big] = seconds() - began;
        free(layers);
    }
    if (took[1] > 12 * took[0] + 0.5)
        fail_msg("%.3f s for 5 times what took %.3f s", took[1], took[0]);
}

/* ---- the trace ------------------------------------------------------------------------------- */

static char traced[8000];
static void collect_message(int level, const char *text, void *user)
{
    (void)user;
    if (level == 0 && strlen(traced) + strlen(text) + 2 < sizeof traced)
        strcat(strcat(traced, text), "\n");
}

/* Runs this program again with FX_TRACE = `mode` and reads its report from a pipe. */
static void trace_of(const char *mode, const char *what, char *out, size_t capacity)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (what)
            setenv("FX_TRACE", what, 1);
        else
            unsetenv("FX_TRACE");
        dup2(fd[1], STDOUT_FILENO);
        execl(self, self, mode, (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    size_t length = 0;
    for (ssize_t got;
         length + 1 < capacity && (got = read(fd[0], out + length, capacity - 1 - length)) > 0;)
        length += (size_t)got;
    out[length] = 0;
    close(fd[0]);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* In the child: two graphs that differ in a size, one that differs in an operation, one twice. */
static int run_traced(void)
{
    fx_message_set_hook(collect_message, NULL);
    {
        FX_SCOPE;
        fx_array *x = fx_vector(1, 2, 3), *y = fx_vector(1, 2, 3, 4, 5);
        for (int k = 0; k < 3; k++)
            fx_eval(fx_matmul(fx_ones(2, k ? 5 : 3), k ? y : x));
        strcat(traced, "--\n");
        fx_eval(fx_cumsum(fx_exp(y), 0));
        fx_eval(fx_cumsum(fx_log(y), 0));
    }
    fputs(traced, stdout);
    return fx_error_print(stdout);
}

static void the_trace_says_why(void **state)
{
    (void)state;
    char text[8000];
    trace_of("--traced", "plan,miss", text, sizeof text);
    assert_non_null(strstr(text, "plan: "));
    assert_non_null(strstr(text, " steps"));
    assert_non_null(strstr(text, "bytes of arena"));
    assert_non_null(strstr(text, "plan miss: "));
    assert_non_null(strstr(text, "2×5"));    /* the sizes of the new graph */
    assert_non_null(strstr(text, ", was ")); /* the sizes of the earlier graph */
    assert_non_null(strstr(text, "2×3"));
    char *second = strstr(text, "--\n");
    assert_non_null(second);
    assert_non_null(strstr(second, " is log Float32"));
    assert_non_null(strstr(second, "was exp Float32"));
    *second = 0;
    int plans = 0;
    for (const char *p = text; (p = strstr(p, "plan miss")); p++)
        plans++;
    assert_int_equal(plans, 2); /* the third was a hit */

    trace_of("--traced", "plan", text, sizeof text);
    assert_non_null(strstr(text, "plan: "));
    assert_null(strstr(text, "plan miss"));
    trace_of("--traced", "miss", text, sizeof text);
    assert_null(strstr(text, "plan: "));
    assert_non_null(strstr(text, "plan miss"));
    trace_of("--traced", NULL, text, sizeof text);
    assert_string_equal(text, "--\n");
}

static fx_array *seen;
static fx_status hook_status;
static void evaluate_in_hook(int level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
    hook_status = fx_eval(fx_add(seen, 1));
}

/* In the child: a message of the evaluation reaches a hook that evaluates, which is refused, and
 * the evaluation continues. */
static int run_evaluating(void)
{
    FX_SCOPE;
    seen = fx_vector(1, 2, 3);
    fx_message_set_hook(evaluate_in_hook, NULL);
    fx_array *y = fx_cumsum(fx_exp(fx_matmul(fx_ones(2, 3), seen)), 0);
    printf("%.1f\n", fx_item(fx_sum(y)) / exp(6));
    printf("%d %s\n", hook_status == FX_STATUS_STATE, fx_error_take().message);
    fx_message(0, "outside of evaluations the hook may evaluate");
    printf("%d\n", hook_status == FX_OK);
    return fx_error_print(stdout);
}

static void a_message_hook_cannot_evaluate(void **state)
{
    (void)state;
    char text[8000];
    trace_of("--evaluating", "plan,miss", text, sizeof text);
    assert_string_equal(text, "3.0\n1 eval: called during an evaluation, by a hook or the "
                              "forward function of a custom operation, which must not evaluate "
                              "arrays\n1\n");
}

enum { LINKS = 6 };

/* exp(exp(… x)), but log at link `other`. */
static fx_array *links(fx_array *x, int other)
{
    for (int i = 0; i < LINKS; i++)
        x = i == other ? fx_log(x) : fx_exp(x);
    return x;
}

/* In the child: graphs that differ from the newest of as many nodes in one link, in an attribute,
 * in an operation, in the order of the inputs and in the results that are asked for. */
static int run_differences(void)
{
    fx_message_set_hook(collect_message, NULL);
    {
        FX_SCOPE;
        fx_array *x = leaf(fx_ones(2, 3)), *a, *b, *c;
        *traced = 0; /* the trace of the new plan */
        fx_eval(links(x, LINKS));
        for (int k = 0; k < LINKS; k++) {
            fx_eval(links(x, k));
            fx_eval(links(x, LINKS)); /* a hit, so this plan is the newest again */
        }
        for (int axis = 0; axis < 2; axis++)
            fx_eval(fx_cumsum(fx_cumsum(fx_cumsum(x, 0), axis), 0));
        for (int swapped = 0; swapped < 2; swapped++) {
            a = fx_cumsum(x, 0);
            b = fx_cumsum(a, 1);
            fx_eval(swapped ? fx_sub(a, b) : fx_sub(b, a));
        }
        for (int which = 0; which < 2; which++) {
            a = fx_cumsum(x, 0);
            b = fx_cumsum(a, 1);
            c = fx_exp(b);
            fx_eval(fx_tuple(which ? a : b, c));
        }
    }
    fputs(traced, stdout);
    return fx_error_print(stdout);
}

static void the_trace_names_what_differs(void **state)
{
    (void)state;
    char text[8000], want[2000];
    int n = snprintf(want, sizeof want, "plan miss: no plan of %d nodes yet\n", LINKS + 1);
    for (int k = 1; k <= LINKS; k++) /* node 0 is x */
        n += snprintf(want + n, sizeof want - (size_t)n,
                      "plan miss: node %d of %d is log Float32 2×3, was exp Float32 2×3\n", k,
                      LINKS + 1);
    snprintf(
        want + n, sizeof want - (size_t)n, "%s",
        "plan miss: no plan of 4 nodes yet\n"
        "plan miss: node 2 of 4 (cumsum Float32 2×3) differs in its attributes, inputs or "
        "layout\n"
        "plan miss: node 3 of 4 is sub Float32 2×3, was cumsum Float32 2×3\n"
        "plan miss: node 3 of 4 (sub Float32 2×3) differs in its attributes, inputs or layout\n"
        "plan miss: node 3 of 4 is exp Float32 2×3, was sub Float32 2×3\n"
        "plan miss: the same 4 nodes with other outputs, donations, device or precision\n");
    trace_of("--differences", "miss", text, sizeof text);
    assert_string_equal(text, want);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--traced") == 0)
        return run_traced();
    if (argc > 1 && strcmp(argv[1], "--evaluating") == 0)
        return run_evaluating();
    if (argc > 1 && strcmp(argv[1], "--differences") == 0)
        return run_differences();
    const struct CMUnitTest tests[] = {
        TEST(numbers_and_seeds_hit),
        TEST(a_short_last_batch_is_one_more_plan),
        TEST(the_first_training_step_has_the_plan_of_all_others),
        TEST(structure_misses),
        TEST(the_outputs_are_in_the_key),
        TEST(sharing_is_structure),
        TEST(old_plans_are_evicted),
        TEST(counters_count),
        TEST(addresses_stay),
        TEST(a_million_nodes),
        TEST(a_million_nodes_with_gradients),
        TEST(the_bound_does_not_cut),
        TEST(arrays_count_too),
        TEST(no_number_of_nodes_cuts_a_step),
        TEST(very_many_parameters),
        TEST(the_trace_says_why),
        TEST(a_message_hook_cannot_evaluate),
        TEST(the_trace_names_what_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
