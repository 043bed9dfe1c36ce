/* test_torch_state.c: state dicts of PyTorch in our models, and ours in PyTorch's.
 *
 * tests/recorded/torch-*.safetensors were written by PyTorch 1.13 (tests/support/torch_state.py):
 * the state of a model after some training, an input, and its output. Where PyTorch is installed,
 * it loads what we write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away.h"
#include "python_run.h"
#include "temp_file.h"

/* ---- the models of torch_state.py, with axes in our order ------------------------------------ */

static fx_chain_layer *convolutions(void)
{
    return fx_chain(fx_conv(FX_DIMS(2, 3), 2, 4, .stride = FX_DIMS(2, 1), .pad = FX_DIMS(0, 1)),
                    fx_batchnorm(4), FX_RELU, fx_maxpool(FX_DIMS(2, 2)),
                    fx_conv(FX_DIMS(3, 2), 4, 6, .groups = 2, .bias = false), FX_FLATTEN,
                    fx_dense(24, 5), fx_layernorm(FX_DIMS(5)), FX_TANH,
                    fx_dense(5, 3, .bias = false));
}

static fx_chain_layer *names(void)
{
    fx_chain_layer *features = fx_chain(fx_conv(FX_DIMS(3), 3, 4, .dilation = FX_DIMS(2)),
                                        fx_batchnorm(4, .affine = false), FX_GELU_ERF);
    return fx_chain_of("features", features, "classifier", fx_chain(FX_FLATTEN, fx_dense(20, 4)));
}

static fx_chain_layer *volumes(void)
{
    return fx_chain(fx_conv(FX_DIMS(1, 3, 2), 1, 2), fx_batchnorm(2, .track_stats = false),
                    FX_FLATTEN, fx_dense(24, 2));
}

static const struct {
    const char *name;
    fx_chain_layer *(*make)(void);
    int64_t arrays; /* of the state */
} models[] = {{"convolutions", convolutions, 13}, {"names", names, 7}, {"volumes", volumes, 6}};
enum { MODELS = sizeof models / sizeof *models };

static const char *recorded(int i)
{
    static char path[200];
    snprintf(path, sizeof path, "tests/recorded/torch-%s.safetensors", models[i].name);
    return path;
}

static double largest_difference(fx_array *a, fx_array *b)
{
    assert_int_equal(fx_length(a), fx_length(b));
    double most = 0;
    for (int64_t i = 0; i < fx_length(a); i++)
        most = fmax(most, fabs(fx_at(a, i) - fx_at(b, i)));
    return most;
}

/* ---- from PyTorch ---------------------------------------------------------------------------- */

static void pytorchs_states_go_into_models(void **state)
{
    (void)state;
    fx_device *devices[] = {fx_cpu_device(), fx_device_get("Away", 0)};
    for (int i = 0; i < MODELS; i++)
        for (int d = 0; d < 2; d++) {
            FX_SCOPE;
            fx_seed(1 + (uint64_t)i);
            fx_chain_layer *m = fx_to(devices[d], models[i].make());
            void *theirs = fx_load_key(recorded(i), "state");
            assert_int_equal(fx_count(theirs), models[i].arrays);
            if (fx_load_torch_state(m, theirs) != FX_OK)
                fail_msg("%s: %s", models[i].name, fx_error_take().message);
            fx_testmode(m);
            fx_array *y = fx_load_key(recorded(i), "y");
            fx_array *x = fx_to(devices[d], (fx_array *)fx_load_key(recorded(i), "x"));
            const double difference = largest_difference(fx_cpu(fx_call(m, x)), y);
            if (!(difference < 1e-5))
                fail_msg("%s differs by %g", models[i].name, difference);
            /* And back: the same names, sizes and bits, but for the count. */
            const char *path = temp_text("back.safetensors", "");
            assert_int_equal(fx_save(path, "", fx_torch_state(m)), FX_OK);
            void *back = fx_load(path);
            assert_int_equal(fx_count(back), models[i].arrays);
            for (int64_t k = 0; k < fx_count(theirs); k++) {
                fx_array *a = fx_child(theirs, k),
                         *b = fx_child_named(back, fx_child_name(theirs, k));
                assert_non_null(b);
                assert_int_equal(fx_eltype(a), fx_eltype(b));
                assert_int_equal(fx_ndims(a), fx_ndims(b));
                for (int axis = 0; axis < fx_ndims(a); axis++)
                    assert_int_equal(fx_size(a, axis), fx_size(b, axis));
                if (fx_eltype(a) == FX_DTYPE_F32)
                    assert_true(largest_difference(a, b) == 0);
                else
                    assert_true(fx_item(a) == 3 && fx_item(b) == 0);
            }
        }
    assert_int_equal(fx_error_status(), FX_OK);
}

