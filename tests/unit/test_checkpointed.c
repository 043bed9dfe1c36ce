/* test_checkpointed.c: fx_checkpointed gives the bits of fx_call, in values, gradients, masks and
 * running statistics, and a plan that keeps only the inputs. */
#include "semantics_check.h"

#include <stdlib.h>

static void same_arrays(const char *what, fx_array *a, fx_array *b)
{
    assert_int_equal(fx_length(a), fx_length(b));
    for (int64_t i = 0; i < fx_length(a); i++)
        check_value(what, i, fx_at(a, i), fx_at(b, i), 0, 0);
}

/* A training step's loss and gradients of a model, called part by part. */
enum { PARTS = 6, WIDTH = 16, BATCH = 8 };

typedef enum way { PLAIN, CHECKPOINTED, NESTED } way;

/* A chain that is called with checkpoints around its parts. */
static fx_array *called(way how, void *model, fx_array *x)
{
    fx_array *y = x;
    for (int64_t i = 0; i < fx_count(model); i++)
        y = how == PLAIN ? fx_call(fx_child(model, i), y) : fx_checkpointed(fx_child(model, i), y);
    return y;
}

static void *part(void)
{
    return fx_chain(fx_dense(WIDTH, 2 * WIDTH, FX_GELU), fx_batchnorm(2 * WIDTH), fx_dropout(0.3),
                    fx_dense(2 * WIDTH, WIDTH, FX_TANH));
}

static void *deep(void)
{
    void *p[PARTS];
    for (int i = 0; i < PARTS; i++)
        p[i] = part();
    return fx_chain(p[0], p[1], p[2], p[3], p[4], p[5]);
}

typedef struct outer_layer {
    fx_object base;
    void *inside;
} outer_layer;
static void *outer_forward(void *self, int n, void *const *args)
{
    (void)n;
    return called(CHECKPOINTED, ((outer_layer *)self)->inside, args[0]);
}
FX_LAYER(outer_layer, outer_forward, inside);

/* Makes two updates. The bits of the model then depend on masks, gradients and statistics. */
static void *trained(way how, void *model)
{
    void *opt = fx_setup(fx_adam(.eta = 1e-2), model);
    void *outer = fx_new(outer_layer, .inside = model);
    fx_seed(7);
    for (int i = 0; i < 2; i++) {
        FX_STEP;
        fx_array *x = fx_randn(WIDTH, BATCH);
        fx_array *y = how == NESTED ? fx_checkpointed(outer, x) : called(how, model, x);
        fx_array *loss = fx_mean(fx_square(y));
        assert_int_equal(fx_update(opt, model, fx_gradient(loss, model)), FX_OK);
    }
    return model;
}

static void *made(void)
{
    fx_seed(1);
    void *model = deep();
    fx_eval(model);
    return model;
}

static void same_bits_as_a_call(void **state)
{
    (void)state;
    for (way how = CHECKPOINTED; how <= NESTED; how++) {
        FX_SCOPE;
        void *model = trained(PLAIN, made()), *other = trained(how, made());
        same_arrays("parameters", fx_destructure(model), fx_destructure(other));
        for (int i = 0; i < PARTS; i++) {
            fx_batchnorm_layer *p = fx_child(fx_child(model, i), 1);
            fx_batchnorm_layer *q = fx_child(fx_child(other, i), 1);
            same_arrays("mean", p->mean, q->mean);
            same_arrays("var", p->var, q->var);
        }
    }
}

/* The bytes of the arena of a plan, as its text shows them. */
static double arena_of(void *results)
{
    static char text[4000000];
    fx_plan_text(results, text, sizeof text);
    const char *at = strstr(text, " saved, ");
    assert_non_null(at);
    char *unit;
    const double n = strtod(at + strlen(" saved, "), &unit);
    return n * (strncmp(unit, " KiB", 4) == 0 ? 1024 : strncmp(unit, " MiB", 4) == 0 ? 1 << 20 : 1);
}

/* 36 layers in 6 parts keep 6 inputs and one part's activations, not 36 activations. */
static void arena_grows_with_the_root_of_the_depth(void **state)
{
    (void)state;
    enum { LAYERS = 36, FEATURES = 32, COLUMNS = 512 };
    double arena[2];
    uint64_t steps[2];
    for (way how = PLAIN; how <= CHECKPOINTED; how++) {
        FX_SCOPE;
        void *p[6];
        for (int i = 0; i < 6; i++) {
            void *layer[6];
            for (int k = 0; k < 6; k++)
                layer[k] = fx_dense(FEATURES, FEATURES, FX_TANH);
            p[i] = fx_chain(layer[0], layer[1], layer[2], layer[3], layer[4], layer[5]);
        }
        void *model = fx_chain(p[0], p[1], p[2], p[3], p[4], p[5]);
        fx_array *x = fx_randn(FEATURES, COLUMNS);
        fx_eval(fx_tuple(model, x));
        fx_array *loss = fx_mean(fx_square(called(how, model, x)));
        void *results = fx_tuple(loss, fx_gradient(loss, model));
        arena[how] = arena_of(results);
        const uint64_t before = fx_stats().steps_run;
        fx_eval(results);
        steps[how] = fx_stats().steps_run - before;
    }
    print_message("arena %.0f KiB, with checkpoints %.0f KiB; steps %d, %d\n", arena[0] / 1024,
                  arena[1] / 1024, (int)steps[0], (int)steps[1]);
    const double activation = FEATURES * COLUMNS * 4;
    assert_true(arena[PLAIN] > LAYERS * activation);
    assert_true(arena[CHECKPOINTED] < 16 * activation);
    /* A product and a bias with tanh for each layer again, and at most two steps for each part. */
    assert_true(steps[CHECKPOINTED] <= steps[PLAIN] + 36 + 12);
}

