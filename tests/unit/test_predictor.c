/* test_predictor.c: predictors made by hand, whose predictions are computed by hand: scale, missing
 * values, classes, probabilities, and one clear error for each wrong argument. That the files of
 * the command line give its predictions is tested in cli/test_predictor.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <string.h>

#include "memory.h"
#include "temp_file.h"

static fx_array *numbers(int64_t n, const float *values)
{
    return fx_from(FX_DTYPE_F32, values, n);
}

/* Dense(2 => 1): 3·a + 5·b + 1. */
static void *sum_model(void)
{
    fx_dense_layer *m = fx_dense(2, 1);
    const float weight[] = {3, 5}, bias[] = {1};
    fx_set(&m->weight, fx_from(FX_DTYPE_F32, weight, 1, 2));
    fx_set(&m->bias, numbers(1, bias));
    return m;
}

static void *texts(int n, const char *const *all)
{
    void *items[4];
    for (int i = 0; i < n; i++)
        items[i] = fx_string(all[i]);
    return fxi_tuple(n, items);
}

/* The file of a model of a and b with means 1 and 2, deviations 2 and 4, and fills 1 and 6. */
static const char *saved(const char *loss)
{
    static const char *const columns[] = {"a", "b"}, *const classes[] = {"low", "high"};
    static const float means[] = {1, 2}, stds[] = {2, 4}, fills[] = {1, 6};
    const int64_t sizes[] = {2};
    const char *path = temp_text("p.bson", "");
    void *about =
        fx_named_tuple("loss", fx_string(loss), "kind", fx_string("csv"), "target", fx_string("y"));
    assert_int_equal(fx_save(path, "model", sum_model(), "about", about, "shape",
                             fx_from(FX_DTYPE_I64, sizes, 1), "columns", texts(2, columns),
                             "classes", texts(2, classes), "mean", numbers(2, means), "std",
                             numbers(2, stds), "fill", numbers(2, fills)),
                     FX_OK);
    return path;
}

static void check_values(fx_array *x, int n, const float *expected)
{
    const float *values = fx_data(x);
    if (!values)
        fail_msg("%s", fx_error_take().message);
    assert_int_equal(fx_length(x), n);
    for (int i = 0; i < n; i++)
        assert_float_equal(values[i], expected[i], 1e-6);
}

static void check_error(const void *result, fx_status status, const char *words)
{
    assert_true(fx_is_error(result));
    const fx_error e = fx_error_take();
    if (e.status != status || !strstr(e.message, words))
        fail_msg("expected %d \"%s\", got %d \"%s\"", (int)status, words, (int)e.status, e.message);
}

/* (3, NaN) is scaled to (1, 1): 3 + 5 + 1; (1, −2) to (0, −1): −5 + 1. */
static void scale_and_fill(void **state)
{
    FX_SCOPE;
    (void)state;
    static const float x[] = {3, NAN, 1, -2}, expected[] = {9, -4};
    void *p = fx_load_predictor(saved("logitbinarycrossentropy"));
    fx_array *y = fx_predict(p, fx_from(FX_DTYPE_F32, x, 2, 2));
    check_values(y, 2, expected);
    assert_int_equal(fx_size(y, 0), 1);
    check_values(fx_predict_csv(p, temp_text("x.csv", "b,c,a\nNA,0,3\n-2,0,1\n")), 2, expected);
    check_values(fx_predict_csv(p, temp_text("y.csv", "3,?\n1,-2\n")), 2, expected);
}

