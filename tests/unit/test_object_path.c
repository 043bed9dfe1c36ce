/* test_object_path.c: paths into files: fx_load_key and fx_load_into of parts of entries, the same
 * for every format, and the names that errors list. */
#include "semantics_check.h"

#include "temp_file.h"

static void same(fx_array *a, fx_array *b)
{
    assert_true(fx_is_array(a) && !fx_is_error(a) && fx_length(a) == fx_length(b));
    assert_true(fx_item(fx_all(fx_eq(a, b))) == 1);
}

/* A model in Julia's Dict(:run => Dict(:model => Chain(…), :list => [1, 2]), :opt_state => …). */
static fx_chain_layer *make_model(void)
{
    return fx_chain_of("body", fx_chain(fx_dense(3, 4, FX_RELU), fx_dense(4, 2)), "head",
                       fx_dense(2, 5, .bias = false));
}

static fx_dense_layer *layer_at(void *model, int i)
{
    return fx_child(fx_child(model, 0), i);
}

static const char *bson_file(fx_chain_layer *m)
{
    const char *path = temp_file("paths.bson", "", 0);
    void *opt = fx_setup(fx_adam(), m);
    void *inner = fx_named_tuple("model", m, "list", fx_tuple(fx_scalar(1), fx_scalar(2)));
    assert_int_equal(fx_save(path, "run", inner, "model", m, "opt_state", opt), FX_OK);
    return path;
}

static void are_the_same_in_every_format(void **state)
{
    (void)state;
    static const char *const formats[] = {"paths.bson", "paths.safetensors", "paths.npz"};
    for (int i = 0; i < COUNT(formats); i++) {
        FX_SCOPE;
        fx_chain_layer *m = make_model();
        const char *path = temp_file(formats[i], "", 0);
        assert_int_equal(fx_save(path, "model", m), FX_OK);
        same(fx_load_key(path, "model.layers.body.layers.0.weight"), layer_at(m, 0)->weight);
        void *layer = fx_load_key(path, "model.layers.body.layers.1");
        same(fx_child_named(layer, "weight"), layer_at(m, 1)->weight);

        fx_chain_layer *body = fx_chain(fx_dense(3, 4, FX_RELU), fx_dense(4, 2));
        assert_int_equal(fx_load_into(path, "model.layers.body", body), FX_OK);
        same(((fx_dense_layer *)fx_child(body, 1))->weight, layer_at(m, 1)->weight);
        fx_array *x = fx_zeros(4, 3);
        assert_int_equal(fx_load_into(path, "model.layers.body.layers.0.weight", x), FX_OK);
        same(x, layer_at(m, 0)->weight);
        assert_int_equal(fx_load_into(path, "model.layers.head", body),
                         i ? FX_STATUS_FORMAT : FX_STATUS_ARGUMENT);
        fx_error_take();
        assert_true(fx_is_error(fx_load_key(path, "model.layers.tail")));
        expect_error(FX_STATUS_ARGUMENT, "there is no entry \"model.layers.tail\"");
    }
}

static void lead_into_dictionaries(void **state)
{
    (void)state;
    FX_SCOPE;
    fx_chain_layer *m = make_model();
    const char *path = bson_file(m);
    same(fx_load_key(path, "run.model.body.0.weight"), layer_at(m, 0)->weight);
    same(fx_load_key(path, "run.model.layers.body.0.bias"), layer_at(m, 0)->bias);
    assert_true(fx_item(fx_load_key(path, "run.list.1")) == 2);
    assert_int_equal(fx_count(fx_load_key(path, "run")), 2);
    fx_chain_layer *other = make_model();
    assert_int_equal(fx_load_into(path, "run.model", other, "run.model.head", fx_child(other, 1)),
                     FX_OK);
    same(layer_at(other, 1)->weight, layer_at(m, 1)->weight);
    /* The state of the optimiser continues. */
    fx_array *loss = fx_sum(fx_call(other, fx_ones(3, 1)));
    assert_int_equal(fx_update(fx_load_key(path, "opt_state"), other, fx_gradient(loss, other)),
                     FX_OK);
}

/* A name may contain dots; a whole name comes before a path. */
static void names_may_have_dots(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_file("dots.bson", "", 0);
    void *inner = fx_named_tuple("b", fx_scalar(1), "b.c", fx_scalar(2));
    assert_int_equal(fx_save(path, "a", inner, "a.b", fx_scalar(3)), FX_OK);
    assert_true(fx_item(fx_load_key(path, "a.b")) == 3);
    assert_true(fx_item(fx_load_key(path, "a.b.c")) == 2);
}

static void errors_list_what_exists(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = bson_file(make_model());
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"modle", "there is no entry \"modle\"; the file has \"run\", \"model\", \"opt_state\""},
        {"run.modle", "\"run.modle\"; \"run\" has \"model\", \"list\""},
        {"run.model.tail.weight", "\"run.model\" has \"body\", \"head\""},
        {"run.model.body.2", "\"run.model.body\" has the parts 0 to 1"},
        {"run.model.layers.body.layers.2", "\"run.model.layers.body\" has the parts 0 to 1"},
        {"run.model.body.0.wieght", "\"run.model.body.0\" has \"weight\", \"bias\""},
        {"run.model.body.0.weight.x", "\"run.model.body.0.weight\" is 4×3 Matrix{Float32}"},
        {"run.model.head.bias", "\"run.model.head.bias\" is nothing"},
        {"run.model.body.0.", "\"run.model.body\" has the parts 0 to 1"},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        assert_true(fx_is_error(fx_load_key(path, rows[i].name)));
        expect_error(FX_STATUS_ARGUMENT, rows[i].text);
        assert_int_equal(fx_load_into(path, rows[i].name, fx_dense(3, 4)), FX_STATUS_FORMAT);
        expect_error(FX_STATUS_FORMAT, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(are_the_same_in_every_format),
                                       TEST(lead_into_dictionaries), TEST(names_may_have_dots),
                                       TEST(errors_list_what_exists)};
    return cmocka_run_group_tests_name("object_path", tests, NULL, NULL);
}
