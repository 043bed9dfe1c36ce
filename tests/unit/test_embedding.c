/* test_embedding.c: Embedding and EmbeddingBag. Expected numbers are worked out by hand from the
 * formulas, expected texts are Flux's. */
#include "layer_check.h"

#define INTS(...)                                                                                  \
    fxi_from(FX_DTYPE_I64, (const int64_t[]){__VA_ARGS__}, 1,                                      \
             (const int64_t[]){sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)})

/* 2×3: columns (1, 2), (3, 4), (5, 6) */
static fx_array *table(void)
{
    return fx_reshape(fx_vector(1, 2, 3, 4, 5, 6), 2, 3);
}

static void embedding_looks_up_columns(void **state)
{
    (void)state;
    void *e = fx_embedding(0, 0, .weight_array = table());
    HOLDS(fx_call(e, INTS(2, 0)), 5, 6, 1, 2);
    HOLDS(fx_call(e, fxi_full(FX_DTYPE_I64, 1, 0, NULL)), 3, 4);
    HOLDS(fx_call(e, fx_cast(fx_vector(1, 1), FX_DTYPE_U8)), 3, 4, 3, 4);
    fx_array *many = fx_call(e, fx_reshape(INTS(0, 1, 2, 0, 1, 2), 3, 1, 2));
    assert_true(fx_ndims(many) == 4 && fx_size(many, 0) == 2 && fx_size(many, 3) == 2);
    HOLDS(fx_call(e, fx_onehot(INTS(2, 0), 3)), 5, 6, 1, 2);
    HOLDS(fx_call(e, fx_onehot(fxi_full(FX_DTYPE_I64, 1, 0, NULL), 3)), 3, 4);
    fx_array *out_of_range = fx_call(e, INTS(3));
    assert_int_equal(fx_eval(out_of_range), FX_STATUS_ARGUMENT);
    fx_error_take();
    refused(
        fx_call(e, fx_vector(1)),
        "Embedding: layer Embedding(3 => 2) expects an array of integers, or a one-hot array of "
        "Bool, but got 1-element Vector{Float32}");
    refused(fx_call(e, fx_onehot(INTS(0), 4)),
            "Embedding: layer Embedding(3 => 2) expects size(input, 1) == 3, but got 4×1 "
            "Matrix{Bool}");
    refused(fx_embedding(0, 2), "Embedding: sizes must be positive, got 0 => 2");
}

static void padding_is_zero_and_stays(void **state)
{
    (void)state;
    fx_embedding_layer *new = fx_embedding(4, 2, .padding_idx = 1);
    HOLDS(fx_slice(new->weight, 1, 1, 2), 0, 0);
    assert_true(fx_at(new->weight, 0) != 0 && fx_at(new->weight, 4) != 0);
    fx_array *w = table(); /* a given table keeps its numbers, only results are 0 */
    void *e = fx_embedding(0, 0, .weight_array = w, .padding_idx = 1);
    HOLDS(fx_call(e, INTS(1, 2, 1)), 0, 0, 5, 6, 0, 0);
    HOLDS(fx_call(e, fx_onehot(INTS(1, 2, 1), 3)), 0, 0, 5, 6, 0, 0);
    fx_array *g[1];
    fx_array *loss = fx_sum(fx_mul(fx_call(e, INTS(1, 2, 1, 2)), 3));
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){w}, 1, g), FX_OK);
    HOLDS(g[0], 0, 0, 0, 0, 6, 6);
    loss = fx_sum(fx_call(e, fx_onehot(INTS(1, 0, 1), 3)));
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){w}, 1, g), FX_OK);
    HOLDS(g[0], 1, 1, 0, 0, 0, 0);
    /* Float32 could not tell the padding from its neighbour, nor UInt8 300 from 44. */
    enum { LARGE = 1 << 24 };
    e = fx_embedding(0, 0, .weight_array = fx_ones(1, LARGE + 2), .padding_idx = LARGE);
    HOLDS(fx_call(e, INTS(LARGE, LARGE + 1)), 0, 1);
    e = fx_embedding(0, 0, .weight_array = fx_ones(1, 301), .padding_idx = 300);
    HOLDS(fx_call(e, fx_cast(INTS(44, 45), FX_DTYPE_U8)), 1, 1);
    refused(fx_embedding(4, 2, .padding_idx = 4),
            "Embedding: padding_idx must be 0 to 3, or -1, got 4");
}