/* W = (1, 2), b = 3; (3, 1) and (1, 5) are scaled to (1, 0) and (0, 2). */
static void from_bytes(void **state)
{
    (void)state;
    static const float x[] = {3, 1, 1, 5}, expected[] = {4, 7}, one[] = {1, 1}, two[] = {2, 2},
                       weight[] = {1, 2}, bias[] = {3};
    static const char *const names[] = {"b.safetensors", "b.npz"};
    static unsigned char bytes[1 << 14];
    for (int i = 0; i < 2; i++) {
        FX_SCOPE;
        const char *path = temp_text(names[i], "");
        fx_array *w = fx_from(FX_DTYPE_F32, weight, 1, 2), *b = fx_from(FX_DTYPE_F32, bias, 1);
        void *texts = fx_metadata("notation.model", "Dense(2 => 1)", "text.about.loss", "mse");
        assert_int_equal(fx_save(path, "model.weight", w, "model.bias", b, "mean",
                                 fx_from(FX_DTYPE_F32, one, 2), "std",
                                 fx_from(FX_DTYPE_F32, two, 2), "", texts),
                         FX_OK);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        const size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        void *p = fx_predictor(NULL, fx_load_bytes(bytes, n, NULL, NULL));
        check_values(fx_predict(p, fx_from(FX_DTYPE_F32, x, 2, 2)), 2, expected);
        check_values(fx_predict(fx_predictor(path, fx_load_entries(path, NULL)),
                                fx_from(FX_DTYPE_F32, x, 2, 2)),
                     2, expected);
        texts = fx_metadata("notation.model", "Dense(3 => 1)");
        assert_int_equal(fx_save(path, "model.weight", w, "model.bias", b, "", texts), FX_OK);
        check_error(fx_predictor(path, fx_load(path)), FX_STATUS_FORMAT, names[i]);
    }
}

/* Writes all names and texts of nested tuples, for comparison. */
static void describe(void *entries, char *out, size_t capacity)
{
    size_t n = (size_t)snprintf(out, capacity, "(");
    for (int64_t i = 0; i < fx_count(entries); i++) {
        void *item = fx_child(entries, i);
        const char *text = fx_string_text(item);
        n += (size_t)snprintf(out + n, capacity - n, "%s%s=", i ? ", " : "",
                              fx_child_name(entries, i));
        if (fx_type_of(item)->flags & FX_TYPE_TUPLE)
            describe(item, out + n, capacity - n);
        else
            snprintf(out + n, capacity - n, "%s", text ? text : fx_type_of(item)->name);
        n += strlen(out + n);
    }
    snprintf(out + n, capacity - n, ")");
}

/* Each allocation fails in turn: the entries are complete, or the result is an error. */
static void entries_without_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    const char *path = temp_text("e.safetensors", "");
    void *texts = fx_metadata("notation.model", "Dense(2 => 1)", "text.about.loss", "mse",
                              "text.about.kind", "csv", "text.columns.0", "a", "text.columns.1",
                              "b", "text.name", "n", "tuple.more", "", "author", "me");
    assert_int_equal(fx_save(path, "model", sum_model(), "more.0", fx_ones(2), "more.1.x",
                             fx_ones(1), "more.1.y", fx_ones(1), "mean", fx_ones(2), "", texts),
                     FX_OK);
    char expected[500], found[500];
    describe(fx_load_entries(path, NULL), expected, sizeof expected);
    assert_string_equal(expected,
                        "(model=Dense, about=(loss=mse, kind=csv), columns=(=a, =b), name=n, "
                        "more=(=Array, =(x=Array, y=Array)), mean=Array, __metadata__=Metadata)");
    bool reached = true;
    int failures = 0;
    for (int64_t k = 0; reached; k++) {
        FX_SCOPE;
        fxi_fault_set(k);
        void *entries = fx_load_entries(path, NULL);
        reached = fxi_fault_seen() > k;
        fxi_fault_set(-1);
        const bool failed = fx_is_error(entries);
        failures += failed;
        assert_int_equal(fx_error_take().status, failed ? FX_STATUS_MEMORY : FX_OK);
        if (!failed) {
            describe(entries, found, sizeof found);
            assert_string_equal(found, expected);
        }
    }
    assert_in_range(failures, 100, 10000);
}

