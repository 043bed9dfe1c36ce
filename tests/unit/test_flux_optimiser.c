/* test_flux_optimiser.c: optimisers from Flux's files continue as states of cflux, and the reverse.
 *
 * make_bson.py builds the files from the definitions of Flux.Optimise and Optimisers.jl. It also
 * computes the result of one more update by the formulas of the library that a file belongs to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away.h"
#include "data_index.h"
#include "python_run.h"
#include "read_back.h"
#include "temp_file.h"

/* One step with a gradient of 0.5 everywhere. */
static void step(void *opt, void *model)
{
    FX_STEP;
    void *all = fx_trainables(model);
    fx_array *loss = fx_scalar(0);
    for (int64_t i = 0; i < fx_count(all); i++)
        loss = fx_add(loss, fx_sum(fx_mul(fx_child(all, i), 0.5)));
    if (fx_update(opt, model, fx_gradient(loss, model)) != FX_OK)
        fail_msg("%s", fx_error_take().message);
}

static int compare(void *model, const cJSON *after, const char *name)
{
    int n = 0, k = 0;
    void *all = fx_trainables(model);
    const cJSON *one, *value;
    cJSON_ArrayForEach(one, after)
    {
        fx_array *x = fx_child(all, k++);
        int i = 0;
        cJSON_ArrayForEach(value, one)
        {
            const double got = fx_at(x, i++), expected = value->valuedouble;
            if (fabs(got - expected) > 1e-6)
                fail_msg("%s: array %d has %.9g, not %.9g", name, k, got, expected);
            n++;
        }
        assert_int_equal(i, fx_length(x));
    }
    assert_int_equal(k, fx_count(all));
    return n;
}

static void *ok(void *object)
{
    if (fx_is_error(object))
        fail_msg("%s", fx_error_take().message);
    return object;
}

static cJSON *steps(void)
{
    char *text = file_bytes(made_bson("steps.json"), NULL);
    cJSON *all = cJSON_Parse(text);
    free(text);
    return all;
}

/* Together with their model, loaded at once, and each by itself. */
static void a_step_more(void **state)
{
    (void)state;
    FX_TEST;
    cJSON *all = steps();
    int values = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, all)
    {
        const char *name = cJSON_GetObjectItem(row, "file")->valuestring;
        const cJSON *after = cJSON_GetObjectItem(row, "after");
        const char *path = made_bson(name);
        void *file = ok(fx_load(path)), *model = fx_child_named(file, "model");
        step(fx_child_named(file, "opt"), model);
        values += compare(model, after, name);
        void *other = ok(fx_load_key(path, "model"));
        step(ok(fx_load_key(path, "opt")), other);
        values += compare(other, after, name);
    }
    cJSON_Delete(all);
    print_message("%d values\n", values);
    assert_true(values >= 150);
}

/* The file of the optimiser has no model: the program's own is given, on its device. */
static void for_a_model_of_the_programs(void **state)
{
    (void)state;
    FX_TEST;
    fx_device *devices[] = {fx_cpu_device(), away_register("AWAY", 1)};
    cJSON *all = steps();
    int values = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, all)
    {
        const char *name = cJSON_GetObjectItem(row, "file")->valuestring;
        char alone[100];
        snprintf(alone, sizeof alone, "%.*s.alone.bson", (int)(strlen(name) - 5), name);
        for (int i = 0; i < 2; i++) {
            FX_SCOPE;
            void *model =
                fx_to(devices[i], (fx_chain_layer *)ok(fx_load_key(made_bson(name), "model")));
            void *tree = ok(fx_load_key(made_bson(alone), "opt"));
            void *opt = ok(fx_flux_optimiser(tree, model));
            assert_ptr_equal(fx_flux_optimiser(opt, model), opt);
            step(opt, model);
            values += compare(fx_cpu(model), cJSON_GetObjectItem(row, "after"), name);
        }
    }
    cJSON_Delete(all);
    assert_true(values >= 150);
}

