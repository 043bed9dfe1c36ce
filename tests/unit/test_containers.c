/* test_containers.c: Parallel, PairwiseFusion, Maxout, SkipConnection, Scale, Bilinear, and the
 * connections.
 *
 * Expected numbers are worked out by hand from the formulas; expected texts are examples of Flux's
 * documentation and Flux's messages.
 */
#include "layer_check.h"

#include "temp_file.h"

static void shows(void *object, const char *text)
{
    char shown[1000];
    fx_show_text(object, shown, sizeof shown);
    assert_string_equal(shown, text);
}

static fx_array *doubled(fx_array *x)
{
    return fx_mul(2, x);
}
static fx_array *squared(fx_array *x)
{
    return fx_square(x);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void *first_of(int n, void *const *args)
{
    (void)n;
    return args[0];
}

static void connections_are_functions_of_julia(void **state)
{
    (void)state;
    fx_array *a = fx_reshape(fx_vector(1, 2, 3, 4), 2, 2), *b = fx_ones(2, 2);
    HOLDS(fx_call(FX_ADD, a, b, b), 3, 4, 5, 6);
    HOLDS(fx_call(FX_ADD, a), 1, 2, 3, 4);
    HOLDS(fx_call(FX_SUB, a, b), 0, 1, 2, 3);
    HOLDS(fx_call(FX_SUB, a), -1, -2, -3, -4);
    HOLDS(fx_call(FX_MATMUL, a, b), 4, 6, 4, 6); /* rows sum to 1 + 3 and 2 + 4 */
    HOLDS(fx_call(FX_MATMUL, a, b, b), 8, 12, 8, 12);
    HOLDS(fx_call(FX_MUL, a, fx_vector(2, 3)), 2, 6, 6, 12);
    HOLDS(fx_call(FX_VCAT, a, b), 1, 2, 1, 1, 3, 4, 1, 1);
    HOLDS(fx_call(FX_HCAT, a, b), 1, 2, 3, 4, 1, 1, 1, 1);
    fx_array *columns = fx_call(FX_HCAT, fx_vector(1, 2), fx_vector(3, 4));
    assert_true(fx_ndims(columns) == 2 && fx_size(columns, 0) == 2 && fx_size(columns, 1) == 2);
    fx_array *cube = fx_call(fx_cat_function(2), a, b);
    assert_true(fx_ndims(cube) == 3 && fx_size(cube, 2) == 2);
    HOLDS(cube, 1, 2, 3, 4, 1, 1, 1, 1);
    void *both = fx_call(FX_TUPLE, a, b);
    assert_true(fx_count(both) == 2 && fx_child(both, 1) == b);
    assert_true(fx_call(fx_connection_new("first", first_of), a, b) == a);
    char text[100];
    fx_summary(fx_parallel(fx_cat_function(2), FX_RELU, FX_TANH), text, sizeof text);
    assert_string_equal(text, "Parallel(cat(dims=3), relu, tanh)");
    refused(fx_call(FX_ADD, a, fx_vector(1, 2)),
            "call: + takes arrays of one shape, got a 2×2 Matrix{Float32} and a 2-element "
            "Vector{Float32}");
    refused(fx_call(FX_SUB, a, b, b), "call: - takes one or two arrays, got 3");
    refused(fx_call(FX_VCAT, a, both), "call: cat takes arrays, got a Tuple");
    refused(fx_cat_function(8), "cat_function: the axis must be 0 to 7, got 8");
    refused(fx_connection_new("none", NULL), "connection_new: needs a name and a function");
    refused(fx_call(fx_dense(2, 2, fx_connection_new("first", first_of)), a),
            "call: a connection cannot be an activation function");
}

/* ---- Parallel and PairwiseFusion ------------------------------------------------------------- */

static void parallel_calls_its_layers(void **state)
{
    (void)state;
    fx_function *twice = fx_function_new("doubled", doubled),
                *square = fx_function_new("squared", squared);
    fx_array *x = fx_vector(1, 3), *y = fx_vector(5, 7);
    void *p = fx_parallel(FX_ADD, twice, square);
    HOLDS(fx_call(p, x), 2 + 1, 6 + 9);
    HOLDS(fx_call(p, x, y), 2 + 25, 6 + 49);
    HOLDS(fx_call(p, fx_tuple(x, y)), 2 + 25, 6 + 49);
    HOLDS(fx_call(p, fx_tuple(x)), 2 + 1, 6 + 9);
    HOLDS(fx_call(fx_parallel(FX_VCAT, twice), x, y, x), 2, 6, 10, 14, 2, 6);
    void *named = fx_parallel_of(FX_MUL, "a", twice, "b", square);
    HOLDS(fx_call(named, x), 2, 54);
    assert_true(fx_child_named(named, "b") == square && fx_child(named, 0) == FX_MUL);
    refused(fx_call(p, x, y, x), "Parallel: Parallel with 2 > 1 sub-layers can take one input or 2 "
                                 "inputs, but got 3 inputs");
    refused(fx_call(p, fxi_tuple(0, NULL)), "Parallel: Parallel layer cannot take 0 inputs");
}

static void pairwise_fusion_passes_results_on(void **state)
{
    (void)state;
    fx_function *twice = fx_function_new("doubled", doubled),
                *square = fx_function_new("squared", squared);
    fx_array *x = fx_vector(1, 3), *y = fx_vector(5, 7);
    void *f = fx_pairwisefusion(FX_ADD, twice, square, twice), *r = fx_call(f, x);
    assert_int_equal(fx_count(r), 3);
    HOLDS(fx_child(r, 0), 2, 6);
    HOLDS(fx_child(r, 1), 9, 81);   /* (2 + 1)², (6 + 3)² */
    HOLDS(fx_child(r, 2), 20, 168); /* 2·(9 + 1), 2·(81 + 3) */
    r = fx_call(f, fx_tuple(x, y, x));
    HOLDS(fx_child(r, 1), 49, 169); /* (2 + 5)², (6 + 7)² */
    refused(fx_call(f, x, y), "PairwiseFusion: PairwiseFusion with 3 sub-layers can take one input "
                              "or 3 inputs, but got 2 inputs");
}

static void *made(void *user)
{
    ++*(int *)user;
    return fx_dense(5, 7, FX_TANH);
}

static void maxout_takes_the_largest(void **state)
{
    (void)state;
    int count = 0;
    void *m = fx_maxout(fx_function_new("doubled", doubled), fx_function_new("squared", squared));
    HOLDS(fx_call(m, fx_vector(1, 3)), 2, 9);
    shows(fx_maxout_from(made, &count, 3),
          "Maxout(\n"
          "  Dense(5 => 7, tanh),                  # 42 parameters\n"
          "  Dense(5 => 7, tanh),                  # 42 parameters\n"
          "  Dense(5 => 7, tanh),                  # 42 parameters\n"
          ")                   # Total: 6 arrays, 126 parameters, 816 bytes.");
    assert_int_equal(count, 3);
    refused(fx_maxout_from(made, &count, 0),
            "Maxout: the number of layers must be positive, got 0");
    refused(fx_maxout_from(NULL, &count, 2), "Maxout: the function that makes a layer is NULL");
}

static void skip_connection_combines_with_its_input(void **state)
{
    (void)state;
    fx_function *twice = fx_function_new("doubled", doubled);
    HOLDS(fx_call(fx_skipconnection(twice, FX_SUB), fx_vector(1, 3)), 1, 3);
    void *same = fx_skipconnection(fx_dense(4, 4), FX_ADD);
    shows(fx_chain(fx_dense(4, 4), same),
          "Chain(\n"
          "  Dense(4 => 4),                        # 20 parameters\n"
          "  SkipConnection(\n"
          "    Dense(4 => 4),                      # 20 parameters\n"
          "    +,\n"
          "  ),\n"
          ")                   # Total: 4 arrays, 40 parameters, 368 bytes.");
    void *learned = fx_skipconnection(fx_dense(3, 2), fx_bilinear(FX_DIMS(2, 3), 4));
    assert_int_equal(fx_count(fx_trainables(learned)), 4);
    assert_int_equal(fx_size(fx_call(learned, fx_ones(3, 6)), 0), 4);
    refused(fx_skipconnection(twice),
            "SkipConnection: the connection is not a function or a layer: NULL");
    refused(fx_skipconnection(fx_ones(2), FX_ADD),
            "SkipConnection: the layer is not a function or a layer: 2-element Vector{Float32}");
    refused(fx_call(same, fx_ones(4), fx_ones(4)), "SkipConnection: takes one input, got 2");
}

static void containers_are_shown_as_in_flux(void **state)
{
    (void)state;
    shows(fx_parse_model("Parallel(+; α = Dense(10, 2, tanh), β = Dense(5, 2))"),
          "Parallel(\n"
          "  +,\n"
          "  α = Dense(10 => 2, tanh),             # 22 parameters\n"
          "  β = Dense(5 => 2),                    # 12 parameters\n"
          ")                   # Total: 4 arrays, 34 parameters, 344 bytes.");
    shows(fx_scale(FX_DIMS(1, 4), FX_RELU, .bias = false),
          "Scale(1, 4, relu; bias=false)  # 4 parameters");
    shows(fx_bilinear(FX_DIMS(2, 3), 4, FX_TANH), "Bilinear((2, 3) => 4, tanh)  # 28 parameters");
    shows(fx_bilinear(FX_DIMS(2), 4, .bias = false),
          "Bilinear(2 => 4; bias=false)  # 16 parameters");
}

static void containers_refuse_what_flux_refuses(void **state)
{
    (void)state;
    refused(fx_parallel(), "Parallel: the connection is missing");
    refused(fx_parallel(FX_ADD), "Parallel: cannot construct a Parallel layer with no sub-layers");
    refused(fx_maxout(), "Maxout: cannot construct a Maxout layer with no sub-layers");
    refused(fx_parallel(fx_ones(2), FX_RELU),
            "Parallel: the connection is not a function or a layer: 2-element Vector{Float32}");
    refused(fx_parallel(FX_ADD, FX_RELU, fx_ones(2)),
            "Parallel: child 1 is not a layer: 2-element Vector{Float32}");
    refused(fx_parallel_of(FX_ADD, "layers", FX_RELU),
            "Parallel: a Parallel layer cannot have a named sub-layer called `connection` or "
            "`layers`");
    refused(fx_pairwisefusion_of(FX_ADD, "a", FX_RELU, "a", FX_TANH),
            "PairwiseFusion: two layers are called `a`");
    refused(fx_parallel(FX_ADD, fx_dense(0, 1)), "Dense: sizes must be positive, got 0 => 1");
}

/* ---- Scale and Bilinear ---------------------------------------------------------------------- */

static void scale_multiplies_and_adds(void **state)
{
    (void)state;
    fx_array *x = fx_reshape(fx_vector(1, 2, 3, 4), 2, 2);
    HOLDS(fx_call(fx_scale(FX_DIMS(2)), x), 1, 2, 3, 4);
    void *s = fx_scale((fx_dims){0}, FX_RELU, .scale_array = fx_vector(2, -1),
                       .bias_array = fx_vector(1, 3));
    HOLDS(fx_call(s, x), 3, 1, 7, 0); /* 2·1 + 1, 3 − 2, 2·3 + 1, 3 − 4 */
    refused(fx_call(fx_scale(4), fx_ones(3, 5)),
            "Scale: layer Scale(4) expects size(input, 1) == 4, but got 3×5 Matrix{Float32}");
    refused(fx_call(fx_scale(FX_DIMS(1, 4)), fx_ones(3, 5)),
            "Scale: layer Scale(1, 4) expects size(input, 2) == 4, but got 3×5 Matrix{Float32}");
    assert_int_equal(fx_size(fx_call(fx_scale(FX_DIMS(3, 1)), fx_ones(1, 4)), 0), 3);
    refused(fx_scale(FX_DIMS(2, 0)), "Scale: takes 1 to 8 positive sizes, got (2, 0)");
    refused(fx_scale(FX_DIMS(2), .bias_array = fx_ones(3)),
            "Scale: expected bias of the size of a 2-element Vector{Float32}, got a 3-element "
            "Vector{Float32}");
}

static void bilinear_is_a_form(void **state)
{
    (void)state;
    /* W[0,:,:] = [1 3 5; 2 4 6]/…: w[o + 2·(i + 2·j)] of 1×2×3 numbers 1 … 6 */
    fx_array *w = fx_reshape(fx_vector(1, 2, 3, 4, 5, 6), 1, 2, 3), *b = fx_vector(10);
    void *l = fx_bilinear((fx_dims){0}, .weight_array = w, .bias_array = b);
    fx_array *x = fx_vector(1, 2), *z = fx_vector(1, 0, -1);
    /* Σ_ij x[i]·W[0,i,j]·z[j] = (1·1 + 2·2) − (1·5 + 2·6) = 5 − 17 */
    HOLDS(fx_call(l, x, z), -2);
    HOLDS(fx_call(l, fx_tuple(x, z)), -2);
    fx_array *y = fx_call(l, fx_ones(2, 5, 3), fx_ones(3, 5, 3));
    assert_true(fx_ndims(y) == 3 && fx_size(y, 1) == 5 && fx_at(y, 14) == 31); /* 10 + 1 + … + 6 */
    void *square = fx_bilinear((fx_dims){0}, .weight_array = fx_ones(1, 2, 2), .bias = false);
    HOLDS(fx_call(square, x), 9);
    refused(fx_call(l, x, x), "Bilinear: layer Bilinear((2, 3) => 1) expects size(input, 1) == 3, "
                              "but got 2-element Vector{Float32}");
    refused(fx_call(l, fx_ones(2, 4), fx_ones(3, 5)),
            "Bilinear: layer Bilinear((2, 3) => 1) expects two inputs with the same batch sizes, "
            "but got 3×5 Matrix{Float32}");
    refused(fx_call(l, x, z, z), "Bilinear: takes one or two inputs, got 3");
    refused(fx_bilinear(FX_DIMS(2, 3, 4), 1), "Bilinear: sizes must be positive, got (2, 3) => 1");
}

/* ---- notation and files ---------------------------------------------------------------------- */

static void notation_is_julias(void **state)
{
    (void)state;
    static const char *const same[] = {
        "Parallel(+, Dense(2 => 3), Dense(2 => 3))",
        "Parallel(vcat, a = Dense(2 => 3), b = Chain(Dense(2 => 3), relu))",
        "Parallel(cat(dims=3), relu, tanh)",
        "SkipConnection(Chain(Dense(4 => 4), relu), +)",
        "SkipConnection(Dense(4 => 4), hcat)",
        "PairwiseFusion(.*, tanh, relu)",
        "Parallel(-, relu, tanh)",
        "Parallel(tuple, relu, tanh)",
        "SkipConnection(Dense(4 => 2), Bilinear((2, 4) => 3))",
        "Maxout(Dense(2 => 3), Dense(2 => 3))",
        "Scale(1, 4, σ; bias=false)",
    };
    static const char *const bad[][2] = {
        {"Chain(Dense(2=>3), a=relu)",
         "model, column 1: either all layers of a Chain have names, or none"},
        {"Chain(a=relu, tanh)",
         "model, column 1: either all layers of a Chain have names, or none"},
        {"Parallel(+, relu, a=tanh)",
         "model, column 1: either all layers of a Parallel have names, or none"},
        {"Parallel(a=relu, b=tanh)",
         "model, column 1: Parallel takes a connection before its layers, got a = …"},
        {"Parallel(+)",
         "model, column 1: Parallel: cannot construct a Parallel layer with no sub-layers"},
        {"Maxout(a=relu)",
         "model, column 1: Maxout: the layers of a Maxout have no names, got `a`"},
        {"Parallel(cat(dims=9), relu)",
         "model, column 10: cat takes an axis from 1 to 8, as in cat(dims=3), got cat(dims=9)"},
        {"SkipConnection(relu)", "model, column 20: SkipConnection takes a connection, got )"},
        {"Bilinear((1, 2, 3) => 4)",
         "model, column 20: Bilinear takes (in1, in2) => out, got (1, 2, 3) ="},
    };
    char text[300];
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        FX_SCOPE;
        fx_summary(fx_parse_model(same[i]), text, sizeof text);
        assert_string_equal(text, same[i]);
    }
    fx_summary(fx_parse_model("Parallel(+, [relu, tanh])"), text, sizeof text);
    assert_string_equal(text, "Parallel(+, relu, tanh)");
    fx_summary(fx_parse_model("Bilinear((3, 3) => 2; bias=true)"), text, sizeof text);
    assert_string_equal(text, "Bilinear(3 => 2)");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(fx_parse_model(bad[i][0]), bad[i][1]);
}