static void classes_and_probabilities(void **state)
{
    FX_SCOPE;
    (void)state;
    static const float x[] = {3, 6, 1, -2};
    const float second[] = {1 / (1 + expf(-9)), 1 / (1 + expf(4))};
    const float both[] = {1 - second[0], second[0], 1 - second[1], second[1]};
    void *p = fx_load_predictor(saved("logitbinarycrossentropy"));
    fx_array *y = fx_predict(p, fx_from(FX_DTYPE_F32, x, 2, 2));
    const int64_t *guesses = fx_data(fx_predicted_classes(p, y));
    assert_non_null(guesses);
    assert_string_equal(fx_class_name(p, guesses[0]), "high");
    assert_string_equal(fx_class_name(p, guesses[1]), "low");
    assert_null(fx_class_name(p, 2));
    assert_null(fx_class_name(p, -1));
    check_values(fx_predicted_probabilities(p, y), 4, both);
    /* The threshold of outputs that are not logits is 0.5, of hinge losses 0. */
    static const float near[] = {0.4f, 0.6f};
    fx_array *outputs = fx_from(FX_DTYPE_F32, near, 1, 2);
    guesses = fx_data(fx_output_classes("binarycrossentropy", 2, outputs));
    assert_true(guesses[0] == 0 && guesses[1] == 1);
    guesses = fx_data(fx_output_classes("hinge_loss", 2, outputs));
    assert_true(guesses[0] == 1 && guesses[1] == 1);
    static const float expected[] = {0.6f, 0.4f, 0.4f, 0.6f};
    check_values(fx_output_probabilities("binarycrossentropy", 2, outputs), 4, expected);
    const float soft[] = {1 / (1 + expf(0.2f)), 1 / (1 + expf(-0.2f))};
    check_values(fx_output_probabilities("logitcrossentropy", 2, fx_reshape(outputs, 2, 1)), 2,
                 soft);
}

/* More observations than a batch; a model of Flux alone has no description and is only called. */
static void many_observations(void **state)
{
    FX_SCOPE;
    (void)state;
    enum { N = 600 };
    float x[2 * N], expected[N];
    for (int i = 0; i < N; i++) {
        x[2 * i] = (float)i;
        x[2 * i + 1] = (float)(i % 7);
        expected[i] = 3 * x[2 * i] + 5 * x[2 * i + 1] + 1;
    }
    const char *path = temp_text("only.bson", "");
    assert_int_equal(fx_save(path, "net", sum_model()), FX_OK);
    void *p = fx_load_predictor(path);
    fx_array *y = fx_predict(p, fx_from(FX_DTYPE_F32, x, 2, N));
    check_values(y, N, expected);
    check_error(fx_predicted_classes(p, y), FX_STATUS_ARGUMENT, "has no classes");
    check_error(fx_predicted_probabilities(p, y), FX_STATUS_ARGUMENT, "has no classes");
    check_error(fx_output_classes("mse", 2, NULL), FX_STATUS_ARGUMENT, "the outputs are NULL");
}

static void features_of_tables(void **state)
{
    FX_SCOPE;
    (void)state;
    static const char *const wanted[] = {"c=red", "c=blue", "n"}, *const lost[] = {"n", "m", "2",
                                                                                   "c=x"};
    static const float expected[] = {0, 1, 7, 1, 0, 8, NAN, NAN, 9};
    void *table = fx_read_table(temp_text("t.csv", "n,c\n7,blue\n8,red\n9,\n"), .missing = true);
    fx_array *x = fx_table_features(table, texts(3, wanted), NULL, "t.csv");
    const float *values = fx_data(x);
    assert_non_null(values);
    for (int i = 0; i < 9; i++)
        assert_true(values[i] == expected[i] || (isnan(values[i]) && isnan(expected[i])));
    const int64_t *columns = fx_data(fx_table_columns(table, texts(4, lost)));
    assert_non_null(columns);
    assert_true(columns[0] == 0 && columns[1] == -1 && columns[2] == 1 && columns[3] == 1);
    static const char *const ordered[] = {"n", "c=blue", "c=red"};
    assert_true(fx_table_fits(table, texts(3, ordered), NULL));
    assert_false(fx_table_fits(table, texts(1, ordered), NULL));
    assert_false(fx_table_fits(table, texts(3, wanted), NULL));
    static const float n[] = {7, 8, 9};
    const int64_t second = 1;
    assert_true(fx_table_fits(table, texts(1, ordered), fx_from(FX_DTYPE_I64, &second, 1)));
    check_values(
        fx_table_features(table, texts(3, wanted), fx_from(FX_DTYPE_I64, &second, 1), NULL), 3, n);
    check_error(fx_table_features(table, texts(2, lost), NULL, NULL), FX_STATUS_FORMAT,
                "the table has no column \"m\"");
    check_error(fx_table_features(table, texts(2, wanted + 1), NULL, "t.csv"), FX_STATUS_FORMAT,
                "t.csv: line 3: column \"c\" contains \"red\"");
    check_error(fx_table_features(table, texts(3, wanted), x, NULL), FX_STATUS_ARGUMENT, "Int64");
    check_error(fx_table_features(x, texts(3, wanted), NULL, NULL), FX_STATUS_ARGUMENT,
                "fx_read_table");
    check_error(fx_table_columns(table, table), FX_STATUS_ARGUMENT, "a tuple of texts");
}

