/* test_bson_read.c: reads models that other people saved with Flux.
 *
 * Expected values come from an independent reader (structure/), from Float64 arithmetic (forward/)
 * and from the accuracy of a network on the MNIST test set; the files, good and bad, of other BSON
 * libraries come with the results of those libraries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bson_put.h"
#include "data_index.h"
#include "python_run.h"
#include "temp_file.h"

static bool skipped(const char *rest)
{
    if (recorded_path(rest))
        return false;
    print_message("skipped: no %s in CFLUX_DATA\n", rest);
    return true;
}

/* ---- what is in them ------------------------------------------------------------------------- */

typedef struct seen {
    fx_array *arrays[200];
    int n;
} seen;

static void remember(fx_array *x, const char *path, bool trainable, void *user)
{
    seen *s = user;
    (void)path;
    (void)trainable;
    assert_true(s->n < 200);
    s->arrays[s->n++] = x;
}

static bool matches(fx_array *x, const cJSON *row)
{
    const cJSON *size = cJSON_GetObjectItem(row, "size"),
                *first = cJSON_GetObjectItem(row, "first");
    int k = 0;
    const cJSON *d;
    if (fx_ndims(x) != cJSON_GetArraySize(size) ||
        strcmp(fx_dtype_name(fx_eltype(x)), cJSON_GetObjectItem(row, "eltype")->valuestring) != 0)
        return false;
    cJSON_ArrayForEach(d, size) if (fx_size(x, k++) != (int64_t)d->valuedouble) return false;
    k = 0;
    cJSON_ArrayForEach(d, first) if (fx_at(x, k++) != d->valuedouble) return false;
    double sum = 0;
    for (int64_t i = 0; i < fx_length(x); i++)
        sum += fx_at(x, i);
    const double expected = cJSON_GetObjectItem(row, "sum64")->valuedouble;
    return fx_at(x, fx_length(x) - 1) == cJSON_GetObjectItem(row, "last")->valuedouble &&
           fabs(sum - expected) <= 1e-9 * (1 + fabs(expected));
}

/* Files of Flux's versions with Tracker also contain gradients; a model does not get them. */
static bool is_gradient(const char *path)
{
    const size_t n = strlen(path);
    return n > 14 && strcmp(path + n - 14, "/data/0/data/3") == 0;
}

static int compare_arrays(const char *name, const char *json)
{
    FX_SCOPE;
    char rest[400];
    snprintf(rest, sizeof rest, "flux-bson/structure/%s", json);
    cJSON *rows = data_index(rest);
    assert_non_null(rows);
    snprintf(rest, sizeof rest, "flux-bson/%s", name);
    void *file = fx_load(recorded_path(rest));
    if (fx_is_error(file))
        fail_msg("%s", fx_error_take().message);
    seen s = {.n = 0};
    fx_visit(file, remember, &s);
    int found = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, rows)
    {
        const char *path = cJSON_GetObjectItem(row, "path")->valuestring;
        if (cJSON_GetObjectItem(row, "backref") || is_gradient(path) ||
            !cJSON_GetObjectItem(row, "first"))
            continue;
        bool there = false;
        for (int i = 0; i < s.n && !there; i++)
            there = matches(s.arrays[i], row);
        if (!there)
            fail_msg("%s: %s is not among the %d arrays", name, path, s.n);
        found++;
    }
    cJSON_Delete(rows);
    return found;
}

static void every_array(void **state)
{
    (void)state;
    if (skipped("flux-bson/structure"))
        return;
    DIR *folder = opendir(recorded_path("flux-bson/structure"));
    int files = 0, arrays = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        char *dot = strstr(e->d_name, ".arrays.json");
        char name[300];
        if (!dot || strstr(e->d_name, "Deltadahl"))
            continue;
        snprintf(name, sizeof name, "%.*s.bson", (int)(dot - e->d_name), e->d_name);
        arrays += compare_arrays(name, e->d_name);
        files++;
    }
    closedir(folder);
    print_message("%d files, %d arrays\n", files, arrays);
    assert_true(files >= 24 && arrays >= 120);
}