/* ---- to PyTorch ------------------------------------------------------------------------------ */

static void pytorch_takes_our_states(void **state)
{
    (void)state;
    const char *python = python_that("tests/support/torch_state.py");
    if (!python) {
        printf("skipped: no python3 here imports torch\n");
        return;
    }
    for (int i = 0; i < MODELS; i++) {
        FX_SCOPE;
        fx_seed(20 + (uint64_t)i);
        fx_chain_layer *m = models[i].make();
        fx_array *like = fx_load_key(recorded(i), "x");
        fx_array *x = fx_add(fx_mul(like, 0.5), 0.25);
        void *opt = fx_setup(fx_descent(0.1), m);
        for (int k = 0; k < 3; k++) {
            FX_STEP;
            fx_array *y = fx_call(m, fx_add(x, 2));
            fx_update(opt, m, fx_gradient(fx_mean(fx_mul(y, y)), m));
        }
        fx_testmode(m);
        const char *path = temp_text("ours.safetensors", "");
        assert_int_equal(fx_save(path, "state", fx_torch_state(m), "x", x, "y", fx_call(m, x)),
                         FX_OK);
        char command[700], line[200] = "";
        snprintf(command, sizeof command, "%s -B tests/support/torch_state.py check '%s' %s",
                 python, path, models[i].name);
        FILE *p = popen(command, "r");
        assert_non_null(p);
        assert_non_null(fgets(line, sizeof line, p));
        assert_int_equal(pclose(p), 0);
        assert_int_equal(atoi(line), models[i].arrays);
    }
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static void refused(void *model, void *state, fx_status status, const char *message)
{
    fx_array *before = fx_destructure(model);
    fx_eval(before);
    assert_int_equal(fx_load_torch_state(model, state), status);
    assert_string_equal(fx_error_take().message, message);
    assert_true(largest_difference(before, fx_destructure(model)) == 0);
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    FX_SCOPE;
    void *m = fx_chain(fx_dense(3, 2), fx_batchnorm(2));
    void *shorter = fx_named_tuple("0.weight", fx_ones(3, 2), "0.bias", fx_ones(2));
    refused(m, shorter, FX_STATUS_FORMAT,
            "load_torch_state: the state: there is no array \"1.bias\"; it has \"0.weight\", "
            "\"0.bias\"");
    void *prefixed = fx_named_tuple("net.0.weight", fx_ones(3, 2), "net.0.bias", fx_ones(2));
    refused(fx_dense(3, 2), prefixed, FX_STATUS_FORMAT,
            "load_torch_state: the state: there is no array \"weight\"; it has \"net.0.weight\", "
            "\"net.0.bias\"");
    refused(m, fx_torch_state(fx_chain(fx_dense(2, 3), fx_batchnorm(2))), FX_STATUS_SHAPE,
            "load_torch_state: the state: the array \"0.weight\" is a 3×2 Matrix{Float32}, but "
            "the object has a 2×3 Matrix{Float32}");
    refused(
        m, fx_torch_state(fx_chain(fx_dense(3, 2), fx_batchnorm(2), fx_dense(2, 1))),
        FX_STATUS_FORMAT,
        "load_torch_state: the state: the array \"2.weight\" does not exist in the object, which "
        "has \"0.weight\", \"0.bias\", \"1.bias\", \"1.weight\", \"1.running_mean\", "
        "\"1.running_var\"");
    refused(m, fx_zeros(3), FX_STATUS_ARGUMENT,
            "load_torch_state: the state is an array, not a tuple of arrays");
    refused(m, NULL, FX_STATUS_ARGUMENT, "load_torch_state: the state is NULL");
    assert_int_equal(fx_load_torch_state(NULL, shorter), FX_STATUS_ARGUMENT);
    fx_error_take();
    assert_true(fx_is_error(fx_torch_state(NULL)));
    fx_error_take();
    assert_int_not_equal(fx_load_torch_state(m, fx_load("/nowhere/x.safetensors")), FX_OK);
    assert_int_equal(fx_error_take().status, FX_STATUS_IO);
}

/* MultiHeadAttention: one array for three layers where PyTorch has one, and back with the same
 * bits.
 */
static void attention(void **state)
{
    (void)state;
    FX_SCOPE;
    const struct {
        fx_dims dims;
        bool bias;
        const char *names; /* of the state */
        int64_t columns;   /* the last size of the first of them */
    } rows[] = {
        {FX_DIMS(4), true, "a.in_proj_weight a.in_proj_bias a.out_proj.weight a.out_proj.bias", 12},
        {FX_DIMS(4), false, "a.in_proj_weight a.out_proj.weight", 12},
        {FX_DIMS(4, 6, 5, 4, 4, 3), true,
         "a.q_proj_weight a.in_proj_bias a.k_proj_weight a.v_proj_weight a.out_proj.weight "
         "a.out_proj.bias",
         4},
        {FX_DIMS(4, 8, 4), false,
         "a.q_proj.weight a.k_proj.weight a.v_proj.weight a.out_proj.weight", 8}};
    for (int r = 0; r < (int)(sizeof rows / sizeof *rows); r++) {
        void *one = fx_chain_of(
                 "a", fx_multiheadattention(rows[r].dims, .nheads = 2, .bias = rows[r].bias)),
             *other = fx_chain_of(
                 "a", fx_multiheadattention(rows[r].dims, .nheads = 2, .bias = rows[r].bias));
        char names[400] = "";
        void *dict = fx_torch_state(one);
        for (int64_t i = 0; i < fx_count(dict); i++)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? " " : "",
                     fx_child_name(dict, i));
        assert_string_equal(names, rows[r].names);
        assert_int_equal(fx_size(fx_child(dict, 0), 1), rows[r].columns);
        if (fx_load_torch_state(other, dict) != FX_OK)
            fail_msg("%s: %s", rows[r].names, fx_error_take().message);
        assert_true(largest_difference(fx_destructure(one), fx_destructure(other)) == 0);
    }
    /* the projections as separate layers, as other programs name them */
    fx_multiheadattention_layer *m = fx_multiheadattention(FX_DIMS(4), .nheads = 2);
    void *dict = fx_named_tuple("q_proj.weight", fx_ones(4, 4), "k_proj.weight", fx_ones(4, 4),
                                "v_proj.weight", fx_ones(4, 4), "out_proj.weight", fx_ones(4, 4));
    if (fx_load_torch_state(m, dict) != FX_OK)
        fail_msg("%s", fx_error_take().message);
    assert_true(fx_item(fx_sum(((fx_dense_layer *)m->k_proj)->weight)) == 16);
    refused(m, fx_named_tuple("in_proj_weight", fx_ones(4, 11), "out_proj.weight", fx_ones(4, 4)),
            FX_STATUS_SHAPE,
            "load_torch_state: in_proj_weight: 11 is not three times the size of a projection");
}

