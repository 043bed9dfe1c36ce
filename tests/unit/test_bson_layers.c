/* test_bson_layers.c: layers as every version of Flux laid them out, whole files of unusual kinds,
 * and damaged structure.
 *
 * No recorded file contains these: make_bson.py builds them from the definitions of the structs.
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

#include "data_index.h"
#include "python_run.h"
#include "read_back.h"
#include "temp_file.h"

static void *ok(void *object)
{
    if (fx_is_error(object))
        fail_msg("%s", fx_error_take().message);
    return object;
}

/* ---- layers that the library lacks ----------------------------------------------------------- */

/* Follows a path such as "cell/Wh/#0": names of children, or their numbers. */
static void *at_path(void *object, const char *path)
{
    char text[200];
    snprintf(text, sizeof text, "%s", path);
    char *rest = text;
    for (char *word; object && (word = strtok_r(NULL, "/", &rest));)
        if (word[0] == '#' || (word[0] >= '0' && word[0] <= '9'))
            object = fx_child(object, atoi(word + (word[0] == '#')));
        else
            object = fx_child_named(object, word);
    return object;
}

static int check_node(void *node, const cJSON *row)
{
    char name[200], text[200];
    const char *entry = cJSON_GetObjectItem(row, "entry")->valuestring;
    snprintf(name, sizeof name, "%s(…)", cJSON_GetObjectItem(row, "type")->valuestring);
    fx_summary(node, text, sizeof text);
    assert_string_equal(text, name);
    const cJSON *fields = cJSON_GetObjectItem(row, "fields"), *one;
    assert_int_equal(fx_count(node), cJSON_GetArraySize(fields));
    int i = 0, n = 0;
    cJSON_ArrayForEach(one, fields) assert_string_equal(fx_child_name(node, i++), one->valuestring);
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(row, "values"))
    {
        const char *path = cJSON_GetObjectItem(one, "path")->valuestring;
        fx_array *x = at_path(node, path);
        if (!x || fx_is_error(x) || !fx_is_array(x) ||
            fx_length(x) != cJSON_GetObjectItem(one, "length")->valueint ||
            fx_at(x, 0) != cJSON_GetObjectItem(one, "first")->valuedouble)
            fail_msg("%s: %s is something else", entry, path);
        n++;
    }
    return n;
}

static void nodes_keep_their_fields(void **state)
{
    (void)state;
    FX_TEST;
    char *text;
    void *file = ok(fx_load(made_bson("nodes.bson")));
    text = file_bytes(made_bson("layouts.json"), NULL);
    cJSON *rows = cJSON_Parse(text);
    int layouts = 0, values = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, rows)
    {
        void *node = fx_child_named(file, cJSON_GetObjectItem(row, "entry")->valuestring);
        values += check_node(node, row);
        assert_true(fx_is_error(fx_call(node, fx_ones(2, 2))));
        assert_non_null(strstr(fx_error_take().message, "is not a layer of this library"));
        layouts++;
    }
    print_message("%d layouts, %d values\n", layouts, values);
    assert_true(layouts >= 31 && values >= 100);
    cJSON_Delete(rows);
    free(text);
}

/* ---- layers the library has ------------------------------------------------------------------ */

static void check_array(fx_array *x, double first)
{
    assert_true(x && fx_length(x) == 3);
    for (int i = 0; i < 3; i++)
        assert_true(fx_at(x, i) == first + 0.25 * i);
}

/* β 1, γ 2, μ 3, σ² 4, each with 0.25 and 0.5 more; ϵ 0.5, momentum 0.25. */
static void batchnorm_of_every_version(void **state)
{
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("known.bson")));
    static const struct {
        const char *entry;
        int64_t active;
    } rows[] = {{"norm_0.7", FX_ACTIVE_AUTO},
                {"norm_0.10.0", FX_ACTIVE_AUTO},
                {"norm_0.10.2", FX_ACTIVE_AUTO},
                {"norm_0.12", FX_ACTIVE_AUTO},
                {"norm_off", FX_ACTIVE_OFF}};
    for (int i = 0; i < 5; i++) {
        fx_batchnorm_layer *l = fx_child_named(file, rows[i].entry);
        assert_string_equal(fx_type_of(l)->name, "BatchNorm");
        check_array(l->beta, 1);
        check_array(l->gamma, 2);
        check_array(l->mean, 3);
        check_array(l->var, 4);
        assert_true(l->epsilon == 0.5 && l->momentum == 0.25 && l->channels == 3);
        assert_int_equal(l->active, rows[i].active);
    }
    /* Flux 0.6: γ (x − μ) / σ + β, no ϵ */
    void *chain = fx_child_named(file, "norm_0.6");
    fx_array *y = fx_call(chain, fx_ones(3, 1));
    for (int i = 0; i < 3; i++) {
        const double k = 0.25 * i, expected = (2 + k) * (1 - (3 + k)) / (4 + k) + 1 + k;
        assert_true(fabs(fx_at(y, i) - expected) < 1e-6);
    }
}

