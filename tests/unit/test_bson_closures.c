/* test_bson_closures.c: Julia's anonymous functions, read from a file and written again.
 *
 * make_bson.py writes the lowered code. The expected results are the operations of the library on
 * the same array; check_bson.py judges what was written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cflux.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "python_run.h"
#include "read_back.h"
#include "temp_file.h"

/* Four axes, so that all reshapes apply. */
static fx_array *flatten4(fx_array *x)
{
    return fx_reshape(x, -1, fx_size(x, 3));
}
static fx_array *rows(fx_array *x)
{
    return fx_reshape(x, fx_size(x, 0), -1);
}
static fx_array *sizes(fx_array *x)
{
    return fx_reshape(x, 4, -1, fx_size(x, 2));
}
static fx_array *fixed(fx_array *x)
{
    return fx_reshape(x, 8, -1);
}
static fx_array *twice(fx_array *x)
{
    return fx_mul(x, 2);
}
static fx_array *half(fx_array *x)
{
    return fx_mul(x, 0.5);
}
static fx_array *plus(fx_array *x)
{
    return fx_add(x, 0.1);
}
static fx_array *minus(fx_array *x)
{
    return fx_sub(1.5, x);
}
static fx_array *less(fx_array *x)
{
    return fx_sub(x, 1);
}
static fx_array *over(fx_array *x)
{
    return fx_div(1, x);
}
static fx_array *divided(fx_array *x)
{
    return fx_div(x, 3);
}
static fx_array *hyperbolic(fx_array *x)
{
    return fx_tanh(x);
}
static fx_array *sine(fx_array *x)
{
    return fx_sin(x);
}
static fx_array *vector(fx_array *x)
{
    return fx_vec(x);
}
static fx_array *square(fx_array *x)
{
    return fx_mul(x, x);
}
static fx_array *powers(fx_array *x)
{
    return fx_pow(2, x);
}
static fx_array *leaky(fx_array *x)
{
    return fx_where(fx_gt(x, 0), x, fx_mul(x, 0.25));
}
static fx_array *soft(fx_array *x)
{
    return fx_softmax(x);
}
static fx_array *same(fx_array *x)
{
    return x;
}
static fx_array *maximum(fx_array *x)
{
    return fx_call(fx_maxpool(FX_DIMS(2, 2)), x);
}
static fx_array *mean(fx_array *x)
{
    return fx_call(fx_meanpool(FX_DIMS(2, 2)), x);
}
static fx_array *several(fx_array *x)
{
    return fx_softmax(fx_tanh(flatten4(x)));
}

static const struct {
    const char *name, *notation;
    fx_array *(*expected)(fx_array *x);
} closures[] = {
    {"flatten4", "x -> reshape(x, :, size(x, 4))", flatten4},
    {"rows", "x -> reshape(x, size(x, 1), :)", rows},
    {"sizes", "x -> reshape(x, 4, :, size(x, 3))", sizes},
    {"fixed", "x -> reshape(x, 8, :)", fixed},
    {"twice", "x -> 2 .* x", twice},
    {"half", "x -> x .* 0.5", half},
    {"plus", "x -> x .+ 0.1f0", plus},
    {"minus", "x -> 1.5 .- x", minus},
    {"less", "x -> x .- 1", less},
    {"over", "x -> 1 ./ x", over},
    {"divided", "x -> x ./ 3", divided},
    {"power", "x -> x .* 2.0", twice},
    {"tanh", "tanh", hyperbolic},
    {"softmax", "softmax", soft},
    {"same", "identity", same},
    {"squared", "x -> x .^ 2", square},
    {"powers", "x -> 2 .^ x", powers},
    {"leaky", "x -> leakyrelu.(x, 0.25f0)", leaky},
    {"sine", "sin", sine},
    {"vector", "vec", vector},
    {"bare", "abs2", square},
    {"flat", "Flux.flatten", flatten4},
    {"pool", "MaxPool((2, 2))", maximum},
    {"mean", "MeanPool((2, 2))", mean},
    {"several", "Chain(x -> reshape(x, :, size(x, 4)), tanh, softmax)", several},
    {"value", "x -> reshape(x, 8, :)", fixed},
    {"chain", "Chain(x -> reshape(x, :, size(x, 4)), tanh, softmax)", several},
};
enum { CLOSURES = sizeof closures / sizeof closures[0] };

