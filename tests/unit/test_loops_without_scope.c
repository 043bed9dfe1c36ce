/* test_loops_without_scope.c: a loop without a scope takes time in proportion to its iterations,
 * and causes one warning. ctest: native
 *
 * Work is counted, not timed: the nodes that updates visit in search of pending results to compute
 * (fxi_context.visited). The warning is sent once per process, so each program runs in its own
 * process. Programs that have a good reason to keep many objects in one scope must not cause a
 * warning.
 */
#include "semantics_check.h"

#include "own_child.h"

enum { STEPS = 1200 };

static int loop_line;

static void *small_model(void)
{
    return fx_chain(fx_dense(8, 8, FX_RELU), fx_dense(8, 1));
}

static void one_update(void *opt, void *m, fx_array *x)
{
    loop_line = __LINE__ + 1;
    fx_update(opt, m, fx_gradient(fx_mean(fx_square(fx_call(m, x))), m));
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Returns the number of nodes that the updates visit in one scope. Each iteration leaves two
 * results that are never read, one of them computed by the model. */
static uint64_t visited_by(int updates)
{
    FX_SCOPE;
    void *m = small_model(), *opt = fx_setup(fx_adam(), m);
    fx_array *x = fx_rand(8, 4);
    fx_eval(x);
    const uint64_t before = fxi_here()->visited;
    for (int i = 0; i < updates; i++) {
        fx_exp(fx_add(x, i));
        fx_sum(fx_call(m, x));
        one_update(opt, m, x);
    }
    return fxi_here()->visited - before;
}

static void work_is_linear(void **state)
{
    (void)state;
    const uint64_t few = visited_by(100), many = visited_by(400);
    print_message("visited: %d by 100 updates, %d by 400\n", (int)few, (int)many);
    assert_true(few >= 100); /* something was counted */
    assert_in_range(many, 3 * few, 5 * few);
}

/* A result that was pending when a model was updated is computed when another model's update
 * replaces a value that it reads. */
static void resting_results_are_found(void **state)
{
    (void)state;
    FX_SCOPE;
    void *old = fx_dense(8, 1), *m = small_model();
    void *old_state = fx_setup(fx_descent(), old), *opt = fx_setup(fx_descent(), m);
    fx_array *x = fx_ones(8, 1), *result = fx_sum(fx_call(old, x)),
             *again = fx_sum(fx_call(old, x));
    const double want = fx_item(again);
    for (int i = 0; i < 3; i++)
        one_update(opt, m, x);
    assert_false(fx_is_evaluated(result));
    assert_ptr_equal(fxi_here()->resting.next == &fxi_here()->resting, false);
    fx_update(old_state, old, fx_gradient(fx_sum(fx_call(old, x)), old));
    assert_true(fx_is_evaluated(result));
    SAME(fx_item(result), want);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void training_without_step(void)
{
    void *m = small_model(), *opt = fx_setup(fx_adam(), m);
    fx_array *x = fx_rand(8, 4);
    for (int i = 0; i < 2 * STEPS; i++)
        one_update(opt, m, x);
}

static void training_with_step(void)
{
    void *m = small_model(), *opt = fx_setup(fx_adam(), m);
    fx_array *x = fx_rand(8, 4);
    for (int i = 0; i < 2 * STEPS; i++) {
        FX_STEP;
        one_update(opt, m, x);
    }
}

static void serve(void *m, const float *in, int n)
{
    float out[4];
    fx_array *x = fx_borrow(FX_DTYPE_F32, in, NULL, NULL, 8, n);
    loop_line = __LINE__ + 1;
    fx_read_into(fx_call(m, x), out, (size_t)n * sizeof(float));
}

static void server_without_scope(void)
{
    void *m = small_model();
    float in[32] = {1};
    for (int i = 0; i < STEPS; i++)
        serve(m, in, 1 + i % 4);
}

static void server_in_an_outer_scope(void)
{
    loop_line = __LINE__ + 1;
    FX_TEST;
    const int opened = loop_line;
    server_without_scope();
    loop_line = opened;
}

static void server_with_scope(void)
{
    void *m = small_model();
    float in[32] = {1};
    for (int i = 0; i < 2 * STEPS; i++) {
        FX_TEST;
        serve(m, in, 1 + i % 4);
    }
}

/* Nothing is read: the thread evaluates by itself, here after few nodes. */
static void pending_without_scope(void)
{
    fxi_here()->most_created = 100;
    fx_array *x = fx_ones(8);
    for (int i = 0; i < 10000; i++) {
        loop_line = __LINE__ + 1;
        fx_add(x, i);
    }
}

/* 300,000 nodes in one step, more than are computed at once. */
static void long_recurrence(void)
{
    FX_STEP;
    fx_array *w = fx_full(0.5, 1, 1), *h = fx_ones(1, 1);
    for (int t = 0; t < 100000; t++)
        h = fx_tanh(fx_add(fx_mul(w, h), 1));
    fx_array *g = gradient1(fx_sum(h), w);
    fx_item(g);
}

static void deep_model(void)
{
    enum { DEPTH = 3000 };
    void **layers = fxi_calloc(DEPTH, sizeof *layers);
    for (int i = 0; i < DEPTH; i++)
        layers[i] = fx_dense(2, 2);
    void *m = fxi_chain(DEPTH, layers), *opt = fx_setup(fx_descent(), m);
    fxi_free(layers);
    for (int i = 0; i < 3; i++) {
        FX_STEP;
        one_update(opt, m, fx_ones(2, 1));
    }
}

static void several_reports(void)
{
    void *m = small_model();
    for (int i = 0; i < 200; i++)
        fx_item(fx_sum(fx_call(m, fx_ones(8, 1))));
}

static const struct program {
    const char *name;
    void (*run)(void);
    const char *warned; /* part of the warning; NULL: there must be none */
} programs[] = {
    {"training-without-step", training_without_step, "1000 evaluations outside of every scope"},
    {"server-without-scope", server_without_scope, "1000 evaluations outside of every scope"},
    {"server-in-an-outer-scope", server_in_an_outer_scope, "in the scope opened at " __FILE__},
    {"pending-without-scope", pending_without_scope, "each of 50 evaluations outside"},
    {"training-with-step", training_with_step, NULL},
    {"server-with-scope", server_with_scope, NULL},
    {"long-recurrence", long_recurrence, NULL},
    {"deep-model", deep_model, NULL},
    {"several-reports", several_reports, NULL},
};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

static int run_program(const char *name)
{
    for (int i = 0; i < PROGRAMS; i++)
        if (strcmp(programs[i].name, name) == 0) {
            programs[i].run();
            printf("LINE %d\n", loop_line);
            return fx_error_print(stdout);
        }
    return 1;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static void told_once_with_the_location(void **state)
{
    char out[4096], location[300];
    (void)state;
    for (int i = 0; i < PROGRAMS; i++) {
        const struct program *p = &programs[i];
        int line = 0;
        const int ended = own_child("", p->name, out, sizeof out);
        const char *at = strstr(out, "LINE ");
        if (ended != 0 || !at || sscanf(at, "LINE %d", &line) != 1)
            fail_msg("%s ended with %d: %s", p->name, ended, out);
        if (count(out, "seems to open no scope") != (p->warned != NULL))
            fail_msg("%s: %s", p->name, out);
        if (!p->warned)
            continue;
        assert_non_null(strstr(out, p->warned));
        snprintf(location, sizeof location, "%s:%d", __FILE__, line);
        if (!strstr(out, location))
            fail_msg("%s: %s is not in %s", p->name, location, out);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_program(argv[1]);
    const struct CMUnitTest tests[] = {
        TEST(work_is_linear),
        TEST(resting_results_are_found),
        TEST(told_once_with_the_location),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