/* Names that a program gives may contain the characters that mark names in tables of layers. */
static void marks_in_names(void **state)
{
    (void)state;
    FX_SCOPE;
    static const char *const names[] = {"a|x.weight", "a|y.weight", "u*v.weight"};
    void *m = fx_named_tuple("a|x", fx_dense(2, 3, .bias = false), "a|y",
                             fx_dense(2, 3, .bias = false), "u*v", fx_dense(2, 3, .bias = false));
    void *dict = fx_torch_state(m);
    assert_int_equal(fx_count(dict), 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(fx_child_name(dict, i), names[i]);
    assert_int_equal(fx_load_torch_state(m, dict), FX_OK);
}

/* States of PyTorch before 0.4.1 have no count; a tied weight has both its names. */
static void counts_may_be_missing_and_ties_stay(void **state)
{
    (void)state;
    FX_SCOPE;
    void *norm = fx_chain(fx_batchnorm(1));
    assert_int_equal(
        fx_load_torch_state(norm, fx_named_tuple("0.weight", fx_vector(2), "0.bias", fx_vector(3),
                                                 "0.running_mean", fx_vector(4), "0.running_var",
                                                 fx_vector(5))),
        FX_OK);
    const fx_batchnorm_layer *l = fx_child(norm, 0);
    assert_true(fx_item(l->gamma) == 2 && fx_item(l->beta) == 3);
    assert_true(fx_item(l->mean) == 4 && fx_item(l->var) == 5);
    fx_array *w = fx_randn(3, 3);
    fx_eval(w);
    fx_dense_layer *a = fx_dense(0, 0, .weight_array = w, .bias = false);
    fx_dense_layer *b = fx_dense(0, 0, .weight_array = w, .bias = false);
    void *tied = fx_chain(a, b), *given = fx_torch_state(tied);
    assert_int_equal(fx_count(given), 2);
    assert_int_equal(fx_load_torch_state(tied, given), FX_OK);
    assert_ptr_equal(a->weight, b->weight);
    void *other =
        fx_torch_state(fx_chain(fx_dense(3, 3, .bias = false), fx_dense(3, 3, .bias = false)));
    assert_int_not_equal(fx_load_torch_state(tied, other), FX_OK);
    fx_error_take();
}

int main(void)
{
    away_register("Away", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_states_go_into_models),
        cmocka_unit_test(pytorch_takes_our_states),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(attention),
        cmocka_unit_test(marks_in_names),
        cmocka_unit_test(counts_may_be_missing_and_ties_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