/* A bag of 2 numbers, (id, 2·id) for each token, and the merge of "a" (64) and "b" (65). */
static void *model_of_texts(fx_array **out_merges)
{
    static const int32_t pair[] = {64, 65};
    fx_array *ids = fx_range(0, 1, 257);
    fx_array *weight = fx_concat(0, fx_reshape(ids, 1, 257), fx_reshape(fx_mul(ids, 2), 1, 257));
    *out_merges = fx_from(FX_DTYPE_I32, pair, 2, 1);
    return fx_embeddingbag(0, 0, .weight_array = weight);
}

/* " ab" has the tokens 220 (blank) and 256 (ab), " a" has 220 and 64. */
static void predicts_texts(void **state)
{
    FX_SCOPE;
    (void)state;
    fx_array *merges;
    void *m = model_of_texts(&merges);
    static const char *const all[] = {"ab", " a ", "ab"};
    static const float expected[] = {238, 476, 142, 284, 238, 476}, cut[] = {220, 440};
    const int64_t most = 1;
    void *p = fx_predictor(NULL, fx_named_tuple("model", m, "merges", merges));
    check_values(fx_predict_texts(p, 3, all), 6, expected);
    fx_array *ids = fx_tokenizer_encode_texts(fx_tokenizer_from_merges(merges), 2, all, 0);
    check_values(fx_predict(p, ids), 4, expected);
    check_error(fx_predict(p, fx_zeros(2, 3)), FX_STATUS_SHAPE, "the model takes texts");
    check_error(fx_predict(p, fx_from(FX_DTYPE_I32, &(int32_t){0}, 3, 0)), FX_STATUS_SHAPE,
                "found none");
    check_error(fx_predict_texts(p, 0, all), FX_STATUS_ARGUMENT, "at least one text");
    check_error(fx_predict_texts(m, 1, all), FX_STATUS_ARGUMENT, "fx_load_predictor");
    void *first = fx_predictor(NULL, fx_named_tuple("model", m, "merges", merges, "shape",
                                                    fx_from(FX_DTYPE_I64, &most, 1)));
    check_values(fx_predict_texts(first, 1, all), 2, cut);
    check_error(fx_predict_texts(fx_load_predictor(saved("mse")), 1, all), FX_STATUS_ARGUMENT,
                "not trained on texts");
    check_error(fx_predictor("m.bson", fx_named_tuple("model", m, "merges", fx_zeros(2, 1))),
                FX_STATUS_FORMAT, "invalid");
}

/* ---- language models ------------------------------------------------------------------------- */

enum { CONTEXT = 3, A = 64, B = 65, C = 66 }; /* ids of "a", "b" and "c" */

/* Scores for the token after each token: after a the scores ln 5, ln 3 and ln 2 for a, b and c, and
 * −∞ for all others; after b always c, and after c always b. */
