/* test_load_matching.c: fx_load_matching and fx_load_torch_matching: what is loaded, and the
 * report. */
#include "semantics_check.h"

#include "each_allocation.h"
#include "memory.h"
#include "temp_file.h"

static bool equal(fx_array *a, fx_array *b)
{
    return fx_length(a) == fx_length(b) && fx_item(fx_all(fx_eq(a, b))) == 1;
}

static fx_array *copy_of(fx_array *x)
{
    fx_array *copy = fx_add(x, 0);
    fx_eval(copy);
    return copy;
}

static void *part(fx_chain_layer *m, const char *name)
{
    return fx_child_named(m, name);
}
static fx_array *weight(fx_chain_layer *m, const char *name)
{
    return ((fx_dense_layer *)part(m, name))->weight;
}

static fx_chain_layer *trained(void)
{
    return fx_chain_of("body", fx_dense(3, 4), "norm", fx_batchnorm(4), "old", fx_dense(4, 4),
                       "head", fx_dense(4, 2));
}
static fx_chain_layer *changed(void)
{
    return fx_chain_of("body", fx_dense(3, 4), "norm", fx_batchnorm(4), "new", fx_dense(4, 4),
                       "head", fx_dense(4, 5));
}

static void has(void *report, const char *kind, const char *names)
{
    char text[200] = "";
    void *list = fx_child_named(report, kind);
    for (int64_t i = 0; i < fx_count(list); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                 fx_child_name(list, i));
    assert_string_equal(text, names);
}

/* In every format; in BSON also as a state with Flux's names, whose BatchNorm has other ones. */
static void loads_what_matches(void **state)
{
    (void)state;
    static const char *const formats[] = {"p.safetensors", "p.npz", "p.bson", "p.bson"};
    for (int i = 0; i < COUNT(formats); i++) {
        FX_SCOPE;
        const char *path = temp_file(formats[i], "", 0);
        fx_chain_layer *old = trained(), *m = changed();
        fx_batchnorm_layer *norm = part(old, "norm");
        fx_set(&norm->mean, fx_vector(1, 2, 3, 4));
        assert_int_equal(fx_save(path, "model", i == 3 ? fx_flux_state(old) : (void *)old), FX_OK);
        fx_array *body = weight(m, "body"), *head = copy_of(weight(m, "head")),
                 *fresh = copy_of(weight(m, "new"));
        void *report = fx_load_matching(path, "model", m);
        assert_false(fx_is_error(report));
        has(report, "missing", "model.layers.new.weight model.layers.new.bias");
        has(report, "unused", "model.layers.old.weight model.layers.old.bias");
        has(report, "other_sizes", "model.layers.head.weight model.layers.head.bias");
        void *sizes = fx_child(fx_child_named(report, "other_sizes"), 0);
        assert_string_equal(fx_string_text(sizes),
                            "2×4 Matrix{Float32}, but the model has a 5×4 Matrix{Float32}");
        assert_true(weight(m, "body") == body && equal(body, weight(old, "body")));
        assert_true(equal(((fx_batchnorm_layer *)part(m, "norm"))->mean, norm->mean));
        assert_true(equal(weight(m, "head"), head) && equal(weight(m, "new"), fresh));

        /* the whole model, and a part by its path */
        report = fx_load_matching(path, "model", old);
        for (int k = 0; k < 3; k++)
            assert_int_equal(fx_count(fx_child(report, k)), 0);
        fx_dense_layer *one = fx_dense(4, 4);
        report = fx_load_matching(path, "model.layers.old", one);
        assert_false(fx_is_error(report));
        assert_true(equal(one->weight, weight(old, "old")));
        fx_array *w = fx_zeros(4, 4); /* an array, by the path to it */
        report = fx_load_matching(path, "model.layers.old.weight", w);
        assert_false(fx_is_error(report));
        assert_true(equal(w, weight(old, "old")));
    }
}

static void loads_states_of_pytorch(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *old = fx_chain(fx_dense(3, 4), fx_batchnorm(4), fx_lstm(4, 2));
    fx_chain_layer *m = fx_chain(fx_dense(3, 4), fx_batchnorm(4), fx_lstm(4, 3), fx_dense(3, 2));
    void *report = fx_load_torch_matching(m, fx_torch_state(old));
    has(report, "missing", "3.weight 3.bias");
    has(report, "unused", "");
    has(report, "other_sizes", "2.weight_ih_l0 2.weight_hh_l0 2.bias_ih_l0");
    assert_true(equal(((fx_dense_layer *)fx_child(m, 0))->weight,
                      ((fx_dense_layer *)fx_child(old, 0))->weight));
    assert_int_equal(fx_load_torch_state(m, fx_torch_state(old)),
                     FX_STATUS_FORMAT); /* stays strict */
    fx_error_take();
}

