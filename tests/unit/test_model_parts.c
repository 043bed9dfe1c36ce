/* test_model_parts.c: slices of chains, activations, modules, outputsize, and sizes left open.
 *
 * Expected sizes are those of Flux's documentation, or follow from the formulas of the layers.
 */
#include "semantics_check.h"

#include <stdlib.h>

#include "refused.h"

static void is_size(fx_dims d, int n, const int64_t *sizes)
{
    if (d.n < 0)
        fail_msg("%s", fx_error_take().message);
    assert_int_equal(d.n, n);
    assert_memory_equal(d.v, sizes, (size_t)n * sizeof *sizes);
}
#define IS_SIZE(d, ...)                                                                            \
    is_size((d), sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                         \
            (const int64_t[]){__VA_ARGS__})

static void summary_is(void *object, const char *text)
{
    char shown[300];
    fx_summary(object, shown, sizeof shown);
    if (fx_is_error(object))
        fail_msg("%s", fx_error_take().message);
    assert_string_equal(shown, text);
}

/* ---- chains ---------------------------------------------------------------------------------- */

static void slices_keep_layers_and_names(void **state)
{
    (void)state;
    fx_chain_layer *c =
        fx_chain_of("a", fx_dense(2, 3), "b", FX_RELU, "c", fx_dense(3, 4), "d", FX_SOFTMAX);
    fx_chain_layer *middle = fx_chain_slice(c, 1, 3);
    summary_is(middle, "Chain(b = relu, c = Dense(3 => 4))");
    assert_ptr_equal(fx_child_named(middle, "c"), fx_child(c, 2));
    summary_is(fx_chain_slice(c, 0, 4), "Chain(a = Dense(2 => 3), b = relu, c = Dense(3 => 4), "
                                        "d = softmax)");
    summary_is(fx_chain_slice(fx_chain(FX_RELU, FX_TANH), 1, 2), "Chain(tanh)");
    summary_is(fx_chain_slice(c, 2, 2), "Chain()");
    refused_exactly(fx_chain_slice(c, 2, 5),
                    "Chain: a chain of 4 layers has no layers from 2 to 4");
    refused_exactly(fx_chain_slice(c, -1, 2),
                    "Chain: a chain of 4 layers has no layers from -1 to 1");
    refused_exactly(fx_chain_slice(c, 3, 2),
                    "Chain: a chain of 4 layers has no layers from 3 to 1");
    refused_exactly(fx_chain_slice(NULL, 0, 0), "Chain: expects a chain to slice, got NULL");
    refused_exactly(fx_chain_slice((void *)fx_dense(1, 1), 0, 0),
                    "Chain: expects a chain to slice, got Dense(1 => 1)");
}

static void activations_are_all_results(void **state)
{
    (void)state;
    fx_chain_layer *c = fx_chain(fx_dense(2, 3), FX_RELU, fx_dense(3, 1));
    fx_array *x = fx_ones(2, 5);
    void *all = fx_activations(c, x);
    assert_int_equal(fx_count(all), 3);
    assert_true(fx_size(fx_child(all, 0), 0) == 3 && fx_size(fx_child(all, 2), 0) == 1);
    assert_true(fx_item(fx_all(fx_eq(fx_child(all, 2), fx_call(c, x)))) == 1);
    assert_int_equal(fx_count(fx_activations(fx_chain(), x)), 0);
    all = fx_activations(fx_chain(fx_parallel(FX_ADD, FX_RELU, FX_RELU), FX_EXP), x, x);
    assert_true(fx_at(fx_child(all, 0), 0) == 2);
    refused_exactly(fx_activations((void *)fx_dense(1, 1), x),
                    "activations: expects a chain, got Dense(1 => 1)");
}

static void modules_are_all_layers(void **state)
{
    (void)state;
    fx_dense_layer *shared = fx_dense(2, 2);
    void *pool = fx_maxpool(FX_DIMS(2, 2)), *inner = fx_chain(shared, FX_RELU);
    void *model = fx_chain(inner, fx_skipconnection(shared, FX_ADD), pool);
    void *all = fx_modules(model);
    assert_int_equal(fx_count(all), 5);
    assert_ptr_equal(fx_child(all, 0), model);
    assert_ptr_equal(fx_child(all, 1), inner);
    assert_ptr_equal(fx_child(all, 2), shared);
    assert_ptr_equal(fx_child(all, 4), pool);
    refused_exactly(fx_modules(NULL), "modules: the model is NULL");
}