static void *loaded(const char *name, const char *key)
{
    char rest[400];
    snprintf(rest, sizeof rest, "flux-bson/%s.bson", name);
    void *m = fx_load_key(recorded_path(rest), key);
    if (fx_is_error(m))
        fail_msg("%s", fx_error_take().message);
    return m;
}

static void check_summary(void *object, const char *expected)
{
    char text[2000];
    fx_show_text(object, text, sizeof text);
    if (!strstr(text, expected))
        fail_msg("expected %s in:\n%s", expected, text);
}

static void layers_are_ours(void **state)
{
    (void)state;
    if (skipped("flux-bson"))
        return;
    FX_SCOPE;
    void *m = loaded("ShuhuaGao__model-zoo__runs.model__d7598e3", "model");
    check_summary(m, "Conv((5, 5), 1 => 6, relu, pad=2)");
    check_summary(m, "MaxPool((2, 2))");
    check_summary(m, "Flux.flatten");
    check_summary(m, "Dense(84 => 10)");
    assert_int_equal(fx_parameter_count(m), 61706);
    m = loaded("FluxML__model-zoo__games.weights.ppo.Pendulum-v0.policy_mu__76309ac", "μ");
    check_summary(m, "Dense(30 => 1)");
    check_summary(m, "tanh");
    check_summary(m, "x -> 2.0 .* x");
    void *encoder = loaded("FluxML__model-zoo__vision.vae_mnist.output.model__b14376d", "encoder");
    check_summary(encoder, "Main.Encoder");
    assert_int_equal(fx_count(encoder), 3);
    check_summary(fx_child(encoder, 1), "Dense(500 => 2)");
    assert_true(fx_is_error(fx_call(encoder, fx_zeros(784, 1))));
    assert_non_null(strstr(fx_error_take().message, "Main.Encoder came from a file"));
    void *args = loaded("FluxML__model-zoo__vision.vae_mnist.output.model__b14376d", "args");
    assert_true(fx_item(fx_child_named(args, "batch_size")) == 128);
    assert_true(fx_item(fx_child_named(args, "cuda")) == 1);
    assert_true(fabs(fx_item(fx_child_named(args, "λ")) - 0.01) < 1e-9);
    check_summary(fx_child_named(args, "save_path"), "\"output\"");
}

/* ---- what they compute ----------------------------------------------------------------------- */

/* A recorded Float32 array in C order, so its sizes are the reverse of ours. */
static fx_array *recorded_npy(const char *path)
{
    unsigned char head[10];
    char text[600] = "";
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(head, 1, 10, f), 10);
    const size_t n = (size_t)head[8] + 256u * head[9];
    assert_true(n < sizeof text && fread(text, 1, n, f) == n);
    assert_non_null(strstr(text, "'<f4', 'fortran_order': False"));
    int64_t sizes[4], length = 1;
    int k = 0;
    for (char *p = strchr(text, '(') + 1; *p != ')' && k < 4; p += strspn(p, ", "))
        length *= sizes[k++] = strtol(p, &p, 10);
    for (int i = 0; i < k / 2; i++) {
        const int64_t d = sizes[i];
        sizes[i] = sizes[k - 1 - i];
        sizes[k - 1 - i] = d;
    }
    float *data = malloc((size_t)length * sizeof *data);
    assert_int_equal(fread(data, sizeof *data, (size_t)length, f), length);
    fclose(f);
    fx_array *x = fxi_from(FX_DTYPE_F32, data, k, sizes);
    free(data);
    return x;
}

static void compare_forward(const char *stem)
{
    FX_TEST;
    char path[600], key[200];
    const char *mark = strstr(stem, "__"); /* the last one is before the name of the entry */
    for (const char *next = mark; next; next = strstr(next + 2, "__"))
        mark = next;
    snprintf(key, sizeof key, "%s", mark + 2);
    snprintf(path, sizeof path, "%.*s", (int)(mark - stem), stem);
    void *m = loaded(path, key);
    snprintf(path, sizeof path, "flux-bson/forward/%s.x.npy", stem);
    fx_array *x = recorded_npy(recorded_path(path));
    snprintf(path, sizeof path, "flux-bson/forward/%s.y.npy", stem);
    fx_array *y = recorded_npy(recorded_path(path)), *got = fx_call(m, x);
    if (fx_is_error(got))
        fail_msg("%s: %s", stem, fx_error_take().message);
    assert_int_equal(fx_length(got), fx_length(y));
    for (int64_t i = 0; i < fx_length(y); i++)
        if (fabs(fx_at(got, i) - fx_at(y, i)) > 2e-5 * (1 + fabs(fx_at(y, i))))
            fail_msg("%s: element %d is %.9g, not %.9g", stem, (int)i, fx_at(got, i), fx_at(y, i));
}