/* As BatchNorm's. The running statistics of a GroupNorm are not used. */
static void other_norms_of_every_version(void **state)
{
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("known.bson")));
    static const char *const instances[] = {"instance_0.8", "instance_0.10.0", "instance_0.12"};
    for (int i = 0; i < 3; i++) {
        fx_instancenorm_layer *l = fx_child_named(file, instances[i]);
        assert_string_equal(fx_type_of(l)->name, "InstanceNorm");
        check_array(l->beta, 1);
        check_array(l->gamma, 2);
        check_array(l->mean, 3);
        check_array(l->var, 4);
        assert_true(l->epsilon == 0.5 && l->momentum == 0.25 && l->channels == 3);
        assert_int_equal(l->active, FX_ACTIVE_AUTO);
    }
    static const char *const groups[] = {"group_0.8", "group_0.10.0", "group_0.12", "group_0.14"};
    for (int i = 0; i < 4; i++) {
        fx_groupnorm_layer *l = fx_child_named(file, groups[i]);
        assert_string_equal(fx_type_of(l)->name, "GroupNorm");
        check_array(l->beta, 1);
        check_array(l->gamma, 2);
        assert_true(l->epsilon == 0.5 && l->channels == 3 && l->groups == 3 && !l->track_stats);
        /* one value per group: (x − μ) is 0 */
        check_array(fx_call(l, fx_ones(3, 1)), 1);
    }
    static const char *const alphas[] = {"alpha_0.10", "alpha_0.13"};
    for (int i = 0; i < 2; i++) {
        const fx_alphadropout_layer *l = fx_child_named(file, alphas[i]);
        assert_true(l->p == 0.5 && l->active == FX_ACTIVE_AUTO);
    }
}

static void other_layers_of_every_version(void **state)
{
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("known.bson")));
    static const char *const norms[] = {"layer_0.6", "layer_0.12", "layer_0.13"};
    for (int i = 0; i < 3; i++) {
        fx_layernorm_layer *l = fx_child_named(file, norms[i]);
        assert_string_equal(fx_type_of(l)->name, "LayerNorm");
        check_array(l->scale, 1);
        check_array(l->bias, 2);
        assert_true(l->size.n == 1 && l->size.v[0] == 3);
        assert_true(l->epsilon == (i ? 0.5 : 1e-5));
        assert_ptr_equal(l->act, i ? FX_RELU : FX_IDENTITY);
    }
    const fx_layernorm_layer *bare = fx_child_named(file, "layer_bare");
    assert_true(!bare->scale && !bare->bias && bare->size.v[0] == 3);
    static const struct {
        const char *entry, *text;
    } rows[] = {{"dropout_0.6", "Dropout(0.25)"},
                {"dropout_0.9", "Dropout(0.25)"},
                {"dropout_0.10.0", "Dropout(0.25, dims=1)"},
                {"dropout_0.13", "Dropout(0.25, dims=(1, 2), active=false)"},
                {"conv_0.8.2", "Conv((2, 2), 1 => 2, relu, pad=(1, 0))"},
                {"conv_0.8.3", "Conv((2, 2), 1 => 2, relu)"},
                {"pool_0.7", "MaxPool((2, 2))"},
                {"pool_0.8.3", "MeanPool((2, 2))"}};
    for (int i = 0; i < 8; i++) {
        char text[200];
        fx_summary(fx_child_named(file, rows[i].entry), text, sizeof text);
        if (!strstr(text, rows[i].text))
            fail_msg("%s: %s", rows[i].entry, text);
    }
}