static void *language(const char *kind)
{
    static float scores[256][256];
    static const int64_t context = CONTEXT;
    for (int i = 0; i < 256; i++)
        for (int k = 0; k < 256; k++)
            scores[i][k] = -INFINITY;
    scores[A][A] = logf(5);
    scores[A][B] = logf(3);
    scores[A][C] = logf(2);
    scores[B][C] = scores[C][B] = 7;
    fx_array *weight = fx_from(FX_DTYPE_F32, &scores[0][0], 256, 256);
    return fx_predictor(NULL,
                        fx_named_tuple("model", fx_embedding(0, 0, .weight_array = weight), "about",
                                       fx_named_tuple("kind", fx_string(kind)), "merges",
                                       fx_from(FX_DTYPE_I32, (const int32_t[]){0}, 2, 0), "shape",
                                       fx_from(FX_DTYPE_I64, &context, 1)));
}

static int64_t token_after(void *p, double temperature, int64_t top_k)
{
    return (int64_t)fx_item(
        fx_generate(p, .prompt = "bca", .length = 1, .temperature = temperature, .top_k = top_k));
}

/* Checks the shares of a, b and c among 2000 draws: within 5 standard deviations. */
static void check_shares(void *p, double temperature, int64_t top_k, const double *expected)
{
    enum { DRAWS = 2000 };
    int counts[3] = {0};
    for (int i = 0; i < DRAWS; i++) {
        FX_SCOPE;
        const int64_t token = token_after(p, temperature, top_k);
        assert_true(token >= A && token <= C);
        counts[token - A]++;
    }
    for (int k = 0; k < 3; k++) {
        const double q = expected[k], most = 5 * sqrt(DRAWS * q * (1 - q));
        assert_true(fabs(counts[k] - DRAWS * q) <= most);
    }
}

static bool add_text(const char *bytes, size_t n, void *user)
{
    strncat(user, bytes, n);
    return strlen(user) < 4;
}

static void continues_texts(void **state)
{
    FX_SCOPE;
    (void)state;
    static const int64_t abc[] = {A, B, C};
    char text[20] = "", all[20] = "";
    size_t bytes;
    void *p = language("language");
    fx_seed(3);
    /* At temperature T the probabilities are p^(1/T), normalised: 25, 9 and 4 of 38 for T = 0.5. */
    check_shares(p, 1, 0, (const double[]){0.5, 0.3, 0.2});
    check_shares(p, 0.5, 0, (const double[]){25.0 / 38, 9.0 / 38, 4.0 / 38});
    check_shares(p, 1, 2, (const double[]){0.625, 0.375, 0});
    check_shares(p, 1, 1000, (const double[]){0.5, 0.3, 0.2});
    assert_int_equal(token_after(p, 0, 0), A);
    /* Longer than the context; the program ends the second text after 4 bytes. */
    fx_array *ids = fx_generate(p, .prompt = "aaaaab", .length = 7);
    assert_int_equal(fx_predicted_text(p, ids, text, sizeof text, &bytes), FX_OK);
    assert_string_equal(text, "cbcbcbc");
    assert_int_equal(bytes, 7);
    ids = fx_generate(p, .prompt = "c", .length = 7, .on_token = add_text, .user = all);
    assert_string_equal(all, "bcbc");
    assert_int_equal(fx_length(ids), 4);
    fx_seed(8);
    const int64_t first = token_after(p, 1, 0), second = token_after(p, 1, 0);
    fx_seed(8);
    assert_int_equal(token_after(p, 1, 0), first);
    assert_int_equal(token_after(p, 1, 0), second);
    /* The scores themselves: fx_predict takes ids. */
    fx_array *y = fx_predict(p, fx_from(FX_DTYPE_I64, abc, CONTEXT, 1));
    assert_int_equal(fx_ndims(y), 3);
    assert_float_equal(fx_item(fx_slice(fx_vec(y), 0, 256 + C, 256 + C + 1)), 7, 0);
}