static void bags_are_reduced(void **state)
{
    (void)state;
    void *mean = fx_embeddingbag(0, 0, .weight_array = table()),
         *sum = fx_embeddingbag(0, 0, FX_SUM, .weight_array = table()),
         *max = fx_embeddingbag(0, 0, FX_MAXIMUM, .weight_array = table()),
         *min = fx_embeddingbag(0, 0, FX_MINIMUM, .weight_array = table());
    HOLDS(fx_call(mean, INTS(0, 2)), 3, 4);
    HOLDS(fx_call(sum, INTS(0, 2, 2)), 11, 14);
    HOLDS(fx_call(max, INTS(0, 2)), 5, 6);
    HOLDS(fx_call(min, INTS(1, 2)), 3, 4);
    fx_array *columns = fx_reshape(INTS(0, 1, 2, 2), 2, 2); /* bags (0, 1) and (2, 2) */
    HOLDS(fx_call(mean, columns), 2, 3, 5, 6);
    fx_array *data = INTS(0, 1, 2, 2, 1), *at = INTS(0, 1, 3); /* (0), (1, 2), (2, 1) */
    HOLDS(fx_call(sum, data, at), 1, 2, 8, 10, 8, 10);
    HOLDS(fx_call(mean, fx_tuple(data, at)), 1, 2, 4, 5, 4, 5);
    HOLDS(fx_call(max, data, at), 1, 2, 5, 6, 5, 6);
    HOLDS(fx_call(min, data, at), 1, 2, 3, 4, 3, 4);
    HOLDS(fx_call(sum, fx_onehot(INTS(0, 2, 2), 3)), 11, 14);
    HOLDS(fx_call(sum, fx_onehot(columns, 3)), 4, 6, 10, 12);
    HOLDS(fx_call(sum, fx_onehot(fxi_full(FX_DTYPE_I64, 1, 0, NULL), 3)), 3, 4);
}

static void bags_have_gradients(void **state)
{
    (void)state;
    fx_array *w = table(), *data = INTS(0, 1, 2, 2, 1), *at = INTS(0, 2), *g[1];
    void *mean = fx_embeddingbag(0, 0, .weight_array = w);
    fx_array *loss = fx_sum(fx_call(mean, data, at)); /* bags (0, 1) and (2, 2, 1) */
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){w}, 1, g), FX_OK);
    const double one = 1.0 / 2 + 1.0 / 3;
    HOLDS(g[0], 0.5, 0.5, one, one, 2.0 / 3, 2.0 / 3);
    void *max = fx_embeddingbag(0, 0, FX_MAXIMUM, .weight_array = w);
    loss = fx_sum(fx_call(max, INTS(0, 1, 2), INTS(0, 2)));
    assert_int_equal(fx_gradient_of(loss, (fx_array *[]){w}, 1, g), FX_OK);
    HOLDS(g[0], 0, 0, 1, 1, 1, 1);
}

static void bags_refuse_what_flux_refuses(void **state)
{
    (void)state;
    void *bag = fx_embeddingbag(3, 2);
    fx_array *data = INTS(0, 1, 2);
    refused(fx_call(bag, fxi_full(FX_DTYPE_I64, 1, 0, NULL)),
            "EmbeddingBag: EmbeddingBag expects an array of indices, not just one");
    refused(fx_call(bag, data, INTS(1, 2)), "EmbeddingBag: The first element in `at` must be 0.");
    refused(fx_call(bag, data, INTS(0, 3)),
            "EmbeddingBag: The last element in `at` must be an index of `data`.");
    refused(fx_call(bag, data, INTS(0, 2, 2)),
            "EmbeddingBag: `at` must be monotonically increasing with no duplicates.");
    refused(fx_call(bag, data, fx_vector(0)),
            "EmbeddingBag: takes `data` and `at` as two vectors of integers");
    refused(fx_call(bag, data, data, data),
            "EmbeddingBag: takes one input, or `data` and `at`, got 3");
    fx_embeddingbag_layer *changed = fx_embeddingbag(3, 2);
    changed->reduction = FX_RELU;
    refused(fx_call(changed, data),
            "EmbeddingBag: the reduction must be mean, sum, maximum or minimum");
    refused(fx_embeddingbag(3, 2, FX_RELU),
            "EmbeddingBag: the reduction must be mean, sum, maximum or minimum, got relu");
}

static void has_its_notation(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"Embedding(26 => 4)", "Embedding(26 => 4)"},
        {"Embedding(26 => 4; padding_idx=1)", "Embedding(26 => 4, padding_idx=1)"},
        {"Embedding(26, 4; padding_idx=nothing, init=randn32)", "Embedding(26 => 4)"},
        {"EmbeddingBag(26 => 4)", "EmbeddingBag(26 => 4)"},
        {"EmbeddingBag(26 => 4, mean)", "EmbeddingBag(26 => 4)"},
        {"EmbeddingBag(26 => 4, Statistics.sum)", "EmbeddingBag(26 => 4, sum)"},
    };
    char text[100];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FX_SCOPE;
        fx_summary(fx_parse_model(cases[i][0]), text, sizeof text);
        assert_string_equal(text, cases[i][1]);
    }
    const fx_embedding_layer *e = fx_parse_model("Embedding(26 => 4; padding_idx=1)");
    assert_int_equal(e->padding_idx, 0);
    refused(fx_parse_model("Embedding(26 => 4; padding_idx=0)"),
            "model, column 32: Embedding takes numbers from 1 to 2147483647 here, got 0");
    refused(fx_parse_model("Embedding(26 => 4; padding_idx=true)"),
            "model, column 32: Embedding takes a number or nothing for padding_idx, got true");
    refused(fx_parse_model("Embedding(2 => 4; padding_idx=3)"),
            "model, column 1: Embedding: padding_idx must be 0 to 1, or -1, got 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(embedding_looks_up_columns),
        TEST(padding_is_zero_and_stays),
        TEST(bags_are_reduced),
        TEST(bags_have_gradients),
        TEST(bags_refuse_what_flux_refuses),
        TEST(has_its_notation),
    };
    return cmocka_run_group_tests_name("embedding", tests, NULL, NULL);
}