static void forward_results(void **state)
{
    (void)state;
    if (skipped("flux-bson/forward"))
        return;
    DIR *folder = opendir(recorded_path("flux-bson/forward"));
    int n = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        char *end = strstr(e->d_name, ".x.npy");
        if (!end)
            continue;
        *end = 0;
        compare_forward(e->d_name);
        n++;
    }
    closedir(folder);
    assert_true(n >= 14);
    FX_TEST;
    void *policy =
        loaded("FluxML__model-zoo__games.weights.ppo.CartPole-v0.policy_cat__057ad9c", "π");
    fx_array *p = fx_call(policy, fx_ones(4, 1)); /* ends in x -> softmax(x) */
    assert_true(fabs(fx_at(p, 0) - 5.7804064e-09) < 1e-13);
    assert_true(fabs(fx_at(p, 1) - 0.99999999) < 1e-7);
}

/* Lowered forms as Julia 1.0 and later write them, made by hand. */
static void closures(void **state)
{
    (void)state;
    FX_TEST;
    void *file = fx_load("tests/fuzz/corpus/bson/bson-closures.bson");
    assert_false(fx_is_error(file));
    fx_array *x = fx_randn(4, 4, 3, 2);
    void *r = fx_child_named(file, "r"), *p = fx_child_named(file, "p");
    check_summary(r, "x -> reshape(x, :, size(x, 4))");
    fx_array *flat = fx_call(r, x), *y = fx_call(p, x);
    assert_true(fx_ndims(flat) == 2 && fx_size(flat, 0) == 48 && fx_size(flat, 1) == 2);
    assert_true(fx_size(y, 0) == 2 && fx_size(y, 2) == 3);
    fx_array *expected = fx_tanh(fx_call(fx_maxpool(FX_DIMS(2, 2)), x));
    assert_true(fx_item(fx_all(fx_eq(y, expected))) == 1);
    fx_array *z = fx_call(fx_child_named(file, "n"), x);
    assert_true(fx_at(z, 7) == (double)(1.5F - (float)fx_at(x, 7)));
    void *circles = fx_load("tests/fuzz/corpus/bson/bson-circles.bson");
    check_summary(fx_child_named(circles, "a"), "Main.Node");
    assert_null(fx_child(fx_child_named(circles, "a"), 0));
}