static void refused_texts(void **state)
{
    FX_SCOPE;
    (void)state;
    static const char *const all[] = {"a"};
    void *p = language("language"), *other = language("text");
    check_error(fx_generate(other, .prompt = "a"), FX_STATUS_ARGUMENT, "not a language model");
    check_error(fx_generate(NULL), FX_STATUS_ARGUMENT, "fx_load_predictor");
    check_error(fx_generate(p, .length = 0), FX_STATUS_ARGUMENT, "length");
    check_error(fx_generate(p, .length = INT64_MAX), FX_STATUS_ARGUMENT,
                "length is 9223372036854775807, which is more");
    check_error(fx_generate(p, .temperature = -1), FX_STATUS_ARGUMENT, "temperature");
    check_error(fx_generate(p, .temperature = (double)NAN), FX_STATUS_ARGUMENT, "temperature");
    check_error(fx_generate(p, .top_k = -1), FX_STATUS_ARGUMENT, "top_k");
    /* All scores after "x" are −∞: no token has a probability. */
    check_error(fx_generate(p, .prompt = "x"), FX_STATUS_NONFINITE, "scores");
    check_error(fx_predict_texts(p, 1, all), FX_STATUS_ARGUMENT, "fx_generate");
    check_error(fx_predict(p, fx_zeros(3, 1)), FX_STATUS_SHAPE, "ids");
    assert_int_equal(fx_predicted_text(sum_model(), fx_zeros(1), NULL, 0, NULL),
                     FX_STATUS_ARGUMENT);
    assert_non_null(strstr(fx_error_take().message, "no tokenizer"));
}

static void wrong_arguments(void **state)
{
    FX_SCOPE;
    (void)state;
    static const float x[6] = {0};
    void *p = fx_load_predictor(saved("mse"));
    fx_array *three = fx_from(FX_DTYPE_F32, x, 3, 2), *two = fx_from(FX_DTYPE_F32, x, 2, 3);
    check_error(fx_predict(p, three), FX_STATUS_SHAPE, "takes 2 numbers per observation, got 3");
    check_error(fx_predict(p, numbers(2, x)), FX_STATUS_SHAPE, "final axis");
    check_error(fx_predict(p, p), FX_STATUS_ARGUMENT, "x must be an array, got Tuple");
    check_error(fx_predict(two, two), FX_STATUS_ARGUMENT, "fx_load_predictor");
    check_error(fx_predict_csv(two, "x.csv"), FX_STATUS_ARGUMENT, "fx_load_predictor");
    check_error(fx_predicted_probabilities(p, fx_predict(p, two)), FX_STATUS_ARGUMENT,
                "trained with mse are not probabilities");
    check_error(fx_predicted_classes(p, three), FX_STATUS_SHAPE, "2 classes");
    check_error(fx_output_classes("logitcrossentropy", 2, numbers(2, x)), FX_STATUS_SHAPE,
                "0 rows");
    assert_int_equal(fx_loss_output("unknown"), FX_OUTPUT_SCORES);
}

static void wrong_files(void **state)
{
    FX_SCOPE;
    (void)state;
    static const float mean[] = {1, 2};
    void *m = sum_model();
    fx_array *scale = numbers(2, mean);
    check_error(fx_load_predictor("/nowhere/m.bson"), FX_STATUS_IO, "/nowhere/m.bson");
    check_error(fx_predictor("m.npz", fx_named_tuple("x", scale)), FX_STATUS_FORMAT,
                "m.npz contains no model");
    check_error(fx_predictor("m.bson", fx_named_tuple("a", m, "b", sum_model())), FX_STATUS_FORMAT,
                "contains no model");
    check_error(fx_predictor("m.bson", fx_named_tuple("model", m, "mean", scale)), FX_STATUS_FORMAT,
                "the entry \"std\" is missing or invalid");
    check_error(fx_predictor("m.bson", fx_named_tuple("model", m, "classes", scale)),
                FX_STATUS_FORMAT, "invalid");
    check_error(fx_predictor("m.bson", fx_named_tuple("model", m, "shape", scale)),
                FX_STATUS_FORMAT, "invalid");
    assert_int_equal(fx_count(fx_predictor(NULL, fx_named_tuple("net", m, "other", scale))), 1);
}

static void count_failure(const fx_error *error, void *user)
{
    (void)error;
    ++*(int *)user;
}

/* A model of Float64 gets all digits of its input; 16777217 = 2^24 + 1 is no Float32. A mean is
 * subtracted from all digits of Float64 input, whatever the type of the model. */
