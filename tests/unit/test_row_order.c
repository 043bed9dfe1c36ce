/* test_row_order.c: the order of the nodes of large graphs. Inputs come before consumers, every
 * node comes once, and the two rules of row_order.c decide the rest. */
#include "semantics_check.h"

#include "planning.h"
#include "row.h"

#include <stdlib.h>

enum { N = 16, LENGTH = 300 };

/* A graph, and the position of each of its nodes in the order. */
typedef struct ordered {
    fxi_graph g;
    int32_t *at;
} ordered;

static void order(ordered *o, int n, fx_array *const *roots)
{
    fxi_root list[4];
    *o = (ordered){.at = NULL};
    for (int k = 0; k < n; k++)
        list[k] = (fxi_root){roots[k]->node, NULL};
    assert_int_equal(fxi_graph_of(fxi_here(), &o->g, n, list), FX_OK);
    const fxi_graph *g = &o->g;
    int32_t *nodes = malloc((size_t)g->n * sizeof *nodes);
    o->at = malloc((size_t)g->n * sizeof *o->at);
    assert_true(nodes && o->at);
    for (int32_t i = 0; i < g->n; i++)
        nodes[i] = o->at[i] = -1;
    assert_true(fxi_order_for_rows(g, nodes));
    for (int32_t k = 0; k < g->n; k++) {
        assert_true(nodes[k] >= 0 && nodes[k] < g->n && o->at[nodes[k]] < 0);
        for (int i = 0; i < fxi_graph_inputs(g, nodes[k]); i++)
            assert_true(o->at[fxi_graph_input(g, nodes[k], i)] >= 0);
        o->at[nodes[k]] = k;
    }
    free(nodes);
}

static void end(ordered *o)
{
    fxi_graph_free(&o->g);
    free(o->at);
}

static int32_t position(const ordered *o, const fx_array *x)
{
    for (int32_t i = 0; i < o->g.n; i++)
        if (o->g.nodes[i] == x->node)
            return o->at[i];
    fail_msg("the graph lacks a node");
    return -1;
}

static fx_array *leaf(void)
{
    fx_array *x = fx_rand(N);
    assert_int_equal(fx_eval(x), FX_OK);
    return x;
}

/* tanh(tanh(… x)). Two of them are a large graph. */
static fx_array *chain(fx_array *x)
{
    for (int k = 0; k < LENGTH; k++)
        x = fx_tanh(x);
    return x;
}

/* The first input of the product is a label, which no long path leads to. */
static void long_paths_come_first(void **state)
{
    (void)state;
    FX_SCOPE;
    ordered o;
    fx_array *label = fx_exp(fx_range(0, 1, N)), *y = chain(leaf());
    order(&o, 1, (fx_array *[]){fx_mul(label, y)});
    assert_int_equal(position(&o, label), o.g.n - 2);
    assert_true(position(&o, y) < position(&o, label));
    end(&o);
}

/* A loss is computed directly after what it reads, although it is the last root. */
static void near_roots_come_first(void **state)
{
    (void)state;
    FX_SCOPE;
    ordered o;
    fx_array *middle = chain(leaf()), *next = fx_tanh(middle), *y = chain(next);
    fx_array *loss = fx_sum(middle);
    order(&o, 2, (fx_array *[]){y, loss});
    assert_true(position(&o, loss) < position(&o, next));
    assert_int_equal(position(&o, y), o.g.n - 1);
    end(&o);
}

/* A root that a longer root reads, and which the program reads again, is computed once. A root that
 * has a value is in the graph, although nothing computes or reads it. */
static void every_root_comes_once(void **state)
{
    (void)state;
    FX_SCOPE;
    ordered o;
    fx_array *middle = chain(leaf()), *y = chain(middle), *later = fx_add(middle, y);
    fx_array *alone = leaf();
    order(&o, 4, (fx_array *[]){later, middle, alone, y});
    assert_true(position(&o, middle) < position(&o, y));
    assert_true(position(&o, alone) >= 0);
    fxi_plan *p;
    char why[200] = "";
    assert_int_equal(fxi_plan_new(&o.g, &p), FX_OK);
    if (fxi_plan_check(p, why, sizeof why) != FX_OK)
        fail_msg("the plan is wrong: %s", why);
    assert_int_equal(p->noutputs, 3); /* the value of `alone` is known */
    fxi_plan_release(p);
    end(&o);
}

/* Operations with many inputs keep their order. */
static void many_inputs_keep_their_order(void **state)
{
    (void)state;
    FX_SCOPE;
    ordered o;
    fx_array *x = leaf(), *parts[10];
    for (int k = 0; k < 10; k++)
        parts[k] = fx_exp(fx_add(x, k));
    parts[9] = chain(x);
    order(&o, 1, (fx_array *[]){fxi_concat(0, 10, parts)});
    for (int k = 1; k < 10; k++)
        assert_true(position(&o, parts[k - 1]) < position(&o, parts[k]));
    end(&o);
}

/* The results of such a graph are those of one node at a time. */
static void results_are_the_same(void **state)
{
    (void)state;
    double got[2][2 * N + 2];
    for (int eager = 0; eager < 2; eager++) {
        FX_SCOPE;
        fx_array *x = fx_div(fx_range(1, 1, N), N), *g;
        assert_int_equal(fx_eval(x), FX_OK);
        fx_array *middle = chain(x), *y = chain(middle), *loss = fx_sum(fx_softmax(middle));
        assert_int_equal(fx_gradient_of(fx_sum(fx_mul(fx_logsoftmax(y), middle)), &x, 1, &g),
                         FX_OK);
        fxi_eager_set(eager);
        assert_int_equal(fx_eval(fx_tuple(g, loss, y, middle, x)), FX_OK);
        fxi_eager_set(false);
        for (int i = 0; i < N; i++) {
            got[eager][i] = fx_at(g, i);
            got[eager][N + i] = fx_at(y, i);
        }
        got[eager][2 * N] = fx_item(loss);
        got[eager][2 * N + 1] = fx_at(middle, 0);
    }
    for (int i = 0; i < 2 * N + 2; i++)
        NEAR(got[0][i], got[1][i], 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(long_paths_come_first, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(near_roots_come_first, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(every_root_comes_once, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(many_inputs_keep_their_order, clean_start, clean_end),
        cmocka_unit_test_setup_teardown(results_are_the_same, clean_start, clean_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