static void mnist_accuracy(void **state)
{
    (void)state;
    if (skipped("mnist/t10k-images-idx3-ubyte.gz") || skipped("flux-bson"))
        return;
    FX_TEST;
    fx_array *images = fx_read_idx(recorded_path("mnist/t10k-images-idx3-ubyte.gz"));
    fx_array *labels = fx_read_idx(recorded_path("mnist/t10k-labels-idx1-ubyte.gz"));
    fx_array *x = fx_div(fx_f32(fx_reshape(images, 28, 28, 1, 10000)), 255);
    void *m = loaded("ShuhuaGao__model-zoo__runs.model__d7598e3", "model");
    fx_array *hits = fx_sum(fx_eq(fx_onecold(fx_call(m, fx_cast(x, FX_DTYPE_F32))), labels));
    assert_true(fx_item(hits) == 9833);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(const char *path, const char *reason)
{
    FX_SCOPE;
    void *file = fx_load(path);
    const fx_error e = fx_error_take();
    if (!fx_is_error(file))
        fail_msg("%s was read", path);
    if (!strstr(e.message, reason) || !strstr(e.message, "offset"))
        fail_msg("expected \"%s\": %s", reason, e.message);
    assert_int_equal(e.status, FX_STATUS_FORMAT);
}

static void refusals(void **state)
{
    (void)state;
    refused(temp_file("empty.bson", "", 0), "empty");
    refused(temp_file("julia.bson", "7JL\x0e\4\0\0\0\1", 9), "Julia's Serialization");
    refused(temp_file("jld2.bson", "\x89HDF\r\n\x1a\n\0\0", 10), "HDF5");
    refused(temp_file("keras.bson", "\x1a\0\0\0\2class_name\0\5\0\0\0Sequ\0\0", 26), "Keras");
    refused(temp_file("tag.bson", "\x19\0\0\0\3a\0\x11\0\0\0\2tag\0\3\0\0\0hi\0\0\0", 25),
            "BSON.jl has no tag");
    refused(temp_file("ref.bson",
                      "\x2b\0\0\0\3a\0\x23\0\0\0\2tag\0\x08\0\0\0backref\0"
                      "\x12ref\0\1\0\0\0\0\0\0\0\0\0",
                      43),
            "an object that is not one of the 0 in _backrefs");
    if (!skipped("flux-bson"))
        refused(recorded_path("flux-bson/Deltadahl__Image-Longitudinal__weights__bfecc41.bson"),
                "saved from a GPU");
}

enum { STRUCTS = 3000 };
static uint8_t bytes[1 << 20];

/* Structs whose type is the first reference. */
static void structs(fxi_bson_writer *w, int n)
{
    char key[FXI_INDEX_KEY];
    const int64_t list = fxi_put_begin(w, "x", true);
    for (int i = 0; i < n; i++) {
        const int64_t one = fxi_put_tagged(w, fxi_index_key(i, key), "struct");
        const int64_t type = fxi_put_tagged(w, "type", "backref");
        fxi_put_int(w, "ref", 1);
        fxi_put_end(w, type);
        fxi_put_end(w, fxi_put_begin(w, "data", true));
        fxi_put_end(w, one);
    }
    fxi_put_end(w, list);
}

/* Many structs whose type is at the end of a long chain of references. */
static void long_chain(fxi_bson_writer *w, int references)
{
    char key[FXI_INDEX_KEY];
    const int64_t root = fxi_bson_begin(&w->out, NULL, false);
    structs(w, STRUCTS);
    const int64_t refs = fxi_put_begin(w, "_backrefs", true);
    for (int i = 1; i < references; i++) {
        const int64_t one = fxi_put_tagged(w, fxi_index_key(i - 1, key), "backref");
        fxi_put_int(w, "ref", i + 1);
        fxi_put_end(w, one);
    }
    fxi_put_plain_type(w, fxi_index_key(references - 1, key),
                       (const char *const[]){"A", "B", NULL});
    fxi_put_end(w, refs);
    fxi_bson_end(&w->out, root);
}

/* Many structs whose type is a document of many keys. */
static void wide_type(fxi_bson_writer *w, int keys)
{
    char key[FXI_INDEX_KEY];
    const int64_t root = fxi_bson_begin(&w->out, NULL, false);
    structs(w, STRUCTS);
    const int64_t refs = fxi_put_begin(w, "_backrefs", true), type = fxi_put_begin(w, "0", false);
    for (int i = 0; i < keys - 3; i++)
        fxi_put_int(w, fxi_index_key(i, key), i);
    fxi_put_text(w, "tag", "datatype");
    fxi_put_path(w, (const char *const[]){"A", "B", NULL});
    fxi_put_end(w, fxi_put_begin(w, "params", true));
    fxi_put_end(w, type);
    fxi_put_end(w, refs);
    fxi_bson_end(&w->out, root);
}

/* The time of reading does not grow with the product of structs and keys of their types. */
static void references_to_wide_types(void **state)
{
    (void)state;
    static const int keys[] = {3, 16, 17, 30000};
    for (int i = 0; i < 4; i++) {
        FX_SCOPE;
        fxi_bson_writer w = {.out = {.bytes = bytes, .capacity = sizeof bytes}};
        wide_type(&w, keys[i]);
        assert_true(w.out.at <= w.out.capacity);
        const char *path = temp_file("wide.bson", (const char *)bytes, (size_t)w.out.at);
        if (keys[i] > 16)
            refused(path, "a document with the key \"tag\" has");
        else
            assert_int_equal(fx_count(fx_load_key(path, "x")), STRUCTS);
    }
}

/* The time of reading does not grow with the product of structs and references. */
static void references_to_references(void **state)
{
    (void)state;
    static const int references[] = {1, 2, 60, 80, 5000};
    for (int i = 0; i < 5; i++) {
        FX_SCOPE;
        fxi_bson_writer w = {.out = {.bytes = bytes, .capacity = sizeof bytes}};
        long_chain(&w, references[i]);
        assert_true(w.out.at <= w.out.capacity);
        const char *path = temp_file("chain.bson", (const char *)bytes, (size_t)w.out.at);
        if (references[i] > 64)
            refused(path, "a struct without a type");
        else
            assert_int_equal(fx_count(fx_load_key(path, "x")), STRUCTS);
    }
}

/* The losses of a training run, in a list of Julia that can hold anything. */
static void long_lists(void **state)
{
    (void)state;
    enum { LONG = 60000 };
    FX_SCOPE;
    char key[FXI_INDEX_KEY];
    fxi_bson_writer w = {.out = {.bytes = bytes, .capacity = sizeof bytes}};
    const int64_t root = fxi_bson_begin(&w.out, NULL, false);
    const int64_t list = fxi_put_begin(&w, "losses", true);
    for (int i = 0; i < LONG; i++)
        fxi_put_int(&w, fxi_index_key(i, key), i);
    fxi_put_end(&w, list);
    fxi_bson_end(&w.out, root);
    assert_true(w.out.at <= w.out.capacity);
    void *losses =
        fx_load_key(temp_file("long.bson", (const char *)bytes, (size_t)w.out.at), "losses");
    assert_int_equal(fx_count(losses), LONG);
    assert_true(fx_item(fx_child(losses, LONG - 1)) == LONG - 1);
}

/* Nested documents, deeper than libbson's own check survives. */
static void deep_nesting(void **state)
{
    (void)state;
    enum { LEVELS = 100000, BYTES = 5 + LEVELS * 8 };
    unsigned char *doc = calloc(1, BYTES);
    for (int i = 0; i <= LEVELS; i++) {
        unsigned char *at = doc + 7 * (size_t)i;
        const int32_t size = BYTES - 8 * i;
        memcpy(at, &size, 4);
        if (i < LEVELS)
            memcpy(at + 4, "\3a", 3);
    }
    refused(temp_file("deep.bson", doc, BYTES), "nested deeper");
    free(doc);
}

/* The value of a document with one number or text, as extended JSON says it. */
static bool value_agrees(void *file, const char *extjson)
{
    cJSON *json = cJSON_Parse(extjson);
    cJSON *item = json && cJSON_GetArraySize(json) == 1 ? json->child : NULL;
    static const char *const numbers[] = {"$numberInt", "$numberLong", "$numberDouble"};
    bool compared = false;
    for (int i = 0; i < 3 && item; i++) {
        const cJSON *number = cJSON_GetObjectItem(item, numbers[i]);
        if (!number)
            continue;
        const double expected = strtod(number->valuestring, NULL);
        const double got = fx_item(fx_child(file, 0));
        assert_true(got == expected || (isnan(got) && isnan(expected)));
        assert_string_equal(fx_child_name(file, 0), item->string);
        compared = true;
    }
    cJSON_Delete(json);
    return compared;
}

static void other_libraries(void **state)
{
    (void)state;
    if (skipped("formats/bson/index.json"))
        return;
    cJSON *index = data_index("formats/bson/index.json");
    assert_non_null(index);
    int good = 0, bad = 0, compared = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, index)
    {
        FX_SCOPE;
        char rest[400];
        snprintf(rest, sizeof rest, "formats/%s", cJSON_GetObjectItem(row, "file")->valuestring);
        const char *path = recorded_path(rest);
        const cJSON *ours = cJSON_GetObjectItem(row, "only_BSONjl_types");
        const bool wrong = strcmp(cJSON_GetObjectItem(row, "expect")->valuestring, "error") == 0;
        if (!path || (!wrong && !ours))
            continue;
        if (wrong || !cJSON_IsTrue(ours)) {
            refused(path, "");
            bad++;
            continue;
        }
        void *file = fx_load(path);
        if (fx_is_error(file))
            fail_msg("%s", fx_error_take().message);
        compared += value_agrees(file, cJSON_GetObjectItem(row, "canonical_extjson")->valuestring);
        good++;
    }
    cJSON_Delete(index);
    print_message("%d good files, %d values compared, %d refused\n", good, compared, bad);
    assert_true(good >= 70 && bad >= 150 && compared >= 15);
}