/* Four cases: a parameter that is used inside and outside, and twice inside; a result that is a
 * tuple; a second gradient; a gradient that is taken after the layer has been released. */
static void shared_parameters_and_second_gradients(void **state)
{
    (void)state;
    fx_array *loss[2], *g[2], *gx[2], *h[2];
    FX_SCOPE;
    fx_seed(3);
    fx_dense_layer *d = fx_dense(WIDTH, WIDTH, FX_TANH);
    fx_array *x = fx_randn(WIDTH, BATCH);
    fx_eval(fx_tuple(d, x));
    for (way how = PLAIN; how <= CHECKPOINTED; how++) {
        fx_array *y = fx_call(d, x);
        {
            FX_SCOPE;
            void *twice = fx_chain(d, d);
            y = fx_keep(how == PLAIN ? fx_call(twice, y) : fx_checkpointed(twice, y));
        }
        loss[how] = fx_sum(fx_square(y));
        fx_array *both[2], *const by[] = {d->weight, x};
        assert_int_equal(fx_gradient_of(loss[how], by, 2, both), FX_OK);
        g[how] = both[0];
        gx[how] = both[1];
        h[how] = gradient1(fx_sum(fx_square(g[how])), x);
    }
    same_arrays("loss", loss[0], loss[1]);
    same_arrays("gradient of x", gx[0], gx[1]);
    for (int64_t i = 0; i < fx_length(g[0]); i++)
        NEAR(fx_at(g[1], i), fx_at(g[0], i), 1e-5); /* three terms, summed in another order */
    for (int64_t i = 0; i < fx_length(h[0]); i++)
        NEAR(fx_at(h[1], i), fx_at(h[0], i), 1e-4);
}

static void results_that_are_tuples(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_seed(3);
    void *rnn = fx_lstm(3, 4, .return_state = true);
    fx_array *x = fx_randn(3, 5, 2), *g[2];
    fx_eval(fx_tuple(rnn, x));
    for (way how = PLAIN; how <= CHECKPOINTED; how++) {
        void *pair = how == PLAIN ? fx_call(rnn, x) : fx_checkpointed(rnn, x);
        fx_array *y = fx_child(pair, 0), *c = fx_child(fx_child(pair, 1), 1);
        g[how] = gradient1(fx_add(fx_sum(fx_square(y)), fx_sum(c)), x);
    }
    for (int64_t i = 0; i < fx_length(g[0]); i++)
        NEAR(fx_at(g[1], i), fx_at(g[0], i), 1e-6);
}

/* Only the requested gradients are computed, and only the nodes that they need. */
static void frozen_parameters_cost_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_array *x = fx_randn(WIDTH, BATCH);
    void *model = fx_chain(fx_dense(WIDTH, WIDTH, FX_TANH), fx_dense(WIDTH, WIDTH, FX_TANH));
    fx_eval(fx_tuple(model, x));
    fx_array *g = gradient1(fx_sum(fx_checkpointed(model, x)), x);
    const uint64_t before = fx_stats().steps_run;
    fx_eval(g);
    /* Two products forward, one again, two backward, each with at most one elementwise step. */
    assert_true(fx_stats().steps_run - before <= 12);
}

static void errors_are_those_of_a_call(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_true(fx_is_error(fx_checkpointed(fx_dense(3, 2), fx_ones(4, 1))));
    expect_error(FX_STATUS_SHAPE, "Dense(3 => 2) expects size(input, 1) == 3");
    assert_true(fx_is_error(fx_checkpointed(fx_ones(2), fx_ones(4, 1))));
    expect_error(FX_STATUS_ARGUMENT, "");
    fx_array *x = fx_ones(2);
    assert_ptr_equal(fx_checkpointed(FX_IDENTITY, x)->node, x->node);
}

static fx_array *loss_without_memory(fx_array *x)
{
    return gradient1(fx_sum(fx_checkpointed(fx_chain(FX_TANH, FX_SIGMOID), x)), x);
}

/* Every allocation of recording may fail: an error, never a crash. */
static void without_memory(void **state)
{
    (void)state;
    bool reached = true;
    int failures = 0;
    for (int64_t n = 0; reached; n++) {
        FX_SCOPE;
        fx_array *x = fx_vector(1, -2);
        fxi_fault_set(n);
        fx_array *g = loss_without_memory(x);
        reached = fxi_fault_seen() > n;
        fxi_fault_set(-1);
        const fx_error e = fx_error_take();
        failures += e.status != FX_OK;
        if (e.status == FX_OK ? fx_is_error(g) : e.status != FX_STATUS_MEMORY || !fx_is_error(g))
            fail_msg("allocation %d: %s %s", (int)n, fx_status_name(e.status), e.message);
    }
    assert_true(failures >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(same_bits_as_a_call),
        TEST(arena_grows_with_the_root_of_the_depth),
        TEST(shared_parameters_and_second_gradients),
        TEST(results_that_are_tuples),
        TEST(frozen_parameters_cost_nothing),
        TEST(errors_are_those_of_a_call),
        TEST(without_memory),
    };
    return cmocka_run_group_tests_name("unit/checkpointed", tests, NULL, NULL);
}