static void files_name_julias_functions(void **state)
{
    (void)state;
    void *m = fx_parse_model(
        "Chain(Parallel(.*, a = Dense(2 => 3), b = tanh), SkipConnection(relu, hcat))");
    const char *path = temp_file("containers.bson", "", 0);
    assert_int_equal(fx_save(path, "model", m), FX_OK);
    char text[300], bytes[8000];
    fx_summary(fx_load_key(path, "model"), text, sizeof text);
    assert_string_equal(
        text, "Chain(Parallel(.*, a = Dense(2 => 3), b = tanh), SkipConnection(relu, hcat))");
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t i = 0; i < n; i++) /* names of types, as text */
        bytes[i] = bytes[i] && bytes[i] > ' ' ? bytes[i] : ' ';
    bytes[n < sizeof bytes ? n : n - 1] = 0;
    assert_non_null(strstr(bytes, "BroadcastFunction"));
    assert_non_null(strstr(bytes, "#hcat"));
    assert_int_equal(fx_save(path, "model", fx_parallel(fx_cat_function(2), FX_RELU)),
                     FX_STATUS_UNSUPPORTED);
    fx_error_take();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(connections_are_functions_of_julia),
        TEST(parallel_calls_its_layers),
        TEST(pairwise_fusion_passes_results_on),
        TEST(maxout_takes_the_largest),
        TEST(skip_connection_combines_with_its_input),
        TEST(containers_are_shown_as_in_flux),
        TEST(containers_refuse_what_flux_refuses),
        TEST(scale_multiplies_and_adds),
        TEST(bilinear_is_a_form),
        TEST(notation_is_julias),
        TEST(files_name_julias_functions),
    };
    return cmocka_run_group_tests_name("containers", tests, NULL, NULL);
}