static double number_at(void *object, const char *name)
{
    void *x = fx_child_named(object, name);
    if (!x || !fx_is_array(x) || fx_is_error(x) || fx_ndims(x) != 0)
        fail_msg("no number \"%s\"", name);
    return fx_item(x);
}

static void check_dictionaries(void *file)
{
    void *metrics = fx_child_named(file, "metrics"), *narrow = fx_child_named(file, "narrow");
    assert_int_equal(fx_count(metrics), 2);
    assert_true(number_at(metrics, "loss") == 0.25 && number_at(metrics, "acc") == 0.97);
    assert_true(number_at(narrow, "a much longer key, with spaces") == -1.5);
    assert_int_equal(fx_eltype(fx_child(narrow, 0)), FX_DTYPE_F32);
    void *counts = fx_child_named(file, "counts");
    assert_true(number_at(counts, "3") == 30 && number_at(counts, "-7") == 70);
    assert_string_equal(fx_string_text(fx_child_named(fx_child_named(file, "classes"), "1")),
                        "dog");
    void *symbols = fx_child_named(file, "symbols");
    assert_true(number_at(symbols, "α") == 1);
    assert_int_equal(fx_length(fx_child_named(symbols, "tag")), 3);
    assert_int_equal(fx_length(fx_child_named(fx_child_named(file, "iddict"), "w")), 4);
    assert_int_equal(fx_count(fx_child_named(file, "empty")), 0);
    assert_int_equal(fx_count(fx_child_named(file, "empty_numbers")), 0);
    void *inner = fx_child_named(fx_child_named(file, "nested"), "inner");
    assert_string_equal(fx_type_of(fx_child_named(inner, "5"))->name, "Dense");
    void *plain = fx_child_named(file, "plain");
    assert_true(number_at(plain, "x") == 4);
    assert_true(number_at(fx_child_named(plain, "deep"), "y") == 0.5);
}