/* ---- outputsize ------------------------------------------------------------------------------ */

static void sizes_of_results(void **state)
{
    (void)state;
    void *m = fx_parse_model("Chain(Conv((3, 3), 3 => 16), Conv((3, 3), 16 => 32))");
    IS_SIZE(fx_outputsize(m, FX_DIMS(10, 10, 3, 64)), 6, 6, 32, 64);
    IS_SIZE(fx_outputsize(m, FX_DIMS(10, 10, 3), .padbatch = true), 6, 6, 32, 1);
    IS_SIZE(fx_outputsize(fx_bilinear(FX_DIMS(2, 3), 4), FX_DIMS(2, 7), FX_DIMS(3, 7)), 4, 7);
    IS_SIZE(fx_outputsize(fx_embedding(5, 4), FX_DIMS(3, 2), .dtype = FX_DTYPE_I64), 4, 3, 2);
    assert_int_equal(fx_outputsize(m, FX_DIMS(10, 10, 4, 64)).n, -1);
    assert_non_null(strstr(fx_error_take().message, "expects size(input, 3) == 3"));
    assert_int_equal(fx_outputsize(fx_parallel(FX_TUPLE, FX_RELU), FX_DIMS(2)).n, -1);
    assert_non_null(strstr(fx_error_take().message, "the result is not an array"));
    const fx_dims eight = FX_DIMS(2, 1, 1, 1, 1, 1, 1, 1);
    assert_int_equal(fx_outputsize(FX_RELU, eight, .padbatch = true).n, -1);
    assert_string_equal(fx_error_take().message, "outputsize: 8 sizes leave no axis for the batch");
    assert_int_equal(fx_outputsize(NULL, FX_DIMS(2)).n, -1);
    assert_string_equal(fx_error_take().message, "outputsize: the model is NULL");
}

/* 2^40 elements: nothing is allocated or computed, and no state changes. */
static void nothing_is_computed(void **state)
{
    (void)state;
    fx_batchnorm_layer *norm = fx_batchnorm(1 << 10, .active = FX_ACTIVE_ON);
    void *m = fx_chain(norm, fx_dropout(0.5, .active = FX_ACTIVE_ON), FX_RELU);
    assert_int_equal(fx_eval(m), FX_OK);
    fx_seed(3);
    const double expected = fx_item(fx_rand(1));
    fx_seed(3);
    const uint64_t before = fx_stats().evals;
    {
        FX_STEP;
        IS_SIZE(fx_outputsize(m, FX_DIMS(1 << 10, 1 << 30)), 1 << 10, 1 << 30);
        assert_true(fx_training());
    }
    IS_SIZE(fx_outputsize(m, FX_DIMS(1 << 10, 1 << 30)), 1 << 10, 1 << 30);
    assert_true(fx_stats().evals == before);
    assert_true(fx_at(norm->mean, 0) == 0 && fx_at(norm->var, 5) == 1);
    assert_true(fx_item(fx_rand(1)) == expected);
}

/* More operations than the number at which a thread evaluates by itself. */
static void long_chains_are_not_evaluated(void **state)
{
    (void)state;
    enum { LAYERS = 30000 };
    void **layers = malloc(LAYERS * sizeof *layers);
    for (int i = 0; i < LAYERS; i++)
        layers[i] = FX_TANH;
    void *m = fxi_chain(LAYERS, layers);
    free((void *)layers);
    const uint64_t before = fx_stats().evals;
    IS_SIZE(fx_outputsize(m, FX_DIMS(1 << 20, 1 << 20)), 1 << 20, 1 << 20);
    fx_array *x = fx_rand(3);
    assert_true(fx_stats().evals == before);
    assert_int_equal(fx_eval(x), FX_OK);
}