/* Wi 1, Wh 2, b 3, the initial state 4 and 5. The current state of a Recur is not kept. */
static void recurrent_layers_of_every_version(void **state)
{
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("known.bson")));
    static const struct {
        const char *entry, *text;
        double h0, c0;
    } rows[] = {{"rnn_0.8", "RNN(2 => 2, tanh)", 4, 0},
                {"rnn_0.12", "RNN(2 => 2, tanh)", 4, 0},
                {"rnn_zero", "RNN(2 => 2, tanh)", 0, 0},
                {"lstm_0.8", "LSTM(2 => 2)", 4, 5},
                {"lstm_0.12", "LSTM(2 => 2)", 4, 5},
                {"gru_0.8", "GRU(2 => 2)", 4, 0},
                {"gru_0.12", "GRU(2 => 2)", 4, 0},
                {"gruv3_0.13", "GRUv3(2 => 2)", 4, 0},
                {"rnn_0.15", "RNN(2 => 2, tanh)", 0, 0},
                {"lstm_0.15", "LSTM(2 => 2)", 0, 0},
                {"lstm_true", "LSTM(2 => 2; return_state=true)", 0, 0},
                {"gru_0.15", "GRU(2 => 2)", 0, 0},
                {"gruv3_0.15", "GRUv3(2 => 2)", 0, 0},
                {"recurrence", "Recurrence(GRUCell(2 => 2))", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200];
        fx_recurrent_layer *l = fx_child_named(file, rows[i].entry);
        fx_summary(l, text, sizeof text);
        assert_string_equal(text, rows[i].text);
        const fx_cell_layer *cell = l->cell;
        assert_true(fx_at(cell->wi, 0) == 1 && fx_at(cell->wh, 0) == 2 &&
                    fx_at(cell->bias, 0) == 3);
        assert_true(cell->h0 ? fx_ndims(cell->h0) == 1 && fx_at(cell->h0, 0) == rows[i].h0
                             : rows[i].h0 == 0);
        assert_true(cell->c0 ? fx_at(cell->c0, 0) == rows[i].c0 : rows[i].c0 == 0);
        assert_true(!cell->wh_new || fx_at(cell->wh_new, 0) == 8);
        assert_false(fx_is_error(fx_call(l, fx_ones(2, 3))));
    }
    assert_null(((fx_cell_layer *)fx_child_named(file, "cell"))->bias);
    /* Flux has no field for a trained initial state since 0.15 */
    assert_int_equal(fx_save(temp_file("h0.bson", "", 0), "model", fx_child_named(file, "rnn_0.8")),
                     FX_STATUS_UNSUPPORTED);
    assert_non_null(
        strstr(fx_error_take().message, "Flux since 0.15 cannot store its initial state"));
}

/* ---- whole files ----------------------------------------------------------------------------- */

static void check_dense(fx_dense_layer *l)
{
    assert_string_equal(fx_type_of(l)->name, "Dense");
    assert_true(fx_at(l->weight, 0) == 5 && fx_at(l->weight, 3) == 5.375);
    assert_true(fx_at(l->bias, 1) == 6.25);
    assert_ptr_equal(l->act, FX_RELU);
}

static void kinds_of_files(void **state)
{
    (void)state;
    FX_TEST;
    fx_chain_layer *m = ok(fx_load_key(made_bson("main.bson"), "model"));
    check_dense(m->layers.items[1]);
    m = ok(fx_load_key(made_bson("dict.bson"), "model"));
    check_dense(m->layers.items[0]);
    assert_true(fx_item(ok(fx_load_key(made_bson("dict.bson"), "epoch"))) == 7);
    m = ok(fx_load_key(made_bson("32bit.bson"), "model"));
    check_dense(m->layers.items[1]);
    const fx_maxpool_layer *pool = m->layers.items[0];
    assert_true(pool->window.n == 2 && pool->window.v[1] == 2 && pool->pad.n == 4);
    static const char *const lists[] = {"tracker_params.bson", "zygote_params.bson"};
    for (int i = 0; i < 2; i++) {
        fx_dense_layer *l = fx_dense(2, 2, FX_RELU);
        assert_int_equal(fx_loadmodel(l, ok(fx_load_key(made_bson(lists[i]), "weights"))), FX_OK);
        check_dense(l);
        assert_int_not_equal(
            fx_loadmodel(fx_dense(3, 2), ok(fx_load_key(made_bson(lists[i]), "weights"))), FX_OK);
        assert_non_null(strstr(fx_error_take().message, "Tried to load size"));
    }
    assert_false(fx_is_error(fx_load(made_bson("wide_model.bson"))));
    void *wide = ok(fx_load(made_bson("wide_opt.bson")));
    assert_true(
        fx_is_error(fx_flux_optimiser(fx_child_named(wide, "opt"), fx_child_named(wide, "model"))));
    assert_non_null(strstr(fx_error_take().message, "the tree has 2 branches, but the model has"));
    assert_true(fx_is_error(fx_load(made_bson("gpu.bson"))));
    const fx_error e = fx_error_take();
    assert_int_equal(e.status, FX_STATUS_FORMAT);
    assert_non_null(strstr(e.message, "saved from a GPU: a CUDA.CuArray holds a pointer"));
}