/* Dict and IdDict with keys of every kind, and back by the rules of BSON.jl. */
static void dictionaries(void **state)
{
    (void)state;
    FX_TEST;
    char line[400], text[200];
    void *file = fx_load(made_bson("dicts.bson"));
    if (fx_is_error(file))
        fail_msg("%s", fx_error_take().message);
    check_dictionaries(file);
    fx_summary(fx_child_named(file, "metrics"), text, sizeof text);
    assert_non_null(strstr(text, "loss"));
    const void *pairs[40];
    int n = 0;
    for (int64_t i = 0; i < fx_count(file); i++)
        if (strcmp(fx_child_name(file, i), "floats") != 0) {
            pairs[n++] = fx_child_name(file, i);
            pairs[n++] = fx_child(file, i);
        }
    assert_int_equal(n, 20);
    char path[600];
    snprintf(path, sizeof path, "%s", temp_file("dicts_again.bson", "", 0));
    assert_int_equal(fxi_save(path, n, pairs), FX_OK);
    python_bson("check_bson.py", "load", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 10);
    void *again = fx_load(path);
    if (fx_is_error(again))
        fail_msg("%s", fx_error_take().message);
    check_dictionaries(again);
    /* keys of other types stay a node with both lists */
    void *floats = fx_child_named(file, "floats");
    assert_int_equal(fx_length(fx_child_named(floats, "keys")), 2);
    refused(made_bson("dict_twice.bson"), "the key \"a\"");
    refused(made_bson("dict_short.bson"), "not two lists of equal length");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dictionaries),
        cmocka_unit_test(every_array),
        cmocka_unit_test(layers_are_ours),
        cmocka_unit_test(forward_results),
        cmocka_unit_test(mnist_accuracy),
        cmocka_unit_test(closures),
        cmocka_unit_test(refusals),
        cmocka_unit_test(references_to_references),
        cmocka_unit_test(deep_nesting),
        cmocka_unit_test(other_libraries),
        cmocka_unit_test(references_to_wide_types),
        cmocka_unit_test(long_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