/* ---- sizes left open ------------------------------------------------------------------------- */

static void open_sizes_are_filled(void **state)
{
    (void)state;
    summary_is(
        fx_autosize("Chain(Dense(_ => 2, sigmoid), BatchNorm(_, affine=false))", FX_DIMS(3, 1)),
        "Chain(Dense(3 => 2, σ), BatchNorm(2, affine=false))");
    static const char lenet[] = "Chain(c = Conv((3, 3), _ => 5; stride=2, pad=SamePad()), p = "
                                "MeanPool((3, 3)), b = BatchNorm(_), f = Flux.flatten, d = "
                                "Dense(_ => 10))";
    char text[400];
    snprintf(text, sizeof text, "@autosize (28, 28, 1, 32) %s", lenet);
    void *m = fx_parse_model(text);
    summary_is(m, "Chain(c = Conv((3, 3), 1 => 5, pad=1, stride=2), p = MeanPool((3, 3)), b = "
                  "BatchNorm(5), f = Flux.flatten, d = Dense(80 => 10))");
    IS_SIZE(fx_outputsize(m, FX_DIMS(28, 28, 1, 32)), 10, 32);
    summary_is(
        fx_autosize("SkipConnection(Chain(Dense(_ => 4), LayerNorm(_)), vcat)", FX_DIMS(3, 2)),
        "SkipConnection(Chain(Dense(3 => 4), LayerNorm(4)), vcat)");
    summary_is(fx_autosize("Chain(Parallel(vcat, Dense(_ => 4), Chain(Dense(_ => 2), tanh)), "
                           "Dense(_ => 1))",
                           FX_DIMS(3, 2)),
               "Chain(Parallel(vcat, Dense(3 => 4), Chain(Dense(3 => 2), tanh)), Dense(6 => 1))");
    summary_is(
        fx_autosize("Chain(Bilinear(_ => 5), Maxout(Dense(_ => 2), Dense(_ => 2)))", FX_DIMS(3, 2)),
        "Chain(Bilinear(3 => 5), Maxout(Dense(5 => 2), Dense(5 => 2)))");
}

static void open_sizes_that_are_unknown(void **state)
{
    (void)state;
    static const char unknown[] = " is unknown here; fx_autosize and @autosize (sizes) state the "
                                  "sizes of the model's input";
    char message[300];
    snprintf(message, sizeof message, "model, column 13: the size _ of Dense%s", unknown);
    refused_exactly(fx_parse_model("Chain(Dense(_ => 2))"), message);
    snprintf(message, sizeof message, "model, column 41: the size _ of Bilinear%s", unknown);
    refused_exactly(
        fx_autosize("SkipConnection(Dense(_ => 2), Bilinear((_, 3) => 3))", FX_DIMS(3, 2)),
        message);
    refused_exactly(
        fx_autosize("Chain(Dense(_ => 2), Dense(3 => 4))", FX_DIMS(3, 2)),
        "model, column 22: Dense: layer Dense(3 => 4) expects size(input, 1) == 3, but got 2×2 "
        "Matrix{Float32}");
    refused_exactly(fx_parse_model("@autosize (3, x) Dense(_ => 2)"),
                    "model, column 12: expected sizes as in @autosize (28, 28, 1, 32), got 3, x");
    refused_exactly(fx_parse_model("@autosizes (3, 2) Dense(_ => 2)"),
                    "model, column 12: expected sizes as in @autosize (28, 28, 1, 32), got (");
    refused_exactly(fx_autosize(NULL, FX_DIMS(3)), "model: the text is NULL");
    refused_exactly(fx_autosize("relu", (fx_dims){.n = 9}),
                    "autosize: expected 0 to 8 sizes, got 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(slices_keep_layers_and_names), TEST(activations_are_all_results),
        TEST(modules_are_all_layers),       TEST(sizes_of_results),
        TEST(nothing_is_computed),          TEST(long_chains_are_not_evaluated),
        TEST(open_sizes_are_filled),        TEST(open_sizes_that_are_unknown),
    };
    return cmocka_run_group_tests_name("model_parts", tests, NULL, NULL);
}