static void check(void *file, int i, fx_array *x)
{
    char text[200];
    void *layer = fx_child_named(file, closures[i].name);
    fx_summary(layer, text, sizeof text);
    assert_string_equal(text, closures[i].notation);
    fx_array *y = fx_call(layer, x), *expected = closures[i].expected(x);
    if (fx_is_error(y))
        fail_msg("%s: %s", closures[i].name, fx_error_take().message);
    assert_int_equal(fx_ndims(y), fx_ndims(expected));
    for (int d = 0; d < fx_ndims(y); d++)
        assert_int_equal(fx_size(y, d), fx_size(expected, d));
    assert_int_equal(fx_eltype(y), FX_DTYPE_F32);
    assert_true(fx_item(fx_all(fx_eq(y, expected))) == 1);
}

/* The functions made from the texts of the table, which are those that fx_show prints. */
static void *from_texts(void)
{
    const void *pairs[2 * CLOSURES];
    for (int i = 0; i < CLOSURES; i++) {
        pairs[2 * i] = closures[i].name;
        pairs[2 * i + 1] = fx_parse_model(closures[i].notation);
        if (fx_is_error(pairs[2 * i + 1]))
            fail_msg("%s", fx_error_take().message);
    }
    return fxi_named_pairs(2 * CLOSURES, pairs);
}

static void save_all(const char *path, void *file)
{
    const void *pairs[2 * CLOSURES];
    assert_int_equal(fx_count(file), CLOSURES);
    for (int i = 0; i < CLOSURES; i++) {
        pairs[2 * i] = fx_child_name(file, i);
        pairs[2 * i + 1] = fx_child(file, i);
    }
    if (fxi_save(path, 2 * CLOSURES, pairs) != FX_OK)
        fail_msg("%s", fx_error_take().message);
}

static void every_closure_and_back(void **state)
{
    (void)state;
    FX_TEST;
    char line[400];
    size_t n, m;
    fx_array *x = fx_randn(4, 2, 3, 2);
    void *file = fx_load(made_bson("closures.bson"));
    for (int i = 0; i < CLOSURES; i++)
        check(file, i, x);
    const char *path = temp_file("closures.bson", "", 0);
    save_all(path, file);
    python_bson("check_bson.py", "load", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 90);
    python_bson("check_bson.py", "selftest", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 300);
    void *back = fx_load(path);
    char *first = file_bytes(path, &n); /* the numbers also have their types */
    void *const again[] = {back, from_texts()};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < CLOSURES; i++)
            check(again[k], i, x);
        save_all(path, again[k]);
        char *second = file_bytes(path, &m);
        assert_int_equal(n, m);
        assert_memory_equal(first, second, n);
        free(second);
    }
    free(first);
}

/* The lowered code of the fuzzing corpus, and a model around it. */
static void a_model_with_a_closure(void **state)
{
    (void)state;
    FX_TEST;
    char line[400];
    void *r = fx_load_key("tests/fuzz/corpus/bson/bson-closures.bson", "r");
    void *m = fx_chain(fx_conv(FX_DIMS(3, 3), 1, 2, FX_RELU), r, fx_dense(8, 3), FX_TANH);
    const char *path = temp_file("closure_model.bson", "", 0);
    assert_int_equal(fx_save(path, "model", m), FX_OK);
    python_bson("check_bson.py", "load", path, NULL, line, sizeof line);
    assert_true(atoi(line) >= 10);
    void *back = fx_load_key(path, "model");
    fx_array *x = fx_randn(4, 4, 1, 3);
    assert_true(fx_item(fx_all(fx_eq(fx_call(m, x), fx_call(back, x)))) == 1);
    char a[400], b[400];
    fx_summary(m, a, sizeof a);
    fx_summary(back, b, sizeof b);
    assert_string_equal(a, b);
}