static void keeps_double_precision(void **state)
{
    (void)state;
    FX_SCOPE;
    static const double x[] = {16777217, 0.1, 16777217, 16777218, NAN, 16777217};
    static const float means[] = {16777216, 16777216}, stds[] = {1, 1}, fills[] = {16777218, 0};
    fx_array *input = fx_from(FX_DTYPE_F64, x, 2, 3);
    void *plain = fx_predictor(NULL, fx_named_tuple("model", fx_f64(sum_model())));
    fx_array *y = fx_predict(plain, input);
    assert_int_equal(fx_eltype(y), FX_DTYPE_F64);
    const double *all = fx_data(y);
    assert_non_null(all);
    assert_true(fabs(all[0] - (3 * 16777217.0 + 5 * 0.1 + 1)) < 1e-7);

    void *scaled = fx_named_tuple("model", sum_model(), "mean", numbers(2, means), "std",
                                  numbers(2, stds), "fill", numbers(2, fills));
    y = fx_predict(fx_predictor(NULL, scaled), fx_slice(input, 1, 1, 3));
    assert_int_equal(fx_eltype(y), FX_DTYPE_F32);
    const float *values = fx_data(y);
    assert_non_null(values);
    assert_float_equal(values[0], 3 * 1 + 5 * 2 + 1, 1e-6);
    assert_float_equal(values[1], 3 * 2 + 5 * 1 + 1, 1e-6);
}

/* A program logs that its file is missing, and takes the record. Every function that then receives
 * the error object passes on its status, without a second report. */
static void missing_files_keep_their_status(void **state)
{
    (void)state;
    FX_SCOPE;
    int failures = 0;
    void *lost = fx_load_predictor("/nowhere/m.bson");
    assert_int_equal(fx_error_take().status, FX_STATUS_IO);
    fx_error_set_hook(count_failure, &failures);
    fx_array *x = fx_ones(2, 3);
    const void *const results[] = {fx_predictor("m.bson", lost),
                                   fx_predict(lost, x),
                                   fx_predict_csv(lost, "x.csv"),
                                   fx_predict_texts(lost, 1, (const char *const[]){"a"}),
                                   fx_predicted_classes(lost, x),
                                   fx_predicted_probabilities(lost, x),
                                   fx_generate(lost)};
    fx_error_set_hook(NULL, NULL);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        assert_int_equal(fx_array_status(results[i]), FX_STATUS_IO);
    assert_int_equal(failures, 0);
    assert_int_equal(fx_error_status(), FX_OK);
    assert_int_equal(fx_predicted_text(lost, x, NULL, 0, NULL), FX_STATUS_IO);
}

/* Each allocation fails in turn: a column is found, or the error is that of memory. */
static void features_without_memory(void **state)
{
    (void)state;
    FX_SCOPE;
    static const char *const wanted[] = {"n", "color=blue", "a=b=c", "2=red"};
    static const int64_t columns[] = {2, 1, 0, 1};
    void *features = texts(4, wanted);
    void *table = fx_read_table(temp_text("t.csv", "a=b,color,n\nc,red,5\nd,blue,6\n"));
    bool reached = true;
    int failures = 0;
    for (int64_t k = 0; reached; k++) {
        FX_SCOPE;
        fxi_fault_set(k);
        fx_array *found = fx_table_columns(table, features);
        reached = fxi_fault_seen() > k;
        fxi_fault_set(-1);
        failures += fx_is_error(found);
        if (fx_is_error(found))
            assert_int_equal(fx_error_take().status, FX_STATUS_MEMORY);
        else
            assert_memory_equal(fx_data(found), columns, sizeof columns);
    }
    assert_in_range(failures, 4, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_and_fill),
        cmocka_unit_test(from_bytes),
        cmocka_unit_test(entries_without_memory),
        cmocka_unit_test(features_without_memory),
        cmocka_unit_test(classes_and_probabilities),
        cmocka_unit_test(many_observations),
        cmocka_unit_test(features_of_tables),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(predicts_texts),
        cmocka_unit_test(continues_texts),
        cmocka_unit_test(refused_texts),
        cmocka_unit_test(keeps_double_precision),
        cmocka_unit_test(missing_files_keep_their_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