/* ---- damaged structure ----------------------------------------------------------------------- */

/* Each field of each document is left out, reversed, of another kind, too large, or a reference to
 * itself. The result is an error with its position, or objects that can be walked and printed. */
static void changed_copies(const char *name, int at_least)
{
    char good[1000], other[1010], line[100];
    size_t size;
    snprintf(good, sizeof good, "%s", made_bson(name));
    snprintf(other, sizeof other, "%s.changed", good);
    python_bson("make_bson.py", "mutate", good, other, line, sizeof line);
    char *data = file_bytes(other, &size);
    int n = 0, refused = 0;
    for (size_t at = 0; at < size; n++) {
        FX_SCOPE;
        static char text[20000];
        int32_t length;
        memcpy(&length, data + at, sizeof length);
        const char *path = temp_file("changed.bson", data + at, (size_t)length);
        at += (size_t)length;
        void *file = fx_load(path);
        unlink(path); /* a new file is faster than overwriting one, which waits for the disk */
        const fx_error e = fx_error_take();
        assert_int_equal(fx_is_error(file), e.status != FX_OK);
        if (fx_is_error(file)) {
            if (e.status != FX_STATUS_FORMAT || !strstr(e.message, "changed.bson: BSON: offset"))
                fail_msg("%s: %s", name, e.message);
            refused++;
        } else {
            fx_show_text(file, text, sizeof text);
            fx_parameter_count(file);
        }
    }
    free(data);
    print_message("%s: %d changes, %d refused\n", name, n, refused);
    assert_int_equal(n, atoi(line));
    assert_true(n >= at_least && refused >= n / 10);
}

static void damaged_structure(void **state)
{
    (void)state;
    changed_copies("adam.bson", 3000);
    changed_copies("old_adam_0.12.bson", 1500);
    changed_copies("32bit.bson", 500);
    changed_copies("zygote_params.bson", 500);
}

/* (x − μ) / what each version divides by, in double precision, for ε = 0.5 and γ = β = …  */
static void containers_of_every_version(void **state)
{
    static const char *const expected[][2] = {
        {"skip", "SkipConnection(Dense(2 => 2, relu), +)"},
        {"parallel", "Parallel(vcat, Dense(2 => 2, relu), Dense(2 => 2, relu))"},
        {"vector", "Parallel(+, Dense(2 => 2, relu), Dense(2 => 2, relu))"},
        {"fusion", "PairwiseFusion(+, Dense(2 => 2, relu), Dense(2 => 2, relu))"},
        {"maxout", "Maxout(Dense(2 => 2, relu), Dense(2 => 2, relu))"},
        {"embedding_0.12", "Embedding(3 => 2)"},
        {"embedding_0.16", "Embedding(3 => 2, padding_idx=1)"},
        {"embedding_none", "Embedding(3 => 2)"},
        {"bag", "EmbeddingBag(3 => 2)"},
        {"bag_sum", "EmbeddingBag(3 => 2, sum)"},
        {"bilinear", "Bilinear(2 => 2, relu)"},
        {"scale", "Scale(3, relu; bias=false)"},
    };
    (void)state;
    FX_TEST;
    void *file = ok(fx_load(made_bson("containers.bson")));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char text[200];
        fx_summary(fx_child_named(file, expected[i][0]), text, sizeof text);
        assert_string_equal(text, expected[i][1]);
    }
    assert_true(fx_at(((fx_bilinear_layer *)fx_child_named(file, "bilinear"))->weight, 7) ==
                8.875); /* w(8, …): 8 + 7/8 */
}