static double squared(double x)
{
    return x * x;
}
static double affine(double x)
{
    return 2 * x - 1;
}
static double half_tanh(double x)
{
    return tanh(x) / 2;
}
static double one_less(double x)
{
    return 1 - tanh(x * x) / 2;
}
static double leak(double x)
{
    return x > 0 ? x : x / 4;
}
static double tanh_of_square(double x)
{
    return tanh(x * x);
}

/* Anonymous functions as activations: of a file, from their printed texts, and saved again. */
static void activations(void **state)
{
    static const struct {
        const char *name, *text;
        double (*expected)(double x);
    } rows[] = {{"square", "x -> x .^ 2", squared},
                {"sine", "sin", sin},
                {"line", "x -> (2 .* x) .- 1", affine},
                {"dotted", "x -> 0.5 .* tanh.(x)", half_tanh},
                {"several", "x -> 1 .- (tanh.(x .^ 2) ./ 2)", one_less},
                {"leaky", "x -> leakyrelu.(x, 0.25f0)", leak},
                {"fixed", "x -> x .^ 2", squared},
                {"composed", "x -> tanh.(x .^ 2)", tanh_of_square}};
    enum { N = sizeof rows / sizeof *rows };
    (void)state;
    FX_TEST;
    char counts[400], text[200], expected[200];
    const char *path = temp_file("saved_activations.bson", "", 0);
    void *file = fx_load(made_bson("activations.bson"));
    const void *pairs[2 * N];
    for (int round = 0; round < 3; round++) { /* of Julia, of a text, of a file of the library */
        for (int i = 0; i < N; i++) {
            fx_dense_layer *l = fx_child_named(file, rows[i].name);
            snprintf(expected, sizeof expected, "Dense(2 => 2, %s)", rows[i].text);
            if (fx_is_error(l))
                fail_msg("%s: %s", rows[i].name, fx_error_take().message);
            fx_summary(l, text, sizeof text);
            assert_string_equal(text, expected);
            fx_array *x = fx_randn(2, 3), *z = fx_add(fx_matmul(l->weight, x), l->bias);
            fx_array *y = fx_call(l, x);
            for (int k = 0; k < 6; k++)
                assert_true(fabs(fx_at(y, k) - rows[i].expected(fx_at(z, k))) <=
                            2e-6 * (1 + fabs(fx_at(y, k))));
            void *parsed = fx_parse_model(text);
            assert_int_equal(fx_loadmodel(parsed, l), FX_OK);
            pairs[2 * i] = rows[i].name;
            pairs[2 * i + 1] = round ? l : parsed;
        }
        if (fxi_save(path, 2 * N, pairs) != FX_OK)
            fail_msg("%s", fx_error_take().message);
        python_bson("check_bson.py", "load", path, NULL, counts, sizeof counts);
        assert_true(atoi(counts) >= 2 * N);
        file = fx_load(path);
    }
    void *chain = fx_chain(fx_dense(2, 2), ((fx_dense_layer *)fx_child_named(file, "line"))->act);
    assert_int_equal(fx_save(path, "model", chain), FX_OK);
    fx_summary(fx_load_key(path, "model"), text, sizeof text);
    assert_string_equal(text, "Chain(Dense(2 => 2), Chain(x -> 2 .* x, x -> x .- 1))");
}