static void is_printed(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_file("p.npz", "", 0);
    assert_int_equal(fx_save(path, "m", fx_dense(3, 4, .bias = false)), FX_OK);
    char text[600];
    fx_show_text(fx_load_matching(path, "m", fx_dense(3, 4)), text, sizeof text);
    assert_string_equal(text, "missing in the file:\n  m.bias: 4-element Vector{Float32}");
    assert_int_equal(fx_save(path, "m", trained()), FX_OK);
    fx_show_text(fx_load_matching(path, "m", changed()), text, sizeof text);
    assert_string_equal(
        text, "missing in the file:\n"
              "  m.layers.new.weight: 4×4 Matrix{Float32}\n"
              "  m.layers.new.bias: 4-element Vector{Float32}\n"
              "not used:\n"
              "  m.layers.old.weight: 4×4 Matrix{Float32}\n"
              "  m.layers.old.bias: 4-element Vector{Float32}\n"
              "other sizes:\n"
              "  m.layers.head.weight: 2×4 Matrix{Float32}, but the model has a 5×4 "
              "Matrix{Float32}\n"
              "  m.layers.head.bias: 2-element Vector{Float32}, but the model has a 5-element "
              "Vector{Float32}");
    fx_show_text(fx_load_matching(path, "m", trained()), text, sizeof text);
    assert_string_equal(text, "all arrays match");
    /* PyTorch's state has b_hn for a GRU that has it */
    void *with = fx_torch_state(fx_gru(3, 2, .hidden_bias = true));
    fx_show_text(fx_load_torch_matching(fx_gru(3, 4, .hidden_bias = true),
                                        fx_named_tuple("weight_ih_l0", fx_ones(3, 12), "bias_hh_l0",
                                                       fx_child_named(with, "bias_hh_l0"))),
                 text, sizeof text);
    assert_string_equal(text, "missing in the file:\n"
                              "  weight_hh_l0: 12×4 Matrix{Float32}\n"
                              "  bias_ih_l0: 12-element Vector{Float32}\n"
                              "other sizes:\n"
                              "  bias_hh_l0: 2-element Vector{Float32}, but the model has a "
                              "4-element Vector{Float32}");
}

static void errors(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_file("p.safetensors", "", 0), *npy = temp_file("p.npy", "", 0);
    assert_int_equal(fx_save(path, "model", fx_dense(3, 4)), FX_OK);
    assert_int_equal(fx_save(npy, "x", fx_ones(2)), FX_OK);
    fx_dense_layer *l = fx_dense(2, 2);
    fx_array *before = copy_of(l->weight);
    assert_true(fx_is_error(fx_load_matching(path, "model", l)));
    expect_error(FX_STATUS_FORMAT,
                 "no array has the name and sizes of an array of the object: \"model.weight\" is a "
                 "4×3 Matrix{Float32}, but the model has a 2×2 Matrix{Float32}");
    assert_true(fx_is_error(fx_load_matching(path, "", l)));
    expect_error(FX_STATUS_FORMAT, "such as \"weight\"; it has \"model.weight\", …");
    const char *bson = temp_file("p.bson", "", 0);
    assert_int_equal(fx_save(bson, "model", fx_chain(fx_dense(3, 4), FX_TANH)), FX_OK);
    assert_true(fx_is_error(fx_load_matching(bson, "model.1", l)));
    expect_error(FX_STATUS_FORMAT, "p.bson: \"model.1\" has no arrays");
    assert_true(equal(l->weight, before));
    assert_true(fx_is_error(fx_load_matching(path, "modle", l)));
    expect_error(FX_STATUS_FORMAT, "there is no entry \"modle\"; the file has \"model.weight\"");
    assert_true(fx_is_error(fx_load_matching(npy, "x", l)));
    expect_error(FX_STATUS_ARGUMENT, "the array of an .npy file has no name: call fx_load_into");
    assert_true(fx_is_error(fx_load_matching("/nonexistent/x.bson", "x", l)));
    expect_error(FX_STATUS_IO, "/nonexistent/x.bson");
    assert_true(fx_is_error(fx_load_matching(path, "model", NULL)));
    expect_error(FX_STATUS_ARGUMENT, "the object model is NULL");
    assert_true(fx_is_error(fx_load_matching(path, NULL, l)));
    expect_error(FX_STATUS_ARGUMENT, "load_matching: the name is NULL");
    assert_true(fx_is_error(fx_load_torch_matching(l, NULL)));
    expect_error(FX_STATUS_ARGUMENT, "load_torch_matching: the state is NULL");
    assert_true(fx_is_error(fx_load_torch_matching(l, fx_tuple(fx_ones(2, 2)))));
    expect_error(FX_STATUS_ARGUMENT, "load_torch_matching: an array has no name");
}

static fx_chain_layer *target;
static void *match(const char *path)
{
    return fx_load_matching(path, "model", target);
}

static void each_allocation_fails(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_file("p.safetensors", "", 0);
    assert_int_equal(fx_save(path, "model", trained()), FX_OK);
    target = changed();
    assert_false(fx_is_error(match(path))); /* later loads reuse the memory of the first */
    each_allocation_of(match, path, 50);
}

static void failures_change_nothing(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_file("p.safetensors", "", 0);
    assert_int_equal(fx_save(path, "model", trained()), FX_OK);
    fx_chain_layer *m = changed();
    fx_array *body = weight(m, "body"), *zeros = fx_zeros(4, 3);
    int failures = 0;
    for (int64_t nth = 0; nth < 500; nth++) {
        FX_SCOPE;
        assert_int_equal(fx_copy_into(body, zeros), FX_OK);
        fxi_fault_set(nth);
        const bool failed = fx_is_error(fx_load_matching(path, "model", m));
        fxi_fault_set(-1);
        fx_error_take();
        failures += failed;
        assert_true((*(const float *)fx_data(body) == 0) == failed);
    }
    assert_in_range(failures, 100, 499); /* 499: the last ones fail no allocation */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(loads_what_matches),    TEST(loads_states_of_pytorch), TEST(is_printed), TEST(errors),
        TEST(each_allocation_fails), TEST(failures_change_nothing)};
    return cmocka_run_group_tests_name("load_matching", tests, NULL, NULL);
}
