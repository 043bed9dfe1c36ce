/* test_plan_early.c: gradients of weights are computed as soon as their operands exist, so an
 * activation and its gradient do not wait for the end of the plan.
 */
#include "semantics_check.h"

#include "planning.h"

enum {
    LAYERS = 6,
    WIDTH = 32,
    BATCH = 512,
    ACTIVATION = WIDTH * BATCH * 4,
    WEIGHT = WIDTH * WIDTH * 4
};

/* Records Σ tanh(w₆·… tanh(w₁·x)) with its gradients of all weights, and evaluates the operands. */
static fx_array *gradients(fx_array *w[LAYERS])
{
    fx_array *x = fx_div(fx_reshape(fx_range(0, 1, WIDTH * BATCH), WIDTH, BATCH), WIDTH * BATCH);
    fx_array *all = NULL, *g[LAYERS], *y = x;
    assert_int_equal(fx_eval(x), FX_OK);
    for (int k = 0; k < LAYERS; k++) {
        w[k] = fx_div(fx_reshape(fx_range(0, 1, WIDTH * WIDTH), WIDTH, WIDTH), 4e4);
        assert_int_equal(fx_eval(w[k]), FX_OK);
        y = fx_tanh(fx_matmul(w[k], y));
    }
    assert_int_equal(fx_pullback(y, fx_ones(WIDTH, BATCH), w, LAYERS, g), FX_OK);
    /* One result that needs them all, and not in the order in which they are computed. */
    for (int k = 0; k < LAYERS; k++)
        all = all ? fx_concat(1, all, fx_cumsum(g[k], 0)) : fx_cumsum(g[k], 0);
    return all;
}

static int64_t arena_of(fx_array *x)
{
    fxi_graph g = {0};
    const fxi_root root = {x->node, NULL};
    fxi_plan *p;
    assert_int_equal(fxi_graph_of(fxi_here(), &g, 1, &root), FX_OK);
    assert_int_equal(fxi_plan_new(&g, &p), FX_OK);
    const int64_t bytes = p->arena_bytes;
    fxi_plan_release(p);
    fxi_graph_free(&g);
    return bytes;
}

/* The activations of all layers, and while the gradient of one layer is computed that of the next;
 * all else is as small as a weight. */
static void activations_do_not_wait(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *w[LAYERS];
    const int64_t most = (LAYERS + 3) * ACTIVATION + 4 * LAYERS * WEIGHT;
    const int64_t bytes = arena_of(gradients(w));
    if (bytes > most)
        fail_msg("the arena has %lld bytes, more than %lld", (long long)bytes, (long long)most);
}

/* The same bits as one node at a time. */
static void the_bits_are_the_same(void **state)
{
    (void)state;
    static float got[2][LAYERS * WIDTH * WIDTH];
    uint64_t steps[2];
    for (int eager = 0; eager < 2; eager++) {
        FX_SCOPE;
        fx_array *w[LAYERS], *y = gradients(w);
        steps[eager] = fx_stats().steps_run;
        fxi_eager_set(eager);
        assert_int_equal(fx_read_into(y, got[eager], sizeof got[eager]), FX_OK);
        fxi_eager_set(false);
        steps[eager] = fx_stats().steps_run - steps[eager];
    }
    assert_true(steps[0] < steps[1]);
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(activations_do_not_wait, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(the_bits_are_the_same, clean_start, clean_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
