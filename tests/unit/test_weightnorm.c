/* test_weightnorm.c: WeightNorm and its removal. Expected numbers are worked out by hand from the
 * formulas, sizes in bytes are Flux's. */
#include "layer_check.h"

/* Rows (3, 4) of length 5 and (0, 2) of length 2. */
static fx_dense_layer *dense(void)
{
    return fx_dense(0, 0, .weight_array = fx_reshape(fx_vector(3, 0, 4, 2), 2, 2),
                    .bias_array = fx_vector(0, 1));
}

static void length_and_direction(void **state)
{
    (void)state;
    fx_dense_layer *plain = dense();
    fx_weightnorm_layer *l = fx_weightnorm(plain);
    fx_array *x = fx_vector(1, 2);
    HOLDS(l->g, 5, 2);
    assert_true(fx_ndims(l->g) == 2 && fx_size(l->g, 1) == 1);
    HOLDS(fx_call(l, x), 11, 5);
    fx_set(&l->g, fx_reshape(fx_vector(10, 1), 2, 1));
    HOLDS(fx_call(l, x), 22, 3);     /* rows (6, 8) and (0, 1) */
    HOLDS(fx_call(plain, x), 11, 5); /* the layer itself is unchanged */
    fx_weightnorm_layer *all = fx_weightnorm(dense(), .dims = FX_AXES(0, 1));
    HOLDS(all->g, 5.385164807134504); /* √29 */
    fx_weightnorm_layer *columns = fx_weightnorm(dense(), "weight", FX_AXES(0));
    HOLDS(columns->g, 3, 4.47213595499958); /* √20 */
    fx_weightnorm_layer *bias = fx_weightnorm(dense(), "bias");
    HOLDS(bias->g, 1);
}

/* ε is inside both roots, so a new layer computes what its layer computes, also for rows that are
 * shorter than √ε = 3.45e-4. Flux's doctest says: "forward pass is the same as with the original
 * layer". */
static void short_rows_keep_their_length(void **state)
{
    (void)state;
    fx_array *short_row = fx_reshape(fx_vector(3e-5, 0, 4e-5, 2), 2, 2);
    fx_weightnorm_layer *l = fx_weightnorm(fx_dense(0, 0, .weight_array = short_row));
    NEAR(fx_at(fx_call(l, fx_vector(1, 2)), 0) / 11e-5, 1, 1e-6);
    fx_array *no_row = fx_reshape(fx_vector(0, 0, 0, 2), 2, 2);
    l = fx_weightnorm(fx_dense(0, 0, .weight_array = no_row));
    NEAR(fx_at(l->g, 0), sqrt(0x1p-23), 1e-9);
}

static void gradients_reach_both_parts(void **state)
{
    (void)state;
    fx_dense_layer *plain = dense();
    fx_weightnorm_layer *l = fx_weightnorm(plain);
    fx_array *x = fx_vector(1, 2), *g[2], *by[] = {l->g, plain->weight};
    assert_int_equal(fx_count(fx_trainables(l)), 3);
    assert_int_equal(fx_gradient_of(fx_sum(fx_call(l, x)), by, 2, g), FX_OK);
    HOLDS(g[0], 11.0 / 5, 2); /* direction times x: (3 + 8)/5, 4/2 */
    /* g/|v|·(x − v·(v·x)/|v|²): row 1: (1, 2) − (3, 4)·11/25; row 2: (1, 2) − (0, 2)·4/4 */
    HOLDS(g[1], 1 - 33.0 / 25, 1, 2 - 44.0 / 25, 0);
}

static void is_removed(void **state)
{
    (void)state;
    fx_dense_layer *second = fx_dense(2, 2);
    fx_weightnorm_layer *l = fx_weightnorm(dense());
    fx_set(&l->g, fx_reshape(fx_vector(10, 1), 2, 1));
    void *model = fx_chain_of("a", l, "b", second), *removed = fx_remove_weight_norms(model);
    char text[200];
    fx_summary(removed, text, sizeof text);
    assert_string_equal(text, "Chain(a = Dense(2 => 2), b = Dense(2 => 2))");
    fx_dense_layer *first = fx_child(removed, 0);
    HOLDS(first->weight, 6, 0, 8, 1);
    assert_true(fx_is_evaluated(first->weight));
    assert_ptr_equal(((fx_dense_layer *)fx_child(removed, 1))->weight, second->weight);
    assert_ptr_equal(fx_remove_weight_norms(second), second);
    refused(fx_remove_weight_norms(NULL), "remove_weight_norms: the model is NULL");
}

static void is_shown(void **state)
{
    (void)state;
    char text[300];
    void *l = fx_weightnorm(fx_conv(FX_DIMS(3), 1, 2));
    fx_show_text(l, text, sizeof text);
    assert_string_equal(text, "WeightNorm(Conv((3,), 1 => 2), :weight; dims=3)  # 11 parameters");
    fx_show_text(fx_chain(l), text, sizeof text);
    assert_non_null(strstr(text, "# Total: 3 arrays, 11 parameters, 276 bytes."));
    fx_summary(fx_parse_model("WeightNorm(Dense(2 => 3))"), text, sizeof text);
    assert_string_equal(text, "WeightNorm(Dense(2 => 3), :weight; dims=2)");
    refused(fx_parse_model("WeightNorm(Dense(2 => 3), weight)"),
            "model, column 27: WeightNorm takes the name of a field, got weight");
}

static void refuses(void **state)
{
    (void)state;
    refused(fx_weightnorm(dense(), "wait"), "WeightNorm: Dense(2 => 2) has no array called wait");
    refused(fx_weightnorm(fx_dense(2, 2, .bias = false), "bias"),
            "WeightNorm: Dense(2 => 2; bias=false) has no array called bias");
    refused(fx_weightnorm(fx_dense(2, 3), "bias"),
            "WeightNorm: the array bias of Dense(2 => 3) is all zero");
    refused(fx_weightnorm(fx_dense(2, 3, .weight_array = fx_mul(fx_ones(3, 2), 0))),
            "WeightNorm: the array weight of Dense(2 => 3) is all zero"); /* still pending */
    refused(fx_weightnorm(dense(), .dims = FX_AXES(2)),
            "WeightNorm: dims has axis 2, but the array has 2 axes");
    refused(fx_weightnorm(NULL), "WeightNorm: needs a layer and the name of an array, got NULL");
    refused(fx_weightnorm(dense(), NULL),
            "WeightNorm: needs a layer and the name of an array, got Dense(2 => 2)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(length_and_direction),
        TEST(short_rows_keep_their_length),
        TEST(gradients_reach_both_parts),
        TEST(is_removed),
        TEST(is_shown),
        TEST(refuses),
    };
    return cmocka_run_group_tests_name("weightnorm", tests, NULL, NULL);
}
