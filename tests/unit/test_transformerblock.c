/* test_transformerblock.c: TransformerBlock against PyTorch's TransformerEncoderLayer
 * (transformer_blocks.h): values, gradients, names of the arrays. Gradients of all arrays, printing
 * and files: test_every_layer.c. */
#include "semantics_check.h"

#include "transformer_blocks.h"
#include "wave.h"

enum { SIZE = 4, HEADS = 2, HIDDEN = 6, LEN = 3, BATCH = 2 };

static void set_weights(void *block)
{
    void *old = fx_torch_state(block), *arrays[COUNT(block_parameters)];
    assert_int_equal(fx_count(old), COUNT(block_parameters));
    for (int i = 0; i < COUNT(block_parameters); i++) {
        const char *name = block_parameters[i];
        fx_array *x = fx_child_named(old, name);
        assert_false(fx_is_error(x));
        fx_array *w = wave(i, 0.5, fx_ndims(x), (const int64_t[]){fx_size(x, 0), fx_size(x, 1)});
        const bool scale = !strcmp(name, "norm1.weight") || !strcmp(name, "norm2.weight");
        arrays[i] = scale ? fx_add(w, 1) : w;
    }
    void *state = fx_named_tuple_from(COUNT(block_parameters), block_parameters, arrays);
    assert_int_equal(fx_load_torch_state(block, state), FX_OK);
}

static fx_transformerblock_layer *block_of(const block_case *c)
{
    fx_transformerblock_layer *l = fx_f64(fx_transformerblock(
        SIZE, strcmp(c->act, "gelu") == 0 ? FX_GELU_ERF : FX_RELU, .nheads = HEADS,
        .hidden = HIDDEN, .norm_first = c->norm_first, .causal = c->causal, .dropout_prob = 0));
    set_weights(l);
    return l;
}

static void same_as(const char *what, fx_array *x, const double *expected)
{
    fx_eval(x);
    for (int64_t i = 0; i < fx_length(x); i++)
        check_value(what, i, fx_at(x, i), expected[i], 1e-11, 1e-12);
}

static void is_pytorchs_layer(void **state)
{
    (void)state;
    for (const block_case *c = block_cases; c < block_cases + COUNT(block_cases); c++) {
        FX_SCOPE;
        fx_transformerblock_layer *l = block_of(c);
        fx_array *x = wave(0.5, 2, 3, (const int64_t[]){SIZE, LEN, BATCH}), *y = fx_call(l, x);
        same_as("y", y, c->y);
        const fx_multiheadattention_layer *attention = l->self_attn;
        fx_array *w[] = {x, ((fx_dense_layer *)attention->q_proj)->weight,
                         ((fx_dense_layer *)attention->k_proj)->weight,
                         ((fx_dense_layer *)attention->v_proj)->weight},
                 *g[4];
        fx_array *factors = fx_cos(fx_range_dtype(FX_DTYPE_F64, 0.3, 1, fx_length(y)));
        fx_gradient_of(fx_sum(fx_mul(fx_vec(y), factors)), w, 4, g);
        same_as("gradient of x", g[0], c->dx);
        for (int k = 0; k < 3; k++)
            same_as("gradient of a projection", fx_transpose(g[1 + k]), c->dw + k * SIZE * SIZE);
        /* .causal is a mask, and without batch axis the result is the same */
        if (c->causal)
            l->causal = false;
        fx_array *mask = c->causal ? fx_make_causal_mask(x, 1) : fx_ne(fx_ones(LEN, LEN), 0);
        same_as("y with a mask", fx_call(l, x, mask), c->y);
        fx_array *first = fx_squeeze(fx_slice(x, 2, 0, 1), FX_AXES(2));
        same_as("y of one sequence", fx_call(l, first, mask), c->y);
        assert_int_equal(fx_error_take().status, FX_OK);
    }
}

static void is_printed_and_copied(void **state)
{
    (void)state;
    FX_SCOPE;
    char text[200];
    fx_summary(fx_transformerblock(8), text, sizeof text);
    assert_string_equal(text, "TransformerBlock(8; nheads=8)");
    fx_transformerblock_layer *l =
        fx_parse_model("TransformerBlock(8, gelu; nheads=2, hidden=5, norm_first=true, "
                       "causal=true, dropout_prob=0.5, eps=0.01)");
    fx_summary(l, text, sizeof text);
    assert_string_equal(text, "TransformerBlock(8, gelu_tanh; nheads=2, hidden=5, norm_first=true, "
                              "causal=true, dropout_prob=0.5, eps=0.01)");
    assert_true(l->norm_first && l->causal);
    assert_int_equal(fx_parameter_count(l), 4 * (64 + 8) + (8 * 5 + 5) + (5 * 8 + 8) + 4 * 8);
    /* In training, dropout changes the result; in test mode it does not. */
    fx_array *x = fx_randn(8, 3);
    fx_array *y = fx_call(l, x), *dropped, *tested;
    {
        FX_STEP;
        dropped = fx_keep(fx_call(l, x));
        fx_eval(dropped);
    }
    fx_testmode(l);
    {
        FX_STEP;
        tested = fx_keep(fx_call(l, x));
        fx_eval(tested);
    }
    assert_true(fx_item(fx_any(fx_ne(dropped, y))) == 1);
    assert_true(fx_item(fx_any(fx_ne(tested, y))) == 0);
}

static void wrong_arguments_are_errors(void **state)
{
    (void)state;
    FX_SCOPE;
    assert_true(fx_is_error(fx_transformerblock(0)));
    expect_error(FX_STATUS_ARGUMENT, "TransformerBlock: sizes must be positive, got 0");
    assert_true(fx_is_error(fx_transformerblock(6, .nheads = 4)));
    expect_error(FX_STATUS_ARGUMENT, "should be divisible by nheads, got 6, 6 and 4");
    assert_true(fx_is_error(fx_call(fx_transformerblock(8), fx_ones(4, 3))));
    expect_error(FX_STATUS_SHAPE, "expects size(input, 1) == 8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(is_pytorchs_layer), TEST(is_printed_and_copied),
                                       TEST(wrong_arguments_are_errors)};
    return cmocka_run_group_tests_name("transformerblock", tests, NULL, NULL);
}