static void layernorm_by_version(void **state)
{
    static const double x[] = {0.5, -1, 2.25}, gamma[] = {1, 1.25, 1.5}, beta[] = {2, 2.25, 2.5};
    static const struct {
        const char *file, *chosen;
        double flux;
    } rows[] = {
        {"layernorm_0.13.bson", NULL, 0.14},      {"layernorm_0.16.10.bson", NULL, 0.15},
        {"layernorm_0.16.11.bson", NULL, 0.16},   {"layernorm.bson", NULL, 0.16},
        {"layernorm.bson", "0.14", 0.14},         {"layernorm.bson", "0.15", 0.15},
        {"layernorm.bson", "0.16.10", 0.15},      {"layernorm.bson", "0.16", 0.16},
        {"layernorm_0.13.bson", "0.16.11", 0.16},
    };
    (void)state;
    FX_TEST;
    double mean = 0, variance = 0;
    for (int i = 0; i < 3; i++)
        mean += x[i] / 3;
    for (int i = 0; i < 3; i++)
        variance += (x[i] - mean) * (x[i] - mean) / 3;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double e = 0.5, by = rows[i].flux == 0.14   ? sqrt(variance) + e
                                   : rows[i].flux == 0.15 ? sqrt(variance + e * e)
                                                          : sqrt(variance + e);
        assert_int_equal(fx_load_flux_version(rows[i].chosen), FX_OK);
        fx_layernorm_layer *l = fx_load_key(made_bson(rows[i].file), "layer");
        assert_int_equal(fx_load_flux_version(NULL), FX_OK);
        if (fx_is_error(l))
            fail_msg("%s", fx_error_take().message);
        assert_true(l->flux == rows[i].flux && l->epsilon == 0.5);
        double y[3];
        assert_int_equal(fx_read_as(fx_call(l, fx_from(FX_DTYPE_F64, x, 3)), FX_DTYPE_F64, y, 3),
                         FX_OK);
        for (int k = 0; k < 3; k++)
            assert_true(fabs(y[k] - (gamma[k] * (x[k] - mean) / by + beta[k])) < 1e-6);
    }
    static const char *const bad[] = {"1.0", "0.", "0.16.", "0.16.x", "0.16.1.2", "v0.14", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fx_load_flux_version(bad[i]), FX_STATUS_ARGUMENT);
        fx_error_take();
    }
}

static char said[300];
static void listen(int level, const char *text, void *user)
{
    (void)level, (void)user;
    snprintf(said, sizeof said, "%s", text);
}

/* The printed form of a layer with another formula, and the formats that can store it. */
static void layernorm_of_other_versions_elsewhere(void **state)
{
    (void)state;
    FX_TEST;
    char text[200];
    const char *path = temp_file("norm.bson", "", 0);
    fx_layernorm_layer *l = fx_layernorm(FX_DIMS(3), FX_TANH, .flux = 0.14);
    fx_summary(l, text, sizeof text);
    assert_string_equal(text, "LayerNorm(3, tanh, flux=0.14)");
    fx_layernorm_layer *again = fx_parse_model(text);
    assert_true(!fx_is_error(again) && again->flux == 0.14);
    assert_int_equal(fx_save(path, "l", l), FX_STATUS_UNSUPPORTED);
    assert_non_null(strstr(fx_error_take().message, "σ + ε"));
    /* √(σ² + ε²) is today's formula with another ε */
    l = fx_layernorm(FX_DIMS(3), .eps = 0.25, .flux = 0.15);
    assert_int_equal(fx_save(path, "l", l), FX_OK);
    again = fx_load_key(path, "l");
    assert_true(again->flux == 0.16 && again->epsilon == 0.0625);
    fx_array *x = fx_randn(3, 4), *difference = fx_sub(fx_call(l, x), fx_call(again, x));
    assert_true(fx_item(fx_maximum(fx_abs(difference))) < 1e-6);
    /* PyTorch uses today's formula, and its state has no ε: a warning says so */
    static const struct {
        double flux;
        const char *words;
    } torch[] = {{0.14, "σ + ε"}, {0.15, "eps=1e-10"}, {0.16, ""}};
    fx_message_set_hook(listen, NULL);
    for (int i = 0; i < 3; i++) {
        said[0] = 0;
        fx_torch_state(fx_chain(fx_layernorm(FX_DIMS(3), .flux = torch[i].flux)));
        assert_true(torch[i].words[0] ? strstr(said, torch[i].words) != NULL : said[0] == 0);
    }
    fx_message_set_hook(NULL, NULL);
    assert_true(fx_is_error(fx_layernorm(FX_DIMS(3), .flux = 0.13)));
    assert_non_null(strstr(fx_error_take().message, "0.14, 0.15 or 0.16"));
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_keep_their_fields),
        cmocka_unit_test(batchnorm_of_every_version),
        cmocka_unit_test(other_norms_of_every_version),
        cmocka_unit_test(other_layers_of_every_version),
        cmocka_unit_test(containers_of_every_version),
        cmocka_unit_test(recurrent_layers_of_every_version),
        cmocka_unit_test(layernorm_by_version),
        cmocka_unit_test(layernorm_of_other_versions_elsewhere),
        cmocka_unit_test(kinds_of_files),
        cmocka_unit_test(damaged_structure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