static void wrong(void *opt, void *model, const char *reason)
{
    assert_true(fx_is_error(fx_flux_optimiser(opt, model)));
    const fx_error e = fx_error_take();
    if (!strstr(e.message, reason))
        fail_msg("expected \"%s\": %s", reason, e.message);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    FX_TEST;
    fx_dense_layer *model = fx_dense(2, 2);
    void *tree = fx_load_key(made_bson("adam.alone.bson"), "opt");
    wrong(tree, model, "branches");
    wrong(tree, fx_chain(fx_dense(5, 2), FX_RELU), "does not have the size of its array");
    wrong(tree, fx_chain(FX_RELU, fx_dense(2, 2)), "branches, but the model has 0");
    wrong(fx_load_key(made_bson("unheard.bson"), "twins"), fx_tuple(FX_RELU),
          "a Leaf at a position where the model has no array");
    wrong(fx_load_key(made_bson("adam.bson"), "model"), model, "neither a Leaf");
    wrong(fx_load_key(made_bson("unheard.bson"), "opt"), model, "branches");
    wrong(fx_load_key(made_bson("unheard.bson"), "twins"), fx_tuple(fx_ones(3)),
          "Optimisers.Unheard is not a rule of this library");
    wrong(NULL, model, "optimiser is NULL");
    /* the arrays of an unknown rule stay reachable */
    void *leaf = fx_child(fx_load_key(made_bson("unheard.bson"), "twins"), 0);
    fx_array *kept = fx_child(fx_child_named(leaf, "state"), 0);
    assert_true(fx_at(kept, 2) == 1.5);
}

/* An old optimiser stores its arrays without their paths. Arrays of another model were never
 * updated, so the next update is the first one of its rule. */
static void an_old_one_for_another_model(void **state)
{
    (void)state;
    FX_TEST;
    void *tree = ok(fx_load_key(made_bson("old_adam_0.13.alone.bson"), "opt"));
    fx_dense_layer *model = fx_dense(3, 2);
    const double before = fx_at(model->weight, 3);
    void *opt = ok(fx_flux_optimiser(tree, model));
    step(opt, model);
    /* Its m is 0.5 and its v 0.25 without their bias: a step of the file's eta. */
    assert_true(fabs(before - fx_at(model->weight, 3) - 0.05) < 1e-6);
}

/* The rule has an invalid learning rate: the model in the same file still loads. */
static void a_rule_that_is_refused(void **state)
{
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("negative.bson")));
    assert_int_equal(fx_error_status(), FX_OK);
    fx_dense_layer *model = fx_child_named(file, "model");
    assert_float_equal(fx_item(fx_sum(fx_call(model, fx_ones(2)))), 2.1, 1e-6); /* Σ W0 */
    wrong(fx_child_named(file, "opt"), model, "learning rate must be at least 0, got eta = -0.7");
    wrong(fx_child_named(file, "old"), model, "learning rate must be at least 0, got eta = -0.7");
    /* an earlier error stays the recorded one */
    fx_load("/nowhere/x.npy");
    ok(fx_load(made_bson("negative.bson")));
    assert_int_equal(fx_error_take().status, FX_STATUS_IO);
}

/* The library has a rule of this name, which contains another rule and a group. */
static void a_rule_that_no_file_stores(void **state)
{
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("shared.bson")));
    wrong(fx_child_named(file, "opt"), fx_child_named(file, "model"),
          "unknown rule DistributedOptimizer");
}

static void chains_of_old_rules_that_do_not_fit(void **state)
{
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("old_decay.bson")));
    wrong(fx_child_named(file, "opt"), fx_child_named(file, "model"),
          "Flux.Optimise.ExpDecay is not a rule of this library");
    file = ok(fx_load(made_bson("old_two.bson")));
    wrong(fx_child_named(file, "opt"), fx_child_named(file, "model"),
          "a chain of Flux.Optimise has several rules with a state");
}

static void frozen_stays(void **state)
{
    (void)state;
    FX_TEST;
    fx_dense_layer *model = fx_dense(2, 2);
    const double before = fx_at(model->weight, 3);
    void *opt = ok(fx_flux_optimiser(fx_load_key(made_bson("frozen.bson"), "opt"), model));
    step(opt, model);
    assert_true(fx_at(model->weight, 3) == before);
    fx_thaw(opt);
    step(opt, model);
    assert_true(fx_at(model->weight, 3) != before);
}

/* ---- written --------------------------------------------------------------------------------- */

static void *network(void)
{
    return fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU), fx_batchnorm(2),
                    fx_maxpool(FX_DIMS(2, 2)), FX_FLATTEN, fx_dense(8, 3, .bias = false),
                    fx_dropout(0.5), fx_layernorm(FX_DIMS(3)));
}

static void same_arrays(void *a, void *b, double tolerance)
{
    void *x = fx_trainables(a), *y = fx_trainables(b);
    assert_true(fx_count(x) == fx_count(y) && fx_count(x) > 0);
    for (int64_t i = 0; i < fx_count(x); i++)
        for (int64_t k = 0; k < fx_length(fx_child(x, i)); k++)
            if (fabs(fx_at(fx_child(x, i), k) - fx_at(fx_child(y, i), k)) > tolerance)
                fail_msg("array %d differs at %d", (int)i, (int)k);
}