/* Adds an operation or a function of a number to an expression. */
static void apply_one(char *text, size_t size)
{
#define NAME(NAME, name) #name,
    static const char *const functions[] = {FXI_FUNCTIONS(NAME)};
#undef NAME
    static const char *const others[] = {"gelu_tanh",  "gelu_sigmoid", "gelu_erf", "softmax",
                                         "logsoftmax", "flatten",      "vec",      "only"};
    enum { N = sizeof functions / sizeof *functions, NOTHERS = sizeof others / sizeof *others };
    static const char *const forms[] = {
        "(%s) .* 2",   "2.5 .+ (%s)",           "1.5f0 .- (%s)",        "(%s) ./ 3", "(%s) .^ 2",
        "2 .^ (%s)",   "leakyrelu.(%s, 0.2f0)", "softshrink.(%s, 0.5)", "(%s) .- 1", "4 ./ (%s)",
        "elu.(%s, 2)", "trelu.(%s, 0.5)",       "celu.(%s, 0.5)"};
    enum { FORMS = sizeof forms / sizeof *forms };
    char form[60], inner[600];
    const char *name = functions[fx_rand_u64() % N];
    for (int k = 0; k < NOTHERS; k++) /* printed otherwise, or not functions of a number */
        name = strcmp(name, others[k]) == 0 ? "identity" : name;
    snprintf(form, sizeof form, "%s.(%%s)", name);
    const char *chosen = fx_rand_u64() % 2 ? form : forms[fx_rand_u64() % FORMS],
               *at = strstr(chosen, "%s");
    snprintf(inner, sizeof inner, "%s", text);
    const int n = snprintf(text, size, "%.*s%s%s", (int)(at - chosen), chosen, inner, at + 2);
    assert_true(n > 0 && (size_t)n < size);
}

/* Random compositions, as an activation and in a chain, are read back as they were written. */
static void compositions_and_back(void **state)
{
    const char *path = temp_file("compositions.bson", "", 0);
    (void)state;
    fx_seed(7);
    for (int i = 0; i < 200; i++) {
        FX_TEST;
        char body[600] = "x", text[700], want[2000], got[2000];
        for (uint64_t n = 1 + fx_rand_u64() % 6; n > 0; n--)
            apply_one(body, sizeof body);
        snprintf(text, sizeof text, i % 2 ? "Chain(x -> %s)" : "Dense(2 => 2, x -> %s)", body);
        void *model = fx_parse_model(text);
        if (fx_is_error(model))
            fail_msg("%s: %s", text, fx_error_take().message);
        assert_int_equal(fx_save(path, "model", model), FX_OK);
        fx_show_text(model, want, sizeof want);
        fx_show_text(fx_child_named(fx_load(path), "model"), got, sizeof got);
        assert_string_equal(got, want);
    }
}

static void layers_with_other_activations_stay_nodes(void **state)
{
    (void)state;
    FX_TEST;
    char text[200];
    void *file = fx_load(made_bson("odd_activations.bson"));
    assert_int_equal(fx_count(file), 5);
    for (int i = 0; i < 5; i++) {
        fx_summary(fx_child(file, i), text, sizeof text);
        assert_string_equal(text, "Flux.Dense(…)");
    }
}

static void what_is_no_function_of_ours_stays_a_node(void **state)
{
    (void)state;
    FX_TEST;
    void *file = fx_load(made_bson("odd_callables.bson"));
    char text[200];
    assert_int_equal(fx_count(file), 6);
    for (int i = 0; i < 6; i++) {
        fx_summary(fx_child(file, i), text, sizeof text);
        if (!strstr(text, "(…)"))
            fail_msg("%s is %s", fx_child_name(file, i), text);
    }
}

static void a_chain_that_begins_with_an_array_stays_a_node(void **state)
{
    (void)state;
    FX_TEST;
    void *file = fx_load(made_bson("first_is_no_layer.bson"));
    char text[200];
    assert_int_equal(fx_count(file), 2);
    for (int i = 0; i < 2; i++) {
        fx_summary(fx_child(file, i), text, sizeof text);
        assert_string_equal(text, "Flux.Chain(…)");
    }
}

int main(void)
{
    fx_message_set_hook(NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_closure_and_back),
        cmocka_unit_test(a_model_with_a_closure),
        cmocka_unit_test(activations),
        cmocka_unit_test(compositions_and_back),
        cmocka_unit_test(layers_with_other_activations_stay_nodes),
        cmocka_unit_test(what_is_no_function_of_ours_stays_a_node),
        cmocka_unit_test(a_chain_that_begins_with_an_array_stays_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