static void written_and_back(void **state)
{
    (void)state;
    FX_TEST;
    fx_rule *const rules[] = {fx_descent(.eta = 0.1), fx_momentum(.eta = 0.02, .rho = 0.5),
                              fx_nesterov(.eta = 0.02), fx_adam(.eta = 0.03, .beta2 = 0.9),
                              fx_adamw(.eta = 0.03, .lambda = 0.25, .couple = false)};
    const char *path = temp_text("written.bson", "");
    fx_device *device = away_register("AWAY2", 1);
    for (int i = 0; i < 5; i++) {
        FX_SCOPE;
        char line[200], a[2000], b[2000];
        fx_chain_layer *model = network();
        if (i == 3) /* written as host data from wherever it is */
            model = fx_to(device, model);
        void *opt = fx_setup(rules[i], model);
        step(opt, model);
        step(opt, model);
        if (fx_save(path, "opt", opt, "model", model) != FX_OK)
            fail_msg("%s", fx_error_take().message);
        python_bson("check_bson.py", "load", path, NULL, line, sizeof line);
        assert_true(atoi(line) >= 20);
        void *file = ok(fx_load(path)), *back = fx_child_named(file, "model");
        void *again = fx_child_named(file, "opt");
        fx_show_text(fx_child_named(fx_child(opt, 0), "weight"), a, sizeof a);
        fx_show_text(fx_child_named(fx_child(again, 0), "weight"), b, sizeof b);
        if (i < 3) /* the powers of Adam are Float32 in Julia */
            assert_string_equal(a, b);
        same_arrays(fx_cpu(model), back, 0);
        step(opt, model);
        step(again, back);
        same_arrays(fx_cpu(model), back, i < 3 ? 0 : 1e-6);
        assert_true(fx_eta(again) == fx_eta(opt));
    }
}

/* A Leaf of an array that has two paths is written once and read as one Leaf. */
static void a_tied_leaf(void **state)
{
    (void)state;
    FX_TEST;
    char line[200];
    fx_array *w = fx_randn(4, 4);
    void *model =
        fx_chain(fx_dense(0, 0, .weight_array = w), fx_dense(0, 0, FX_RELU, .weight_array = w));
    void *opt = fx_setup(fx_momentum(), model);
    step(opt, model);
    const char *path = temp_text("tied.bson", "");
    assert_int_equal(fx_save(path, "model", model, "opt", opt), FX_OK);
    python_bson("check_bson.py", "load", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 16);
    python_bson("check_bson.py", "selftest", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 60);
    void *file = ok(fx_load(path)), *again = fx_child_named(file, "opt");
    assert_ptr_equal(fx_child_named(fx_child(again, 0), "weight"),
                     fx_child_named(fx_child(again, 1), "weight"));
    assert_ptr_not_equal(fx_child_named(fx_child(again, 0), "bias"),
                         fx_child_named(fx_child(again, 1), "bias"));
    step(opt, model);
    step(again, fx_child_named(file, "model"));
    same_arrays(model, fx_child_named(file, "model"), 0);
}

static void a_state_needs_its_model(void **state)
{
    (void)state;
    FX_TEST;
    const char *path = temp_text("kept.bson", "old");
    void *model = fx_chain(fx_dense(2, 2)), *opt = fx_setup(fx_adam(), model);
    assert_int_equal(fx_save(path, "opt", opt), FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "\"opt\" is the state of an optimiser"));
    assert_int_equal(fx_save(path, "opt", opt, "model", fx_dense(2, 2)), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_file_is(path, "old");
}

/* Flux's MixedPrecision has no factor: a state that depends on one is not saved without it. */
static void a_factor_of_the_loss(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_dense(2, 2);
    fx_rule *const rules[] = {fx_mixed_precision(fx_adam(), .scale = 8),
                              fx_mixed_precision(fx_adam(), .growth = 2000)};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            fx_save(temp_file("factor.bson", "", 0), "m", m, "o", fx_setup(rules[i], m)),
            FX_STATUS_UNSUPPORTED);
        assert_string_equal(
            fx_error_take().message,
            "save: the MixedPrecision in the entry \"o\": Flux has no field for the "
            "factor of the loss (.scale, .growth)");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_more),
        cmocka_unit_test(for_a_model_of_the_programs),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(a_rule_that_is_refused),
        cmocka_unit_test(a_factor_of_the_loss),
        cmocka_unit_test(an_old_one_for_another_model),
        cmocka_unit_test(a_rule_that_no_file_stores),
        cmocka_unit_test(chains_of_old_rules_that_do_not_fit),
        cmocka_unit_test(frozen_stays),
        cmocka_unit_test(written_and_back),
        cmocka_unit_test(a_tied_leaf),
        cmocka_unit_test(a_state_needs_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
